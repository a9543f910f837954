"""Resident functions that tests install, the folder that makes an environment find them, and the
layers of isolation that this machine has for them.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from proxy.functions.sandbox import INDISPENSABLE
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

#: The code of the functions; each is named like what it is for.
CODE = '''
import errno, os, time
from decimal import Decimal

STATE = []

def echo(handle, arguments):
    """Gives back what it is given."""
    print("a secret on standard output")
    return arguments

def found(handle, arguments):
    """Asks the handle, twice."""
    return [handle.get("contact", arguments["key"]), handle.find("contact")["meta"]]

def written(handle, arguments):
    handle.create("contact", [{"id": "f1", "name": "Fia"}])
    handle.update("contact", [{"id": "f1", "name": "Fia Ek"}])
    name = handle.get("contact", "f1")["name"]
    handle.delete("contact", "f1")
    return [name, handle.get("contact", "f1")]

def refused(handle, arguments):
    try:
        return handle.find("unknown")
    except Exception as error:
        return [type(error).__name__, error.status, error.code]

def raises(handle, arguments):
    raise ValueError("the secret is " + arguments["secret"])

def hungry(handle, arguments):
    return len(bytes(1 << 40)) or len([bytes(1 << 20) for _ in range(1 << 20)])

def sleepy(handle, arguments):
    time.sleep(600)

def ends(handle, arguments):
    os._exit(3)

def not_json(handle, arguments):
    return object()

def surroundings(handle, arguments):
    """What of the service is within reach: environment, state of an earlier call, open files."""
    STATE.append(1)
    return {"environment": sorted(os.environ), "state": len(STATE), "open": sum(map(is_open, range(256)))}

def is_open(descriptor):
    try:
        return bool(os.fstat(descriptor))
    except OSError:
        return False

def attempt(handle, arguments):
    """Runs a text; tells the error of the system where it meets one, else what it called result."""
    scope = {}
    try:
        exec(arguments["code"], scope)
    except OSError as error:
        return {"refused": errno.errorcode[error.errno]}
    return {"result": scope.get("result")}

def exact(handle, arguments):
    return Decimal("0.1") + arguments["more"]

def oldest(handle, arguments):
    """The greatest age in a city."""
    options = {"sort": [{"age": "desc"}], "limit": 1}
    found = handle.find("contact", {"city": arguments["city"]}, options)["data"]
    return found[0]["age"] if found else None
'''

NAMES = (
    "echo", "found", "written", "refused", "raises", "hungry", "sleepy", "ends", "not_json", "surroundings", "exact",
    "attempt", "oldest",
)  # fmt: skip


#: Writes nothing, so any folder serves as its own.
_CONFINED = """
import json
from proxy.functions.sandbox import confine
print(json.dumps(confine(".", network=False, user=None)))
"""


@cache
def layers() -> Mapping[str, str]:
    """By layer of isolation why it does not hold on this machine, empty where it does."""
    words = [sys.executable, "-c", _CONFINED]
    answer = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, timeout=120)
    reasons: dict[str, str] = json.loads(answer.stdout)
    return reasons


def isolated() -> bool:
    """Whether this machine isolates functions as ``functions.isolation: required`` asks for."""
    return not any(layers()[name] for name in INDISPENSABLE)


def require(layer: str, unavailable: Unavailable) -> None:
    """Skip the test where this machine lacks that layer."""
    if reason := layers()[layer]:
        unavailable(f"the isolation of functions by {layer}", f"the kernel lacks it ({reason})")


def install(folder: Path, points: Mapping[str, str] | None = None, package: str = "sample") -> Path:
    """Put the functions into a folder as an installed package; give it to ``PYTHONPATH`` or
    ``sys.path``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{package}_functions.py").write_text(CODE)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    points = (
        points if points is not None else {name: f"{package}_functions:{name}" for name in NAMES}
    )
    lines = "".join(f"{name} = {target}\n" for name, target in points.items())
    (info / "entry_points.txt").write_text(f"[domicile.functions]\n{lines}")
    return folder
