import pytest

from proxy.auth.sealed import SealedNote
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.memory import MemoryStore

KEYSET = Keyset.create("default")


async def test_what_is_written_is_read_back_and_lies_sealed():
    store = MemoryStore()
    note = SealedNote(store, KEYSET.aead(), "default", "clients")
    assert await note.read() is None
    await note.write(b"shop")
    await note.write(b"shop and more")
    assert await SealedNote(store, KEYSET.aead(), "default", "clients").read() == b"shop and more"
    assert b"shop" not in (await store.note("clients:default") or b"")


async def test_a_note_moved_to_another_name_does_not_open():
    store = MemoryStore()
    note = SealedNote(store, KEYSET.aead(), "default", "clients")
    await note.write(b"shop")
    await store.put_note("signing:default", await store.note("clients:default") or b"", None)
    with pytest.raises(VaultError) as caught:
        await SealedNote(store, KEYSET.aead(), "default", "signing").read()
    assert caught.value.code is Code.CANNOT_OPEN


async def test_what_another_process_wrote_meanwhile_is_not_undone():
    store = MemoryStore()
    one, other = (SealedNote(store, KEYSET.aead(), "default", "clients") for _ in range(2))
    await one.write(b"one")
    with pytest.raises(VaultError) as caught:
        await other.write(b"other")
    assert caught.value.code is Code.CONFLICT
    assert await other.read() == b"one"
    await other.write(b"both")
    assert await one.read() == b"both"
