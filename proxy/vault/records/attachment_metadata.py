"""Metadata of attachments: sealed beside the record's row, and bound to it.

The name, the hash, the type and the salt of the content are sealed under the record's own key, so
they end with the record. The content does not move when its file does: another record gets another
seal around the same salt.
"""

import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.crypto.aead import cannot_open
from proxy.errors import CannotOpen, Code, Detail, VaultError
from proxy.model.record import LONGEST_FILE_NAME, Attachment, Record, same_name
from proxy.storage.changes import UpdateFile
from proxy.storage.rows import File, Row
from proxy.vault.attachment_content import StoredContent
from proxy.vault.collection import Collection
from proxy.vault.records.repository import Records
from proxy.vault.seal import Sealer


class _Metadata(
    msgspec.Struct,
    frozen=True,
    rename={"filename": "n", "hash": "h", "mime_type": "t", "size": "s", "salt": "k"},
):
    """Sealed metadata of a file."""

    filename: str
    hash: str
    mime_type: str
    size: int
    salt: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Metadata).decode


class Label(NamedTuple):
    """Name and type that a caller gives to a file."""

    filename: str
    mime_type: str


class OpenFile(NamedTuple):
    """A file in the clear, and what opens its content."""

    file: File
    attachment: Attachment
    stored: StoredContent


def new_id() -> bytes:
    """The id of a new file: a random UUID (RFC 9562, section 5.4)."""
    return uuid.uuid4().bytes


def id_of(text: str) -> bytes | None:
    """The id that a caller writes, spelt as ``Attachment.file_id``; ``None`` if it is none."""
    try:
        ident = uuid.UUID(text)
    except ValueError:
        return None
    return ident.bytes if str(ident) == text else None


def file_of(
    collection: Collection,
    row: Row,
    stored: StoredContent,
    label: Label,
    before: File | None = None,
) -> File:
    """The file of a row with that content; id and creation are those of ``before``."""
    now = collection.clock()
    sealed = _Metadata(label.filename, stored.hash, label.mime_type, stored.size, stored.salt)
    file = File(
        bytes.fromhex(stored.object[:32]),
        row.rid,
        name_hash(collection, label.filename),
        stored.object,
        stored.size,
        now if before is None else before.created_at,
        now,
        b"",
    )
    return collection.sealer.record(row.rid, row.salt).file(_encode(sealed), file)


def name_hash(collection: Collection, filename: str) -> bytes:
    """The keyed hash under which a record has a file of that name."""
    return collection.hash_name(same_name(filename))


def kept_of(sealer: Sealer, row: Row, file: File) -> StoredContent:
    """Return the location and the key of a file's content. Raises ``VaultError(CANNOT_OPEN)``."""
    sealed = _decode(sealer.open_file(file, row.salt))
    return StoredContent(file.object, sealed.salt, sealed.size, sealed.hash)


def rekept(sealer: Sealer, row: Row, file: File, stored: StoredContent) -> File:
    """The file of the row with its content in another object.

    Raises ``VaultError(CANNOT_OPEN)``.
    """
    metadata = replace(_decode(sealer.open_file(file, row.salt)), salt=stored.salt)
    moved = file._replace(object=stored.object)
    return sealer.record(row.rid, row.salt).file(_encode(metadata), moved)


def open_file(collection: Collection, row: Row, file: File) -> OpenFile:
    """A file of the row. ``VaultError(CANNOT_OPEN)`` if changed or moved from elsewhere."""
    clear = collection.sealer.open_file(file, row.salt)
    sealed = _decode(clear)
    if sealed.size != file.size:
        raise cannot_open()
    attachment = Attachment(
        str(uuid.UUID(bytes=file.file_id)),
        sealed.filename,
        sealed.hash,
        sealed.mime_type,
        sealed.size,
        file.created_at,
        file.updated_at,
    )
    return OpenFile(
        file, attachment, StoredContent(file.object, sealed.salt, sealed.size, sealed.hash)
    )


