"""Somebody writes to the database without a key: open columns change, and nobody sees, changes or
destroys what is not his.

Row policies, keys and every equality are evaluated again on what is sealed. So each change of the
matrix below leaves the limited client with its own records alone, leaves other people's records as
they were, and raises an alarm.
"""

import json
import sqlite3
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.api import Interface, Said, interface

PEOPLE = "/api/models/person"

#: The texts of other people: none of them may be in an answer to a limited client.
OTHERS = ('"Blue', '"b1"', "secret of blue", "42424242")

SCHEMA: dict[str, Any] = {
    "fields": {
        "id": {"type": "primary_key"},
        "team": {"type": "string", "storage": "indexed"},
        "name": {"type": "string", "storage": "indexed_hashed", "partial_match": True},
        "boss": {"type": "string", "storage": "indexed_hashed"},
        "pay": {"type": "integer", "storage": "indexed"},
        "more": {"type": "json", "storage": "indexed_hashed"},
        "note": {"type": "string", "storage": "encrypted"},
    }
}
RECORDS = (
    {"id": "r1", "team": "red", "name": "Red One", "pay": 1, "more": {"tag": "mine"}},
    {"id": "r2", "team": "red", "name": "Red Two", "pay": 2, "boss": "r1", "more": {"tag": "mine"}},
    {
        "id": "b1", "team": "blue", "name": "Blue One", "pay": 42424242, "boss": "b0", "note": "secret of blue",
        "more": {"tag": "theirs"},
    },
)  # fmt: skip


class Database:
    """The database of the instance, in the hands of somebody who has no key."""

    def __init__(self, here: Interface, file: Path) -> None:
        self._records = here.catalog.records("person")
        self._file = file
        self.rids: dict[str, int] = {}

    async def look(self) -> None:
        """Learn which row is whose; an attacker tells that by clear columns, or tries."""
        rows = await self._records.collection.by_key([str(one["id"]) for one in RECORDS])
        self.rids = {key: row.rid for key, row in rows.items()}

    def write(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
        """Change rows ``r``, the token index ``t`` and past versions ``h``; a field is named as in
        the schema.
        """
        table = self._records.collection.table
        with sqlite3.connect(self._file, timeout=10) as connection:
            for text, values in statements:
                for name in ("team", "name", "boss", "pay"):
                    text = text.replace(f"<{name}>", f"x_{self._records.column(name)}")
                for kind in "rth":
                    text = text.replace(f"<{kind}>", f"{kind}_{table}")
                connection.execute(text, values)
        connection.close()

    def others_into_red(self) -> None:
        """The clear column that a row policy asks for."""
        self.write(("UPDATE <r> SET <team> = 'red' WHERE rid = ?", (self.rids["b1"],)))

    def others_into_tagged(self) -> None:
        """The entries of the token index that a row policy asks for."""
        self.write(
            (
                "INSERT OR IGNORE INTO <t> (hash, rid) SELECT hash, ? FROM <t> WHERE rid = ?",
                (self.rids["b1"], self.rids["r1"]),
            )
        )

    def others_under_own_key(self) -> None:
        """The rows of ``r1`` and of ``b1`` exchange keys."""
        one, other = self.rids["r1"], self.rids["b1"]
        self.write(
            (
                "CREATE TEMP TABLE keys AS SELECT rid, key FROM <r> WHERE rid IN (?, ?)",
                (one, other),
            ),
            ("UPDATE <r> SET key = NULL WHERE rid IN (?, ?)", (one, other)),
            (
                "UPDATE <r> SET key = (SELECT key FROM keys WHERE rid = ?) WHERE rid = ?",
                (other, one),
            ),
            (
                "UPDATE <r> SET key = (SELECT key FROM keys WHERE rid = ?) WHERE rid = ?",
                (one, other),
            ),
        )

    def others_hang_on_own(self) -> None:
        """The hash of the field that deletes follow, and searches and updates find by."""
        self.write(
            (
                (
                    "UPDATE <r> SET <boss> = (SELECT <boss> FROM <r> WHERE rid = ?), <team> = 'red' "
                    "WHERE rid = ?"
                ),
                (self.rids["r2"], self.rids["b1"]),
            )
        )

    def others_for_ever(self) -> None:
        """When a record ends."""
        self.write(("UPDATE <r> SET expires_at = 9223372036854775 WHERE rid <> 1", ()))

    def others_older(self) -> None:
        """When a record was made and changed."""
        self.write(("UPDATE <r> SET created_at = created_at - 1, updated_at = 1", ()))

    def others_waiting(self) -> None:
        """The state of records: as if no application had taken them yet."""
        self.write(("UPDATE <r> SET state = 1, key = NULL, updated_at = 1", ()))

    def others_exchanged(self) -> None:
        """The rows of ``r1`` and of ``b1`` exchange their numbers, under which past versions and
        files stand.
        """
        one, other = self.rids["r1"], self.rids["b1"]
        renumber = "UPDATE <r> SET rid = ? WHERE rid = ?"
        self.write((renumber, (-1, one)), (renumber, (one, other)), (renumber, (other, -1)))

    def others_paid(self) -> None:
        """A column that no policy asks for, of everybody."""
        self.write(("UPDATE <r> SET <pay> = <pay> + 1", ()))

    def others_history_is_own(self) -> None:
        """The past versions of ``b1`` stand under the key of ``r1``."""
        self.write(
            (
                "UPDATE <h> SET key = (SELECT key FROM <r> WHERE rid = ?) WHERE rid = ?",
                (self.rids["r1"], self.rids["b1"]),
            )
        )


TAMPERINGS = {
    "others_into_red": "under:red", "others_into_tagged": "under:tagged",
    "others_under_own_key": "under:red", "others_hang_on_own": "under:red",
    "others_history_is_own": "under:red",
}  # fmt: skip


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path, "sqlite") as made:
        await made.declare("person", SCHEMA)
        everything = ("read", "write", "delete")
        await made.policy("red", "person", *everything, rows={"filter": {"team": "red"}})
        await made.policy(
            "tagged", "person", *everything, rows={"filter": {"more": {"$.tag": "mine"}}}
        )
        for one in RECORDS:
            assert (await made.client("POST", PEOPLE, json=one)).status == 201
        form = aiohttp.FormData()
        form.add_field("file", b"secret of blue", filename="b1")
        upload = await made.client(
            "POST", f"{PEOPLE}/b1/files", data=form, headers={"x-filename": "Blue.txt"}
        )
        assert upload.status == 201
        change = [{"id": "b1", "note": "secret of blue, second"}]
        assert (await made.client("POST", f"{PEOPLE}/batch/update", json=change)).status == 201
        yield made


