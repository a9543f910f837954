"""The benchmark harness works: it yields figures, and it notices answers that are wrong.

Nothing here asserts speed. Each benchmark starts processes of its own, which takes seconds of a
processor: in every run one of each kind is taken, all of them are at night.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from bench import (
    access,
    attachments,
    creates,
    exactness,
    inserts,
    large,
    mixed,
    peers,
    postgres,
    questions,
    redacting,
    report,
    search,
    turns,
    workers,
)
from bench.__main__ import main
from bench.inserts import LAYOUT
from bench.ledger import FEW
from bench.load import Job, body_of, run
from bench.measures import MEASURES, standing
from bench.processes import Running, Unavailable
from bench.redacting import application
from bench.rounds import QUICK, Driver, Failed
from bench.steps import STEPS
from proxy.storage import open_store
from proxy.storage.base import TABLE_PARTS
from proxy.storage.changes import Insert
from proxy.storage.postgres.address import parse_address
from tests.support.postgres import fresh_address
from tests.support.unavailable import Unavailable as Lacking


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Running]:
    with application(tmp_path) as running:
        yield running


def tiny(scenario: str, port: int) -> Job:
    return Job(scenario, port, connections=2, seconds=60, count=30, warmup=0.02)


@pytest.mark.parametrize("scenario", ["create", "100 KB", "update", "changed", "restored", "read"])
async def test_the_load_counts_answers_of_the_application(app: Running, scenario: str) -> None:
    result = await run(tiny(scenario, app.port))

    assert (result.errors, result.first_error) == (0, "")
    assert result.requests >= 30
    assert result.rate > 0
    assert 0 < result.p50_ms <= result.p99_ms


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """A server that answers every request alike, on the port that is given."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno", "status 503"),
        # without the value that was sent
        (b'HTTP/1.1 201 Made\r\nContent-Length: 8\r\n\r\n{"id":1}', "status 201"),
        (b"HTTP/1.1 201 Made\r\nContent-Length: 80\r\n\r\n{", "closed before its answer"),
    ],
)
async def test_the_load_counts_a_wrong_answer_as_an_error(answer: bytes, told: str) -> None:
    async with answering(answer) as port:
        result = await run(tiny("create", port))

    assert result.errors > 0
    assert told in result.first_error


def test_an_answer_is_read_to_its_end_only() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"

    assert body_of(head[:-1]) is None
    assert body_of(head + b"1234") is None
    assert body_of(head + b"12345") == b"12345"
    assert body_of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n") is None


def test_two_proxies_in_turns_and_what_each_lets_through(
    app: Running, tmp_path: Path, unavailable: Lacking
) -> None:
    with ExitStack() as stack:
        try:
            nginx = stack.enter_context(peers.nginx(app.port, tmp_path, install=False))
        except Unavailable as reason:
            unavailable("the benchmark against nginx", str(reason))
        driver = Driver(app, QUICK)

        [first, second] = driver.compare("create", [nginx, nginx], 2)
        assert min(first.rate, second.rate) > 0

        pretending = Running("domicile", nginx.port, nginx.process, nginx.log)
        with pytest.raises(Failed, match="domicile does not redact"):
            driver.compare("create", [pretending], 2)
        with pytest.raises(Failed, match="with a value in it"):
            exactness.bytes_changed(nginx.port, app.port, 3)


