import time

from proxy.clock import steady, system_clock, to_wire
from tests.support.clock import ManualClock
from tests.support.table import table


def test_the_system_clock_tells_whole_milliseconds_since_the_epoch():
    before = int(time.time() * 1000)
    now = system_clock()
    assert isinstance(now, int)
    assert before - 1 <= now <= int(time.time() * 1000) + 1


@table(
    ("instant", "wire"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (1_700_000_000_999, "2023-11-14T22:13:20.999Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_on_the_wire_is_utc_with_three_places(instant, wire):
    assert to_wire(instant) == wire


def test_a_steady_clock_goes_on_where_the_other_one_is_set_back():
    wall = ManualClock(1_000)
    clock = steady(wall)
    read = []
    for step in (0, 5, -900, 10, 2_000, -3_000, 1):
        wall.advance(step)
        read.append(clock())
    assert read == [1_000, 1_005, 1_005, 1_015, 3_015, 3_015, 3_016]
