"""Memory of the process: freed memory goes back to the operating system (glibc), and the cycle
collector looks rarely.

Two habits of its allocator keep the memory of a large answer. Every allocating thread has its own
arena (eight for each processor), and freed blocks stay in each. And each freed block with its own
mapping raises the size from which blocks get one, up to 32 MiB, so that later ones fill the heap
and pin it. So there are two arenas, the size stays at 1 MiB, and after large work the heap is
trimmed. Other C libraries (musl) return memory without help.
"""

import asyncio
import ctypes
import gc
import ssl
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from proxy import offload

#: Of ``mallopt`` (malloc.h of glibc).
_ARENA_MAX: Final = -8
_MMAP_THRESHOLD: Final = -3

_ARENAS: Final = 2
_OWN_MAPPING: Final = 2**20

#: Seconds between two trims: each one walks through the heap.
_AGAIN: Final = 1.0

#: Allocations between two runs of the cycle collector, and runs after which it includes older
#: objects. Requests make no cycles, so it may run rarely and on few objects, since it stops the
#: process: 30,000 take some 4 ms. Only ``collect_often`` runs it on all objects.
_COLLECT: Final = (10_000, 2, 1_000_000)
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
    """Bound the memory that the allocator keeps; once, at the start of a process.

    Whether there was something to bound.
    """
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
            time.sleep(max(0.0, self._last + _AGAIN - time.monotonic()))
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
    """Import aiohttp without the certificate authorities of the machine.

    It reads them twice as it is imported, 70 ms and 2 MB, for clients that bring no TLS context.
    Ours bring one wherever they speak TLS, and one that did not would trust nobody.
    """
    contexts: Any = ssl.SSLContext
    contexts.set_default_verify_paths = lambda _: None
    try:
        import_module("aiohttp")
    finally:
        del contexts.set_default_verify_paths  # what it inherits is there again
