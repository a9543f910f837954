"""Questions about rows: conditions as SQL, and their answers.

The server plans them, by the index of each column and the token index.

Rows and total of an answer belong to one state: they come from one statement, or from one
transaction that sees one. Sums are exact, for the server adds up without a bound. A condition has a
``?`` for each value, and its rows are named ``r``; it is true or false, or null where it is false:
nothing negates the whole of one.
"""

from collections.abc import Mapping, Sequence
from typing import Any as Anything

from proxy.storage.postgres.columns import PREFIX, text_prefix
from proxy.storage.postgres.statements import TableSql, numbered
from proxy.storage.query import (
    AggregateFunction,
    AggregateGroup,
    AggregateMetric,
    All,
    Any,
    Compare,
    Compared,
    Grouping,
    Holds,
    Indexed,
    Is,
    Order,
    RowPage,
    Select,
    Where,
    fitting,
    parts_of,
)
from proxy.storage.rows import ColumnType, ColumnValue, Row

# ruff: noqa: S608 - names have passed query.check_names and ValidatedQuery; every value is a parameter

_ONE_STATE = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

#: A condition: text and values.
SqlText = tuple[str, list[Anything]]

_MOST_HASHES = 32  #: of one alternative, that are looked up together

#: Hashes of a condition that are put in order, and the entry of each by which that is told.
_MOST_ORDERED = 2_000
_FIRST = 256

#: Columns that have a value in each row.
_NEVER_EMPTY = ("@rid", "@created_at", "@updated_at", "@version")

_NEVER: SqlText = ("false", [])
_ALWAYS: SqlText = ("true", [])


def column_sql(column: str) -> str:
    """The name of a column in SQL."""
    return f"r.{column[1:]}" if column.startswith("@") else f"r.x_{column}"


def live_rows(now: int) -> SqlText:
    """Rows that may be shown at that instant."""
    return "r.state = 0 AND (r.expires_at IS NULL OR r.expires_at > ?)", [now]


def joined(parts: Sequence[SqlText], word: str) -> SqlText:
    """All of them (``AND``) or at least one (``OR``)."""
    if not parts:
        return _ALWAYS if word == "AND" else _NEVER
    text = f" {word} ".join([f"({part})" for part, _ in parts])
    return text, [value for _, values in parts for value in values]


