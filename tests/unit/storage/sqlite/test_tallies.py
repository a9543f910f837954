"""The sum of a table follows its rows through every commit, and through those that fail."""

import asyncio

import pytest

from proxy.storage import open_store
from proxy.storage.base import Store
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
from proxy.storage.sqlite.tallies import Tallies, WriterConnection
from proxy.vault.row_tallies import TableTally
from tests.support.groups import connect
from tests.support.rows import LAYOUT, TABLE, h, insert, live, row

TALLY = TableTally(bytes(32), TABLE)


async def opened(folder: object) -> Store:
    store = await open_store(f"sqlite:///{folder}/vault.db")
    await store.ensure(LAYOUT)
    return store


async def test_every_kind_of_change_of_a_row_moves_the_sum(tmp_path):
    store = await opened(tmp_path)
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
    again = await opened(tmp_path)
    assert await again.check_tally(TABLE) is None, "nobody has said whose sum it is"
    assert await again.keep_tally(TABLE, TableTally(bytes(31), TABLE), first=False) is None
    assert await again.keep_tally(TABLE, TALLY, first=False) == len(changes)
    assert await again.check_tally(TABLE) == len(changes)
    await again.close()


async def test_commits_of_a_group_that_fail_leave_the_sum_to_the_others(tmp_path):
    store = await opened(tmp_path)
    await store.keep_tally(TABLE, TALLY, first=True)
    await store.commit(TABLE, [Insert(live(1, "a"))])
    results = await asyncio.gather(
        store.commit(TABLE, [insert(2)]),
        store.commit(TABLE, [insert(3), Bind(3, h("a"), b"taken", 1)]),
        store.commit(TABLE, [insert(4)]),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), Conflict, type(None)]
    assert await store.check_tally(TABLE) == 2
    await store.drop(TABLE)
    await store.ensure(LAYOUT)
    assert await store.keep_tally(TABLE, TALLY, first=True) == 0
    await store.close()


@pytest.fixture
def connection() -> WriterConnection:
    made = connect()
    Tallies().install(made)
    return made


def test_a_transaction_that_is_given_up_moves_nothing(connection):
    tallies = connection.tallies
    assert tallies.begin(connection, TABLE, TALLY, first=True) == 0
    connection.execute("BEGIN")
    connection.execute(
        f"INSERT INTO r_{TABLE} (rid, state, version, created_at, updated_at, salt, body)"
        " VALUES (1, 0, 1, 0, 0, x'00', x'01')"
    )
    before = tallies.moved()
    assert before != {}
    tallies.write(connection)
    connection.execute("ROLLBACK")
    tallies.roll_back()
    assert tallies.moved() == {}
    assert tallies.check(TABLE)(connection) == 0
    connection.close()
