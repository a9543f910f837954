"""Records that a caller asks for: the question goes to the engine, and the page that it answers is
opened.

A row that does not open (changed, moved, under another key) is left out of a page and counted;
asked for by its key alone, it is an error. A question for one key takes the way of the proxy's own
look-ups and costs no search.

A page ends at its limit or at its size, whichever comes first. Its cursor has the position of its
last row in the order of the query: concurrent creates and deletes move nothing. Rows are opened,
verified and rendered a few at a time, so that memory holds the sealed rows of a page and their
rendered form, but never all records as objects.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.query import KEY, Equals, Query, Test
from proxy.model.record import DEFAULTS, Record, RecordLimits
from proxy.offload import busy, give_way, run_in_thread
from proxy.storage.query import Order, RowPage, Select, Where
from proxy.storage.rows import ColumnValue, Row
from proxy.vault.collection import LONG
from proxy.vault.records.attachment_metadata import with_attachments
from proxy.vault.records.opening import (
    OPENED,
    ShownRoom,
    open_records,
    remember_shown,
    shown_lately,
    shown_size,
)
from proxy.vault.records.query import BUILT_IN_COLUMNS, compile_query, cursor_context, open_cursor
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import Verified, undoubted

#: Records per question to a filter endpoint, and for one page.
ASKED_AT_ONCE = 1000
MOST_ASKED = 10_000
#: Bytes of sealed rows that are opened at once.
PORTION = 2**20

#: Repetitions of a page because a record changed after it was opened for a partial match.
PAGE_TRIES = 3

_T = TypeVar("_T")
#: Rendering of each record of a page.
Render = Callable[[Record], _T]

_UNUSABLE = (Code.INVALID_OPTIONS, "/options/next")
_write = msgspec.json.Encoder(decimal_format="string").encode


class FoundPage(NamedTuple, Generic[_T]):
    """A page of records, with their attachments, in order, each as it was rendered.

    ``total``: number of matches when the first page was requested; ``unreadable``: records of this
    page that do not open and are left out; ``next``: the cursor of the next page, if there is one;
    ``cut``: whether the page ends for its size.
    """

    records: list[_T]
    total: int
    unreadable: int
    next: str | None = None
    cut: bool = False


class _Position(NamedTuple):
    """Content of a cursor: the last row's sort cells and id, and the total."""

    after: tuple[Any, ...]
    total: int


_read_position = msgspec.msgpack.Decoder(_Position).decode


class PageAsker(NamedTuple, Generic[_T]):
    """The caller and the renderer of records. Without ``client`` pages have no cursors."""

    render: Render[_T]
    client: str | None = None
    #: bytes of sealed rows in a page, where that is fewer than the limits allow
    room: int | None = None
    #: whether the same renderer renders the records of everybody: what lists have shown lately is
    #: used again
    alike: bool = False


def _as_it_is(record: Record) -> Record:
    return record


async def find_page(
    records: Records, query: Query, limits: RecordLimits = DEFAULTS
) -> FoundPage[Record]:
    """``page`` of the records as they are, without a cursor."""
    return await page_of(records, query, limits, PageAsker(_as_it_is))


async def page_of(
    records: Records, query: Query, limits: RecordLimits, asker: PageAsker[_T]
) -> FoundPage[_T]:
    """The records for which all tests hold, and which are there for the caller.

    Raises ``VaultError``: ``CANNOT_OPEN`` for a record requested by its key alone; ``CONFLICT`` if
    records kept losing or gaining a searched text; ``TOO_BROAD`` also if a filter endpoint would
    have to decide about more than ``MOST_ASKED`` records; ``INVALID_OPTIONS`` for a foreign cursor;
    else as ``compile_query``.
    """
    position = _position_of(records, query, asker.client)
    bounded = msgspec.structs.replace(query, tests=(*query.tests, *records.rights.rows))
    key = _key_alone(bounded.tests)
    if key is not None:
        return await _one(records, key, query, asker)
    search = _Search(records, query, bounded, limits, asker, Verified(records, bounded.tests))
    if records.gate is not None:
        return await _allowed(search, position)
    matches = await _matches_of(search, bounded, None if position is None else position.after)
    if records.rights.view is not None:
        matches = await _as_shown(search, bounded, matches)
    total = matches.total if position is None else position.total
    records.note_shown([key for key, _ in matches.rendered])
    more = _cursor(search, matches.last, total) if matches.more else None
    return FoundPage(
        [one for _, one in matches.rendered], total, matches.unreadable, more, matches.cut
    )


class _Search(NamedTuple, Generic[_T]):
    """A question under way."""

    records: Records
    query: Query  #: as requested
    effective: Query  #: with the conditions of the caller's rights
    limits: RecordLimits
    asker: PageAsker[_T]
    verified: Verified


class _Matches(NamedTuple, Generic[_T]):
    """A page as it is stored."""

    rendered: list[tuple[str | None, _T]]  #: the key of each record, and its rendered form
    #: where each of them stands in the order, and the size of its row, by id; where a filter
    #: endpoint decides about each, or not all is shown of each
    places: dict[int, tuple[tuple[ColumnValue, ...], int]]
    rids: list[int]  #: their ids, where that is so
    total: int  #: how many hold in all
    unreadable: int  #: how many of the page do not open
    rows: int  #: how many the engine found for the page
    last: tuple[ColumnValue, ...] | None  #: where the page ends
    more: bool
    cut: bool


