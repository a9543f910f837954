"""The guide for developers, line by line, against a running instance."""

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path

from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

BLOCKS, RECORDS = (
    re.findall(r"```sh\n(.*?)```", (ROOT / f"docs/{name}.md").read_text("utf-8"), re.DOTALL)
    for name in ("interface", "records")
)

#: In place of the machine's own, which need not be there: what the guide takes out of answers, and
#: of a file.
JQ = f"""jq() {{ {sys.executable} -c 'import json, sys
words = [word for word in sys.argv[1:] if word != "-r"]
value = json.load(open(words[1]) if words[1:] else sys.stdin)
name = words[0].removeprefix(".")
print(value[name] if name in value else json.dumps(value["data"][0]["attachments"]))' "$@"; }}
"""

#: The instance runs already, so what ``init`` said is read again; it would say no secret twice.
INIT = """domicile() { test "$*" = "init --country se --json" && cat init.json; }
"""


async def output(*command: str | Path, folder: Path, environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, faults = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, told + faults
    return told.decode()


async def test_the_guide_works_as_it_stands(tmp_path: Path, unavailable: Unavailable) -> None:
    if shutil.which("curl") is None:
        unavailable("the lines of the guide to the interface", "this machine has no curl")
    instance = Instance(tmp_path)
    instance.rules.mkdir()
    shutil.copy(ROOT / "rules/contacts.yaml", instance.rules)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **instance.settings()}
    made = json.dumps(await instance.command("init"))
    await instance.start()
    try:
        (tmp_path / "passport.pdf").write_bytes(b"%PDF-1.7 ...")
        (tmp_path / "init.json").write_text(made)
        *lines, hunt = BLOCKS
        assert "st run" in hunt  # a hunt takes hours, and has its own test
        script = JQ + INIT + "set -eu -o pipefail\n"
        script += "\necho\n".join([*lines, *RECORDS]).replace(
            "http://127.0.0.1:8081", instance.vault
        )
        told = await output("bash", "-c", script, folder=tmp_path, environment=environment)
    finally:
        await instance.kill()
    assert '"code"' not in told
    assert told.count('"created_at"') >= 10
    assert '"city": "Uppsala"' in told or '"city":"Uppsala"' in told
    assert '"filename": "passport.pdf"' in told
    assert told.count('"profile_key":"p-1"') >= 4
