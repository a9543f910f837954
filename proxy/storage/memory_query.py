"""Questions to a table of the reference engine: every row is looked at, in plain Python."""

from collections.abc import Sequence
from itertools import islice
from typing import Any as Anything

from proxy.storage.asked import Asked
from proxy.storage.holding import holds
from proxy.storage.memory_table import Table
from proxy.storage.query import Func, Group, Grouping, Metric, Order, Page, Select, Where, fitting
from proxy.storage.rows import Cell, State


def select(table: Table, query: Select) -> Page:
    """The answer to ``Store.select``."""
    query = Asked(table.layout).select(query)
    rids = _found(table, query.where, query.now)
    for column, descending in reversed(query.order):
        places = {rid: _place(_cell(table, rid, column)) for rid in rids}
        rids.sort(key=places.__getitem__, reverse=descending)
    total = len(rids) if query.counted else 0
    if query.after is not None:
        rids = [rid for rid in rids if _behind(table, rid, query.order, query.after)]
    stop = None if query.limit is None else query.offset + query.limit
    page = [table.row(rid) for rid in rids[query.offset : stop]]
    page = page[: fitting([len(row.body) for row in page], query.room)]
    return Page(page, total, query.offset + len(page) < len(rids))


def _behind(table: Table, rid: int, order: Sequence[Order], after: Sequence[Cell]) -> bool:
    """Whether a row comes behind the place where a page ended."""
    for (column, descending), last in zip(order, after, strict=False):
        here, there = _place(_cell(table, rid, column)), _place(last)
        if here != there:
            return (here > there) is not descending
    return rid > int(str(after[-1]))


def aggregate(table: Table, query: Grouping) -> list[Group]:
    """The answer to ``Store.aggregate``."""
    asked = Asked(table.layout)
    asked.grouping(query)
    groups: dict[tuple[Cell, ...], list[int]] = {} if query.keys else {(): []}
    for rid in _found(table, asked.where(query.where), query.now):
        groups.setdefault(tuple(_cell(table, rid, column) for column in query.keys), []).append(rid)
    after = None if query.after is None else _places(query.after)
    wanted = (keys for keys in sorted(groups, key=_places) if after is None or _places(keys) > after)
    return [
        Group(
            keys, tuple(_figure(table, groups[keys], metric) for metric in query.metrics), min(groups[keys], default=0)
        )
        for keys in islice(wanted, query.limit)
    ]


def _found(table: Table, where: Where, now: int) -> list[int]:
    """The rows that may be shown and hold, oldest first."""
    return [
        rid
        for rid, row in sorted(table.rows.items())
        if row.state is State.LIVE and (row.expires_at is None or row.expires_at > now) and _holds(table, rid, where)
    ]


def _holds(table: Table, rid: int, where: Where) -> bool:
    return holds(where, lambda column: _cell(table, rid, column), lambda token: rid in table.tokens.get(token, ()))


def _cell(table: Table, rid: int, column: str) -> Cell:
    if column.startswith("@"):
        fixed: Cell = getattr(table.rows[rid], column[1:])
        return fixed
    return table.cells[rid].get(column)


def _place(cell: Cell) -> tuple[bool, Anything]:
    """Where a value stands in the order; none comes first."""
    return cell is not None, cell


def _places(cells: Sequence[Cell]) -> tuple[tuple[bool, Anything], ...]:
    return tuple(_place(cell) for cell in cells)


def _figure(table: Table, rids: Sequence[int], metric: Metric) -> int | None:
    if metric.column is None:
        return len(rids)
    cells: list[Anything] = [cell for rid in rids if (cell := _cell(table, rid, metric.column)) is not None]
    if metric.func is Func.COUNT:
        return len(cells)
    if metric.func is Func.SUM:
        return int(sum(cells))
    figure: int | None = (min if metric.func is Func.MIN else max)(cells, default=None)
    return figure
