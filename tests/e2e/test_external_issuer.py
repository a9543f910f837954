"""A whole instance that takes tokens of somebody else's issuer: registered by command line, called
over HTTP, keys rotated there.
"""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.auth.clients import Grant
from proxy.bootstrap.instance import prepare_instance, running
from proxy.cli import main
from proxy.clock import system_clock
from proxy.config import load_settings
from tests.support.auth import basic
from tests.support.issuer import ISSUER, claims, document, made, public, token
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.rawhttp import Wire
from tests.support.rawserver import RawServer

KEY, NEXT = made("RS256"), made("ES256")


class There:
    """What the issuer publishes at the moment."""

    body = document(public(KEY, kid="one"))

    async def behave(self, wire: Wire, server: RawServer) -> None:
        while True:
            await server.read(wire)
            await wire.send(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(self.body), self.body)
            )


def given(folder: Path, **more: str) -> dict[str, str]:
    listen = {f"LISTEN__{name}": "127.0.0.1:0" for name in ("PROXY", "VAULT", "ADMIN")}
    usual = {
        "COUNTRY": "se",
        "DATA": str(folder / "data"),
        "RULES": str(folder / "rules.yaml"),
        **listen,
        **more,
    }
    return {f"DOMICILE__{name}": text for name, text in usual.items()}


def shown(private: Any, **more: Any) -> str:
    algorithm = "ES256" if private is NEXT else "RS256"
    kid = "two" if private is NEXT else "one"
    return token(
        private, claims(system_clock(), **{"aud": "api://vault", **more}), algorithm, kid=kid
    )


