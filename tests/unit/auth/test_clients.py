import asyncio
from collections.abc import Sequence

import pytest

from proxy.auth.authorization_server import open_clients
from proxy.auth.clients import Clients, Grant
from proxy.auth.secret_checks import SecretChecks
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.notes import NoteWrite
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore

KEYSET = Keyset.create("default")


@pytest.fixture
async def secret_checks():
    made = SecretChecks(threads=1)
    yield made
    made.close()


async def opened(store: MemoryStore, secret_checks: SecretChecks, count: int = 64) -> Clients:
    clients = Clients(store, secret_checks, ManualClock())
    clients.count = count
    await clients.join("default", KEYSET.aead())
    return clients


async def test_an_id_of_the_issuer_is_one_in_all_environments_where_no_token_names_them(
    secret_checks,
):
    for apart, told in ((True, None), (False, "A client of another environment has this id")):
        keysets = {"default": KEYSET, "acme": Keyset.create("acme")}
        clients = await open_clients(
            MemoryStore(), keysets, secret_checks, ManualClock(), apart=apart
        )
        first = await clients.create("crm", "default", external="crm-there")
        with pytest.raises(VaultError) as caught:
            await clients.create("crm", "default", external="crm-there")
        assert caught.value.details[0].text == "Another client of this environment has this id."
        if told is None:
            second = await clients.create("crm", "acme", external="crm-there")
            assert clients.registered("crm-there") == [first.client, second.client]
            continue
        with pytest.raises(VaultError) as caught:
            await clients.create("crm", "acme", external="crm-there")
        assert (caught.value.code, caught.value.details[0].source) == (
            Code.CONFLICT,
            "/external_id",
        )
        assert caught.value.details[0].text.startswith(told)
        assert clients.registered("crm-there") == [first.client]
        await clients.remove(first.client.id)
        assert (
            await clients.create("crm", "acme", external="crm-there")
        ).client.environment == "acme"


def notes(store: MemoryStore) -> bytes:
    return b"".join(store._notes.values())


async def test_a_client_is_there_for_the_next_process(secret_checks):
    store = MemoryStore()
    clients = await opened(store, secret_checks)
    made = await clients.create("shop", "default", Grant(admin=True))
    again = await opened(store, secret_checks)
    assert again.find(made.client.id) == made.client
    assert again.listed() == [made.client]
    assert await secret_checks.matches(made.client.secret, made.secret)
    assert made.client.admin
    assert len(again) == 1


async def test_the_policies_of_a_client_stay_with_it(secret_checks):
    store = MemoryStore()
    clients = await opened(store, secret_checks)
    made = await clients.create("shop", "default", Grant(policies=("b", "a", "b")))
    assert made.client.policies == ("b", "a")
    assert (await clients.renew(made.client.id)).client.policies == ("b", "a")
    assert [clients.under("default", name) for name in ("a", "b", "c")] == [1, 1, 0]
    assert clients.under("other", "a") == 0
    assert (await opened(store, secret_checks)).listed()[0].policies == ("b", "a")


async def test_nothing_of_a_client_lies_in_the_clear(secret_checks):
    store = MemoryStore()
    made = await (await opened(store, secret_checks)).create("shop", "default")
    for text in (made.secret, made.client.id, made.client.secret, "argon2", "shop"):
        assert text.encode() not in notes(store)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 129, "\x00"])
async def test_a_name_must_be_one(secret_checks, name):
    with pytest.raises(VaultError) as caught:
        await (await opened(MemoryStore(), secret_checks)).create(name, "default")
    assert caught.value.code is Code.INVALID_INPUT
    assert [detail.source for detail in caught.value.details] == ["/name"]


async def test_an_unknown_environment_is_told_beside_every_other_fault(secret_checks):
    with pytest.raises(VaultError) as caught:
        await (await opened(MemoryStore(), secret_checks)).create("", "elsewhere")
    assert [detail.source for detail in caught.value.details] == ["/name", "/environment_id"]
    assert "elsewhere" not in str(caught.value.details)


async def test_a_new_secret_ends_the_old_one(secret_checks):
    clients = await opened(MemoryStore(), secret_checks)
    made = await clients.create("shop", "default")
    renewed = await clients.renew(made.client.id)
    stored = clients.find(made.client.id)
    assert stored == renewed.client
    assert renewed.client.version == 2
    assert await secret_checks.matches(renewed.client.secret, renewed.secret)
    assert not await secret_checks.matches(renewed.client.secret, made.secret)


