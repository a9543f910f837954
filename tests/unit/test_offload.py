import asyncio
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from proxy import offload
from proxy.offload import (
    FEW,
    LARGE,
    SMALL,
    STRIDE,
    busy,
    discard,
    each,
    give_way,
    in_thread,
    is_long,
    run_in_thread,
)
from tests.support.patience import PATIENCE
from tests.support.table import table


@pytest.fixture
def always_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "SLICE", 0.0)


async def counted(stop: asyncio.Event) -> int:
    """The turns of the loop until the event."""
    turns = 0
    while not stop.is_set():
        turns += 1
        await asyncio.sleep(0)
    return turns


@table(
    ("body", "long"),
    [
        (b"," * SMALL, False),
        (b"x" * LARGE, False),
        (b"x" * (LARGE + 1), True),
        (b"x" * SMALL + b"," * FEW, False),
        (b"x" * SMALL + b"," * (FEW + 1), True),
        (b"x" * SMALL + b"&" * (FEW + 1), True),
        (b"," * FEW + b"x" * SMALL * 4 + b",", True),
    ],
)
def test_a_body_is_long_by_its_bytes_or_by_its_members(body: bytes, long: bool) -> None:
    assert is_long(body) is long


async def test_work_in_a_thread_leaves_the_loop_and_hastens_changes_of_turns() -> None:
    before = sys.getswitchinterval()

    thread, interval = await in_thread(lambda: (threading.get_ident(), sys.getswitchinterval()))

    assert thread != threading.get_ident()
    assert interval == pytest.approx(offload.BRISK)
    assert sys.getswitchinterval() == pytest.approx(before)
    assert await run_in_thread(False, threading.get_ident) == threading.get_ident()
    assert await run_in_thread(True, threading.get_ident) != threading.get_ident()


async def test_work_in_a_thread_comes_behind_the_loop_where_they_share_a_core() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)

    behind = await in_thread(os.getpriority, os.PRIO_PROCESS, 0)

    assert os.getpriority(os.PRIO_PROCESS, 0) == own
    assert behind == min(own + 10, 19) if sys.platform == "linux" else behind == own


async def test_a_thread_works_where_a_sandbox_forbids_priorities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "nice", Mock(side_effect=PermissionError))

    with ThreadPoolExecutor(1, initializer=offload.behind_loop) as threads:
        assert threads.submit(abs, -1).result() == 1


async def test_a_cancelled_caller_of_a_thread_leaves_nothing_behind() -> None:
    before, begun, go_on = sys.getswitchinterval(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(10)

    task = asyncio.ensure_future(in_thread(work))
    while not begun.is_set():  # noqa: ASYNC110  # it is set on another thread
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()

    assert sys.getswitchinterval() == pytest.approx(before)
    assert await in_thread(lambda: 1) == 1


@pytest.mark.usefixtures("always_busy")
async def test_long_work_yields_after_each_stride_once_its_slice_is_over() -> None:
    stop = asyncio.Event()
    turns = asyncio.ensure_future(counted(stop))

    assert await each(str, range(STRIDE * 10)) == [str(number) for number in range(STRIDE * 10)]
    stop.set()

    assert await turns >= 10


@pytest.mark.usefixtures("always_busy")
async def test_of_many_that_work_for_long_one_goes_on_in_each_turn() -> None:
    turn = 0
    worked: list[int] = []

    async def work() -> None:
        for _ in range(5):
            assert busy()
            await give_way()
            worked.append(turn)

    async def turning() -> None:
        nonlocal turn
        while len(worked) < 40:
            turn += 1
            await asyncio.sleep(0)

    await asyncio.gather(*(work() for _ in range(8)), turning())

    assert len(set(worked)) == len(worked) == 40


@pytest.mark.usefixtures("always_busy")
async def test_a_cancelled_one_does_not_keep_the_others_waiting() -> None:
    waiting = [asyncio.ensure_future(give_way()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()

    await asyncio.wait_for(waiting[2], PATIENCE)

    assert waiting[0].cancelled()


async def test_short_work_never_yields() -> None:
    stop = asyncio.Event()
    turns = asyncio.ensure_future(counted(stop))

    assert await each(str, range(STRIDE)) == [str(number) for number in range(STRIDE)]
    stop.set()

    assert await turns == 0


async def test_work_within_one_slice_shares_a_turn() -> None:
    assert not busy()
    until = time.perf_counter() + offload.SLICE * 1.5
    while time.perf_counter() < until:
        pass
    assert busy()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not busy()


@pytest.mark.usefixtures("always_busy")
async def test_what_is_left_over_is_freed_in_slices() -> None:
    many, table, few = list(range(FEW + 1)), dict.fromkeys(range(FEW + 1)), [1]

    discard(many, table, few, None)

    assert len(many) + len(table) > FEW  # not all at once
    async with asyncio.timeout(PATIENCE):
        while many or table:  # noqa: ASYNC110  # nobody tells of it
            await asyncio.sleep(0)
    assert few == [1]


@pytest.mark.usefixtures("always_busy")
async def test_who_works_for_long_is_seen_between_slices_and_beside_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offload, "_JUST_NOW", 0.0)
    assert not offload.working()
    waiting = asyncio.ensure_future(give_way())
    await asyncio.sleep(0)
    assert offload.working()
    await waiting
    assert not offload.working()
    monkeypatch.setattr(offload, "_JUST_NOW", 60.0)
    busy()
    assert offload.working()
    monkeypatch.setattr(offload, "_JUST_NOW", 0.0)
    thread = asyncio.ensure_future(in_thread(time.sleep, 0.01))
    await asyncio.sleep(0)
    assert offload.working()
    await thread
    assert not offload.working()
