"""The sum of a table follows its rows through every commit, and through those that fail: in each
engine that keeps one.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from proxy.storage import open_store
from proxy.storage.base import Hooks, Store
from proxy.storage.changes import (
    Accept,
    Bind,
    Change,
    Conflict,
    Insert,
    Release,
    Remove,
    Replace,
    ReplaceCiphertext,
    SealedPart,
)
from proxy.storage.postgres.address import parse_address
from proxy.storage.postgres.link import connect
from proxy.storage.postgres.store import PostgresStore, open_postgres
from proxy.vault.expiry import reap
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import doubt, stage_creates, stage_updates
from proxy.vault.row_tallies import TableTally
from tests.conformance.test_storage import PLACES
from tests.support.rows import LAYOUT, TABLE, h, insert, live, row
from tests.support.vaults import draft, make_bench, token

TALLY = TableTally(bytes(32), TABLE)


class Database(NamedTuple):
    """A database, and what its owner has and others not."""

    address: str

    async def open(self) -> Store:
        store = await open_store(self.address)
        await store.ensure(LAYOUT)
        return store

    async def write(self, *statements: str) -> None:
        """Run statements in a session of somebody else."""
        if self.address.startswith("sqlite:"):
            with sqlite3.connect(self.address.removeprefix("sqlite:///"), timeout=10) as other:
                for text in statements:
                    other.execute(text)
            other.close()
            return
        session = await connect(parse_address(self.address))
        for text in statements:
            await session.execute(text)
        await session.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return Database(PLACES[request.param](tmp_path))


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Store]:
    opened = await database.open()
    yield opened
    await opened.close()


async def test_every_kind_of_change_of_a_row_moves_the_sum(database):
    store = await database.open()
    assert await store.keep_tally(TABLE, TALLY, first=True) == 0
    changes: list[Change] = [
        insert(1), insert(2), insert(3), Bind(1, h("a"), b"sealed", 2), Accept(2, 3, b"accepted"),
        Replace(row(1, at=4, body=b"other")._replace(version=2), 1),
        Release(h("a"), 9, 5, 1, b"unbound"),
        ReplaceCiphertext(SealedPart.ROW, (2,), (row(2).body, b"accepted"), (b"again", b"anew")),
        Remove(3), Insert(live(4, "d")),
    ]  # fmt: skip
    for number, change in enumerate(changes, 1):
        await store.commit(TABLE, [change])
        assert await store.check_tally(TABLE) == number
    await store.close()
    again = await database.open()
    assert await again.check_tally(TABLE) is None, "nobody has said whose sum it is"
    assert await again.keep_tally(TABLE, TableTally(bytes(31), TABLE), first=False) is None
    assert await again.keep_tally(TABLE, TALLY, first=False) == len(changes)
    assert await again.check_tally(TABLE) == len(changes)
    await again.close()


async def test_the_first_sum_is_that_of_the_rows_that_are_there(store):
    await store.commit(TABLE, [insert(number) for number in range(1, 1201)])
    assert await store.keep_tally(TABLE, TALLY, first=True) == 0
    assert await store.check_tally(TABLE) == 0
    await store.commit(TABLE, [Remove(7)])
    assert await store.check_tally(TABLE) == 1


async def test_commits_of_a_group_that_fail_leave_the_sum_to_the_others(store):
    await store.keep_tally(TABLE, TALLY, first=True)
    await store.commit(TABLE, [Insert(live(1, "a"))])
    results = await asyncio.gather(
        store.commit(TABLE, [insert(2)]),
        store.commit(TABLE, [insert(3), Bind(3, h("a"), b"taken", 1)]),
        store.commit(TABLE, [insert(4)]),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), Conflict, type(None)]
    assert await store.check_tally(TABLE) is not None
    await store.drop(TABLE)
    await store.ensure(LAYOUT)
    assert await store.keep_tally(TABLE, TALLY, first=True) == 0


@pytest.mark.parametrize(
    "statements",
    [
        (f"DELETE FROM r_{TABLE} WHERE rid = 2",),
        (f"UPDATE r_{TABLE} SET body = (SELECT body FROM copy WHERE rid = 1) WHERE rid = 1",),
        (f"DELETE FROM r_{TABLE} WHERE rid = 1", f"INSERT INTO r_{TABLE} SELECT * FROM copy WHERE rid = 1"),
        (f"INSERT INTO r_{TABLE} SELECT * FROM copy WHERE rid = 3",),
        ("UPDATE tables SET tally = (SELECT tally FROM book)",),
        ("UPDATE tables SET tally = NULL",),
    ],
    ids=["deleted", "put back", "exchanged", "added", "older sum", "no sum"],
)  # fmt: skip
async def test_what_somebody_else_does_to_rows_does_not_fit(database, store, statements):
    await store.keep_tally(TABLE, TALLY, first=True)
    await store.commit(TABLE, [insert(1), insert(2), insert(3)])
    await database.write(
        f"CREATE TABLE copy AS SELECT * FROM r_{TABLE}", "CREATE TABLE book AS SELECT * FROM tables"
    )
    await store.commit(TABLE, [Replace(row(1, body=b"other")._replace(version=2), 1), Remove(3)])
    assert await store.check_tally(TABLE) == 2
    await database.write(*statements)
    assert await store.check_tally(TABLE) is None
    if "tally" not in statements[0]:
        await store.commit(TABLE, [insert(5)])
        assert await store.check_tally(TABLE) is None, "what is written later does not make it fit"


# ---------------------------------------------------------------- of PostgreSQL alone


@pytest.fixture
async def server() -> AsyncIterator[tuple[PostgresStore, asyncpg.Connection]]:
    """A store that keeps a sum, and a session of somebody else."""
    address = PLACES["postgresql"](Path())
    store = await open_postgres(address, Hooks())
    await store.ensure(LAYOUT)
    await store.keep_tally(TABLE, TALLY, first=True)
    await store.commit(TABLE, [insert(1)])
    other = await connect(parse_address(address))
    yield store, other
    await other.close()
    await store.close()


async def test_a_connection_that_is_made_anew_goes_on_with_the_sum(server):
    store, other = server
    # of this store alone: other tests have theirs on the same server
    assert await other.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_locks"
        " WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
        " AND objid = (hashtext(current_schema())::bigint & 4294967295)::oid"
    )
    await store.commit(TABLE, [insert(2)])
    await store.commit(TABLE, [Remove(1)])
    assert await store.check_tally(TABLE) == 3


async def test_the_session_of_somebody_else_is_not_believed(server):
    store, other = server
    await other.execute(
        "CREATE TEMP TABLE row_moves (name text, rid bigint, body bytea, key_sealed bytea)"
    )
    await other.execute(f"UPDATE r_{TABLE} SET body = 'x'")
    assert await other.fetchval("SELECT count(*) FROM row_moves") == 2
    assert await store.check_tally(TABLE) is None


class Cut:
    """A connection that breaks after its transaction has ended, before anybody is told."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, text: str, *values: object) -> str:
        answer = str(await self._connection.execute(text, *values))
        if text == "COMMIT":
            raise ConnectionResetError
        return answer


