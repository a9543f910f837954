"""The token service as other people's software sees it: an OAuth client and a JOSE library that
know nothing of ours.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from joserfc import jwk, jwt

from proxy.api.access import BearerAccess
from proxy.auth.clients import NewClient
from tests.support.api import services, serving
from tests.support.auth import HERE, Office, office
from tests.support.patience import PATIENCE


@dataclass
class Scene:
    """A token service that listens, and a client of it."""

    office: Office
    address: str
    made: NewClient

    @property
    def token_url(self) -> str:
        return self.address + "/oauth2/token"

    def client(self, **more: Any) -> AsyncOAuth2Client:
        return AsyncOAuth2Client(
            self.made.client.id, self.made.secret, trust_env=False, timeout=PATIENCE, **more
        )


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with office() as here:
        made = await here.client(admin=True)
        async with serving(
            services(auth=here.service, access=BearerAccess(here.service.tokens))
        ) as client:
            yield Scene(here, client.address, made)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_client_of_others_gets_a_token_and_uses_it(scene: Scene, method: str) -> None:
    async with scene.client(token_endpoint_auth_method=method) as client:
        token = await client.fetch_token(
            scene.token_url, grant_type="client_credentials", scope="default", audience=HERE
        )
        assert (token["expires_in"], token["scope"]) == (300, "default")
        answer = await client.get(scene.address + "/api/clients")
        assert [item["client_id"] for item in answer.json()["data"]] == [scene.made.client.id]


async def test_it_understands_a_refusal(scene: Scene) -> None:
    async with scene.client() as client:
        with pytest.raises(OAuthError) as caught:
            await client.fetch_token(
                scene.token_url, grant_type="client_credentials", scope="other"
            )
    assert caught.value.error == "invalid_scope"


async def test_it_asks_for_another_token_by_itself_when_one_has_ended(scene: Scene) -> None:
    async with scene.client(
        token_endpoint=scene.token_url, grant_type="client_credentials"
    ) as client:
        first = await client.fetch_token()
        client.token["expires_at"] = 1  # what its clock would say after five minutes
        assert (await client.get(scene.address + "/api/clients")).status_code == 200
        assert client.token["access_token"] != first["access_token"]


async def test_it_introspects(scene: Scene) -> None:
    async with scene.client() as client:
        token = await client.fetch_token(scene.token_url, grant_type="client_credentials")
        answer = await client.introspect_token(
            scene.address + "/oauth2/introspect", token["access_token"]
        )
        assert answer.json()["active"] is True


async def test_the_metadata_is_valid_by_rfc_8414_and_names_what_is_there(scene: Scene) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
        told = (await client.get(scene.address + "/.well-known/oauth-authorization-server")).json()
        AuthorizationServerMetadata(told).validate()
        for name in ("token_endpoint", "introspection_endpoint", "jwks_uri"):
            path = told[name].removeprefix(told["issuer"])
            assert (await client.options(scene.address + path)).status_code == 405


async def test_others_verify_tokens_with_the_published_keys_across_a_rotation(scene: Scene) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
        tokens = [await scene.office.token(scene.made)]
        await scene.office.service.keys.rotate()
        tokens.append(await scene.office.token(scene.made))
        published = (await client.get(scene.address + "/oauth2/jwks")).json()
    keys = jwk.KeySet.import_key_set(published)
    found = [jwt.decode(token, keys, algorithms=["ES256"]) for token in tokens]
    assert {token.claims["client_id"] for token in found} == {scene.made.client.id}
    assert len({token.header["kid"] for token in found}) == 2


async def test_the_signing_key_is_replaced_while_requests_go_on_and_none_fails(
    scene: Scene,
) -> None:
    statuses: list[int] = []
    done = asyncio.Event()

    async def use() -> None:
        async with scene.client() as client:
            while not done.is_set():
                await client.fetch_token(scene.token_url, grant_type="client_credentials")
                for _ in range(3):
                    statuses.append((await client.get(scene.address + "/api/clients")).status_code)

    users = [asyncio.create_task(use()) for _ in range(3)]
    for number in range(5):
        while len(statuses) < 6 * (number + 1) and not any(user.done() for user in users):  # noqa: ASYNC110  # any of them
            await asyncio.sleep(0.005)
        await scene.office.service.keys.rotate()
    done.set()
    await asyncio.gather(*users)
    assert set(statuses) == {200}
    assert len(scene.office.service.keys.by_kid) == 6


async def test_a_client_that_is_deleted_is_out_with_its_next_request(scene: Scene) -> None:
    async with scene.client() as client:
        await client.fetch_token(scene.token_url, grant_type="client_credentials")
        assert (
            await client.delete(f"{scene.address}/api/clients/{scene.made.client.id}")
        ).status_code == 204
        assert (await client.get(scene.address + "/api/clients")).status_code == 401
        with pytest.raises(OAuthError) as caught:
            await client.fetch_token(scene.token_url, grant_type="client_credentials")
        assert caught.value.error == "invalid_client"
