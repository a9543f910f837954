"""Somebody writes to the database of a live instance without a key, at random: edits, exchanges,
deletes and puts back columns and rows. Clients under a policy see and destroy nothing beyond their
rights, and whatever differs from what was committed shows.

``EXPLORE`` multiplies the trials.
"""

import contextlib
import json
import random
import sqlite3
from collections.abc import AsyncIterator, Container
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from proxy.errors import Code, VaultError
from proxy.storage import open_store
from proxy.storage.rows import Row
from proxy.vault.environments import accept_notes
from proxy.vault.expiry import delete_expired, reap
from proxy.vault.proxied.deletes import deleted, reconcile_gone
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import (
    doubt,
    promote,
    stage_creates,
    stage_deletes,
    stage_updates,
)
from tests.e2e.test_tampered_columns import OTHERS, PEOPLE, RECORDS, SCHEMA, Database, reads, writes
from tests.support.api import Interface, interface
from tests.support.effort import EXPLORE, rounds
from tests.support.vaults import Bench, draft, make_bench, token

#: The tables of a schema that are written to: rows, staged changes, tokens, past versions, files,
#: kept answers and what these show.
KINDS = "rsthfil"
#: Of each test; ``make explore`` tries ten thousand in all.
TRIALS = 60
#: Events that raise an alarm.
ALARMS = ("tampered", "unopenable", "unopenable_file", "altered")


class Writer:
    """Whoever writes to the database; remembers every row that it has ever seen."""

    def __init__(self, file: Path, table: str, chance: random.Random) -> None:
        self._file = file
        self._chance = chance
        self._tables = [*(f"{kind}_{table}" for kind in KINDS), "notes"]
        self._seen: dict[str, list[tuple[Any, ...]]] = {name: [] for name in self._tables}
        self._backup: dict[str, list[tuple[Any, ...]]] = {}
        self._touched: set[str] = set()
        with self._open() as connection:
            self._columns = {
                name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
                for name in self._tables
            }

    @contextlib.contextmanager
    def _open(self) -> Any:
        connection = sqlite3.connect(self._file, timeout=10)
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def look(self) -> None:
        """Remember the rows as they are, and go back to them with ``restore``."""
        with self._open() as connection:
            for name in self._tables:
                self._backup[name] = connection.execute(f"SELECT * FROM {name}").fetchall()
                self._seen[name] += [
                    row for row in self._backup[name] if row not in self._seen[name]
                ]

    @property
    def _used(self) -> list[str]:
        """The tables that have rows; those of records most often."""
        rows = self._tables[0]
        return [rows] * 4 + [name for name in self._tables[1:] if self._backup[name]]

    def restore(self) -> None:
        """Undo everything since ``look``."""
        with self._open() as connection:
            for name, rows in self._backup.items():
                if name == "notes" and name not in self._touched:
                    continue  # the instance has written some of its own
                connection.execute(f"DELETE FROM {name}")
                marks = ", ".join("?" * len(self._columns[name]))
                connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)

    def tamper(self) -> str:
        """Do one to three things; what they were."""
        done: list[str] = []
        acts = (self._edit, self._edit, self._take, self._exchange, self._remove, self._put)
        count = self._chance.choice((1, 1, 2, 3))
        self._touched = set()
        while len(done) < count:
            act, table = self._chance.choice(acts), self._chance.choice(self._used)
            with contextlib.suppress(sqlite3.IntegrityError), self._open() as connection:
                if table == "notes" and table not in self._touched:
                    self._backup[table] = connection.execute("SELECT * FROM notes").fetchall()
                self._touched.add(table)
                done.append(act(connection, table))
        return "; ".join(done)

    def _edit(self, connection: sqlite3.Connection, name: str) -> str:
        """Another value of the same kind in one column of one row."""
        column = self._chance.choice(self._columns[name])
        rows = self._rows(connection, name)
        place = self._columns[name].index(column)
        row = self._chance.choice(rows)
        value = row[place]
        if isinstance(value, int):
            value = self._chance.choice((0, 1, value + 1, max(value - 1, 0), 9_223_372_036_854))
        elif isinstance(value, bytes):
            value = self._chance.choice((value[:-1] + b"\x00", bytes(len(value)), None))
        else:
            value = self._chance.choice(("red", "blue", None))
        self._set(connection, name, row, {column: value})
        return f"edit {name}.{column}"

    def _take(self, connection: sqlite3.Connection, name: str) -> str:
        """Some columns of one row as another one has them, or as a row once was."""
        row, other = (
            self._chance.choice(self._rows(connection, name)),
            self._chance.choice(self._seen[name]),
        )
        count = self._chance.randint(1, len(row))
        columns = self._chance.sample(self._columns[name], count)
        values = dict(zip(self._columns[name], other, strict=True))
        self._set(connection, name, row, {column: values[column] for column in columns})
        return f"take {name} {columns}"

    def _exchange(self, connection: sqlite3.Connection, name: str) -> str:
        """Some columns of two rows change places."""
        rows = self._rows(connection, name)
        one, other = self._chance.choice(rows), self._chance.choice(rows)
        columns = self._chance.sample(self._columns[name], self._chance.randint(1, 2))
        places = [self._columns[name].index(column) for column in columns]
        swapped = [list(one), list(other)]
        for place in places:
            swapped[0][place], swapped[1][place] = other[place], one[place]
        marks = ", ".join("?" * len(one))
        for row in (one, other):
            self._where(connection, f"DELETE FROM {name}", name, row)
        connection.executemany(
            f"INSERT INTO {name} VALUES ({marks})", swapped[: 1 + (one != other)]
        )
        return f"exchange {name} {columns}"

    def _rows(self, connection: sqlite3.Connection, name: str) -> list[tuple[Any, ...]]:
        """The rows of a table; those of one that was emptied are back."""
        return connection.execute(f"SELECT * FROM {name}").fetchall() or self._backup[name]

    def _remove(self, connection: sqlite3.Connection, name: str) -> str:
        row = self._chance.choice(self._rows(connection, name))
        self._where(connection, f"DELETE FROM {name}", name, row)
        return f"remove {name}"

    def _put(self, connection: sqlite3.Connection, name: str) -> str:
        """A row as it once was, in place of whatever stands against it."""
        row = self._chance.choice(self._seen[name])
        marks = ", ".join("?" * len(row))
        connection.execute(f"INSERT OR REPLACE INTO {name} VALUES ({marks})", row)
        return f"put {name}"

    def _set(
        self, connection: sqlite3.Connection, name: str, row: tuple[Any, ...], new: dict[str, Any]
    ) -> None:
        text = ", ".join(f"{column} = ?" for column in new)
        self._where(connection, f"UPDATE {name} SET {text}", name, row, list(new.values()))

    def _where(
        self,
        connection: sqlite3.Connection,
        text: str,
        name: str,
        row: tuple[Any, ...],
        values: list[Any] | None = None,
    ) -> None:
        same = " AND ".join(f"{column} IS ?" for column in self._columns[name])
        connection.execute(f"{text} WHERE {same}", [*(values or []), *row])


