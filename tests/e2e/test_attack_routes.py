"""Attempts to lead a request past its rule by path, method, host or a body that nobody expects
there.

The tables are those of "match wide, forward exact": each spelling is one that some application
takes for the plain one.
"""

import json

import pytest

from tests.e2e.conftest import Scene
from tests.support.rawclient import get, post

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
