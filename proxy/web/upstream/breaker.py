"""The circuit breaker of one address: an application that fails again and again is left alone for a while.

Callers then get their refusal at once in place of a time-out, and an application that is on its knees is not asked by all of
them. After the pause one request is let through; its answer ends the refusals, its failure begins another pause.

What counts is that no answer came: unreachable, or too late. An answer of any status shows that the application lives,
so a 500 never opens the breaker; nor does an answer that is broken off, which one odd request may provoke. A request that
is too late does not count where others were answered while it waited: only what it asks for hangs, and one caller could
keep everybody from the application by asking for that ten times at once.
"""

import math
from collections.abc import Callable
from typing import Final

from proxy.errors import Code
from proxy.web.upstream.port import UpstreamFault

_COUNTED: Final = frozenset({Code.UPSTREAM_UNREACHABLE, Code.UPSTREAM_TIMEOUT})
#: Faults that say nothing about the application, so that a request that tried it has to be repeated by another.
_NEUTRAL: Final = frozenset({Code.UPSTREAM_BUSY, Code.UPSTREAM_SUSPENDED})

_SUSPENDED: Final = "The application gave no answer several times in a row: for a moment it is not asked at all."


class Breaker:
    """``failures`` in a row open it (0: never), for ``pause`` seconds; ``told`` learns of each change: open or not."""

    __slots__ = ("_count", "_failures", "_pause", "_told", "_trying", "_until", "engaged", "open")

    def __init__(self, failures: int, pause: float, told: Callable[[bool], None] = lambda _open: None) -> None:
        self.open = False
        #: A failure was seen since the last answer; while this is false, nothing else here need be asked.
        self.engaged = False
        self._failures = failures
        self._pause = pause
        self._told = told
        self._count = 0
        self._until = 0.0  #: in loop time
        self._trying = False  #: one request is on its way to see whether the application answers again

    def refusal(self, now: float) -> UpstreamFault | None:
        """What a request would be refused with at this moment, if it would be."""
        if not self.open or (now >= self._until and not self._trying):
            return None
        fault = UpstreamFault(Code.UPSTREAM_SUSPENDED, _SUSPENDED, sent=False)
        fault.retry_after = max(1, math.ceil(self._until - now))
        return fault

    def admit(self, now: float) -> bool:
        """Let a request through, or raise its refusal. True: it is the one that tries, and its end must be told here."""
        if not self.open:
            return False
        fault = self.refusal(now)
        if fault is not None:
            raise fault
        self._trying = True
        return True

    def answered(self) -> None:
        """The application answered a request, whatever it said."""
        self.engaged = self._trying = False
        self._count = 0
        if self.open:
            self.open = False
            self._told(False)

    def failed(self, fault: UpstreamFault, now: float, *, tried: bool, lively: bool = False) -> None:
        """A request ended without an answer.

        ``tried``: it was the one that ``admit`` let through to see. ``lively``: others were answered while it waited for its answer.
        """
        if tried:
            self._trying = False
            if fault.code not in _NEUTRAL and not fault.starved:
                self._until = now + self._pause
        elif (
            self._failures
            and not self.open
            and fault.code in _COUNTED
            and not fault.starved
            and not (lively and fault.sent)
        ):
            self.engaged = True
            self._count += 1
            if self._count >= self._failures:
                self.open = True
                self._until = now + self._pause
                self._told(True)

    def left(self) -> None:
        """The request that tried ended early for reasons of its caller: another may try."""
        self._trying = False
