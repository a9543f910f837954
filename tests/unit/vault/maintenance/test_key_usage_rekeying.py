import os

import pytest

from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from proxy.storage.memory import MemoryStore
from proxy.vault.environments import keyset_note, load_keyset, make_keyset
from proxy.vault.maintenance.key_usage import drop_keys, renew_keys, rewrap, wrapper

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
