"""Ordinary creates and updates of a front, step by step; ``tests/property/test_fast_path_laws.py``
compares many with the general way.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange import owner_connection
from proxy.redactor.exchange.front_fast_path import FrontWrite, FrontWritePlan
from proxy.redactor.exchange.owner_protocol import (
    Draining,
    Resume,
    SettleWrite,
    StageDone,
    StageWrite,
    Welcome,
    decode_answers,
    decode_questions,
)
from proxy.redactor.message import Request, Response
from proxy.redactor.rules import Match, Verb
from proxy.storage.base import Hooks
from proxy.storage.sqlite.store import open_sqlite
from tests.support.audit import Kept as Lines
from tests.support.clock import ManualClock
from tests.support.exchanges import JSON, Desk
from tests.support.fronts import Fronted, fronted
from tests.support.patience import PATIENCE, until
from tests.support.stores import vault_down
from tests.support.tree import PACKAGE
from tests.unit.redactor.exchange.test_fast_path_exchange import ANN, Place
from tests.unit.redactor.exchange.test_fast_path_plan import CREATE, READ, UPDATE, bound

BO = {**ANN, "name": "Bo Ek"}
#: Calls of functions of the package that the owner makes for one ordinary create.
CALLS = 82
_CREATE = Verb.CREATE


class Caller:
    """Hears how its write goes on."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[BaseException | None] = asyncio.Queue()

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        self.heard.put_nowait(None)

    def set_exception(self, error: BaseException) -> None:
        self.heard.put_nowait(error)

    def audited(self, error: VaultError | None) -> None:
        self.heard.put_nowait(error)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    store = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    made = Place(await bound(store, CREATE, READ, UPDATE), store)
    for joined in made.runtime.joined.values():
        joined.unnamed.due = inf  # no body is looked at for what no rule names
    yield made
    await store.close()


@pytest.fixture
async def front(place: Place) -> AsyncIterator[Fronted]:
    desk = cast("Desk", SimpleNamespace(runtime=place.runtime))
    async with fronted(desk, clock=ManualClock()) as one:
        yield one


def begin(front: Fronted, body: object, path: bytes = b"/p", marks: Any = ()) -> FrontWrite | None:
    """A write; its front knows the shapes of bodies."""
    method = "POST" if path == b"/p" else "PUT"
    _, match = front.rules.match(method, "app", path, JSON)
    assert isinstance(match, Match)
    plan = front.rules.fast_path(match, JSON)
    assert isinstance(plan, FrontWritePlan)
    for _ in range(8):
        plan._learn(json.dumps(ANN).encode())
        plan.learn_answer(b'{"name": "N", "email": "e", "age": 7, "id": 1}')
    return plan.begin(match, Request(method, path, JSON, json.dumps(body).encode()), marks)


async def sent(
    front: Fronted, body: object, path: bytes = b"/p", marks: Any = ()
) -> tuple[FrontWrite, Caller, bytes]:
    """A write whose request is at the application, and the answer of that."""
    one, caller = begin(front, body, path, marks), Caller()
    assert one is not None
    assert one.stage(caller)
    error = await caller.heard.get()
    if error is not None:
        raise error
    one.staged()
    ident = path.rpartition(b"/")[2] if path != b"/p" else b"1"
    return one, caller, one.sent[:-1] + b', "id": %b}' % ident


async def done(front: Fronted, body: object, path: bytes = b"/p") -> bytes:
    """A write to its end; what the application was sent."""
    one, caller, answer = await sent(front, body, path)
    assert one.restore(answer) is not None
    assert one.settle(caller, 201)
    assert await caller.heard.get() is None
    one.audit(201, caller)
    assert await caller.heard.get() is None
    ident = int(json.loads(answer)["id"])
    assert json.loads(one.audited()) == {**cast("dict[str, Any]", body), "id": ident}
    return one.sent


