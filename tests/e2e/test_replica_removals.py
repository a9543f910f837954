"""Two instances on one database, of which one is told to remove a schema, or an environment, while
both are written to; and kill -9 of that one in the midst.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.test_kill import before, nowhere
from tests.e2e.test_replicas import CHIEF, Several, api, crowd, link_to, pair_of, token
from tests.support.application import Application
from tests.support.crowd import moody
from tests.support.effort import rounds
from tests.support.lives import Installation
from tests.support.patience import PATIENCE
from tests.support.postgres import Server, own_server

__all__ = ["crowd"]

BOATS = {"fields": {"id": {"type": "primary_key"}, "name": {"type": "string"}}}
MODEL, SCHEMA, ENVIRONMENTS = "/api/models/boats", "/api/schemas/boats", "/api/environments"
#: The one that is told dies before or after its writes of notes: the mark, the removal, what follows.
STEPS = [(f"note.{side}", nth) for nth in (1, 2, 3) for side in ("before", "after")]
#: Of these, those behind the mark and behind the removal; the others where more is explored.
LAST_WHOLE, FIRST_GONE = ("note.after", 1), ("note.after", 2)


class Harbour:
    """Boats in a schema or in an environment of their own, which may go as a whole."""

    def __init__(self, crowd: Several, environment: str) -> None:
        self.crowd = crowd
        self.environment = environment  #: that goes; empty: the schema goes
        self.path = f"{ENVIRONMENTS}/{environment}" if environment else SCHEMA
        self.away: tuple[int, ...] = ()  #: statuses of a database that fails over
        self.stored: set[str] = set()
        self.chief = self.bearer = ""

    async def ask(self, at: Installation, method: str, path: str, **more: Any) -> tuple[int, Any]:
        return await api(self.crowd, at, self.bearer, method, path, **more)

    async def open(self, at: Installation) -> None:
        status, self.chief = await token(self.crowd, at, CHIEF)
        self.bearer = self.chief
        assert status == 200
        if self.environment:
            named = {"name": "more", "environment_id": self.environment}
            assert (await self.ask(at, "POST", ENVIRONMENTS, json=named))[0] == 201
            chief = {**named, "admin": True}
            status, client = await self.ask(at, "POST", "/api/clients", json=chief)
            assert status == 201, client
            status, self.bearer = await token(self.crowd, at, client)
            assert status == 200
        assert (await self.ask(at, "PUT", SCHEMA, json=BOATS))[0] == 201

    async def sail(self, at: Installation, name: str) -> int:
        status, seen = await self.ask(at, "POST", MODEL, json={"id": name, "name": "Vega"})
        assert status in (201, 400, 401, 404, *self.away), seen
        if status == 201:
            self.stored.add(name)
        return status

    async def sail_on(self, at: Installation, worker: str) -> None:
        """Until it is refused."""
        number = 0
        while await self.sail(at, f"{worker}x{number}") == 201:
            number += 1

    async def remove(self, at: Installation, *, records: bool = True) -> tuple[int, Any]:
        """Remove it; once more where the other instance has just changed it, as the answer says."""
        path = f"{self.path}?records=delete" if records else self.path
        status, seen = await api(self.crowd, at, self.chief, "DELETE", path)
        if status == 409 and seen["code"] == "conflict":
            status, seen = await api(self.crowd, at, self.chief, "DELETE", path)
        return status, seen

    async def is_there(self, at: Installation) -> bool | None:
        """Whether it is there with every boat; ``None``: that is still being decided."""
        status, _ = await self.ask(at, "GET", SCHEMA)
        if status != 200:
            return None if status in self.away or await self.rest() else False
        for name in self.stored:
            status, _ = await self.ask(at, "GET", f"{MODEL}/{name}")
            if status in (400, 401, *self.away):  # the mark of the dead one has come meanwhile
                return None
            assert status == 200, name
        status = await self.sail(at, f"n{len(self.stored)}")
        return None if status in (400, 401, *self.away) else status == 201

    async def rest(self) -> list[str]:
        """What the database has of it."""
        environment = self.environment or "default"
        tables = "SELECT name FROM tables WHERE name LIKE '%\\_' || $1"
        notes = "SELECT name FROM notes WHERE name LIKE '%:' || $1"
        async with link_to(self.crowd.both[0].environment["DOMICILE__STORE"]) as link:
            found: Iterable[Any] = await link.fetch(tables, environment)
            found = {raw[0] for raw in found}
            if self.environment:
                return sorted(found | {raw[0] for raw in await link.fetch(notes, environment)})
            return sorted(found - self.others)

    others: frozenset[str] = frozenset()

    async def look_around(self) -> None:
        """What is there of others stays."""
        self.others = frozenset(await self.rest())


async def ended(crowd: Several) -> None:
    """Both stop, and no value is anywhere outside."""
    for one in crowd.both:
        assert await one.stop() == 0, one.log[-3000:].decode()
    nowhere(crowd)


@asynccontextmanager
async def sheltered(folder: Path) -> AsyncIterator[tuple[Several, Server, Server]]:
    """Two instances on a database of their own, with it and its standby."""
    application = Application()
    with own_server() as primary:
        standby = Server(primary.folder.with_name("standby"))
        address = primary.address(pool="4", timeout="5", replicas="true").replace(
            f":{primary.port}/", f":{primary.port},127.0.0.1:{standby.port}/"
        )
        try:
            primary.mirror(standby)
            async with before(application, moody(application), folder) as alone:
                made = Several(application, alone.caller, alone.installation)
                made.both = pair_of(alone.installation, address)
                for one in made.both:
                    assert await one.start(), one.log.decode()
                yield made, primary, standby
                for one in made.both:
                    await one.kill()
        finally:
            standby.kill()


@pytest.fixture(params=["schema", "environment"])
async def harbour(crowd: Several, request: pytest.FixtureRequest) -> Harbour:
    return Harbour(crowd, "more" if request.param == "environment" else "")


async def test_what_both_write_to_is_removed_by_one_and_nobody_serves_it_any_more(
    harbour: Harbour,
) -> None:
    crowd = harbour.crowd
    first, second = crowd.both
    await harbour.look_around()
    await harbour.open(first)
    for number in range(4):
        await crowd.create(number)  # people of the proxy, who stay
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for at in crowd.both:
            for worker in range(3):
                group.create_task(harbour.sail_on(at, f"w{at.process}x{worker}"))
        while len(harbour.stored) < 60:  # noqa: ASYNC110  # they write
            await asyncio.sleep(0.01)
        status, seen = await harbour.remove(second, records=False)
        assert (status, seen["code"].endswith("_in_use")) == (409, True), seen
        before = len(harbour.stored)
        while len(harbour.stored) < before + 20:  # noqa: ASYNC110  # they go on
            await asyncio.sleep(0.01)
        status, seen = await harbour.remove(second)
        assert status == 204, seen
        for at in crowd.both:
            assert await harbour.sail(at, "late") in (400, 401, 404)
    async with link_to(first.environment["DOMICILE__STORE"]) as link:
        assert not await link.fetch("SELECT FROM notes WHERE name = 'keyset:more'"), "shredded"
    async with asyncio.timeout(PATIENCE):
        while await harbour.rest():  # noqa: ASYNC110  # it goes in the background
            await asyncio.sleep(0.1)
    for at in crowd.both:
        status, seen = await api(crowd, at, harbour.chief, "GET", ENVIRONMENTS)
        assert "more" not in str(seen), at
        assert (await harbour.remove(at))[0] == 404
    if not harbour.environment:  # one of that name begins anew
        gone = next(iter(harbour.stored))
        assert (await harbour.ask(second, "PUT", SCHEMA, json=BOATS))[0] == 201
        assert (await harbour.ask(first, "GET", f"{MODEL}/{gone}"))[0] == 404
        assert await harbour.sail(first, gone) == 201
        assert (await harbour.ask(second, "GET", f"{MODEL}/{gone}"))[0] == 200
    for at in crowd.both:
        assert (await api(crowd, at, harbour.chief, "GET", "/api/schemas"))[0] == 200
    await crowd.judge()
    await ended(crowd)
    for word in (b"rejected", b"Traceback", b"cannot be taken back", b"maintenance of the vault"):
        assert word not in first.log + second.log


@pytest.mark.slow
async def test_whoever_removes_is_killed_and_all_is_there_or_nothing(crowd: Several) -> None:
    first, second = crowd.both
    steps = STEPS if rounds(1) > 1 else [LAST_WHOLE, FIRST_GONE]
    deaths = [(environment, *step) for environment in ("", "more") for step in steps]
    await second.stop()
    for number, (environment, step, nth) in enumerate(deaths):
        assert await second.start(kill_at=step, nth=nth), second.log.decode()
        harbour = Harbour(crowd, f"{environment}{number}" if environment else "")
        await harbour.look_around()
        await harbour.open(first)
        for boat in range(6):
            assert await harbour.sail(crowd.both[boat % 2], f"b{boat}") == 201
        second.armed.touch()
        with suppress(aiohttp.ClientError):  # it dies before it can answer
            await harbour.remove(second)
        await second.kill()  # at the latest
        second.armed.unlink()
        async with asyncio.timeout(PATIENCE):
            while (there := await harbour.is_there(first)) is None:  # noqa: ASYNC110  # others clear up
                await asyncio.sleep(0.1)
        if (step, nth) in (LAST_WHOLE, FIRST_GONE):
            assert there is ((step, nth) == LAST_WHOLE), (environment, step)
        if there:
            status, seen = await harbour.remove(first)
            assert status == 204, seen
        async with asyncio.timeout(PATIENCE):
            while await harbour.rest():  # noqa: ASYNC110  # it goes in the background
                await asyncio.sleep(0.1)
    assert await second.start(), second.log.decode()
    await ended(crowd)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["", "more"])
async def test_the_database_fails_over_meanwhile_and_all_is_there_or_nothing(
    tmp_path: Path, environment: str
) -> None:
    async with sheltered(tmp_path) as (crowd, primary, standby):
        first, second = crowd.both
        harbour = Harbour(crowd, environment)
        await harbour.look_around()
        await harbour.open(first)
        for boat in range(6):
            assert await harbour.sail(crowd.both[boat % 2], f"b{boat}") == 201
        harbour.away = (503,)
        removing = asyncio.create_task(harbour.remove(second))
        await asyncio.sleep(random.uniform(0, 0.3))
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(standby.promote)
        status, seen = await removing
        assert status in (204, 409, 503), seen
        there: list[bool] = []
        for at in crowd.both:
            async with asyncio.timeout(2 * PATIENCE):
                while (one := await harbour.is_there(at)) is None:  # noqa: ASYNC110  # others clear up
                    await asyncio.sleep(0.1)
            there.append(one)
        assert there in ([True, True], [False, False])
        assert not (status == 204 and there[0]), "its removal was answered"
        if there[0]:
            async with asyncio.timeout(PATIENCE):
                while (await harbour.remove(first))[0] != 204:  # noqa: ASYNC110  # one is still coming back
                    await asyncio.sleep(0.1)
        async with asyncio.timeout(PATIENCE):
            while await harbour.rest():  # noqa: ASYNC110  # it goes in the background
                await asyncio.sleep(0.1)
        for at in crowd.both:
            assert (await harbour.remove(at))[0] == 404
        print("removed during the fail-over:", not there[0], status)
        await ended(crowd)
