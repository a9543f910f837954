import sqlite3
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.base import Hooks
from proxy.storage.changes import Bind, Change, Insert, Release, Remove
from proxy.storage.sqlite.store import SqliteStore, open_sqlite
from tests.support.rows import LAYOUT, TABLE, h, insert, live, row


async def opened(path: Path) -> SqliteStore:
    store = await open_sqlite(str(path), Hooks())
    await store.ensure(LAYOUT)
    return store


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    store = await opened(tmp_path / "vault.db")
    await store.commit(TABLE, [insert(1, hashes=(h("a"),))])
    await store.put_note("keys", b"wrapped", None)
    await store.close()
    assert names(tmp_path) == ["vault.db", "vault.db.lock"]
    store = await opened(tmp_path / "vault.db")
    assert await store.rows(TABLE, [1]) == {1: row(1)}
    assert await store.by_tokens(TABLE, [h("a")]) == {h("a"): (1,)}
    assert await store.note("keys") == b"wrapped"
    assert await store.count(TABLE) == (1, 1, 0)
    await store.close()


async def test_a_store_without_a_file_is_refused() -> None:
    with pytest.raises(VaultError) as caught:
        await open_sqlite("", Hooks())
    assert caught.value.code is Code.BAD_SETTINGS


async def test_a_store_that_cannot_be_opened_gives_its_lock_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("proxy.storage.sqlite.file._WRITING", ("PRAGMA journal_mode = DELETE",))
        with pytest.raises(VaultError):
            await open_sqlite(str(tmp_path / "vault.db"), Hooks())
    await (await opened(tmp_path / "vault.db")).close()


async def test_ensure_of_what_is_there_does_not_write(tmp_path: Path) -> None:
    store = await opened(tmp_path / "vault.db")
    log = tmp_path / "vault.db-wal"
    before = log.stat().st_size
    await store.ensure(LAYOUT)
    assert log.stat().st_size == before
    await store.close()


async def test_a_lock_of_another_program_passes(tmp_path: Path) -> None:
    store = await opened(tmp_path / "vault.db")
    other = sqlite3.connect(tmp_path / "vault.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(VaultError) as caught:
        await store.commit(TABLE, [insert(1)])
    assert caught.value.code is Code.VAULT_DOWN
    assert await store.rows(TABLE, [1]) == {}  # reads go on
    other.execute("ROLLBACK")
    other.close()
    await store.commit(TABLE, [insert(1)])
    await store.close()


async def test_a_database_that_is_moved_away_is_not_written_until_it_is_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "vault.db"
    store = await opened(path)
    path.rename(tmp_path / "away.db")
    for refused in (store.commit(TABLE, [insert(1)]), store.count(TABLE)):  # of ``/readyz``
        with pytest.raises(VaultError) as caught:
            await refused
        assert caught.value.code is Code.VAULT_DOWN
    (tmp_path / "away.db").rename(path)
    await store.commit(TABLE, [insert(2)])
    assert await store.count(TABLE) == (1, 1, 0)
    assert (await store.rows(TABLE, [1, 2])).keys() == {2}
    await store.close()


async def test_damage_that_appears_while_reading_is_told_and_reading_goes_on(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path / "vault.db")
    await store.commit(TABLE, [insert(1)])
    assert store._reader is not None
    store._reader.close()  # any driver's error will do
    with pytest.raises(VaultError) as caught:
        await store.rows(TABLE, [1])
    assert caught.value.code is Code.INTERNAL
    assert await store.rows(TABLE, [1]) == {1: row(1)}
    store._reader.close()
    with pytest.raises(VaultError):
        await store.ensure(LAYOUT)
    await store.ensure(LAYOUT)
    await store.close()


async def test_a_reader_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    store = await opened(tmp_path / "vault.db")
    store._forget_reader()
    (tmp_path / "vault.db").rename(tmp_path / "away.db")
    with pytest.raises(VaultError) as caught:
        await store.rows(TABLE, [1])
    assert caught.value.code is Code.VAULT_DOWN
    (tmp_path / "away.db").rename(tmp_path / "vault.db")
    assert await store.rows(TABLE, [1]) == {}
    await store.close()


async def test_many_keys_are_found_where_their_rows_are_now(tmp_path: Path) -> None:
    store = await opened(tmp_path / "vault.db")
    keys = [h(number) for number in range(1, 21)]
    await store.commit(TABLE, [Insert(live(number, number)) for number in range(1, 21)])
    for _ in range(2):
        assert {key: row.rid for key, row in (await store.by_keys(TABLE, keys)).items()} == {
            h(number): number for number in range(1, 21)
        }
    moved: list[Change] = [
        Release(h(3), 30, 5),
        insert(30),
        Bind(30, h(3), b"sealed", 5),
        Remove(4),
    ]
    await store.commit(TABLE, moved)
    found = await store.by_keys(TABLE, keys)
    assert found[h(3)].rid == 30
    assert found[h(3)].key_sealed == b"sealed"
    assert sorted(found) == sorted({*keys} - {h(4)})
    await store.close()


async def test_reads_do_not_hold_an_old_state(tmp_path: Path) -> None:
    store = await opened(tmp_path / "vault.db")
    for rid in range(1, 20):
        await store.commit(TABLE, [insert(rid, hashes=(h("s"),))])
        assert len((await store.by_tokens(TABLE, [h("s")]))[h("s")]) == rid
    await store.close()
