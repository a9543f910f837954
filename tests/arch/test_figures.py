"""Figures of the house that only fall: how much code a request runs through, and how the code is
cut.

A change that lowers a figure lowers its ceiling here in the same commit: no ceiling may stand far
above its figure.
"""

import ast
import asyncio
import json
import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import uuid4

import pytest
from aiohttp import web

from proxy.bootstrap.instance import prepare_instance, running
from proxy.bootstrap.offline import first_client
from proxy.clock import system_clock
from proxy.config import load_settings
from proxy.storage.sqlite.writer import SqliteWriter, WriterLimits
from tests.support import issuer
from tests.support.auth import basic
from tests.support.rawclient import RawClient, get, post
from tests.support.serving import serving
from tests.support.table import table
from tests.support.tree import PACKAGE, nodes, parsed, python_files, relative

#: What one request executes on the event loop, the writer's thread not counted: (modules,
#: functions).
EXECUTED: dict[str, tuple[int, int]] = {
    "create": (44, 102),
    "update": (47, 109),
    "read": (29, 58),
    "list": (45, 128),
    "pass": (10, 24),
    "find": (34, 66),
}

#: Calls of Python functions of the package for one request on the event loop, each go-on of a
#: coroutine among them; of a list those for one more record.
CALLS: dict[str, float] = {
    "create": 125,
    "update": 128,
    "same": 66,
    "read": 59,
    "another read": 79,
    "tagged create": 146,
    "tagged update": 149,
    "tagged read": 80,
    "chunked read": 95,
    "partial create": 119,
    "partial update": 129,
    "partial read": 59,
    "a record": 1,
    "viewed create": 131,
    "viewed update": 135,
    "viewed read": 64,
    "a record viewed": 1,
    "interface read": 72,
    "interface create": 168,
    "find": 71,
    "a record found": 1,
}

#: Of a request whose answer has an entity tag that no other has.
TAGGED = "X-Way: tagged"

#: Calls for one more record: between the figures of a list of twelve and of one of two.
LISTS = {
    "a record": ("long list", "short list"),
    "a record viewed": ("viewed long list", "viewed short list"),
    "a record found": ("interface list", "short interface list"),
}

#: Calls that views add to a request of a caller who may see everything, beside one with the same
#: fields and no views: the caller is looked up, and of a list its view is bound.
VIEWS: dict[str, int] = {"create": 5, "update": 5, "same": 5, "read": 5, "list": 8}

#: How the package is cut.
CUT: dict[str, int] = {
    "files": 481,
    "lines": 125_488,
    "files under 40 lines": 4,
    "percent of modules that one other imports": 22,
    "public names in several files": 0,
}

#: Constants that tests put others in the place of, where an argument should say it.
PATCHED = 125

#: How far a ceiling may stand above its figure, in parts of it: a request may take another turn now
#: and then.
SLACK = 0.06

#: Names that several files have because they are one port and its implementations.
PORTS = {"COMMAND", "run", "apply"}

#: Requests before the first one that counts: every record was shown by then.
_WARM = 20

KEY = issuer.made("ES256")

RULES = """\
version: 1
endpoint: {{name: figures, upstream: "{upstream}"}}
entities:
  contact:
    fields:
      first_name: {{kind: name}}
      last_name: {{kind: name}}
      email: {{kind: email, find: [exact]}}
      phone: {{kind: phone}}
      street: {{kind: text}}
operations:
  - {{match: POST /contacts, create: contact}}
  - {{match: GET /contacts, read: contact, response: {{each: "$[*]"}}}}
  - {{match: "GET /contacts/{{id}}", read: contact}}
  - {{match: "PUT /contacts/{{id}}", update: contact}}
"""

#: The same to callers who prove that they may see everything.
VIEWED = (
    RULES.replace(
        'figures, upstream: "{upstream}"',
        'viewed, upstream: "{upstream}", host: [viewed.test], '
        'caller: {{from: jwt, jwks: "{upstream}/keys"}}',
    )
    .replace("contact:", "customer:")
    .replace(": contact", ": customer")
    + "views: [{{who: [staff], customer: clear}}]\n"
)

PERSON = {
    "first_name": "Ann",
    "last_name": "Lindqvist",
    "email": "ann@example.com",
    "phone": "+46701234567",
    "street": "Storgatan 1",
    "vip": True,
}


