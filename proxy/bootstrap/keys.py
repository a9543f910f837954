"""Keys of a running instance: reports, rotation, and re-encryption in the background."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

import msgspec

from proxy.audit import AuditLog
from proxy.auth.tokens import SigningKeys
from proxy.bootstrap.audit import AuditKeys
from proxy.crypto.aead import MOST_SEALINGS
from proxy.crypto.key_sources import KeySource
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from proxy.model.record import DEFAULT, DataKeys, KeyInventory, KeyKind
from proxy.storage.base import Store
from proxy.storage.notes import Agreement
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.vault.environments import keyset_note
from proxy.vault.maintenance import (
    HashRotation,
    HashRotationRun,
    ReencryptionJob,
    ReencryptionRun,
    drop_hash_root,
    drop_keys,
    forget_dropped,
    renew_hash_root,
    renew_keys,
    renew_token_root,
    rewrap,
    wrapper,
)
from proxy.vault.vault import Vault

_log = logs.logger("keys")

#: Encryptions after which their number is stored. After a crash so many unrecorded ones are
#: assumed.
_NOTED: Final = 65_536
#: Seconds within which work ends that computes a hash and then reads or writes by it: work from
#: before a new hash root, and from before the last scan for data under the older one.
_PAUSES: Final = (2.0, 15.0)


class _Counted(msgspec.Struct, frozen=True):
    key: str
    sealings: int
    whole: bool  #: the process that wrote it sealed nothing afterwards


_decode = msgspec.json.Decoder(_Counted).decode
_encode = msgspec.json.Encoder().encode


class Places(NamedTuple):
    """Locations and owners of keys."""

    store: Store
    source: KeySource
    signing: SigningKeys
    audit: AuditKeys
    log: Callable[[], AuditLog]  #: that a fresh audit key writes from now on


class InstanceKeys:
    """All keys of an instance. ``start`` before use, ``close`` after it.

    ``vaults`` tells which environments are open.

    ``reseals``: data under older keys is re-encrypted in the background; else the next instance
    that starts does that.
    """

    def __init__(
        self,
        places: Places,
        vaults: Callable[[], Iterable[Vault]],
        metrics: Metrics,
        *,
        reseals: bool = True,
        pauses: tuple[float, float] = _PAUSES,
    ) -> None:
        self.vaults = vaults
        self._pauses = pauses
        self._reseals = reseals
        self._store, self._source, self._signing, self._audit, self._log = places
        self._metrics = metrics
        self._watched: dict[str, _Watched] = {}
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Finish an interrupted rotation of the master key; continue a re-encryption."""
        try:
            if await asyncio.to_thread(self._source.staged) is not None:
                await self._rotate_master()
        except VaultError as error:  # both keys open everything, so nothing waits for it
            _log.error("a master key still waits to follow", code=error.code, text=error.message)
        await self._follow()

    async def close(self) -> None:
        """Stop; a re-encryption continues at the next start."""
        for watched in self._watched.values():
            if self._reseals:
                await watched.note(whole=True)
            await watched.resealing.close()
            await watched.rehashing.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["InstanceKeys"]:
        """These keys, started; closed when the block ends."""
        await self.start()
        try:
            yield self
        finally:
            await self.close()

    async def listed(self) -> KeyInventory:
        """Every key there is, by its id; no key itself."""
        async with self._changing:
            await self._follow()
            return KeyInventory(
                (await self._load()).id,
                tuple(self._signing.by_kid),
                [await watched.status() for watched in self._watched.values()],
                tuple(key.id for key in self._audit.listed()),
            )

    async def rotate(self, kind: KeyKind, environment: str = DEFAULT) -> None:
        """Another key of that kind from now on; of those that environments have, one's.

        Raises ``VaultError``: AUDIT_DOWN, NOT_FOUND for an unknown environment, BAD_KEYS and
        NOT_WRITABLE if the key source cannot hold another master key, CONFLICT, and the errors of
        the store. The earlier key then stays.
        """
        async with self._changing:
            if kind is KeyKind.SIGNING:
                await self._signing.rotate()
            elif kind is KeyKind.AUDIT:
                await self._audit.rotate(self._log())
            elif kind is KeyKind.MASTER:
                await self._rotate_master()
            else:
                await self._follow()
                if environment not in self._watched:
                    raise VaultError(Code.NOT_FOUND, "There is no environment of that id.")
                await self._renew_of(kind, self._watched[environment])
        _log.info("a key was rotated", reason=str(kind), environment=environment)

    async def run_upkeep(self, interval: float, report: Callable[[VaultError], None]) -> None:
        """Follow environments, count encryptions, and rotate data keys in good time, for ever."""
        while True:
            await asyncio.sleep(interval)
            try:
                await self._upkeep()
            except VaultError as error:
                report(error)

    # ------------------------------------------------------------------ parts

    async def _renew_of(self, kind: KeyKind, watched: "_Watched") -> None:
        vault, master = watched.vault, await self._load()
        if kind is KeyKind.DATA:
            await self._renew(watched)
        elif kind is KeyKind.TOKEN:
            await renew_token_root(self._store, master, vault.keyset)
        else:
            vault.both_roots.ask_both(on=True)
            pause = self._pauses[0] if self._reseals else 0.0
            try:
                await renew_hash_root(self._store, master, vault.keyset, pause)
            except BaseException:
                vault.both_roots.ask_both(on=len(vault.keyset.hash_roots) > 1)
                raise
            if self._reseals:
                await watched.rehashing.begin()

    async def _drop_hash_root(self, vault: Vault, agreed: Agreement | None) -> None:
        """Let the older hash root go, which nothing needs."""
        async with self._changing:
            await drop_hash_root(self._store, await self._load(), vault.keyset, agreed)
            vault.both_roots.ask_both(on=False)
        _log.info("an unused hash root was dropped", environment=vault.environment)

    async def _upkeep(self) -> None:
        async with self._changing:
            await self._follow()
            for watched in self._watched.values():
                await self._look(watched)

    async def _look(self, watched: "_Watched") -> None:
        if await watched.count() >= MOST_SEALINGS:
            await self._renew_in_time(watched)
        if self._reseals:
            await watched.resealing.follow_up()
            await watched.rehashing.follow_up()
        if self._store.peers is not None:
            await self._forget_dropped(watched)

    async def _renew_in_time(self, watched: "_Watched") -> None:
        environment = watched.vault.environment
        try:
            await self._renew(watched)
        except VaultError as error:
            if error.code is not Code.REPLICAS_RUNNING:
                raise
            _report(error)  # the limit is a sixteenth of what a key may do
        else:
            _log.info("a data key reached its limit and is rotated", environment=environment)

    async def _forget_dropped(self, watched: "_Watched") -> None:
        """Have no keys that another owner of the store has dropped meanwhile."""
        vault, keyset = watched.vault, watched.vault.keyset
        if len(keyset.data_keys) == len(keyset.hash_roots) == 1:
            return
        note = await self._store.note(keyset_note(vault.environment))
        if note is not None and note != watched.keyset_note:
            await forget_dropped(self._store, await self._load(), keyset)
            vault.both_roots.ask_both(on=len(keyset.hash_roots) > 1)
            watched.keyset_note = note

    async def _retire(
        self, vault: Vault, seals: str, keys: Sequence[str], agreed: Agreement | None = None
    ) -> None:
        """Let data keys go that nothing needs, unless another key than ``seals`` does by now."""
        async with self._changing:
            if vault.keyset.data_keys[-1] != seals:
                return
            await drop_keys(self._store, await self._load(), vault.keyset, keys, agreed)
        _log.info("unused data keys were dropped", environment=vault.environment, count=len(keys))

    async def _renew(self, watched: "_Watched") -> None:
        await renew_keys(self._store, await self._load(), watched.vault.keyset)
        watched.fresh()
        await watched.note(whole=not self._reseals)
        if self._reseals:
            await watched.resealing.begin()

    async def _rotate_master(self) -> None:
        """Wrap every keyset with the key that follows.

        Where one is wrapped by another key than the present one, that is all.
        """
        environments = [vault.environment for vault in self.vaults()]
        master = await asyncio.to_thread(self._source.staged)
        if master is None:
            present = await self._load()
            wrappers = [await wrapper(self._store, environment) for environment in environments]
            master = (
                await asyncio.to_thread(self._source.stage)
                if all(one in (present.id, None) for one in wrappers)
                else present
            )
        for environment in environments:
            await rewrap(self._store, master, environment)
        await asyncio.to_thread(self._source.switch)

    async def _load(self) -> MasterKey:
        """The master key; on a thread, for a key service may have to be asked."""
        return await asyncio.to_thread(self._source.load)

    async def _follow(self) -> None:
        """Take over the current environments."""
        open_now = {vault.environment: vault for vault in self.vaults()}
        for gone in [ident for ident in self._watched if ident not in open_now]:
            ended = self._watched.pop(gone)
            await ended.resealing.close()
            await ended.rehashing.close()
        for ident, vault in open_now.items():
            if ident not in self._watched:
                rehashing = HashRotation(
                    vault, _report, partial(self._drop_hash_root, vault), self._pauses[1]
                )
                watched = _Watched(vault, self._metrics, self._retire, rehashing)
                self._watched[ident] = watched
                await watched.start(self._reseals)


