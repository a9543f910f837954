from collections.abc import Sequence

import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import Action, Record, RecordDraft
from proxy.storage.changes import Change, Insert, Replace
from proxy.storage.rows import Past
from proxy.vault.collection import HistoryPolicy
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import stage_creates
from proxy.vault.records import delete as module
from proxy.vault.records.commit import COMMIT_TRIES, no_changes
from proxy.vault.records.delete import delete_many, delete_one
from proxy.vault.records.repository import Records
from tests.support.contacts import Contacts, Overtaken, contact, make_contacts
from tests.support.table import table
from tests.support.vaults import draft, make_bench

KEPT = HistoryPolicy(keep_deleted=True)


async def refused(contacts: Contacts, *keys: str, cascade_by: str | None = None) -> Code:
    with pytest.raises(VaultError) as caught:
        await delete_many(contacts.records, keys, "x", no_changes, cascade_by=cascade_by)
    return caught.value.code


async def past(contacts: Contacts, key: str) -> list[Past]:
    collection = contacts.records.collection
    return (await contacts.store.past(collection.table, collection.key_hash(key), 10, 0))[0]


async def test_nothing_of_a_deleted_record_stays() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a", name="Annabel"), contact("b"))
    await delete_one(contacts.records, "a", "x", no_changes)
    assert await contacts.keys("a", "b") == ["b"]
    hashes = tuple(contacts.records.hashes({"name": "Annabel"}))
    assert await contacts.store.by_tokens(contacts.records.collection.table, hashes) == {}
    assert await past(contacts, "a") == []
    assert contacts.events["deleted"] == 1


async def test_a_record_that_is_not_there_or_has_expired_is_not_found() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("old", expires_at=contacts.clock()))
    for key in ("a", "old"):
        with pytest.raises(VaultError) as caught:
            await delete_one(contacts.records, key, "x", no_changes)
        assert caught.value.code is Code.NOT_FOUND


async def test_of_many_those_that_exist_go() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a"), contact("b"), contact("c"))
    await delete_many(contacts.records, ["a", "x", "c", "a"], "x", no_changes)
    assert await contacts.keys("a", "b", "c") == ["b"]
    assert await refused(contacts, "a", "x") is Code.NO_MATCH


def family() -> list[RecordDraft]:
    """A circle of three, one that hangs on it, and one that hangs on nobody who exists."""
    links = {"a": "c", "b": "a", "c": "b", "d": "c", "e": "x"}
    return [contact(key, parent=parent) for key, parent in links.items()]


async def test_what_hangs_on_a_record_goes_with_it_in_circles_too() -> None:
    contacts = await make_contacts()
    await contacts.add(*family())
    await delete_one(contacts.records, "b", "x", no_changes, cascade_by="parent")
    assert await contacts.keys(*"abcde") == ["e"]
    assert contacts.events["deleted"] == 4


async def test_without_being_asked_for_nothing_goes_with_it() -> None:
    contacts = await make_contacts()
    await contacts.add(*family())
    await delete_one(contacts.records, "b", "x", no_changes)
    assert await contacts.keys(*"abcde") == ["a", "c", "d", "e"]


@table("field", ["note", "nobody", "age", "extra", "id"])
async def test_only_texts_that_can_be_asked_for_are_followed(field: str) -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a"))
    assert await refused(contacts, "a", cascade_by=field) is Code.INVALID_INPUT
    assert await contacts.keys("a") == ["a"]


async def test_too_many_records_do_not_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DELETED", 3)
    contacts = await make_contacts()
    await contacts.add(*family())
    assert await refused(contacts, "b", cascade_by="parent") is Code.UNPROCESSABLE
    assert await contacts.keys(*"abcde") == list("abcde")


async def test_a_long_chain_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    contacts = await make_contacts()
    await contacts.add(*[contact(f"{n}", parent=f"{n // 2}") for n in range(1, 30)])
    await delete_one(contacts.records, "2", "x", no_changes, cascade_by="parent")
    left = await contacts.keys(*map(str, range(1, 30)))
    assert sorted(map(int, left)) == [1, 3, 6, 7, *range(12, 16), *range(24, 30)]


async def test_the_history_of_a_deleted_record_stays_where_it_is_kept() -> None:
    contacts = await make_contacts(history=KEPT)
    await contacts.add(contact("a", age=1))
    contacts.clock.advance(5)
    await delete_one(contacts.records, "a", "killer", no_changes)
    opened = [contacts.records.open_past(one, 0) for one in await past(contacts, "a")]
    assert [(one.version, one.action, one.by, one.fields["age"]) for one in opened] == [
        (2, Action.DELETE, "killer", 1),
        (1, Action.CREATE, "someone", 1),
    ]
    assert [one.updated_at for one in opened] == [contacts.clock(), contacts.clock() - 5]
    await contacts.add(contact("a", age=2))
    assert await contacts.keys("a") == ["a"]


@table("history", [HistoryPolicy(), KEPT])
async def test_a_record_that_does_not_open_can_be_deleted(history: HistoryPolicy) -> None:
    contacts = await make_contacts(history=history)
    await contacts.add(contact("a", parent="b"), contact("b"))
    row = await contacts.row("a")
    assert row is not None
    table = contacts.records.collection.table
    await contacts.store.commit(table, [Replace(row._replace(body=b"\0" * 60), 1)])
    assert await refused(contacts, "b", cascade_by="parent") is Code.CANNOT_OPEN
    await delete_one(contacts.records, "a", "x", no_changes)
    assert await contacts.keys("a", "b") == ["b"]
    assert contacts.events["unopenable"] == 2 + history.keep_deleted
    assert contacts.events["tampered"] == 0


async def test_what_closes_a_delete_is_in_its_commit() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a"))
    given: list[Sequence[Record]] = []

    def closing(result: Sequence[Record]) -> Sequence[Change]:
        given.append(result)
        return [Insert(contacts.records.new_row("beside", {"id": "beside"}, 1, "x", None))]

    await delete_one(contacts.records, "a", "x", closing)
    assert (given, await contacts.keys("a", "beside")) == ([()], ["beside"])


async def test_records_of_rules_are_deleted_with_what_is_staged_beside_them() -> None:
    bench = await make_bench()
    held = await stage_creates(bench.people, [draft(name="Ann", email="a@b.se")], [None])
    await bind(bench.people, [(held[0], "7")])
    records = Records(bench.people)
    await delete_one(records, "7", "x", no_changes)
    assert await bench.people.by_key(["7"]) == {}
    assert (await bench.store.count(bench.people.table))[0] == 0


async def test_a_delete_that_is_overtaken_is_tried_again_but_not_for_ever() -> None:
    contacts = await make_contacts(store := Overtaken())
    await contacts.add(contact("a"), contact("b"))
    store.times = COMMIT_TRIES - 1
    await delete_one(contacts.records, "a", "x", no_changes)
    store.times = COMMIT_TRIES
    assert await refused(contacts, "b") is Code.CONFLICT
    assert not len(contacts.records.collection.state.locks)
