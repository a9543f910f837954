import pytest

from proxy.clock import ManualClock
from proxy.storage.memory import MemoryStore
from proxy.vault.crash_windows import BEAT, CrashWindows
from proxy.vault.janitor import pending, reap
from proxy.vault.proxied.binding import forget_staged
from proxy.vault.proxied.staging import stage_creates
from tests.support.vaults import draft, make_bench

MINUTE = 60_000
WEEK = 7 * 86_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def process(store: MemoryStore, clock: ManualClock, environment: str = "e") -> CrashWindows:
    return CrashWindows(store, environment, clock)


def covers(windows: tuple[tuple[int, int], ...], instant: int) -> bool:
    return any(begin <= instant <= end for begin, end in windows)


async def test_an_orderly_stop_leaves_no_window_and_its_note_is_used_again(store, clock):
    for _ in range(5):
        one = process(store, clock)
        await one.begin()
        clock.advance(10 * MINUTE)
        await one.beat()
        await one.end()
        clock.advance(60 * MINUTE)
    assert await process(store, clock).windows() == ()
    assert len(await store.notes(":e")) == 1


async def test_what_a_killed_process_may_have_answered_is_in_a_window_for_ever(store, clock):
    first = process(store, clock)
    await first.begin()
    clock.advance(30 * MINUTE)
    await first.beat()
    clock.advance(BEAT - 1)
    killed_at = clock()
    clock.advance(WEEK)
    for _ in range(3):  # others come and go
        later = process(store, clock)
        await later.begin()
        assert covers(await later.windows(), killed_at)
        assert covers(await later.windows(), killed_at - 9 * MINUTE), "a long request before"
        assert not covers(await later.windows(), clock() - MINUTE)
        await later.end()
        clock.advance(WEEK)
    assert len(await store.notes(":e")) == 1


async def test_a_process_that_lives_has_no_window_and_keeps_its_note(store, clock):
    first, second = process(store, clock), process(store, clock)
    await first.begin()
    await second.begin()
    assert len(await store.notes(":e")) == 2
    for _ in range(30):
        clock.advance(BEAT)
        await first.beat()
        await second.beat()
    assert await first.windows() == ()
    await second.end()
    third = process(store, clock)
    await third.begin()
    assert len(await store.notes(":e")) == 2, "that of the one that has ended"


async def test_a_note_that_was_taken_over_is_written_no_more(store, clock):
    slow = process(store, clock)
    await slow.begin()
    clock.advance(10 * BEAT)  # stopped by the machine for so long
    other = process(store, clock)
    await other.begin()
    await slow.beat()
    await slow.end()
    await other.beat()
    assert covers(await other.windows(), clock() - 10 * BEAT)


async def test_a_process_whose_note_is_gone_begins_again(store, clock):
    slow = process(store, clock)
    noted = [slow.noted]
    await slow.beat()  # begins what could not begin
    noted.append(slow.noted)
    clock.advance(10 * BEAT)
    await process(store, clock).begin()
    for _ in range(2):
        await slow.beat()
        noted.append(slow.noted)
    assert noted == [False, True, False, True]
    assert len(await store.notes(":e")) == 2


async def test_answers_wait_for_their_settle_until_a_note_says_that_the_process_lives() -> None:
    bench = await make_bench()
    early = [bench.vault.answers_early]
    bench.vault.serve()
    early.append(bench.vault.answers_early)
    await bench.vault.begin_serving()
    early.append(bench.vault.answers_early)
    assert early == [True, False, True], "nobody serves; no note yet; a note"


async def test_many_crashes_stay_few_windows_that_cover_all_of_them(store, clock):
    crashes = []
    for _ in range(150):
        await process(store, clock).begin()
        crashes.append(clock())
        clock.advance(60 * MINUTE)
    windows = await process(store, clock).windows()
    assert len(windows) <= 101
    assert all(covers(windows, crash) for crash in crashes)


async def test_environments_have_windows_of_their_own(store, clock):
    await process(store, clock, "one").begin()
    clock.advance(WEEK)
    assert await process(store, clock, "another").windows() == ()
    assert await process(store, clock, "one").windows() != ()


async def test_what_lies_in_a_window_is_never_reaped_and_hides_nothing_behind_it() -> None:
    bench = await make_bench()
    spared = await stage_creates(
        bench.people, [draft(name=f"A{number}") for number in range(450)], [None] * 450
    )
    window = (bench.clock() - MINUTE, bench.clock() + MINUTE)
    bench.clock.advance(60 * MINUTE)
    lost = await stage_creates(bench.people, [draft(name="Lost")], [None])
    forget_staged(bench.people, [*spared, *lost])
    bench.clock.advance(2 * WEEK)
    assert await reap(bench.people, WEEK, (window,)) == 1
    assert await reap(bench.people, WEEK, (window,)) == 0
    assert (await pending([bench.people]))["person"][1] == 450
    assert await reap(bench.people, WEEK) == 450
