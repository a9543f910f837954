"""What lines are put into: written to the operating system before ``put`` returns, or nothing is
revealed.

The chain goes on across files and across starts. Beside the folder there is a memory in the vault's
store, which tells what was there at the last checkpoint; a start that finds less says so in an
alarm line, in the log and by a metric, and goes on behind the gap.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxy.audit.chain import Link, Mac, Memory, parse_line, recall, remember, sealed_one
from proxy.audit.events import EventKind, encode_event
from proxy.audit.files import (
    LogSegment,
    first_of,
    flush_folder,
    log_end,
    log_segments,
    segment_path,
)
from proxy.clock import Clock
from proxy.errors import Code, VaultError
from proxy.telemetry import logs

_log = logs.logger("audit")

#: Seconds between looks at the folder, between checkpoints, and between looks for files that may
#: go.
_LOOK: Final = 1.0
_CHECKPOINT: Final = 10.0
_EXPIRE: Final = 600.0

#: Lines of what was done already that wait while the log cannot be written; of more, the number is
#: told.
_WAITING: Final = 10_000

_DAY: Final = 86_400_000

_REFUSAL: Final = (
    "The audit log cannot be written, so nothing is revealed or changed until it can be."
)


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator decides about the log."""

    folder: Path
    #: lines are on the disk before an answer leaves, not only with the operating system
    sync: bool = False
    segment: int = 64 * 1024 * 1024  #: bytes of one file
    keep: int = 0  #: milliseconds that lines are kept; 0: for ever


