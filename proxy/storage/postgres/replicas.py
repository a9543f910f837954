"""Several processes that own one vault together (``replicas=true``).

Each has a row in ``writers``, which every transaction of it touches first, and holds an advisory
lock in its writing session. If that lock stays free for ``GRACE`` seconds in which the process does
not look at the others either, or if it does not look at them for ``STALE`` seconds, it counts as
dead: another one deletes its row, and with it its locked names (``locks``) and its announced work
(``flight``). A process without its row can write nothing more, and starts again; its staged writes
are decided as after any other crash. So a lock is never taken over while its holder can still
write.

Where the server itself went, all lose their sessions at once, and are back at different times. So
the free lock counts for nothing while the one who looks has no session itself, and for ``STALE``
seconds instead of ``GRACE`` after its own was made again, or where the other one's was made with a
server that is not this one. A session that went with its server says nothing of its process; of one
on the same machine, the machine says whether it still runs, and there is nothing to wait for.

A lock is a row, not an advisory lock: it outlives the session, so a connection that breaks, or a
standby that takes over, loses none. Its transaction does not wait for the disk. Whatever its holder
commits after it does, and the log has an order; a lock that a crash of the server took back is
taken again with the next session that writes, before anything is written.
"""

import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from socket import gethostname
from typing import Any, Final, NamedTuple

import asyncpg

from proxy.errors import Code, VaultError
from proxy.storage.base import SLOTS
from proxy.storage.changes import Conflict, Underway
from proxy.storage.postgres.address import DatabaseAddress
from proxy.storage.postgres.link import FOLD, OWNER_LOCK, DatabaseLink

# ruff: noqa: S608 - texts hold numbers of this program; every value is a parameter

#: Seconds for which the lock of a process has to be free before it counts as gone.
GRACE: Final = 5.0
#: Milliseconds by which the clock of a process may differ from that of the database, and by which
#: those of two machines may then differ, the time that asking takes included.
SKEW: Final = 100
MARGIN: Final = 500
#: Seconds after which a process that does not look at the others counts as gone as well: it hangs,
#: and whatever it has locked with it.
STALE: Final = 20
#: Seconds for which no process starts while another one does.
_STARTING: Final = 10

#: First halves of advisory locks' keys: of one process, and of processes that join or change data
#: read at the start.
_LIFE_LOCK: Final = 0x4445
_JOIN_LOCK: Final = 0x4446
_MINE: Final = f"({_LIFE_LOCK}, hashtext(current_schema() || ':' || $1::bigint))"
JOINING: Final = f"SELECT pg_advisory_xact_lock({_JOIN_LOCK}, hashtext(current_schema()))"
_LOOK: Final = (
    "SELECT w.id, w.slot, w.host, w.seen, w.solo > now() AS solo,"
    f" w.seen < now() - make_interval(secs => {STALE}) AS stale,"
    " coalesce(w.server <> pg_postmaster_start_time(), false) AS moved,"
    " EXISTS (SELECT 1 FROM pg_locks AS l"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2"
    f" AND l.classid = {_LIFE_LOCK} AND l.database ="
    " (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.objid ="
    " (hashtext(current_schema() || ':' || w.id)::bigint & 4294967295)::oid) AS in_session"
    " FROM writers AS w"
)
#: The number of a replica stays taken, whatever becomes of its transaction or of the server.
_NUMBERED: Final = "SELECT nextval('joined')"
_ALONE: Final = (
    "SELECT last_value FROM joined WHERE NOT EXISTS (SELECT 1 FROM writers WHERE id <> $1)"
)
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NUMBERS: Final = Path("/proc/self/ns/pid")
LOCK_NAMES: Final = (
    "INSERT INTO locks (name, writer) SELECT n, $2 FROM unnest($1::bytea[]) AS n ORDER BY n"
    " ON CONFLICT DO NOTHING RETURNING name"
)
#: Of one statement that is a transaction by itself: it does not wait for the disk. Its row is that
#: which every commit of this process touches first, and these would wait as long.
ASYNC_COMMIT: Final = (
    "WITH async_commit AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"
)
_LOOKED: Final = f"{ASYNC_COMMIT} UPDATE writers SET seen = now() FROM async_commit WHERE id = $1"
_BACK: Final = (
    f"{ASYNC_COMMIT} UPDATE writers SET seen = now(), server = pg_postmaster_start_time()"
    " FROM async_commit WHERE id = $1"
)
_LEAVE: Final = (
    "WITH gone AS (DELETE FROM writers WHERE id = $1), freed AS (DELETE FROM locks WHERE"
    " writer = $1) DELETE FROM flight WHERE writer = $1"
)
#: Names are announced while others are in flight, and forgotten with the last of them; deletes
#: always, for an answer under way may show their records. Tells whether others announce deletes of
#: some keys that were not heard of.
_TELL: Final = (
    "WITH told AS (INSERT INTO overtaken (name, key, rid, salt, at)"
    " SELECT $1, n.* FROM unnest($2::bytea[], $3::bigint[], $4::bytea[], $5::bigint[])"
    " AS n(key, rid, salt, at) WHERE n.rid IS NULL"
    " OR EXISTS (SELECT 1 FROM flight WHERE name = $1 AND NOT id = ANY($6::bigint[])))"
    " SELECT EXISTS (SELECT 1 FROM overtaken WHERE name = $1 AND key = ANY($7::bytea[])"
    " AND rid IS NULL AND NOT at = ANY($9::bigint[]))"
    " OR EXISTS (SELECT 1 FROM locks WHERE name = ANY($8::bytea[]) AND writer <> $10)"
)
ORPHANS: Final = "DELETE FROM locks WHERE writer NOT IN (SELECT id FROM writers)"
_OLD_AGREEMENTS: Final = "DELETE FROM agreed WHERE writer NOT IN (SELECT id FROM writers)"
#: Owners that have not agreed. Each that can still write has its row there.
DISAGREEING: Final = (
    "SELECT w.slot, w.label FROM writers AS w WHERE NOT EXISTS (SELECT 1 FROM agreed AS a"
    " WHERE a.writer = w.id AND a.job = $1 AND a.proposal IN ($2, 0)) ORDER BY w.slot"
)
NOTED: Final = "domicile_notes"


