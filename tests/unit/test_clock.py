import time

from proxy.clock import system_clock, to_wire
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
