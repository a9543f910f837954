"""The one part of an upload, read as it arrives (RFC 7578, RFC 2046 section 5.1).

An upload has exactly one part, and its name is ``file``. What surrounds its content is found
without holding more of it than a piece, and whatever is not such a body is refused in words, not by
what a lenient reader makes of it.
"""

import asyncio
import fcntl
import os
import re
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final, TypeVar

from aiohttp import StreamReader, web

from proxy.api.connection import VaultConnection
from proxy.api.multipart import Scan, broken_off, cut_short, misunderstood
from proxy.errors import Code, VaultError
from proxy.model.record import UNKNOWN_TYPE, fault_of_mime_type

# The way of a long body past the event loop: the thread that seals and stores it reads it from the
# socket itself.
#
# On the usual way each byte is copied by the loop, by the parser and by whoever joins what has
# come, and changes threads. So once a long body is seen to come fast, its connection reads no more.
# The loop waits until there is something, and a thread reads into one buffer, over and over, as
# long as there is something: what is searched, hashed and sealed right after it was read is still
# in the processor's cache. The connection gets its next request when the last byte of the body was
# taken.


#: Bytes that are left of a body, and bytes that came at once, from which on this way pays.
_LONG: Final = 1 << 20
_FAST: Final = 64 * 1024
#: Bytes of the buffer.
_BUFFER: Final = 1 << 20
#: Bytes after which a thread lets other files come first.
_TURN: Final = 8 << 20
#: Seconds for which more is waited for, one after the other, where little has come: going to a
#: thread has a price.
_MOMENTS: Final = (0.001, 0.002, 0.004, 0.008, 0.016)

_INT: Final = struct.Struct("i")

#: What makes of the bytes that were read those that are wanted.
PieceFilter = Callable[[memoryview], bytes | memoryview]


class Straight:
    """The rest of a body. Its connection reads nothing until ``close``."""

    def __init__(
        self,
        connection: VaultConnection,
        transport: asyncio.Transport,
        content: StreamReader,
        left: int,
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
        """Return when there is something to read, or the caller has gone.

        Raises what ends the request from elsewhere.
        """
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

    def pieces(self, wanted: PieceFilter) -> Iterator[bytes | memoryview]:
        """What is wanted of what has come, for a thread; a view is good until the next one is asked
        for.

        Raises ``VaultError``: BAD_REQUEST when the caller has gone; what ``wanted`` raises.
        """
        turn = _TURN
        self._dry = False
        while self.left and turn > 0 and not self._dry:
            if size := self._read():
                turn -= size
                yield wanted(self._buffer[:size])

    def close(self) -> None:
        """Let the connection read again. What is left of the body is forgotten as it comes.

        Idempotent; not while a thread reads.
        """
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        if self._connection.transport is None:
            return
        if self.left:
            self._transport.set_protocol(
                _Rest(self._connection, self._transport, self._content, self.left)
            )
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
        size: int = _INT.unpack(fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(_INT.size)))[
            0
        ]
        return size


