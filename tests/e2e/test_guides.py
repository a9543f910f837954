"""The guides of ``docs/guides``, followed from their first line to their last: the real application,
made and started by the commands of the page, behind the proxy with the rule file that it names.

Each shows the same: people see people, nothing that the application keeps holds a value, a search by
an e-mail address and by a part of a name finds the record, an order is right or refused, an export is
clear.
"""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from tests.support.auth import basic
from tests.support.browser import Browser, Page
from tests.support.guides import ANN, BO, MARKERS, Followed, Guide, fetched, followed, submitted
from tests.support.patience import PATIENCE
from tests.support.real.installed import GUIDES, environment

# ---------------------------------------------------------------------- Django and its admin

PEOPLE = "/admin/people/person/"


@pytest.mark.slow
async def test_django_and_its_admin(browser: Browser, tmp_path: Path) -> None:
    async with followed("django-admin", tmp_path, environment()) as guide:
        page = await browser.page()
        await page.goto(f"{guide.proxy}{PEOPLE}")
        await page.fill("#id_username", "editor")
        await page.fill("#id_password", "correct horse")
        await submitted(page, "input[type=submit]")
        for person, city in ((ANN, "Visby"), (BO, "Arboga")):
            await page.goto(f"{guide.proxy}{PEOPLE}add/")
            for name, text in {**person, "city": city}.items():
                await page.fill(f"#id_{name}", text)
            await submitted(page, "input[name=_save]")
            assert f"The person “{person['name']}” was added" in await page.text(".messagelist")
        await lists_of_django(page)
        await searches_of_django(page)
        await forms_of_django(page)
        assert guide.leaked(*MARKERS) == {}
        assert [one for one in page.problems if "status of 4" not in one] == []


async def lists_of_django(page: Page) -> None:
    """The list, its filter, its orders, its export."""
    rows = "[...document.querySelectorAll('#result_list tbody tr')].map((row) => row.innerText)"
    listed = await page.evaluate(rows)
    assert [ANN["name"] in listed[0], BO["name"] in listed[1]] == [True, True]
    assert ANN["email"] in listed[0]
    await page.click("th.column-city a")
    await page.until("location.search.includes('o=3')")
    await page.until(f"{rows}[0]?.includes('Snickelway')")
    assert not await page.evaluate("!!document.querySelector('th.column-name a')")
    for order in ("o=1", "o=-2", "o=3.-1", "name__startswith=Zorb", "email=a%40b.example"):
        status, text = await fetched(page, f"{PEOPLE}?{order}")
        assert (status, "search_refused" in text) == (422, True), order
    await page.goto(f"{await page.evaluate('location.origin')}{PEOPLE}?city=Visby")
    assert len(await page.evaluate(rows)) == 1
    await page.goto(f"{await page.evaluate('location.origin')}{PEOPLE}")
    exported = await page.evaluate(
        """(async () => {
            document.querySelectorAll("input.action-select").forEach((box) => { box.checked = true; });
            document.querySelector("select[name=action]").value = "export";
            const form = new URLSearchParams(new FormData(document.querySelector("#changelist-form")));
            return await (await fetch("", {method: "POST", body: form})).text();
        })()"""
    )
    lines = exported.splitlines()
    assert lines[0] == "ID,Name,E-mail,Phone,Born,City"
    assert sorted(line.partition(",")[2] for line in lines[1:]) == sorted(
        ",".join([one["name"], one["email"], one["phone"], one["birth_date"], city])
        for one, city in ((ANN, "Visby"), (BO, "Arboga"))
    )


async def searches_of_django(page: Page) -> None:
    """The search box: parts of a name, an address in another spelling, nobody."""
    count = "document.querySelectorAll('#result_list tbody tr').length"
    for words, there in (("quibble", 1), ("ZORBINA.Q@wexlomere.example", 1), ("Nobody", 0)):
        await page.fill("#searchbar", words)
        await submitted(page, "#changelist-search input[type=submit]")
        assert await page.evaluate(count) == there, words
        assert ("Quibblethwaite" in await page.text("#changelist")) is bool(there)


