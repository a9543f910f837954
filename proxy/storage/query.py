"""Questions that every engine answers about the live rows of one table: by columns, keys, and the token index.

A column is named as in the layout; those that every table has are ``@rid``, ``@key``, ``@version``, ``@created_at``,
``@updated_at`` and ``@expires_at``. Engines never show rows that are PENDING or whose ``expires_at`` has come.

The order of texts is that of their code points, of numbers that of numbers; a missing value comes before every other
(and so last where the order descends).
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple

from proxy.storage.rows import Cell, Row


class Compare(enum.StrEnum):
    """Comparisons; they never hold where the column has no value."""

    GT = ">"
    GTE = ">="
    LT = "<"
    LTE = "<="


class Is(NamedTuple):
    """The column has one of the values (``None`` among them: or none). ``negated``: the opposite, rows without a value included."""

    column: str
    values: tuple[Cell, ...]
    negated: bool = False


class Compared(NamedTuple):
    """The column has a value that compares so."""

    column: str
    how: Compare
    value: Cell


def fold(text: str) -> str:
    """A text as it is compared whatever the letter case; ``İ`` is an i, not an i with a second dot."""
    return text.casefold().replace("i\u0307", "i")


class Holds(NamedTuple):
    """The text of the column, case-folded (``fold``), holds this folded text. ``negated``: the opposite, rows without a value included."""

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
ALWAYS = All(())


class Order(NamedTuple):
    """One key of the order; after the last one rows come by ``rid``, ascending."""

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
    #: Where the page before ended: of its last row the cells of ``order`` as rows show them, and the id.
    after: tuple[Cell, ...] | None = None
    room: int | None = None  #: bytes of sealed bodies that the page may hold; its first row it always holds


class Page(NamedTuple):
    """Rows in order, how many the whole answer has (0 where nobody asked), and whether there are further ones behind these."""

    rows: list[Row]
    total: int
    more: bool = False


def fitting(sizes: Sequence[int], room: int | None) -> int:
    """How many of the first so large bodies have room together; one has in any case."""
    if room is not None:
        for number, size in enumerate(sizes):
            room -= size
            if room < 0 and number:
                return number
    return len(sizes)


class Func(enum.StrEnum):
    """Aggregation functions; rows without a value do not count. ``COUNT`` with no column counts rows."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


class Metric(NamedTuple):
    """One figure for each group."""

    func: Func
    column: str | None = None


class Grouping(NamedTuple):
    """A page of groups, ascending by their keys. ``after``: the keys of the last group of the page before, as it told them."""

    where: Where
    now: int
    keys: tuple[str, ...]
    metrics: tuple[Metric, ...]
    limit: int
    after: tuple[Cell, ...] | None = None


class Group(NamedTuple):
    """Keys and figures of a group, exact; those of decimal columns are integers that count ten-thousandths (``cells.PLACES``).

    ``None`` where no row has a value (and 0 for ``COUNT``, ``SUM``). ``rid`` is the oldest row of the group. Without keys there is
    always one group, and its ``rid`` is 0 if it is empty.
    """

    keys: tuple[Cell, ...]
    figures: tuple[int | None, ...]
    rid: int
