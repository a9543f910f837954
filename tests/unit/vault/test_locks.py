import asyncio

import pytest

from proxy.vault.locks import InFlight, RecordLocks
from tests.support.patience import PATIENCE


async def test_holders_of_one_name_follow_one_another() -> None:
    locks = RecordLocks()
    order: list[str] = []

    async def work(name: str) -> None:
        held = await locks.acquire([b"x"])
        order.append(f"{name} in")
        await asyncio.sleep(0)
        order.append(f"{name} out")
        locks.release(held)

    await asyncio.gather(work("a"), work("b"), work("c"))
    assert order == ["a in", "a out", "b in", "b out", "c in", "c out"]


async def test_overlapping_sets_in_any_order_do_not_block_each_other_for_ever() -> None:
    locks = RecordLocks()

    async def work(names: list[bytes]) -> None:
        for _ in range(50):
            held = await locks.acquire(names)
            await asyncio.sleep(0)
            locks.release(held)

    await asyncio.wait_for(
        asyncio.gather(work([b"a", b"b"]), work([b"b", b"a"]), work([b"b", b"c", b"b"])), PATIENCE
    )


async def test_nothing_is_left_behind_also_not_by_a_cancelled_waiter() -> None:
    locks = RecordLocks()
    held = await locks.acquire([b"a"])
    waiter = asyncio.create_task(locks.acquire([b"0", b"a", b"b"]))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    locks.release(held)
    assert len(locks) == 0


async def test_a_waiter_cancelled_at_its_turn_passes_the_lock_on() -> None:
    locks = RecordLocks()
    held = await locks.acquire([b"a"])
    first = asyncio.create_task(locks.acquire([b"a"]))
    second = asyncio.create_task(locks.acquire([b"a"]))
    await asyncio.sleep(0)
    locks.release(held)
    first.cancel()
    locks.release(await asyncio.wait_for(second, PATIENCE))
    assert first.cancelled() or first.cancelling()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert len(locks) == 0


# ---- epochs


async def test_nobody_is_waited_for_where_nobody_works() -> None:
    await asyncio.wait_for(InFlight().passed(), PATIENCE)


async def test_work_that_began_before_is_waited_for_and_later_work_is_not() -> None:
    epochs = InFlight()
    go, begun = asyncio.Event(), asyncio.Event()

    async def early() -> None:
        with epochs.work():
            begun.set()
            await go.wait()

    first = asyncio.create_task(early())
    await begun.wait()
    waiting = asyncio.create_task(epochs.passed())
    await asyncio.sleep(0)
    later = asyncio.Event()

    async def late() -> None:
        with epochs.work():
            await later.wait()

    second = asyncio.create_task(late())
    await asyncio.sleep(0)
    assert not waiting.done()
    go.set()
    await asyncio.wait_for(waiting, PATIENCE)
    later.set()
    await asyncio.gather(first, second)


async def test_the_work_that_asks_does_not_wait_for_itself() -> None:
    epochs = InFlight()
    with epochs.work():
        await asyncio.wait_for(epochs.passed(), PATIENCE)


async def test_work_that_fails_has_ended_too() -> None:
    epochs = InFlight()
    with pytest.raises(ValueError), epochs.work():
        raise ValueError
    await asyncio.wait_for(epochs.passed(), PATIENCE)


async def test_a_wait_that_is_given_up_leaves_nothing() -> None:
    epochs = InFlight()
    go = asyncio.Event()

    async def early() -> None:
        with epochs.work():
            await go.wait()

    first = asyncio.create_task(early())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(epochs.passed())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    go.set()
    await first
    await asyncio.wait_for(epochs.passed(), PATIENCE)
