"""Measure 13: a record read by its key, and durable inserts, with ten million rows against ten
thousand, on both engines.

    LARGE=10000000 TMPDIR=/space python -m bench 13

Without ``LARGE`` a million rows are made. Both stores are the engine's own, filled past it with
records of the size that the proxy writes (a key, 350 sealed bytes, one hashed column, one token),
in bulk; then store and engine are as in service (a test compares them with rows that the
engine has written). Keys and hashes are random, so that each read and each insert goes to another
page of every index.

One engine after the other has its data in a folder of ``TMPDIR``, which is removed before the next
one; where it has not ``ROOM`` bytes a row, nothing is begun. Ten million rows take some 20 minutes
on two idle cores, and 3 GB of memory at most.
"""

import asyncio
import os
import random
import secrets
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from bench.inserts import LAYOUT, WRITERS
from bench.processes import Unavailable
from proxy.storage import open_store
from proxy.storage.base import TABLE_PARTS, Store, columns_of
from proxy.storage.changes import Insert
from proxy.storage.postgres.address import parse_address
from proxy.storage.postgres.link import connect
from proxy.storage.postgres.statements import TableSql
from proxy.storage.postgres.tables import make_tables
from proxy.storage.rows import Row, RowState
from proxy.storage.sqlite.file import DatabaseFile
from proxy.storage.sqlite.statements import Statements, make
from tests.support.postgres import Server

TABLE = LAYOUT.table
SMALL = 10_000
#: Rows of one transaction while a store is filled.
BATCH = 100_000
#: Bytes of disk that a row may need while an engine is filled, its log included.
ROOM = 2_000
_BODIES = secrets.token_bytes(1 << 20)


def key_of(number: int) -> bytes:
    """The key of the row of that number: the same in every run, and as good as random."""
    return blake2b(number.to_bytes(8), digest_size=16).digest()


def rows(first: int, count: int) -> Iterator[Row]:
    """Records as they are once they are settled."""
    hashes = secrets.token_bytes(32 * count)
    for at in range(count):
        number = first + at
        start, place = number * 7919 % 1_000_000, 32 * at
        body, sealed = _BODIES[start : start + 350], _BODIES[start : start + 60]
        salt, email = hashes[place : place + 16], hashes[place + 16 : place + 32]
        yield Row(
            number, key_of(number), sealed, RowState.LIVE, 1, number, number, None, salt, body,
            (email,),
        )  # fmt: skip


def fill_sqlite(path: Path, count: int) -> None:
    """A database of so many rows; its indexes are made when the rows are in."""
    file = DatabaseFile(path)
    connection = file.connect()
    make(connection, LAYOUT)
    for pragma in ("synchronous = OFF", "wal_autocheckpoint = 100000", "cache_size = -1000000"):
        connection.execute(f"PRAGMA {pragma}")
    later = connection.execute(
        f"SELECT name, sql FROM sqlite_schema WHERE sql LIKE 'CREATE%INDEX%' AND tbl_name LIKE '%_{TABLE}'"
    ).fetchall()
    for name, _ in later:
        connection.execute(f'DROP INDEX "{name}"')
    sql = Statements(LAYOUT)
    for first in range(1, count + 1, BATCH):
        some = min(BATCH, count + 1 - first)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(sql.insert, (sql.stored(row) for row in rows(first, some)))
        connection.execute("COMMIT")
    for _, text in later:
        connection.execute(text)
    connection.execute(
        f"INSERT INTO t_{TABLE} (hash, rid) SELECT x_email, rid FROM r_{TABLE} ORDER BY x_email, rid"
    )
    connection.execute("UPDATE tables SET rows = ? WHERE name = ?", (count, TABLE))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    file.release()


async def fill_postgres(uri: str, count: int) -> None:
    """The same in a schema."""
    await (await open_store(uri)).close()
    connection = await connect(parse_address(uri), durable=False)
    async with connection.transaction():
        await make_tables(connection, LAYOUT)
    await connection.execute("SET maintenance_work_mem = '1GB'; SET work_mem = '512MB'")
    later = await connection.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
        f" AND tablename IN ('r_{TABLE}', 't_{TABLE}') AND indexname NOT LIKE '%pkey'"
    )
    for name, _ in later:
        await connection.execute(f'DROP INDEX "{name}"')
    sql = TableSql(LAYOUT)
    names = columns_of(LAYOUT, TABLE_PARTS["records"])
    for first in range(1, count + 1, BATCH):
        some = min(BATCH, count + 1 - first)
        records = [(*sql.stored(row),) for row in rows(first, some)]
        await connection.copy_records_to_table(f"r_{TABLE}", records=records, columns=names)
    for _, text in later:
        await connection.execute(text)
    await connection.execute(
        f"INSERT INTO t_{TABLE} (hash, rid) SELECT x_email, rid FROM r_{TABLE} ORDER BY x_email, rid"
    )
    await connection.execute("INSERT INTO counts VALUES ($1, 0, $2)", TABLE, count)
    await connection.execute(f"VACUUM ANALYZE r_{TABLE}; ")
    await connection.execute(f"VACUUM ANALYZE t_{TABLE}")
    await connection.execute("CHECKPOINT")
    await connection.close()


