"""Questions that every engine answers about the live rows of one table: by columns, keys, and the
token index.

A column is named as in the layout; those that every table has are ``@rid``, ``@key``, ``@version``,
``@created_at``, ``@updated_at`` and ``@expires_at``. Engines never show rows that are PENDING or
whose ``expires_at`` has come.

The order of texts is that of their code points, of numbers that of numbers; a missing value comes
before every other (and so last where the order descends).
"""

import enum
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any as Anything
from typing import NamedTuple

from proxy.errors import Code, VaultError
from proxy.storage.rows import ColumnType, ColumnValue, Row, TableLayout, scaled


class Compare(enum.StrEnum):
    """Comparisons; they never hold where the column has no value."""

    GT = ">"
    GTE = ">="
    LT = "<"
    LTE = "<="


class Is(NamedTuple):
    """The column has one of the values (``None`` among them: or none).

    ``negated``: the opposite, rows without a value included.
    """

    column: str
    values: tuple[ColumnValue, ...]
    negated: bool = False


class Compared(NamedTuple):
    """The column has a value that compares so."""

    column: str
    how: Compare
    value: ColumnValue


def fold(text: str) -> str:
    """A text as it is compared whatever the letter case.

    ``İ`` is an i, not an i with a second dot.
    """
    return text.casefold().replace("i\u0307", "i")


class Holds(NamedTuple):
    """The text of the column, case-folded (``fold``), holds this folded text.

    ``negated``: the opposite, rows without a value included.
    """

    column: str
    text: str
    negated: bool = False


class Indexed(NamedTuple):
    """The token index has all these hashes for the row. ``negated``: not all of them."""

    hashes: tuple[bytes, ...]
    negated: bool = False


class All(NamedTuple):
    """Every part holds; without parts it always does."""

    parts: tuple["Where", ...]


class Any(NamedTuple):
    """At least one part holds; without parts it never does."""

    parts: tuple["Where", ...]


Where = Is | Compared | Holds | Indexed | All | Any

#: Everything.
MATCH_ALL = All(())


class Order(NamedTuple):
    """A sort column; after the last one rows come by ``rid``, ascending."""

    column: str
    descending: bool = False


class Select(NamedTuple):
    """A page of rows. ``counted``: tell how many there are in all, too, whatever ``after`` says."""

    where: Where
    now: int  #: rows that have expired then are not shown
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    counted: bool = True
    #: Where the page before ended: of its last row the cells of ``order`` as rows show them, and
    #: the id.
    after: tuple[ColumnValue, ...] | None = None
    #: bytes of sealed bodies that the page may hold; its first row it always holds
    room: int | None = None
    #: where more rows match, they are not wanted: no row is shown, and ``total`` is a number beyond
    most: int | None = None


class RowPage(NamedTuple):
    """Rows in order, the size of the whole answer (0 if not counted), and whether more follow."""

    rows: list[Row]
    total: int
    more: bool = False


def fitting(sizes: Sequence[int], room: int | None) -> int:
    """Count how many of the first bodies fit into the room together; at least one."""
    if room is not None:
        for number, size in enumerate(sizes):
            room -= size
            if room < 0 and number:
                return number
    return len(sizes)


class AggregateFunction(enum.StrEnum):
    """Aggregation functions; rows without a value do not count.

    ``COUNT`` with no column counts rows.
    """

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


class AggregateMetric(NamedTuple):
    """A figure for each group."""

    func: AggregateFunction
    column: str | None = None


class Grouping(NamedTuple):
    """A page of groups, ascending by their keys.

    ``after``: the keys of the last group of the page before, as it told them.
    """

    where: Where
    now: int
    keys: tuple[str, ...]
    metrics: tuple[AggregateMetric, ...]
    limit: int
    after: tuple[ColumnValue, ...] | None = None


class AggregateGroup(NamedTuple):
    """Keys and figures of a group, exact; those of decimal columns are integers that count
    ten-thousandths (``rows.DECIMAL_PLACES``).

    ``None`` where no row has a value (and 0 for ``COUNT``, ``SUM``). ``rid`` is the oldest row of
    the group. Without keys there is always one group, and its ``rid`` is 0 if it is empty.
    """

    keys: tuple[ColumnValue, ...]
    figures: tuple[int | None, ...]
    rid: int


# Validation of queries against a layout, with values in stored form: every engine does it first.
#
# An unknown column, a value of the wrong type, a sum of texts: these are mistakes of this program,
# raised as ``VaultError(INTERNAL)`` without the value. Mistakes of callers are refused long before
# (``model.filter_reader``).

#: The columns that every table has, as questions name them.
FIXED_COLUMNS = {
    "@rid": ColumnType.INTEGER,
    "@key": ColumnType.HASH,
    "@version": ColumnType.INTEGER,
    "@created_at": ColumnType.INTEGER,
    "@updated_at": ColumnType.INTEGER,
    "@expires_at": ColumnType.INTEGER,
}
_NUMBERS = (ColumnType.INTEGER, ColumnType.DECIMAL)
_BEYOND = 2**63  #: whole numbers have 64 bits, one of them for the sign


