"""Request bodies: allowed types, their JSON, and preconditions (``If-Match``).

Numbers are never binary fractions: one with a point or an exponent is a ``Decimal``. A document in
which an object has a member twice is refused (RFC 8259, section 4: its meaning is unpredictable),
and so is one that no reader could parse safely.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from proxy.api.connection import proceed
from proxy.api.context import ApiRequest
from proxy.api.whole_request import WholeRequest
from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.record import DEFAULTS, Record
from proxy.model.values import ValueFaults
from proxy.offload import behind_loop
from proxy.vault.records import Records

_decode = msgspec.json.Decoder(float_hook=Decimal).decode

#: Bytes of a body that are parsed within the event loop: a few milliseconds whatever they hold.
_AT_ONCE: Final = 128 * 1024

#: Parses larger ones, one after the other: several threads at once would not be faster.
_reader: Final = ThreadPoolExecutor(1, "bodies", behind_loop)

_CONTAINERS: Final = frozenset({dict, list})

#: Nesting depth of arrays and objects; the vault may store fewer levels.
DEPTH: Final = 64


def check_media_type(headers: Mapping[str, str], wanted: str) -> None:
    """Raise ``VaultError`` (UNSUPPORTED_MEDIA_TYPE) unless a body has that type and charset."""
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
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in (
            "utf-8",
            "utf8",
        ):
            raise _media_type("The body has to be UTF-8.")


def _media_type(text: str) -> VaultError:
    return VaultError(Code.UNSUPPORTED_MEDIA_TYPE, text)


def arrived_body(request: web.Request | WholeRequest, limit: int) -> bytes | None:
    """The whole body where it has come in with the head, as small ones do; ``None``: it has not.

    Raises ``VaultError`` (TOO_LARGE) beyond ``limit`` bytes.
    """
    if isinstance(request, WholeRequest):
        body = request.body
    else:
        content = request.content
        if not content.is_eof() or content.exception() is not None:
            return None
        body = content.read_nowait()
    if len(body) > limit:
        raise too_large(limit)
    return body


async def read_request_body(request: web.Request, limit: int) -> bytes:
    """Read the whole body. Raises ``VaultError`` (TOO_LARGE) beyond ``limit`` bytes."""
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
    return VaultError(
        Code.TOO_LARGE, f"The body is larger than {limit} bytes, the most that is taken here."
    )


async def parsed(body: bytes) -> Any:
    """Parse a body; a large one off the event loop."""
    if len(body) <= _AT_ONCE:
        return parse_json(body)
    return await asyncio.get_running_loop().run_in_executor(_reader, parse_json, body)


def parse_json(body: bytes) -> Any:
    """The JSON value of a body.

    Raises ``VaultError`` (INVALID_INPUT) with the place where it stops being JSON.
    """
    if not body:
        raise VaultError(Code.INVALID_INPUT, "The body is empty; it has to be JSON.")
    try:
        value = _decode(body)
    except msgspec.DecodeError as error:
        raise VaultError(
            Code.INVALID_INPUT, f"The body is not JSON: {_where(str(error))}."
        ) from None
    except UnicodeDecodeError:
        raise VaultError(Code.INVALID_INPUT, "The body is not JSON: it is not UTF-8.") from None
    except RecursionError:
        raise _too_deep() from None
    except InvalidOperation:
        raise VaultError(
            Code.INVALID_INPUT, "The body holds a number whose exponent is beyond all bounds."
        ) from None
    spaced = b'" ' in body or b'"\n' in body or b'"\r' in body or b'"\t' in body
    if _members(value) == body.count(b'":') and not spaced:
        return value
    try:
        json.loads(body, object_pairs_hook=_once, parse_float=str, parse_int=str)
    except RecursionError:
        raise _too_deep() from None
    return value


def _members(value: Any) -> int:
    """Count the members of all objects of a document; raise if it is nested too deeply."""
    count, level, depth = 0, [value], 0
    while level:
        depth += 1
        if depth > DEPTH:
            raise _too_deep()
        inner: list[Any] = []
        for item in level:
            items: Any = ()
            if type(item) is dict:
                count, items = count + len(item), item.values()
            elif type(item) is list:
                items = item
            if not _CONTAINERS.isdisjoint(map(type, items)):
                inner += [one for one in items if type(one) in _CONTAINERS]
        level = inner
    return count


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise VaultError(Code.INVALID_INPUT, "An object of the body has a member twice.")


def _too_deep() -> VaultError:
    return VaultError(
        Code.INVALID_INPUT, f"The body has more than {DEPTH} levels of arrays and objects."
    )


def _where(text: str) -> str:
    """The decoder's message without the part that every message begins with."""
    return text.removeprefix("JSON is malformed: ").rstrip(".")


