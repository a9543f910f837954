"""Room for bodies that are held whole, and freed memory that goes back to the system.

The sum of the bodies is bounded, not only the size of each.

A matched request is read whole before a byte of it leaves, and its answer before a byte of it is
passed on. So many callers at once could fill the memory with bodies that are each within their
limit. Here each of them takes room before it is kept; where there is none it waits a while, and is
then refused in words.

Small bodies never wait, or a few callers that send large bodies slowly could block everyone else;
they count all the same.

Bodies arrive in pieces, so many of them could fill the budget together and none be complete. One of
the waiting ones may therefore exceed the limit until its end: so one always completes.

Who sends a body slowly keeps its room for long. Where others wait for room, bodies that come too
slowly give way: those that hold most first, and no more of them than the first in line needs.
"""

import asyncio
import ctypes
import gc
import mimetypes
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple

from proxy import offload
from proxy.errors import Code, VaultError

#: A message is small while it holds no more than this part of the room.
_SMALL = 1024

#: Seconds after which waiting callers check again for bodies that arrive too slowly.
_AGAIN: Final = 0.25

#: Bytes a second that are expected of a caller, and how many seconds of them it may be ahead at
#: most, and is at first.
SLOWEST_BODY: Final = 4096
_AHEAD: Final = 2.0
_FIRST: Final = 1.0


class BodyRate:
    """Tells whether one body comes as fast as may be expected of any caller.

    Only the time counts in which its caller is waited for, and only the last seconds: a megabyte at
    once and then nothing more is behind soon, too. Times are of the loop, in seconds.
    """

    __slots__ = ("_ahead", "_since")

    def __init__(self) -> None:
        self._ahead = _FIRST * SLOWEST_BODY  #: bytes more than were expected so far
        self._since: float | None = None  #: when its caller began to be waited for

    def wait(self, now: float) -> None:
        """Note that its caller is waited for from now on."""
        self._since = now

    def received(self, size: int, now: float) -> None:
        """Count bytes that came."""
        since = now if self._since is None else self._since
        self._ahead = min(self._ahead - (now - since) * SLOWEST_BODY + size, _AHEAD * SLOWEST_BODY)
        self._since = None

    def deficit(self, now: float) -> float:
        """Bytes that should have come and did not; never above zero for a body in time."""
        return 0.0 if self._since is None else (now - self._since) * SLOWEST_BODY - self._ahead


class MemoryBudget:
    """So many bytes for everybody together, for one body more, and for small ones."""

    __slots__ = (
        *("_favoured", "_looking", "_patience", "_line", "arriving", "limit", "small", "taken"),
    )

    def __init__(self, limit: int, patience: float) -> None:
        self.limit = limit
        self.small = limit // _SMALL  #: bytes for which nobody waits
        self.taken = 0  #: bytes taken now
        self._patience = patience  #: seconds to wait for room
        self._favoured: Reservation | None = None  #: who may go beyond the limit
        self._line: deque[_Waiter] = deque()
        self._looking = False
        self.arriving: dict[Reservation, ArrivingBody] = {}  #: bodies on their way

    def fits(self, size: int, holding: "Reservation") -> bool:
        """Whether a body may take more now. A body without any memory waits behind the others."""
        if (holding.size + size) * _SMALL <= self.limit:
            return True
        if self.taken + size <= self.limit and (holding.size or not self._line):
            return True
        return self._may_go_beyond(holding)

    def at_hand(self, size: int) -> bool:
        """Whether there is room for a body that is not small, for which nobody has to wait."""
        return not self._line and self.taken + size <= self.limit

    def _may_go_beyond(self, holding: "Reservation") -> bool:
        """Whether this is the one that comes to its end whatever the others hold.

        It must be on its way, or alone.
        """
        if self._favoured is None and (holding.size or not self.taken):
            self._favoured = holding
        return self._favoured is holding

    async def wait(self, size: int, holding: "Reservation") -> None:
        """Wait until ``size`` bytes are reserved.

        Raises ``VaultError`` (OVERLOADED) if no memory became free in time.
        """
        waiter = _Waiter(asyncio.get_running_loop().create_future(), size, holding)
        self._line.append(waiter)
        if not self._looking:
            self._look()
        try:
            async with asyncio.timeout(self._patience):
                await waiter.turn
        except BaseException as fault:
            self._leave(waiter)
            if isinstance(fault, TimeoutError):
                raise VaultError(
                    Code.OVERLOADED,
                    "The proxy holds as many bodies as it may at the moment: send this again "
                    "later.",
                ) from None
            raise

    def _look(self) -> None:
        """While a body waits, drop those that arrive too slowly."""
        self._looking = bool(self._line)
        if not self._line:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        needed = self.taken + self._line[0].size - self.limit
        slow = [holding for holding, arrival in self.arriving.items() if arrival.late(now)]
        for holding in sorted(slow, key=lambda one: one.size, reverse=True):
            if needed <= 0 or not holding.size:
                break
            needed -= holding.size
            self.arriving[holding].deadline.reschedule(now)
        loop.call_at(now + _AGAIN, self._look)

    def _leave(self, waiter: "_Waiter") -> None:
        if waiter.turn.done() and not waiter.turn.cancelled():
            self.give(waiter.size)  # its turn came while it was leaving
            return
        if waiter in self._line:
            self._line.remove(waiter)
        self.give(0)

    def give(self, size: int) -> None:
        """Give bytes back; those who wait come in, in their order, as far as they fit."""
        self.taken -= size
        while self._line:
            waiter = self._line[0]
            if self.taken + waiter.size > self.limit and not self._may_go_beyond(waiter.holding):
                return
            self._line.popleft()
            if not waiter.turn.done():
                self.taken += waiter.size
                waiter.turn.set_result(None)

    def over(self, holding: "Reservation") -> None:
        """Return the memory of a finished reservation."""
        if self._favoured is holding:
            self._favoured = None
        self.give(holding.size)