class ValidatedQuery:
    """Queries that one layout allows."""

    __slots__ = ("_types",)

    def __init__(self, layout: TableLayout) -> None:
        self._types = {**FIXED_COLUMNS, **{column.name: column.type for column in layout.columns}}

    def where(self, where: Where) -> Where:
        """The same condition: decimals as ten-thousandths; comparisons with nothing never hold."""
        if isinstance(where, Is):
            cells = tuple(
                [
                    None if value is None else self._stored_form(where.column, value)
                    for value in where.values
                ]
            )
            self._type(where.column)
            return where._replace(values=cells)
        if isinstance(where, Compared):
            if where.value is None:
                return Any(())
            return where._replace(value=self._stored_form(where.column, where.value))
        if isinstance(where, Holds):
            if self._type(where.column) is not ColumnType.TEXT:
                raise VaultError(
                    Code.INTERNAL,
                    f"The column {where.column} of the store holds no text to look into.",
                )
            return where
        if isinstance(where, Indexed):
            return where
        return type(where)(tuple([self.where(part) for part in where.parts]))

    def order(self, order: tuple[Order, ...]) -> None:
        """Refuse an order by columns that are not there."""
        for key in order:
            self._type(key.column)

    def select(self, query: Select) -> Select:
        """The same question, its condition and the place where a page ended as they are kept."""
        self.order(query.order)
        after = query.after
        if after is not None:
            order = [
                None if cell is None else self._stored_form(key.column, cell)
                for key, cell in zip(query.order, after, strict=False)
            ]
            after = (*order, self._stored_form("@rid", after[-1]))
        return query._replace(where=self.where(query.where), after=after)

    def grouping(self, query: Grouping) -> None:
        """Refuse keys and figures of columns that are not there or hold no numbers."""
        for column in query.keys:
            self._type(column)
        for metric in query.metrics:
            if metric.column is None:
                if metric.func is not AggregateFunction.COUNT:
                    raise VaultError(
                        Code.INTERNAL, f"The figure {metric.func} of the store needs a column."
                    )
            elif (
                self._type(metric.column) not in _NUMBERS
                and metric.func is not AggregateFunction.COUNT
            ):
                raise VaultError(
                    Code.INTERNAL, f"The column {metric.column} of the store holds no numbers."
                )

    def _type(self, column: str) -> ColumnType:
        kind = self._types.get(column)
        if kind is None:
            raise VaultError(
                Code.INTERNAL, f"The store was asked for a column {column!r} that the layout lacks."
            )
        return kind

    def _stored_form(self, column: str, value: ColumnValue) -> ColumnValue:
        kind = self._type(column)
        if kind is ColumnType.DECIMAL:
            return scaled(value)
        fits = {
            ColumnType.HASH: isinstance(value, bytes),
            ColumnType.TEXT: isinstance(value, str),
            ColumnType.INTEGER: isinstance(value, int) and -_BEYOND <= value < _BEYOND,
        }
        if not fits[kind]:
            raise VaultError(
                Code.INTERNAL,
                f"The store was asked for a value that its column {column} cannot hold.",
            )
        return value


def parts_of(where: Where) -> tuple[Where, ...]:
    """Return the conditions that have to hold together."""
    if isinstance(where, All) or (isinstance(where, Any) and len(where.parts) == 1):
        return tuple(inner for part in where.parts for inner in parts_of(part))
    return (where,)


# The names that a layout may bring: they become part of statements, so nothing else may pass.

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")


def check_names(layout: TableLayout) -> None:
    """``VaultError(INTERNAL)`` for a name that is no ``[a-z][a-z0-9_]{0,47}``, or comes twice."""
    names = [column.name for column in layout.columns]
    for name in (layout.table, *names):
        if not _NAME.fullmatch(name):
            raise VaultError(
                Code.INTERNAL, f"{name!r} cannot name a table or a column of the store."
            )
    if len(set(names)) != len(names):
        raise VaultError(Code.INTERNAL, f"The layout of {layout.table} names a column twice.")


def unknown(table: str) -> VaultError:
    """The error of a table that was not ensured since the store was opened."""
    return VaultError(
        Code.INTERNAL, f"The table {table} is not known: ensure its layout before it is used."
    )


def closed() -> VaultError:
    """The error of a store that is used after ``close``."""
    return VaultError(Code.VAULT_DOWN, "The vault's store is closed: the program is stopping.")


def changed_meanwhile(note: str) -> VaultError:
    """The error of a note that another process has written since it was read."""
    return VaultError(
        Code.CONFLICT,
        f"The note {note} of the store was changed by another process: read it again.",
    )


# Evaluation of a condition in plain Python: for the reference engine, and for rows before they are
# stored.

_COMPARE: dict[Compare, Callable[[Anything, Anything], bool]] = {
    Compare.GT: operator.gt,
    Compare.GTE: operator.ge,
    Compare.LT: operator.lt,
    Compare.LTE: operator.le,
}


def holds(
    where: Where, cell: Callable[[str], ColumnValue], indexed: Callable[[bytes], bool]
) -> bool:
    """Whether a condition of ``ValidatedQuery`` holds for a row's stored columns and entries."""
    match where:
        case Is(column, values, negated):
            return (cell(column) in values) is not negated
        case Compared(column, how, value):
            stored = cell(column)
            return stored is not None and _COMPARE[how](stored, value)
        case Holds(column, text, negated):
            stored = cell(column)
            return (stored is not None and text in fold(str(stored))) is not negated
        case Indexed(hashes, negated):
            return all(map(indexed, hashes)) is not negated
        case All(parts):
            return all(holds(part, cell, indexed) for part in parts)
        case Any(parts):
            return any(holds(part, cell, indexed) for part in parts)
