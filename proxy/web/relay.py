"""Another protocol on a connection that began as HTTP (101): raw bytes both ways until both sides have ended."""

import asyncio
from typing import cast

from proxy.web import writer
from proxy.web.incoming import Incoming
from proxy.web.server import CallerConnection
from proxy.web.upstream.port import Reply, Tunnel


class _FromCaller:
    """What aiohttp hands the caller's bytes to after the switch; stops reading while the application does not."""

    def __init__(self, connection: CallerConnection, tunnel: Tunnel) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._tunnel = tunnel
        self._waiting: asyncio.Task[None] | None = None

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Bytes of the caller. The answer tells aiohttp that more are welcome."""
        self._tunnel.write(data)
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_task(self._hold())
        return False, b""

    async def _hold(self) -> None:
        """Read no more from the caller until the application has taken what it was sent."""
        transport = self._connection.transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
            await self._tunnel.drained()
            transport.resume_reading()
        self._waiting = None

    def feed_eof(self) -> None:
        """The caller's connection is gone."""
        self.half_closed()

    def half_closed(self) -> bool:
        """The caller sends nothing more, but may still read; true keeps its connection open."""
        if not self.ended.done():
            self.ended.set_result(None)
            self._tunnel.write_eof()
        return True


async def relay(incoming: Incoming, reply: Reply, tunnel: Tunnel, patience: float) -> None:
    """Answer 101 and carry bytes both ways; returns when both directions have ended, or one is broken."""
    connection = cast("CallerConnection", incoming.connection)
    incoming.close = True
    incoming.write(writer.begin(incoming, reply))
    caller = _FromCaller(connection, tunnel)
    connection.on_eof = caller.half_closed
    connection.set_parser(caller)  # type: ignore[arg-type]  # any object with feed_data and feed_eof serves
    try:
        while piece := await reply.read():
            incoming.size += len(piece)
            incoming.write(piece)
            await incoming.drained(patience)
        transport = connection.transport
        if transport is not None and transport.can_write_eof():
            transport.write_eof()
            await caller.ended
    finally:
        tunnel.abort()