async def test_a_transaction_whose_end_nobody_told_is_counted_as_it_ended(server, monkeypatch):
    store, _ = server
    writer = store._link.writer
    connections = [Cut(await writer())]

    async def next_writer() -> Any:
        return connections.pop() if connections else await writer()

    monkeypatch.setattr(store._link, "writer", next_writer)
    await store.commit(TABLE, [insert(2)])
    assert not connections
    await store.commit(TABLE, [insert(3)])
    assert await store.check_tally(TABLE) == 3


async def test_a_number_of_a_dropped_version_is_kept_by_the_row_in_each_engine(database):
    store = await database.open()
    bench = await make_bench(store)
    people = bench.people
    await store.keep_tally(people.table, TableTally(bytes(32), people.table), first=True)
    (made,) = await stage_creates(people, [draft(name="Ann")], [None])
    await bind(people, [(made, "1")])
    changed = await stage_updates(people, [("1", draft(name="Anna"))])
    await doubt(people, changed, answered=True)
    bench.clock.advance(10)
    sums = await store.check_tally(people.table)
    assert await reap(people, 1) == 1
    assert await store.check_tally(people.table) == (sums or 0) + 1, "it was sealed anew"
    await store.close()
    store = await database.open()
    again = (await make_bench(store, people.context.keyset)).people
    (change,) = await stage_updates(again, [("1", draft(name="Bo"))])
    assert token(change, "name") != token(changed[0], "name")
    await store.close()
