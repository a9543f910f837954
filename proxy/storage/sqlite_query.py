"""Questions as SQL, run inside a read transaction on whichever connection is given."""
# ruff: noqa: S608 - names have passed names.check_names and asked.Asked; every value is a parameter

from sqlite3 import Connection
from typing import Any as Anything

from proxy.storage.query import All, Func, Group, Grouping, Is, Metric, Page, Select
from proxy.storage.rows import Cell, Row
from proxy.storage.sqlite_sql import Statements
from proxy.storage.sqlite_where import Condition, condition, joined, name_of, shown

_WORD = 32  #: bits of the lower half of a sum
_LOW = 2**_WORD - 1
#: Rows that may be read on the event loop for a question by key or id.
FEW = 32


def is_short(query: Select) -> bool:
    """Whether the rows that the question can find are few and named: it may be answered on the event loop."""
    where = query.where
    parts = where.parts if isinstance(where, All) else (where,)
    return any(
        isinstance(part, Is) and part.column in ("@key", "@rid") and not part.negated and len(part.values) <= FEW
        and None not in part.values
        for part in parts
    )  # fmt: skip


def select(connection: Connection, sql: Statements, query: Select) -> Page:
    """The answer to ``Store.select``."""
    table = sql.layout.table
    text, values = joined([shown(query.now), condition(query.where, table)], "AND")
    total = 0
    if query.counted:
        total = connection.execute(f"SELECT count(*) FROM r_{table} AS r WHERE {text}", values).fetchone()[0]
    limit = -1 if query.limit is None else query.limit
    keys = [f"{name_of(key.column)}{' DESC' if key.descending else ''}" for key in query.order]
    rids = connection.execute(
        f"SELECT r.rid FROM r_{table} AS r WHERE {text} ORDER BY {', '.join([*keys, 'r.rid'])} LIMIT ? OFFSET ?",
        [*values, limit, query.offset],
    ).fetchall()
    return Page(_rows(connection, sql, [rid for (rid,) in rids]), total)


def _rows(connection: Connection, sql: Statements, rids: list[int]) -> list[Row]:
    found = {raw[0]: sql.read(raw) for text, values in sql.rows.runs(rids) for raw in connection.execute(text, values)}
    return [found[rid] for rid in rids]


def scan(connection: Connection, sql: Statements, after: int, limit: int) -> list[Row]:
    """The answer to ``Store.scan``."""
    return [sql.read(raw) for raw in connection.execute(sql.scan, (after, limit))]


def aggregate(connection: Connection, sql: Statements, query: Grouping) -> list[Group]:
    """The answer to ``Store.aggregate``."""
    if query.after == ():
        return []  # the only group there is was the one before
    table = sql.layout.table
    keys = [name_of(column) for column in query.keys]
    conditions = [shown(query.now), condition(query.where, table)]
    if query.after is not None:
        conditions.append(_later(keys, query.after))
    text, values = joined(conditions, "AND")
    figures = [column for metric in query.metrics for column in _columns(metric)]
    grouped = f"GROUP BY {', '.join(keys)} ORDER BY {', '.join(keys)}" if keys else ""
    raws = connection.execute(
        f"SELECT {', '.join([*keys, 'ifnull(min(r.rid), 0)', *figures])} FROM r_{table} AS r WHERE {text}"
        f" {grouped} LIMIT ?",
        [*values, query.limit],
    )
    return [_group(raw, query) for raw in raws]


def _later(keys: list[str], after: tuple[Cell, ...]) -> Condition:
    """Groups whose keys come after those; nothing comes before every value."""
    places: list[Condition] = []
    for place, (name, last) in enumerate(zip(keys, after, strict=True)):
        same = [f"{other} IS ?" for other in keys[:place]]
        beyond = f"{name} IS NOT NULL" if last is None else f"{name} > ?"
        here = [] if last is None else [last]
        places.append((f"({' AND '.join([*same, beyond])})", [*after[:place], *here]))
    return joined(places, "OR")


def _columns(metric: Metric) -> list[str]:
    """A sum may not fit 64 bits: its upper and its lower half are summed apart."""
    if metric.column is None:
        return ["count(*)"]
    name = name_of(metric.column)
    if metric.func is Func.SUM:
        return [f"sum({name} >> {_WORD})", f"sum({name} & {_LOW})"]
    return [f"{metric.func}({name})"]


def _group(raw: tuple[Anything, ...], query: Grouping) -> Group:
    width = len(query.keys)
    left = iter(raw[width + 1 :])
    figures: list[int | None] = []
    for metric in query.metrics:
        figure = next(left)
        if metric.func is Func.SUM:
            low = next(left)
            figure = 0 if figure is None else (figure << _WORD) + low
        figures.append(figure)
    return Group(raw[:width], tuple(figures), raw[width])
