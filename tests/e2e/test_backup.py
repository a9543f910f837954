"""A backup taken while everybody writes brings back every write that was acknowledged before it
began, in a vault that ``verify`` finds in order.
"""

import asyncio
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.objectstore.s3 import parse_bucket_address
from tests.support.application import Application
from tests.support.attached import everything
from tests.support.bucket import CREDENTIALS, fresh_files, shared
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.postgres import fresh_address
from tests.support.serving import serving

SCHEMA = {
    "fields": {"id": {"type": "primary_key"}, "note": {"type": "string", "storage": "encrypted"}}
}
MARKER = "Quibblethwaite"


class Client:
    """An administrator of one instance."""

    def __init__(self, instance: Instance, caller: aiohttp.ClientSession, proof: dict[str, str]):
        self.instance, self.caller, self.proof = instance, caller, proof
        self.headers: dict[str, str] = {}

    async def arrive(self) -> None:
        await self.instance.start()
        form = {"grant_type": "client_credentials", **self.proof}
        async with self.caller.post(self.instance.vault + "/oauth2/token", data=form) as answer:
            assert answer.status == 200, await answer.text()
            self.headers = {"Authorization": f"Bearer {(await answer.json())['access_token']}"}

    async def ask(self, method: str, path: str, **body: Any) -> bytes:
        async with self.caller.request(
            method, self.instance.vault + path, **body, headers=self.headers
        ) as answer:
            content = await answer.read()
            assert answer.status < 300, (path, answer.status, content)
            return content

    async def upload(self, key: str, content: bytes) -> str:
        form = aiohttp.FormData()
        form.add_field("file", io.BytesIO(content), filename="a", content_type="text/plain")
        path = f"/api/models/contact/{key}/files"
        return str(json.loads(await self.ask("POST", path, data=form))["file_id"])


