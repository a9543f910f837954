import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import Action
from proxy.storage.changes import AddVersion, Replace
from proxy.storage.rows import Past
from proxy.vault.collection import HistoryPolicy
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import stage_creates
from proxy.vault.records.commit import no_changes
from proxy.vault.records.delete import delete_one
from proxy.vault.records.history import record_versions
from proxy.vault.records.repository import Records
from proxy.vault.records.update import change_records
from tests.support.contacts import Contacts, contact, make_contacts
from tests.support.memory import MemoryStore
from tests.support.vaults import draft, make_bench

KEPT = HistoryPolicy(keep_deleted=True)


async def ages(contacts: Contacts, limit: int = 10, offset: int = 0) -> tuple[list[int], int]:
    told, total = await record_versions(contacts.records, "a", limit, offset)
    return [one.fields["age"] for one in told], total


async def refused(contacts: Contacts) -> Code:
    with pytest.raises(VaultError) as caught:
        await record_versions(contacts.records, "a", 10, 0)
    return caught.value.code


async def grown(contacts: Contacts, versions: int) -> None:
    """A record whose age counts its versions."""
    await contacts.add(contact("a", age=1))
    for age in range(2, versions + 1):
        contacts.clock.advance(1)
        await change_records(contacts.records, [contact("a", age=age)], f"u{age}", no_changes)


async def test_the_newest_version_comes_first_and_each_tells_who_made_it_and_when() -> None:
    contacts = await make_contacts()
    await grown(contacts, 3)
    told, total = await record_versions(contacts.records, "a", 10, 0)
    now = contacts.clock()
    assert [(one.version, one.action, one.by, one.updated_at) for one in told] == [
        (3, Action.UPDATE, "u3", now),
        (2, Action.UPDATE, "u2", now - 1),
        (1, Action.CREATE, "someone", now - 2),
    ]
    assert {one.created_at for one in told} == {now - 2}
    assert total == 3


async def test_pages_are_parts_of_the_whole() -> None:
    contacts = await make_contacts()
    await grown(contacts, 5)
    assert await ages(contacts, 2) == ([5, 4], 5)
    assert await ages(contacts, 2, 1) == ([4, 3], 5)
    assert await ages(contacts, 2, 4) == ([1], 5)
    assert await ages(contacts, 2, 5) == ([], 5)
    assert await ages(contacts, 1) == ([5], 5)


async def test_a_deleted_record_has_a_history_where_it_is_kept() -> None:
    contacts = await make_contacts(history=KEPT)
    await grown(contacts, 2)
    await delete_one(contacts.records, "a", "killer", no_changes)
    told, total = await record_versions(contacts.records, "a", 10, 0)
    assert [(one.action, one.by) for one in told] == [
        (Action.DELETE, "killer"),
        (Action.UPDATE, "u2"),
        (Action.CREATE, "someone"),
    ]
    assert {one.created_at for one in told} == {contacts.clock() - 1}
    assert total == 3
    contacts.clock.advance(1)
    await contacts.add(contact("a", age=7))
    assert await ages(contacts) == ([7, 2, 2, 1], 4)


async def test_else_there_is_nothing_to_tell() -> None:
    contacts = await make_contacts()
    assert await refused(contacts) is Code.NOT_FOUND
    await grown(contacts, 2)
    await delete_one(contacts.records, "a", "x", no_changes)
    assert await refused(contacts) is Code.NOT_FOUND


async def test_a_record_that_has_expired_has_none_before_it_is_swept_and_none_is_left_in_the_store() -> (
    None
):
    contacts = await make_contacts(history=KEPT)
    await grown(contacts, 2)
    await change_records(
        contacts.records, [contact("a", expires_at=contacts.clock())], "x", no_changes
    )
    assert await refused(contacts) is Code.NOT_FOUND
    assert await contacts.row("a") is None


async def test_a_past_version_that_does_not_open_is_left_out_and_the_present_one_is_an_error() -> (
    None
):
    contacts = await make_contacts()
    await grown(contacts, 2)
    row = await contacts.row("a")
    assert row is not None
    collection = contacts.records.collection
    foreign = Past(row.rid, 9, row.key or b"", contacts.clock(), row.salt, row.body)
    await contacts.store.commit(collection.table, [AddVersion(foreign)])
    assert (await ages(contacts))[0] == [2, 1]
    assert contacts.events["unopenable"] == 1
    await contacts.store.commit(collection.table, [Replace(row._replace(body=b"\0" * 60), 2)])
    assert await refused(contacts) is Code.CANNOT_OPEN
    assert (await ages(contacts, 10, 1))[0] == [1]


class Racing(MemoryStore):
    """Lets an update come between the look at the row and the look at its past."""

    contacts: Contacts | None = None

    async def past(
        self, table: str, key: bytes, limit: int, offset: int, room: int | None = None
    ) -> tuple[list[Past], int]:
        if self.contacts is not None:
            contacts, self.contacts = self.contacts, None
            await change_records(contacts.records, [contact("a", age=3)], "x", no_changes)
        return await super().past(table, key, limit, offset, room)


async def test_an_update_meanwhile_neither_hides_nor_doubles_a_version() -> None:
    store = Racing()
    contacts = await make_contacts(store)
    await grown(contacts, 2)
    store.contacts = contacts
    assert await ages(contacts) == ([3, 2, 1], 3)


async def test_the_history_of_a_record_of_rules_is_its_present_version_and_its_end() -> None:
    bench = await make_bench()
    held = await stage_creates(bench.people, [draft(name="Ann", tags=["a", "b"])], [None])
    await bind(bench.people, [(held[0], "7")])
    bench.people.context = bench.people.context._replace(history=KEPT)
    records = Records(bench.people)
    told, total = await record_versions(records, "7", 10, 0)
    assert (told[0].fields, total) == ({"name": "Ann", "tags": ["a", "b"]}, 1)
    await delete_one(records, "7", "killer", no_changes)
    told, total = await record_versions(records, "7", 10, 0)
    assert [(one.key, one.fields, one.by) for one in told] == [
        ("7", {"name": "Ann", "tags": ["a", "b"]}, "killer"),
        ("7", {"name": "Ann", "tags": ["a", "b"]}, ""),
    ]
