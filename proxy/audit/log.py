"""The audit log of a running instance: a line is written before ``put`` returns, or ``put`` raises.

The chain goes on across files and across starts. A start compares the folder with the last
checkpoint in the vault's store; where lines are missing, an alarm line, the program's log and a
metric say so, and the chain goes on behind the gap.
"""

import asyncio
import time
from binascii import b2a_base64
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxy.audit.chain import Link, Mac, Memory, chain_lines, recall, remember
from proxy.audit.events import EventKind, RecordId, encode_event
from proxy.audit.files import (
    CUT,
    LogStart,
    SegmentWriter,
    expired_segments,
    find_start,
    refuse_unusable,
)
from proxy.audit.shipping import Shipper, SyslogPlace, start_shippers
from proxy.clock import Clock
from proxy.errors import Code, VaultError
from proxy.telemetry import logs

_log = logs.logger("audit")

_DAY: Final = 86_400_000

#: Bytes of a record id: among ten million records two are alike once in 10^7 logs.
_RECORD_ID_BYTES: Final = 9

_TOUCHED: Final = (
    "the file of the audit log was changed, moved or removed under the running program"
)
_REFUSAL: Final = (
    "The audit log cannot be written, so nothing is revealed or changed until it can be."
)


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What the operator decides about the log, and the times of its upkeep."""

    folder: Path
    #: lines are on the disk before an answer leaves, not only with the operating system
    sync: bool = False
    segment: int = 64 * 1024 * 1024  #: bytes of one file
    keep: int = 0  #: milliseconds that lines are kept; 0: for ever
    look: float = 1.0  #: seconds between looks at the folder, and between tries to write
    checkpoint: float = 10.0  #: seconds between checkpoints
    expire: float = 600.0  #: seconds between looks for expired files
    #: Lines of what was done already that wait while the log cannot be written; more are counted.
    waiting: int = 10_000


class AuditLog:
    """The log of a running instance: one process, one thread. ``open_log`` makes it."""

    def __init__(
        self, options: AuditOptions, mac: Mac, clock: Clock, memory: Memory, start: LogStart
    ) -> None:
        self._options = options
        self._mac = mac
        self._clock = clock
        self._memory = memory
        self._n = start.link.n
        self._prev = start.link.hash.encode()
        self._flushed = start.link.n  #: the last line that is on the disk
        self._flushing: asyncio.Task[None] | None = None
        self._writer = SegmentWriter(options.folder, options.segment, start.segment)
        self._day = 0
        self._second = -1
        self._second_text = b""
        self.fault: str | None = None  #: why the log cannot be written
        self.flushes = options.sync  #: whether ``flushed`` has to be awaited
        self._tried = 0.0
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._lost = 0
        #: Lines that stand before the first one put; a start that fails has written nothing.
        self._first = _first_lines(start)
        self.alarm: Callable[[str], None] = lambda _kind: None  #: counts alarms by kind
        self.ticks: list[Callable[[], None]] = []  #: called about once a second
        self.shippers: tuple[Shipper, ...] = ()

    @property
    def link(self) -> Link:
        """The last line."""
        return Link(self._n, self._prev.decode())

    # ------------------------------------------------------------------ lines

    def ready(self) -> None:
        """Raise ``VaultError(AUDIT_DOWN)`` while lines cannot be written."""
        if self.fault is not None:
            self._retry()

    def put(self, *bodies: bytes) -> None:
        """Write lines, all or none.

        Raises ``VaultError(AUDIT_DOWN)``: then what they tell of must not happen.
        """
        if self.fault is not None:
            self._retry()
        self._write(bodies)

    def put_or_queue(self, *bodies: bytes) -> None:
        """Write lines of what was done; those that cannot be written wait. Raises as ``put``."""
        try:
            if self.fault is not None:
                self._retry()
            self._write(bodies)
        except VaultError:
            at = self._stamp()
            for body in bodies:
                if len(self._waiting) < self._options.waiting:
                    self._waiting.append((at, body))
                else:
                    self._lost += 1
            raise

    async def flushed(self) -> None:
        """Where the settings ask for it: return when every line so far is on the disk.

        Raises ``VaultError(AUDIT_DOWN)``.
        """
        if not self._options.sync:
            return
        wanted = self._n
        while self._flushed < wanted:
            if self._flushing is None:
                self._flushing = asyncio.create_task(self._flush())
            await asyncio.shield(self._flushing)
        if self.fault is not None:
            raise VaultError(Code.AUDIT_DOWN, _REFUSAL)

    # ------------------------------------------------------------------ upkeep

    async def begin(self) -> None:
        """Write the first lines and a checkpoint; a full disk does not stop the start."""
        try:
            self.put()
        except VaultError as error:
            if error.code is not Code.AUDIT_DOWN:
                raise
            return
        try:
            await self.checkpoint()
        except VaultError as error:
            _report(error)

    def ship(self, *, stdout: bool, syslog: SyslogPlace | None) -> None:
        """Send lines to other places too, after they were written."""
        self.shippers = start_shippers(self._options.folder, stdout=stdout, syslog=syslog)

    def unshipped(self, shipper: Shipper) -> float:
        """How many lines wait for that place."""
        return float(self._n - shipper.position)

    async def run(self) -> None:
        """Look after the log for ever; faults of folder and store are logged and tried again."""
        loop, options = asyncio.get_running_loop(), self._options
        checkpoint = expire = loop.time()
        while True:
            await asyncio.sleep(options.look)
            self.look()
            now = loop.time()
            try:
                if now - checkpoint >= options.checkpoint:
                    checkpoint = now
                    await self.checkpoint()
                if now - expire >= options.expire:
                    expire = now
                    await self.expire()
            except VaultError as error:
                _report(error)

    def look(self) -> None:
        """Write what waits, and check that nobody else touched the file."""
        for tick in self.ticks:
            tick()
        # the log, the probe and every refusal tell of the fault already
        with suppress(VaultError):
            self.ready()
            if not self._writer.intact:
                self._writer.release()
                self.alarm("log")
                _log.error("somebody had his hands on the audit log", reason=_TOUCHED)
                self.put(encode_event(EventKind.ALARM, reason=_TOUCHED))

    async def checkpoint(self) -> None:
        """Flush to disk, then remember the last line. Raises ``VaultError``."""
        remembered = await recall(self._memory)
        if remembered.checkpoint.n >= self._n:
            return
        link = self.link
        if self._flushed < link.n:
            await self._flush()
        if self.fault is None:
            await remember(self._memory, replace(remembered, checkpoint=link))

    async def expire(self) -> None:
        """Remove files whose last line is older than lines are kept. Raises ``VaultError``."""
        keep = self._options.keep
        if not keep or self.fault is not None:
            return
        try:
            expired, base = expired_segments(self._options.folder, self._clock() - keep)
            if base is None:
                return
            await remember(self._memory, replace(await recall(self._memory), base=base))
            for path in expired:
                path.unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise VaultError(
                Code.NOT_WRITABLE,
                f"Old files of the audit log cannot be read or removed: {reason}.",
            ) from error
        reason = "lines older than audit.keep were removed"
        self.put(encode_event(EventKind.LOG, reason=reason, count=len(expired)))

    async def close(self) -> None:
        """Write the last line and checkpoint, and end; what cannot be written is not waited for."""
        for tick in self.ticks:
            tick()
        try:
            if not self._first:
                with suppress(VaultError):  # as in look: it stays down
                    self.put(encode_event(EventKind.LOG, reason="stopped"))
                await self.checkpoint()
        except VaultError as error:
            _log.warning(
                "the audit log could not be remembered", code=error.code, text=error.message
            )
        finally:
            self._writer.close()
        for shipper in self.shippers:
            shipper.stop()

    # ------------------------------------------------------------------ parts

    def _write(self, bodies: tuple[bytes, ...]) -> None:
        at = self._stamp()
        if self._first:
            bodies = (*self._first, *bodies)
        lines, number, prev = chain_lines(self._mac, (self._n, self._prev), at, bodies)
        try:
            self._writer.append(lines, self._day, self._n + 1)
        except OSError as error:
            self._fail(error)
            raise VaultError(Code.AUDIT_DOWN, _REFUSAL) from None
        self._n, self._prev, self._first = number, prev, ()

    def _stamp(self) -> bytes:
        now = self._clock()
        second, thousandth = divmod(now, 1000)
        if second != self._second:
            self._second = second
            self._day = now // _DAY
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%b.%03dZ" % (self._second_text, thousandth)

    def _fail(self, error: OSError) -> None:
        self._tried = time.monotonic()
        if self.fault is None:
            self.fault = error.strerror or type(error).__name__
            _log.error(
                "the audit log cannot be written; nothing is revealed until it can",
                reason=self.fault,
            )

    def _retry(self) -> None:
        """Try to write what waits, at most once a second; raises while that fails."""
        if time.monotonic() - self._tried < self._options.look:
            raise VaultError(Code.AUDIT_DOWN, _REFUSAL)
        self._tried = time.monotonic()
        late = [b'%b,"since":"%b"' % (body, at) for at, body in self._waiting]
        back = encode_event(EventKind.LOG, reason="the log is written again", count=self._lost)
        fault, self.fault = self.fault, None
        try:
            self._write((back, *late))
        except VaultError:
            self.fault = fault
            raise
        self._waiting.clear()
        self._lost = 0
        _log.info("the audit log is written again", count=len(late))

    async def _flush(self) -> None:
        """Flush to disk, or give the log a fault."""
        last = self._n
        try:
            await self._writer.flush()
        except OSError as error:
            self._fail(error)
        finally:
            self._flushing = None
        self._flushed = max(self._flushed, last)


def _report(error: VaultError) -> None:
    _log.error(
        "the audit log could not be looked after and will be again",
        code=error.code,
        text=error.message,
    )


# ---------------------------------------------------------------------- opening


async def open_log(
    options: AuditOptions,
    mac: Mac,
    clock: Clock,
    memory: Memory,
    alarm: Callable[[str], None] = lambda _kind: None,
) -> AuditLog:
    """Open the log of a folder, which is made where it is missing; ``begin`` writes the first line.

    ``alarm`` counts every alarm that the log itself raises. Raises ``VaultError`` (NOT_WRITABLE)
    when the folder cannot be used at all, or what the memory raises.
    """
    checkpoint = (await recall(memory)).checkpoint
    try:
        options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_unusable(options.folder)
        start = find_start(options.folder, mac, checkpoint)
    except OSError as error:
        raise _unusable(options.folder, error) from None
    log = AuditLog(options, mac, clock, memory, start)
    log.alarm = alarm
    if start.alarm is not None:
        _log.error(
            "the audit log is not as it was left", reason=start.alarm, file=str(options.folder)
        )
        alarm("log")
    return log


def check_folder(folder: Path) -> None:
    """Raise what ``open_log`` would say of the folder; makes nothing."""
    try:
        refuse_unusable(next(path for path in (folder, *folder.parents) if path.exists()))
    except OSError as error:
        raise _unusable(folder, error) from None


_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def record_ids(keyed: Callable[[bytes], bytes]) -> RecordId:
    """The ids by which lines name records, since a key may itself be somebody's number.

    ``keyed``: a keyed hash of 9 bytes or more, used for nothing else.
    """

    def record_id(environment: str, schema: str, key: str) -> str:
        # no name has a NUL
        message = f"{environment}\0{schema}\0{key}".encode("utf-8", "surrogatepass")
        text = b2a_base64(keyed(message)[:_RECORD_ID_BYTES], newline=False)
        return text.translate(_URL_SAFE).decode("ascii")

    return record_id


def _first_lines(start: LogStart) -> tuple[bytes, ...]:
    reasons = ["started", CUT] if start.torn else ["started"]
    lines = [encode_event(EventKind.LOG, reason=reason) for reason in reasons]
    if start.alarm is not None:
        lines.append(encode_event(EventKind.ALARM, reason=start.alarm))
    return tuple(lines)


def _unusable(folder: Path, error: OSError) -> VaultError:
    return VaultError(
        Code.NOT_WRITABLE,
        f"The audit log cannot be kept in {folder} ({error.strerror}): make that a folder which "
        "this program may write to, or name another one in the setting audit.folder.",
    )
