import asyncio
import threading

import pytest

from proxy.objectstore.files import Threads


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