class Trail:
    """The log of a running instance.

    One process, one thread; ``open_trail`` makes it, ``close`` ends it.
    """

    def __init__(
        self, options: Options, mac: Mac, clock: Clock, link: Link, segment: LogSegment | None
    ) -> None:
        """``link``: the line that the next one follows; ``segment``: the file to go on in, if there
        is one.
        """
        self._options = options
        self._mac = mac
        self._clock = clock
        self._n = link.n
        self._prev = link.hash.encode()
        self._flushed = link.n  #: the last line that is on the disk
        self._flushing: asyncio.Task[None] | None = None
        self._segment = segment
        self._fresh = False  #: the folder has a name that is not on the disk yet
        self._day = 0
        #: The day of the file; of one that was there already, that of the first line put.
        self._began: int | None = None
        self._second = -1
        self._second_text = b""
        # flushes take their turn, files that are full included
        self._disk = ThreadPoolExecutor(1, "audit")
        #: what went wrong with a full file; of that thread alone
        self._unflushed: OSError | None = None
        self._fault: str | None = None
        self._tried = 0.0
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._lost = 0
        #: What is written before anything else: that it was started, and how it was found.
        self._first: tuple[bytes, ...] = ()
        #: told of every alarm of the log itself, for the metric
        self.alarm: Callable[[str], None] = lambda _kind: None
        self.ticks: list[Callable[[], None]] = []  #: called about once a second

    @property
    def link(self) -> Link:
        """The last line."""
        return Link(self._n, self._prev.decode())

    @property
    def fault(self) -> str | None:
        """Why the log cannot be written; ``None`` while it can."""
        return self._fault

    @property
    def flushes(self) -> bool:
        """Whether ``flushed`` has to be awaited."""
        return self._options.sync

    # ------------------------------------------------------------------ lines

    def ready(self) -> None:
        """Raise ``VaultError(AUDIT_DOWN)`` while lines cannot be written: asked before anything is
        done that needs one.
        """
        if self._fault is not None:
            self._again()

    def found(self, *bodies: bytes) -> None:
        """What stands before the first line that is put.

        A start that fails before that has changed nothing.
        """
        self._first = bodies

    async def begin(self, memory: Memory, report: Callable[[VaultError], None]) -> None:
        """Write what was found, and remember it.

        A disk that is full, under the log or under the memory, is no reason not to start: then the
        log has a fault, or the memory's is reported and ``run`` tries again.
        """
        try:
            self.put()
        except VaultError as error:
            if error.code is not Code.AUDIT_DOWN:
                raise
            return
        try:
            await self.checkpoint(memory)
        except VaultError as error:
            report(error)

    def put(self, *bodies: bytes) -> None:
        """Write lines, all or none.

        Raises ``VaultError(AUDIT_DOWN)``: then what they tell of must not happen.
        """
        if self._fault is not None:
            self._again()
        self._write(bodies)

    def happened(self, *bodies: bytes) -> None:
        """The same of what was done already: where it cannot be written now, it is kept and written
        later. Raises as ``put``.
        """
        try:
            self.put(*bodies)
        except VaultError:
            at = self._stamp()
            for one in bodies:
                if len(self._waiting) < _WAITING:
                    self._waiting.append((at, one))
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
        if self._fault is not None:
            raise VaultError(Code.AUDIT_DOWN, _REFUSAL)

    # ------------------------------------------------------------------ upkeep

    async def run(self, memory: Memory, report: Callable[[VaultError], None]) -> None:
        """Look after the log for ever; faults of the memory and of the folder are reported and
        tried again.
        """
        loop = asyncio.get_running_loop()
        checkpoint = expire = loop.time()
        while True:
            await asyncio.sleep(_LOOK)
            self.look()
            now = loop.time()
            try:
                if now - checkpoint >= _CHECKPOINT:
                    checkpoint = now
                    await self.checkpoint(memory)
                if now - expire >= _EXPIRE:
                    expire = now
                    await self.expire(memory)
            except VaultError as error:
                report(error)

    def look(self) -> None:
        """Try again what could not be written, and see whether somebody else had his hands on the
        file.
        """
        for tick in self.ticks:
            tick()
        # the fault is told already, by the log, the probe and every refusal
        with suppress(VaultError):
            self.ready()
            if self._segment is not None and not self._segment.intact:
                self._close_segment()
                self._alarm(
                    "the file of the audit log was changed, moved or removed under the running "
                    "program"
                )

    async def checkpoint(self, memory: Memory) -> None:
        """Put on the disk what was written, then remember the last line. Raises ``VaultError``."""
        remembered = await recall(memory)
        if remembered.checkpoint.n >= self._n:
            return
        link = self.link
        if self._flushed < link.n:
            await self._flush()
        if self._fault is None:
            await remember(memory, replace(remembered, checkpoint=link))

    async def expire(self, memory: Memory) -> None:
        """Remove files whose last line is older than lines are kept. Raises ``VaultError``."""
        keep = self._options.keep
        if not keep or self._fault is not None:
            return
        try:
            gone, base = self._outlived(self._clock() - keep)
            if base is None:
                return
            await remember(memory, replace(await recall(memory), base=base))
            for path in gone:
                path.unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise VaultError(
                Code.NOT_WRITABLE,
                f"Old files of the audit log cannot be read or removed: {reason}.",
            ) from error
        self.put(
            encode_event(
                EventKind.LOG, reason="lines older than audit.keep were removed", count=len(gone)
            )
        )

    async def close(self, memory: Memory) -> None:
        """The last line, the last checkpoint. What cannot be written any more is not waited for."""
        for tick in self.ticks:
            tick()
        try:
            if not self._first:
                await self._end(memory)
        except VaultError as error:
            _log.warning(
                "the audit log could not be remembered", code=error.code, text=error.message
            )
        finally:
            self._disk.shutdown()
            self._close_segment()

    # ------------------------------------------------------------------ parts

    async def _end(self, memory: Memory) -> None:
        with suppress(VaultError):  # as in look: it stays down
            self.put(encode_event(EventKind.LOG, reason="stopped"))
        await self.checkpoint(memory)

    def _write(self, bodies: tuple[bytes, ...]) -> None:
        at = self._stamp()
        if self._first:
            bodies = (*self._first, *bodies)
        number, before, lines = self._n, self._prev, []
        for one in bodies:
            number += 1
            line, before = sealed_one(self._mac, (number, before), at, one)
            lines.append(line)
        data = lines[0] if len(lines) == 1 else b"".join(lines)
        try:
            segment = self._segment
            if (
                segment is None
                or self._day != self._began
                or segment.size + len(data) > self._options.segment
            ):
                segment = self._next_segment(len(data))
            segment.append(data)
        except OSError as error:
            self._fail(error)
            raise VaultError(Code.AUDIT_DOWN, _REFUSAL) from None
        self._n, self._prev = number, before
        if self._first:
            self._first = ()

    def _outlived(self, instant: int) -> tuple[list[Path], Link | None]:
        """The files that ended before that instant, never the one that grows, and the last line of
        the last of them.
        """
        gone: list[Path] = []
        base: Link | None = None
        for path, following in pairwise(log_segments(self._options.folder)):
            last = parse_line(log_end(path).last)
            if (
                path.stat().st_mtime * 1000 > instant
                or last is None
                or last.n + 1 != first_of(following)
            ):
                break
            base = last.link
            gone.append(path)
        return gone, base

    def _next_segment(self, more: int) -> LogSegment:
        """The file for so many bytes more: a new one for a new day and where the last one is full,
        which is flushed beside the loop.
        """
        full = self._segment
        if full is not None and self._began is None and full.size + more <= self._options.segment:
            self._began = self._day
            return full
        self._segment = fresh = LogSegment(segment_path(self._options.folder, self._n + 1))
        self._fresh = True
        self._began = self._day
        if full is not None:
            self._disk.submit(self._end_full, full)
        return fresh

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
        if self._fault is None:
            self._fault = error.strerror or type(error).__name__
            _log.error(
                "the audit log cannot be written; nothing is revealed until it can",
                reason=self._fault,
            )

    def _again(self) -> None:
        """Try to write what waits, at most once a second; raises while that fails."""
        if time.monotonic() - self._tried < _LOOK:
            raise VaultError(Code.AUDIT_DOWN, _REFUSAL)
        self._tried = time.monotonic()
        late = [b'%b,"since":"%b"' % (one, at) for at, one in self._waiting]
        back = encode_event(EventKind.LOG, reason="the log is written again", count=self._lost)
        fault, self._fault = self._fault, None
        try:
            self._write((back, *late))
        except VaultError:
            self._fault = fault
            raise
        self._waiting.clear()
        self._lost = 0
        _log.info("the audit log is written again", count=len(late))

    def _alarm(self, reason: str) -> None:
        self.alarm("log")
        _log.error("somebody had his hands on the audit log", reason=reason)
        self.put(encode_event(EventKind.ALARM, reason=reason))

    async def _flush(self) -> None:
        """Everything written so far is on the disk, or the log has a fault."""
        last, segment, fresh = self._n, self._segment, self._fresh
        self._fresh = False
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._disk, self._to_disk, segment, fresh
            )
        except OSError as error:
            self._fresh = self._fresh or fresh
            self._fail(error)
        finally:
            self._flushing = None
        self._flushed = max(self._flushed, last)

    def _end_full(self, segment: LogSegment) -> None:
        try:
            segment.close()
        except OSError as error:
            self._unflushed = error  # nobody waits for this; the flush that follows tells it

    def _to_disk(self, segment: LogSegment | None, fresh: bool) -> None:
        error, self._unflushed = self._unflushed, None
        if error is not None:
            raise error
        if segment is not None:
            segment.flush()
        if fresh:
            flush_folder(self._options.folder)

    def _close_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            with suppress(
                OSError
                # what it could not flush, the checkpoint before has told; a file that was removed
                # cannot be
            ):
                segment.close()
