"""Schemas of two owners of one database: what one changes the other one takes, phase by phase."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.record import RecordDraft
from proxy.storage.postgres.store import PostgresStore
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.repository import Records
from proxy.vault.schema_store import Entries, Origin, placed_schemas
from proxy.vault.schemas import open_catalog
from tests.support.catalogs import Shelf, held, schema
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
    try:
        yield
    finally:
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


def table_of(shelf: Shelf) -> str:
    return shelf.catalog.records("contact").collection.table


async def has_table(shelf: Shelf, table: str) -> bool:
    """Whether the database has it."""
    link = link_of(cast(PostgresStore, shelf.bench.store))
    asked = "SELECT to_regclass($1) IS NULL AND NOT EXISTS (SELECT 1 FROM tables WHERE name = $2)"
    return not (await link.fetch(asked, f"r_{table}", table))[0][0]


async def test_a_schema_is_removed_beside_another_replica_which_writes_to_it(
    shelves: tuple[Shelf, Shelf],
) -> None:
    one, two = shelves
    stored: list[str] = []

    async def write() -> None:
        """Until it is refused."""
        while True:
            key = f"k{len(stored)}"
            try:
                await two.add(key, email=key)
            except VaultError as error:
                if error.code is not Code.UNKNOWN_SCHEMA:
                    raise
                return
            stored.append(key)

    async with following(*shelves), asyncio.timeout(PATIENCE):
        await one.apply(email=PLAIN)
        await two.catalog.follow()
        writing = asyncio.create_task(write())
        while len(stored) < 10:  # noqa: ASYNC110  # it writes
            await asyncio.sleep(0.01)
        with pytest.raises(VaultError) as caught:
            await one.catalog.drop("contact")
        assert caught.value.code is Code.SCHEMA_IN_USE
        assert not writing.done(), "refused before anybody was told"
        before = table_of(one)
        await one.catalog.drop("contact", records=True)
        await writing
        assert not await has_table(one, before)
        for shelf in shelves:
            await shelf.catalog.settled("contact")
            assert not shelf.catalog.schemas()
            assert "contact" not in {one.name for one in shelf.bench.vault.collections()}
        await two.apply(email=PLAIN)  # one of that name begins anew, at either
        await one.catalog.follow()
        await one.add("k0", email="fresh")
        for shelf in shelves:
            assert await shelf.values() == {"k0": {"email": "fresh"}}
        assert table_of(one) == table_of(two) != before, "names of tables are never used again"
    assert not any(one.reported + two.reported)


async def test_a_removal_waits_for_requests_of_every_replica_and_each_may_refuse_it(
    shelves: tuple[Shelf, Shelf],
) -> None:
    one, two = shelves
    async with following(*shelves), asyncio.timeout(PATIENCE):
        await one.apply(email=PLAIN)
        await two.catalog.follow()
        async with held(two.catalog):
            removing = asyncio.create_task(one.catalog.drop("contact"))
            while two.catalog.schemas():  # noqa: ASYNC110  # it follows
                await asyncio.sleep(0.01)
            for shelf in shelves:
                with pytest.raises(VaultError) as caught:
                    shelf.catalog.records("contact")
                assert caught.value.code is Code.UNKNOWN_SCHEMA
            with pytest.raises(VaultError) as caught:
                await two.apply(email=HASHED)
            assert caught.value.code is Code.SCHEMA_BUSY
            with pytest.raises(VaultError) as caught:
                two.catalog.refuse_taken(["contact"])
            assert caught.value.code is Code.SCHEMA_BUSY
            assert not removing.done()
            # what it still writes holds the removal back
            state = one.bench.vault.unshaped(schema("contact", email=PLAIN))
            await store_records(
                Records(await state),
                [RecordDraft("a", {"id": "a", "email": "ann"})],
                "t",
                no_changes,
            )
        with pytest.raises(VaultError) as caught:
            await removing
        assert caught.value.code is Code.SCHEMA_IN_USE
        for shelf in shelves:
            await shelf.catalog.settled("contact")
            await shelf.catalog.follow()
            assert await shelf.having("email", "ann") == ["a"], "it is there again"


async def test_a_removal_whose_mark_another_one_takes_away_comes_to_nothing(
    shelves: tuple[Shelf, Shelf],
) -> None:
    one, two = shelves
    async with following(*shelves), asyncio.timeout(PATIENCE):
        await one.apply(email=PLAIN)
        await two.catalog.follow()
        await two.add("a", email="ann")
        async with held(two.catalog):
            removing = asyncio.create_task(one.catalog.drop("contact", records=True))
            while two.catalog.schemas():  # noqa: ASYNC110  # it follows
                await asyncio.sleep(0.01)
            # an earlier version leaves out of what it writes what it does not know
            entries = Entries(two.bench.store, "test")
            await entries.load()
            await entries.put(msgspec.structs.replace(entries.schemas["contact"], ending=0))
        with pytest.raises(VaultError) as caught:
            await removing
        assert caught.value.code is Code.SCHEMA_BUSY
        for shelf in shelves:
            await shelf.catalog.settled("contact")
            await shelf.catalog.follow()
            assert await shelf.having("email", "ann") == ["a"], "it is used by all"
        await one.catalog.drop("contact", records=True)


@pytest.mark.parametrize("origin", [Origin.FILE, Origin.RULES])
async def test_what_files_or_rules_of_one_declare_no_other_one_removes(
    shelves: tuple[Shelf, Shelf], origin: Origin
) -> None:
    one, two = shelves
    async with following(*shelves), asyncio.timeout(PATIENCE):
        made_by = Origin.API if origin is Origin.FILE else origin
        await one.apply("contact", made_by, email=PLAIN)
        await two.catalog.follow()
        if origin is Origin.FILE:
            declared = schema("contact", email=PLAIN)
            await two.catalog.declare([declared], lambda name, at: name + at)
        else:
            two.catalog.refuse_taken(["contact"])
        await one.catalog.follow()
        await two.add("a", email="ann")
        with pytest.raises(VaultError, match="instance 1") as caught:
            await one.catalog.drop("contact", records=True)
        assert caught.value.code is Code.REPLICAS_RUNNING
        await two.add("b", email="ann")
        for shelf in shelves:
            await shelf.catalog.settled("contact")
            await shelf.catalog.follow()
            assert await shelf.having("email", "ann") == ["a", "b"]


@pytest.mark.parametrize("alone", [False, True])
async def test_a_removal_whose_replica_dies_before_all_agree_is_taken_back(
    shelves: tuple[Shelf, Shelf], *, alone: bool
) -> None:
    one, two = shelves
    async with following(*shelves), asyncio.timeout(PATIENCE):
        await one.apply(email=PLAIN)
        await two.catalog.follow()
        await two.add("a", email="ann")
        async with held(two.catalog):
            removing = asyncio.create_task(one.catalog.drop("contact", records=True))
            while two.catalog.schemas():  # noqa: ASYNC110  # it follows
                await asyncio.sleep(0.01)
            one.bench.store.put_notes = _dead  # type: ignore[method-assign,assignment]  # it says no more
            await dies(removing)
            await one.catalog.close()
            if alone:
                await two.catalog.close()
    await kill(one.bench.store, two.bench.store)  # type: ignore[arg-type]  # both are PostgreSQL
    if alone:  # and the other one ends, too: the next start takes it back
        keyset = two.bench.vault.keyset
        bench = await make_bench(two.bench.store, keyset)
        two = Shelf(bench, await open_catalog(bench.vault, two.reported.append), two.reported)
        await two.catalog.follow()
    async with following(two), asyncio.timeout(PATIENCE):
        await two.catalog.settled("contact")
    assert await two.having("email", "ann") == ["a"]
    await two.catalog.close()


async def dies(task: "asyncio.Task[None]") -> None:
    """It ends where it is, whatever it would still do."""
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)


async def _dead(_writes: object) -> None:
    await asyncio.Event().wait()


async def test_a_table_of_a_removal_that_another_one_died_in_goes(
    shelves: tuple[Shelf, Shelf],
) -> None:
    one, two = shelves
    async with following(*shelves), asyncio.timeout(PATIENCE):
        await one.apply(email=PLAIN)
        await two.catalog.follow()
        table = table_of(two)
        one.bench.store.drop = _dead  # type: ignore[method-assign,assignment]  # it dies here
        removing = asyncio.create_task(one.catalog.drop("contact"))
        while "contact" in await placed_schemas(two.bench.store, "test"):  # noqa: ASYNC110  # it goes
            await asyncio.sleep(0.01)
        assert await has_table(two, table)
        await dies(removing)
        await one.catalog.close()
    await kill(one.bench.store, two.bench.store)  # type: ignore[arg-type]  # both are PostgreSQL
    async with following(two), asyncio.timeout(PATIENCE):
        await two.catalog.settled("contact")
    assert not await has_table(two, table)
    assert not two.catalog.schemas()
