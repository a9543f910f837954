"""A whole installation on PostgreSQL: kill -9 of the service and of the database under load, a
standby that takes over, a database that is away.
"""

import asyncio
import os
import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from proxy.storage.postgres.address import parse_address
from tests.e2e.test_kill import WORKERS, before, converge, deaths, nowhere
from tests.support.application import Application
from tests.support.crowd import MARKERS, VALUES, Crowd, body, faults, moody
from tests.support.effort import rounds
from tests.support.lives import Installation
from tests.support.patience import PATIENCE, Pace, until
from tests.support.people import REFUSING
from tests.support.postgres import Relay, Server, fresh_address, own_server

#: Seconds for which the database is away; ``AWAY=30`` tries it for longer.
AWAY = float(os.environ.get("AWAY") or 6)


@pytest.fixture
async def crowd(tmp_path: Path) -> AsyncIterator[Crowd]:
    """Callers before an application with moods, and an installation on a schema of its own."""
    application = Application()
    async with before(application, moody(application), tmp_path) as made:
        made.installation.environment["DOMICILE__STORE"] = fresh_address()
        yield made
        await made.installation.kill()


@pytest.mark.slow
async def test_the_service_is_killed_at_random_and_loses_nothing(crowd: Crowd) -> None:
    installation = crowd.installation
    for number in deaths(6, lambda: crowd.counts["POST killed"] > 2):
        assert await installation.start(), installation.log.decode()
        if number % 4 == 3:
            await crowd.judge()
        work = (crowd.visit(worker, WORKERS) for worker in range(WORKERS))
        await installation.kill_at_work(work, crowd.counts, 40)
    await converge(crowd, 0)
    nowhere(crowd)


async def test_of_a_row_that_somebody_has_locked_only_the_record_is_refused(
    tmp_path: Path,
) -> None:
    application = Application()
    async with before(application, application.app(), tmp_path) as crowd:

        async def ask(method: str, path: str, **options: Any) -> tuple[int, Any]:
            at = installation.proxy + path
            async with crowd.caller.request(method, at, **options) as answer:
                return answer.status, await answer.json(content_type=None)

        installation, store = crowd.installation, fresh_address()
        installation.environment["DOMICILE__STORE"] = store
        assert await installation.start(), installation.log.decode()
        one, two, three = (body(crowd.next()) for _ in range(3))
        assert [(await ask("POST", "/people", json=new))[0] for new in (one, two)] == [201] * 2
        locked, other = (f"/people/{ident}" for ident in sorted(application.records))
        address = parse_address(store)
        settings = {"search_path": address.schema}
        console = await asyncpg.connect(address.dsn, server_settings=settings)
        tables = "SELECT relname FROM pg_class WHERE relname LIKE 'r\\_%' AND relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        filled = "SELECT count(*) FROM {}"
        (table,) = [
            name
            for (name,) in await console.fetch(tables)
            if await console.fetchval(filled.format(name)) == 2
        ]
        await console.execute(f"BEGIN; SELECT 1 FROM {table} ORDER BY rid LIMIT 1 FOR UPDATE")
        change = {"name": three["name"], "name_w": three["name_w"]}
        for _ in range(2):
            told = await asyncio.gather(
                ask("PATCH", locked, json=change),
                ask("PATCH", other, json=change),
                ask("POST", "/people", json=three),
                ask("GET", locked),
            )
            assert [status for status, _ in told] == [503, 200, 201, 200], told
            assert told[0][1]["code"] == "vault_down"
            assert told[3][1]["name"] == one["name"]
        await console.execute("ROLLBACK")
        await console.close()
        async with asyncio.timeout(PATIENCE):
            while (last := await ask("PATCH", locked, json=change))[0] == 503:  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0.1)
        status, seen = last
        assert (status, seen["name"]) == (200, three["name"])
        await installation.kill()


