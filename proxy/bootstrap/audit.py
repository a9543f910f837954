"""The audit log of the settings: its keys from the keyset, its memory in the store, the places it
is shipped to.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from proxy.api.audit import Auditing
from proxy.audit.chain import Forgetful, Known, Mac, Memory, recall
from proxy.audit.honeytokens import Baits, Witness
from proxy.audit.log import Options, Trail
from proxy.audit.open_log import Mark, marks, open_trail
from proxy.audit.sinks import Collector, Nowhere, Sender, Shipper, StandardOutput, SyslogSink
from proxy.auth.sealed_notes import SealedNote
from proxy.bootstrap.storage import key_source, open_with_key, refuse_no_vault
from proxy.clock import Clock
from proxy.config import Settings
from proxy.crypto.keyset import Keyset
from proxy.crypto.prf import Prf
from proxy.errors import Code, VaultError
from proxy.model.record import DEFAULT
from proxy.storage.base import Store
from proxy.storage.sqlite.file import peek
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.vault.vault import keyset_note

_log = logs.logger("audit")

_KINDS: Final = ("bait", "log", "tampered")


@dataclass(frozen=True, slots=True)
class OpenAudit:
    """An open audit log, and what belongs to it."""

    trail: Trail
    memory: Memory
    interface: Auditing
    witness: Witness
    shippers: tuple[Shipper, ...]

    async def check(self) -> str | None:
        """For ``/readyz``: what is wrong with the log."""
        fault = self.trail.fault
        return (
            None
            if fault is None
            else f"The audit log cannot be written ({fault}); nothing is revealed until it can."
        )

    async def begin(self) -> None:
        """The first line."""
        await self.trail.begin(self.memory, _report)

    async def upkeep(self) -> None:
        """Look after the log for ever."""
        await self.trail.run(self.memory, _report)

    async def close(self) -> None:
        """The last lines, and what is still to be shipped."""
        self.interface.refusals.flush()
        await self.trail.close(self.memory)
        for shipper in self.shippers:
            shipper.stop()


async def open_audit(
    settings: Settings, store: Store, keyset: Keyset, clock: Clock, metrics: Metrics
) -> OpenAudit:
    """Open the log; ``close`` it after use.

    Raises ``VaultError`` (NOT_WRITABLE) when its folder cannot be used.
    """
    alarms = {kind: metrics.cell("domicile_alarms_total", kind) for kind in _KINDS}

    def alarm(kind: str) -> None:
        alarms[kind].value += 1

    memory = memory_of(store, keyset)
    baits = Baits(SealedNote(store, keyset.aead(), keyset.environment, "baits"))
    await baits.load()
    trail = await open_trail(options_of(settings), chain_of(keyset), clock, memory, alarm)
    witness = Witness(trail, mark_of(keyset), baits, alarm)
    interface = Auditing(witness)
    trail.ticks.append(interface.refusals.look)
    metrics.watch("domicile_audit_line", lambda: float(trail.link.n))
    metrics.watch("domicile_audit_down", lambda: float(trail.fault is not None))
    return OpenAudit(trail, memory, interface, witness, _shippers(settings, trail, metrics))


def options_of(settings: Settings) -> Options:
    """What the operator has decided about the log."""
    given = settings.audit
    return Options(given.folder, given.sync, given.segment, given.keep)


def unwitnessed() -> Witness:
    """For trials of rules in memory, where there are no people."""
    return Witness(Nowhere(), lambda *_: "", Baits(Forgetful()), lambda _kind: None)


def chain_of(keyset: Keyset) -> Prf:
    """The keyed hash of the chain."""
    return keyset.hasher("audit", "chain")


def mark_of(keyset: Keyset) -> Mark:
    """What marks records in lines."""
    return marks(keyset.hasher("audit", "record"))


def memory_of(store: Store, keyset: Keyset) -> SealedNote:
    """What is remembered of the log beside its folder."""
    return SealedNote(store, keyset.aead(), keyset.environment, "audit")


def _shippers(settings: Settings, trail: Trail, metrics: Metrics) -> tuple[Shipper, ...]:
    given = settings.audit
    ways: dict[str, Sender] = {}
    if given.stdout:
        ways["stdout"] = StandardOutput()
    if given.syslog is not None:
        ways["syslog"] = SyslogSink(Collector(*given.syslog))
    shippers = tuple(Shipper(given.folder, name, way) for name, way in ways.items())
    for shipper in shippers:
        _watch(shipper, trail, metrics)
        shipper.start()
    return shippers


def _watch(shipper: Shipper, trail: Trail, metrics: Metrics) -> None:
    metrics.watch(
        "domicile_audit_unshipped", lambda: float(trail.link.n - shipper.position), shipper.name
    )


def _report(error: VaultError) -> None:
    _log.error(
        "the audit log could not be looked after and will be again",
        code=error.code,
        text=error.message,
    )


# What an auditor needs beside the files of the log: its keys, and what is remembered of it; also
# while an instance runs.


class Auditor(NamedTuple):
    """Whoever looks at the log."""

    mac: Mac
    mark: Mark
    known: Known


class _Notes:
    """Notes as they were a moment ago."""

    def __init__(self, notes: dict[str, bytes]) -> None:
        self._notes = notes

    async def note(self, name: str) -> bytes | None:
        return self._notes.get(name)


async def auditor(settings: Settings) -> Auditor:
    """The keys of the log and what is remembered of it.

    Raises ``VaultError``: BAD_STORE where there is no vault, BAD_KEYS.
    """
    refuse_no_vault(settings)
    keyset_name = keyset_note(DEFAULT)
    names = (keyset_name, f"audit:{DEFAULT}")
    notes = await _read(settings, names)
    master = key_source(settings.keys).load()
    if keyset_name not in notes:
        raise VaultError(
            Code.BAD_STORE, f"The vault at {settings.store.path} has no keys yet: start it once."
        )
    keyset = Keyset.unwrap(notes[keyset_name], master)
    known = await recall(memory_of(cast(Store, _Notes(notes)), keyset))
    return Auditor(chain_of(keyset), mark_of(keyset), known)


async def _read(settings: Settings, names: tuple[str, ...]) -> dict[str, bytes]:
    try:
        store, _ = await open_with_key(settings)
    except VaultError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        # an instance runs: its database is looked at beside it
        return peek(settings.store.path, names)
    try:
        return {name: note for name in names if (note := await store.note(name)) is not None}
    finally:
        await store.close()