@pytest.mark.usefixtures("nightly")
def test_a_mixed_load_is_carried_without_an_error() -> None:
    requests, creates = mixed.run(quick=True)["rows"]

    assert requests["ours"] > 0
    assert requests["peer"] > 0
    assert creates["ratio"] is None or creates["ratio"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("nightly")
def test_one_process_and_two_workers_are_compared() -> None:
    kinds, stores = ("change", "mixed"), workers.QUICK.stores
    look = workers.QUICK._replace(people=20, seconds=0.1, kinds=kinds, stores=stores)
    rows = workers.run(look=look)["rows"]

    assert [row["case"] for row in rows] == [
        f"{kind}, {store}, 2 connections" for store in stores for kind in kinds
    ]
    assert all(row["ratio"] is None or row["ratio"] >= 0 for row in rows)
    assert any(row["ours"] > 0 for row in rows)


@pytest.mark.slow
def test_the_whole_program_is_measured_without_an_error(
    unavailable: Lacking,
) -> None:
    taken = redacting.run(quick=True)

    for note in taken["notes"]:
        if note.startswith("No figure of the peer"):
            unavailable.partly("a benchmark against a peer", note)
    # without nginx there is nothing to which latency could be added
    assert {row["measure"] for row in taken["rows"]} | {8} == {*(1, 3, 4, 5, 6, 8, 9, 14, 15, 16)}
    assert all(row["ours"] is None or row["ours"] >= 0 for row in taken["rows"])
    assert all(row["ours"] > 0 for row in taken["rows"] if row["unit"] in ("MB", "ms", "ms p50"))
    assert [row["ours"] for row in taken["rows"] if row["measure"] == 15] == [0]


def test_attachments_and_plain_copies_are_the_same_bytes() -> None:
    taken = attachments.run(quick=True)
    cases = ["upload of 0.3 MB", "upload, the peer without a form, of 0.3 MB", "download of 0.3 MB"]
    assert [row["case"] for row in taken["rows"]] == cases
    assert all(row["ratio"] > 0 for row in taken["rows"])


def test_the_vault_and_a_plain_table_answer_the_same_questions() -> None:
    taken = questions.run(quick=True)

    assert [row["case"] for row in taken["rows"]] == [case.title for case in questions.CASES]
    assert all(row["ours"] > 0 and row["measure"] == 20 for row in taken["rows"])


@pytest.mark.usefixtures("nightly")
def test_searches_of_the_vault_show_the_people_who_fit() -> None:
    taken = search.run(quick=True)

    assert [row["case"] for row in taken["rows"]] == [one.title for one in search.SEARCHES]
    assert all(row["ours"] > 0 and row["measure"] == 24 for row in taken["rows"])


@pytest.mark.parametrize(
    "case", [creates.CASES[0], creates.CASES[2], creates.OVER_HTTP[0]], ids=lambda case: case.title
)
def test_whole_records_are_written_and_the_peer_writes_the_same(
    tmp_path: Path, case: creates.Case
) -> None:
    made = creates.taken(tmp_path, case, 200)

    assert made.rate > 0
    assert sum(made.sizes) == len(made.inserts) == 200
    assert all(bool(insert.hashes) is case.parts for insert in made.inserts)
    assert (
        inserts.through_engine(tmp_path / "peer.db", made.inserts, made.sizes, made.layout)[0] > 0
    )


def test_the_engine_of_postgresql_and_its_bare_driver_write_the_same() -> None:
    taken = postgres.run(quick=True)
    assert [row["ratio"] > 0 for row in taken["rows"]] == [True] * 3


def test_the_price_of_knowing_who_calls_is_taken() -> None:
    taken = access.run(quick=True)

    (row,) = taken["rows"]
    assert (row["measure"], row["case"]) == (18, "200 clients under 50 policies")
    assert min(row["ours"], row["peer"]) > 0
    assert len(taken["notes"]) == 1


@pytest.mark.usefixtures("nightly")
def test_the_longest_turn_of_the_event_loop_is_taken() -> None:
    taken = turns.run(quick=True)

    cases = {
        measure: [row["case"] for row in taken["rows"] if row["measure"] == measure]
        for measure in (21, 26)
    }
    assert cases[21][:4] == [
        "a bulk of 50 created through the proxy",
        "a list of 50 objects restored",
        "a bulk of 200 created through the proxy",
        "a list of 600 objects restored",
    ]
    assert cases[26][:2] == [
        "a bulk of N created through the proxy, N = 200",
        "a list of N objects restored, N = 600",
    ]
    assert len(cases[26]) == 7
    assert all(row["ratio"] >= 0 for row in taken["rows"])


def test_work_that_is_quadratic_takes_more_time_for_each_object() -> None:
    sizes = {"a bulk of {} created": (100, 200, 900), "a list of {} read": (10, 1000)}
    taken = [
        turns.Taken(title.format(size), took=size**power)
        for power, (title, several) in enumerate(sizes.items(), 1)
        for size in several
    ]
    one, other = turns.growth([*taken, turns.Taken("an aggregate", took=9)])
    assert (one["case"], one["ratio"]) == ("a bulk of N created, N = 900", 1)
    assert (other["against"], other["ratio"]) == ("N = 10", 100)
    assert [standing(MEASURES[26], "", row["ratio"]) for row in (one, other)] == [
        "moonshot",
        "below must",
    ]


def test_a_changed_byte_is_counted_wherever_it_stands() -> None:
    pieces = [b'{ "a" : ', b'"Ann"', b', "n": 1.0}']

    assert exactness.changed(pieces, b'{ "a" : "a longer \\" one", "n": 1.0}') == (
        0,
        [b'"a longer \\" one"'],
    )
    assert exactness.changed(pieces, b'{ "a" : "t", "n": 1.5}')[0] == 1
    assert exactness.changed(pieces, b'{ "a" : "t", "n": 1.0} ')[0] == 1
    assert exactness.changed(pieces, b'{ "a" : "t", "n": 1.')[0] == 2
    assert exactness.changed(pieces, b'{ "a" : null, "n": 1.0}')[0] == len(pieces[2])


def test_a_figure_is_held_against_the_goals_in_its_own_direction() -> None:
    assert [standing(MEASURES[1], "", ratio) for ratio in (5.9, 6, 8, 13)] == [
        "below must",
        "must",
        "goal",
        "moonshot",
    ]
    assert [standing(MEASURES[5], "", ratio) for ratio in (1.7, 1.6, 1.4, 1.1)] == [
        "below must",
        "must",
        "goal",
        "moonshot",
    ]
    assert [standing(MEASURES[7], case, 9) for case in ("1 KB", "100 KB", "1 MB")] == [
        "moonshot",
        "must",
        "must",
    ]
    assert standing(MEASURES[15], "", 0) == "moonshot"
    assert standing(MEASURES[15], "", 1) == "below must"
    assert standing(MEASURES[1], "", None) == "not measured"


@pytest.mark.parametrize("arguments", [["99"], ["one"], ["--quick", "--write"]])
def test_a_choice_that_makes_no_sense_is_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)

    assert stop.value.code == 2