class Writers:
    """Callers that create people, change them and read them again, whatever becomes of the
    database; each asks any of the instances.
    """

    def __init__(
        self, crowd: Crowd, instances: Sequence[Installation], *, refusing: bool = False
    ) -> None:
        self.crowd = crowd
        self.refusing = refusing  #: whether reads are refused while the database is away
        self.reads: Counter[str] = Counter()  #: by what they showed
        self.instances = list(instances)
        self.acknowledged: dict[int, int] = {}  #: number of the values by id
        #: every number that was ever sent for a record
        self.sent: defaultdict[int, set[int]] = defaultdict(set)
        #: numbers that were refused since, of which the application may have kept one
        self.unsure: defaultdict[int, set[int]] = defaultdict(set)
        self.slowest = 0.0
        self.refused = 0
        #: when each last acknowledged a write, by its address
        self.since: defaultdict[str, float] = defaultdict(float)
        self.over = False
        self.tasks: Sequence[asyncio.Task[None]] = ()
        self.pace = Pace()

    async def work(self) -> None:
        mine: list[int] = []
        while not self.over:
            if (made := await self.write("POST")) is not None:
                mine.append(made)
            if mine:
                await self.write("PATCH", random.choice(mine))
            if self.acknowledged:
                await self.read(random.choice([*self.acknowledged]))

    async def write(self, method: str, ident: int | None = None) -> int | None:
        """Every value of a new one, or of that; its id where that is acknowledged."""
        number = self.crowd.next()
        at = random.choice(self.instances).proxy
        if ident is not None:
            self.sent[ident].add(number)
        path = "/people" if ident is None else f"/people/{ident}"
        status, seen = await self.ask(method, at + path, json=body(number))
        if status in (200, 201):
            self.sent[seen["id"]].add(number)
            self.acknowledged[seen["id"]] = number
            self.unsure[seen["id"]].clear()
            self.unmixed(seen)
            self.since[at] = time.monotonic()
            return int(seen["id"])
        assert (status, seen["code"]) == (503, "vault_down"), (status, seen)
        if ident is not None:
            self.unsure[ident].add(number)
        self.refused += 1
        await asyncio.sleep(0.01)
        return None

    def unmixed(self, seen: dict[str, Any]) -> None:
        """Whatever an answer shows in full is a value of that record."""
        own = self.sent[seen["id"]]
        for name, value in seen.items():
            if any(marker in str(value) for marker in MARKERS):
                assert value in [VALUES[name](number) for number in own], (name, seen)

    async def read(self, ident: int, at: Installation | None = None) -> None:
        """One of them; restored in full at a given instance, or tokens while the database is
        away.
        """
        url = (at or random.choice(self.instances)).proxy
        status, seen = await self.ask("GET", f"{url}/people/{ident}")
        if status != 200 and at is None:
            assert (status, seen["code"], self.refusing) == (503, "vault_down", True)
            self.reads["refused"] += 1
            await asyncio.sleep(0.01)
            return
        assert status == 200, (status, seen)
        self.unmixed(seen)
        self.reads["tokens" if seen["name"] != VALUES["name"](seen["name_w"]) else "values"] += 1
        if at is not None:
            assert seen["name_w"] in {self.acknowledged[ident], *self.unsure[ident]}
            assert not faults(seen)

    async def ask(self, method: str, url: str, **options: Any) -> tuple[int, Any]:
        began = time.monotonic()
        async with self.crowd.caller.request(method, url, **options) as answer:
            seen = await answer.json(content_type=None)
        self.slowest = max(self.slowest, time.monotonic() - began)
        return answer.status, seen

    async def judge(self) -> None:
        """Everything that was acknowledged is there, and shows its own values at each instance."""
        for ident in self.acknowledged:
            for one in self.instances:
                await self.read(ident, one)


@asynccontextmanager
async def writing(
    folder: Path, address: str, instances: int = 1, more_rules: str = ""
) -> AsyncIterator[Writers]:
    """So many running installations on that store, with callers at work until the block ends."""
    application = Application()
    async with before(application, application.app(), folder) as crowd:
        first = crowd.installation
        first.environment["DOMICILE__STORE"] = address
        with (first.rules / "rules.yaml").open("a") as file:
            file.write(more_rules)
        every = [first]
        if instances > 1:
            first.environment |= {
                "DOMICILE__KEYS": f"file://{first.folder}/keys.json",
                "DOMICILE__FILES": f"file://{first.folder}/files",
            }
        for number in range(1, instances):
            more = Installation(first.nursery, folder / f"more{number}", dict(first.environment))
            more.folder.mkdir()
            shutil.copytree(first.rules, more.rules)
            every.append(more)
        tasks: list[asyncio.Task[None]] = []
        try:
            for one in every:
                assert await one.start(), one.log.decode()
            # one that listens has not told the others yet that it has started
            await until(lambda: all(one.events("active rules") for one in every))
            writers = Writers(crowd, every, refusing=more_rules == REFUSING)
            measure = asyncio.create_task(writers.pace.measure())
            tasks += [asyncio.create_task(writers.work()) for _ in range(WORKERS)]
            writers.tasks = [*tasks]
            tasks.append(measure)
            yield writers
            writers.over = True
            await asyncio.wait_for(asyncio.gather(*writers.tasks), PATIENCE)
            await writers.judge()
        finally:
            for task in tasks:
                task.cancel()
            for one in every:
                await one.kill()


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server() as made:
        yield made