def reads() -> Iterable[tuple[str, str, Any]]:
    """Requests that show records."""
    for filter_ in (
        {},
        {"team": "red"},
        {"boss": "r1"},
        {"name": {"$like": "one"}},
        {"id": "b1"},
        {"id": ["r1", "b1"]},
    ):
        for where in (f"{PEOPLE}/find", "/api/find", "/sf/find", "/sf/find-ids"):
            more = {} if where.startswith(PEOPLE) else {"schema": "person"}
            yield "POST", where, {"filter": filter_, **more}
    metrics = {"pay": {"func": "sum", "key": "pay"}, "top": {"func": "max", "key": "pay"}}
    for keys in ([], ["team"], ["name"], ["boss"], ["id"]):
        grouped = {"group_by": {"keys": keys}} if keys else {}
        yield "POST", f"{PEOPLE}/aggregate", {"metrics": metrics, **grouped}
    yield "GET", f"{PEOPLE}/export", None
    for key in ("r1", "r2", "b1"):
        yield "GET", f"{PEOPLE}/{key}/history", None


def writes() -> Iterable[tuple[str, str, Any]]:
    """Requests that change or end records; whatever they do, they do it to records of the client."""
    update = f"{PEOPLE}/batch/update"
    yield "POST", update, [{"id": "b1", "note": "mine now"}]
    yield "POST", update, {"records": [{"boss": "r1", "note": "mine now"}], "search_key": "boss"}
    yield "POST", update, {"records": [{"team": "red", "note": "mine now"}], "search_key": "team"}
    yield "POST", f"{PEOPLE}/clone", {"filter": {"id": "b1"}, "update_with": {"id": "copy"}}
    yield "POST", f"{PEOPLE}/b1/migrate/r2", None
    yield "POST", f"{PEOPLE}/b1/files/move/r2", {"attachment_ids": []}
    yield "DELETE", f"{PEOPLE}/b1", None
    yield "POST", f"{PEOPLE}/batch/delete", {"filter": {"id": ["b1"]}}
    yield "DELETE", f"{PEOPLE}/r1?cascadeBy=boss", None


async def ask(here: Interface, as_: str, method: str, path: str, content: Any) -> Said:
    return await here.client(method, path, as_, **({} if content is None else {"json": content}))


