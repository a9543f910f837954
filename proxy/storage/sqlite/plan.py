"""Access paths of queries: the index that finds the rows, and the conditions checked on them.

SQLite keeps no statistics here, so each part of the condition is counted in its index, up to
``NARROW_ROWS``. The part with the fewest entries is used, and the other parts are checked on its
rows. If none has few, many rows are walked, in an order that serves the query.
"""

import json
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any as Anything
from typing import NamedTuple

import msgspec

from proxy.storage.query import All, Any, Compared, Indexed, Is, Where, parts_of
from proxy.storage.rows import ColumnType, ColumnValue, TableLayout
from proxy.storage.sqlite.where import SqlCondition, condition, join_conditions, looked_at

# Rows by the token index: the rarest of several hashes is read, the others are checked.
#
# The index has the rows of one hash in the order of their age, so that a page of them is read from
# the end of the last one.

# ruff: noqa: S608 - names have passed query.check_names and ValidatedQuery; every value is a parameter

_read_rids = msgspec.json.Decoder(list[int]).decode

#: Entries of a hash that are counted; more are many.
MOST_COUNTED = 10_000
#: Entries of a hash whose span tells how far apart they lie.
_OLDEST = 50
_FARTHEST = 2**63 - 1
#: Hashes of an alternative, and alternatives, that are looked up in one go.
_WIDEST = 8
_MOST_LISTS = 2_000