async def recovered(writers: Writers, since: float, within: float) -> float:
    """Wait until each instance has acknowledged a write that began after that moment; the seconds
    that it took.
    """
    took, pace = 0.0, writers.pace.stretched
    for one in writers.instances:
        while writers.since[one.proxy] < since + 0.05:  # callers bring it about
            assert time.monotonic() < since + max(within, PATIENCE), one.log[-4000:].decode()
            await asyncio.sleep(0.02)
        took = max(took, time.monotonic() - since)
        assert not one.events("the other instances took this one for dead: it starts again")
    assert took < within * max(pace, writers.pace.stretched)
    return took


@pytest.mark.slow
async def test_the_database_is_killed_at_random_and_loses_nothing(
    tmp_path: Path, server: Server
) -> None:
    address = server.address(pool="4", timeout="5")
    async with writing(tmp_path, address) as writers:
        for _ in range(rounds(2)):
            enough = len(writers.acknowledged) + 11
            await until(lambda: len(writers.acknowledged) >= enough)  # noqa: B023  # awaited here
            await asyncio.sleep(random.uniform(0.1, 1.0))
            await asyncio.to_thread(server.kill)
            if not writers.refused:
                await until(lambda: writers.refused > 0)
            await asyncio.sleep(random.uniform(0, 0.5))
            await asyncio.to_thread(server.start)
            took = await recovered(writers, time.monotonic(), 5)
            print("killed: served again after", round(took, 2))
    assert writers.slowest < 20 * writers.pace.stretched


@pytest.mark.slow
@pytest.mark.parametrize("instances", [1, 2])
async def test_a_standby_takes_over_and_nothing_acknowledged_is_lost(
    tmp_path: Path, server: Server, instances: int
) -> None:
    primary, standby = server, Server(server.folder.with_name("standby"))
    replicas = "true" if instances > 1 else "false"
    address = server.address(pool="4", timeout="5", replicas=replicas).replace(
        f":{server.port}/", f":{server.port},127.0.0.1:{standby.port}/"
    )
    try:
        primary.mirror(standby)
        async with writing(tmp_path, address, instances) as writers:
            before = 0
            for number in range(rounds(1)):
                before = len(writers.acknowledged)
                await until(lambda: len(writers.acknowledged) > before + 5)  # noqa: B023  # awaited before the next round
                await asyncio.to_thread(primary.kill)
                since = time.monotonic()
                await asyncio.to_thread(standby.promote)
                took = await recovered(writers, since, 10)
                print("fail-over", number, "served by all after", round(took, 2))
                if number + 1 < rounds(1):  # the one that was killed follows the other one
                    primary, standby = standby, primary
                    await asyncio.to_thread(primary.mirror, standby)
            refused, slowest = writers.refused, writers.slowest
        print(len(writers.acknowledged), "acknowledged", refused, "refused", slowest, "slowest")
        assert len(writers.acknowledged) > before
    finally:
        server.kill()
        standby.kill()


#: How the database leaves and comes back, what the rules say besides, and what reads then show.
Way = Callable[[Server, Relay], None]
ABSENCES: dict[str, tuple[Way, Way, str, str]] = {
    "it is killed": (lambda it, _: it.kill(), lambda it, _: it.start(), "", "tokens"),
    "it hangs": (lambda it, _: it.freeze(), lambda it, _: it.thaw(), REFUSING, "refused"),
    "it is cut off": (lambda _, way: way.cut(), lambda _, way: way.mend(), "", "tokens"),
    "it is cut off for long": (
        lambda _, way: way.cut_for_good(), lambda _, way: way.mend(), REFUSING, "refused"
    ),
}  # fmt: skip


