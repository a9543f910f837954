"""``domicile person`` at a running instance, from the standard input, for what the proxy collects."""

import asyncio
import json
import os
from pathlib import Path

from tests.e2e.conftest import World
from tests.e2e.test_kept_rules import Vault, installed
from tests.support.lives import write_command
from tests.support.people import ANN, rules


async def person(world: World, vault: Vault, *words: str, value: str) -> tuple[int, str, str]:
    """What the command ends with and says, run as anybody runs it."""
    write_command(command := world.instance.folder / "bin" / "domicile")
    process = await asyncio.create_subprocess_exec(
        command, "person", *words, "--url", world.instance.vault,
        cwd=world.instance.folder,
        env={
            **os.environ, **world.instance.settings(),
            "DOMICILE_CLIENT_ID": vault.access["client_id"],
            "DOMICILE_CLIENT_SECRET": vault.access["client_secret"],
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, complained = await process.communicate(value.encode() + b"\n")
    return process.returncode or 0, said.decode(), complained.decode()


async def test_a_person_gets_everything_and_is_forgotten(tmp_path: Path) -> None:
    async with installed(tmp_path) as (world, vault):
        (world.instance.rules / "rules.yaml").write_text(rules(world.upstream))
        await world.instance.start()
        await vault.enter()
        ann = await world.call("POST", "/people", 201, json=ANN)
        bob = await world.call("POST", "/people", 201, json={**ANN, "email": "bob@x.example"})
        own = {"country": "se", "record_key": "r-1", "key3": str(ANN["email"]).upper()}
        assert (await vault.ask("POST", "/api/records", own))[0] == 201

        status, said, complained = await person(
            world, vault, "export", "ann.json", value=str(ANN["email"]).lower()
        )
        assert status == 0, complained
        file = world.instance.folder / "ann.json"
        document = json.loads(file.read_text())
        assert file.stat().st_mode & 0o777 == 0o600
        assert str(ANN["email"]) not in said
        assert {(one["schema"], one["record_key"]) for one in document["records"]} == {
            ("person", str(ann["id"])),
            ("records", "r-1"),
        }
        shown = next(one for one in document["records"] if one["schema"] == "person")["record"]
        assert (shown["name"], shown["tags"]) == (ANN["name"], ANN["tags"])

        # any of the person's values, in another spelling, and other values of the record are told
        values = f"nobody@x.example\n {str(ANN['name']).upper()} "
        status, said, complained = await person(world, vault, "export", value=values)
        assert (status, "person.email" in complained) == (0, True)
        keys = {one["record_key"] for one in json.loads(said)["records"]}
        assert keys == {str(ann["id"]), str(bob["id"])}  # both are called so

        status, said, _ = await person(world, vault, "erase", value=str(ANN["email"]))
        assert (status, "Nothing was deleted" in said) == (0, True)
        assert await world.call("GET", f"/people/{ann['id']}", 200) == ann
        status, said, _ = await person(world, vault, "erase", "--yes", "--json", value=ann["email"])
        assert (status, json.loads(said)["erased"]) == (0, True)
        # its tokens stay in the application until it deletes them, and stand for no value
        left = await world.call("GET", f"/people/{ann['id']}", 200)
        assert world.application.records[ann["id"]].keys() == left.keys()
        assert {left[name] for name in ("name", "email", "phone", "born", "card")} == {None}
        assert await world.call("GET", f"/people/{bob['id']}", 200) == bob
        status, said, _ = await person(world, vault, "export", value=ann["email"])
        assert (status, json.loads(said)["records"]) == (0, [])
        status, _, complained = await person(world, vault, "export", value="")
        assert (status, "standard input" in complained) == (1, True)
