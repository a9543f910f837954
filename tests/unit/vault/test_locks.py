import asyncio

import pytest

from proxy.vault.locks import RecordLocks
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