class _Rest(asyncio.BufferedProtocol):
    """Forgets what is left of a body that nobody wants, then makes way for the connection's own
    protocol.
    """

    def __init__(
        self,
        connection: VaultConnection,
        transport: asyncio.Transport,
        content: StreamReader,
        left: int,
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
    """The straight way for the rest of a body of which so many bytes came at once, and so many were
    taken.

    ``None`` where it does not pay, where something that came was not taken yet, over TLS, and where
    no descriptor is left.
    """
    connection, content = request.protocol, request.content
    if (
        came < _FAST
        or request.content_length is None
        or not isinstance(connection, VaultConnection)
    ):
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


_T = TypeVar("_T")

#: Bytes that the head of the part may have.
_HEAD: Final = 16 * 1024
#: Seconds that an upload may be silent.
UPLOAD_IDLE: Final = 60.0

_BOUNDARY: Final = re.compile(
    r";[ \t]*boundary=(?:\"([^\"]{1,70})\"|([^\s;\",]{1,70}))[ \t]*(?:;|$)", re.IGNORECASE
)
_NAME: Final = re.compile(r";[ \t]*name=(?:\"([^\"]*)\"|([^\s;\"]+))", re.IGNORECASE)
_DASHES: Final = b"--"
_LINE: Final = b"\r\n"
_AS_IT_IS: Final = ("", "7bit", "8bit", "binary", "identity")


class FilePart:
    """The part ``file`` of a request: ``begin``, then ``content`` to its end."""

    def __init__(self, request: web.Request) -> None:
        found = _BOUNDARY.search(request.headers.get("Content-Type", ""))
        if found is None:
            raise misunderstood("Content-Type", "Names no boundary of 1 to 70 characters.")
        self.mime_type = UNKNOWN_TYPE
        self.disposition = ""  #: what the head of the part says of it (RFC 7578, section 4.2)
        self._between = _LINE + _DASHES + (found[1] or found[2]).encode("ascii", "surrogateescape")
        self._request = request
        self._held = bytearray()
        self._taken = 0  #: bytes of the body that were taken from the connection
        self._straight: Straight | None = None

    async def begin(self) -> None:
        """Read up to the content.

        Raises ``VaultError``: INVALID_FILE for a body of another shape, and as ``_more``.
        """
        head = self._between[2:]
        while len(self._held) < len(head) + 2:
            await self._more_or_refuse()
        if self._held.startswith(_LINE):
            del self._held[:2]
        if not self._held.startswith(head):
            raise misunderstood("file", "The body does not begin with its boundary.")
        while (end := self._held.find(b"\r\n\r\n", 0, _HEAD)) < 0:
            if len(self._held) >= _HEAD:
                raise misunderstood("file", f"The head of the part is longer than {_HEAD} bytes.")
            await self._more_or_refuse()
        first, *lines = bytes(self._held[:end]).split(_LINE)
        del self._held[: end + 2]  # the line end before the next boundary may be that of the head
        if first[len(head) :].strip(b" \t"):
            raise misunderstood("file", "The body has no part.")
        self._read_head(lines)
        while len(self._held) < len(self._between) and await self._more():
            pass
        # a part without content may end with its head (RFC 2046, page 22)
        if not self._held.startswith(self._between):
            del self._held[:2]

    def _read_head(self, lines: list[bytes]) -> None:
        fields: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.decode("utf-8", "replace").partition(":")
            if not colon:
                raise misunderstood("file", "The head of the part has a line that is no field.")
            fields[name.strip().lower()] = value.strip()
        self.disposition = disposition = fields.get("content-disposition", "")
        named = _NAME.search(disposition)
        if (
            not disposition.lower().startswith("form-data")
            or named is None
            or (named[1] or named[2]) != "file"
        ):
            raise misunderstood(
                "file", "The part of the body has to be form-data with the name file."
            )
        for name in ("content-transfer-encoding", "content-encoding"):
            if fields.get(name, "").lower() not in _AS_IT_IS:
                raise misunderstood(
                    "file", "The file has to be sent as it is, without a coding of the part."
                )
        self.mime_type = fields.get("content-type") or UNKNOWN_TYPE
        if (fault := fault_of_mime_type(self.mime_type)) is not None:
            raise misunderstood("file", f"The type of the part {fault}")

    async def content(
        self, *, threaded: bool = False
    ) -> AsyncIterator[bytes | Iterator[bytes | memoryview]]:
        """The content piece by piece; ends after the end of the whole body was seen to be in order.

        Where ``threaded``, a piece may be an iterator for a thread to go through, each of whose
        views is good until the next is asked for; it was gone through when the next piece is asked
        for.
        """
        scan = Scan(self._between)
        piece, self._held = bytes(self._held), bytearray()
        while True:
            if threaded:
                self._straight = straight_of(self._request, len(piece), self._taken)
            if ready := scan.content(piece):
                yield bytes(ready)
            if self._straight is not None:
                break
            piece = await self._next()
            if not piece:
                break
        straight = self._straight
        while straight is not None and straight.left:
            await _patient(straight.ready())
            yield straight.pieces(scan.content)
        scan.finish()

    def close(self) -> None:
        """Give the connection back, when nobody goes through a piece.

        What was not read is forgotten.
        """
        if self._straight is not None:
            self._straight.close()

    async def _more_or_refuse(self) -> None:
        if not await self._more():
            raise broken_off()

    async def _more(self) -> bool:
        """Hold more of the body; ``False`` at its end. Raises as ``_next``."""
        piece = await self._next()
        self._held += piece
        return bool(piece)

    async def _next(self) -> bytes:
        """More of the body; nothing at its end.

        Raises ``VaultError``: REQUEST_TIMEOUT, BAD_REQUEST.
        """
        piece = await _patient(self._request.content.readany())
        self._taken += len(piece)
        return piece


async def _patient(coming: Awaitable[_T]) -> _T:
    """What comes from the caller in time."""
    try:
        async with asyncio.timeout(UPLOAD_IDLE):
            return await coming
    except TimeoutError:
        raise VaultError(
            Code.REQUEST_TIMEOUT, f"The upload was silent for {UPLOAD_IDLE:.0f} seconds."
        ) from None
    except (web.RequestPayloadError, OSError):
        raise cut_short() from None
