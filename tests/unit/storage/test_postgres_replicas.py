"""Several owners of one database: names that one has locked, what it works on, and its end."""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import asyncpg
import pytest

from proxy.errors import Code, VaultError
from proxy.storage.base import Hooks, Replicas
from proxy.storage.changes import Bind, Conflict, Insert, Remove, Underway
from proxy.storage.notes import NoteWrite
from proxy.storage.postgres import replicas
from proxy.storage.postgres.address import parse_address
from proxy.storage.postgres.replicas import SharedLink
from proxy.storage.postgres.store import PostgresStore, open_postgres
from proxy.vault.locks import SharedLocks
from tests.support.patience import PATIENCE, paced
from tests.support.postgres import beside, fresh_address, own_server
from tests.support.replicas import kill, link_of, open_replica
from tests.support.rows import LAYOUT, TABLE, h, row

A, B = b"a" * 20, b"b" * 20
Pair = tuple[PostgresStore, PostgresStore]


@pytest.fixture
def uri() -> str:
    return fresh_address(replicas="true", wait="2")


@pytest.fixture
async def pair(uri: str) -> AsyncIterator[Pair]:
    made = await open_replica(uri), await open_replica(uri)
    for store in made:
        await store.ensure(LAYOUT)
    yield made
    for store in made:
        await store.close()


def replicas_of(store: PostgresStore) -> Replicas:
    assert store.replicas is not None
    return store.replicas


def sessions_end(store: PostgresStore) -> str:
    """The statement that ends the sessions of an owner that writes and locks."""
    assert store._replicas is not None
    sessions = (link_of(store)._writer, store._replicas._connection)
    pids = [one.get_server_pid() for one in sessions if one is not None and not one.is_closed()]
    return f"SELECT pg_terminate_backend(pid) FROM unnest('{{{','.join(map(str, pids))}}}'::int[]) AS pid"


async def lockable(one: Replicas, name: bytes) -> None:
    """Wait until it gets the name without waiting: what others let go, goes behind their backs."""
    async with asyncio.timeout(PATIENCE):
        while not await one.lock([name], wait=False):  # noqa: ASYNC110  # of another
            await asyncio.sleep(0.02)


async def test_a_name_belongs_to_one_until_he_lets_it_go(pair: Pair) -> None:
    one, two = map(replicas_of, pair)
    assert await one.lock([A, B])
    assert not await two.lock([B], wait=False)
    waiting = asyncio.create_task(two.lock([B]))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    one.unlock([B])
    assert await asyncio.wait_for(waiting, PATIENCE)
    assert not await one.lock([B], wait=False)
    assert not await two.lock([A], wait=False)


async def test_names_are_locked_all_or_none(pair: Pair) -> None:
    one, two = map(replicas_of, pair)
    assert await one.lock([B])
    assert not await two.lock([A, B], wait=False)
    await lockable(one, A)  # what the other one got of them goes at once


async def test_many_want_one_name_and_each_has_it_alone(pair: Pair) -> None:
    inside = 0

    async def work(store: PostgresStore, name: bytes) -> None:
        nonlocal inside
        await replicas_of(store).lock([name, A])
        inside += 1
        assert inside == 1
        await asyncio.sleep(0.001)
        inside -= 1
        replicas_of(store).unlock([name, A])

    # within one process nobody asks for a name that another task of it has (``SharedLocks``)
    for _ in range(30):
        await asyncio.wait_for(asyncio.gather(work(pair[0], B), work(pair[1], B)), PATIENCE)


async def test_who_gives_up_waiting_gets_nothing(pair: Pair) -> None:
    one, two = map(replicas_of, pair)
    await one.lock([A])
    waiting = asyncio.create_task(two.lock([A]))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    one.unlock([A])
    await lockable(one, A)


