"""From ``domicile init`` to a request with a token, as an operator and a program of others go
through it.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client

from proxy.auth.clients import NewClient
from proxy.bootstrap.offline import stopped_clients
from proxy.config import load_settings
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.people import rules


@pytest.fixture
async def instance(tmp_path: Path) -> AsyncIterator[Instance]:
    """An installation that nothing was made of yet."""
    made = Instance(tmp_path)
    made.rules.mkdir()
    (made.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    yield made
    await made.kill()


def proof(made: NewClient) -> dict[str, str]:
    return {"client_id": made.client.id, "client_secret": made.secret}


def client_of(instance: Instance, made: dict[str, str]) -> AsyncOAuth2Client:
    return AsyncOAuth2Client(
        made["client_id"], made["client_secret"], token_endpoint=instance.vault + "/oauth2/token",
        grant_type="client_credentials", trust_env=False, timeout=PATIENCE,
    )  # fmt: skip


async def test_the_way_of_an_operator_from_nothing_to_a_client_that_ends(
    instance: Instance,
) -> None:
    first = await instance.command("init")
    async with stopped_clients(load_settings(None, instance.settings())) as clients:
        shop = proof(await clients.create("shop", "default"))

    await instance.start()
    async with client_of(instance, first) as chief, client_of(instance, shop) as seller:
        here = instance.vault
        for client in (chief, seller):
            token = await client.fetch_token(audience=here, scope=first["environment_id"])
            assert (token["expires_in"], token["scope"]) == (300, "default")
        assert (await seller.get(here + "/api/clients")).status_code == 403
        listed = (await chief.get(here + "/api/clients")).json()["data"]
        assert [client["name"] for client in listed] == ["first administrator", "shop"]

        made = await chief.post(
            here + "/api/clients", json={"name": "till", "environment_id": "default"}
        )
        async with client_of(instance, made.json()) as till:
            await till.fetch_token()
            # known, and no administrator
            assert (await till.get(here + "/api/clients")).status_code == 403
            assert (
                await chief.delete(f"{here}/api/clients/{made.json()['client_id']}")
            ).status_code == 204
            assert (await till.get(here + "/api/clients")).status_code == 401

        assert await instance.stop() == 0
        async with stopped_clients(load_settings(None, instance.settings())) as clients:
            await clients.disable(shop["client_id"])
            renewed = proof(await clients.renew(first["client_id"]))
        await instance.start()
        for client in (
            chief,
            seller,
        ):  # what they have was issued before: the one's secret is another, the other has ended
            assert (await client.get(instance.vault + "/api/clients")).status_code == 401
            with pytest.raises(OAuthError):
                await client.fetch_token(instance.vault + "/oauth2/token")
        async with client_of(instance, renewed) as chief_again:
            await chief_again.fetch_token()
            answer = await chief_again.get(instance.vault + "/api/clients")
            assert [client["disabled"] for client in answer.json()["data"]] == [False, True]
    log = bytes(instance.log).decode()
    assert not any(made["client_secret"] in log for made in (first, shop, renewed))


async def test_a_token_outlives_a_restart_and_no_secret_lies_in_the_data(
    instance: Instance,
) -> None:
    instance.environment["DOMICILE__AUTH__AUDIENCES"] = "[https://se-vault.example.com]"
    instance.environment["DOMICILE__AUTH__TOKEN_LIFETIME"] = "600"
    first = await instance.command("init")
    assert first["token_url"] == "https://se-vault.example.com/oauth2/token"
    await instance.start()
    async with client_of(instance, first) as chief:
        token = await chief.fetch_token(audience="https://se-vault.example.com")
        assert token["expires_in"] == 600
        with pytest.raises(OAuthError) as caught:
            await chief.fetch_token(audience=instance.vault)
        assert caught.value.error == "invalid_target"
        chief.token = token
        await instance.kill()
        await instance.start()
        assert (await chief.get(instance.vault + "/api/clients")).status_code == 200
    files = {path: path.read_bytes() for path in instance.data.rglob("*") if path.is_file()}
    data = b"".join(files.values())
    for text in (first["client_secret"], token["access_token"], "argon2", "first administrator"):
        assert text.encode() not in data
    # The audit log says who did something, by the client's id; nothing else tells which clients
    # there are.
    known = [path for path, content in files.items() if first["client_id"].encode() in content]
    assert {path.parent.name for path in known} == {"audit"}


async def test_without_a_client_the_instance_serves_and_says_what_lacks(instance: Instance) -> None:
    await instance.start()
    (line,) = [
        line for line in bytes(instance.log).decode().splitlines() if "no client can use" in line
    ]
    assert "domicile init" in line
    async with AsyncOAuth2Client("nobody", "x", trust_env=False, timeout=PATIENCE) as nobody:
        with pytest.raises(OAuthError) as caught:
            await nobody.fetch_token(
                instance.vault + "/oauth2/token", grant_type="client_credentials"
            )
    assert caught.value.error == "invalid_client"


async def test_settings_that_do_not_fit_are_told_before_anything_is_made(
    instance: Instance,
) -> None:
    instance.environment |= {
        "DOMICILE__AUTH__AUDIENCES": "[vault.example.com]",
        "DOMICILE__AUTH__TOKEN_LIFETIME": "5m",
    }
    fault = await instance.command("init", status=1)
    assert fault["code"] == "bad_settings"
    told = " ".join(detail["text"] for detail in fault["details"])
    assert "auth.audiences: item 1 is not an address" in told
    assert "auth.token_lifetime: " in told
    assert not instance.data.exists()
