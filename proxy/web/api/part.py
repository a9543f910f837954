"""The one part of an upload, read as it arrives (RFC 7578, RFC 2046 section 5.1).

An upload has exactly one part, and its name is ``file``. What surrounds its content is found without holding more of it than a
piece, and whatever is not such a body is refused in words, not by what a lenient reader makes of it.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from proxy.errors import Code, Detail, VaultError
from proxy.model.filename import UNKNOWN_TYPE, fault_of_mime_type
from proxy.web.api.seeking import find

#: Bytes that the head of the part may have.
_HEAD: Final = 16 * 1024
#: Bytes that may follow the last boundary; they mean nothing (RFC 2046, section 5.1.1).
_EPILOGUE: Final = 1024
#: Seconds that an upload may be silent.
IDLE: Final = 60.0

_BOUNDARY: Final = re.compile(r";[ \t]*boundary=(?:\"([^\"]{1,70})\"|([^\s;\",]{1,70}))[ \t]*(?:;|$)", re.IGNORECASE)
_NAME: Final = re.compile(r";[ \t]*name=(?:\"([^\"]*)\"|([^\s;\"]+))", re.IGNORECASE)
_BROKEN_OFF: Final = "The body ends before its last boundary."
_DASHES: Final = b"--"
_LINE: Final = b"\r\n"
_AS_IT_IS: Final = ("", "7bit", "8bit", "binary", "identity")


class Part:
    """The part ``file`` of a request: ``begin``, then ``content`` to its end."""

    def __init__(self, request: web.Request) -> None:
        found = _BOUNDARY.search(request.headers.get("Content-Type", ""))
        if found is None:
            raise _fault("Content-Type", "Names no boundary of 1 to 70 characters.")
        self.mime_type = UNKNOWN_TYPE
        self.disposition = ""  #: what the head of the part says of it (RFC 7578, section 4.2)
        self._between = _LINE + _DASHES + (found[1] or found[2]).encode("ascii", "surrogateescape")
        self._request = request
        self._held = bytearray()

    async def begin(self) -> None:
        """Read up to the content. Raises ``VaultError``: INVALID_FILE for a body of another shape, and as ``_more``."""
        head = self._between[2:]
        while len(self._held) < len(head) + 2:
            await self._more_or_refuse()
        if self._held.startswith(_LINE):
            del self._held[:2]
        if not self._held.startswith(head):
            raise _fault("file", "The body does not begin with its boundary.")
        while (end := self._held.find(b"\r\n\r\n", 0, _HEAD)) < 0:
            if len(self._held) >= _HEAD:
                raise _fault("file", f"The head of the part is longer than {_HEAD} bytes.")
            await self._more_or_refuse()
        first, *lines = bytes(self._held[:end]).split(_LINE)
        del self._held[: end + 2]  # the line end before the next boundary may be that of the head
        if first[len(head) :].strip(b" \t"):
            raise _fault("file", "The body has no part.")
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
                raise _fault("file", "The head of the part has a line that is no field.")
            fields[name.strip().lower()] = value.strip()
        self.disposition = disposition = fields.get("content-disposition", "")
        named = _NAME.search(disposition)
        if not disposition.lower().startswith("form-data") or named is None or (named[1] or named[2]) != "file":
            raise _fault("file", "The part of the body has to be form-data with the name file.")
        for name in ("content-transfer-encoding", "content-encoding"):
            if fields.get(name, "").lower() not in _AS_IT_IS:
                raise _fault("file", "The file has to be sent as it is, without a coding of the part.")
        self.mime_type = fields.get("content-type") or UNKNOWN_TYPE
        if (fault := fault_of_mime_type(self.mime_type)) is not None:
            raise _fault("file", f"The type of the part {fault}")

    async def content(self) -> AsyncIterator[bytes]:
        """The content piece by piece; ends after the end of the whole body was seen to be in order."""
        between = self._between
        piece, self._held = bytes(self._held), bytearray()
        while (end := find(between, piece)) < 0:
            ready = len(piece) - _overlap(piece, between)
            if ready:
                yield piece[:ready]
            rest = piece[ready:]
            piece = await self._next()
            if not piece:
                raise _fault("file", _BROKEN_OFF)
            if rest:
                piece = rest + piece
        if end:
            yield piece[:end]
        held = self._held
        held += piece[end + len(between) :]
        while len(held) < 2:
            await self._more_or_refuse()
        if not held.startswith(_DASHES):
            raise _fault("file", "The body has to have one part, and it has more.")
        while len(held) <= _EPILOGUE:
            if not await self._more():
                return
        raise _fault("file", "Something follows the end of the body.")

    async def _more_or_refuse(self) -> None:
        if not await self._more():
            raise _fault("file", _BROKEN_OFF)

    async def _more(self) -> bool:
        """Hold more of the body; ``False`` at its end. Raises as ``_next``."""
        piece = await self._next()
        self._held += piece
        return bool(piece)

    async def _next(self) -> bytes:
        """More of the body; nothing at its end. Raises ``VaultError``: REQUEST_TIMEOUT, BAD_REQUEST."""
        try:
            async with asyncio.timeout(IDLE):
                return await self._request.content.readany()
        except TimeoutError:
            raise VaultError(Code.REQUEST_TIMEOUT, f"The upload was silent for {IDLE:.0f} seconds.") from None
        except (web.RequestPayloadError, OSError):
            raise VaultError(Code.BAD_REQUEST, "The body ended before it was complete.") from None


def _overlap(piece: bytes, between: bytes) -> int:
    """How many bytes at the end of a piece, in which there is no boundary, may be the beginning of one."""
    at = piece.rfind(_LINE[:1], max(0, len(piece) - len(between) + 1))  # a boundary has no other in it
    return len(piece) - at if at >= 0 and between.startswith(piece[at:]) else 0


def _fault(source: str, text: str) -> VaultError:
    return VaultError(Code.INVALID_FILE, "The upload is not understood; nothing was stored.", (Detail(source, text),))
