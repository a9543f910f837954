"""Environments of a running instance: what a fault on the way leaves, and what upkeep does with
what has ended.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import RecordDraft
from proxy.vault.environments import Environments
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.schemas import active
from proxy.vault.vault import Vault
from tests.support.api import Interface, interface
from tests.support.patience import PATIENCE

CONTACT = {"fields": {"id": {"type": "primary_key"}, "city": {"type": "string"}}}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path) as made:
        await made.realm.create("acme", "Acme AB")
        await made.declare("contact", CONTACT, "acme")
        yield made


def ids(here: Interface) -> list[str]:
    return [found.id for found in here.realm.listed()]


async def fault_of(work: object) -> VaultError:
    with pytest.raises(VaultError) as caught:
        await work  # type: ignore[misc]  # a coroutine
    return caught.value


@asynccontextmanager
async def at_work(here: Interface) -> AsyncIterator[None]:
    """A request of somebody else in ``acme`` that has not ended."""
    began, end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        with here.realm.spaces["acme"].catalog.using():
            began.set()
            await end.wait()

    task = asyncio.create_task(work())
    await began.wait()
    try:
        yield
    finally:
        end.set()
        await task


async def test_what_cannot_be_opened_is_not_left_behind(here, monkeypatch):
    async def broken(*_: object) -> None:
        raise VaultError(Code.VAULT_DOWN, "The disk is full.")

    monkeypatch.setattr(here.realm, "_opening", broken)
    assert (await fault_of(here.realm.create("other", "Other"))).code is Code.VAULT_DOWN
    assert (ids(here), list(here.realm.spaces)) == (["default", "acme"], ["default", "acme"])
    faults: list[VaultError] = []
    await here.realm.maintain(faults.append)
    assert faults == []


async def test_an_environment_that_could_not_end_is_served_as_before(here, monkeypatch):
    async def broken(*_: object) -> None:
        raise VaultError(Code.VAULT_DOWN, "The disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(Environments, "end", broken)
        assert (await fault_of(here.realm.remove("acme", records=True))).code is Code.VAULT_DOWN
    with monkeypatch.context() as patched:
        patched.setattr(active, "_PATIENCE", 0.01)
        async with at_work(here):
            assert (
                await fault_of(here.realm.remove("acme", records=True))
            ).code is Code.SCHEMA_BUSY
    assert (
        await here.client("POST", "/api/models/contact", "acme", json={"id": "k"})
    ).status == 201


async def test_a_record_that_comes_while_it_ends_keeps_it(here):
    async with at_work(here):
        removing = asyncio.create_task(here.realm.remove("acme", records=False))
        while "acme" in here.realm.spaces:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.001)
        records = here.realm._opened["acme"].catalog.records("contact")
        await store_records(
            records, [RecordDraft("k", {"id": "k"})], "test", no_changes
        )  # by a request that was let in before
    assert (await fault_of(removing)).code is Code.ENVIRONMENT_IN_USE
    assert (await here.client("POST", "/api/models/contact/find", "acme", json={})).json["meta"][
        "total"
    ] == 1


async def test_what_has_ended_is_erased_in_the_background_and_at_once(here):
    faults: list[VaultError] = []
    task = asyncio.create_task(here.realm.run_maintenance(3600, faults.append))
    here.realm._metrics.cell("domicile_records", "acme:contact", "live").value = 1
    await here.realm.remove("acme", records=True)
    async with asyncio.timeout(PATIENCE):
        while here.realm._book.doomed():  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert faults == []
    assert b"acme:contact" not in here.realm._metrics.render()
    with pytest.raises(VaultError, match="not known"):
        await here.store.count("r1_acme")


async def test_a_fault_of_one_environment_does_not_keep_others_from_their_upkeep(here, monkeypatch):
    looked: list[str] = []

    async def maintain(vault: object) -> None:
        looked.append(vault.environment)  # type: ignore[attr-defined]  # a vault
        raise VaultError(Code.VAULT_DOWN, "The disk is full.")

    monkeypatch.setattr(Vault, "maintain", maintain)
    faults: list[VaultError] = []
    await here.realm.maintain(faults.append)
    assert (looked, len(faults)) == (["default", "acme"], 2)
    assert [vault.environment for vault, _ in here.realm.vaults()] == looked
