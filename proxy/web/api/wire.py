"""How records and what belongs to them are written: the one place where a record becomes JSON for callers.

It takes records as ``Rights.shown`` gives them, and no others.

Decimals are JSON numbers with every digit they have; instants are UTC with milliseconds.
"""

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from proxy.clock import to_wire
from proxy.model.query import CREATED_AT, EXPIRES_AT, KEY, UPDATED_AT, VERSION
from proxy.model.record import Attachment
from proxy.model.rights import Shown
from proxy.vault.records import Records
from proxy.web.api.operation import Answer

_PARAMETER: Final = re.compile(r"\{(\w+)\}", re.ASCII)
_HEAD: Final = b'{"data":['
_encode = msgspec.json.Encoder(decimal_format="number").encode


def encode(value: Any) -> bytes:
    """The JSON of an answer."""
    return _encode(value)


def answer(status: int, value: Any) -> Answer:
    """An answer with that JSON."""
    return Answer(status, _encode(value))


def written(record: Shown, redacted: Sequence[str] = ()) -> dict[str, Any]:
    """A record as a write answers with it: what was stored, the instants that the service set, and which fields are redacted."""
    shown = dict(record.fields)
    shown[CREATED_AT] = to_wire(record.created_at)
    shown[UPDATED_AT] = to_wire(record.updated_at)
    if record.expires_at is not None:
        shown[EXPIRES_AT] = to_wire(record.expires_at)
    if redacted:
        shown["meta"] = {"redacted_fields": redacted}
    return shown


def redacted_fields(records: Records) -> dict[str, Any]:
    """What ``meta`` of a page tells of fields that the caller does not see as they are, where there are any."""
    names = records.rights.redacted_fields
    return {"redacted_fields": names} if names else {}


def found(record: Shown, schema: str, primary: str | None) -> dict[str, Any]:
    """A record as a search answers with it. One of a rule file's entity has no key among its fields, so ``record_key`` is shown."""
    shown = written(record)
    shown[VERSION] = record.version
    if primary is None:
        shown[KEY] = record.key
    base = files_of(record.key or "", schema) if record.attachments else ""
    shown["attachments"] = [attachment(base, item) for item in record.attachments]
    return shown


def files_of(key: str, schema: str, country: str | None = None) -> str:
    """Where the files of a record are; with a country in the record-based family. It counts from the address of this listener."""
    where = f"models/{quote(schema, safe='')}" if country is None else f"records/{country}"
    return f"/api/{where}/{quote(key, safe='')}/files"


def filled(template: str, values: Mapping[str, str]) -> str:
    """A path of the table of operations with these values of its parameters."""
    return _PARAMETER.sub(lambda found: quote(values[found[1]], safe=""), template)


def attachment(base: str, item: Attachment) -> dict[str, Any]:
    """An attachment of the record whose files are there."""
    return {
        "file_id": item.file_id,
        "filename": item.filename,
        "hash": item.hash,
        "mime_type": item.mime_type,
        "size": item.size,
        "created_at": to_wire(item.created_at),
        "updated_at": to_wire(item.updated_at),
        "download_link": f"{base}/{item.file_id}",
    }


def version(record: Shown) -> dict[str, Any]:
    """An entry of a record's history."""
    return {
        "version": record.version,
        "action": str(record.action),
        "at": to_wire(record.updated_at),
        "by": record.by,
        "record": record.fields,
    }


#: Bytes of an answer that are written at once; a smaller one is sent whole.
PIECE: Final = 256 * 1024


def pages(items: list[bytes], meta: Mapping[str, Any]) -> Answer:
    """A page of items that are JSON already, with its ``meta``; a large one is streamed, and what was sent is let go."""
    tail = b'],"meta":%b}' % _encode(meta)
    length = len(_HEAD) + sum(map(len, items)) + max(0, len(items) - 1) + len(tail)
    if length <= PIECE:
        return Answer(200, b"".join((_HEAD, b",".join(items), tail)))
    return Answer(200, stream=_streamed(items, tail), length=length)


async def _streamed(items: list[bytes], tail: bytes) -> AsyncIterator[bytes]:
    items.reverse()
    held, size = [_HEAD], len(_HEAD)
    while items:
        item = items.pop()
        for start in range(0, len(item), PIECE):
            piece = item if len(item) <= PIECE else item[start : start + PIECE]
            held.append(piece)
            size += len(piece)
            if size >= PIECE:
                yield b"".join(held)
                held, size = [], 0
        if items:
            held.append(b",")
    yield b"".join((*held, tail))


def meta_of(count: int, limit: int, offset: int, total: int, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What ``meta`` of a listing tells."""
    return {"count": count, "limit": limit, "offset": offset, "total": total, **(more or {})}


def page(data: Iterable[Any], limit: int, offset: int, total: int, more: Mapping[str, Any] | None = None) -> Answer:
    """A page of a listing with its ``meta``."""
    items = list(data)
    return answer(200, {"data": items, "meta": meta_of(len(items), limit, offset, total, more)})
