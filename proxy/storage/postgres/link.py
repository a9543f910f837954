"""The way to the database: connections, who owns the vault there, and the driver's errors in our
terms.

One process owns a vault: it holds an advisory lock in the session that writes, and has its line in
the table ``writers``, which every transaction touches first. A session that breaks loses the lock,
so the line tells whether another process has owned the vault meanwhile; if so this one writes and
reads no more. The line also counts transactions: of a ``COMMIT`` whose answer got lost it says
whether it happened, on whichever server answers then.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

import asyncpg

from proxy.errors import Code, VaultError
from proxy.storage.postgres.address import DatabaseAddress, session_settings
from proxy.storage.postgres.faults import is_link_fault, vault_error
from proxy.storage.postgres.migrations import migrate

_T = TypeVar("_T")

#: Seconds between two looks of a waiting process whether the vault is free, each a short question:
#: one that waited in the database would keep it from cleaning up for as long.
_LOOK: Final = 0.05
#: Looks for which a process waits for its own session, which broke and which the server still ends.
_PARTING: Final = 20
#: Errors after which a waiting process tries again.
_PASSING: Final = (Code.STORE_BUSY, Code.VAULT_DOWN)
#: Seconds between attempts to connect while the database is away: at first, and at most.
_BACKOFF: Final = (0.05, 0.25)
#: Seconds that a question over many rows may take, and the making of an index of all of them.
LONG_QUESTION, LONG_WORK = 60.0, 3600.0

#: A session that waits for a lock ends with its client, not when it gets that: others take it for
#: alive until then, and its own process cannot come back.
_LOOK_AT_CLIENT: Final = "SET client_connection_check_interval = '500ms'"

#: Adds up what writers that are gone have counted.
FOLD: Final = (
    "WITH gone AS (DELETE FROM counts WHERE writer <> 0 AND writer NOT IN (SELECT id FROM writers)"
    " RETURNING name, rows) INSERT INTO counts (name, writer, rows)"
    " SELECT name, 0, sum(rows) FROM gone GROUP BY name"
    " ON CONFLICT (name, writer) DO UPDATE SET rows = counts.rows + excluded.rows"
)

#: Removes what replicas before have left.
_ALONE: Final = (
    "DELETE FROM writers; DELETE FROM locks; DELETE FROM flight; DELETE FROM overtaken;"
    " DELETE FROM agreed"
)

#: First half of the advisory locks' keys; the second is a hash of the schema.
OWNER_LOCK, GROUP_LOCK = 0x444D, 0x4443


async def connect(address: DatabaseAddress, *, durable: bool = True) -> asyncpg.Connection:
    """A connection; one that is not ``durable`` waits for no disk. Raises the driver's errors."""
    connection: asyncpg.Connection = await asyncpg.connect(
        address.dsn, timeout=address.timeout, **session_settings(address, durable=durable)
    )
    with suppress(asyncpg.PostgresError):  # servers on some systems cannot look
        await connection.execute(_LOOK_AT_CLIENT)
    return connection


