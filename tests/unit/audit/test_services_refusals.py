import json
from typing import Any

from proxy.audit import services
from proxy.audit.services import Misses, NullSink, Refusal, Refusals
from proxy.errors import Code, VaultError


class Kept(NullSink):
    """A sink that keeps what it is given, unless it is down."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.down = False

    def put(self, *bodies: bytes) -> None:
        if self.down:
            raise VaultError(Code.AUDIT_DOWN, "down")
        self.lines += [json.loads(b"{" + one + b"}") for one in bodies]


ONE = Refusal("find_records", "c1", "default", 403, "forbidden")


def test_the_first_of_a_kind_is_told_at_once_and_the_rest_is_counted():
    sink, now = Kept(), [0.0]
    made = Refusals(sink, lambda: now[0])
    for _ in range(1000):
        made.add(ONE)
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
        made.add(ONE._replace(by=f"c{number}"))
    assert len(sink.lines) == services.AT_ONCE
    now[0] = services.WINDOW
    made.add(ONE)
    assert len(sink.lines) <= services.AT_ONCE + services.MOST_KINDS + 2
    made.flush()
    assert sum(line["count"] for line in sink.lines) == 5_001


def test_what_cannot_be_written_is_counted_on():
    sink, now = Kept(), [0.0]
    made = Refusals(sink, lambda: now[0])
    sink.down = True
    made.add(ONE)
    made.add(ONE)
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
