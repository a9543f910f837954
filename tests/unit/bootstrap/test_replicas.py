"""What a replica reads again when another one has changed it."""

import asyncio
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from proxy.bootstrap.replicas import ClockWatch, Follower, Team, merged_metrics, watch_store
from proxy.clock import system_clock
from proxy.config import Worker
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.notes import RootedNotes
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.vault.environments import accept_notes
from tests.support.memory import MemoryStore
from tests.support.patience import PATIENCE
from tests.support.postgres import fresh_address
from tests.support.replicas import open_replica


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


async def test_what_cannot_be_read_holds_nothing_else_up(store: RootedNotes) -> None:
    keys, policies, told = Readers(), Readers(), Told()
    read = {"next keyset": keys, "policies": policies}
    one = Follower(store, told, read)  # type: ignore[arg-type]  # what it uses of them is there
    await store.put_note("next keyset:default", b"1", None)
    await store.put_note("policies:default", b"1", None)
    keys.failures = 1
    with pytest.raises(VaultError):
        await one.catch_up()
    assert (policies.read, told.counter) == ([("", "default")], 0)
    await one.catch_up()
    assert (keys.read, policies.read) == ([("", "default")], [("", "default")])
    assert told.counter == 2


# ---------------------------------------------------------------------- workers of one service

METRICS = b"""# HELP up Whether.
# TYPE up gauge
up %d
# HELP served_total Requests.
# TYPE served_total counter
served_total{endpoint="a b"} 3.0
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{le="+Inf"} 1.0
took_seconds_count 1.0
"""


class Member:
    """A worker that answers what it is told to."""

    def __init__(self, number: int, folder: Path) -> None:
        self.fault: str | None = None
        self.loaded = 0
        self.team = Team(Worker(number, folder), lambda: METRICS % number, {"vault": self.check}, self.reload)  # fmt: skip

    async def check(self) -> str | None:
        return self.fault

    async def reload(self) -> dict[str, str | None]:
        self.loaded += 1
        return {"rules": self.fault, "notes": None}


def test_each_sample_tells_its_worker_and_each_family_stands_once():
    assert merged_metrics({2: METRICS % 2, 1: METRICS % 1}).decode().splitlines() == [
        "# HELP up Whether.", "# TYPE up gauge", 'up{worker="1"} 1', 'up{worker="2"} 2',
        "# HELP served_total Requests.", "# TYPE served_total counter",
        'served_total{worker="1",endpoint="a b"} 3.0', 'served_total{worker="2",endpoint="a b"} 3.0',
        "# HELP took_seconds Time.", "# TYPE took_seconds histogram",
        'took_seconds_bucket{worker="1",le="+Inf"} 1.0', 'took_seconds_count{worker="1"} 1.0',
        'took_seconds_bucket{worker="2",le="+Inf"} 1.0', 'took_seconds_count{worker="2"} 1.0',
    ]  # fmt: skip


async def test_whichever_worker_is_asked_answers_for_all_that_are_there(tmp_path):
    one, two = Member(1, tmp_path), Member(2, tmp_path)
    async with one.team.answering():
        async with two.team.answering():
            assert await one.team.metrics() == await two.team.metrics()
            assert await one.team.check() == "Not all workers serve yet."
            (tmp_path / "all").touch()
            assert await one.team.check() is None
            two.fault = "the database is away"
            assert await one.team.check() == "Worker 2 is not ready (vault): the database is away"
            assert await two.team.check() is None, "its own checks are told without the others"
            assert await one.team.reload() == {"rules": "in worker 2: the database is away", "notes": None}  # fmt: skip
            assert (one.loaded, two.loaded) == (1, 1)
        assert await one.team.metrics() == merged_metrics({1: METRICS % 1}), "the other one ended"
        (tmp_path / "2").touch()  # it was killed: nobody answers there
        assert await one.team.check() is None
    assert not (tmp_path / "1").exists()


async def test_a_clock_that_drifts_from_the_database_is_said_until_it_is_right_again(
    monkeypatch, capfd
):
    store, metrics, drift = await open_replica(fresh_address(replicas="true")), Metrics(), 0.0
    assert store._replicas is not None
    compare = partial(store._replicas.same_time, clock=lambda: time.time() + drift)
    monkeypatch.setattr(store._replicas, "same_time", compare)  # the clock of a machine stays
    notes, clock = Reload(metrics, "notes"), Reload(metrics, "clock")
    watch = ClockWatch(clock, system_clock, 0)
    watching = asyncio.create_task(watch_store(store, notes, watch, 0.01))
    try:
        for drift, said in ((0.0, False), (-0.5, True), (0.5, True), (0.0, False)):  # noqa: B007  # read above
            async with asyncio.timeout(PATIENCE):
                while (await clock.check() is not None) is not said:  # noqa: ASYNC110  # it compares
                    await asyncio.sleep(0.01)
            fault = await clock.check() or ""
            assert ("away from that of the database" in fault) is said
            assert metrics.cell("domicile_reload_failed", "clock").value == said
        logged = capfd.readouterr().err
        assert logged.count("the clock differs from the database's") == 1, "once for a drift"
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await store.close()


async def test_a_clock_that_was_set_back_is_said_until_it_has_passed_what_was_written(capfd):
    state, now = Reload(Metrics(), "clock"), 100_000
    watch = ClockWatch(state, lambda: now, 160_000)  # the last line of the audit log
    for now, behind in ((100_000, 60), (110_000, 50), (159_500, 0), (200_000, 0), (190_000, 10)):
        await watch.look(None)
        text = await state.check() or ""
        assert (f"is {behind} s behind what it was" in text) is (behind > 0), now
    logged = capfd.readouterr().err
    assert logged.count("the clock of this machine was set back") == 2, "once each time"
