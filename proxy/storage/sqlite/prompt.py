"""Answers to small questions: on the event loop, as a thread would cost ten times the answer.

A question by keys or ids is small by itself. Of others an index tells: that a value has few rows,
or that few of the first rows are hidden. They read a bounded number of rows and bytes; a reached
bound sends the question to a thread.
"""

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any, Final

from proxy.storage.query import All, Is, Order, RowPage, Select, Where, fitting, parts_of
from proxy.storage.query import Any as AnyOf
from proxy.storage.rows import ColumnType
from proxy.storage.sqlite.select import by_age, order_of, read_page
from proxy.storage.sqlite.statements import BODY_COLUMN, SHORT_BODIES, Statements
from proxy.storage.sqlite.where import SqlCondition, behind, condition, join_conditions, looked_at

# ruff: noqa: S608 - names have passed query.check_names and ValidatedQuery; every value is a parameter

#: Rows that may be read on the event loop.
FEW_ROWS: Final = 32

#: Questions of one table whose statements are kept.
_MOST_PREPARED: Final = 64

#: The type of a column's values where they are stored as questions name them.
_KINDS: Final = {ColumnType.HASH: bytes, ColumnType.TEXT: str}

#: How many rows of a table are hidden at the instant ``?1``, as far as that is few.
_HIDDEN: Final = (
    f"((SELECT count(*) FROM (SELECT 1 FROM r_<table> WHERE state = 1 LIMIT {FEW_ROWS + 1})) + "
    "(SELECT count(*) FROM (SELECT 1 FROM r_<table> WHERE expires_at <= ?1 AND state = 0 "
    f"LIMIT {FEW_ROWS + 1})))"
)


def prompt_page(connection: Connection, sql: Statements, query: Select) -> RowPage | None:
    """The answer to a small question; ``None`` for any other."""
    if is_short(query):
        return few(connection, sql, query)
    if query.most is not None or _asks_nothing(query.where):
        return None
    parts = parts_of(query.where)
    lead = next((part for part in parts if _is_indexed(sql, part)), None)
    if isinstance(lead, Is):
        recounted = query.counted and query.after is not None
        return None if recounted else _led(connection, sql, query, lead)
    few_wanted = query.limit is not None and query.offset + query.limit <= FEW_ROWS
    return _first(connection, sql, query) if few_wanted and not parts and by_age(query) else None


def is_short(query: Select) -> bool:
    """Whether the rows that the question can find are few and named."""
    return query.most is None and any(_is_named(part) for part in parts_of(query.where))


def few(connection: Connection, sql: Statements, query: Select) -> RowPage:
    """The answer to a question that ``is_short``: one statement, two if bounded in bytes."""
    if query.room is not None or query.after is not None:
        total, rids = _matching(connection, sql, query, f"r_{sql.layout.table} AS r")
        return read_page(connection, sql, query, rids, total)
    text, values = _condition(sql, query)
    raws = connection.execute(
        f"{sql.head} {text} ORDER BY {order_of(query.order)}", values
    ).fetchall()
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


def _asks_nothing(where: Where) -> bool:
    """Whether a part cannot hold: SQLite then says "no query solution" to a named index."""
    if isinstance(where, All | AnyOf):
        nothing = isinstance(where, AnyOf) and not where.parts
        return nothing or any(_asks_nothing(part) for part in where.parts)
    return isinstance(where, Is) and not where.negated and not where.values


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
            counted = f"SELECT count(*) FROM {source} WHERE {text}"
            total = int(connection.execute(counted, values).fetchone()[0])
        text, values = join_conditions([(text, values), behind(query.order, query.after)], "AND")
    named = f"SELECT r.rid FROM {source} WHERE {text} ORDER BY {order_of(query.order)}"
    rids = [raw[0] for raw in connection.execute(named, values)]
    if query.counted and query.after is None:
        total = len(rids)
    return total, rids[query.offset :]


def _led(connection: Connection, sql: Statements, query: Select, lead: Is) -> RowPage | None:
    """A page of the rows that have a value of which the index has few, in one statement."""
    where, values = _condition(sql, query)
    if query.after is not None:
        parts = [(where, values), behind(query.order, query.after)]
        where, values = join_conditions(parts, "AND")
    count, counted = _counted(sql, lead)
    text = _led_text(sql, lead.column, (where, count), query.order)
    return _led_page(
        connection, sql, query, ((text, [*counted, *values, *counted]), (count, counted))
    )


def _led_text(
    sql: Statements, column: str, conditions: tuple[str, str], order: tuple[Order, ...]
) -> str:
    """The statement that finds all rows that match, where the index has few of the lead; else none.

    The bound stands in ``LIMIT``, which is worked out before the first row is looked for.
    """
    where, count = conditions
    body = sql.columns_with(f"length(r.body) * ({count}) <= {SHORT_BODIES}")
    return (
        f"SELECT {body} FROM {_source(sql, column)} WHERE {where} ORDER BY {order_of(order)} "
        f"LIMIT CASE WHEN ({count}) <= {FEW_ROWS} THEN {FEW_ROWS} ELSE 0 END"
    )


