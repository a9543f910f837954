"""Records in and out of a running instance by command, whatever ends in the middle."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.cli.remote import CLIENT_ID, CLIENT_SECRET
from tests.support.instance import Instance
from tests.support.lives import write_command
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.ports import closed_port

COUNT = 3000
FIELDS = {
    "id": {"type": "primary_key"},
    "email": {"type": "string", "storage": "indexed_hashed"},
    "sum": {"type": "decimal", "storage": "encrypted"},
}


@dataclass
class Office:
    """An instance with a schema, and the credentials of its first client."""

    instance: Instance
    variables: dict[str, str]

    async def command(self, *arguments: str, status: int = 0) -> Any:
        """What a command says, as JSON."""
        return await self.instance.command(*arguments, status=status, **self.variables)

    async def begin(self, *arguments: str) -> asyncio.subprocess.Process:
        write_command(command := self.instance.folder / "bin" / "domicile")
        return await asyncio.create_subprocess_exec(
            command, *arguments, "--json",
            cwd=self.instance.folder,
            env={**os.environ, **self.instance.settings(), **self.variables},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    with closed_port() as port:
        instance = Instance(tmp_path, environment={"DOMICILE__LISTEN__VAULT": f"127.0.0.1:{port}"})
        instance.rules.mkdir()
        (instance.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
        here = Office(instance, {})
        made = await here.command("init")
        here.variables.update({CLIENT_ID: made["client_id"], CLIENT_SECRET: made["client_secret"]})
        await instance.start()
        try:
            await declare(here)
            yield here
        finally:
            await instance.kill()


async def declare(office: Office) -> None:
    url = office.instance.vault
    basic = aiohttp.encode_basic_auth(office.variables[CLIENT_ID], office.variables[CLIENT_SECRET])
    async with aiohttp.ClientSession() as session:
        form = {"grant_type": "client_credentials", "audience": url, "scope": "default"}
        async with session.post(
            f"{url}/oauth2/token", data=form, headers={"Authorization": basic}
        ) as answer:
            token = (await answer.json())["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        async with session.put(
            f"{url}/api/schemas/contact", json={"fields": FIELDS}, headers=headers
        ) as answer:
            assert answer.status < 300, await answer.text()


def written(folder: Path) -> list[dict[str, Any]]:
    records = [
        {"id": f"k{n}", "email": f"marker{n}@example.org", "sum": n / 4} for n in range(COUNT)
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return records


async def test_an_import_outlives_both_sides_and_an_export_has_every_record_once(
    office: Office,
) -> None:
    folder = office.instance.folder
    records = written(folder)
    mark = folder / "in.jsonl.import"
    for end_server in (True, False):
        command = await office.begin("import", "--schema", "contact", "in.jsonl")
        before = mark.read_bytes() if mark.exists() else b""
        async with asyncio.timeout(PATIENCE):
            while not mark.exists() or mark.read_bytes() == before:  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.01)
        if end_server:
            await office.instance.kill()
        with contextlib.suppress(ProcessLookupError):
            command.kill()
        await command.communicate()
        if end_server:
            await office.instance.start()
    told = await office.command("import", "--schema", "contact", "in.jsonl")
    assert (told["created"], told["rejected"], told["complete"]) == (COUNT, 0, True)
    await office.command("export", "--schema", "contact", "--clear", "out.jsonl")
    assert [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()] == records
    told = await office.command("export", "--schema", "contact", "out.sealed")
    assert (told["records"], told["sealed"]) == (COUNT, True)
    assert b"marker" not in (folder / "out.sealed").read_bytes()


async def test_nothing_personal_is_told_when_a_record_is_refused(office: Office) -> None:
    (office.instance.folder / "in.jsonl").write_text(
        '{"id": "k", "email": "marker@example.org", "sum": "marker"}\n'
    )
    told = await office.command("import", "--schema", "contact", "in.jsonl", status=1)
    assert told["faults"][0]["source"] == "line 1 /sum"
    assert "marker" not in json.dumps(told)


async def test_schemas_are_declared_on_a_running_instance(office: Office) -> None:
    file = office.instance.folder / "order.yaml"
    file.write_text(
        "name: order\nfields:\n  id: {type: primary_key}\n  sum: {type: integer, storage: "
        "indexed}\n"
    )
    busy = await office.command("schema", "list", status=1)
    assert busy["code"] == "store_busy"
    url = ("--url", office.instance.vault)
    told = await office.command("schema", "apply", *url, "order.yaml")
    assert told["schemas"][0]["created"] is True
    file.write_text(file.read_text().replace("integer", "decimal"))
    told = await office.command("schema", "apply", "--dry-run", *url, "order.yaml")
    assert told["schemas"][0]["migrates"] is True
    listed = await office.command("schema", "list", *url)
    assert {"contact", "order"} <= {item["name"] for item in listed["schemas"]}
    shown = await office.command("schema", "show", *url, "order")
    assert shown["fields"]["sum"]["type"] == "integer"
    assert (await office.command("schema", "show", *url, "none", status=1))[
        "code"
    ] == "unknown_schema"
