"""Fields that rules make searchable later: one pass adds the index entries of existing records.

Records that are written meanwhile have it already. Until the pass is done a search would miss
records, and ``TableState.filling`` says so. A note of the store tells for which fields a table
is filled; another process that finds none, or of others, fills it once more.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from proxy.errors import VaultError
from proxy.storage.changes import Change, Reindex, Replace
from proxy.storage.rows import Row
from proxy.vault.collection import Collection
from proxy.vault.job import JobProgress, Pass

#: Seconds before a pass resumes after a fault of the store.
_RETRY = 1.0


class Filling:
    """The passes of one vault, at most one for each table."""

    def __init__(self, report: Callable[[VaultError], None]) -> None:
        self._report = report
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, collection: Collection) -> None:
        """Fill a collection that rules have just declared, where it is not filled."""
        if (running := self._tasks.pop(collection.table, None)) is not None:
            running.cancel()
        state, store = collection.state, collection.store
        wanted = _searchable(collection)
        stored = await store.note(_note(collection))
        state.filling = False
        if stored == wanted or (stored is None and not collection.schema.column_fields):
            return
        if (await store.count(collection.table))[0] == 0:
            await store.put_note(_note(collection), wanted, stored)
            return
        state.filling = True
        self._tasks[collection.table] = asyncio.create_task(
            self._fill(collection, wanted, again=stored is not None)
        )

    async def close(self) -> None:
        """Stop; the pass resumes at the next start."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def done(self) -> None:
        """Wait until every table is filled."""
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks.values())

    async def _fill(self, collection: Collection, wanted: bytes, *, again: bool) -> None:
        def filled(row: Row) -> Sequence[Change]:
            return _changes(collection, row, again=again)

        while True:
            try:
                progress = JobProgress()
                await Pass(collection, wanted.decode(), progress, kind="filling").run(filled)
                stored = await collection.store.note(_note(collection))
                await collection.store.put_note(_note(collection), wanted, stored)
            except VaultError as error:
                self._report(error)
                await asyncio.sleep(_RETRY)
            else:
                collection.state.filling = False
                return


def _changes(collection: Collection, row: Row, *, again: bool) -> Sequence[Change]:
    """Return the changes that make a row findable by its fields; ``again``: by no others."""
    content = collection.sealer.open(row)
    cells = collection.cells(content)
    changes: list[Change] = []
    if cells != row.cells:
        filled = collection.sealer.with_body(row._replace(cells=cells), content)
        changes.append(Replace(filled, row.version))
    hashes = collection.parts.hashes(content)
    leftovers = collection.parts.leftovers(content) - hashes if again else set[bytes]()
    if hashes or leftovers:
        changes.append(Reindex(row.rid, tuple(hashes), tuple(leftovers)))
    return changes


def _searchable(collection: Collection) -> bytes:
    """Return a digest of the set of searchable fields."""
    fields = [
        (field.name, field.storage, field.kind, field.hashed_parts)
        for field in collection.schema.column_fields
    ]
    return hashlib.sha256(msgspec.json.encode(fields)).hexdigest().encode()


def _note(collection: Collection) -> str:
    return f"searchable/{collection.name}:{collection.context.environment}"
