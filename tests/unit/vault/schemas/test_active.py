"""Schemas of two owners of one database: what one changes the other one takes, phase by phase."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.postgres.store import PostgresStore
from proxy.vault.schemas import open_catalog
from tests.support.catalogs import Shelf, held
from tests.support.patience import PATIENCE
from tests.support.postgres import fresh_address
from tests.support.replicas import kill, link_of, open_replica
from tests.support.vaults import make_bench

PLAIN: dict[str, Any] = {"type": "string", "storage": "indexed"}
HASHED: dict[str, Any] = {"type": "string", "storage": "indexed_hashed"}


async def shelf_at(address: str, keyset: Keyset) -> Shelf:
    bench = await make_bench(await open_replica(address), keyset)
    reported: list[VaultError] = []
    made = Shelf(bench, await open_catalog(bench.vault, reported.append), reported)
    await bench.vault.follow()
    await made.catalog.follow()
    return made


@asynccontextmanager
async def following(*shelves: Shelf) -> AsyncIterator[None]:
    """They follow each other until the block ends."""

    async def follow(one: Shelf) -> None:
        while True:
            await one.bench.vault.follow()
            await one.catalog.follow()
            await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(follow(one)) for one in shelves]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def shelves() -> AsyncIterator[tuple[Shelf, Shelf]]:
    address, keyset = fresh_address(replicas="true", wait="2"), Keyset.create("test")
    made = await shelf_at(address, keyset), await shelf_at(address, keyset)
    yield made
    for one in made:
        await one.catalog.close()
        await one.bench.store.close()


async def test_what_one_declares_the_other_one_has_and_writes(shelves: tuple[Shelf, Shelf]) -> None:
    one, two = shelves
    async with following(*shelves):
        assert (await one.apply(email=PLAIN)).created
        await two.catalog.follow()
        await two.add("a", email="ann")
        assert await one.having("email", "ann") == ["a"]
        await asyncio.gather(
            one.apply("x", a=PLAIN), two.apply("y", a=PLAIN), one.apply("z", a=PLAIN)
        )
        await one.catalog.follow()
        await two.catalog.follow()
        for each in shelves:
            assert {seen.schema.name for seen in each.catalog.schemas()} == {
                "contact",
                "x",
                "y",
                "z",
            }


async def test_a_phase_begins_when_the_earlier_work_of_all_has_ended(
    shelves: tuple[Shelf, Shelf],
) -> None:
    one, two = shelves
    async with following(*shelves):
        await one.apply(email=PLAIN)
        await two.catalog.follow()
        for number in range(150):
            await shelves[number % 2].add(f"k{number}", email=f"mail{number}")
        async with held(two.catalog):
            changing = asyncio.create_task(one.apply(email=HASHED))
            while two.catalog.declared("contact").change is None:  # noqa: ASYNC110  # it follows
                await asyncio.sleep(0.01)
            await two.add("late", email="of both definitions")
            await asyncio.sleep(0.2)
            assert not changing.done()
        async with asyncio.timeout(PATIENCE):
            await changing
        for each in shelves:
            await each.catalog.follow()
            assert each.catalog.declared("contact").change is None
            assert await each.having("email", "mail7") == ["k7"]
            assert await each.having("email", "of both definitions") == ["late"]
            assert not [
                cell for row in await each.rows() for cell in row.cells if isinstance(cell, str)
            ]


async def test_another_one_goes_on_after_a_death(shelves: tuple[Shelf, Shelf]) -> None:
    one, two = shelves
    async with following(*shelves):
        await one.apply(email=PLAIN)
        await two.catalog.follow()
        await two.add("a", email="ann")
        async with held(two.catalog):
            changing = asyncio.create_task(one.apply(email=HASHED))
            while two.catalog.declared("contact").change is None:  # noqa: ASYNC110  # it follows
                await asyncio.sleep(0.01)
    changing.cancel()
    await one.catalog.close()
    await kill(one.bench.store, two.bench.store)  # type: ignore[arg-type]  # both are PostgreSQL
    async with following(two), asyncio.timeout(PATIENCE):
        await two.catalog.settled("contact")
    assert await two.having("email", "ann") == ["a"]


async def test_one_that_does_not_follow_holds_back_a_change_and_is_named(
    shelves: tuple[Shelf, Shelf],
) -> None:
    one, two = shelves
    async with following(one, two):
        await one.apply(email=PLAIN)
    link = link_of(cast(PostgresStore, two.bench.store))  # as one of an earlier version
    await link.fetch("DELETE FROM agreed WHERE writer = $1", link.writer_id)
    with pytest.raises(VaultError, match="instance 1") as caught:
        await one.bench.vault.heard(0.2)
    assert caught.value.code is Code.REPLICAS_RUNNING