@web.middleware
async def spelled(request: web.Request, handler: Any) -> web.StreamResponse:
    """An answer as other servers write it: with a tag of its own, or in chunks that come one by
    one.
    """
    answer: web.Response = await handler(request)
    way = request.headers.get("X-Way")
    if way == "tagged":
        answer.headers.update({"ETag": f'W/"6b-{uuid4().hex}"', "Vary": "Accept-Encoding"})
    if way != "chunked":
        return answer
    pieces = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
    pieces.enable_chunked_encoding()
    await pieces.prepare(request)
    await pieces.write(answer.body)  # type: ignore[arg-type]  # bytes, of a document
    await asyncio.sleep(0.002)
    await pieces.write_eof()
    return pieces


def application() -> web.Application:
    """Contacts in memory."""
    stored: dict[int, dict[str, Any]] = {}

    async def create(request: web.Request) -> web.Response:
        stored[len(stored) + 1] = {**await request.json(), "id": len(stored) + 1}
        return web.json_response(stored[len(stored)], status=201)

    async def update(request: web.Request) -> web.Response:
        key = int(request.match_info["id"])
        stored[key] = {**await request.json(), "id": key}
        return web.json_response(stored[key])

    async def read(request: web.Request) -> web.Response:
        return web.json_response(stored[int(request.match_info["id"])])

    async def listing(request: web.Request) -> web.Response:
        most = int(request.query.get("most", 12))
        return web.json_response(list(stored.values())[:most])

    async def keys(_request: web.Request) -> web.Response:
        return web.Response(body=issuer.document(issuer.public(KEY, kid="one")))

    async def status(_request: web.Request) -> web.Response:
        return web.Response(text="well")

    app = web.Application(middlewares=[spelled])
    app.router.add_post("/contacts", create)
    app.router.add_get("/contacts", listing)
    app.router.add_get("/contacts/{id}", read)
    app.router.add_put("/contacts/{id}", update)
    app.router.add_get("/status", status)
    app.router.add_get("/keys", keys)
    return app


class Executed:
    """Counts the code of the package that runs while it is on, by module and by function."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.functions: set[tuple[str, str, int]] = set()
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            self.calls += 1
            if code.co_name[0] != "<":
                self.modules.add(code.co_filename)
                self.functions.add((code.co_filename, code.co_qualname, code.co_firstlineno))


def requests() -> dict[str, Callable[[int], bytes]]:
    """By name the bytes of a request that is another one each time."""
    json_type = "Content-Type: application/json"

    def body(number: int) -> bytes:
        return json.dumps(
            {**PERSON, "email": f"ann{number}@example.com", "street": f"Storgatan {number}"}
        ).encode()

    def partial(number: int) -> bytes:
        return body(number).replace(b'"+46701234567"', b"null")

    def update(number: int, *fields: str) -> bytes:
        return post("/contacts/1", body(number), json_type, *fields, method="PUT")

    return {
        "create": lambda number: post("/contacts", body(number), json_type),
        "update": update,
        "same": lambda _number: post("/contacts/3", body(0), json_type, method="PUT"),
        "read": lambda _number: get("/contacts/2"),
        "another read": lambda number: get(f"/contacts/{number % 3 + 1}"),
        "tagged create": lambda number: post("/contacts", body(number), json_type, TAGGED),
        "tagged update": lambda number: update(number, TAGGED),
        "tagged read": lambda _number: get("/contacts/2", TAGGED),
        "partial create": lambda number: post("/contacts", partial(number), json_type),
        "partial update": lambda number: post(
            "/contacts/4", partial(number), json_type, method="PUT"
        ),
        "partial read": lambda _number: get("/contacts/4"),
        "chunked read": lambda _number: get("/contacts/2", "X-Way: chunked"),
        "list": lambda _number: get("/contacts"),
        "long list": lambda _number: get("/contacts?most=12"),
        "short list": lambda _number: get("/contacts?most=2"),
        "pass": lambda _number: get("/status"),
    }


def viewed_requests() -> dict[str, Callable[[int], bytes]]:
    """The same of callers who show a token, where there are views and where there are none."""
    shown = issuer.token(KEY, issuer.claims(system_clock(), roles=["staff"]), kid="one")

    def shows(make: Callable[[int], bytes], host: str) -> Callable[[int], bytes]:
        fields = f"Host: {host}\r\nAuthorization: Bearer {shown}".encode()
        return lambda number: make(number).replace(b"Host: app.test", fields)

    return {
        f"{kind} {name}": shows(make, host)
        for name, make in requests().items()
        if name != "pass"
        for kind, host in (("viewed", "viewed.test"), ("shown", "app.test"))
    }


def interface_requests(authorization: str) -> dict[str, Callable[[int], bytes]]:
    """The same to the vault's interface; first those that make what the others ask for."""
    schema = {
        "fields": {"id": {"type": "primary_key"}}
        | {
            name: {"type": "string", "storage": storage}
            for name, storage in {
                "email": "indexed_hashed",
                "city": "indexed",
                "note": "encrypted",
            }.items()
        }
    }

    def person(number: int) -> dict[str, str]:
        email = f"ann{number}@example.com"
        return {"id": f"p{number}", "email": email, "city": "Lund", "note": "n" * 200}

    def sent(target: str, content: object, method: str = "POST") -> bytes:
        body = json.dumps(content).encode()
        fields = (authorization, "Content-Type: application/json")
        return post(f"/api/{target}", body, *fields, method=method)

    def asked(**content: object) -> bytes:
        return sent("models/person/find", content)

    return {
        "schema": lambda _number: sent("schemas/person", schema, "PUT"),
        "records": lambda _number: sent(
            "models/person/batch", [person(number) for number in range(1000, 1020)]
        ),
        "interface read": lambda _number: get("/api/models/person/p1003", authorization),
        "interface create": lambda number: sent("models/person", person(number)),
        "find": lambda number: asked(filter={"email": f"ann{1000 + number % 20}@example.com"}),
        "interface list": lambda _number: asked(filter={}, options={"limit": 12}),
        "short interface list": lambda _number: asked(filter={}, options={"limit": 2}),
    }


