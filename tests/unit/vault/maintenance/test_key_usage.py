import os

import pytest

from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.aead import sealed_prefix
from proxy.crypto.master_key import MasterKey
from proxy.storage.changes import (
    AddVersion,
    Attach,
    Bind,
    Conflict,
    Insert,
    Remember,
    Remove,
    Replace,
    ReplaceCiphertext,
    SealedPart,
    StageRow,
    UpdateFile,
)
from proxy.storage.rows import (
    File,
    Past,
    Row,
    RowState,
    Staged,
    StagedKind,
    StoredReply,
    TableLayout,
)
from proxy.vault.maintenance.key_usage import (
    USAGE_KINDS,
    RetiredKeyGuard,
    key_guard_of,
    scan_key_usage,
)
from tests.support.memory import MemoryStore
from tests.support.memory_objects import MemoryObjects
from tests.support.resealing import CONTENTS, Slow, opened
from tests.support.table import table


@pytest.fixture
async def desk():
    return await opened(Slow(), MemoryObjects(), MasterKey(os.urandom(32)))


async def test_each_key_is_told_with_everything_that_it_has_sealed(desk):
    now = desk.contacts.clock()
    await desk.fill(3)
    await desk.answered(b"kept", now + 70)
    await desk.answered(b"longer", now + 90)
    await desk.answered(b"over", now)
    note = SealedNote(desk.store, desk.vault.keyset.aead(), "test", "clients/1")
    await note.write(b"[]")
    await desk.store.put_note(
        "plain:test", b'{"that": "is not sealed, and is longer than a salt"}', None
    )
    (row, *_) = await desk.store.scan(desk.table, 0, 1)
    sealer = desk.contacts.records.collection.sealer
    staged = Staged(9, row.rid, StagedKind.UPDATE, now, None, False, sealer.row_again(row)[0])
    gone = Staged(10, row.rid, StagedKind.DELETE, now, None, False, b"")
    await desk.store.commit(desk.table, [StageRow(staged), StageRow(gone)])
    use = await scan_key_usage(desk.vault)
    (first,) = desk.vault.keyset.data_keys
    files = len(CONTENTS)
    assert dict(use.of(first)) == dict(zip(USAGE_KINDS, (3, 3, 1, files, files, 2, 2), strict=True))
    assert use.until == {first: now + 90}
    await desk.rotate()
    second = desk.vault.keyset.data_keys[-1]
    await note.write(b"[1]")
    use = await scan_key_usage(desk.vault)
    assert (use.of(first)["notes"], dict(use.of(second))) == (1, {"notes": 1})
    assert dict(use.of("00000000")) == {}


async def test_tables_that_nobody_declares_any_more_count(desk):
    await desk.fill(2)
    other = await opened(desk.store, desk.objects, desk.master)
    desk.store._tables[desk.table].relay(TableLayout(desk.table, ()))
    assert (await scan_key_usage(other.vault)).of(desk.vault.keyset.data_keys[0])["records"] == 2


async def test_a_row_of_which_two_keys_have_sealed_a_part_counts_for_both(desk):
    await desk.fill(1)
    held = desk.store._tables[desk.table].rows
    (rid,) = held
    sealer = desk.contacts.records.collection.sealer
    name = sealer.record(rid, held[rid].salt).key("r0", held[rid].updated_at)
    await desk.rotate()
    (row,) = (await desk.store.rows(desk.table, [rid])).values()
    body, _ = sealer.row_again(row)
    held[rid] = held[rid]._replace(body=body, key_sealed=name)
    use = await scan_key_usage(desk.vault)
    assert [use.of(key)["records"] for key in desk.vault.keyset.data_keys] == [1, 1]


async def test_a_content_that_is_missing_counts_for_every_older_key_and_a_deleted_file_for_none(
    desk,
):
    await desk.fill(1)
    await desk.rotate()
    await desk.rotate()
    name = next(iter(desk.objects.objects))
    del desk.objects.objects[name]
    use = await scan_key_usage(desk.vault)
    counts = [use.of(key)["contents"] for key in desk.vault.keyset.data_keys]
    assert counts == [len(CONTENTS), 1, 0]
    desk.vault.contents = None  # there is no place for files at all
    use = await scan_key_usage(desk.vault)
    assert [use.of(key)["contents"] for key in desk.vault.keyset.data_keys] == [2, 2, 0]


# ---- fence


OLD, NEW = "0a0b0c0d", "01020304"


def body(key: str) -> bytes:
    return sealed_prefix(key) + b"nonce and the rest"


def changes(key: str, sealed: bytes | None = None):
    """Every change that brings something sealed, one by one."""
    sealed = sealed or body(key)
    row = Row(1, None, None, RowState.PENDING, 1, 0, 0, None, b"", sealed)
    other = row._replace(body=body(NEW), key_sealed=sealed)
    file = File(b"", 1, b"", "", 0, 0, 0, sealed)
    return [
        Insert(row),
        Insert(other),
        Replace(row, 1),
        Bind(1, b"", sealed, 0),
        StageRow(Staged(1, 1, StagedKind.UPDATE, 0, None, False, sealed)),
        AddVersion(Past(1, 1, b"", 0, b"", sealed)),
        Attach(file),
        UpdateFile(file, 1),
        Remember(StoredReply(b"", 0, b"", bytes(16) + sealed), 0),
        ReplaceCiphertext(SealedPart.ROW, (1,), (b"", None), (body(NEW), sealed)),
    ]


@table("change", changes(OLD))
def test_whatever_brings_bytes_of_a_key_is_noticed_while_it_is_watched_and_refused_once_it_is_gone(
    change,
):
    fence = RetiredKeyGuard()
    fence([change])
    assert not fence.has_sealed(OLD)
    fence.watch([OLD])
    fence([Remove(1), change])
    assert (fence.has_sealed(OLD), fence.has_sealed(NEW)) == (True, False)
    fence.watch([OLD])
    assert not fence.has_sealed(OLD)
    fence.ease([OLD])
    fence([change])
    assert not fence.has_sealed(OLD)
    fence.refuse([OLD])
    with pytest.raises(Conflict) as caught:
        fence([Remove(1), change])
    assert caught.value.change is change


def test_what_the_key_of_now_has_sealed_is_nobodys_business():
    fence = RetiredKeyGuard()
    fence.watch([OLD])
    fence.refuse([OLD])
    fence([*changes(NEW), Remove(1)])
    assert not fence.has_sealed(OLD)


def test_a_store_has_one_fence_which_is_there_when_it_is_needed():
    store = MemoryStore()
    assert store.guard is None
    assert key_guard_of(store) is key_guard_of(store) is store.guard
