"""The one part of an upload, read as it arrives (RFC 7578, RFC 2046 section 5.1), and its name.

An upload has exactly one part, named ``file``. Its boundaries are found with no more than a piece
of content in memory. Any other body is refused in words, and never interpreted as a lenient reader
would.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from aiohttp import web

from proxy.errors import Code, Detail, VaultError
from proxy.model.record import UNKNOWN_TYPE, fault_of_filename, fault_of_mime_type

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
        boundary = _BOUNDARY.search(request.headers.get("Content-Type", ""))
        if boundary is None:
            raise misunderstood("Content-Type", "Names no boundary of 1 to 70 characters.")
        self.mime_type = UNKNOWN_TYPE
        self.disposition = ""  #: headers of the part (RFC 7578, section 4.2)
        self._between = (
            _LINE + _DASHES + (boundary[1] or boundary[2]).encode("ascii", "surrogateescape")
        )
        self._request = request
        self._buffer = bytearray()

    async def begin(self) -> None:
        """Read up to the content.

        Raises ``VaultError``: INVALID_FILE for a body of another shape, and as ``_more``.
        """
        head = self._between[2:]
        while len(self._buffer) < len(head) + 2:
            await self._more_or_refuse()
        if self._buffer.startswith(_LINE):
            del self._buffer[:2]
        if not self._buffer.startswith(head):
            raise misunderstood("file", "The body does not begin with its boundary.")
        while (end := self._buffer.find(b"\r\n\r\n", 0, _HEAD)) < 0:
            if len(self._buffer) >= _HEAD:
                raise misunderstood("file", f"The head of the part is longer than {_HEAD} bytes.")
            await self._more_or_refuse()
        first, *lines = bytes(self._buffer[:end]).split(_LINE)
        del self._buffer[: end + 2]  # the line end before the next boundary may be that of the head
        if first[len(head) :].strip(b" \t"):
            raise misunderstood("file", "The body has no part.")
        self._read_head(lines)
        while len(self._buffer) < len(self._between) and await self._more():
            pass
        # a part without content may end with its head (RFC 2046, page 22)
        if not self._buffer.startswith(self._between):
            del self._buffer[:2]

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

    async def content(self) -> AsyncIterator[bytes]:
        """The content piece by piece, checked to the end of the whole body."""
        scan = Scan(self._between)
        piece, self._buffer = bytes(self._buffer) or await self._next(), bytearray()
        while piece:
            if ready := scan.content(piece):
                yield ready
            piece = await self._next()
        scan.finish()

    async def _more_or_refuse(self) -> None:
        if not await self._more():
            raise broken_off()

    async def _more(self) -> bool:
        """Hold more of the body; ``False`` at its end. Raises as ``_next``."""
        piece = await self._next()
        self._buffer += piece
        return bool(piece)

    async def _next(self) -> bytes:
        """More of the body; nothing at its end.

        Raises ``VaultError``: REQUEST_TIMEOUT, BAD_REQUEST.
        """
        try:
            async with asyncio.timeout(UPLOAD_IDLE):
                return await self._request.content.readany()
        except TimeoutError:
            raise VaultError(
                Code.REQUEST_TIMEOUT, f"The upload was silent for {UPLOAD_IDLE:.0f} seconds."
            ) from None
        except (web.RequestPayloadError, OSError):
            raise cut_short() from None


#: Bytes that may follow the last boundary; they mean nothing (RFC 2046, section 5.1.1).
_EPILOGUE: Final = 1024

_RETURN: Final = b"\r"


class Scan:
    """Takes a body from the first byte of the content on.

    ``between`` is the line end and the boundary that end the content.
    """

    __slots__ = ("_after", "_between", "_buffer")

    def __init__(self, between: bytes) -> None:
        self._between = between
        self._buffer = b""  #: the last bytes so far, which may begin a boundary
        self._after: bytearray | None = None  #: bytes after the boundary, once it has arrived

    def content(self, piece: bytes) -> bytes:
        """The bytes that are certainly content, as of this piece.

        Raises ``VaultError`` (INVALID_FILE).
        """
        if self._after is not None:
            self._follow(self._after, piece)
            return b""
        between = self._between
        if self._buffer:
            piece, self._buffer = self._buffer + piece, b""
        end = piece.find(between)
        if end >= 0:
            self._after = bytearray()
            self._follow(self._after, piece[end + len(between) :])
            return piece[:end]
        self._buffer = _begun(piece[1 - len(between) :], between)
        return piece[: len(piece) - len(self._buffer)]

    def finish(self) -> None:
        """The body is complete.

        Raises ``VaultError`` (INVALID_FILE) where it ends before its last boundary does.
        """
        if self._after is None or len(self._after) < len(_DASHES):
            raise broken_off()

    @staticmethod
    def _follow(after: bytearray, piece: bytes) -> None:
        after += piece[: _EPILOGUE + 1]
        if len(after) >= len(_DASHES) and not after.startswith(_DASHES):
            raise misunderstood("file", "The body has to have one part, and it has more.")
        if len(after) > _EPILOGUE:
            raise misunderstood("file", "Something follows the end of the body.")


def _begun(end: bytes, between: bytes) -> bytes:
    """The end of a piece that may be the beginning of a boundary."""
    at = end.rfind(_RETURN)  # a boundary has no other in it
    return end[at:] if at >= 0 and between.startswith(end[at:]) else b""


def broken_off() -> VaultError:
    """The error of a body that ends too early."""
    return misunderstood("file", "The body ends before its last boundary.")


def misunderstood(source: str, text: str) -> VaultError:
    """The error of a body of another shape."""
    return VaultError(
        Code.INVALID_FILE,
        "The upload is not understood; nothing was stored.",
        (Detail(source, text),),
    )


def cut_short() -> VaultError:
    """The error of a connection that ends before its body does."""
    return VaultError(Code.BAD_REQUEST, "The body ended before it was complete.")


# Name of an uploaded file: from the field ``x-filename`` of the request, or from the head of its
# part.

HEADER: Final = "x-filename"

_ESCAPED: Final = re.compile(r"%[0-9A-Fa-f]{2}", re.ASCII)
# RFC 8187, section 3.2
_EXTENDED: Final = re.compile(r"utf-8'[A-Za-z0-9-]*'", re.ASCII | re.IGNORECASE)
_ANY_CASE: Final = re.IGNORECASE
_IN_PART: Final = re.compile(r';[ \t]*filename=(?:"([^"]*)"|([^\s;"]+))', _ANY_CASE)
_EXTENDED_IN_PART: Final = re.compile(r";[ \t]*filename\*=([^\s;]+)", _ANY_CASE)

#: What browsers and common libraries escape in the name of a part, and nothing else (HTML,
#: "multipart/form-data encoding algorithm").
_OF_PARTS: Final = {"%22": '"', "%0A": "\n", "%0D": "\r"}
_FEW: Final = re.compile("|".join(_OF_PARTS))


def of_header(values: Sequence[str]) -> str:
    """The name in the header field: plain, percent-encoded, or as RFC 8187 writes it; UTF-8.

    Raises ``VaultError`` (INVALID_FILE), as ``of_part`` does.
    """
    if len(values) != 1:
        raise _unusable(HEADER, "Has to be there, once.")
    text = values[0].strip()
    extended = _EXTENDED.match(text)
    if extended is not None or _ESCAPED.search(text):
        return _checked(_decoded(text[extended.end() if extended else 0 :], HEADER), HEADER)
    return _checked(text, HEADER)


def of_part(disposition: str) -> str:
    """The name in a part's ``Content-Disposition``: ``filename*`` (RFC 8187), or ``filename``."""
    if (extended := _EXTENDED_IN_PART.search(disposition)) is not None:
        charset = _EXTENDED.match(extended[1])
        if charset is None:
            raise _unusable("file", "Its filename* has to be UTF-8.")
        return _checked(_decoded(extended[1][charset.end() :], "file"), "file")
    filename = _IN_PART.search(disposition)
    if filename is None:
        raise _unusable(
            "file", "The part names no file: filename is missing in its Content-Disposition."
        )
    return _checked(
        _FEW.sub(lambda escaped: _OF_PARTS[escaped[0]], filename[1] or filename[2] or ""), "file"
    )


def _decoded(text: str, source: str) -> str:
    try:
        return unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode()
    except UnicodeDecodeError:
        raise _unusable(source, "What is percent-encoded has to be UTF-8.") from None


def _checked(name: str, source: str) -> str:
    if (fault := fault_of_filename(name)) is not None:
        raise _unusable(source, f"A file name {fault}")
    return name


def _unusable(source: str, text: str) -> VaultError:
    return VaultError(
        Code.INVALID_FILE, "The upload lacks a file name that can be used.", (Detail(source, text),)
    )
