"""What must not be in the project: this machine's paths, index addresses, loose versions,
unexplained exceptions.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tokenize
import tomllib
import urllib.parse
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.table import table
from tests.support.tree import PACKAGE, ROOT, parsed, python_files, relative, tracked

LOCKS = {
    "runtime.txt": ("dependencies",),
    "extras.txt": ("dependencies",),
    "dev.txt": ("dependencies", "dev"),
    "build.txt": ("build",),
    "bench.txt": ("bench",),
}
PYPROJECT = ROOT / "pyproject.toml"

#: Put together here, so that this file is not its own finding.
MACHINE_PATHS = re.compile(
    "|".join(f"/{name}/" for name in ("work", "root", "farm", "home/[a-z]+"))
)

#: Hosts that everybody's index has; the names of others tell about the machine.
PUBLIC_INDEX = {"pypi.org", "files.pythonhosted.org"}

BINARY = {".png", ".ico", ".woff2", ".gz", ".db", ".bin"}


def texts() -> list[Path]:
    return [path for path in tracked() if path.suffix not in BINARY]


def read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def index_hosts() -> set[str]:
    """The hosts of the package index that this machine is set up with, from pip's settings and the
    environment.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    settings = listed.stdout + "\n".join(
        f"{name}={value}" for name, value in os.environ.items() if re.match("PIP_|UV_", name)
    )
    hosts = {
        urllib.parse.urlsplit(url).hostname for url in re.findall(r"https?://[^\s'\"]+", settings)
    }
    return {host for host in hosts if host} - PUBLIC_INDEX - {"localhost", "127.0.0.1"}


def declared(group: str) -> list[Requirement]:
    """What pyproject.toml asks for, one group, included groups left out."""
    content = tomllib.loads(PYPROJECT.read_text("utf-8"))
    lines = (
        content["project"]["dependencies"]
        if group == "dependencies"
        else content["dependency-groups"][group]
    )
    return [Requirement(line) for line in lines if isinstance(line, str)]


def locked(name: str) -> dict[str, str]:
    """Package → version of a lock; of several, by Python version, the first."""
    found: dict[str, str] = {}
    for package, version in re.findall(
        r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE
    ):
        found.setdefault(canonicalize_name(package), version)
    return found


def test_no_file_names_a_path_of_the_machine_it_was_written_on():
    assert [relative(path) for path in texts() if MACHINE_PATHS.search(read(path))] == []


def test_no_file_names_the_package_index_of_the_machine_it_was_written_on():
    hosts = index_hosts()
    assert [relative(path) for path in texts() if any(host in read(path) for host in hosts)] == []


@table("name", LOCKS)
def test_a_lock_holds_exact_versions_with_hashes_and_no_address(name):
    text = (ROOT / "requirements" / name).read_text("utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*-[-a-z]*(index|find-links|trusted-host)", text, re.MULTILINE)
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    assert [
        entry for entry in entries if entry.strip() and not re.match(r"[\w.-]+==[\w.!+]+", entry)
    ] == []
    assert [entry for entry in entries if entry.strip() and "--hash=sha256:" not in entry] == []


@table(("name", "groups"), LOCKS.items())
def test_a_lock_fits_what_the_project_asks_for(name, groups):
    versions = locked(name)
    unfit = [
        str(wanted)
        for group in groups
        for wanted in declared(group)
        if not wanted.specifier.contains(
            versions.get(canonicalize_name(wanted.name), "0"), prereleases=True
        )
    ]
    assert unfit == [], "run make lock"


@table("name", ["runtime.txt", "extras.txt"])
def test_the_tests_run_with_the_versions_that_are_shipped(name):
    dev = locked("dev.txt")
    assert {
        name: version for name, version in locked(name).items() if dev.get(name) != version
    } == {}


def test_every_extra_is_locked_and_in_the_tests():
    extras = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    wanted = {line for lines in extras.values() for line in lines}
    names = {canonicalize_name(Requirement(line).name) for line in wanted}
    assert names <= set(locked("extras.txt"))
    assert names <= {canonicalize_name(one.name) for one in declared("dev")}


