"""The GitHub Action and the pre-commit hooks for rule files, run as those who use them run them."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.lives import write_command
from tests.support.rules import with_operations
from tests.support.tree import ROOT

ACTION = yaml.safe_load((ROOT / ".ci/rules/action.yml").read_text("utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))

RULES = with_operations("{match: POST /contacts, create: contact}")
LOSING = RULES.replace("{kind: name}", "{kind: name, token: plain}")
BROKEN = RULES.replace("create: contact", "create: nobody")


class Repository:
    """A git repository that keeps rule files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "PATH": f"{folder.parent / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder.parent),
            "PRE_COMMIT_HOME": str(folder.parent / "pre-commit"),
            **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }  # fmt: skip
        write_command(folder.parent / "bin" / "domicile")
        (folder / "rules").mkdir(parents=True)
        self.write(RULES)
        self.run("git", "init", "-q", "-b", "main")
        self.commit()

    def write(self, text: str) -> None:
        (self.folder / "rules/crm.yaml").write_text(text)

    def commit(self) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", "Rules", "--no-verify")

    def run(
        self, *command: str, check: bool = True, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=check,
        )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "work")


def stepped(repository: Repository, base: str) -> list[tuple[str, int, str]]:
    """Name, status and output of each step of the action, up to the first that fails; by the
    program of this checkout, as the step that installs it is tried by itself.
    """
    inputs = {"rules": "rules", "base": base, "python": sys.executable}
    place = Path(repository.folder.parent, "runner", "domicile")
    if not place.exists():
        place.parent.mkdir()
        place.symlink_to(repository.folder.parent)
    done = []
    for step in ACTION["runs"]["steps"][1:]:
        if step.get("if") == "inputs.base != ''" and not base:
            continue
        env = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], value)
            for name, value in step["env"].items()
        }
        assert step["shell"] == "bash"
        ran = repository.run(
            "bash", "-e", "-c", step["run"], check=False, RUNNER_TEMP=str(place.parent), **env
        )
        done.append((step["name"], ran.returncode, ran.stdout + ran.stderr))
        if ran.returncode:
            break
    return done


def test_the_action_lets_pass_what_loses_nothing(repository: Repository) -> None:
    repository.write(RULES + "  - {match: 'GET /contacts/{id}', read: contact}\n")
    assert [step[:2] for step in stepped(repository, "main")] == [
        ("Check", 0),
        ("Test", 0),
        ("Compare", 0),
    ]
    assert [step[0] for step in stepped(repository, "")] == ["Check", "Test"]


@pytest.mark.parametrize(
    ("text", "step", "told"),
    [(BROKEN, "Check", "nobody"), (LOSING, "Compare", "token: opaque becomes plain")],
)
def test_the_action_fails_where_something_is_wrong(
    repository: Repository, text: str, step: str, told: str
) -> None:
    repository.write(text)
    name, status, output = stepped(repository, "main")[-1]
    assert (name, status) == (step, 1)
    assert told in output


def checkout(folder: Path) -> Path:
    """This project as an action is checked out, but for most of its libraries: that the whole lock
    can be installed by its hashes, each ``make install`` shows. Where its action stands.
    """
    folder.mkdir()
    for name in ("proxy", "rules", "pyproject.toml", "README.md", "LICENSE"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "requirements").mkdir()
    for name in ("build.txt", "runtime.txt"):
        lock = (ROOT / "requirements" / name).read_text()
        few = re.split(r"\n(?=\w)", lock)[:1] if name == "runtime.txt" else [lock]
        (folder / "requirements" / name).write_text("\n".join(few) + "\n")
    place = folder / ".ci" / "rules"
    place.mkdir(parents=True)
    return place


def test_the_action_installs_what_is_locked(repository: Repository) -> None:
    step, home = ACTION["runs"]["steps"][0], repository.folder.parent
    ran = repository.run(
        *("bash", "-e", "-c", step["run"]),
        PYTHON=sys.executable,
        PIP_NO_COMPILE="1",  # the program is started once
        RUNNER_TEMP=str(home),
        GITHUB_ACTION_PATH=str(checkout(home / "checkout")),
    )
    assert ran.returncode == 0
    (packages,) = home.glob("domicile/lib/python*/site-packages")
    assert len([*packages.glob("aiohappyeyeballs-*.dist-info")]) == 1
    # the others are those of this environment, behind its own
    (packages / "libraries.pth").write_text(sysconfig.get_path("platlib") + "\n")
    command = home / "domicile/bin/domicile"
    assert "in order" in repository.run(str(command), "rules", "check", "rules").stdout


def hooked(repository: Repository) -> dict[str, bool]:
    """Which hooks pass over what is staged, by their ids; run by pre-commit itself."""
    local: list[dict[str, Any]] = [{**hook, "language": "system"} for hook in HOOKS]
    config = {"repos": [{"repo": "local", "hooks": local}]}
    (repository.folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    repository.run("git", "add", "-A")
    passed = {}
    for hook in HOOKS:
        ran = repository.run(sys.executable, "-m", "pre_commit", "run", hook["id"], check=False)
        assert "Skipped" not in ran.stdout, ran.stdout
        passed[hook["id"].removeprefix("domicile-rules-")] = ran.returncode == 0
    return passed


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        (RULES + "# a word\n", {"check": True, "test": True, "diff": True}),
        (LOSING, {"check": True, "test": True, "diff": False}),
        (BROKEN, {"check": False, "test": False, "diff": False}),
    ],
)
def test_the_hooks_look_at_what_is_committed(
    repository: Repository, text: str, passed: dict[str, bool]
) -> None:
    repository.write(text)
    assert hooked(repository) == passed


def test_pre_commit_takes_the_manifest(repository: Repository) -> None:
    manifest = str(ROOT / ".pre-commit-hooks.yaml")
    repository.run(sys.executable, "-m", "pre_commit", "validate-manifest", manifest)
