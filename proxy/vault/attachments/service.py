"""The use cases on attachments: upload, replace, change, download, move, delete.

A content is durable in the object store before the row that names it is committed. An interruption
leaves an object without a row, never the reverse; ``object_cleanup`` removes such objects. A row that
releases an object marks it for removal in the same commit. Records of rule files may have
attachments too.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from proxy.audit.events import EventKind
from proxy.errors import CannotOpen, Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.record import Attachment
from proxy.objectstore.base import NoObject
from proxy.storage.changes import Attach, Change, Detach, UpdateFile
from proxy.storage.rows import File, Row
from proxy.vault.attachment_content import Arriving, Contents, OpenContent, StoredContent
from proxy.vault.records.attachment_metadata import (
    Label,
    OpenFile,
    by_id,
    file_of,
    handed_over,
    id_of,
    name_hash,
    new_id,
    open_file,
)
from proxy.vault.records.commit import COMMIT_TRIES, attempt, locked, no_changes, overtaken
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import RowPolicyCheck

#: Further changes for the commit, given the attachment as it is then, and the row that has it;
#: nothing of a delete or a move.
Then = Callable[[Sequence[tuple[Attachment, int]]], Sequence[Change]]


class IncomingFile(NamedTuple):
    """An incoming file: name and type from the caller, and its content piece by piece."""

    label: Label
    content: Arriving


class Owner(NamedTuple):
    """Record that owns a file, by its key."""

    records: Records
    key: str
    #: Raises unless a file with this tag (``None``: no file) may be changed, as a conditional
    #: request demands.
    condition: Callable[[str | None], None] | None = None

    @property
    def digest(self) -> bytes:
        """The hash under which the record is found and locked."""
        return self.records.collection.key_hash(self.key)

    async def row(self) -> Row:
        """The record's row. ``VaultError(NOT_FOUND)`` without one, or with an expired one."""
        rows = await self.records.by_key([self.key])
        within = await RowPolicyCheck(self.records).considering(rows.values())
        if self.key not in rows or within.open(rows[self.key]) is None:
            raise _no_record()
        return rows[self.key]

    async def writable(self) -> None:
        """Raise ``VaultError(ACCESS_DENIED)`` unless the filter endpoint allows the change."""
        await self.records.permit(Act.WRITE, (self.key,))

    async def readable(self) -> None:
        """Raise ``VaultError(NOT_FOUND)`` unless the filter endpoint shows it the record."""
        if self.records.gate is not None and not await self.records.gate.allowed(
            Act.READ, (self.key,)
        ):
            raise _no_record()

    async def sees(self) -> bool:
        """Whether the caller may also read the record, so that the answer may show all of it."""
        if not self.records.rights.allows(Act.READ):
            return False
        return self.records.gate is None or bool(
            await self.records.gate.allowed(Act.READ, (self.key,))
        )

    async def files(self, *rows: Row) -> dict[int, tuple[File, ...]]:
        """The files of these rows."""
        collection = self.records.collection
        return await collection.store.files(collection.table, [row.rid for row in rows])

    def check(self, row: Row, file: File | None) -> None:
        """Raise what ``condition`` says of a file of the row to be changed, or of none."""
        if self.condition is not None:
            opened = None if file is None else open_file(self.records.collection, row, file)
            self.condition(None if opened is None else f'"{opened.attachment.hash}"')

    async def file(self, row: Row, file_id: str) -> File:
        """A file of the row. ``VaultError(UNKNOWN_FILE)`` when it has none of that id."""
        file = by_id(await self.files(row), row.rid).get(id_of(file_id) or b"")
        if file is None:
            raise VaultError(Code.UNKNOWN_FILE, "The record has no file with this id.")
        return file


async def upload(
    contents: Contents, owner: Owner, incoming: IncomingFile, then: Then
) -> Attachment:
    """Give a record a new file.

    Raises ``VaultError``: NOT_FOUND; FILE_EXISTS if the record has a file of that name; TOO_LARGE,
    FILES_UNAVAILABLE, OVERLOADED; CONFLICT. Errors of the content are raised. Nothing of a refused
    file stays.
    """
    await owner.writable()
    row, before = await _row_of_label(owner, incoming.label)
    _refuse_taken(before)
    async with (
        contents.sealed(new_id(), _scope(owner), incoming.content) as stored,
        _settled(contents, owner, stored),
    ):
        row, before = await _row_of_label(owner, incoming.label)
        _refuse_taken(before)
        file = file_of(owner.records.collection, row, stored, incoming.label)
        return await _commit(owner, row, Attach(file), then)


