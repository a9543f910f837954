"""WebSocket frames (RFC 6455): messages out of the bytes of one direction, and back into bytes.

No extension is spoken, so a reserved bit is a fault of its sender. Bodies stay masked until they
are read.
"""

import enum
import os
from collections.abc import Iterator
from typing import Final, NamedTuple


class Opcode(enum.IntEnum):
    """Kinds of frames."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


#: Codes of a close frame (section 7.4.1).
PROTOCOL_FAULT: Final = 1002
NO_SUCH_KIND: Final = 1003
NO_TEXT: Final = 1007
FORBIDDEN: Final = 1008
TOO_BIG: Final = 1009
INTERNAL_FAULT: Final = 1011

_FIN: Final = 0x80
_RESERVED: Final = 0x70
_MASKED: Final = 0x80
_MOST_CONTROL: Final = 125
_MOST_FRAGMENTS: Final = 1000


class ProtocolFault(Exception):  # a fault of the other side, not an error of ours
    """End of a connection: code and reason of the close frame."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class SocketMessage(NamedTuple):
    """A whole message or control frame, its pieces still masked."""

    opcode: Opcode
    pieces: tuple[tuple[bytes, bytes], ...]  #: the mask of each, and its bytes

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return sum([len(body) for _, body in self.pieces])

    def content(self) -> bytes:
        """Its body without masks."""
        return b"".join([_mask(body, mask) for mask, body in self.pieces])


class MessageReader:
    """Cuts the bytes of one direction into messages.

    ``masked``: whether its frames must be masked, as those of clients are. ``most``: bytes of the
    longest message.
    """

    def __init__(self, most: int, *, masked: bool) -> None:
        self._most = most
        self._masked = masked
        self._data = bytearray()
        self._opcode: Opcode | None = None  #: of the message whose frames are still coming
        self._pieces: list[tuple[bytes, bytes]] = []
        self._size = 0  #: bytes of those

    def feed(self, data: bytes) -> Iterator[SocketMessage]:
        """Yield the messages that these bytes complete, in order, each parsed on demand.

        Raises ``ProtocolFault``.
        """
        self._data += data
        while (frame := self._frame()) is not None:
            first, mask, body = frame
            opcode = Opcode(first & 0x0F)
            if opcode >= Opcode.CLOSE:
                yield SocketMessage(opcode, ((mask, body),))
                continue
            if (opcode is Opcode.CONTINUATION) is (self._opcode is None):
                raise ProtocolFault(PROTOCOL_FAULT, "a fragment belongs to no message")
            self._opcode = self._opcode or opcode
            self._pieces.append((mask, body))
            self._size += len(body)
            if first & _FIN:
                message = SocketMessage(self._opcode, tuple(self._pieces))
                self._opcode, self._size = None, 0
                self._pieces.clear()
                yield message
            elif len(self._pieces) > _MOST_FRAGMENTS:
                raise ProtocolFault(TOO_BIG, "the message is in too many fragments")

    def _frame(self) -> tuple[int, bytes, bytes] | None:
        """The first byte of a frame, its mask and its body; ``None`` while it is not whole."""
        data = self._data
        if len(data) < 2:
            return None
        first, length, at = data[0], data[1] & 0x7F, 2
        self._check(first, data[1], length)
        if length > _MOST_CONTROL:
            at = 4 if length == 126 else 10
            if len(data) < at:
                return None
            length = int.from_bytes(data[2:at])
        if self._size + length > self._most:
            raise ProtocolFault(TOO_BIG, "the message is over the limit")
        end = at + 4 * self._masked + length
        if len(data) < end:
            return None
        mask = bytes(data[at : end - length])
        body = bytes(data[end - length : end])
        del data[:end]
        return first, mask, body

    def _check(self, first: int, second: int, length: int) -> None:
        """Raise ``ProtocolFault`` for the first two bytes of a frame that are none."""
        opcode = first & 0x0F
        control = opcode >= Opcode.CLOSE
        if first & _RESERVED or opcode not in Opcode.__members__.values():
            raise ProtocolFault(PROTOCOL_FAULT, "a frame is of an unknown kind, or of an extension")
        if bool(second & _MASKED) is not self._masked:
            raise ProtocolFault(PROTOCOL_FAULT, "a frame is masked where it must not be, or not")
        if control and (length > _MOST_CONTROL or not first & _FIN):
            raise ProtocolFault(PROTOCOL_FAULT, "a control frame is long, or in fragments")


def encode_message(opcode: Opcode, content: bytes, *, masked: bool) -> bytes:
    """Return a frame with that content, masked as those of clients are."""
    size = len(content)
    sign = _MASKED * masked
    if size <= _MOST_CONTROL:
        head = bytes((_FIN | opcode, sign | size))
    elif size < 1 << 16:
        head = bytes((_FIN | opcode, sign | 126)) + size.to_bytes(2)
    else:
        head = bytes((_FIN | opcode, sign | 127)) + size.to_bytes(8)
    if not masked:
        return head + content
    mask = os.urandom(4)
    return head + mask + _mask(content, mask)


def encode_close(code: int, reason: str, *, masked: bool) -> bytes:
    """A close frame."""
    return encode_message(Opcode.CLOSE, code.to_bytes(2) + reason.encode()[:120], masked=masked)


def _mask(body: bytes, mask: bytes) -> bytes:
    """The body under that mask, or without it: the same both ways."""
    if not mask or not body:
        return body
    size = len(body)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(body) ^ int.from_bytes(key)).to_bytes(size)
