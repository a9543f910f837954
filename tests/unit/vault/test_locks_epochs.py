import asyncio

import pytest

from proxy.vault.locks import InFlight


async def test_nobody_is_waited_for_where_nobody_works() -> None:
    await asyncio.wait_for(InFlight().passed(), 10)


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
    await asyncio.wait_for(waiting, 10)
    later.set()
    await asyncio.gather(first, second)


async def test_the_work_that_asks_does_not_wait_for_itself() -> None:
    epochs = InFlight()
    with epochs.work():
        await asyncio.wait_for(epochs.passed(), 10)


async def test_work_that_fails_has_ended_too() -> None:
    epochs = InFlight()
    with pytest.raises(ValueError), epochs.work():
        raise ValueError
    await asyncio.wait_for(epochs.passed(), 10)


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
    await asyncio.wait_for(epochs.passed(), 10)
