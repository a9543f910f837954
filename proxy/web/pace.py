"""Whether a body comes from its caller as fast as may be expected of anybody.

A body that comes too slowly is in the way of others only where there is no room for them; until then nobody minds. What
counts is the time in which its caller is waited for, not that in which somebody else does not take what has come. And it is
the last seconds that count: who sends a megabyte at once and then nothing more is behind soon, too.
"""

from typing import Final

#: Bytes a second that are expected of a caller, and how many seconds of them it may be ahead at most, and is at first.
SLOW: Final = 4096
_AHEAD: Final = 2.0
_FIRST: Final = 1.0


class Pace:
    """Of one body on its way. Times are of the loop, in seconds."""

    __slots__ = ("_ahead", "_since")

    def __init__(self) -> None:
        self._ahead = _FIRST * SLOW  #: bytes more than were expected so far
        self._since: float | None = None  #: when its caller began to be waited for

    def wait(self, now: float) -> None:
        """Its caller is waited for from now on."""
        self._since = now

    def came(self, size: int, now: float) -> None:
        """So many bytes came."""
        since = now if self._since is None else self._since
        self._ahead = min(self._ahead - (now - since) * SLOW + size, _AHEAD * SLOW)
        self._since = None

    def behind(self, now: float) -> float:
        """Bytes that should have come and did not; not above zero for a body in time, and for one that waits for somebody else."""
        return 0.0 if self._since is None else (now - self._since) * SLOW - self._ahead
