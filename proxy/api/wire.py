"""Serialization of records: the one place where a record becomes JSON for callers.

It takes records as ``Rights.render`` gives them, and no others.

Decimals are JSON numbers with every digit they have; instants are UTC with milliseconds.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from proxy.api.context import ApiResponse
from proxy.clock import to_wire
from proxy.errors import Code, VaultError
from proxy.model.query import CREATED_AT, EXPIRES_AT, KEY, UPDATED_AT, VERSION_FIELD
from proxy.model.record import Attachment, Record
from proxy.model.rights import VisibleRecord
from proxy.net.problem import PROBLEM, STATUS, problem_document, wait_of
from proxy.vault.records import Records

_Item = TypeVar("_Item")

_PARAMETER: Final = re.compile(r"\{(\w+)\}", re.ASCII)
_HEAD: Final = b'{"data":['

#: The JSON of an answer.
encode_json = msgspec.json.Encoder(decimal_format="number").encode


def json_answer(status: int, value: Any) -> ApiResponse:
    """An answer with that JSON."""
    return ApiResponse(status, encode_json(value))


def written_json(record: VisibleRecord, redacted: Sequence[str] = ()) -> dict[str, Any]:
    """A record as a write answers with it, with its instants and the names of redacted fields."""
    body = dict(record.fields)
    body[CREATED_AT] = to_wire(record.created_at)
    body[UPDATED_AT] = to_wire(record.updated_at)
    if record.expires_at is not None:
        body[EXPIRES_AT] = to_wire(record.expires_at)
    if redacted or record.in_doubt or record.deleted_at is not None:
        body["meta"] = record_meta(record, redacted)
    return body


def record_meta(record: Record, redacted: Sequence[str] = ()) -> dict[str, Any]:
    """Return a record's metadata: redacted fields, its deletion, whether a change is in doubt."""
    meta: dict[str, Any] = {"redacted_fields": redacted} if redacted else {}
    if record.deleted_at is not None:
        meta["deleted_at"] = to_wire(record.deleted_at)
    if record.in_doubt:
        meta["in_doubt"] = True
    return meta


def redacted_fields(records: Records) -> dict[str, Any]:
    """The member of ``meta`` that names redacted fields, where there are any."""
    names = records.rights.redacted_fields
    return {"redacted_fields": names} if names else {}


def found_json(record: VisibleRecord, schema: str, primary: str | None) -> dict[str, Any]:
    """A record as a search answers with it.

    One of a rule file's entity has no key among its fields, so ``record_key`` is shown.
    """
    body = written_json(record)
    body[VERSION_FIELD] = record.version
    if primary is None:
        body[KEY] = record.key
    files = record.attachments
    base = files_of(record.key or "", schema) if files else ""
    body["attachments"] = [attachment(base, item) for item in files] if files else []
    return body


def files_of(key: str, schema: str, country: str | None = None) -> str:
    """Return the path of a record's files; with a country in the record-based family.

    It counts from the address of this listener.
    """
    where = f"models/{quote(schema, safe='')}" if country is None else f"records/{country}"
    return f"/api/{where}/{quote(key, safe='')}/files"


def filled(template: str, values: Mapping[str, str]) -> str:
    """A path of the table of operations with these values of its parameters."""
    return _PARAMETER.sub(lambda name: quote(values[name[1]], safe=""), template)


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