class WhereSql:
    """Builder of conditions on the rows of one table."""

    def __init__(self, sql: TableSql) -> None:
        self._table = sql.layout.table
        self._types = sql.types

    def is_text(self, column: str) -> bool:
        """Whether the index of the column is on the first bytes of its texts."""
        return self._types.get(column) is ColumnType.TEXT

    def stored(self, column: str, value: ColumnValue) -> ColumnValue:
        """A value as the column holds it."""
        return value.encode() if self.is_text(column) and isinstance(value, str) else value

    def where(self, where: Where) -> SqlText:
        """``where`` with values as they are kept (``ValidatedQuery.where``)."""
        if isinstance(where, Any) and (listed := _listed(where.parts)):
            others = [self.where(part) for part in where.parts if not _listed([part])]
            return joined([self._alternatives(listed), *others], "OR")
        if isinstance(where, All | Any):
            word = "AND" if isinstance(where, All) else "OR"
            return joined([self.where(part) for part in where.parts], word)
        if isinstance(where, Indexed):
            return self._indexed(where)
        if isinstance(where, Is):
            return self._is(where)
        if isinstance(where, Compared):
            return self._compared(where.column, where.how, where.value)
        return self._holds(where)

    def order(self, order: Sequence[Order], *, wide: bool) -> str:
        """The keys of an order. ``wide``: some texts are longer than what their index holds."""
        keys = [key for order_by in order for key in self._keys(order_by, wide=wide)]
        return ", ".join([*keys, "r.rid"])

    def behind(self, order: Sequence[Order], after: Sequence[ColumnValue]) -> SqlText:
        """Rows behind the place where a page ended, in that order; missing values come first."""
        text, values = "r.rid > ?", [after[-1]]
        for key, cell in reversed(list(zip(order, after, strict=False))):
            name, last = column_sql(key.column), self.stored(key.column, cell)
            if key.column == "@rid":  # unique: later keys of the order decide nothing
                text, values = f"r.rid {'<' if key.descending else '>'} ?", [last]
            elif last is None:
                one = "IS NULL AND" if key.descending else "IS NOT NULL OR"
                text = f"{name} {one} ({text})"
            else:
                further = f"{name} < ? OR {name} IS NULL" if key.descending else f"{name} > ?"
                text, values = f"{further} OR ({name} = ? AND ({text}))", [last, last, *values]
        return joined([self._bound(order, after), (text, values)], "AND")

    def later(self, keys: Sequence[str], after: Sequence[ColumnValue]) -> SqlText:
        """Rows of the groups whose keys come after those; nothing comes before every value."""
        places: list[SqlText] = []
        last = [self.stored(key, cell) for key, cell in zip(keys, after, strict=True)]
        for at, key in enumerate(keys):
            same = [self._same(other, last[n]) for n, other in enumerate(keys[:at])]
            name, here = column_sql(key), last[at]
            beyond = (f"{name} IS NOT NULL", []) if here is None else (f"{name} > ?", [here])
            places.append(joined([*same, beyond], "AND"))
        return joined(places, "OR")

    def _same(self, column: str, value: ColumnValue) -> SqlText:
        name = column_sql(column)
        return (f"{name} IS NULL", []) if value is None else (f"{name} = ?", [value])

    def _bound(self, order: Sequence[Order], after: Sequence[ColumnValue]) -> SqlText:
        """Return the condition that reaches later rows by the index of the first column."""
        if not order or order[0].column == "@rid" or after[0] is None:
            return _ALWAYS
        if not order[0].descending:
            return self._compared(order[0].column, Compare.GTE, after[0])
        if order[0].column in _NEVER_EMPTY:
            return self._compared(order[0].column, Compare.LTE, after[0])
        return _ALWAYS

    def _keys(self, key: Order, *, wide: bool) -> list[str]:
        name, turn = column_sql(key.column), "DESC NULLS LAST" if key.descending else "NULLS FIRST"
        if key.column in _NEVER_EMPTY:
            return [f"{name}{' DESC' if key.descending else ''}"]
        if not self.is_text(key.column):
            return [f"{name} {turn}"]
        first = f"{text_prefix(name)} {turn}"
        return [first, f"{name} {turn}"] if wide else [first]

    def _is(self, where: Is) -> SqlText:
        name = column_sql(where.column)
        values = [value for value in dict.fromkeys(where.values) if value is not None]
        nothing = len(values) < len(set(where.values))
        kind = "bytea" if self._is_bytes(where.column) else "bigint"
        stored = [self.stored(where.column, value) for value in values]
        text = f"{name} = ANY(?::{kind}[])"
        parameters: list[Anything] = [stored]
        if where.negated:
            first = f"{name} IS NOT NULL AND" if nothing else f"{name} IS NULL OR"
            return f"{first} NOT {text}", parameters
        if self.is_text(where.column):
            firsts = [value[:PREFIX] for value in stored if isinstance(value, bytes)]
            text = f"{text_prefix(name)} = ANY(?::bytea[]) AND {text}"
            parameters = [firsts, stored]
        if not nothing:
            return text, parameters
        empty = f"{text_prefix(name) if self.is_text(where.column) else name} IS NULL"
        return (f"{empty} OR ({text})", parameters) if values else (empty, [])

    def _is_bytes(self, column: str) -> bool:
        kind = self._types.get(column)
        return column == "@key" or kind in (ColumnType.TEXT, ColumnType.HASH)

    def _compared(self, column: str, how: Compare, value: ColumnValue) -> SqlText:
        name, stored = column_sql(column), self.stored(column, value)
        text, values = f"{name} {how} ?", [stored]
        if isinstance(stored, bytes) and self.is_text(column):
            first = f"{text_prefix(name)} {how.rstrip('=')}= ?"
            return f"{first} AND {text}", [stored[:PREFIX], stored]
        return text, list(values)

    def _holds(self, where: Holds) -> SqlText:
        name = column_sql(where.column)
        folded = f"coalesce(r.y_{where.column}, {name})"
        text = f"coalesce(position(?::bytea IN {folded}) > 0, false)"
        return (f"NOT {text}" if where.negated else text), [where.text.encode()]

    def _alternatives(self, parts: Sequence[list[bytes]]) -> SqlText:
        """Rows that have all the hashes of one of the lists, the rarest first (``rarest_first``).

        Its entries are read, and each is looked up by its key among those of the others. ``OFFSET``
        keeps the planner from reading those as a whole, and the array from reading all rows.
        """
        width = max(map(len, parts))
        names = [f"h{number}" for number in range(width)]
        values = [
            [one[number] if number < len(one) else one[0] for one in parts]
            for number in range(width)
        ]
        wanted = f"unnest({', '.join(['?::bytea[]'] * width)}) AS w({', '.join(names)})"
        entries = f"SELECT rid FROM t_{self._table} WHERE hash = w.h0 OFFSET 0"
        others = [
            f"CROSS JOIN LATERAL (SELECT 1 FROM t_{self._table} AS o"
            f" WHERE o.hash = w.{name} AND o.rid = t.rid OFFSET 0) AS o{name}"
            for name in names[1:]
        ]
        source = " ".join([wanted, f"CROSS JOIN LATERAL ({entries}) AS t", *others])
        return f"r.rid = ANY(ARRAY(SELECT t.rid FROM {source}))", values

    def _indexed(self, where: Indexed) -> SqlText:
        one = f"EXISTS (SELECT 1 FROM t_{self._table} AS t WHERE t.hash = ? AND t.rid = r.rid)"
        hashes = dict.fromkeys(where.hashes)
        text, values = joined([(one, [token]) for token in hashes], "AND")
        return (f"NOT ({text})" if where.negated else text), values


