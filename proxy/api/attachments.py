"""Handlers of attachments: upload, replace, change, download, move, delete."""

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from proxy.api import wire
from proxy.api.connection import proceed
from proxy.api.context import ApiRequest, ApiResponse, Shows
from proxy.api.records import records_of_call
from proxy.api.request import preconditions
from proxy.api.upload import HEADER, FilePart, of_header, of_part
from proxy.api.wire import error_answer
from proxy.audit.events import EventKind
from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.record import Attachment, fault_of_filename, fault_of_mime_type
from proxy.model.rights import denied
from proxy.vault import attachments
from proxy.vault.attachments import Contents, Download, IncomingFile, Label, Owner, Then
from proxy.vault.idempotency import Answered
from proxy.vault.records import no_changes

# Range requests of a file (RFC 9110, section 14).

#: One range of bytes. Several at once are answered with the whole, as section 14.2 allows.
_ONE: Final = re.compile(
    r"[ \t]*bytes[ \t]*=[ \t]*(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))[ \t]*", re.ASCII | re.IGNORECASE
)


class Span(NamedTuple):
    """The bytes from ``start`` to before ``stop``."""

    start: int
    stop: int


def requested_range(headers: Mapping[str, str], size: int, etag: str) -> Span | None:
    """The requested part of a content of ``size`` bytes, or ``None`` for the whole.

    A field that is no range of bytes is ignored, and so is one whose condition on the content fails
    (``If-Range``). Raises ``VaultError`` (RANGE_UNSATISFIABLE) for a range that begins after the
    end.
    """
    match = _ONE.fullmatch(headers.get("Range", ""))
    if match is None or headers.get("If-Range", etag).strip() != etag:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        start, stop = max(0, size - int(suffix)), size
    else:
        start = int(first)
        stop = min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None  # invalid, and so ignored (section 14.1.1)
    if start >= size or stop == start:
        raise VaultError(
            Code.RANGE_UNSATISFIABLE,
            f"The file has {size} bytes, and the range begins behind them.",
        )
    return Span(start, stop)


#: Bytes of an upload that may stand around its content, for a request to be refused by its length
#: alone.
_FORM_BYTES: Final = 64 * 1024

_GONE: Final = ApiResponse(204)

#: Members of the answer to every change of a file, besides those that were sent.
_ALWAYS_SENT: Final = ("file_id", "updated_at", "download_link")


async def upload_attachment(call: ApiRequest) -> ApiResponse:
    """A new file for a record."""
    return await _stored(call, attachments.upload)


async def replace_attachment(call: ApiRequest) -> ApiResponse:
    """A file in place of the one of its name; without one, a new file."""
    return await _stored(call, attachments.replace_attachment_of)


async def _stored(
    call: ApiRequest, store: Callable[[Contents, Owner, IncomingFile, Then], Awaitable[Attachment]]
) -> ApiResponse:
    owner, show = _owner(call, "record_key"), partial(_attachment_answer, call, 201)
    async with _incoming(call) as incoming:
        return show(await store(_contents(call), owner, incoming, _then(call, show)))


async def check_repeated(call: ApiRequest, answered: Answered) -> None:
    """Raise ``VaultError`` (IDEMPOTENCY_CHECK_FAILED) unless an upload repeats the stored answer's.

    The content is hashed and not stored. Name, type and content count; the boundary of the body
    differs each time.
    """
    digest, size, limit = hashlib.sha256(), 0, _contents(call).limit
    async with _incoming(call) as incoming:
        async for piece in incoming.content:
            digest.update(piece)
            size += len(piece)
            if size > limit:
                break
    answer = msgspec.json.decode(answered.body)
    first = (answer["filename"], answer["mime_type"], answer["size"], answer["hash"])
    if (*incoming.label, size, digest.hexdigest()) != first:
        raise VaultError(
            Code.IDEMPOTENCY_CHECK_FAILED,
            "This idempotency key was used for another file; use a new one.",
        )