@pytest.mark.parametrize("absence", ABSENCES)
async def test_while_the_database_is_away_nothing_waits_beyond_its_time(
    tmp_path: Path, server: Server, absence: str
) -> None:
    leave, come_back, more_rules, shown = ABSENCES[absence]
    async with Relay(server).open() as way:
        address = server.address(pool="4", timeout="1")
        if "cut" in absence:
            address = address.replace(f":{server.port}/", f":{way.port}/")
        async with writing(tmp_path, address, more_rules=more_rules) as writers:
            await until(lambda: len(writers.acknowledged) > 5)
            await asyncio.to_thread(leave, server, way)
            refused, writers.reads = writers.refused, Counter()
            await asyncio.sleep(AWAY)
            assert writers.refused > refused
            await until(lambda: writers.reads[shown] > 0)  # of a slow machine's callers as well
            url = writers.crowd.installation.admin + "/readyz"
            status = 200
            async with asyncio.timeout(PATIENCE):
                while status != 503:  # it looks now and then
                    async with writers.crowd.caller.get(url) as answer:
                        status = answer.status
            await asyncio.to_thread(come_back, server, way)
            took = await recovered(writers, time.monotonic(), 5)
            print("away", AWAY, dict(writers.reads), writers.refused, "writes refused, slowest",
                  round(writers.slowest, 2), "again after", round(took, 2), "pace", writers.pace.stretched)  # fmt: skip
            bound = 8 * writers.pace.stretched
            assert writers.slowest < bound, "longer than three times the time-out"


async def test_a_second_instance_waits_and_takes_over_when_the_first_is_killed(
    tmp_path: Path,
) -> None:
    address = fresh_address(wait="60")
    async with writing(tmp_path, address) as writers:
        await asyncio.sleep(0.5)
        first = writers.crowd.installation
        shared = {"DOMICILE__DATA": str(first.data)}  # key, attachments and audit log
        second = Installation(first.nursery, tmp_path / "two", {**first.environment, **shared})
        second.folder.mkdir()
        shutil.copytree(first.rules, second.rules)
        starting = asyncio.create_task(second.start())
        await asyncio.sleep(1.0)
        assert not starting.done()
        writers.over = True
        await asyncio.wait_for(asyncio.gather(*writers.tasks), PATIENCE)
        await first.kill()
        since = time.monotonic()
        assert await asyncio.wait_for(starting, PATIENCE), second.log.decode()
        assert time.monotonic() - since < PATIENCE / 2, "a second, on a machine at rest"
        writers.instances = [second]
        await writers.judge()


WAITS = b"the start waits for the store, and is tried again"


async def test_a_start_waits_for_a_database_that_is_away(tmp_path: Path, server: Server) -> None:
    async with before(Application(), Application().app(), tmp_path) as crowd:
        starts = crowd.installation
        starts.environment["DOMICILE__STORE"] = server.address(timeout="1")
        for number, leave, back in (
            (1, Server.kill, Server.start), (2, Server.freeze, Server.thaw)
        ):  # fmt: skip
            await asyncio.to_thread(leave, server)
            starting = asyncio.create_task(starts.start())
            await until(lambda: WAITS in starts.log)
            assert not starting.done()
            await asyncio.to_thread(back, server)
            assert await asyncio.wait_for(starting, PATIENCE), (number, starts.log.decode())
            assert await starts.stop() == 0
        await asyncio.to_thread(server.kill)
        await starts.begin()
        await until(lambda: WAITS in starts.log)
        assert await starts.stop() == 0, "it is told to end while it waits"
        starts.environment["DOMICILE__STORE"] = server.address(wait="0.6")
        since = time.monotonic()
        assert not await starts.start()
        assert 0.6 < time.monotonic() - since < PATIENCE / 2
        assert await starts.ended() == 1
        assert b"The vault's database cannot be reached" in starts.log


async def test_a_start_outlives_a_database_that_is_killed_meanwhile(
    tmp_path: Path, server: Server
) -> None:
    async with before(Application(), Application().app(), tmp_path) as crowd:
        starts = crowd.installation
        starts.environment["DOMICILE__STORE"] = server.address(timeout="2")
        for number in range(rounds(3)):
            starting = asyncio.create_task(starts.start())
            await asyncio.sleep(random.uniform(0, 0.4))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            # also where it had its vault already, and was just about to listen
            assert await asyncio.wait_for(starting, PATIENCE), (number, starts.log.decode())
            await starts.kill()