class TokenIndex:
    """The token index of one table; entries are named ``o``."""

    def __init__(self, connection: Connection, table: str) -> None:
        self._connection = connection
        self._counts: dict[bytes, int] = {}
        self.name = f"t_{table}"

    def few(self, part: Indexed) -> int | None:
        """Count the rows of the rarest of the hashes; ``None`` for many."""
        count = self._count(self._rarest(part)[0])
        return count if count < MOST_COUNTED else None

    def condition(self, part: Indexed, bounds: Sequence[Compared] = ()) -> SqlCondition:
        """Entries of the rarest hash whose rows have all others; ``bounds``: of the row's id."""
        values: list[Anything] = list(self._rarest(part))
        has = f" AND EXISTS (SELECT 1 FROM {self.name} AS t WHERE t.hash = ? AND t.rid = o.rid)" * (
            len(values) - 1
        )
        limits = "".join(f" AND o.rid {bound.how} ?" for bound in bounds)
        return f"o.hash = ?{has}{limits}", [*values, *(bound.value for bound in bounds)]

    def rids(self, part: Indexed, bounds: Sequence[Compared] = ()) -> SqlCondition:
        """A statement that finds the ids of the rows that have all the hashes."""
        text, values = self.condition(part, bounds)
        return f"SELECT o.rid FROM {self.name} AS o WHERE {text}", values

    def listed(self, parts: Sequence[Where], most: int) -> set[int] | None:
        """The rows of alternatives of hashes; of more than ``most`` so many that there are more.

        ``None`` where they are many, and more are wanted, or the hashes are.
        """
        lists = [[*dict.fromkeys(part.hashes)] for part in parts if isinstance(part, Indexed)]
        width = max(map(len, lists), default=0)
        if not 0 < width <= _WIDEST or len(lists) > _MOST_LISTS:
            return None if lists else set()
        far = self._apart([one for hashes in lists if len(hashes) > 1 for one in hashes])
        values: list[Anything] = []
        for hashes in lists:
            hashes.sort(key=lambda one: far.get(one, 0), reverse=True)
            values += [*hashes, *hashes[-1:] * (width - len(hashes))]
        wanted = min(most, MOST_COUNTED * len(lists)) + 1
        text = f"SELECT json_group_array(rid) FROM ({self.common(len(lists), width)} LIMIT ?)"
        cursor = self._connection.execute(text, [*values, wanted])
        rids = {*_read_rids(cursor.fetchone()[0])}
        return rids if len(rids) < wanted or len(rids) > most else None

    def common(self, lists: int, width: int) -> str:
        """A statement that finds the rows that have all hashes of one of so many lists.

        The entries of the first are read, and each is looked up by its key among those of the
        others: in the order of another index its places would be far apart.
        """
        names, one = ", ".join([f"h{at}" for at in range(width)]), f"({', '.join('?' * width)})"
        joined = [
            f"CROSS JOIN {self.name} AS t{at} INDEXED BY sqlite_autoindex_{self.name}_1"
            f" ON t{at}.hash = w.h{at}{f' AND t{at}.rid = t0.rid' if at else ''}"
            for at in range(width)
        ]
        wanted = f"WITH w({names}) AS (VALUES {', '.join([one] * lists)})"
        return f"{wanted} SELECT DISTINCT t0.rid AS rid FROM w {' '.join(joined)}"

    def _apart(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """Spans of first entries of hashes: the rarest has the widest one, or fewer entries."""
        if not hashes:
            return {}
        nth = f"SELECT rid FROM {self.name} WHERE hash = w.h LIMIT 1 OFFSET {_OLDEST}"
        wanted = f"WITH w(h) AS (VALUES {', '.join(['(?)'] * len(hashes))})"
        text = f"{wanted} SELECT w.h, coalesce(({nth}), {_FARTHEST}) FROM w"
        return dict(self._connection.execute(text, hashes))

    def _rarest(self, part: Indexed) -> list[bytes]:
        hashes = dict.fromkeys(part.hashes)
        absent = next((one for one in hashes if self._count(one) == 0), None)
        return sorted(hashes, key=self._count) if absent is None else [absent]

    def _count(self, token: bytes) -> int:
        count = self._counts.get(token)
        if count is None:
            text = f"SELECT count(*) FROM (SELECT 1 FROM {self.name} WHERE hash = ? LIMIT ?)"
            count = self._counts[token] = int(
                self._connection.execute(text, (token, MOST_COUNTED)).fetchone()[0]
            )
        return count


# ruff: noqa: S608 - names have passed query.check_names and ValidatedQuery; every value is a parameter

#: Rows that are few enough to be looked at one by one, wherever they lie.
NARROW_ROWS = 50_000
#: Rows that must not be shown, up to which they are named instead of looking at the state of every
#: row.
HIDDEN = 10_000
_ALL = -1  # no bound


def condition_columns(where: Where) -> set[str | None]:
    """The columns that a condition looks at; the token index is ``@tokens``."""
    if isinstance(where, Indexed):
        return {"@tokens"}
    if isinstance(where, All | Any):
        return {column for part in where.parts for column in condition_columns(part)}
    return {where.column}


def _is_listed(part: Where) -> bool:
    """Whether the token index has the rows of the part: of one list of hashes, or of several."""
    if isinstance(part, Any):
        return part.parts != () and all(
            isinstance(one, Indexed) and _is_listed(one) for one in part.parts
        )
    return isinstance(part, Indexed) and part.hashes != () and not part.negated


class AccessPath(NamedTuple):
    """Access path to the rows of a query."""

    source: str  #: what to read, with the rows as ``r``
    condition: SqlCondition  #: everything that has to hold
    narrow: bool  #: whether it finds few rows
    aged: str = ""  #: name of the id in whose order the rows arrive
    entries: str = ""  #: source for counts only
    exact: int | None = None  #: how many rows there are, where the index alone tells
    rids: list[int] | None = None  #: the rows, by their ids, where nothing else has to hold
    #: source and condition that return the rows in the order of their ids
    straight: "tuple[str, SqlCondition] | None" = None


class Planner:
    """Plans questions on one table at one instant, inside a read transaction.

    Rows that have expired at ``now`` are hidden.
    """

    def __init__(
        self, connection: Connection, layout: TableLayout, now: int, few: int | None = None
    ) -> None:
        """``few``: hidden rows that are named rather than every row looked at (``HIDDEN``)."""
        self._connection = connection
        self._table = layout.table
        self._types = {column.name: column.type for column in layout.columns}
        self.rows = f"r_{layout.table} AS r"
        self._tokens = TokenIndex(connection, layout.table)
        self._now = now
        self._few_hidden = HIDDEN if few is None else few
        self._hidden = self._count_hidden(self._few_hidden + 1)

    def _count_hidden(self, bound: int) -> int:
        """Count the rows that must not be shown, of each reason at most ``bound``."""
        pending = f"SELECT 1 FROM r_{self._table} WHERE state = 1"
        expired = f"SELECT 1 FROM r_{self._table} WHERE expires_at <= ? AND state = 0"
        return self.count(pending, [], bound) + self.count(expired, [self._now], bound)

    def way(self, where: Where, most: int | None = None) -> AccessPath:
        """The way to the rows that may be shown and hold; nobody wants more than ``most``."""
        parts = parts_of(where)
        if (listed := self._listed(parts, most)) is not None:
            return listed
        leads = [
            (few, index) for index, part in enumerate(parts) if (few := self._few(part)) is not None
        ]
        narrow = bool(leads)
        leads = leads or [(0, index) for index, part in enumerate(parts) if _is_listed(part)]
        if not leads:
            every = [*[self._part(part, free=False) for part in parts], self.visible()]
            return AccessPath(self.rows, join_conditions(every, "AND"), narrow=False)
        index = min(leads)[1]
        lead = parts[index]
        bounds = [part for part in parts if isinstance(part, Compared) and part.column == "@rid"]
        if isinstance(lead, Indexed):
            others = [part for part in parts if part is not lead and part not in bounds]
            rest = [*[self._part(part, free=True) for part in others], self.visible()]
            condition = join_conditions([self._tokens.condition(lead, bounds), *rest], "AND")
            entries = f"{self._tokens.name} AS o"
            source = f"{entries} CROSS JOIN {self.rows} ON r.rid = o.rid"
            return AccessPath(
                source, condition, narrow, "o.rid", "" if others or self._hidden else entries
            )
        leading = self._leading(lead, bounds)
        # Alternatives may return too many rows, unless the index lists them all.
        inexact = isinstance(lead, Any) and not _is_listed(lead)
        others = [part for part in parts if part is not lead or inexact]
        rest = [*[self._part(part, free=True) for part in others], self.visible()]
        exact = (
            min(leads)[0] if not others and not self._hidden and self._is_one_column(lead) else None
        )
        straight = self._straight(lead, rest)
        condition = join_conditions([(f"r.rid IN ({leading[0]})", leading[1]), *rest], "AND")
        aged = "r.rid" if isinstance(lead, Any) and not inexact and not narrow else ""
        return AccessPath(self.rows, condition, narrow, aged, exact=exact, straight=straight)

    def _listed(self, parts: Sequence[Where], most: int | None) -> AccessPath | None:
        """The way to rows by the ids that the index of tokens lists for alternatives of hashes.

        ``None`` where there are none, or another part has fewer rows to look at.
        """
        lead = next((one for one in parts if isinstance(one, Any) and _is_listed(one)), None)
        if lead is None or not isinstance(lead, Any):
            return None
        bounds = [part for part in parts if isinstance(part, Compared) and part.column == "@rid"]
        others = [part for part in parts if part is not lead and part not in bounds]
        few = [count for part in others if (count := self._few(part)) is not None]
        if few and min(few) * len(lead.parts) < NARROW_ROWS:
            return None
        alone = not (others or self._hidden or any(one.value for one in bounds))
        rids = self._tokens.listed(lead.parts, most if alone and most is not None else NARROW_ROWS)
        if rids is None or (len(rids) > NARROW_ROWS and not alone):
            return None
        conditions = [*[self._part(part, free=True) for part in (*others, *bounds)], self.visible()]
        ids = "r.rid IN (SELECT value FROM json_each(?))", [json.dumps([*rids])]
        path = AccessPath(self.rows, join_conditions([ids, *conditions], "AND"), narrow=True)
        return path._replace(exact=len(rids), rids=sorted(rids)) if alone else path

    def _is_one_column(self, lead: Where) -> bool:
        """Whether as many rows hold as the index of the column has entries for the lead."""
        return isinstance(lead, Is | Compared) and lead.column in self._types

    def _straight(
        self, lead: Where, rest: Sequence[SqlCondition]
    ) -> tuple[str, SqlCondition] | None:
        """The way by the entries of one value of a column, which its index has by id."""
        if (
            not isinstance(lead, Is)
            or lead.column not in self._types
            or len(set(lead.values)) != 1
            or None in lead.values
        ):
            return None
        source = f'{self.rows} INDEXED BY "ix_{self._table}.{lead.column}"'
        return source, join_conditions([condition(lead, self._table), *rest], "AND")

    def walk(self, where: Where, column: str) -> SqlCondition:
        """Return the condition for rows that are walked in the order of a column."""
        parts = [
            self._part(part, free=not (isinstance(part, Compared) and part.column == column))
            for part in parts_of(where)
        ]
        return join_conditions([*parts, looked_at(self._now)], "AND")

    def total(self, where: Where, way: AccessPath) -> int:
        """Count the visible rows that match."""
        if parts_of(where) == ():
            text = "SELECT rows FROM tables WHERE name = ?"
            rows = int(self._connection.execute(text, (self._table,)).fetchone()[0])
            return rows - (self._hidden if self.is_bare else self._count_hidden(_ALL))
        text, values = way.condition
        return int(
            self._connection.execute(
                f"SELECT count(*) FROM {way.entries or way.source} WHERE {text}", values
            ).fetchone()[0]
        )

    def visible(self) -> SqlCondition:
        """Rows that may be shown; from an index alone, without a look at the rows, if possible."""
        if self._hidden == 0:
            return "1", []
        if self._hidden > self._few_hidden:
            return looked_at(self._now)
        hidden = f"SELECT rid FROM r_{self._table} WHERE"
        return f"r.rid NOT IN ({hidden} state = 1) AND r.rid NOT IN ({hidden} expires_at <= ?)", [
            self._now
        ]

    def index_of(self, column: str) -> str | None:
        """The index that has every row in the order of that column."""
        if column == "@created_at":
            return f"ic_{self._table}"
        whole = self._types.get(column) not in (None, ColumnType.HASH)
        return f'"ix_{self._table}.{column}"' if whole else None

    def count(self, text: str, values: list[object], bound: int) -> int:
        """Count the rows that the statement finds, at most ``bound``."""
        cursor = self._connection.execute(
            f"SELECT count(*) FROM ({text} LIMIT ?)", [*values, bound]
        )
        return int(cursor.fetchone()[0])

    @property
    def is_bare(self) -> bool:
        """Whether ``visible`` looks at no row."""
        return self._hidden <= self._few_hidden

    def next_value(self, name: str, last: ColumnValue) -> ColumnValue:
        """The next value of an indexed column after that one (``None``: the first)."""
        text = f"SELECT min({name}) FROM r_{self._table} AS r"
        cursor = self._connection.execute(
            text if last is None else f"{text} WHERE {name} > ?", [last] * (last is not None)
        )
        value: ColumnValue = cursor.fetchone()[0]
        return value

    def _part(self, part: Where, *, free: bool) -> SqlCondition:
        """Return a part as a condition; rows missing from the index are found by the few others."""
        if (
            isinstance(part, Indexed)
            and part.negated
            and part.hashes
            and self._tokens.few(part) is not None
        ):
            text, values = self._tokens.rids(part)
            return f"r.rid NOT IN ({text})", values
        return condition(part, self._table, free=free)

    # ------------------------------------------------------------------ leads

    def _few(self, part: Where) -> int | None:
        """Count the index entries for a part's rows; ``None`` for many or no index."""
        if isinstance(part, Is | Compared):
            return self._few_cells(part)
        if isinstance(part, Indexed):
            return self._tokens.few(part) if _is_listed(part) else None
        if isinstance(part, All):
            return min(
                (few for inner in part.parts if (few := self._few(inner)) is not None), default=None
            )
        if isinstance(part, Any):
            counts = [self._few(alternative) for alternative in part.parts]
            counted = [few for few in counts if few is not None]
            return (
                sum(counted) if len(counted) == len(counts) and sum(counted) < NARROW_ROWS else None
            )
        return None

    def _few_cells(self, part: Is | Compared) -> int | None:
        if isinstance(part, Is):
            if part.negated or (None in part.values and self.index_of(part.column) is None):
                return None
            if part.column in ("@rid", "@key"):
                return len(part.values)
        if part.column in ("@rid", "@version", "@updated_at"):
            return None  # of ids a bound, which serves in every way
        text, values = condition(part, self._table)
        few = self.count(f"SELECT 1 FROM r_{self._table} AS r WHERE {text}", values, NARROW_ROWS)
        return few if few < NARROW_ROWS else None

    def _leading(self, part: Where, bounds: Sequence[Compared]) -> SqlCondition:
        """A statement for the row ids of a part that ``_few`` knows; or more, of alternatives."""
        if isinstance(part, All):
            leads = [
                (few, index)
                for index, inner in enumerate(part.parts)
                if (few := self._few(inner)) is not None
            ]
            return self._leading(part.parts[min(leads)[1]], bounds)
        if isinstance(part, Any):
            # of many parts of texts, most have no entry at all
            alternatives = [one for one in part.parts if self._few(one) != 0]
            leading = [self._leading(alternative, bounds) for alternative in alternatives]
            if not leading:
                return "SELECT NULL WHERE 0", []
            return " UNION ALL ".join(text for text, _ in leading), [
                value for _, values in leading for value in values
            ]
        if isinstance(part, Indexed):
            return self._tokens.rids(part, bounds)
        text, values = condition(part, self._table)
        return f"SELECT r.rid FROM r_{self._table} AS r WHERE {text}", values
