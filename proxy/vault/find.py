"""Records that a caller asks for: the question goes to the engine, and the page that it answers is opened.

A row that does not open (changed, moved, under another key) is left out of a page and counted; asked for by its key alone, it
is an error. A question for one key takes the way of the proxy's own look-ups and costs no search.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.limits import DEFAULTS, Limits
from proxy.model.query import KEY, Equals, Query, Test
from proxy.model.record import Record
from proxy.storage.query import Order, Page, Select
from proxy.vault import telling
from proxy.vault.asking import FIXED, Asked, ask, opened
from proxy.vault.attached import with_attachments
from proxy.vault.records import Records
from proxy.vault.within import Verified

#: Records that a filter endpoint is asked about at once, and for one page.
ASKED = 1000
MOST_ASKED = 10_000

#: How often a page is asked for again because a record of it changed after it was opened for a partial match.
TRIES = 3


class Found(NamedTuple):
    """A page of records, with their attachments, in order; how many hold in all; how many of this page do not open and are left out."""

    records: list[Record]
    total: int
    unreadable: int


async def find(records: Records, query: Query, limits: Limits = DEFAULTS) -> Found:
    """The records for which all tests hold, and which are there for the caller.

    Raises ``VaultError``: ``CANNOT_OPEN`` for a record that was asked for by its key alone; ``CONFLICT`` when records kept
    losing or gaining a text that was searched for; ``TOO_BROAD`` also where a filter endpoint would have to be asked about more than
    ``MOST_ASKED`` records; else as ``asking.ask``.
    """
    query = msgspec.structs.replace(query, tests=(*query.tests, *records.rights.rows))
    key = _key_alone(query.tests)
    if key is not None:
        return await _one(records, key, query)
    if records.gate is not None:
        return await _allowed(records, query, limits)
    page = await _looked(records, query, limits, Verified(records, query.tests))
    return await _shown(records, page.records, page.total, page.unreadable)


class _Page(NamedTuple):
    """A page as it is stored."""

    records: list[Record]
    total: int  #: how many hold in all
    unreadable: int  #: how many of the page do not open
    rows: int  #: how many the engine found for the page


async def _looked(records: Records, query: Query, limits: Limits, verified: Verified) -> _Page:
    for _ in range(TRIES):
        asked = await ask(records, query.tests, limits)
        rows, total = await _page(records, query, asked)
        found = [record async for record in opened(records, rows) if record is not None]
        if all(map(asked.stands, found)):
            really = verified.only(found)
            total -= len(found) - len(really)
            return _Page(really, total, len(rows) - len(found), len(rows))
    raise VaultError(Code.CONFLICT, "Records changed while they were searched; ask again.")


async def _allowed(records: Records, query: Query, limits: Limits) -> Found:
    """The page of what a filter endpoint lets the caller read, and of nothing else.

    Were others counted and taken out afterwards, a page that lacks what it could have had would tell that one of them matches.
    So those before the page are asked about as well. Raises ``VaultError`` (TOO_BROAD) where they are too many.
    """
    seen = set[int]()
    found: list[Record] = []
    verified = Verified(records, query.tests)
    place, end = 0, query.offset + query.limit
    size = min(end, ASKED)  # what is asked where all of it is allowed
    while len(seen) < end:
        page = msgspec.structs.replace(query, offset=place, limit=size)
        stored = await _looked(records, page, limits, verified)
        for record in await records.permitted(stored.records):
            if query.offset <= len(seen) < end and record.rid not in seen:
                found.append(record)
            seen.add(record.rid)
        if stored.rows < size:
            break
        place, size = place + size, ASKED
        if place >= MOST_ASKED and len(seen) < end:
            raise VaultError(
                Code.TOO_BROAD,
                f"The filter endpoint would have to be asked about more than {MOST_ASKED:,} records; add conditions, or export.",
            )
    return await _told(records, found)


def _key_alone(tests: Sequence[Test]) -> str | None:
    """The record key, where one is all that was asked for."""
    if len(tests) != 1 or not isinstance(test := tests[0], Equals):
        return None
    if test.field != KEY or test.negated or len(test.values) != 1:
        return None
    key: str | None = test.values[0]
    return key


async def _one(records: Records, key: str, query: Query) -> Found:
    rows = await records.collection.by_key((key,))
    shown = [records.open(row) for row in rows.values()] if query.offset == 0 else []
    return await _shown(records, shown, len(rows), 0)


async def _shown(records: Records, found: list[Record], total: int, unreadable: int) -> Found:
    """The page; where a filter endpoint decides, with no word about what it does not allow (specification, "Frontend calls")."""
    if records.gate is not None:
        return await _told(records, await records.permitted(found))
    telling.shown(records, found)
    return Found(await with_attachments(records, found), total, unreadable)


async def _told(records: Records, found: list[Record]) -> Found:
    telling.shown(records, found)
    return Found(await with_attachments(records, found), len(found), 0)


async def _page(records: Records, query: Query, asked: Asked) -> Page:
    collection = records.collection
    order = tuple(Order(_column(records, key.field), key.descending) for key in query.sort)
    select = Select(asked.where, collection.clock(), order, query.limit, query.offset)
    return await collection.store.select(collection.table, select)


def _column(records: Records, name: str) -> str:
    return FIXED.get(name) or records.column(name)
