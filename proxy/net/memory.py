"""Freed memory goes back to the operating system, where the C library is glibc.

Two habits of its allocator keep what a large answer took. Every thread that allocates has an arena
of its own (eight for each processor), and freed blocks stay in each. And each freed block of its
own mapping raises the size from which blocks get one, up to 32 MiB, so that later ones fill the
heap and pin it. So there are two arenas, the size stays at 1 MiB, and after large work the heap is
trimmed. Other C libraries (musl) give memory back by themselves.
"""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Final

#: Of ``mallopt`` (malloc.h of glibc).
_ARENA_MAX: Final = -8
_MMAP_THRESHOLD: Final = -3

_ARENAS: Final = 2
_OWN_MAPPING: Final = 2**20

#: Seconds between two trims: each one walks through the heap.
_AGAIN: Final = 1.0


def bound_arenas() -> bool:
    """Bound what the allocator keeps; once, at the start of a process.

    Whether there was something to bound.
    """
    mallopt = _function("mallopt")
    return (
        mallopt is not None
        and bool(mallopt(_ARENA_MAX, _ARENAS))
        and bool(mallopt(_MMAP_THRESHOLD, _OWN_MAPPING))
    )


class _Trimmer:
    """Trims in a thread of its own, at most once a second."""

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
            time.sleep(max(0.0, self._last + _AGAIN - time.monotonic()))
            self._last = time.monotonic()
            if self._trim is not None:
                self._trim(0)
        finally:
            self._busy.release()


def _function(name: str) -> Callable[..., int] | None:
    """A function of the C library that the process runs with; ``None`` where it has none of that
    name.
    """
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
    return function


#: Give back what large work has freed.
release: Final = _Trimmer()
