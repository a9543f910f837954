"""Refusals, bounded: each kind is told at once when it comes first, and counted from then on.

Somebody who is refused ten thousand times a second must neither fill the disk nor hide: the first
refusals of a window are lines of their own, and at its end each kind has one line with its number.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from proxy.audit.events import EventKind, encode_event
from proxy.audit.sinks import Sink
from proxy.errors import VaultError

#: Seconds of a window, lines at once in it, and kinds that are told apart in it.
WINDOW: Final = 10.0
AT_ONCE: Final = 20
MOST_KINDS: Final = 200


class Refusal(NamedTuple):
    """A kind of refusal."""

    operation: str
    by: str
    environment: str
    status: int
    code: str


class Refusals:
    """What was refused since the last window ended."""

    def __init__(self, sink: Sink, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._sink = sink
        self._monotonic = monotonic
        self._ends = monotonic() + WINDOW
        self._budget = AT_ONCE
        self._counts: dict[Refusal, int] = {}

    def tell(self, refusal: Refusal) -> None:
        """One request was refused. Never raises: nothing was revealed."""
        if self._monotonic() >= self._ends:
            self.flush()
        if refusal not in self._counts:
            if len(self._counts) >= MOST_KINDS:
                refusal = refusal._replace(by="", environment="")
            elif self._budget > 0 and self._put(refusal, 1):
                self._budget -= 1
                self._counts[refusal] = 0
                return
        self._counts[refusal] = self._counts.get(refusal, 0) + 1

    def look(self) -> None:
        """End the window when it is over; called now and then."""
        if self._monotonic() >= self._ends:
            self.flush()

    def flush(self) -> None:
        """End the window: a line for each kind that came again.

        What cannot be written is counted on.
        """
        self._counts = {
            refusal: count
            for refusal, count in self._counts.items()
            if count and not self._put(refusal, count)
        }
        self._ends = self._monotonic() + WINDOW
        self._budget = AT_ONCE

    def _put(self, refusal: Refusal, count: int) -> bool:
        try:
            self._sink.put(
                encode_event(EventKind.REFUSED, **refusal._asdict(), via="interface", count=count)
            )
        except VaultError:
            return False
        return True
