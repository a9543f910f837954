"""The PostgreSQL engine beyond what every engine is held to: owners, connections, ways to rows."""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from proxy.errors import Code, VaultError
from proxy.storage import engine_of, open_store
from proxy.storage.base import Hooks
from proxy.storage.changes import Change, Conflict, Insert, Remove, Replace, StageRow
from proxy.storage.notes import NoteWrite
from proxy.storage.postgres.address import parse_address
from proxy.storage.postgres.faults import is_link_fault, is_race, vault_error
from proxy.storage.postgres.link import connect
from proxy.storage.postgres.migrations import SCHEMA_FORMAT, migrate
from proxy.storage.postgres.select import WhereSql, joined, live_rows, rarest_first
from proxy.storage.postgres.statements import numbered
from proxy.storage.postgres.store import POSTGRESQL, PostgresStore, open_postgres
from proxy.storage.query import (
    MATCH_ALL,
    All,
    Compare,
    Compared,
    Holds,
    Indexed,
    Is,
    Order,
    Select,
    Where,
)
from proxy.storage.query import Any as AnyOf
from proxy.storage.rows import Column, ColumnType, ColumnValue, TableLayout
from tests.support.patience import PATIENCE, paced
from tests.support.ports import closed_port
from tests.support.postgres import beside, fresh_address, holding
from tests.support.rows import LAYOUT, TABLE, h, insert, live, row, staged
from tests.support.table import table
from tests.support.tree import ROOT


@pytest.fixture
def uri() -> str:
    return fresh_address()


@pytest.fixture
async def store(uri: str) -> AsyncIterator[PostgresStore]:
    opened = await open_postgres(uri, Hooks())
    await opened.ensure(LAYOUT)
    yield opened
    await opened.close()


# ---------------------------------------------------------------- the address


def test_an_address_is_told_without_its_secrets() -> None:
    address = parse_address(
        "postgresql://domicile:s3cret@one:5432,[2001:db8::1]:5433/vault"
        "?sslmode=verify-full&sslrootcert=/ca.pem&schema=eu&pool=3&timeout=2.5"
    )
    assert address.label == "one:5432,[2001:db8::1]:5433/vault, schema eu"
    assert (address.schema, address.pool, address.timeout) == ("eu", 3, 2.5)
    assert "target_session_attrs=read-write" in address.dsn
    assert "pool" not in address.dsn
    assert "sslrootcert=%2Fca.pem" in address.dsn


@table(
    "text, reason",
    [
        ("postgresql://", "name a host and a database"),
        ("postgresql://host", "name a host and a database"),
        ("postgresql:///vault", "name a host and a database"),
        ("mysql://127.0.0.1/vault", "not the address"),
        ("postgresql://127.0.0.1/vault?x", "not the address"),
        ("postgresql://127.0.0.1:port/vault", "commas between"),
        ("postgresql://db/vault", "sslmode=verify-full"),
        ("postgresql://127.0.0.1,db/vault", "sslmode=verify-full"),
        ("postgresql://db/vault?sslmode=yes", "sslmode is one of"),
        ("postgresql://127.0.0.1/vault?partitions=257", "partitions is a number from 0 to 256"),
        ("postgresql://127.0.0.1/vault?pool=0", "pool is a number from 1 to 100"),
        ("postgresql://127.0.0.1/vault?timeout=never", "timeout is a number"),
        ("postgresql://127.0.0.1/vault?schema=pg_catalog", "schema is a name"),
        ("postgresql://127.0.0.1/vault?schema=a;b", "schema is a name"),
        ("postgresql://127.0.0.1/vault?statement_timeout=1", "'statement_timeout' is not known"),
    ],
)
def test_an_unfit_address_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_address(text)


async def test_a_refused_password_is_told_without_it() -> None:
    fault = vault_error(asyncpg.InvalidPasswordError("password authentication failed"))
    assert fault.code is Code.VAULT_DOWN
    assert "refuses the user or the password" in fault.message


