"""Answers to questions about rows: the server plans them, by the index of each column and the token
index.

Rows and total of an answer belong to one state: they come from one statement, or from one
transaction that sees one. Sums are exact, for the server adds up without a bound.
"""

from typing import Any as Anything

from proxy.storage.postgres.statements import TableSql
from proxy.storage.postgres.where import (
    SqlText,
    WhereSql,
    column_sql,
    joined,
    live_rows,
    numbered,
    rarest_first,
)
from proxy.storage.query import (
    AggregateFunction,
    AggregateGroup,
    AggregateMetric,
    Grouping,
    RowPage,
    Select,
    fitting,
    parts_of,
)
from proxy.storage.rows import ColumnType, ColumnValue, Row

# ruff: noqa: S608 - names have passed query.check_names and ValidatedQuery; every value is a parameter

_ONE_STATE = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


async def select_page(connection: Anything, sql: TableSql, query: Select) -> RowPage:
    """The answer to ``Store.select``; ``query`` as ``ValidatedQuery`` made it."""
    await connection.execute(_ONE_STATE)
    try:
        page = await _page(connection, sql, query)
    except BaseException:  # a caller that gives up, too: the session is in the middle of something
        connection.terminate()
        raise
    await connection.execute("COMMIT")
    return page


async def _page(connection: Anything, sql: TableSql, query: Select) -> RowPage:
    conditions = WhereSql(sql)
    query = query._replace(where=await rarest_first(connection, sql.layout.table, query.where))
    matching = joined([conditions.where(query.where), live_rows(query.now)], "AND")
    total = await _total(connection, sql, query, matching) if query.counted else 0
    if query.most is not None and total > query.most:
        return RowPage([], total, more=True)
    if query.after is not None:
        matching = joined([matching, conditions.behind(query.order, query.after)], "AND")
    wide = any(conditions.is_text(key.column) for key in query.order) and bool(
        await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM r_{sql.layout.table} WHERE wide)")
    )
    order = f"ORDER BY {conditions.order(query.order, wide=wide)}"
    limit = (
        None if query.limit is None else query.limit + 1
    )  # one more tells whether there are more
    tail = f"FROM r_{sql.layout.table} AS r WHERE {matching[0]} {order} LIMIT ? OFFSET ?"
    values = [*matching[1], limit, query.offset]
    if query.room is None:
        raws = await connection.fetch(numbered(f"SELECT {sql.columns} {tail}"), *values)
        rows = [sql.read(raw) for raw in raws[: query.limit]]
        return RowPage(rows, total, len(rows) < len(raws))
    raws = await connection.fetch(numbered(f"SELECT r.rid, length(r.body) {tail}"), *values)
    sizes = [raw[1] for raw in raws[: query.limit]]
    rids = [raw[0] for raw in raws[: fitting(sizes, query.room)]]
    by_rid: dict[int, Row] = {
        raw[0]: sql.read(raw) for raw in await connection.fetch(sql.rows, rids)
    }
    return RowPage([by_rid[rid] for rid in rids], total, len(rids) < len(raws))


async def _total(connection: Anything, sql: TableSql, query: Select, matching: SqlText) -> int:
    """Count the visible rows that match; of all rows the stored count tells it."""
    rows = f"r_{sql.layout.table} AS r"
    if parts_of(query.where) == ():
        text = (
            f"SELECT ({sql.counted}) - (SELECT count(*) FROM {rows} WHERE r.state = 1)"
            f" - (SELECT count(*) FROM {rows} WHERE r.expires_at <= ? AND r.state = 0)"
        )
        return int(await connection.fetchval(numbered(text), query.now))
    text, values = f"SELECT count(*) FROM {rows} WHERE {matching[0]}", matching[1]
    if query.most is not None:
        text = f"SELECT count(*) FROM (SELECT 1 FROM {rows} WHERE {matching[0]} LIMIT ?) AS few"
        values = [*values, query.most + 1]
    return int(await connection.fetchval(numbered(text), *values))


async def aggregate_rows(
    connection: Anything, sql: TableSql, query: Grouping
) -> list[AggregateGroup]:
    """The answer to ``Store.aggregate``; ``query`` as ``ValidatedQuery`` made it."""
    if query.after == ():
        return []  # the only group there is was the one before
    conditions = WhereSql(sql)
    where = await rarest_first(connection, sql.layout.table, query.where)
    parts = [conditions.where(where), live_rows(query.now)]
    if query.after is not None:
        parts.append(conditions.later(query.keys, query.after))
    text, values = joined(parts, "AND")
    keys = [column_sql(column) for column in query.keys]
    figures = [_figure(metric) for metric in query.metrics]
    columns = ", ".join([*keys, "coalesce(min(r.rid), 0)", *figures])
    grouped = ""
    if keys:
        ordered = ", ".join([f"{key} NULLS FIRST" for key in keys])
        grouped = f"GROUP BY {', '.join(keys)} ORDER BY {ordered}"
    statement = f"SELECT {columns} FROM r_{sql.layout.table} AS r WHERE {text} {grouped} LIMIT ?"
    texts = [sql.types.get(column) is ColumnType.TEXT for column in query.keys]
    raws = await connection.fetch(numbered(statement), *values, query.limit)
    return [_group(tuple(raw), texts) for raw in raws]


def _figure(metric: AggregateMetric) -> str:
    if metric.column is None:
        return "count(*)"
    figure = f"{metric.func}({column_sql(metric.column)})"
    return f"coalesce({figure}, 0)" if metric.func is AggregateFunction.SUM else figure


def _group(raw: tuple[Anything, ...], texts: list[bool]) -> AggregateGroup:
    width = len(texts)
    keys: tuple[ColumnValue, ...] = tuple(
        cell.decode() if text and cell is not None else cell
        for cell, text in zip(raw[:width], texts, strict=True)
    )
    figures = tuple(None if figure is None else int(figure) for figure in raw[width + 1 :])
    return AggregateGroup(keys, figures, raw[width])