async def _matches_of(
    search: _Search[_T], query: Query, after: tuple[ColumnValue, ...] | None
) -> _Matches[_T]:
    for _ in range(PAGE_TRIES):
        matches = await _matches_once(search, query, after)
        if matches is not None:
            return matches
    raise VaultError(Code.CONFLICT, "Records changed while they were searched; ask again.")


async def _matches_once(
    search: _Search[_T], query: Query, after: tuple[ColumnValue, ...] | None
) -> _Matches[_T] | None:
    """A page; ``None`` where a record changed after it was opened for a partial match."""
    records, render = search.records, search.asker.render
    form = render if search.asker.alike else None
    compiled = await compile_query(records, query.tests, search.limits)
    stored = await _page(records, query, compiled.where, (after, _room(search)))
    rows, size = stored.rows, len(stored.rows)
    last = _end(records, query, rows[-1]) if rows else None
    rows.reverse()  # rendered records are released
    rendered: list[tuple[str | None, _T]] = []
    places: dict[int, tuple[tuple[ColumnValue, ...], int]] = {}
    rids: list[int] = []
    placed = records.gate is not None or records.rights.view is not None
    unreadable = left_out = 0
    while rows:
        portion = portion_of(rows)
        long = {row.rid for row in portion if len(row.body) > LONG}
        lately = shown_lately(records, form, portion)
        opened = await open_records(records, portion, lately)
        if compiled.looks and not all(map(compiled.stands, opened)):
            return None
        really = search.verified.only(opened)
        if records.rights.rows:
            really = await undoubted(records, portion, really)
        unreadable, left_out = (
            unreadable + len(portion) - len(opened),
            left_out + len(opened) - len(really),
        )
        if placed:
            places.update((row.rid, (_end(records, query, row), len(row.body))) for row in portion)
        fresh: list[tuple[Record, _T]] = []
        for record in await with_attachments(records, really):
            before = lately.get(record.rid)
            if before is None or before[0] is not record:
                rendered_one = await run_in_thread(record.rid in long, render, record)
                fresh.append(before := (record, rendered_one))
            rendered.append((record.key, before[1]))
            if placed:
                rids.append(record.rid)
        remember_shown(records, form, portion, fresh)
        del portion, opened, really, lately, fresh
        if rows and busy():
            await give_way()
    cut = stored.more and size < query.limit
    total, places_of = stored.total - left_out, (places, rids)
    return _Matches(rendered, *places_of, total, unreadable, size, last, stored.more, cut)


async def _as_shown(search: _Search[_T], query: Query, first: _Matches[_T]) -> _Matches[_T]:
    """The page that begins with these records and ends by what is shown of them (``ShownRoom``)."""
    room, rows, matches = ShownRoom(_room(search)), 0, first
    page = first._replace(rendered=[], unreadable=0)
    while True:
        end = room.end([one for _, one in matches.rendered], more=matches.more)
        page.rendered.extend(matches.rendered[:end])
        if end is not None:
            last = matches.places[matches.rids[end - 1]][0]
            return page._replace(last=last, more=True, cut=len(page.rendered) < query.limit)
        rows, left_out = rows + matches.rows, page.unreadable + matches.unreadable
        page = page._replace(unreadable=left_out, last=matches.last, more=matches.more, cut=False)
        if not matches.more or rows >= query.limit:
            return page
        rest = msgspec.structs.replace(query, offset=0, limit=query.limit - rows)
        matches = await _matches_of(search, rest, matches.last)
        page = page._replace(total=page.total + matches.total)


def _room(search: _Search[Any]) -> int:
    """Bytes of sealed rows that a page may have."""
    most, room = search.limits.page_bytes, search.asker.room
    return most if room is None else min(most, room)


def portion_of(rows: list[Row]) -> list[Row]:
    """The next rows, taken from the end: so many as are opened at once."""
    portion, size = [rows.pop()], 0
    while rows and len(portion) < OPENED and (size := size + len(portion[-1].body)) < PORTION:
        portion.append(rows.pop())
    return portion


