"""``domicile person`` at a running instance, from the standard input, for what the proxy collects."""

import asyncio
import json
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

from tests.e2e.conftest import World
from tests.e2e.test_kept_rules import Vault, installed
from tests.support.instance import Instance
from tests.support.lives import write_command
from tests.support.people import ANN, rules
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

PAGE = (ROOT / "docs/what-changes.md").read_text("utf-8")
#: The entity and the fields of the page, and those that are there in these tests.
WORDS = {"patient": "person", "first_name": "name", "last_name": "phone"}


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
        status, said, _ = await person(world, vault, "erase", value=ann["email"])
        assert (status, "Nothing was deleted" in said) == (0, False)  # to nothing
        status, said, _ = await person(world, vault, "export", value=ann["email"])
        assert (status, json.loads(said)["records"]) == (0, [])
        status, _, complained = await person(world, vault, "export", value="")
        assert (status, "standard input" in complained) == (1, True)


async def test_who_was_erased_after_the_backup_is_erased_again_after_the_restore(
    tmp_path: Path,
) -> None:
    (tmp_path / "home").mkdir()
    async with installed(tmp_path / "home") as (world, vault):
        home = world.instance
        (home.rules / "rules.yaml").write_text(rules(world.upstream))
        await home.start()
        await vault.enter()
        ann, bob = [await world.call("POST", "/people", 201, json=ANN) for _ in range(2)]
        own = {"country": "se", "record_key": "r-1", "key3": "dan@x.example"}
        assert (await vault.ask("POST", "/api/records", own))[0] == 201
        backups = tmp_path / "backups"
        backups.mkdir()
        told = await home.command("backup", str(backups), "--keys", str(tmp_path / "keys.json"))
        made = f"{told['file'].rpartition('-')[2][:15]}"
        since = datetime.strptime(made, "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        await asyncio.sleep(1)  # the name of the file tells seconds
        await world.call("DELETE", f"/people/{ann['id']}", 204)
        assert (await vault.ask("DELETE", "/api/records/se/r-1"))[0] == 204
        assert await home.stop() == 0
        lines = sorted((home.data / "audit").glob("audit-*.jsonl"))

        other = world.instance = Instance(tmp_path / "other")
        other.folder.mkdir()
        other.environment = {"DOMICILE__KEYS": f"file://{tmp_path / 'keys.json'}"}
        assert (await other.command("restore", told["file"]))["ok"]
        await other.start()
        try:
            await vault.enter()
            words = ["erase-again", "--since", f"{since:%Y-%m-%dT%H:%M:%SZ}", "--json", "--lines"]
            words += map(str, lines)
            wanted = [("person", str(ann["id"])), ("records", "r-1")]
            for more in ((), ("--yes",), ("--yes",)):
                status, said, complained = await person(world, vault, *words, *more, value="")
                assert status == 0, complained
                report = json.loads(said)
                found = [(one["schema"], one["record_key"]) for one in report["records"]]
                assert (sorted(found), report["deleted"], report["unclear"]) == (wanted, 2, 0)
                wanted = [] if more else wanted
            assert (await vault.ask("GET", "/api/records/se/r-1"))[0] == 404
            status, shown = await vault.ask("GET", f"/api/models/person/{bob['id']}")
            assert (status, shown["email"]) == (200, ANN["email"])
            status, _, complained = await person(
                world, vault, "erase-again", "--since", "x", value=""
            )
            assert (status, "--since" in complained) == (1, True)
        finally:
            await other.kill()


async def test_a_program_at_home_reads_whom_a_letter_is_for_as_the_page_says(
    tmp_path: Path, unavailable: Unavailable
) -> None:
    """``A letter from the home country``, line by line."""
    if shutil.which("curl") is None:
        unavailable("the lines of the recipe for mail", "this machine has no curl")
    section = PAGE.partition("### A letter from the home country\n")[2]
    policy, commands = re.findall(r"```(?:yaml|sh)\n(.*?)```", section, re.DOTALL)[:2]
    for word, here in WORDS.items():
        policy, commands = policy.replace(word, here), commands.replace(word, here)
    apply, create, read = commands.splitlines()
    async with installed(tmp_path) as (world, vault):
        (world.instance.rules / "rules.yaml").write_text(rules(world.upstream))
        await world.instance.start()
        await vault.enter()
        ann = await world.call("POST", "/people", 201, json=ANN)
        folder = world.instance.folder
        write_command(folder / "bin" / "domicile")
        (folder / "mailer.yaml").write_text(policy)
        made = create.partition("#")[0] + " --json > client.json"
        known = vault.access["client_id"], vault.access["client_secret"]
        await sh(world, apply + "\n" + made, *known)
        client = json.loads((folder / "client.json").read_text())
        token = f"token=$(domicile token --url {world.instance.vault})\n"
        script = token + read.replace("/17", f"/{ann['id']}").replace("curl", "curl -s")
        letter = json.loads(await sh(world, script, client["client_id"], client["client_secret"]))
        assert {name for name in ANN if name in letter} == {*WORDS.values(), "email"} - {"person"}
        assert [letter[name] for name in ("name", "email")] == [ANN["name"], ANN["email"]]
        write = script.replace(
            "curl -s",
            "curl -s -X PATCH -d '{}' -H 'Content-Type: application/json' -o /dev/null -w '%{http_code}'",
        )
        assert await sh(world, write, client["client_id"], client["client_secret"]) == "401"


async def sh(world: World, script: str, client: str, secret: str) -> str:
    """What lines of the page say in a shell, at this instance."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-eu", "-c", script.replace("http://127.0.0.1:8081", world.instance.vault)),
        cwd=world.instance.folder,
        env={
            **os.environ, **world.instance.settings(),
            "PATH": f"{world.instance.folder / 'bin'}:{os.environ['PATH']}",
            "DOMICILE_CLIENT_ID": client, "DOMICILE_CLIENT_SECRET": secret,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, complained = await process.communicate()
    assert process.returncode == 0, said + complained
    return said.decode()


async def test_a_person_is_found_and_forgotten_by_fields_that_the_rules_have_no_more(
    tmp_path: Path,
) -> None:
    async with installed(tmp_path) as (world, vault):
        file = world.instance.rules / "rules.yaml"
        file.write_text(rules(world.upstream))
        await world.instance.start()
        await vault.enter()
        await world.call("POST", "/people", 201, json=ANN)
        lines = file.read_text().splitlines(keepends=True)
        gone = ("born:", "card:")
        file.write_text("".join(one for one in lines if not one.lstrip().startswith(gone)))
        await world.instance.logged("rules are active")
        for name in ("born", "card"):
            status, said, complained = await person(world, vault, "export", value=str(ANN[name]))
            assert status == 0, complained
            assert [one["record_key"] for one in json.loads(said)["records"]] == ["1"], name
        status, said, _ = await person(
            world, vault, "erase", "--yes", "--json", value=str(ANN["card"])
        )
        assert (status, json.loads(said)["erased"]) == (0, True)
        assert (await world.call("GET", "/people/1", 200))["name"] is None
