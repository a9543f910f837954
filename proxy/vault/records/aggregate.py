"""Figures over groups of records: counted by the engine, exact to the last digit, a page of groups
at a time.

Groups of a hashed field are told apart by its hash, which reveals nothing: such a group shows the
value of its oldest record. Groups of a field in the clear show its normal form. A page ends with a
cursor that contains the whole query: sealed, so that it reveals nothing and cannot be made or
changed, and bound to the caller and its rights, to the schema and to its definition.

Sums are exact whatever their size. An average has at most 10 digits after the point, rounded half
to even, without zeros at its end; without a value there is none (``None``), nor a smallest or
largest one, while the sum of nothing is 0.
"""

import zlib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from proxy.audit.events import EventKind
from proxy.errors import Code, VaultError
from proxy.model.query import KEY, Aggregation, MetricFunction, MetricQuery, Test
from proxy.model.record import DEFAULTS, Record, RecordLimits
from proxy.model.rights import denied
from proxy.model.schema import Field, FieldType, Storage
from proxy.storage import query as engine
from proxy.storage.query import (
    AggregateGroup,
    All,
    Compare,
    Compared,
    Grouping,
    Is,
    Order,
    Select,
    Where,
)
from proxy.storage.rows import DECIMAL_PLACES, ColumnValue, Row, spelled
from proxy.vault.both_roots import joined_groups
from proxy.vault.records.opening import open_records
from proxy.vault.records.query import compile_query, cursor_context, open_cursor
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import Verified, sealed_cells, undoubted

#: Digits after the point of an average.
AVERAGE_PLACES = 10
#: Records that are opened at once, and in all, before figures are made for a caller under row
#: policies.
VERIFIED = 1024
MOST_VERIFIED = 1_000_000
#: Rows of a group that are tried for its value when the oldest does not open or is another group's
#: by now.
TRIED = 10

#: whole numbers from here on become decimals: few JSON libraries write longer ones
_BEYOND = 2**63

#: What engines compute for each function; an average is a sum and a count.
_NEEDS = {
    MetricFunction.COUNT: (engine.AggregateFunction.COUNT,),
    MetricFunction.SUM: (engine.AggregateFunction.SUM,),
    MetricFunction.MIN: (engine.AggregateFunction.MIN,),
    MetricFunction.MAX: (engine.AggregateFunction.MAX,),
    MetricFunction.AVG: (engine.AggregateFunction.SUM, engine.AggregateFunction.COUNT),
}


class AggregateRow(NamedTuple):
    """A group: the value of each key (``None``: records without one) and of each metric."""

    keys: dict[str, Any]
    metrics: dict[str, int | Decimal | None]


class Aggregated(NamedTuple):
    """A page of groups, and the cursor of the next one where there is more."""

    groups: list[AggregateRow]
    next: str | None
    untold: int = 0  #: groups of this page that are left out, because none of their records opens


class _Position(NamedTuple):
    """Content of a cursor: the query as JSON, and the keys of the last group shown."""

    question: bytes
    after: tuple[Any, ...]


_write = msgspec.json.Encoder(decimal_format="number").encode
_read = msgspec.json.Decoder(Aggregation, float_hook=Decimal).decode
_read_position = msgspec.msgpack.Decoder(_Position).decode


async def aggregate_groups(
    records: Records,
    wanted: Aggregation | str,
    client: str,
    limits: RecordLimits = DEFAULTS,
    *,
    lenient: bool = False,
) -> Aggregated:
    """Return a page of groups: the first one of a query, or the one after a cursor.

    Raises ``VaultError``: ``ACCESS_DENIED`` where a filter endpoint decides about each record;
    ``INVALID_INPUT`` for a cursor that is not this client's or of another schema, or is older than
    the definition of the schema; ``CANNOT_OPEN`` when no record of a group by a hashed field opens,
    unless such groups are to be left out and counted (``lenient``); else as ``compile_query``.
    """
    if records.gate is not None:
        raise denied()  # its groups would reveal records that the filter endpoint does not allow
    question, after = (
        _continued(records, wanted, client) if isinstance(wanted, str) else (wanted, None)
    )
    tests = (*question.tests, *records.rights.rows)
    where = (await compile_query(records, tests, limits)).where
    if records.rights.rows:
        where = await _verified(records, where, tests)
    needed = list(
        dict.fromkeys(need for metric in question.metrics for need in _needs(records, metric))
    )
    collection = records.collection
    columns = tuple(_column(records, name) for name in question.keys)
    grouping = Grouping(
        where, collection.clock(), columns, tuple(needed), question.limit + 1, after
    )
    groups = await _groups(records, question.keys, grouping)
    page = groups[: question.limit] if question.keys else groups
    labels, untold = await _labels(records, question.keys, page, where, lenient=lenient)
    page_figures = [
        AggregateRow(
            keys,
            {metric.name: _figure(records, metric, needed, group) for metric in question.metrics},
        )
        for group, keys in zip(page, labels, strict=True)
        if keys is not None
    ]
    more = len(groups) > len(page)
    metrics = [metric.field for metric in question.metrics if metric.field is not None]
    named = next((name for name in question.keys if _is_key(records, name)), None)
    # a group by the key is one record, and shows it
    keys = [None if named is None else figures.keys[named] for figures in page_figures]
    records.note(EventKind.REVEAL, keys, (*question.keys, *metrics))
    return Aggregated(
        page_figures, _cursor(records, question, page[-1].keys, client) if more else None, untold
    )