class DatabaseLink:
    """The connections of one store. ``open`` before use, ``close`` after it."""

    shares = False  #: whether others may own the vault as well (``replicas``)

    def __init__(self, address: DatabaseAddress) -> None:
        self.address = address
        self.writer_id = secrets.randbits(62) + 1
        self._pool: asyncpg.Pool | None = None
        self._writer: asyncpg.Connection | None = None
        #: on which it asks whether the vault is free
        self._candidate: asyncpg.Connection | None = None
        self._done = 0  #: transactions that this process has begun
        self._registered = False
        self._lost: VaultError | None = None
        self.taken_over: Callable[[], object] = lambda: None  #: called when another one owns it
        self._fault: VaultError | None = None  #: of the last attempt to connect
        self._next = 0.0  #: when it may be tried again
        self._pause = _BACKOFF[0]

    async def open(self) -> None:
        """Create missing parts of the database, and own it.

        Raises ``VaultError``: STORE_BUSY, BAD_STORE, VAULT_DOWN.
        """
        end, waits = time.monotonic() + self.address.wait, False
        while True:
            try:
                await self.writer()
                break
            except VaultError as error:
                waits = waits or error.code is Code.STORE_BUSY
                # a process that waits for another one also waits for a database that is failing
                # over
                if not waits or error.code not in _PASSING or time.monotonic() > end:
                    raise
            await asyncio.sleep(_LOOK)
        self._pool = await self._guarded(lambda: self.new_pool(self.address.dsn))

    async def close(self) -> None:
        """Let another process own the vault. Idempotent."""
        pool, self._pool = self._pool, None
        for one in (self._writer, self._candidate):
            if one is not None:
                await _part(one)
        self._writer = self._candidate = None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), self.address.timeout)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pool.terminate()

    # ------------------------------------------------------------------ reading

    async def fetch(self, text: str, *values: Any) -> list[Any]:
        """The rows that a statement answers."""
        return await self.read(lambda connection: connection.fetch(text, *values))

    async def read(self, ask: Callable[[Any], Awaitable[_T]], patience: float | None = None) -> _T:
        """Return the result of ``ask`` within so many seconds; retry a broken connection."""
        if self._lost is not None:
            raise VaultError(self._lost.code, self._lost.message)
        try:
            return await self._read(ask, patience)
        except Exception as error:
            if not is_link_fault(error) or isinstance(error, TimeoutError):
                raise vault_error(error) from error
        try:  # all of the pool may be as old
            if self._pool is not None:
                await self._pool.expire_connections()
            return await self._read(ask, patience)
        except Exception as error:
            raise vault_error(error) from error

    async def _read(self, ask: Callable[[Any], Awaitable[_T]], patience: float | None) -> _T:
        if self._pool is None:
            raise asyncpg.InterfaceError("closed")
        limit = self.address.timeout
        async with self._pool.acquire(timeout=limit) as connection:
            async with asyncio.timeout(patience or limit):
                return await ask(connection)

    async def new_pool(self, dsn: str, least: int = 1) -> asyncpg.Pool:
        """Connections that read, of which so many are there at once."""
        pool = asyncpg.create_pool(
            dsn, min_size=least, max_size=self.address.pool, reset=_nothing,
            timeout=self.address.timeout, **session_settings(self.address),
        )  # fmt: skip
        await pool
        return pool

    # ------------------------------------------------------------------ writing

    async def writer(self) -> asyncpg.Connection:
        """The connection that owns the vault.

        A broken one is replaced, but not more often than the pauses between attempts allow. Raises
        ``VaultError``.
        """
        if self._lost is not None:
            raise VaultError(self._lost.code, self._lost.message)
        if self._writer is not None and not self._writer.is_closed():
            return self._writer
        if self._fault is not None and time.monotonic() < self._next:
            raise VaultError(self._fault.code, self._fault.message)
        try:
            self._writer = await self._guarded(self._connected)
        except VaultError as error:
            if error.code is Code.STORE_BUSY:
                raise  # the database answers: it may be asked at any time
            self._fault = error
            self._next = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _BACKOFF[1])
            raise
        self._fault, self._pause = None, _BACKOFF[0]
        if self._pool is not None:
            await self._pool.expire_connections()
        return self._writer

    def drop_writer(self) -> None:
        """Give up the connection that writes."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.terminate()

    def begin(self, *, alone: bool = False, wait: float = 0.0) -> tuple[int, str]:
        """The number of the next transaction, and the statements that begin it.

        They answer ``UPDATE 1`` while this process owns the vault. ``alone``: no other instance
        writes meanwhile. ``wait``: seconds that it waits for each lock that others hold; 0: as long
        as it may take.
        """
        self._done += 1
        kind = "" if alone else "_shared"
        lock = f"pg_advisory_xact_lock{kind}({GROUP_LOCK}, hashtext(current_schema()))"
        mark = f"UPDATE writers SET done = {self._done} WHERE id = {self.writer_id}"  # noqa: S608 - it holds numbers only
        # after the lock of all writers: others hold that as long as they wait themselves
        limit = f"SET LOCAL lock_timeout = {round(wait * 1000)}"
        return self._done, f"BEGIN; SELECT {lock}; {limit}; {mark}"

    def fenced(self) -> VaultError:
        """Another process has owned the vault meanwhile: this one is of no use any more."""
        self._lost = VaultError(
            Code.VAULT_DOWN,
            "Another process has taken over the vault's database: this one writes and reads no "
            "more, restart it or end it.",
        )
        self.taken_over()
        return self._lost

    @property
    def adrift(self) -> bool:
        """Whether the connection that owns the vault broke, so that another process may own it."""
        return self._lost is None and (self._writer is None or self._writer.is_closed())

    async def happened(self, number: int) -> bool:
        """Whether the transaction of that number, whose outcome is unknown, is stored."""
        connection = await self.writer()
        async with asyncio.timeout(self.address.timeout):
            done = await connection.fetchval(
                "SELECT done FROM writers WHERE id = $1", self.writer_id
            )
        return done is not None and int(done) >= number

    async def _connected(self) -> asyncpg.Connection:
        connection, self._candidate = self._candidate, None
        fresh = connection is None or connection.is_closed()
        if connection is None or fresh:
            connection = await connect(self.address)
        try:
            if fresh and not self._registered:
                await migrate(connection, self.address.schema)
            await self._own(connection)
        except VaultError as error:
            if error.code is Code.STORE_BUSY:
                self._candidate = connection
            else:
                connection.terminate()
            raise
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _own(self, connection: asyncpg.Connection) -> None:
        ask = f"SELECT pg_try_advisory_lock({OWNER_LOCK}, hashtext(current_schema()))"
        mine = "SELECT EXISTS (SELECT 1 FROM writers WHERE id = $1)"
        owned = await self.taken(connection, ask)
        if self._registered and not await connection.fetchval(mine, self.writer_id):
            raise self.fenced()
        if not owned:
            raise VaultError(
                Code.STORE_BUSY,
                f"Another process owns the vault at {self.address.label}: end it, or give this "
                "one a schema of its own.",
            )
        if self._registered:
            return
        async with connection.transaction():
            await connection.execute(_ALONE)
            await connection.execute(
                "INSERT INTO writers (id, done) VALUES ($1, $2)", self.writer_id, self._done
            )
            await connection.execute(FOLD)
        self._registered = True

    async def taken(self, connection: asyncpg.Connection, ask: str, *values: Any) -> bool:
        """Whether this process gets a lock of its session; the one before may still have it."""
        owned: bool = await connection.fetchval(ask, *values)
        for _ in range(_PARTING):
            if owned or not self._registered:
                break
            await asyncio.sleep(_LOOK)
            owned = await connection.fetchval(ask, *values)
        return owned

    async def _guarded(self, make: Callable[[], Awaitable[_T]]) -> _T:
        try:
            async with asyncio.timeout(3 * self.address.timeout):
                return await make()
        except VaultError:
            raise
        except Exception as error:
            raise vault_error(error) from error


class SnapshotLink(DatabaseLink):
    """A connection that reads a snapshot, whoever owns the vault."""

    async def open(self) -> None:
        self._lock = asyncio.Lock()
        self._reader = await self._guarded(lambda: connect(self.address))
        await self.read(
            lambda connection: connection.execute(
                "SET idle_in_transaction_session_timeout = 0;"
                " BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1"
            )
        )

    async def close(self) -> None:
        await _part(self._reader)

    async def read(self, ask: Callable[[Any], Awaitable[_T]], patience: float | None = None) -> _T:
        try:
            async with self._lock, asyncio.timeout(patience or self.address.timeout):
                return await ask(self._reader)
        except Exception as error:
            raise vault_error(error) from error


async def _nothing(_connection: Any) -> None:
    """A session that reads leaves nothing behind."""


async def _part(connection: asyncpg.Connection) -> None:
    try:
        await connection.close(timeout=1.0)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()


async def begin(
    connection: asyncpg.Connection, link: DatabaseLink, *, alone: bool = False, wait: float = 0.0
) -> int:
    """Begin a transaction of this process; its number (``DatabaseLink.begin``).

    Raises ``VaultError`` where it owns the vault no more, or its own line is locked.
    """
    number, text = link.begin(alone=alone, wait=wait)
    try:
        status = await connection.execute(text)
    except asyncpg.LockNotAvailableError as error:
        raise vault_error(error) from error  # no change of the transaction is to blame
    if status != "UPDATE 1":
        raise link.fenced()
    return number


# Read-only looks at a database that another process may own: each call waits for the server, on its
# own thread.


def look(
    address: DatabaseAddress, ask: Callable[[asyncpg.Connection], Coroutine[Any, Any, _T]]
) -> _T:
    """Return the result of ``ask`` on a connection of its own. Raises ``VaultError``."""

    async def run() -> _T:
        try:
            connection = await connect(address)
            try:
                async with asyncio.timeout(3 * address.timeout):
                    return await ask(connection)
            finally:
                await _part(connection)
        except Exception as error:
            fault = vault_error(error)
            what = fault.message.partition(";")[0].rstrip(".")  # without a retry
            raise VaultError(fault.code, f"{what} ({address.label}).") from error

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()


async def copied_notes(connection: asyncpg.Connection) -> dict[str, bytes] | None:
    """All notes; ``None`` where there is no vault."""
    if await connection.fetchval("SELECT to_regclass('notes')") is None:
        return None
    return dict(await connection.fetch("SELECT name, content FROM notes"))


async def refuse_no_right(connection: asyncpg.Connection, schema: str) -> None:
    """Raise ``VaultError(NOT_WRITABLE)`` if the user lacks the rights to create a vault."""
    ask = (
        "SELECT CASE WHEN to_regnamespace($1) IS NULL"
        " THEN has_database_privilege(current_database(), 'CREATE')"
        " ELSE has_schema_privilege(to_regnamespace($1)::oid, 'CREATE') END"
    )
    if not await connection.fetchval(ask, schema):
        raise VaultError(
            Code.NOT_WRITABLE,
            f"The user of the vault's database may not make tables in the schema {schema}: make "
            "the schema and give it to this user.",
        )