class Figures(NamedTuple):
    """What several requests of one kind took: the least of them, and the most.

    On a busy machine some take another turn of the loop, and of some the settle falls into the
    measurement of the next one: a ceiling holds for the least, and is lowered for the most.
    """

    modules: int
    functions: int
    calls: int
    most_functions: int
    most_calls: int
    usual_calls: int


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figures]:
    # after a group that took long, the thread would run what the event loop does
    ever_here = partial(SqliteWriter, limits=WriterLimits(slow=math.inf))
    with patch("proxy.storage.sqlite.store.SqliteWriter", ever_here):
        return asyncio.run(_measured(tmp_path_factory.mktemp("figures")))


async def _measured(folder: Path) -> dict[str, Figures]:
    async with serving(application()) as upstream, serving(application()) as other:
        (folder / "rules").mkdir()
        (folder / "rules" / "plain.yaml").write_text(RULES.format(upstream=upstream))
        (folder / "rules" / "viewed.yaml").write_text(VIEWED.format(upstream=other))
        settings = load_settings(
            None,
            {
                "DOMICILE__COUNTRY": "se",
                "DOMICILE__DATA": str(folder / "data"),
                "DOMICILE__RULES": str(folder / "rules"),
                **{
                    f"DOMICILE__LISTEN__{name}": "127.0.0.1:0"
                    for name in ("PROXY", "VAULT", "ADMIN")
                },
            },
        )
        await prepare_instance(settings)
        first = await first_client(settings)
        assert first is not None
        async with running(settings) as instance:
            async with RawClient(int(instance.proxy.rpartition(":")[2])) as client:
                asked = requests() | viewed_requests()
                figures = {name: await _of(client, name, make) for name, make in asked.items()}
            # Connected only now: a connection without a request is closed after ten seconds.
            async with RawClient(int(instance.interface.rpartition(":")[2])) as interface:
                token = await access_token(interface, basic(first.client.id, first.secret))
                questions = interface_requests(f"Authorization: Bearer {token}")
                for request in (questions.pop("schema"), questions.pop("records")):
                    assert (await interface.ask(request(0))).status in {200, 201}
                return figures | {
                    name: await _of(interface, name, make) for name, make in questions.items()
                }


async def access_token(interface: RawClient, credentials: str) -> str:
    """A token for these credentials."""
    form = ("Content-Type: application/x-www-form-urlencoded", f"Authorization: {credentials}")
    answer = await interface.ask(post("/oauth2/token", b"grant_type=client_credentials", *form))
    token: str = json.loads(answer.body)["access_token"]
    return token


async def _of(client: RawClient, name: str, make: Callable[[int], bytes]) -> Figures:
    for number in range(_WARM):  # what is made once is made now
        assert (await client.ask(make(number))).status in {200, 201}
    figures: list[tuple[int, int, int]] = []
    most, least = 1 << 30, [0, 0, 0]
    ceilings = *EXECUTED.get(name, (most, most)), CALLS.get(name, most)
    for number in range(_WARM, 400):
        counted = Executed()
        sys.setprofile(counted)
        try:
            await client.ask(make(number))
            await asyncio.sleep(0.05)  # the settle joins a later group
        finally:
            sys.setprofile(None)
        figures.append((len(counted.modules), len(counted.functions), counted.calls))
        least = [min(column) for column in zip(*figures, strict=True)]
        within = all(one <= ceiling for one, ceiling in zip(least, ceilings, strict=True))
        if len(figures) == 40 or (within and len(figures) >= 8):
            break
    columns = [*zip(*figures, strict=True)]
    return Figures(*least, *map(max, columns[1:]), *[statistics.median_low(columns[2])])


