"""The one part of an upload, read as it arrives (RFC 7578, RFC 2046 section 5.1).

An upload has exactly one part, and its name is ``file``. What surrounds its content is found without holding more of it than a
piece, and whatever is not such a body is refused in words, not by what a lenient reader makes of it.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Final, TypeVar

from aiohttp import web

from proxy.errors import Code, VaultError
from proxy.model.filename import UNKNOWN_TYPE, fault_of_mime_type
from proxy.web.api.scanning import Scan, broken_off, cut_short, misunderstood
from proxy.web.api.straight import Straight, straight_of

T = TypeVar("T")

#: Bytes that the head of the part may have.
_HEAD: Final = 16 * 1024
#: Seconds that an upload may be silent.
IDLE: Final = 60.0

_BOUNDARY: Final = re.compile(r";[ \t]*boundary=(?:\"([^\"]{1,70})\"|([^\s;\",]{1,70}))[ \t]*(?:;|$)", re.IGNORECASE)
_NAME: Final = re.compile(r";[ \t]*name=(?:\"([^\"]*)\"|([^\s;\"]+))", re.IGNORECASE)
_DASHES: Final = b"--"
_LINE: Final = b"\r\n"
_AS_IT_IS: Final = ("", "7bit", "8bit", "binary", "identity")


class Part:
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
        """Read up to the content. Raises ``VaultError``: INVALID_FILE for a body of another shape, and as ``_more``."""
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
        if not self._held.startswith(self._between):  # a part without content may end with its head (RFC 2046, page 22)
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
        if not disposition.lower().startswith("form-data") or named is None or (named[1] or named[2]) != "file":
            raise misunderstood("file", "The part of the body has to be form-data with the name file.")
        for name in ("content-transfer-encoding", "content-encoding"):
            if fields.get(name, "").lower() not in _AS_IT_IS:
                raise misunderstood("file", "The file has to be sent as it is, without a coding of the part.")
        self.mime_type = fields.get("content-type") or UNKNOWN_TYPE
        if (fault := fault_of_mime_type(self.mime_type)) is not None:
            raise misunderstood("file", f"The type of the part {fault}")

    async def content(self, *, threaded: bool = False) -> AsyncIterator[bytes | Iterator[bytes | memoryview]]:
        """The content piece by piece; ends after the end of the whole body was seen to be in order.

        Where ``threaded``, a piece may be an iterator for a thread to go through, each of whose views is good until the next
        is asked for; it was gone through when the next piece is asked for.
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
        """Give the connection back, when nobody goes through a piece. What was not read is forgotten."""
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
        """More of the body; nothing at its end. Raises ``VaultError``: REQUEST_TIMEOUT, BAD_REQUEST."""
        piece = await _patient(self._request.content.readany())
        self._taken += len(piece)
        return piece


async def _patient(coming: Awaitable[T]) -> T:
    """What comes from the caller in time."""
    try:
        async with asyncio.timeout(IDLE):
            return await coming
    except TimeoutError:
        raise VaultError(Code.REQUEST_TIMEOUT, f"The upload was silent for {IDLE:.0f} seconds.") from None
    except (web.RequestPayloadError, OSError):
        raise cut_short() from None
