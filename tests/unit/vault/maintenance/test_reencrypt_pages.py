import asyncio
import os

import pytest

from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.aead import sealed_by
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from proxy.storage.changes import Insert, ReplaceCiphertext, StageRow
from proxy.storage.rows import Row, RowState, Staged, StagedKind
from proxy.vault.attachments import service
from proxy.vault.body import RecordBody
from proxy.vault.column_binding import row_again
from proxy.vault.maintenance import reencrypt_pages
from proxy.vault.maintenance.reencrypt_pages import (
    SealedTable,
    contents,
    notes,
    past_anew,
    records,
    versions,
)
from proxy.vault.records.attachment_metadata import kept_of
from tests.support.attached import nothing
from tests.support.memory_objects import MemoryObjects
from tests.support.resealing import CONTENTS, Desk, Slow, opened
from tests.support.vaults import make_bench


@pytest.fixture
async def desk() -> Desk:
    made = await opened(Slow(), MemoryObjects(), MasterKey(os.urandom(32)))
    await made.fill(3)
    await made.rotate()
    return made


def place_of(desk: Desk) -> SealedTable:
    return SealedTable(desk.vault, desk.table, desk.contacts.records.collection.sealer)


async def test_pages_follow_each_other_to_the_end(desk, monkeypatch):
    monkeypatch.setattr(reencrypt_pages, "_ROWS", 2)
    monkeypatch.setattr(reencrypt_pages, "_FILES", 1)
    place = place_of(desk)
    for turn, sizes in ((records, [2, 1]), (versions, [2, 1]), (contents, [1] * len(CONTENTS))):
        after, looked = "", []
        while page := await turn(place, after):
            after = page.after
            looked.append((page.looked, page.unreadable))
        assert looked == [(size, 0) for size in sizes]
    assert await desk.sealing() == {desk.vault.keyset.data_keys[-1]}
    await desk.judge(3)


async def test_what_the_key_of_now_has_sealed_is_left_as_it_is(desk):
    for turn in (records, versions, contents):
        await turn(place_of(desk), "")
    rows, pasts = (
        await desk.store.scan(desk.table, 0, 10),
        await desk.store.past_scan(desk.table, (0, 0), 10),
    )
    sealer, names = desk.contacts.records.collection.sealer, await desk.files.names()
    files = await desk.store.files(desk.table, [row.rid for row in rows])
    assert [row_again(sealer, row, files.get(row.rid, ()), ()) for row in rows] == [[]] * 3
    assert [past_anew(sealer, past) for past in pasts] == [[]] * 3
    await contents(place_of(desk), "")
    assert set(await desk.files.names()) == set(names)


async def test_a_write_that_comes_first_wins(desk):
    (row, *_) = await desk.store.scan(desk.table, 0, 1)
    (change,) = row_again(desk.contacts.records.collection.sealer, row, (), ())
    assert isinstance(change, ReplaceCiphertext)
    held = desk.store._tables[desk.table].rows
    held[row.rid] = row._replace(body=b"of somebody else")
    await desk.store.commit(desk.table, [change])
    assert held[row.rid].body == b"of somebody else"


async def test_what_was_sealed_anew_opens_in_its_own_place_alone(desk):
    await records(place_of(desk), "")
    await versions(place_of(desk), "")
    sealer = desk.contacts.records.collection.sealer
    one, other, _ = await desk.store.scan(desk.table, 0, 3)
    past, *_ = await desk.store.past_scan(desk.table, (0, 0), 1)
    for wrong in (
        one._replace(body=other.body), one._replace(version=one.version + 1), one._replace(salt=other.salt),
        past._replace(rid=other.rid), past._replace(version=2), one._replace(body=past.body),
    ):  # fmt: skip
        with pytest.raises(VaultError) as caught:
            sealer.open(wrong)
        assert caught.value.code is Code.CANNOT_OPEN
    file, *_ = await desk.files.rows()
    with pytest.raises(VaultError):
        sealer.open_file(file._replace(rid=other.rid), other.salt)


async def test_what_does_not_open_is_counted_and_stays(desk):
    table = desk.store._tables[desk.table]
    rid, place = max(table.rows), max(table.past)
    table.rows[rid] = table.rows[rid]._replace(body=table.rows[rid].body[:-1])
    table.past[place] = table.past[place]._replace(body=table.past[place].body + b"x")
    objects = desk.objects.objects
    first, second = objects
    objects[first] = objects[first][0][:-1], 0
    del objects[second]
    before = dict(objects)
    found = [await turn(place_of(desk), "") for turn in (records, versions, contents)]
    assert [page.unreadable for page in found if page] == [1, 1, 2]
    assert objects == before


async def test_a_content_that_is_not_what_its_row_tells_of_is_not_passed_on(desk):
    file, *_ = await desk.files.rows()
    place, kept_in = place_of(desk), desk.files.contents
    row = (await desk.store.rows(desk.table, [file.rid]))[file.rid]
    kept = kept_of(place.sealer, row, file)._replace(hash="0" * 64)
    names = await desk.files.names()
    with pytest.raises(VaultError):
        async with kept_in.again(kept, place.sealer.scope):
            raise AssertionError("not to be reached")
    assert (await desk.files.names(), kept_in.uploading()) == (names, frozenset())


