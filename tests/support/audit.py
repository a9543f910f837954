"""An audit log in a folder of a test, and what reads it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from proxy.api.audit import Auditing
from proxy.audit.chain import (
    Checkpoint,
    Link,
    LogFindings,
    LogKey,
    VolatileMemory,
    chain_lines,
    recall,
)
from proxy.audit.events import AuditContext, EventKind, with_request
from proxy.audit.files import log_segments, segment_path
from proxy.audit.log import AuditLog, AuditOptions, open_log
from proxy.audit.services import AuditServices, Honeytokens, NullSink, Sink, record_ids
from proxy.audit.signatures import Signatures, key_id
from proxy.audit.verify import Auditor, log_lines, verify_log
from proxy.clock import Clock
from proxy.crypto.public_keys import AuditKey, signature_holds
from proxy.errors import Code, VaultError
from proxy.telemetry.logs import REQUEST_ID
from tests.support.clock import ManualClock


def log_key(secret: AuditKey) -> LogKey:
    """A key as a log takes it."""
    return LogKey(key_id(secret.public), secret.mac, secret.sign, secret.public)


#: The key of every log of a test, and its keyed hash.
KEY = log_key(AuditKey(b"audit key of the tests, 32 bytes", b"signs the logs of the tests, 32."))
MAC = KEY.mac


#: A memory that a test can turn back.
Remembered = VolatileMemory


def chained(after: Link, at: str, bodies: Sequence[bytes]) -> tuple[bytes, Link]:
    """Lines under the key of the tests that follow ``after``, and the last of them."""
    lines, number, prev = chain_lines(MAC, (after.n, after.hash.encode()), at.encode(), bodies)
    return lines, Link(number, prev.decode())


def lines(folder: Path) -> list[dict[str, Any]]:
    """Every line of a folder."""
    return [
        json.loads(line) for path in log_segments(folder) for line in path.read_bytes().splitlines()
    ]


def told(folder: Path, *events: str) -> list[dict[str, Any]]:
    """The lines of these events, without what ties them together; those of the log itself only
    where asked for.
    """
    chosen = [
        line
        for line in lines(folder)
        if (line["event"] in events if events else line["event"] != "log")
    ]
    return [
        {name: line[name] for name in line if name not in ("n", "at", "prev", "hash")}
        for line in chosen
    ]


async def opened(
    folder: Path, memory: Remembered | None = None, clock: Clock | None = None, **given: Any
) -> AuditLog:
    """The log of a folder; its caller closes it."""
    memory = memory or Remembered()
    options = AuditOptions(folder, **given)
    log = await open_log(options, [KEY], clock or ManualClock(), memory)
    await log.begin()
    return log


class Kept(NullSink):
    """A sink that keeps its lines in memory, and can be made to fail."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.down = False

    @property
    def fault(self) -> str | None:
        return "No space left on device" if self.down else None

    def ready(self) -> None:
        if self.down:
            raise VaultError(Code.AUDIT_DOWN, "The audit log cannot be written.")

    def put(self, *bodies: bytes) -> None:
        self.ready()
        if request_id := REQUEST_ID.get():
            bodies = with_request(bodies, request_id)
        self.raw += bodies
        self.lines += [json.loads(b"{" + one + b"}") for one in bodies]

    def put_or_queue(self, *bodies: bytes) -> None:
        self.put(*bodies)


def auditor(folder: Path, *bodies: bytes) -> Auditor:
    """What reads a log of these lines, an hour apart from 2026-05-04 on, in a folder that it
    makes.
    """
    folder.mkdir(parents=True)
    after, whole = Link(0, "0" * 32), b""
    for hour, body in enumerate(bodies):
        line, after = chained(
            after, f"2026-05-{4 + hour // 24:02d}T{hour % 24:02d}:00:00.000Z", [body]
        )
        whole += line
    segment_path(folder, 1).write_bytes(whole)
    return Auditor(folder, [KEY], record_ids(MAC), signature_holds, Checkpoint(), 0)


def audit_context(kind: EventKind = EventKind.WRITE) -> AuditContext:
    """The context of a request whose operation is named ``o``."""
    return AuditContext("o", kind, {})


def auditing(sink: Sink) -> Auditing:
    """The lines of an interface, into that sink."""
    return Auditing(audit_services(sink))


def audit_services(sink: Sink | None = None, alarms: list[str] | None = None) -> AuditServices:
    """The parts of a log; ``alarms`` gets the kind of each alarm."""
    counted = (alarms if alarms is not None else []).append
    return AuditServices(sink or Kept(), record_ids(MAC), Honeytokens(VolatileMemory()), counted)


@asynccontextmanager
async def trail(
    folder: Path, memory: Remembered | None = None, **given: Any
) -> AsyncIterator[AuditLog]:
    """A log for the length of a test."""
    log = await opened(folder, memory, **given)
    try:
        yield log
    finally:
        await log.close()


async def verified(folder: Path, memory: Remembered | None = None) -> LogFindings:
    """What a look at a folder finds."""
    remembered = None if memory is None else await recall(memory)
    return verify_log(log_lines(folder), signatures(), [KEY], remembered)


def signatures(*keys: LogKey) -> Signatures:
    """What signed lines prove to somebody with these public keys, or that of the tests."""
    return Signatures({key.id: key.public for key in keys or (KEY,)}, signature_holds)
