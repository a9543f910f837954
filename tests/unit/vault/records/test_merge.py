import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import Action
from proxy.storage.changes import Attach
from proxy.storage.rows import Row
from proxy.vault.attachment_content import StoredContent
from proxy.vault.collection import HistoryPolicy
from proxy.vault.records import merge as module
from proxy.vault.records.attachment_metadata import Label, attachments_of, file_of, new_id
from proxy.vault.records.commit import COMMIT_TRIES, no_changes
from proxy.vault.records.history import record_versions
from proxy.vault.records.merge import merge_records
from proxy.vault.records.repository import Records
from proxy.vault.records.update import change_records
from tests.support.contacts import Contacts, Overtaken, contact, make_contacts
from tests.support.table import table
from tests.support.vaults import make_bench


async def refused(contacts: Contacts, source: str = "a", destination: str = "b") -> VaultError:
    with pytest.raises(VaultError) as caught:
        await merge_records(contacts.records, source, destination, "x", no_changes)
    return caught.value


async def test_what_the_source_has_a_value_for_takes_the_place_of_the_destinations() -> None:
    contacts = await make_contacts()
    ends = contacts.clock() + 1000
    await contacts.add(
        contact("a", name="Annabel", city=None, age=1, expires_at=ends),
        contact("b", name="Isabel", city="Umeå", note="n"),
    )
    contacts.clock.advance(5)
    await merge_records(contacts.records, "a", "b", "mover", no_changes)
    merged = await contacts.get("b")
    assert merged is not None
    assert merged.fields == {"id": "b", "name": "Annabel", "city": "Umeå", "age": 1, "note": "n"}
    assert (merged.created_at, merged.updated_at) == (contacts.clock() - 5, contacts.clock())
    assert (merged.action, merged.by, merged.expires_at) == (Action.UPDATE, "mover", ends)
    assert await contacts.keys("a", "b") == ["b"]
    stays, gone = (contacts.records.hashes({"name": name}) for name in ("Annabel", "Isabel"))
    found = await contacts.store.by_tokens(contacts.records.collection.table, tuple(stays | gone))
    assert found == dict.fromkeys(stays, (merged.rid,))
    assert gone - stays


@table(("source", "destination", "ends"), [(5, 9, 5), (9, 5, 5), (None, 9, 9), (None, None, None)])
async def test_the_whole_ends_at_the_earlier_time(
    source: int | None, destination: int | None, ends: int | None
) -> None:
    contacts = await make_contacts()
    now = contacts.clock()
    at = [None if time is None else now + time for time in (source, destination, ends)]
    await contacts.add(contact("a", expires_at=at[0]), contact("b", expires_at=at[1]))
    await merge_records(contacts.records, "a", "b", "x", no_changes)
    merged = await contacts.get("b")
    assert merged is not None
    assert merged.expires_at == at[2]


async def test_the_history_of_both_is_the_destinations() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a", age=1), contact("b", age=10))
    for number, key in enumerate(("a", "b", "a")):
        contacts.clock.advance(5)
        await change_records(
            contacts.records, [contact(key, age=20 + number)], f"u{number}", no_changes
        )
    contacts.clock.advance(5)
    await merge_records(contacts.records, "a", "b", "mover", no_changes)
    contacts.clock.advance(5)
    await change_records(contacts.records, [contact("b", age=99)], "last", no_changes)
    told, total = await record_versions(contacts.records, "b", 10, 0)
    start = contacts.clock() - 25
    assert [
        (one.by, one.fields["id"], one.fields["age"], one.updated_at - start) for one in told
    ] == [
        ("last", "b", 99, 25), ("mover", "b", 22, 20), ("u2", "a", 22, 15), ("u1", "b", 21, 10),
        ("u0", "a", 20, 5), ("someone", "b", 10, 0), ("someone", "a", 1, 0),
    ]  # fmt: skip
    assert total == 7
    assert len({one.version for one in told}) == 7
    with pytest.raises(VaultError) as caught:
        await record_versions(contacts.records, "a", 10, 0)
    assert caught.value.code is Code.NOT_FOUND