def alarms(here: Interface) -> list[dict[str, Any]]:
    return [line for line in here.audit.lines if line["event"] == "alarm"]


@pytest.mark.parametrize("tampering", TAMPERINGS)
async def test_no_read_shows_what_columns_were_changed_to_show(
    here: Interface, tmp_path: Path, tampering: str
):
    database = Database(here, tmp_path / "vault.db")
    await database.look()
    getattr(database, tampering)()
    shown: list[Any] = []
    for method, path, content in reads():
        said = await ask(here, TAMPERINGS[tampering], method, path, content)
        text = json.dumps(said.json)
        shown += [(path, content, text) for other in OTHERS if other in text]
    assert shown == []
    assert alarms(here) != []


@pytest.mark.parametrize("tampering", TAMPERINGS)
async def test_no_write_changes_or_ends_what_columns_were_changed_to_offer(
    here: Interface, tmp_path: Path, tampering: str
):
    database = Database(here, tmp_path / "vault.db")
    await database.look()
    store, collection = here.store, here.catalog.records("person").collection
    before = (await store.rows(collection.table, [database.rids["b1"]]))[database.rids["b1"]]
    files = await store.files(collection.table, [before.rid])
    getattr(database, tampering)()
    for method, path, content in writes():
        said = await ask(here, TAMPERINGS[tampering], method, path, content)
        assert all(other not in json.dumps(said.json) for other in OTHERS), (
            path,
            content,
            said.json,
        )
        now = (await store.rows(collection.table, [before.rid])).get(before.rid)
        assert now is not None, (path, content)
        assert (now.body, now.version) == (before.body, before.version), (path, content)
        assert await store.files(collection.table, [before.rid]) == files, (path, content)
    if tampering != "others_history_is_own":
        assert alarms(here) != []


@pytest.mark.parametrize("tampering", ["others_into_red", "others_under_own_key"])
async def test_no_file_is_shown_by_a_key_that_was_exchanged(
    here: Interface, tmp_path: Path, tampering: str
):
    database = Database(here, tmp_path / "vault.db")
    await database.look()
    found = await here.client("POST", f"{PEOPLE}/find", json={"filter": {"id": "b1"}})
    file_id = found.json["data"][0]["attachments"][0]["file_id"]
    getattr(database, tampering)()
    for key in ("r1", "b1"):
        assert (
            await here.client("GET", f"{PEOPLE}/{key}/files/{file_id}", "under:red")
        ).status == 404
        assert (
            await here.client("DELETE", f"{PEOPLE}/{key}/files/{file_id}", "under:red")
        ).status == 404


async def test_who_may_see_everything_gets_no_record_under_the_key_of_another_one(
    here: Interface, tmp_path: Path
):
    database = Database(here, tmp_path / "vault.db")
    await database.look()
    database.others_under_own_key()
    for method, path, content in (
        ("POST", f"{PEOPLE}/find", {"filter": {"id": "r1"}}),
        ("POST", f"{PEOPLE}/find", {"filter": {"id": ["r1"], "team": "blue"}}),
        ("GET", f"{PEOPLE}/r1/history", None),
        ("POST", f"{PEOPLE}/batch/update", [{"id": "r1", "note": "x"}]),
        ("DELETE", f"{PEOPLE}/r1", None),
    ):
        said = await ask(here, "writer", method, path, content)
        assert '"Blue' not in json.dumps(said.json), (path, said.json)
    rows = await here.store.rows(
        here.catalog.records("person").collection.table, list(database.rids.values())
    )
    assert {row.version for row in rows.values()} == {1, 2}
    assert len(rows) == 3


async def test_an_alarm_names_the_schema_and_the_operation_and_no_value(
    here: Interface, tmp_path: Path
):
    database = Database(here, tmp_path / "vault.db")
    await database.look()
    database.others_into_red()
    await here.client("POST", f"{PEOPLE}/find", "under:red", json={})
    (alarm,) = alarms(here)
    assert (alarm["schema"], alarm["operation"], alarm["by"], alarm["count"]) == (
        "person",
        "find_records",
        "under:red",
        1,
    )
    assert "rows of the store have columns" in alarm["reason"]


async def found(here: Interface, as_: str = "writer") -> Said:
    return await here.client("POST", f"{PEOPLE}/find", as_, json={})