@pytest.mark.parametrize("what", ["replaced", "deleted", "renamed", "moved", "its record deleted"])
async def test_a_file_that_somebody_changes_meanwhile_is_as_they_left_it(desk, what, monkeypatch):
    attached = {one.filename: one for one in await desk.files.of("r0")}
    large, owner = attached["large.bin"], desk.files.owner("r0")
    begun = asyncio.Event()

    async def meanwhile() -> None:
        if what == "replaced":
            await desk.files.put(b"other content", "large.bin", "r0")
        elif what == "deleted":
            await service.remove_attachment(owner, large.file_id, nothing)
        elif what == "renamed":
            await service.change(owner, large.file_id, ("other.bin", None))
        elif what == "moved":
            await service.move(owner, "r1", [large.file_id], nothing)
        else:
            await anew_delete(desk)
        begun.set()

    put = desk.files.objects.put

    async def slow(name, pieces):
        size = await put(name, pieces)
        if not begun.is_set() and name.startswith(large.file_id.replace("-", "")):
            begun.set()
            await meanwhile()
        return size

    monkeypatch.setattr(desk.files.objects, "put", slow)
    await contents(place_of(desk), "")
    key = "r1" if what == "moved" else "r0"
    if what == "its record deleted":
        assert await desk.files.rows() == []
        return
    now = {one.filename: one for one in await desk.files.of(key)}
    if what == "deleted":
        assert "large.bin" not in now
        return
    file = now["other.bin" if what == "renamed" else "large.bin"]
    expected = b"other content" if what == "replaced" else CONTENTS["large.bin"]
    assert await desk.files.read(file.file_id, key=key) == expected
    named = {file.object for file in await desk.files.rows()}
    assert not named & set(await desk.store.doomed(100))


async def anew_delete(desk: Desk) -> None:
    from proxy.vault.records.commit import no_changes as closing
    from proxy.vault.records.delete import delete_one

    await delete_one(desk.contacts.records, "r0", "somebody", closing)


async def test_a_limit_that_was_lowered_and_transfers_that_are_all_taken_hinder_nothing(desk):
    desk.files.contents.limit = 1
    desk.files.contents._traffic.transfers = 128
    page = await contents(place_of(desk), "")
    assert page is not None
    assert page.unreadable == 0
    desk.files.contents._traffic.transfers = 0
    await desk.judge(3)


async def test_sealed_notes_are_sealed_anew_and_who_knows_them_may_go_on_writing(desk):
    aead = desk.vault.keyset.aead()
    note = SealedNote(desk.store, aead, "test", "clients/1")
    await note.write(b"[1]")
    await desk.rotate()
    await desk.store.put_note(
        "plain:test", b'{"that": "is not sealed, and is longer than a salt"}', None
    )
    await SealedNote(desk.store, aead, "test", "policies").write(b"[]")
    broken = (await desk.store.note("policies:test") or b"") + b"x"
    await desk.rotate()
    await desk.store.put_note("policies:test", broken, await desk.store.note("policies:test"))
    assert await notes(desk.vault) == 1
    stored = await desk.store.note("clients/1:test") or b""
    assert sealed_by(stored[16:]) == aead.primary
    await note.write(b"[1, 2]")
    assert await SealedNote(desk.store, aead, "test", "clients/1").read() == b"[1, 2]"


async def test_what_is_staged_and_the_names_that_rules_gave_are_sealed_anew_too():
    bench = await make_bench()
    people, rid = bench.people, 5
    salt = people.sealer.new_salt()
    sealer = people.sealer.record(rid, salt)
    row = Row(
        rid,
        people.key_hash("7"),
        sealer.key("7", 1),
        RowState.LIVE,
        1,
        1,
        1,
        None,
        salt,
        b"",
        (None,) * len(people.columns),
    )
    row = people.sealer.with_body(row, RecordBody({}))
    update = sealer.staged(Staged(9, rid, StagedKind.UPDATE, 1, None, False, b""), RecordBody({}))
    delete = sealer.staged(Staged(10, rid, StagedKind.DELETE, 1, None, False, b""), None)
    await bench.store.commit(people.table, [Insert(row), StageRow(update), StageRow(delete)])
    bench.vault.keyset.adopt(bench.vault.keyset.rotated())
    page = await records(SealedTable(bench.vault, people.table, people.sealer), "")
    assert page == reencrypt_pages.PageResult("5", 1, 0)
    (after,) = (await bench.store.rows(people.table, [rid])).values()
    staged = (await bench.store.staged(people.table, [rid]))[rid]
    assert all(
        map(
            people.sealer.current,
            (after.body, after.key_sealed or b"", staged[0].body, staged[1].body),
        )
    )
    assert (people.sealer.open_key(after), people.sealer.open(after)) == ("7", RecordBody({}))
    assert [people.sealer.open_staged(one, salt) for one in staged] == [RecordBody({}), None]
