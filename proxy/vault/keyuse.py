"""What each data key has sealed of everything that an environment keeps: a complete look, page by page.

Nothing is opened, for everything begins with the id of its key. What was let go counts no more: answers that have expired, and objects
that no row names. Tables of schemas that nobody declares any more count as all others do. A content that is missing may come back from a
backup, and nobody knows which key it needs: it counts for every older one.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final, NamedTuple

from proxy.crypto.aead import SALT_BYTES, sealed_by
from proxy.objectstore.base import NoObject
from proxy.storage.rows import File
from proxy.vault.registry import places
from proxy.vault.vault import Vault

#: What is counted, in the order in which it is told.
KINDS: Final = ("records", "versions", "staged", "attachments", "contents", "replies", "notes")

_PAGE: Final = 500
_FILES: Final = 50
_NO_VERSION: Final = -1  # smaller than any


class Use(NamedTuple):
    """What a complete look has found."""

    counted: dict[str, Counter[str]]  #: by id of the key: how many of each kind, where there are any
    until: dict[str, int]  #: by id of the key: when the last answer that it has sealed expires

    def of(self, key: str) -> Counter[str]:
        """What a key has sealed."""
        return self.counted.get(key, Counter())


async def look(vault: Vault) -> Use:
    """Look at everything. Raises what the store and the object store raise."""
    use = Use({}, {})
    await vault.wake()
    for table in (await places(vault.store, vault.environment)).values():
        await _table(vault, table, use)
    for name in await vault.store.notes(f":{vault.environment}"):
        note = await vault.store.note(name)
        if note is not None and vault.keyset.aead().knows(note[SALT_BYTES:]):
            _count(use, "notes", [note[SALT_BYTES:]])
    return use


async def _table(vault: Vault, table: str, use: Use) -> None:
    store, rid = vault.store, 0
    while rows := await store.scan(table, rid, _PAGE):
        for row in rows:
            _count(use, "records", [row.body, *([row.key_sealed] if row.key_sealed else [])])
        staged = await store.staged(table, [row.rid for row in rows if row.staged])
        for change in (one for found in staged.values() for one in found if one.body):
            _count(use, "staged", [change.body])
        rid = rows[-1].rid
        await asyncio.sleep(0)
    place = (0, _NO_VERSION)
    while pasts := await store.past_scan(table, place, _PAGE):
        for past in pasts:
            _count(use, "versions", [past.body])
        place = pasts[-1].rid, pasts[-1].version
        await asyncio.sleep(0)
    await _replies(vault, table, use)
    async for files in _files(vault, table):
        for file in files:
            _count(use, "attachments", [file.sealed])
        for sealed in await _headers(vault, table, files):
            if sealed is not None:
                _count(use, "contents", [sealed])
                continue
            for key in vault.keyset.data_keys[:-1]:
                use.counted.setdefault(key, Counter())["contents"] += 1


async def _replies(vault: Vault, table: str, use: Use) -> None:
    key, now = b"", vault.clock()
    while replies := await vault.store.reply_scan(table, key, _PAGE):
        for reply in replies:
            if reply.sealed and reply.expires_at > now:
                sealed = reply.sealed[SALT_BYTES:]
                _count(use, "replies", [sealed])
                by = sealed_by(sealed)
                use.until[by] = max(use.until.get(by, 0), reply.expires_at)
        key = replies[-1].key
        await asyncio.sleep(0)


async def _files(vault: Vault, table: str) -> AsyncIterator[Sequence[File]]:
    after = b""
    while files := await vault.store.file_scan(table, after, _FILES):
        yield files
        after = files[-1].file_id
        await asyncio.sleep(0)


async def _headers(vault: Vault, table: str, files: Sequence[File]) -> list[bytes | None]:
    """What each content begins with; ``None`` for one that is missing. One that was replaced or deleted meanwhile is left out."""
    found: list[bytes | None] = []
    for file in files:
        try:
            found.append(None if vault.contents is None else await vault.contents.header(file.object))
        except NoObject:
            held = (await vault.store.files(table, [file.rid])).get(file.rid, ())
            if any(other.object == file.object for other in held):
                found.append(None)
    return found


def _count(use: Use, kind: str, sealed: Collection[bytes]) -> None:
    """Count one thing for every key that has sealed a part of it."""
    for key in {sealed_by(part) for part in sealed}:
        use.counted.setdefault(key, Counter())[kind] += 1
