import asyncio
import os
from functools import partial
from pathlib import Path

import pytest

from proxy.audit.log import AuditLog
from proxy.auth.access_tokens import SigningKeys
from proxy.bootstrap import keys as composed
from proxy.bootstrap.audit import AuditKeys
from proxy.bootstrap.keys import InstanceKeys, Places, vaults_of
from proxy.crypto.key_sources import open_source
from proxy.errors import Code, VaultError
from proxy.model.record import KeyKind
from proxy.storage.notes import Agreement
from proxy.telemetry.metrics import Metrics
from proxy.vault.environments import has_keyset, keyset_note, load_keyset, make_keyset
from proxy.vault.maintenance import key_rotation, rewrap, wrapper
from proxy.vault.vault import Vault, VaultOptions, new_vault
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore
from tests.support.patience import PATIENCE, until


def _no_log() -> AuditLog:
    """No test here rotates the key of a log."""
    raise NotImplementedError


class Shop:
    """Keys of two environments, over a key file."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        self.source = open_source(f"file://{folder}/keys.json")
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.vaults: list[Vault] = []

    async def open(
        self, pauses: tuple[float, float, float] = (2.0, 15.0, 90.0), *, reseals: bool = True
    ) -> InstanceKeys:
        """What a process makes of what is stored."""
        if not self.source.exists():
            self.source.create()
        self.vaults = []
        for environment in ("default", "acme"):
            keyset = await make_keyset(self.store, self.source.load(), environment)
            options = VaultOptions(environment, "SE", 1000)
            self.vaults.append(new_vault(keyset, self.store, self.clock, lambda *_: None, options))
        signing = SigningKeys(self.store, self.vaults[0].keyset.aead(), "default", self.clock)
        await signing.load()
        audit = await AuditKeys(self.store, self.vaults[0].keyset).load()
        return InstanceKeys(
            Places(self.store, self.source, signing, audit, _no_log),
            lambda: self.vaults,
            self.metrics,
            pauses=pauses,
            reseals=reseals,
        )

    async def wrappers(self) -> set[str]:
        keys = await self.open()
        return {one.wrapped_by for one in (await keys.listed()).environments}


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


async def test_a_master_key_is_replaced_and_the_one_before_still_opens(shop):
    async with (await shop.open()).running() as keys:
        before = (await keys.listed()).master
        await keys.rotate(KeyKind.MASTER)
        told = await keys.listed()
        assert told.master != before
        assert {one.wrapped_by for one in told.environments} == {told.master}
    present = shop.source.load()
    assert (present.id, set(present.others)) == (told.master, {before})


@pytest.mark.parametrize("at", ["stage", "first keyset", "second keyset", "switch"])
async def test_interrupted_anywhere_the_next_process_opens_everything_and_brings_it_to_its_end(
    shop, monkeypatch, at
):
    keys = await shop.open()
    await keys.start()
    before = (await keys.listed()).master
    done = 0

    async def rewrap(*arguments):
        nonlocal done
        if at == ("first keyset", "second keyset")[done]:
            raise VaultError(Code.VAULT_DOWN, "The power failed.")
        done += 1
        return await real(*arguments)

    def fails() -> None:
        raise VaultError(Code.NOT_WRITABLE, "The power failed.")

    real = key_rotation.rewrap
    if at in ("stage", "switch"):
        monkeypatch.setattr(shop.source, at, fails)
    else:
        monkeypatch.setattr(composed, "rewrap", rewrap)
    with pytest.raises(VaultError, match="power"):
        await keys.rotate(KeyKind.MASTER)
    monkeypatch.undo()
    for vault in shop.vaults:
        assert (await load_keyset(shop.store, shop.source.load(), vault.environment)).data_keys
    async with (await shop.open()).running() as again:
        told = await again.listed()
    assert (told.master == before) == (at == "stage")
    assert {one.wrapped_by for one in told.environments} == {told.master}
    assert shop.source.staged() is None


async def test_what_cannot_be_brought_to_its_end_at_the_start_hinders_nobody(shop, monkeypatch):
    await shop.open()
    shop.source.stage()

    def fails() -> None:
        raise VaultError(Code.NOT_WRITABLE, "The disk is read-only.")

    monkeypatch.setattr(shop.source, "switch", fails)
    async with (await shop.open()).running() as keys:
        assert len((await keys.listed()).environments) == 2


async def test_a_key_in_a_variable_is_replaced_in_two_steps(shop, monkeypatch):
    import base64

    first, second = (base64.b64encode(os.urandom(32)).decode() for _ in range(2))
    monkeypatch.setenv("MASTER", first)
    shop.source = open_source("env:MASTER")
    async with (await shop.open()).running() as keys:
        with pytest.raises(VaultError, match="put another one before"):
            await keys.rotate(KeyKind.MASTER)
    before = await shop.wrappers()
    monkeypatch.setenv("MASTER", f"{second} {first}")
    async with (await shop.open()).running() as keys:
        await keys.rotate(KeyKind.MASTER)
    monkeypatch.setenv("MASTER", second)
    assert await shop.wrappers() == {shop.source.load().id} != before


async def test_signing_keys_and_data_keys_are_replaced_one_by_one(shop):
    async with (await shop.open()).running() as keys:
        before = [one.keys[-1] for one in (await keys.listed()).environments]
        await keys.rotate(KeyKind.SIGNING)
        await keys.rotate(KeyKind.DATA, "acme")
        told = await keys.listed()
        assert len(told.signing) == 2
        after = [one.keys[-1] for one in told.environments]  # one before may be dropped by now
        assert (after[0] == before[0], after[1] == before[1]) == (True, False)
        with pytest.raises(VaultError) as caught:
            await keys.rotate(KeyKind.DATA, "nowhere")
        assert caught.value.code is Code.NOT_FOUND


async def test_environments_come_and_go(shop):
    async with (await shop.open()).running() as keys:
        gone = shop.vaults.pop()
        await shop.store.drop_notes(f":{gone.environment}")
        assert [one.environment for one in (await keys.listed()).environments] == ["default"]
        await keys.rotate(KeyKind.MASTER)
        assert not await has_keyset(shop.store, gone.environment)


def test_vaults_alone():
    assert vaults_of([]) == []


async def test_a_data_key_that_nothing_needs_is_dropped_and_the_next_process_has_it_no_more(shop):
    async with (await shop.open()).running() as keys:
        before = (await keys.listed()).environments[0].keys
        await keys.rotate(KeyKind.DATA)
        watched = keys._watched["default"]
        async with asyncio.timeout(PATIENCE):
            await watched.resealing.settled()
        told = (await keys.listed()).environments[0]
        assert (len(told.keys), told.reseal, told.used) == (1, "done", {})
        assert told.keys[0] not in before
        await keys.rotate(KeyKind.DATA)
        await watched.resealing.settled()
    again = await load_keyset(shop.store, shop.source.load(), "default")
    assert len(again.data_keys) == 1
    assert again.data_keys != told.keys


async def test_where_another_key_seals_meanwhile_none_is_dropped(shop):
    keys = await shop.open()
    (first,) = shop.vaults[0].keyset.data_keys
    await key_rotation.renew_keys(shop.store, shop.source.load(), shop.vaults[0].keyset)
    await keys._retire(shop.vaults[0], "another", [first])
    assert first in shop.vaults[0].keyset.data_keys
    await keys._retire(shop.vaults[0], shop.vaults[0].keyset.data_keys[-1], [first])
    assert first not in shop.vaults[0].keyset.data_keys


async def test_what_keeps_a_key_is_looked_at_again_with_the_upkeep(shop, monkeypatch):
    async with (await shop.open()).running() as keys:
        asked: list[int] = []
        for watched in keys._watched.values():
            monkeypatch.setattr(watched.resealing, "follow_up", partial(_note, asked))
        await keys._maintain()
        assert len(asked) == 2


async def _note(asked: list[int]) -> None:
    asked.append(1)


class Alone:
    """The other owners of a store of replicas: none is there."""

    slot = 0

    async def alone(self) -> int:
        return 1

    async def disagreeing(self, _agreement: Agreement) -> list[str]:
        return []

    def leads(self) -> bool:
        return False


async def test_a_hash_root_that_one_replica_alone_adds_stays_known_whatever_it_reads_meanwhile(
    shop,
):
    shop.store.replicas = Alone()
    async with (await shop.open((1.0, 0.0, 90.0))).running() as keys:
        vault = shop.vaults[0]
        before = await vault.store.note("keyset:default")
        rotation = asyncio.create_task(keys.rotate(KeyKind.HASH))
        await until(lambda: vault.keyset.live_hash_roots[0].late)
        await keys.follow("default")  # of a note that was written shortly before
        known = vault.keyset.live_hash_roots[0]
        asked = vault.both_roots._write == vault.both_roots._commit
        assert (known.late, asked, await vault.store.note("keyset:default")) == (True, True, before)
        await rotation
        assert vault.both_roots._write == vault.both_roots._commit
        assert vault.keyset.live_hash_roots[0].other == known.own


class Beside:
    """Another owner of the store is there."""

    slot = 1

    async def alone(self) -> int | None:
        return None

    def leads(self) -> bool:
        return False


async def _ended_elsewhere(shop: Shop, keys: InstanceKeys) -> str:
    """Have a replica with a copy of the key file, whose key is staged here, rotate the master key;
    the id of that key.
    """
    staged = shop.source.stage()
    for vault in shop.vaults:
        await rewrap(shop.store, staged, vault.environment)
    assert shop.source.load().id != staged.id == (await keys.listed()).master
    return staged.id


async def test_a_rotation_after_that_of_another_replica_gives_a_fresh_master_key(shop):
    async with (await shop.open()).running() as keys:
        first = (await keys.listed()).master
        elsewhere = await _ended_elsewhere(shop, keys)
        await keys.rotate(KeyKind.MASTER)
        listed = await keys.listed()
    assert listed.master not in (first, elsewhere)
    assert {one.wrapped_by for one in listed.environments} == {listed.master}
    assert set(shop.source.load().others) == {first, elsewhere}
    assert shop.source.staged() is None


@pytest.mark.parametrize("kind", [KeyKind.DATA, KeyKind.HASH, KeyKind.TOKEN])
async def test_no_keyset_returns_to_the_master_key_before_that_of_another_replica(shop, kind):
    async with (await shop.open((0.0, 0.0, 90.0))).running() as keys:
        elsewhere = await _ended_elsewhere(shop, keys)
        await keys.rotate(kind)
        wrapped = {await wrapper(shop.store, vault.environment) for vault in shop.vaults}
    assert wrapped == {elsewhere}


async def test_a_key_file_follows_the_rotation_of_another_replica_when_that_has_ended(shop):
    shop.store.replicas = Beside()
    keys = await shop.open()
    staged = shop.source.stage()
    for vault in shop.vaults:
        await keys._catch_up()
        assert shop.source.staged() is not None, "a keyset is under the key before"
        await shop.store.put_note(
            keyset_note(vault.environment),
            vault.keyset.wrap(staged),
            await shop.store.note(keyset_note(vault.environment)),
        )
    await keys.start()
    assert (shop.source.load().id, shop.source.staged()) == (staged.id, None)
    await keys.close()


async def test_the_maintenance_has_a_key_file_follow(shop):
    async with (await shop.open()).running() as keys:
        elsewhere = await _ended_elsewhere(shop, keys)
        await keys._maintain()
        assert (shop.source.load().id, shop.source.staged()) == (elsewhere, None)


@pytest.mark.parametrize("kind", [KeyKind.DATA, KeyKind.HASH, KeyKind.TOKEN, KeyKind.MASTER])
async def test_a_stopped_vault_beside_running_instances_rotates_nothing_and_says_whom_to_ask(
    shop, kind
):
    keys = await shop.open(reseals=False)
    before = await shop.store.read_notes()
    shop.store.replicas = Beside()
    with pytest.raises(VaultError) as caught:
        await keys.rotate(kind)
    assert (caught.value.code, "--url" in caught.value.message) == (Code.REPLICAS_RUNNING, True)
    assert await shop.store.read_notes() == before


def _spoil(file: Path, fault: str, good: bytes) -> None:
    """Leave what a bad night leaves of a key file."""
    file.unlink(missing_ok=True)
    if fault != "lost":
        file.touch(mode=0o600)
        file.write_bytes({"": good, "damaged": good[:20]}.get(fault, b""))
    if fault == "of another vault":
        file.unlink()
        open_source(f"file://{file}").create()


@pytest.mark.parametrize("fault", ["lost", "damaged", "of another vault"])
async def test_a_key_file_that_would_not_open_the_vault_at_the_next_start_is_told(
    shop, fault, tmp_path
):
    async with (await shop.open()).running() as keys:
        file = tmp_path / "keys.json"
        good = file.read_bytes()
        upkeep = asyncio.create_task(keys.run_maintenance(0.001, lambda _: None))
        for now in (fault, ""):
            _spoil(file, now, good)
            async with asyncio.timeout(PATIENCE):
                while (await keys.state.check() is None) is bool(now):  # noqa: ASYNC110  # nobody tells
                    await asyncio.sleep(0.001)
            text = shop.metrics.render().decode()
            assert f'domicile_reload_failed{{what="keys"}} {float(bool(now))}' in text
        upkeep.cancel()