async def rarest_first(connection: Anything, table: str, where: Where) -> Where:
    """The same condition, its lists of hashes in the order in which their entries are to be read.

    How far apart the first entries of a hash are tells that without counting: ids follow time.
    """
    hashes = list({one: None for several in _lists(where) for one in several if len(several) > 1})
    if not 0 < len(hashes) <= _MOST_ORDERED:
        return where
    nth = f"SELECT rid FROM t_{table} WHERE hash = w.hash ORDER BY rid LIMIT 1 OFFSET {_FIRST}"
    text = f"SELECT hash, coalesce(({nth}), {2**63 - 1}) FROM unnest($1::bytea[]) AS w(hash)"
    return _ordered(where, {raw[0]: raw[1] for raw in await connection.fetch(text, hashes)})


def _lists(where: Where) -> list[tuple[bytes, ...]]:
    """The lists of hashes in a condition."""
    if isinstance(where, Indexed):
        return [where.hashes]
    if isinstance(where, All | Any):
        return [hashes for part in where.parts for hashes in _lists(part)]
    return []


def _ordered(where: Where, far: Mapping[bytes, int]) -> Where:
    if isinstance(where, Indexed):
        hashes = sorted(where.hashes, key=lambda one: far.get(one, 0), reverse=True)
        return where._replace(hashes=tuple(hashes))
    if isinstance(where, All | Any):
        return type(where)(tuple([_ordered(part, far) for part in where.parts]))
    return where


def _listed(parts: Sequence[Where]) -> list[list[bytes]]:
    """The hashes of each alternative whose rows the index of tokens lists."""
    return [
        list(dict.fromkeys(part.hashes))
        for part in parts
        if isinstance(part, Indexed) and not part.negated and 0 < len(part.hashes) <= _MOST_HASHES
    ]


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
