"""Environments of their own for what tests need of others: installed by the tests themselves, once,
each from a lock with hashes.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

LOCK = Path(__file__).with_name("requirements.txt")
#: The official client of hosted services of this kind; it needs versions that contradict ours.
POP_CLIENT = Path(__file__).with_name("popclient.txt")
#: OAuth 2.0 clients by different hands.
OAUTH_CLIENTS = Path(__file__).with_name("oauthclients.txt")
#: A framework that drops bytes which are no UTF-8 from paths.
LENIENT = Path(__file__).with_name("lenient.txt")
#: The applications of ``docs/guides`` that are in no other lock.
GUIDES = Path(__file__).with_name("guides.txt")
CACHE = Path(__file__).parents[3] / ".cache" / "real-applications"

_TIME = 300.0  # seconds for the slowest download that is still worth waiting for


class NotInstalled(AssertionError):
    """What is needed cannot be installed; the text says why and what to do."""


def environment(lock: Path = LOCK) -> Path:
    """The Python of the environment, installed first where it is absent.

    Processes that ask at once wait for each other.
    """
    name = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = CACHE / name
    python = folder / "bin" / "python"
    done = folder / "installed"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            _install(python, lock)
            done.touch()
    return python


def _install(python: Path, lock: Path) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        said = subprocess.run(
            [*pip, "--require-hashes", "--requirement", str(lock)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIME,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(_sentence(f"pip was not done after {_TIME:.0f} seconds")) from None
    if said.returncode:
        errors = [line for line in said.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled(_sentence((errors or [said.stderr.strip() or "pip said nothing"])[-1]))


def _sentence(why: str) -> str:
    return (
        "What stands behind or before the proxy in this test (the packages of "
        "tests/support/real) cannot be installed. The test needs "
        "the package index: look whether pip reaches it from here, then run the test again. "
        f"What was said: {why}"
    )