async def attachments_of(
    collection: Collection, rids: Sequence[int]
) -> dict[int, tuple[Attachment, ...]]:
    """The attachments of these rows, oldest first; rows without any are left out.

    One that does not open is counted, logged by its event, and left out.
    """
    files = await collection.store.files(collection.table, rids)
    if not files:
        return {}
    rows = await collection.store.rows(collection.table, list(files))
    return {
        rid: tuple(_openable(collection, rows[rid], files_of_row))
        for rid, files_of_row in files.items()
        if rid in rows
    }


async def with_attachments(
    records: Records, records_found: Sequence[Record], readable: Container[str | None] | None = None
) -> list[Record]:
    """The records with their attachments; ``readable``: of these keys only."""
    rids = [record.rid for record in records_found if readable is None or record.key in readable]
    attached = await attachments_of(records.collection, rids) if rids else {}
    if not attached:
        return list(records_found)
    return [replace(record, attachments=attached.get(record.rid, ())) for record in records_found]


def handed_over(
    collection: Collection, rows: tuple[Row, Row], files: Mapping[str, File], others: Iterable[File]
) -> list[UpdateFile]:
    """The changes that give files of the first row to the second one, which has ``others`` already.

    ``files`` has them by where the caller named them. Raises ``VaultError``: FILE_EXISTS with a
    detail for each whose name is taken there; CANNOT_OPEN.
    """
    source, destination = rows
    taken = [file.name for file in others]
    opened = {at: open_file(collection, source, file) for at, file in files.items()}
    clash = [
        at for at, one in opened.items() if name_hash(collection, one.attachment.filename) in taken
    ]
    if clash:
        text = "The destination has a file of the same name."
        raise VaultError(
            Code.FILE_EXISTS,
            "A file cannot be moved to a record that has one of its name; nothing was moved.",
            tuple(Detail(at, text) for at in clash),
        )
    changes = []
    for at, file in files.items():
        label = Label(opened[at].attachment.filename, opened[at].attachment.mime_type)
        moved = file_of(collection, destination, opened[at].stored, label, file)
        changes.append(UpdateFile(moved, source.rid, file.object))
    return changes


def adopted(
    collection: Collection, rows: tuple[Row, Row], files: Iterable[File], others: Iterable[File]
) -> list[UpdateFile]:
    """Resolve conflicts without asking: number a taken name, leave an unreadable file."""
    source, destination = rows
    taken, changes = [file.name for file in others], []
    for file in files:
        try:
            opened = open_file(collection, source, file)
        except CannotOpen:
            collection.observe("unopenable_file")
            continue
        name, number = opened.attachment.filename, 1
        while name_hash(collection, name) in taken:
            number += 1
            name = _numbered(opened.attachment.filename, number)
        taken.append(name_hash(collection, name))
        label = Label(name, opened.attachment.mime_type)
        changes.append(
            UpdateFile(
                file_of(collection, destination, opened.stored, label, file),
                source.rid,
                file.object,
            )
        )
    return changes


def _numbered(name: str, number: int) -> str:
    """``cv.pdf`` → ``cv (2).pdf``, within the length that a name may have."""
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    rest = f" ({number}){dot}{ending}"
    return stem[: max(1, LONGEST_FILE_NAME - len(rest))] + rest[-(LONGEST_FILE_NAME - 1) :]


def _openable(collection: Collection, row: Row, files: Iterable[File]) -> list[Attachment]:
    attachments: list[Attachment] = []
    for file in files:
        try:
            attachments.append(open_file(collection, row, file).attachment)
        except CannotOpen:
            collection.observe("unopenable_file")
    return attachments


def by_id(files: Mapping[int, Sequence[File]], rid: int) -> dict[bytes, File]:
    """The files of a row by their id."""
    return {file.file_id: file for file in files.get(rid, ())}
