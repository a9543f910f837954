"""The clock port: one source of time, so that tests own it.

All instants inside the program are whole milliseconds since the Unix epoch, UTC.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

#: A clock is any callable that tells the present in milliseconds since the Unix epoch.
Clock = Callable[[], int]


def system_clock() -> int:
    """The machine's wall clock in milliseconds since the Unix epoch, UTC."""
    return time.time_ns() // 1_000_000


def steady(clock: Clock) -> Clock:
    """A clock that goes on where the other one is set back: for spans of time, not for instants."""
    latest = behind = 0

    def now() -> int:
        nonlocal latest, behind
        wall = clock()
        behind = max(behind, latest - wall)
        latest = wall + behind
        return latest

    return now


@lru_cache(maxsize=64)  # all records of a batch have one
def to_wire(instant: int) -> str:
    """An instant as the interface writes it: ``YYYY-MM-DDThh:mm:ss.sssZ`` (ISO 8601, UTC)."""
    seconds, milliseconds = divmod(instant, 1000)  # a float would lose the last digit of the far
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{milliseconds:03d}Z"