def _led_page(
    connection: Connection,
    sql: Statements,
    query: Select,
    statements: tuple[SqlCondition, SqlCondition],
) -> RowPage | None:
    """The page that the first statement finds; the second one counts the lead."""
    (text, values), (count, counted) = statements
    raws = connection.execute(text, values).fetchall()
    if not raws:  # there is none, or too many: of one state the index tells which
        connection.execute("BEGIN")
        try:
            if connection.execute(count, counted).fetchone()[0] > FEW_ROWS:
                return None
            raws = connection.execute(text, values).fetchall()
        finally:
            connection.execute("COMMIT")
    stop = None if query.limit is None else query.offset + query.limit
    more = stop is not None and len(raws) > stop
    return _read(sql, query, raws[query.offset : stop], (len(raws) * query.counted, more))


def _source(sql: Statements, column: str) -> str:
    table = sql.layout.table
    return f'r_{table} AS r INDEXED BY "ix_{table}.{column}"'


def _counted(sql: Statements, lead: Is) -> SqlCondition:
    """A statement that counts the rows of the lead in its index, as far as that is few."""
    text, values = condition(lead, sql.layout.table)
    entries = f"SELECT 1 FROM {_source(sql, lead.column)} WHERE {text} LIMIT {FEW_ROWS + 1}"
    return f"SELECT count(*) FROM ({entries})", values


def _first(connection: Connection, sql: Statements, query: Select) -> RowPage | None:
    """A page of all rows by their age, where few are hidden, in one statement.

    The number of all shown rows comes with each row. Where no row comes, a thread tells whether
    there is none or many are hidden.
    """
    limit, paged = query.limit or 0, query.after is not None
    descends = bool(query.order) and query.order[0].descending
    values: list[Any] = [query.now, limit + 1, query.offset, SHORT_BODIES // max(limit, 1)]
    if query.after is not None:
        values.append(query.after[-1])
    key = descends, paged
    text = sql.prompt.get(key) or sql.prompt.setdefault(key, _first_text(sql, *key))
    raws = connection.execute(text, values).fetchall()
    if not raws:
        return None
    page = [raw[1:] for raw in raws[:limit]]
    return _read(sql, query, page, (raws[0][0] * query.counted, len(raws) > limit))


def _first_text(sql: Statements, descends: bool, paged: bool) -> str:
    table = sql.layout.table
    hidden = _HIDDEN.replace("<table>", table)
    last = f"AND r.rid {'<' if descends else '>'} ?5" if paged else ""
    return (
        f"SELECT (SELECT rows FROM tables WHERE name = '{table}') - {hidden}, "
        f"{sql.columns_with('length(r.body) <= ?4')} FROM r_{table} AS r NOT INDEXED "
        f"WHERE +r.state = 0 AND (+r.expires_at IS NULL OR +r.expires_at > ?1) {last} "
        f"ORDER BY r.rid {'DESC' if descends else ''} "
        f"LIMIT CASE WHEN {hidden} <= {FEW_ROWS} THEN ?2 ELSE 0 END OFFSET ?3"
    )


def frequent_page(connection: Connection, sql: Statements, query: Select) -> RowPage | None:
    """The answer to a question for all rows by their age, or for those of one value, by statements
    that are made once; ``None`` where it is another one, or not small.
    """
    where = query.where
    if type(where) is not All or query.most is not None or query.after is not None:
        return None
    if not where.parts:
        few = query.limit is not None and query.offset + query.limit <= FEW_ROWS
        return _first(connection, sql, query) if few and by_age(query) else None
    lead = where.parts[0]
    if len(where.parts) > 1 or type(lead) is not Is or lead.negated or len(lead.values) != 1:
        return None
    key = lead.column, query.order
    if (texts := sql.prompt.get(key)) is None:
        if len(query.order) > 1 or (prepared := _one_value(sql, query)) is None:
            return None
        if len(sql.prompt) >= _MOST_PREPARED:
            sql.prompt.clear()
        texts = sql.prompt[key] = prepared
    text, count, kind = texts
    (value,) = lead.values
    if type(value) is not kind:
        return None
    return _led_page(connection, sql, query, ((text, [value, query.now]), (count, [value])))


def _one_value(sql: Statements, query: Select) -> tuple[str, str, type] | None:
    """The statements of a question for one value of a column, and the type of such values.

    ``?1`` is the value, ``?2`` the instant. ``None``: no index has them as they are asked for.
    """
    (lead,) = parts_of(query.where)
    if not isinstance(lead, Is) or not _is_indexed(sql, lead):
        return None
    sql.validated.order(query.order)
    kinds = {column.name: _KINDS.get(column.type) for column in sql.layout.columns}
    if (kind := kinds[lead.column]) is None:
        return None
    entries = f"SELECT 1 FROM {_source(sql, lead.column)} WHERE r.x_{lead.column} = ?1"
    count = f"SELECT count(*) FROM ({entries} LIMIT {FEW_ROWS + 1})"
    visible = "+r.state = 0 AND (+r.expires_at IS NULL OR +r.expires_at > ?2)"
    where = f"r.x_{lead.column} = ?1 AND {visible}"
    return _led_text(sql, lead.column, (where, count), query.order), count, kind


def _read(
    sql: Statements, query: Select, raws: Sequence[tuple[Any, ...]], ends: tuple[int, bool]
) -> RowPage | None:
    """The page of these rows, as many as it has room for; ``None`` where they have many bytes.

    ``ends``: how many rows there are in all, and whether more follow.
    """
    total, more = ends
    for raw in raws:
        if raw[BODY_COLUMN] is None:
            return None
    if query.room is not None and query.room < SHORT_BODIES:
        count = fitting([len(raw[BODY_COLUMN]) for raw in raws], query.room)
        raws, more = raws[:count], more or count < len(raws)
    return RowPage(sql.read_each(raws), total, more)
