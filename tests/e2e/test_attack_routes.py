"""Attempts to lead a request past its rule by path, method, host or a body that nobody expects
there.

The tables are those of "match wide, forward exact": each spelling is one that some application
takes for the plain one.
"""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from yarl import URL

from tests.e2e.conftest import Scene
from tests.e2e.test_workers import WORKERS, ready
from tests.support.application import found_in
from tests.support.instance import Instance, running, started
from tests.support.rawclient import RawClient, chunked, get, post
from tests.support.serving import serving
from tests.support.tree import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "Quibblethwaite"
JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"
BODY = json.dumps({"name": NAME}).encode()
MEMBER = b"name=" + NAME.encode()


# ---------------------------------------------------------------------- where the request goes

PATHS = [
    *(
        "/people.json", "/people.xml?a=b", "/people.", "/people..", "/people%20", "/people%20.%20",
        "/PEOPLE.Json",
    ),
    *(
        "/people%2ejson",
        "/people/.json",
        "/%u0070eople",
        "/people%2520",
        "/people%09",
        "/x/../people.json;a=b",
    ),
    *(
        "/index.php/people", "/x/../Front.PHP/people.json", "/people/__data.json",
        "/_next/data/b1/people.json", "/people", "/people/", "/people//", "//people", "/./people",
        "/x/../people", "/people/.", "/people/%2e", "people",
    ),
    *(
        "/%70eople", "/%2570eople", "/People", "/PEOPLE", "/people%2f", "/%2e/people",
        "/a/..%2fpeople", "/%5cpeople",
    ),
    *(
        "/people;x=1", "/people;x/", "/;x/people", "/..;/people", "/people/..;/people",
        "/people%3b", "/\\people",
    ),
    *(
        "/people?",
        "/people?x#",
        "/people#",
        "/people#/x",
        "/x#/../people",
        "/x#/..%2fpeople",
        "http://app.test/people",
        "https://APP.test/people",
    ),
    # WHATWG's parser takes two slashes for the start of a host, text in C ends at NUL
    *(
        "//x/people", "//x:80/people", "/\\x/people", "///x/people", "/people%00", "/people%00.jpg",
        "/people%2500",
    ),
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
async def test_a_path_that_matches_another_policy_elsewhere(scene: Scene, path: str) -> None:
    await scene.send(post(path, BODY, JSON))
    scene.nowhere()


OVERRIDES = [
    *(
        "X-HTTP-Method-Override: PATCH",
        "X-HTTP-Method: PATCH",
        "X-Method-Override: PATCH",
        "x-http-method-override: patch",
    ),
    # CGI and WSGI know no difference between the two signs, and join repeated fields
    *(
        "X_HTTP_METHOD_OVERRIDE: PATCH",
        "x_http-Method_Override: PATCH",
        "X-HTTP-Method-Override: PATCH, PATCH",
    ),
]


@pytest.mark.parametrize("field", OVERRIDES)
async def test_a_method_named_by_a_header(scene: Scene, field: str) -> None:
    await scene.send(post("/people/1", BODY, JSON, field))
    scene.nowhere()


QUERY_OVERRIDES = [
    *(
        "_method=PATCH", "%5fmethod=patch", "a=1&_method=PATCH", "_METHOD=PATCH", "_method[]=patch",
        "a=1;_method=patch",
    ),
    *(
        "x-http-method-override=PATCH", "_HttpMethod=PATCH", "%5F%4Dethod=PATCH", ".method=PATCH",
        "_method%00=PATCH",
    ),
]  # fmt: skip


@pytest.mark.parametrize("query", QUERY_OVERRIDES)
async def test_a_method_named_by_the_query(scene: Scene, query: str) -> None:
    await scene.send(post(f"/people/1?{query}", BODY, JSON))
    scene.nowhere()


BODY_OVERRIDES = {
    # ``/people/bulk`` has rules for POST and for PATCH, and they name different places
    "a form": ("/people/bulk", b"_method=PATCH&data[name]=" + NAME.encode(), FORM),
    "JSON": ("/people/bulk", b'{"_method": "PATCH", "data": {"name": "%b"}}' % NAME.encode(), JSON),
    "an escaped name": (
        "/people/bulk",
        b'{"_m\\u0065thod": "PATCH", "data": {"name": "%b"}}' % NAME.encode(),
        JSON,
    ),
    "capitals": (
        "/people/bulk",
        b'{"_METHOD": "patch", "data": {"name": "%b"}}' % NAME.encode(),
        JSON,
    ),
}


@pytest.mark.parametrize("name", BODY_OVERRIDES)
async def test_a_method_named_by_the_body_of_a_post_that_has_a_rule_of_its_own(
    scene: Scene, name: str
) -> None:
    path, body, kind = BODY_OVERRIDES[name]
    assert (await scene.send(post(path, body, kind))).status == 400
    scene.nowhere()
    assert scene.application.requests == 1  # the one that ``send`` adds


UNNAMED = [
    *(
        ("DELETE", "/people/1", BODY, JSON),
        ("DELETE", "/people/1", MEMBER, FORM),
        ("DELETE", "/people/1", BODY, "X: y"),
    ),
    *(
        ("GET", "/people/1", BODY, JSON),
        ("GET", "/people", b'{"q": [%b]}' % BODY, JSON),
        ("HEAD", "/people", BODY, JSON),
    ),
    *(("DELETE", "/people/1", b'{"x": {"address": {"street": "%b"}}}' % NAME.encode(), JSON),),
    *(
        ("DELETE", "/people/1", b"person[name]=" + NAME.encode(), FORM),
        ("DELETE", "/people/1", BODY, FORM),
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "kind"), UNNAMED)
async def test_a_body_that_the_rule_does_not_name(
    scene: Scene, method: str, path: str, body: bytes, kind: str
) -> None:
    assert (await scene.send(post(path, body, kind, method=method))).status == 415
    scene.nowhere()
    assert scene.application.requests == 1  # the one that ``send`` adds


@pytest.mark.parametrize(
    "field", ["X-Original-URL: /people", "X-Rewrite-URL: /people", "x_original_url: /people?a=1"]
)
async def test_an_address_named_by_a_header(scene: Scene, field: str) -> None:
    assert (await scene.send(post("/elsewhere", BODY, JSON, field))).status == 400
    scene.nowhere()
    same = field.replace("/people", "/elsewhere")
    assert (await scene.send(post("/elsewhere", b"{}", JSON, same))).status == 200


@pytest.mark.parametrize("method", ["post", "Post", "PoSt"])
async def test_a_method_in_another_letter_case(scene: Scene, method: str) -> None:
    await scene.send(post("/people", BODY, JSON, method=method))
    scene.nowhere()


RAW = [
    # what aiohttp's parser refused, and ours reads: it must be matched as wide as anything else
    post("/people/1?_method=PATCH", BODY, JSON, method="post"),
    post("/people/bulk", b"_method=PATCH&data[name]=" + NAME.encode(), FORM, method="Post"),
    post("/people", BODY, JSON, "Content-Type: text/plain"),
    post("/people", BODY, "Content-Type: text/plain", "content-type: application/json"),
    post("/people", BODY, JSON, "User-Agent: a", "User-Agent: b"),
    post("/people\xe9/../people", BODY, JSON),
    post("/\xff\xfe/..;/people", BODY, JSON),
    post("/people;\xe9", BODY, JSON),
    post("/people?\xe9", BODY, JSON),
    post("/people#\xe9", BODY, JSON),
    post("/people%\xe9/..", BODY, JSON),
    post("/people\xe9", BODY, "X-HTTP-Method-Override: \xe9", "X-Original-URL: /people"),
    get(f"/people?email={NAME}\xe9@example.com"),
    get(f"/people?email={NAME}\xc3\xa9@example.com"),
    get(f"/people?\xe9&email={NAME}@example.com"),
    get("/people/%2e%2e/" * 300, method=NAME),  # refused, and told in a log line
]


@pytest.mark.parametrize("place", range(len(RAW)))
async def test_bytes_and_repetitions_that_other_parsers_refuse(scene: Scene, place: int) -> None:
    await scene.send(RAW[place])
    scene.nowhere()


# ---------------------------------------------------------------------- what a parameter asks for


#: The name of a part of a form, and its text.
_PART = re.compile(rb'name="([^"]*)"\r\n(?:[^\r]+\r\n)*\r\n(.*?)\r\n--')


@dataclass
class Php:
    """An application of one program, which looks for its route in the query and in the body as
    ``$_REQUEST`` does, before an instance with the rules of ``rules/examples/php-routes.yaml``.
    """

    instance: Instance | None = None
    caller: aiohttp.ClientSession | None = None
    contacts: list[dict[str, Any]] = field(default_factory=list)
    sent: bytearray = field(default_factory=bytearray)

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.sent += request.path_qs.encode() + body
        parts = [(one[0].decode(), one[1].decode()) for one in _PART.findall(body)]
        said = {**request.query, **dict(parts or parse_qsl(body.decode()))}
        route, ident = said.get("r") or said.get("action"), str(request.query.get("id", ""))
        if route in ("contact/create", "save_contact"):
            self.contacts.append(said)
            ident = str(len(self.contacts))
            if route == "save_contact":
                shown = {"id": ident, "name": said["name"]}
                return web.json_response({"success": True, "data": shown})
            where = f"/index.php?r=contact/view&id={ident}"
            return web.Response(status=302, headers={"Location": where})
        shown = self.contacts[int(ident) - 1] if route == "contact/view" else {"site": "Hello"}
        text = "".join(f"<p>{one}</p>" for one in shown.values())
        return web.Response(text=text, content_type="text/html")

    async def ask(self, method: str, target: str, **options: Any) -> tuple[int, str]:
        assert self.caller is not None
        assert self.instance is not None
        async with self.caller.request(
            method, self.instance.proxy + target, allow_redirects=False, **options
        ) as answer:
            return answer.status, await answer.text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def php(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Php]:
    one, app = Php(), web.Application()
    app.router.add_route("*", "/{path:.*}", one.answer)
    file = (ROOT / "rules" / "examples" / "php-routes.yaml").read_text("utf-8")
    async with (
        serving(app) as upstream,
        running(
            tmp_path_factory.mktemp("php"), file.replace("http://127.0.0.1:8000", upstream)
        ) as one.instance,
        aiohttp.ClientSession() as one.caller,
    ):
        yield one


def contact(**more: str) -> dict[str, str]:
    return {"Contact[name]": NAME, "Contact[email]": f"{NAME}@example.com", **more}


def of_parts(**members: str) -> aiohttp.FormData:
    form = aiohttp.FormData(default_to_multipart=True)
    for name, text in members.items():
        form.add_field(name, text)
    return form


async def test_a_parameter_names_the_operation_and_coverage_tells_of_each(php: Php) -> None:
    status, _ = await php.ask("POST", "/index.php?r=contact/create", data=contact())
    assert status == 302
    assert (await php.ask("POST", "/?r=contact/create&x=1", data=contact()))[0] == 302
    for target in ("/index.php?r=contact/view&id=1", "/?x=1&r=contact%2Fview&id=2"):
        assert NAME in (await php.ask("GET", target))[1]
    form = of_parts(action="save_contact", name=NAME)
    status, text = await php.ask("POST", "/wp-admin/admin-ajax.php", data=form)
    assert (status, json.loads(text)["data"]["name"]) == (200, NAME)
    form = of_parts(action="heartbeat", pulse="1")
    assert (await php.ask("POST", "/wp-admin/admin-ajax.php", data=form))[0] == 200
    assert (await php.ask("GET", "/index.php?r=order/list"))[0] == 200
    assert (await php.ask("POST", "/index.php?r=order/create", data={"mail": "a@b.example"}))[
        0
    ] == 200
    assert not found_in(bytes(php.sent), NAME)
    assert php.instance is not None
    await php.instance.logged("no rule names this request", 2)
    assert await php.instance.stop() == 0
    told = await php.instance.command("coverage", status=1)
    counts = {one["match"]: one["count"] for one in (*told["ruled"], *told["passed"])}
    assert counts["POST /index.php?r=contact/create"] == 2
    assert counts["GET /index.php?r=contact/view"] == 2
    assert counts["POST /index.php?r=contact/update"] == counts["GET /contact.do?cmd=show"] == 0
    unknown = {f"{one['method']} {one['path']}": one["suspected"] for one in told["unknown"]}
    assert unknown == {
        "GET /index.php?r=order/list": [],
        "POST /index.php?r=order/create": ["email"],
    }
    await php.instance.start()


SPELLINGS = [
    "r[]=contact/create", "r%00=contact/create", "R=contact/create", "+r=contact/create", "r=site/index&r=contact/create",
    "r=contact/create&r=site/index", "r=contact/create/", "r=/contact/create", "r=contact//create", "r=contact/./create",
    "r=Contact/Create", "r=contact/create%00", "r=contact%252Fcreate", "x=1;r=contact/create", "r=+contact/create",
]  # fmt: skip


@pytest.mark.parametrize("query", SPELLINGS)
async def test_a_route_in_a_spelling_that_some_take(php: Php, query: str) -> None:
    for path in ("/index.php", "/", "/index.php/x"):
        status, _ = await php.ask("POST", f"{path}?{query}", data=contact())
        assert status == 400, path
    assert not found_in(bytes(php.sent), NAME)


@pytest.mark.parametrize("target", ["/index.php", "/?r=site/index", "/index.php/x?r=order/list"])
async def test_a_route_in_the_body_in_place_of_the_query(php: Php, target: str) -> None:
    for body in (
        {"data": contact(r="contact/create")},
        {"data": of_parts(**contact(r="contact/create"))},
        {"json": contact(r="contact/create")},
    ):
        assert (await php.ask("POST", target, **body))[0] == 400
    form = of_parts(action="Save_Contact", name=NAME)
    assert (await php.ask("POST", "/wp-admin/admin-ajax.php", data=form))[0] == 400
    query = "/wp-admin/admin-ajax.php?action=save_contact"
    assert (await php.ask("POST", query, data={"name": NAME}))[0] == 400
    assert not found_in(bytes(php.sent), NAME)


# ---------------------------------------------------------------------- what WordPress serves anywhere

#: Rules for people that WordPress serves by its paths, and, at each of its addresses, by a member
#: or parameter ``rest_route``.
WORDPRESS = """
version: 1
endpoint: {{name: site, upstream: "{upstream}"}}
entities:
  person: {{fields: {{name: {{kind: name}}, email: {{kind: email}}}}}}
operations:
  - {{match: POST /wp-json/wp/v2/users, create: person}}
  - {{match: "PUT /wp-json/wp/v2/users/{{id}}", update: person}}
  - {{match: POST /blog/wp-json/wp/v2/users, create: person}}
  - {{match: POST /contact, create: person, request: {{form: {{name: name}}}}, response: {{id: $.id}}}}
  - {{match: POST /, pass: true}}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["alone", "workers"])
async def wordpress(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Php]:
    one, app = Php(), web.Application()
    app.router.add_route("*", "/{path:.*}", one.answer)
    arguments = WORKERS if request.param == "workers" else ("serve",)
    async with serving(app) as upstream, aiohttp.ClientSession() as one.caller:
        instance = Instance(tmp_path_factory.mktemp("wordpress"), arguments=arguments)
        async with started(instance, WORDPRESS.format(upstream=upstream)) as one.instance:
            await ready(one.instance)
            yield one


ROUTES = ("/wp/v2/users", "/wp/v2/users/7&_method=PUT", "%2fwp%2Fv2%2Fusers", "/contact")


@pytest.mark.parametrize("query", ["rest_route={}", "x=1&rest.route={}", "%72est+route={}"])
async def test_a_path_of_wordpress_in_the_query(wordpress: Php, query: str) -> None:
    assert wordpress.instance is not None
    assert wordpress.caller is not None
    for path in ("/", "/index.php", "/blog/", "/blog/index.php", "/blog/2026/page", "/contact"):
        for route in ROUTES[:3] if path == "/contact" else ROUTES:
            url = URL(f"{wordpress.instance.proxy}{path}?{query.format(route)}", encoded=True)
            async with wordpress.caller.post(url, data={"email": f"{NAME}@b.se"}) as answer:
                assert answer.status == 400, url
    target = "/?rest_route=/wp/v2/users/7"
    for more in (
        {"headers": {"X-HTTP-Method-Override": "PUT"}, "json": {"name": NAME}},
        {"data": {"_method": "PUT", "name": NAME}},
    ):
        assert (await wordpress.ask("POST", target, **more))[0] == 400
    assert not found_in(bytes(wordpress.sent), NAME)
    assert (await wordpress.ask("POST", "/?rest_route=/wp/v2/posts", data={"a": "b"}))[0] == 200


MEMBERS = [
    b"rest_route=/wp/v2/users", b"rest.route=x", b"+rest_route=x", b"%20+%72est%5froute=x", b"rest%20route[]=x",
    b"rest_route%00=x", b"rest[route=x", b"r%65st+route=/wp",
]  # fmt: skip


@pytest.mark.parametrize("member", MEMBERS)
async def test_a_path_of_wordpress_in_a_form(wordpress: Php, member: bytes) -> None:
    assert wordpress.instance is not None
    form = {"Content-Type": "application/x-www-form-urlencoded; charset=UTF-8"}
    for path in ("/", "/index.php", "/2026/page", "/wp-json/wp/v2/media", "/contact"):
        for body in (MEMBER + b"&" + member, member + b"&" + MEMBER, b"a=%26&" + member):
            assert (await wordpress.ask("POST", path, data=body, headers=form))[0] == 400, path
    body = MEMBER + b"&" + member
    async with RawClient(int(wordpress.instance.proxy.rpartition(":")[2])) as client:
        pieces = [body[at : at + 1] for at in range(len(body))]
        request = chunked("/", *pieces, fields=(FORM,))
        await client.send(request, piece=7)
        assert (await client.answer()).status == 400
    assert not found_in(bytes(wordpress.sent), NAME)


async def test_a_path_of_wordpress_in_a_form_of_parts(wordpress: Php) -> None:
    long = "x" * 300_000
    for path in ("/", "/wp-json/wp/v2/media"):
        for name in ("rest_route", " rest.route", "rest_route[]"):
            for more in ({}, {"long": long}):
                form = of_parts(**more, email=f"{NAME}@b.se", **{name: "/wp/v2/users"})
                assert (await wordpress.ask("POST", path, data=form))[0] == 400, (path, name)
    coded = {"Content-Type": "application/x-www-form-urlencoded", "Content-Encoding": "br"}
    assert (await wordpress.ask("POST", "/", data=b"x", headers=coded))[0] == 415
    assert not found_in(bytes(wordpress.sent), NAME)


async def test_what_only_looks_like_a_path_of_wordpress_passes(wordpress: Php) -> None:
    said = "see https://b.example/?a=1&rest_route=/wp/v2/users, rest_route=x; rest_route=y"
    for path in ("/", "/2026/page"):
        for data in ({"text": said, "rest_routes": "x"}, of_parts(text=said, forest_route="y")):
            assert (await wordpress.ask("POST", path, data=data))[0] == 200
        assert (await wordpress.ask("POST", path, json={"rest_route": said}))[0] == 200
    assert b"forest_route" in wordpress.sent
