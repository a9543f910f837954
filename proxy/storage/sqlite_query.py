"""Answers to questions about rows: made of the plans of ``sqlite_plan``, inside a read transaction on whichever connection is given.

Exact in every case: totals and rows belong to one state, sums are not bound to 64 bits. What a question holds in memory is
bounded by the rows or groups that it asks for, and by ``sqlite_plan.NARROW`` numbers beside.
"""
# ruff: noqa: S608 - names have passed names.check_names and asked.Asked; every value is a parameter

import json
from sqlite3 import Connection
from typing import Any as Anything

from proxy.storage.asked import parts_of
from proxy.storage.query import Is, Page, Select
from proxy.storage.rows import Row
from proxy.storage.sqlite_plan import Planner
from proxy.storage.sqlite_sql import Statements
from proxy.storage.sqlite_where import condition, joined, looked_at, name_of

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
    """The answer to a question that ``is_short``, in one statement."""
    text, values = joined([condition(query.where, sql.layout.table), looked_at(query.now)], "AND")
    raws = connection.execute(f"{sql.head} {text} ORDER BY {_order(query)}", values).fetchall()
    stop = None if query.limit is None else query.offset + query.limit
    return Page([sql.read(raw) for raw in raws[query.offset : stop]], len(raws) if query.counted else 0)


def select(connection: Connection, sql: Statements, query: Select) -> Page:
    """The answer to ``Store.select``; ``query`` as ``Asked`` made it."""
    planner = Planner(connection, sql.layout, query.now)
    way = planner.way(query.where)
    text, values = way.condition
    stop = None if query.limit is None else query.offset + query.limit
    collected = f"SELECT r.rid AS id FROM {way.source} WHERE {text} ORDER BY {_order(query)} LIMIT -1"
    if way.narrow and not (way.aged and _by_age(query) and stop is not None):
        rids = _ids(connection, collected, values)
        return Page(_rows(connection, sql, rids[query.offset : stop]), len(rids) if query.counted else 0)
    total = planner.total(query.where, way) if query.counted else 0
    limits = [-1 if query.limit is None else query.limit, query.offset]
    if way.aged and _by_age(query):
        turn = "DESC" if query.order and query.order[0].descending else ""
        aged = f"SELECT {way.aged} AS id FROM {way.source} WHERE {text} ORDER BY {way.aged} {turn} LIMIT ? OFFSET ?"
        rids = _ids(connection, aged, [*values, *limits])
    elif query.counted and stop is not None and total < stop * _SPARSE:
        rids = _ids(connection, collected, values)[query.offset : stop]
    else:
        rids = _walked(connection, planner, query, limits)
    return Page(_rows(connection, sql, rids), total)


def _by_age(query: Select) -> bool:
    """Whether the order is that of the ids."""
    return not query.order or query.order[0].column == "@rid"


def scan(connection: Connection, sql: Statements, after: int, limit: int) -> list[Row]:
    """The answer to ``Store.scan``."""
    return [sql.read(raw) for raw in connection.execute(sql.scan, (after, limit))]


def _walked(connection: Connection, planner: Planner, query: Select, limits: list[int]) -> list[int]:
    """The page, found by walking the rows in the order that is wanted, or in any where no index has it."""
    column = query.order[0].column if query.order else "@rid"
    index = planner.index_of(column)
    text, values = planner.walk(query.where, column)
    way = "NOT INDEXED" if index is None else f"INDEXED BY {index}"
    statement = f"SELECT r.rid AS id FROM {planner.rows} {way} WHERE {text} ORDER BY {_order(query)} LIMIT ? OFFSET ?"
    return _ids(connection, statement, [*values, *limits])


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