class _Watched:
    """The data keys of one environment, their use, and the state of re-encryption."""

    def __init__(
        self,
        vault: Vault,
        metrics: Metrics,
        retire: Callable[[Vault, str, Sequence[str], Agreement | None], Awaitable[None]],
        rehashing: HashRotation,
    ) -> None:
        self.vault = vault
        self.rehashing = rehashing
        self.resealing = ReencryptionJob(
            vault,
            _report,
            lambda keys, agreed: retire(vault, vault.keyset.data_keys[-1], keys, agreed),
        )
        self.keyset_note: bytes | None = None  #: as last read, beside other owners
        peers = vault.store.peers
        kind = "sealings" if peers is None else f"sealings/{peers.slot}"
        self._name = f"{kind}:{vault.environment}"
        self._others = 0  #: sealings of this key that other replicas have noted
        self._stored: bytes | None = None
        self._before = 0  #: sealings of this key in earlier lives of the process
        self._noted = 0  #: content of the note
        self._whole = False  #: the note says that nothing was sealed since
        of = vault.environment
        for state in ("done", "unreadable", "versions", "contents"):
            metrics.watch("domicile_resealed_records", self._figure(state), of, state)
        for state in ("records", "versions", "unreadable"):
            metrics.watch("domicile_rehashed_records", self._rehashed(state), of, state)
        for kind, job in ((KeyKind.DATA, self.resealing), (KeyKind.HASH, rehashing)):
            metrics.watch("domicile_key_drop_blockers", partial(_blockers, job), of, str(kind))

    def _figure(self, state: str) -> Callable[[], float]:
        return lambda: 0.0 if (run := self.resealing.run) is None else float(getattr(run, state))

    def _rehashed(self, state: str) -> Callable[[], float]:
        return lambda: 0.0 if (run := self.rehashing.run) is None else float(getattr(run, state))

    async def start(self, reseals: bool) -> None:  # one fact, named by the caller
        self._stored = await self.vault.store.note(self._name)
        counted = None if self._stored is None else _decode(self._stored)
        if counted is not None and counted.key == self.vault.keyset.data_keys[-1]:
            self._before = self._noted = counted.sealings + (0 if counted.whole else _NOTED)
            self._whole = counted.whole
        await self._count_others()
        await self.resealing.load()
        await self.rehashing.load()
        if reseals:
            await self.resealing.resume()
            await self.rehashing.resume()

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
        content = _encode(_Counted(self.vault.keyset.data_keys[-1], self._own, whole))
        if content != self._stored:  # a start that is refused leaves the store as it was
            await self.vault.store.put_note(self._name, content, self._stored)
        self._stored, self._noted, self._whole = content, self._own, whole

    async def status(self) -> DataKeys:
        run = self.resealing.run or ReencryptionRun(self.vault.keyset.data_keys[-1])
        keyset, hashed = self.vault.keyset, self.rehashing.run or HashRotationRun("", 0)
        wrapped_by = await wrapper(self.vault.store, self.vault.environment) or ""
        return DataKeys(
            self.vault.environment, keyset.data_keys, wrapped_by, self.sealings,
            self.resealing.state, run.done, run.versions, run.contents, run.unreadable, run.used,
            keyset.hash_roots, keyset.token_roots, self.rehashing.state,
            {name: getattr(hashed, name) for name in ("records", "versions", "unreadable")},
            hashed.left, tuple(await self.resealing.ask_blockers()),
            tuple(await self.rehashing.ask_blockers()),
        )  # fmt: skip


def _report(error: VaultError) -> None:
    _log.error("re-encryption was interrupted and will resume", code=error.code, text=error.message)


def _blockers(job: ReencryptionJob | HashRotation) -> float:
    return float(len(job.blockers))


def vaults_of(opened: Iterable[tuple[Vault, object]]) -> Sequence[Vault]:
    """The vaults alone."""
    return [vault for vault, _ in opened]
