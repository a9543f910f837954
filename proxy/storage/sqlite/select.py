"""Answers to questions about rows: made of the plans of ``plan``, inside a read transaction
on whichever connection is given.

Exact in every case: totals and rows belong to one state, sums are not limited to 64 bits. The
memory of a query is bounded by its rows or groups, plus ``plan.NARROW_ROWS`` numbers.
"""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from sqlite3 import Connection
from typing import Any, NamedTuple, TypeVar
from typing import Any as Anything

from proxy.errors import VaultError
from proxy.storage.query import Order, RowPage, Select, closed, fitting
from proxy.storage.rows import Row
from proxy.storage.sqlite.file import translated_error
from proxy.storage.sqlite.plan import AccessPath, Planner
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.where import behind, bounds, join_conditions, name_of

# ruff: noqa: S608 - names have passed query.check_names and ValidatedQuery; every value is a parameter

#: Multiple of the wanted rows that must exist for a walk; fewer are collected and sorted.
_SPARSE = 4


def sqlite_select(connection: Connection, sql: Statements, query: Select) -> RowPage:
    """The answer to ``Store.select``; ``query`` as ``ValidatedQuery`` made it."""
    planner = Planner(connection, sql.layout, query.now)
    way = planner.way(query.where, query.most)
    # one more tells whether there are more
    stop = None if query.limit is None else query.offset + query.limit + 1
    if query.most is not None and way.exact is not None and way.exact > query.most:
        return RowPage([], way.exact, more=True)
    if way.rids is not None and by_age(query) and query.after is None:
        rids = way.rids[::-1] if query.order and query.order[0].descending else way.rids
        return read_page(
            connection, sql, query, rids[query.offset : stop], len(rids) * query.counted
        )
    aged = way.aged and by_age(query)
    if (
        way.straight is not None
        and stop is not None
        and by_age(query)
        and (way.exact is not None or not query.counted)
    ):
        source, condition = way.straight
        straight = way._replace(source=source, condition=condition, aged="r.rid")
        rids = _aged(connection, straight, query, [stop - query.offset, query.offset])
        return read_page(connection, sql, query, rids, (way.exact or 0) * query.counted)
    if way.narrow and not (aged and stop is not None):
        rids, total = _collected(connection, way, query)
        if query.most is not None and total > query.most:
            return RowPage([], total, more=True)
        return read_page(connection, sql, query, rids[query.offset :], total)
    total = planner.total(query.where, way) if query.counted else 0
    if query.most is not None and total > query.most:
        return RowPage([], total, more=True)
    limits = [-1 if query.limit is None else query.limit + 1, query.offset]
    if aged:
        rids = _aged(connection, way, query, limits)
    elif query.counted and stop is not None and total < stop * _SPARSE:
        rids = _collected(connection, way, query)[0][query.offset : stop]
    else:
        rids = _walked(connection, planner, query, limits)
    return read_page(connection, sql, query, rids, total)


def read_page(
    connection: Connection, sql: Statements, query: Select, rids: list[int], total: int
) -> RowPage:
    """The rows with these ids, from the first of the page on, as many as it may have."""
    wanted = rids if query.limit is None else rids[: query.limit]
    if query.room is not None and wanted:
        wanted = _fitting(connection, sql, wanted, query.room)
    return RowPage(_rows(connection, sql, wanted), total, len(wanted) < len(rids))


def _fitting(connection: Connection, sql: Statements, rids: list[int], room: int) -> list[int]:
    """The first of these rows whose bodies have room together; at least one.

    Lengths are read without the bodies.
    """
    sizes = {
        raw[0]: raw[1]
        for text, values in sql.sizes.runs(rids)
        for raw in connection.execute(text, values)
    }
    return rids[: fitting([sizes.get(rid, 0) for rid in rids], room)]


def by_age(query: Select) -> bool:
    """Whether the order is that of the ids."""
    return not query.order or query.order[0].column == "@rid"


