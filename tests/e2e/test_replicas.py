"""Two instances that serve at the same time on one database: what one is told the other one knows,
and kill -9 of either loses nothing.
"""

import asyncio
import random
import secrets
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Any

import aiohttp
import asyncpg
import pytest

from proxy.storage.postgres.address import parse_address
from tests.e2e.test_kill import WORKERS, before, nowhere
from tests.support.application import Application
from tests.support.crowd import MARKERS, Crowd, faults, moody
from tests.support.effort import rounds
from tests.support.lives import Installation
from tests.support.patience import PATIENCE, until
from tests.support.people import REFUSING
from tests.support.postgres import Server, fresh_address, own_server
from tests.support.scraping import FIELD

#: The address at which access tokens are asked for, whoever answers.
AUDIENCE = "https://vault.example.com"
CHIEF = {"client_id": "chief-of-all", "client_secret": secrets.token_urlsafe(40)}


class Several(Crowd):
    """Callers of whom each request goes to either installation."""

    both: tuple[Installation, ...] = ()

    async def _ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        self.installation = random.choice([one for one in self.both if one.proxy])
        return await super()._ask(method, path, **options)


def pair_of(first: Installation, address: str) -> tuple[Installation, Installation]:
    """Two installations on the store of that address, with a client that may do everything."""
    first.environment |= {
        "DOMICILE__STORE": address,
        "DOMICILE__KEYS": f"file://{first.folder}/keys.json",
        "DOMICILE__FILES": f"file://{first.folder}/files",
        "DOMICILE__AUTH__AUDIENCES": f"[{AUDIENCE}]",
        "DOMICILE__AUTH__FIRST_CLIENT": str(first.folder / "chief"),
    }
    (first.folder / "chief").mkdir()
    for name in ("id", "secret"):
        (first.folder / "chief" / name).write_text(CHIEF[f"client_{name}"])
    second = Installation(first.nursery, first.folder / "two", dict(first.environment))
    second.folder.mkdir()
    shutil.copytree(first.rules, second.rules)
    return first, second


@pytest.fixture
async def crowd(tmp_path: Path) -> AsyncIterator[Several]:
    application = Application()
    async with before(application, moody(application), tmp_path) as alone:
        first, second = pair_of(alone.installation, fresh_address(replicas="true"))
        made = Several(application, alone.caller, first)
        made.both = (first, second)
        for one in made.both:
            assert await one.start(), one.log.decode()
        yield made
        for one in made.both:
            await one.kill()


@pytest.mark.slow
async def test_either_is_killed_at_random_and_nothing_is_lost_or_mixed(crowd: Several) -> None:
    for number in range(rounds(4)):
        work = [crowd.visit(worker, WORKERS) for worker in range(WORKERS)]
        victim = random.choice(crowd.both)
        await victim.kill_at_work(work, crowd.counts, 200)
        victim.proxy = ""
        since = time.monotonic()
        if number % 2:
            await crowd.judge()  # the other one serves, whoever is gone
        assert await victim.start(), victim.log.decode()
        print("again after", time.monotonic() - since)
    await crowd.judge(len(crowd.every))
    print(crowd.counts)
    await ended_in_order(crowd)


async def ended_in_order(crowd: Several) -> None:
    """Both stop, their audit logs are proven, and no value is anywhere outside."""
    for one in crowd.both:
        assert await one.stop() == 0, one.log[-3000:].decode()
        one.proxy = ""
        assert await one.run("audit", "verify") == 0, one.output + one.log
    nowhere(crowd)


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server() as made:
        yield made


#: Answers while one is away; the application, which shares this process with the callers, may have
#: no turn for seconds on a busy machine.
_OUTAGES = {(503, "vault_down"), (504, "upstream_timeout")}


