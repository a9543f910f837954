"""When processes have ended without an orderly stop: what they had staged shortly before may have
been acknowledged.

An answer may leave before its settle is durable (``proxied.binding.commit_behind``). A process that
is killed in between leaves a write that looks as if nobody had answered it. The next answer that
shows the record decides it; until then it is kept for however long that takes, and never reaped.

Each process has a note of its own: until when everything that it had acknowledged was settled,
whether it has ended orderly, and the windows of processes whose notes it has taken over.
"""

from typing import Final

import msgspec

from proxy.clock import Clock
from proxy.crypto.prf import random_bytes
from proxy.errors import Code, VaultError
from proxy.storage.base import Store

#: Milliseconds between two marks that a process is alive.
BEAT: Final = 60_000
#: A process that has not marked that for so long has ended.
_DEAD: Final = 5 * BEAT
#: Milliseconds that a request may take from being staged to its answer.
_LONGEST: Final = 600_000
#: Windows that a note holds; more become one with the one before.
_MOST: Final = 100

Window = tuple[int, int]  #: instants at which something was staged, both ends included


class _Life(msgspec.Struct, frozen=True):
    alive: int  #: until then everything acknowledged was settled
    ended: bool  #: orderly
    windows: tuple[Window, ...] = ()

    def at(self, now: int) -> tuple[Window, ...]:
        """The windows of this process and of those before it."""
        if self.ended or 0 <= now - self.alive < _DEAD:
            return self.windows
        return _joined((*self.windows, (self.alive - _LONGEST, self.alive + _DEAD)))


_decode = msgspec.json.Decoder(_Life).decode
_encode = msgspec.json.Encoder().encode


class CrashWindows:
    """The note of this process for one environment. ``begin`` before anything is acknowledged."""

    def __init__(self, store: Store, environment: str, clock: Clock) -> None:
        self._store = store
        self._ending = f":{environment}"
        self._clock = clock
        self._name = ""
        self._stored: bytes | None = None
        self._life: _Life | None = None

    @property
    def noted(self) -> bool:
        """Whether a note says that this process may acknowledge what is not settled."""
        return self._life is not None

    async def begin(self) -> None:
        """Take over the note of a process that has ended, or make one. Raises what the store
        raises.
        """
        now = self._clock()
        for name in await self._names():
            stored = await self._store.note(name)
            life = None if stored is None else _decode(stored)
            if life is not None and (life.ended or not 0 <= now - life.alive < _DEAD):
                self._name, self._stored = name, stored
                if await self._write(_Life(now, False, life.at(now))):
                    return
        self._name, self._stored = f"life-{random_bytes(8).hex()}{self._ending}", None
        await self._write(_Life(now, False))

    async def beat(self) -> None:
        """Mark that everything acknowledged so far is settled, from time to time; begin (again)
        where no note says that this process is alive.
        """
        if self._life is None:
            await self.begin()
        elif self._clock() - self._life.alive >= BEAT:
            await self._write(_Life(self._clock(), False, self._life.windows))

    async def end(self) -> None:
        """Mark an orderly stop: everything is settled, and nothing follows."""
        if self._life is not None:
            await self._write(_Life(self._clock(), True, self._life.windows))

    async def windows(self) -> tuple[Window, ...]:
        """When something was staged that may have been acknowledged by a process that has died."""
        now = self._clock()
        notes = [await self._store.note(name) for name in await self._names()]
        lives = [_decode(note) for note in notes if note is not None]
        return _joined(tuple(window for life in lives for window in life.at(now)))

    async def _names(self) -> list[str]:
        return sorted(n for n in await self._store.notes(self._ending) if n.startswith("life-"))

    async def _write(self, life: _Life) -> bool:
        """Whether the note was still as it was known: else another process has taken it over."""
        content = _encode(life)
        try:
            await self._store.put_note(self._name, content, self._stored)
        except VaultError as error:
            if error.code is not Code.CONFLICT:
                raise
            self._life = None
            return False
        self._stored, self._life = content, life
        return True


def _joined(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """The same instants in order, in as few windows as there need to be; more instants where those
    are too many.
    """
    joined: list[Window] = []
    for begin, end in sorted(windows):
        if joined and (begin <= joined[-1][1] + 1 or len(joined) >= _MOST):
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return tuple(joined)
