"""Questions that a standby answers: a real one, which follows, lags, hangs, dies, and goes its own
way. Whoever answers, the answer has every write that was acknowledged before.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.base import Hooks
from proxy.storage.changes import Insert
from proxy.storage.postgres.address import parse_address
from proxy.storage.postgres.store import PostgresStore, open_postgres
from proxy.storage.query import MATCH_ALL, AggregateFunction, AggregateMetric, Grouping, Is, Select
from tests.support.patience import PATIENCE
from tests.support.postgres import FAST, Server
from tests.support.rows import LAYOUT, TABLE, live

_NAMES = itertools.count(1)


class Two(NamedTuple):
    """A primary and a standby that follows it."""

    primary: Server
    standby: Server

    def address(self, schema: str, **parameters: str) -> str:
        more = {"pool": "4", "find_from": "standby", **parameters}
        port = self.primary.port
        return self.primary.address(schema, **more).replace(
            f":{port}/", f":{port},127.0.0.1:{self.standby.port}/"
        )


@pytest.fixture(scope="module")
def servers() -> Iterator[Two]:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the servers run as another user
        two = Two(*(Server(Path(folder, name), *FAST) for name in ("primary", "standby")))
        two.primary.make()
        two.primary.start()
        try:
            two.standby.copy(two.primary)
            two.standby.start()
            yield two
        finally:
            two.standby.kill()
            two.primary.kill()


class Asking:
    """One owner of the store: writes, and asks for what it wrote."""

    def __init__(self, store: PostgresStore, answered: Counter[str]) -> None:
        self.store, self.answered = store, answered

    async def write(self) -> int:
        rid = next(_NAMES)
        await self.store.commit(TABLE, [Insert(live(rid, rid)._replace(cells=(None, f"c{rid}")))])
        return rid

    async def sees(self, rid: int) -> None:
        page = await self.store.select(TABLE, Select(Is("city", (f"c{rid}",)), 0))
        assert [one.rid for one in page.rows] == [rid]

    async def until(self, server: str) -> None:
        """Write and ask until that one answers."""
        before = self.answered[server]
        async with asyncio.timeout(PATIENCE):
            while self.answered[server] == before:
                await self.sees(await self.write())
                await asyncio.sleep(0.01)


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Asking]:
    answered: Counter[str] = Counter()
    hooks = Hooks()
    hooks.on_question = lambda server: answered.update([server])
    store = await open_postgres(address, hooks)
    try:
        await store.ensure(LAYOUT)
        if store.replicas is not None:
            await store.replicas.ready()
        yield Asking(store, answered)
    finally:
        await store.close()


@pytest.fixture
async def asking(servers: Two) -> AsyncIterator[Asking]:
    async with opened(servers.address(f"s{next(_NAMES)}")) as made:
        await made.until("standby")
        yield made


async def test_a_standby_answers_and_has_what_was_written_a_moment_ago(asking: Asking) -> None:
    async def work() -> None:
        for _ in range(25):
            await asking.sees(await asking.write())

    before = asking.answered["standby"]
    await asyncio.gather(*(work() for _ in range(4)))
    assert asking.answered["standby"] > before
    total = AggregateMetric(AggregateFunction.COUNT)
    counted = await asking.store.aggregate(TABLE, Grouping(MATCH_ALL, 0, (), (total,), 1))
    page = await asking.store.select(TABLE, Select(MATCH_ALL, 0, limit=1))
    assert counted[0].figures == (page.total,)
    assert page.total >= 100


async def test_one_that_lags_is_not_asked_until_it_has_caught_up(
    servers: Two, asking: Asking
) -> None:
    servers.standby.ask("ALTER SYSTEM SET recovery_min_apply_delay = '20s'")
    servers.standby.ask("SELECT pg_reload_conf()")
    try:
        await asking.until("primary")
        asking.answered.clear()
        took = []
        for _ in range(20):
            since = time.monotonic()
            await asking.sees(await asking.write())
            took.append(time.monotonic() - since)
        assert asking.answered == {"primary": 20}
        assert min(took) < 0.25, "nobody waits for it each time"
    finally:
        servers.standby.ask("ALTER SYSTEM RESET recovery_min_apply_delay")
        servers.standby.ask("SELECT pg_reload_conf()")
    await asking.until("standby")


@pytest.mark.parametrize("away", ["it hangs", "it is killed"])
async def test_one_that_is_away_is_not_missed(servers: Two, asking: Asking, away: str) -> None:
    hangs = away == "it hangs"
    await asyncio.to_thread(servers.standby.freeze if hangs else servers.standby.kill)
    slowest = 0.0
    try:
        for _ in range(20):
            since = time.monotonic()
            await asking.sees(await asking.write())
            slowest = max(slowest, time.monotonic() - since)
        assert slowest < 3, "a quarter of a second on a machine at rest"
    finally:
        await asyncio.to_thread(servers.standby.thaw if hangs else servers.standby.start)
    await asking.until("standby")


async def test_what_another_instance_wrote_is_there_too(servers: Two) -> None:
    address = servers.address(f"s{next(_NAMES)}", replicas="true")
    async with opened(address) as one, opened(address) as other:
        await one.until("standby")
        await other.until("standby")
        for _ in range(30):
            await other.sees(await one.write())
            await one.sees(await other.write())
        assert one.answered["standby"] + other.answered["standby"] > 10


async def test_who_has_lost_the_vault_is_answered_by_nobody(asking: Asking) -> None:
    rid = await asking.write()
    await asking.store._link.fetch("DELETE FROM writers")
    with pytest.raises(VaultError):
        await asking.write()
    with pytest.raises(VaultError) as caught:
        await asking.sees(rid)
    assert caught.value.code is Code.VAULT_DOWN


async def test_one_that_went_its_own_way_is_not_asked(servers: Two, asking: Asking) -> None:
    """The last test here: it ends the standby."""
    servers.standby.promote()
    for _ in range(20):
        await asking.sees(await asking.write())
    assert asking.answered["primary"] > 0
    servers.standby.kill()


def test_the_address_names_standbys_beside_the_primary() -> None:
    two = "postgresql://127.0.0.1:1,127.0.0.1:2/vault?find_from="
    parsed = parse_address(f"{two}standby")
    assert "target_session_attrs=standby" in parsed.standby
    assert "target_session_attrs=read-write" in parsed.dsn
    assert parse_address(f"{two}primary").standby == ""
    for wrong in (f"{two}both", "postgresql://127.0.0.1/vault?find_from=standby"):
        with pytest.raises(ValueError, match="find_from"):
            parse_address(wrong)
