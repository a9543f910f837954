import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from proxy.objectstore.threads import Threads


async def test_work_answers_and_raises():
    threads = Threads(1)
    assert await threads.run(int, "12") == 12
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(int, "x")
    threads.close()
    threads.close()


async def test_who_is_cancelled_waits_for_his_thread():
    threads, begun, go_on, ended = Threads(1), threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        go_on.wait(30)
        ended.append(True)

    task = asyncio.create_task(threads.run(work))
    await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
    threads.close()


async def test_no_more_work_at_once_than_allowed():
    threads, now, most, lock = Threads(2), 0, 0, threading.Lock()
    both = threading.Barrier(2)

    def work() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        both.wait(30)
        with lock:
            now -= 1

    await asyncio.gather(*(threads.run(work) for _ in range(8)))
    assert most <= 3  # the one that leaves may still count while the next begins
    threads.close()


async def items(*given: object):
    for item in given:
        yield item


async def test_the_next_item_is_fetched_while_a_thread_is_at_work():
    threads, fetched, done = Threads(1), threading.Event(), []

    async def two() -> AsyncIterator[int]:
        yield 1
        fetched.set()
        yield 2

    def work(item: int) -> None:
        assert fetched.wait(30)
        done.append(item)

    await threads.each(work, two())
    assert done == [1, 2]
    threads.close()


@pytest.mark.parametrize("given", [("x",), ("1", "x"), ("1", "x", "2"), ("x", "y")])
async def test_what_the_work_on_an_item_raises_comes_out(given):
    threads = Threads(2)
    with pytest.raises(ValueError, match="'x'"):
        await threads.each(int, items(*given))
    await threads.each(int, items())
    threads.close()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_nobody_is_at_work_on_an_item_when_its_giver_has_failed(cancelled):
    threads, begun, go_on, ended = Threads(1), threading.Event(), threading.Event(), []

    async def broken() -> AsyncIterator[int]:
        yield 1
        await asyncio.to_thread(begun.wait, 30)
        if cancelled:
            await asyncio.Event().wait()
        raise ConnectionError

    def work(_: int) -> None:
        begun.set()
        go_on.wait(30)
        ended.append(True)

    task = asyncio.create_task(threads.each(work, broken()))
    await asyncio.to_thread(begun.wait, 30)
    if cancelled:
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError if cancelled else ConnectionError):
        await task
    assert ended == [True]
    threads.close()
