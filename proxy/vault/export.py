"""All records of a schema, page by page in the order of their age, while others write.

A page goes on after the last record of the one before, so no record that was there throughout is left out or comes twice,
whatever is created or deleted meanwhile; that is what a search with ``offset`` cannot promise.
"""

import asyncio
from typing import Generic, NamedTuple, TypeVar

from proxy.errors import Code
from proxy.model.limits import DEFAULTS, Limits
from proxy.model.record import Record
from proxy.storage.query import ALWAYS, All, Compare, Compared, Order, Select
from proxy.vault import cursors, telling
from proxy.vault.asking import opened
from proxy.vault.find import Asker, portion_of
from proxy.vault.records import Records
from proxy.vault.within import Verified, inside

_T = TypeVar("_T")

_UNUSABLE = (Code.INVALID_INPUT, "next")


class Exported(NamedTuple, Generic[_T]):
    """A page of records, each as it was rendered; how many of it do not open and are left out; the cursor of what comes after it.

    ``cut``: whether the page ends for its size.
    """

    records: list[_T]
    unreadable: int
    next: str | None
    cut: bool = False


async def export(
    records: Records, cursor: str | None, limit: int, asker: Asker[_T], limits: Limits = DEFAULTS
) -> Exported[_T]:
    """The page after that cursor, of what is there for the caller, or the first one.

    Raises ``VaultError(INVALID_INPUT)`` for a cursor that is not this client's.
    """
    collection, client = records.collection, asker.client or ""
    where = ALWAYS if cursor is None else Compared("@rid", Compare.GT, _place(records, cursor, client))
    room = limits.page_bytes if asker.room is None else min(limits.page_bytes, asker.room)
    select = Select(
        All((where, inside(records))), collection.clock(), (Order("@rid"),), limit, counted=False, room=room
    )
    stored = await collection.store.select(collection.table, select)
    rows, size = stored.rows, len(stored.rows)
    more = cursors.seal(records, b"%d" % rows[-1].rid, _context(records, client)) if stored.more else None
    rows.reverse()  # what was rendered is let go
    shown: list[_T] = []
    keys: list[str | None] = []
    guarded: list[Record] = []
    verified, unreadable = Verified(records, records.rights.rows), 0
    while rows:
        portion = portion_of(rows)
        opens = [record async for record in opened(records, portion) if record is not None]
        unreadable += len(portion) - len(opens)
        found = verified.only(opens)
        if records.gate is None:
            keys += [record.key for record in found]
            shown += map(asker.render, found)
        else:
            guarded += found
        del portion, opens, found
        if rows:
            await asyncio.sleep(0)
    if records.gate is not None:  # one question for the whole page
        permitted, unreadable = await records.permitted(guarded), 0
        keys, shown = [record.key for record in permitted], [asker.render(record) for record in permitted]
    telling.keys_shown(records, keys)
    return Exported(shown, unreadable, more, stored.more and size < limit)


def _place(records: Records, cursor: str, client: str) -> int:
    return int(cursors.opened(records, cursor, _context(records, client), _UNUSABLE))


def _context(records: Records, client: str) -> bytes:
    """What a cursor is bound to; not to the definition of the schema, which may change during a long export."""
    return b"export\x00%b\x00%b" % (client.encode(), records.name.encode())