async def _groups(
    records: Records, names: Sequence[str], grouping: Grouping
) -> list[AggregateGroup]:
    """The groups as the engine tells them; one for each value also while its hash changes."""
    store, table = records.collection.store, records.collection.table
    if not records.two_roots or not any(_hashed(records, name) for name in names):
        return await store.aggregate(table, grouping)

    def own_keys(group: AggregateGroup, oldest: Row | None) -> tuple[ColumnValue, ...]:
        cells = dict(zip(names, group.keys, strict=True))
        sealed = [name for name in names if _hashed(records, name)]
        for record in records.open_all(() if oldest is None else (oldest,)):
            cell_of = sealed_cells(records, record)
            own = {name: cell_of(_column(records, name)) for name in sealed}
            cells |= {name: cell for name, cell in own.items() if cell == cells[name]}
        return tuple(cells.values())

    return await joined_groups(store, table, grouping, own_keys)


async def _verified(records: Records, where: Where, tests: Sequence[Test]) -> Where:
    """The condition for those of the records that really are inside the row policies of the caller:
    each of them is opened.

    Raises ``VaultError`` (TOO_BROAD) for more than ``MOST_VERIFIED`` of them.
    """
    collection, verified = records.collection, Verified(records, tests)
    rids: list[int] = []
    last = 0
    while True:
        after = All((where, Compared("@rid", Compare.GT, last)))
        select = Select(after, collection.clock(), (Order("@rid"),), VERIFIED, counted=False)
        rows = (await collection.store.select(collection.table, select)).rows
        opened = await open_records(records, rows)
        rids += [one.rid for one in await undoubted(records, rows, verified.only(opened))]
        if len(rows) < VERIFIED:
            return Is("@rid", tuple(rids))
        if len(rids) > MOST_VERIFIED:
            raise VaultError(
                Code.TOO_BROAD,
                f"Figures under row policies are made of at most {MOST_VERIFIED:,} records; add "
                "conditions.",
            )
        last = rows[-1].rid


# ---------------------------------------------------------------------- figures


def _needs(records: Records, metric: MetricQuery) -> list[engine.AggregateMetric]:
    column = None if metric.field is None else records.column(metric.field)
    return [engine.AggregateMetric(func, column) for func in _NEEDS[metric.func]]


def _figure(
    records: Records,
    metric: MetricQuery,
    needed: Sequence[engine.AggregateMetric],
    group: AggregateGroup,
) -> int | Decimal | None:
    values = [group.figures[needed.index(need)] for need in _needs(records, metric)]
    value = values[0]
    if value is None or (metric.func is MetricFunction.AVG and not values[1]):
        return None
    decimals = (
        metric.field is not None and records.schema.field(metric.field).type is FieldType.DECIMAL
    )
    if metric.func is MetricFunction.AVG:
        return _average(value, (values[1] or 1) * (10**DECIMAL_PLACES if decimals else 1))
    if decimals:
        return Decimal(str(spelled(value)))
    return value if -_BEYOND <= value < _BEYOND else Decimal(value)


def _average(total: int, count: int) -> Decimal:
    """The quotient with ``places`` digits, half to even."""
    units, rest = divmod(abs(total) * 10**AVERAGE_PLACES, count)
    units += 2 * rest > count or (2 * rest == count and units % 2)
    whole, fraction = divmod(units, 10**AVERAGE_PLACES)
    digits = f"{fraction:0{AVERAGE_PLACES}d}".rstrip("0")
    sign = "-" if total < 0 and units else ""
    return Decimal(f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}")


# ---------------------------------------------------------------------- groups


def _is_key(records: Records, name: str) -> bool:
    return name == KEY or (records.primary is not None and name == records.primary.name)


def _column(records: Records, name: str) -> str:
    return "@key" if _is_key(records, name) else records.column(name)


def _hashed(records: Records, name: str) -> bool:
    """Whether the engine knows only a hash of it."""
    return _is_key(records, name) or records.schema.field(name).storage is Storage.INDEXED_HASHED


