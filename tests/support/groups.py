"""A group of commits against a bare in-memory SQLite connection, beside the reference engine's
table.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

from proxy.errors import VaultError
from proxy.storage.changes import Change, Conflict
from proxy.storage.rows import File, Past, StoredReply, read_staged
from proxy.storage.sqlite.apply import apply_group
from proxy.storage.sqlite.migrations import run_migrations
from proxy.storage.sqlite.statements import TABLES, Statements, make
from proxy.storage.sqlite.tallies import WriterConnection
from proxy.storage.statements import FILE, PAST, REPLY
from tests.support.memory_table import Table
from tests.support.rows import LAYOUT

Group = Sequence[Sequence[Change]]


def connect() -> WriterConnection:
    """A database in memory with the tables of ``LAYOUT``."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, cached_statements=512, factory=WriterConnection
    )
    run_migrations(connection)
    connection.execute("BEGIN")
    make(connection, LAYOUT)
    connection.execute("COMMIT")
    return connection


class Pair:
    """The same commits in SQLite, as one group, and in the reference, one after the other."""

    def __init__(self) -> None:
        self.connection = connect()
        self.sql = Statements(LAYOUT)
        self.table = Table(LAYOUT)
        self.doomed: set[str] = set()

    def clear(self) -> None:
        """Empty both."""
        for name in TABLES:
            self.connection.execute(f"DELETE FROM {name}_{LAYOUT.table}")
        self.connection.execute("DELETE FROM doomed")
        self.connection.execute("UPDATE tables SET rows = 0")
        self.table = Table(LAYOUT)
        self.doomed = set()

    def run(self, group: Group) -> tuple[list[Any], list[Any]]:
        """What became of each commit: in SQLite, in the reference."""
        future: asyncio.Future[None] = None  # type: ignore[assignment]  # nobody waits for this group
        outcomes = apply_group(self.connection, [(future, self.sql, commit) for commit in group])
        told = [None] * len(group) if outcomes is None else [_told(outcome) for outcome in outcomes]
        return told, [self._refer(commit) for commit in group]

    def _refer(self, commit: Sequence[Change]) -> Any:
        work = self.table.copy()
        try:
            for change in commit:
                work.apply(change)
        except (Conflict, VaultError) as error:
            return _told(error)
        self.table = work
        self.doomed.update(work.doomed)
        return None

    def states(self) -> tuple[list[Any], list[Any]]:
        """Everything that is stored: in SQLite, in the reference."""
        sql = self.sql
        rids = [rid for (rid,) in self._all(f"SELECT rid FROM r_{LAYOUT.table} ORDER BY rid")]
        rows = [sql.read(self._all(sql.rows.single, (rid,))[0]) for rid in rids]
        staged = [read_staged(raw) for raw in self._all(sql.waiting, (2**62, 1000))]
        tokens = self._all(f"SELECT hash, rid FROM t_{LAYOUT.table} ORDER BY hash, rid")
        beside = [
            sorted(
                read(raw)
                for raw in self._all(f"SELECT {', '.join(columns)} FROM {prefix}_{LAYOUT.table}")
            )
            for prefix, columns, read in (
                ("h", PAST, Past._make),
                ("f", FILE, File._make),
                ("i", REPLY, StoredReply._make),
            )
        ]
        doomed = [name for (name,) in self._all("SELECT object FROM doomed ORDER BY object")]
        table = self.table
        return (
            [rows, sorted(staged), tokens, self._all(sql.count)[0][0], *beside, doomed],
            [
                [table.row(rid) for rid in sorted(table.rows)],
                sorted(table.staged.values()),
                sorted((token, rid) for token, rids in table.tokens.items() for rid in rids),
                len(table.rows),
                sorted(table.past.values()),
                sorted(table.files.values()),
                sorted(table.replies.values()),
                sorted(self.doomed),
            ],
        )

    def _all(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        return self.connection.execute(text, values).fetchall()


def _told(error: Exception | None) -> Any:
    if isinstance(error, Conflict):
        return error.change, error.hashes
    return error.code if isinstance(error, VaultError) else error