def cut() -> dict[str, int]:
    """The figures of the package's files."""
    files = python_files("proxy")
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in files}
    importers = importing(files)
    modules = [path for path in files if path.name != "__init__.py"]
    lone = [path for path in modules if len(importers[module_of(path)]) == 1]
    short = [path for path in modules if lengths[path] < 40]
    names = Counter(name for path in files for name in public(path))
    return {
        "files": len(files),
        "lines": sum(lengths.values()),
        "files under 40 lines": len(short),
        "percent of modules that one other imports": round(100 * len(lone) / len(modules)),
        "public names in several files": sum(
            count > 1 for name, count in names.items() if name not in PORTS
        ),
    }


def patched(path: Path) -> list[str]:
    """The names of constants that a test file patches; one that patches nothing is not parsed."""
    if not re.search(r"setattr\(|\bpatch\b", path.read_text("utf-8")):
        return []
    calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
    names = [
        word.value.rpartition(".")[2]
        for call in calls
        if isinstance(call.func, ast.Attribute | ast.Name)
        and (call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id)
        in {"setattr", "patch", "object"}
        for word in call.args[:2]
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    ]
    return [name for name in names if re.fullmatch(r"_?[A-Z][A-Z0-9_]+", name)]


def module_of(path: Path) -> str:
    return relative(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def importing(files: list[Path]) -> dict[str, set[str]]:
    """By module who imports it."""
    importers: dict[str, set[str]] = {module_of(path): set() for path in files}
    for path in files:
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for name in {
                    node.module,
                    *(f"{node.module}.{alias.name}" for alias in node.names),
                } & importers.keys():
                    importers[name].add(module_of(path))
    return importers


def public(path: Path) -> set[str]:
    """The public names that a file defines."""
    found: set[str] = set()
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("name", EXECUTED)
def test_a_request_runs_through_no_more_code_than_before(executed, name):
    ceiling, figure = EXECUTED[name], executed[name]
    assert figure.modules <= ceiling[0], figure
    assert figure.functions <= ceiling[1], figure
    assert ceiling[1] <= figure.most_functions * (1 + SLACK) + 2, f"lower {name} to {figure}"


@pytest.mark.parametrize("name", CALLS)
def test_a_request_takes_no_more_calls_than_before(executed, name):
    calls: float = (of := executed[LISTS.get(name, (name,))[0]]).calls
    most: float = of.most_calls
    if name in LISTS:  # by each of ten records more
        calls, most = ((one - executed[LISTS[name][1]].calls) / 10 for one in (calls, most))
    assert calls <= CALLS[name]
    assert CALLS[name] <= most * (1 + SLACK) + 2, f"lower the ceiling of {name} to {calls}"


@pytest.mark.parametrize("name", VIEWS)
def test_views_add_no_more_calls_to_a_request_than_before(executed, name):
    viewed, shown = executed[f"viewed {name}"], executed[f"shown {name}"]
    # no bound from below: the difference of two measurements falls on a busy machine; and the least
    # of one is too low where a settle fell into the next
    added = viewed.calls - shown.usual_calls
    assert min(added, viewed.calls - shown.most_calls) <= VIEWS[name], f"{added} calls"


@table("name", CUT)
def test_the_house_is_cut_no_smaller_than_before(name):
    figure = cut()[name]
    assert figure <= CUT[name]
    assert CUT[name] <= figure * (1 + SLACK) + 2, f"lower the ceiling of {name} to {figure}"


def test_tests_patch_no_more_constants_than_before():
    figure = sum(len(patched(path)) for path in python_files("tests"))
    assert figure <= PATCHED, "give it to a constructor or a function in place of patching it"
    assert figure * (1 + SLACK) + 2 >= PATCHED, f"lower the ceiling to {figure}"


def test_the_figures_see_what_they_count(tmp_path):
    (tmp_path / "patching.py").write_text(
        'patch.object(m, "_ROWS", 1)\nmonkeypatch.setattr("a.b.MOST", 2)\nsetattr(a, "name", 3)\n'
    )
    assert patched(tmp_path / "patching.py") == ["_ROWS", "MOST"]
    (tmp_path / "one.py").write_text("LIMIT = 1\n_hidden = 2\n\n\ndef work():\n    pass\n")
    assert public(tmp_path / "one.py") == {"LIMIT", "work"}
    counted = Executed()
    sys.setprofile(counted)
    try:
        load_settings(None, {})
    finally:
        sys.setprofile(None)
    assert any(path.endswith("config/load.py") for path in counted.modules)