class _Replica(NamedTuple):
    """A replica as the last look found it."""

    writer: int
    slot: int
    host: str | None
    last_look: datetime  #: when it last looked at the others
    solo: bool
    stale: bool  #: whether it has not looked at the others for long
    moved: bool  #: whether its last session was with a server that is gone
    in_session: bool  #: whether its session lives

    @property
    def lives(self) -> bool:
        """Whether it is there, as far as anybody can tell."""
        return self.in_session and not self.stale

    @property
    def ended(self) -> bool:
        """Whether its process is gone for certain, which only its own machine can tell."""
        machine, _, process = (self.host or "").rpartition(" ")
        if self.in_session or not machine or machine != _machine() or not process.isdecimal():
            return False
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # of another user; or no number of a process
            return False
        return False


class SharedLink(DatabaseLink):
    """The connections of one of several replicas."""

    shares = True

    def __init__(self, address: DatabaseAddress) -> None:
        super().__init__(address)
        self.slot = 0
        #: names that this process has locked for certain, those that it is about to, and those that
        #: may have locked without anybody knowing
        self.sure: set[bytes] = set()
        self.wanted: set[bytes] = set()
        self.stray: set[bytes] = set()
        self.others: list[_Replica] = []
        self.host = f"{_machine()} {os.getpid()}"
        self.label = f"{gethostname()}, process {os.getpid()}"  #: as operators know it
        #: names that are unlocked while a new session asks whose they are; None at other times
        self.released: set[bytes] | None = None
        #: since when a replica seems to be gone, or hangs in its session, without a sign of life
        self._missed: dict[tuple[int, bool, datetime], float] = {}
        self._back = -math.inf  #: when the session of this process was made again

    async def close(self) -> None:
        if self._registered and self._pool is not None:
            with suppress(VaultError):  # others find out
                await self.read(lambda connection: connection.execute(_LEAVE, self.writer_id))
        await super().close()

    async def look(self, connection: Any) -> None:
        """See who else owns the vault, and clear away who is gone.

        Raises ``VaultError`` where others have cleared away this process.
        """
        before = time.monotonic()
        if self._registered and await connection.execute(_LOOKED, self.writer_id) == "UPDATE 0":
            raise self.fenced()
        every = [_Replica(*raw) for raw in await connection.fetch(_LOOK)]
        self.others = [one for one in every if one.writer != self.writer_id]
        if self._registered and not any(one.in_session for one in every if one not in self.others):
            self.blind()
            return
        # one that still looks at the others lives, and only has trouble with its session
        gone = {
            (one.writer, one.in_session, one.last_look): one for one in self.others if not one.lives
        }
        self._missed = {one: self._missed.get(one, before) for one in gone}
        unsettled = before - self._back < STALE
        for one, replica in gone.items():
            wait = STALE if unsettled or replica.moved else GRACE
            if replica.ended or before - self._missed[one] >= wait:
                await self._clear_away(connection, replica)
                del self._missed[one]

    async def alone(self, connection: Any) -> int | None:
        """Owners that have come so far; ``None`` while another is there. None joins meanwhile."""
        async with connection.transaction():
            await connection.execute(JOINING)
            number: int | None = await connection.fetchval(_ALONE, self.writer_id)
            return number

    def blind(self) -> None:
        """A look came to nothing: who seemed to be gone may have had the same trouble."""
        self._missed.clear()

    async def _clear_away(self, connection: Any, replica: _Replica) -> None:
        async with connection.transaction():
            free = f"SELECT pg_try_advisory_xact_lock{_MINE}"
            # of one that is in its session and hangs, the lock is held
            if replica.in_session or await connection.fetchval(free, replica.writer):
                await connection.execute(_LEAVE, replica.writer)

    async def _own(self, connection: asyncpg.Connection) -> None:
        await self._take_part(connection)
        if self._registered:
            await self._go_on(connection)
            return
        await refuse_other_time(connection)
        await self.look(connection)
        async with connection.transaction():
            await connection.execute(JOINING)
            await self.look(connection)
            self._refuse_join()
            taken = {one.slot for one in self.others}
            self.slot = next(slot for slot in range(SLOTS) if slot not in taken)
            await connection.execute(
                "INSERT INTO writers (id, done, slot, host, solo, server, label) VALUES ($1, $2,"
                " $3, $4, now() + make_interval(secs => $5), pg_postmaster_start_time(), $6)",
                self.writer_id, self._done, self.slot, self.host, _STARTING, self.label,
            )  # fmt: skip
            for text in (_NUMBERED, FOLD, ORPHANS, _OLD_AGREEMENTS):
                await connection.execute(text)
        self._registered = True

    async def _take_part(self, connection: asyncpg.Connection) -> None:
        """Keep out exclusive owners, and show that this process is alive."""
        shared = f"SELECT pg_try_advisory_lock_shared({OWNER_LOCK}, hashtext(current_schema()))"
        mine = f"SELECT pg_try_advisory_lock{_MINE}"
        for ask, values in ((shared, ()), (mine, (self.writer_id,))):
            if not await self.taken(connection, ask, *values):
                raise VaultError(
                    Code.STORE_BUSY,
                    f"Another process owns the vault at {self.address.label} alone: end it, or "
                    "give all of them replicas=true.",
                )

    async def _go_on(self, connection: asyncpg.Connection) -> None:
        """Go on after a session that broke, with all names that were locked."""
        if await connection.execute(_BACK, self.writer_id) == "UPDATE 0":
            raise self.fenced()
        self._back = time.monotonic()
        names = list(self.wanted)
        await connection.execute(LOCK_NAMES, names, self.writer_id)
        # names that are only being asked for may well be another's, and so may those that are
        # unlocked on the other connection while this one asks
        theirs = "SELECT name FROM locks WHERE name = ANY($1::bytea[]) AND writer <> $2"
        locked, released = list(self.sure.intersection(names)), set[bytes]()
        self.released = released
        try:
            taken = {raw[0] for raw in await connection.fetch(theirs, locked, self.writer_id)}
        finally:
            self.released = None
        if taken - released:
            raise self.fenced()
        self.stray |= set(names) - self.sure  # others do not know them, unless they do by now

    def _refuse_join(self) -> None:
        """Raise ``VaultError(STORE_BUSY)`` for as long as no process may start."""
        text = ""
        if any(not one.lives for one in self.others):
            text = "A replica ended without a word, and is cleared away within seconds"
        elif any(one.solo for one in self.others):
            text = "Another replica is starting, or changes schemas, environments or keys"
        elif len(self.others) >= SLOTS:
            text = f"{SLOTS} replicas run already"
        if text:
            raise VaultError(Code.STORE_BUSY, f"{text} ({self.address.label}).")