class Unshaken(Several):
    """Callers who go on whoever is killed, the database included, until they are told to end.

    While the vault is away writes and reads are refused; an answer to a write that the application
    has made meanwhile may show tokens. Nothing ever shows another value.
    """

    over = False
    lives = 0  #: starts after an end
    quiet = False  #: whether nobody is killed, so that every request has an answer
    away = 0.0  #: when the database was last killed
    trouble = ""  #: why nobody answered the last time

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        status, seen = await super().ask(method, path, **options)
        end = time.monotonic() + PATIENCE
        while self.quiet and not status and time.monotonic() < end:  # what answers has no turn
            status, seen = await super().ask(method, path, **options)
        assert status or not self.quiet, self.trouble
        return status, seen

    async def _ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        if self.over:
            return 0, None
        one = None
        try:
            one = random.choice([one for one in self.both if one.proxy])
            url = one.proxy + path
            async with self.caller.request(method, url, **options) as answer:
                seen: Any = await answer.json(content_type=None) if await answer.read() else None
                if answer.content_type == "application/problem+json" and answer.status != 502:
                    assert (answer.status, seen["code"]) in _OUTAGES, seen
                    self.counts[f"{method} refused"] += 1
                    self.trouble = f"{seen} {one.log[-1500:].decode()}"
                    return 0, None
                self.counts[f"{method} {answer.status}"] += 1
                return answer.status, seen
        except (aiohttp.ClientError, OSError, IndexError) as error:
            self.counts[f"{method} killed"] += 1
            self.trouble = f"{error!r} {one.log[-1500:].decode() if one else ''}"
            await asyncio.sleep(0.02)
            return 0, None

    def _know(
        self, status: int, expected: tuple[int, ...], seen: Iterable[Any], *, shown: bool = True
    ) -> None:
        whole = []
        for record in seen:
            wrong = faults(record)
            if time.monotonic() - self.away < 20 and wrong and shown:
                assert not any(marker in one for one in wrong for marker in MARKERS), wrong
            else:
                whole.append(record)
        super()._know(status, expected, whole, shown=shown)

    async def visit(self, worker: int, workers: int) -> None:
        while not self.over:
            await super().visit(worker, workers)  # ends with each request that nobody answers

    async def survive(self, kill: Callable[[], Awaitable[str]], deaths: int) -> Counter[str]:
        """Go on while so many times something is killed; what was, how often."""
        killed: Counter[str] = Counter()
        keepers = [asyncio.create_task(self._keep_up(one)) for one in self.both]
        try:
            while killed.total() < deaths:
                work = [asyncio.create_task(self.visit(n, WORKERS)) for n in range(WORKERS)]
                for _ in range(min(10, deaths - killed.total())):
                    await self._answers(random.randrange(60))
                    if victim := await kill():
                        killed[victim] += 1
                await until(lambda: all(one.serves() for one in self.both))
                await self._answers(60)
                self.over = True
                await asyncio.gather(*work)
                self.over = False
                await asyncio.sleep(1)  # what was under way is settled
                await until(lambda: all(one.serves() for one in self.both))
                print(killed, flush=True)
                self.quiet = True
                await self.judge(len(self.every) if killed.total() >= deaths else 20)
                self.quiet = False
        finally:
            for one in keepers:
                one.cancel()
        return killed

    async def _keep_up(self, one: Installation) -> None:
        """Start it again whenever it ends, as a restart policy does: one that starts while the
        database goes away ends by itself.
        """
        while True:
            await asyncio.shield(one.nursery.end_of(one.process))
            one.proxy = ""
            await asyncio.sleep(random.uniform(0, 0.5))
            self.lives += 1
            if not await one.start():
                one.proxy = ""

    async def _answers(self, more: int) -> None:
        """Wait until so many more requests are answered, but not for ever: nobody may be there."""
        end, enough = time.monotonic() + 20, self._answered() + more
        while self._answered() < enough and time.monotonic() < end:  # noqa: ASYNC110  # they count
            await asyncio.sleep(0.01)

    def _answered(self) -> int:
        return sum(n for what, n in self.counts.items() if what.split()[1].isdigit())

    async def kill_one(self, server: Server) -> str:
        """An instance or the database; nothing, where that instance is not there."""
        every: tuple[Installation | Server, ...] = (*self.both, server)
        victim = random.choice(every)
        if isinstance(victim, Server):
            self.away = time.monotonic()
            await asyncio.to_thread(victim.kill)
            await asyncio.sleep(random.uniform(0, 1))
            await asyncio.to_thread(victim.start)
            self.away = time.monotonic()
            return "database"
        if not victim.proxy:
            return ""
        victim.proxy = ""
        victim.send(SIGKILL)
        return "instance"


@pytest.mark.slow
async def test_either_and_the_database_are_killed_at_random_and_nothing_is_lost_or_mixed(
    tmp_path: Path, server: Server
) -> None:
    application = Application()
    async with before(application, moody(application), tmp_path) as alone:
        first, second = pair_of(alone.installation, server.address(replicas="true", pool="4"))
        with (first.rules / "rules.yaml").open("a") as file:
            file.write(REFUSING)
        shutil.copytree(first.rules, second.rules, dirs_exist_ok=True)
        crowd = Unshaken(application, alone.caller, first)
        crowd.both = (first, second)
        for one in crowd.both:
            assert await one.start(), one.log.decode()
        killed = await crowd.survive(partial(crowd.kill_one, server), rounds(5))
        print(killed, crowd.lives, crowd.counts)
        for one in crowd.both:
            assert await one.stop() == 0, one.log[-3000:].decode()
            one.proxy = ""
            assert await one.run("audit", "verify") == 0, one.output + one.log
        nowhere(crowd)


