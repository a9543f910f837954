"""The keys of one environment of a running instance: their use, and the state of what follows a
change of them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from proxy.crypto.master_key import MasterKey
from proxy.errors import VaultError
from proxy.model.record import DataKeys, KeyKind
from proxy.storage.notes import Agreement, NoteWrite
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.vault.environments import keyset_note
from proxy.vault.maintenance import (
    Agreeing,
    HashRotation,
    HashRotationRun,
    ReencryptionJob,
    ReencryptionRun,
    agreeing,
    follow_keyset,
    next_keyset_note,
    prepare_next,
    wait_running,
    wrapper,
)
from proxy.vault.vault import Vault

_log = logs.logger("keys")

#: Encryptions after which their number is stored. After a crash so many unrecorded ones are
#: assumed.
_NOTED: Final = 65_536


class _Counted(msgspec.Struct, frozen=True):
    key: str
    sealings: int
    whole: bool  #: the process that wrote it sealed nothing afterwards


_decode = msgspec.json.Decoder(_Counted).decode
_encode = msgspec.json.Encoder().encode


class EnvironmentKeys:
    """The keys of one environment, their use, and the state of re-encryption.

    ``pauses``: seconds within which work ends that computes a hash and then writes by it, and after
    which a keyset on its way is of a replica that is gone.
    """

    def __init__(
        self,
        vault: Vault,
        metrics: Metrics,
        retire: Callable[[Vault, str, Sequence[str], Agreement | None], Awaitable[None]],
        hash_rotation: HashRotation,
        pauses: tuple[float, float],
    ) -> None:
        self.vault = vault
        self.hash_rotation = hash_rotation
        self.resealing = ReencryptionJob(
            vault,
            report_interruption,
            lambda keys, agreed: retire(vault, vault.keyset.data_keys[-1], keys, agreed),
        )
        self._pause, self._stale = pauses
        self._keyset_note: bytes | None = None  #: as last read, beside other replicas
        self._next: tuple[bytes | None, float] = None, 0.0  #: the next one, and since when
        self._agreeing: Agreeing | None = None  #: to the next one
        self._turning = False  #: this replica adds a hash root
        replicas = vault.store.replicas
        kind = "sealings" if replicas is None else f"sealings/{replicas.slot}"
        self._name = f"{kind}:{vault.environment}"
        self._others = 0  #: sealings of this key that other replicas have noted
        self._stored: bytes | None = None
        self._noting = asyncio.Lock()  #: one that follows a change may note as well
        self._before = 0  #: sealings of this key in earlier lives of the process
        self._noted = 0  #: content of the note
        self._whole = False  #: the note says that nothing was sealed since
        of, reencryption = vault.environment, self.resealing
        for state in ("done", "unreadable", "versions", "contents"):
            figure = partial(_figure, reencryption, state)
            metrics.watch("domicile_resealed_records", figure, of, state)
        for state in ("records", "versions", "unreadable"):
            figure = partial(_figure, hash_rotation, state)
            metrics.watch("domicile_rehashed_records", figure, of, state)
        for kind, job in ((KeyKind.DATA, self.resealing), (KeyKind.HASH, hash_rotation)):
            metrics.watch("domicile_key_drop_blockers", partial(_blockers, job), of, str(kind))

    async def start(self, reseals: bool) -> None:  # one fact, named by the caller
        self._stored = await self.vault.store.note(self._name)
        counted = None if self._stored is None else _decode(self._stored)
        if counted is not None and counted.key == self.vault.keyset.data_keys[-1]:
            self._before = self._noted = counted.sealings + (0 if counted.whole else _NOTED)
            self._whole = counted.whole
        await self._count_others()
        await self.resealing.load()
        await self.hash_rotation.load()
        if reseals:
            await self.resealing.resume()
            await self.hash_rotation.resume()

    async def _count_others(self) -> None:
        """Add the counts of replicas, whichever has their numbers now."""
        store, total = self.vault.store, 0
        for name in await store.notes(f":{self.vault.environment}"):
            if name.startswith("sealings") and name != self._name:
                stored = await store.note(name)
                counted = None if stored is None else _decode(stored)
                if counted is not None and counted.key == self.vault.keyset.data_keys[-1]:
                    total += counted.sealings + (0 if counted.whole else _NOTED)
        self._others = total

    @property
    def sealings(self) -> int:
        """Upper bound of the bodies that were sealed with the current key."""
        return self._others + self._own

    @property
    def _own(self) -> int:
        return self._before + self.vault.keyset.aead().sealings

    async def close(self) -> None:
        """Pause what follows a change of keys."""
        if self._agreeing is not None:
            self._agreeing[1].cancel()
        await self.resealing.close()
        await self.hash_rotation.close()

    async def follow(self, load: Callable[[], Awaitable[MasterKey]]) -> None:
        """Have the keys that another replica has changed; know those to come, and agree
        to them. Raises the errors of the store and of ``load``.
        """
        vault, keyset, seals = self.vault, self.vault.keyset, self.vault.keyset.data_keys[-1]
        coming = await self._coming()  # before the present one, whose place it may take
        if vault.store.replicas is None:
            return
        note = await vault.store.note(keyset_note(vault.environment))
        if note is not None and note != self._keyset_note:
            await follow_keyset(vault.store, await load(), keyset)
            self._keyset_note = note
        if self._turning and coming is None:
            return  # the next root is known here alone, and stays known until it is used
        agreement = await prepare_next(coming, load, keyset)
        vault.both_roots.ask_both(on=keyset.live_hash_roots[0].other is not None)
        if keyset.data_keys[-1] != seals:
            self.fresh()
            await self.note()
        self._agree_to(agreement)

    def _agree_to(self, agreement: Agreement | None) -> None:
        """Agree as soon as that may be; again with each look, for one try may have failed."""
        if agreement is not None:
            pause = self._pause if self.vault.keyset.live_hash_roots[0].late else 0.0
            agree = partial(self._agree, agreement, pause)
            self._agreeing = agreeing(self._agreeing, agreement, agree)
        elif self._agreeing is not None:
            self._agreeing[1].cancel()
            self._agreeing = None

    @contextmanager
    def turning(self) -> Iterator[None]:
        """Ask for hashes under both roots while this replica gives the keyset another one."""
        vault, self._turning = self.vault, True
        vault.both_roots.ask_both(on=True)
        try:
            yield
        finally:
            self._turning = False
            vault.both_roots.ask_both(on=vault.keyset.live_hash_roots[0].other is not None)

    async def _agree(self, agreement: Agreement, pause: float) -> None:
        await wait_running(pause)
        try:
            if self.vault.store.replicas is not None:
                await self.vault.store.replicas.agree(agreement)
        except VaultError as error:  # it is asked for again by the next look
            _log.error("cannot agree to the next keys", fault=error)

    async def _coming(self) -> bytes | None:
        """The next keyset as stored; one whose writer has ended without a word is removed."""
        name, (before, since) = next_keyset_note(self.vault.environment), self._next
        note = await self.vault.store.note(name)
        if note is None or note != before:
            self._next = note, time.monotonic()
        elif self.hash_rotation.leads and time.monotonic() - since > self._stale:
            await self.vault.store.put_notes([NoteWrite(name, None, note)])
            note = None
        return note

    async def count(self) -> int:
        """The same, written down from time to time."""
        if self._whole or self._own - self._noted >= _NOTED:
            await self.note()
            await self._count_others()
        return self.sealings

    def fresh(self) -> None:
        """Another key seals from now on."""
        self._before = self._others = 0

    async def note(self, *, whole: bool = False) -> None:
        """Write down how much the present key has sealed."""
        async with self._noting:
            content = _encode(_Counted(self.vault.keyset.data_keys[-1], self._own, whole))
            if content != self._stored:  # a start that is refused leaves the store as it was
                await self.vault.store.put_note(self._name, content, self._stored)
            self._stored, self._noted, self._whole = content, self._own, whole

    async def status(self) -> DataKeys:
        run = self.resealing.run or ReencryptionRun(self.vault.keyset.data_keys[-1])
        keyset, hashed = self.vault.keyset, self.hash_rotation.run or HashRotationRun("", 0)
        wrapped_by = await wrapper(self.vault.store, self.vault.environment) or ""
        return DataKeys(
            self.vault.environment, keyset.data_keys, wrapped_by, self.sealings,
            self.resealing.state, run.done, run.versions, run.contents, run.unreadable, run.used,
            keyset.hash_roots, keyset.token_roots, self.hash_rotation.state,
            {name: getattr(hashed, name) for name in ("records", "versions", "unreadable")},
            hashed.left, tuple(await self.resealing.ask_blockers()),
            tuple(await self.hash_rotation.ask_blockers()), keyset.created_at,
        )  # fmt: skip


def report_interruption(error: VaultError) -> None:
    """Log what has interrupted a job."""
    _log.error("re-encryption was interrupted and will resume", fault=error)


def _figure(job: ReencryptionJob | HashRotation, state: str) -> float:
    return 0.0 if job.run is None else float(getattr(job.run, state))


def _blockers(job: ReencryptionJob | HashRotation) -> float:
    return float(len(job.blockers))
