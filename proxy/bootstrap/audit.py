"""The audit log of the settings: its keys from the keyset, its memory in the store."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from proxy.api.audit import Auditing
from proxy.audit.events import NOTE_CHANGED, EventKind, RecordId, encode_event
from proxy.audit.log import AuditLog, AuditOptions, open_log, record_ids
from proxy.audit.services import AuditServices, Honeytokens
from proxy.audit.verify import Auditor
from proxy.auth.sealed_notes import SealedNote
from proxy.bootstrap.storage import key_source, open_with_key, peek_notes, refuse_no_vault
from proxy.clock import Clock
from proxy.config import Settings
from proxy.crypto.keyset import Keyset
from proxy.crypto.prf import Prf
from proxy.errors import Code, VaultError
from proxy.model.record import DEFAULT
from proxy.storage.base import Store
from proxy.storage.memory import MemoryStore
from proxy.storage.notes import NoteWrite
from proxy.telemetry.metrics import Metrics
from proxy.vault.environments import has_keyset, load_keyset, read_root, report_note

_KINDS: Final = ("bait", "log", "misses", "notes", "tampered")


@dataclass(frozen=True, slots=True)
class OpenAudit:
    """An open audit log, and what requests need of it."""

    log: AuditLog
    services: AuditServices
    interface: Auditing
    auditor: Callable[[], Awaitable[Auditor]]  #: what reads and verifies the lines, as it is now

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
    alarms = {kind: metrics.cell("domicile_alarms_total", kind) for kind in _KINDS}

    def alarm(kind: str) -> None:
        alarms[kind].value += 1

    honeytokens = Honeytokens(SealedNote(store, keyset.aead(), keyset.environment, "baits"))
    await honeytokens.load()
    memory = memory_of(store, keyset)
    log = await open_log(options_of(settings), chain_of(keyset), clock, memory, alarm)
    services = AuditServices(log, record_ids_of(keyset), honeytokens, alarm)
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
    log.ship(stdout=settings.audit.stdout, syslog=settings.audit.syslog)
    for shipper in log.shippers:
        metrics.watch("domicile_audit_unshipped", partial(log.unshipped, shipper), shipper.name)
    return OpenAudit(log, services, interface, partial(_auditor, settings, keyset, store))


def options_of(settings: Settings) -> AuditOptions:
    """The options of the log, as set."""
    audit = settings.audit
    return AuditOptions(audit.folder, audit.sync, audit.segment, audit.keep)


def chain_of(keyset: Keyset) -> Prf:
    """The keyed hash of the chain."""
    return keyset.hasher("audit", "chain")


def record_ids_of(keyset: Keyset) -> RecordId:
    """The keyed hash that names records in lines."""
    return record_ids(keyset.hasher("audit", "record"))


def memory_of(store: Store, keyset: Keyset) -> SealedNote:
    """The memory of the log outside its folder."""
    return SealedNote(store, keyset.aead(), keyset.environment, "audit")


async def _auditor(settings: Settings, keyset: Keyset, store: Store) -> Auditor:
    memory = memory_of(store, keyset)
    return await Auditor.of(settings.audit.folder, chain_of(keyset), record_ids_of(keyset), memory)


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
    """A store in memory with the notes of the vault, also while an instance runs on it."""
    try:
        store, _ = await open_with_key(settings)
    except VaultError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        notes = peek_notes(settings)
    else:
        notes = await store.read_notes()
        await store.close()
    copy = MemoryStore()
    await copy.write_notes([NoteWrite(name, content, None) for name, content in notes.items()])
    return copy