async def token(crowd: Several, at: Installation, client: dict[str, str]) -> tuple[int, str]:
    """An access token for the vault's own interface of that instance."""
    proof = {name: client[name] for name in ("client_id", "client_secret")}
    form = {"grant_type": "client_credentials", "audience": AUDIENCE, **proof}
    async with crowd.caller.post(at.vault + "/oauth2/token", data=form) as answer:
        seen = await answer.json(content_type=None)
        return answer.status, seen.get("access_token", "")


#: What the answer to a change waits for until all have heard of it, for a second at most.
_HEARD = ("/api/clients", "/api/schemas", "/api/environments")


async def api(
    crowd: Several, at: Installation, bearer: str, method: str, path: str, **more: Any
) -> tuple[int, Any]:
    """A request to the vault's own interface of that instance. Where a machine is so slow that a
    change was answered before all had heard of it, they have now.
    """
    headers = {"Authorization": f"Bearer {bearer}", **more.pop("headers", {})}
    began = time.monotonic()
    async with crowd.caller.request(method, at.vault + path, headers=headers, **more) as answer:
        status, seen = (
            answer.status,
            await answer.json(content_type=None) if await answer.read() else None,
        )
    changed = method != "GET" and status < 300 and path.startswith(_HEARD)
    if changed and time.monotonic() - began > 0.9:
        async with link_to(at.environment["DOMICILE__STORE"]) as link, asyncio.timeout(PATIENCE):
            await asyncio.sleep(1.5)  # the one that wrote hears itself as well
            while await link.fetchval("SELECT min(heard) < max(heard) FROM writers"):  # noqa: ASYNC110  # they hear
                await asyncio.sleep(0.05)
    return status, seen