def test_the_page_tells_ratio_goals_and_machine() -> None:
    row = {
        "measure": 1,
        "case": "16 connections",
        "unit": "CPU us/request",
        "ours": 1000.0,
        "peer": 10_400.0,
        "against": "mitmproxy addon",
        "ratio": 10.4,
        "detail": "p50 1.00 / 9.00 ms",
    }

    page = report.page([row], ["A note."], {"Processor": "one"})

    assert "10 400 (mitmproxy addon)" in page
    assert "10.4 x" in page
    assert "6 / 8 / 13 x" in page
    assert "| goal " in page
    assert "A note." in page
    assert "- Processor: one" in page
    assert report.below_must([row]) == []
    assert report.below_must([{**row, "ratio": 4.0}]) == ["measure 1, 16 connections: 4 x"]
    again = {**row, "measure": 4, "detail": "p50 7.00 ms"}
    both = report.page([again], [], {}, before=page)
    assert (both.count("\n| 1 "), both.count("\n| 4 "), both.count("10.4 x")) == (1, 1, 2)
    assert "- 1, 16 connections: p50 1.00 / 9.00 ms\n- 4, 16 connections: p50 7.00 ms" in both
    assert " or before: measures 1." in both
    assert report.page([row], ["A note."], {"Processor": "one"}, before=both).count("10.4 x") == 2


def test_the_page_begins_with_what_it_means_in_sentences_and_a_chart() -> None:
    def row(measure: int, case: str, ours: float, peer: float | None, ratio: float) -> report.Row:
        more = {"unit": "", "against": "a peer", "detail": ""}
        return {
            "measure": measure, "case": case, "ours": ours, "peer": peer, "ratio": ratio, **more
        }  # fmt: skip

    rows = [
        row(1, "16 connections", 400, 1200, 3),
        row(8, "durable", 0.9, 0.2, 0.7),
        row(14, "under load", 120, None, 120),
        row(16, "16 connections", 180, 20, 9),
        row(19, "point read", 3000, 9000, 1 / 3),
    ]
    beginning = report.page(rows, [], {}).partition("| #")[0]
    assert "One core redacts some 2 500 new records of 1 KB a second" in beginning
    assert "waits 0.70 ms longer" in beginning
    assert "180 microseconds" in beginning
    assert "0.33 times" in beginning
    assert "120 MB" in beginning
    assert "xychart-beta" in beginning
    assert "bar [1200, 400, 180]" in beginning
    assert "xychart" not in report.page(rows[1:], [], {}), "no chart of half the figures"


async def _held(uri: str) -> tuple[list[Any], Any, list[Any]]:
    """All rows of a store of measure 13, their numbers, and its indexes."""
    store: Any = await open_store(uri)
    await store.ensure(LAYOUT)
    raw = store.raw()
    pages = [
        await raw.page(LAYOUT, part, None, 1_000)
        for name, part in TABLE_PARTS.items()
        if name != "links"
    ]
    counted = await store.count(LAYOUT.table)
    await store.close()
    if uri.startswith("sqlite"):
        with sqlite3.connect(uri.removeprefix("sqlite:///")) as file:
            made = file.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
        return pages, counted, made
    address = parse_address(uri)
    link = await asyncpg.connect(address.dsn)
    told = await link.fetch(
        "SELECT replace(indexdef, schemaname || '.', '') AS text FROM pg_indexes"
        " WHERE schemaname = $1 ORDER BY text",
        address.schema,
    )
    await link.close()
    return pages, counted, [one["text"] for one in told]


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_rows_of_measure_13_are_those_that_the_engine_writes(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list(large.rows(1, 300))
    monkeypatch.setattr(large, "rows", lambda first, count: iter(made[first - 1 :][:count]))
    if engine == "sqlite":
        filled, written = (f"sqlite:///{tmp_path}/{name}.db" for name in ("filled", "written"))
        large.fill_sqlite(tmp_path / "filled.db", len(made))
    else:
        filled, written = fresh_address(), fresh_address()
        await large.fill_postgres(filled, len(made))
    store = await open_store(written)
    await store.ensure(LAYOUT)
    await store.commit(LAYOUT.table, [Insert(row, (cast(bytes, row.cells[0]),)) for row in made])
    await store.close()
    assert await _held(filled) == await _held(written)


@pytest.mark.slow
@pytest.mark.usefixtures("nightly")
def test_the_ledger_takes_each_exchange_apart(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = main(["ledger", "--quick"]), capsys.readouterr()
    assert status == 0, said.err

    parts = said.out.split("\n## ")[1:]
    assert [part.partition("\n")[0] for part in parts] == [one.title for one in FEW]
    changed, passed = (
        {step.name for step in STEPS if f"| {step.name} |" in part} for part in parts
    )
    assert changed == {step.name for step in STEPS}
    assert "read the request" in passed
    assert passed.isdisjoint({"restore the answer", "lock the record, look it up, open it"})
