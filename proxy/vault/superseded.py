"""Versions that were just replaced, for answers that were asked for before: a list may be slower
than a change of one of its records.

Such an answer shows tokens of the version before, which the store no longer has. So the sealed rows
are kept in memory for a while: sealed, so that nothing lies here in the clear; bounded in bytes and
time; and only for those who asked before the change, so that to everybody else a replaced token
stays what it is, a text without a value.
"""

from collections import deque
from collections.abc import Iterator

from proxy.storage.rows import Row

#: How long the slowest answer may take, in milliseconds, and how many bytes of bodies are kept at
#: most.
SUPERSEDED_MILLISECONDS = 120_000
BOUND = 16 * 1024 * 1024


class Retired:
    """The replaced rows of one table, by record id."""

    __slots__ = ("_bound", "_bytes", "_order", "_rows")

    def __init__(self, bound: int = BOUND) -> None:
        self._bound = bound
        self._bytes = 0
        self._rows: dict[int, deque[tuple[int, Row]]] = {}
        self._order: deque[tuple[int, int]] = deque()  #: when, and which record; oldest first

    def __len__(self) -> int:
        return len(self._order)

    def keep(self, row: Row, now: int) -> None:
        """A row is about to be replaced."""
        self._rows.setdefault(row.rid, deque()).append((now, row))
        self._order.append((now, row.rid))
        self._bytes += len(row.body)
        while self._order and (
            self._bytes > self._bound or self._order[0][0] < now - SUPERSEDED_MILLISECONDS
        ):
            self._drop(self._order.popleft()[1])

    def since(self, rid: int, began: int) -> Iterator[Row]:
        """The versions of a record that were replaced after an instant, the newest first."""
        for at, row in reversed(self._rows.get(rid, ())):
            if at <= began:
                return
            yield row

    def _drop(self, rid: int) -> None:
        rows = self._rows[rid]
        self._bytes -= len(rows.popleft()[1].body)
        if not rows:
            del self._rows[rid]
