"""Reads that are answered as they arrive are answered as the general way answers them: ``ask``
sends each request both ways, and compares the bytes and the lines of the audit log.
"""

import json
import random
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from proxy.api.prompt import PromptReads
from proxy.audit.services import Refusals
from proxy.edge.quotas import ConcurrencyLimit, Quotas
from proxy.edge.rate_limit import RateLimit, RatePolicy
from tests.support.api import Interface, interface
from tests.support.rawclient import RawClient, get
from tests.support.table import table
from tests.unit.api.test_whole_request import PERSON, WRITER, ask, find, person, port_of


@pytest.fixture
def prompt(monkeypatch) -> list[bool]:
    """For each request that may be answered at once whether it was."""
    taken: list[bool] = []
    before = PromptReads.__call__

    def counted(reads: PromptReads, request: Any) -> Any:
        answer = before(reads, request)
        taken.append(answer is not None)
        return answer

    monkeypatch.setattr(PromptReads, "__call__", counted)
    return taken


@pytest.fixture
async def here(tmp_path, prompt) -> AsyncIterator[Interface]:
    async with interface(tmp_path, "sqlite") as made:
        await made.declare("person", PERSON)
        batch = [person(number) for number in range(60)]
        assert (await made.client("POST", "/api/models/person/batch", json=batch)).status == 201
        await made.policy("masked", "person", "read", fields={"note": "hidden"})
        # no window of refusals ends between the two ways of a request
        made.services.audit.refusals = Refusals(made.audit, lambda: 0.0)
        prompt.clear()
        yield made


READ = get("/api/models/person/p1", WRITER)

#: Requests, and whether they are answered at once.
CASES: dict[str, tuple[bytes, bool]] = {
    "a read": (READ, True),
    "a read of nothing": (get("/api/models/person/p99", WRITER), False),
    "a read under a policy": (get("/api/models/person/p1", "Authorization: Bearer under:masked"), False),
    "a read of a role": (get("/api/models/person/p1", "Authorization: Bearer auditor"), False),
    "a read with a condition": (get("/api/models/person/p1", WRITER, "If-None-Match: *"), False),
    "a read of a page elsewhere": (get("/api/models/person/p1", WRITER, "Origin: https://a"), False),
    "a read with another scheme": (get("/api/models/person/p1", "Authorization: Basic writer"), False),
    "a read with two tokens": (get("/api/models/person/p1", WRITER, WRITER), False),
    "a find": (find({"filter": {"email": "ann1@example.com"}}), True),
    "a find of nobody": (find({"filter": {"email": "nobody"}}), True),
    "a find of several": (find({"filter": {"email": ["ann1@example.com", "ann2@example.com"]}}), False),
    "a find of no value": (find({"filter": {"email": None}}), False),
    "a find of a key by its own name": (find({"filter": {"record_key": "p1"}}), False),
    "a find of a version": (find({"filter": {"version": 1}}), False),
    "a find of a key": (find({"filter": {"id": "p1"}}), False),
    "a find with an operator": (find({"filter": {"email": {"$not": "ann1@example.com"}}}), False),
    "a find by what is sealed": (find({"filter": {"note": "n"}}), False),
    "a find of no text": (find({"filter": {"email": 1}}), False),
    "a find with a NUL": (find({"filter": {"email": "\0"}}), False),
    "a list": (find({"options": {"limit": 7, "offset": 3}}), True),
    "a list of all": (find({}), False),
    "a list beyond the end": (find({"filter": {}, "options": {"limit": 7, "offset": 58}}), False),
    "a list in another order": (find({"options": {"limit": 7, "sort": [{"created_at": "desc"}]}}), False),
    "a list of none": (find({"options": {"limit": 0}}), False),
    "an empty body": (find(b""), False),
    "a member twice": (find(b'{"filter": {}, "filter": {}}'), False),
    "an unknown member": (find({"filter": {}, "more": 1}), False),
}  # fmt: skip


@table("name", CASES)
async def test_a_read_is_answered_as_by_the_general_way(here, prompt, name):
    request, at_once = CASES[name]
    prompt.clear()
    await ask(here, request)
    assert prompt == [at_once]


async def test_generated_finds_are_answered_as_by_the_general_way(here, prompt):
    drawn = random.Random(20261128)  # the same in every run
    values: list[Any] = [
        "ann1@example.com", "ann59@example.com", "", "x", None, 5, ["ann3@example.com"], {},
    ]  # fmt: skip
    for _ in range(150):
        content: dict[str, Any] = {}
        if drawn.random() < 0.8:
            names = drawn.sample(
                ["email", "email", "note", "id", "other", "$or"], drawn.choice([0, 1, 1, 1, 2])
            )
            content["filter"] = {name: drawn.choice(values) for name in names}
        if drawn.random() < 0.7:
            options = {
                "limit": drawn.choice([1, 5, 20, 32, 33, 0, 1001, "x", 2.0, True]),
                "offset": drawn.choice([0, 0, 0, 1, 58, 70, -1]),
                "sort": drawn.choice([[], [{"email": "asc"}], [{"created_at": "desc"}], 1]),
            }
            content["options"] = {
                name: options[name] for name in drawn.sample([*options], drawn.choice([0, 1, 2]))
            }
        await ask(here, find(content))
    assert prompt.count(True) > 10
    assert prompt.count(False) > 50