class _Waiter(NamedTuple):
    turn: asyncio.Future[None]
    size: int
    holding: "Reservation"


class ArrivingBody(NamedTuple):
    """A body on its way."""

    rate: BodyRate
    deadline: asyncio.Timeout  #: when it must have come

    def late(self, now: float) -> bool:
        """Whether it comes too slowly, and did not have to give way yet."""
        return self.rate.deficit(now) > 0 and not self.deadline.expired()


class Reservation:
    """Share of a message in the memory budget. ``close`` gives it back."""

    __slots__ = ("_room", "size")

    def __init__(self, room: MemoryBudget, size: int = 0) -> None:
        """``size``: bytes that are in memory already."""
        self._room = room
        self.size = size
        room.taken += size

    def at_once(self, size: int) -> bool:
        """Reserve ``size`` bytes more if they are free now; return whether they were."""
        room = self._room
        if (self.size + size) * _SMALL > room.limit and not room.fits(size, self):
            return False
        room.taken += size
        self.size += size
        return True

    async def take(self, size: int) -> None:
        """Reserve ``size`` bytes more once they are free. Raises ``VaultError`` (OVERLOADED)."""
        if not self.at_once(size):
            await self._room.wait(size, self)
            self.size += size

    @contextmanager
    def arriving(self, deadline: asyncio.Timeout) -> Iterator[BodyRate]:
        """While its body is on its way; ``deadline`` is moved forward if it must give way."""
        arrival = self._room.arriving[self] = ArrivingBody(BodyRate(), deadline)
        try:
            yield arrival.rate
        finally:
            del self._room.arriving[self]

    def add(self, size: int) -> None:
        """Reserve ``size`` bytes that are in memory already: later ones wait for it."""
        self._room.taken += size
        self.size += size

    def close(self) -> None:
        """Give everything back. Harmless when done twice."""
        room = self._room
        if room._line or room._favoured is self:  # noqa: SLF001  # they are of one piece
            room.over(self)
        else:  # as nearly always
            room.taken -= self.size
        self.size = 0


# Memory of the process: freed memory goes back to the operating system (glibc), and the cycle
# collector looks rarely.
#
# Two habits of its allocator keep the memory of a large answer. Every allocating thread has its own
# arena (eight for each processor), and freed blocks stay in each. And each freed block with its own
# mapping raises the size from which blocks get one, up to 32 MiB, so that later ones fill the heap
# and pin it. So there are two arenas, the size stays at 1 MiB, and after large work the heap is
# trimmed. Other C libraries (musl) return memory without help.

