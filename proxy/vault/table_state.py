"""What this process knows of a table beyond the store: who is writing what right now, and versions
that were just replaced.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from proxy.storage.rows import Row
from proxy.vault.locks import RecordLocks
from proxy.vault.open_columns import OpenColumns

# Replaced versions are for answers that were asked for before: a list may be slower than a change
# of one of its records. Such an answer shows tokens of the version before, which the store no
# longer has. So the sealed rows are kept in memory for a while: sealed, so that nothing lies here
# in the clear; bounded in bytes and time; and only for those who asked before the change, so that
# to everybody else a replaced token stays what it is, a text without a value.

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


#: Staged changes that are remembered as reported; a further one of them would be reported again.
_MOST_REPORTED = 10_000


@dataclass(slots=True)
class TableState:
    """What this process knows of a table beyond the store: who is writing what right now."""

    locks: RecordLocks = field(default_factory=RecordLocks)
    #: what bodies of the table bind
    columns: OpenColumns = field(default_factory=OpenColumns)
    #: record and staging ids of exchanges under way
    in_flight: set[int] = field(default_factory=set)
    #: Names of records that were deleted, unknown to the vault, while others were being made; and
    #: when, as a sequence number.
    gone: dict[bytes, int] = field(default_factory=dict)
    #: Names that were given while others were under way, to which record, with which salt, and
    #: when: one of the others may turn out to be the same.
    named: dict[bytes, tuple[int, bytes, int]] = field(default_factory=dict)
    #: entities of rule files whose records stand among those of the table's schema
    hosted: set[str] = field(default_factory=set)
    #: versions that answers under way may still show
    retired: Retired = field(default_factory=Retired)
    #: staged changes that were reported: no answer can decide them
    reported: set[int] = field(default_factory=set)
    #: whether records are still given what they are found by (``proxied.filling``)
    filling: bool = False

    def report(self, sid: int) -> bool:
        """Whether a staged change was not reported yet; from now on it is."""
        if sid in self.reported:
            return False
        if len(self.reported) >= _MOST_REPORTED:
            self.reported.clear()
        self.reported.add(sid)
        return True