async def _labels(
    records: Records,
    names: Sequence[str],
    groups: Sequence[AggregateGroup],
    where: Where,
    *,
    lenient: bool,
) -> tuple[list[dict[str, Any] | None], int]:
    """The keys' values of each group, ``None`` if left out; how many of them do not open."""
    collection = records.collection
    sealed = [name for name in names if _hashed(records, name)]
    oldest = (
        await collection.store.rows(collection.table, [group.rid for group in groups])
        if sealed
        else {}
    )
    labels: list[dict[str, Any] | None] = []
    untold = 0
    for group in groups:
        cells = dict(zip(names, group.keys, strict=True))
        try:
            labels.append(await _label(records, cells, oldest.get(group.rid), where))
        except VaultError as error:
            if not lenient or error.code is not Code.CANNOT_OPEN:
                raise
            labels.append(None)
            untold += 1
    return labels, untold


async def _label(
    records: Records, cells: dict[str, ColumnValue], oldest: Row | None, where: Where
) -> dict[str, Any] | None:
    """The values of the keys of a group; ``None`` when it has gone meanwhile."""
    sealed = [name for name in cells if _hashed(records, name)]
    label = {
        name: _as_member(records.schema.field(name), cells[name])
        for name in cells
        if name not in sealed
    }
    if any(cells[name] is not None for name in sealed):
        record = _opened(records, oldest, cells) or await _another(records, cells, where)
        if record is None:
            return None
        label.update({name: _value(records, record, name) for name in sealed})
    return {name: label.get(name) for name in cells}


def _as_member(field: Field, cell: ColumnValue) -> Any:
    """The value of a cell that is in the clear."""
    if cell is None:
        return None
    if field.type is FieldType.DECIMAL:
        return Decimal(str(spelled(cell)))
    return bool(cell) if field.type is FieldType.BOOLEAN else cell


def _value(records: Records, record: Record, name: str) -> Any:
    if _is_key(records, name):
        return record.key
    value = record.fields.get(name)
    return value[0] if isinstance(value, list) and value else value


def _opened(records: Records, row: Row | None, cells: dict[str, ColumnValue]) -> Record | None:
    """The record, if it opens and still is of the group."""
    if row is None:
        return None
    for name, cell in cells.items():
        stored = row.key if _is_key(records, name) else records.stored(row, name)
        if _hashed(records, name) and stored != cell:
            return None
    return next(_of_group(records, (row,), cells), None)


def _of_group(
    records: Records, rows: Sequence[Row], cells: dict[str, ColumnValue]
) -> Iterator[Record]:
    """Yield the rows that open and whose sealed hashes really belong to the group."""
    sealed = {
        _column(records, name): cell for name, cell in cells.items() if _hashed(records, name)
    }
    for record in records.open_all(rows):
        cell_of = sealed_cells(records, record)
        if all(cell_of(column) == cell for column, cell in sealed.items()):
            yield record
        else:
            records.tampered()


async def _another(records: Records, cells: dict[str, ColumnValue], where: Where) -> Record | None:
    """The oldest record of the group that opens; ``None`` when it has none any more."""
    parts = tuple(
        Is(_column(records, name), (_stored_cell(records, name, cell),))
        for name, cell in cells.items()
    )
    collection = records.collection
    select = Select(
        All((where, *parts)), collection.clock(), (Order("@rid"),), TRIED, counted=False
    )
    rows = (await collection.store.select(collection.table, select)).rows
    record = next(_of_group(records, rows, cells), None)
    if record is None and rows:
        raise VaultError(
            Code.CANNOT_OPEN,
            "No record of a group opens: they were changed or moved, or belong to another keyset. "
            "Restore them, or the keys that sealed them, from a backup.",
        )
    return record


def _stored_cell(records: Records, name: str, cell: ColumnValue) -> ColumnValue:
    """A key of a group as questions name it: engines tell decimals as ten-thousandths."""
    if (
        cell is None
        or _is_key(records, name)
        or records.schema.field(name).type is not FieldType.DECIMAL
    ):
        return cell
    return cell if isinstance(cell, bytes) else spelled(cell)


# ---------------------------------------------------------------------- cursors


def _cursor(
    records: Records, question: Aggregation, after: tuple[ColumnValue, ...], client: str
) -> str:
    position = msgspec.msgpack.encode(_Position(_write(question), after), enc_hook=bytes)
    return records.cursors.seal(zlib.compress(position), cursor_context(records, client))


def _continued(
    records: Records, cursor: str, client: str
) -> tuple[Aggregation, tuple[ColumnValue, ...]]:
    context = cursor_context(records, client)
    position = _read_position(
        zlib.decompress(open_cursor(records, cursor, context, (Code.INVALID_INPUT, "/next")))
    )
    return _read(position.question), position.after
