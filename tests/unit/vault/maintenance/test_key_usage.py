import os

import pytest

from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.master_key import MasterKey
from proxy.objectstore.memory import MemoryObjects
from proxy.storage.changes import StageRow
from proxy.storage.rows import Staged, StagedKind, TableLayout
from proxy.vault.maintenance.key_usage import USAGE_KINDS, scan_key_usage
from tests.support.resealing import CONTENTS, Slow, opened


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