#: Of ``mallopt`` (malloc.h of glibc).
_ARENA_MAX: Final = -8
_MMAP_THRESHOLD: Final = -3

_ARENAS: Final = 2
_OWN_MAPPING: Final = 2**20

#: Seconds between two trims: each one walks through the heap.
_TRIM_SECONDS: Final = 1.0

#: Allocations between two runs of the cycle collector, and runs after which it includes older
#: objects. Requests make no cycles, so it may run rarely and on few objects, since it stops the
#: process: 30,000 take some 4 ms. Only ``collect_often`` runs it on all objects.
_COLLECT: Final = (10_000, 2, 1_000_000)
#: Seconds from the start until it is counted what lives as long as the process.
_COUNTED: Final = 5.0
#: Seconds between two such runs, and how many of them are skipped at most during long work.
_COLLECTED: Final = 60.0
_SKIPPED: Final = 10
#: Objects more than at the last such run that may be set aside (``offload.set_aside``) without
#: being looked at: some of them may be cycles that nobody needs, up to some 10 MB.
_ASIDE: Final = 50_000


def settle_memory() -> None:
    """Once an instance is complete: bound the allocator, and let the collector look rarely."""
    bound_arenas()
    gc.collect()
    if (trim := _function("malloc_trim")) is not None:
        trim(0)  # what the start has used, and nothing needs any more
    gc.set_threshold(*_COLLECT)
    gc.freeze()  # what lives as long as the process need not be looked at again by the collector


async def collect_often() -> None:
    """Collect cycles among all objects now and then, in a moment without long work; for ever."""
    await asyncio.sleep(_COUNTED)  # counting takes some ten milliseconds: not before first callers
    skipped, aside = 0, gc.get_freeze_count()
    while True:
        await asyncio.sleep(_COLLECTED)
        skipped = skipped + 1 if offload.working() else 0
        if skipped % _SKIPPED == 0:
            aside = collect_cycles(aside)


def collect_cycles(aside: int) -> int:
    """Collect cycles among what was made since the last time; among what was set aside, too, where
    that is many more objects than ``aside``, as they were then. How many they are now.
    """
    now = gc.get_freeze_count()
    if now > aside + _ASIDE:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        return gc.get_freeze_count()
    if gc.get_count()[2]:
        gc.collect()
    return min(aside, now)


def bound_arenas() -> bool:
    """Bound the memory that the allocator keeps, once, as a process starts; whether it could be."""
    mallopt = _function("mallopt")
    return (
        mallopt is not None
        and bool(mallopt(_ARENA_MAX, _ARENAS))
        and bool(mallopt(_MMAP_THRESHOLD, _OWN_MAPPING))
    )


class _Trimmer:
    """Trims in its own thread, at most once a second."""

    def __init__(self) -> None:
        self._trim = _function("malloc_trim")
        self._last = float("-inf")
        self._busy = threading.Lock()

    def __call__(self) -> None:
        """Trim soon, unless it was done just now or is under way."""
        if self._trim is None or not self._busy.acquire(blocking=False):
            return
        threading.Thread(target=self._run, name="malloc-trim", daemon=True).start()

    def _run(self) -> None:
        try:
            time.sleep(max(0.0, self._last + _TRIM_SECONDS - time.monotonic()))
            self._last = time.monotonic()
            if self._trim is not None:
                self._trim(0)
        finally:
            self._busy.release()


def _function(name: str) -> Callable[..., int] | None:
    """A function of the C library of this process; ``None`` where it has none of that name."""
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
    return function


#: Give back what large work has freed.
release: Final = _Trimmer()


def import_aiohttp() -> None:
    """Import aiohttp without the certificate authorities and the media types of the machine.

    It reads the former twice as it is imported, 70 ms and 2 MB, for clients that bring no TLS
    context. Ours bring one wherever they speak TLS, and one that did not would trust nobody. The
    latter are for files that it serves by their names, as nothing here does.
    """
    contexts: Any = ssl.SSLContext
    contexts.set_default_verify_paths = lambda _: None
    read, mimetypes.knownfiles = mimetypes.knownfiles, []
    try:
        import_module("aiohttp")
    finally:
        mimetypes.knownfiles = read
        del contexts.set_default_verify_paths  # what it inherits is there again