@cache
def _machine() -> str:
    """Return where numbers of processes mean the same: this machine since its start, and in it the
    space of this process; empty where the system does not tell.
    """
    try:
        return f"{_BOOT.read_text().strip()} {_NUMBERS.readlink()}"
    except OSError:
        return ""


def has_clock_of(host: str | None, other: str) -> bool:
    """Whether two replicas have one clock: that of a machine since its start."""
    return (host or "").partition(" ")[0] == other.partition(" ")[0] != ""


async def refuse_other_time(connection: Any, clock: Callable[[], float] = time.time) -> None:
    """Raise ``VaultError(BAD_SETTINGS)`` where the clock of this machine is not the database's:
    expiry and the order of events would differ between replicas.
    """
    least = 0.0
    for _ in range(5):
        before = clock() * 1000
        theirs = float(
            await connection.fetchval("SELECT extract(epoch FROM clock_timestamp()) * 1000")
        )
        after = clock() * 1000
        least = max(before - theirs, theirs - after, 0.0)
        if least <= SKEW:
            return
    raise VaultError(
        Code.BAD_SETTINGS,
        f"The clock of this machine is {least:.0f} ms away from that of the database, and replicas "
        f"need one time: keep both by NTP ({SKEW} ms are allowed).",
    )


async def tell(connection: Any, writer: int, works: Iterable[tuple[str, Underway]]) -> None:
    """Write down, in the caller's transaction and as its last part, what this process works on.

    Raises the driver's error where another one works on it, ``Conflict`` where one has deleted it:
    either this sees that, or that one what was written before (``DatabaseReplicas.settled``).
    """
    for table, work in works:
        begun, ended, names, heard = work
        if begun:
            await connection.execute(
                "INSERT INTO flight (id, name, writer) SELECT n, $2, $3 FROM"
                " unnest($1::bigint[]) AS n ORDER BY n",
                list(begun), table, writer,
            )  # fmt: skip
        if names or heard[0]:
            own = [*begun, *ended, *(rid for _, rid, _, _ in names if rid is not None)]
            columns = [[one[at] for one in names] for at in range(4)]
            values = [*columns, own, *map(list, heard), writer]
            if await connection.fetchval(_TELL, table, *values):
                raise Conflict(work)
        if ended:
            await connection.execute(
                "DELETE FROM flight WHERE id = ANY($1::bigint[]) AND writer = $2",
                list(ended), writer,
            )  # fmt: skip
