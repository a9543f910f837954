"""A running instance is looked after from the command line, by ``--url``."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.instance import Instance, running
from tests.support.people import rules


@dataclass
class Admin:
    """A running instance, and commands that name it and an administrator of it."""

    instance: Instance
    client: dict[str, str]

    async def run(self, *words: str, status: int = 0, **variables: str) -> Any:
        credentials = {
            "DOMICILE_CLIENT_ID": self.client["client_id"],
            "DOMICILE_CLIENT_SECRET": self.client["client_secret"],
        }
        url = ("--url", self.instance.vault)
        return await self.instance.command(*words, *url, status=status, **credentials, **variables)


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    async with running(tmp_path, rules("http://127.0.0.1:9")) as instance:
        assert await instance.stop() == 0
        made = await instance.command(
            "client", "create", "--environment", "default", "--admin", "chief"
        )
        await instance.start()
        yield Admin(instance, made)


async def test_clients_are_made_listed_and_ended_while_it_serves(admin: Admin) -> None:
    made = await admin.run(
        "client", "create", "--environment", "default", "--role", "auditor", "crm"
    )
    assert made["token_url"] == f"{admin.instance.vault}/oauth2/token"
    listed = (await admin.run("client", "list"))["clients"]
    assert [(one["name"], one["roles"]) for one in listed] == [("chief", []), ("crm", ["auditor"])]
    other = Admin(admin.instance, made)
    token = (await other.run("token"))["access_token"]
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            f"{admin.instance.vault}/api/audit", headers={"Authorization": f"Bearer {token}"}
        ) as answer,
    ):
        assert answer.status == 200
    ended = await admin.run("client", "disable", made["client_id"])
    assert (ended["client_id"], ended["disabled"]) == (made["client_id"], True)
    assert (await other.run("token", status=1))["code"] == "unauthorized"
    assert (await admin.run("client", "disable", "nobody", status=1))["code"] == "not_found"


async def test_environments_are_made_listed_and_removed_while_it_serves(admin: Admin) -> None:
    made = await admin.run("environment", "create", "--id", "acme", "Acme AB")
    assert (made["environment_id"], made["name"]) == ("acme", "Acme AB")
    listed = (await admin.run("environment", "list"))["environments"]
    assert [one["environment_id"] for one in listed] == ["default", "acme"]
    of_acme = Admin(
        admin.instance,
        await admin.run("client", "create", "--environment", "acme", "--admin", "theirs"),
    )
    only = (await of_acme.run("environment", "list"))["environments"]
    assert [one["environment_id"] for one in only] == ["acme"]
    refused = await of_acme.run("environment", "create", "more", status=1)
    assert refused["code"] == "forbidden"
    assert await admin.run("environment", "delete", "acme") == {"environment_id": "acme"}
    assert len((await admin.run("environment", "list"))["environments"]) == 1


async def test_without_the_address_a_command_says_that_it_is_served(admin: Admin) -> None:
    for words in (("client", "list"), ("environment", "list")):
        refused = await admin.instance.command(*words, status=1)
        assert refused["code"] == "store_busy"
        assert "--url" in refused["message"]


async def test_a_running_instance_is_checked(admin: Admin) -> None:
    where = ("check", "--url", admin.instance.admin)
    report = await admin.instance.command(*where)
    assert report["ok"] is True
    assert report["checks"]["vault"] == "ok"
    (admin.instance.rules / "rules.yaml").write_text("version: 2\n")
    await admin.instance.logged("a fault in the rules")
    report = await admin.instance.command(*where, status=1)
    assert report["stale"] == ["rules"]
    assert report["checks"]["rules"].startswith("stale: ")
    other = await admin.instance.command("check", "--url", admin.instance.vault, status=1)
    assert other["code"] == "bad_settings"
