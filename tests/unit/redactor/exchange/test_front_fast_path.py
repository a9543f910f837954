"""Ordinary reads of a front, step by step; ``tests/property/test_fast_path_laws.py`` compares many
with the general way.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.front_fast_path import FrontRead, FrontReadPlan
from proxy.redactor.exchange.owner_connection import OwnerConnection
from proxy.redactor.exchange.owner_protocol import Reveal, RevealDone
from proxy.redactor.message import Request, Response
from proxy.redactor.rules import Match
from proxy.storage.base import Hooks
from proxy.storage.sqlite.store import open_sqlite
from tests.support.audit import Kept
from tests.support.clock import ManualClock
from tests.support.exchanges import JSON, Desk
from tests.support.fronts import Fronted, fronted
from tests.support.tree import PACKAGE
from tests.unit.redactor.exchange.test_fast_path_exchange import ANN, Place
from tests.unit.redactor.exchange.test_fast_path_plan import CREATE, READ, UPDATE, bound

#: Calls of functions of the package that the owner makes for one ordinary read.
CALLS = 35


class Told:
    """Hears of the line of a read."""

    def __init__(self) -> None:
        self.line: asyncio.Future[VaultError | None] = asyncio.get_running_loop().create_future()

    def audited(self, error: VaultError | None) -> None:
        self.line.set_result(error)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    yield Place(await bound(store, CREATE, READ, UPDATE), store)
    await store.close()


@pytest.fixture
async def front(place: Place) -> AsyncIterator[Fronted]:
    desk = cast("Desk", SimpleNamespace(runtime=place.runtime))
    async with fronted(desk, clock=ManualClock()) as one:
        yield one


def plan_of(front: Fronted) -> FrontReadPlan:
    """The plan of reads, which knows their shape."""
    match = read_of(front)
    plan = front.rules.fast_path(match, ())
    assert isinstance(plan, FrontReadPlan)
    for _ in range(8):
        plan.learn(b'{"name": "N", "email": "e", "age": 7, "id": 1}')
    return plan


def read_of(front: Fronted) -> Match:
    _, match = front.rules.match("GET", "app", b"/p/1", ())
    assert isinstance(match, Match)
    return match


def begin(front: Fronted) -> FrontRead:
    one = plan_of(front).begin(read_of(front), Request("GET", b"/p/1", (), b""))
    assert one is not None
    return one


async def asked(one: FrontRead, answer: bytes) -> VaultError | None:
    """What the owner makes of an answer."""
    told = Told()
    assert one.restore(answer) is not None
    one.audit(200, told)
    return await told.line


async def test_the_owner_is_told_the_tokens_alone_and_the_front_splices(
    place: Place, front: Fronted, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, frames = await place.create(), list[Reveal]()
    reveal = front.owner.begin

    def seen(way: Any, job: Reveal) -> Any:
        frames.append(job)
        return reveal(way, job)

    monkeypatch.setattr(front.owner, "begin", seen)
    one = begin(front)
    assert await asked(one, answer) is None
    assert json.loads(one.audited()) == {**ANN, "id": 1}
    (job,) = frames
    shown = json.loads(answer)
    assert json.loads(job.tokens) == [shown["name"], shown["email"]]
    assert job.fields == ["name", "email"]


SAME = ("name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}}")


@pytest.mark.parametrize("tagged", [True, False])
async def test_a_mark_is_made_for_an_answer_with_a_tag_alone(tmp_path: Path, tagged: bool) -> None:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    try:
        place = Place(await bound(store, CREATE, READ, UPDATE, fields=SAME), store)
        answer = await place.create()
        here = place.begin(1)
        assert here.restore(answer) is not None
        assert here.mark() != b""
        desk = cast("Desk", SimpleNamespace(runtime=place.runtime))
        async with fronted(desk, clock=ManualClock()) as front:
            one = begin(front)
            one.tagged = tagged
            assert await asked(one, answer) is None
            assert one.mark() == (here.mark() if tagged else b"")
    finally:
        await store.close()


async def test_an_owner_takes_no_more_calls_for_a_read_than_before(
    place: Place, front: Fronted
) -> None:
    answer = await place.create()
    await asked(begin(front), answer)
    texts = {name: json.dumps(json.loads(answer)[name]) for name in ("name", "email")}
    tokens = "[{name},{email}]".format(**texts)
    rules, number, view = plan_of(front).scope
    (connection,) = front.owner._fronts
    written: list[bytes] = []
    transport = SimpleNamespace(
        write=written.append, is_closing=lambda: False, get_write_buffer_size=lambda: 0
    )
    frames = connection.connection
    real, frames._transport = frames._transport, cast("asyncio.Transport", transport)
    counts = []
    for turn in range(900, 905):
        job = Reveal(turn, rules, number, {"id": "1"}, view, 200, "1", [*texts], tokens.encode())
        frame, calls = msgspec.msgpack.encode([job]), [0]

        def count(
            frame: FrameType, event: str, _argument: object, calls: list[int] = calls
        ) -> None:
            calls[0] += event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE))

        sys.setprofile(count)
        try:
            connection._receive(frame)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            sys.setprofile(None)
        counts.append(calls[0])
    frames._transport = real
    assert len(written) == 5
    assert b"Ann Lee" in written[-1]
    assert min(counts) <= CALLS
    assert min(counts) + 2 >= CALLS, f"lower the ceiling to {min(counts)}"


async def test_an_answer_of_another_shape_is_learned_and_goes_the_general_way(
    front: Fronted,
) -> None:
    plan = front.rules.fast_path(read_of(front), ())
    assert plan is not None
    one = plan.begin(read_of(front), Request("GET", b"/p/1", (), b""))
    assert one is not None
    bodies = [b'{"name": "N%d", "email": "e", "more": 1, "id": 1}' % number for number in range(20)]
    assert [one.restore(body) is not None for body in bodies][-1]
    assert one.restore(b"[") is None


async def test_a_token_that_was_replaced_goes_the_general_way(place: Place, front: Fronted) -> None:
    answer = await place.create()
    other = answer.replace(json.loads(answer)["name"].encode(), b"nobody")
    one = begin(front)
    error = await asked(one, other)
    assert error is not None
    assert plan_of(front).pause == 0
    restored = await cast("Any", one.general()).restore_response(Response(200, JSON, other))
    assert json.loads(restored.body) == {**ANN, "name": "nobody", "id": 1}


async def test_a_token_of_another_record_shows_no_value(place: Place, front: Fronted) -> None:
    answer, other = await place.create(1), await place.create(2)
    name = json.loads(other)["name"]
    mixed = answer.replace(json.loads(answer)["name"].encode(), name.encode())
    for body in (mixed, other):  # the path names the first
        one = begin(front)
        assert await asked(one, body) is not None
        assert one.values == b""


async def test_values_come_once_their_line_is_written_and_never_without(
    place: Place, front: Fronted, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, order = await place.create(), list[str]()
    sink = cast("Kept", next(iter(place.runtime.joined.values())).audit.sink)
    put, send = sink.put, OwnerConnection.send

    def written(*lines: bytes) -> None:
        put(*lines)
        order.append("line")

    def refused(*_: bytes) -> None:
        raise VaultError(Code.AUDIT_DOWN, "The disk is full.")

    def said(self: OwnerConnection, message: Any) -> None:
        order.append("values" if message.values else "no values")
        send(self, message)

    monkeypatch.setattr(sink, "put", written)
    monkeypatch.setattr(OwnerConnection, "send", said)
    assert await asked(begin(front), answer) is None
    monkeypatch.setattr(sink, "put", refused)
    error = await asked(begin(front), answer)
    assert error is not None
    assert error.code is Code.AUDIT_DOWN
    assert order == ["line", "values", "no values"]


async def test_an_owner_that_is_away_is_waited_for_on_the_general_way(
    place: Place, front: Fronted
) -> None:
    answer = await place.create()
    one, told = begin(front), Told()
    assert one.restore(answer) is not None
    one.audit(200, told)
    await front.lost()
    for error in (await told.line, await asked(begin(front), answer)):
        assert error is not None
        assert error.code is Code.VAULT_DOWN
    restored = await cast("Any", one.general()).restore_response(Response(200, JSON, answer))
    assert json.loads(restored.body) == {**ANN, "id": 1}


async def test_where_the_owner_carries_none_in_few_steps_it_is_not_asked_for_a_while(
    place: Place, front: Fronted
) -> None:
    answer = await place.create()
    plan, request = plan_of(front), Request("GET", b"/p/1", (), b"")
    one = begin(front)
    one.waiter = Told()
    one.set_result(RevealDone(1, None, ordinary=False))
    begun = [plan.begin(read_of(front), request) for _ in range(65)]
    assert begun[:64] == [None] * 64
    assert begun[64] is not None
    assert await asked(begun[64], answer) is None
