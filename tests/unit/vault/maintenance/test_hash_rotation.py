"""The run that brings everything under another hash root."""

import asyncio
from typing import Any, cast

import pytest

from proxy.crypto.prf import Digest
from proxy.errors import Code, VaultError
from proxy.model.filter_reader import read_find
from proxy.model.record import DEFAULTS
from proxy.storage.changes import AddVersion, Conflict, Remember
from proxy.storage.notes import Agreement
from proxy.storage.rows import StoredReply
from proxy.vault.environments import load_keyset
from proxy.vault.idempotency import KEEP
from proxy.vault.maintenance.key_rotation import renew_hash_root
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.find import find_page
from proxy.vault.records.update import change_records
from tests.support.contacts import CONTACT, contact
from tests.support.patience import PATIENCE
from tests.support.rerooting import House, fill, hash_house

__all__ = ["hash_house"]


async def test_an_answer_that_is_kept_is_found_under_either_root_and_keeps_the_older_one(
    house: House,
) -> None:
    collection = house.records.collection
    hash_of = house.keyset.hasher("reply", "contact")
    expires = house.contacts.clock() + KEEP
    reply = StoredReply(hash_of(b"k"), expires, b"d" * 16, b"")
    await collection.store.commit(collection.table, [Remember(reply, house.contacts.clock())])
    house.contacts.clock.advance(1)
    await house.rotate()
    now = house.contacts.clock()
    found = await collection.store.reply(collection.table, hash_of(b"k"), now)
    assert found is not None
    with pytest.raises(Conflict):
        await collection.store.commit(
            collection.table, [Remember(reply._replace(key=hash_of(b"k")), now)]
        )
    await house.finish()
    run = house.work.run
    assert run is not None
    assert (run.state, run.left, house.dropped) == ("done", {"replies": 1}, 0)
    await house.work.follow_up()
    assert house.dropped == 0
    house.contacts.clock.advance(KEEP + 1)
    await house.work.follow_up()
    await house.work.settled()
    assert (house.dropped, len(house.keyset.hash_roots)) == (1, 1)


async def test_a_run_goes_on_where_it_was_stopped_and_another_rotation_waits(house: House) -> None:
    await fill(house)
    answers, before = await house.answers(), house.digests()
    await house.rotate()
    with pytest.raises(VaultError) as caught:
        await house.rotate()
    assert caught.value.code is Code.CONFLICT
    await house.work.begin()
    await asyncio.sleep(0)
    await house.work.stop()
    assert house.work.run is not None
    assert house.work.run.state == "stopped"
    keyset = await load_keyset(house.contacts.store, house.master, "test")
    assert isinstance(keyset.hasher("x")(b""), Digest)
    assert await house.answers() == answers
    await house.finish()
    assert not house.digests() & before


async def test_a_rotation_that_is_cut_off_before_it_is_stored_changes_nothing(house: House) -> None:
    await fill(house)
    before = house.digests()
    rotating = asyncio.create_task(
        renew_hash_root(house.contacts.store, house.master, house.keyset, 60.0)
    )
    await asyncio.sleep(0.01)
    assert isinstance(house.records.collection.key_hash("r1"), Digest)
    rotating.cancel()
    await asyncio.gather(rotating, return_exceptions=True)
    assert not isinstance(house.records.collection.key_hash("r1"), Digest)
    assert len(house.keyset.hash_roots) == 1
    assert house.digests() == before


async def test_writes_while_a_run_is_under_way_are_all_kept_and_found_once(house: House) -> None:
    await fill(house)
    before = house.digests()
    await house.rotate()
    over = asyncio.Event()

    async def write() -> int:
        count = 0
        while not over.is_set():
            drafts = [contact(f"w{count}", name=f"New {count}", parent="r1")]
            await store_records(house.records, drafts, "u", no_changes)
            await change_records(
                house.records, [contact(f"r{count % 60}", name=f"Moved {count}")], "u", no_changes
            )
            count += 1
            await asyncio.sleep(0.002)
        return count

    writing = asyncio.create_task(write())
    await house.finish()
    over.set()
    count = await writing
    assert count > 0
    where = {"filter": {"name": {"$like": "new "}}}
    page = await find_page(house.records, read_find(CONTACT, where, DEFAULTS))
    assert page.total == count
    written = [f"w{number}" for number in range(count)]
    assert await house.contacts.keys(*written) == sorted(written)
    assert not house.digests() & before


class Beside:
    """Another owner of the store, who is there or not, and agrees or not; this one leads."""

    slot, there, agrees = 0, True, False

    def __init__(self) -> None:
        self.agreements: list[Agreement] = []

    async def agree(self, agreement: Agreement) -> None:
        self.agreements.append(agreement)

    async def disagreeing(self, agreement: Agreement) -> list[str]:
        mine = [] if agreement in self.agreements else ["instance 0"]
        return [*mine, *([] if self.agrees else ["instance 1"])]

    def leads(self) -> bool:
        return True

    async def alone(self) -> int | None:
        return None if self.there else 1


async def test_beside_another_owner_of_the_store_the_older_root_stays(house: House) -> None:
    await fill(house)
    before = house.digests()
    await house.rotate()
    other = Beside()
    cast(Any, house.contacts.store).replicas = other
    await house.finish()
    run = house.work.run
    assert run is not None
    assert (run.state, run.left, house.dropped) == ("done", {"instances": 1}, 0)
    assert run.retiring == house.keyset.hash_roots[:1]
    assert not house.digests() & before
    house.work._linger = 0.05
    await house.work.follow_up()
    assert list(house.work.blockers) == ["instance 0", "instance 1"]
    while not other.agreements:  # its own work of before has to end
        await asyncio.sleep(house.work._linger / 4)
        await house.work.follow_up()
    assert list(house.work.blockers) == ["instance 1"]
    assert (house.work.run, house.dropped) == (run, 0)
    other.there = False
    await house.work.follow_up()
    await house.work.settled()
    assert (house.dropped, len(house.keyset.hash_roots)) == (1, 1)
    assert house.work.run != run


async def test_once_all_owners_have_agreed_and_a_round_finds_nothing_the_older_root_goes(
    house: House,
) -> None:
    await fill(house)
    store, table = house.contacts.store, house.records.collection.table
    (read, *_) = await store.scan(table, 0, 1)
    await house.rotate()
    other = Beside()
    cast(Any, store).replicas = other
    await house.finish()
    other.agrees = True
    await house.work.follow_up()
    async with asyncio.timeout(PATIENCE):
        while house.work.blockers or not other.agreements:
            await house.work.follow_up()
            await asyncio.sleep(0.001)
        # what another one had read before came to the table before it agreed
        proposed = house.work.run
        assert proposed is not None
        await store.commit(table, [AddVersion(house.records.outlived(read))])
        await house.work.follow_up()
        await house.work.settled()
        again = house.work.run
        assert again is not None
        assert (house.dropped, again.left) == (0, {"instances": 1})
        assert again.proposal not in (0, proposed.proposal), "all have to agree to another one"
        while not house.dropped:
            await house.work.follow_up()
            await house.work.settled()
            await asyncio.sleep(0.001)
    assert house.agreed == Agreement("hashes:test", again.proposal)
    assert len(house.keyset.hash_roots) == 1