async def test_names_outlive_the_session_and_the_connection_that_locked_them(
    uri: str, pair: Pair
) -> None:
    one, two = map(replicas_of, pair)
    await one.lock([A])
    for store in pair:
        await store.put_note("clients/1:x", b"1", None if store is pair[0] else b"1")
    for store in pair:
        await beside(uri, sessions_end(store))
    assert not await asyncio.wait_for(_tried(two), PATIENCE)
    await pair[0].commit(TABLE, [Insert(row(1))])  # and its owner writes on
    one.unlock([A])
    async with asyncio.timeout(PATIENCE):
        while not await _tried(two):  # noqa: ASYNC110  # of another
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_whatever_breaks_no_name_has_two_owners_and_none_stays_locked(
    uri: str, pair: Pair
) -> None:
    holders: dict[bytes, int] = {}
    over = False

    async def work(store: PostgresStore, number: int) -> None:
        names = [b"%d" % number, b"%d" % (number + 1)]
        locks = SharedLocks(replicas_of(store), "t")
        while not over:
            try:
                taken = await locks.acquire(names)
            except VaultError:
                await asyncio.sleep(0.01)
                continue
            for name in names:
                assert holders.setdefault(name, number) == number
            await asyncio.sleep(random.uniform(0, 0.02))
            for name in names:
                del holders[name]
            locks.release(taken)

    tasks = [
        asyncio.create_task(work(store, 10 * at + number))
        for at, store in enumerate((*pair, *pair))
        for number in range(0, 8, 2)
    ]
    tasks += [asyncio.create_task(work(pair[at % 2], 5 * at)) for at in range(8)]
    for number in range(12):
        await asyncio.sleep(random.uniform(0.05, 0.5))
        await beside(uri, sessions_end(pair[number % 2]))
    over = True
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    end = time.monotonic() + PATIENCE
    while await link_of(pair[0]).fetch("SELECT * FROM locks"):
        assert time.monotonic() < end
        await asyncio.sleep(0.1)


async def _tried(two: Replicas) -> bool:
    while True:
        try:
            return await two.lock([A], wait=False)
        except VaultError:  # its connection was broken, too
            await asyncio.sleep(0.05)


async def test_a_lock_that_the_server_forgot_is_taken_again_before_anything_is_written(
    uri: str, pair: Pair
) -> None:
    """As after a crash of the server, which may lose what no commit waited for."""
    one, two = map(replicas_of, pair)
    await one.lock([A])
    await beside(uri, "DELETE FROM locks")
    link_of(pair[0]).drop_writer()
    await pair[0].commit(TABLE, [Insert(row(1))])
    assert not await two.lock([A], wait=False)


async def test_who_lost_a_lock_to_another_one_writes_nothing_more(uri: str, pair: Pair) -> None:
    one, two = map(replicas_of, pair)
    await one.lock([A])
    await beside(uri, "DELETE FROM locks")
    assert await two.lock([A], wait=False)
    link_of(pair[0]).drop_writer()
    with pytest.raises(VaultError) as caught:
        await pair[0].commit(TABLE, [Insert(row(1))])
    assert caught.value.code is Code.VAULT_DOWN
    assert await pair[1].rows(TABLE, [1]) == {}


async def test_a_lock_that_is_released_while_a_new_session_asks_for_it_is_not_lost(
    uri: str, pair: Pair
) -> None:
    one, two = map(replicas_of, pair)
    await one.lock([A, B])
    asked = False

    class Asking:
        """A new session; another owner takes one of the names just before it asks whose it is."""

        def __init__(self, connection: asyncpg.Connection) -> None:
            self.execute = connection.execute
            self._connection = connection

        async def fetch(self, text: str, *values: Any) -> list[Any]:
            nonlocal asked
            asked = True
            one.unlock([A])
            await asyncio.wait_for(two.lock([A]), PATIENCE)
            return cast(list[Any], await self._connection.fetch(text, *values))

    link = link_of(pair[0])
    await link._go_on(cast(Any, Asking(await link.writer())))
    assert asked
    await pair[0].commit(TABLE, [Insert(row(1))])
    assert not await two.lock([B], wait=False)
    one.unlock([B])