def drawn() -> random.Random:
    """What the writer draws from: the same in every run, but where more is tried."""
    seed = random.SystemRandom().randrange(2**32) if EXPLORE else 1
    print("seed", seed)  # beside a failure
    return random.Random(seed)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path, "sqlite") as made:
        await made.declare("person", SCHEMA)
        actions = ("read", "write", "delete")
        await made.policy("red", "person", *actions, rows={"filter": {"team": "red"}})
        await accept_notes(made.store, made.vault.keyset)
        yield made


async def filled(here: Interface, tmp_path: Path, chance: random.Random) -> tuple[Writer, Database]:
    """An instance whose records have had several versions, some of them in another team, all of
    which the writer of the database has seen.
    """
    database = Database(here, tmp_path / "vault.db")
    for one in (*RECORDS, {"id": "m1", "team": "red", "name": "Moved"}):
        assert (await here.client("POST", PEOPLE, json=one)).status == 201
    for key in ("r1", "b1"):
        form = aiohttp.FormData()
        form.add_field("file", b"secret of blue" if key == "b1" else b"red", filename=key)
        upload = await here.client(
            "POST", f"{PEOPLE}/{key}/files", data=form, headers={"x-filename": f"{key}.txt"}
        )
        assert upload.status == 201
    table = here.catalog.records("person").collection.table
    writer = Writer(tmp_path / "vault.db", table, chance)
    writer.look()
    once = {"Idempotency-Key": "once"}
    made = {"id": "r3", "team": "red", "name": "Red Three"}
    assert (await here.client("POST", PEOPLE, json=made, headers=once)).status == 201
    for change in (
        {"id": "b1", "note": "secret of blue, second", "pay": 4242},
        {"id": "r1", "pay": 7},
        {"id": "m1", "team": "blue", "note": "secret of blue, third"},
        {"id": "r2", "boss": None},
    ):
        done = await here.client("POST", f"{PEOPLE}/batch/update", json=[change])
        assert done.status == 201
        writer.look()
    await database.look()
    return writer, database


