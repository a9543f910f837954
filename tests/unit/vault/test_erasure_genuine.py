from proxy.storage.rows import Row, StagedKind
from proxy.vault.erasure import hosts_others, is_genuine_change, may_end
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import stage_creates, stage_updates
from proxy.vault.records.commit import no_changes
from proxy.vault.records.update import change_records
from tests.support.attached import Files, make_files
from tests.support.contacts import contact
from tests.support.table import table
from tests.support.vaults import draft, make_bench


async def row_of(files: Files, key: str) -> Row:
    row = await files.contacts.row(key)
    assert row is not None
    return row


async def test_a_row_ends_by_what_is_sealed_in_it() -> None:
    files = await make_files()
    collection, row = files.contacts.records.collection, await row_of(files, "a")
    assert await may_end(collection, row)
    assert not await may_end(collection, row._replace(expires_at=1))
    assert files.contacts.events["tampered"] == 1


async def test_a_damaged_row_ends_with_its_own_versions_and_files() -> None:
    files = await make_files()
    collection = files.contacts.records.collection
    await files.add(b"x")
    await change_records(files.contacts.records, [contact("a", age=2)], "x", no_changes)
    damaged = (await row_of(files, "a"))._replace(body=b"\0" * 60)
    assert await may_end(collection, damaged)
    assert (files.contacts.events["unopenable"], files.contacts.events["tampered"]) == (1, 0)


@table("part", ["version", "file"])
async def test_a_row_under_the_number_of_another_record_ends_nothing_of_it(part: str) -> None:
    files = await make_files()
    collection = files.contacts.records.collection
    if part == "file":
        await files.add(b"x")
    else:
        await change_records(files.contacts.records, [contact("a", age=2)], "x", no_changes)
    moved = (await row_of(files, "b"))._replace(rid=(await row_of(files, "a")).rid)
    assert await hosts_others(collection, moved)
    assert not await may_end(collection, moved)
    assert files.contacts.events["tampered"] == 1
    alone = (await row_of(files, "a"))._replace(rid=(await row_of(files, "b")).rid)
    assert not await hosts_others(collection, alone)


async def test_versions_that_were_put_under_another_key_tell_whose_they_are() -> None:
    files = await make_files()
    collection = files.contacts.records.collection
    await change_records(files.contacts.records, [contact("a", age=2)], "x", no_changes)
    (past,) = await files.contacts.store.past_scan(collection.table, (0, 0), 10)
    moved = (await row_of(files, "b"))._replace(rid=past.rid)
    assert past.key != moved.key
    # as if somebody had written the key of ``b`` beside the version of ``a``
    assert await hosts_others(collection, moved._replace(key=b"\1" * 16))


async def test_a_staged_change_that_was_made_another_one_is_reported() -> None:
    bench = await make_bench()
    (made,) = await stage_creates(bench.people, [draft(name="Ann")], [None])
    await bind(bench.people, [(made, "1")])
    await stage_updates(bench.people, [("1", draft(name="Anna"))])
    ((rid, (change,)),) = (await bench.store.staged(bench.people.table, [made.rid])).items()
    salt = (await bench.store.rows(bench.people.table, [rid]))[rid].salt
    assert is_genuine_change(bench.people, change, salt)
    assert not is_genuine_change(bench.people, change._replace(kind=StagedKind.DELETE), salt)
    assert bench.events["tampered"] == 1
