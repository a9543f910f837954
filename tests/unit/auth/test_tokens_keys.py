import pytest

from proxy.auth.tokens import LONGEST_LIFETIME, SIGNING_KEY_LIFETIME, SigningKeys
from proxy.clock import ManualClock
from proxy.crypto.jws import signed_by
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.memory import MemoryStore

KEYSET = Keyset.create("default")


async def opened(store: MemoryStore, clock: ManualClock) -> SigningKeys:
    keys = SigningKeys(store, KEYSET.aead(), "default", clock)
    await keys.load()
    return keys


async def test_the_key_is_the_same_after_a_restart_and_lies_sealed():
    store, clock = MemoryStore(), ManualClock()
    keys = await opened(store, clock)
    again = await opened(store, clock)
    assert again.current.kid == keys.current.kid
    assert keys.current.seed() not in b"".join(store._notes.values())


async def test_a_key_of_age_is_replaced_and_goes_on_verifying():
    clock = ManualClock()
    keys = await opened(MemoryStore(), clock)
    before, token = keys.current.kid, keys.current.sign(b"{}", "k")
    clock.advance(SIGNING_KEY_LIFETIME - 1)
    await keys.upkeep()
    assert keys.current.kid == before
    clock.advance(1)
    await keys.upkeep()
    assert keys.current.kid != before
    assert signed_by(token, keys.known, "k") == b"{}"
    assert [key["kid"] for key in keys.public()] == [keys.current.kid, before]


async def test_a_retired_key_is_forgotten_when_its_last_token_has_ended():
    store, clock = MemoryStore(), ManualClock()
    keys = await opened(store, clock)
    before = keys.current.kid
    await keys.rotate()
    clock.advance(LONGEST_LIFETIME * 1000)
    await keys.upkeep()
    assert before in keys.known
    clock.advance(1)
    await keys.upkeep()
    assert list(keys.known) == [keys.current.kid]
    assert list((await opened(store, clock)).known) == [keys.current.kid]


async def test_an_old_key_is_replaced_at_the_start():
    store, clock = MemoryStore(), ManualClock()
    before = (await opened(store, clock)).current.kid
    clock.advance(10 * SIGNING_KEY_LIFETIME)
    keys = await opened(store, clock)
    assert keys.current.kid != before
    assert before in keys.known  # a token signed a moment before the stop


async def test_a_store_that_cannot_be_written_leaves_the_key_in_use(monkeypatch):
    store, clock = MemoryStore(), ManualClock()
    keys = await opened(store, clock)
    before = keys.current.kid

    async def full(*_: object) -> None:
        raise VaultError(Code.VAULT_DOWN, "the disk is full")

    monkeypatch.setattr(store, "put_note", full)
    with pytest.raises(VaultError):
        await keys.rotate()
    assert keys.current.kid == before
    monkeypatch.undo()
    await keys.rotate()
    assert list(keys.known) == [before, keys.current.kid]


async def test_two_processes_agree_on_the_key_that_was_made_first():
    store, clock = MemoryStore(), ManualClock()
    one, other = await opened(store, clock), await opened(store, clock)
    await one.rotate()
    await other.rotate()
    assert other.current.kid == one.current.kid
