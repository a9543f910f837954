"""The parts of the log that a request needs: where lines go, record ids, honeytokens, refusals.

A honeytoken is a record without a legitimate reader: its reveal raises an alarm. It is matched by
the id of its key and by its row number, so that a copied token of it is noticed, too.
"""

import asyncio
import time
from binascii import b2a_base64
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from contextvars import Context
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

import msgspec

from proxy.audit.chain import Memory, VolatileMemory
from proxy.audit.events import EventKind, RecordId, encode_event
from proxy.errors import Code, VaultError
from proxy.telemetry import logs

_log = logs.logger("audit")

#: Honeytokens that one instance has at most.
MOST_HONEYTOKENS: Final = 1_000

#: The reason in the line of an alarm about honeytokens.
REASON: Final = "a record that is marked as bait was revealed"

#: The reason in the line of an alarm about an emergency.
EMERGENCY: Final = "a client has taken a role in an emergency"

#: The reason in the line of an alarm about guesses.
GUESSED: Final = "a caller keeps searching for what is not there, beyond limits.misses_per_second"

#: Seconds of a window of refusals, its immediate lines, and the kinds that it counts separately.
WINDOW: Final = 10.0
AT_ONCE: Final = 20
MOST_KINDS: Final = 200

_NONE: Final[frozenset[int]] = frozenset()


class Sink(Protocol):
    """Destination of audit lines; ``proxy.audit.log.AuditLog`` in a running instance."""

    @property
    def fault(self) -> str | None:
        """Reason why lines cannot be written; ``None`` while they can."""

    @property
    def flushes(self) -> bool:
        """Whether ``flushed`` has to be awaited before an answer leaves."""

    def ready(self) -> None:
        """Raise ``VaultError(AUDIT_DOWN)`` while lines cannot be written."""

    def put(self, *bodies: bytes) -> None:
        """Write lines, all or none.

        Raises ``VaultError(AUDIT_DOWN)``: then the audited action must not happen.
        """

    def put_or_queue(self, *bodies: bytes) -> None:
        """Write lines of past events; those that cannot be written now wait. Raises as ``put``."""

    async def flushed(self) -> None:
        """Wait until all lines put are on the disk. Raises ``VaultError(AUDIT_DOWN)``."""


class NullSink:
    """Drops lines: for trials of rules in memory, where no caller sees anything."""

    flushes = False

    @property
    def fault(self) -> str | None:
        return None

    def ready(self) -> None:
        """See ``Sink.ready``."""

    def put(self, *bodies: bytes) -> None:
        """See ``Sink.put``."""

    def put_or_queue(self, *bodies: bytes) -> None:
        """See ``Sink.put_or_queue``."""

    async def flushed(self) -> None:
        """See ``Sink.flushed``."""


class Honeytoken(msgspec.Struct, frozen=True, array_like=True):
    """A record without a legitimate reader: showing it raises an alert."""

    record_id: str
    environment: str
    schema: str
    rid: int


