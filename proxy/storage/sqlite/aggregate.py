"""Figures over groups of rows, exact and in bounded memory, however many rows and groups there are.

A group on the page is among the first groups of every part of the table that has its rows. So large
sets of rows are read part by part in disk order, each part returns its first groups, and these are
added up. Walking an index instead would fetch every row from a different place. That is done if the
index alone holds all requested values, or the groups of the page have few rows.
"""
# ruff: noqa: S608 - names have passed query.check_names and ValidatedQuery; every value is a parameter

from collections.abc import Iterable
from sqlite3 import Connection
from typing import Any as Anything
from typing import NamedTuple

from proxy.storage.query import AggregateFunction, AggregateGroup, AggregateMetric, Grouping
from proxy.storage.rows import ColumnValue
from proxy.storage.sqlite.plan import Planner, condition_columns
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.where import SqlCondition, join_conditions, name_of

_WORD = 32  #: bits of the lower half of a sum
_LOW = 2**_WORD - 1
#: Rows of a part: their pages fit the connection's cache, so that finding where it ends reads
#: nothing twice.
PART = 20_000
#: Rows that may be fetched from all over the table before reading all of it costs less.
SCATTERED = 20_000
#: Hidden rows, such as marks of erased records, that are named while an index of all is walked.
HIDDEN_WALKED = 200_000


class _SqlGrouping(NamedTuple):
    """A grouping in SQL."""

    table: str
    query: Grouping
    keys: list[str]
    figures: list[str]
    source: str
    condition: SqlCondition


def sqlite_aggregate(
    connection: Connection, sql: Statements, query: Grouping
) -> list[AggregateGroup]:
    """The answer to ``Store.aggregate``; ``query`` as ``ValidatedQuery`` made it."""
    if query.after == ():
        return []  # the only group there is was the one before
    planner = Planner(connection, sql.layout, query.now)
    way = planner.way(query.where)
    if not (
        way.narrow or planner.is_bare
    ):  # of all rows an index tells sooner, but for more hidden
        planner = Planner(connection, sql.layout, query.now, few=HIDDEN_WALKED)
        way = planner.way(query.where)
    keys = [name_of(column) for column in query.keys]
    figures = [column for metric in query.metrics for column in _columns(metric)]
    question = _SqlGrouping(sql.layout.table, query, keys, figures, way.source, way.condition)
    if way.narrow or not keys or _is_walked(planner, question):
        return [_group(raw, query) for raw in _grouped(connection, question, question.condition)]
    whole = question._replace(
        source=f"{planner.rows} NOT INDEXED", condition=planner.walk(query.where, "@rid")
    )
    return _in_parts(connection, whole)


def _grouped(
    connection: Connection, grouping: _SqlGrouping, condition: SqlCondition
) -> Iterable[tuple[Anything, ...]]:
    """The first groups of the rows that hold."""
    keys, query = grouping.keys, grouping.query
    conditions = [condition]
    if query.after is not None:
        conditions.append(_later(keys, query.after))
    text, values = join_conditions(conditions, "AND")
    grouped = f"GROUP BY {', '.join(keys)} ORDER BY {', '.join(keys)}" if keys else ""
    columns = ", ".join([*keys, "ifnull(min(r.rid), 0)", *grouping.figures])
    statement = f"SELECT {columns} FROM {grouping.source} WHERE {text} {grouped} LIMIT ?"
    return connection.execute(statement, [*values, query.limit])


def _is_walked(planner: Planner, grouping: _SqlGrouping) -> bool:
    """Whether to walk the index of the key: it has all, or groups of a page are small."""
    query = grouping.query
    if len(query.keys) > 1 or planner.index_of(query.keys[0]) is None:
        return False
    used = {metric.column for metric in query.metrics} | condition_columns(query.where)
    if planner.is_bare and used <= {None, query.keys[0], "@rid"}:
        return True
    name, last = grouping.keys[0], None if query.after is None else query.after[0]
    start = last
    for _ in range(query.limit):
        following = planner.next_value(name, last)
        if following is None:
            break
        last = following
    text = f"SELECT 1 FROM r_{grouping.table} AS r WHERE {name} <= ?"
    values: list[object] = [last]
    if start is not None:
        text, values = f"{text} AND {name} > ?", [last, start]
    return last is not None and planner.count(text, values, SCATTERED) < SCATTERED


def _in_parts(connection: Connection, grouping: _SqlGrouping) -> list[AggregateGroup]:
    query = grouping.query
    groups: dict[tuple[ColumnValue, ...], AggregateGroup] = {}
    end = f"SELECT rid FROM r_{grouping.table} WHERE rid > ? ORDER BY rid LIMIT 1 OFFSET {PART - 1}"
    first: int | None = 0
    while first is not None:
        row = connection.execute(end, (first,)).fetchone()
        last = None if row is None else row[0]
        text, values = grouping.condition
        part = (
            f"{text} AND r.rid > ?{'' if last is None else ' AND r.rid <= ?'}",
            [*values, first],
        )
        if last is not None:
            part[1].append(last)
        for raw in _grouped(connection, grouping, part):
            group = _group(raw, query)
            before = groups.get(group.keys)
            groups[group.keys] = group if before is None else _added(before, group, query)
        first = last
        for keys in sorted(groups, key=_sort_key)[query.limit :]:
            del groups[keys]  # other parts can only add groups before these
    return [groups[keys] for keys in sorted(groups, key=_sort_key)]


def _added(one: AggregateGroup, other: AggregateGroup, query: Grouping) -> AggregateGroup:
    figures = tuple(
        mine if theirs is None else theirs if mine is None else _both(metric.func, mine, theirs)
        for metric, mine, theirs in zip(query.metrics, one.figures, other.figures, strict=True)
    )
    return AggregateGroup(one.keys, figures, min(one.rid, other.rid))


def _both(func: AggregateFunction, one: int, other: int) -> int:
    if func is AggregateFunction.MIN:
        return min(one, other)
    return max(one, other) if func is AggregateFunction.MAX else one + other


def _sort_key(keys: tuple[ColumnValue, ...]) -> tuple[tuple[bool, Anything], ...]:
    return tuple((key is not None, key) for key in keys)


def _later(keys: list[str], after: tuple[ColumnValue, ...]) -> SqlCondition:
    """Groups whose keys come after those; nothing comes before every value."""
    places: list[SqlCondition] = []
    for number, (name, last) in enumerate(zip(keys, after, strict=True)):
        same = [f"{other} IS ?" for other in keys[:number]]
        beyond = f"{name} IS NOT NULL" if last is None else f"{name} > ?"
        here = [] if last is None else [last]
        places.append((f"({' AND '.join([*same, beyond])})", [*after[:number], *here]))
    return join_conditions(places, "OR")


def _columns(metric: AggregateMetric) -> list[str]:
    """A sum may not fit 64 bits: its upper and its lower half are summed apart."""
    if metric.column is None:
        return ["count(*)"]
    name = name_of(metric.column)
    if metric.func is AggregateFunction.SUM:
        return [f"sum({name} >> {_WORD})", f"sum({name} & {_LOW})"]
    return [f"{metric.func}({name})"]


def _group(raw: tuple[Anything, ...], query: Grouping) -> AggregateGroup:
    width = len(query.keys)
    left = iter(raw[width + 1 :])
    figures: list[int | None] = []
    for metric in query.metrics:
        figure = next(left)
        if metric.func is AggregateFunction.SUM:
            low = next(left)
            figure = 0 if figure is None else (figure << _WORD) + low
        figures.append(figure)
    return AggregateGroup(raw[:width], tuple(figures), raw[width])
