"""Two resumptions of one snapshot of a machine: copies of a process that cannot tell that they are
copies.
"""

import json
import subprocess
import sys
import textwrap
from functools import cache

from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

#: The bare system call copies a process past every handler of a fork, and each copy is number one
#: of a space of process numbers of its own, as the original is: libraries that compare the number
#: take it for the same process.
_CLONED = """
import ctypes, json, os, signal
_library = ctypes.PyDLL(None, use_errno=True)
_CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
_NEWPID, _NEWUSER = 0x20000000, 0x10000000

def _cloned(work, space):
    reader, writer = os.pipe()
    child = _library.syscall(_CLONE, space | signal.SIGCHLD, 0, 0, 0, 0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "no space of process numbers can be made here")
    if child == 0:
        try:
            os.write(writer, work())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer

def _snapshot():
    work()  # what would be drawn ahead is drawn
    return json.dumps([_cloned(work, _NEWPID).hex() for _ in range(2)]).encode()

"""


def two_resumptions(program: str, unavailable: Unavailable) -> list[bytes]:
    """What the function ``work`` of a program answers in each; it has run once before.

    Skips the test where this machine makes no space of process numbers.
    """
    if reason := _lacking():
        unavailable("two resumptions of one snapshot", reason)
    done = _cloned(program)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout or "null") or (done.stderr, "")
    return [bytes.fromhex(first), bytes.fromhex(second)]


@cache
def _lacking() -> str:
    """Why the least of all programs cannot be copied here, empty where it can."""
    done = _cloned("def work(): return b'-'")
    return "" if json.loads(done.stdout or "null") else done.stderr.rstrip().rpartition("] ")[2]


def _cloned(program: str) -> "subprocess.CompletedProcess[str]":
    ended = "\nprint(_cloned(_snapshot, _NEWPID | _NEWUSER).decode())\n"
    text = _CLONED + textwrap.dedent(program) + ended
    return subprocess.run(
        [sys.executable, "-c", text],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
