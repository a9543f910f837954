"""All records of a schema, page by page in the order of their age, while others write.

A page goes on after the last record of the one before, so no record that was there throughout is left out or comes twice,
whatever is created or deleted meanwhile; that is what a search with ``offset`` cannot promise.
"""

from typing import NamedTuple

from proxy.errors import Code, Detail, VaultError
from proxy.model.record import Record
from proxy.storage.query import ALWAYS, All, Compare, Compared, Order, Select
from proxy.vault import telling
from proxy.vault.asking import opened
from proxy.vault.records import Records
from proxy.vault.within import Verified, inside


class Exported(NamedTuple):
    """A page of records; how many of it do not open and are left out; the cursor of what comes after it, if there is more."""

    records: list[Record]
    unreadable: int
    next: str | None


async def export(records: Records, cursor: str | None, limit: int, client: str) -> Exported:
    """The page after that cursor, of what is there for the caller, or the first one. Raises ``VaultError(INVALID_INPUT)`` for a cursor that is not this client's."""
    collection = records.collection
    where = ALWAYS if cursor is None else Compared("@rid", Compare.GT, _place(records, cursor, client))
    select = Select(All((where, inside(records))), collection.clock(), (Order("@rid"),), limit + 1, counted=False)
    rows = (await collection.store.select(collection.table, select)).rows
    page = rows[:limit]
    found = [record async for record in opened(records, page) if record is not None]
    unreadable = len(page) - len(found)
    found = Verified(records, records.rights.rows).only(found)
    if records.gate is not None:
        found, unreadable = await records.permitted(found), 0
    telling.shown(records, found)
    more = records.cursors.seal(str(page[-1].rid).encode(), _context(records, client)) if len(rows) > limit else None
    return Exported(found, unreadable, more)


def _place(records: Records, cursor: str, client: str) -> int:
    try:
        return int(records.cursors.open(cursor, _context(records, client)))
    except VaultError:
        raise VaultError(
            Code.INVALID_INPUT,
            "The cursor cannot be used: it was changed, or belongs to another client or schema; begin anew.",
            (Detail("next", "Is no cursor of this client for this schema."),),
        ) from None


def _context(records: Records, client: str) -> bytes:
    """What a cursor is bound to; another than that of aggregations."""
    return b"export\x00%b\x00%b" % (client.encode(), records.name.encode())
