"""Content codings: undone so that a body can be read, done again in one that the caller accepts
(RFC 9110, 8.4).

Never inflates further than allowed, and accepts nothing but whole bodies: a cut or continued stream
is unreadable.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import brotli
from backports import zstd

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders

#: Codings applied to each other that are still undone.
MOST_CODINGS = 3

#: Up to this size a body may inflate at any ratio: small repetitive answers compress very well.
_HARMLESS = 1024 * 1024

#: Window that every receiver of zstd has to support (RFC 9659): larger ones are refused.
_ZSTD: Mapping[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
_CHUNK = 256 * 1024

#: Members that one body may consist of; each copies the bytes after it.
_PARTS = 64

IDENTITY = "identity"


class _Broken(Exception):
    """The stream is damaged, truncated, or has data after its end."""


class _TooLong(Exception):
    """The stream holds more than is allowed."""


class Coding(NamedTuple):
    """A content coding: ``inflate(body, most)`` and ``deflate(body)``."""

    inflate: Callable[[bytes, int], bytes]
    deflate: Callable[[bytes], bytes]


def inflate(
    body: bytes, content_encoding: bytes | None, limit: int, ratio: int = 200
) -> tuple[bytes, tuple[str, ...]]:
    """The body without its content codings, and their names in the order they were applied.

    ``limit`` bounds the inflated size in bytes, ``ratio`` the growth of a body beyond a mebibyte.
    Raises ``VaultError``: UNREADABLE_BODY (unknown coding, too many, damaged stream), TOO_LARGE.
    """
    if content_encoding is None:
        return body, ()
    names = _applied(content_encoding)
    if body:
        most = min(limit, max(_HARMLESS, ratio * len(body)))
        for name in reversed(names):
            body = _undo(body, name, most)
    return body, names


def beginning(body: bytes, content_encoding: bytes, most: int) -> bytes:
    """Decode at most so many bytes of a body, perhaps truncated; empty if unreadable."""
    try:
        for name in reversed(_applied(content_encoding)):
            body = _beginning(body, name, most)
    except (VaultError, _Broken, zlib.error, brotli.error):
        return b""
    return body


def _beginning(body: bytes, name: str, most: int) -> bytes:
    if name == "br":
        return bytes(brotli.Decompressor().process(body, output_buffer_limit=most))[:most]
    if name == "zstd":
        return _zstd_frame(body, most)[0]
    window = 16 + zlib.MAX_WBITS if name == "gzip" else _window(body)
    return zlib.decompressobj(window).decompress(body, most)


def refuse_unknown(content_encoding: bytes | None) -> None:
    """Raise ``VaultError`` (UNREADABLE_BODY) for codings that no body could be read in."""
    if content_encoding is not None:
        _applied(content_encoding)


def deflate(body: bytes, coding: str) -> bytes:
    """The body in a content coding of ``CODINGS``, or as it is for ``identity``."""
    return body if coding == IDENTITY else CODINGS[coding].deflate(body)


def acceptable(accept_encoding: bytes | None, preferred: Sequence[str]) -> str:
    """The content coding to answer in: of ``preferred``, best first, the one that the caller likes
    most.

    ``identity`` when the caller names none of them, or likes it better (RFC 9110, 12.5.3).
    """
    liked = weights(accept_encoding or b"")
    anything = liked.get("*", 0.0)
    best, best_weight = IDENTITY, liked.get(IDENTITY, 0.0)
    for name in preferred:
        weight = liked.get(name, anything)
        if weight > best_weight or (best == IDENTITY and weight == best_weight > 0):
            best, best_weight = name, weight
    return best


def field(headers: RawHeaders, name: bytes) -> bytes | None:
    """All fields of that lower-case name as one list, or ``None`` (RFC 9110, 5.3)."""
    size = len(name)
    joined: bytes | None = None
    for key, value in headers:
        if len(key) == size and key.lower() == name:
            joined = value if joined is None else b"%b, %b" % (joined, value)
    return joined


def _applied(content_encoding: bytes) -> tuple[str, ...]:
    parts = (part.strip().lower().decode("latin-1") for part in content_encoding.split(b","))
    names = tuple(_ALIASES.get(part, part) for part in parts if part and part != IDENTITY)
    if len(names) > MOST_CODINGS:
        raise VaultError(
            Code.UNREADABLE_BODY,
            f"The body has more than {MOST_CODINGS} content codings: send it with one.",
        )
    if any(name not in CODINGS for name in names):
        raise VaultError(
            Code.UNREADABLE_BODY,
            f"The content coding is unknown: send {', '.join(CODINGS)} or none.",
        )
    return names


def _undo(body: bytes, name: str, most: int) -> bytes:
    try:
        return CODINGS[name].inflate(body, most)
    except _TooLong:
        fault = VaultError(
            Code.TOO_LARGE,
            f"The {name} body inflates too far, beyond {most} bytes or {_PARTS} parts: send "
            "less, or raise limits.inflated.",
        )
    except (_Broken, zlib.error, brotli.error):
        fault = VaultError(Code.UNREADABLE_BODY, f"The body is not one whole {name} stream.")
    raise fault


def weights(accepted: bytes) -> dict[str, float]:
    """Weight by coding, or whatever else Accept lists; a malformed item counts as not named."""
    by_coding: dict[str, float] = {}
    for item in accepted.decode("latin-1").lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            key, _, text = parameter.partition("=")
            if key.strip() == "q":
                weight = _weight(text.strip())
        if name:
            by_coding[_ALIASES.get(name, name)] = weight
    return by_coding


def _weight(text: str) -> float:
    """A weight from 0 to 1 (RFC 9110, 12.4.2)."""
    whole, _, digits = text.partition(".")
    if (
        whole in ("0", "1")
        and len(digits) <= 3
        and (not digits or (digits.isascii() and digits.isdigit()))
    ):
        return min(1.0, float(f"{whole}.{digits or 0}"))
    return 0.0


# ---------------------------------------------------------------------- one coding each


def _inflate_zlib(body: bytes, most: int, window: int) -> tuple[bytes, bytes]:
    """Return a decompressed stream, and the bytes after it."""
    stream = zlib.decompressobj(window)
    out = stream.decompress(body, most + 1)
    if len(out) > most:
        raise _TooLong
    if not stream.eof:
        raise _Broken
    return out, stream.unused_data


def _inflate_parts(
    inflate_one: Callable[[bytes, int], tuple[bytes, bytes]], body: bytes, most: int
) -> bytes:
    """Decompress one or several members or frames, as RFC 1952 and RFC 8878 allow."""
    pieces: list[bytes] = []
    while body:
        if len(pieces) == _PARTS:
            raise _TooLong
        piece, body = inflate_one(body, most)
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _inflate_deflate(body: bytes, most: int) -> bytes:
    """The zlib format as the standard has it, or the bare stream that some servers send instead."""
    out, rest = _inflate_zlib(body, most, _window(body))
    if rest:
        raise _Broken
    return out


def _window(body: bytes) -> int:
    """The window of a ``deflate`` body, by which the reader knows its format."""
    wrapped = len(body) > 1 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS


def _inflate_brotli(body: bytes, most: int) -> bytes:
    stream = brotli.Decompressor()
    pieces: list[bytes] = []
    size = 0
    while not stream.is_finished():
        piece = stream.process(body, output_buffer_limit=_CHUNK)
        if not piece and not stream.is_finished():
            raise _Broken
        body = b""
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise _TooLong
    return b"".join(pieces)


def _inflate_frame(body: bytes, most: int) -> tuple[bytes, bytes]:
    """Return a decompressed frame, and the bytes after it."""
    piece, whole, rest = _zstd_frame(body, most + 1)
    if len(piece) > most:
        raise _TooLong
    if not whole:
        raise _Broken
    return piece, rest


def _zstd_frame(body: bytes, most: int) -> tuple[bytes, bool, bytes]:
    """Return at most so many bytes of a frame, whether that is all of it, and the bytes after it.

    Raises ``_Broken``.
    """
    frame = zstd.ZstdDecompressor(options=_ZSTD)
    try:
        return frame.decompress(body, most), frame.eof, frame.unused_data
    except zstd.ZstdError:
        raise _Broken from None


def _deflate_gzip(body: bytes) -> bytes:
    stream = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    return stream.compress(body) + stream.flush()


_inflate_member = partial(_inflate_zlib, window=16 + zlib.MAX_WBITS)
#: By the names of the IANA registry of content codings.
CODINGS: Mapping[str, Coding] = {
    "gzip": Coding(partial(_inflate_parts, _inflate_member), _deflate_gzip),
    "deflate": Coding(_inflate_deflate, zlib.compress),
    "br": Coding(_inflate_brotli, partial(brotli.compress, quality=5)),
    "zstd": Coding(partial(_inflate_parts, _inflate_frame), zstd.compress),
}

_ALIASES = {"x-gzip": "gzip"}
