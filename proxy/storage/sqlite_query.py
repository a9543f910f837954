"""Answers to questions about rows: made of the plans of ``sqlite_plan``, inside a read transaction on whichever connection is given.

Exact in every case: totals and rows belong to one state, sums are not bound to 64 bits. What a question holds in memory is
bounded by the rows or groups that it asks for, and by ``sqlite_plan.NARROW`` numbers beside.
"""
# ruff: noqa: S608 - names have passed names.check_names and asked.Asked; every value is a parameter

import json
from sqlite3 import Connection
from typing import Any as Anything

from proxy.storage.asked import parts_of
from proxy.storage.query import Is, Page, Select, fitting
from proxy.storage.rows import Row
from proxy.storage.sqlite_plan import Planner, Way
from proxy.storage.sqlite_sql import Statements
from proxy.storage.sqlite_where import behind, bounds, condition, joined, looked_at, name_of

#: Rows that may be read on the event loop for a question by key or id.
FEW = 32
#: Of rows that are found by walking, so many times as many as are wanted have to be there; fewer are collected and sorted.
_SPARSE = 4


def is_short(query: Select) -> bool:
    """Whether the rows that the question can find are few and named: it may be answered on the event loop."""
    return any(
        isinstance(part, Is)
        and part.column in ("@key", "@rid")
        and not part.negated
        and len(part.values) <= FEW
        and None not in part.values
        for part in parts_of(query.where)
    )


def few(connection: Connection, sql: Statements, query: Select) -> Page:
    """The answer to a question that ``is_short``, in one statement; in two where the page has a bound in bytes."""
    text, values = joined([condition(query.where, sql.layout.table), looked_at(query.now)], "AND")
    stop = None if query.limit is None else query.offset + query.limit
    if query.room is None and query.after is None:
        raws = connection.execute(f"{sql.head} {text} ORDER BY {_order(query)}", values).fetchall()
        page = [sql.read(raw) for raw in raws[query.offset : stop]]
        return Page(page, len(raws) if query.counted else 0, query.offset + len(page) < len(raws))
    total = 0
    if query.after is not None:
        if query.counted:
            counted = f"SELECT count(*) FROM r_{sql.layout.table} AS r WHERE {text}"
            total = int(connection.execute(counted, values).fetchone()[0])
        text, values = joined([(text, values), behind(query.order, query.after)], "AND")
    named = f"SELECT r.rid FROM r_{sql.layout.table} AS r WHERE {text} ORDER BY {_order(query)}"
    rids = [raw[0] for raw in connection.execute(named, values)]
    if query.counted and query.after is None:
        total = len(rids)
    return _page(connection, sql, query, rids[query.offset :], total)


def select(connection: Connection, sql: Statements, query: Select) -> Page:
    """The answer to ``Store.select``; ``query`` as ``Asked`` made it."""
    planner = Planner(connection, sql.layout, query.now)
    way = planner.way(query.where)
    stop = None if query.limit is None else query.offset + query.limit + 1  # one more tells whether there are more
    aged = way.aged and _by_age(query)
    if (
        way.straight is not None
        and stop is not None
        and _by_age(query)
        and (way.exact is not None or not query.counted)
    ):
        source, held = way.straight
        straight = way._replace(source=source, condition=held, aged="r.rid")
        rids = _aged(connection, straight, query, [stop - query.offset, query.offset])
        return _page(connection, sql, query, rids, (way.exact or 0) * query.counted)
    if way.narrow and not (aged and stop is not None):
        rids, total = _collected(connection, way, query)
        return _page(connection, sql, query, rids[query.offset :], total)
    total = planner.total(query.where, way) if query.counted else 0
    limits = [-1 if query.limit is None else query.limit + 1, query.offset]
    if aged:
        rids = _aged(connection, way, query, limits)
    elif query.counted and stop is not None and total < stop * _SPARSE:
        rids = _collected(connection, way, query)[0][query.offset : stop]
    else:
        rids = _walked(connection, planner, query, limits)
    return _page(connection, sql, query, rids, total)


def _page(connection: Connection, sql: Statements, query: Select, rids: list[int], total: int) -> Page:
    """The rows with these ids, from the first of the page on, as many as it may have."""
    wanted = rids if query.limit is None else rids[: query.limit]
    if query.room is not None and wanted:
        wanted = _fitting(connection, sql, wanted, query.room)
    return Page(_rows(connection, sql, wanted), total, len(wanted) < len(rids))


def _fitting(connection: Connection, sql: Statements, rids: list[int], room: int) -> list[int]:
    """The first of these rows whose bodies have room together; at least one. Lengths are read without the bodies."""
    sizes = {raw[0]: raw[1] for text, values in sql.sizes.runs(rids) for raw in connection.execute(text, values)}
    return rids[: fitting([sizes.get(rid, 0) for rid in rids], room)]


