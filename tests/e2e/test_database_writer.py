"""Somebody writes to the database of a live instance without a key, at random: edits, exchanges,
deletes and puts back columns and rows. Clients under a policy see and destroy nothing beyond their
rights, and whatever differs from what was committed shows.

``EXPLORE`` multiplies the trials.
"""

import contextlib
import json
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.errors import VaultError
from proxy.storage.rows import Row
from tests.e2e.test_tampered_columns import OTHERS, PEOPLE, RECORDS, SCHEMA, Database, reads, writes
from tests.support.effort import EXPLORE, rounds
from tests.support.world import World, world

#: The tables of a schema that are written to: rows, tokens, past versions, files.
KINDS = "rthf"
TRIALS = 150


class Writer:
    """Whoever writes to the database; remembers every row that it has ever seen."""

    def __init__(self, file: Path, table: str, chance: random.Random) -> None:
        self._file = file
        self._chance = chance
        self._tables = [f"{kind}_{table}" for kind in KINDS]
        self._seen: dict[str, list[tuple[Any, ...]]] = {name: [] for name in self._tables}
        self._backup: dict[str, list[tuple[Any, ...]]] = {}
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

    def restore(self) -> None:
        """Undo everything since ``look``."""
        with self._open() as connection:
            for name, rows in self._backup.items():
                connection.execute(f"DELETE FROM {name}")
                marks = ", ".join("?" * len(self._columns[name]))
                connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)

    def tamper(self) -> str:
        """Do one to three things; what they were."""
        done: list[str] = []
        for _ in range(self._chance.choice((1, 1, 2, 3))):
            act = self._chance.choice((self._edit, self._edit, self._take, self._remove, self._put))
            with contextlib.suppress(sqlite3.IntegrityError), self._open() as connection:
                done.append(act(connection, self._chance.choice(self._tables)))
        return "; ".join(done)

    def _any_row(self, connection: sqlite3.Connection, name: str) -> int | None:
        rows = connection.execute(f"SELECT * FROM {name}").fetchall()
        return self._chance.randrange(len(rows)) if rows else None

    def _edit(self, connection: sqlite3.Connection, name: str) -> str:
        """Another value of the same kind in one column of one row."""
        column = self._chance.choice(self._columns[name])
        rows = connection.execute(f"SELECT * FROM {name}").fetchall()
        if not rows:
            return ""
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
        rows = connection.execute(f"SELECT * FROM {name}").fetchall()
        if not rows:
            return ""
        row, other = self._chance.choice(rows), self._chance.choice(self._seen[name])
        count = self._chance.randint(1, len(row))
        columns = self._chance.sample(self._columns[name], count)
        values = dict(zip(self._columns[name], other, strict=True))
        self._set(connection, name, row, {column: values[column] for column in columns})
        return f"take {name} {columns}"

    def _remove(self, connection: sqlite3.Connection, name: str) -> str:
        rows = connection.execute(f"SELECT * FROM {name}").fetchall()
        if rows:
            self._where(connection, f"DELETE FROM {name}", name, self._chance.choice(rows))
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


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path, "sqlite") as made:
        await made.declare("person", SCHEMA)
        actions = ("read", "write", "delete")
        await made.policy("red", "person", *actions, rows={"filter": {"team": "red"}})
        yield made


async def filled(here: World, tmp_path: Path, chance: random.Random) -> tuple[Writer, Database]:
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


def records_of(here: World, rows: list[Row]) -> dict[int, Any]:
    """The records of those rows that open."""
    opened: dict[int, Any] = {}
    for row in rows:
        with contextlib.suppress(VaultError):
            record = here.catalog.records("person").open(row)
            opened[row.rid] = (record, row.cells)
    return opened


async def test_whatever_differs_from_what_was_committed_shows_and_nobody_sees_more(
    here: World, tmp_path: Path
):
    chance = random.Random(None if EXPLORE else 1)
    writer, _ = await filled(here, tmp_path, chance)
    collection = here.catalog.records("person").collection
    truth = records_of(here, await here.store.scan(collection.table, 0, 100))
    assert len(truth) == 4
    questions = list(reads())
    for _ in range(rounds(TRIALS)):
        done = writer.tamper()
        rows = await here.store.scan(collection.table, 0, 100)
        if records_of(here, rows) != truth and len(records_of(here, rows)) == len(rows):
            assert await here.vault.altered() == ["person"], done
        for method, path, content in chance.sample(questions, 2):
            said = await here.client(
                method, path, "under:red", **({} if content is None else {"json": content})
            )
            text = json.dumps(said.json)
            assert not any(other in text for other in OTHERS), (done, path, content, text)
        writer.restore()
    assert await here.vault.altered() == []


async def test_whatever_a_limited_client_does_ends_and_changes_nothing_of_others(
    here: World, tmp_path: Path
):
    chance = random.Random(None if EXPLORE else 1)
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