async def test_tokens_of_an_external_issuer_open_what_is_registered_here(
    tmp_path, monkeypatch, capsys
) -> None:
    (tmp_path / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    there = There()
    async with (
        RawServer(there.behave) as server,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as caller,
    ):
        how = {
            "AUTH__ISSUER": f"jwks:{server.url}/keys",
            "AUTH__ISSUER_NAME": ISSUER,
            "AUTH__ISSUER_AUDIENCES": "[api://vault]",
        }
        settings = load_settings(None, given(tmp_path, **how))
        await prepare_instance(settings)
        async with running(settings) as started:
            await started.auth.clients.create(
                "crm", "default", Grant(admin=True), external="crm-there"
            )

            async def status(text: str) -> int:
                headers = {"Authorization": f"Bearer {text}"}
                async with caller.get(
                    f"http://{started.interface}/api/clients", headers=headers
                ) as answer:
                    content = await answer.json()
                    if answer.status == 200:
                        assert [item["external_id"] for item in content["data"]] == ["crm-there"]
                    return answer.status

            assert await status(shown(KEY)) == 200
            for unfit in (
                shown(KEY, client_id="other"),
                shown(KEY, aud="x"),
                shown(KEY, exp=1),
                shown(made("RS256", which=1)),
                "opaque",
            ):
                assert await status(unfit) == 401
            await server.__aexit__()
            # the keys are believed for a minute
            assert await status(shown(KEY, jti="again")) == 200


@pytest.mark.parametrize("claim", ["none", "scope"])
async def test_where_no_token_names_its_environment_nobody_takes_a_client_of_another_one(
    tmp_path, claim
) -> None:
    """An administrator of another environment neither takes nor finds out ids; one of ``default``
    registers each of them once.
    """
    (tmp_path / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    settings = load_settings(None, given(tmp_path, AUTH__ENVIRONMENT_CLAIM=claim))
    await prepare_instance(settings)
    async with running(settings) as started, aiohttp.ClientSession() as caller:
        base = f"http://{started.interface}"

        async def said(token: str, path: str, body: Any) -> tuple[int, Any]:
            headers = {"Authorization": f"Bearer {token}"}
            async with caller.post(base + path, json=body, headers=headers) as answer:
                return answer.status, await answer.json()

        async def admin(environment: str) -> str:
            client, secret = await started.auth.clients.create(
                "chief", environment, Grant(admin=True)
            )
            form = {"grant_type": "client_credentials"}
            proof = {"Authorization": basic(client.id, secret)}
            async with caller.post(f"{base}/oauth2/token", data=form, headers=proof) as answer:
                token: str = (await answer.json())["access_token"]
                return token

        root = await admin("default")
        assert (await said(root, "/api/environments", {"name": "Acme", "environment_id": "acme"}))[
            0
        ] == 201
        other = await admin("acme")
        body = {"name": "crm", "external_id": "crm-there"}
        ours, theirs = {**body, "environment_id": "default"}, {**body, "environment_id": "acme"}
        assert (await said(root, "/api/clients", ours))[0] == 201
        told = [
            await said(other, "/api/clients", {**theirs, "external_id": name})
            for name in ("crm-there", "free")
        ]
        if claim == "scope":
            assert [status for status, _ in told] == [201, 201]
            return
        assert told[0] == told[1]
        assert (told[0][0], told[0][1]["code"]) == (403, "forbidden")
        assert "auth.environment_claim" in told[0][1]["detail"]
        status, refusal = await said(root, "/api/clients", theirs)
        assert (status, refusal["code"], refusal["errors"][0]["source"]) == (
            409,
            "conflict",
            "/external_id",
        )
        assert (await said(root, "/api/clients", {**theirs, "external_id": "free"}))[0] == 201


@pytest.mark.parametrize("how", ["jwks", "introspection"])
async def test_an_issuer_that_is_not_there_opens_nothing(tmp_path, how) -> None:
    (tmp_path / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    more = {"AUTH__ISSUER": f"{how}:http://127.0.0.1:9/x", "AUTH__ISSUER_NAME": ISSUER}
    async with (
        running(load_settings(None, given(tmp_path, **more))) as started,
        aiohttp.ClientSession() as caller,
    ):
        headers = {"Authorization": f"Bearer {shown(KEY)}"}
        async with caller.get(
            f"http://{started.interface}/api/functions", headers=headers
        ) as answer:
            told = await answer.json()
        assert (answer.status, told["code"], answer.headers["Retry-After"]) == (
            503,
            "issuer_unreachable",
            "1",
        )


def test_a_client_of_the_issuer_is_registered_by_command_line_and_gets_no_secret(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--json"]) == 0
    capsys.readouterr()
    assert (
        main(
            [
                "client", "create", "--environment", "default", "--external", "crm-there", "crm",
                "--json",
            ]
        )
        == 0
    )  # fmt: skip
    told = json.loads(capsys.readouterr().out)
    assert told.keys() == {"environment_id", "client_id", "external_id"}
    assert main(["client", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["clients"]
    assert [item.get("external_id") for item in listed] == [None, "crm-there"]
    assert (
        main(
            [
                "client", "create", "--environment", "default", "--external", "crm-there", "again",
                "--json",
            ]
        )
        == 1
    )  # fmt: skip
    assert json.loads(capsys.readouterr().out)["code"] == "conflict"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"AUTH__ISSUER": "jwks:https://a.example/"}, "auth.issuer_name"),
        ({"AUTH__ISSUER": "introspection:https://a.example/"}, "auth.introspection_optional_claims"),
        ({"AUTH__INTROSPECTION_OPTIONAL_CLAIMS": "[aud]"}, "introspection:"),
        ({"AUTH__INTROSPECTION_OPTIONAL_CLAIMS": "[exp]"}, "auth.introspection_optional_claims: "),
        ({"AUTH__ISSUER": "https://a.example/"}, "auth.issuer: "),
        ({"AUTH__ISSUER": "jwks:http://a.example/"}, "this machine alone"),
        ({"AUTH__ISSUER": "jwks:https://u:p@a.example/"}, "auth.issuer: "),
        ({"AUTH__CLIENT_CLAIM": "a b"}, "auth.client_claim: "),
        ({"AUTH__INTROSPECTION_CREDENTIALS": "id:secret"}, "auth.introspection_credentials: "),
    ],
)  # fmt: skip
def test_settings_of_an_issuer_that_do_not_fit_are_told(tmp_path, how, told) -> None:
    from proxy.errors import VaultError

    with pytest.raises(VaultError) as caught:
        load_settings(None, given(tmp_path, **how))
    assert told in caught.value.details[0].text
    assert "id:secret" not in caught.value.details[0].text
