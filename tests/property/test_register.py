"""Single records are linearizable: whatever clients do at the same time, some order of it explains
every answer.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage import open_store
from proxy.storage.base import Store
from proxy.vault.expiry import delete_expired, prune
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.delete import delete_one
from proxy.vault.records.update import change_records
from tests.support.contacts import Contacts, contact, make_contacts
from tests.support.postgres import fresh_address
from tests.support.register import Done, linearizable
from tests.support.replicas import open_replica

_CLIENTS = 5
_CALLS = 6
_ROUNDS = 25
_VERBS = ("create", "create", "brief", "put", "update", "update", "delete", "read", "read")
_REFUSED = (Code.RECORD_EXISTS, Code.NOT_FOUND)


class Hesitant:
    """A store before and behind each of whose verbs others come to their turn, as chance wants it."""

    def __init__(self, store: Store, chance: Random) -> None:
        self._store = store
        self._chance = chance

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        verb = getattr(self._store, name)

        async def hesitating(*arguments: Any) -> Any:
            await self._others()
            try:
                return await verb(*arguments)
            finally:
                await self._others()

        return hesitating

    async def _others(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)


class Client:
    """One of several clients of one record; ``history`` and ``tick`` are everybody's."""

    def __init__(
        self, contacts: Contacts, history: list[Done], ticks: list[int], chance: Random
    ) -> None:
        self._contacts = contacts
        self._history = history
        self._ticks = ticks
        self._chance = chance

    async def work(self) -> None:
        for _ in range(_CALLS):
            verb, value, begin = self._chance.choice(_VERBS), self._tick(), self._tick()
            try:
                told, ok = await getattr(self, f"_{verb}")(value), True
            except VaultError as error:
                if error.code not in _REFUSED:
                    raise
                told, ok = None, False
            if verb == "update":
                ok = told is not None
            self._history.append(Done(verb, value, told, ok, begin, self._tick()))

    def _tick(self) -> int:
        self._ticks[0] += 1
        return self._ticks[0]

    async def _create(self, value: int) -> int:
        (made,) = await store_records(
            self._contacts.records, [contact("a", age=value)], "x", no_changes
        )
        return int(made.fields["age"])

    async def _brief(self, value: int) -> None:
        draft = contact("a", age=value, expires_at=self._contacts.clock())
        await store_records(self._contacts.records, [draft], "x", no_changes)

    async def _put(self, value: int) -> int:
        drafts = [contact("a", age=value)]
        (made,) = await store_records(
            self._contacts.records, drafts, "x", no_changes, on_existing="update"
        )
        return int(made.fields["age"])

    async def _update(self, value: int) -> int | None:
        made = await change_records(
            self._contacts.records, [contact("a", age=value)], "x", no_changes
        )
        return int(made[0].fields["age"]) if made else None

    async def _delete(self, _value: int) -> None:
        await delete_one(self._contacts.records, "a", "x", no_changes)

    async def _read(self, _value: int) -> int | None:
        found = await self._contacts.get("a")
        return None if found is None else int(found.fields["age"])


async def tidied(contacts: Contacts, over: asyncio.Event) -> None:
    """The janitor, all the while."""
    while not over.is_set():
        await delete_expired(contacts.records.collection)
        await prune(contacts.records.collection)
        await asyncio.sleep(0)


@asynccontextmanager
async def records(engine: str, folder: Path, chance: Random) -> AsyncIterator[list[Contacts]]:
    """The records of one instance, or of two replicas."""
    uri, keyset = engine.format(folder) or fresh_address(replicas="true"), Keyset.create("test")
    stores: list[Store] = []
    every: list[Contacts] = []
    try:
        for _ in range(1 if engine else 2):
            stores.append(await (open_store(uri) if engine else open_replica(uri)))
            every.append(await make_contacts(stores[-1], keyset))
            every[-1].records.collection.store = Hesitant(stores[-1], chance)  # type: ignore[assignment]  # has every verb of it
        yield every
    finally:
        for store in stores:
            await store.close()


@pytest.mark.parametrize("engine", ["memory:", "sqlite:///{}/vault.db", ""])
async def test_some_order_explains_what_clients_of_one_record_are_told(
    engine: str, tmp_path: Path
) -> None:
    for seed in range(_ROUNDS if engine else _ROUNDS // 5):
        chance = Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        async with records(engine, folder, chance) as every:
            history: list[Done] = []
            ticks, over = [0], asyncio.Event()
            janitor = asyncio.create_task(tidied(every[0], over))
            clients = [
                Client(every[number % len(every)], history, ticks, chance)
                for number in range(_CLIENTS)
            ]
            await asyncio.gather(*(client.work() for client in clients))
            over.set()
            await janitor
        assert len(history) == _CLIENTS * _CALLS
        assert linearizable(history), (seed, history)


@pytest.mark.parametrize(
    ("history", "explained"),
    [
        ([Done("create", 1, 1, True, 0, 3), Done("create", 2, None, False, 1, 2)], True),
        ([Done("create", 1, 1, True, 0, 3), Done("create", 2, 2, True, 1, 2)], False),
        (
            [
                Done("create", 1, 1, True, 0, 1), Done("update", 2, 2, True, 2, 5),
                Done("read", 0, 1, True, 3, 4),
            ],
            True,
        ),
        (
            [
                Done("create", 1, 1, True, 0, 1), Done("update", 2, 2, True, 2, 3),
                Done("read", 0, 1, True, 4, 5),
            ],
            False,
        ),
        ([Done("create", 1, 1, True, 0, 1), Done("delete", 0, None, False, 2, 3)], False),
        ([Done("brief", 1, None, True, 0, 1), Done("read", 0, 1, True, 2, 3)], False),
        (
            [
                Done("put", 1, 1, True, 0, 1), Done("delete", 0, None, True, 2, 3),
                Done("read", 0, None, True, 4, 5),
            ],
            True,
        ),
        (
            [
                Done("update", 1, None, False, 0, 1), Done("put", 2, 2, True, 2, 3),
                Done("update", 3, 3, True, 4, 5),
            ],
            True,
        ),
    ],
)  # fmt: skip
def test_the_judge_tells_lost_writes_and_stale_reads(
    history: Sequence[Done], explained: bool
) -> None:
    assert linearizable(history) is explained