async def change_attachment(call: ApiRequest) -> ApiResponse:
    """Rename a file or change its type; a caller without the right to read sees its own values."""
    label, owner = _label(call.content), _owner(call, "record_key")
    await owner.writable()
    sees = await owner.sees()  # before anything is changed, as it may fail

    def show(changed: Attachment) -> ApiResponse:
        answer = _object(call, changed)
        return wire.json_answer(
            200, answer if sees else {name: answer[name] for name in (*_ALWAYS_SENT, *call.content)}
        )

    answer = show(await attachments.change(owner, call.path["file_id"], label, _then(call, show)))
    if sees:
        owner.records.note(EventKind.REVEAL, (owner.key,))
    return answer


async def show_attachment(call: ApiRequest) -> ApiResponse:
    """Answer with the metadata of a file."""
    owner = _owner(call, "record_key", Act.READ)
    label = await attachments.attachment_label(owner, call.path["file_id"])
    return _attachment_answer(call, 200, label)


async def download_attachment(call: ApiRequest) -> ApiResponse:
    """Return the content of a file, or the requested part."""
    contents = _contents(call)
    download = await attachments.download(
        contents, _owner(call, "record_key", Act.READ), call.path["file_id"]
    )
    size, etag = download.attachment.size, f'"{download.attachment.hash}"'
    name = quote(download.attachment.filename, safe="")
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "ETag": etag,
    }
    conditions = preconditions(call.request)
    try:
        if conditions is not None and conditions.unchanged(etag):
            download.close()
            return ApiResponse(304, b"", {"ETag": etag})
        span = (
            requested_range(call.request.headers, size, etag)
            if call.request.method == "GET"
            else None
        )
    except VaultError as error:
        download.close()
        if error.code is not Code.RANGE_UNSATISFIABLE:
            raise
        answer = error_answer(call.operation.name, error)
        return answer._replace(headers={**answer.headers, "Content-Range": f"bytes */{size}"})
    start, stop = span or (0, size)
    if span is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    stream = await _begun(download, start, stop)
    return ApiResponse(
        200 if span is None else 206, b"", headers, "application/octet-stream", stream, stop - start
    )


async def move_attachments(call: ApiRequest) -> ApiResponse:
    """Files of one record for another."""
    file_ids = _ids(call)
    await attachments.move(
        _owner(call, "source"), call.path["destination"], file_ids, _then(call, lambda _: _GONE)
    )
    return _GONE


async def delete_attachment(call: ApiRequest) -> ApiResponse:
    """The end of a file."""
    await attachments.remove_attachment(
        _owner(call, "record_key"), call.path["file_id"], _then(call, lambda _: _GONE)
    )
    return _GONE


# ---------------------------------------------------------------------- parts


def _owner(call: ApiRequest, name: str, act: Act = Act.WRITE) -> Owner:
    records = records_of_call(call, act)
    if not records.rights.files:
        raise denied()
    conditions = preconditions(call.request) if act is Act.WRITE else None
    return Owner(records, call.path[name], None if conditions is None else conditions.changes)


def _contents(call: ApiRequest) -> Contents:
    contents = call.space.contents
    if contents is None:
        raise VaultError(Code.FILES_UNAVAILABLE, "This vault keeps no files.")
    return contents


def _then(call: ApiRequest, show: Callable[[Any], ApiResponse]) -> Then:
    """Build the hook that commits the answer with the change, so that it can be replayed."""
    keep = call.keep
    if keep is None:
        return no_changes
    key = call.path.get("record_key")
    return lambda stored: keep(
        show(stored[0][0] if stored else None), [Shows(key, rid, True) for _, rid in stored]
    )


def _attachment_answer(call: ApiRequest, status: int, stored: Attachment) -> ApiResponse:
    return wire.json_answer(status, _object(call, stored))


