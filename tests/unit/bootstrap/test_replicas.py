"""What a replica reads again when another one has changed it."""

import asyncio

import pytest

from proxy.bootstrap.replicas import Follower
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.memory import MemoryStore
from proxy.storage.notes import RootedNotes
from proxy.vault.environments import accept_notes
from tests.support.patience import PATIENCE


class Told:
    """The other owners of a store, who say when something has changed."""

    slot = 0
    margin = 0

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.counter = 0

    async def heard(self, counter: int) -> None:
        self.counter = counter

    async def changed(self) -> None:
        await self.event.wait()
        self.event.clear()


class Readers:
    """Notes what is read; fails as often as it is told to."""

    def __init__(self) -> None:
        self.read: list[tuple[str, str]] = []
        self.failures = 0

    async def __call__(self, part: str, environment: str) -> None:
        if self.failures:
            self.failures -= 1
            raise VaultError(Code.VAULT_DOWN, "The database is away.")
        self.read.append((part, environment))


@pytest.fixture
async def store() -> RootedNotes:
    made = MemoryStore()
    await accept_notes(made, Keyset.create("default"))
    return made


def follower(store: RootedNotes, readers: Readers, told: Told | None = None) -> Follower:
    return Follower(store, told or Told(), {"clients": readers})  # type: ignore[arg-type]  # what it uses of both is there


async def test_only_what_is_another_than_before_is_read(store: RootedNotes) -> None:
    readers = Readers()
    one = follower(store, readers)
    await store.put_note("clients/7:default", b"1", None)
    await store.put_note("clients/8:eu", b"1", None)
    await store.put_note("audit/abc:default", b"1", None)
    await one.catch_up()
    assert readers.read == [("7", "default"), ("8", "eu")]
    await store.put_note("clients/8:eu", b"2", b"1")
    await one.catch_up()
    await one.catch_up()
    assert readers.read[2:] == [("8", "eu")]


async def test_what_is_gone_is_read_too(store: RootedNotes) -> None:
    readers = Readers()
    one = follower(store, readers)
    await store.put_note("clients/7:default", b"1", None)
    await one.catch_up()
    await store.drop_notes(":default")
    await one.catch_up()
    assert readers.read == [("7", "default")] * 2


async def test_what_could_not_be_read_is_read_later(store: RootedNotes) -> None:
    readers, told = Readers(), Told()
    one = follower(store, readers, told)
    running = asyncio.create_task(one.run())
    await store.put_note("clients/7:default", b"1", None)
    readers.failures = 1
    async with asyncio.timeout(PATIENCE):
        while not readers.read:
            told.event.set()
            await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert readers.read == [("7", "default")]