def test_every_dependency_says_why_it_is_there():
    wanted = re.compile(r'^\s*"[A-Za-z0-9._-]+[><=~!].*$', re.MULTILINE)
    lines = wanted.findall(
        PYPROJECT.read_text("utf-8")
        .split("[tool.hatch", maxsplit=1)[0]
        .split("[project]", maxsplit=1)[1]
    )
    assert len(lines) >= len(declared("dependencies")) + len(declared("dev"))
    assert [line for line in lines if not re.search(r'",\s+# \S+ \S+', line)] == []


def test_every_rule_of_the_linter_that_is_off_says_why():
    section = (
        PYPROJECT.read_text("utf-8")
        .split("[tool.ruff.lint]", maxsplit=1)[1]
        .split("[tool.ruff.format]", maxsplit=1)[0]
    )
    ignored = re.findall(
        r'^    "[A-Z]+[0-9]*",.*$', section.split("ignore = [", maxsplit=1)[1], re.MULTILINE
    )
    assert len(ignored) > 20
    assert [line for line in ignored if not re.search(r",\s+# \S+ \S+", line)] == []


def comments(path: Path) -> list[str]:
    with path.open("rb") as file:
        return [
            token.string
            for token in tokenize.tokenize(file.readline)
            if token.type == tokenize.COMMENT
        ]


EXPLAINED = re.compile(r"# (noqa: [A-Z0-9, ]+|type: ignore\[[a-z-, ]+\]) +[#-] \S+ \S+")


MARK = re.compile(r"# *(noqa|type: *ignore)")


def test_every_exception_from_linter_and_types_says_why():
    marked = [path for path in python_files("proxy", "tests", "bench") if MARK.search(read(path))]
    assert len(marked) > 50
    assert [
        f"{relative(path)}: {comment}"
        for path in marked
        for comment in comments(path)
        if MARK.match(comment) and not EXPLAINED.match(comment)
    ] == []


def test_the_docstring_of_every_room_is_its_design_note():
    rooms = [path for path in python_files("proxy") if path.name == "__init__.py"]
    assert [
        relative(path)
        for path in rooms
        if len((ast.get_docstring(parsed(path)) or "").splitlines())
        < (3 if PACKAGE in {path.parent, path.parent.parent} else 1)
    ] == [], "say why the room exists and what it may touch"


def test_every_file_of_the_program_says_what_it_is():
    assert [
        relative(path) for path in python_files("proxy") if not ast.get_docstring(parsed(path))
    ] == []


def test_json_files_are_json():
    for path in texts():
        if path.suffix == ".json":
            json.loads(path.read_text("utf-8"))


async def test_a_table_tries_all_rows_and_tells_which_fail():
    tried: list[tuple[int, int]] = []

    @table("one, two", [(1, 1), (2, 3), (4, 5), (6, 6)])
    def compared(base, one, two):
        tried.append((one, two))
        assert base + one == base + two

    @table("one", [ValueError, KeyError])
    async def refused(one):
        with pytest.raises(ValueError, match=r"^$"):
            raise one

    @table("one", ["1", "x"])
    def raised(one):
        with pytest.raises(ValueError, match="invalid literal"):
            int(one)

    with pytest.raises(ExceptionGroup, match="2 of 4 rows failed") as group:
        compared(base=1)
    assert tried == [(1, 1), (2, 3), (4, 5), (6, 6)]
    notes = [note for fault in group.value.exceptions for note in fault.__notes__]
    assert notes == ["row 1: one=2, two=3", "row 2: one=4, two=5"]
    with pytest.raises(ExceptionGroup, match="1 of 2 rows failed"):
        await refused()
    with pytest.raises(BaseExceptionGroup, match="1 of 2 rows failed") as other:
        raised()
    assert other.value.exceptions[0].__notes__ == ["row 0: one='1'"]