def lines(place: Place) -> Lines:
    return cast("Lines", next(iter(place.runtime.joined.values())).audit.sink)


async def stored(place: Place, key: str = "1") -> list[dict[str, str]]:
    """The texts of all versions of a record."""
    collection = next(iter(place.runtime.vault.collections()))
    row = (await collection.by_key([key])).get(key)
    if row is None:
        return []
    return [
        {name: of[0].text for name, of in one.values.items() if of}
        for one in await collection.versions(row)
    ]


async def test_the_owner_is_told_the_values_alone_and_the_front_splices(
    place: Place, front: Fronted, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = list[Any]()

    def seen(frame: bytes) -> list[Any]:
        questions = decode_questions(frame)
        frames.extend(questions)
        return questions

    monkeypatch.setattr(owner_connection, "decode_questions", seen)
    body = await done(front, ANN)
    assert b"Ann Lee" not in body
    assert json.loads(body).keys() == ANN.keys()
    keep, answered = frames
    assert isinstance(keep, StageWrite)
    assert keep.texts == [ANN["name"], ANN["email"]]
    assert isinstance(answered, SettleWrite)
    assert (answered.key, set(answered.fields)) == ("1", {"name", "email"})
    assert await stored(place) == [{"name": "Ann Lee", "email": "ann@example.com"}]
    assert place.idle
    (line,) = lines(place).lines
    assert "Ann Lee" not in json.dumps(line)
    await done(front, BO, b"/p/1")
    assert [one["name"] for one in await stored(place)] == ["Bo Ek"]
    again = await done(front, BO, b"/p/1")
    assert json.loads(again)["email"] == json.loads(body)["email"], "values that stay keep tokens"
    assert place.idle


@pytest.mark.parametrize("path", [b"/p", b"/p/1"])
async def test_an_answer_out_of_the_ordinary_goes_the_general_way_with_its_request(
    place: Place, front: Fronted, path: bytes
) -> None:
    if path != b"/p":
        await done(front, ANN)
    one, _, answer = await sent(front, BO, path)
    other = b'{"data": %b}' % answer
    assert one.restore(other) is None
    general = one.general()
    restored = await general.restore_response(Response(201, JSON, answer))
    assert json.loads(restored.body) == {**BO, "id": 1}
    assert await stored(place) == [{"name": "Bo Ek", "email": "ann@example.com"}]
    assert place.idle


async def test_a_refusal_of_the_application_leaves_nothing(place: Place, front: Fronted) -> None:
    one, _, _ = await sent(front, ANN)
    told = b'{"error": "no: %b"}' % json.loads(one.sent)["name"].encode()
    general = one.general()
    assert general.must_buffer(422, JSON)
    restored = await general.restore_response(Response(422, JSON, told))
    assert restored.body == b'{"error": "no: Ann Lee"}'
    assert place.idle
    assert await stored(place) == []


@pytest.mark.parametrize("reached", [True, False])
async def test_without_an_answer_it_is_in_doubt_or_dropped(
    place: Place, front: Fronted, reached: bool
) -> None:
    await done(front, ANN)
    one, _, _ = await sent(front, BO, b"/p/1")
    await one.general().failed(reached)
    names = [version["name"] for version in await stored(place)]
    assert names == (["Ann Lee", "Bo Ek"] if reached else ["Ann Lee"])
    assert place.idle


async def test_what_cannot_be_settled_now_is_settled_the_general_way(
    place: Place, front: Fronted, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, caller, answer = await sent(front, ANN)
    assert one.restore(answer) is not None
    accept = place.store._writer.accept

    def down(item: Any, *, small: bool = False) -> bool:
        asyncio.get_running_loop().call_soon(item[0].set_exception, vault_down())
        return True

    monkeypatch.setattr(place.store._writer, "accept", down)
    assert one.settle(caller, 201)
    assert isinstance(await caller.heard.get(), VaultError)
    monkeypatch.setattr(place.store._writer, "accept", accept)
    restored = await one.general().restore_response(Response(201, JSON, answer))
    assert json.loads(restored.body) == {**ANN, "id": 1}
    assert len(await stored(place)) == 1
    assert place.idle


async def test_without_its_line_of_the_audit_log_nothing_is_shown(
    place: Place, front: Fronted, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, caller, answer = await sent(front, ANN)

    def refused(*_: bytes) -> None:
        raise VaultError(Code.AUDIT_DOWN, "The disk is full.")

    monkeypatch.setattr(lines(place), "put", refused)
    assert one.restore(answer) is not None
    assert one.settle(caller, 201)
    assert await caller.heard.get() is None
    one.audit(201, caller)
    error = await caller.heard.get()
    assert isinstance(error, VaultError)
    assert error.code is Code.AUDIT_DOWN
    assert place.idle


async def test_a_write_of_an_owner_that_goes_away_before_it_answers_begins_again(
    place: Place, front: Fronted
) -> None:
    one, caller = begin(front, ANN), Caller()
    assert one is not None
    assert one.stage(caller)
    await asyncio.sleep(0)
    await front.lost()
    error = await caller.heard.get()
    assert isinstance(error, VaultError)
    assert error.code is Code.VAULT_DOWN
    await asyncio.sleep(0.1)
    await until(lambda: place.idle)
    assert await stored(place) == [], "an owner that was heard no more keeps what it had, unnamed"
    await done(front, ANN)


async def test_an_owner_that_goes_away_while_the_application_acts_leaves_a_doubt(
    place: Place, front: Fronted
) -> None:
    await done(front, ANN)
    one, caller, answer = await sent(front, BO, b"/p/1")
    await front.lost()
    await front.link.channel()  # of the next one, which knows nothing of this
    assert one.restore(answer) is not None
    assert not one.settle(caller, 200)
    with pytest.raises(VaultError) as caught:
        await one.general().restore_response(Response(200, JSON, answer))
    assert caught.value.code is Code.VAULT_DOWN
    async with asyncio.timeout(PATIENCE):
        while {one["name"] for one in await stored(place)} != {"Ann Lee", "Bo Ek"}:  # noqa: ASYNC110  # the owner keeps both
            await asyncio.sleep(0.01)
    read = await front.send("GET /p/1")
    restored = await read.exchange.restore_response(Response(200, JSON, answer))
    assert json.loads(restored.body)["name"] == "Bo Ek", "an answer that shows it tells"


async def test_what_is_not_ordinary_is_told_so_and_begins_again(
    place: Place, front: Fronted
) -> None:
    assert begin(front, {**ANN, "age": "see ann@example.com"}) is None, "it stands elsewhere"
    assert begin(front, {**ANN, "name": 'Ann "Lee"'}) is None
    sent_before = json.loads(await done(front, ANN))
    for body, path, marks in (
        ({**ANN, "email": sent_before["email"]}, b"/p", ()),  # a token
        (BO, b"/p/1", (b"another",)),
        (BO, b"/p/2", ()),  # nobody knows it
    ):
        with pytest.raises(VaultError):
            await sent(front, body, path, marks)
        one = begin(front, body, path, marks)
        assert one is not None
        assert one.plan.pause == 0
    assert place.idle
    for joined in place.runtime.joined.values():
        joined.unnamed.due = 0  # the owner looks at a whole body
    with pytest.raises(VaultError):
        await sent(front, BO)


async def test_no_more_writes_take_the_longer_way_than_bodies_are_looked_at(
    place: Place, front: Fronted
) -> None:
    """Callers that come while the first such body is on its way would all follow it."""
    await done(front, ANN)
    joined = next(
        one for one in place.runtime.joined.values() if one.plan.operation.verb is _CREATE
    )
    unnamed, now = joined.unnamed, joined.collection.clock()
    unnamed.due, unnamed.left = 0, 1
    ways = [await _is_ordinary(front) for _ in range(8)]
    assert ways == [False, *[True] * 7]
    unnamed.again = now  # a second later: that one was refused, or its caller has left
    assert [await _is_ordinary(front) for _ in range(3)] == [False, True, True]
    unnamed.take(Request("POST", b"/p", JSON, b"{}"), now)
    assert unnamed.due > now
    assert [await _is_ordinary(front) for _ in range(3)] == [True] * 3


async def _is_ordinary(front: Fronted) -> bool:
    try:
        await sent(front, BO)
    except VaultError:
        return False
    return True


async def test_where_the_owner_keeps_none_it_is_not_asked_for_a_while(front: Fronted) -> None:
    one = begin(front, ANN)
    assert one is not None
    one.waiter = caller = Caller()
    one.set_result(StageDone(1, ordinary=False))
    assert isinstance(await caller.heard.get(), VaultError)
    assert [begin(front, ANN) for _ in range(64)] == [None] * 64
    await done(front, ANN)


@pytest.mark.parametrize(
    "message", [SettleWrite(99, 200, "1", ()), Resume(99, Request("POST", b"/p", (), b""))]
)
async def test_who_goes_on_with_what_was_never_kept_is_cut_off(
    front: Fronted, message: SettleWrite | Resume
) -> None:
    channel = await front.link.channel()
    channel.connection.send(message)
    async with asyncio.timeout(PATIENCE):
        await channel.ended.wait()


async def test_a_write_that_was_kept_is_not_answered_without_its_request(front: Fronted) -> None:
    one, _, answer = await sent(front, ANN)
    exchange = one.plan.general(one.match, one.request, one.number, one.channel)
    with pytest.raises(VaultError) as caught:
        await exchange.restore_response(Response(500, JSON, answer))
    assert caught.value.code is Code.VAULT_DOWN


async def test_tokens_that_are_longer_than_a_front_takes_leave_nothing(
    place: Place, front: Fronted
) -> None:
    (connection,) = front.owner._fronts
    most, connection._most = connection._most, 20
    with pytest.raises(VaultError):
        await sent(front, ANN)
    connection._most = most
    await until(lambda: place.idle)
    await done(front, ANN)


def answers(written: list[bytes], number: int) -> bool:
    """Whether an answer of that number is among them: the front asks for others now and then."""
    said = [one for frame in written for one in decode_answers(frame[4:])]
    return any(not isinstance(one, Welcome | Draining) and one.n == number for one in said)


async def test_an_owner_takes_no_more_calls_for_a_create_than_before(front: Fronted) -> None:
    await done(front, ANN)
    one = begin(front, ANN)
    assert one is not None
    rules, number, view = one.plan.scope
    (connection,) = front.owner._fronts
    written: list[bytes] = []
    transport = SimpleNamespace(
        write=written.append, is_closing=lambda: False, get_write_buffer_size=lambda: 0
    )
    frames = connection.connection
    real, frames._transport = frames._transport, cast("asyncio.Transport", transport)
    counts, heard = [], list[bytes]()
    for turn in range(900, 908):
        texts = ["Ann Lee", "ann@example.com"]
        keep = StageWrite(turn, rules, number, {}, view, one.cut.leaves, texts, ())
        told = SettleWrite(turn, 201, str(turn), ("name", "email"))
        calls = [0]

        def count(
            frame: FrameType, event: str, _argument: object, calls: list[int] = calls
        ) -> None:
            calls[0] += event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE))

        sys.setprofile(count)
        try:
            for message in (keep, told):
                del written[:]
                connection._receive(msgspec.msgpack.encode([message]))
                while not answers(written, turn):  # noqa: ASYNC110  # the writer's thread brings it about
                    await asyncio.sleep(0)
                heard += written
        finally:
            sys.setprofile(None)
        counts.append(calls[0])
    frames._transport = real
    assert b"Ann Lee" not in b"".join(heard)
    assert min(counts) <= CALLS
