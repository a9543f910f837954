"""The audit log of the settings: its keys from the keyset, its memory in the store."""

import fcntl
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec

from proxy.api.audit import Auditing
from proxy.audit import AuditLog, AuditOptions, Auditor, LogKey, key_id, open_log, recall
from proxy.audit.events import NOTE_CHANGED, NOTES_OLDER, EventKind, RecordId, encode_event
from proxy.audit.services import AuditServices, Honeytokens, record_ids
from proxy.auth.sealed_notes import SealedNote
from proxy.bootstrap.open_vault import key_source, open_with_key, peek_notes, refuse_no_vault
from proxy.clock import Clock
from proxy.config import Settings
from proxy.crypto.client_secrets import new_ident
from proxy.crypto.keyset import Keyset
from proxy.crypto.prf import hasher
from proxy.crypto.public_keys import AuditKey, signature_holds
from proxy.errors import Code, VaultError, coded
from proxy.model.record import DEFAULT
from proxy.storage.base import Store
from proxy.storage.notes import CopiedNotes
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.vault.environments import has_keyset, load_keyset, read_root, report_note

_log = logs.logger("audit")

#: The file of a folder that names its chain, and is locked by the replica that writes it.
CHAIN: Final = "chain"
_KINDS: Final = ("bait", "emergency", "log", "misses", "notes", "tampered")


@dataclass(frozen=True, slots=True)
class OpenAudit:
    """An open audit log, and what requests need of it."""

    log: AuditLog
    services: AuditServices
    interface: Auditing
    auditor: Callable[[], Awaitable[Auditor]]  #: what reads and verifies the lines, as it is now
    keys: "AuditKeys"

    async def check(self) -> str | None:
        """The fault of the log, for ``/readyz``."""
        fault = self.log.fault
        if fault is None:
            return None
        return f"The audit log cannot be written ({fault}); nothing is revealed until it can."

    async def close(self) -> None:
        """Write the last lines, and ship them."""
        self.interface.refusals.flush()
        self.services.misses.flush()
        await self.log.close()


async def open_audit(
    settings: Settings, store: Store, keyset: Keyset, clock: Clock, metrics: Metrics
) -> OpenAudit:
    """Open the log; ``close`` it after use.

    Raises ``VaultError`` (NOT_WRITABLE) when its folder cannot be used.
    """
    for kind in _KINDS:
        metrics.cell("domicile_alarms_total", kind)  # each is there from the start, at 0
    alarm = partial(metrics.count, "domicile_alarms_total")
    honeytokens = Honeytokens(SealedNote(store, keyset.aead(), keyset.environment, "baits"))
    await honeytokens.load()
    log, keys = await open_log_of(settings, store, keyset, clock, alarm)
    services = AuditServices(log, keys.record_id(), honeytokens, alarm)
    interface = Auditing(services)

    def misfit(name: str) -> None:
        report_note(name)
        alarm("notes")
        services.put_quietly(encode_event(EventKind.ALARM, subject=name, reason=NOTE_CHANGED))

    if store.root is not None:
        store.root.alarm = misfit
        for name in sorted(store.root.faults):  # found before there was a log
            misfit(name)
    log.ticks += [interface.refusals.look, services.misses.flush]
    metrics.watch("domicile_audit_line", lambda: float(log.link.n))
    metrics.watch("domicile_audit_down", lambda: float(log.fault is not None))
    worker = None if settings.worker is None else f"worker-{settings.worker.number}"
    log.ship(stdout=settings.audit.stdout, syslog=settings.audit.syslog, process=worker)
    for shipper in log.shippers:
        metrics.watch("domicile_audit_unshipped", partial(log.unshipped, shipper), shipper.name)
    return OpenAudit(log, services, interface, partial(_auditor, settings, keyset, store), keys)


def options_of(settings: Settings) -> AuditOptions:
    """The options of the log, as set."""
    audit = settings.audit
    return AuditOptions(settings.chain_folder, audit.sync, audit.segment, audit.keep)


class _StoredKey(msgspec.Struct, frozen=True):
    chain: bytes
    seed: bytes


class _StoredKeys(msgspec.Struct, frozen=True):
    record: bytes  #: of the hash that names records; it stays, so that a record has one name
    keys: list[_StoredKey]


_decode = msgspec.json.Decoder(_StoredKeys).decode
_encode = msgspec.json.Encoder().encode