# Envelope of records in a request: wrapper objects, country, keys, numbers in the query.

_COUNTRY = re.compile(r"[a-z]{2}", re.ASCII)  # ISO 3166-1 alpha-2

#: Digits of a number in the query; more than any that is allowed.
_DIGITS = 10


def checked_members(
    content: Any, members: tuple[str, ...], required: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The object of a body; ``VaultError`` names every unknown or missing member."""
    if not isinstance(content, dict):
        raise invalid("", "Has to be a JSON object.")
    faults = ValueFaults(DEFAULTS.faults)
    faults.each(
        "",
        [name for name in content if name not in members],
        f"Is not known here; known are: {', '.join(members)}.",
    )
    faults.each("", [name for name in required if name not in content], "Is missing.")
    if faults:
        raise faults.error(Code.INVALID_INPUT, "The body does not fit this operation.")
    return content


def invalid(pointer: str, text: str) -> VaultError:
    """The error of one fault of a body."""
    return VaultError(
        Code.INVALID_INPUT, "The body does not fit this operation.", (Detail(pointer, text),)
    )


def check_country(
    call: ApiRequest, content: Mapping[str, Any], source: str = "/country", *, spelled: bool = False
) -> None:
    """Raise ``VaultError`` (WRONG_COUNTRY) when a body or path names another country.

    ``source`` is the place that the error names. A value that is no text is INVALID_INPUT, and so
    is one that can be no country's code where it has to be ``spelled`` as one.
    """
    if "country" not in content:
        return
    country = content["country"]
    if country == call.services.country:
        return
    if not isinstance(country, str) or (spelled and not _COUNTRY.fullmatch(country)):
        raise VaultError(
            Code.INVALID_INPUT,
            "The country cannot be read.",
            (Detail(source, "Has to be a country code of two lower-case letters."),),
        )
    raise VaultError(
        Code.WRONG_COUNTRY,
        f"This instance keeps the records of {call.services.country} alone.",
        (Detail(source, "Is another country than the instance's."),),
    )


def batch(call: ApiRequest, *more: str) -> tuple[Any, str, dict[str, Any]]:
    """The records of a batch, the pointer to them, and the other members of the body."""
    if isinstance(call.content, list):
        return call.content, "", {}
    content = checked_members(call.content, ("records", "country", *more), ("records",))
    check_country(call, content)
    return content["records"], "/records", content


def strings(value: Any, pointer: str, most: int) -> list[str]:
    """A list of different texts, at least one.

    ``VaultError``: INVALID_INPUT, or BATCH_TOO_LARGE for more than ``most``.
    """
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise invalid(pointer, "Has to be an array of strings, with one at least.")
    if len(value) > most:
        text = f"At most {most} are taken at one time; send several requests."
        raise VaultError(Code.BATCH_TOO_LARGE, text, (Detail(pointer, text),))
    return list(dict.fromkeys(value))


def query_number(call: ApiRequest, name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query. Raises ``VaultError`` (INVALID_INPUT)."""
    text = call.query.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS and least <= int(text) <= most:
        return int(text)
    raise misfit_query(Detail(name, f"Has to be a whole number from {least} to {most}."))


def misfit_query(*faults: Detail) -> VaultError:
    """The refusal of query parameters."""
    return VaultError(Code.INVALID_INPUT, "The query parameters do not fit.", faults)


def page_limit(call: ApiRequest) -> int:
    """The number of items that a page of a listing may have, by the query."""
    limits = call.services.limits
    return query_number(call, "limit", limits.find_default, 1, limits.find_maximum)


def page_span(call: ApiRequest) -> tuple[int, int]:
    """The same, and the number of items before it."""
    return page_limit(call), query_number(call, "offset", 0, 0, 2**31 - 1)


def query_flag(call: ApiRequest, name: str, word: str) -> bool:
    """Whether a parameter was sent, which may say this word alone.

    Raises ``VaultError`` (INVALID_INPUT).
    """
    if (value := call.query.get(name)) not in (None, word):
        raise misfit_query(Detail(name, f"May only be {word}."))
    return value is not None


# Conditional requests (RFC 9110, section 13): ``If-Match`` and ``If-None-Match`` on records and on
# the contents of attachments.
#
# Entity tags here are strong. That of a record is made of its version, its files, and the rights of
# the caller (``Records.entity_tag``), so that a masked view and a clear one never share one; that
# of a content is its hash.

_TAG: Final = r'(?:W/)?"[^\x00-\x20"\x7f]*"'  # a range up to the last character compiles long
_LIST: Final = re.compile(rf"[ \t]*(?:{_TAG})?(?:[ \t]*,[ \t]*(?:{_TAG})?)*[ \t]*")
_ONE_TAG: Final = re.compile(_TAG)
_ANY: Final = "*"
IF_MATCH: Final = "If-Match"
IF_NONE_MATCH: Final = "If-None-Match"


class Preconditions(NamedTuple):
    """The conditions of a request; ``None``: none of that kind. ``*`` stands for any tag at all."""

    match: frozenset[str] | None
    none_match: frozenset[str] | None

    def changes(self, tag: str | None) -> None:
        """Raise ``VaultError(PRECONDITION_FAILED)`` unless a state of this tag may be changed.

        ``None`` is the tag of nothing.
        """
        if self.match is not None and (tag is None or not self.match & {_ANY, tag}):
            raise _failed(
                "It is not (any more) what If-Match names: read it again, and decide anew."
            )
        if (
            self.none_match is not None
            and tag is not None
            and not self.none_match.isdisjoint({_ANY, tag, f"W/{tag}"})
        ):
            raise _failed("If-None-Match asks that there is nothing of the kind, and there is.")

    def unchanged(self, tag: str) -> bool:
        """Whether a read has to be answered with 304.

        Raises ``VaultError(PRECONDITION_FAILED)`` where ``If-Match`` does not hold.
        """
        if self.match is not None and not self.match & {_ANY, tag}:
            raise _failed("It is not (any more) what If-Match names.")
        return self.none_match is not None and not self.none_match.isdisjoint(
            {_ANY, tag, f"W/{tag}"}
        )


def preconditions(request: web.Request) -> Preconditions | None:
    """The conditions of a request, where it has any.

    Raises ``VaultError(INVALID_INPUT)`` if the field is no list of entity tags.
    """
    headers = request.headers
    if IF_MATCH not in headers and IF_NONE_MATCH not in headers:
        return None
    return Preconditions(_tags(request, IF_MATCH), _tags(request, IF_NONE_MATCH))


def with_preconditions(request: web.Request, records: Records) -> Records:
    """The records, changed only where the conditions of the request hold.

    A caller without the right to read was given no tag, so none fits.
    """
    conditions = preconditions(request)
    if conditions is None:
        return records
    reads = records.rights.allows(Act.READ)

    def condition(record: Record | None) -> None:
        conditions.changes(
            None if record is None else records.entity_tag(record) if reads else '""'
        )

    check: Callable[[Record | None], None] = condition
    return records.when(check)


def _tags(request: web.Request, name: str) -> frozenset[str] | None:
    sent = request.headers.getall(name, [])
    if not sent:
        return None
    text = ",".join(sent)
    if text.strip() == _ANY:
        return frozenset((_ANY,))
    tags = _ONE_TAG.findall(text)
    if not tags or _LIST.fullmatch(text) is None:
        detail = Detail(
            name,
            'Has to be *, or entity tags with commas between them: "a", "b" (RFC 9110, section '
            "13.1).",
        )
        raise VaultError(
            Code.INVALID_INPUT, "The condition of the request cannot be read.", (detail,)
        )
    return frozenset(tags)


def _failed(text: str) -> VaultError:
    return VaultError(Code.PRECONDITION_FAILED, f"Nothing was done. {text}")
