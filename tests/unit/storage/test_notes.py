import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.auth.sealed_notes import note_root
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage import open_store
from proxy.storage.base import Store
from proxy.storage.notes import ROOT, NoteWrite, RootedNotes

AEAD = Keyset.create("default").aead()


@pytest.fixture(params=["memory:", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store with two notes under a root."""
    made = await open_store(
        request.param if request.param == "memory:" else f"sqlite:///{tmp_path / 'vault.db'}"
    )
    made.root = note_root(AEAD)
    await made.put_note("clients:default", b"one", None)
    await made.put_note("policies:default", b"all", None)
    yield made
    await made.close()


async def forged(store: Store, **notes: bytes | None) -> None:
    """Write notes as somebody does who has the database and no key."""
    assert isinstance(store, RootedNotes)
    named = {name.replace("_", ":"): content for name, content in notes.items()}
    found = await store.read_notes(list(named))
    await store.write_notes([NoteWrite(name, named[name], found.get(name)) for name in named])


async def refused(store: Store, name: str) -> bool:
    try:
        await store.note(name)
    except VaultError as error:
        return error.code is Code.CANNOT_OPEN and (name in error.message or ROOT in error.message)
    return False


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("clients_default", b"an older one"),
        ("clients_default", None),
        ("signing_default", b"one more"),
    ],
)
async def test_a_note_that_was_changed_put_back_removed_or_added_is_refused_and_alarms_once(
    store: Store, name: str, content: bytes | None
) -> None:
    assert store.root is not None
    alarms: list[str] = []
    store.root.alarm = alarms.append
    await forged(store, **{name: content})
    spelled = name.replace("_", ":")
    assert await refused(store, spelled)
    assert await refused(store, spelled)
    assert await store.check_notes() == {spelled}
    assert alarms == [spelled]
    assert await store.note("policies:default") == b"all", "the others are as good as before"
    with pytest.raises(VaultError) as caught:
        await store.put_note(spelled, b"new", content)
    assert caught.value.code is Code.CANNOT_OPEN, "what was put there is not taken for granted"
    await forged(store, **{name: b"one" if name == "clients_default" else None})
    assert await store.check_notes() == set(), "what is as it was written is no fault any more"


async def test_an_older_root_is_not_taken_with_the_notes_that_it_was_of(store: Store) -> None:
    before = await store.read_notes()
    await store.put_note("clients:default", b"two", b"one")
    await forged(store, root=before[ROOT], clients_default=b"one")
    assert await refused(store, "clients:default")
    assert await store.check_notes() == {ROOT, "clients:default"}
    with pytest.raises(VaultError) as caught:
        await store.put_note("policies:default", b"none", b"all")
    assert caught.value.code is Code.CANNOT_OPEN


@pytest.mark.parametrize("root", [None, b"", b"x" * 99])
async def test_a_root_that_is_gone_or_forged_is_missed(store: Store, root: bytes | None) -> None:
    await forged(store, root=root)
    assert await store.check_notes() == {ROOT}
    again = note_root(AEAD)
    with pytest.raises(VaultError) as caught:
        again.read(root)
    assert caught.value.code is Code.CANNOT_OPEN


async def test_each_write_raises_the_counter_by_one_and_stands_in_the_stored_root(
    store: Store,
) -> None:
    assert store.root is not None
    assert store.root.state.counter == 2
    await store.put_notes(
        [NoteWrite("a:default", b"a", None), NoteWrite("clients:default", None, b"one")]
    )
    await store.drop_notes("nobody")
    again = note_root(AEAD)
    again.read((await store.read_notes((ROOT,)))[ROOT])
    assert (again.state.counter, set(again.state.digests)) == (3, {"a:default", "policies:default"})
    assert (await store.note("clients:default"), await store.note("a:default")) == (None, b"a")


async def test_what_somebody_put_beside_notes_goes_with_them(store: Store) -> None:
    await forged(store, clients_default=None, more_default=b"x")
    await store.drop_notes(":default")
    assert set(await store.read_notes()) == {ROOT}
    assert await store.check_notes() == set()


async def test_a_stale_write_is_a_conflict_and_changes_no_root(store: Store) -> None:
    for writes in (
        [NoteWrite("clients:default", b"x", b"older")],
        [NoteWrite("clients:default", None, b"older")],
        [NoteWrite("new:default", b"x", None), NoteWrite("policies:default", b"x", None)],
    ):
        with pytest.raises(VaultError) as caught:
            await store.put_notes(writes)
        assert caught.value.code is Code.CONFLICT
    assert store.root is not None
    assert store.root.state.counter == 2
    assert await store.note("new:default") is None


async def test_many_write_at_once(store: Store) -> None:
    await asyncio.gather(*(store.put_note(f"{n}:default", b"x", None) for n in range(30)))
    assert store.root is not None
    assert store.root.state.counter == 32
    assert await store.check_notes() == set()


async def test_two_processes_on_one_store_write_each_others_root_on() -> None:
    inner = await open_store("memory:")
    assert isinstance(inner, RootedNotes)
    one, other = _Seat(inner), _Seat(inner)
    for seat in (one, other):
        seat.root = note_root(AEAD)
    await one.put_note("a", b"1", None)
    assert await other.note("a") == b"1", "it reads the root again"
    await other.put_note("b", b"1", None)
    await asyncio.gather(
        *(
            seat.put_note(f"{n}{seat is one}", b"x", None)
            for n in range(20)
            for seat in (one, other)
        )
    )
    assert await one.note("b") == b"1"
    with pytest.raises(VaultError) as caught:
        await one.put_note("b", b"3", b"0")
    assert caught.value.code is Code.CONFLICT
    assert await one.check_notes() == await other.check_notes() == set()
    assert one.root is not None
    assert one.root.state.counter == 42


class _Seat(RootedNotes):
    """One of several processes on a store, with a root of its own in memory."""

    def __init__(self, inner: RootedNotes) -> None:
        super().__init__()
        self._inner = inner

    async def read_notes(self, names=None):
        await asyncio.sleep(0)
        return await self._inner.read_notes(names)

    async def write_notes(self, writes):
        await asyncio.sleep(0)
        await self._inner.write_notes(writes)

    async def notes(self, ending):
        return await self._inner.notes(ending)


async def test_a_cancelled_write_leaves_a_root_that_fits(store: Store) -> None:
    for turns in range(6):
        task = asyncio.create_task(store.put_note(f"{turns}:default", b"x", None))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await store.put_note("last:default", b"x", None)
    assert await store.check_notes() == set()
    assert await store.note("last:default") == b"x"