def records_of(here: Interface, rows: list[Row]) -> dict[int, Any]:
    """The records of those rows that open."""
    opened: dict[int, Any] = {}
    for row in rows:
        with contextlib.suppress(VaultError):
            record = here.catalog.records("person").open(row)
            opened[row.rid] = (record, row.cells)
    return opened


async def altered(here: Interface) -> list[str]:
    """The schemas with rows that were put back, removed or added; all where a note says so."""
    try:
        return await here.vault.altered()
    except VaultError as error:
        return ["person"] if error.code is Code.CANNOT_OPEN else []


async def test_whatever_differs_from_what_was_committed_shows_and_nobody_sees_more(
    here: Interface, tmp_path: Path
):
    chance = drawn()
    writer, _ = await filled(here, tmp_path, chance)
    collection = here.catalog.records("person").collection
    truth = records_of(here, await here.store.scan(collection.table, 0, 100))
    assert len(truth) == 5
    questions = list(reads())
    for _ in range(rounds(TRIALS)):
        done = writer.tamper()
        rows = await here.store.scan(collection.table, 0, 100)
        if records_of(here, rows) != truth and len(records_of(here, rows)) == len(rows):
            assert await altered(here) == ["person"], done
        for method, path, content in chance.sample(questions, 2):
            said = await here.client(
                method, path, "under:red", **({} if content is None else {"json": content})
            )
            text = json.dumps(said.json)
            assert not any(other in text for other in OTHERS), (done, path, content, text)
        writer.restore()
    assert await altered(here) == []


async def test_whatever_a_limited_client_does_ends_and_changes_nothing_of_others(
    here: Interface, tmp_path: Path
):
    chance = drawn()
    writer, database = await filled(here, tmp_path, chance)
    table = here.catalog.records("person").collection.table
    blue = database.rids["b1"]
    requests = list(writes())
    for _ in range(rounds(TRIALS)):
        done = writer.tamper()
        before = {row.rid: row for row in await here.store.scan(table, 0, 100)}
        method, path, content = chance.choice(requests)
        await here.client(
            method, path, "under:red", **({} if content is None else {"json": content})
        )
        after = {row.rid: row for row in await here.store.scan(table, 0, 100)}
        if blue in before:
            assert blue in after, (done, method, path, content)
            assert after[blue].body == before[blue].body, (done, method, path, content)
        writer.restore()


class Sealed(NamedTuple):
    """What the database holds of one record, as it was sealed: it is somebody's."""

    row: frozenset[bytes]
    past: frozenset[bytes]
    files: frozenset[bytes]


async def sealed(here: Interface, rids: Container[int]) -> Sealed:
    """Everything that stands under these numbers."""
    store, table = here.store, here.catalog.records("person").collection.table
    rows, past = await store.scan(table, 0, 100), await store.past_scan(table, (0, 0), 100)
    files = await store.file_scan(table, b"", 100)
    return Sealed(
        frozenset(row.body for row in rows if row.rid in rids),
        frozenset(one.body for one in past if one.rid in rids),
        frozenset(file.sealed for file in files if file.rid in rids),
    )


def alarmed(here: Interface) -> int:
    """Alarms so far, be they of requests or found in the background."""
    lines = [line for line in here.audit.lines if line["event"] == "alarm"]
    return len(lines) + sum(here.events[name] for name in ALARMS)


#: What a client that may do everything does with records of its own: it is not to end others.
HONEST: tuple[tuple[str, str, Any], ...] = (
    ("DELETE", f"{PEOPLE}/r1", None),
    ("DELETE", f"{PEOPLE}/r2?cascadeBy=boss", None),
    ("POST", f"{PEOPLE}/batch/delete", {"filter": {"id": ["r1", "r2"]}}),
    ("PUT", f"{PEOPLE}/r1", {"id": "r1", "team": "red", "name": "Red One"}),
    ("PATCH", f"{PEOPLE}/r2", {"note": "changed"}),
    ("POST", PEOPLE, {"id": "b1", "team": "red", "note": "mine now"}),
    ("POST", PEOPLE, {"id": "n1", "team": "red", "note": "mine now"}),
    ("GET", f"{PEOPLE}/r1/history", None),
    ("GET", f"{PEOPLE}/b1/history", None),
    ("POST", f"{PEOPLE}/r1/migrate/r2", None),
)


