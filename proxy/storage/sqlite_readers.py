"""Threads that answer long questions, each on a connection of its own, while the event loop goes on.

The driver lets go of the interpreter's lock while SQLite works, so that a question over a million rows costs nobody else
anything but a core. A question is one read transaction: whatever it asks in several statements belongs to one state, and
that state has every commit that had returned when it was asked. A caller that is cancelled, and ``close``, stop the
question that runs: SQLite asks every few milliseconds of work whether it is still wanted.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue
from sqlite3 import Connection
from typing import Any, NamedTuple, TypeVar

from proxy.errors import VaultError
from proxy.storage.names import closed
from proxy.storage.sqlite_errors import translated

T = TypeVar("T")

#: Threads at most. Two, so that one long question does not keep everybody else waiting.
THREADS = 2
#: Instructions of SQLite's machine between two questions whether anybody still wants the answer: some milliseconds.
PATIENCE = 500_000
#: Seconds that ``close`` waits for what still runs.
CLOSING = 5.0


class _Question(NamedTuple):
    future: asyncio.Future[Any]
    run: Callable[[Connection], Any]


class Readers:
    """Must be made on the running event loop. Threads and connections come with the first question that needs them."""

    def __init__(self, connect: Callable[[], Connection], threads: int = THREADS) -> None:
        self._connect = connect
        self._bound = threads
        self._loop = asyncio.get_running_loop()
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()  # ``None`` ends a thread
        self._threads: list[threading.Thread] = []
        self._asked = 0  # how many wait or run
        self._closing = False
        self._ended: list[asyncio.Future[None]] = []

    async def ask(self, run: Callable[[Connection], T]) -> T:
        """What ``run`` answers, in a read transaction on another thread. Drivers' errors come out as ``VaultError``."""
        if self._closing:
            raise closed()
        if self._asked >= len(self._threads) and len(self._threads) < self._bound:
            self._start()
        future: asyncio.Future[T] = self._loop.create_future()
        self._asked += 1
        self._questions.put(_Question(future, run))
        return await future

    async def close(self) -> None:
        """Stop what runs, refuse what waits, end the threads; waits a few seconds at most. Idempotent."""
        if not self._closing:
            self._closing = True
            for _ in self._threads:
                self._questions.put(None)
        if self._ended:
            await asyncio.wait(self._ended, timeout=CLOSING)

    def _start(self) -> None:
        ended = self._loop.create_future()
        thread = threading.Thread(target=self._run, args=(ended,), name="vault-reader", daemon=True)
        self._ended.append(ended)
        self._threads.append(thread)
        thread.start()

    def _settle(self, question: _Question, answer: Any, fault: Exception | None) -> None:
        self._asked -= 1
        if question.future.done():  # the caller was cancelled
            return
        if fault is None:
            question.future.set_result(answer)
        else:
            question.future.set_exception(fault)

    # ------------------------------------------------------------ on a reader's thread

    def _run(self, ended: asyncio.Future[None]) -> None:
        connection: Connection | None = None
        try:
            while (question := self._questions.get()) is not None:
                connection, answer, fault = self._attempt(connection, question)
                self._loop.call_soon_threadsafe(self._settle, question, answer, fault)
            self._loop.call_soon_threadsafe(ended.set_result, None)
        except RuntimeError:  # the event loop is gone: nobody is left to be told
            return
        finally:
            _give_up(connection)

    def _attempt(
        self, connection: Connection | None, question: _Question
    ) -> tuple[Connection | None, Any, Exception | None]:
        """The connection for the next question, the answer to this one, or what went wrong."""
        if self._unwanted(question):
            return connection, None, closed()  # or the caller has gone, and nobody hears it
        try:
            connection = connection or self._connect()
            return connection, self._answer(connection, question), None
        except Exception as error:  # noqa: BLE001 - the caller is told; the thread has to live on
            _give_up(connection)
            return None, None, self._told(error)

    def _answer(self, connection: Connection, question: _Question) -> Any:
        connection.set_progress_handler(lambda: self._unwanted(question), PATIENCE)
        connection.execute("BEGIN")
        answer = question.run(connection)
        connection.execute("COMMIT")
        return answer

    def _unwanted(self, question: _Question) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._closing or question.future.done()

    def _told(self, error: Exception) -> Exception:
        if self._closing:
            return closed()
        return error if isinstance(error, VaultError) else translated(error)


def _give_up(connection: Connection | None) -> None:
    """Close it, with the transaction that may be open."""
    if connection is not None:
        connection.set_progress_handler(None, 0)
        try:
            connection.close()
        except sqlite3.Error:  # the file keeps everything, and the next question opens it anew
            return