async def test_one_that_looks_at_the_others_is_alive_however_often_its_session_breaks(
    uri: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for store in pair:
        assert store._watch is not None
        store._watch.cancel()  # the test looks for them
    one, two = map(link_of, pair)
    now = time.monotonic()
    monkeypatch.setattr(replicas, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    two._back = -math.inf
    one.drop_writer()
    await _sessions_over(uri, 1)
    for _ in range(10):
        await one.read(one.look)
        await two.read(two.look)
        now += 1.0
    assert len(await two.fetch("SELECT FROM writers")) == 2
    now += replicas.GRACE
    await two.read(two.look)
    assert len(await two.fetch("SELECT FROM writers")) == 1, "it does not look any more"


async def test_others_know_what_one_works_on(pair: Pair) -> None:
    one, two = pair
    working = {1}
    replicas_of(one).works(TABLE, working)
    await one.commit(TABLE, [Insert(row(1)), Underway(begun=(1,))])
    assert await replicas_of(two).at_work(TABLE) == {1}
    assert await replicas_of(one).at_work(TABLE) == set()
    with pytest.raises(Conflict):
        await two.commit(TABLE, [Insert(row(2)), Underway(begun=(1,))])
    assert await two.rows(TABLE, [2]) == {}
    await one.commit(TABLE, [Bind(1, h("k"), b"", 1), Underway(ended=(1,))])
    assert await replicas_of(two).at_work(TABLE) == set()


async def test_work_that_came_to_nothing_is_taken_back(pair: Pair) -> None:
    one, two = pair
    await one.commit(TABLE, [Insert(row(1)), Underway(begun=(1,))])
    end = time.monotonic() + PATIENCE
    while await replicas_of(two).at_work(TABLE):
        assert time.monotonic() < end
        await asyncio.sleep(0.1)


async def test_names_are_told_while_others_are_under_way_and_then_forgotten(pair: Pair) -> None:
    one, two = pair
    now = (int(time.time() * 1000) - 1_577_836_800_000) << 21
    await one.commit(TABLE, [Underway(names=((A, 3, b"", now),))])
    assert await replicas_of(two).overtaken(TABLE, [A]) == []  # nobody is under way
    replicas_of(two).works(TABLE, {7})
    await two.commit(TABLE, [Insert(row(7)), Underway(begun=(7,))])
    await one.commit(TABLE, [Underway(names=((A, None, b"", now), (B, 3, b"salt", now)))])
    assert await replicas_of(two).overtaken(TABLE, [A, B]) == [
        (A, None, b"", now),
        (B, 3, b"salt", now),
    ]


async def test_of_one_that_is_killed_nothing_stays(pair: Pair, uri: str) -> None:
    one, two = pair
    await replicas_of(one).lock([A])
    await one.commit(TABLE, [Insert(row(1)), Underway(begun=(1,))])
    await kill(one, two)
    assert await replicas_of(two).lock([A], wait=False)
    assert await replicas_of(two).at_work(TABLE) == set()


@pytest.mark.slow
async def test_one_that_is_gone_is_cleared_away_and_may_come_back(uri: str, pair: Pair) -> None:
    one, two = pair
    await replicas_of(one).lock([A])
    link = link_of(one)
    assert one._watch is not None
    one._watch.cancel()  # it does nothing any more
    link.drop_writer()
    began = time.monotonic()
    async with paced() as pace:
        assert await asyncio.wait_for(replicas_of(two).lock([A]), PATIENCE)
    assert 4 < time.monotonic() - began < 15 * pace.stretched
    with pytest.raises(VaultError):  # and it can do nothing any more
        await one.commit(TABLE, [Insert(row(1))])


async def test_a_session_that_waits_for_a_lock_ends_with_its_process(uri: str, pair: Pair) -> None:
    one, two = pair
    await one.commit(TABLE, [Insert(row(1))])
    address = parse_address(uri)
    other = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    try:
        await other.execute(f"BEGIN; SELECT 1 FROM r_{TABLE} FOR UPDATE")
        waiting = asyncio.ensure_future(one.commit(TABLE, [Remove(1)]))
        session = link_of(one)._writer
        assert session is not None
        pid = session.get_server_pid()
        blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1"
        alive = "SELECT count(*) FROM pg_locks WHERE pid = $1"
        async with asyncio.timeout(PATIENCE):
            while not await other.fetchval(blocked, pid):  # noqa: ASYNC110  # the server tells
                await asyncio.sleep(0.01)
            link_of(one).drop_writer()
            while await other.fetchval(alive, pid):  # noqa: ASYNC110  # the server ends it
                await asyncio.sleep(0.01)
    finally:
        await other.close()
    await asyncio.wait_for(waiting, PATIENCE)  # it came back meanwhile, and tried again
    assert await two.rows(TABLE, [1]) == {}


class Gone(NamedTuple):
    """How an owner lost its session, and how long another one lets it be away."""

    lost: str  #: who has lost his: this one alone, or both
    back: bool  #: whether the one who looks has his again
    server: str  #: the server that the one that is away was last in session with
    alive: float  #: seconds after which it still counts as alive
    gone: float | None  #: and after which it is cleared away; never


FAIL_OVERS = {
    "one dies": Gone("one", True, "this", 4.9, 5.1),
    "both lose their sessions, and one is slow": Gone("both", True, "this", 19.9, 20.1),
    "nobody has a session": Gone("both", False, "this", 90.0, None),
    "its server is gone": Gone("one", True, "another", 19.9, 20.1),
}


@pytest.mark.parametrize("case", FAIL_OVERS)
async def test_who_is_slow_to_come_back_after_a_fail_over_is_not_taken_for_dead(
    uri: str, pair: Pair, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, back, server, alive, gone = FAIL_OVERS[case]
    for store in pair:
        assert store._watch is not None
        store._watch.cancel()  # the test looks for them
    one, two = map(link_of, pair)
    began = now = time.monotonic()
    monkeypatch.setattr(replicas, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    two._back = -math.inf
    if server == "another":
        await beside(uri, "UPDATE writers SET server = server - interval '1 day' WHERE slot = 0")
    for link in (one, two) if lost == "both" else (one,):
        link.drop_writer()
    await _sessions_over(uri, 0 if lost == "both" else 1)
    if back:
        await two.writer()
    await two.read(two.look)
    now = began + alive
    await two.read(two.look)
    assert len(await two.fetch("SELECT FROM writers")) == 2
    if gone is None:
        await one.writer()
        await pair[0].commit(TABLE, [Insert(row(1))])
        return
    now = began + gone
    await two.read(two.look)
    assert len(await two.fetch("SELECT FROM writers")) == 1
    with pytest.raises(VaultError):
        await pair[0].commit(TABLE, [Insert(row(1))])


@pytest.mark.parametrize(
    ("place", "runs", "cleared"),
    [
        ("here", False, True),
        ("here", True, False),
        ("elsewhere", False, False),
        (None, False, False),
    ],
)
async def test_one_whose_process_has_ended_on_this_machine_is_waited_for_no_longer(
    uri: str, pair: Pair, place: str | None, runs: bool, cleared: bool
) -> None:
    for store in pair:
        assert store._watch is not None
        store._watch.cancel()
    one, two = map(link_of, pair)
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    here, _, own = one.host.rpartition(" ")
    host = {"here": here, "elsewhere": f"x{here}"}.get(place or "", "")
    host = f"{host} {own if runs else ended.pid}" if place else here.partition(" ")[0]
    await beside(uri, f"UPDATE writers SET host = '{host}' WHERE slot = 0")
    await beside(uri, "UPDATE writers SET server = server - interval '1 day' WHERE slot = 0")
    await two.read(two.look)
    assert len(await two.fetch("SELECT FROM writers")) == 2, "its session lives"
    one.drop_writer()  # as if it had gone with the server
    await _sessions_over(uri, 1)
    await two.read(two.look)
    assert len(await two.fetch("SELECT FROM writers")) == (1 if cleared else 2)


async def test_clocks_are_one_only_on_one_machine() -> None:
    assert replicas.has_clock_of("boot pid:[1] 7", "boot pid:[2] 8")
    assert replicas.has_clock_of("boot", "boot pid:[2] 8"), "of an earlier version"
    for one, other in (("a x 1", "b x 1"), (" 1", " 2"), ("", ""), (None, "b x 1")):
        assert not replicas.has_clock_of(one, other)


async def test_who_starts_after_a_fail_over_clears_nobody_away_who_is_slow(
    uri: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = link_of(pair[0])
    for store in pair:
        assert store._watch is not None
        store._watch.cancel()
    await pair[1].close()
    one.drop_writer()
    await _sessions_over(uri, 0)
    await beside(uri, "UPDATE writers SET server = server - interval '1 day'")
    began = now = time.monotonic()
    monkeypatch.setattr(replicas, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    starts = SharedLink(parse_address(uri))
    for now, refused in ((began, True), (began + 19.9, True), (began + 20.1, False)):  # noqa: B007  # the clock
        if refused:
            with pytest.raises(VaultError, match="without a word"):
                await starts.writer()
        else:
            await starts.writer()
    await starts.close()


async def _sessions_over(uri: str, left: int) -> None:
    """Wait until so many owners are in session."""
    address = parse_address(uri)
    text = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 17477 AND objid IN"
        " (SELECT (hashtext(current_schema() || ':' || id)::bigint & 4294967295)::oid FROM writers)"
    )
    connection = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    async with asyncio.timeout(PATIENCE):
        while await connection.fetchval(text) != left:  # noqa: ASYNC110  # the server ends them
            await asyncio.sleep(0.01)
    await connection.close()


async def test_notes_that_others_read_at_their_start_change_only_while_one_runs_alone(
    uri: str, pair: Pair
) -> None:
    one, two = pair
    with pytest.raises(VaultError) as caught:
        await one.put_note("keyset:x", b"1", None)
    assert caught.value.code is Code.REPLICAS_RUNNING
    await one.put_note("clients/0:x", b"1", None)
    with pytest.raises(VaultError) as caught:
        await two.put_notes(
            [NoteWrite("clients/0:x", b"2", b"1"), NoteWrite("catalog:x", b"", None)]
        )
    assert caught.value.code is Code.REPLICAS_RUNNING
    assert await two.note("clients/0:x") == b"1"
    await one.close()
    await two.put_note("keyset:x", b"1", None)
    with pytest.raises(VaultError) as caught:  # whoever starts now might read half of a change
        await open_postgres(uri, Hooks())
    assert caught.value.code is Code.STORE_BUSY


async def test_progress_of_a_re_encryption_holds_back_no_start(uri: str) -> None:
    first = await open_replica(uri)
    for number in range(5):
        before = b"%d" % (number - 1) if number else None
        await first.put_note("reseal:x", b"%d" % number, before)
    second = await open_postgres(uri, Hooks())
    await second.close()
    await first.close()


async def test_who_starts_lets_nobody_start_before_it_has(uri: str) -> None:
    first = await open_postgres(uri, Hooks())
    with pytest.raises(VaultError) as caught:
        await open_postgres(uri, Hooks())
    assert caught.value.code is Code.STORE_BUSY
    await replicas_of(first).ready()
    second = await open_postgres(uri, Hooks())
    assert {replicas_of(first).slot, replicas_of(second).slot} == {0, 1}
    await second.close()
    await first.close()


async def test_one_owner_and_several_keep_each_other_out(uri: str) -> None:
    sole = uri.replace("replicas=true", "replicas=false")
    several = await open_replica(uri)
    with pytest.raises(VaultError) as caught:
        await open_postgres(sole, Hooks())
    assert caught.value.code is Code.STORE_BUSY
    await several.close()
    one = await open_postgres(sole, Hooks())
    with pytest.raises(VaultError) as caught:
        await open_postgres(uri, Hooks())
    assert caught.value.code is Code.STORE_BUSY
    await one.close()


async def test_rows_are_not_summed_up_with_several_owners(pair: Pair) -> None:
    class Tally:
        def digest(self, rid: int, body: bytes, key_sealed: bytes) -> int:
            raise AssertionError

        def added(self, rows: Iterable[Sequence[Any]], body: int) -> int:
            raise AssertionError

        def mover(self, moved: dict[str, int]) -> Callable[..., None]:
            raise AssertionError

        def seal(self, counter: int, total: int) -> bytes:
            raise AssertionError

        def open(self, sealed: bytes) -> tuple[int, int] | None:
            raise AssertionError

    with pytest.raises(VaultError, match="replicas=true"):
        await pair[0].keep_tally(TABLE, Tally(), first=True)


async def test_one_hears_of_notes_that_another_one_writes(pair: Pair) -> None:
    one, two = pair
    await asyncio.sleep(1.5)  # both listen by then
    for _ in range(2):  # what was said before
        await replicas_of(two).changed()
    took = []
    for name in ("policies:x", "policies:y", "policies:z"):
        heard = asyncio.create_task(replicas_of(two).changed())
        await asyncio.sleep(0)
        began = time.monotonic()
        await one.put_note(name, b"1", None)
        await heard
        took.append(time.monotonic() - began)
    assert min(took) < 0.9, "it does not wait for its second; the best, for a machine may pause"


def test_the_setting_is_true_or_false() -> None:
    assert parse_address("postgresql://127.0.0.1/v?replicas=true").replicas is True
    assert parse_address("postgresql://127.0.0.1/v").replicas is False
    with pytest.raises(ValueError, match="replicas is true or false"):
        parse_address("postgresql://127.0.0.1/v?replicas=2")


async def test_signs_of_life_wait_for_no_disk() -> None:
    """Every commit touches the same row, and would wait for them, too. Here what is to be durable
    waits for a standby that is not there.
    """
    with own_server() as server:
        store = await open_replica(server.address(replicas="true", timeout="5"))
        link = link_of(store)
        durable = "UPDATE writers SET host = host WHERE id = $1"
        try:
            server.ask("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            server.ask("SELECT pg_reload_conf()")
            for _ in range(100):  # until its sessions know
                try:
                    await asyncio.wait_for(link.fetch(durable, link.writer_id), 0.5)
                except TimeoutError:
                    break
                await asyncio.sleep(0.02)
            else:
                pytest.fail("nothing waits")
            assert store._replicas is not None
            await store._replicas.look()
            await store._replicas.heard(1)
            assert await link.fetch("SELECT heard FROM writers") == [(1,)]
        finally:
            server.ask("ALTER SYSTEM RESET synchronous_standby_names")
            server.ask("SELECT pg_reload_conf()")
            await store.close()
