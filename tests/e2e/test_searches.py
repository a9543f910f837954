"""Searches through a running instance, before an application that searches what it stores: by lists,
by a path, by a JSON body.
"""

import html
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from yarl import URL

from tests.support.instance import Instance, running
from tests.support.patience import PATIENCE
from tests.support.serving import serving

RULES = Path(__file__).parents[2] / "rules" / "examples" / "search.yaml"

ANN = {"name": "Zorbina Quibble", "email": "Ann@Wexlomere.example", "phone": "+46 70 918 27 36"}
BOB = {"name": "Bartolomew Ek", "email": "bob@wexlomere.example", "phone": "+46 70 111 22 33"}
MARKERS = ("zorbina", "bartolomew", "wexlomere", "918 27", "9182736")
#: Pages about somebody; the address of a search stands in the fields of a browser that comes from it.
PERSON_PAGE = """operations:
  - match: "GET /pages/{page}"
    objects:
      - {read: person, query: {email: {field: email}}, response: {restore: anywhere}}
      - {read: person, response: {restore: anywhere}}
"""


@dataclass
class Directory:
    """An application that stores people, and finds them by what it stores."""

    stored: dict[int, dict[str, Any]] = field(default_factory=dict)
    received: list[str] = field(default_factory=list)

    def app(self) -> web.Application:
        @web.middleware
        async def note(request: web.Request, handler: Any) -> web.StreamResponse:
            body = (await request.read()).decode()
            self.received.append(unquote(f"{request.raw_path}\n{dict(request.headers)}\n{body}"))
            answer: web.StreamResponse = await handler(request)
            return answer

        app = web.Application(middlewares=[note])
        app.router.add_post("/people", self.create)
        app.router.add_get("/people", self.listing)
        app.router.add_post("/people/search", self.search)
        app.router.add_get("/people/by-email/{email}", self.by_email)
        app.router.add_get("/pages/{id}", self.page)
        app.router.add_get("/scim/Users", self.users)
        app.router.add_post("/scim/Users/.search", self.users)
        return app

    async def create(self, request: web.Request) -> web.Response:
        number = len(self.stored) + 1
        self.stored[number] = {**await request.json(), "id": number}
        return web.json_response(self.stored[number], status=201)

    async def listing(self, request: web.Request) -> web.Response:
        found = list(self.stored.values())
        if "email" in request.query:
            found = [one for one in found if one["email"] in request.query["email"].split(",")]
        if "ids" in request.query:
            wanted = [int(text) for text in request.query["ids"].split(",")]
            found = [self.stored[number] for number in wanted if number in self.stored]
        if "phones" in request.query:
            found = [one for one in found if one["phone"] in request.query.getall("phones")]
        first, most = int(request.query.get("offset", 0)), int(request.query.get("limit", 100))
        return web.json_response(found[first : first + most])

    async def search(self, request: web.Request) -> web.Response:
        asked = (await request.json())["filter"]
        found = [
            one
            for one in self.stored.values()
            if one["email"] == asked.get("email") or one["phone"] in asked.get("phones", ())
        ]
        return web.json_response(found)

    async def by_email(self, request: web.Request) -> web.Response:
        email = request.match_info["email"]
        found = [one for one in self.stored.values() if one["email"] == email]
        return web.json_response(
            found[0] if found else {"error": email}, status=200 if found else 404
        )

    async def page(self, request: web.Request) -> web.Response:
        person = self.stored[int(request.match_info["id"])]
        asked = html.escape(request.query.get("email", ""))
        text = f"<h1>{person['name']}</h1><p>{person['email']}</p><i>{asked}</i>"
        return web.Response(text=text, content_type="text/html")

    async def users(self, request: web.Request) -> web.Response:
        body = await request.json() if request.method == "POST" else request.query
        wanted = re.findall(r'(?:userName|value) eq "([^"]*)"', body["filter"])
        return web.json_response(
            {"Resources": [one for one in self.stored.values() if one["email"] in wanted]}
        )

    def leaked(self) -> set[str]:
        text = "\n".join(self.received).lower()
        return {marker for marker in MARKERS if marker in text}


@dataclass
class Office:
    """Caller, proxy and application in a row."""

    directory: Directory
    instance: Instance
    caller: aiohttp.ClientSession

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        address = f"{self.instance.proxy}{path}"
        async with self.caller.request(method, address, **options) as answer:
            return answer.status, await answer.json(content_type=None)

    async def page(self, path: str, **options: Any) -> str:
        """The text of a page that is there."""
        address = URL(f"{self.instance.proxy}{path}", encoded=True)
        async with self.caller.get(address, **options) as answer:
            assert answer.status == 200
            return html.unescape(await answer.text())

    async def names(self, method: str, path: str, **options: Any) -> list[str]:
        status, found = await self.ask(method, path, **options)
        assert status == 200, found
        return [one["name"] for one in found]


