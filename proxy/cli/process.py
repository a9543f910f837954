"""Event loop of commands that stay, and the signals that end it."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import uvloop


def run_on_uvloop(work: Coroutine[Any, Any, int]) -> int:
    """Run to the end on uvloop, which needs half the time of the standard loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def stop_signal() -> asyncio.Future[None]:
    """Done when SIGTERM or SIGINT (Ctrl-C) arrives."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()

    def stopped() -> None:
        if not stop.done():
            stop.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped)
    return stop