class Honeytokens:
    """The honeytokens of one instance, sealed in its store. ``load`` them before use."""

    def __init__(self, memory: Memory, most: int = MOST_HONEYTOKENS) -> None:
        self._most = most
        self._memory = memory
        self._by_id: dict[str, Honeytoken] = {}
        self._rids: dict[tuple[str, str], frozenset[int]] = {}
        self.some = False  #: whether there are any; where there are none nothing is compared

    def __contains__(self, record_id: object) -> bool:
        return record_id in self._by_id

    async def load(self) -> None:
        """Read the stored ones. Raises ``VaultError``."""
        content = await self._memory.read()
        stored = [] if content is None else msgspec.json.decode(content, type=list[Honeytoken])
        self._adopt({one.record_id: one for one in stored})

    def touched(self, environment: str, schema: str, rids: Collection[int]) -> list[str]:
        """The ids of the honeytokens among these records of a schema."""
        if not self._by_id or self._rids.get((environment, schema), _NONE).isdisjoint(rids):
            return []
        return [one.record_id for one in self._of(environment, schema) if one.rid in rids]

    async def add(self, token: Honeytoken) -> None:
        """Add a record. Idempotent. Raises ``VaultError`` (UNPROCESSABLE over ``most``)."""
        if self._by_id.get(token.record_id) == token:
            return
        if len(self._by_id) >= self._most and token.record_id not in self._by_id:
            raise VaultError(
                Code.UNPROCESSABLE,
                f"There are {self._most:,} honeytokens already, and more are of no use.",
            )
        await self._store({**self._by_id, token.record_id: token})

    async def remove(self, record_id: str) -> None:
        """Make a record an ordinary one. Idempotent. Raises ``VaultError``."""
        if record_id in self._by_id:
            await self._store({key: one for key, one in self._by_id.items() if key != record_id})

    async def _store(self, by_id: dict[str, Honeytoken]) -> None:
        await self._memory.write(msgspec.json.encode(list(by_id.values())))
        self._adopt(by_id)

    def _adopt(self, by_id: dict[str, Honeytoken]) -> None:
        self._by_id, self.some = by_id, bool(by_id)
        schemas = {(one.environment, one.schema) for one in by_id.values()}
        self._rids = {schema: frozenset(one.rid for one in self._of(*schema)) for schema in schemas}

    def _of(self, environment: str, schema: str) -> list[Honeytoken]:
        return [
            one
            for one in self._by_id.values()
            if (one.environment, one.schema) == (environment, schema)
        ]


class Refusal(NamedTuple):
    """A kind of refusal."""

    operation: str
    by: str
    environment: str
    status: int
    code: str


