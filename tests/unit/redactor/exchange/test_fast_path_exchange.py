"""One ordinary exchange in its steps, and what the general way makes of one that it takes over."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import StringIO
from math import inf
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import VaultError
from proxy.redactor.exchange.fast_path_exchange import FastPathExchange
from proxy.redactor.exchange.fast_path_plan import fast_path_plan
from proxy.redactor.exchange.runtime import Runtime
from proxy.redactor.message import Request, Response
from proxy.redactor.rules import Match
from proxy.storage.base import Hooks
from proxy.storage.sqlite.store import SqliteStore, open_sqlite
from proxy.telemetry import logs
from tests.support.exchanges import JSON
from tests.unit.redactor.exchange.test_fast_path_plan import CREATE, READ, UPDATE, bound
from tests.unit.storage.sqlite.test_raw import Waiter

ANN = {"name": "Ann Lee", "email": "ann@example.com", "age": 7}


@dataclass
class Place:
    """Rules over an engine that waits for nothing."""

    runtime: Runtime
    store: SqliteStore

    def begin(self, number: int, body: Any = None, key: str = "1") -> FastPathExchange:
        """An exchange of that operation."""
        exchange = self.begun(number, body, key)
        assert exchange is not None
        return exchange

    def begun(self, number: int, body: Any, key: str = "1") -> FastPathExchange | None:
        """The same, if it is ordinary."""
        operation = self.runtime.rules.operations[number]
        joined = self.runtime.joined[id(operation)]
        for plan in (joined.plan.request, joined.plan.response):
            for age in range(6):  # objects that come again are looked at by patterns
                for end in ({}, {"id": 1}):
                    text = json.dumps({"name": "N", "email": "e", "age": age, **end}).encode()
                    if plan is not None and plan.selection is not None:
                        plan.selection.find(text)
        ordinary = fast_path_plan(joined, self.runtime.vault)
        assert ordinary is not None
        raw = b"" if body is None else json.dumps(body).encode()
        request = Request(operation.methods[0], b"/p/1", JSON if raw else (), raw)
        return ordinary.begin(Match(operation, {"id": key}, self.runtime), request)

    async def create(self, ident: int = 1) -> bytes:
        """A record; what the application has of it."""
        one, waiter = self.begin(0, ANN), Waiter()
        assert one.stage(waiter)
        assert await waiter.answers.get() is None
        one.staged()
        answer = one.sent[:-1] + b', "id": %d}' % ident
        assert json.loads(one.restore(answer) or b"{}") == {**ANN, "id": ident}
        assert one.settle(waiter, 200)
        assert await waiter.answers.get() is None
        one.settled()
        one.audited()
        return answer

    @property
    def idle(self) -> bool:
        state = next(iter(self.runtime.vault.collections())).state
        return not state.in_flight and not len(state.locks)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    yield Place(await bound(store, CREATE, READ, UPDATE), store)
    await store.close()


async def test_a_create_is_read_back(place: Place) -> None:
    answer = await place.create()
    assert b"Ann Lee" not in answer
    assert place.idle
    read = place.begin(1)
    assert json.loads(read.restore(answer) or b"{}") == {**ANN, "id": 1}


async def test_an_update_with_the_number_of_before_in_another_manner_is_not_ordinary(
    tmp_path: Path,
) -> None:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    try:
        numbers = "name: {kind: name}", "email: {kind: phone}"
        place = Place(await bound(store, CREATE, READ, UPDATE, fields=numbers), store)
        one, waiter = place.begin(0, {**ANN, "email": "+46701234567"}), Waiter()
        token = json.loads(one.sent)["email"]
        assert one.stage(waiter)
        assert await waiter.answers.get() is None
        assert one.restore(one.sent[:-1] + b', "id": 1}')
        assert one.settle(waiter, 200)
        assert await waiter.answers.get() is None
        one.settled()
        for written in (f"{token} ", f"{token[:5]} {token[5:]}", f"{token[:4]}-{token[4:]}."):
            assert place.begun(2, {**ANN, "email": written}) is None, written
        other = place.begun(2, {**ANN, "email": "+46701234568"})
        assert other is not None
        other.abandon()
    finally:
        await store.close()


async def test_a_member_that_no_rule_names_is_looked_at_after_an_exchange_on_the_fast_path(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspicious = {"name": "Bo Ek", "email": "bo@example.com", "age": "zorbina@example.com"}
    await place.create()
    unnamed, stream = place.begin(0, ANN).plan.joined.unnamed, StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    place.begin(0, suspicious).audited()
    await asyncio.sleep(0)
    monkeypatch.setattr(unnamed, "due", inf)
    place.begin(0, {**suspicious, "age": "+46701234567"}).audited()
    await asyncio.sleep(0)
    logs.configure(logs.Style())
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["place"], line["parameter"], line["request_kinds"]) == (
        "body",
        "$.{word}",
        ["email"],
    )
    assert "zorbina" not in stream.getvalue()


async def test_an_update_of_nothing_new_changes_no_row_and_locks_the_record(place: Place) -> None:
    answer = await place.create()
    one = place.begin(2, ANN)
    assert not one.settles
    assert one.sent == answer.replace(b', "id": 1', b"")
    with pytest.raises(AssertionError):
        place.begin(2, ANN)
    one.close()
    place.begin(2, ANN).close()
    assert place.idle


async def test_an_update_of_a_value_is_staged_and_promoted(place: Place) -> None:
    answer = await place.create()
    one, waiter = place.begin(2, {**ANN, "name": "Bo Ek"}), Waiter()
    assert one.settles
    assert one.stage(waiter)
    assert await waiter.answers.get() is None
    one.staged()
    changed = one.sent[:-1] + b', "id": 1}'
    assert json.loads(one.restore(changed) or b"{}")["name"] == "Bo Ek"
    assert one.settle(waiter, 200)
    assert await waiter.answers.get() is None
    one.settled()
    one.audited()
    assert place.idle
    assert json.loads(place.begin(1).restore(changed) or b"{}")["name"] == "Bo Ek"
    assert place.begin(1).restore(answer) is None, "a token that was replaced"


@pytest.mark.parametrize("status", [201, 422])
async def test_the_general_way_goes_on_with_what_is_staged(place: Place, status: int) -> None:
    one, waiter = place.begin(0, ANN), Waiter()
    assert one.stage(waiter)
    await waiter.answers.get()
    one.staged()
    answer = one.sent[:-1] + b', "id": 1}'
    restored = await one.general().restore_response(Response(status, JSON, answer))
    assert json.loads(restored.body)["name"] == "Ann Lee"
    table = next(iter(place.runtime.vault.collections())).table
    assert (await place.store.count(table))[:2] == ((1, 0) if status == 201 else (0, 0))
    assert place.idle


async def test_what_was_not_stored_leaves_nothing(place: Place) -> None:
    one = place.begin(0, ANN)
    await place.store.close()
    assert not one.stage(Waiter())
    assert place.idle


async def test_the_line_is_written_in_the_next_turn(place: Place) -> None:
    answer = await place.create()
    lines: list[VaultError | None] = []

    class Hears:
        def audited(self, error: VaultError | None) -> None:
            lines.append(error)

    read = place.begin(1)
    assert read.restore(answer) is not None
    read.audit(200, Hears())
    assert lines == []
    await asyncio.sleep(0)
    assert lines == [None]