class Writers:
    """What was acknowledged: notes by key, contents by key and file, and people by their id."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.notes: dict[str, str] = {}
        self.files: dict[tuple[str, str], bytes] = {}
        self.people: dict[str, str] = {}
        self.over = False

    async def goes_on(self) -> bool:
        """Whether there is more to write, after a moment: a backup that takes long has not for that
        reason more and more to copy.
        """
        await asyncio.sleep(0.02)
        return not self.over

    async def write(self, number: int) -> None:
        """Records with a file each, of which every third is deleted again."""
        turn = 0
        while await self.goes_on():
            turn += 1
            key, content = f"r{number}x{turn}", os.urandom(2_000)
            note = f"{MARKER} {key}"
            await self.client.ask("POST", "/api/models/contact", json={"id": key, "note": note})
            self.notes[key] = note
            ident = await self.client.upload(key, content)
            if turn % 3:
                self.files[key, ident] = content
            else:
                await self.client.ask("DELETE", f"/api/models/contact/{key}/files/{ident}")

    async def meet(self) -> None:
        """People through the proxy."""
        instance = self.client.instance
        while await self.goes_on():
            name = f"{MARKER} {len(self.people)}"
            async with self.client.caller.post(
                instance.proxy + "/people", json={"name": name}
            ) as answer:
                assert answer.status == 201, await answer.text()
                self.people[str((await answer.json())["id"])] = name


async def judge(client: Client, wanted: Writers) -> None:
    """Everything of ``wanted`` can be read from the instance of ``client``."""
    for key, note in wanted.notes.items():
        body = await client.ask("GET", f"/api/models/contact/{key}")
        assert note.encode() in body
    for (key, ident), content in wanted.files.items():
        assert await client.ask("GET", f"/api/models/contact/{key}/files/{ident}") == content
    for ident, name in wanted.people.items():
        async with client.caller.get(f"{client.instance.proxy}/people/{ident}") as answer:
            assert (answer.status, (await answer.json()).get("name")) == (200, name)


def copied(writers: Writers) -> Writers:
    """What was acknowledged by now."""
    now = Writers(writers.client)
    now.notes, now.files, now.people = (
        dict(writers.notes),
        dict(writers.files),
        dict(writers.people),
    )
    return now


def elsewhere() -> dict[str, str]:
    """The settings of a vault in PostgreSQL and in a bucket."""
    return {"DOMICILE__STORE": fresh_address(), "DOMICILE__FILES": fresh_files(), **CREDENTIALS}


async def backed_up(client: Client, target: Path, keys: Path) -> tuple[Writers, dict[str, Any]]:
    """A backup while everybody writes: what was acknowledged before it, and what it tells."""
    writers = Writers(client)
    work = [asyncio.create_task(writers.write(number)) for number in range(3)]
    work.append(asyncio.create_task(writers.meet()))
    try:
        while len(writers.files) < 10 or len(writers.people) < 10:  # the workers count
            assert not any(task.done() for task in work)
            await asyncio.sleep(0.01)
        wanted = copied(writers)
        return wanted, await client.instance.command("backup", str(target), "--keys", str(keys))
    finally:
        writers.over = True
        await asyncio.gather(*work)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "destination"),
    [(dict, dict), (elsewhere, dict), (dict, elsewhere)],
    ids=["embedded", "from elsewhere", "to elsewhere"],
)
async def test_a_backup_under_load_brings_back_all_that_was_acknowledged(
    tmp_path: Path,
    source: Callable[[], dict[str, str]],
    destination: Callable[[], dict[str, str]],
) -> None:
    home, target = tmp_path / "home", tmp_path / "backups"
    for folder in (home / "rules", target):
        folder.mkdir(parents=True)
    timeout = aiohttp.ClientTimeout(2 * PATIENCE)
    async with (
        serving(Application().app()) as upstream,
        aiohttp.ClientSession(timeout=timeout) as caller,
    ):
        (home / "rules" / "rules.yaml").write_text(rules(upstream))
        instance = Instance(home, environment=source())
        first = await instance.command("init")
        proof = {name: first[name] for name in ("client_id", "client_secret")}
        client = Client(instance, caller, proof)
        await client.arrive()
        await client.ask("PUT", "/api/schemas/contact", json=SCHEMA)
        wanted, told = await backed_up(client, target, tmp_path / "keys.json")
        assert (told["lost"], told["declared_files"]) == ([], 1)
        assert told["attachments"] >= len(wanted.files)
        assert MARKER not in everything(target).decode("latin-1")
        assert await instance.stop() == 0

        # the machine is lost: another one has the backup and the key alone
        other = Instance(tmp_path / "other")
        other.folder.mkdir()
        other.environment = {
            "DOMICILE__KEYS": f"file://{tmp_path / 'keys.json'}",
            **destination(),
        }
        checked = await other.command("restore", "--check", told["file"])
        assert (checked["ok"], checked["faults"], checked["audit_faults"]) == (True, [], [])
        assert not other.data.exists()
        restored = await other.command("restore", told["file"])
        assert (restored["ok"], len(restored["restored"])) == (True, 4)
        assert (other.rules / "rules.yaml").read_text() == (home / "rules/rules.yaml").read_text()
        assert (await other.command("store", "verify"))["ok"]
        assert (await other.command("audit", "verify"))["ok"]
        again = Client(other, caller, proof)
        await again.arrive()
        await judge(again, wanted)
        alarms = (
            "the audit log contradicts its checkpoint",
            "a note of the store was changed, rolled back, added or removed",
            "the store was rolled back to an earlier state",
        )
        assert [event for name in alarms for event in other.events(name)] == []
        await client.instance.kill()
        refused = await other.command("restore", told["file"], status=1)
        assert "a restore overwrites nothing" in refused["message"]
        await other.kill()


async def test_backups_in_a_bucket_expire_and_are_proved_there(tmp_path: Path) -> None:
    instance = Instance(tmp_path, environment=dict(CREDENTIALS))
    instance.rules.mkdir()
    await instance.command("init")
    bucket, proof = fresh_files(), tmp_path / "keys.json"
    kept, removed = [], []
    for _ in range(3):
        told = await instance.command("backup", bucket, "--keep", "2", "--keys", str(proof))
        kept.append(told["file"].rpartition("/")[2])
        removed += told["removed"]
        await asyncio.sleep(1.1)  # names tell the second
    assert removed == [kept[0]]
    prefix = parse_bucket_address(bucket).prefix
    names = [name.rpartition("/")[2] for name in shared().names(prefix)]
    assert names == kept[1:]
    backup = bucket.replace("?", f"/{kept[2]}?", 1)
    assert (await instance.command("restore", "--check", backup))["ok"]
    other = Instance(tmp_path / "other", environment=dict(CREDENTIALS))
    other.folder.mkdir()
    other.environment["DOMICILE__KEYS"] = f"file://{proof}"
    assert (await other.command("restore", backup))["ok"]
    assert (await other.command("store", "verify"))["ok"]
    missing = bucket.replace("?", "/none.backup?", 1)
    refused = await other.command("restore", "--check", missing, status=1)
    assert "refuses this (NoSuchKey)" in refused["message"] or "cannot" in refused["message"]


async def test_an_attachment_that_is_lost_is_told_and_a_backup_made_all_the_same(
    tmp_path: Path,
) -> None:
    instance = Instance(tmp_path)
    instance.rules.mkdir()
    first = await instance.command("init")
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as caller:
        proof = {name: first[name] for name in ("client_id", "client_secret")}
        client = Client(instance, caller, proof)
        await client.arrive()
        await client.ask("PUT", "/api/schemas/contact", json=SCHEMA)
        await client.ask("POST", "/api/models/contact", json={"id": "a", "note": MARKER})
        await client.upload("a", b"lost")
    (lost,) = [path for path in (tmp_path / "data/files").glob("??/*") if path.is_file()]
    lost.unlink()
    told = await instance.command("backup", str(tmp_path / "b"), status=1)
    assert told["lost"] == [lost.parent.name + lost.name]
    assert await instance.stop() == 0
    checked = await instance.command("restore", "--check", str(tmp_path / "b"), status=1)
    assert (checked["ok"], len(checked["faults"])) == (False, 1)
