"""Handle of a resident function: the operations of its caller, and nothing else.

::

    def oldest(handle, arguments):
        options = {"sort": [{"age": "desc"}], "limit": 1}
        answer = handle.find("contact", {"city": arguments["city"]}, options)
        return answer["data"][0]["age"] if answer["data"] else None

Each method is one request of the vault's interface in the caller's name; input and answer are
described there. A refused request raises ``RefusedError``, which the function may catch. Below are
the frames in which its requests go to the service.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, BinaryIO, Final

import msgspec

Json = Any


class RefusedError(Exception):
    """The service refused a request: ``status`` as over HTTP, ``code`` names the reason."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code


class Handle:
    """Asks the service and waits for its answer. ``ask``: (operation, input) → the answer."""

    def __init__(self, ask: Callable[[str, dict[str, Json]], Json]) -> None:
        self._ask = ask

    def find(self, schema: str, filter: Json = None, options: Json = None) -> Json:  # noqa: A002 - the name in the interface
        """A page of records: ``{"data": [...], "meta": {...}}``."""
        return self._ask(
            "find", {"schema": schema, "filter": filter or {}, "options": options or {}}
        )

    def get(self, schema: str, key: str) -> Json:
        """The record of that key, or ``None``."""
        data = self.find(schema, {"record_key": key}, {"limit": 1})["data"]
        return data[0] if data else None

    def aggregate(self, schema: str, request: Json) -> Json:
        """Groups and metrics: ``{"data": [...], "meta": {...}}``."""
        return self._ask("aggregate", {"schema": schema, "request": request})

    def create(self, schema: str, records: Sequence[Json]) -> Json:
        """Create records, all of them or none; as many as a batch may have."""
        return self._ask("create", {"schema": schema, "records": list(records)})

    def update(self, schema: str, records: Sequence[Json]) -> Json:
        """Update records by their primary key, all of them or none."""
        return self._ask("update", {"schema": schema, "records": list(records)})

    def delete(self, schema: str, key: str) -> None:
        """Delete one record."""
        self._ask("delete", {"schema": schema, "key": key})


# How service and worker talk over their pipes: JSON documents, each with its length before it (4
# bytes, big-endian).
#
# The service says what the worker may, and the worker which layers keep it from more. Then the
# service asks for one call; the worker asks its handle's questions, each answered before the next;
# its last frame is the outcome::
#
#     service  {"memory": bytes, "network": false, "user": [uid, gid] or null, "folder": "/tmp/…"}
#     worker   {"layers": {"landlock": "", "seccomp": "why not"}, "readable": ["/usr/lib", …]}
#     service  {"target": "package.module:name", "arguments": …}
#     worker   {"ask": "find", "with": {…}}       service  {"answer": …} or {"refused": {…}}
#     worker   {"result": …} or {"failed": "ValueError", "where": "file:line"} or {"limit":
#     "memory"}

#: Bytes of the length before each document.
FRAME_PREFIX: Final = 4

#: Length of the longest document; the largest page of records fits.
LONGEST_FRAME: Final = 64 * 1024 * 1024

_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


class BrokenFrameError(Exception):
    """Input that is no frame: the other side ended in the middle, or speaks another protocol."""


class NotJsonError(Exception):
    """A document that cannot be spelled in JSON, or is too long."""


def encode_frame(document: Any) -> bytes:
    """The frame of a document, decimals as exact numbers. ``NotJsonError`` when there is none."""
    try:
        text = _encode(document)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise NotJsonError from error
    if len(text) > LONGEST_FRAME:
        raise NotJsonError
    return len(text).to_bytes(FRAME_PREFIX, "big") + text


def decode_frame(text: bytes) -> Any:
    """The document of a frame without its prefix; numbers with a point are ``Decimal``."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, InvalidOperation):
        raise BrokenFrameError from None


def size_of(prefix: bytes) -> int:
    """Return the length of the frame; ``BrokenFrameError`` if it is beyond ``LONGEST_FRAME``."""
    size = int.from_bytes(prefix, "big")
    if len(prefix) != FRAME_PREFIX or size > LONGEST_FRAME:
        raise BrokenFrameError
    return size


def read_frame(pipe: BinaryIO) -> Any:
    """The next document of a pipe that blocks; ``BrokenFrameError`` at its end."""
    size = size_of(pipe.read(FRAME_PREFIX))
    text = pipe.read(size)
    if len(text) < size:
        raise BrokenFrameError
    return decode_frame(text)


def write_frame(pipe: BinaryIO, document: Any) -> None:
    """Write one document to a pipe that blocks; raises as ``encode``."""
    pipe.write(encode_frame(document))
    pipe.flush()
