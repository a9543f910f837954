"""Re-encryption under the current data key, page by page.

Ciphertexts are replaced only if unchanged (``ReplaceCiphertext``): reads, writes and deletes never
wait, and a writer uses the current key anyway. Salts, versions and times stay, so nothing becomes
visible, and deleting a salt still shreds everything below it. The content of a file becomes another
object, by the commit that releases the old one; under the record's lock, as every change of a file.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from proxy.auth.sealed_notes import seal_again
from proxy.errors import CannotOpen
from proxy.objectstore.base import NoObject
from proxy.storage.changes import Change, Conflict, ReplaceCiphertext, SealedPart, UpdateFile
from proxy.storage.rows import File, Past, Row
from proxy.vault.attachment_content import Contents
from proxy.vault.column_binding import sealed_again
from proxy.vault.records.attachment_metadata import kept_of, rekept
from proxy.vault.seal import Sealer
from proxy.vault.vault import Vault

#: Rows, past versions and files of one page. A page of rows is one commit, so that others need not
#: wait long for theirs.
_ROWS: Final = 100
_FILES: Final = 8

_NO_VERSION: Final = -1  # smaller than any


class SealedTable(NamedTuple):
    """A table under re-encryption."""

    vault: Vault
    table: str
    sealer: Sealer


class PageResult(NamedTuple):
    """Result of one page."""

    after: str  #: where the next one begins; opaque
    looked: int  #: how many things that was
    unreadable: int  #: of them, those that do not open; they stay as they are


#: Re-encrypts one page; ``None``: none after that position. Raises the errors of the store and the
#: object store.
Turn = Callable[[SealedTable, str], Awaitable[PageResult | None]]


async def records(subject: SealedTable, after: str) -> PageResult | None:
    """Rows: bodies, keys, staged changes, and metadata of their files."""
    store = subject.vault.store
    rows = await store.scan(subject.table, int(after or 0), _ROWS)
    if not rows:
        return None
    changes, unreadable = await sealed_again(store, subject.table, subject.sealer, rows)
    await _commit(subject, changes)
    return PageResult(str(rows[-1].rid), len(rows), unreadable)


async def versions(subject: SealedTable, after: str) -> PageResult | None:
    """Past versions."""
    rid, _, version = after.partition(".")
    pasts = await subject.vault.store.past_scan(
        subject.table, (int(rid or 0), int(version or _NO_VERSION)), _ROWS
    )
    if not pasts:
        return None
    changes: list[Change] = []
    unreadable = 0
    for past in pasts:
        try:
            changes += past_anew(subject.sealer, past)
        except CannotOpen:
            unreadable += 1
    await _commit(subject, changes)
    return PageResult(f"{pasts[-1].rid}.{pasts[-1].version}", len(pasts), unreadable)


async def contents(subject: SealedTable, after: str) -> PageResult | None:
    """The contents of files, piece by piece, whatever their size.

    Nothing where the vault has no place for them.
    """
    files = await subject.vault.store.file_scan(subject.table, bytes.fromhex(after), _FILES)
    if not files or subject.vault.contents is None:
        return None
    unreadable = 0
    for file in files:
        try:
            await _content(subject, subject.vault.contents, file)
        except NoObject:
            unreadable += await _still(subject, file)
        except CannotOpen:
            unreadable += 1
    await asyncio.sleep(0)
    return PageResult(files[-1].file_id.hex(), len(files), unreadable)


async def notes(vault: Vault) -> int:
    """The sealed notes of the environment: clients, policies, and the like.

    How many do not open.
    """
    unreadable = 0
    for name in await vault.store.notes(f":{vault.environment}"):
        try:
            await seal_again(vault.store, vault.keyset.aead(), name)
        except CannotOpen:
            unreadable += 1
    return unreadable


def past_anew(sealer: Sealer, past: Past) -> list[Change]:
    """Return the change that re-encrypts a past version; empty if it is current.

    Raises ``VaultError(CANNOT_OPEN)``.
    """
    body = sealer.past_again(past)
    return (
        []
        if body is past.body
        else [ReplaceCiphertext(SealedPart.PAST, (past.rid, past.version), (past.body,), (body,))]
    )


async def _content(subject: SealedTable, kept_in: Contents, file: File) -> None:
    """Re-encrypt one content, unless it is replaced, moved or deleted meanwhile.

    Raises as ``Contents.again``.
    """
    if await kept_in.current(file.object):
        return None
    row = await _row(subject, file)
    if row is None:
        return None
    locks = subject.vault.state(subject.table).locks
    async with (
        kept_in.again(kept_of(subject.sealer, row, file), subject.sealer.scope) as fresh,
        locks.hold(() if row.key is None else (row.key,)),
    ):
        now, current = await _row(subject, file), await _file(subject, file)
        if now is None or now.key != row.key or current is None or current.object != file.object:
            return await kept_in.drop(fresh.object)
        change = UpdateFile(rekept(subject.sealer, now, current, fresh), now.rid, file.object)
        try:
            await subject.vault.store.commit(subject.table, (change,))
        except Conflict:
            await kept_in.drop(fresh.object)


async def _row(subject: SealedTable, file: File) -> Row | None:
    return (await subject.vault.store.rows(subject.table, [file.rid])).get(file.rid)


async def _file(subject: SealedTable, file: File) -> File | None:
    """The file as it is now, where it is still the same row's."""
    files = (await subject.vault.store.files(subject.table, [file.rid])).get(file.rid, ())
    return next((one for one in files if one.file_id == file.file_id), None)


async def _still(subject: SealedTable, file: File) -> bool:
    """Whether a file still names an object that is missing; else it was replaced or deleted."""
    current = await _file(subject, file)
    return current is not None and current.object == file.object


async def _commit(subject: SealedTable, changes: Sequence[Change]) -> None:
    if changes:
        await subject.vault.store.commit(subject.table, changes)
    await asyncio.sleep(0)
