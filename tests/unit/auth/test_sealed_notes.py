import asyncio
from collections.abc import Sequence

import pytest

from proxy.auth.sealed_notes import SealedNote, seal_again
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.notes import NoteWrite
from tests.support.memory import MemoryStore

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


async def test_a_note_is_sealed_anew_beside_who_knows_it_and_what_somebody_has_written_is_not_undone():
    store, keyset = MemoryStore(), Keyset.create("default")
    aead = keyset.aead()
    one = SealedNote(store, aead, "default", "clients")
    await one.write(b"one")
    first = await store.note("clients:default")
    assert not await seal_again(store, aead, "clients:default")  # it is sealed with the key of now
    keyset.adopt(keyset.rotated())
    assert await seal_again(store, aead, "clients:default")
    assert await store.note("clients:default") != first
    await one.write(b"two")
    other = SealedNote(store, aead, "default", "clients")
    assert await other.read() == b"two"
    await other.write(b"three")
    with pytest.raises(VaultError) as caught:
        await one.write(b"four")
    assert caught.value.code is Code.CONFLICT


async def test_what_is_no_sealed_note_is_left_alone_and_what_does_not_open_is_told():
    store, keyset = MemoryStore(), Keyset.create("default")
    aead = keyset.aead()
    await store.put_note("plain", b"a text that is longer than a salt and a head", None)
    assert not await seal_again(store, aead, "plain")
    assert not await seal_again(store, aead, "none")
    await SealedNote(store, aead, "default", "clients").write(b"one")
    await store.put_note("moved:default", await store.note("clients:default") or b"", None)
    keyset.adopt(keyset.rotated())
    with pytest.raises(VaultError) as caught:
        await seal_again(store, aead, "moved:default")
    assert caught.value.code is Code.CANNOT_OPEN


async def test_a_note_that_is_written_while_it_is_sealed_anew_stays_as_it_was_written():
    class Overtaken(MemoryStore):
        async def note(self, name: str) -> bytes | None:
            found = await super().note(name)
            self._notes[name] = b"written meanwhile"
            return found

    store, keyset = Overtaken(), Keyset.create("default")
    await SealedNote(store, keyset.aead(), "default", "clients").write(b"one")
    keyset.adopt(keyset.rotated())
    assert not await seal_again(store, keyset.aead(), "clients:default")
    assert store._notes["clients:default"] == b"written meanwhile"


class SlowStore(MemoryStore):
    """Its next write of notes waits for ``begin``, if that is there."""

    begin: asyncio.Event | None = None

    async def put_notes(self, writes: Sequence[NoteWrite]) -> None:
        """Write them, at last."""
        begin, self.begin = self.begin, None
        if begin is not None:
            await begin.wait()
        await super().put_notes(writes)


async def test_a_read_beside_a_write_that_is_too_late_does_not_let_it_undo_another():
    store = SlowStore()
    one, other = (SealedNote(store, KEYSET.aead(), "default", "clients") for _ in range(2))
    await one.write(b"one")
    await other.read()
    store.begin = begin = asyncio.Event()
    writing = asyncio.create_task(one.write(b"from one"))
    await asyncio.sleep(0)
    await other.write(b"other")
    reading = asyncio.create_task(one.read())
    await asyncio.sleep(0)
    begin.set()
    with pytest.raises(VaultError) as caught:
        await writing
    assert (caught.value.code, await reading) == (Code.CONFLICT, b"other")
