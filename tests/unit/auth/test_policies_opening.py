import pytest

from proxy.auth.policies import AuthOptions, open_service
from proxy.clock import ManualClock
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.memory import MemoryStore
from tests.support.auth import office


async def test_clients_and_keys_are_there_after_a_restart():
    async with office() as here:
        made = await here.client()
        async with office(here.store, here.keyset) as again:
            assert again.service.clients.find(made.client.id) == made.client
            assert again.service.jwks() == here.service.jwks()
            assert await again.token(made)


async def test_another_keyset_opens_nothing():
    async with office() as here:
        await here.client()
        with pytest.raises(VaultError) as caught:
            await open_service(
                here.store,
                {"default": Keyset.create("default")},
                ManualClock(),
                lambda _: None,
                AuthOptions(),
            )
        assert caught.value.code is Code.CANNOT_OPEN


async def test_opening_a_new_store_makes_a_signing_key_and_no_client():
    service = await open_service(
        MemoryStore(),
        {"default": Keyset.create("default")},
        ManualClock(),
        lambda _: None,
        AuthOptions(60),
    )
    assert len(service.clients) == 0
    assert len(service.jwks()["keys"]) == 1
    assert service.tokens.lifetime == 60
    service.close()
