"""What no row names goes from the object store: objects that rows let go, and those that never got a row.

The first are doomed by the commit that let them go, and are removed in the next round. The second are what an upload leaves
behind whose process ended between object and row. They are looked for shard by shard, one each round, and only when they are
old: an upload that is under way has written its object, and not yet its row.
"""

from collections.abc import Callable, Iterable

from proxy.objectstore.base import SHARDS
from proxy.storage.base import Store
from proxy.vault.contents import Contents
from proxy.vault.registry import places

#: Milliseconds that an object without a row is left alone, and for which nothing is looked for after a start: somebody who
#: started with an older database by mistake has that long to notice.
GRACE = 3_600_000

#: Objects removed between two notes of it, and such batches a round.
_BATCH = 200
_BATCHES = 50
_PAGE = 1_000


class ObjectSweep:
    """The sweep of one object store. ``environments``: all that keep something there; what none of them names goes."""

    def __init__(
        self, contents: Contents, store: Store, environments: Callable[[], Iterable[str]], clock: Callable[[], int]
    ) -> None:
        self._contents = contents
        self._store = store
        self._environments = environments
        self._clock = clock
        self._began = clock()
        self._next = 0

    async def round(self) -> int:
        """One round of upkeep; how many objects were removed. Raises what store and object store raise."""
        removed = await self.doomed()
        if self._clock() - self._began < GRACE:
            return removed
        shard = SHARDS[self._next]
        self._next = (self._next + 1) % len(SHARDS)
        if self._next == 1:
            await self._contents.objects.clear(self._clock() - GRACE)
        return removed + await self.orphans(shard)

    async def doomed(self) -> int:
        """Remove what rows let go; how many."""
        removed = 0
        for _ in range(_BATCHES):
            names = await self._store.doomed(_BATCH)
            for name in names:
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
        )  # before the list: what is not in it now has its row already, or is young
        before = self._clock() - GRACE
        old = {found.name for found in await self._contents.objects.listed(shard) if found.at < before} - uploading
        for environment in self._environments():
            if old:
                old -= await named(self._store, environment, shard)
        for name in old:
            await self._contents.objects.delete(name)
        return len(old)


async def named(store: Store, environment: str, shard: str) -> set[str]:
    """The objects that rows name, of those whose file ids begin with these two digits."""
    found: set[str] = set()
    first = int(shard, 16)
    for table in (await places(store, environment)).values():
        after = ((first << 120) - 1).to_bytes(16, "big") if first else b""
        while True:
            page = await store.file_scan(table, after, _PAGE)
            found.update(file.object for file in page if file.file_id[0] == first)
            if len(page) < _PAGE or page[-1].file_id[0] != first:
                break
            after = page[-1].file_id
    return found