async def _allowed(search: _Search[_T], position: _Position | None) -> FoundPage[_T]:
    """Return the page of records that a filter endpoint lets the caller read, and no others.

    If others were counted and filtered afterwards, a short page would reveal that one of them
    matches. So the records before the page are asked about as well, and a full page always has a
    cursor, whether or not there is more. Raises ``VaultError`` (TOO_BROAD) if they are too many.
    """
    records, query = search.records, search.effective
    rendered: list[tuple[str | None, _T]] = []
    skipped = considered = 0
    after, last = None if position is None else position.after, None
    left = _room(search)
    asker = PageAsker(_as_it_is, search.asker.client, search.asker.room)
    whole = _Search(records, search.query, query, search.limits, asker, search.verified)
    # query if everything is allowed
    size, cut = min(query.offset + query.limit, ASKED_AT_ONCE), False
    while len(rendered) < query.limit and not cut:
        some = await _matches_of(whole, msgspec.structs.replace(query, offset=0, limit=size), after)
        readable = await records.permitted([record for _, record in some.rendered])
        further, skipped = readable[max(0, query.offset - skipped) :], skipped + len(readable)
        for record in further[: query.limit - len(rendered)]:
            end, weight = some.places[record.rid]
            one = search.asker.render(record)
            left -= weight if records.rights.view is None else shown_size(one)
            if left < 0 and rendered:
                cut = True
                break
            rendered.append((record.key, one))
            last = end
        considered, after, size = considered + some.rows, some.last, ASKED_AT_ONCE
        if not some.more:
            break
        if considered >= MOST_ASKED and len(rendered) < query.limit and not cut:
            raise VaultError(
                Code.TOO_BROAD,
                f"The filter endpoint would have to be asked about more than {MOST_ASKED:,} "
                "records; add conditions, or export.",
            )
    records.note_shown([key for key, _ in rendered])
    more = _cursor(search, last, 0) if cut or len(rendered) == query.limit else None
    return FoundPage([one for _, one in rendered], len(rendered), 0, more, cut)


def _key_alone(tests: Sequence[Test]) -> str | None:
    """The record key, if the query is a single one."""
    if len(tests) != 1 or not isinstance(test := tests[0], Equals):
        return None
    if test.field != KEY or test.negated or len(test.values) != 1:
        return None
    key: str | None = test.values[0]
    return key


async def record_of_key(
    records: Records, key: str, limits: RecordLimits, render: Render[_T]
) -> tuple[Record, _T] | None:
    """The record of that key if the caller may see it, with attachments; raises as ``page_of``."""
    if records.rights.rows:
        asker = PageAsker(lambda record: (record, render(record)))
        page = await page_of(records, Query((Equals(KEY, (key,)),), limit=1), limits, asker)
        return page.records[0] if page.records else None
    row = (await records.by_key((key,))).get(key)
    long = row is not None and len(row.body) > LONG
    opened = [] if row is None else [await run_in_thread(long, records.open, row)]
    if records.gate is not None:
        opened = await records.permitted(opened)
    records.note_shown([record.key for record in opened])
    if not opened:
        return None
    (record,) = await with_attachments(records, opened)
    return record, await run_in_thread(long, render, record)


async def _one(records: Records, key: str, query: Query, asker: PageAsker[_T]) -> FoundPage[_T]:
    if query.offset:
        rows = await records.by_key((key,))
        total = len(rows) if records.gate is None else len(await records.permitted([]))
        records.note_shown([])
        return FoundPage([], total, 0)
    pair = await record_of_key(records, key, DEFAULTS, asker.render)
    return FoundPage([], 0, 0) if pair is None else FoundPage([pair[1]], 1, 0)


async def _page(
    records: Records, query: Query, where: Where, ends: tuple[tuple[ColumnValue, ...] | None, int]
) -> RowPage:
    collection = records.collection
    order = tuple(Order(_column(records, key.field), key.descending) for key in query.sort)
    counted = ends[0] is None
    select = Select(where, collection.clock(), order, query.limit, query.offset, counted, *ends)
    return await collection.store.select(collection.table, select)


def _column(records: Records, name: str) -> str:
    return BUILT_IN_COLUMNS.get(name) or records.column(name)


# ---------------------------------------------------------------------- cursors


def _end(records: Records, query: Query, row: Row) -> tuple[ColumnValue, ...]:
    """Return the position of a row in the order of the query."""
    cells = [
        getattr(row, BUILT_IN_COLUMNS[key.field][1:])
        if key.field in BUILT_IN_COLUMNS
        else records.stored(row, key.field)
        for key in query.sort
    ]
    return (*cells, row.rid)


def _context(records: Records, query: Query, client: str) -> bytes:
    """Return the context of a cursor: caller, tests and order of the query."""
    return cursor_context(records, client, b"find\x00" + _write((query.tests, query.sort)))


def _cursor(search: _Search[Any], after: tuple[ColumnValue, ...] | None, total: int) -> str | None:
    client = search.asker.client
    if client is None or after is None:
        return None
    return cursor_behind(search.records, search.query, client, (after, total))


def cursor_behind(
    records: Records, query: Query, client: str, ends: tuple[tuple[ColumnValue, ...], int]
) -> str:
    """The cursor of the page after one that ends there, and how many records hold in all."""
    position = msgspec.msgpack.encode(_Position(*ends))
    return records.cursors.seal(position, _context(records, query, client))


def _position_of(records: Records, query: Query, client: str | None) -> _Position | None:
    """The place of the cursor of a question.

    Raises ``VaultError`` (INVALID_OPTIONS) for one that is not its own.
    """
    if query.next is None:
        return None
    if client is None:
        detail = Detail(
            "/options/next", "Is not known here: pages of this operation go on by their offset."
        )
        raise VaultError(
            Code.INVALID_OPTIONS, "The options of the search cannot be used.", (detail,)
        )
    return _read_position(
        open_cursor(records, query.next, _context(records, query, client), _UNUSABLE)
    )
