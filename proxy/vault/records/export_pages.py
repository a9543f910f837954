"""Export of all records of a schema, page by page in the order of their age, during writes.

A page continues after the last record of the one before, so no permanent record is left out or
repeated, whatever is created or deleted meanwhile; a search with ``offset`` cannot promise that.
"""

import asyncio
from typing import Generic, NamedTuple, TypeVar

from proxy.errors import Code
from proxy.model.record import DEFAULTS, Record, RecordLimits
from proxy.storage.query import All, Compare, Compared, Order, Select
from proxy.vault.records.find import PageAsker, Render, portion_of
from proxy.vault.records.opening import ShownRoom, open_records
from proxy.vault.records.query import open_cursor
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import Verified, permitted_rows, undoubted

_T = TypeVar("_T")

_UNUSABLE = (Code.INVALID_INPUT, "next")


class Exported(NamedTuple, Generic[_T]):
    """A page of rendered records; the number of unreadable ones left out; the next cursor; whether
    it ends for its size.
    """

    records: list[_T]
    unreadable: int
    next: str | None
    cut: bool = False


async def export(
    records: Records,
    cursor: str | None,
    limit: int,
    asker: PageAsker[_T],
    limits: RecordLimits = DEFAULTS,
) -> Exported[_T]:
    """Return the page of visible records after that cursor, or the first one. Raises
    ``VaultError(INVALID_INPUT)`` for a cursor that is not this client's.
    """
    client, room = asker.client or "", min(limits.page_bytes, asker.room or limits.page_bytes)
    after = 0 if cursor is None else _first_rid(records, cursor, client)
    part = await _exported(records, after, (limit, room), asker.render)
    rendered, unreadable, last, size = part.rendered, part.unreadable, part.last, part.size
    cut = part.more and size < limit
    if records.rights.view is not None:
        limited, rendered, unreadable = ShownRoom(room), list[_T](), 0
        while (end := limited.end(part.rendered, more=part.more)) is None:
            rendered += part.rendered
            unreadable, last = unreadable + part.unreadable, part.last
            cut = False
            if not part.more or size >= limit:
                break
            part = await _exported(records, last, (limit - size, room), asker.render)
            size += part.size
        else:
            rendered, last, cut = rendered + part.rendered[:end], part.rids[end - 1], True
    more = records.cursors.seal(b"%d" % last, _context(records, client))
    return Exported(rendered, unreadable, more if cut or part.more else None, cut)


class _Part(NamedTuple, Generic[_T]):
    """Rendered records of one read, and their ids; the id of its last row, and how many it has."""

    rendered: list[_T]
    rids: list[int]
    unreadable: int
    last: int
    size: int
    more: bool


async def _exported(
    records: Records, after: int, span: tuple[int, int], render: Render[_T]
) -> _Part[_T]:
    """The records behind that id; ``span``: how many rows at most, and their bytes."""
    collection = records.collection
    where = All((Compared("@rid", Compare.GT, after), permitted_rows(records)))
    order, now = (Order("@rid"),), collection.clock()
    select = Select(where, now, order, span[0], counted=False, room=span[1])
    stored = await collection.store.select(collection.table, select)
    rows, size = stored.rows, len(stored.rows)
    last = rows[-1].rid if rows else after
    rows.reverse()  # rendered records are released
    rendered: list[_T] = []
    pairs: list[tuple[str | None, int]] = []
    guarded: list[Record] = []
    verified, unreadable = Verified(records, records.rights.rows), 0
    while rows:
        portion = portion_of(rows)
        opens = await open_records(records, portion)
        unreadable += len(portion) - len(opens)
        verified_records = await undoubted(records, portion, verified.only(opens))
        if records.gate is None:
            pairs += [(record.key, record.rid) for record in verified_records]
            rendered += map(render, verified_records)
        else:
            guarded += verified_records
        del portion, opens, verified_records
        if rows:
            await asyncio.sleep(0)
    if records.gate is not None:  # one question for all of them
        permitted, unreadable = await records.permitted(guarded), 0
        pairs = [(record.key, record.rid) for record in permitted]
        rendered = [render(record) for record in permitted]
    records.note_shown([key for key, _ in pairs])
    return _Part(rendered, [rid for _, rid in pairs], unreadable, last, size, stored.more)


def _first_rid(records: Records, cursor: str, client: str) -> int:
    return int(open_cursor(records, cursor, _context(records, client), _UNUSABLE))


def _context(records: Records, client: str) -> bytes:
    """Return the context of a cursor; the schema may change during a long export."""
    return b"export\x00%b\x00%b" % (client.encode(), records.name.encode())
