"""While a hash root is rotated, what is there under the older root is found, and taken."""

from typing import Any

import pytest

from proxy.crypto.prf import Digest
from proxy.errors import Code, VaultError
from proxy.model.filter_reader import read_aggregate
from proxy.model.record import DEFAULTS
from proxy.storage.changes import Bind, Conflict, Release
from proxy.storage.rows import Past
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import stage_creates
from proxy.vault.records.aggregate import aggregate_groups
from proxy.vault.records.commit import no_changes
from proxy.vault.records.delete import delete_many
from proxy.vault.records.history import record_versions
from proxy.vault.records.update import change_records
from tests.support.contacts import CONTACT, contact
from tests.support.rerooting import House, fill, hash_house
from tests.support.vaults import draft, person

__all__ = ["hash_house"]


async def test_a_key_or_a_file_that_is_there_under_the_older_root_is_taken_under_the_newer_one(
    house: House,
) -> None:
    files = await fill(house)
    await house.rotate()
    with pytest.raises(VaultError) as caught:
        await house.contacts.add(contact("r5"))
    assert caught.value.code is Code.RECORD_EXISTS
    with pytest.raises(VaultError) as caught:
        await files.add(b"other", "cv.pdf", "r1")
    assert caught.value.code is Code.FILE_EXISTS
    await change_records(house.records, [contact("r5", name="Bo Alm")], "u", no_changes)
    await delete_many(house.records, ["r6"], "u", no_changes)
    await house.contacts.add(contact("new", name="Ann Ek 6"))
    expected = await house.answers()
    await house.finish()
    assert await house.answers() == expected
    assert await house.contacts.keys("r5", "r6", "new") == ["new", "r5"]


async def test_a_name_passes_from_one_record_to_another_under_either_root(house: House) -> None:
    people = await house.vault.collection(person())
    (first,) = await stage_creates(people, [draft(name="Ann")], [None])
    await bind(people, [(first, "1")])
    before = people.key_hash("1")
    await house.rotate()
    (second,) = await stage_creates(people, [draft(name="Bo")], [None])
    with pytest.raises(Conflict):
        await people.store.commit(
            people.table, [Bind(second.rid, people.key_hash("1"), b"", people.clock())]
        )
    await bind(people, [(second, "1")])
    digest = people.key_hash("1")
    assert isinstance(digest, Digest)
    assert (digest.other, digest) == (before, before)
    assert (await people.by_key(["1"]))["1"].rid == second.rid
    await people.store.commit(people.table, [Release(digest, 0, people.clock())])
    assert await people.by_key(["1"]) == {}


async def test_a_value_under_both_roots_is_one_group_on_whichever_page(house: House) -> None:
    await house.contacts.add(*[contact(f"r{n}", parent=f"p{n % 7}", age=n) for n in range(21)])
    counting = {"group_by": {"keys": ["parent"], "limit": 3}, "metrics": {"n": {"func": "count"}}}

    async def groups() -> dict[object, object]:
        found = await aggregate_groups(
            house.records, read_aggregate(CONTACT, counting, DEFAULTS), "me"
        )
        told = list(found.groups)
        while found.next is not None:
            asked = read_aggregate(CONTACT, {"next": found.next}, DEFAULTS)
            found = await aggregate_groups(house.records, asked, "me")
            told += found.groups
        assert len({group.keys["parent"] for group in told}) == len(told)
        return {group.keys["parent"]: group.metrics["n"] for group in told}

    expected = {f"p{n}": 3 for n in range(7)}
    assert await groups() == expected
    await house.rotate()
    some = [contact(f"r{n}", parent=f"p{n % 7}", note="new") for n in range(0, 21, 2)]
    await change_records(house.records, some, "u", no_changes)
    assert await groups() == expected
    await house.finish()
    assert await groups() == expected


async def test_a_page_of_a_history_reads_no_more_than_it_shows(house: House) -> None:
    await house.contacts.add(contact("long", name="Ann Ek"))
    for number in range(30):
        house.contacts.clock.advance(1)
        changed = contact("long", name=f"Ann {number} " + "x" * 150)
        await change_records(house.records, [changed], "u", no_changes)
    expected = [await record_versions(house.records, "long", 5, offset, 4096) for offset in (0, 20)]
    await house.rotate()
    store, read = house.vault.both_roots._store, list[int]()
    past = store.past

    async def counted(*asked: Any) -> tuple[list[Past], int]:
        page, total = await past(*asked)
        read.append(sum(len(one.body) for one in page))
        return page, total

    setattr(store, "past", counted)  # noqa: B010  # of this one store
    for offset, (versions, total) in zip((0, 20), expected, strict=True):
        read.clear()
        again, count = await record_versions(house.records, "long", 5, offset, 4096)
        assert (again, count) == (versions, total)
        assert sum(read) <= 4096
