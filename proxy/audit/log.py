"""The audit log of a running instance: a line is written before ``put`` returns, or ``put`` raises.

The chain continues across files and starts. A start compares the folder with the last checkpoint in
the vault's store. If lines are missing, an alarm line, the program's log and a metric report it,
and the chain continues after the gap.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxy.audit.chain import Link, LogKey, Memory, Stamps, recall, remember
from proxy.audit.events import EventKind, encode_event, with_request
from proxy.audit.files import LogStart, SegmentWriter, expired_segments, find_start, refuse_unusable
from proxy.audit.shipping import Shipper, SyslogPlace, start_shippers
from proxy.clock import Clock
from proxy.errors import Code, VaultError, coded
from proxy.telemetry import logs
from proxy.telemetry.logs import REQUEST_ID

_log = logs.logger("audit")

_TOUCHED: Final = (
    "the file of the audit log was changed, moved or removed under the running program"
)
_REFUSAL: Final = (
    "The audit log cannot be written, so nothing is revealed or changed until it can be."
)


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Settings of the log, and the intervals of its maintenance."""

    folder: Path
    #: lines are on the disk before an answer leaves, not only with the operating system
    sync: bool = False
    segment: int = 64 * 1024 * 1024  #: bytes of one file
    keep: int = 0  #: milliseconds that lines are kept; 0: for ever
    look: float = 1.0  #: seconds between looks at the folder, and between tries to write
    checkpoint: float = 10.0  #: seconds between checkpoints
    expire: float = 600.0  #: seconds between looks for expired files
    #: Lines of past events that wait while the log cannot be written; further ones are counted.
    waiting: int = 10_000


class AuditLog:
    """The log of a running instance: one process, one thread. ``open_log`` makes it."""

    def __init__(
        self, options: AuditOptions, clock: Clock, memory: Memory, start: LogStart
    ) -> None:
        self._options = options
        self._clock = clock
        self._memory = memory
        self._chain = start.chain
        self._flushed = start.chain.n  #: the last line that is on the disk
        self._flushing: asyncio.Task[None] | None = None
        self._writer = SegmentWriter(options.folder, options.segment, start.segment)
        self._stamps = Stamps(clock)
        self.fault: str | None = None  #: why the log cannot be written
        self.flushes = options.sync  #: whether ``flushed`` has to be awaited
        self._tried = 0.0
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._lost = 0
        #: Lines that stand before the first one put; a start that fails has written nothing.
        self._start, self._first = start, start.first_lines()
        self.alarm: Callable[[str], None] = lambda _kind: None  #: counts alarms by kind
        #: The counter of the root over the notes of the store, and its value in the log.
        self.notes: Callable[[], int] = lambda: 0
        self.notes_before = start.notes
        self.ticks: list[Callable[[], None]] = []  #: called about once a second
        self.shippers: tuple[Shipper, ...] = ()

    @property
    def link(self) -> Link:
        """The last line."""
        return self._chain.link

    @property
    def key(self) -> LogKey:
        """The key of the next line."""
        return self._chain.key

    # ------------------------------------------------------------------ lines

    def ready(self) -> None:
        """Raise ``VaultError(AUDIT_DOWN)`` while lines cannot be written."""
        if self.fault is not None:
            self._retry()

    def put(self, *bodies: bytes) -> None:
        """Write lines, all or none.

        Raises ``VaultError(AUDIT_DOWN)``: then the audited action must not happen.
        """
        if self.fault is not None:
            self._retry()
        if request_id := REQUEST_ID.get():
            bodies = with_request(bodies, request_id)
        self._write(bodies)

    def put_signed(self, reason: str, following: LogKey | None = None) -> None:
        """Write a signed line of the log itself; ``following``: the key from this line on.

        Raises ``VaultError(AUDIT_DOWN)``.
        """
        self.put()  # the first lines
        members = {"reason": reason, "notes": self.notes()}
        try:
            self._chain.write_signed(self._stamps, self._writer.append, following, **members)
        except OSError as error:
            raise self._failed(error) from None

    def put_or_queue(self, *bodies: bytes) -> None:
        """Write lines of past events; those that cannot be written wait. Raises as ``put``."""
        if request_id := REQUEST_ID.get():
            bodies = with_request(bodies, request_id)
        try:
            if self.fault is not None:
                self._retry()
            self._write(bodies)
        except VaultError:
            at = self._stamps.next()
            for body in bodies:
                if len(self._waiting) < self._options.waiting:
                    self._waiting.append((at, body))
                else:
                    self._lost += 1
            raise

    async def flushed(self) -> None:
        """Wait until every line so far is on the disk, if the settings ask for that.

        Raises ``VaultError(AUDIT_DOWN)``.
        """
        if not self._options.sync:
            return
        wanted = self._chain.n
        while self._flushed < wanted:
            if self._flushing is None:
                self._flushing = asyncio.create_task(self._flush())
            await asyncio.shield(self._flushing)
        if self.fault is not None:
            raise VaultError(Code.AUDIT_DOWN, _REFUSAL)

    # ------------------------------------------------------------------ maintenance

    async def begin(self, rules: str = "") -> None:
        """Write the first lines and a checkpoint; a full disk does not stop the start. ``rules``:
        the version of those in force.
        """
        if self._first:
            self._first = self._start.first_lines(rules)
        try:
            self.put()
        except coded(Code.AUDIT_DOWN):
            return
        try:
            await self._remember()
        except VaultError as error:
            _report(error)

    def leave(self) -> None:
        """Write nothing any more, the last line neither: another process writes the log."""
        self.fault, self._tried = "another process writes it now", math.inf
        self._waiting.clear()

    def ship(self, *, stdout: bool, syslog: SyslogPlace | None, process: str | None = None) -> None:
        """Send lines to other places too, after they were written; ``process`` tells this log from
        others there, in place of the number of the process.
        """
        folder = self._options.folder
        self.shippers = start_shippers(folder, stdout=stdout, syslog=syslog, process=process)

    def unshipped(self, shipper: Shipper) -> float:
        """Count the lines that this shipper has not sent yet."""
        return float(self._chain.n - shipper.position)

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
        """Write the waiting lines, and check that no other process touched the file."""
        for tick in self.ticks:
            tick()
        # the log, the probe and every refusal report the fault already
        with suppress(VaultError):
            self.ready()
            if not self._writer.intact:
                self._writer.release()
                self.alarm("log")
                _log.error("the audit log was tampered with", reason=_TOUCHED)
                self.put(encode_event(EventKind.ALARM, reason=_TOUCHED))

    async def checkpoint(self) -> None:
        """Sign the lines since the last signed one, flush them, then remember the last of them.

        Raises ``VaultError``.
        """
        if self.fault is None and self._chain.signed < self._chain.n:
            with suppress(VaultError):  # reported already; the lines on the disk are remembered
                self.put_signed("signed")
        await self._remember()

    async def _remember(self) -> None:
        remembered = await recall(self._memory)
        if remembered.checkpoint.n >= self._chain.n:
            return
        link = self.link
        if self._flushed < link.n:
            await self._flush()
        if self.fault is None:
            fresh = replace(remembered, checkpoint=link, key=self.key.id)
            await remember(self._memory, fresh)

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
        """Write the last line and checkpoint, and end; never wait for a failing disk."""
        for tick in self.ticks:
            tick()
        try:
            if not self._first:
                with suppress(VaultError):  # as in look: it stays down
                    self.put_signed("stopped")
                await self._remember()
        except VaultError as error:
            _log.warning("the checkpoint of the audit log was not kept", fault=error)
        finally:
            self._writer.close()
        for shipper in self.shippers:
            shipper.stop()

    # ------------------------------------------------------------------ parts

    def _write(self, bodies: tuple[bytes, ...]) -> None:
        if self._first:
            bodies = (*self._first, *bodies)
        if bodies:
            try:
                self._chain.write(self._stamps, bodies, self._writer.append)
            except OSError as error:
                raise self._failed(error) from None
        self._first = ()

    def _failed(self, error: OSError) -> VaultError:
        self._fail(error)
        return VaultError(Code.AUDIT_DOWN, _REFUSAL)

    def _fail(self, error: OSError) -> None:
        self._tried = time.monotonic()
        if self.fault is None:
            self.fault = f"{self._options.folder}: {error.strerror or type(error).__name__}"
            _log.error(
                "the audit log cannot be written; nothing is revealed until it can",
                reason=self.fault,
            )

    def _retry(self) -> None:
        """Try to write the waiting lines, at most once a second; raise while that fails."""
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
        last = self._chain.n
        try:
            await self._writer.flush()
        except OSError as error:
            self._fail(error)
        finally:
            self._flushing = None
        self._flushed = max(self._flushed, last)


