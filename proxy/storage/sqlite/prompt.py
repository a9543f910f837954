"""Answers to small questions: on the event loop, as a thread would cost ten times the answer.

A question by keys or ids is small by itself. Of others an index tells: that a value has few rows,
or that few of the first rows are hidden. They read a bounded number of rows and bytes; a reached
bound sends the question to a thread.
"""

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Final

from proxy.storage.query import Is, RowPage, Select, Where, parts_of
from proxy.storage.sqlite.select import by_age, order_of, read_page
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.where import (
    SqlCondition,
    behind,
    condition,
    join_conditions,
    looked_at,
)

# ruff: noqa: S608 - names have passed names.check_names and asked.Asked; every value is a parameter

#: Rows that may be read on the event loop, and the bytes of their bodies together.
FEW_ROWS: Final = 32
_MOST_BYTES: Final = 128 * 1024


def prompt_page(connection: Connection, sql: Statements, query: Select) -> RowPage | None:
    """The answer to a small question; ``None`` for any other."""
    if is_short(query):
        return few(connection, sql, query)
    if query.limit is None or query.most is not None or query.offset + query.limit > FEW_ROWS:
        return None
    parts = parts_of(query.where)
    lead = next((part for part in parts if _is_indexed(sql, part)), None)
    if lead is None and (parts or not by_age(query)):
        return None
    connection.execute("BEGIN")  # all statements see one state
    try:
        return (
            _first(connection, sql, query) if lead is None else _led(connection, sql, query, lead)
        )
    finally:
        connection.execute("COMMIT")


def is_short(query: Select) -> bool:
    """Whether the rows that the question can find are few and named."""
    return query.most is None and any(_is_named(part) for part in parts_of(query.where))


def few(connection: Connection, sql: Statements, query: Select) -> RowPage:
    """The answer to a question that ``is_short``, in one statement; in two where the page has a
    bound in bytes.
    """
    if query.room is not None or query.after is not None:
        total, rids = _matching(connection, sql, query, f"r_{sql.layout.table} AS r")
        return read_page(connection, sql, query, rids, total)
    text, values = _condition(sql, query)
    raws = connection.execute(f"{sql.head} {text} ORDER BY {order_of(query)}", values).fetchall()
    stop = None if query.limit is None else query.offset + query.limit
    page = [sql.read(raw) for raw in raws[query.offset : stop]]
    more = query.offset + len(page) < len(raws)
    return RowPage(page, len(raws) if query.counted else 0, more)


def _is_named(part: Where) -> bool:
    return isinstance(part, Is) and part.column in ("@key", "@rid") and _lists_few(part)


def _is_indexed(sql: Statements, part: Where) -> bool:
    """Whether the part asks for a few values of a column, each of which has an index."""
    columns = [column.name for column in sql.layout.columns]
    return isinstance(part, Is) and part.column in columns and _lists_few(part)


def _lists_few(part: Is) -> bool:
    return not part.negated and None not in part.values and 0 < len(part.values) <= FEW_ROWS


def _condition(sql: Statements, query: Select) -> SqlCondition:
    parts = [condition(query.where, sql.layout.table), looked_at(query.now)]
    return join_conditions(parts, "AND")


def _matching(
    connection: Connection, sql: Statements, query: Select, source: str
) -> tuple[int, list[int]]:
    """Count the matching rows, where asked, and list the ids from those of the page on."""
    text, values = _condition(sql, query)
    total = 0
    if query.after is not None:
        if query.counted:
            total = _count(connection, f"SELECT 1 FROM {source} WHERE", (text, values), -1)
        text, values = join_conditions([(text, values), behind(query.order, query.after)], "AND")
    named = f"SELECT r.rid FROM {source} WHERE {text} ORDER BY {order_of(query)}"
    rids = [raw[0] for raw in connection.execute(named, values)]
    if query.counted and query.after is None:
        total = len(rids)
    return total, rids[query.offset :]


def _led(connection: Connection, sql: Statements, query: Select, lead: Where) -> RowPage | None:
    """A page of the rows that have a value of which the index has few."""
    table, column = sql.layout.table, lead.column if isinstance(lead, Is) else ""
    source = f'r_{table} AS r INDEXED BY "ix_{table}.{column}"'
    if _count(connection, f"SELECT 1 FROM {source} WHERE", condition(lead, table)) > FEW_ROWS:
        return None
    total, rids = _matching(connection, sql, query, source)
    return _bounded(connection, sql, query, (total, rids))


def _first(connection: Connection, sql: Statements, query: Select) -> RowPage | None:
    """A page of all rows by their age, where few are hidden."""
    rows = f"SELECT 1 FROM r_{sql.layout.table} AS r WHERE"
    hidden = _count(connection, rows, ("r.state = 1", []))
    hidden += _count(connection, rows, ("r.expires_at <= ? AND r.state = 0", [query.now]))
    if hidden > FEW_ROWS:
        return None
    total = 0
    if query.counted:
        named = "SELECT rows FROM tables WHERE name = ?"
        total = connection.execute(named, (sql.layout.table,)).fetchone()[0] - hidden
    text, values = looked_at(query.now)
    if query.after is not None:
        text, values = join_conditions([(text, values), behind(query.order, query.after)], "AND")
    descending = bool(query.order) and query.order[0].descending
    raws = connection.execute(
        f"SELECT r.rid FROM r_{sql.layout.table} AS r NOT INDEXED WHERE {text} ORDER BY r.rid "
        f"{'DESC' if descending else ''} LIMIT ? OFFSET ?",
        [*values, (query.limit or 0) + 1, query.offset],
    )
    return _bounded(connection, sql, query, (total, [raw[0] for raw in raws]))


def _bounded(
    connection: Connection, sql: Statements, query: Select, rows: tuple[int, Sequence[int]]
) -> RowPage | None:
    """The page of these rows, where it has few bytes."""
    total, rids = rows
    page, size = rids[: query.limit], 0
    for text, values in sql.sizes.runs(page) if page else ():
        size += sum(dict(connection.execute(text, values)).values())
    if size > _MOST_BYTES:
        return None
    if query.room is not None and size <= query.room:
        query = query._replace(room=None)  # all of them fit
    return read_page(connection, sql, query, list(rids), total)


def _count(connection: Connection, head: str, where: SqlCondition, most: int = FEW_ROWS + 1) -> int:
    text, values = where
    counted = f"SELECT count(*) FROM ({head} {text} LIMIT ?)"
    return int(connection.execute(counted, [*values, most]).fetchone()[0])
