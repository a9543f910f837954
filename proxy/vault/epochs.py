"""Who is at work right now, so that somebody may wait until all of those who saw the old state of something have gone."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Epochs:
    """Pieces of work that began and have not ended. Costs two entries in a set for each."""

    def __init__(self) -> None:
        self._last = 0
        self._own: ContextVar[int] = ContextVar("own", default=0)
        self._active: set[int] = set()
        self._waiting: list[tuple[set[int], asyncio.Future[None]]] = []

    @contextmanager
    def work(self) -> Iterator[None]:
        """One piece of work, such as a request."""
        self._last += 1
        number = self._last
        self._active.add(number)
        token = self._own.set(number)
        try:
            yield
        finally:
            self._own.reset(token)
            self._active.discard(number)
            if self._waiting:
                self._ended(number)

    async def passed(self) -> None:
        """Wait until all work that is going on now has ended, but for the caller's own."""
        before = self._active - {self._own.get()}
        if not before:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (before, turn)
        self._waiting.append(entry)
        try:
            await turn
        finally:
            self._waiting.remove(entry)

    def _ended(self, number: int) -> None:
        for before, turn in self._waiting:
            before.discard(number)
            if not before and not turn.done():
                turn.set_result(None)