@pytest.mark.parametrize("tampering", ["others_for_ever", "others_older", "others_paid"])
async def test_a_column_that_no_filter_asks_for_is_noticed_as_its_record_is_opened(
    here: Interface, tmp_path: Path, tampering: str
):
    database = Database(here, tmp_path / "vault.db")
    assert len((await found(here)).json["data"]) == 3
    getattr(database, tampering)()
    assert (await found(here)).json["data"] == []
    assert alarms(here) != []
    await database.look()
    for method, path, content in writes():
        await ask(here, "writer", method, path, content)
    rows = await here.store.rows(
        here.catalog.records("person").collection.table, list(database.rids.values())
    )
    assert sorted(row.version for row in rows.values()) == [1, 1, 2]


async def test_a_state_that_was_changed_ends_no_record(here: Interface, tmp_path: Path):
    database = Database(here, tmp_path / "vault.db")
    database.others_waiting()
    here.clock.advance(30 * 86_400_000)
    await here.vault.maintain()
    collection = here.catalog.records("person").collection
    assert len(await here.store.scan(collection.table, 0, 10)) == 3


async def test_an_end_that_was_brought_forward_ends_no_record(here: Interface, tmp_path: Path):
    database = Database(here, tmp_path / "vault.db")
    database.write(("UPDATE <r> SET expires_at = 1", ()))
    await here.vault.maintain()
    collection = here.catalog.records("person").collection
    assert len(await here.store.scan(collection.table, 0, 10)) == 3


async def stored(here: Interface) -> tuple[int, int, int]:
    """How many rows, past versions and files there are."""
    store, table = here.store, here.catalog.records("person").collection.table
    rows = await store.scan(table, 0, 10)
    past = await store.past_scan(table, (0, 0), 10)
    return len(rows), len(past), len(await store.file_scan(table, b"", 10))


@pytest.mark.parametrize("who", ["writer", "under:red"])
async def test_an_end_that_was_brought_forward_gives_the_key_to_nobody(
    here: Interface, tmp_path: Path, who: str
):
    Database(here, tmp_path / "vault.db").write(("UPDATE <r> SET expires_at = 1", ()))
    before = await stored(here)
    thief = {"id": "b1", "team": "red", "note": "mine now"}
    for method, path, content in (
        ("POST", PEOPLE, thief),
        ("POST", f"{PEOPLE}/batch", [thief]),
        ("PUT", f"{PEOPLE}/b1", thief),
        ("GET", f"{PEOPLE}/b1/history", None),
    ):
        answer = await ask(here, who, method, path, content)
        assert answer.status in (404, 422), (method, path, answer.json)
        assert await stored(here) == before, (method, path)
    assert alarms(here) != []


async def test_a_number_that_was_exchanged_ends_nothing_of_the_other_record(
    here: Interface, tmp_path: Path
):
    database = Database(here, tmp_path / "vault.db")
    await database.look()
    before = await stored(here)
    database.others_exchanged()
    refused = await ask(here, "writer", "DELETE", f"{PEOPLE}/r1", None)
    # the contract of a delete lists no 422
    assert (refused.status, refused.json["code"]) == (500, "cannot_open")
    assert (await ask(here, "under:red", "DELETE", f"{PEOPLE}/r1", None)).status == 404
    database.write(("UPDATE <r> SET expires_at = 1", ()))
    await here.vault.maintain()
    assert (await stored(here))[1:] == before[1:]
    assert alarms(here) != []


async def test_a_state_that_was_changed_hides_no_record_silently(here: Interface, tmp_path: Path):
    Database(here, tmp_path / "vault.db").write(("UPDATE <r> SET state = 1", ()))
    before = await stored(here)
    for method, path, content in (
        ("GET", f"{PEOPLE}/b1", None),
        ("POST", PEOPLE, {"id": "b1", "team": "red"}),
    ):
        answer = await ask(here, "writer", method, path, content)
        assert (answer.status, answer.json["code"]) == (422, "cannot_open"), path
    assert await stored(here) == before
    assert len(alarms(here)) == 2


async def test_a_version_without_its_columns_put_back_is_no_record(here: Interface, tmp_path: Path):
    """The note of an end, which was never a row, or what an earlier program has sealed."""
    collection = here.catalog.records("person").collection
    (row, *_) = await here.store.scan(collection.table, 0, 1)
    bare = collection.sealer.past_body(row, collection.sealer.open(row), row.version)
    Database(here, tmp_path / "vault.db").write(
        ("UPDATE <r> SET body = ? WHERE rid = ?", (bare, row.rid))
    )
    assert len((await found(here)).json["data"]) == 2
    assert alarms(here) != []
