"""Database and object store belong together: each has the mark of the other.

A vault removes objects that no row of its database names. Given the object store of another vault, or a database older than
its objects, it would remove what somebody still needs; given an empty folder in place of a disk that is not mounted, it would
keep new files where nobody looks for them. So both are marked, and a start refuses what does not belong together.
"""

from proxy.crypto.randomness import random_bytes
from proxy.errors import Code, VaultError
from proxy.objectstore.base import SHARDS, ObjectStore
from proxy.storage.base import Store

_NOTE = "files"
_FOREIGN = (
    "The files (setting files) belong to another vault than the database (setting store): name the two that belong together, "
    "or give the files of this vault a place of their own."
)
_EMPTY = (
    "The files of this vault are not where the setting files says: mount their disk, restore them from a backup, or move "
    "them there. If they are lost for good, write the line {mark} to a file named owner in that folder; the vault then starts "
    "without them."
)


async def belong(objects: ObjectStore, store: Store) -> None:
    """Mark both where they are new. Raises as ``check``.

    The object store is marked first: what a start that ended in between leaves is an empty object store with a mark.
    """
    await check(objects, store)
    if await store.note(_NOTE) is not None:
        return
    mark = await objects.owner()
    if mark is None:
        mark = random_bytes(16).hex()
        await objects.claim(mark)
    await store.put_note(_NOTE, mark.encode(), None)


async def check(objects: ObjectStore | None, store: Store) -> None:
    """Raise ``VaultError`` (BAD_STORE) unless the two belong together, or both are new. ``None``: there is no object store yet."""
    note, mark = await store.note(_NOTE), None if objects is None else await objects.owner()
    if note is None:
        if objects is not None and mark is not None and await _used(objects):
            raise VaultError(Code.BAD_STORE, _FOREIGN)
    elif mark is None:
        raise VaultError(Code.BAD_STORE, _EMPTY.format(mark=note.decode()))
    elif mark != note.decode():
        raise VaultError(Code.BAD_STORE, _FOREIGN)


async def _used(objects: ObjectStore) -> bool:
    for shard in SHARDS:
        if await objects.listed(shard):
            return True
    return False
