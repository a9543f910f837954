"""The embedded engine: one SQLite file, one thread that writes, short reads straight on the event
loop.

A point read takes some microseconds; handing it to another thread would cost ten times that. So
reads run inline on a separate read-only connection, and each one ends before it returns: it sees
every commit that has returned, and never delays a checkpoint. Long queries go to
``select.Readers``.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from proxy.errors import Code, VaultError
from proxy.storage.base import Engine, Hooks, RowTally
from proxy.storage.changes import Change
from proxy.storage.notes import NoteWrite
from proxy.storage.query import (
    AggregateGroup,
    Grouping,
    RowPage,
    Select,
    changed_meanwhile,
    check_names,
)
from proxy.storage.rows import TOKEN_RIDS, File, Past, Row, TableLayout
from proxy.storage.sqlite import aggregate as sqlite_groups
from proxy.storage.sqlite import inserts
from proxy.storage.sqlite.file import DatabaseFile, peek, refuse_new, snapshot, translated_error
from proxy.storage.sqlite.inserts import Used
from proxy.storage.sqlite.prompt import frequent_page, prompt_page
from proxy.storage.sqlite.raw import SqliteAtOnce, SqliteTables
from proxy.storage.sqlite.select import Readers, rows_by_id, scan_rows, sqlite_select
from proxy.storage.sqlite.statements import (
    BODY_COLUMN,
    MANY_KEYS,
    Listed,
    Statements,
    drop_table,
    empty,
    is_complete,
    make,
    statements,
)
from proxy.storage.sqlite.where import add_functions
from proxy.storage.sqlite.writer import SqliteWriter
from proxy.storage.statements import StatementStore

_T = TypeVar("_T")

#: Kilobytes of pages that a connection for long questions keeps.
_CACHE = 16384
#: Rows of each table that one transaction of ``drop`` removes: commits to others wait no longer.
_DROPPED = 2000

_NOTES = "SELECT name FROM notes WHERE substr(name, -length(?1)) = ?1 ORDER BY name"
_ALL_NOTES = "SELECT name, content FROM notes"
_NOTES_OF = "SELECT name, content FROM notes WHERE name IN (SELECT value FROM json_each(?))"
_NOTE = "SELECT content FROM notes WHERE name = ?"


class SqliteStore(StatementStore[Statements]):
    """A ``Store`` on a file that this process owns.

    Commits are applied in the order in which they are called. A commit whose caller is cancelled
    while it waits may or may not be stored.
    """

    def __init__(self, file: DatabaseFile, writer: SqliteWriter) -> None:
        super().__init__()
        self._file = file
        self._writer = writer
        self._readers = Readers(lambda: add_functions(file.connect_reader(cache=_CACHE)))
        self._reader: Connection | None = None
        self._used: dict[str, Used] = {}
        self.at_once = SqliteAtOnce(self, writer, self._tables, (self._fetch, self._query))

    def raw(self) -> SqliteTables:
        return SqliteTables(self._readers.ask, self._writer.call, self._has_everything)

    def _has_everything(self, table: str) -> None:
        """Take down that a table may have past versions, files and replies that show rows."""
        if table in self._used:
            used = self._used[table]
            used.past = used.files = used.links = True

    async def close(self) -> None:
        """Finish accepted work, checkpoint the log, release the vault."""
        if not self._closed:
            self._closed = True
            self._tables.clear()
            self._forget_reader()
        await self._readers.close()
        await self._writer.close()
        self._file.release()

    async def ensure(self, layout: TableLayout) -> None:
        check_names(layout)
        if not self._query(lambda reader: is_complete(reader, layout)):
            await self._writer.call(lambda connection: make(connection, layout))
        # of the same table, and aware of writes in flight
        name, used = layout.table, self._used.get(layout.table)
        sql = self._query(lambda reader: statements(reader, layout, used))
        self._tables[name], self._used[name] = sql, sql.used

    def commit(self, table: str, changes: Sequence[Change]) -> Awaitable[None]:
        sql = self._tables.get(table)
        if sql is None or not changes or self._writer.full:
            return self._commit_in_turn(table, changes)
        if self.guard is not None:
            # with no gap to the next line: everything before a note is durable when that is
            self.guard(changes)
        return self._writer.submit(sql, changes)

    async def _commit_in_turn(self, table: str, changes: Sequence[Change]) -> None:
        self._statements(table)  # refuses one that is not known
        await self._writer.room()
        if changes:
            await self.commit(table, changes)

    async def rows(self, table: str, rids: Sequence[int]) -> dict[int, Row]:
        sql = self._tables.get(table) or self._missing(table)
        return {row.rid: row for row in await self._read(sql, self._listed(sql.short_rows, rids))}

    async def by_keys(self, table: str, keys: Sequence[bytes]) -> dict[bytes, Row]:
        sql = self._tables.get(table) or self._missing(table)
        listed = self._listed
        raws = sql.look_up(keys, listed) if len(keys) >= MANY_KEYS else listed(sql.by_keys, keys)
        return {row.key: row for row in await self._read(sql, raws) if row.key is not None}

    async def by_tokens(self, table: str, hashes: Sequence[bytes]) -> dict[bytes, tuple[int, ...]]:
        sql = self._tables.get(table) or self._missing(table)
        rids_by_token: dict[bytes, list[int]] = {}
        for text, values in sql.by_tokens.runs(hashes):
            pairs = self._fetch(text, values)
            if len(pairs) < Listed.limit(len(values)):
                for token, rid in pairs:
                    rids_by_token.setdefault(token, []).append(rid)
            else:  # a common value crowds out the others: query each alone
                for token in set(values):
                    rids_by_token[token] = [rid for (rid,) in self._fetch(sql.by_token, (token,))]
        return {token: tuple(rids[:TOKEN_RIDS]) for token, rids in rids_by_token.items() if rids}

    async def count(self, table: str) -> tuple[int, int, int]:
        self._file.check()  # a file that was moved is still readable, and takes no write
        return await super().count(table)

    async def select(self, table: str, query: Select) -> RowPage:
        sql = self._tables.get(table) or self._missing(table)
        if page := self._query(partial(frequent_page, sql=sql, query=query)):
            return page
        query = sql.validated.select(query)
        if page := self._query(lambda reader: prompt_page(reader, sql, query)):
            return page
        return await self._readers.ask(lambda reader: sqlite_select(reader, sql, query))

    async def aggregate(self, table: str, query: Grouping) -> list[AggregateGroup]:
        sql = self._statements(table)
        sql.validated.grouping(query)
        query = query._replace(where=sql.validated.where(query.where))
        return await self._readers.ask(
            lambda reader: sqlite_groups.sqlite_aggregate(reader, sql, query)
        )

    async def scan(self, table: str, after: int, limit: int) -> list[Row]:
        sql = self._statements(table)
        return await self._readers.ask(lambda reader: scan_rows(reader, sql, after, limit))

    async def past_scan(self, table: str, after: tuple[int, int], limit: int) -> list[Past]:
        text, parameters = self._statements(table).past_scan, (*after, limit)
        raws = await self._readers.ask(lambda reader: reader.execute(text, parameters).fetchall())
        return [Past(*raw) for raw in raws]

    async def files(self, table: str, rids: Sequence[int]) -> dict[int, tuple[File, ...]]:
        return await super().files(table, rids) if self._statements(table).used.files else {}

    async def prune(self, table: str, before: int, now: int, limit: int) -> int:
        sql = self._statements(table)
        removed: int = await self._writer.call(
            lambda connection: sql.prune(connection, before, now, limit)
        )
        return removed

    async def doomed(self, limit: int) -> list[str]:
        return [name for (name,) in self._fetch(inserts.DOOMED, (limit,))]

    async def absolve(self, objects: Sequence[str]) -> None:
        self._refuse_closed()
        names = [(name,) for name in objects]
        await self._writer.call(
            lambda connection: connection.executemany(inserts.ABSOLVE, names).rowcount
        )

    async def keep_tally(self, table: str, tally: RowTally, *, first: bool) -> int | None:
        self._statements(table)
        begin = partial(self._file.tallies.begin, table=table, tally=tally, first=first)
        counter: int | None = await self._writer.call(begin)
        return counter

    async def check_tally(self, table: str) -> int | None:
        return await self._readers.ask(self._file.tallies.check(table))

    async def drop(self, table: str) -> None:
        self._refuse_closed()
        check_names(TableLayout(table, ()))
        self._tables.pop(table, None)
        while await self._writer.call(lambda connection: empty(connection, table, _DROPPED)):
            pass
        await self._writer.call(lambda connection: drop_table(connection, table))
        self._file.tallies.forget(table)

    async def read_notes(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        if names is None:
            return dict(self._fetch(_ALL_NOTES, ()))
        return dict(self._fetch(_NOTES_OF, (json.dumps(names),)))

    async def write_notes(self, writes: Sequence[NoteWrite]) -> None:
        self._refuse_closed()
        await self._writer.call(lambda connection: _write_notes(connection, writes))

    async def notes(self, ending: str) -> list[str]:
        return [name for (name,) in self._fetch(_NOTES, (ending,))]

    async def _ask(self, text: str, *values: Any) -> Sequence[Any]:
        return self._fetch(text, values)

    async def _ask_listed(self, statement: Listed, values: Sequence[Any]) -> Sequence[Any]:
        return self._listed(statement, values)

    def _listed(self, statement: Listed, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if len(values) == 1:
            return self._fetch(statement.single, values)
        raws: list[tuple[Any, ...]] = []
        for text, parameters in statement.runs(values):
            raws += self._fetch(text, parameters)
        return raws

    async def _read(self, sql: Statements, raws: Sequence[tuple[Any, ...]]) -> Sequence[Row]:
        """The rows, those whose bodies are long read by a thread, as they are then."""
        long = [raw[0] for raw in raws if raw[BODY_COLUMN] is None]
        if not long:
            return sql.read_each(raws)
        read = await self._readers.ask(lambda reader: rows_by_id(reader, sql, long))
        short = sql.read_each([raw for raw in raws if raw[BODY_COLUMN] is not None])
        return [*short, *read.values()]

    def _fetch(self, text: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        reader = self._reader or self._open_reader()
        try:
            # to the end: an open cursor would hold an old state
            return reader.execute(text, parameters).fetchall()
        except sqlite3.Error as error:
            self._forget_reader()
            raise translated_error(error) from error

    def _query(self, question: Callable[[Connection], _T]) -> _T:
        try:
            return question(self._reader or self._open_reader())
        except sqlite3.Error as error:
            self._forget_reader()
            raise translated_error(error) from error

    def _open_reader(self) -> Connection:
        self._refuse_closed()
        try:
            self._reader = add_functions(self._file.connect_reader())
        except sqlite3.Error as error:
            raise translated_error(error) from error
        return self._reader

    def _forget_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _write_notes(connection: Connection, writes: Sequence[NoteWrite]) -> None:
    for name, content, expected in writes:
        present = connection.execute(_NOTE, (name,)).fetchone()
        if (present[0] if present else None) != expected:
            raise changed_meanwhile(name)
        if content is None:
            connection.execute("DELETE FROM notes WHERE name = ?", (name,))
        else:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, content))


async def open_sqlite(location: str, hooks: Hooks) -> SqliteStore:
    """Open the database file of that path; make it, and its folder, where they are missing.

    Raises ``VaultError``: ``STORE_BUSY``, ``NOT_WRITABLE``, ``BAD_STORE``, ``VAULT_DOWN``.
    """
    if not location:
        raise VaultError(
            Code.BAD_SETTINGS,
            "The setting store names no file: write it as sqlite:///folder/vault.db.",
        )
    file = DatabaseFile(Path(location))
    writer = SqliteWriter(file, hooks)
    try:
        await writer.call(lambda _: None)  # the log has to be there before a reader may open it
    except VaultError:
        await writer.close()
        file.release()
        raise
    return SqliteStore(file, writer)


@asynccontextmanager
async def _snapshot(location: str, scratch: Path) -> AsyncIterator[SqliteStore]:
    """A snapshot of the vault, whoever owns it: a copy, in a folder for it."""
    with TemporaryDirectory(prefix=".domicile-snapshot-", dir=scratch) as folder:
        copy = Path(folder, "vault.db")
        await asyncio.to_thread(snapshot, Path(location), copy)
        store = await open_sqlite(str(copy), Hooks())
        try:
            yield store
        finally:
            await store.close()


SQLITE = Engine(
    open_sqlite,
    lambda location: Path(location).exists(),
    lambda location: refuse_new(Path(location)),
    lambda location: peek(Path(location)),
    _snapshot,
)
