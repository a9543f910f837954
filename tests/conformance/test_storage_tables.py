"""The contract of tables as wholes, over every engine: what the janitor asks, layouts, notes, the end of a store."""

import asyncio

import pytest

from proxy.errors import Code, VaultError
from proxy.storage import open_store
from proxy.storage.base import Hooks, Store
from proxy.storage.changes import Bind, Conflict, Insert, Release, Remove, Replace, StageRow
from proxy.storage.rows import Column, ColumnType, TableLayout
from tests.support.rows import COLUMNS, EMPTY, LAYOUT, TABLE, h, insert, live, row, staged
from tests.support.table import table


async def test_unsettled_is_oldest_first_before_the_instant_and_limited(store: Store) -> None:
    await store.commit(
        TABLE, [Insert(row(rid, at=at)) for rid, at in ((1, 300), (2, 100), (3, 200), (4, 100))]
    )
    await store.commit(TABLE, [Insert(live(5, "k", at=50))])
    await store.commit(
        TABLE,
        [StageRow(staged(sid, 5, at=at)) for sid, at in ((1, 300), (2, 100), (3, 200), (4, 100))],
    )
    rows, waiting = await store.unsettled(TABLE, 300, 10)
    assert [found.rid for found in rows] == [2, 4, 3]
    assert [found.sid for found in waiting] == [2, 4, 3]
    rows, waiting = await store.unsettled(TABLE, 1_000, 2)
    assert ([found.rid for found in rows], [found.sid for found in waiting]) == ([2, 4], [2, 4])
    assert await store.unsettled(TABLE, 100, 10) == ([], [])


async def test_a_row_that_lost_its_key_is_unsettled_since_then(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "k", at=100)), Release(h("k"), 2, 500)])
    assert await store.unsettled(TABLE, 500, 10) == ([], [])
    assert [found.rid for found in (await store.unsettled(TABLE, 501, 10))[0]] == [1]


async def test_expired_is_at_or_before_the_instant_earliest_first_and_limited(store: Store) -> None:
    due = ((1, 300), (2, 100), (3, None), (4, 200), (5, 301))
    await store.commit(TABLE, [Insert(row(rid)._replace(expires_at=at)) for rid, at in due])
    assert await store.expired(TABLE, 300, 10) == [2, 4, 1]
    assert await store.expired(TABLE, 300, 2) == [2, 4]
    assert await store.expired(TABLE, 99, 10) == []


async def test_count_follows_every_change(store: Store) -> None:
    assert await store.count(TABLE) == (0, 0, 0)
    await store.commit(TABLE, [Insert(live(1, "k")), insert(2), insert(3), StageRow(staged(1, 1))])
    assert await store.count(TABLE) == (3, 2, 1)
    await store.commit(
        TABLE, [Release(h("k"), 2, 1), Bind(2, h("k"), b"", 1), Remove(3), Remove(3)]
    )
    assert await store.count(TABLE) == (2, 1, 1)
    await store.commit(TABLE, [Remove(1)])
    assert await store.count(TABLE) == (1, 0, 0)


async def test_ensure_is_idempotent_and_keeps_rows(store: Store) -> None:
    await store.commit(TABLE, [insert(1)])
    await store.ensure(LAYOUT)
    assert await store.rows(TABLE, [1]) == {1: row(1)}


async def test_columns_come_and_go_online(store: Store) -> None:
    await store.commit(TABLE, [Insert(row(1, cells=(h("m"), "Umeå", 7, "1.5")))])
    wider = TableLayout(TABLE, (Column("body", ColumnType.TEXT), *reversed(COLUMNS)))
    await store.ensure(wider)
    assert (await store.rows(TABLE, [1]))[1].cells == (None, "1.5", 7, "Umeå", h("m"))
    await store.commit(TABLE, [Insert(row(2, cells=("text", None, 1, None, None)))])
    narrow = TableLayout(TABLE, COLUMNS[2:3])
    await store.ensure(narrow)
    assert {rid: found.cells for rid, found in (await store.rows(TABLE, [1, 2])).items()} == {
        1: (7,),
        2: (1,),
    }
    await store.commit(TABLE, [Insert(row(3, cells=(9,)))])
    await store.ensure(LAYOUT)
    assert (await store.rows(TABLE, [3]))[3].cells == (None, None, 9, None)


