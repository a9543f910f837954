"""Measure 10: durable inserts through the store's own code against the bare engine with the same
groups; then whole records (``creates``).

``ours`` is 64 coroutines that call ``Store.commit`` with one record each, as the proxy does before
it forwards; the peer is a plain ``sqlite3`` loop over the same tables and rows that commits groups
of exactly the sizes that ours made. Both flush to disk with every group. What is left between them
is the price of queue, thread, futures and checks.
"""

import asyncio
import itertools
import secrets
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import uvloop

from bench import creates
from proxy.storage import open_store
from proxy.storage.base import Hooks, Store
from proxy.storage.changes import Insert
from proxy.storage.rows import Column, ColumnType, Row, RowState, TableLayout
from proxy.storage.sqlite.file import DatabaseFile
from proxy.storage.sqlite.statements import Statements, make

WRITERS = 64
LAYOUT = TableLayout("records", (Column("email", ColumnType.HASH),))
_BODY = secrets.token_bytes(350)
_SALT = secrets.token_bytes(16)


class Case(NamedTuple):
    """Token hashes of each record: of values that others may share, and such that the store has to
    find new.
    """

    title: str
    shared: int
    unique: int


CASES = (
    Case("1 lookup key", 1, 0),
    Case("5 lookup keys", 5, 0),
    Case("5 keys checked to be new", 0, 5),
)


def records(count: int, case: Case) -> list[Insert]:
    """New records as the proxy writes them: no record key yet, a sealed body, token hashes."""
    return [
        Insert(
            Row(rid, None, None, RowState.PENDING, 1, rid, rid, None, _SALT, _BODY, (None,)),
            tuple(secrets.token_bytes(16) for _ in range(case.shared)),
            tuple(secrets.token_bytes(16) for _ in range(case.unique)),
        )
        for rid in range(1, count + 1)
    ]


async def through_store(uri: str, inserts: list[Insert]) -> tuple[float, float, list[int]]:
    """Records/s, processor microseconds a record of this process, and the sizes of the groups."""
    sizes: list[int] = []
    store = await open_store(uri, Hooks(lambda size, _: sizes.append(size)))
    await store.ensure(LAYOUT)
    left = iter(inserts)

    async def write() -> None:
        for insert in left:
            await store.commit(LAYOUT.table, (insert,))

    sizes.clear()
    start, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(write() for _ in range(WRITERS)))
    took, used = time.perf_counter() - start, time.process_time() - used
    await store.close()
    return len(inserts) / took, used / len(inserts) * 1e6, sizes


def through_engine(
    path: Path, inserts: list[Insert], sizes: Iterable[int], layout: TableLayout = LAYOUT
) -> tuple[float, float]:
    """Records/s and processor microseconds a record of the bare engine, in groups of these sizes."""
    file = DatabaseFile(path)
    connection = file.connect()
    make(connection, layout)
    sql = Statements(layout)
    left = iter(
        [
            (
                sql.stored(insert.row),
                [(token, insert.row.rid) for token in (*insert.hashes, *insert.unique)],
            )
            for insert in inserts
        ]
    )
    groups = [list(itertools.islice(left, size)) for size in sizes]
    token = f"INSERT INTO t_{layout.table} (hash, rid) VALUES (?, ?)"  # a name of this file
    start, used = time.perf_counter(), time.process_time()
    for group in groups:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(sql.insert, [row for row, _ in group])
        connection.executemany(token, [pair for _, pairs in group for pair in pairs])
        connection.execute("COMMIT")
    took, used = time.perf_counter() - start, time.process_time() - used
    connection.close()
    file.release()
    return len(inserts) / took, used / len(inserts) * 1e6


async def point_read(path: Path, count: int) -> float:
    """Microseconds of one ``Store.rows`` of one record among so many."""
    store: Store = await open_store(f"sqlite:///{path}")
    await store.ensure(LAYOUT)
    start = time.perf_counter()
    for step in range(10_000):
        await store.rows(LAYOUT.table, (1 + step * 7919 % count,))
    took = time.perf_counter() - start
    await store.close()
    return took / 10_000 * 1e6


def run(quick: bool = False) -> dict[str, Any]:
    """Interleaved rounds, medians; the last database of each case is read by id as well."""
    rounds, count = (1, 2_000) if quick else (7, 20_000)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for case in CASES:
        rates: list[tuple[float, float]] = []
        costs: list[tuple[float, float]] = []
        for _ in range(rounds):
            inserts = records(count, case)
            with TemporaryDirectory() as folder:
                rate, cost, sizes = uvloop.run(
                    through_store(f"sqlite:///{folder}/ours.db", inserts)
                )
                peer_rate, peer_cost = through_engine(Path(folder) / "peer.db", inserts, sizes)
            rates.append((rate, peer_rate))
            costs.append((cost, peer_cost))
        rows.append(_row(f"{WRITERS} writers, {case.title}", rates))
        ours, peer = (statistics.median(column) for column in zip(*costs, strict=True))
        notes.append(
            f"Inserts, {case.title}: {ours:.0f} us of processor time a record, bare engine "
            f"{peer:.0f} us."
        )
    whole = _whole_records(quick)
    rows.extend(whole[0])
    notes.extend(whole[1])
    notes.append(_reading(5_000 if quick else 100_000))
    return {"rows": rows, "notes": notes}


def _whole_records(quick: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Through the vault's own code, and over HTTP."""
    rounds, count = (1, 400) if quick else (5, 20_000)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for case in (*creates.CASES, *creates.OVER_HTTP):
        rates: list[tuple[float, float]] = []
        costs: list[tuple[float, float]] = []
        for _ in range(rounds):
            with TemporaryDirectory() as folder:
                made = creates.taken(Path(folder), case, count)
                rate, cost = through_engine(
                    Path(folder) / "peer.db", made.inserts, made.sizes, made.layout
                )
            rates.append((made.rate, rate))
            costs.append((made.cost, cost))
        rows.append(_row(f"records, {case.title}", rates))
        ours, peer = (statistics.median(column) for column in zip(*costs, strict=True))
        if ours:
            notes.append(
                f"Records, {case.title}: {ours:.0f} us of processor time a record, bare engine "
                f"{peer:.0f} us."
            )
    return rows, notes


def _row(case: str, rates: list[tuple[float, float]]) -> dict[str, Any]:
    return {
        "measure": 10,
        "case": case,
        "unit": "records/s",
        "ours": statistics.median(rate for rate, _ in rates),
        "peer": statistics.median(rate for _, rate in rates),
        "against": "bare sqlite3, same groups",
        "ratio": statistics.median(rate / peer for rate, peer in rates),
    }


def _reading(count: int) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "read.db"
        uvloop.run(through_store(f"sqlite:///{path}", records(count, CASES[0])))
        took = uvloop.run(point_read(path, count))
    return f"One record by its id among {count:,}, on the event loop: {took:.1f} us."


if __name__ == "__main__":
    result = run()
    for row in result["rows"]:
        print(
            f"{row['case']}: {row['ours']:,.0f} against {row['peer']:,.0f} {row['unit']}, ratio "
            f"{row['ratio']:.2f}"
        )
    print("\n".join(result["notes"]))
