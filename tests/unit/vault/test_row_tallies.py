"""Rows that somebody else puts back, removes or adds do not fit the sum of their table."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.crypto.keyset import Keyset
from proxy.storage import open_store
from proxy.vault.records.commit import no_changes
from proxy.vault.records.update import change_records
from proxy.vault.row_tallies import TableTally
from tests.support.contacts import Contacts, contact, make_contacts

KEY = bytes(range(32))


def test_a_sum_opens_for_its_table_and_its_key_alone() -> None:
    tally = TableTally(KEY, "r1")
    sealed = tally.seal(7, 2**127 + 1)
    assert tally.open(sealed) == (7, 2**127 + 1)
    assert tally.seal(7, 2**127 + 1) != sealed
    for other in (TableTally(KEY, "r2"), TableTally(bytes(32), "r1")):
        assert other.open(sealed) is None
    for place in range(len(sealed)):
        assert (
            tally.open(sealed[:place] + bytes((sealed[place] ^ 1,)) + sealed[place + 1 :]) is None
        )
    assert tally.open(b"") is None


def test_each_part_of_a_row_moves_the_sum() -> None:
    tally = TableTally(KEY, "r1")
    digests = [
        tally.digest(*row)
        for row in ((1, b"b", b"k"), (2, b"b", b"k"), (1, b"c", b"k"), (1, b"b", b""))
    ]
    assert len(set(digests)) == 4
    assert TableTally(KEY, "r2").digest(1, b"b", b"k") not in digests


def test_new_rows_add_what_each_of_them_does() -> None:
    tally, long = TableTally(KEY, "r1"), bytes(range(40))
    rows = [(1, None, b"s" + long, long), (2, b"key", None, b"b")]
    each = tally.digest(1, long[-16:], long[-16:]), tally.digest(2, b"b", b"")
    assert tally.added(rows, 3) == each[0] ^ each[1]


def test_a_row_that_changes_moves_the_sum_by_what_it_was_and_what_it_is() -> None:
    tally, moved = TableTally(KEY, "r1"), dict[str, int]()
    move = tally.mover(moved)
    move(1, b"b", None)
    assert moved == {"r1": tally.digest(1, b"b", b"")}
    move(1, b"b", None, b"c", b"k")
    assert moved == {"r1": tally.digest(1, b"c", b"k")}
    move(1, b"c", b"k")
    assert moved == {"r1": 0}


class Shelf:
    """A vault on SQLite that can be opened again, and its database in the hands of somebody
    else.
    """

    def __init__(self, folder: Path) -> None:
        self.file, self.keyset = folder / "vault.db", Keyset.create("test")

    async def open(self, *, detect_rollback: bool = True) -> Contacts:
        store = await open_store(f"sqlite:///{self.file}")
        return await make_contacts(store, self.keyset, detect_rollback=detect_rollback)

    def write(self, *statements: str) -> None:
        with sqlite3.connect(self.file, timeout=10) as connection:
            for text in statements:
                connection.execute(text)
        connection.close()


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[tuple[Shelf, Contacts]]:
    shelf = Shelf(tmp_path)
    contacts = await shelf.open()
    await contacts.add(*[contact(key, age=1) for key in "abc"])
    shelf.write("CREATE TABLE copy AS SELECT * FROM r_r1_test")
    await change_records(contacts.records, [contact("b", age=2)], "u", no_changes)
    yield shelf, contacts
    await contacts.store.close()


async def test_what_the_vault_writes_fits_whoever_opens_it(shelf: tuple[Shelf, Contacts]) -> None:
    place, contacts = shelf
    assert await contacts.vault.altered() == []
    await contacts.store.close()
    again = await place.open()
    assert await again.vault.altered() == []
    assert again.events["altered"] == 0
    await again.store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR REPLACE INTO r_r1_test SELECT * FROM copy WHERE version = 1",
        "DELETE FROM r_r1_test WHERE rid = (SELECT min(rid) FROM r_r1_test)",
        "UPDATE r_r1_test SET rid = rid + 1000000000",
        "UPDATE r_r1_test SET body = randomblob(40)",
        "UPDATE r_r1_test SET key_sealed = x'00'",
        "UPDATE tables SET tally = NULL",
        "UPDATE tables SET tally = randomblob(56)",
    ],
)
async def test_what_somebody_else_has_written_does_not_fit(
    shelf: tuple[Shelf, Contacts], statement: str
) -> None:
    place, contacts = shelf
    place.write(statement)
    assert await contacts.vault.altered() == ["contact"]
    await contacts.store.close()
    again = await place.open()
    assert await again.vault.altered() == ["contact"]
    await again.add(contact("d"))
    await again.vault.maintain()
    assert again.events["altered"] == 1
    await again.store.close()


async def test_a_table_that_is_put_back_with_its_sum_does_not_fit(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    contacts = await shelf.open()
    await contacts.add(contact("a"))
    shelf.write(
        "CREATE TABLE copy AS SELECT * FROM r_r1_test",
        "CREATE TABLE sums AS SELECT name, tally FROM tables",
    )
    await contacts.add(contact("b"))
    back = (
        "DELETE FROM r_r1_test",
        "INSERT INTO r_r1_test SELECT * FROM copy",
        "UPDATE tables SET tally = (SELECT tally FROM sums WHERE sums.name = tables.name)",
    )
    shelf.write(*back)
    assert await contacts.vault.altered() == ["contact"]  # this process knows what it wrote
    await contacts.add(contact("c"))
    await contacts.store.close()


async def test_a_table_is_not_put_back_behind_the_last_comparison(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    contacts = await shelf.open()
    await contacts.add(contact("a"))
    shelf.write(
        "CREATE TABLE copy AS SELECT * FROM r_r1_test",
        "CREATE TABLE sums AS SELECT name, tally FROM tables",
    )
    await contacts.add(contact("b"))
    assert await contacts.vault.altered() == []
    await contacts.store.close()
    shelf.write(
        "DELETE FROM r_r1_test",
        "INSERT INTO r_r1_test SELECT * FROM copy",
        "UPDATE tables SET tally = (SELECT tally FROM sums WHERE sums.name = tables.name)",
    )
    again = await shelf.open()
    assert await again.vault.altered() == ["contact"]
    await again.store.close()


async def test_a_table_that_goes_takes_its_sum_along(shelf: tuple[Shelf, Contacts]) -> None:
    place, contacts = shelf
    await contacts.vault.drop(contacts.records.collection.table)
    assert await contacts.vault.altered() == []
    await contacts.store.close()
    again = await place.open()
    assert await again.vault.altered() == []
    await again.store.close()


async def test_what_is_written_while_it_is_switched_off_is_taken_as_it_is(
    shelf: tuple[Shelf, Contacts],
) -> None:
    place, contacts = shelf
    await contacts.store.close()
    other = await place.open(detect_rollback=False)
    await other.add(contact("d"))
    place.write("DELETE FROM r_r1_test WHERE rid = (SELECT min(rid) FROM r_r1_test)")
    assert await other.vault.altered() == []
    await other.store.close()
    again = await place.open()
    assert await again.vault.altered() == []
    await again.add(contact("e"))
    assert await again.vault.altered() == []
    await again.store.close()
