"""Answers that are no named objects, through real sockets: an application of pages behind
``rules/examples/pages.yaml``.
"""

import html
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from proxy.redactor.exchange.unnamed_members import EVENTS
from tests.support.application import found_in
from tests.support.instance import Instance, running
from tests.support.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLE = Path(__file__).parents[2] / "rules" / "examples" / "pages.yaml"
ANN = {"name": "Ann <Wexlomere>", "email": "ann@wexlomere.example", "birth_date": "1931-02-27"}
BO = {"name": "Bo Ek", "email": "bo@ek.example", "birth_date": "1950-03-04"}
MARKERS = ("Wexlomere", "bo@ek", "1931-02-27", "1950-03-04")

PAGE = """<!doctype html><title>{name}</title>
<h1 data-name="{name}">{name}</h1> <a href="mailto:{email}">{email}</a>
<input name="birth_date" value="{birth_date}"> <p>made on 2020-01-01</p>
<a id="more" href="/find?of={email}">more</a>
<script type="application/json">{{"name": "{name}"}}</script>"""


@dataclass
class Site:
    """The application: it keeps what it is sent, and renders it."""

    people: list[dict[str, str]] = field(default_factory=list)
    seen: bytearray = field(default_factory=bytearray)

    def app(self) -> web.Application:
        made = web.Application(middlewares=[self._record])
        made.add_routes(
            [
                web.post("/people", self._create),
                web.get("/people", self._list),
                web.get("/people/export.csv", self._export),
                web.get("/people/table", self._table),
                web.get("/people/{id:\\d+}/details", self._details),
                web.get("/people/{id:\\d+}/photo", self._photo),
                web.get("/people/{id:\\d+}", self._page),
                web.get("/people/{id:\\d+}/letter", self._letter),
                web.get("/account", self._account),
                web.post("/login", self._login),
                web.get("/socket", self._socket),
                web.get("/moved", self._moved),
                web.get("/{rest:.*}", self._cookie),
            ]
        )
        return made

    @web.middleware
    async def _record(self, request: web.Request, handler) -> web.StreamResponse:
        head = b"".join(name + b": " + value + b"\r\n" for name, value in request.raw_headers)
        self.seen += request.raw_path.encode() + b"\r\n" + head + await request.read()
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _create(self, request: web.Request) -> web.Response:
        self.people.append({name: str(value) for name, value in (await request.post()).items()})
        return web.Response(status=302, headers={"Location": f"/people/{len(self.people)}"})

    def _person(self, request: web.Request) -> dict[str, str]:
        person = self.people[int(request.match_info["id"]) - 1]
        return {name: html.escape(value) for name, value in person.items()}

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=PAGE.format(**self._person(request)), content_type="text/html")

    async def _table(self, _: web.Request) -> web.Response:
        """Everybody, as templates write tables."""
        rows = (
            f"<tr><td><a href=/people/{number}>{html.escape(one['name'])}</a></td>"
            f"<td>{one['birth_date']}</td><td>2020-01-01</td></tr>"
            for number, one in enumerate(self.people, 1)
        )
        heads = "<tr><th>Name</th><th><a href='?sort=born'>Born</a></th><th>Joined</th></tr>"
        text = f"<table><thead>{heads}</thead><tbody>{''.join(rows)}</tbody></table>"
        return web.Response(text=text, content_type="text/html")

    async def _details(self, request: web.Request) -> web.Response:
        """The person, and one of somebody else, as an application with a fault shows."""
        day = ".".join(reversed(self._person(request)["birth_date"].split("-")))
        text = f"<p>\n<strong>Born:</strong>\n{day}</p><p>Joined: 2020-01-01</p>"
        text += f"<dl><dt>Born</dt><dd>{self.people[1]['birth_date']}</dd></dl>"
        return web.Response(text=text, content_type="text/html")

    async def _account(self, _: web.Request) -> web.Response:
        """The form of whoever is signed in."""
        fields = (f'<input name={name} value="{text}">' for name, text in self.people[1].items())
        text = f"<form>{''.join(fields)}</form><p id=birth_date>2020-01-01</p>"
        return web.Response(text=text, content_type="text/html")

    async def _list(self, request: web.Request) -> web.Response:
        address = f"/people?email={quote(request.query['email'], safe='')}&page=2"
        people = [
            {"id": number, **one}
            for number, one in enumerate(self.people, 1)
            if one["email"] == request.query["email"]
        ]
        hello = f"Found: {people[0]['name']}" if people else "Nobody"
        return web.json_response(
            {"people": people, "next": address, "hello": hello},
            headers={"Link": f"<{address}>; rel=next", "X-Search": address},
        )

    async def _photo(self, request: web.Request) -> web.Response:
        name = self.people[int(request.match_info["id"]) - 1]["name"]
        field = f'attachment; filename="{name}.jpg"'
        return web.Response(body=b"\xff\xd8", headers={"Content-Disposition": field})

    async def _export(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/csv; charset=utf-8"})
        await answer.prepare(request)
        await answer.write("\ufeffID;Name;E-mail;Born\r\n".encode())
        for at in range(int(request.query.get("times", "1"))):
            for number, one in enumerate(self.people, 1):
                row = f"{number};{one['name']};{one['email']};{one['birth_date']};=1+{at}\r\n"
                await answer.write(row.encode())
        return answer

    async def _login(self, request: web.Request) -> web.Response:
        """Remembers who was here last, as most applications write it."""
        answer = web.Response(text="Hello")
        value = quote(str((await request.post())["email"]), safe="")
        for line in (f"last_email={value}; Path=/; Max-Age=600; SameSite=Lax", f"own={value}"):
            answer.headers.add("Set-Cookie", line)
        return answer

    async def _moved(self, request: web.Request) -> web.Response:
        raise web.HTTPFound("/elsewhere")

    async def _cookie(self, request: web.Request) -> web.Response:
        return web.Response(text=request.headers.get("Cookie", ""))

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        answer = web.WebSocketResponse()
        await answer.prepare(request)
        await answer.send_str(request.headers.get("Cookie", ""))
        await answer.close()
        return answer

    async def _letter(self, request: web.Request) -> web.Response:
        person = self._person(request)
        return web.Response(text=f"Dear {person['name']}, born: {person['birth_date']}")


@dataclass
class Scene:
    site: Site
    instance: Instance
    caller: aiohttp.ClientSession

    async def call(self, method: str, path: str, **options) -> tuple[int, str]:
        options.setdefault("allow_redirects", False)
        url = self.instance.proxy + path
        async with self.caller.request(method, url, **options) as answer:
            return answer.status, await answer.text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    site = Site()
    async with serving(site.app()) as upstream:
        rules = EXAMPLE.read_text().replace("http://127.0.0.1:8000", upstream)
        assert upstream in rules
        async with (
            running(tmp_path_factory.mktemp("pages"), rules) as instance,
            aiohttp.ClientSession() as caller,
        ):
            one = Scene(site, instance, caller)
            for person in (ANN, BO):
                status, _ = await one.call("POST", "/people", data=person)
                assert status == 302
            yield one


async def test_a_page_shows_the_person_in_every_place_with_the_escaping_of_that(scene):
    _, page = await scene.call("GET", "/people/1")
    read: dict[str, list[str]] = {"text": []}

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            for name, value in attrs:
                read.setdefault(f"{tag} {name}", []).append(value or "")

        def handle_data(self, data):
            read["text"].append(data)

    Reader(convert_charrefs=True).feed(page)
    text = "".join(read["text"])
    assert text.count(ANN["name"]) == 2
    assert read["h1 data-name"] == [ANN["name"]]
    assert read["a href"][0] == f"mailto:{ANN['email']}"
    assert read["input value"] == [ANN["birth_date"]]
    assert '"Ann\\u0020\\u003cWexlomere\\u003e"' in text
    assert "made on 2020-01-01" in text
    # an address bar shows nobody
    assert read["a href"][1] == f"/find?of={scene.site.people[0]['email']}"


async def test_the_form_of_whoever_is_signed_in_shows_the_date_of_that_person(scene):
    _, text = await scene.call("GET", "/account")
    page = html.unescape(text)
    assert f'name=birth_date value="{BO["birth_date"]}"' in page
    assert f'name=email value="{BO["email"]}"' in page
    assert "<p id=birth_date>2020-01-01</p>" in page


async def test_a_table_shows_the_date_of_each_person_and_a_label_none_of_another(scene):
    _, text = await scene.call("GET", "/people/table")
    rows = re.findall(r"<tr><td><a href=/people/\d>(.*?)</a></td><td>(.*?)</td>(.*?)</tr>", text)
    assert [tuple(map(html.unescape, row)) for row in rows] == [
        (one["name"], one["birth_date"], "<td>2020-01-01</td>") for one in (ANN, BO)
    ]
    _, text = await scene.call("GET", "/people/1/details")
    assert html.unescape(text) == (
        "<p>\n<strong>Born:</strong>\n27.02.1931</p><p>Joined: 2020-01-01</p>"
        "<dl><dt>Born</dt><dd></dd></dl>"
    )


async def test_a_letter_shows_the_fields_that_the_rule_lists(scene):
    _, text = await scene.call("GET", "/people/2/letter")
    assert text == f"Dear Bo Ek, born: {scene.site.people[1]['birth_date']}"
    # people would believe it, so it is told
    await scene.instance.logged(EVENTS["answer"])
    (said,) = scene.instance.events(EVENTS["answer"])
    assert said["operation"] == "GET /people/{id}/letter"
    assert said["parameter"] == "birth_date"


async def test_a_cookie_shows_a_value_and_is_a_token_again_on_every_path(scene):
    async with scene.caller.post(
        scene.instance.proxy + "/login", data={"email": BO["email"]}
    ) as answer:
        lines = answer.headers.getall("Set-Cookie")
    token = quote(scene.site.people[1]["email"], safe="")
    clear = quote(BO["email"], safe="")
    assert lines == [
        f"last_email={clear}; Path=/; Max-Age=600; SameSite=Lax",
        f"own={token}",  # which no rule names
    ]
    sent = {"Cookie": f"a=b; last_email={clear}; own={token}"}
    wanted = f"a=b; last_email={token}; own={token}"
    for path in ("/nobody/names/this", "/static/site.css", "/static/site.css?x=1"):
        assert await scene.call("GET", path) == (200, "")  # by the shortest way
        for _ in range(3):
            assert await scene.call("GET", path, headers=sent) == (200, wanted)
        assert await scene.call("GET", path) == (200, "")
        assert (await scene.call("GET", path, headers={"Cookie": "a=b"}))[1] == "a=b"
    seen = len(scene.site.seen)
    for method, path in (("GET", "/people/1"), ("GET", "/people/1/letter"), ("HEAD", "/people/2")):
        assert (await scene.call(method, path, headers=sent))[0] == 200
    assert scene.site.seen[seen:].count(wanted.encode()) == 3
    plain = {"Cookie": f'last_email="{BO["email"]}"'}
    assert await scene.call("GET", "/x", headers=plain) == (
        200,
        f'last_email="{scene.site.people[1]["email"]}"',
    )
    async with scene.caller.ws_connect(scene.instance.proxy + "/socket", headers=sent) as socket:
        assert await socket.receive_str() == wanted
    # a script may have written anything into it
    other = await scene.call("GET", "/x", headers={"Cookie": "last_email=%FF; a=b"})
    assert other == (200, "a=b")
    status, text = await scene.call(
        "GET", "/x", headers={"Cookie": "last_email=eve@wexlomere.example"}
    )
    assert status == 200
    assert "wexlomere" not in text.lower()


async def test_a_redirect_is_for_the_caller_to_follow(scene):
    seen = len(scene.site.seen)
    status, _ = await scene.call("GET", "/moved")
    assert status == 302
    assert b"/elsewhere" not in scene.site.seen[seen:]


async def test_the_links_of_a_search_show_it_and_come_back_as_tokens(scene):
    target = f"/people?email={BO['email']}"
    async with scene.caller.get(scene.instance.proxy + target) as answer:
        found = await answer.json()
        link, other = answer.links["next"]["url"].path_qs, answer.headers["X-Search"]
    assert found["people"] == [{"id": 2, **BO}]
    assert found["hello"] == "Found: Bo Ek"
    assert found["next"] == "/people?email=bo%40ek.example&page=2"
    assert "bo@ek" in link
    assert "ek.example" not in other, "it holds the token"
    _, again = await scene.call("GET", found["next"])
    assert json.loads(again)["people"] == [{"id": 2, **BO}]


async def test_a_file_is_called_after_the_person(scene):
    url = scene.instance.proxy + "/people/2/photo"
    async with scene.caller.get(url) as answer:
        assert answer.content_disposition is not None
        assert answer.content_disposition.filename == "Bo Ek.jpg"
        assert await answer.read() == b"\xff\xd8"


async def test_an_export_of_any_length_is_clear_and_keeps_its_dialect(scene):
    status, text = await scene.call("GET", "/people/export.csv?times=5000")
    lines = text.split("\r\n")
    assert status == 200
    assert lines[:3] == [
        "\ufeffID;Name;E-mail;Born",
        "1;Ann <Wexlomere>;ann@wexlomere.example;1931-02-27;=1+0",
        "2;Bo Ek;bo@ek.example;1950-03-04;=1+0",
    ]
    assert len(lines) == 10_002
    assert all("wexlomere.example" in line or "bo@ek" in line for line in lines[1:-1])


@pytest.mark.parametrize(
    ("data", "options", "where"),
    [
        ({"note": "by Cy Wexlomere"}, {}, "the body"),
        ({}, {"params": {"next": "/x?of=cy@wexlomere.example"}}, "the address"),
        ({}, {"headers": {"X-From": "Y3lAd2V4bG9tZXJlLmV4YW1wbGU="}}, "the header field X-From"),
        ({}, {"cookies": {"last": "cy@wexlomere.example"}}, "the header field Cookie"),
    ],
)
async def test_a_swapped_value_leaves_nowhere_else(scene, data, options, where):
    person = {"name": "Cy Wexlomere", "email": "cy@wexlomere.example", **data}
    before = len(scene.site.people)
    url = scene.instance.proxy + "/people"
    async with scene.caller.post(url, data=person, allow_redirects=False, **options) as answer:
        problem = await answer.json(content_type=None)
    assert (answer.status, problem["code"]) == (422, "value_elsewhere")
    assert where in json.dumps(problem)
    assert "exlomere" not in json.dumps(problem)
    assert len(scene.site.people) == before


async def test_the_application_saw_nobody(scene):
    for marker in MARKERS:
        assert found_in(bytes(scene.site.seen), marker) == []


SAVED = """\
version: 1
endpoint: {{name: saved, upstream: "{upstream}"}}
entities: {{person: {{fields: {{name: {{kind: name}}}}}}}}
operations:
  - {{match: POST /people, create: person, request: {{form: {{name: name}}}},
     response: {{success: [{{status: 302, location: "/people/{{id}}"}}], id: "header Location /people/{{id}}"}}}}
  - {{match: "POST /people/{{id}}", update: person, request: {{form: {{name: name}}}}, response: {{success: [302]}}}}
  - {{match: "GET /people/{{id}}", read: person, id: path id, response: {{restore: html}}}}
  - {{match: GET /people, read: person, response: {{restore: html}}}}
"""


@pytest.mark.parametrize("answer", [(500, ""), (302, "/people")])
async def test_a_form_that_is_saved_as_it_was_shown_loses_nothing_of_a_record_without_an_id(
    tmp_path: Path, answer: tuple[int, str]
) -> None:
    names: list[str] = []

    async def create(request: web.Request) -> web.Response:
        names.append(str((await request.post())["name"]))
        return web.Response(status=answer[0], headers={"Location": answer[1]})

    async def save(request: web.Request) -> web.Response:
        names[0] = str((await request.post())["name"])
        return web.Response(status=302, headers={"Location": "/people/1"})

    async def page(_: web.Request) -> web.Response:
        return web.Response(
            text=f'<input name="name" value="{names[0]}">', content_type="text/html"
        )

    app = web.Application()
    app.add_routes(
        [
            web.post("/people", create),
            web.post("/people/1", save),
            web.get("/people", page),
            web.get("/people/1", page),
        ]
    )
    async with (
        serving(app) as upstream,
        running(tmp_path, SAVED.format(upstream=upstream)) as instance,
        aiohttp.ClientSession() as caller,
    ):
        one = Scene(Site(), instance, caller)
        assert (await one.call("POST", "/people", data={"name": ANN["name"]}))[0] == answer[0]
        _, form = await one.call("GET", "/people/1")
        value = html.unescape(form.partition('value="')[2].partition('"')[0])
        assert (await one.call("POST", "/people/1", data={"name": value}))[0] == 302
        for path in ("/people", "/people/1"):
            assert ANN["name"] in html.unescape((await one.call("GET", path))[1])
        assert ANN["name"] not in names


MANY = """\
version: 1
endpoint: {{name: crm, upstream: "{upstream}"}}
entities: {{person: {{fields: {{name: {{kind: name}}}}}}}}
operations:
  - {{match: POST /people, create: person, request: {{object: "$[*]"}}, response: {{each: "$[*]", id: $.id}}}}
  - {{match: GET /people, read: person, response: {{restore: html}}}}
"""


async def test_a_page_shows_every_name_of_a_long_list(tmp_path: Path) -> None:
    stored: list[dict[str, Any]] = []

    async def create(request: web.Request) -> web.Response:
        stored.extend({**one, "id": number} for number, one in enumerate(await request.json()))
        return web.json_response(stored, status=201)

    async def page(_: web.Request) -> web.Response:
        items = "".join(f"<li>{one['name']}</li>" for one in stored)
        return web.Response(text=f"<ul>{items}</ul>", content_type="text/html")

    app = web.Application(client_max_size=2**24)
    app.add_routes([web.post("/people", create), web.get("/people", page)])
    names = [f"Ann{number} Lind" for number in range(4_500)]
    async with (
        serving(app) as upstream,
        running(tmp_path, MANY.format(upstream=upstream)) as instance,
        aiohttp.ClientSession() as caller,
    ):
        one = Scene(Site(), instance, caller)
        status, _ = await one.call("POST", "/people", json=[{"name": name} for name in names])
        assert status == 201
        _, shown = await one.call("GET", "/people")
    assert re.findall("<li>(.*?)</li>", html.unescape(shown)) == names
    assert re.findall(r"Ann\d+ Lind", str(stored)) == []