async def forms_of_django(page: Page) -> None:
    """The form of a person, its history, the question before a delete."""
    origin = await page.evaluate("location.origin")
    place = f"{origin}{PEOPLE}1/"
    await page.goto(f"{place}change/")
    assert {name: await page.evaluate(f"id_{name}.value") for name in ANN} == ANN
    await page.fill("#id_note", "Moved, plöm and all.")
    await submitted(page, "input[name=_continue]")
    assert await page.evaluate("id_note.value") == "Moved, plöm and all."
    assert await page.evaluate("id_birth_date.value") == ANN["birth_date"]
    await page.fill("#id_phone", "")
    await page.click("#id_vip")
    await submitted(page, "input[name=_save]")
    assert f"{ANN['name']} <{ANN['email']}> is a VIP" in await page.text("#content")
    assert await page.evaluate("id_birth_date.value") == ANN["birth_date"]
    await page.goto(f"{place}history/")
    assert ANN["name"] in await page.text("#content")
    assert "Changed Note." in await page.text("#content")
    await page.goto(f"{origin}{PEOPLE}2/delete/")
    assert BO["name"] in await page.text("#content")
    await submitted(page, "#content input[type=submit]")
    assert "was deleted successfully" in await page.text(".messagelist"), "by its token: it is gone"
    await page.goto(f"{origin}/admin/")
    assert ANN["name"] in await page.text("#recent-actions-module")


# ---------------------------------------------------------------------- FastAPI

PERSON = {name: text for name, text in ANN.items() if name != "note"} | {"city": "Visby"}
OTHER = {name: text for name, text in BO.items() if name != "note"} | {"city": "Arboga"}


async def asked(
    session: aiohttp.ClientSession, method: str, path: str, **order: Any
) -> tuple[int, Any]:
    """Status of an answer, and what it says: its document, or its text."""
    async with session.request(method, path, **order) as answer:
        kind = answer.content_type
        return answer.status, await (
            answer.json(content_type=None) if kind.endswith("json") else answer.text()
        )


@pytest.mark.slow
async def test_fastapi(browser: Browser, tmp_path: Path) -> None:
    async with (
        followed("fastapi", tmp_path, environment(GUIDES)) as guide,
        aiohttp.ClientSession(guide.proxy) as session,
    ):
        await records_of_fastapi(session)
        page = await browser.page()
        await page.goto(guide.proxy)
        await page.until("document.querySelectorAll('li').length === 2")
        assert await page.text("li") == ", ".join(
            [PERSON["name"], PERSON["email"], PERSON["birth_date"], PERSON["city"]]
        )
        await page.fill("input", "SNICKEL")
        await page.press("Enter", 13)
        await page.until("document.querySelectorAll('li').length === 1")
        assert OTHER["name"] in await page.text("ul")
        assert [one for one in page.problems if "favicon" not in one] == []
        assert (await asked(session, "DELETE", "/people/2"))[0] == 204
        status, document = await asked(session, "GET", "/openapi.json")
        assert (status, "/people/{number}" in document["paths"]) == (200, True)
        assert (await asked(session, "GET", "/docs"))[0] == 200
        assert (await asked(session, "GET", "/metrics"))[0] == 403
        assert guide.leaked(*MARKERS) == {}


async def records_of_fastapi(session: aiohttp.ClientSession) -> None:
    """Records, searches, orders, refusals, the export."""
    for number, one in enumerate((PERSON, OTHER), 1):
        assert await asked(session, "POST", "/people", json=one) == (201, {**one, "id": number})
    first, second = {**PERSON, "id": 1}, {**OTHER, "id": 2}
    assert await asked(session, "GET", "/people/1") == (200, first)
    for query, people in (
        ("", [first, second]),
        ("?q=quibble", [first]),
        ("?q=nobody", []),
        ("?email=zorbina.q@wexlomere.example", [first]),
        ("?q=bart@wexlomere.example&city=Arboga", [second]),
        ("?sort=city", [second, first]),
    ):
        assert await asked(session, "GET", f"/people{query}") == (200, people), query
    for order in ("name", "birth_date", "email"):
        status, said = await asked(session, "GET", f"/people?sort={order}")
        assert (status, said["code"]) == (422, "search_refused")
    again = await asked(session, "POST", "/people", json=PERSON)
    assert again == (409, {"detail": f"{PERSON['email']} is there already"})
    status, said = await asked(session, "POST", "/people", json={**PERSON, "phone": "0918 27 36"})
    assert (status, said["detail"][0]["input"]) == (422, "0918 27 36")
    status, said = await asked(session, "POST", "/people", json={**PERSON, "email": "Zorbina"})
    assert (status, said["code"]) == (422, "value_invalid")
    changed = await asked(session, "PATCH", "/people/1", json={"birth_date": "1931-02-28"})
    assert changed == (200, {**first, "birth_date": "1931-02-28"})
    assert await asked(session, "PATCH", "/people/1", json={"birth_date": "1931-02-27"}) == (
        200,
        first,
    )
    status, text = await asked(session, "GET", "/people.csv")
    assert text.splitlines() == [
        "id,name,email,phone,birth_date,city",
        *(f"{number},{','.join(one.values())}" for number, one in enumerate((PERSON, OTHER), 1)),
    ]


# ---------------------------------------------------------------------- GraphQL


