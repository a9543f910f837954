"""A server that records every byte it gets and answers exactly the bytes it is told, well-behaved
or not.

    async with RawServer(says(OK)) as server:
        ...
        assert server.requests[0].fields == [(b"Host", b"x")]

A behaviour is a coroutine function that gets each connection as a ``Wire`` of its own and the
server. The functions below make the usual ones.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Self

from tests.support.patience import PATIENCE
from tests.support.rawhttp import Message, Wire

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Behaviour = Callable[[Wire, "RawServer"], Awaitable[None]]


class RawServer:
    """Listens on a free port of 127.0.0.1 for the length of an ``async with`` block."""

    def __init__(self, behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self.behaviour = behaviour
        self.tls = tls
        self.wires: list[Wire] = []  #: every connection there was
        self.requests: list[Message] = []  #: every request that ``read`` read, in order
        self.open = 0  #: connections open now
        self.changed = asyncio.Event()
        self.port = 0
        #: a bound socket to listen with, in place of a free port
        self.at: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        place: dict[str, Any] = (
            {"sock": self.at} if self.at is not None else {"host": "127.0.0.1", "port": 0}
        )
        self._server = await asyncio.start_server(self._serve, ssl=self.tls, limit=1 << 20, **place)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for wire in self.wires:
            wire.writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        wire = Wire(reader, writer)
        self.wires.append(wire)
        self.open += 1
        self._notify()
        try:
            await self.behaviour(wire, self)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            pass  # the block is over; a cancelled handler would be reported by the stream server
        finally:
            self.open -= 1
            self._tasks.discard(task)
            self._notify()
            writer.close()

    async def read(self, wire: Wire) -> Message:
        """Read one whole request from a connection and record it."""
        message = await wire.body(await wire.head())
        self.requests.append(message)
        self._notify()
        return message

    def _notify(self) -> None:
        self.changed.set()

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until something about the server is so."""
        async with asyncio.timeout(seconds):
            while not condition():
                self.changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), 0.02)


def says(*answers: bytes, close: bool = False) -> Behaviour:
    """Answers the first request of each connection with the first, and so on; the last one again
    and again.
    """

    async def behave(wire: Wire, server: RawServer) -> None:
        count = 0
        while True:
            await server.read(wire)
            await wire.send(answers[min(count, len(answers) - 1)])
            count += 1
            if close:
                return

    return behave


def drips(answer: bytes, piece: int = 1, delay: float = 0.0) -> Behaviour:
    """Answers each request a few bytes at a time."""

    async def behave(wire: Wire, server: RawServer) -> None:
        while True:
            await server.read(wire)
            await wire.send(answer, piece, delay)

    return behave


def closes(before: bytes = b"", *, reset: bool = False) -> Behaviour:
    """Reads a request, sends ``before``, and ends the connection."""

    async def behave(wire: Wire, server: RawServer) -> None:
        await server.read(wire)
        await wire.send(before)
        if reset:
            await asyncio.sleep(0.05)  # a reset overtakes what was just sent
            wire.reset()

    return behave


def silent() -> Behaviour:
    """Reads and never answers."""

    async def behave(wire: Wire, server: RawServer) -> None:
        await server.read(wire)
        await wire.until_close()

    return behave


def once_then_closes(answer: bytes = OK) -> Behaviour:
    """Answers one request a connection as if the connection stayed, and closes as soon as another
    arrives on it.
    """

    async def behave(wire: Wire, server: RawServer) -> None:
        await server.read(wire)
        await wire.send(answer)
        await server.read(wire)
        wire.reset()

    return behave