async def test_nothing_of_others_ends_without_an_alarm_whoever_works_and_whatever_runs(
    here: Interface, tmp_path: Path
):
    """Requests of a client that may everything, and the upkeep of the vault, a month later too."""
    chance = drawn()
    writer, database = await filled(here, tmp_path, chance)
    others = {database.rids["b1"]}
    truth = await sealed(here, others)
    for number in range(rounds(TRIALS)):
        done = writer.tamper()
        rids = range(2**63) if number % 2 else others
        before, alarms = await sealed(here, rids), alarmed(here)
        if number % 4 == 0:
            did: Any = "upkeep"
            with contextlib.suppress(VaultError):  # of a note, which is told by itself
                await here.vault.maintain()
        else:
            did = method, path, content = chance.choice(HONEST)
            more = {} if content is None else {"json": content}
            await here.client(method, path, **more)
        after = await sealed(here, rids)
        for part, kept, is_, was in zip(Sealed._fields, truth, after, before, strict=True):
            # how long a past version stays, its column says alone (threat model)
            if not kept & was <= is_ and (part, did) != ("past", "upkeep"):
                assert alarmed(here) > alarms, (done, did)
        writer.restore()


async def collected(bench: Bench) -> dict[str, tuple[tuple[str, str], ...]]:
    """Two people whom the proxy has collected, one of them with an update in doubt; what the
    application shows of each.
    """
    shown: dict[str, tuple[tuple[str, str], ...]] = {}
    for key, name in (("1", "Red"), ("2", "Blue")):
        fields = draft(name=name, email=f"{name}@example.com")
        (made,) = await stage_creates(bench.people, [fields], [None])
        await bind(bench.people, [(made, key)])
        shown[key] = tuple((field, token(made, field)) for field in ("name", "email"))
    (update,) = await stage_updates(bench.people, [("2", draft(name="Blue the Second"))])
    await doubt(bench.people, [update], answered=False)
    return shown


async def worked(bench: Bench, key: str, act: str) -> None:
    """What the application does with the record of that key, or the vault by itself."""
    people = bench.people
    if act == "update":
        held = await stage_updates(people, [(key, draft(name="Red again"))])
        await promote(people, held[0], {"name": tuple(one.token for one in held[0].tokens["name"])})
    elif act == "delete":
        await deleted(people, await stage_deletes(people, [key]))
    elif act == "gone":
        await reconcile_gone(people, [key], bench.clock())
    else:
        await delete_expired(people)
        await reap(people, 0)


async def test_of_what_the_proxy_collected_nobody_sees_or_ends_what_is_another_record(
    tmp_path: Path,
):
    chance = drawn()
    store = await open_store(f"sqlite:///{tmp_path / 'vault.db'}")
    bench = await make_bench(store)
    shown = await collected(bench)
    writer = Writer(tmp_path / "vault.db", bench.people.table, chance)
    writer.look()
    rows = {row.rid: row for row in await store.scan(bench.people.table, 0, 10)}
    (other,) = (await bench.people.by_key(["2"])).values()
    whose = bench.people.sealer.open_with_key(other)

    def is_truth(row: Row) -> bool:
        """Whether it is the other record, sealed anew with a higher number for its next value."""
        with contextlib.suppress(VaultError):
            content, key = bench.people.sealer.open_with_key(row)
            same = other._replace(body=row.body, staged=row.staged) == row
            return same and (content.values, key) == (whose[0].values, whose[1])
        return False

    for _ in range(rounds(TRIALS)):
        done = writer.tamper()
        bench.clock.advance(1)
        objects = [AnswerObject(chance.choice(("1", None)), shown["1"])]
        with contextlib.suppress(VaultError):
            revealed = await reveal_objects(bench.people, objects)
            texts = [value.text for value in revealed.values[0] if value is not None]
            assert not any("Blue" in text for text in texts), (done, texts)
        before = await store.rows(bench.people.table, list(rows))
        alarms, act = bench.events.copy(), chance.choice(("update", "delete", "gone", "upkeep"))
        with contextlib.suppress(VaultError):
            await worked(bench, "1", act)
        after = await store.rows(bench.people.table, list(rows))
        ended = {row.body for row in before.values()} - {row.body for row in after.values()}
        if other.body in ended and not any(map(is_truth, after.values())):
            assert any(bench.events[name] > alarms[name] for name in ALARMS), (done, act)
        writer.restore()
    await store.close()
