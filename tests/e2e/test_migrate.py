"""A vault moves to PostgreSQL and a bucket while everybody writes, and back; the command is killed
again and again. What was acknowledged is there, once.
"""

import asyncio
import json
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.test_backup import SCHEMA, Client, Writers, judge
from tests.support.application import Application
from tests.support.bucket import CREDENTIALS, fresh_files
from tests.support.effort import rounds
from tests.support.instance import Instance
from tests.support.lives import Installation, nursery
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.postgres import fresh_address
from tests.support.serving import serving

#: Records with a file each that are there before the move begins, and deaths of each command.
RECORDS, DEATHS = rounds(24), rounds(2)


class Unhurried(Writers):
    """Callers that leave the machine some time for the move."""

    async def meet(self) -> None:
        while not self.over:
            name = f"person {len(self.people)}"
            url = self.client.instance.proxy + "/people"
            async with self.client.caller.post(url, json={"name": name}) as answer:
                assert answer.status == 201, await answer.text()
                self.people[str((await answer.json())["id"])] = name
            await asyncio.sleep(0.1)


class UnhurriedClient(Client):
    """A client that waits a moment before each call while the vault moves.

    What is written meanwhile is copied, and judged call by call after each move.
    """

    pause = 0.0

    async def ask(self, method: str, path: str, **body: Any) -> bytes:
        if self.pause:
            await asyncio.sleep(self.pause)
        return await super().ask(method, path, **body)


async def filled(client: Client, count: int) -> Writers:
    """Some records with a file each."""
    writers = Unhurried(client)
    for number in range(count):
        key = f"before{number}"
        await client.ask("POST", "/api/models/contact", json={"id": key, "note": key})
        writers.notes[key] = key
        content = random.randbytes(3_000)
        writers.files[key, await client.upload(key, content)] = content
    return writers


async def killed(command: Installation, *argv: str) -> None:
    """Run the command, and kill it after some moment."""
    await command.begin(*argv)
    await asyncio.sleep(random.uniform(0.05, 1.2))
    await command.kill()


async def told(command: Installation, *argv: str) -> dict[str, Any]:
    assert await command.run(*argv, "--json") == 0, command.log + command.output
    answer: dict[str, Any] = json.loads(command.output)
    return answer


async def count(client: Client) -> int:
    found = await client.ask(
        "POST", "/api/models/contact/find", json={"filter": {}, "options": {"limit": 1}}
    )
    total: int = json.loads(found)["meta"]["total"]
    return total


@pytest.mark.slow
async def test_a_vault_moves_under_load_and_back_whatever_is_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "rules").mkdir(parents=True)
    timeout = aiohttp.ClientTimeout(2 * PATIENCE)
    async with (
        nursery() as cradle,
        AsyncExitStack() as stack,
        serving(Application().app()) as upstream,
        aiohttp.ClientSession(timeout=timeout) as caller,
    ):
        (home / "rules" / "rules.yaml").write_text(rules(upstream))
        instance = Instance(home, environment=dict(CREDENTIALS))
        stack.push_async_callback(instance.kill)
        first = await instance.command("init")
        client = UnhurriedClient(
            instance, caller, {n: first[n] for n in ("client_id", "client_secret")}
        )
        await client.arrive()
        await client.ask("PUT", "/api/schemas/contact", json=SCHEMA)
        writers = await filled(client, RECORDS)
        command = Installation(cradle, home)
        places = [
            (fresh_address(pool="2", wait="10"), fresh_files()),
            (f"sqlite:///{tmp_path}/back/vault.db", f"file://{tmp_path}/back/files"),
        ]
        for store, files in places:
            command.environment = dict(instance.environment)
            move = ("store", "migrate", "--to", store, "--files", files)
            writers.over, client.pause = False, 0.1
            work = [asyncio.create_task(writers.write(time.time_ns() + n)) for n in range(2)]
            work.append(asyncio.create_task(writers.meet()))
            try:
                for _ in range(DEATHS):
                    await killed(command, *move)
                copied = await told(command, *move)
                assert not copied["finished"]
                assert await command.run(*move, "--finish") == 1
                assert b"Another process" in command.output + command.log
            finally:
                writers.over = True
                await asyncio.gather(*work)
                client.pause = 0.0
            assert await instance.stop() == 0
            for _ in range(DEATHS):
                await killed(command, *move, "--finish")
            result = await told(command, *move, "--finish")
            assert result["finished"]
            assert (await told(command, *move, "--finish"))["finished"], "a second time"
            assert await command.run("serve") == 1
            assert b"has moved to" in command.output + command.log
            if files.startswith("s3"):
                assert not (home / "data/files/owner").exists()

            instance.environment |= {"DOMICILE__STORE": store, "DOMICILE__FILES": files}
            verified = await instance.command("store", "verify")
            assert (verified["ok"], verified["attachments"]) == (True, len(writers.files))
            assert (await instance.command("audit", "verify"))["ok"]
            await client.arrive()
            await judge(client, writers)
            assert await count(client) == len(writers.notes)
