"""Keeps the event loop responsive: long work yields to it, or runs on a worker thread.

Long work on the event loop delays all other requests. Three ways avoid that. They serve work of a
size that is known beforehand, so ordinary requests need none of them:

- Pure functions of bytes run on a worker thread (``in_thread``). Meanwhile threads change turns
  briskly, or the event loop would wait five milliseconds for the interpreter's lock at every step.
- What uses keys, locks or the store stays on the loop and yields (``busy``, ``give_way``). All long
  work of one turn of the loop shares one time slice, and those who gave way go on one by one, a
  turn each: so ten at once take no more of a turn than one.
- What is left over of long work is freed in slices, too (``discard``): to free a million objects
  takes as long as to make them.
"""

import asyncio
import functools
import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")

#: Seconds of one turn of the loop that long work may take, all of it together.
SLICE: Final = 0.004
#: Seconds within which long work has to ask again.
_JUST_NOW: Final = 0.5
#: Values to process between two checks of the time slice.
STRIDE: Final = 64
#: Places, values or members that are no long work.
FEW: Final = 1000

#: Bytes of a body that are read within the event loop whatever they hold, and bytes that never are.
SMALL: Final = 16 * 1024
LARGE: Final = 1024 * 1024
#: Bytes of a body of few members that is read before a thread would have taken it over.
BRIEF: Final = 128 * 1024

#: Seconds after which a thread that waits for the interpreter's lock asks for it, while others work
#: for long.
BRISK: Final = 0.0001

#: How much nicer than the event loop its workers are (nice(2)): a tenth of its weight.
_BEHIND: Final = 10

#: Seconds of work on a thread after which what it has made is set aside.
_MUCH: Final = 0.02


def behind_loop() -> None:
    """Let the event loop have the processor before this thread, where one core serves both."""
    if sys.platform == "linux":  # elsewhere it would be the priority of the whole process
        with suppress(OSError):  # a sandbox may forbid it, and the work is done all the same
            os.nice(_BEHIND)


#: Two, so that one very long body does not keep every other long one waiting. More would only share
#: the lock.
_workers: Final = ThreadPoolExecutor(2, "worker", behind_loop)


class Turns:
    """Switch interval of the interpreter's lock: the usual one, or short while needed."""

    def __init__(self) -> None:
        self._wanting = 0
        self._usual = 0.0

    def hasten(self) -> None:
        """Change turns briskly, until ``relax``. For the thread of the event loop alone."""
        if self._wanting == 0:
            self._usual = sys.getswitchinterval()
            sys.setswitchinterval(min(BRISK, self._usual))
        self._wanting += 1

    @property
    def hastened(self) -> bool:
        """Whether anybody wants it."""
        return self._wanting > 0

    def relax(self) -> None:
        """Withdraw one call of ``hasten``."""
        self._wanting -= 1
        if self._wanting == 0:
            sys.setswitchinterval(self._usual)


#: Of this process.
turns = Turns()


def is_long(body: bytes) -> bool:
    """Whether reading or writing a body may take milliseconds, by bytes and members."""
    size = len(body)
    if size <= SMALL or size > LARGE:
        return size > SMALL
    members, sign = 0, b"<" if body.startswith(b"<") else b","
    for start in range(0, size, SMALL):  # of many, only so many are counted
        members += body.count(sign, start, start + SMALL) + body.count(b"&", start, start + SMALL)
        if members > FEW:
            return True
    return False


