"""Keys of a running instance: reports, rotation, and re-encryption in the background."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from proxy.audit import AuditLog
from proxy.auth.access_tokens import SigningKeys
from proxy.bootstrap.audit import AuditKeys
from proxy.bootstrap.environment_keys import EnvironmentKeys, report_interruption
from proxy.bootstrap.schemas import report
from proxy.crypto.aead import MOST_SEALINGS
from proxy.crypto.key_sources import KeySource
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError, coded
from proxy.model.record import DEFAULT, KeyInventory, KeyKind
from proxy.storage.base import Store
from proxy.storage.notes import Agreement
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.vault.environments import load_keyset
from proxy.vault.maintenance import (
    HashRotation,
    drop_hash_root,
    drop_keys,
    is_alone,
    renew_hash_root,
    renew_keys,
    renew_token_root,
    rewrap,
    wrapper,
)
from proxy.vault.vault import Vault

_log = logs.logger("keys")

#: Seconds within which work ends that computes a hash and then reads or writes by it: work from
#: before a new hash root, and from before the last scan for data under the older one; and after
#: which a keyset on its way is of a replica that is gone.
_PAUSES: Final = (2.0, 15.0, 90.0)


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
        pauses: tuple[float, float, float] = _PAUSES,
    ) -> None:
        self.vaults = vaults
        self._pauses = pauses
        self._reseals = reseals
        self._store, self._source, self._signing, self._audit, self._log = places
        self._metrics = metrics
        self.state = Reload(metrics, "keys")  #: whether the next start would open the vault
        self._watched: dict[str, EnvironmentKeys] = {}
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Finish an interrupted rotation of the master key; continue a re-encryption."""
        try:
            if await is_alone(self._store):
                await self._finish_master()
            else:
                await self._catch_up()
        except VaultError as error:  # both keys open everything, so nothing waits for it
            _log.error("a master key still waits to follow", fault=error)
        await self._follow()

    async def close(self) -> None:
        """Stop; a re-encryption continues at the next start."""
        open_now = {vault.environment for vault in self.vaults()}
        for ident, watched in self._watched.items():
            if self._reseals and ident in open_now:
                await watched.note(whole=True)
            await watched.close()

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
                await self._refuse_unheard()
                await self._rotate_master()
            else:
                await self._refuse_unheard()
                await self._follow()
                if environment not in self._watched:
                    raise VaultError(Code.NOT_FOUND, "There is no environment of that id.")
                await self._renew_of(kind, self._watched[environment])
        _log.info("a key was rotated", reason=str(kind), environment=environment)

    async def _refuse_unheard(self) -> None:
        """A command for a stopped vault hears nothing of others, and cannot agree with them."""
        if not self._reseals and not await is_alone(self._store):
            raise VaultError(
                Code.REPLICAS_RUNNING,
                "Instances run on this vault: ask one of them, with --url. Nothing was changed.",
            )

    async def follow(self, environment: str) -> None:
        """Have the keys of an environment that another replica has changed, and agree to
        those that are to come. Raises the errors of the store and of the key source.
        """
        if (watched := self._watched.get(environment)) is not None:
            await watched.follow(self._load)

    async def run_maintenance(
        self, interval: float, report: Callable[[VaultError], None] = report
    ) -> None:
        """Follow environments, count encryptions, and rotate data keys in good time, for ever."""
        while True:
            await asyncio.sleep(interval)
            try:
                await self._maintain()
                await load_keyset(self._store, await self._load(), DEFAULT)
            except VaultError as error:
                if error.code is Code.BAD_KEYS:
                    self.state.failed(error)
                report(error)
            else:
                self.state.succeeded()

    # ------------------------------------------------------------------ parts

    async def _renew_of(self, kind: KeyKind, watched: EnvironmentKeys) -> None:
        vault, master = watched.vault, await self._load()
        if kind is KeyKind.DATA:
            await self._renew(watched)
        elif kind is KeyKind.TOKEN:
            await renew_token_root(self._store, master, vault.keyset)
        else:
            pause = self._pauses[0] if self._reseals else 0.0
            with watched.turning():
                await renew_hash_root(self._store, master, vault.keyset, pause)
            if self._reseals and watched.hash_rotation.leads:
                await watched.hash_rotation.begin()

    async def _drop_hash_root(self, vault: Vault, agreed: Agreement | None) -> None:
        """Let the older hash root go, which nothing needs."""
        async with self._changing:
            await drop_hash_root(self._store, await self._load(), vault.keyset, agreed)
            vault.both_roots.ask_both(on=False)
        _log.info("an unused hash root was dropped", environment=vault.environment)

    async def _maintain(self) -> None:
        async with self._changing:
            await self._follow()
            for watched in self._watched.values():
                await self._look(watched)
            await self._catch_up()  # last, for a key file may be read-only

    async def _look(self, watched: EnvironmentKeys) -> None:
        if await watched.count() >= MOST_SEALINGS:
            await self._renew_in_time(watched)
        if self._reseals:
            await watched.resealing.follow_up()
            await watched.hash_rotation.follow_up()
        await watched.follow(self._load)

    async def _renew_in_time(self, watched: EnvironmentKeys) -> None:
        environment = watched.vault.environment
        try:
            await self._renew(watched)
        except coded(Code.REPLICAS_RUNNING) as error:
            report_interruption(error)  # the limit is a sixteenth of what a key may do
        else:
            _log.info("a data key reached its limit and is rotated", environment=environment)

    async def _retire(
        self, vault: Vault, seals: str, keys: Sequence[str], agreed: Agreement | None = None
    ) -> None:
        """Let data keys go that nothing needs, unless another key than ``seals`` does by now."""
        async with self._changing:
            if vault.keyset.data_keys[-1] != seals:
                return
            done = await drop_keys(self._store, await self._load(), vault.keyset, keys, agreed)
        if done:
            name = vault.environment
            _log.info("unused data keys were dropped", environment=name, count=len(keys))

    async def _renew(self, watched: EnvironmentKeys) -> None:
        await renew_keys(self._store, await self._load(), watched.vault.keyset)
        watched.fresh()
        await watched.note(whole=not self._reseals)
        if self._reseals and watched.resealing.leads:
            await watched.resealing.begin()

    async def _rotate_master(self) -> None:
        """Wrap every keyset with the key that follows.

        Where one is wrapped by another key than the staged or the present one, that is all. A
        staged key that wraps every keyset is of a rotation that has ended: a fresh one follows it.
        """
        if await self._finish_master():
            return
        present = await self._load()
        if await self._wrappers() - {present.id}:
            await self._wrap_all(present)
        else:
            await asyncio.to_thread(self._source.stage)
            await self._finish_master()

    async def _finish_master(self) -> bool:
        """Use the staged master key, if any, from now on; whether a keyset had another one."""
        staged = await asyncio.to_thread(self._source.staged)
        if staged is None:
            return False
        changed = await self._wrap_all(staged)
        await asyncio.to_thread(self._source.switch)
        return changed

    async def _wrap_all(self, master: MasterKey) -> bool:
        """Wrap every keyset with that key; whether one had another."""
        changed = [await rewrap(self._store, master, vault.environment) for vault in self.vaults()]
        return any(changed)

    async def _catch_up(self) -> None:
        """Switch a key file of its own to the staged key that another replica has brought into use.

        Only when every keyset is under it: the rotation may still be under way.
        """
        staged = await asyncio.to_thread(self._source.staged)
        if staged is not None and await self._wrappers() == {staged.id}:
            await asyncio.to_thread(self._source.switch)
            _log.info("the key source has followed a rotation of the master key")

    async def _wrappers(self) -> set[str | None]:
        """The ids of the master keys that wrap the keysets."""
        environments = [vault.environment for vault in self.vaults()]
        return {await wrapper(self._store, environment) for environment in environments} - {None}

    async def _load(self) -> MasterKey:
        """The master key; on a thread, for a key service may have to be asked.

        The staged one where it is in use: wrapped by the one before, a keyset would be open again
        to those from whom a rotation has taken it.
        """
        staged = await asyncio.to_thread(self._source.staged)
        if staged is not None and staged.id in await self._wrappers():
            return staged
        return await asyncio.to_thread(self._source.load)

    async def _follow(self) -> None:
        """Take over the current environments."""
        open_now = {vault.environment: vault for vault in self.vaults()}
        for gone in [ident for ident in self._watched if ident not in open_now]:
            ended = self._watched.pop(gone)
            await ended.close()
        for ident, vault in open_now.items():
            if ident not in self._watched:
                hash_rotation = HashRotation(
                    vault,
                    report_interruption,
                    partial(self._drop_hash_root, vault),
                    self._pauses[1],
                )
                pauses = self._pauses[0], self._pauses[2]
                watched = EnvironmentKeys(vault, self._metrics, self._retire, hash_rotation, pauses)
                self._watched[ident] = watched
                await watched.start(self._reseals)


def vaults_of(opened: Iterable[tuple[Vault, object]]) -> Sequence[Vault]:
    """The vaults alone."""
    return [vault for vault, _ in opened]