async def test_replace_clears_columns_that_the_layout_no_longer_names(store: Store) -> None:
    await store.commit(TABLE, [Insert(row(1, cells=(h("m"), "Umeå", 7, "1.5")))])
    await store.ensure(TableLayout(TABLE, COLUMNS[2:3]))
    await store.commit(TABLE, [Replace(row(1, cells=(8,)), 1)])
    await store.ensure(LAYOUT)
    assert (await store.rows(TABLE, [1]))[1].cells == (None, None, 8, None)


async def test_a_column_cannot_change_its_type(store: Store) -> None:
    with pytest.raises(VaultError) as caught:
        await store.ensure(TableLayout(TABLE, (Column("city", ColumnType.INTEGER),)))
    assert caught.value.code is Code.BAD_STORE
    await store.commit(TABLE, [Insert(row(1, cells=EMPTY))])


@pytest.mark.usefixtures("ordered")
async def test_tables_are_apart(store: Store) -> None:
    await store.ensure(TableLayout("other", ()))
    await store.commit("other", [Insert(live(1, "k")._replace(cells=()), (), (h("u"),))])
    assert await store.rows(TABLE, [1]) == {}
    both = await asyncio.gather(
        store.commit(TABLE, [Insert(live(1, "k"), (), (h("u"),))]),
        store.commit("other", [Insert(live(2, "z")._replace(cells=()))]),
        store.commit("other", [Insert(live(2, "y")._replace(cells=()))]),
        return_exceptions=True,
    )
    assert [type(result) for result in both] == [type(None), type(None), Conflict]
    assert await store.count("other") == (2, 0, 0)
    assert await store.count(TABLE) == (1, 0, 0)


@table("name", ["", "Upper", "1st", "a b", 'a"', "x" * 49, "a;drop", "å"])
async def test_names_that_are_none_are_refused(store: Store, name: str) -> None:
    for layout in (TableLayout(name, ()), TableLayout(TABLE, (Column(name, ColumnType.TEXT),))):
        with pytest.raises(VaultError) as caught:
            await store.ensure(layout)
        assert caught.value.code is Code.INTERNAL


async def test_a_layout_that_names_a_column_twice_is_refused(store: Store) -> None:
    with pytest.raises(VaultError):
        await store.ensure(TableLayout(TABLE, (COLUMNS[0], COLUMNS[0])))


async def test_every_verb_refuses_a_table_that_nobody_ensured(store: Store) -> None:
    calls = (
        store.commit("none", []), store.rows("none", [1]), store.by_keys("none", []), store.by_tokens("none", []),
        store.staged("none", []), store.unsettled("none", 1, 1), store.expired("none", 1, 1), store.count("none"),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(VaultError) as caught:
            await call
        assert caught.value.code is Code.INTERNAL


async def test_notes_change_only_from_what_was_read(store: Store) -> None:
    assert await store.note("clients") is None
    await store.put_note("clients", b"one", None)
    await store.put_note("clients", b"two", b"one")
    for stale in (None, b"one", b""):
        with pytest.raises(VaultError) as caught:
            await store.put_note("clients", b"three", stale)
        assert caught.value.code is Code.CONFLICT
    with pytest.raises(VaultError):
        await store.put_note("absent", b"x", b"y")
    assert (await store.note("clients"), await store.note("absent")) == (b"two", None)


async def test_close_finishes_what_was_accepted_and_is_idempotent(store: Store) -> None:
    accepted = [asyncio.ensure_future(store.commit(TABLE, [insert(rid)])) for rid in range(1, 20)]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    await store.close()
    assert set(await asyncio.gather(*accepted)) == {None}


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.close()
    calls = (
        store.commit(TABLE, [insert(1)]), store.rows(TABLE, [1]), store.note("keys"), store.ensure(LAYOUT),
        store.put_note("keys", b"", None), store.count(TABLE), store.drop_notes(":keys"),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(VaultError) as caught:
            await call
        assert caught.value.code is Code.VAULT_DOWN


async def test_hooks_hear_of_every_commit(uri: str) -> None:
    heard: list[tuple[int, float]] = []
    hooks = Hooks(lambda size, seconds: heard.append((size, seconds)))
    store = await open_store(uri, hooks)
    await store.ensure(LAYOUT)
    await asyncio.gather(*(store.commit(TABLE, [insert(rid)]) for rid in range(1, 11)))
    assert hooks.waiting() == 0
    await store.close()
    assert sum(size for size, _ in heard) == 10
    assert all(0 <= seconds < 60 for _, seconds in heard)


async def test_an_address_without_an_engine_is_refused() -> None:
    with pytest.raises(VaultError) as caught:
        await open_store("carrier-pigeon://loft")
    assert caught.value.code is Code.BAD_SETTINGS
    assert "sqlite" in caught.value.message
