"""Bodies of requests: what they may be, how much is read of them, and their JSON.

Numbers are never binary fractions: one with a point or an exponent is a ``Decimal``. A document in which an object has a member
twice is refused (RFC 8259, section 4: what it means is unpredictable), and so is one that no reader could take apart safely.
"""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
from aiohttp import web

from proxy.errors import Code, VaultError
from proxy.web.api.expecting import proceed

_decode = msgspec.json.Decoder(float_hook=Decimal).decode

#: What a document without white space behind any string cannot hold; then each name ends in ``":``.
_SPACED: Final = (b'" ', b'"\n', b'"\r', b'"\t')

#: Bytes of a body that are parsed within the event loop: a few milliseconds whatever they hold.
_AT_ONCE: Final = 128 * 1024

#: Parses larger ones, one after the other: several threads at once would slow the event loop, and not be faster.
_reader: Final = ThreadPoolExecutor(1, "bodies")

#: Levels of arrays and objects within one another; what the vault keeps may have fewer.
DEPTH: Final = 64


def check_media_type(request: web.Request, wanted: str) -> None:
    """Raise ``VaultError`` (UNSUPPORTED_MEDIA_TYPE) unless the body is said to be of that type, in UTF-8, and not compressed."""
    headers = request.headers
    if "Content-Encoding" in headers and headers["Content-Encoding"].strip().lower() != "identity":
        raise _media_type("Send the body as it is: no content coding is understood here.")
    kind, _, parameters = headers.get("Content-Type", "").partition(";")
    if kind.strip().lower() != wanted:
        raise _media_type(f"This operation takes {wanted}; say so in Content-Type.")
    if parameters and wanted != "multipart/form-data":
        _check_charset(parameters)


def _check_charset(parameters: str) -> None:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in ("utf-8", "utf8"):
            raise _media_type("The body has to be UTF-8.")


def _media_type(text: str) -> VaultError:
    return VaultError(Code.UNSUPPORTED_MEDIA_TYPE, text)


async def read(request: web.Request, limit: int) -> bytes:
    """The whole body. Raises ``VaultError`` (TOO_LARGE) as soon as it is known to be larger than ``limit`` bytes."""
    if request.content_length is not None and request.content_length > limit:
        raise too_large(limit)
    if not request.can_read_body:
        return b""
    await proceed(request)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.content.iter_any():
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def too_large(limit: int) -> VaultError:
    """The error of a body over its limit."""
    return VaultError(Code.TOO_LARGE, f"The body is larger than {limit} bytes, the most that is taken here.")


async def parsed(body: bytes) -> Any:
    """``parse``, beside the event loop where the body is so large that everybody else would have to wait for it."""
    if len(body) <= _AT_ONCE:
        return parse(body)
    return await asyncio.get_running_loop().run_in_executor(_reader, parse, body)


def parse(body: bytes) -> Any:
    """The JSON value of a body. Raises ``VaultError`` (INVALID_INPUT) with the place where it stops being JSON."""
    if not body:
        raise VaultError(Code.INVALID_INPUT, "The body is empty; it has to be JSON.")
    try:
        value = _decode(body)
    except msgspec.DecodeError as error:
        raise VaultError(Code.INVALID_INPUT, f"The body is not JSON: {_where(str(error))}.") from None
    except UnicodeDecodeError:
        raise VaultError(Code.INVALID_INPUT, "The body is not JSON: it is not UTF-8.") from None
    except RecursionError:
        raise _too_deep() from None
    except InvalidOperation:
        raise VaultError(Code.INVALID_INPUT, "The body holds a number whose exponent is beyond all bounds.") from None
    members = _members(value)
    if members == body.count(b'":') and not any(mark in body for mark in _SPACED):
        return value
    try:
        json.loads(body, object_pairs_hook=_once, parse_float=str, parse_int=str)
    except RecursionError:
        raise _too_deep() from None
    return value


def _members(value: Any) -> int:
    """How many members all objects of a document have; raises for one that is nested too deeply."""
    count, level, depth = 0, [value], 0
    while level:
        depth += 1
        if depth > DEPTH:
            raise _too_deep()
        inner: list[Any] = []
        for item in level:
            if type(item) is dict:
                count += len(item)
                inner.extend(_containers(item.values()))
            elif type(item) is list:
                inner.extend(_containers(item))
        level = inner
    return count


def _containers(items: Any) -> Iterator[Any]:
    return (item for item in items if type(item) is dict or type(item) is list)


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise VaultError(Code.INVALID_INPUT, "An object of the body has a member twice.")


def _too_deep() -> VaultError:
    return VaultError(Code.INVALID_INPUT, f"The body has more than {DEPTH} levels of arrays and objects.")


def _where(text: str) -> str:
    """What the decoder says, without the part that every such sentence begins with."""
    return text.removeprefix("JSON is malformed: ").rstrip(".")