class Refusals:
    """The lines of refused requests, bounded: a flood must neither fill the disk nor hide.

    The first refusals of a window are separate lines; at its end each kind has one line with its
    number.
    """

    def __init__(self, sink: Sink, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._sink = sink
        self._monotonic = monotonic
        self._ends = monotonic() + WINDOW
        self._budget = AT_ONCE
        self._counts: dict[Refusal, int] = {}

    def add(self, refusal: Refusal) -> None:
        """Count one refused request. Never raises: nothing was revealed."""
        self.look()
        if refusal not in self._counts:
            if len(self._counts) >= MOST_KINDS:
                refusal = refusal._replace(by="", environment="")
            elif self._budget > 0 and self._put(refusal, 1):
                self._budget -= 1
                self._counts[refusal] = 0
                return
        self._counts[refusal] = self._counts.get(refusal, 0) + 1

    def look(self) -> None:
        """End an expired window; called now and then."""
        if self._monotonic() >= self._ends:
            self.flush()

    def flush(self) -> None:
        """End the window: a line for each kind that came again; the others are counted on."""
        self._counts = {
            refusal: count
            for refusal, count in self._counts.items()
            if count and not self._put(refusal, count)
        }
        self._ends = self._monotonic() + WINDOW
        self._budget = AT_ONCE

    def _put(self, refusal: Refusal, count: int) -> bool:
        members = {**refusal._asdict(), "via": "interface", "count": count}
        try:
            self._sink.put(encode_event(EventKind.REFUSED, **members))
        except VaultError:
            return False
        return True


class Misses:
    """The lines of searches without a hit: one for each operation and turn, with its number."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._counts: dict[bytes, int] = {}

    def add(self, line: bytes) -> None:
        """Count one; ``line`` says all but the number. Never raises: nothing was revealed."""
        self._counts[line] = self._counts.get(line, 0) + 1

    def flush(self) -> None:
        """Write the lines; called about once a second. Unwritten ones stay counted."""
        counts, self._counts = self._counts, {}
        for line, count in counts.items():
            try:
                self._sink.put(b'%b,"count":%d' % (line, count))
            except VaultError:
                self._counts[line] = count


class LineWaiter(Protocol):
    """Continuation of an exchange whose line is written."""

    def audited(self, error: VaultError | None) -> None:
        """It is; with an ``error`` it is not, and what it tells of must not be shown."""


_line = itemgetter(0)


class LineGroup:
    """Lines of one turn of the event loop, which are written with one call."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._waiting: list[tuple[bytes, bool, LineWaiter]] = []

    def put(self, line: bytes, waiter: LineWaiter, *, done: bool) -> None:
        """Write a line, which has the id of its request, and tell who waits for it. ``done``: of
        what was done already, so that it waits in the sink where it cannot be written now.
        """
        if not self._waiting:
            # lines have the ids of their own requests: none of whoever came first
            asyncio.get_running_loop().call_soon(self._write, context=Context())
        self._waiting.append((line, done, waiter))

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            self._sink.put(*map(_line, waiting))
        except VaultError:
            for line, done, waiter in waiting:
                waiter.audited(self._alone(line, done))
            return
        for _, _, waiter in waiting:
            waiter.audited(None)

    def _alone(self, line: bytes, done: bool) -> VaultError | None:
        try:
            if done:
                self._sink.put_or_queue(line)
            else:
                self._sink.put(line)
        except VaultError as error:
            return error
        return None


class AuditServices:
    """The parts joined: one per instance."""

    __slots__ = ("_alarm", "group", "honeytokens", "misses", "record_id", "sink")

    def __init__(
        self,
        sink: Sink,
        record_id: RecordId,
        honeytokens: Honeytokens,
        alarm: Callable[[str], None],
    ) -> None:
        """``alarm`` counts alarms by kind."""
        self.sink = sink
        self.record_id = record_id
        self.honeytokens = honeytokens
        self.misses = Misses(sink)
        self.group = LineGroup(sink)
        self._alarm = alarm

    def put_quietly(self, *bodies: bytes) -> None:
        """Write lines of past events for which no answer waits; never raises."""
        with suppress(VaultError):  # they wait in the sink
            self.sink.put_or_queue(*bodies)

    def guessed(self, environment: str, endpoint: str, operation: str) -> None:
        """Count, log and write that a caller searches in vain again and again."""
        self._alarm("misses")
        _log.error(
            "a caller keeps searching for what is not there", endpoint=endpoint, operation=operation
        )
        about = {"via": "proxy", "environment": environment, "endpoint": endpoint}
        line = encode_event(EventKind.ALARM, **about, operation=operation, reason=GUESSED)
        self.put_quietly(line)

    def emergency(self, **about: object) -> None:
        """Count, log and write that a client takes a role in an emergency.

        Raises ``VaultError(AUDIT_DOWN)``: then it must not.
        """
        self.sink.put(encode_event(EventKind.ALARM, **{**about, "reason": EMERGENCY}))
        self._alarm("emergency")
        _log.error("a client has taken a role in an emergency", client=about["by"])

    def alarms(self, record_ids: Iterable[str], **about: object) -> list[bytes]:
        """Count and log the honeytokens among these records; the lines of the alarm."""
        revealed = sorted({one for one in record_ids if one in self.honeytokens})
        if not revealed:
            return []
        self._alarm("bait")
        _log.error("a record that is marked as bait was revealed", count=len(revealed))
        members = {**about, "records": revealed, "count": len(revealed), "reason": REASON}
        return [encode_event(EventKind.ALARM, **members)]


def no_audit() -> AuditServices:
    """The parts that leave no lines, as for trials of rules in memory."""
    return AuditServices(
        NullSink(), lambda *_: "", Honeytokens(VolatileMemory()), lambda _kind: None
    )


#: Bytes of a record id: among ten million records two are alike once in 10^7 logs.
_RECORD_ID_BYTES: Final = 9
_RECENT: Final = 4_096  #: records whose ids are kept in memory
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def record_ids(keyed: Callable[[bytes], bytes]) -> RecordId:
    """The ids by which lines name records, since a key may itself be a personal number.

    ``keyed``: a keyed hash of 9 bytes or more, used for nothing else.
    """

    @lru_cache(maxsize=_RECENT)  # applications show the same records again and again
    def record_id(environment: str, schema: str, key: str) -> str:
        # no name has a NUL
        message = f"{environment}\0{schema}\0{key}".encode("utf-8", "surrogatepass")
        text = b2a_base64(keyed(message)[:_RECORD_ID_BYTES], newline=False)
        return text.translate(_URL_SAFE).decode("ascii")

    return record_id