RENAME = 'mutation { renamePerson(id: 1, name: "Zorbina Quibblethwaite") { name } }'


@pytest.mark.slow
async def test_graphql(tmp_path: Path) -> None:
    async with (
        followed("graphql", tmp_path, environment(GUIDES)) as guide,
        aiohttp.ClientSession(guide.proxy) as session,
    ):

        async def graph(document: str, **variables: Any) -> Any:
            order = {"query": document, "variables": variables}
            return (await asked(session, "POST", "/graphql", json=order))[1]

        create = """mutation ($one: PersonInput!, $email: String!) { a: createPerson(input: $one) { ...all }
            b: createPerson(input: {name: "Bartholomew Snickelway", email: $email, city: "Arboga"}) { ...all } }
            fragment all on Person { id who: name email birthDate city }"""
        one = {"name": PERSON["name"], "email": PERSON["email"], "birthDate": "1931-02-27"}
        made = await graph(create, one={**one, "city": "Visby"}, email=OTHER["email"])
        shown = {"who": one["name"], "email": one["email"], "birthDate": one["birthDate"]}
        first = {"id": "1", **shown, "city": "Visby"}
        second = {
            "id": "2", "who": OTHER["name"], "email": OTHER["email"], "birthDate": None, "city": "Arboga",
        }  # fmt: skip
        assert made == {"data": {"a": first, "b": second}}
        listed = "query ($email: String, $order: Order! = ID) { people(email: $email, order: $order) { id name } }"
        names: list[dict[str, Any]] = [
            {"id": "1", "name": first["who"]},
            {"id": "2", "name": second["who"]},
        ]
        assert await graph(listed) == {"data": {"people": names}}
        assert await graph(listed, order="CITY") == {"data": {"people": names[::-1]}}
        assert await graph(listed, email=one["email"].lower()) == {"data": {"people": names[:1]}}
        assert (await graph(listed, order="NAME"))["code"] == "search_refused"
        assert (await graph('{ people(q: "Zorb") { id } }'))["code"] == "search_refused"
        for words, people in (
            ("quibble", [first]),
            ("BART@wexlomere.example", [second]),
            ("x y z", []),
        ):
            found = (await asked(session, "GET", f"/people/search?q={words}"))[1]
            assert [one["name"] for one in found] == [one["who"] for one in people], words
        _, text = await asked(session, "GET", "/people.csv")
        assert text.splitlines() == [
            "id,name,email,birth_date,city",
            *(",".join(value or "" for value in one.values()) for one in (first, second)),
        ]
        refused = await graph('{ people(name_contains: "Zorb") { id } }')
        assert refused["code"] == "value_unfit"
        assert "'name_contains'" in refused["detail"]
        assert await graph('{ cities(nameContains: "sb") }') == {"data": {"cities": ["Visby"]}}
        found = '{ one: person(id: 1) { id name birthDate } people(email: "bart@wexlomere.example") { id } }'
        assert await graph(found) == {
            "data": {"one": {**names[0], "birthDate": "1931-02-27"}, "people": [{"id": "2"}]}
        }
        change = "mutation ($new: PersonChange!) { updatePerson(id: 1, input: $new) { id name birthDate } }"
        changed = await graph(change, new={"name": "Zorbina Ångström"})
        assert changed["data"]["updatePerson"] == {
            "id": "1", "name": "Zorbina Ångström", "birthDate": "1931-02-27",
        }  # fmt: skip
        assert (await graph(RENAME))["data"]["renamePerson"]["name"] == "Zorbina Quibblethwaite"
        assert (await graph(change, new={"email": "Zorbina"}))["code"] == "value_invalid"
        assert await graph("mutation { deletePerson(id: 2) }") == {"data": {"deletePerson": True}}
        assert guide.leaked(*MARKERS) == {}


# ---------------------------------------------------------------------- SCIM

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
SEARCH = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"


def account(person: dict[str, str], title: str) -> dict[str, Any]:
    given, family = person["name"].split()
    return {
        "schemas": [USER],
        "userName": person["email"],
        "name": {"familyName": family, "givenName": given},
        "displayName": person["name"],
        "emails": [{"type": "work", "value": person["email"]}],
        "phoneNumbers": [{"type": "work", "value": person["phone"]}],
        "title": title,
        "active": True,
    }


def same(answer: dict[str, Any], sent: dict[str, Any]) -> bool:
    return {name: answer.get(name) for name in sent} == sent