async def reading(store: Store, count: int, reads: int) -> float:
    """Microseconds of a record that is read by its key, one after the other."""
    wanted = [key_of(random.randrange(count) + 1) for _ in range(reads)]
    start = time.perf_counter()
    for key in wanted:
        found = await store.by_keys(TABLE, (key,))
        assert len(found) == 1
    return (time.perf_counter() - start) / reads * 1e6


async def writing(store: Store, first: int, writes: int) -> float:
    """Microseconds of an insert with one token, 64 at once."""
    inserts = iter([Insert(row, (secrets.token_bytes(16),)) for row in rows(first, writes)])

    async def write() -> None:
        for insert in inserts:
            await store.commit(TABLE, (insert,))

    start = time.perf_counter()
    await asyncio.gather(*(write() for _ in range(WRITERS)))
    return (time.perf_counter() - start) / writes * 1e6


async def compared(large: str, small: str, count: int, rounds: int) -> list[tuple[str, list[Any]]]:
    """By what was done, in each round: the time with many rows, and with few."""
    times: dict[str, list[Any]] = {"read": [], "insert": []}
    stores = [(await open_store(large), count), (await open_store(small), SMALL)]
    for store, _ in stores:
        await store.ensure(LAYOUT)
    share = 2_000 if rounds > 1 else 200
    for number in range(rounds + 1):
        took = [await reading(store, held, share) for store, held in stores]
        more = [await writing(store, held + 1 + number * share, share) for store, held in stores]
        if number:  # the first one warms up
            times["read"].append(took)
            times["insert"].append(more)
    for store, _ in stores:
        await store.close()
    return list(times.items())


def run(quick: bool = False) -> dict[str, Any]:
    """Both engines, rounds by turns, medians."""
    count = 20_000 if quick else int(os.environ.get("LARGE") or 1_000_000)
    rounds = 1 if quick else 9
    taken: list[dict[str, Any]] = []
    notes: list[str] = []
    for engine, filled in (("SQLite", _in_sqlite), ("PostgreSQL", _in_postgres)):
        with TemporaryDirectory() as folder:
            free, needed = shutil.disk_usage(folder).free, ROOM * count
            if free < needed:
                raise Unavailable(
                    f"{count:,} rows need {needed:,} bytes in {folder}: {free:,} are free"
                )
            Path(folder).chmod(0o755)  # the server runs as another user
            began = time.perf_counter()
            with filled(Path(folder), count) as places:
                notes.append(
                    f"13: {engine} was filled with {count:,} rows, {_size(folder) / count:.0f} bytes"
                    f" each, in {time.perf_counter() - began:.0f} s."
                )
                print(notes[-1], file=sys.stderr)
                told = uvloop.run(compared(*places, count, rounds))
        for what, pairs in told:
            taken.append(_row(f"{what}, {engine}, {count:,} rows", pairs))
            print(taken[-1], file=sys.stderr)
    return {"rows": taken, "notes": notes}


@contextmanager
def _in_sqlite(folder: Path, count: int) -> Iterator[tuple[str, str]]:
    """The addresses of a database of so many rows, and of a small one."""
    fill_sqlite(folder / "large.db", count)
    fill_sqlite(folder / "small.db", SMALL)
    yield f"sqlite:///{folder}/large.db", f"sqlite:///{folder}/small.db"


@contextmanager
def _in_postgres(folder: Path, count: int) -> Iterator[tuple[str, str]]:
    """The same on a server, which ends with the block."""
    server = Server(folder / "server", "shared_buffers=1GB", "max_wal_size=4GB")
    server.make()
    server.start()
    try:
        for name, held in (("large", count), ("small", SMALL)):
            uvloop.run(fill_postgres(server.address(name, pool="2", timeout="60"), held))
        yield server.address("large", pool="2"), server.address("small", pool="2")
    finally:
        server.stop()


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _row(case: str, pairs: list[Any]) -> dict[str, Any]:
    return {
        "measure": 13,
        "case": case,
        "unit": "us",
        "ours": statistics.median(large for large, _ in pairs),
        "peer": statistics.median(small for _, small in pairs),
        "against": f"{SMALL:,} rows",
        "ratio": statistics.median(large / small for large, small in pairs),
    }