async def replace_attachment_of(
    contents: Contents, owner: Owner, incoming: IncomingFile, then: Then = no_changes
) -> Attachment:
    """Give a record a file in place of the one of that name; where there is none, a new one.

    A replaced file keeps its id and the time of its creation; readers of the old content continue.
    Raises as ``upload``, but for FILE_EXISTS; ``CONFLICT`` also if the file was made, deleted or
    renamed during the upload.
    """
    await owner.writable()
    row, first = await _row_of_label(owner, incoming.label)
    owner.check(row, first)  # before an unwanted content arrives
    file_id = new_id() if first is None else first.file_id
    async with (
        contents.sealed(file_id, _scope(owner), incoming.content) as stored,
        _settled(contents, owner, stored),
    ):
        row, before = await _row_of_label(owner, incoming.label)
        if (before and before.file_id) != (first and first.file_id):
            raise overtaken(owner.records)
        owner.check(row, before)
        file = file_of(owner.records.collection, row, stored, incoming.label, before)
        main = Attach(file) if before is None else UpdateFile(file, row.rid)
        return await _commit(owner, row, main, then)


async def change(
    owner: Owner, file_id: str, label: tuple[str | None, str | None], then: Then = no_changes
) -> Attachment:
    """Change a file's name, type, or both (``None``: unchanged); return its new metadata.

    Raises ``VaultError``: NOT_FOUND, UNKNOWN_FILE, FILE_EXISTS, CANNOT_OPEN.
    """
    records = owner.records
    await owner.writable()
    async with locked(records, [owner.digest]):
        for _ in range(COMMIT_TRIES):
            row = await owner.row()
            file = await owner.file(row, file_id)
            owner.check(row, file)
            opened = open_file(records.collection, row, file)
            wanted = Label(
                label[0] or opened.attachment.filename, label[1] or opened.attachment.mime_type
            )
            changed = file_of(records.collection, row, opened.stored, wanted, file)
            if changed.name != file.name:
                _refuse_taken((await _row_of_label(owner, wanted))[1])
            attachment = open_file(records.collection, row, changed).attachment
            if await attempt(
                records,
                [UpdateFile(changed, row.rid, file.object), *then(((attachment, row.rid),))],
            ):
                records.note_files(EventKind.WRITE, (owner.key,), (file_id,))
                return attachment
    raise overtaken(records)


async def attachment_label(owner: Owner, file_id: str) -> Attachment:
    """Return a file's metadata. Raises ``VaultError``: NOT_FOUND, UNKNOWN_FILE, CANNOT_OPEN."""
    await owner.readable()
    row = await owner.row()
    attachment = open_file(owner.records.collection, row, await owner.file(row, file_id)).attachment
    owner.records.note(EventKind.REVEAL, (owner.key,))
    return attachment


async def move(owner: Owner, destination: str, file_ids: Sequence[str], then: Then) -> None:
    """Give files of a record to another one, all or none; to itself: nothing changes.

    Raises ``VaultError``: NOT_FOUND with a detail for each record that is missing, UNKNOWN_FILE
    with one for each id, FILE_EXISTS with one for each name that the destination has already,
    CANNOT_OPEN.
    """
    records, other, within = (
        owner.records,
        Owner(owner.records, destination),
        RowPolicyCheck(owner.records),
    )
    await records.permit(Act.WRITE, (owner.key, destination))
    await records.permit(Act.READ, (owner.key,))  # else it would be read at the destination
    async with locked(records, [owner.digest, other.digest]):
        for _ in range(COMMIT_TRIES):
            rows = await records.by_key([owner.key, destination])
            await within.considering(rows.values())
            rows = {key: row for key, row in rows.items() if within.open(row) is not None}
            missing = [
                name
                for name, key in (("source", owner.key), ("destination", destination))
                if key not in rows
            ]
            if missing:
                details = tuple(
                    Detail(name, "There is no record with this key.") for name in missing
                )
                raise VaultError(Code.NOT_FOUND, "A record of the move does not exist.", details)
            source, target = rows[owner.key], rows[destination]
            by_row = await owner.files(source, target)
            files = _chosen(by_id(by_row, source.rid), file_ids)
            moved: Sequence[Change] = ()
            if source.rid != target.rid:
                moved = handed_over(
                    records.collection, (source, target), files, by_row.get(target.rid, ())
                )
            if not await attempt(records, [*moved, *then(())]):
                continue
            records.note_files(EventKind.WRITE, (owner.key, destination), file_ids)
            if moved:  # readers of the destination see them there
                records.note(EventKind.REVEAL, (owner.key,))
            return
    raise overtaken(records)


async def remove_attachment(owner: Owner, file_id: str, then: Then) -> None:
    """Take a file from a record; its content is gone with the next round of maintenance.

    Raises ``VaultError``: NOT_FOUND, UNKNOWN_FILE.
    """
    await owner.writable()
    async with locked(owner.records, [owner.digest]):
        for _ in range(COMMIT_TRIES):
            row = await owner.row()
            file = await owner.file(row, file_id)
            owner.check(row, file)
            if await attempt(owner.records, [Detach(row.rid, file.file_id), *then(())]):
                owner.records.collection.observe("detached")
                owner.records.note_files(EventKind.DELETE, (owner.key,), (file_id,))
                return
    raise overtaken(owner.records)


