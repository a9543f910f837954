"""The PostgreSQL engine behind the storage port: one connection that writes, a pool that reads.

A commit returns when the server has it durable, also on a synchronous standby; reads use the same
server, so they see it at once.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from proxy.errors import Code, VaultError
from proxy.storage.base import Engine, Hooks, RowTally
from proxy.storage.changes import Change
from proxy.storage.notes import NoteWrite
from proxy.storage.postgres.address import DatabaseAddress, parse_address
from proxy.storage.postgres.columns import Widening, present_columns
from proxy.storage.postgres.link import (
    LONG_WORK,
    DatabaseLink,
    SnapshotLink,
    copied_notes,
    look,
    refuse_no_right,
)
from proxy.storage.postgres.replica_messages import DatabaseReplicas, announce_notes, are_followed
from proxy.storage.postgres.replicas import SharedLink
from proxy.storage.postgres.select import aggregate_rows, select_page
from proxy.storage.postgres.standby import Questions
from proxy.storage.postgres.statements import DOOMED_OBJECTS, FORGET_DOOMED, TableSql
from proxy.storage.postgres.tables import PostgresTables, drop_tables, make_tables
from proxy.storage.postgres.writer import PostgresWriter
from proxy.storage.query import (
    AggregateGroup,
    Grouping,
    RowPage,
    Select,
    changed_meanwhile,
    check_names,
)
from proxy.storage.rows import ColumnType, Row, TableLayout
from proxy.storage.statements import StatementStore

#: Seconds between two looks whether the connection that writes is whole.
_WATCHED = 1.0

_NO_SUMS = (
    "history.detect_rollback needs one owner of the database, and the setting store says "
    "replicas=true: leave one of them out."
)

_NOTES = "SELECT name FROM notes WHERE right(name, length($1)) = $1 ORDER BY name"
_ALL_NOTES = "SELECT name, content FROM notes"
_NOTES_OF = f"{_ALL_NOTES} WHERE name = ANY($1::text[])"
_NOTE = "SELECT content FROM notes WHERE name = $1 FOR UPDATE"
_NO_NOTE = "DELETE FROM notes WHERE name = $1"
_NEW_NOTE = "INSERT INTO notes (name, content) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_NEXT_NOTE = "UPDATE notes SET content = $2 WHERE name = $1"


class PostgresStore(StatementStore[TableSql]):
    """A ``Store`` in a schema of a database, which this process owns.

    Commits are applied in the order in which they are called. A commit whose caller is cancelled
    while it waits may or may not be stored.
    """

    def __init__(self, link: DatabaseLink, hooks: Hooks) -> None:
        super().__init__()
        self.at_once = None
        self._replicas: DatabaseReplicas | None = None
        self._link = link
        self._writer = PostgresWriter(link, hooks)
        if isinstance(link, SharedLink):
            self.replicas = self._replicas = DatabaseReplicas(link, self._writer)
        self._questions = Questions(link, hooks)
        self._watch: asyncio.Task[None] | None = None

        def taken_over() -> None:
            hooks.taken_over()  # listeners report it after the store is open

        link.taken_over = taken_over

    def watch(self) -> None:
        """Notice a take-over by another process, even without writes here."""
        self._watch = asyncio.create_task(self._watching())
        self._questions.begin()

    async def _watching(self) -> None:
        while True:
            await asyncio.sleep(_WATCHED)
            with suppress(VaultError):  # waiters are informed separately
                if self._link.adrift:
                    await self._writer.call(lambda connection: connection.execute("SELECT 1"))
                if self._replicas is not None:
                    await self._replicas.look()

    def raw(self) -> PostgresTables:
        return PostgresTables(self._link, self._writer.call)

    async def close(self) -> None:
        """Finish accepted work, and release the vault."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._questions.close()
        await self._writer.close()
        if self._replicas is not None:
            await self._replicas.close()
        await self._link.close()

    async def ensure(self, layout: TableLayout) -> None:
        check_names(layout)
        self._refuse_closed()
        sql = self._tables.get(layout.table)
        if sql is not None and self.replicas is not None and sql.layout.begins_with(layout):
            return  # a layout only grows: another replica has given it more columns since
        present = await self._link.read(lambda connection: present_columns(connection, layout))
        if present is None:
            parts = self._link.address.partitions
            make = partial(make_tables, layout=layout, partitions=parts)
            present = await self._writer.call(make, LONG_WORK)
        if any(column.name not in present for column in layout.columns):
            present = await Widening(self._link, self._writer.call, layout).run()
        named = {column.name for column in layout.columns}
        dropped = [
            f"{letter}_{name}"
            for name, kind in present.items()
            if name not in named
            for letter in ("xy" if kind == ColumnType.TEXT else "x")
        ]
        self._tables[layout.table] = TableSql(layout, dropped)

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        sql = self._statements(table)
        if not changes:
            return
        if self._writer.full:
            await self._writer.room()
        if self.guard is not None:
            # with no gap to the next line: everything before a note is durable when that is
            self.guard(changes)
        await self._writer.submit(sql, changes)

    async def keep_tally(self, table: str, tally: RowTally, *, first: bool) -> int | None:
        self._statements(table)
        if self.replicas is not None:
            raise VaultError(Code.BAD_SETTINGS, _NO_SUMS)
        tallies = self._writer.tallies
        try:
            counter: int | None = await self._writer.call(
                lambda connection: tallies.begin(connection, table, tally, first=first), LONG_WORK
            )
        except BaseException:
            tallies.forget(table)
            raise
        return counter

    async def check_tally(self, table: str) -> int | None:
        self._statements(table)
        tallies = self._writer.tallies
        return await self._link.read(lambda connection: tallies.check(connection, table), LONG_WORK)

    async def rows(self, table: str, rids: Sequence[int]) -> dict[int, Row]:
        sql = self._statements(table)
        return {raw[0]: sql.read(raw) for raw in await self._ask_listed(sql.rows, rids)}

    async def by_keys(self, table: str, keys: Sequence[bytes]) -> dict[bytes, Row]:
        sql = self._statements(table)
        return {raw[1]: sql.read(raw) for raw in await self._ask_listed(sql.by_keys, keys)}

    async def by_tokens(self, table: str, hashes: Sequence[bytes]) -> dict[bytes, tuple[int, ...]]:
        sql = self._statements(table)
        by_hash: dict[bytes, list[int]] = {}
        for token, rid in await self._ask_listed(sql.by_tokens, list(dict.fromkeys(hashes))):
            by_hash.setdefault(token, []).append(rid)
        return {token: tuple(rids) for token, rids in by_hash.items()}

    async def select(self, table: str, query: Select) -> RowPage:
        sql = self._statements(table)
        query = sql.validated.select(query)
        return await self._questions.ask(lambda connection: select_page(connection, sql, query))

    async def aggregate(self, table: str, query: Grouping) -> list[AggregateGroup]:
        sql = self._statements(table)
        sql.validated.grouping(query)
        query = query._replace(where=sql.validated.where(query.where))
        return await self._questions.ask(lambda connection: aggregate_rows(connection, sql, query))

    async def scan(self, table: str, after: int, limit: int) -> list[Row]:
        sql = self._statements(table)
        return [sql.read(raw) for raw in await self._link.fetch(sql.scan, after, limit)]

    async def prune(self, table: str, before: int, now: int, limit: int) -> int:
        sql = self._statements(table)

        async def run(connection: Any) -> int:
            past = await connection.execute(sql.prune_past, before, limit)
            replies = await connection.execute(sql.prune_replies, now, limit)
            return sum(int(status.rpartition(" ")[2]) for status in (past, replies))

        removed: int = await self._writer.call(run)
        return removed

    async def doomed(self, limit: int) -> list[str]:
        self._refuse_closed()
        return [raw[0] for raw in await self._link.fetch(DOOMED_OBJECTS, limit)]

    async def absolve(self, objects: Sequence[str]) -> None:
        self._refuse_closed()
        names = list(objects)
        await self._writer.call(lambda connection: connection.execute(FORGET_DOOMED, names))

    async def drop(self, table: str) -> None:
        self._refuse_closed()
        check_names(TableLayout(table, ()))
        self._tables.pop(table, None)
        self._writer.tallies.forget(table)
        await self._writer.call(lambda connection: drop_tables(connection, table), LONG_WORK)

    async def read_notes(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        self._refuse_closed()
        if names is None:
            return dict(await self._link.fetch(_ALL_NOTES))
        return dict(await self._link.fetch(_NOTES_OF, list(names)))

    async def write_notes(self, writes: Sequence[NoteWrite]) -> None:
        self._refuse_closed()
        link = self._link

        async def run(connection: Any) -> None:
            if isinstance(link, SharedLink):
                await announce_notes(connection, link, writes)
            await _write_notes(connection, writes)

        await self._writer.call(run)

    async def put_notes(self, writes: Sequence[NoteWrite]) -> None:
        await super().put_notes(writes)
        if self._replicas is not None and self.root is not None and are_followed(writes):
            await self._replicas.heard_by_all(self.root.state.counter)

    async def notes(self, ending: str) -> list[str]:
        self._refuse_closed()
        return [raw[0] for raw in await self._link.fetch(_NOTES, ending)]

    async def _ask(self, text: str, *values: Any) -> Sequence[Any]:
        return await self._link.fetch(text, *values)

    async def _ask_listed(self, text: str, values: Sequence[Any]) -> Sequence[Any]:
        return await self._link.fetch(text, list(values)) if values else []


async def _write_notes(connection: Any, writes: Sequence[NoteWrite]) -> None:
    for name, content, expected in writes:
        if await connection.fetchval(_NOTE, name) != expected:
            raise changed_meanwhile(name)
        if content is None:
            await connection.execute(_NO_NOTE, name)
        elif expected is not None:
            await connection.execute(_NEXT_NOTE, name, content)
        elif await connection.execute(_NEW_NOTE, name, content) == "INSERT 0 0":
            raise changed_meanwhile(name)


async def open_postgres(location: str, hooks: Hooks) -> PostgresStore:
    """Open the vault at that address; make its schema where it is missing.

    Raises ``VaultError``: BAD_SETTINGS, STORE_BUSY, BAD_STORE, VAULT_DOWN (see ``link``).
    """
    address = _address(location)
    link = SharedLink(address) if address.replicas else DatabaseLink(address)
    try:
        await link.open()
    except BaseException:
        await link.close()
        raise
    store = PostgresStore(link, hooks)
    store.watch()
    return store


def _address(location: str) -> DatabaseAddress:
    try:
        return parse_address(location)
    except ValueError as error:
        raise VaultError(Code.BAD_SETTINGS, f"The setting store: {error}.") from None


def _exists(location: str) -> bool:
    return bool(look(_address(location), copied_notes))


def _refuse_new(location: str) -> None:
    address = _address(location)
    look(address, lambda connection: refuse_no_right(connection, address.schema))


@asynccontextmanager
async def _snapshot(location: str, _scratch: Path) -> AsyncIterator[PostgresStore]:
    """A read-only snapshot of the vault, whoever owns it."""
    link = SnapshotLink(_address(location))
    try:
        await link.open()
        yield PostgresStore(link, Hooks())
    finally:
        await link.close()


POSTGRESQL = Engine(
    open_postgres, _exists, _refuse_new,
    lambda location: look(_address(location), copied_notes) or {},
    _snapshot, True, lambda location: _address(location).away,
)  # fmt: skip
