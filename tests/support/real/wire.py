"""A plain relay of bytes that keeps a copy of everything on its way to the application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Wire:
    """What has passed towards the application, all connections together."""

    address: str = ""
    sent: bytearray = field(default_factory=bytearray)

    def requests(self, line: bytes) -> int:
        """How many requests began with this, e.g.

        ``b"POST /api/people/"``; anything else has no method before a path.
        """
        return self.sent.count(line)


@asynccontextmanager
async def tapped(port: int) -> AsyncIterator[Wire]:
    """A wire to that port of this machine."""
    wire = Wire()
    tasks: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, forth, wire.sent), _pump(back, writer, None))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    wire.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield wire
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, copy: bytearray | None
) -> None:
    """Carry bytes one way until that side ends, then end the other."""
    with suppress(ConnectionError):
        try:
            while chunk := await reader.read(65536):
                if copy is not None:
                    copy += chunk
                writer.write(chunk)
                await writer.drain()
        finally:
            writer.close()