@pytest_asyncio.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    directory = Directory()
    async with serving(directory.app()) as address:
        text = RULES.read_text().replace("http://127.0.0.1:8000", address)
        text = text.replace("operations:\n", PERSON_PAGE, 1)
        async with (
            running(tmp_path, text) as instance,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as caller,
        ):
            made = Office(directory, instance, caller)
            for person in (ANN, BOB):
                assert (await made.ask("POST", "/people", json=person))[0] == 201
            yield made


async def test_people_are_found_by_what_nobody_but_the_vault_knows(office):
    both = [ANN["name"], BOB["name"]]
    emails = "ann@wexlomere.example,BOB@wexlomere.example"
    assert await office.names("GET", "/people", params={"email": emails}) == both
    assert await office.names("GET", "/people", params={"phone": ANN["phone"]}) == both[:1]
    assert await office.names("GET", "/people", params={"phone": ""}) == []
    filters = {"email": BOB["email"], "phones": ["+46709182736"]}
    assert await office.names("POST", "/people/search", json={"filter": filters}) == both
    status, ann = await office.ask("GET", "/people/by-email/Ann@wexlomere.example")
    assert (status, ann) == (200, {**ANN, "id": 1})
    assert await office.ask("GET", "/people/by-email/no%40wexlomere.example") == (
        404,
        {"error": "no@wexlomere.example"},
    )
    referer = {"Referer": "http://app/people/by-email/ann@wexlomere.example"}
    assert await office.names("GET", "/people", headers=referer) == both
    assert office.directory.leaked() == set()


@pytest.mark.parametrize("name", ["Referer", "HX-Current-URL", "X-Up-Location"])
async def test_the_page_that_a_search_leads_to_shows_the_value_that_was_searched_for(office, name):
    wanted = f"<h1>{ANN['name']}</h1><p>{ANN['email']}</p>"
    for address in ("http://app/people?email=", "/pages/1?email="):
        for value in (ANN["email"], ANN["email"].replace("@", "%40")):
            page = await office.page("/pages/1", headers={name: address + value})
            assert page == wanted + "<i></i>"
            page = await office.page(f"/pages/1?email={value}", headers={name: address + value})
            assert page == wanted + f"<i>{ANN['email']}</i>"
    token = office.directory.stored[1]["email"]
    stays = await office.page("/pages/1", headers={name: f"/people?email={token}"})
    assert stays == f"<h1>{ANN['name']}</h1><p>{token}</p><i></i>"
    assert office.directory.leaked() == set()


async def test_a_filter_of_scim_finds_people_by_their_values(office):
    ann, bob = 'userName eq "Ann@wexlomere.example"', f'emails[value eq "{BOB["email"]}"]'
    for text, names in ((ann, [ANN["name"]]), (f"active pr or {ann} or {bob}", [ANN["name"], BOB["name"]])):  # fmt: skip
        status, found = await office.ask("GET", "/scim/Users", params={"filter": text})
        assert (status, [one["name"] for one in found["Resources"]]) == (200, names)
    status, found = await office.ask("POST", "/scim/Users/.search", json={"filter": ann})
    assert (status, [one["name"] for one in found["Resources"]]) == (200, [ANN["name"]])
    status, refusal = await office.ask(
        "GET", "/scim/Users", params={"filter": 'emails co "wexlomere"'}
    )
    assert (status, refusal["code"]) == (422, "search_refused")
    assert office.directory.leaked() == set()


async def test_the_vault_finds_what_the_application_cannot_and_the_application_pages_over_it(
    office,
):
    for number in range(60):
        person = {"name": f"Quill {number:02}", "born": f"19{number + 20}-06-01"}
        assert (await office.ask("POST", "/people", json=person))[0] == 201
    names = [f"Quill {number:02}" for number in range(60)]
    assert await office.names("GET", "/people", params={"q": "uibb"}) == [ANN["name"]]
    assert await office.names("GET", "/people", params={"q": BOB["email"]}) == [BOB["name"]]
    assert await office.names("GET", "/people", params={"q": "nobody at all"}) == []
    pages = [
        await office.names("GET", "/people", params={"q": "QUILL", "limit": 25, "offset": at})
        for at in range(0, 75, 25)
    ]
    assert pages == [names[:25], names[25:50], names[50:]]
    span = {"born_from": "1935-01-01", "born_to": "1937-12-31", "order": "-born"}
    assert await office.names("GET", "/people", params=span) == names[17:14:-1]
    both = {"q": "quill 1", "order": "born", "limit": 2}
    assert await office.names("GET", "/people", params=both) == names[10:12]
    assert await office.instance.stop() == 0
    await office.instance.start()
    assert await office.names("GET", "/people", params={"q": "uibb"}) == [ANN["name"]]
    for number in range(60):
        assert (await office.ask("POST", "/people", json={"name": f"Quill {number}"}))[0] == 201
    status, problem = await office.ask("GET", "/people", params={"q": "quill"})
    assert (status, problem["code"]) == (422, "too_broad")
    assert "100 records" in problem["detail"]
    assert office.directory.leaked() == set()
    assert not any("uill" in one and "GET" in one for one in office.directory.received)


