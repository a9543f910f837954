"""Errors that quote what was sent, in every form in which an application may read it: nobody else's
value is read out.

The application below answers any request with ``X-Refuse`` by that status and by all readings of
what it was sent.
"""

import base64
import html
import json
import unicodedata
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from tests.e2e.conftest import Scene, World
from tests.support.application import Application, found_in
from tests.support.instance import running
from tests.support.people import ANN, MARKERS, rules
from tests.support.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

BO = {"name": "Bo Ek", "email": "bo@ek.example", "born": "1999-09-09", "tags": ["b"]}


# ---------------------------------------------------------------------- an application that reads everything


def leaves(value: Any) -> Iterator[str]:
    """Every text in a JSON value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)


def once(text: str) -> Iterator[str]:
    """What a text becomes in one step of reading."""
    yield from (
        text.lower(),
        unquote(text),
        html.unescape(text),
        unicodedata.normalize("NFKC", text),
        text[::-1],
    )
    yield from (part for part in text.replace("=", " ", 1).split() if part != text)
    yield text.partition(":")[0]
    with suppress(ValueError):
        yield base64.b64decode(text, validate=True).decode()
    with suppress(ValueError):
        yield from leaves(json.loads(text))


def readings(texts: set[str]) -> list[str]:
    """All that three steps make of these texts."""
    found, fresh = set(texts), set(texts)
    for _ in range(3):
        fresh = {read for text in fresh for read in once(text)} - found
        found |= fresh
    return sorted(found)


def quoting(application: Application) -> Any:
    """A middleware that refuses where it is told to, and quotes what it was sent and what it has."""

    @web.middleware
    async def refuse(request: web.Request, handler: Any) -> web.StreamResponse:
        status = request.headers.get("X-Refuse")
        if status is None:
            answer: web.StreamResponse = await handler(request)
            return answer
        body = (await request.read()).decode()
        texts = {
            body,
            *request.headers.values(),
            *request.query.values(),
            *request.cookies.values(),
        }
        stored = application.records.get(int(request.match_info.get("id", "0")), {})
        return web.json_response({"read": readings(texts), "stored": stored}, status=int(status))

    return refuse


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    application = Application()
    app = application.app()
    app.middlewares.insert(0, quoting(application))
    async with (
        serving(app) as upstream,
        running(tmp_path_factory.mktemp("errors"), rules(upstream)) as instance,
        aiohttp.ClientSession() as caller,
    ):
        yield Scene(
            World(application, upstream, instance, caller), int(instance.proxy.rpartition(":")[2])
        )


@pytest.fixture
def scene(installed: Scene) -> Scene:
    return installed


# ---------------------------------------------------------------------- forms of a token


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def wide(text: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)


FORMS: dict[str, Any] = {
    "raw": str,
    "inside a sentence": "no {} here".format,
    "upper case": str.upper,
    "base64": packed,
    "base64 twice": lambda text: packed(packed(text)),
    "percent-encoded": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "percent-encoded twice": lambda text: quote(
        "".join(f"%{byte:02X}" for byte in text.encode()), safe=""
    ),
    "decimal references": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "hexadecimal references": lambda text: "".join(f"&#x{ord(char):x};" for char in text),
    "full width": wide,
    "JSON in JSON": lambda text: json.dumps({"a": text}),
    "escaped JSON in JSON": lambda text: (
        '"' + "".join(f"\\u{ord(char):04x}" for char in text) + '"'
    ),
    "base64 in JSON in JSON": lambda text: json.dumps([packed(text)]),
    "percent-encoded base64": lambda text: quote(
        "".join(f"%{byte:02x}" for byte in packed(text).encode())
    ),
    "backwards": lambda text: text[::-1],
}


def ways(form: str) -> Iterator[dict[str, Any]]:
    """Where a caller may write a text: a member that no rule names, a field, a header, a cookie,
    the query, a user name.
    """
    yield {"json": {"vip": form}}
    yield {"json": {"name": form}}
    yield {"json": {"address": {"city": [form]}}}
    yield {"json": {}, "params": {"q": form}}
    if form.isascii():
        yield {"json": {}, "headers": {"X-Note": form}}
        yield {"json": {}, "headers": {"Authorization": "Basic " + packed(f"{form}:secret")}}
        yield {"json": {}, "headers": {"Cookie": "n=" + quote(form)}}


async def made(scene: Scene, person: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The id of a new record, and what the application has of it."""
    ident: int = (await scene.call("POST", "/people", status=201, json=person))["id"]
    return ident, scene.application.records[ident]


