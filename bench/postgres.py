"""Measure 23: durable inserts through the PostgreSQL engine against a bare asyncpg loop with the same
groups.

``ours`` is 64 coroutines that call ``Store.commit`` with one record each; the peer is a loop over
the same tables and rows on one connection that commits groups of exactly the sizes that ours made,
each with one statement for its rows and one for their tokens. Both on a server of their own that
flushes to disk with every group.
"""

import itertools
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from bench.inserts import CASES, LAYOUT, WRITERS, Case, records, through_store
from proxy.storage import open_store
from proxy.storage.changes import Insert
from proxy.storage.postgres.address import parse_address
from proxy.storage.postgres.link import connect
from proxy.storage.postgres.statements import TableSql
from proxy.storage.postgres.tables import make_tables
from tests.support.postgres import Server


async def through_driver(
    uri: str, inserts: list[Insert], sizes: Iterable[int]
) -> tuple[float, float]:
    """Records/s and processor microseconds a record of the bare driver, in groups of these sizes."""
    await (await open_store(uri)).close()
    connection = await connect(parse_address(uri))
    async with connection.transaction():
        await make_tables(connection, LAYOUT)
    sql = TableSql(LAYOUT)
    left = iter(
        [
            (sql.stored(one.row), [(token, one.row.rid) for token in (*one.hashes, *one.unique)])
            for one in inserts
        ]
    )
    groups = [list(itertools.islice(left, size)) for size in sizes]
    start, used = time.perf_counter(), time.process_time()
    for group in groups:
        async with connection.transaction():
            text, values = sql.insert([row for row, _ in group])
            await connection.execute(text, *values)
            pairs = [pair for _, some in group for pair in some]
            await connection.execute(
                f"INSERT INTO t_{LAYOUT.table} (hash, rid) SELECT * FROM unnest($1::bytea[], $2::bigint[])",
                *map(list, zip(*pairs, strict=True)),
            )
    took, used = time.perf_counter() - start, time.process_time() - used
    await connection.close()
    return len(inserts) / took, used / len(inserts) * 1e6


def run(quick: bool = False) -> dict[str, Any]:
    """Interleaved rounds on one server, medians."""
    rounds, count = (1, 1_000) if quick else (5, 10_000)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the server runs as another user
        server = Server(Path(folder, "server"))
        server.make()
        server.start()
        try:
            for case in CASES:
                row, note = _case(server, case, rounds, count)
                rows.append(row)
                notes.append(note)
        finally:
            server.stop()
    return {"rows": rows, "notes": notes}


def _case(server: Server, case: Case, rounds: int, count: int) -> tuple[dict[str, Any], str]:
    rates: list[tuple[float, float]] = []
    costs: list[tuple[float, float]] = []
    for number in range(rounds):
        inserts = records(count, case)
        name = f"b{case.shared}{case.unique}{number}"
        rate, cost, sizes = uvloop.run(through_store(server.address(f"{name}o"), inserts))
        peer = uvloop.run(through_driver(server.address(f"{name}p"), inserts, sizes))
        rates.append((rate, peer[0]))
        costs.append((cost, peer[1]))
    ours, bare = (statistics.median(column) for column in zip(*costs, strict=True))
    row = {
        "measure": 23,
        "case": f"{WRITERS} writers, {case.title}",
        "unit": "records/s",
        "ours": statistics.median(rate for rate, _ in rates),
        "peer": statistics.median(rate for _, rate in rates),
        "against": "bare asyncpg, same groups",
        "ratio": statistics.median(rate / other for rate, other in rates),
    }
    note = (
        f"Inserts into PostgreSQL, {case.title}: {ours:.0f} us of this process a record, the bare "
        f"driver {bare:.0f} us."
    )
    return row, note


if __name__ == "__main__":
    result = run()
    for row in result["rows"]:
        print(
            f"{row['case']}: {row['ours']:,.0f} against {row['peer']:,.0f} {row['unit']}, ratio "
            f"{row['ratio']:.2f}"
        )
    print("\n".join(result["notes"]))