@table(
    ("error", "code"),
    [
        (asyncpg.DiskFullError("x"), Code.VAULT_DOWN),
        (asyncpg.ReadOnlySQLTransactionError("x"), Code.VAULT_DOWN),
        (asyncpg.AdminShutdownError("x"), Code.VAULT_DOWN),
        (asyncpg.TooManyConnectionsError("x"), Code.VAULT_DOWN),
        (ConnectionRefusedError(), Code.VAULT_DOWN),
        (TimeoutError(), Code.VAULT_DOWN),
        (asyncpg.DataCorruptedError("x"), Code.BAD_STORE),
        (asyncpg.UndefinedTableError("secret"), Code.INTERNAL),
        (VaultError(Code.CONFLICT, "x"), Code.CONFLICT),
    ],
)
def test_errors_of_the_driver_come_out_as_ours(error: Exception, code: Code) -> None:
    fault = vault_error(error)
    assert fault.code is code
    assert "secret" not in fault.message


def test_what_a_new_connection_may_mend_is_told_from_what_a_new_try_may() -> None:
    assert is_link_fault(asyncpg.ConnectionDoesNotExistError("x"))
    assert not is_link_fault(asyncpg.DiskFullError("x"))
    assert is_race(asyncpg.DeadlockDetectedError("x"))
    assert not is_race(asyncpg.UniqueViolationError("x"))


# ---------------------------------------------------------------- who owns the vault


async def test_one_process_owns_a_vault(store: PostgresStore, uri: str) -> None:
    uri += "&wait=0.2"
    with pytest.raises(VaultError) as caught:
        await open_store(uri)
    assert caught.value.code is Code.STORE_BUSY
    await store.close()
    await (await open_store(uri)).close()


async def test_who_has_lost_the_vault_to_another_process_writes_and_reads_no_more(
    store: PostgresStore, uri: str
) -> None:
    await store.commit(TABLE, [insert(1)])
    await beside(uri, "DELETE FROM writers")  # as another owner does
    for use in (
        store.commit(TABLE, [insert(2)]),
        store.rows(TABLE, [1]),
        store.put_note("n", b"", None),
    ):
        with pytest.raises(VaultError) as caught:
            await use
        assert caught.value.code is Code.VAULT_DOWN
        assert "taken over" in caught.value.message
    assert await beside(uri, f"SELECT 1 FROM r_{TABLE} WHERE rid = 2") == []


async def test_who_does_nothing_notices_that_another_process_has_the_vault(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.storage.postgres.store._WATCHED", 0.05)
    hooks, noticed = Hooks(), asyncio.Event()
    store = await open_store(uri, hooks)
    hooks.taken_over = noticed.set  # known only when it is open
    waiting = asyncio.create_task(open_store(uri + "&wait=60"))
    while not noticed.is_set():
        await beside(uri, _END, parse_address(uri).schema)
        await asyncio.wait([asyncio.create_task(noticed.wait())], timeout=1.0)
    await store.close()
    await (await waiting).close()


_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    " AND objid::bigint = hashtext($1)::bigint & 4294967295"
)


async def test_sessions_that_the_server_ends_are_made_anew(store: PostgresStore, uri: str) -> None:
    await store.commit(TABLE, [insert(1)])
    schema = parse_address(uri).schema
    for rid in range(2, 6):
        assert await beside(uri, _END, schema)
        await asyncio.gather(*(store.commit(TABLE, [insert(10 * rid + n)]) for n in range(5)))
        assert len(await store.rows(TABLE, range(10 * rid, 10 * rid + 5))) == 5
    assert (await store.count(TABLE))[0] == 21


async def test_of_a_commit_whose_answer_got_lost_the_database_tells_the_end(
    store: PostgresStore,
) -> None:
    link = store._link
    await store.commit(TABLE, [insert(1)])
    number = link._done
    assert await link.happened(number)
    assert not await link.happened(number + 1)
    link.drop_writer()
    assert await link.happened(number)


async def test_instances_that_start_together_make_one_schema(uri: str) -> None:
    address = parse_address(uri)
    connections = [await connect(address) for _ in range(4)]
    await asyncio.gather(*(migrate(one, address.schema) for one in connections))
    assert [tuple(one) for one in await beside(uri, "SELECT number, least FROM format")] == [
        (SCHEMA_FORMAT, 1)
    ]
    for one in connections:
        await one.close()


async def test_a_schema_that_only_a_newer_program_can_read_is_refused(uri: str) -> None:
    await (await open_store(uri)).close()
    await beside(uri, "UPDATE format SET number = 9, least = 1")
    await (await open_store(uri)).close()  # a newer one, which this program can read
    await beside(uri, "UPDATE format SET number = 9, least = 9")
    with pytest.raises(VaultError) as caught:
        await open_store(uri)
    assert caught.value.code is Code.BAD_STORE


