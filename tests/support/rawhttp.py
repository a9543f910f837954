"""HTTP/1 messages as bytes, read from a stream without interpreting more than their framing.

Both ends of a proxy test use it: ``rawserver`` reads requests, ``rawclient`` reads answers. Nothing
is decoded, folded, sorted or forgiven: what a test compares is what went over the wire.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable
from dataclasses import dataclass, field

Fields = list[tuple[bytes, bytes]]


@dataclass
class Message:
    """One message: its bytes, and the same taken apart."""

    start: bytes  #: request line or status line, without its line end
    fields: Fields
    head: bytes  #: all bytes of the head, the empty line included
    body: bytes = b""  #: content, chunk framing removed
    framed: bytes = b""  #: the bytes of the body as they came, chunk framing included
    chunks: list[bytes] = field(default_factory=list)
    trailers: Fields = field(default_factory=list)
    closed: bool = False  #: the end of the connection ended the body

    @property
    def status(self) -> int:
        return int(self.start.split(b" ")[1])

    @property
    def raw(self) -> bytes:
        return self.head + self.framed

    def all(self, name: str) -> list[bytes]:
        """Every value of that field, in order; the name in any spelling."""
        return [value for key, value in self.fields if key.lower() == name.lower().encode()]

    def one(self, name: str) -> bytes | None:
        values = self.all(name)
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None


class Wire:
    """A connection with helpers to read messages and to end it in every way there is."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.received = bytearray()  #: every byte that was read

    async def send(self, data: bytes, piece: int = 0, delay: float = 0.0) -> None:
        """Send bytes; with ``piece``, so many at a time with ``delay`` seconds after each."""
        for at in range(0, len(data), piece or len(data) or 1):
            self.writer.write(data[at : at + piece] if piece else data)
            await self.writer.drain()
            if delay:
                await asyncio.sleep(delay)

    async def head(self) -> Message:
        """Read one head. Raises ``asyncio.IncompleteReadError`` if the peer ends before."""
        block = await self._keep(self.reader.readuntil(b"\r\n\r\n"))
        start, *lines = block[:-4].split(b"\r\n")
        return Message(start, [fields_of(line) for line in lines], block)

    async def body(self, message: Message, *, answer_to: str | None = None) -> Message:
        """Read the body that belongs to a head.

        ``answer_to``: the message answers a request of that method.
        """
        codings = message.all("transfer-encoding")
        length = message.one("content-length")
        if answer_to is not None and (
            answer_to == "HEAD" or message.status in {204, 304} or message.status < 200
        ):
            return message
        if codings:
            await self._chunked(message)
        elif length is not None:
            message.body = message.framed = await self._keep(self.reader.readexactly(int(length)))
        elif answer_to is not None:
            message.body = message.framed = await self._keep(self.reader.read())
            message.closed = True
        return message

    async def _chunked(self, message: Message) -> None:
        framed = bytearray()
        while True:
            line = await self._keep(self.reader.readuntil(b"\r\n"))
            framed += line
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            data = await self._keep(self.reader.readexactly(size + 2))
            framed += data
            message.chunks.append(data[:-2])
        while True:
            line = await self._keep(self.reader.readuntil(b"\r\n"))
            framed += line
            if line == b"\r\n":
                break
            message.trailers.append(fields_of(line[:-2]))
        message.framed = bytes(framed)
        message.body = b"".join(message.chunks)

    async def _keep(self, reading: Awaitable[bytes]) -> bytes:
        data = await reading
        self.received += data
        return data

    async def some(self, size: int = 65536) -> bytes:
        """The next bytes there are; ``b""`` at the end of the connection."""
        return await self._keep(self.reader.read(size))

    async def exactly(self, size: int) -> bytes:
        return await self._keep(self.reader.readexactly(size))

    async def until_close(self) -> bytes:
        """Everything up to the end of the connection; a reset counts as an end."""
        pieces = []
        try:
            while piece := await self.some():
                pieces.append(piece)
        except ConnectionError:
            pass
        return b"".join(pieces)

    async def ended(self) -> bool:
        """Wait for the end of the connection: true for a reset, false for an orderly end."""
        try:
            while await self.some():
                pass
        except ConnectionError:
            return True
        return False

    def half_close(self) -> None:
        """Send nothing more, read on."""
        self.writer.write_eof()

    def close(self) -> None:
        """End in order."""
        self.writer.close()

    def reset(self) -> None:
        """End with a reset."""
        tcp = self.writer.get_extra_info("socket")
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def fields_of(line: bytes) -> tuple[bytes, bytes]:
    """Name and value of a field line; only white space around the value is dropped."""
    name, _, value = line.partition(b":")
    return name, value.strip(b" \t")