def _report(error: VaultError) -> None:
    _log.error("maintenance of the audit log failed and will be retried", fault=error)


# ---------------------------------------------------------------------- opening


async def open_log(
    options: AuditOptions,
    keys: Sequence[LogKey],
    clock: Clock,
    memory: Memory,
    alarm: Callable[[str], None] = lambda _kind: None,
) -> AuditLog:
    """Open the log of a folder, which is made where it is missing; ``begin`` writes the first line.

    ``keys``: oldest first. ``alarm`` counts every alarm that the log itself raises. Raises
    ``VaultError`` (NOT_WRITABLE) if the folder is unusable, and the errors of the memory.
    """
    checkpoint = await recall(memory)
    try:
        options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_unusable(options.folder)
        start = find_start(options.folder, keys, checkpoint)
    except OSError as error:
        raise _unusable(options.folder, error) from None
    log = AuditLog(options, clock, memory, start)
    log.alarm = alarm
    if start.alarm is not None:
        _log.error(
            "the audit log contradicts its checkpoint", reason=start.alarm, file=str(options.folder)
        )
        alarm("log")
    return log


def check_folder(folder: Path) -> None:
    """Raise what ``open_log`` would say of the folder; makes nothing."""
    try:
        refuse_unusable(next(path for path in (folder, *folder.parents) if path.exists()))
    except OSError as error:
        raise _unusable(folder, error) from None


def _unusable(folder: Path, error: OSError) -> VaultError:
    return VaultError(
        Code.NOT_WRITABLE,
        f"The audit log cannot be kept in {folder} ({error.strerror}): make that a folder which "
        "this program may write to, or name another one in the setting audit.folder.",
    )
