"""Copies a vault from one store to another: every table with all its parts, and the notes.

A copy may resume after any interruption: differing rows are removed from the target first, then
missing ones are added. So no order of changes violates a unique index, and a second copy takes only
what has changed since the first one.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

from proxy.errors import Code, VaultError
from proxy.storage.base import TABLE_PARTS, OpenStore, RawRow, RawTables, TablePart
from proxy.storage.notes import NoteWrite
from proxy.storage.rows import TableLayout

#: Rows that are read, compared and written in one go.
_PAGE: Final = 1_000

#: Told the name of a part and how many more of its rows were looked at.
RowProgress = Callable[[str, int], object]


async def copy_vault(source: OpenStore, target: OpenStore, progress: RowProgress) -> Counter[str]:
    """Make the target equal to the source, except for its notes of the move itself; return changed
    rows by part.

    No other process may write to either.
    """
    changed: Counter[str] = Counter()
    tables = {layout.table: layout for layout in await source.raw().layouts()}
    for layout in await target.raw().layouts():
        if layout.table not in tables:
            await target.drop(layout.table)
            changed["tables"] += 1
    for layout in tables.values():
        await target.ensure(layout)
        for name in TABLE_PARTS:
            changed[name] += await _copy_part(source, target, (layout, name), progress)
    await target.raw().put_tallies(await source.raw().tallies())
    changed["notes"] = await _copy_notes(source, target)
    return +changed


async def count_differences(
    source: OpenStore, target: OpenStore, progress: RowProgress
) -> Counter[str]:
    """Count the rows of each part, and the notes, that differ; ``rows``: those that are equal."""
    counts: Counter[str] = Counter()
    tables = await source.raw().layouts()
    others = await target.raw().layouts()
    counts["tables"] = len({one.table for one in tables} ^ {one.table for one in others})
    for layout in tables:
        await target.ensure(layout)
        for name, part in TABLE_PARTS.items():
            streams = [_rows(store.raw(), layout, part) for store in (source, target)]
            async for here, there in _merged(part.key, *streams):
                counts[name if here != there else "rows"] += 1
                progress(name, 1)
    counts["notes"] = len(_unequal(await _notes(source), await _notes(target)))
    return +counts


async def verify_copy(source: OpenStore, target: OpenStore, progress: RowProgress) -> int:
    """Compare every row of both; how many there are. Raises ``VaultError(BAD_STORE)``."""
    counts = await count_differences(source, target, progress)
    rows = counts.pop("rows", 0)
    if counts:
        what = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
        raise VaultError(Code.BAD_STORE, f"The copy of the vault differs ({what}): copy it again.")
    return rows


#: Notes of a move, which are about one of the stores.
MOVED, INCOMING = "moved", "incoming"


async def _copy_part(
    source: OpenStore, target: OpenStore, what: tuple[TableLayout, str], progress: RowProgress
) -> int:
    layout, name = what
    part = TABLE_PARTS[name]
    sides = source.raw(), target.raw()
    gone: list[RawRow] = []
    added: list[RawRow] = []
    changed = 0
    if await sides[1].page(layout, part, None, 1):
        async for here, there in _merged(part.key, *(_rows(one, layout, part) for one in sides)):
            if there is not None and here != there:
                gone.append(there[: part.key])
                changed += 1
            if len(gone) == _PAGE:
                await sides[1].replace(layout, part, gone, ())
                gone.clear()
        await sides[1].replace(layout, part, gone, ())
    async for here, there in _merged(part.key, *(_rows(one, layout, part) for one in sides)):
        progress(name, here is not None)
        if there is None and here is not None:
            added.append(here)
            changed += 1
        if len(added) == _PAGE:
            await sides[1].replace(layout, part, (), added)
            added.clear()
    await sides[1].replace(layout, part, (), added)
    return changed


async def _rows(tables: RawTables, layout: TableLayout, part: TablePart) -> AsyncIterator[RawRow]:
    """All rows of a part, by their keys."""
    after: RawRow | None = None
    while page := await tables.page(layout, part, after, _PAGE):
        for row in page:
            yield row
        if len(page) < _PAGE:
            return
        after = page[-1][: part.key]


async def _merged(
    key: int, one: AsyncIterator[RawRow], other: AsyncIterator[RawRow]
) -> AsyncIterator[tuple[RawRow | None, RawRow | None]]:
    """Pair the rows of both by key; ``None`` if one has none."""
    here, there = await anext(one, None), await anext(other, None)
    while here is not None or there is not None:
        if there is None or (here is not None and here[:key] < there[:key]):
            yield here, None
            here = await anext(one, None)
        elif here is None or there[:key] < here[:key]:
            yield None, there
            there = await anext(other, None)
        else:
            yield here, there
            here, there = await anext(one, None), await anext(other, None)


async def _notes(store: OpenStore) -> dict[str, bytes]:
    notes = await store.read_notes()
    return {name: content for name, content in notes.items() if name not in (MOVED, INCOMING)}


def _unequal(notes: dict[str, bytes], others: dict[str, bytes]) -> list[str]:
    return sorted(name for name in notes | others if notes.get(name) != others.get(name))


async def _copy_notes(source: OpenStore, target: OpenStore) -> int:
    notes, others = await _notes(source), await _notes(target)
    names = _unequal(notes, others)
    await target.write_notes([NoteWrite(name, notes.get(name), others.get(name)) for name in names])
    return len(names)
