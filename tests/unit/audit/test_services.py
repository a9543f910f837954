import asyncio
import json
import re

import pytest

from proxy.audit import services
from proxy.audit.chain import VolatileMemory
from proxy.audit.services import (
    Honeytoken,
    Honeytokens,
    LineGroup,
    Misses,
    NullSink,
    Refusal,
    Refusals,
    Sink,
    record_ids,
)
from proxy.crypto.prf import hasher
from proxy.errors import Code, VaultError
from proxy.telemetry.logs import REQUEST_ID
from tests.support.audit import Kept, audit_services, told, trail

ONE = Honeytoken("m1", "default", "p", 7)


async def test_lines_of_one_turn_have_not_the_id_of_the_request_that_came_first():
    sink, heard = Kept(), []
    group = LineGroup(sink)

    class Waiter:
        def audited(self, error):
            heard.append(error)

    named = REQUEST_ID.set("a1")
    group.put(b'"event":"write","request":"a1"', Waiter(), done=True)
    group.put(b'"event":"write"', Waiter(), done=True)
    REQUEST_ID.reset(named)
    await asyncio.sleep(0)
    assert sink.raw == [b'"event":"write","request":"a1"', b'"event":"write"']
    assert heard == [None, None]


async def test_a_bait_is_known_by_its_mark_and_by_its_number_and_outlives_the_process():
    memory = VolatileMemory()
    made = Honeytokens(memory)
    await made.load()
    assert not made.some
    await made.add(ONE)
    await made.add(ONE)
    again = Honeytokens(memory)
    await again.load()
    assert (again.some, "m1" in again) == (True, True)
    assert "m0" not in again
    assert again.touched("default", "p", {6, 7}) == ["m1"]
    assert again.touched("default", "p", {6}) == again.touched("default", "q", {7}) == []
    await again.remove("m0")
    await again.remove("m1")
    assert (again.some, "m1" in again) == (False, False)
    assert again.touched("default", "p", {7}) == []


async def test_there_is_a_bound():
    made = Honeytokens(VolatileMemory(), most=1)
    await made.add(ONE)
    with pytest.raises(VaultError) as raised:
        await made.add(Honeytoken("m2", "default", "p", 8))
    assert raised.value.code is Code.UNPROCESSABLE
    await made.add(Honeytoken("m1", "default", "p", 9))
    assert made.touched("default", "p", {9}) == ["m1"]


# ---- alarms


async def test_only_baits_raise_alarms():
    kinds: list[str] = []
    made = audit_services(alarms=kinds)
    assert made.alarms(["m1"], via="proxy") == []
    await made.honeytokens.add(Honeytoken("m1", "default", "p", 7))
    assert made.alarms(["m2"], via="proxy") == []
    assert kinds == []
    (line,) = made.alarms(["m1", "m2", "m1"], via="proxy", reason="another")
    told = json.loads(b"{" + line + b"}")
    assert (told["event"], told["records"], told["count"], told["via"]) == (
        "alarm",
        ["m1"],
        1,
        "proxy",
    )
    assert "bait" in told["reason"]
    assert kinds == ["bait"]


# ---- record ids


MARK = record_ids(hasher(b"k" * 32))


def test_a_record_has_one_mark_and_another_record_another():
    assert MARK("default", "p", "1") == MARK("default", "p", "1")
    cases = [
        ("default", "p", "1"),
        ("other", "p", "1"),
        ("default", "q", "1"),
        ("default", "p", "2"),
        ("default", "p1", ""),
    ]
    assert len({MARK(*case) for case in cases}) == len(cases)


def test_without_the_key_nobody_makes_it():
    assert record_ids(hasher(b"x" * 32))("default", "p", "1") != MARK("default", "p", "1")


def test_any_key_can_be_marked_and_a_mark_is_one_word():
    for key in ("", "å\U0001f600", "\ud800", "a\0b", "x" * 10_000):
        assert re.fullmatch(r"[A-Za-z0-9_-]{12}", MARK("default", "p", key))


# ---- refusals


REFUSED_ONE = Refusal("find_records", "c1", "default", 403, "forbidden")


def test_the_first_of_a_kind_is_told_at_once_and_the_rest_is_counted():
    sink, now = Kept(), [0.0]
    made = Refusals(sink, lambda: now[0])
    for _ in range(1000):
        made.add(REFUSED_ONE)
    assert sink.lines == [
        {
            "event": "refused",
            "via": "interface",
            "by": "c1",
            "environment": "default",
            "operation": "find_records",
            "status": 403,
            "code": "forbidden",
            "count": 1,
        }
    ]
    made.look()
    assert len(sink.lines) == 1, "the window is not over"
    now[0] = services.WINDOW
    made.look()
    assert [line["count"] for line in sink.lines] == [1, 999]
    made.flush()
    assert len(sink.lines) == 2, "what was told is not told again"


def test_a_flood_of_kinds_is_bounded_and_every_refusal_counted():
    sink, now = Kept(), [0.0]
    made = Refusals(sink, lambda: now[0])
    for number in range(5_000):
        made.add(REFUSED_ONE._replace(by=f"c{number}"))
    assert len(sink.lines) == services.AT_ONCE
    now[0] = services.WINDOW
    made.add(REFUSED_ONE)
    assert len(sink.lines) <= services.AT_ONCE + services.MOST_KINDS + 2
    made.flush()
    assert sum(line["count"] for line in sink.lines) == 5_001


def test_what_cannot_be_written_is_counted_on():
    sink, now = Kept(), [0.0]
    made = Refusals(sink, lambda: now[0])
    sink.down = True
    made.add(REFUSED_ONE)
    made.add(REFUSED_ONE)
    made.flush()
    sink.down = False
    made.flush()
    assert [line["count"] for line in sink.lines] == [2]


def test_misses_that_cannot_be_written_are_counted_on():
    sink = Kept()
    misses = Misses(sink)
    sink.down = True
    misses.add(b'"event":"miss"')
    misses.flush()
    sink.down = False
    misses.add(b'"event":"miss"')
    misses.flush()
    misses.flush()
    assert sink.lines == [{"event": "miss", "count": 2}]


# ---- sink


async def test_null_sink_takes_everything(tmp_path):
    sink: Sink = NullSink()
    sink.ready()
    sink.put(b"")
    sink.put_or_queue(b"")
    await sink.flushed()
    assert (sink.fault, sink.flushes) == (None, False)


async def test_what_is_told_quietly_is_written_or_waits(tmp_path):
    async with trail(tmp_path) as made:
        audit_services(made).put_quietly(b'"event":"write"')
    assert told(tmp_path) == [{"event": "write"}]

    class Down(NullSink):
        def put_or_queue(self, *bodies: bytes) -> None:
            raise VaultError(Code.AUDIT_DOWN, "down")

    audit_services(Down()).put_quietly(b"")