def version_json(record: VisibleRecord, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An entry of a record's history; ``fields``: in the names of another family."""
    return {
        "version": record.version,
        "action": str(record.action),
        "at": to_wire(record.updated_at),
        "by": record.by,
        "record": record.fields if fields is None else fields,
    }


#: Bytes of an answer that are written at once; a smaller one is sent whole.
PIECE_BYTES: Final = 256 * 1024


def pages(items: list[bytes], meta: Mapping[str, Any]) -> ApiResponse:
    """A page of items that are JSON already, with its ``meta``; a large one is streamed."""
    tail = b'],"meta":%b}' % encode_json(meta)
    length = len(_HEAD) + sum(map(len, items)) + max(0, len(items) - 1) + len(tail)
    if length <= PIECE_BYTES:
        return ApiResponse(200, b"".join((_HEAD, b",".join(items), tail)))
    return ApiResponse(200, stream=_streamed(items, tail), length=length)


def long_text(text: bytes, headers: Mapping[str, str]) -> ApiResponse:
    """A record that is JSON already; a large one is streamed."""
    if len(text) <= PIECE_BYTES:
        return ApiResponse(200, text, headers)
    return ApiResponse(200, headers=headers, stream=_streamed([text], b"", b""), length=len(text))


async def _streamed(items: list[bytes], tail: bytes, head: bytes = _HEAD) -> AsyncIterator[bytes]:
    items.reverse()
    pieces, size = [head], len(head)
    while items:
        item = items.pop()
        for start in range(0, len(item), PIECE_BYTES):
            piece = item if len(item) <= PIECE_BYTES else item[start : start + PIECE_BYTES]
            pieces.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                yield b"".join(pieces)
                pieces, size = [], 0
        if items:
            pieces.append(b",")
    yield b"".join((*pieces, tail))


def meta_of(
    count: int, limit: int, offset: int, total: int, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The ``meta`` of a listing."""
    return {"count": count, "limit": limit, "offset": offset, "total": total, **(more or {})}


def page_pieces(
    data: Iterable[Any], limit: int, offset: int, total: int, more: Mapping[str, Any] | None = None
) -> ApiResponse:
    """A page of a listing with its ``meta``."""
    items = list(data)
    return json_answer(
        200, {"data": items, "meta": meta_of(len(items), limit, offset, total, more)}
    )


def listing(
    items: Sequence[_Item], span: tuple[int, int], render: Callable[[_Item], Any]
) -> ApiResponse:
    """The page of a listing that ``span`` asks for: how many, from where on."""
    limit, offset = span
    return page_pieces(map(render, items[offset : offset + limit]), limit, offset, len(items))


# Errors of the vault's own interface: the statuses that its specification gives otherwise than the
# one table does.
#
# ``net.problem.STATUS`` holds for all listeners; ``HERE`` changes it for this one, ``BY_ROUTE`` for
# single operations.

#: On this listener, whatever the operation.
HERE: Final[Mapping[Code, int]] = MappingProxyType(
    {
        Code.CANNOT_OPEN: 422,  # "records cannot be processed" (specification, Errors)
    }
)

#: Statuses of the record-based family, which lists fewer: 422 and 409 become 400 where they are not
#: listed; a fault that may pass, or is not the caller's, becomes a server error.
_SHORT: Final[Mapping[Code, int]] = {
    **dict.fromkeys((Code.WRONG_COUNTRY, Code.BATCH_TOO_LARGE, Code.TOO_BROAD, Code.UNPROCESSABLE), 400),
    Code.NO_MATCH: 400, Code.UNSUPPORTED_MEDIA_TYPE: 400, Code.CANNOT_OPEN: 500, Code.CONFLICT: 503,
}  # fmt: skip

#: What policies do not allow is 401, and 403 where the specification lists that.
_FORBIDDEN: Final = (
    "clone_record", "upload_attachment", "replace_attachment", "change_attachment", "download_attachment", "move_attachments",
    "delete_attachment", "records_clone", "records_aggregate", "records_upload", "records_replace_file", "records_change_file",
    "records_download", "records_move_files", "records_delete_file",
)  # fmt: skip

_CLONE: Final = {Code.PARTIAL_MATCH_DISABLED: 403, Code.NO_MATCH: 403}
_FILE: Final = {Code.INVALID_INPUT: 422, Code.CONFLICT: 422}
#: A move answers 401 for "an attachment identifier is not accessible", and knows neither 400 nor
#: 409, 413 and 415.
_MOVE: Final = {
    **_FILE, Code.UNKNOWN_FILE: 401, Code.FILE_EXISTS: 422, Code.UNSUPPORTED_MEDIA_TYPE: 422, Code.TOO_LARGE: 422,
}  # fmt: skip
_SPECIAL: Final[Mapping[str, Mapping[Code, int]]] = {
    "clone_record": _CLONE,
    # more hangs on it by ``cascadeBy`` than a delete takes
    "delete_record": {Code.UNPROCESSABLE: 400, Code.CANNOT_OPEN: 500},
    "records_create_many": _SHORT,
    "records_update_many": _SHORT,
    "records_find": _SHORT,
    "records_delete_many": _SHORT,
    "records_clone": _CLONE,
    # An aggregation knows no 400: every invalid request is 422, "validation of input parameters failed".
    "records_aggregate": {Code.INVALID_INPUT: 422, Code.INVALID_FILTER: 422},
    "records_delete": {Code.WRONG_COUNTRY: 404, Code.UNPROCESSABLE: 400, Code.CANNOT_OPEN: 500, Code.CONFLICT: 503},
    "records_download": {**_FILE, Code.WRONG_COUNTRY: 404},
    "records_move_files": {**_MOVE, Code.WRONG_COUNTRY: 404},
    "records_delete_file": {**_FILE, Code.WRONG_COUNTRY: 404},
    "show_schema": {Code.UNKNOWN_SCHEMA: 404},  # ours: the schema itself is requested
    "remove_schema": {Code.UNKNOWN_SCHEMA: 404},
    "move_attachments": {**_MOVE, Code.UNKNOWN_SCHEMA: 404},
    "download_attachment": {**_FILE, Code.UNKNOWN_SCHEMA: 404},
    "delete_attachment": {**_FILE, Code.UNKNOWN_SCHEMA: 404},
}  # fmt: skip

#: (operation, code) → status, where the specification's list of an operation says so.
BY_ROUTE: Final[Mapping[tuple[str, Code], int]] = MappingProxyType(
    {(operation, Code.ACCESS_DENIED): 403 for operation in _FORBIDDEN}
    | {(name, code): status for name, codes in _SPECIAL.items() for code, status in codes.items()}
)


def api_status(operation: str, code: Code) -> int:
    """The status that an operation answers an error with; ``""`` where no operation was reached."""
    special = BY_ROUTE.get((operation, code))
    return special if special is not None else HERE.get(code, STATUS[code])


def error_answer(operation: str, error: VaultError) -> ApiResponse:
    """The answer to a request that failed."""
    status = api_status(operation, error.code)
    headers: dict[str, str] = {}
    if (wait := wait_of(error)) is not None:
        headers["Retry-After"] = str(wait)
    if status == 401 or error.challenge is not None:
        headers["WWW-Authenticate"] = error.challenge or "Bearer"  # RFC 9110, section 15.5.2
    return ApiResponse(status, problem_document(status, error), headers, PROBLEM)
