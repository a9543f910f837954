"""Removal of objects that no row names: released ones, and those that never got a row.

The first are marked by the commit that released them, and removed in the next round. The second are
left by an upload whose process ended between object and row. They are searched for shard by shard,
one each round, and only if they are old: a running upload has written its object, and not yet its
row.
"""

from collections.abc import Callable, Iterable

from proxy.crypto.prf import random_bytes
from proxy.errors import Code, VaultError
from proxy.objectstore.base import OBJECT_NAME, SHARDS, ObjectStore
from proxy.storage.base import Store
from proxy.vault.attachment_content import Contents
from proxy.vault.schema_store import placed_schemas

#: Milliseconds for which an object without a row is kept, and for which no cleanup runs after a
#: start: an operator who started with an older database by mistake has that long to notice.
ORPHAN_AGE = 3_600_000

#: Objects removed between two notes of it, and such batches a round.
_BATCH = 200
_BATCHES = 50
_PAGE = 1_000


class ObjectCleanup:
    """The cleanup of one object store.

    ``environments``: all that keep something there; what none of them names goes.
    """

    def __init__(
        self,
        contents: Contents,
        store: Store,
        environments: Callable[[], Iterable[str]],
        clock: Callable[[], int],
    ) -> None:
        self._contents = contents
        self._store = store
        self._environments = environments
        self._clock = clock
        self._began = clock()
        self._next = 0

    async def round(self) -> int:
        """Run one round of maintenance; return the number of removed objects.

        Raises what store and object store raise.
        """
        removed = await self.doomed()
        if self._clock() - self._began < ORPHAN_AGE:
            return removed
        shard = SHARDS[self._next]
        self._next = (self._next + 1) % len(SHARDS)
        if self._next == 1:
            await self._contents.objects.clear(self._clock() - ORPHAN_AGE)
        return removed + await self.orphans(shard)

    async def doomed(self) -> int:
        """Remove objects that rows released; return the number."""
        removed = 0
        for _ in range(_BATCHES):
            names = await self._store.doomed(_BATCH)
            for name in filter(OBJECT_NAME.fullmatch, names):  # the store may have been written to
                await self._contents.objects.delete(name)
            if names:
                await self._store.absolve(names)
                removed += len(names)
            if len(names) < _BATCH:
                break
        return removed

    async def orphans(self, shard: str) -> int:
        """Remove the old objects of a shard that no row names; how many."""
        uploading = (
            self._contents.uploading()
        )  # before the list: an object missing in it now has its row already, or is young
        before = self._clock() - ORPHAN_AGE
        old = {
            listed.name
            for listed in await self._contents.objects.listed(shard)
            if listed.at < before
        } - uploading
        for environment in self._environments():
            if old:
                old -= await named_objects(self._store, environment, shard)
        for name in old:
            await self._contents.objects.delete(name)
        return len(old)


async def named_objects(store: Store, environment: str, shard: str) -> set[str]:
    """The objects that rows name, of those whose file ids begin with these two digits."""
    names: set[str] = set()
    first = int(shard, 16)
    for table in (await placed_schemas(store, environment)).values():
        after = ((first << 120) - 1).to_bytes(16, "big") if first else b""
        while True:
            page = await store.file_scan(table, after, _PAGE)
            names.update(file.object for file in page if file.file_id[0] == first)
            if len(page) < _PAGE or page[-1].file_id[0] != first:
                break
            after = page[-1].file_id
    return names


# Pairing of database and object store: each has the mark of the other.
#
# A vault removes objects that no row of its database names. With the object store of another vault,
# or a database older than its objects, it would remove needed ones; with an empty folder in place
# of an unmounted disk, it would lose new files there. So both are marked, and a start refuses a
# wrong pair.

#: The note with the mark of the object store.
PAIR_NOTE = "files"
_FOREIGN = (
    "The files (setting files) belong to another vault than the database (setting store): name the "
    "two that belong together, or give the files of this vault a place of their own."
)
_EMPTY = (
    "The files of this vault are not where the setting files says: mount their disk, restore "
    "them from a backup, or move "
    "them there. If they are lost for good, write the line {mark} to a file named owner in that "
    "folder; the vault then starts "
    "without them."
)


async def mark_pair(objects: ObjectStore, store: Store) -> None:
    """Mark both where they are new. Raises as ``check``.

    The object store is marked first: an interrupted start leaves an empty object store with a mark.
    """
    await check_pair(objects, store)
    if await store.note(PAIR_NOTE) is not None:
        return
    mark = await objects.owner()
    if mark is None:
        mark = random_bytes(16).hex()
        await objects.claim(mark)
    await store.put_note(PAIR_NOTE, mark.encode(), None)


async def check_pair(objects: ObjectStore | None, store: Store) -> None:
    """Raise ``VaultError`` (BAD_STORE) unless the two belong together, or both are new.

    ``None``: there is no object store yet.
    """
    note, mark = await store.note(PAIR_NOTE), None if objects is None else await objects.owner()
    if note is None:
        if objects is not None and await belong_to_a_vault(objects):
            raise VaultError(Code.BAD_STORE, _FOREIGN)
    elif mark is None:
        raise VaultError(Code.BAD_STORE, _EMPTY.format(mark=note.decode()))
    elif mark != note.decode():
        raise VaultError(Code.BAD_STORE, _FOREIGN)


async def belong_to_a_vault(objects: ObjectStore) -> bool:
    """Whether a vault has marked that place and keeps contents there."""
    if await objects.owner() is None:
        return False
    for shard in SHARDS:
        if await objects.listed(shard):
            return True
    return False
