"""The guide for who moves from a hosted service, line by line, against a running instance, with the
client that it names.
"""

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path

from proxy.cli.remote import CLIENT_ID, CLIENT_SECRET
from tests.support.lives import write_command
from tests.support.office import opened
from tests.support.patience import PATIENCE
from tests.support.real.installed import POP_CLIENT, environment
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

GUIDE = (ROOT / "docs/moving.md").read_text("utf-8")
VAULT = "http://127.0.0.1:8081"

#: The instance runs already, so what ``init`` said is read again; and nothing but Python takes
#: members out of JSON here.
COMMANDS = f"""
domicile() {{ if test "$*" = "init --country se --json"; then cat init.json; else bin/domicile "$@"; fi; }}
jq() {{ {sys.executable} -c 'import json, sys
words = [word for word in sys.argv[1:] if word != "-r"]
print(json.load(open(words[1]) if words[1:] else sys.stdin)[words[0].removeprefix(".")])' "$@"; }}
set -eu -o pipefail
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


async def output(*command: str | Path, folder: Path, variables: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, faults = await asyncio.wait_for(process.communicate(), 2 * PATIENCE)
    assert process.returncode == 0, told + faults
    return told.decode()


async def test_the_guide_works_as_it_stands(tmp_path: Path, unavailable: Unavailable) -> None:
    if shutil.which("curl") is None:
        unavailable("the lines of the guide for moving", "this machine has no curl")
    settings = {"DOMICILE__RECORDS__PLAIN": "[key1]", "DOMICILE__RECORDS__PARTIAL_MATCH": "[key2]"}
    async with opened(tmp_path, settings) as office:
        known = {
            "client_id": office.variables[CLIENT_ID],
            "client_secret": office.variables[CLIENT_SECRET],
        }
        write_command(tmp_path / "bin" / "domicile")
        (tmp_path / "init.json").write_text(json.dumps({"environment_id": "default", **known}))
        (records,) = blocks("jsonl")
        (tmp_path / "records.jsonl").write_text(records)
        script = (COMMANDS + "\necho\n".join(blocks("sh"))).replace(VAULT, office.instance.vault)
        told = await output("bash", "-c", script, folder=tmp_path, variables=office.environment)
        client = "\n".join(blocks("python")).replace(VAULT, office.instance.vault)
        said = await output(
            environment(POP_CLIENT), "-c", client, folder=tmp_path, variables=office.environment
        )
        left = await office.ask("POST", "/api/records/find", {"country": "se"})
    assert (
        told.count("records: 3 created, 0 updated, 0 skipped, 0 rejected") == 2
    )  # the second time as it was answered the first
    assert '"total":2' in told
    assert "The rehash is done: 3 of 3 records" in told
    assert '"profile_key":"p-1","fields":{"key1":"' in told
    assert '"code"' not in told
    assert said.splitlines() == ["written by the client", "sealed by the client"]
    assert left["meta"]["total"] == 5
    sealed = next(one for one in left["data"] if one["record_key"].startswith("5994"))
    assert (sealed["version"], sealed["body"]) == (2, "2:AAAA")
    tokens = [json.loads(line) for line in (tmp_path / "tokens.jsonl").read_text().splitlines()]
    assert [(one["profile_key"], sorted(one["fields"])) for one in tokens] == [
        ("p-1", ["key1", "name"]),
        ("p-2", ["key1", "name"]),
    ]
