"""Where filter endpoints may be (``acl.allow``), on a whole instance: as a policy is written, as it
is asked, and by command line.
"""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.auth.clients import Grant, NewClient
from proxy.bootstrap.instance import prepare_instance, running
from proxy.cli import main
from proxy.config import load_settings
from tests.support.auth import basic
from tests.support.filterendpoint import FilterEndpoint
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.rawserver import RawServer

PERSON = {"x-client-auth": "Bearer person-1"}
SCHEMA = {"fields": {"id": {"type": "primary_key"}}}


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


class Program:
    """A client of an instance."""

    def __init__(self, caller: aiohttp.ClientSession, base: str) -> None:
        self._caller = caller
        self._base = base
        self._token = ""

    async def enter(self, made: NewClient) -> "Program":
        proof = {"Authorization": basic(made.client.id, made.secret)}
        form = {"grant_type": "client_credentials"}
        async with self._caller.post(
            f"{self._base}/oauth2/token", data=form, headers=proof
        ) as answer:
            self._token = (await answer.json())["access_token"]
        return self

    async def said(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._token}", **PERSON}
        async with self._caller.request(
            method, self._base + path, json=body, headers=headers
        ) as answer:
            return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("environment", "allow", "written", "asked"),
    [
        ("default", "[]", 201, 200),
        ("acme", "[]", 400, None),
        ("acme", "[localhost]", 201, 502),
        ("acme", "[localhost, 127.0.0.1]", 201, 200),
    ],
)
async def test_policies_of_other_environments_ask_only_where_the_operator_allows(
    tmp_path: Path, environment: str, allow: str, written: int, asked: int | None
) -> None:
    (tmp_path / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    settings = load_settings(None, given(tmp_path, ACL__ALLOW=allow))
    await prepare_instance(settings)
    endpoint = FilterEndpoint()
    async with (
        RawServer(endpoint.behave) as server,
        running(settings) as started,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as caller,
    ):
        base, clients = f"http://{started.interface}", started.auth.clients
        root = await Program(caller, base).enter(
            await clients.create("root", "default", Grant(admin=True))
        )
        await root.said("POST", "/api/environments", {"name": "Acme", "environment_id": "acme"})
        chief = await Program(caller, base).enter(
            await clients.create("chief", environment, Grant(admin=True))
        )
        assert (await chief.said("PUT", "/api/schemas/guest", SCHEMA))[0] == 201
        assert (await chief.said("POST", "/api/models/guest", {"id": "a"}))[0] == 201
        body = {
            "schema": "guest",
            "actions": ["read"],
            "external_acl": f"http://localhost:{server.port}/allowed",
        }
        status, told = await chief.said("PUT", "/api/policies/desk", body)
        assert status == written, told
        if asked is None:
            (error,) = told["errors"]
            assert (told["code"], error["source"]) == ("invalid_policy", "/external_acl")
            assert "acl.allow" in error["detail"]
            assert "app.example.com" not in json.dumps(told)
            return
        desk = await clients.create("desk", environment, Grant(policies=("desk",)))
        status, told = await (await Program(caller, base).enter(desk)).said(
            "POST", "/api/models/guest/find", {}
        )
        assert status == asked, told
        assert len(server.requests) == (1 if asked == 200 else 0)
        if asked == 502:
            assert told["code"] == "filter_endpoint_wrong"
            assert "acl.allow" in told["detail"]


async def test_what_was_allowed_once_is_not_asked_any_more_and_named_as_a_fault(
    tmp_path: Path,
) -> None:
    (tmp_path / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    body = {
        "schema": "guest",
        "actions": ["read"],
        "external_acl": "https://app.example.com/allowed",
    }
    before = load_settings(None, given(tmp_path, ACL__ALLOW="[app.example.com]"))
    await prepare_instance(before)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as caller:
        async with running(before) as started:
            base, clients = f"http://{started.interface}", started.auth.clients
            root = await Program(caller, base).enter(
                await clients.create("root", "default", Grant(admin=True))
            )
            await root.said("POST", "/api/environments", {"name": "Acme", "environment_id": "acme"})
            made = await clients.create("chief", "acme", Grant(admin=True))
            bound = await clients.create("desk", "acme", Grant(policies=("desk",)))
            chief = await Program(caller, base).enter(made)
            await chief.said("PUT", "/api/schemas/guest", SCHEMA)
            status, told = await chief.said("PUT", "/api/policies/desk", body)
            assert (status, "faults" in told) == (201, False), told
            clerk = await Program(caller, base).enter(await clients.create("clerk", "acme"))
            assert (await clerk.said("POST", "/api/models/guest", {"id": "a"}))[0] == 201
        async with running(load_settings(None, given(tmp_path))) as started:
            chief = await Program(caller, f"http://{started.interface}").enter(made)
            _, told = await chief.said("GET", "/api/policies/desk")
            assert [fault["source"] for fault in told["faults"]] == ["/external_acl"]
            desk = await Program(caller, f"http://{started.interface}").enter(bound)
            status, told = await desk.said("POST", "/api/models/guest/find", {})
            assert (status, told["code"]) == (502, "filter_endpoint_wrong")


def test_the_command_line_holds_other_environments_to_it_as_well(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--json"]) == 0
    assert main(["environment", "create", "--id", "acme", "Acme"]) == 0
    (tmp_path / "guest.yaml").write_text("name: guest\nfields:\n  id: {type: primary_key}\n")
    (tmp_path / "desk.yaml").write_text(
        "name: desk\nschema: guest\nactions: [read]\nexternal_acl: "
        "https://app.example.com/allowed\n"
    )
    for environment, allow, status in (
        ("default", "[]", 0),
        ("acme", "[]", 1),
        ("acme", "[app.example.com]", 0),
    ):
        monkeypatch.setenv("DOMICILE__ACL__ALLOW", allow)
        assert main(["schema", "apply", "--environment", environment, "guest.yaml"]) == 0
        capsys.readouterr()
        assert main(["policy", "apply", "--environment", environment, "desk.yaml"]) == status
