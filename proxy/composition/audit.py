"""The audit log of the settings: its keys from the keyset, its memory in the store, the places it is shipped to."""

from dataclasses import dataclass
from typing import Final

from proxy.audit.baits import Baits
from proxy.audit.marks import Mark, marks
from proxy.audit.memory import Forgetful, Memory
from proxy.audit.opening import open_trail
from proxy.audit.shipping import Shipper, StandardOutput, Way
from proxy.audit.sink import Nowhere
from proxy.audit.syslog import Place, Syslog
from proxy.audit.trail import Options, Trail
from proxy.audit.witness import Witness
from proxy.auth.sealed import SealedNote
from proxy.clock import Clock
from proxy.config import Settings
from proxy.crypto.keyset import Keyset
from proxy.crypto.prf import Prf
from proxy.errors import VaultError
from proxy.storage.base import Store
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.web.api.auditing import Auditing

_log = logs.logger("audit")

_KINDS: Final = ("bait", "log", "tampered")


@dataclass(frozen=True, slots=True)
class Audit:
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
            None if fault is None else f"The audit log cannot be written ({fault}); nothing is revealed until it can."
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


async def open_audit(settings: Settings, store: Store, keyset: Keyset, clock: Clock, metrics: Metrics) -> Audit:
    """Open the log; ``close`` it after use. Raises ``VaultError`` (NOT_WRITABLE) when its folder cannot be used."""
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
    return Audit(trail, memory, interface, witness, _shippers(settings, trail, metrics))


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
    ways: dict[str, Way] = {}
    if given.stdout:
        ways["stdout"] = StandardOutput()
    if given.syslog is not None:
        ways["syslog"] = Syslog(Place(*given.syslog))
    shippers = tuple(Shipper(given.folder, name, way) for name, way in ways.items())
    for shipper in shippers:
        _watch(shipper, trail, metrics)
        shipper.start()
    return shippers


def _watch(shipper: Shipper, trail: Trail, metrics: Metrics) -> None:
    metrics.watch("domicile_audit_unshipped", lambda: float(trail.link.n - shipper.position), shipper.name)


def _report(error: VaultError) -> None:
    _log.error("the audit log could not be looked after and will be again", code=error.code, text=error.message)