async def in_thread(work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """Return the result of a pure function, computed on a worker thread.

    If the caller is cancelled, the work still runs to its end.
    """
    began = perf_counter()
    turns.hasten()
    future = asyncio.get_running_loop().run_in_executor(
        _workers, functools.partial(work, *arguments, **named)
    )
    try:
        return await future
    finally:
        turns.relax()
        if perf_counter() - began > _MUCH:
            set_aside()


def set_aside() -> None:
    """Take all objects that there are out of the cycle collector's sight.

    Its next run would look at everything that was made since the last one, which may be half a
    million objects however seldom it runs: it counts what was made less what was freed. Every
    thread waits for it, for a tenth of a second. ``net.memory_budget`` has it look at them later.
    """
    gc.freeze()


async def run_in_thread(
    long: bool, work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs
) -> _T:
    """Return the result of a pure function, from a worker thread if ``long``."""
    return await in_thread(work, *arguments, **named) if long else work(*arguments, **named)


class _Slices:
    """The long work of one event loop."""

    __slots__ = ("_armed", "_loop", "_until", "_waiting", "_worked")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until = 0.0  #: end of the slice of this turn; 0: none has begun
        self._worked = 0.0  #: time of the last request for a slice
        self._armed = False  #: whether ``_turned`` will be called
        self._waiting: deque[asyncio.Future[None]] = deque()

    def busy(self) -> bool:
        now = perf_counter()
        self._worked = now
        if not self._until:
            self._until = now + SLICE
            self._arm()
        return now >= self._until

    @property
    def waited_for(self) -> bool:
        """Whether work waits to continue, or has just continued."""
        return bool(self._waiting) or perf_counter() - self._worked < _JUST_NOW

    async def give_way(self) -> None:
        future = self._loop.create_future()
        self._waiting.append(future)
        self._arm()
        await future

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._turned)

    def _turned(self) -> None:
        """In the next turn of the loop the first waiter continues, with its own slice."""
        self._armed, self._until = False, 0.0
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # else its task was cancelled
                future.set_result(None)
                break
        if self._waiting:
            self._arm()


_slices: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Slices]" = WeakKeyDictionary()


def _mine() -> _Slices:
    loop = asyncio.get_running_loop()
    slices = _slices.get(loop)
    if slices is None:
        slices = _slices[loop] = _Slices(loop)
    return slices


def busy() -> bool:
    """Whether the work of this turn of the loop has used up its slice: then ``give_way``."""
    return _mine().busy()


async def give_way() -> None:
    """Let the loop turn, and go on when it is one's turn again.

    State of others may have changed then.
    """
    await _mine().give_way()


def working() -> bool:
    """Whether anybody works for long, on another thread or in slices."""
    return turns.hastened or _mine().waited_for


async def each(work: Callable[[_S], _T], items: Sequence[_S]) -> list[_T]:
    """Return ``work(item)`` for each item; yield to the event loop between slices of many."""
    if len(items) <= STRIDE:
        return [work(item) for item in items]
    slices, answers = _mine(), list[_T]()
    for some in strides(items):
        answers += [work(item) for item in some]
        if slices.busy():
            await slices.give_way()
    return answers


def strides(items: Sequence[_T], size: int = STRIDE) -> Iterator[Sequence[_T]]:
    """The items in runs of so many."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def free(*lists: list[Any]) -> None:
    """Empty these piece by piece, on any thread: freeing millions at once keeps the lock."""
    for one in lists:
        while len(one) > FEW:
            del one[-FEW:]


def discard(*lists: object) -> None:
    """Empty unused lists and dictionaries while the loop runs; leave short ones alone."""
    long = [one for one in lists if isinstance(one, list | dict) and len(one) > FEW]
    if long:
        _discard_some(asyncio.get_running_loop(), long)


def _discard_some(
    loop: asyncio.AbstractEventLoop, lists: "list[list[Any] | dict[Any, Any]]"
) -> None:
    slices = _mine()
    while lists:
        last = lists[-1]
        if isinstance(last, dict):
            for _ in range(min(STRIDE, len(last))):
                last.popitem()
        else:
            del last[-STRIDE:]
        if not last:
            lists.pop()
        if slices.busy():
            loop.call_soon(_discard_some, loop, lists)
            return


def flush_folder(folder: Path) -> None:
    """Make names in a folder durable, as the fsync of a file does not; waits for the disk.

    Raises ``OSError``.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
