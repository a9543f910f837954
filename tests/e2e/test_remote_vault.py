"""``remote.vault``: an instance without a vault uses that of another one, over mutual TLS."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.errors import VaultError
from tests.e2e.test_restart import CALLERS
from tests.e2e.test_workers import Patient
from tests.support.application import Application
from tests.support.certificates import Authority
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.people import ANN, rules
from tests.support.postgres import free_port
from tests.support.scraping import FIELD
from tests.support.serving import serving

SIDECAR = "sidecar.contacts.internal"


@dataclass
class Pair:
    """The instance that has the vault, one that uses it, and the application behind the latter."""

    application: Application
    owner: Instance
    front: Instance
    authority: Authority

    async def ready(self, status: int = 200) -> dict[str, Any]:
        """What the front tells of itself, once it answers so."""
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as caller:
            while True:
                async with caller.get(self.front.admin + "/readyz", headers=FIELD) as answer:
                    if answer.status == status:
                        data: dict[str, Any] = await answer.json()
                        return data
                await asyncio.sleep(0.05)


def side(authority: Authority, name: str) -> dict[str, str]:
    """The settings of one side, whose certificate is for that name."""
    own = authority.issue(name)
    return {
        "DOMICILE__REMOTE__AUTHORITIES": str(authority.certificate),
        "DOMICILE__REMOTE__CERTIFICATE": str(own.certificate),
        "DOMICILE__REMOTE__KEY": str(own.key),
    }


@asynccontextmanager
async def prepared(folder: Path, name: str = SIDECAR) -> AsyncIterator[Pair]:
    """Both, not started; the front shows a certificate for ``name``."""
    application, authority, port = Application(), Authority(folder), free_port()
    async with serving(application.app()) as upstream:
        owner = Instance(folder / "owner", environment={
            "DOMICILE__REMOTE__LISTEN": f"127.0.0.1:{port}",
            "DOMICILE__REMOTE__CLIENTS": f"[{SIDECAR}]",
            **side(authority, "localhost"),
        })  # fmt: skip
        front = Instance(folder / "front", environment={
            "DOMICILE__REMOTE__VAULT": f"localhost:{port}",
            "DOMICILE__FORWARDING__REQUEST_ID": "true",
            **side(authority, name),
        }, listeners=frozenset({"proxy", "admin"}))  # fmt: skip
        for one in (owner, front):
            one.rules.mkdir(parents=True)
            (one.rules / "rules.yaml").write_text(rules(upstream))
        try:
            yield Pair(application, owner, front, authority)
        finally:
            for one in (front, owner):
                await one.kill()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Pair]:
    async with prepared(folder) as pair:
        await pair.owner.start()
        await pair.front.start()
        yield pair


async def visit(at: Instance, ident: int | None = None) -> tuple[int, Any]:
    """Create a person, or read one."""
    async with aiohttp.ClientSession() as caller:
        people = at.proxy + "/people"
        asked = caller.post(people, json=ANN) if ident is None else caller.get(f"{people}/{ident}")
        async with asked as answer:
            return answer.status, await answer.json(content_type=None)


async def test_values_are_in_the_vault_of_the_other_one_and_nothing_is_kept_here(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as pair:
        status, made = await visit(pair.front)
        assert status == 201
        assert {name: made[name] for name in ANN} == ANN
        assert not pair.application.holds(str(ANN["name"]))
        for at in (pair.front, pair.owner):  # whoever asks that vault
            assert await visit(at, made["id"]) == (200, made)
        assert (await pair.ready())["checks"]["owner"] == "ok"
        assert not (pair.front.data / "vault.db").exists()
        assert not (pair.front.data / "keys.json").exists()
        refused = await pair.front.command("init", status=1)
        assert "This instance has no vault" in refused["message"]
        checked = await pair.front.command("check")
        assert checked["ok"], checked
        assert await pair.front.stop() == 0
        assert await pair.owner.stop() == 0
        assert (await pair.owner.command("audit", "verify"))["ok"]
        lines = [json.loads(line) for file in (pair.owner.data / "audit").glob("audit-*") for line in file.read_text().splitlines()]  # fmt: skip
        written = [line for line in lines if line["event"] == "write"]
        assert [bool(line.get("request")) for line in written] == [True], lines


async def test_only_named_certificates_may_use_the_vault(tmp_path: Path) -> None:
    async with prepared(tmp_path, "somebody.else") as pair:
        await pair.owner.start()
        with pytest.raises(VaultError, match="owner of the vault cannot be reached"):
            await pair.front.start()
        await pair.owner.logged("a certificate was shown that is not for a name in remote.clients")
        port = int(pair.owner.environment["DOMICILE__REMOTE__LISTEN"].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x00\x00\x00\x10" + b"x" * 16)  # no TLS
        assert await reader.read() in (b"", *(b"\x15\x03" + bytes([v]) + b"\x00\x02\x02" + bytes([k]) for v in range(5) for k in range(256)))  # fmt: skip
        writer.close()


async def test_another_country_or_other_rules_are_told(tmp_path: Path) -> None:
    async with prepared(tmp_path) as pair:
        await pair.owner.start()
        pair.front.environment["DOMICILE__COUNTRY"] = "no"
        with pytest.raises(VaultError, match="the vault keeps the data of se"):
            await pair.front.start()
        del pair.front.environment["DOMICILE__COUNTRY"]
        file = pair.front.rules / "rules.yaml"
        same = file.read_text()
        file.write_text(same + "\n# another version\n")
        await pair.front.start()
        told = (await pair.ready(503))["checks"]["owner"]
        assert told == "The owner of the vault has other rules: give both the same files."
        assert (await visit(pair.front))[0] == 503
        file.write_text(same)
        await pair.ready()
        assert (await visit(pair.front))[0] == 201


@pytest.mark.slow
async def test_while_the_owner_is_away_writes_are_refused_and_reads_show_tokens(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as pair:
        callers = Patient(pair.front)
        async with asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(callers.work(keep=bool(number % 2)))
            await callers.further(100)
            await pair.owner.kill()
            await asyncio.sleep(6)  # longer than anybody waits for it
            began = asyncio.get_running_loop().time()
            status, data = await visit(pair.front)
            assert (status, data["code"]) == (503, "vault_down")
            status, seen = await visit(pair.front, callers.made[0])
            assert status == 200
            assert seen["name"] != ANN["name"], "a token"
            assert seen["vip"] == ANN["vip"], "what no rule names"
            assert asyncio.get_running_loop().time() - began < 2, "nobody waits"
            assert "owner" in (await pair.ready(503))["checks"]
            await pair.owner.start()
            back = asyncio.get_running_loop().time()
            await callers.further(60)
            assert asyncio.get_running_loop().time() - back < PATIENCE / 2
            callers.over = True
        assert callers.broken == []
        for ident in callers.made:
            status, seen = await visit(pair.front, ident)
            assert (status, seen["name"]) == (200, ANN["name"])


@pytest.mark.slow
async def test_a_front_that_is_killed_leaves_in_doubt_what_it_had_begun(tmp_path: Path) -> None:
    async with running(tmp_path) as pair:
        made: list[int] = []
        for _ in range(3):
            callers = Patient(pair.front)
            async with asyncio.TaskGroup() as group:
                for number in range(CALLERS):
                    group.create_task(callers.work(keep=bool(number % 2)))
                await callers.further(60)
                await pair.front.kill()
                callers.over = True
            made += callers.made
            await pair.front.start()
        for ident in {*made, *pair.application.records}:
            status, seen = await visit(pair.front, ident)
            assert (status, seen["name"]) == (200, ANN["name"]), "the answer tells what was kept"
        assert await pair.front.stop() == 0
        assert await pair.owner.stop() == 0
        assert (await pair.owner.command("store", "verify"))["ok"]


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"REMOTE__VAULT": "vault:1"}, "remote.vault needs remote.authorities"),
        ({"REMOTE__LISTEN": "127.0.0.1:1"}, "remote.listen needs remote.clients"),
        ({"REMOTE__AUTHORITIES": "ca.pem"}, "does nothing without remote.listen or remote.vault"),
        ({"REMOTE__VAULT": "vault:1", "REMOTE__LISTEN": "127.0.0.1:1"}, "set one"),
    ],
)
async def test_half_a_way_to_a_vault_is_refused(
    tmp_path: Path, environment: dict[str, str], told: str
) -> None:
    instance = Instance(
        tmp_path, environment={f"DOMICILE__{k}": text for k, text in environment.items()}
    )
    said = json.dumps(await instance.command("check", status=1))
    assert told in said
