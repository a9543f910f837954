"""How service and worker talk over their pipes: JSON documents, each with its length before it (4 bytes, big-endian).

The service asks for one call; the worker asks its handle's questions, each answered before the next; its last frame is
the outcome::

    service  {"target": "package.module:name", "arguments": …}
    worker   {"ask": "find", "with": {…}}       service  {"answer": …} or {"refused": {…}}
    worker   {"result": …} or {"failed": "ValueError", "where": "file:line"} or {"limit": "memory"}
"""

from decimal import Decimal, InvalidOperation
from typing import Any, BinaryIO, Final

import msgspec

#: Bytes of the length before each document.
PREFIX: Final = 4

#: No document is longer than so many bytes; the largest page of records fits.
LONGEST: Final = 64 * 1024 * 1024

_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


class BrokenFrameError(Exception):
    """What came is not a frame: the other side ended in the middle, or is not of our kind."""


class NotJsonError(Exception):
    """A document that cannot be spelled in JSON, or is too long."""


def encode(document: Any) -> bytes:
    """The frame of a document, decimals as exact numbers. ``NotJsonError`` when there is none."""
    try:
        text = _encode(document)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise NotJsonError from error
    if len(text) > LONGEST:
        raise NotJsonError
    return len(text).to_bytes(PREFIX, "big") + text


def decode(text: bytes) -> Any:
    """The document of a frame without its prefix; numbers with a point are ``Decimal``."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, InvalidOperation):
        raise BrokenFrameError from None


def size_of(prefix: bytes) -> int:
    """How many bytes follow; ``BrokenFrameError`` where that is beyond ``LONGEST``."""
    size = int.from_bytes(prefix, "big")
    if len(prefix) != PREFIX or size > LONGEST:
        raise BrokenFrameError
    return size


def read(pipe: BinaryIO) -> Any:
    """The next document of a pipe that blocks; ``BrokenFrameError`` at its end."""
    size = size_of(pipe.read(PREFIX))
    text = pipe.read(size)
    if len(text) < size:
        raise BrokenFrameError
    return decode(text)


def write(pipe: BinaryIO, document: Any) -> None:
    """Write one document to a pipe that blocks; raises as ``encode``."""
    pipe.write(encode(document))
    pipe.flush()
