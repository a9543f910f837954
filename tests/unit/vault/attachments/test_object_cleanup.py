from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.objectstore import open_objects
from proxy.objectstore.base import SHARDS
from proxy.storage.changes import Remove, UpdateFile
from proxy.vault.attachments.object_cleanup import (
    ORPHAN_AGE,
    ObjectCleanup,
    check_pair,
    mark_pair,
    named_objects,
)
from proxy.vault.collection import TableSpec
from proxy.vault.schema_store import wake
from tests.support.attached import Files, as_object, in_pieces, make_files
from tests.support.clock import ManualClock
from tests.support.contacts import CONTACT
from tests.support.memory import MemoryStore
from tests.support.memory_objects import MemoryObjects


def sweep(files: Files) -> ObjectCleanup:
    return ObjectCleanup(
        files.contents, files.contacts.store, lambda: ("test",), files.contacts.clock
    )


async def put(files: Files, name: str) -> None:
    await files.objects.put(name, as_object(b"x"))


def old(files: Files) -> None:
    """Let every object be older than the grace."""
    files.contacts.clock.now = max(at for _, at in files.objects.objects.values()) + ORPHAN_AGE + 1  # type: ignore[attr-defined]  # the reference's


async def test_an_object_without_a_row_goes_when_it_is_old_and_nothing_else_does():
    files = await make_files()
    made = await files.add(b"x")
    shard = made.file_id[:2]
    orphan = shard + "0" * 46
    await put(files, orphan)
    cleanup = sweep(files)
    files.contacts.clock.now = max(at for _, at in files.objects.objects.values()) + ORPHAN_AGE  # type: ignore[attr-defined]  # the reference's
    assert await cleanup.orphans(shard) == 0, "it is not old enough"
    old(files)
    other = SHARDS[(SHARDS.index(shard) + 1) % 256]
    assert await cleanup.orphans(other) == 0
    assert await cleanup.orphans(shard) == 1
    assert await files.read(made.file_id) == b"x"
    assert len(await files.names()) == 1


async def test_an_upload_under_way_is_no_orphan_however_old():
    files = await make_files()

    async with files.contents.sealed(b"\xab" + bytes(15), b"", in_pieces(b"x")):
        old(files)
        assert await sweep(files).orphans("ab") == 0
    assert await sweep(files).orphans("ab") == 1


async def test_rounds_come_to_every_shard_and_begin_late():
    files = await make_files()
    orphans = [shard + "0" * 46 for shard in ("00", "7f", "ff")]
    for name in orphans:
        await put(files, name)
    old(files)
    cleanup = sweep(files)
    assert sum([await cleanup.round() for _ in SHARDS]) == 0, (
        "somebody who took the wrong database has time to notice"
    )
    files.contacts.clock.advance(ORPHAN_AGE)
    assert sum([await cleanup.round() for _ in SHARDS]) == 3
    assert await files.names() == []


async def test_files_of_a_schema_that_nobody_declares_any_more_are_named():
    files = await make_files()
    made = await files.add(b"x")
    store = files.contacts.store
    await wake(store, "test")
    assert len(await named_objects(store, "test", made.file_id[:2])) == 1
    old(files)
    assert await sweep(files).orphans(made.file_id[:2]) == 0
    await files.contacts.vault.collection(TableSpec(CONTACT, {}, None, addressed=False))
    assert await files.read(made.file_id) == b"x"


async def test_the_pages_of_many_files_are_all_read(monkeypatch):
    monkeypatch.setattr("proxy.vault.attachments.object_cleanup._PAGE", 3)
    files = await make_files()
    ids = [(await files.add(b"x", str(number))).file_id for number in range(40)]
    found = [
        name
        for shard in SHARDS
        for name in await named_objects(files.contacts.store, "test", shard)
    ]
    assert sorted(found) == await files.names()
    assert sorted(name[:32] for name in found) == sorted(text.replace("-", "") for text in ids)


async def test_doomed_objects_go_in_batches(monkeypatch):
    monkeypatch.setattr("proxy.vault.attachments.object_cleanup._BATCH", 3)
    files = await make_files()
    for number in range(10):
        await files.add(b"x", str(number))
    row = await files.contacts.row("a")
    assert row is not None
    await files.contacts.store.commit(files.contacts.records.collection.table, [Remove(row.rid)])
    assert (
        await ObjectCleanup(
            files.contents, files.contacts.store, lambda: ("test",), ManualClock()
        ).round()
        == 10
    )
    assert await files.names() == []
    assert await files.contacts.store.doomed(10) == []


async def test_what_is_no_name_of_an_object_keeps_no_sweep_from_its_end(tmp_path: Path):
    """Somebody wrote it to the database; object stores refuse such names."""
    objects = await open_objects(f"file://{tmp_path / 'files'}")
    files = await make_files(objects=objects)
    await files.add(b"x")
    await files.add(b"y", "other")
    store, table = files.contacts.store, files.contacts.records.collection.table
    one, _ = await files.rows()
    await store.commit(table, [UpdateFile(one._replace(object="../red"), one.rid)])
    await store.commit(table, [Remove(one.rid)])
    assert "../red" in await store.doomed(10)
    await ObjectCleanup(files.contents, store, lambda: ("test",), ManualClock()).round()
    assert (await files.names(), await store.doomed(10)) == ([], [])
    await objects.close()


# ---- belonging


async def filled(objects: MemoryObjects) -> None:
    await objects.put("ab" + "0" * 46, as_object(b"x"))


async def refused(objects: MemoryObjects | None, store: MemoryStore) -> str:
    with pytest.raises(VaultError) as caught:
        await check_pair(objects, store)
    assert caught.value.code is Code.BAD_STORE
    if objects is not None:
        with pytest.raises(VaultError):
            await mark_pair(objects, store)
    return caught.value.message


async def test_what_is_new_is_marked_and_belongs_together_from_then_on():
    objects, store = MemoryObjects(), MemoryStore()
    await check_pair(None, store)
    await check_pair(objects, store)
    assert await objects.owner() is None, "a check marks nothing"
    await mark_pair(objects, store)
    await filled(objects)
    mark = await objects.owner()
    await mark_pair(objects, store)
    assert mark == await objects.owner()
    assert mark is not None


async def test_the_files_of_another_vault_are_refused():
    objects, store, other = MemoryObjects(), MemoryStore(), MemoryStore()
    await mark_pair(objects, store)
    await filled(objects)
    assert "another vault" in await refused(objects, other)
    await mark_pair(MemoryObjects(), other)
    assert "another vault" in await refused(objects, other)
    await mark_pair(objects, store)


async def test_an_empty_place_is_no_stand_in_for_what_a_disk_had():
    objects, store = MemoryObjects(), MemoryStore()
    await mark_pair(objects, store)
    assert "mount" in await refused(MemoryObjects(), store)
    assert "mount" in await refused(None, store)


async def test_an_operator_who_lost_the_files_can_go_on_as_the_text_says():
    objects, store, empty = MemoryObjects(), MemoryStore(), MemoryObjects()
    await mark_pair(objects, store)
    text = await refused(empty, store)
    mark = text.partition("write the line ")[2].partition(" ")[0]
    await empty.claim(mark)
    await mark_pair(empty, store)


async def test_a_first_start_that_ended_between_the_two_marks_is_taken_up():
    objects, store = MemoryObjects(), MemoryStore()
    await objects.claim("half")
    await mark_pair(objects, store)
    assert await objects.owner() == "half"
    await mark_pair(objects, store)
