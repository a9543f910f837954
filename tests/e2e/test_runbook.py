"""Every command of docs/runbook.md works, in the order of the page, on one installation."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lives import write_command
from tests.support.patience import PATIENCE
from tests.support.ports import hold_port
from tests.support.tree import ROOT

PAGE = (ROOT / "docs/runbook.md").read_text("utf-8")

RULES = """\
version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:9"}
entities: {contact: {fields: {name: {kind: name}}}}
operations:
  - {match: POST /contacts, create: contact}
"""

SERVE = "domicile serve\n"


def blocks() -> list[tuple[str, str]]:
    """The commands of the page with the section that they stand in."""
    return [
        (section.partition("\n")[0], block)
        for section in PAGE.split("\n## ")[1:]
        for block in re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    ]


class Installation:
    """A folder as the page has it, with at most one instance that serves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        held = {name: hold_port() for name in ("proxy", "vault", "admin")}
        for _, holder in held.values():  # nobody else gets them between two lines of the page
            weakref.finalize(self, os.close, holder)
        ports = {name: port for name, (port, _) in held.items()}
        listen = ", ".join(f"{name}: '127.0.0.1:{port}'" for name, port in ports.items())
        (folder / "domicile.yaml").write_text(f"listen: {{{listen}}}\n")
        for name in ("rules", "rules.new"):
            (folder / name).mkdir()
            (folder / name / "crm.yaml").write_text(RULES)
        command = folder / "bin" / "domicile"
        write_command(command)
        self.admin = f"http://127.0.0.1:{ports['admin']}"
        self.environment = {
            **os.environ,
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "VAULT": f"http://127.0.0.1:{ports['vault']}",
            "ADMIN": self.admin,
        }

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
            timeout=4 * PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def serve(self) -> None:
        self.process = subprocess.Popen(
            [self.folder / "bin" / "domicile", "serve"],
            cwd=self.folder,
            env=self.environment,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(f"{self.admin}/readyz", timeout=PATIENCE).close()
                return
            except OSError:
                assert self.process.poll() is None
                time.sleep(0.05)
        raise AssertionError("it did not become ready")

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(PATIENCE) == 0
            self.process = None

    def administer(self, said: str) -> None:
        """Take the client that ``init`` printed, and make one to be ended."""
        told = dict(re.findall(r"^\s*(client_\w+) +(\S+)$", said, re.MULTILINE))
        self.environment["DOMICILE_CLIENT_ID"] = told["client_id"]
        self.environment["DOMICILE_CLIENT_SECRET"] = told["client_secret"]
        made = self.run("domicile client create --environment default --json suspect")
        self.environment["SUSPECT"] = json.loads(made)["client_id"]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.wait()


#: Blocks, by their first command, before which the page says to stop.
STOPPED = ("domicile check\n", "mv data", "domicile keys verify")


@pytest.mark.slow
def test_the_runbook_works_from_its_first_line_to_its_last(installation):
    sections = []
    for section, block in blocks():
        if block == SERVE:
            installation.stop()
            installation.serve()
        elif section == "Sizing":  # a stopped vault is verified; the page speaks of one for trying
            installation.stop()
            installation.run(block)
            installation.serve()
        else:
            if block.startswith(STOPPED):
                installation.stop()
            said = installation.run(block)
            if "domicile init" in block:
                installation.administer(said)
                # nightly backups: the page must take the newest of several
                installation.run("mkdir -p backups; domicile backup backups; sleep 1")
                (first,) = (installation.folder / "backups").glob("*.backup")
                installation.environment["MATCHING"] = f"backups/{first.name}"
        sections.append(section)
    assert sorted(set(sections)) == sorted(
        ["First hour", "Rule roll-out", "Sizing", "Disk full", "Incident",
         "Upgrade and going back", "Restore", "Application put back to an earlier time", "Lost node", "Lost key"]
    )  # fmt: skip
    assert (installation.folder / "evidence.txt").stat().st_size > 0
    assert (installation.folder / "data.broken").is_dir()
    assert (installation.folder / "data.newer").is_dir()
    assert not (installation.folder / "beside").exists()
