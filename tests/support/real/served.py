"""A WSGI application served by gunicorn, in a process of its own, on a free port."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import PATIENCE

_LISTENING = re.compile(rb"Listening at: http://127\.0\.0\.1:(\d+)")
_STOP = 15.0  # seconds until a server that does not end is killed; no test depends on it


@dataclass(frozen=True)
class Served:
    """A running server; ``log`` is everything it has said so far."""

    port: int
    log: bytearray


@asynccontextmanager
async def served(python: Path, folder: Path) -> AsyncIterator[Served]:
    """Serve ``application`` of ``wsgi.py`` in that folder; ended by its process id."""
    log = bytearray()
    process = await asyncio.create_subprocess_exec(
        *(
            str(python), "-W", "ignore", "-m", "gunicorn", "wsgi:application", "--bind",
            "127.0.0.1:0", "--threads", "4",
        ),
        *("--keep-alive", "30", "--access-logfile", "-", "--no-control-socket"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    port: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    reading = asyncio.create_task(_read(process, log, port))
    try:
        yield Served(await _told(port, log), log)
    finally:
        await _end(process)
        await reading


async def _read(
    process: asyncio.subprocess.Process, log: bytearray, port: asyncio.Future[int | None]
) -> None:
    """Keep what the server says, and find the port in it."""
    assert process.stdout is not None
    async for line in process.stdout:
        log += line
        found = _LISTENING.search(line)
        if found and not port.done():
            port.set_result(int(found[1]))
    if not port.done():
        port.set_result(None)


async def _told(port: asyncio.Future[int | None], log: bytearray) -> int:
    try:
        number = await asyncio.wait_for(port, PATIENCE)
    except TimeoutError:
        number = None
    assert number is not None, "the server did not start:\n" + log.decode("utf-8", "replace")
    return number


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM to the server's own process, which ends its workers; SIGKILL where that does not
    help.
    """
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP)
        except TimeoutError:
            process.kill()
            await process.wait()