@pytest.mark.parametrize(
    "odd", [{"filter": {"email": "a"}, "more": {}}, {"filters": {}}, {"sort": 1}]
)
async def test_a_question_with_a_fault_is_no_other_one_of_its_shape(here, prompt, odd):
    usual = {name: odd.get(name, {}) for name in ("filter", "options")[: len(odd)]}
    await ask(here, find(usual))
    await ask(here, find(odd))
    assert prompt[-1] is False


async def test_pages_go_on_behind_those_that_were_answered_at_once(here, prompt):
    found: list[str] = []
    async with RawClient(port_of(here)) as client:
        await client.ask(find({"options": {"limit": 25}}))
        options: dict[str, Any] = {"limit": 25}
        while True:
            page = json.loads((await client.ask(find({"options": options}))).body)
            found += [one["id"] for one in page["data"]]
            if "next" not in page["meta"]:
                break
            options = {"limit": 25, "next": page["meta"]["next"]}
    assert found == [f"p{number}" for number in range(60)]
    assert prompt[0]


@pytest.mark.parametrize("change", ["column", "body", "version"])
async def test_rows_that_somebody_changed_raise_the_alarm(here, prompt, tmp_path, change):
    records = here.catalog.records("person")
    column = f"x_{records.column('email')}"
    to = {
        "column": (f"{column} = (SELECT {column} FROM <r> WHERE rid = ?)", "p2"),
        "body": ("body = (SELECT body FROM <r> WHERE rid = ?)", "p2"),
        "version": ("version = version + 1 + 0 * ?", "p2"),
    }
    rows = await records.collection.by_key(["p1", "p2"])
    text, other = to[change]
    (file,) = tmp_path.rglob("*.db")
    with sqlite3.connect(file, timeout=10) as connection:
        command = f"UPDATE <r> SET {text} WHERE rid = ?".replace(
            "<r>", f"r_{records.collection.table}"
        )  # names of the test's own
        connection.execute(command, (rows[other].rid, rows["p1"].rid))
    connection.close()
    for request in (
        READ,
        find({"filter": {"email": "ann2@example.com"}}),
        find({"options": {"limit": 5}}),
    ):
        await ask(here, request)
    assert not all(prompt)
    assert "alarm" in {one["event"] for one in here.audit.lines}


async def test_records_that_end_are_not_shown_after_their_end(here, prompt):
    ends = {
        "id": "short",
        "email": "short@example.com",
        "note": "",
        "expires_at": "2030-01-01T00:00:00.000Z",
    }
    assert (await here.client("POST", "/api/models/person", json=ends)).status == 201
    asked = (
        get("/api/models/person/short", WRITER),
        find({"filter": {"email": "short@example.com"}}),
    )
    for request in asked:
        assert b"short@example.com" in await ask(here, request)
    here.clock.now = 2_000_000_000_000
    for request in asked:
        assert b"short@example.com" not in await ask(here, request)


async def test_records_with_files_are_shown_with_them(here, prompt):
    form = aiohttp.FormData()
    form.add_field("file", b"content", filename="a.txt")
    assert (await here.client("POST", "/api/models/person/p1/files", data=form)).status == 201
    for request in (READ, find({"filter": {"email": "ann1@example.com"}})):
        assert b"download_link" in await ask(here, request)
    assert prompt == [False, False]


async def test_nothing_is_shown_while_no_line_can_be_written(here, prompt):
    here.audit.down = True
    for request in (READ, find({"options": {"limit": 3}})):
        assert b"audit_down" in await ask(here, request)
    assert prompt == [True, True]


async def test_bait_raises_the_alarm(here, prompt):
    await here.client("PUT", "/api/models/person/p1/bait", as_="chief")
    before = len(here.audit.lines)
    await ask(here, READ)
    alarms = [one["event"] for one in here.audit.lines[before:]]
    assert alarms.count("alarm") == alarms.count("reveal")
    assert (prompt == [True]) is (alarms.count("alarm") == 0)


@pytest.mark.usefixtures("limits_clock")
async def test_every_request_is_counted_once(tmp_path, prompt):
    limit = RateLimit(RatePolicy("credential", 6, 1))
    quotas = Quotas(credential=limit, concurrent=ConcurrencyLimit(2, 2))
    async with interface(tmp_path, "sqlite", quotas=quotas) as made:
        await made.declare("person", PERSON)
        assert (await made.client("POST", "/api/models/person", json=person(1))).status == 201
        left = []
        async with RawClient(port_of(made)) as client:
            for request in (READ, READ, find({"filter": {"email": "nobody"}}), READ, READ):
                answer = await client.ask(request)
                left.append((answer.status, (answer.one("ratelimit") or b"").split(b";")[1]))
    assert [one[0] for one in left] == [200, 200, 200, 200, 429]
    assert [one[1] for one in left] == [b"r=3", b"r=2", b"r=1", b"r=0", b"r=0"]
    assert prompt == [True, True, True]
