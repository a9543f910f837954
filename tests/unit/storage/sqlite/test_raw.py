"""Commits that tell who waits without a future, and rows that are read at once."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.storage.base import Hooks
from proxy.storage.changes import Bind, Change, Conflict, Insert
from proxy.storage.query import MATCH_ALL, Select
from proxy.storage.rows import Row
from proxy.storage.sqlite.statements import BODY_COLUMN, SHORT_BODIES, Statements
from proxy.storage.sqlite.store import SqliteStore, open_sqlite
from tests.support.rows import LAYOUT, TABLE, h, insert, row


class Waiter:
    """Takes down what it is told."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()

    def done(self) -> bool:
        return False

    def set_result(self, result: None, /) -> None:
        self.answers.put_nowait(result)

    def set_exception(self, error: Exception, /) -> None:
        self.answers.put_nowait(error)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    await made.ensure(LAYOUT)
    yield made
    await made.close()


async def test_who_waits_is_told_once_it_is_durable_and_the_row_is_there(
    store: SqliteStore,
) -> None:
    waiter, key = Waiter(), h("key")
    changes: Sequence[Change] = [insert(1), Bind(1, key, b"sealed", 5)]
    assert store.at_once.begin_commit(TABLE, changes, waiter)
    assert waiter.answers.empty()
    assert await waiter.answers.get() is None
    found = store.at_once.row_by_key(TABLE, key)
    assert found is not None
    assert (await store.by_keys(TABLE, [key]))[key] == found
    assert store.at_once.row_by_key(TABLE, h("other")) is None


async def test_who_waits_is_told_of_a_conflict(store: SqliteStore) -> None:
    for expected in (type(None), Conflict):
        waiter = Waiter()
        assert store.at_once.begin_commit(TABLE, [insert(1, unique=(h("a"),))], waiter)
        assert isinstance(await waiter.answers.get(), expected)


async def test_what_cannot_be_accepted_now_is_not_begun(store: SqliteStore) -> None:
    waiter = Waiter()
    assert not store.at_once.begin_commit("unknown", [insert(1)], waiter)

    def guard(changes: Sequence[Change]) -> None:
        raise Conflict(changes[0])

    store.guard = guard
    assert not store.at_once.begin_commit(TABLE, [insert(1)], waiter)
    store.guard = None
    await store.close()
    assert not store.at_once.begin_commit(TABLE, [insert(1)], waiter)
    assert waiter.answers.empty()


async def test_long_bodies_are_read_by_a_thread_alone(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = {1: 10, 2: SHORT_BODIES, 3: SHORT_BODIES + 1, 4: 2**20}
    rows = [row(rid, body=b"b" * size) for rid, size in lengths.items()]
    await store.commit(TABLE, [Insert(one) for one in rows])
    await store.commit(TABLE, [Bind(rid, h(rid), b"sealed", 5) for rid in lengths])
    rows = (await store.select(TABLE, Select(MATCH_ALL, 0, (), None, 0, False))).rows
    here, reads = threading.get_ident(), set[int]()
    read_each = Statements.read_each

    def noted(sql: Statements, raws: Sequence[tuple[Any, ...]]) -> list[Row]:
        if threading.get_ident() == here:
            reads.update(len(raw[BODY_COLUMN]) for raw in raws if raw[BODY_COLUMN] is not None)
        return read_each(sql, raws)

    monkeypatch.setattr(Statements, "read_each", noted)
    assert await store.by_keys(TABLE, [h(rid) for rid in lengths]) == {one.key: one for one in rows}
    assert await store.rows(TABLE, list(lengths)) == {one.rid: one for one in rows}
    assert reads == {10, SHORT_BODIES}
    assert [store.at_once.row_by_key(TABLE, h(rid)) for rid in lengths] == [*rows[:2], None, None]
