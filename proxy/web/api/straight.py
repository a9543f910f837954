"""The way of a long body past the event loop: the thread that seals and stores it reads it from the socket itself.

On the usual way each byte is copied by the loop, by the parser and by whoever joins what has come, and changes threads. So
once a long body is seen to come fast, its connection reads no more. The loop waits until there is something, and a thread
reads into one buffer, over and over, as long as there is something: what is searched, hashed and sealed right after it was
read is still in the processor's cache. The connection gets its next request when the last byte of the body was taken.
"""

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Iterator
from typing import Final

from aiohttp import StreamReader, web

from proxy.web.api.connection import VaultConnection
from proxy.web.api.scanning import cut_short

#: Bytes that are left of a body, and bytes that came at once, from which on this way pays.
_LONG: Final = 1 << 20
_FAST: Final = 64 * 1024
#: Bytes of the buffer.
_BUFFER: Final = 1 << 20
#: Bytes after which a thread lets other files come first.
_TURN: Final = 8 << 20
#: Seconds for which more is waited for, one after the other, where little has come: going to a thread has a price.
_MOMENTS: Final = (0.001, 0.002, 0.004, 0.008, 0.016)

_INT: Final = struct.Struct("i")

#: What makes of the bytes that were read those that are wanted.
Wanted = Callable[[memoryview], bytes | memoryview]


class Straight:
    """The rest of a body. Its connection reads nothing until ``close``."""

    def __init__(
        self, connection: VaultConnection, transport: asyncio.Transport, content: StreamReader, left: int
    ) -> None:
        # One of our own: nobody closes it under a thread. First of all, as there may be none left.
        self._descriptor = os.dup(transport.get_extra_info("socket").fileno())
        self.left = left  #: bytes that were not read yet
        self._connection = connection
        self._transport = transport
        self._content = content
        transport.pause_reading()
        self._buffer = memoryview(bytearray(min(_BUFFER, left)))
        self._dry = True  # all that had come was read

    async def ready(self) -> None:
        """Return when there is something to read, or the caller has gone. Raises what ends the request from elsewhere."""
        if (error := self._content.exception()) is not None:
            raise error
        if not self._dry:
            return
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        self._content._waiter = readable  # noqa: SLF001  # so it is woken by what wakes a reader: the server stops, the connection is lost
        loop.add_reader(self._descriptor, _tell, readable)
        try:
            await readable
        finally:
            self._content._waiter = None  # noqa: SLF001  # as above
            loop.remove_reader(self._descriptor)
        for moment in _MOMENTS:
            if self._waiting() >= min(_FAST, self.left):
                return
            await asyncio.sleep(moment)

    def pieces(self, wanted: Wanted) -> Iterator[bytes | memoryview]:
        """What is wanted of what has come, for a thread; a view is good until the next one is asked for.

        Raises ``VaultError``: BAD_REQUEST when the caller has gone; what ``wanted`` raises.
        """
        turn = _TURN
        self._dry = False
        while self.left and turn > 0 and not self._dry:
            if size := self._read():
                turn -= size
                yield wanted(self._buffer[:size])

    def close(self) -> None:
        """Let the connection read again. What is left of the body is forgotten as it comes. Idempotent; not while a thread reads."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        if self._connection.transport is None:
            return
        if self.left:
            self._transport.set_protocol(_Rest(self._connection, self._transport, self._content, self.left))
            self._transport.resume_reading()
        else:
            self._connection.passed(self._content)

    def _read(self) -> int:
        """Fill the buffer with what is there."""
        buffer = self._buffer[: self.left]
        size = 0
        try:
            while size < len(buffer):
                read = os.readv(self._descriptor, [buffer[size:]])
                if not read:
                    raise cut_short()
                size += read
        except BlockingIOError:
            self._dry = True
        except OSError:
            raise cut_short() from None
        self.left -= size
        return size

    def _waiting(self) -> int:
        """Bytes that could be read now."""
        size: int = _INT.unpack(fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(_INT.size)))[0]
        return size


class _Rest(asyncio.BufferedProtocol):
    """Forgets what is left of a body that nobody wants, then makes way for the connection's own protocol."""

    def __init__(
        self, connection: VaultConnection, transport: asyncio.Transport, content: StreamReader, left: int
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._content = content
        self._left = left
        self._scratch = memoryview(bytearray(min(_FAST, left)))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the name is asyncio's
        return self._scratch[: self._left]

    def buffer_updated(self, nbytes: int) -> None:
        self._left -= nbytes
        if not self._left:
            self._transport.set_protocol(self._connection)
            self._connection.passed(self._content)

    def eof_received(self) -> None:
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


def straight_of(request: web.Request, came: int, taken: int) -> Straight | None:
    """The straight way for the rest of a body of which so many bytes came at once, and so many were taken.

    ``None`` where it does not pay, where something that came was not taken yet, over TLS, and where no descriptor is left.
    """
    connection, content = request.protocol, request.content
    if came < _FAST or request.content_length is None or not isinstance(connection, VaultConnection):
        return None
    left, transport = request.content_length - taken, connection.transport
    if left < _LONG or transport is None or transport.get_extra_info("sslcontext") is not None:
        return None
    if content.total_bytes != taken or content.exception() is not None:
        return None
    try:
        return Straight(connection, transport, content, left)
    except OSError:
        return None


def _tell(readable: "asyncio.Future[None]") -> None:
    if not readable.done():
        readable.set_result(None)