async def test_a_disabled_client_stays_in_the_list_and_gets_no_new_secret(secret_checks):
    store = MemoryStore()
    clients = await opened(store, secret_checks)
    made = await clients.create("shop", "default")
    assert (await clients.disable(made.client.id)).disabled
    with pytest.raises(VaultError) as caught:
        await clients.renew(made.client.id)
    assert caught.value.code is Code.CONFLICT
    assert [client.disabled for client in (await opened(store, secret_checks)).listed()] == [True]


async def test_a_removed_client_is_forgotten(secret_checks):
    store = MemoryStore()
    clients = await opened(store, secret_checks)
    made = await clients.create("shop", "default")
    await clients.remove(made.client.id)
    assert clients.find(made.client.id) is None
    assert (await opened(store, secret_checks)).listed() == []


@pytest.mark.parametrize("verb", ["renew", "disable", "remove"])
async def test_a_client_that_is_not_there_cannot_be_changed(secret_checks, verb):
    clients = await opened(MemoryStore(), secret_checks)
    with pytest.raises(VaultError) as caught:
        await getattr(clients, verb)("nobody")
    assert caught.value.code is Code.NOT_FOUND


async def test_changes_of_two_processes_do_not_undo_each_other(secret_checks):
    store = MemoryStore()
    one, other = (
        await opened(store, secret_checks, count=1),
        await opened(store, secret_checks, count=1),
    )
    first = await one.create("one", "default")
    second = await other.create("other", "default")
    await one.disable(first.client.id)
    again = await opened(store, secret_checks, count=1)
    assert {client.name: client.disabled for client in again.listed()} == {
        "one": True,
        "other": False,
    }
    assert one.find(second.client.id) is not None


async def test_what_another_process_removed_cannot_be_brought_back_by_a_change(secret_checks):
    store = MemoryStore()
    one = await opened(store, secret_checks, count=1)
    made = await one.create("one", "default")
    await (await opened(store, secret_checks, count=1)).remove(made.client.id)
    with pytest.raises(VaultError) as caught:
        await one.disable(made.client.id)
    assert caught.value.code is Code.NOT_FOUND
    assert one.find(made.client.id) is None


async def test_a_store_that_always_was_written_by_others_is_given_up(secret_checks):
    class Contended(MemoryStore):
        async def put_notes(self, writes: Sequence[NoteWrite]) -> None:
            raise VaultError(Code.CONFLICT, "another process")

    clients = await opened(Contended(), secret_checks)
    with pytest.raises(VaultError) as caught:
        await clients.create("shop", "default")
    assert caught.value.code is Code.CONFLICT


async def test_a_change_that_is_not_durable_does_not_count(secret_checks):
    class Full(MemoryStore):
        async def put_notes(self, writes: Sequence[NoteWrite]) -> None:
            raise VaultError(Code.VAULT_DOWN, "the disk is full")

    clients = await opened(Full(), secret_checks)
    with pytest.raises(VaultError):
        await clients.create("shop", "default")
    assert clients.listed() == []


async def test_a_change_that_was_cut_off_after_it_was_durable_counts_with_the_next_one(
    secret_checks,
):

    class Slow(MemoryStore):
        cut = False

        async def put_notes(self, writes: Sequence[NoteWrite]) -> None:
            await super().put_notes(writes)
            if self.cut:
                raise asyncio.CancelledError

    store = Slow()
    clients = await opened(store, secret_checks, count=1)
    made = await clients.create("shop", "default")
    store.cut = True
    with pytest.raises(asyncio.CancelledError):
        await clients.disable(made.client.id)
    store.cut = False
    await clients.create("other", "default")
    assert {client.name: client.disabled for client in clients.listed()} == {
        "shop": True,
        "other": False,
    }


async def test_many_made_at_once_are_all_there(secret_checks):
    store = MemoryStore()
    clients = await opened(store, secret_checks)
    made = await asyncio.gather(*(clients.create(f"c{n}", "default") for n in range(20)))
    assert {client.id for client in (await opened(store, secret_checks)).listed()} == {
        one.client.id for one in made
    }
