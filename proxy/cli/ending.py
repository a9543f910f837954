"""Ends a process that was told to stop within its time, and tells what it waits for.

What is acknowledged is durable before anything ends, so that a forced end loses no more than
``kill -9``: nothing. It is forced from a thread, which goes on where the event loop does not, and
while the loop waits for threads that are not done.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, NamedTuple

from proxy.telemetry import logs

_log = logs.logger("serve")

#: Frames named of one task, and tasks named in one line.
_DEEP, _MOST = 4, 6
_ROOM: Final = "proxy."


class Times(NamedTuple):
    """Seconds after the signal: when a line says what the end waits for, and when it is forced."""

    over: threading.Event  #: set by what has come to its end
    warned: tuple[float, ...] = (5.0, 21.0)
    forced: float = 26.0


def end_in_time(loop: asyncio.AbstractEventLoop, times: Times) -> None:
    """End this process so many seconds from now with status 1, unless it is over by itself."""
    threading.Thread(target=_watch, args=(loop, times), name="end", daemon=True).start()


def _watch(loop: asyncio.AbstractEventLoop, times: Times) -> None:
    began = time.monotonic()
    for after in times.warned:
        if times.over.wait(began + after - time.monotonic()):
            return
        _log.warning("the end of this process waits", text=awaited(loop), count=int(after))
    if times.over.wait(began + times.forced - time.monotonic()):
        return
    _log.error(
        "the end of this process was forced: what was acknowledged is durable", text=awaited(loop)
    )
    sys.stderr.flush()
    os._exit(1)


def awaited(loop: asyncio.AbstractEventLoop) -> str:
    """Name the places in the program where tasks and threads are, the innermost last."""
    tasks = [" > ".join(_places(task)) for task in asyncio.all_tasks(loop)]
    mine = {threading.get_ident(), threading.main_thread().ident}
    threads_now = sys._current_frames()  # noqa: SLF001  # no other way leads to them
    frames = [frame for ident, frame in threads_now.items() if ident not in mine]
    threads = [f"thread {one}" for frame in frames for one in [*_inner(frame)][:1]]
    return "; ".join([one for one in (*tasks, *threads) if one][:_MOST]) or "the interpreter"


def _places(task: "asyncio.Task[Any]") -> list[str]:
    """The places of a task in this program, the innermost last."""
    places: list[str] = []
    at: Any = task.get_coro()
    while at is not None:
        frame = getattr(at, "cr_frame", None) or getattr(at, "ag_frame", None)
        if frame is not None and (where := _where(frame)):
            places.append(where)
        at = getattr(at, "cr_await", None) or getattr(at, "ag_await", None)
        if frame is not None and frame.f_code.co_name == "__aexit__":
            # of a context manager that is a generator, what it waits for is opaque
            at = getattr(frame.f_locals.get("self"), "gen", at)
    return places[-_DEEP:]


def _inner(frame: FrameType | None) -> Iterator[str]:
    """The places of a thread in this program, the innermost first."""
    while frame is not None:
        if where := _where(frame):
            yield where
        frame = frame.f_back


def _where(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "")
    if not module.startswith(_ROOM) or module == __name__:
        return ""
    return f"{module.removeprefix(_ROOM)}.{frame.f_code.co_qualname}"
