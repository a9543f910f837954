"""How long a test waits for what must come, on a machine that is shared, slow, and now and then
stands still.

A wait of a test is a guard against waiting for ever, never a measure: it ends as soon as what it
waits for is there. Where a requirement is a time, the test takes the best of several tries, since
one try may meet a pause of the machine.
"""

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import pytest

_T = TypeVar("_T")

#: Seconds until a test gives up.
PATIENCE: Final = 120.0


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that nothing tells of."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)


async def within(seconds: float, what: str, awaited: Awaitable[_T]) -> _T:
    """Wait for that, and say what did not come where it does not."""
    try:
        return await asyncio.wait_for(awaited, seconds)
    except TimeoutError:
        raise AssertionError(f"{what} did not come within {seconds:.0f} seconds") from None


def slowness() -> float:
    """How many times longer this processor takes for a plain loop than the one on which bounds of
    processor time were written; 1 on a faster one. The best of several loops: a neighbour that takes
    the caches is not there in all of them.
    """
    took = []
    for _ in range(5):
        began = time.thread_time()
        sum(number * number for number in range(20_000))
        took.append(time.thread_time() - began)
    return max(1.0, min(took) / 0.001)


class Pace:
    """How many times longer than it should a pause of this process has taken: 1 on a machine that
    gives everybody his turn, more where others want it, too. A bound in seconds is stretched by it.
    """

    _TURN: Final = 0.02

    def __init__(self) -> None:
        self._begin, self._turns = time.monotonic(), 0

    @property
    def stretched(self) -> float:
        """The factor, on average until now."""
        return max(1.0, (time.monotonic() - self._begin) / (self._TURN * max(1, self._turns)))

    async def measure(self) -> None:
        """Measure until it is cancelled."""
        while True:
            await asyncio.sleep(self._TURN)
            self._turns += 1


@asynccontextmanager
async def paced() -> AsyncIterator[Pace]:
    """The pace of this process for the length of a block."""
    pace = Pace()
    measuring = asyncio.create_task(pace.measure())
    try:
        yield pace
    finally:
        measuring.cancel()


# ---------------------------------------------------------------- a test without an end


class Watch:
    """A plugin that ends a test, its fixtures included, which takes longer than any may.

    First it cancels what the test awaits, so that it fails where it stands, and the run goes on. What
    does not end by that, or waits without awaiting, is ended with its process after the grace; stacks
    go to the standard error of the run, which no capture takes.
    """

    def __init__(self, seconds: float, grace: float) -> None:
        self._seconds, self._grace = seconds, grace
        self._main = threading.main_thread().ident
        self._error = os.dup(2)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch over all phases of a test, those after a failure as well."""
        over = threading.Event()
        watching = threading.Thread(target=self._watch, args=(item.nodeid, over), daemon=True)
        watching.start()
        try:
            return (yield)
        finally:
            over.set()
            watching.join()

    def _watch(self, name: str, over: threading.Event) -> None:
        if over.wait(self._seconds):
            return
        text = f"{name} did not end within {self._seconds:.0f} seconds"
        if self._cancel(text) and over.wait(self._grace):
            return
        if self._cancel(text) and over.wait(self._grace):  # what it ends with may stand still, too
            return
        os.write(self._error, f"\n{text}:\n".encode())
        faulthandler.dump_traceback(self._error)
        os._exit(1)

    def _cancel(self, text: str) -> bool:
        """Cancel the task that the main thread runs, if it runs one."""
        frame = sys._current_frames().get(self._main or 0)
        while frame is not None and frame.f_code is not asyncio.Runner.run.__code__:
            frame = frame.f_back
        task = frame.f_locals.get("task") if frame is not None else None
        if task is None:
            return False
        loop = task.get_loop()

        def cancel() -> None:
            waiting = "\n".join(f"- {' > '.join(_places(one))}" for one in asyncio.all_tasks(loop))
            task.cancel(f"{text}; what waits:\n{waiting}")

        loop.call_soon_threadsafe(cancel)
        return True


def _places(task: "asyncio.Task[Any]") -> Iterator[str]:
    """Where a task stands, from its outermost coroutine to what that awaits."""
    one: Any = task.get_coro()
    while one is not None:
        frame = getattr(one, "cr_frame", None) or getattr(one, "gi_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_qualname} {frame.f_code.co_filename}:{frame.f_lineno}"
        one = getattr(one, "cr_await", None) or getattr(one, "gi_yieldfrom", None)
