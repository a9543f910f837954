"""The guides of ``docs/guides`` whose applications are of JavaScript, followed as ``test_guides.py``
follows the others. Node.js comes from a lock of pip, the packages from one of npm.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser, Page
from tests.support.effort import HEAVY
from tests.support.guides import ANN, BO, MARKERS, Followed, fetched, followed, submitted
from tests.support.real.installed import NODE, directus, environment, modules
from tests.support.unavailable import Unavailable

#: A picture of one point.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

#: Puts that picture into the file field of a page.
CHOOSE = f"""(async () => {{
    const bytes = Uint8Array.from(atob("{PICTURE}"), (one) => one.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], "holiday.png", {{type: "image/png"}}));
    document.querySelector("input[type=file]").files = files.files;
}})()"""


async def written(page: Page, texts: dict[str, str], names: str = "{}") -> None:
    """Type texts into the fields of those names."""
    for name, text in texts.items():
        await page.fill(f"[name='{names.format(name)}']", text)


async def sent(page: Page, method: str, path: str, document: Any = None) -> Any:
    """The document that an answer holds, ``None`` where it holds none."""
    body = {} if document is None else {"body": json.dumps(document)}
    options = {"method": method, "headers": {"Content-Type": "application/json"}, **body}
    return await page.evaluate(
        f"fetch({json.dumps(path)}, {json.dumps(options)})"
        ".then((answer) => answer.text()).then((text) => text ? JSON.parse(text) : null)"
    )


# ---------------------------------------------------------------------- Express


@pytest.mark.slow
async def test_express(browser: Browser, tmp_path: Path) -> None:
    node = environment(NODE)
    async with followed("express", tmp_path, node, modules=modules(node)) as guide:
        page = await browser.page()
        await page.goto(f"{guide.proxy}/people")
        assert await page.evaluate("location.pathname") == "/login"
        await written(page, {"user": "editor", "password": "wrong"})
        await submitted(page, "button")
        assert await page.text("[role=alert]") == "That is not right."
        await written(page, {"user": "editor", "password": "correct horse"})
        await submitted(page, "button")
        assert await page.evaluate("location.pathname") == "/people"
        for number, (person, city) in enumerate(((ANN, "Visby"), (BO, "Arboga")), 1):
            await page.goto(f"{guide.proxy}/people/new")
            await written(page, {**person, "city": city})
            await page.evaluate(CHOOSE)
            await submitted(page, "#person button")
            assert await page.evaluate("location.pathname") == f"/people/{number}"
            assert await page.text("h1") == person["name"]
            assert await page.evaluate("document.querySelector('img').naturalWidth") == 1
        await lists_of_express(page, guide)
        await forms_of_express(page, guide)
        assert guide.leaked(*MARKERS) == {}
        expected = ("status of 4", "favicon")
        assert [one for one in page.problems if not any(word in one for word in expected)] == []


async def lists_of_express(page: Page, guide: Followed) -> None:
    """The list, its searches, its orders, the list of a script, the export."""
    rows = "[...document.querySelectorAll('tbody tr')].map((row) => row.innerText.split('\\t'))"
    ann, bo = (
        [one["name"], one["email"], one["phone"], one["birth_date"], city]
        for one, city in ((ANN, "Visby"), (BO, "Arboga"))
    )
    for query, people in (
        ("", [ann, bo]),
        ("?sort=city", [bo, ann]),
        ("?q=quibble", [ann]),
        ("?q=BART@wexlomere.example", [bo]),
        ("?q=nobody", []),
        ("?q=snick&city=Arboga&sort=city", [bo]),
    ):
        await page.goto(f"{guide.proxy}/people{query}")
        assert await page.evaluate(rows) == people, query
    for order in ("name", "email", "birth_date", "NAME"):
        status, text = await fetched(page, f"/people?sort={order}")
        assert (status, "search_refused" in text) == (422, True), order
    await page.goto(f"{guide.proxy}/people")
    assert await page.evaluate("document.querySelector('tbody a[href^=mailto]').href") == (
        f"mailto:{ANN['email']}"
    )
    await page.fill("[name=q]", "zorb")
    await page.until("document.querySelectorAll('#found li').length === 1")
    assert await page.text("#found") == f"{ANN['name']}, {ANN['birth_date']}, Visby"
    status, text = await fetched(page, "/people.csv")
    lines = [
        ",".join(f'"{cell}"' for cell in (number, *one.values(), city))
        for number, (one, city) in enumerate(((ANN, "Visby"), (BO, "Arboga")), 1)
    ]
    assert text.splitlines() == ["id,name,email,phone,birth_date,note,city", *lines]


async def forms_of_express(page: Page, guide: Followed) -> None:
    """The form of a person, an address that is there already, a session that is over, a delete."""
    await page.goto(f"{guide.proxy}/people/1")
    values = "Object.fromEntries(new FormData(document.querySelector('#person')))"
    assert await page.evaluate(values) == {**ANN, "city": "Visby"}
    await written(page, {"note": "Moved, plöm and all.", "birth_date": "1931-02-28"})
    await submitted(page, "#person button")
    changed = {**ANN, "city": "Visby", "note": "Moved, plöm and all.", "birth_date": "1931-02-28"}
    assert await page.evaluate(values) == changed
    body = {"birth_date": ANN["birth_date"], "phone": "+46 70 918 27 00"}
    answer = await sent(page, "PATCH", "/api/people/1", body)
    assert {name: answer[name] for name in changed} == {**changed, **body}

    await page.goto(f"{guide.proxy}/people/new")
    await written(page, {**BO, "email": ANN["email"].upper()})
    await submitted(page, "#person button")
    assert await page.text("[role=alert]") == f"{ANN['email'].upper()} is there already."
    assert await page.evaluate(values) | {"photo": ""} == {
        **BO, "email": ANN["email"].upper(), "city": "", "photo": "",
    }  # fmt: skip
    await page.evaluate("fetch('/logout', {method: 'POST'}).then(() => 1)")
    await page.goto(f"{guide.proxy}/people/2")
    await written(page, {"user": "editor", "password": "correct horse"})
    await submitted(page, "button")
    await page.goto(f"{guide.proxy}/people/2")
    await submitted(page, "#delete button")
    assert BO["name"] not in await page.text()
    assert (await fetched(page, "/people/2"))[0] == 404
    assert (await fetched(page, "/metrics"))[0] == 403


# ---------------------------------------------------------------------- forms as Rails makes them

#: A third person, so that a list has two pages.
CY = {
    "name": "Cyrilla Snickelford", "email": "cy@wexlomere.example",
    "phone": "+46 70 555 33 44", "birth_date": "1950-03-09",
}  # fmt: skip
STREETS = (("Plömgatan 12", "Visby"), ("Wexlomere Road 3", "Hemse"))


async def test_forms_as_rails_makes_them(browser: Browser, tmp_path: Path) -> None:
    node = environment(NODE)
    async with followed("rails-forms", tmp_path, node, modules=modules(node)) as guide:
        page = await browser.page()
        users = ((ANN, "Visby"), (BO, "Arboga"), (CY, "Eksjö"))
        for number, (person, city) in enumerate(users, 1):
            await page.goto(f"{guide.proxy}/users/new")
            await written(page, {**typed(person), "city": city}, "user[{}]")
            await street(page, 0, *STREETS[0])
            await submitted(page, "#user button")
            assert await page.evaluate("location.pathname") == f"/users/{number}"
            assert await page.text(".notice") == f"{person['name']} was successfully created."
            assert await page.text("h1") == person["name"]
            assert await page.text("li") == "Plömgatan 12, Visby"
            assert f"Born: {person['birth_date']}" in " ".join((await page.text()).split())
        await lists_of_users(page, guide)
        await forms_of_users(page, guide)
        await archive_of_users(page, guide)
        more = ("Cyrilla", "33 44", "1950-03-09", "Plömgatan")
        assert guide.leaked(*MARKERS, *more) == {}
        assert [one for one in page.problems if "status of 4" not in one] == []


def typed(person: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in person.items() if name != "note"}


async def street(page: Page, number: int, name: str, town: str) -> None:
    """Fill in an address of a nested form."""
    await written(page, {"street": name, "town": town}, f"user[addresses][{number}][{{}}]")


async def lists_of_users(page: Page, guide: Followed) -> None:
    """The list with its pages, its searches, its orders, the export."""
    cells = "[...document.querySelectorAll('tbody tr')].map((row) => row.innerText.split('\\t'))"
    rows = f"{cells}.map((one) => one[0])"
    ann, bo, cy = ANN["name"], BO["name"], CY["name"]
    await page.goto(f"{guide.proxy}/users?q[name_or_email_cont]=snickel")
    dates = [one["birth_date"] for one in (BO, CY)]
    assert [one[2] for one in await page.evaluate(cells)] == dates
    for query, people in (
        ("", [ann, bo]),
        ("?page=2", [cy]),
        ("?q[s]=city+asc", [bo, cy]),
        ("?q[s]=city+desc&page=2", [bo]),
        ("?q[name_or_email_cont]=quibble", [ann]),
        ("?q[name_or_email_cont]=CY@wexlomere.example", [cy]),
        ("?q[name_or_email_cont]=nobody", []),
        ("?q[name_or_email_cont]=snickel&q[city_eq]=Arboga", [bo]),
        ("?q[email_eq]=Bart@Wexlomere.example", [bo]),
    ):
        await page.goto(f"{guide.proxy}/users{query}")
        assert await page.evaluate(rows) == people, query
    for order in (
        "q[s]=name+asc",
        "q[s]=birth_date+desc",
        "q[email_start]=bart",
        "q[name_or_email_cont]=i",
    ):
        status, text = await fetched(page, f"/users?{order}")
        assert (status, "search_refused" in text) == (422, True), order

    await page.goto(f"{guide.proxy}/users")
    await page.fill("#user_search input", "snickel")
    await submitted(page, "#user_search button")
    assert await page.evaluate(rows) == [bo, cy]
    await submitted(page, ".pages a:last-child")
    assert await page.evaluate(rows) == [bo, cy]
    assert "snickel" not in await page.evaluate("location.search")

    status, text = await fetched(page, "/users.csv")
    users = ((ANN, "Visby"), (BO, "Arboga"), (CY, "Eksjö"))
    lines = [
        ",".join(f'"{cell}"' for cell in (number, *typed(one).values(), city))
        for number, (one, city) in enumerate(users, 1)
    ]
    assert text.splitlines() == ["id,name,email,phone,birth_date,city", *lines]


async def forms_of_users(page: Page, guide: Followed) -> None:
    """A form of a person, with mistakes and without, and its addresses."""
    await page.goto(f"{guide.proxy}/users/1/edit")
    values = """Object.fromEntries([...new FormData(document.querySelector("#user"))].filter(
        ([name, text]) => name !== "authenticity_token" && text))"""
    person = {f"user[{name}]": text for name, text in typed(ANN).items()}
    first = {"user[addresses][0][street]": STREETS[0][0], "user[addresses][0][town]": STREETS[0][1]}
    before = {"_method": "patch", **person, "user[city]": "Visby", **first}
    assert await page.evaluate(values) == before
    wrong = {"name": "", "email": BO["email"].upper(), "birth_date": "1931-02-28"}
    await written(page, wrong, "user[{}]")
    await street(page, 1, *STREETS[1])
    await submitted(page, "#user button")
    assert (await page.text("[role=alert]")).splitlines() == [
        "Name can't be blank", f"Email {BO['email'].upper()} has already been taken",
    ]  # fmt: skip
    second = {
        "user[addresses][1][street]": STREETS[1][0],
        "user[addresses][1][town]": STREETS[1][1],
    }
    again = {**before, **second, **{f"user[{name}]": text for name, text in wrong.items()}}
    assert await page.evaluate(values) == {name: text for name, text in again.items() if text}
    await written(page, {"name": "Zorbina Ångström", "email": ANN["email"]}, "user[{}]")
    await submitted(page, "#user button")
    assert await page.text(".notice") == "Zorbina Ångström was successfully updated."
    assert (await page.text("ul")).splitlines() == [", ".join(one) for one in STREETS]
    await page.goto(f"{guide.proxy}/users/1/edit")
    after = {**again, "user[name]": "Zorbina Ångström", "user[email]": ANN["email"]}
    assert await page.evaluate(values) == after
    forged = "fetch('/users/1', {method: 'POST', body: new URLSearchParams({_method: 'patch', authenticity_token: 'x'})})"
    assert await page.evaluate(f"{forged}.then((answer) => answer.status)") == 403


async def archive_of_users(page: Page, guide: Followed) -> None:
    """Into the archive, and out of it."""
    await page.goto(f"{guide.proxy}/users/2")
    await submitted(page, ".archive button")
    assert await page.text(".notice") == f"{BO['name']} was archived."
    assert BO["name"] not in await page.text("tbody")
    await page.goto(f"{guide.proxy}/users/archived")
    assert BO["name"] in await page.text("li")
    await submitted(page, ".restore button")
    assert await page.text("h1") == BO["name"]
    assert await page.text("li") == "Plömgatan 12, Visby"
    assert (await fetched(page, "/users/2/history"))[0] == 403


# ---------------------------------------------------------------------- Directus

ITEMS = "/items/contacts"


@pytest.fixture
def heavy(unavailable: Unavailable) -> None:
    """Run the test only where somebody has asked for what takes minutes to install."""
    if not HEAVY:
        unavailable("the guide for Directus", "its packages take 730 MB; make guides runs it")


@pytest.mark.usefixtures("heavy")
async def test_directus(browser: Browser, tmp_path: Path) -> None:
    node, packages = directus()
    async with followed("directus", tmp_path, node, 8055, packages) as guide:
        page = await browser.page(1400, 900)
        await page.goto(f"{guide.proxy}/admin/login")
        await page.fill("input[type=email]", "editor@example.com")
        await page.fill("input[type=password]", "correct horse")
        await page.click("button[type=submit]")
        await page.until("location.pathname.startsWith('/admin/content')")
        await pressed(page, "Skip")  # the question for a licence
        await app_of_directus(page, guide)
        await rest_of_directus(page)
        await import_of_directus(page)
        await graphql_of_directus(page)
        assert guide.leaked(*MARKERS, "Cyrilla", "33 44", "1950-03-09", "Dorabella") == {}


async def pressed(page: Page, text: str) -> None:
    """Press the button with that text, as soon as it is there."""
    found = f"[...document.querySelectorAll('button')].find((one) => one.innerText.trim() === {json.dumps(text)})"
    await page.until(found)
    await page.evaluate(f"{found}.click()")


async def listed(page: Page, *people: dict[str, str]) -> None:
    """Wait until the app lists these people, and nobody else."""
    rows = "[...document.querySelectorAll('.table-row')].map((row) => row.innerText)"
    await page.until(f"{rows}.length === {len(people)}")
    for number, one in enumerate(people):
        for name in ("name", "email", "phone"):
            await page.until(f"{rows}[{number}].includes({json.dumps(one[name])})")


async def app_of_directus(page: Page, guide: Followed) -> None:
    """The form of the admin app, its list and its search box."""
    for person, city in ((ANN, "Visby"), (BO, "Arboga")):
        await page.goto(f"{guide.proxy}/admin/content/contacts/+")
        texts = {name: person[name] for name in ("name", "email", "phone")}
        for name, text in {**texts, "city": city}.items():
            await page.fill(f"[data-field={name}] input", text)
        await page.fill("[data-field=note] textarea", person["note"])
        await pressed(page, "Save")
        await page.until("location.pathname === '/admin/content/contacts'")
    await listed(page, ANN, BO)
    for number, person in enumerate((ANN, BO), 1):  # a date is typed in parts, so by the interface
        born = {"birth_date": person["birth_date"]}
        assert (await sent(page, "PATCH", f"{ITEMS}/{number}", born))["data"]["birth_date"]
    await page.goto(f"{guide.proxy}/admin/content/contacts")
    await listed(page, ANN, BO)
    await page.evaluate("document.querySelector('.search-input').click()")
    await page.fill(".search-input input", "QUIBBLE")
    await listed(page, ANN)
    await page.fill(".search-input input", BO["email"].upper())
    await listed(page, BO)
    saved = "fetch('/presets').then((answer) => answer.json()).then((all) => all.data[0]?.search)"
    await page.until(f"{saved}.then((text) => text === {json.dumps(BO['email'].upper())})")
    await page.goto(f"{guide.proxy}/admin/content/contacts/1")
    field = "document.querySelector('[data-field={}] {}')?.value"
    for name in ("name", "email", "phone"):
        await page.until(f"{field.format(name, 'input')} === {json.dumps(ANN[name])}")
    await page.until("document.querySelector('main').innerText.includes('February 27th, 1931')")
    await page.fill("[data-field=note] textarea", "Moved, plöm and all.")
    await pressed(page, "Save")
    await page.until("location.pathname === '/admin/content/contacts'")
    changes = await sent(page, "GET", "/revisions?filter[item][_eq]=1&sort=-id&limit=1")
    assert changes["data"][0]["data"]["name"] == ANN["name"]
    assert changes["data"][0]["delta"] == {"note": "Moved, plöm and all."}


async def rest_of_directus(page: Page) -> None:
    """Searches, orders, refusals and the export of the REST interface."""
    for query, ids in (
        ("", [1, 2]),
        ("?search=snickel", [2]),
        ("?search=nobody", []),
        ("?filter[email][_eq]=zorbina.q@wexlomere.example", [1]),
        ("?filter[_and][0][email][_in]=bart@wexlomere.example,x@y.example", [2]),
        ("?search=snickel&filter[_and][0][city][_eq]=Visby", []),
        ("?sort=city", [2, 1]),
        ("?sort[]=-city&fields=id,name", [1, 2]),
    ):
        found = await sent(page, "GET", f"{ITEMS}{query}")
        assert [one["id"] for one in found["data"]] == ids, query
    counted = await sent(page, "GET", f"{ITEMS}?search=quibble&aggregate[countDistinct]=id")
    assert counted["data"] == [{"countDistinct": {"id": 1}}]
    for query in (
        "sort=name", "sort[]=-birth_date", "groupBy[]=name", "aggregate[min]=birth_date",
        "filter[name][_contains]=Zorb", 'filter={"name":{"_contains":"Zorb"}}',
        "filter[_and][0][email][_starts_with]=zorb",
    ):  # fmt: skip
        status, text = await fetched(page, f"{ITEMS}?{query}")
        assert (status, "search_refused" in text) == (422, True), query
    again = {"name": "Zorbina II", "email": ANN["email"].upper()}
    refused = await sent(page, "POST", ITEMS, again)
    assert ANN["email"].upper() in refused["errors"][0]["message"]
    wrong = await sent(page, "POST", ITEMS, {**again, "email": "Zorbina"})
    assert wrong["code"] == "value_invalid"
    status, text = await fetched(page, f"{ITEMS}?export=csv&sort=id")
    rows = [
        f'{number},"{one["name"]}","{one["email"]}","{one["phone"]}","{one["birth_date"]}","{note}","{city}"'
        for number, one, note, city in (
            (1, ANN, "Moved, plöm and all.", "Visby"), (2, BO, BO["note"], "Arboga"),
        )
    ]  # fmt: skip
    header = ",".join(f'"{name}"' for name in ("id", *ANN, "city"))
    assert text.splitlines() == [header, *rows]
    for path in ("/utils/export/contacts", "/versions", "/items/others"):
        assert (await sent(page, "POST", path, {"name": "x"}))["code"] == "operation_denied"


async def import_of_directus(page: Page) -> None:
    """An import in CSV; its people are found once a list has shown them."""
    text = "".join(f"{','.join(row)}\r\n" for row in (typed(CY), typed(CY).values()))
    status = await page.evaluate(
        f"""(async () => {{
            const form = new FormData();
            form.append("file", new File([{json.dumps(text)}], "in.csv", {{type: "text/csv"}}));
            return (await fetch("/utils/import/contacts", {{method: "POST", body: form}})).status;
        }})()"""
    )
    assert status == 200
    people = await sent(page, "GET", f"{ITEMS}?fields=*")
    assert {name: people["data"][2][name] for name in typed(CY)} == typed(CY)
    found = await sent(page, "GET", f"{ITEMS}?search=snickelf")
    assert [one["name"] for one in found["data"]] == [CY["name"]]


async def graphql_of_directus(page: Page) -> None:
    """The same people by GraphQL."""

    async def graph(query: str, **variables: Any) -> Any:
        return await sent(page, "POST", "/graphql", {"query": query, "variables": variables})

    create = "mutation ($one: create_contacts_input!) { create_contacts_item(data: $one) { id name birth_date } }"
    dora = {
        "name": "Dorabella Wexlomere",
        "email": "dora@wexlomere.example",
        "birth_date": "1931-02-27",
    }
    made = await graph(create, one=dora)
    shown = {"name": dora["name"], "birth_date": dora["birth_date"]}
    number = made["data"]["create_contacts_item"]["id"]
    assert made["data"]["create_contacts_item"] == {"id": number, **shown}
    failed = await graph(create, one=dora)
    assert dora["email"] in failed["errors"][0]["message"]
    by_email = "query ($e: String) { contacts(filter: {email: {_eq: $e}}) { id name birth_date } }"
    found = {"data": {"contacts": [{"id": number, **shown}]}}
    assert await graph(by_email, e="DORA@wexlomere.example") == found
    for arguments in ('search: "Dora"', 'sort: ["-name"]'):
        refused = await graph(f"{{ contacts({arguments}) {{ id }} }}")
        assert refused["code"] == "search_refused", arguments
    refused = await graph('{ contacts(filter: {name: {_contains: "Dora"}}) { id } }')
    assert refused["status"] == 422
    change = f'mutation {{ update_contacts_item(id: {number}, data: {{name: "Dorabella W"}}) {{ name }} delete_contacts_item(id: 3) {{ id }} }}'
    changed = await graph(change)
    assert changed["data"]["update_contacts_item"] == {"name": "Dorabella W"}
    many = await sent(page, "PATCH", ITEMS, {"keys": [1, 2], "data": {"note": "Both plöm."}})
    assert [one["note"] for one in many["data"]] == ["Both plöm."] * 2
    assert await sent(page, "DELETE", ITEMS, [2]) is None
    left = await sent(page, "GET", ITEMS)
    assert [one["name"] for one in left["data"]] == [ANN["name"], "Dorabella W"]
