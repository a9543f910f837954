"""Messages between the replicas of one vault through the database (``storage.base.Replicas``)."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import asyncpg

from proxy.errors import Code, VaultError
from proxy.storage.notes import AgreedNote, Agreement, FollowedNote, NoteWrite, ResealedNote
from proxy.storage.postgres.faults import is_link_fault, vault_error
from proxy.storage.postgres.link import GROUP_LOCK, connect
from proxy.storage.postgres.replicas import (
    ASYNC_COMMIT,
    DISAGREEING,
    JOINING,
    LOCK_NAMES,
    MARGIN,
    NOTED,
    ORPHANS,
    SharedLink,
    has_clock_of,
    refuse_other_time,
)
from proxy.storage.postgres.writer import PostgresWriter

#: Seconds between two tries for a locked name: at first, and at most.
_TRIES: Final = (0.002, 0.02)
_UNLOCK: Final = "DELETE FROM locks WHERE name = ANY($1::bytea[]) AND writer = $2"
_HEARD: Final = f"{ASYNC_COMMIT} UPDATE writers SET heard = $2 FROM async_commit WHERE id = $1"  # noqa: S608 - every value is a parameter
_DEAF: Final = "SELECT EXISTS (SELECT 1 FROM writers WHERE id <> $1 AND heard < $2)"
_AGREED: Final = "SELECT 1 FROM agreed WHERE writer = $1 AND job = $2 AND proposal = $3"
_AGREE: Final = (
    "INSERT INTO agreed (writer, job, proposal) VALUES ($1, $2, $3)"
    " ON CONFLICT (writer, job) DO UPDATE SET proposal = excluded.proposal"
)
_LOCKED: Final = "SELECT name FROM locks WHERE writer = $1"
_MINE: Final = "SELECT id, xmin::text FROM flight WHERE writer = $1"
_IDLE: Final = (
    "DELETE FROM flight AS f USING unnest($1::bigint[], $2::text[]) AS n(id, made)"
    " WHERE f.id = n.id AND f.xmin::text = n.made"
)
_AT_WORK: Final = "SELECT id FROM flight WHERE name = $1 AND writer <> $2"
_OVERTAKEN: Final = (
    "SELECT key, rid, salt, at FROM overtaken WHERE name = $1 AND key = ANY($2::bytea[])"
    " UNION ALL SELECT name, 0, ''::bytea, 0 FROM locks"
    " WHERE name = ANY($3::bytea[]) AND writer <> $4"
)
#: Deletes are told of for as long as the slowest answer that may show their records, and nothing
#: ends that came behind work that is still in flight. Only what ends is walked through.
_FORGET: Final = (
    "WITH at AS MATERIALIZED (SELECT (extract(epoch FROM now())::bigint * 1000 - 1577836800000) AS"
    " now, coalesce(min(id), 9223372036854775807) AS oldest FROM flight)"
    " DELETE FROM overtaken WHERE rid IS NULL AND at < (SELECT least(now - 120000 << 21, oldest)"
    " FROM at) OR rid IS NOT NULL AND at < (SELECT least(now - 10000 << 21, oldest) FROM at)"
)
#: Seconds for which no process starts while another one changes data that is read at the start.
_SOLO: Final = 3
_COMMITTED: Final = f"SELECT pg_advisory_xact_lock({GROUP_LOCK}, hashtext(current_schema()))"

#: Kinds of notes that all replicas read again when one of them has written it, and those that each
#: writes for itself. Others are read at the start.
_FOLLOWED: Final = {
    "approvals", "baits", "clients", "next keyset", "policies", "searchable", "signing",
}  # fmt: skip
#: Followed ones that are changed as ``FollowedNote`` or ``AgreedNote``, or while one runs alone.
_GUARDED: Final = {"catalog", "environments", "keyset", "schemas"}
FOLLOWED_NOTES: Final = frozenset(_FOLLOWED | _GUARDED)
#: Positions of jobs that one carries out for all (``vault.job``); the others read them now and
#: then.
_JOB_NOTES: Final = {"filling", "hashes", "migration", "reseal"}
LIVE_NOTES: Final = frozenset(_FOLLOWED | _JOB_NOTES | {"audit", "fronts", "networks", "sealings"})
#: Others that are written while one runs alone, each a whole by itself: whoever starts reads the
#: one before or the one after.
_WHOLE_NOTES: Final = frozenset({"rehash", "rehash job"})
_NOT_ALONE: Final = (
    "Other instances run on this vault, and may still write to what is removed or changed here: "
    "stop the others, change it, and start them again. Nothing was changed."
)


class _LockRequest(NamedTuple):
    """Requested names."""

    names: tuple[bytes, ...]
    done: asyncio.Future[bool]


class DatabaseReplicas:
    """The other replicas (``storage.base.Replicas``), over a separate connection.

    What several callers ask for in one turn of the loop travels together.
    """

    def __init__(self, link: SharedLink, writer: PostgresWriter) -> None:
        self._link = link
        self._writer = writer
        self.slot = link.slot
        self._requests: deque[_LockRequest] = deque()
        self._freed: set[bytes] = set()
        self._connection: asyncpg.Connection | None = None
        self._work: asyncio.Task[None] | None = None
        self._noted = asyncio.Event()
        self._closed = False
        self._working: list[tuple[str, AbstractSet[int]]] = []

    @property
    def margin(self) -> int:
        """None between processes of one machine, which have one clock."""
        here = self._link.host
        return 0 if all(has_clock_of(one.host, here) for one in self._link.others) else MARGIN

    def leads(self) -> bool:
        """Whether no live process came before."""
        return all(one.slot > self.slot for one in self._link.others if one.lives)

    async def alone(self) -> int | None:
        return await self._link.read(self._link.alone)

    async def changed(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._noted.wait()
        self._noted.clear()

    def works(self, table: str, ids: AbstractSet[int]) -> None:
        self._working.append((table, ids))

    async def at_work(self, table: str) -> set[int]:
        return {raw[0] for raw in await self._link.fetch(_AT_WORK, table, self._link.writer_id)}

    async def overtaken(
        self, table: str, keys: Sequence[bytes], locks: Sequence[bytes] = ()
    ) -> list[tuple[bytes, int | None, bytes, int]]:
        values = table, list(keys), list(locks), self._link.writer_id
        return [tuple(raw) for raw in await self._link.fetch(_OVERTAKEN, *values)]

    async def settled(self) -> None:
        await self._link.fetch(_COMMITTED)  # each transaction that writes has this lock, shared

    async def lock(self, names: Sequence[bytes], *, wait: bool = True) -> bool:
        if not names:
            return True
        pause = _TRIES[0]
        while True:
            request = _LockRequest(tuple(names), asyncio.get_running_loop().create_future())
            self._requests.append(request)
            self._begin()
            try:
                got = await request.done
            except asyncio.CancelledError:
                if request.done.done() and not request.done.cancelled() and request.done.result():
                    self.unlock(names)  # they were locked just when no longer wanted
                raise
            if got or not wait:
                return got
            await asyncio.sleep(pause)
            pause = min(2 * pause, _TRIES[1])

    def unlock(self, names: Sequence[bytes]) -> None:
        mine = self._link.sure.intersection(names)
        if mine:
            self._link.sure -= mine
            self._link.wanted -= mine
            if self._link.released is not None:
                self._link.released |= mine
            self._freed |= mine
            self._begin()

    async def close(self) -> None:
        """Release everything that waits for it. Idempotent."""
        self._closed = True
        if self._work is not None:
            await asyncio.wait([self._work], timeout=self._link.address.timeout)
            self._work.cancel()
        if self._connection is not None:
            self._connection.terminate()

    def _begin(self) -> None:
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        pause = _TRIES[0]
        while True:
            await asyncio.sleep(0)  # others ask in this turn
            try:
                async with asyncio.timeout(2 * self._link.address.timeout):
                    await self._turn()
            except Exception as error:  # noqa: BLE001 - each caller is rows
                self._fail(vault_error(error), lost=is_link_fault(error))
                if self._closed:
                    return
                await asyncio.sleep(pause)  # these must be released, however long it takes
                pause = min(2 * pause, 1.0)
            else:
                pause = _TRIES[0]
            if not self._requests and not self._freed:
                return

    async def _turn(self) -> None:
        """Release names, then lock the requested ones."""
        connection, writer = await self._ready(), self._link.writer_id
        self._freed |= self._link.stray - self._link.sure
        self._link.stray.clear()
        if freed := list(self._freed):
            await connection.execute(_UNLOCK, freed, writer)
            self._freed.difference_update(freed)
        requests = [one for one in self._requests if not one.done.done()]
        wanted = sorted({name for one in requests for name in one.names})
        if not wanted:
            self._requests.clear()
            return
        self._link.wanted.update(wanted)
        got = {raw[0] for raw in await connection.fetch(LOCK_NAMES, wanted, writer)}
        self._requests = deque(one for one in self._requests if one not in requests)
        for one in requests:
            mine = got.issuperset(one.names) and not one.done.done()
            if mine:
                self._link.sure.update(one.names)
                got.difference_update(one.names)
            if not one.done.done():
                one.done.set_result(mine)
        self._freed |= got  # of requests that got only some of their names
        self._link.wanted.difference_update(set(wanted) - self._link.sure)

    def _fail(self, fault: VaultError, *, lost: bool) -> None:
        requests, self._requests = self._requests, deque()
        for one in requests:
            self._link.wanted.difference_update(one.names)
            self._freed.update(one.names)  # unknown whether they were locked
            if not one.done.done():
                one.done.set_exception(VaultError(fault.code, fault.message))
        self._freed -= self._link.sure
        if lost and self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _ready(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._link.address, durable=False)
            await self._connection.add_listener(NOTED, self._hear)
            self._noted.set()  # messages meanwhile are lost
        return self._connection

    def _hear(self, *_: object) -> None:
        self._noted.set()

    async def look(self) -> None:
        """See who else owns the vault; every second or so. Raises ``VaultError``."""
        if self._link.stray or self._connection is None or self._connection.is_closed():
            self._begin()  # to hear of notes, also where nothing is locked
        try:
            await self._link.read(self._link.look)
            await self._drop_idle()
            if self.leads():
                await self._link.fetch(_FORGET)
                await self._link.fetch(ORPHANS)
        except BaseException:
            self._link.blind()
            raise

    async def _drop_idle(self) -> None:
        """Withdraw announcements of failed work, and names that a fault has left locked."""
        for (name,) in await self._link.fetch(_LOCKED, self._link.writer_id):
            if name not in self._link.sure:
                self._link.stray.add(name)
        rows = await self._link.fetch(_MINE, self._link.writer_id)
        if not rows:
            return
        working = {one for _, ids in self._working for one in ids}
        idle = [raw for raw in rows if raw[0] not in working]
        if idle:  # one that was begun again meanwhile is another row
            await self._link.fetch(_IDLE, [raw[0] for raw in idle], [raw[1] for raw in idle])

    async def agree(self, agreement: Agreement) -> None:
        values = self._link.writer_id, *agreement
        if not await self._link.fetch(_AGREED, *values):
            # in the order of commits: those that were accepted before have their outcome
            await self._writer.call(lambda connection: connection.execute(_AGREE, *values))

    async def disagreeing(self, agreement: Agreement) -> list[str]:
        return [
            f"instance {slot} ({label or 'of an earlier version, which cannot agree'})"
            for slot, label in await self._link.fetch(DISAGREEING, *agreement)
        ]

    async def heard(self, counter: int) -> None:
        await self._link.fetch(_HEARD, self._link.writer_id, counter)

    async def heard_by_all(self, counter: int) -> None:
        """Wait until it counts everywhere, for a second at most."""
        with suppress(TimeoutError, VaultError):
            async with asyncio.timeout(1.0):
                while (await self._link.fetch(_DEAF, self._link.writer_id, counter))[0][0]:  # noqa: ASYNC110  # other processes bring it about
                    await asyncio.sleep(0.01)

    async def same_time(self, clock: Callable[[], float] = time.time) -> None:
        await self._link.read(partial(refuse_other_time, clock=clock))

    async def ready(self) -> None:
        """Say that this process has started: the next one may."""
        await self._link.fetch("UPDATE writers SET solo = NULL WHERE id = $1", self._link.writer_id)


def are_followed(writes: Sequence[NoteWrite]) -> bool:
    """Whether other replicas read one of these notes again at once."""
    kinds = {name.partition(":")[0].partition("/")[0] for name, _, _ in writes}
    return not FOLLOWED_NOTES.isdisjoint(kinds)


async def announce_notes(connection: Any, link: SharedLink, writes: Sequence[NoteWrite]) -> None:
    """Before notes are written: refuse what only one that runs alone may change, and tell others
    afterwards.

    Raises ``VaultError(REPLICAS_RUNNING)``.
    """
    kinds = {
        write.name.partition(":")[0].partition("/")[0]
        for write in writes
        if not isinstance(write, ResealedNote | AgreedNote | FollowedNote)
    }
    if agreed := [write for write in writes if isinstance(write, AgreedNote)]:
        await connection.execute(JOINING)
        for write in agreed:
            if await connection.fetch(DISAGREEING, *write.agreement):
                raise VaultError(Code.REPLICAS_RUNNING, _NOT_ALONE)
    if changed := kinds - LIVE_NOTES - {"root"}:
        await connection.execute(JOINING)
        others = "SELECT count(*) FROM writers WHERE id <> $1"
        if await connection.fetchval(others, link.writer_id):
            raise VaultError(Code.REPLICAS_RUNNING, _NOT_ALONE)
        if changed - _WHOLE_NOTES:
            await connection.execute(
                "UPDATE writers SET solo = greatest(solo, now() + make_interval(secs => $2))"
                " WHERE id = $1",
                link.writer_id, _SOLO,
            )  # fmt: skip
    await connection.execute(f"NOTIFY {NOTED}")
