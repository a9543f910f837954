"""The guides of ``docs/guides`` whose applications are of JavaScript, followed as ``test_guides.py``
follows the others. Node.js comes from a lock of pip, the packages from one of npm.
"""

import json
from pathlib import Path
from typing import Any

from tests.support.browser import Browser, Page
from tests.support.guides import ANN, BO, MARKERS, Followed, fetched, followed, submitted
from tests.support.real.installed import NODE, environment, modules

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


# ---------------------------------------------------------------------- Express


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
        [one["name"], one["email"], one["phone"], city]
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
    order = {"method": "PATCH", "headers": {"Content-Type": "application/json"}}
    body = {"birth_date": ANN["birth_date"], "phone": "+46 70 918 27 00"}
    answer = await called(page, "/api/people/1", {**order, "body": json.dumps(body)})
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


async def called(page: Page, path: str, options: dict[str, Any]) -> Any:
    """The document that an answer holds, asked for with the session of the page."""
    return await page.evaluate(
        f"fetch({json.dumps(path)}, {json.dumps(options)}).then((answer) => answer.json())"
    )


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
    rows = "[...document.querySelectorAll('tbody tr')].map((row) => row.innerText.split('\\t')[0])"
    ann, bo, cy = ANN["name"], BO["name"], CY["name"]
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
