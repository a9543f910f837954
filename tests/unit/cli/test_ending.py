import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from proxy.cli.ending import awaited
from proxy.offload import in_thread
from tests.support.patience import PATIENCE
from tests.support.tree import ROOT

#: Ends as ``serve`` does, while something does not: in a thread, or on the loop.
PROGRAM = """
import asyncio, threading, time
from proxy.cli.ending import Times, end_in_time
from proxy.offload import in_thread
async def main():
    end_in_time(asyncio.get_running_loop(), Times(threading.Event(), (0.2,), 0.6))
    {waits}
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("waits", "place"),
    [
        ("await in_thread(time.sleep, 60)", "offload.in_thread"),
        ("time.sleep(60)", ""),
    ],
    ids=["a thread", "the loop"],
)
def test_a_process_ends_in_its_time_whatever_it_waits_for_and_names_it(
    waits: str, place: str
) -> None:
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(waits=waits)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert ended.returncode == 1
    assert time.monotonic() - began < 30
    told = ended.stderr
    assert told.index("the end of this process waits") < told.index("was forced")
    assert place in told


async def test_places_of_tasks_are_named_the_innermost_last() -> None:
    task = asyncio.create_task(in_thread(time.sleep, 0.3))
    await asyncio.sleep(0.1)
    assert "offload.in_thread" in awaited(asyncio.get_running_loop())
    await task


async def test_what_the_end_of_a_context_waits_for_is_named() -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(in_thread, time.sleep, 0.3)
            yield

    async def serve() -> None:
        async with opened():
            pass

    task = asyncio.create_task(serve())
    await asyncio.sleep(0.1)
    places = awaited(asyncio.get_running_loop()).split("; thread")[0]
    assert "offload.in_thread" in places
    await task