def _collected(connection: Connection, way: AccessPath, query: Select) -> tuple[list[int], int]:
    """The sorted ids of all rows behind the end of the page before; how many in all."""
    text, values = way.condition
    order = order_of(query.order)
    # the first of them are enough
    if query.limit is not None and (way.exact is not None or not query.counted):
        source, condition = way.straight or (way.source, way.condition)
        text, values = condition
        if query.after is not None:
            text, values = join_conditions([condition, behind(query.order, query.after)], "AND")
        first = f"SELECT r.rid AS id FROM {source} WHERE {text} ORDER BY {order} LIMIT ?"
        rids = _ids(connection, first, [*values, query.offset + query.limit + 1])
        return rids, (way.exact or 0) * query.counted
    if query.after is None:
        rids = _ids(
            connection,
            f"SELECT r.rid AS id FROM {way.source} WHERE {text} ORDER BY {order} LIMIT -1",
            values,
        )
        return rids, len(rids) if query.counted else 0
    total = 0
    if query.counted:
        total = int(
            connection.execute(
                f"SELECT count(*) FROM {way.source} WHERE {text}", values
            ).fetchone()[0]
        )
    text, values = join_conditions([way.condition, behind(query.order, query.after)], "AND")
    subquery = f"SELECT r.rid AS id FROM {way.source} WHERE {text} ORDER BY {order} LIMIT -1"
    return _ids(connection, subquery, values), total


def _aged(connection: Connection, way: AccessPath, query: Select, limits: list[int]) -> list[int]:
    """The page of a way on which the rows come in the order that is wanted."""
    turn = "DESC" if query.order and query.order[0].descending else ""
    text, values = way.condition
    if query.after is not None:
        text, values = join_conditions(
            [way.condition, behind(query.order, query.after, way.aged)], "AND"
        )
    rids = (
        f"SELECT {way.aged} AS id FROM {way.source} WHERE {text} ORDER BY {way.aged} {turn} "
        "LIMIT ? OFFSET ?"
    )
    return _ids(connection, rids, [*values, *limits])


def scan_rows(connection: Connection, sql: Statements, after: int, limit: int) -> list[Row]:
    """The answer to ``Store.scan``."""
    return [sql.read(raw) for raw in connection.execute(sql.scan, (after, limit))]


def _walked(
    connection: Connection, planner: Planner, query: Select, limits: list[int]
) -> list[int]:
    """The page, found by walking the rows in the order that is wanted, or in any where no index has
    it.

    Behind the place where a page ended it is walked from there, in parts: of a descending order the
    values, then those without one.
    """
    column = query.order[0].column if query.order else "@rid"
    index = planner.index_of(column)
    way = "NOT INDEXED" if index is None else f"INDEXED BY {index}"
    walk = planner.walk(query.where, column)
    head, tail = (
        f"SELECT r.rid AS id FROM {planner.rows} {way} WHERE",
        f"ORDER BY {order_of(query.order)} LIMIT ? OFFSET ?",
    )
    if query.after is None:
        return _ids(connection, f"{head} {walk[0]} {tail}", [*walk[1], *limits])
    if index is None or query.offset:
        parts = [behind(query.order, query.after)]
    else:
        parts = [
            join_conditions([bound, behind(query.order, query.after)], "AND")
            for bound in bounds(query.order, query.after)
        ]
    rids: list[int] = []
    for part in parts:
        text, values = join_conditions([walk, part], "AND")
        left = limits[0] if limits[0] < 0 else limits[0] - len(rids)
        if left:
            rids += _ids(connection, f"{head} {text} {tail}", [*values, left, limits[1]])
    return rids


def order_of(order: Sequence[Order]) -> str:
    """The order in SQL; the id decides last."""
    keys = [f"{name_of(key.column)}{' DESC' if key.descending else ''}" for key in order]
    return ", ".join([*keys, "r.rid"])


def _ids(connection: Connection, text: str, values: list[Anything]) -> list[int]:
    """The ids that the statement finds, in its order.

    They come as one text: for each row of an answer the driver gives the interpreter's lock away
    and asks for it again, and a busy event loop is slow to give it. A ``LIMIT`` in the statement
    keeps its order.
    """
    encoded = connection.execute(f"SELECT json_group_array(id) FROM ({text})", values).fetchone()[0]
    rids: list[int] = json.loads(encoded)
    return rids