def _object(call: ApiRequest, stored: Attachment) -> dict[str, Any]:
    base = wire.filled(call.operation.path.partition("/{file_id}")[0], call.path)
    return wire.attachment(base, stored)


@asynccontextmanager
async def _incoming(call: ApiRequest) -> AsyncIterator[IncomingFile]:
    """The file of an upload; its content is read on demand."""
    named_inside = call.operation.named_inside
    sent = [] if named_inside else call.request.headers.getall(HEADER, [])
    name = of_header(sent) if sent else ""
    limit = _contents(call).limit
    if (call.request.content_length or 0) > limit + _FORM_BYTES:
        raise VaultError(
            Code.TOO_LARGE, f"The file is larger than {limit} bytes, the most that is taken here."
        )
    part = FilePart(call.request)
    await proceed(call.request)
    await part.begin()
    if not sent:
        name = of_part(part.disposition)
    yield IncomingFile(Label(name, part.mime_type), part.content())


def _label(content: Any) -> tuple[str | None, str | None]:
    """The name and the type that a change asks for."""
    faults: list[Detail] = []
    checks = {"filename": fault_of_filename, "mime_type": fault_of_mime_type}
    if not isinstance(content, dict):
        raise VaultError(
            Code.INVALID_INPUT,
            "The body has to be an object.",
            (Detail("", "Has to be an object."),),
        )
    if not content.keys() <= checks.keys():
        faults.append(Detail("", "Known members are filename and mime_type."))
    for name, value in content.items():
        if name not in checks:
            continue
        if not isinstance(value, str):
            faults.append(Detail(f"/{name}", "Has to be a string."))
        elif (fault := checks[name](value)) is not None:
            faults.append(Detail(f"/{name}", f"It {fault}"))
    if not content:
        faults.append(Detail("", "Has to have filename, mime_type, or both."))
    if faults:
        raise VaultError(
            Code.INVALID_INPUT,
            "The attachment cannot be changed like this.",
            tuple(dict.fromkeys(faults)),
        )
    return content.get("filename"), content.get("mime_type")


def _ids(call: ApiRequest) -> list[str]:
    """The attachments that a move names."""
    content, pointer, most = call.content, "/attachment_ids", call.services.limits.batch
    ids = content.get("attachment_ids") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(ids, list):
        raise _not_ids(Detail(pointer, "Has to be an array of the ids of attachments."))
    if content.keys() != {"attachment_ids"}:
        raise _not_ids(Detail("", "The only member known is attachment_ids."))
    if not ids:
        raise _not_ids(Detail(pointer, "Has to name one attachment at least."))
    if len(ids) > most:
        raise VaultError(Code.BATCH_TOO_LARGE, f"At most {most} attachments are moved at once.")
    faults: list[Detail] = []
    distinct: set[str] = set()
    for index, item in enumerate(ids):
        if not isinstance(item, str):
            faults.append(Detail(f"{pointer}/{index}", "Has to be a string."))
        elif item in distinct:
            faults.append(Detail(f"{pointer}/{index}", "Stands here twice."))
        else:
            distinct.add(item)
    if faults:
        raise _not_ids(*faults)
    return ids


def _not_ids(*details: Detail) -> VaultError:
    return VaultError(
        Code.INVALID_INPUT, "The attachments to be moved are not understood.", details
    )


class _Begun:
    """A stream with its first piece read, so that content that does not open is refused in time."""

    def __init__(self, first: bytes, rest: AsyncIterator[bytes], download: Download) -> None:
        self._first: bytes | None = first
        self._rest = rest
        self._download = download

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await anext(self._rest)

    async def aclose(self) -> None:
        """Close the content, also when it was not read to its end."""
        close = getattr(self._rest, "aclose", None)
        if close is not None:
            await close()
        self._download.close()


async def _begun(download: Download, start: int, stop: int) -> _Begun:
    rest = download.pieces(start, stop)
    return _Begun(await anext(rest, b""), rest, download)
