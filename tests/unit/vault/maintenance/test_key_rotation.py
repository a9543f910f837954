"""Changes of the keys of an environment, by its only owner and by several (on a PostgreSQL)."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from proxy.storage.notes import AgreedNote, Agreement, NoteWrite
from proxy.storage.postgres.store import PostgresStore
from proxy.vault.both_roots import BothRoots
from proxy.vault.environments import keyset_note, load_keyset, make_keyset
from proxy.vault.maintenance.key_rotation import (
    drop_keys,
    follow_keyset,
    next_keyset_note,
    prepare_next,
    renew_hash_root,
    renew_keys,
    renew_token_root,
    rewrap,
    wait_running,
    wrapper,
)
from tests.support.contacts import contact
from tests.support.memory import MemoryStore
from tests.support.memory_objects import MemoryObjects
from tests.support.patience import PATIENCE
from tests.support.postgres import fresh_address
from tests.support.replicas import open_replica
from tests.support.resealing import opened

SALT, CONTEXT = bytes(16), b"context"


class Interrupted(MemoryStore):
    """A store whose next note is written, or is not, and then the power fails."""

    fails: bool | None = None  #: whether the note is written all the same

    async def put_note(self, name: str, content: bytes, expected: bytes | None) -> None:
        if self.fails is None:
            return await super().put_note(name, content, expected)
        if self.fails:
            await super().put_note(name, content, expected)
        raise VaultError(Code.VAULT_DOWN, "The power failed.")


@pytest.fixture
def master():
    return MasterKey(os.urandom(32))


async def test_everything_new_is_sealed_with_a_fresh_key_and_everything_old_opens(master):
    store = MemoryStore()
    keyset = await make_keyset(store, master, "default")
    aead = keyset.aead()
    old, first = aead.seal(b"old", SALT, CONTEXT), aead.primary
    await renew_keys(store, master, keyset)
    assert aead.primary != first
    new = aead.seal(b"new", SALT, CONTEXT)
    assert (aead.current(old), aead.current(new)) == (False, True)
    again = (await load_keyset(store, master, "default")).aead()
    assert again.primary == aead.primary
    for opener in (aead, again):
        assert [opener.open(sealed, SALT, CONTEXT) for sealed in (old, new)] == [b"old", b"new"]


@pytest.mark.parametrize("written", [True, False])
async def test_interrupted_at_the_writing_the_keyset_in_use_stays_and_what_is_stored_opens(
    master, written
):
    store = Interrupted()
    keyset = await make_keyset(store, master, "default")
    before = keyset.data_keys
    store.fails = written
    with pytest.raises(VaultError):
        await renew_keys(store, master, keyset)
    store.fails = None
    assert keyset.data_keys == before
    assert (await load_keyset(store, master, "default")).data_keys[0] == before[0]
    await renew_keys(store, master, keyset)
    assert keyset.data_keys == (await load_keyset(store, master, "default")).data_keys
    assert len(keyset.data_keys) == 2 + written


async def test_a_keyset_that_has_ended_meanwhile_does_not_come_back(master):
    store = MemoryStore()
    keyset = await make_keyset(store, master, "acme")
    await store.drop_notes(keyset_note("acme"))
    with pytest.raises(VaultError) as caught:
        await renew_keys(store, master, keyset)
    assert caught.value.code is Code.BAD_KEYS
    assert await store.note(keyset_note("acme")) is None


async def test_another_master_key_changes_nothing(master):
    store = MemoryStore()
    keyset = await make_keyset(store, master, "default")
    stored = await store.note(keyset_note("default"))
    for changed in (
        renew_keys(store, MasterKey(os.urandom(32)), keyset),
        rewrap(store, MasterKey(os.urandom(32)), "default"),
    ):
        with pytest.raises(VaultError) as caught:
            await changed
        assert caught.value.code is Code.BAD_KEYS
    assert await store.note(keyset_note("default")) == stored


async def test_a_keyset_is_wrapped_anew_by_a_key_that_knows_the_one_before(master):
    store = MemoryStore()
    keyset = await make_keyset(store, master, "default")
    following = MasterKey(os.urandom(32), [master])
    assert await wrapper(store, "default") == master.id
    assert await rewrap(store, following, "default")
    assert await wrapper(store, "default") == following.id
    assert not await rewrap(store, following, "default")
    assert (await load_keyset(store, following, "default")).data_keys == keyset.data_keys
    with pytest.raises(VaultError):
        await load_keyset(store, master, "default")


async def test_what_does_not_read_back_as_it_was_written_is_told_and_not_used(master, monkeypatch):
    store = MemoryStore()
    keyset = await make_keyset(store, master, "default")
    other, before = Keyset.create("default").wrap(master), keyset.data_keys
    answers = iter([await store.note(keyset_note("default")), other])

    async def note(_name: str) -> bytes | None:
        return next(answers)

    monkeypatch.setattr(store, "note", note)
    with pytest.raises(VaultError) as caught:
        await renew_keys(store, master, keyset)
    assert caught.value.code is Code.BAD_STORE
    assert keyset.data_keys == before


@pytest.mark.parametrize("written", [True, False])
async def test_a_data_key_is_dropped_whole_or_not_at_all(master, written):
    store = Interrupted()
    keyset = await make_keyset(store, master, "default")
    await renew_keys(store, master, keyset)
    first, second = keyset.data_keys
    store.fails = written
    with pytest.raises(VaultError):
        await drop_keys(store, master, keyset, [first])
    store.fails = None
    assert set(keyset.data_keys) == {first, second}
    assert (await load_keyset(store, master, "default")).data_keys == (
        (second,) if written else (first, second)
    )
    await drop_keys(store, master, keyset, [first])
    assert keyset.data_keys == (await load_keyset(store, master, "default")).data_keys == (second,)
    await renew_keys(store, master, keyset)
    assert len(keyset.data_keys) == 2


class Overtaken(MemoryStore):
    """A store in which another owner is faster, once."""

    first: Callable[[], Awaitable[Any]] | None = None

    async def put_note(self, name: str, content: bytes, expected: bytes | None) -> None:
        if self.first is not None:
            first, self.first = self.first, None
            await first()
        await super().put_note(name, content, expected)


@pytest.mark.parametrize("read", [True, False])
async def test_two_owners_that_drop_the_same_key_at_once_both_have_it_gone(master, read):
    """``read``: the second has read the keys before the first has written them."""
    store = Overtaken()
    keyset = await make_keyset(store, master, "default")
    await renew_keys(store, master, keyset)
    other = await load_keyset(store, master, "default")
    first, second = keyset.data_keys

    async def faster() -> None:
        assert await drop_keys(store, master, keyset, [first])

    if read:
        store.first = faster
    else:
        await faster()
    assert not await drop_keys(store, master, other, [first])
    assert keyset.data_keys == other.data_keys == (second,)


async def test_a_key_stays_where_the_keys_were_changed_while_it_was_dropped(master):
    store = Overtaken()
    keyset = await make_keyset(store, master, "default")
    await renew_keys(store, master, keyset)
    other = await load_keyset(store, master, "default")
    store.first = lambda: renew_keys(store, master, other)
    with pytest.raises(VaultError) as caught:
        await drop_keys(store, master, keyset, keyset.data_keys[:1])
    assert caught.value.code is Code.CONFLICT
    assert len((await load_keyset(store, master, "default")).data_keys) == 3


async def test_while_the_process_stands_still_no_time_passes_for_requests_under_way():
    """A request that was stopped in the middle still knows no hash under the next root."""
    waiting = asyncio.create_task(wait_running(0.5))
    await asyncio.sleep(0)  # it waits for its first part, of which a pause takes no more
    time.sleep(0.6)  # noqa: ASYNC251  # as a SIGSTOP does
    since = time.monotonic()
    await waiting
    assert time.monotonic() - since > 0.2
    since = time.monotonic()
    await wait_running(0.0)
    await wait_running(0.1)
    assert time.monotonic() - since > 0.09


# ---- several owners of a store


class Owner:
    """One of several owners of a store, with its keyset."""

    def __init__(self, store: PostgresStore, master: MasterKey, keyset: Keyset) -> None:
        self.store, self.master, self.keyset = store, master, keyset
        self.looks: asyncio.Task[None] | None = None

    async def load(self) -> MasterKey:
        return self.master

    async def look(self) -> None:
        """What an owner does as soon as it hears of another keyset."""
        replicas = self.store.replicas
        assert replicas is not None
        coming = await self.store.note(next_keyset_note("default"))
        await follow_keyset(self.store, self.master, self.keyset)
        agreement = await prepare_next(coming, self.load, self.keyset)
        if agreement is not None:
            await replicas.agree(agreement)

    async def looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(0.02)

    def begin(self) -> None:
        self.looks = asyncio.create_task(self.looking())

    async def end(self) -> None:
        if self.looks is not None:
            self.looks.cancel()
            with suppress(asyncio.CancelledError):
                await self.looks
        self.looks = None


@pytest.fixture
async def owners(master) -> AsyncIterator[tuple[Owner, Owner]]:
    address = fresh_address(replicas="true")
    first = await open_replica(address)
    one = Owner(first, master, await make_keyset(first, master, "default"))
    second = await open_replica(address)
    two = Owner(second, master, await load_keyset(second, master, "default"))
    yield one, two
    for owner in (one, two):
        await owner.end()
        await owner.store.close()


async def test_what_one_owner_seals_hashes_and_mints_under_new_keys_the_others_open_find_and_resolve(
    owners,
):
    one, two = owners
    hashed = {owner: owner.keyset.hasher("field", "people", "email") for owner in owners}
    texts = {owner: owner.keyset.sealed_texts("cursor") for owner in owners}
    tokens = {owner: owner.keyset.field_keys("people", "email") for owner in owners}
    steps: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: renew_keys(one.store, one.master, one.keyset),
        lambda: renew_token_root(two.store, two.master, two.keyset),
        lambda: renew_hash_root(one.store, one.master, one.keyset, 0.0),
    )
    for owner in owners:
        owner.begin()
    for step in steps:
        async with asyncio.timeout(PATIENCE):
            await step()
        # the other one knows the new keys before anything is under them, whether it uses them or not
        for new, other in (owners, owners[::-1]):
            sealed = new.keyset.aead().seal(b"body", SALT, CONTEXT)
            assert other.keyset.aead().open(sealed, SALT, CONTEXT) == b"body"
            assert hashed[other](b"ann@example.com") == hashed[new](b"ann@example.com")
            assert texts[other].open(texts[new].seal(b"position", b"of"), b"of") == b"position"
            assert tokens[other].open_block(tokens[new].block(7, 3)) == (7, 3)
    async with asyncio.timeout(PATIENCE):
        while not one.keyset.same(two.keyset):  # noqa: ASYNC110  # each follows by itself
            await asyncio.sleep(0.02)
    assert (len(one.keyset.data_keys), len(one.keyset.token_roots), len(one.keyset.hash_roots)) == (
        2, 2, 2,
    )  # fmt: skip
    assert await one.store.note(next_keyset_note("default")) is None
    assert (await load_keyset(one.store, one.master, "default")).same(two.keyset)


async def test_an_owner_that_does_not_agree_in_time_keeps_the_keys_of_before_and_is_named(owners):
    one, two = owners
    stored = await one.store.note(keyset_note("default"))
    one.begin()
    with pytest.raises(VaultError) as caught:
        await renew_keys(one.store, one.master, one.keyset, 1.0)
    assert (caught.value.code, "instance 1" in caught.value.message) == (
        Code.REPLICAS_RUNNING, True,
    )  # fmt: skip
    assert await one.store.note(keyset_note("default")) == stored
    assert await one.store.note(next_keyset_note("default")) is None
    await two.look()
    two.begin()
    await renew_keys(one.store, one.master, one.keyset)  # as soon as it does
    assert len(one.keyset.data_keys) == 2


async def test_an_owner_without_the_new_master_key_keeps_it_from_wrapping(owners):
    one, two = owners
    following = MasterKey(os.urandom(32), [one.master])
    one.master = following
    one.begin()
    wrapping = asyncio.create_task(rewrap(one.store, following, "default", 1.0))
    while await two.store.note(next_keyset_note("default")) is None:  # noqa: ASYNC110  # of another
        await asyncio.sleep(0.02)
    with pytest.raises(VaultError) as caught:
        await two.look()
    assert caught.value.code is Code.BAD_KEYS
    with pytest.raises(VaultError) as caught:
        await wrapping
    assert caught.value.code is Code.REPLICAS_RUNNING
    two.master = MasterKey(b"k" * 32, [following, *following.others.values()])
    two.begin()
    assert await rewrap(one.store, following, "default")
    assert await wrapper(two.store, "default") == following.id


async def test_a_next_keyset_of_an_owner_that_is_gone_is_replaced(owners):
    one, two = owners
    left = one.keyset.rotated().wrap(one.master)
    await one.store.put_note(next_keyset_note("default"), left, None)
    for owner in owners:
        owner.begin()
    async with asyncio.timeout(PATIENCE):  # its lock went with it, so nothing is waited for
        await renew_keys(two.store, two.master, two.keyset)
    assert (await load_keyset(one.store, one.master, "default")).same(two.keyset)
    assert not Keyset.unwrap(left, one.master).same(two.keyset)


async def test_a_keyset_that_lost_an_older_key_meanwhile_is_renewed_from_what_is_left(owners):
    one, two = owners
    name = keyset_note("default")
    for owner in owners:
        owner.begin()
    await renew_keys(one.store, one.master, one.keyset)
    first, second = one.keyset.data_keys
    await two.end()
    await two.look()  # the one that drops a key has followed the others
    renewal = asyncio.create_task(renew_keys(one.store, one.master, one.keyset))
    while await two.store.note(next_keyset_note("default")) is None:  # noqa: ASYNC110  # of another
        await asyncio.sleep(0.02)
    before = await two.store.note(name)
    assert before is not None
    agreement = Agreement("reseal:default", 1)
    for owner in owners:
        assert owner.store.replicas is not None
        await owner.store.replicas.agree(agreement)
    less = Keyset.unwrap(before, one.master).without([first]).wrap(one.master)
    await two.store.put_notes([AgreedNote.of(NoteWrite(name, less, before), agreement)])
    two.begin()
    async with asyncio.timeout(PATIENCE):
        await renewal
    stored = await load_keyset(one.store, one.master, "default")
    assert (len(stored.data_keys), stored.data_keys[0]) == (2, second)
    assert stored.same(one.keyset)


@pytest.mark.parametrize("key", ["token", "hash"])
async def test_a_rotation_asked_for_during_another_follows_it_or_is_refused_and_holds_nobody_up(
    owners, key
):
    one, two = owners

    def renewal(of: Owner) -> Awaitable[None]:
        if key == "token":
            return renew_token_root(of.store, of.master, of.keyset)
        return renew_hash_root(of.store, of.master, of.keyset, 0.0)

    put, proposed = two.store.put_notes, 0

    async def counted(writes: Sequence[NoteWrite]) -> None:
        nonlocal proposed
        proposed += any(w.name == next_keyset_note("default") and w.content for w in writes)
        await put(writes)

    two.store.put_notes = counted
    one.begin()
    first = asyncio.ensure_future(renewal(one))
    while await two.store.note(next_keyset_note("default")) is None:  # noqa: ASYNC110  # of another
        await asyncio.sleep(0.02)
    second = asyncio.ensure_future(renewal(two))
    await asyncio.sleep(0.2)  # it waits for the first one
    two.begin()
    async with asyncio.timeout(PATIENCE):
        await first
        results = await asyncio.gather(second, return_exceptions=True)
    codes = [one.code for one in results if isinstance(one, VaultError)]
    assert codes == ([Code.CONFLICT] if key == "hash" else [])
    assert proposed == (0 if key == "hash" else 1), "nobody is shown keys that follow no others"
    assert [owner.looks.done() for owner in owners if owner.looks is not None] == [False, False]
    stored = await load_keyset(one.store, one.master, "default")
    assert (len(stored.token_roots), len(stored.hash_roots)) == (
        (3, 1) if key == "token" else (1, 2)
    )
    assert await one.store.note(next_keyset_note("default")) is None


async def test_a_key_is_given_once_while_one_owner_is_at_the_next_hash_root_and_another_is_not(
    monkeypatch,
):
    """Each looks for the key under the other root, and both found none before either wrote."""
    address, master = fresh_address(replicas="true"), MasterKey(os.urandom(32))
    objects, bare = MemoryObjects(), BothRoots._bare

    async def looked(*arguments: Any) -> Any:
        found = await bare(*arguments)
        await asyncio.sleep(0.05)
        return found

    monkeypatch.setattr(BothRoots, "_bare", looked)
    one, two = [await opened(await open_replica(address), objects, master) for _ in range(2)]
    try:
        fresh = one.vault.keyset.with_hash_root()
        for desk in (one, two):
            desk.vault.keyset.prepare(fresh)
            desk.vault.both_roots.ask_both(on=True)
        one.vault.keyset.adopt(fresh)
        two.contacts.clock.advance(1)  # their records have numbers of their own
        for number in range(3):
            made = await asyncio.gather(
                *(desk.contacts.add(contact(f"k{number}")) for desk in (one, two)),
                return_exceptions=True,
            )
            refused = [one.code for one in made if isinstance(one, VaultError)]
            assert (refused, len(made)) == ([Code.RECORD_EXISTS], 2), made
    finally:
        for desk in (one, two):
            await desk.close()
            await desk.store.close()
