import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from sqlite3 import Connection

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.sqlite.select import Readers
from tests.support.patience import PATIENCE

#: Runs until it is stopped.
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "read.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (n)")
    connection.close()
    return path


@pytest.fixture
async def readers(path: Path) -> AsyncIterator[Readers]:
    readers = Readers(lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False))
    yield readers
    await readers.close()


class Endless:
    """A question without an end, and how to tell that it runs."""

    def __init__(self) -> None:
        self.runs = threading.Event()

    def __call__(self, connection: Connection) -> int:
        self.runs.set()
        answer: int = connection.execute(ENDLESS).fetchone()[0]
        return answer

    async def running(self) -> None:
        assert await asyncio.to_thread(self.runs.wait, PATIENCE)


def one(connection: Connection) -> int:
    answer: int = connection.execute("SELECT 1").fetchone()[0]
    return answer


async def test_no_thread_is_started_before_a_question(readers: Readers) -> None:
    assert readers._threads == []
    assert await readers.ask(one) == 1
    assert await readers.ask(one) == 1
    assert len(readers._threads) == 1


async def test_a_question_is_one_state_and_the_next_one_sees_what_came_since(
    readers: Readers, path: Path
) -> None:
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def twice(connection: Connection) -> list[int]:
        counts = []
        for _ in range(2):
            counts.append(connection.execute("SELECT count(*) FROM t").fetchone()[0])
            writer.execute("INSERT INTO t VALUES (1)")
        return counts

    assert await readers.ask(twice) == [0, 0]
    assert await readers.ask(twice) == [2, 2]
    writer.close()


async def test_a_short_question_passes_a_long_one_and_the_loop_goes_on(readers: Readers) -> None:
    endless = Endless()
    task = asyncio.ensure_future(readers.ask(endless))
    await endless.running()
    assert await readers.ask(one) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_callers_that_are_cancelled_leave_no_thread_stuck(readers: Readers) -> None:
    endless = [Endless() for _ in range(6)]
    tasks = [asyncio.ensure_future(readers.ask(question)) for question in endless]
    await endless[0].running()
    await endless[1].running()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await asyncio.wait_for(readers.ask(one), PATIENCE) == 1
    assert not any(question.runs.is_set() for question in endless[2:])


async def test_close_stops_what_runs_and_refuses_what_waits(readers: Readers) -> None:
    endless = [Endless() for _ in range(3)]
    tasks = [asyncio.ensure_future(readers.ask(question)) for question in endless]
    await endless[0].running()
    await endless[1].running()
    await asyncio.wait_for(readers.close(), PATIENCE)
    await readers.close()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, VaultError)
        assert result.code is Code.VAULT_DOWN
    assert not any(thread.is_alive() for thread in readers._threads) or await _ended(readers)
    with pytest.raises(VaultError):
        await readers.ask(one)


async def _ended(readers: Readers) -> bool:
    for thread in readers._threads:
        await asyncio.to_thread(thread.join, PATIENCE)
    return not any(thread.is_alive() for thread in readers._threads)


async def test_a_fault_is_told_and_the_next_question_has_a_connection_again(
    readers: Readers,
) -> None:
    with pytest.raises(VaultError) as caught:
        await readers.ask(lambda connection: connection.execute("SELECT nothing"))
    assert caught.value.code is Code.INTERNAL
    assert await readers.ask(one) == 1


async def test_a_connection_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    place = f"file:{tmp_path}/none.db?mode=ro"
    readers = Readers(
        lambda: sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False)
    )
    with pytest.raises(VaultError) as caught:
        await readers.ask(one)
    assert caught.value.code is Code.VAULT_DOWN
    await readers.close()
