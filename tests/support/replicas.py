"""Several instances on one database: their stores, and desks that take turns."""

from random import Random
from typing import Any, cast

from proxy.crypto.keyset import Keyset
from proxy.storage.base import Hooks, Store
from proxy.storage.postgres.replicas import SharedLink
from proxy.storage.postgres.store import PostgresStore, open_postgres
from tests.support.clock import ManualClock
from tests.support.exchanges import Desk, desk
from tests.support.modelcheck import OPERATIONS, Model
from tests.support.postgres import fresh_address

_LEAVE = (
    "WITH gone AS (DELETE FROM writers WHERE id = $1), freed AS (DELETE FROM locks WHERE"
    " writer = $1) DELETE FROM flight WHERE writer = $1"
)


async def open_replica(uri: str) -> PostgresStore:
    """One more owner, started."""
    store = await open_postgres(uri, Hooks())
    assert store.replicas is not None
    await store.replicas.ready()
    return store


def link_of(store: PostgresStore) -> SharedLink:
    """The connections of an owner."""
    link = store._link
    assert isinstance(link, SharedLink)
    return link


async def kill(store: PostgresStore, by: PostgresStore) -> None:
    """What becomes of an owner that is killed, once another one has noticed."""
    await link_of(by).fetch(_LEAVE, link_of(store).writer_id)
    link_of(store)._registered = False  # it says goodbye to nobody
    await store.close()


class Alternating:
    """Two owners of one database as one store: each call goes to the other one than before."""

    def __init__(self, *stores: PostgresStore) -> None:
        self.__dict__["stores"] = stores
        self.__dict__["turn"] = 0

    def __getattr__(self, name: str) -> Any:
        self.__dict__["turn"] += 1
        return getattr(self.stores[self.turn % len(self.stores)], name)

    def __setattr__(self, name: str, value: Any) -> None:
        for store in self.stores:
            setattr(store, name, value)

    async def ensure(self, layout: Any) -> None:
        """Every owner makes the tables known to itself."""
        for store in self.stores:
            await store.ensure(layout)

    async def drop(self, table: str) -> None:
        for store in self.stores:
            await store.drop(table)

    async def close(self) -> None:
        for store in self.stores:
            await store.close()


async def open_alternating(uri: str) -> Store:
    """Two owners of the store of that address."""
    return cast(Store, Alternating(await open_replica(uri), await open_replica(uri)))


class TwoReplicas(Model):
    """The model with two instances on one database: each request goes to either by chance."""

    async def begin(self) -> None:
        """Open both."""
        self.uri = fresh_address(replicas="true")
        self.keyset, self.clock = Keyset.create("test"), ManualClock()
        self.turns = Random(self.seed)  # for tests
        self.stores = [await open_replica(self.uri)]
        self.desks = [await self._desk(self.stores[0])]
        self.stores.append(await open_replica(self.uri))
        self.desks.append(await self._desk(self.stores[1]))

    async def end(self) -> None:
        """Close both."""
        for store in self.stores:
            await store.close()

    async def _desk(self, store: PostgresStore) -> Desk:
        at = (cast(Store, store), self.clock, self.keyset)
        return await desk(*OPERATIONS, fields=self._fields(), hosted=self.hosted, at=at)

    async def make(self, before: Desk | None) -> Desk:
        if before is None:
            await self.begin()
        else:  # one of them is killed, and another one comes
            at = self.desks.index(before)
            dead = self.stores[at]
            await kill(dead, self.stores[1 - at])
            self.stores[at] = await open_replica(self.uri)
            self.desks[at] = await self._desk(self.stores[at])
        return self.desks[0]

    def turn(self) -> None:
        self.desk = self.turns.choice(self.desks)
