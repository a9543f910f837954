"""Work on files beside the event loop: a few threads, and nobody leaves while his thread still works."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """At most so many pieces of work at a time; further ones wait for their turn."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="files")

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the work answers or raises.

        A thread cannot be stopped. So who is cancelled waits for it: else a descriptor would be closed under it, and
        its number given to another file.
        """
        return await _ended(asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(*arguments, **named)))

    def close(self) -> None:
        """Finish what was begun. Idempotent."""
        self._pool.shutdown(wait=True)


async def _ended(future: asyncio.Future[T]) -> T:
    """The result, when the thread is done."""
    cancelled = await _settled(future)
    if cancelled is not None:
        raise cancelled
    return future.result()


async def _settled(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait for the thread, whatever happens; how somebody wanted to end that, if anybody did."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    future.exception()  # perhaps nobody is left to hear of it
    return cancelled