def _rows(connection: Connection, sql: Statements, rids: list[int]) -> list[Row]:
    by_rid = rows_by_id(connection, sql, rids)
    return [by_rid[rid] for rid in rids]


def rows_by_id(connection: Connection, sql: Statements, rids: Sequence[int]) -> dict[int, Row]:
    """The rows with these ids that there are."""
    by_rid: dict[int, Row] = {}
    for text, values in sql.rows.runs(rids):
        raws = connection.execute(text, values).fetchall()
        by_rid.update(zip([raw[0] for raw in raws], sql.read_each(raws), strict=True))
    return by_rid


# Threads for long queries, each with its own connection, while the event loop runs.
#
# The driver releases the interpreter's lock while SQLite works, so that a query over a million rows
# costs others only a core. A query is one read transaction: all its statements see one state, which
# has every commit that had returned before it. A cancelled caller, and ``close``, stop the running
# query: SQLite checks every few milliseconds of work whether it is still wanted.

_T = TypeVar("_T")

#: Threads at most. Two, so that one long question does not keep everybody else waiting.
THREADS = 2
#: Instructions of SQLite's machine between two questions whether anybody still wants the answer:
#: some milliseconds.
CANCEL_CHECK_STEPS = 500_000
#: Seconds that ``close`` waits for what still runs.
CLOSING = 5.0


class _Question(NamedTuple):
    future: asyncio.Future[Any]
    run: Callable[[Connection], Any]


class Readers:
    """Must be made on the running event loop.

    Threads and connections come with the first question that needs them.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()  # ``None`` ends a thread
        self._threads: list[threading.Thread] = []
        self._pending = 0  # how many wait or run
        self._closing = False
        self._ended: list[asyncio.Future[None]] = []

    async def ask(self, run: Callable[[Connection], _T]) -> _T:
        """Return the result of ``run``, in a read transaction on another thread.

        Drivers' errors come out as ``VaultError``.
        """
        if self._closing:
            raise closed()
        if self._pending >= len(self._threads) and len(self._threads) < THREADS:
            self._start()
        future: asyncio.Future[_T] = self._loop.create_future()
        self._pending += 1
        self._questions.put(_Question(future, run))
        return await future

    async def close(self) -> None:
        """Stop running queries, refuse waiting ones, end the threads; waits a few seconds at most.

        Idempotent.
        """
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
        self._pending -= 1
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
        except RuntimeError:  # the event loop is gone: no waiter is left
            return
        finally:
            _give_up(connection)

    def _attempt(
        self, connection: Connection | None, question: _Question
    ) -> tuple[Connection | None, Any, Exception | None]:
        """The connection for the next question, the answer to this one, or what went wrong."""
        if self._unwanted(question):
            return connection, None, closed()  # or the caller has left
        try:
            connection = connection or self._connect()
            return connection, self._answer(connection, question), None
        except Exception as error:  # noqa: BLE001 - the caller is told; the thread has to live on
            _give_up(connection)
            return None, None, self._translated(error)

    def _answer(self, connection: Connection, question: _Question) -> Any:
        connection.set_progress_handler(lambda: self._unwanted(question), CANCEL_CHECK_STEPS)
        connection.execute("BEGIN")
        answer = question.run(connection)
        connection.execute("COMMIT")
        return answer

    def _unwanted(self, question: _Question) -> bool:
        """Whether no caller waits for the answer any more."""
        return self._closing or question.future.done()

    def _translated(self, error: Exception) -> Exception:
        if self._closing:
            return closed()
        return error if isinstance(error, VaultError) else translated_error(error)


def _give_up(connection: Connection | None) -> None:
    """Close it, with the transaction that may be open."""
    if connection is not None:
        connection.set_progress_handler(None, 0)
        try:
            connection.close()
        except sqlite3.Error:  # the file keeps everything, and the next query opens it again
            return
