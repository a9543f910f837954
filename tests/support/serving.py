"""An aiohttp application on a real socket, for the length of a ``with`` block."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving(app: web.Application, port: int = 0, patience: float = 1.0) -> AsyncIterator[str]:
    """Serve on 127.0.0.1, on a free port unless one is named; gives the address,
    ``http://127.0.0.1:port``.

    At the end requests under way get ``patience`` seconds.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=patience)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