async def test_what_is_there_can_be_told_before_anything_is_opened(uri: str) -> None:
    assert not await asyncio.to_thread(POSTGRESQL.exists, uri)
    await asyncio.to_thread(POSTGRESQL.refuse_new, uri)
    store = await open_store(uri)
    await store.put_note("a", b"1", None)
    engine, place = engine_of(uri)
    assert await asyncio.to_thread(engine.exists, place)
    assert await asyncio.to_thread(engine.peek, place) == {"a": b"1"}
    await store.close()


async def test_a_server_that_is_not_there_is_told_at_once() -> None:
    with closed_port() as port, pytest.raises(VaultError) as caught:
        await open_store(f"postgresql://127.0.0.1:{port}/vault")
    assert caught.value.code is Code.VAULT_DOWN


def test_a_look_at_a_server_that_is_not_there_names_it_and_no_password() -> None:
    with closed_port() as port, pytest.raises(VaultError) as caught:
        POSTGRESQL.exists(f"postgresql://me:s3cret@127.0.0.1:{port}/vault")
    assert caught.value.message == (
        f"The vault's database cannot be reached (127.0.0.1:{port}/vault, schema domicile)."
    )


def test_the_embedded_store_loads_no_driver_of_a_server() -> None:
    program = (
        "import sys, proxy.cli, proxy.bootstrap.instance; from proxy.config import load_settings;"
        "load_settings(None, {}); sys.exit('asyncpg' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


# ---------------------------------------------------------------- conflicts


async def held_up(
    store: PostgresStore, changes: Sequence[Change], other: asyncpg.Connection
) -> None:
    """Commit what another transaction holds up until it is committed itself; again where the machine
    paused for longer than a write waits.
    """
    waiting = asyncio.ensure_future(store.commit(TABLE, changes))
    await asyncio.sleep(0.2)
    early = waiting.done()
    await other.execute("COMMIT")
    while True:
        try:
            return await waiting
        except VaultError as error:
            if not error.message.startswith("Another session"):
                raise
            await asyncio.sleep(0.1)
            waiting, early = asyncio.ensure_future(store.commit(TABLE, changes)), False
        except Conflict:
            assert not early
            raise


async def test_two_instances_that_claim_one_hash_do_not_both_get_it(
    store: PostgresStore, uri: str
) -> None:
    address = parse_address(uri)
    other = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    await other.execute("BEGIN")
    await other.execute(f"INSERT INTO t_{TABLE} (hash, rid, claimed) VALUES ($1, 9, true)", h("u"))
    with pytest.raises(Conflict) as caught:
        await held_up(store, [insert(1, unique=(h("u"),))], other)
    assert caught.value.hashes == (h("u"),)
    await other.close()


async def test_of_tables_in_parts_a_key_has_one_row_and_nothing_is_left_behind() -> None:
    uri = fresh_address(partitions="3")
    store = await open_postgres(uri, Hooks())
    await store.ensure(LAYOUT)
    address = parse_address(uri)
    other = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    await store.commit(TABLE, [Insert(live(rid, rid)) for rid in range(1, 10)])
    assert len({row[0] for row in await beside(uri, f"SELECT tableoid FROM r_{TABLE}")}) == 3
    await other.execute("BEGIN")
    await other.execute(f"UPDATE r_{TABLE} SET key = $1 WHERE rid = 1", h("k"))
    with pytest.raises(Conflict):
        await held_up(store, [Insert(live(20, "k"))], other)
    await store.commit(TABLE, [Remove(1), Insert(live(20, "k")), Insert(live(21, 1))])
    await store.drop(TABLE)
    own = "= current_schema()::regnamespace"  # others are at work in the same database
    for catalog, name in (("pg_class", "rel"), ("pg_proc", "pro")):
        text = (
            f"SELECT 1 FROM {catalog} WHERE {name}name LIKE '%{TABLE}%' AND {name}namespace {own}"
        )
        assert await beside(uri, text) == []
    await other.close()
    await store.close()


async def test_a_row_that_another_instance_removes_gets_no_staged_change(
    store: PostgresStore, uri: str
) -> None:
    await store.commit(TABLE, [insert(1)])
    address = parse_address(uri)
    other = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    await other.execute("BEGIN")
    await other.execute(f"DELETE FROM r_{TABLE} WHERE rid = 1")
    with pytest.raises(Conflict):
        await held_up(store, [StageRow(staged(5, 1))], other)
    assert await store.staged(TABLE, [1]) == {}
    await other.close()


# ---------------------------------------------------------------- locks of somebody else


LOCKED = f"{Code.VAULT_DOWN}: Another session"


async def written(store: PostgresStore, rid: int) -> str:
    """What becomes of another version of a row; its first second is as it was."""
    (now,) = (await store.rows(TABLE, [rid])).values()
    try:
        await store.commit(TABLE, [Replace(now._replace(version=now.version + 1), now.version)])
    except VaultError as error:
        return f"{error.code}: {error.message.partition(' of ')[0]}"
    return "written"


@table("replicas", ["false", "true"])
async def test_a_row_that_somebody_else_has_locked_holds_up_no_other(replicas: str) -> None:
    uri = fresh_address(replicas=replicas)
    stores = [await open_postgres(uri, Hooks()) for _ in range(1 + (replicas == "true"))]
    for one in stores:
        await one.ensure(LAYOUT)
    many = range(1, 101)
    await stores[0].commit(TABLE, [insert(rid) for rid in many])
    async with holding(uri, f"SELECT 1 FROM r_{TABLE} WHERE rid = 40 FOR UPDATE"), paced() as pace:
        began = time.monotonic()
        outcomes = await asyncio.gather(*(written(stores[rid % len(stores)], rid) for rid in many))
        assert time.monotonic() - began < 5 * pace.stretched
        assert [rid for rid, one in zip(many, outcomes, strict=True) if one != "written"] == [40]
        assert outcomes[39] == LOCKED
        # whoever tries it again and again holds up no other one either
        times: list[float] = []
        trying = asyncio.ensure_future(_until_cancelled(stores[0], 40))
        for rid in (*range(1, 31), *range(1, 31)):
            began = time.monotonic()
            assert await written(stores[rid % len(stores)], rid) == "written"
            times.append(time.monotonic() - began)
        trying.cancel()
        assert sorted(times)[len(times) // 2] < 0.1 * pace.stretched
        assert max(times) < 2 * pace.stretched
    await asyncio.sleep(1.1)
    assert await written(stores[0], 40) == "written"
    assert await written(stores[0], 40) == "written"
    for one in stores:
        await one.close()


async def _until_cancelled(store: PostgresStore, rid: int) -> None:
    while True:
        assert await written(store, rid) == LOCKED
        await asyncio.sleep(0.01)


async def test_a_table_that_somebody_else_has_locked_is_waited_for_some_seconds(
    store: PostgresStore, uri: str
) -> None:
    many = range(1, 201)
    await store.commit(TABLE, [insert(rid) for rid in many])
    async with holding(uri, f"LOCK TABLE r_{TABLE} IN SHARE MODE"), paced() as pace:
        began = time.monotonic()
        outcomes = await asyncio.gather(*(written(store, rid) for rid in many))
        assert time.monotonic() - began < 10 * pace.stretched
        assert set(outcomes) == {LOCKED}
    await asyncio.sleep(1.1)
    assert {await written(store, rid) for rid in many} == {"written"}


async def test_a_job_waits_no_longer_for_a_row_than_a_commit(
    store: PostgresStore, uri: str
) -> None:
    await store.commit(TABLE, [insert(1), insert(2)])
    await store.write_notes([NoteWrite("test/1", b"one", None)])
    locking = "SELECT 1 FROM notes WHERE name = 'test/1' FOR UPDATE"
    async with holding(uri, locking), paced() as pace:
        began = time.monotonic()
        with pytest.raises(VaultError, match="Another session"):
            await store.write_notes([NoteWrite("test/1", b"two", b"one")])
        assert await written(store, 2) == "written"
        assert time.monotonic() - began < 5 * pace.stretched
    await store.write_notes([NoteWrite("test/1", b"two", b"one")])


# ---------------------------------------------------------------- texts and plans


async def test_long_texts_are_compared_and_ordered_whole(store: PostgresStore) -> None:
    texts = ["a" * 5000 + ending for ending in "cab"] + ["a" * 600, "\0", "a\0b"]
    await store.commit(
        TABLE, [Insert(live(n, n)._replace(cells=(None, text))) for n, text in enumerate(texts, 1)]
    )
    by_city = (Order("city"),)
    page = await store.select(TABLE, Select(MATCH_ALL, 0, by_city))
    assert [one.cells[1] for one in page.rows] == sorted(texts)
    for text in texts:
        found = await store.select(TABLE, Select(Is("city", (text,)), 0))
        assert [one.cells[1] for one in found.rows] == [text]
    above = await store.select(TABLE, Select(Compared("city", Compare.GT, texts[2]), 0))
    assert [one.cells[1] for one in above.rows] == [texts[0]]


#: A question, and whether its order alone leads to the rows.
QUESTIONS: list[tuple[Where, tuple[Order, ...]]] = [
    (Is("city", ("c7",)), ()),
    (Is("email", (h("m3"),)), ()),
    (Compared("visits", Compare.GT, 1990), ()),
    (Compared("city", Compare.GTE, "c99"), ()),
    (Is("@key", (h(5),)), ()),
    (Is("@rid", (5, 6)), ()),
    (Indexed((h("t5"), h("t"))), ()),
    (All((Is("city", ("c7",)), Indexed((h("t"),)))), ()),
    (AnyOf((Is("city", ("c7",)), Is("email", (h("m3"),)))), ()),
    (Is("city", (None,)), ()),
    (Compared("@created_at", Compare.GT, 10**12), ()),
    (MATCH_ALL, ()),
    (MATCH_ALL, (Order("city"),)),
    (MATCH_ALL, (Order("visits", descending=True),)),
    (MATCH_ALL, (Order("@created_at"),)),
    (Holds("city", "c7"), (Order("city"),)),
]


async def test_every_question_is_answered_by_an_index(store: PostgresStore, uri: str) -> None:
    def one(rid: int) -> Insert:
        cells: tuple[ColumnValue, ...] = (h(f"m{rid % 50}"), f"c{rid % 100}", rid, None)
        return Insert(live(rid, rid)._replace(cells=cells), (h("t"), h(f"t{rid}")))

    await store.commit(TABLE, [one(rid) for rid in range(1, 2001)])
    await beside(uri, f"ANALYZE r_{TABLE}, t_{TABLE}")
    sql = store._tables[TABLE]
    conditions = WhereSql(sql)
    for where, order in QUESTIONS:
        text, values = joined([conditions.where(where), live_rows(0)], "AND")
        statement = numbered(
            f"EXPLAIN SELECT {sql.columns} FROM r_{TABLE} AS r WHERE {text}"
            f" ORDER BY {conditions.order(order, wide=False)} LIMIT 101"
        )
        plan = [raw[0] for raw in await store._link.fetch(statement, *values)]
        assert not any("Seq Scan on r_" in line for line in plan), (where, plan)
        assert any("Index" in line for line in plan), (where, plan)


def entries_read(plan: dict[str, Any]) -> int:
    """How many entries of the token index a plan has read."""
    own = plan["Actual Rows"] * plan["Actual Loops"]
    inner = sum(map(entries_read, plan.get("Plans", ())))
    return inner + (int(own) if "t_" in plan.get("Relation Name", "") else 0)


@pytest.mark.parametrize("width", [2, 3])
async def test_a_search_reads_the_entries_of_the_rarest_part(
    store: PostgresStore, uri: str, width: int
) -> None:
    common, rare = [h(f"common{number}") for number in range(width - 1)], h("rare")

    def one(rid: int) -> Insert:
        return Insert(live(rid, rid), (*common, *([rare] if rid % 700 == 0 else [])))

    await store.commit(TABLE, [one(rid) for rid in range(1, 2801)])
    await beside(uri, f"ANALYZE r_{TABLE}, t_{TABLE}")
    where = AnyOf((Indexed((*common, rare)), Indexed((h("nowhere"), *common))))
    page = await store.select(TABLE, Select(where, 0, (), 100))
    assert [one.rid for one in page.rows] == [700, 1400, 2100, 2800]
    assert page.total == 4
    sql = store._tables[TABLE]

    async def read(connection: Any) -> int:
        sought = await rarest_first(connection, TABLE, where)
        text, values = WhereSql(sql).where(sought)
        statement = numbered(f"SELECT rid FROM r_{TABLE} AS r WHERE {text}")
        explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
        plan = json.loads(await connection.fetchval(explained, *values))
        return entries_read(plan[0]["Plan"])

    assert await store._link.read(read) <= 4 * width


async def test_look_ups_and_upkeep_use_their_indexes(store: PostgresStore) -> None:
    sql = store._tables[TABLE]
    asked: list[tuple[str, tuple[Any, ...]]] = [
        (sql.rows, ([1],)), (sql.by_keys, ([h("a")],)), (sql.by_tokens, ([h("a")],)),
        (sql.staged, ([1],)), (sql.pending, (9, 9)), (sql.waiting, (9, 9)), (sql.expired, (9, 9)),
        (sql.scan, (0, 9)), (sql.past, (h("a"), 9, 0)), (sql.past_scan, (1, 1, 9)),
        (sql.files, ([1],)), (sql.file_scan, (b"", 9)), (sql.reply, (h("a"), 0)),
        (sql.reply_scan, (b"", 9)),
    ]  # fmt: skip
    for text, values in asked:
        plan = [raw[0] for raw in await store._link.fetch(f"EXPLAIN {text}", *values)]
        assert not any("Seq Scan" in line for line in plan), (text, plan)


async def test_rows_are_counted_across_starts(uri: str) -> None:
    for start in range(3):
        store = await open_store(uri)
        await store.ensure(LAYOUT)
        await store.commit(TABLE, [Insert(row(start + 1))])
        assert (await store.count(TABLE))[0] == start + 1
        await store.close()
    assert len(await beside(uri, "SELECT 1 FROM counts")) <= 2


# ---------------------------------------------------------------- more columns in use


WIDER = TableLayout(TABLE, (*LAYOUT.columns, Column("nick", ColumnType.TEXT)))
_INDEXES = (
    "SELECT indisvalid FROM pg_index WHERE indrelid = $1::regclass"
    " AND pg_get_indexdef(indexrelid) LIKE '%x_nick%'"
)
_FILLED = (
    f"INSERT INTO r_{TABLE} (rid, state, version, created_at, updated_at, salt, body)"
    " SELECT n, 1, 1, 1, 1, '', decode(repeat(md5(n::text), 50), 'hex')"
    " FROM generate_series(1000, 7000) AS n"
)


@table(("large", "partitions"), [(False, "0"), (True, "0"), (True, "3")])
async def test_writes_go_on_while_a_column_waits_for_its_table_and_an_index_is_made(
    large: bool, partitions: str
) -> None:
    uri = fresh_address(replicas="true", partitions=partitions)
    one, two = await open_postgres(uri, Hooks()), await open_postgres(uri, Hooks())
    outcomes: Counter[str] = Counter()

    async def write() -> None:
        outcomes.update([await written(one, 1), await written(two, 2)])

    try:
        await asyncio.gather(one.ensure(LAYOUT), two.ensure(LAYOUT))
        await one.commit(TABLE, [insert(1), insert(2)])
        if large:
            await beside(uri, _FILLED)
        # an index waits for this snapshot, which is there before the column; nobody else does
        async with holding(uri, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1"):
            async with holding(uri, f"SELECT count(*) FROM r_{TABLE}"):
                widening = [asyncio.ensure_future(store.ensure(WIDER)) for store in (one, two)]
                until = time.monotonic() + 3
                while time.monotonic() < until:
                    await write()
                assert not any(task.done() for task in widening)
            while large and not await beside(uri, _INDEXES, f"r_{TABLE}"):
                await write()
            assert not large or not all(task.done() for task in widening)  # one makes the index
        # where the machine stands still, the column may wait for longer than a write does
        assert outcomes.keys() <= {"written", LOCKED}
        assert outcomes["written"] > 10 * outcomes[LOCKED]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*widening)
        assert [raw[0] for raw in await beside(uri, _INDEXES, f"r_{TABLE}")] == [True]
        await two.commit(TABLE, [Insert(live(4, 4)._replace(cells=(None,) * 4 + ("b",)))])
        assert (await one.rows(TABLE, [4]))[4].cells[4] == "b"
    finally:
        await asyncio.gather(one.close(), two.close())


async def test_a_column_whose_index_was_never_made_is_made_again(
    store: PostgresStore, uri: str
) -> None:
    await beside(uri, f"ALTER TABLE r_{TABLE} ADD COLUMN x_nick bigint")  # of rules of then
    await beside(uri, f"CREATE INDEX ON r_{TABLE} (x_nick)")
    await store.ensure(WIDER)
    assert [raw[0] for raw in await beside(uri, _INDEXES, f"r_{TABLE}")] == [True]