class AuditKeys:
    """The keys of the log, sealed in the store. ``load`` before use."""

    def __init__(self, store: Store, keyset: Keyset) -> None:
        self._note = SealedNote(store, keyset.aead(), keyset.environment, "audit-keys")
        self._keyset = keyset
        self._record = b""
        self._keys: list[AuditKey] = []  # oldest first

    async def load(self, *, make: bool = True) -> "AuditKeys":
        """Read the keys; ``make``: store the first one where there is none."""
        content = await self._note.read()
        if content is not None:
            stored = _decode(content)
            self._record = stored.record
            self._keys = [AuditKey(key.chain, key.seed) for key in stored.keys]
            return self
        chain, self._record = self._keyset.audit_roots()
        self._keys = [AuditKey.create(chain)]
        if make:
            await self._write(self._keys)
        return self

    def listed(self) -> list[LogKey]:
        """All keys, oldest first: each verifies its lines for ever."""
        return [LogKey(key_id(key.public), key.mac, key.sign, key.public) for key in self._keys]

    def record_id(self) -> RecordId:
        """The keyed hash that names records in lines."""
        return record_ids(hasher(self._record))

    async def rotate(self, log: AuditLog) -> None:
        """Write the log with a fresh key from now on; the line that says so has the keyed hash of
        the one before in it, which the older key has made, and a signature of the older key.

        Raises ``VaultError`` (AUDIT_DOWN, and the errors of the store); the earlier key then stays.
        A key left by an interrupted rotation is taken.
        """
        if self.listed()[-1].id == log.key.id:
            await self._write([*self._keys, AuditKey.create()])
        log.put_signed("another key writes the log", self.listed()[-1])
        await log.checkpoint()

    async def _write(self, keys: list[AuditKey]) -> None:
        stored = [_StoredKey(*key.secrets()) for key in keys]
        await self._note.write(_encode(_StoredKeys(self._record, stored)))
        self._keys = keys


async def open_log_of(
    settings: Settings,
    store: Store,
    keyset: Keyset,
    clock: Clock,
    alarm: Callable[[str], None] = lambda _kind: None,
) -> tuple[AuditLog, AuditKeys]:
    """The log of a vault, and its keys. Raises as ``open_audit``.

    Notes of the store that are older than the log says raise an alarm, once.
    """
    keys = await AuditKeys(store, keyset).load()
    memory = memory_of(store, keyset, settings.chain_folder)
    log = await open_log(options_of(settings), keys.listed(), clock, memory, alarm)
    if keys.listed()[-1].id != log.key.id:  # a rotation was interrupted: bring it to its end
        with suppress(VaultError):  # the log reports it; the earlier key stays
            await keys.rotate(log)
    root = store.root
    if root is None:
        return log, keys
    log.notes = lambda: root.state.counter
    if log.notes_before > root.state.counter:
        behind = log.notes_before - root.state.counter
        _log.error("the store was rolled back to an earlier state", count=behind)
        alarm("notes")
        root.count_from(log.notes_before)
        with suppress(VaultError):  # it waits in the log
            log.put_or_queue(encode_event(EventKind.ALARM, reason=NOTES_OLDER))
    return log, keys


def memory_of(store: Store, keyset: Keyset, folder: Path) -> SealedNote:
    """The memory of the log outside its folder; that of a replica has the name of its chain."""
    chain = _chain_of(folder)
    return SealedNote(
        store, keyset.aead(), keyset.environment, f"audit/{chain}" if chain else "audit"
    )


def _chain_of(folder: Path) -> str:
    """The name of the chain in a folder that a replica writes; empty for a vault with one owner."""
    try:
        name = (folder / CHAIN).read_text().strip()
    except OSError:
        return ""
    return name if name.isalnum() else ""


def own_chain(settings: Settings) -> int:
    """The lock of the folder that this replica alone writes, to be closed at the end; its chain
    gets a name, but for one that a single owner has begun.

    Raises ``VaultError``: STORE_BUSY, NOT_WRITABLE.
    """
    folder = settings.chain_folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / CHAIN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise VaultError(
            Code.NOT_WRITABLE,
            f"The audit log cannot be kept in {folder} ({error.strerror}): name another folder in "
            "the setting audit.folder.",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not any(folder.glob("audit-*.jsonl")) and not os.fstat(lock).st_size:
            os.write(lock, f"{new_ident()}\n".encode())
            os.fsync(lock)
    except OSError as error:
        os.close(lock)
        raise VaultError(
            Code.STORE_BUSY,
            f"Another replica writes the audit log in {folder}: give each one a folder of its own "
            "(audit.folder).",
        ) from error
    return lock


async def _auditor(settings: Settings, keyset: Keyset, store: Store) -> Auditor:
    keys = await AuditKeys(store, keyset).load(make=False)
    counter = 0 if store.root is None else store.root.state.counter
    listed, record_id = keys.listed(), keys.record_id()
    own, *others = [
        Auditor(
            folder, listed, record_id, signature_holds,
            await recall(memory_of(store, keyset, folder)), counter,
        )
        for folder in settings.chain_folders()
    ]  # fmt: skip
    return own._replace(others=tuple(others))


async def auditor(settings: Settings) -> Auditor:
    """The keys of the log and its last checkpoint, also while an instance runs.

    Raises ``VaultError``: BAD_STORE where there is no vault, BAD_KEYS, CANNOT_OPEN where notes are
    not as they were written.
    """
    refuse_no_vault(settings)
    notes = await _copied_notes(settings)
    master = key_source(settings.keys).load()
    if not await has_keyset(notes, DEFAULT):
        raise VaultError(
            Code.BAD_STORE, f"The vault at {settings.store.label} has no keys yet: start it once."
        )
    keyset = await load_keyset(notes, master, DEFAULT)
    await read_root(notes, keyset)
    return await _auditor(settings, keyset, notes)


async def _copied_notes(settings: Settings) -> Store:
    """The notes of the vault, and nothing else of it, also while an instance runs on it."""
    try:
        store, _ = await open_with_key(settings)
    except coded(Code.STORE_BUSY):
        notes = peek_notes(settings)
    else:
        notes = await store.read_notes()
        await store.close()
    return cast("Store", CopiedNotes(notes))