def _by_age(query: Select) -> bool:
    """Whether the order is that of the ids."""
    return not query.order or query.order[0].column == "@rid"


def _collected(connection: Connection, way: Way, query: Select) -> tuple[list[int], int]:
    """The ids of all rows behind the place where the page before ended, sorted; and how many there are in all."""
    text, values = way.condition
    if query.limit is not None and (way.exact is not None or not query.counted):  # the first of them are enough
        source, held = way.straight or (way.source, way.condition)
        text, values = held
        if query.after is not None:
            text, values = joined([held, behind(query.order, query.after)], "AND")
        first = f"SELECT r.rid AS id FROM {source} WHERE {text} ORDER BY {_order(query)} LIMIT ?"
        rids = _ids(connection, first, [*values, query.offset + query.limit + 1])
        return rids, (way.exact or 0) * query.counted
    if query.after is None:
        rids = _ids(
            connection, f"SELECT r.rid AS id FROM {way.source} WHERE {text} ORDER BY {_order(query)} LIMIT -1", values
        )
        return rids, len(rids) if query.counted else 0
    total = 0
    if query.counted:
        total = int(connection.execute(f"SELECT count(*) FROM {way.source} WHERE {text}", values).fetchone()[0])
    text, values = joined([way.condition, behind(query.order, query.after)], "AND")
    found = f"SELECT r.rid AS id FROM {way.source} WHERE {text} ORDER BY {_order(query)} LIMIT -1"
    return _ids(connection, found, values), total


def _aged(connection: Connection, way: Way, query: Select, limits: list[int]) -> list[int]:
    """The page of a way on which the rows come in the order that is wanted."""
    turn = "DESC" if query.order and query.order[0].descending else ""
    text, values = way.condition
    if query.after is not None:
        text, values = joined([way.condition, behind(query.order, query.after, way.aged)], "AND")
    found = f"SELECT {way.aged} AS id FROM {way.source} WHERE {text} ORDER BY {way.aged} {turn} LIMIT ? OFFSET ?"
    return _ids(connection, found, [*values, *limits])


def scan(connection: Connection, sql: Statements, after: int, limit: int) -> list[Row]:
    """The answer to ``Store.scan``."""
    return [sql.read(raw) for raw in connection.execute(sql.scan, (after, limit))]


def _walked(connection: Connection, planner: Planner, query: Select, limits: list[int]) -> list[int]:
    """The page, found by walking the rows in the order that is wanted, or in any where no index has it.

    Behind the place where a page ended it is walked from there, in parts: of a descending order the values, then those without one.
    """
    column = query.order[0].column if query.order else "@rid"
    index = planner.index_of(column)
    way = "NOT INDEXED" if index is None else f"INDEXED BY {index}"
    held = planner.walk(query.where, column)
    head, tail = f"SELECT r.rid AS id FROM {planner.rows} {way} WHERE", f"ORDER BY {_order(query)} LIMIT ? OFFSET ?"
    if query.after is None:
        return _ids(connection, f"{head} {held[0]} {tail}", [*held[1], *limits])
    if index is None or query.offset:
        parts = [behind(query.order, query.after)]
    else:
        parts = [joined([bound, behind(query.order, query.after)], "AND") for bound in bounds(query.order, query.after)]
    found: list[int] = []
    for part in parts:
        text, values = joined([held, part], "AND")
        left = limits[0] if limits[0] < 0 else limits[0] - len(found)
        if left:
            found += _ids(connection, f"{head} {text} {tail}", [*values, left, limits[1]])
    return found


def _order(query: Select) -> str:
    keys = [f"{name_of(key.column)}{' DESC' if key.descending else ''}" for key in query.order]
    return ", ".join([*keys, "r.rid"])


def _ids(connection: Connection, text: str, values: list[Anything]) -> list[int]:
    """The ids that the statement finds, in its order.

    They come as one text: for each row of an answer the driver gives the interpreter's lock away and asks for it again, and
    a busy event loop is slow to give it. A ``LIMIT`` in the statement keeps its order.
    """
    found = connection.execute(f"SELECT json_group_array(id) FROM ({text})", values).fetchone()[0]
    rids: list[int] = json.loads(found)
    return rids


def _rows(connection: Connection, sql: Statements, rids: list[int]) -> list[Row]:
    found = {raw[0]: sql.read(raw) for text, values in sql.rows.runs(rids) for raw in connection.execute(text, values)}
    return [found[rid] for rid in rids]
