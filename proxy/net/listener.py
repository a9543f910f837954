"""Listening sockets: open one, or say in one sentence why not."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from aiohttp import web

from proxy.net.caller_connection import CallerServer
from proxy.net.server import finish_open_requests, time_heads
from proxy.net.sockets import BACKLOG, cannot_listen, local_socket, written
from proxy.telemetry import logs

_log = logs.logger("web")

#: Makes what serves one connection of an application, in place of aiohttp's own.
Connections = Callable[[web.Server], asyncio.BaseProtocol]


class First(Protocol):
    """What a new connection passes before the protocol that it is given."""

    #: connections that wait to be accepted; all of them may be accepted before the first one is
    #: counted
    backlog: int

    def __call__(self, inner: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
        """What the connection is handed to, in place of ``inner``."""


#: Where to listen: host and port, or sockets that listen already and outlive this process.
Address = tuple[str, int] | list[socket.socket]


@asynccontextmanager
async def listen(
    name: str,
    address: Address,
    served: web.Application | CallerServer,
    connections: Connections | None = None,
    first: First | None = None,
) -> AsyncIterator[str]:
    """Serve at ``address`` until the block ends; gives ``host:port`` with the real port.

    Where the sockets outlive this process, another one follows that accepts at them: requests that
    have come this far are answered at the end.

    Raises ``VaultError`` (PORT_IN_USE) if the address cannot be opened; ``name`` is the setting to
    change then.
    """
    if isinstance(served, CallerServer):
        servers = await _open(name, address, served.acceptor, first)
        served.listeners += servers
        try:
            yield _log_listening(name, servers)
        finally:
            _close(servers)
        return
    runner = web.AppRunner(served, access_log=None, handle_signals=False, shutdown_timeout=2.0)
    await runner.setup()
    try:
        factory = runner.server
        if connections is not None and factory is not None:
            time_heads(factory)
            servers = await _open(name, address, partial(connections, factory), first)
        else:
            servers = await _open(name, address, factory, first)
        try:
            yield _log_listening(name, servers)
        finally:
            _close(servers)
            if isinstance(address, list) and factory is not None:
                await finish_open_requests(factory)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def listen_local(
    path: Path, served: web.Application, inherited: socket.socket | None = None
) -> AsyncIterator[None]:
    """Serve at a Unix socket that this user alone may connect to, until the block ends.

    One that a process left behind is replaced; ``inherited`` is there and outlives this process.
    Raises ``VaultError`` (PORT_IN_USE) where another process listens, or the socket cannot be made.
    """
    runner = web.AppRunner(served, access_log=None, handle_signals=False, shutdown_timeout=2.0)
    await runner.setup()
    try:
        local = inherited or local_socket(path)
        own = _number(path) if inherited is None else None
        await web.SockSite(runner, local).start()
        _log.info("listening", listener="socket", address=str(path))
        try:
            yield
        finally:
            if own is not None:
                _remove(path, own)
    finally:
        await runner.cleanup()


def _number(path: Path) -> int:
    return path.lstat().st_ino


def _remove(path: Path, own: int) -> None:
    """Remove our socket; one that another process has put there meanwhile stays."""
    with suppress(FileNotFoundError):
        if _number(path) == own:
            path.unlink()


async def _open(
    name: str,
    address: Address,
    factory: Callable[[], asyncio.BaseProtocol] | None,
    first: First | None,
) -> list[asyncio.Server]:
    if factory is None:
        raise TypeError("the application was not set up")
    protocol = factory if first is None else partial(_behind, first, factory)
    backlog = BACKLOG if first is None else first.backlog
    loop = asyncio.get_running_loop()
    if isinstance(address, list):
        return [await loop.create_server(protocol, sock=one, backlog=backlog) for one in address]
    host, port = address
    try:
        server = await loop.create_server(protocol, host, port, backlog=backlog)
    except OSError as error:
        raise cannot_listen(name, address, error) from None
    if not all(server.sockets):  # uvloop closes it without a word where another one listened first
        raise cannot_listen(name, address, OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)))
    return [server]


def _close(servers: list[asyncio.Server]) -> None:
    for server in servers:
        server.close()


def _behind(first: First, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
    return first(factory())


def _log_listening(name: str, servers: list[asyncio.Server]) -> str:
    host, port = servers[0].sockets[0].getsockname()[:2]
    address = written((host, port))
    _log.info("listening", listener=name, address=address)
    return address