async def test_what_could_only_be_answered_wrongly_is_refused_with_its_reason(office):
    before = len(office.directory.received)
    for method, path, options in (
        ("GET", "/people?sort=id,-name", {}),
        ("GET", "/people?fuzzy=Zorbina", {}),
        ("POST", "/people/search", {"json": {"filter": {}, "order": "email"}}),
    ):
        status, problem = await office.ask(method, path, **options)
        assert (status, problem["code"]) == (422, "search_refused")
        assert "Zorbina" not in str(problem)
    status, problem = await office.ask("GET", "/people/by-email/a%2540b")
    assert (status, problem["code"]) == (400, "bad_request")
    assert len(office.directory.received) == before, "nothing is sent of a refused search"


LOWER_CASED = """version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:8000"}
entities:
  person:
    fields:
      email: {kind: email}
      mail:  {kind: email, token: {shape: email, same: true}}
      login: {kind: name, token: lower}
      nick:  {kind: name}
operations:
  - {match: POST /people, create: person}
  - {match: GET /people, read: person, query: {email: mail}, response: {each: "$[*]", id: $.id}}
"""


class LowerCasing(Directory):
    """Stores addresses and user names in lower case, and searches by them so."""

    async def create(self, request: web.Request) -> web.Response:
        number = len(self.stored) + 1
        texts = {name: text.strip().lower() for name, text in (await request.json()).items()}
        self.stored[number] = {**texts, "id": number}
        return web.json_response(self.stored[number], status=201)

    async def listing(self, request: web.Request) -> web.Response:
        wanted = request.query.get("email", "").lower()
        people = [one for one in self.stored.values() if wanted in ("", one["mail"])]
        return web.json_response(people)


async def test_an_application_that_lower_cases_what_it_stores_needs_no_word_for_addresses(tmp_path):
    directory, address = LowerCasing(), "Ann@Wexlomere.example"
    ann = {"email": address, "mail": address, "login": "Zorbina"}
    async with serving(directory.app()) as upstream:
        rules = LOWER_CASED.replace("http://127.0.0.1:8000", upstream)
        async with (
            running(tmp_path, rules) as instance,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as caller,
        ):
            made = Office(directory, instance, caller)
            status, shown = await made.ask("POST", "/people", json=ann)
            assert (status, shown) == (201, {**ann, "id": 1})
            for spelling in (address, address.upper(), address.lower()):
                assert await made.ask("GET", "/people", params={"email": spelling}) == (
                    200,
                    [{**ann, "id": 1}],
                )
            assert b"changes the tokens" not in instance.log
            # a name of the default shape does not survive it, and that is told
            _, shown = await made.ask("POST", "/people", json={"nick": "Bartolomew"})
            assert shown["nick"] == directory.stored[2]["nick"]
            assert b"the application changes the tokens" in instance.log
            assert b"letter case" in instance.log
    assert directory.leaked() == set()


PAGES = """version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:8000"}
entities:
  person: {fields: {email: {kind: email, token: {shape: email, same: true}}}}
operations:
  - {match: GET /people, read: person, query: {email: email}, response: {restore: html, carriers: [href]}}
"""


async def test_links_of_a_page_lead_on_with_what_the_caller_searched_for(tmp_path):
    received: list[str] = []

    async def page(request: web.Request) -> web.Response:
        received.append(request.raw_path)
        email, number = request.query["email"], int(request.query.get("page", "1"))
        link = f"?{urlencode({'email': email, 'page': number + 1})}".replace("&", "&amp;")
        text = f'<input name="email" value="{email}"><a href="{link}">more</a>'
        return web.Response(text=text, content_type="text/html")

    app = web.Application()
    app.router.add_get("/people", page)
    async with (
        serving(app) as upstream,
        running(tmp_path, PAGES.replace("http://127.0.0.1:8000", upstream)) as instance,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as caller,
    ):
        link = "?email=ann%40wexlomere.example"
        for number in (2, 3, 4):
            async with caller.get(URL(f"{instance.proxy}/people{link}", encoded=True)) as answer:
                assert answer.status == 200
                text = html.unescape(await answer.text())
            assert 'value="ann@wexlomere.example"' in text
            link = f"?email=ann%40wexlomere.example&page={number}"
            assert f'<a href="{link}">more</a>' in text
    assert len(received) == 3
    assert not any("wexlomere" in one for one in received)