async def test_a_history_of_several_pages_goes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    contacts = await make_contacts(history=HistoryPolicy(keep_deleted=True))
    await contacts.add(contact("a"), contact("b"))
    for age in range(5):
        await change_records(contacts.records, [contact("a", age=age)], "x", no_changes)
    monkeypatch.setattr(module, "_PAGE", 2)
    monkeypatch.setattr(module, "MOST_VERSIONS", 4)
    assert (await refused(contacts)).code is Code.UNPROCESSABLE
    monkeypatch.setattr(module, "MOST_VERSIONS", 5)
    await merge_records(contacts.records, "a", "b", "x", no_changes)
    assert (await record_versions(contacts.records, "b", 10, 0))[1] == 8


async def test_without_a_history_only_the_record_goes_over() -> None:
    contacts = await make_contacts(history=HistoryPolicy(keep=0))
    await contacts.add(contact("a", age=1), contact("b"))
    await merge_records(contacts.records, "a", "b", "x", no_changes)
    told, total = await record_versions(contacts.records, "b", 10, 0)
    assert (total, told[0].fields["age"], told[0].version) == (1, 1, 2)


def file_for(contacts: Contacts, row: Row, name: str) -> Attach:
    file_id = new_id()
    kept = StoredContent(file_id.hex() + "0" * 16, b"s" * 16, 5, "ab" * 32)
    return Attach(file_of(contacts.records.collection, row, kept, Label(name, "text/plain")))


async def with_files(contacts: Contacts, *files: tuple[str, str]) -> None:
    """Two records, and these files: (key of the record, name)."""
    await contacts.add(contact("a"), contact("b"))
    for key, name in files:
        row = await contacts.row(key)
        assert row is not None
        await contacts.store.commit(
            contacts.records.collection.table, [file_for(contacts, row, name)]
        )


async def test_the_files_of_the_source_go_over() -> None:
    contacts = await make_contacts()
    await with_files(contacts, ("a", "one.pdf"), ("a", "two.pdf"), ("b", "three.pdf"))
    await merge_records(contacts.records, "a", "b", "x", no_changes)
    row = await contacts.row("b")
    assert row is not None
    shown = await attachments_of(contacts.records.collection, [row.rid])
    assert sorted(one.filename for one in shown[row.rid]) == ["one.pdf", "three.pdf", "two.pdf"]
    assert await contacts.store.doomed(10) == []


async def test_two_files_of_one_name_stand_against_it_and_nothing_changes() -> None:
    contacts = await make_contacts()
    await with_files(contacts, ("a", "one.pdf"), ("b", "one.pdf"))
    error = await refused(contacts)
    assert (error.code, [detail.source for detail in error.details]) == (
        Code.FILE_EXISTS,
        ["source/0"],
    )
    assert await contacts.keys("a", "b") == ["a", "b"]


async def test_a_file_that_does_not_open_stands_against_it() -> None:
    contacts = await make_contacts()
    await with_files(contacts)
    row, other = await contacts.row("a"), await contacts.row("b")
    assert row is not None
    assert other is not None
    moved = file_for(contacts, other, "one.pdf")
    foreign = moved._replace(file=moved.file._replace(rid=row.rid))
    await contacts.store.commit(contacts.records.collection.table, [foreign])
    assert (await refused(contacts)).code is Code.CANNOT_OPEN
    assert await contacts.keys("a", "b") == ["a", "b"]


async def test_both_records_have_to_exist_and_to_differ() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a"), contact("old", expires_at=contacts.clock()))
    for source, destination, places in (("a", "x", ["destination"]), ("old", "a", ["source"])):
        error = await refused(contacts, source, destination)
        assert (error.code, [detail.source for detail in error.details]) == (Code.NOT_FOUND, places)
    assert len((await refused(contacts, "x", "old")).details) == 2
    assert (await refused(contacts, "a", "a")).code is Code.UNPROCESSABLE
    assert await contacts.keys("a") == ["a"]


async def test_a_migration_that_is_overtaken_is_tried_again_but_not_for_ever() -> None:
    contacts = await make_contacts(store := Overtaken())
    await contacts.add(contact("a"), contact("b"))
    store.times = COMMIT_TRIES
    assert (await refused(contacts)).code is Code.CONFLICT
    store.times = COMMIT_TRIES - 1
    await merge_records(contacts.records, "a", "b", "x", no_changes)
    assert await contacts.keys("a", "b") == ["b"]


async def test_records_of_rules_are_refused() -> None:
    bench = await make_bench()
    with pytest.raises(VaultError) as caught:
        await merge_records(Records(bench.people), "a", "b", "x", no_changes)
    assert caught.value.code is Code.SCHEMA_OF_RULES