@asynccontextmanager
async def link_to(address: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to the schema of a store."""
    parsed = parse_address(address)
    connection = await asyncpg.connect(parsed.dsn, server_settings={"search_path": parsed.schema})
    yield connection
    await connection.close()


async def test_what_one_is_told_the_other_one_knows_when_it_is_answered(
    crowd: Several,
) -> None:
    first, second = crowd.both
    status, admin = await token(crowd, first, CHIEF)
    assert status == 200
    for at in crowd.both:  # signed by one, valid at both
        assert (await api(crowd, at, admin, "GET", "/api/clients"))[0] == 200
    status, made = await api(crowd, first, admin, "POST", "/api/clients", json={"name": "crm", "environment_id": "default"})  # fmt: skip
    assert status == 201

    status, bearer = await token(crowd, second, made)  # it counts where it was not made
    assert status == 200
    assert (await api(crowd, second, bearer, "GET", "/api/schemas"))[0] != 401
    assert (await api(crowd, first, admin, "DELETE", f"/api/clients/{made['client_id']}"))[0] == 204

    assert (await api(crowd, second, bearer, "GET", "/api/schemas"))[0] == 401, "at once"
    # one key, two instances, at once: it is carried out once
    key = {"Idempotency-Key": "one"}
    sent = {"country": "se", "record_key": "k1", "profile_key": "p"}
    both = await asyncio.gather(
        *(
            api(crowd, at, admin, "POST", "/api/records", json=sent, headers=key)
            for at in crowd.both
        )
    )
    assert sorted(status for status, _ in both) in ([201, 201], [201, 429]), both
    for method, path, content in (
        ("PUT", "/api/schemas/boats", {"fields": {"id": {"type": "primary_key"}}}),
        ("POST", "/api/environments", {"name": "more", "environment_id": "more"}),
    ):
        status, seen = await api(crowd, second, admin, method, path, json=content)
        assert status == 201, (path, seen)
    of_more: Any = {"name": "of more", "environment_id": "more"}
    _, client = await api(crowd, second, admin, "POST", "/api/clients", json=of_more)
    for at, boat in ((first, "b1"), (second, "b2")):
        status, seen = await api(crowd, at, admin, "POST", "/api/models/boats", json={"id": boat})
        assert status == 201, seen
        _, bearer = await token(crowd, at, client)
        record = {**sent, "record_key": boat}
        status, seen = await api(crowd, at, bearer, "POST", "/api/records", json=record)
        assert status == 201, seen


@pytest.mark.slow
async def test_one_that_others_took_for_dead_starts_again_by_itself(crowd: Several) -> None:
    first = crowd.both[0]
    process, listeners = first.process, len(first.events("listening"))
    assert await crowd.create(0) in (201, 422, 500, 502)
    for times in (1, 2):
        async with link_to(first.environment["DOMICILE__STORE"]) as connection:
            await connection.execute("DELETE FROM writers WHERE slot = 0")
        await until(lambda: len(first.events("listening")) > times * listeners + listeners - 1)  # noqa: B023  # awaited here
        assert first._listening()
        assert (
            len(first.events("the other instances took this one for dead: it starts again"))
            == times
        )
        for _ in range(5):
            await crowd.create(0)
        await crowd.judge()
    assert first.process == process
    assert await first.stop() == 0
    first.proxy = ""
    assert await first.run("audit", "verify") == 0, first.output + first.log


@pytest.mark.slow
async def test_each_needs_an_audit_log_of_its_own_and_verifies_it(crowd: Several) -> None:
    first, second = crowd.both
    shared = {**first.environment, "DOMICILE__AUDIT__FOLDER": str(first.data / "audit")}
    third = Installation(first.nursery, first.folder / "three", shared)
    third.folder.mkdir()
    shutil.copytree(first.rules, third.rules)
    assert not await third.start()
    assert b"Another replica writes the audit log" in third.log
    for _ in range(4):
        await crowd.create(0)
    chains = {(one.data / "audit" / "chain").read_text() for one in crowd.both}
    assert len(chains) == 2
    assert await second.stop() == 0
    second.proxy = ""
    assert await second.run("audit", "verify") == 0, second.output + second.log
    newest = max((second.data / "audit").glob("audit-*.jsonl"))
    newest.write_bytes(newest.read_bytes()[:-40])
    assert await second.run("audit", "verify") != 0
    assert await first.stop() == 0, first.log[-3000:].decode()
    first.proxy = ""
    assert await first.run("audit", "verify") == 0, first.output + first.log


async def test_finds_of_either_are_answered_by_a_standby_and_show_what_was_written(
    tmp_path: Path, server: Server
) -> None:
    standby = Server(server.folder.with_name("standby"))
    try:
        standby.copy(server)
        standby.start()
        address = server.address(replicas="true", pool="4", find_from="standby").replace(
            f":{server.port}/", f":{server.port},127.0.0.1:{standby.port}/"
        )
        application = Application()
        async with before(application, application.app(), tmp_path) as alone:
            crowd = Several(application, alone.caller, alone.installation)
            crowd.both = pair_of(alone.installation, address)
            for one in crowd.both:
                assert await one.start(), one.log.decode()
            await _finds(crowd, standby)
            for one in crowd.both:
                assert await one.stop() == 0
    finally:
        standby.kill()


async def _finds(crowd: Several, standby: Server) -> None:
    first, second = crowd.both
    _, bearer = await token(crowd, first, CHIEF)

    async def answered() -> Counter[str]:
        counted: Counter[str] = Counter()
        for one in crowd.both:
            async with crowd.caller.get(one.admin + "/metrics", headers=FIELD) as answer:
                for line in (await answer.text()).splitlines():
                    if line.startswith("domicile_vault_questions_total{"):
                        server, count = line.split('"')[1], line.rsplit(" ", 1)[1]
                        counted[server] += int(float(count))
        return counted

    async def find(at: Installation, profile: str) -> list[str]:
        sought = {"filter": {"profile_key": profile}, "country": "se"}
        status, seen = await api(crowd, at, bearer, "POST", "/api/records/find", json=sought)
        assert status == 200, seen
        assert {one["profile_key"] for one in seen["data"]} <= {profile}
        return [one["record_key"] for one in seen["data"]]

    async def write_and_find(number: int) -> None:
        """Another record; and the first one changes its value."""
        one, other = (first, second) if number % 2 else (second, first)
        for record in ((f"k{number}", f"p{number}"), ("first", f"first{number}")):
            sent = dict(zip(("country", "record_key", "profile_key"), ("se", *record), strict=True))
            status, seen = await api(crowd, one, bearer, "POST", "/api/records", json=sent)
            assert status == 201, seen
        assert await find(other, f"p{number}") == [f"k{number}"]
        assert await find(other, f"first{number}") == ["first"]
        assert await find(other, f"first{number - 1}") == [], "the value of before"

    async def until_asked(number: int) -> int:
        """Write and find until the standby answers; the number of the last one."""
        enough = (await answered())["standby"] + 10
        async with asyncio.timeout(PATIENCE):
            while (await answered())["standby"] < enough:
                number += 1
                await write_and_find(number)
        return number

    async def by_the_primary(number: int) -> int:
        before = await answered()
        for more in range(number + 1, number + 11):
            await write_and_find(more)
        assert (await answered())["primary"] >= before["primary"] + 10
        return number + 10

    number = await until_asked(0)
    await asyncio.to_thread(standby.ask, "SELECT pg_wal_replay_pause()")  # it lags from now on
    number = await by_the_primary(number)
    await asyncio.to_thread(standby.ask, "SELECT pg_wal_replay_resume()")
    number = await until_asked(number)
    await asyncio.to_thread(standby.kill)
    await by_the_primary(number)