async def users_with(guide: Followed, part: str) -> list[str]:
    """The ids of the users with that part in their name, as the vault's interface finds them."""
    identity = {"Authorization": basic(*guide.started.client)}
    async with aiohttp.ClientSession(guide.started.vault) as vault:
        form = {"grant_type": "client_credentials"}
        _, token = await asked(vault, "POST", "/oauth2/token", data=form, headers=identity)
        headers = {"Authorization": f"Bearer {token['access_token']}"}
        order = {"filter": {"shown": {"$like": part}}}
        status, found = await asked(
            vault, "POST", "/api/models/user/find", json=order, headers=headers
        )
        assert status == 200, found
        return [one["record_key"] for one in found["data"]]


@pytest.mark.slow
async def test_scim(tmp_path: Path) -> None:
    kind = {"Content-Type": "application/scim+json"}
    async with (
        followed("scim", tmp_path, environment(GUIDES)) as guide,
        aiohttp.ClientSession(guide.proxy, headers=kind) as session,
    ):

        async def sent(method: str, path: str, content: Any = None) -> tuple[int, Any]:
            body = None if content is None else json.dumps(content)
            return await asked(session, method, path, data=body)

        ann, bo = account(ANN, "Poet"), account(BO, "Baker")
        status, first = await sent("POST", "/Users", ann)
        assert (status, same(first, ann)) == (201, True), first
        assert (await sent("POST", "/Users", bo))[0] == 201
        status, again = await sent("POST", "/Users", {**ann, "userName": ANN["email"].upper()})
        assert (status, again["scimType"]) == (409, "uniqueness")
        place = f"/Users/{first['id']}"
        assert same((await sent("GET", place))[1], ann)
        status, listed = await sent("GET", "/Users?sortBy=title")
        assert [one["displayName"] for one in listed["Resources"]] == [BO["name"], ANN["name"]]
        for order in ("userName", "name.familyName", "emails.value", "displayName"):
            assert (await sent("GET", f"/Users?sortBy={order}"))[1]["code"] == "search_refused"
        for words in (f'userName eq "{ANN["email"].upper()}"', f'emails.value eq "{ANN["email"]}"'):
            status, found = await sent(
                "GET", f"/Users?filter={quote(words + ' and active eq true')}"
            )
            assert [one["displayName"] for one in found["Resources"]] == [ANN["name"]], words
        status, found = await sent("GET", "/Users?filter=displayName+co+%22Zorb%22")
        assert (status, found["code"]) == (422, "search_refused")
        found = await users_with(guide, "quibble")
        assert [(await sent("GET", f"/Users/{one}"))[1]["displayName"] for one in found] == [
            ANN["name"]
        ]
        assert await users_with(guide, "nobody") == []
        search = {"schemas": [SEARCH], "filter": f'userName eq "{BO["email"]}"'}
        status, found = await sent("POST", "/Users/.search", search)
        assert [one["displayName"] for one in found["Resources"]] == [BO["name"]]
        changes = [
            {
                "op": "replace",
                "path": 'emails[type eq "work"].value',
                "value": "zorb@wexlomere.example",
            },
            {"op": "replace", "path": "name.familyName", "value": "Snickelway"},
        ]
        status, patched = await sent("PATCH", place, {"schemas": [PATCH], "Operations": changes})
        assert status == 204, patched
        patched = (await sent("GET", place))[1]
        assert patched["emails"] == [{"type": "work", "value": "zorb@wexlomere.example"}]
        assert patched["name"] == {"familyName": "Snickelway", "givenName": "Zorbina"}
        probe = {"op": "remove", "path": f'emails[value eq "{BO["email"]}"]'}
        status, refused = await sent("PATCH", place, {"schemas": [PATCH], "Operations": [probe]})
        assert (status, BO["email"] in str(refused)) == (422, False)
        assert (await sent("POST", "/Bulk", {"Operations": []}))[0] == 403
        assert (await sent("GET", "/Schemas"))[0] == 200
        status, replaced = await sent("PUT", place, ann)
        assert (status, same(replaced, ann)) == (200, True)
        assert (await sent("DELETE", place))[0] == 204
        assert guide.leaked(*MARKERS) == {}


# ---------------------------------------------------------------------- Kinto


async def test_kinto(tmp_path: Path) -> None:
    python = environment()
    async with followed("kinto", tmp_path, python, 8888) as guide:
        blocks = [text for kind, _, text in Guide.named("kinto").blocks("Use it") if kind in LISTED]
        script = blocks[0].replace("http://127.0.0.1:8080", guide.proxy)
        process = await asyncio.create_subprocess_exec(
            *(python, "-W", "ignore", "-c", script),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complained = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert (said.decode(), process.returncode) == (blocks[1], 0), complained.decode()
        assert guide.leaked("Lindq", "Zetter", "1987-04-12", "1950-01-31", "ann@ex", "bob@ex") == {}


LISTED = ("python", "text")
