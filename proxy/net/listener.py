"""Listening sockets: open one, or say in one sentence why not."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol

from aiohttp import web

from proxy.errors import Code, VaultError
from proxy.net.caller_connection import CallerServer
from proxy.net.server import time_heads
from proxy.telemetry import logs

_log = logs.logger("web")

_REASONS: Final = {
    errno.EADDRINUSE: "another program listens there. Stop it, or set another port with listen.{name}.",
    errno.EACCES: (
        "this user may not open that port. Take one above 1023 with listen.{name}, or grant the "
        "right."
    ),
    errno.EPERM: (
        "this user may not open that port. Take one above 1023 with listen.{name}, or grant the "
        "right."
    ),
    errno.EADDRNOTAVAIL: "this machine has no such address. Set one that it has with listen.{name}.",
}
_OTHERWISE: Final = "the address cannot be opened. Check host and port of listen.{name}."


#: Makes what serves one connection of an application, in place of aiohttp's own.
Connections = Callable[[web.Server], asyncio.BaseProtocol]


class First(Protocol):
    """What a new connection passes before the protocol that it is given."""

    #: connections that wait to be accepted; all of them may be accepted before the first one is
    #: counted
    backlog: int

    def __call__(self, inner: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
        """What the connection is handed to, in place of ``inner``."""


#: Connections that wait to be accepted where nothing counts them; the kernel may hold fewer.
_BACKLOG: Final = 4096


@asynccontextmanager
async def listen(
    name: str,
    address: tuple[str, int],
    served: web.Application | CallerServer,
    connections: Connections | None = None,
    first: First | None = None,
) -> AsyncIterator[str]:
    """Serve at ``address`` until the block ends; gives ``host:port`` with the real port.

    Raises ``VaultError`` (PORT_IN_USE) if the address cannot be opened; ``name`` is the setting to
    change then.
    """
    if isinstance(served, CallerServer):
        server = await _open(name, address, served.entrance, first)
        served.listeners.append(server)
        try:
            yield _told(name, server)
        finally:
            server.close()
        return
    runner = web.AppRunner(served, access_log=None, handle_signals=False, shutdown_timeout=2.0)
    await runner.setup()
    try:
        factory = runner.server
        if connections is not None and factory is not None:
            time_heads(factory)
            server = await _open(name, address, partial(connections, factory), first)
        else:
            server = await _open(name, address, factory, first)
        try:
            yield _told(name, server)
        finally:
            server.close()
    finally:
        await runner.cleanup()


async def _open(
    name: str,
    address: tuple[str, int],
    factory: Callable[[], asyncio.BaseProtocol] | None,
    first: First | None,
) -> asyncio.Server:
    if factory is None:
        raise TypeError("the application was not set up")
    made = factory if first is None else partial(_behind, first, factory)
    host, port = address
    try:
        return await asyncio.get_running_loop().create_server(
            made, host, port, backlog=_BACKLOG if first is None else first.backlog
        )
    except socket.gaierror:
        reason = "the host name is not known. Set an address of this machine with listen.{name}."
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, _OTHERWISE)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    raise VaultError(Code.PORT_IN_USE, f"Cannot listen at {place}: {reason.format(name=name)}")


def _behind(first: First, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
    return first(factory())


def _told(name: str, server: asyncio.Server) -> str:
    host, port = server.sockets[0].getsockname()[:2]
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    _log.info("listening", listener=name, address=place)
    return place
