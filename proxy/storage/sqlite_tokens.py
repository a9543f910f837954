"""Rows by the token index: the rarest of several hashes leads, the others are looked up beside it.

The index has the rows of one hash in the order of their age, so that a page of them is read from where the last one ended.
"""
# ruff: noqa: S608 - names have passed names.check_names and asked.Asked; every value is a parameter

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any as Anything

from proxy.storage.query import Compared, Indexed
from proxy.storage.sqlite_where import Condition

#: Entries of a hash that are counted; more are many.
COUNTED = 10_000


class Tokens:
    """The token index of one table; entries are named ``o``."""

    def __init__(self, connection: Connection, table: str) -> None:
        self._connection = connection
        self._counts: dict[bytes, int] = {}
        self.name = f"t_{table}"

    def few(self, part: Indexed) -> int | None:
        """How many rows have the rarest of the hashes; ``None`` for many."""
        count = self._count(self._rarest(part)[0])
        return count if count < COUNTED else None

    def condition(self, part: Indexed, bounds: Sequence[Compared] = ()) -> Condition:
        """Entries of the rarest hash whose rows have all the others too; ``bounds`` are those of the row's id."""
        values: list[Anything] = list(self._rarest(part))
        has = f" AND EXISTS (SELECT 1 FROM {self.name} AS t WHERE t.hash = ? AND t.rid = o.rid)" * (len(values) - 1)
        limits = "".join(f" AND o.rid {bound.how} ?" for bound in bounds)
        return f"o.hash = ?{has}{limits}", [*values, *(bound.value for bound in bounds)]

    def rids(self, part: Indexed, bounds: Sequence[Compared] = ()) -> Condition:
        """A statement that finds the ids of the rows that have all the hashes."""
        text, values = self.condition(part, bounds)
        return f"SELECT o.rid FROM {self.name} AS o WHERE {text}", values

    def _rarest(self, part: Indexed) -> list[bytes]:
        return sorted(dict.fromkeys(part.hashes), key=self._count)

    def _count(self, token: bytes) -> int:
        count = self._counts.get(token)
        if count is None:
            text = f"SELECT count(*) FROM (SELECT 1 FROM {self.name} WHERE hash = ? LIMIT ?)"
            count = self._counts[token] = int(self._connection.execute(text, (token, COUNTED)).fetchone()[0])
        return count