async def refused(
    scene: Scene, method: str, path: str, status: int = 422, **options: Any
) -> dict[str, Any]:
    options["headers"] = {**options.get("headers", {}), "X-Refuse": str(status)}
    answer: dict[str, Any] = await scene.call(method, path, status=status, **options)
    return answer


@pytest.mark.parametrize("field", ["name", "email"])
@pytest.mark.parametrize("form", FORMS)
async def test_an_error_reads_out_no_token_of_another_person_in_whatever_form_it_was_sent(
    scene: Scene, form: str, field: str
) -> None:
    mine, _ = await made(scene, BO)
    _, stored = await made(scene, ANN)
    token, value = stored[field], ANN[field]
    text = FORMS[form](token)
    told = 0
    for way in ways(text):
        for method, path in (
            ("POST", "/people"),
            ("PATCH", f"/people/{mine}"),
            ("GET", f"/people/{mine}"),
        ):
            if method == "GET":
                way = {name: given for name, given in way.items() if name != "json"}
            answer = await refused(scene, method, path, **way)
            if "read" not in answer:  # the proxy has refused it
                assert answer["code"] == "value_unfit"
                assert token in way["json"]["name"], (
                    "a token in the place of a value, or within one"
                )
                continue
            told += token in answer["read"]
            assert not found_in(json.dumps(answer).encode(), str(value)), (method, way)
    possible = form != "upper case" or token == token.lower()
    assert bool(told) == possible, (
        "the application must have read the token itself, or this shows nothing"
    )


async def test_a_record_that_the_application_withholds_is_not_read_out_by_naming_its_id(
    scene: Scene,
) -> None:
    hers, stored = await made(scene, ANN)
    for status in (401, 403, 404):
        for method in ("PATCH", "GET", "DELETE"):
            body = {"vip": packed(stored["name"])}
            answer = await refused(scene, method, f"/people/{hers}", status, json=body)
            assert stored["name"] in answer["read"]
            assert not found_in(json.dumps(answer).encode(), MARKERS[0])


async def test_a_token_that_comes_back_as_the_value_of_its_own_field_is_quoted_as_it_came(
    scene: Scene,
) -> None:
    hers, stored = await made(scene, ANN)
    answer = await refused(scene, "PATCH", f"/people/{hers}", json={"name": stored["name"]})
    assert stored["name"] in answer["read"]
    assert not found_in(json.dumps(answer).encode(), MARKERS[0])


@pytest.mark.parametrize("status", [400, 409, 422, 500])
async def test_an_error_shows_the_caller_what_it_sent_and_what_is_stored_of_the_record_it_is_about(
    scene: Scene, status: int
) -> None:
    created = await refused(scene, "POST", "/people", status, json=ANN)
    assert {MARKERS[0], ANN["email"], "Flumpergatan 77b", *MARKERS[6:8]} <= set(created["read"])
    mine, _ = await made(scene, BO)
    changed = await refused(scene, "PATCH", f"/people/{mine}", status, json={"name": "Bosse Ek"})
    assert "Bosse Ek" in changed["read"]
    for method in ("GET", "DELETE"):
        kept = (await refused(scene, method, f"/people/{mine}", status))["stored"]
        assert (kept["name"], kept["email"], kept["tags"]) == (BO["name"], BO["email"], BO["tags"])
    searched = await refused(scene, "GET", "/people", status, params={"email": "Nobody@x.example"})
    assert "Nobody@x.example" in searched["read"]
