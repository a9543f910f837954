"""Attachments on engines, object stores and a clock that tests own."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.crypto.keyset import Keyset
from proxy.model.record import Attachment
from proxy.objectstore.base import SHARDS, ObjectStore
from proxy.storage.base import Store
from proxy.storage.changes import Change
from proxy.storage.rows import File
from proxy.vault.attachment_content import Contents
from proxy.vault.attachments.service import (
    IncomingFile,
    Owner,
    download,
    replace_attachment_of,
    upload,
)
from proxy.vault.records.attachment_metadata import Label, attachments_of
from tests.support.contacts import Contacts, contact, make_contacts
from tests.support.memory_objects import MemoryObjects

LIMIT = 3_000_000


def nothing(_made: Sequence[tuple[Attachment, int]]) -> Sequence[Change]:
    """No further changes."""
    return ()


async def in_pieces(content: bytes, step: int = 70_000) -> AsyncIterator[bytes]:
    """A content as it arrives."""
    for at in range(0, len(content), step):
        yield content[at : at + step]


async def as_object(*parts: bytes) -> AsyncIterator[Sequence[bytes]]:
    """What a test puts into an object store by itself."""
    for part in parts:
        yield [part]


@dataclass
class Files:
    """Contacts with attachments."""

    contacts: Contacts
    objects: ObjectStore
    contents: Contents

    def owner(self, key: str = "a") -> Owner:
        """The record of that key, as the use cases take it."""
        return Owner(self.contacts.records, key)

    async def add(
        self, content: bytes, name: str = "cv.pdf", key: str = "a", mime: str = "text/plain"
    ) -> Attachment:
        """Upload a file."""
        incoming = IncomingFile(Label(name, mime), in_pieces(content))
        return await upload(self.contents, self.owner(key), incoming, nothing)

    async def put(
        self, content: bytes, name: str = "cv.pdf", key: str = "a", mime: str = "text/plain"
    ) -> Attachment:
        """Replace a file."""
        return await replace_attachment_of(
            self.contents, self.owner(key), IncomingFile(Label(name, mime), in_pieces(content))
        )

    async def read(
        self, file_id: str, start: int = 0, stop: int | None = None, key: str = "a"
    ) -> bytes:
        """Download a file, or a part of it."""
        opened = await download(self.contents, self.owner(key), file_id)
        stop = opened.attachment.size if stop is None else stop
        return b"".join([piece async for piece in opened.pieces(start, stop)])

    async def of(self, key: str = "a") -> tuple[Attachment, ...]:
        """What a search shows of a record."""
        row = await self.contacts.row(key)
        assert row is not None
        return (await attachments_of(self.contacts.records.collection, [row.rid])).get(row.rid, ())

    async def names(self) -> list[str]:
        """The objects that are there."""
        return [stored.name for shard in SHARDS for stored in await self.objects.listed(shard)]

    async def rows(self) -> list[File]:
        """The rows of all files."""
        return await self.contacts.store.file_scan(
            self.contacts.records.collection.table, b"", 1000
        )


async def make_files(
    store: Store | None = None, objects: ObjectStore | None = None, keyset: Keyset | None = None
) -> Files:
    """Two contacts, ``a`` and ``b``, without files."""
    contacts = await make_contacts(store, keyset)
    objects = objects or MemoryObjects()
    contents = await contacts.vault.keep_files(objects, LIMIT)
    await contacts.add(contact("a"), contact("b"))
    return Files(contacts, objects, contents)


def everything(folder: Path) -> bytes:
    """All bytes of all files of a folder, names included."""
    return b"".join(
        str(path).encode() + path.read_bytes() for path in folder.rglob("*") if path.is_file()
    )