class Download:
    """A file that is about to be read: its ``attachment``, then its content."""

    def __init__(
        self, contents: Contents, owner: Owner, opened: OpenFile, content: OpenContent
    ) -> None:
        self.attachment = opened.attachment
        self._contents = contents
        self._owner = owner
        self._content = content

    async def pieces(self, start: int, stop: int) -> AsyncIterator[bytes]:
        """The bytes from ``start`` to before ``stop``; ends the download.

        Raises ``VaultError`` (CANNOT_OPEN, OVERLOADED …).
        """
        try:
            with self._contents.transfer():
                async for piece in self._content.pieces(start, stop):
                    yield piece
        except CannotOpen:
            self._owner.records.collection.observe("unopenable_file")
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Close the content, if its pieces are not requested. Idempotent."""
        self._content.close()


async def download(contents: Contents, owner: Owner, file_id: str) -> Download:
    """Open a file for reading.

    Raises ``VaultError``: NOT_FOUND, UNKNOWN_FILE; CANNOT_OPEN when row or content were changed,
    exchanged or lost.
    """
    records = owner.records
    await owner.readable()
    for _ in range(COMMIT_TRIES):
        row = await owner.row()
        file = await owner.file(row, file_id)
        try:
            opened = open_file(records.collection, row, file)
            content = await contents.open(opened.stored, _scope(owner))
        except NoObject:
            if (await owner.file(await owner.row(), file_id)).object != file.object:
                continue  # it was replaced since the row was read
            records.collection.observe("unopenable_file")
            raise VaultError(
                Code.CANNOT_OPEN,
                "The content of the file is not where it was kept: restore it from a backup.",
            ) from None
        except CannotOpen:
            records.collection.observe("unopenable_file")
            raise
        records.note_files(EventKind.REVEAL, (owner.key,), (file_id,))
        return Download(contents, owner, opened, content)
    raise overtaken(records)


# ---------------------------------------------------------------------- parts

#: Errors after which it is certain that no row names the object; a store that is down may still
#: have taken the row.
_CERTAIN = (
    Code.NOT_FOUND, Code.FILE_EXISTS, Code.CONFLICT, Code.IDEMPOTENCY_CHECK_FAILED, Code.PRECONDITION_FAILED,
)  # fmt: skip


async def _row_of_label(owner: Owner, label: Label) -> tuple[Row, File | None]:
    """The record's row, and the file of that name which it has."""
    row, name = await owner.row(), name_hash(owner.records.collection, label.filename)
    files = await owner.files(row)
    return row, next((file for file in files.get(row.rid, ()) if file.name == name), None)


def _refuse_taken(file: File | None) -> None:
    if file is not None:
        raise VaultError(
            Code.FILE_EXISTS,
            "The record has a file of this name: replace it, or give this one another name.",
        )


@asynccontextmanager
async def _settled(contents: Contents, owner: Owner, stored: StoredContent) -> AsyncIterator[None]:
    """Under the record's lock; an object whose row is refused for certain is removed at once."""
    async with locked(owner.records, [owner.digest]):
        try:
            yield
        except VaultError as error:
            if error.code in _CERTAIN:
                await contents.drop(stored.object)
            raise


async def _commit(owner: Owner, row: Row, main: Attach | UpdateFile, then: Then) -> Attachment:
    attachment = open_file(owner.records.collection, row, main.file).attachment
    if not await attempt(owner.records, [main, *then(((attachment, row.rid),))]):
        await owner.row()  # perhaps the record ended a moment ago
        raise overtaken(owner.records)
    owner.records.collection.observe("attached")
    owner.records.note_files(EventKind.WRITE, (owner.key,), (attachment.file_id,))
    return attachment


def _scope(owner: Owner) -> bytes:
    return owner.records.collection.sealer.scope


def _no_record() -> VaultError:
    return VaultError(Code.NOT_FOUND, "There is no record with this key.")


def _chosen(files: dict[bytes, File], file_ids: Sequence[str]) -> dict[str, File]:
    """The files with these ids, by where the caller named them."""
    chosen = {
        f"/attachment_ids/{index}": files.get(id_of(text) or b"")
        for index, text in enumerate(file_ids)
    }
    unknown = [pointer for pointer, file in chosen.items() if file is None]
    if unknown:
        details = tuple(Detail(one, "The source has no file with this id.") for one in unknown)
        raise VaultError(
            Code.UNKNOWN_FILE, "A file of the move is not the source's; nothing was moved.", details
        )
    return {pointer: file for pointer, file in chosen.items() if file is not None}
