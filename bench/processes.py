"""Processes of a benchmark: started on free ports, waited for, watched by their processor time,
stopped by their id.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"  #: git-ignored
#: Seconds that a start may take, on a machine that gives others their turns, too.
START = 180.0


class Unavailable(Exception):
    """A peer, or our own command, cannot be had or does not start here; the text says why, in one
    sentence.
    """


@dataclass(frozen=True, slots=True)
class Running:
    """A started process that listens on ``port`` of 127.0.0.1."""

    name: str
    port: int
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        """The id of the process that was started; its children count with it."""
        return self.process.pid


def free_port() -> int:
    """A port of 127.0.0.1 for a server that allows its address to be used again, as all of ours and
    the peers do.

    A descriptor holds it until this process ends, so that no other program gets it as its free port
    before its owner starts; nobody listens there meanwhile.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    holder.detach()
    return port


def cores() -> tuple[set[int], set[int]]:
    """The cores of the proxy under test and those of everything else; the same where there is one,
    or no choice.
    """
    if not hasattr(os, "sched_getaffinity"):
        return set(), set()
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return set(allowed), set(allowed)
    return {allowed[0]}, set(allowed[1:])


@contextlib.contextmanager
def on(chosen: set[int]) -> Iterator[None]:
    """Children that are started in this block run on the ``chosen`` cores."""
    if not chosen:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def started(
    name: str, command: Sequence[str], port: int, folder: Path, *, proxy: bool | None = True
) -> Iterator[Running]:
    """Run ``command`` until the block ends, once it accepts connections on ``port``.

    ``proxy`` gives it the core of the proxy under test; ``None`` leaves it all of them. What it
    prints goes to ``folder``.

    Raises:
        Unavailable: it ended, or did not listen within three minutes; with the end of what it printed.
    """
    ours, others = cores()
    log = folder / f"{name}.log"
    with log.open("wb") as output, on(set() if proxy is None else ours if proxy else others):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=_environment(),
        )
    running = Running(name, port, process, log)
    try:
        _await_port(running)
        yield running
    finally:
        _stop(process)


def _environment() -> dict[str, str]:
    """That of this process, without settings of Domicile in it, which would outdo the settings
    file.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOMICILE__")}
    # the load is one client
    return kept | {"PYTHONPATH": str(ROOT), "DOMICILE__LIMITS__REQUESTS_PER_SECOND": "0"}


def _await_port(running: Running) -> None:
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and running.process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", running.port), 1):
            return
        time.sleep(0.02)
    last = running.log.read_text(errors="replace").strip().splitlines()[-3:]
    ended = running.process.poll()
    how = (
        f"did not listen within {START:.0f} seconds"
        if ended is None
        else f"ended with status {ended}"
    )
    raise Unavailable(f"{running.name} {how}: {' / '.join(last) or 'it printed nothing'}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def family(pid: int) -> list[int]:
    """The process and its living descendants; only itself where the machine has no ``/proc``."""
    parents: dict[int, int] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(entry.parent.name)] = int(_fields(entry)[1])
    found = [pid]
    for one in found:
        found.extend(child for child, parent in parents.items() if parent == one)
    return found


def processor_seconds(pids: Sequence[int]) -> float | None:
    """Processor time of these processes, user and system, all threads; ``None`` where the machine
    has no ``/proc``.
    """
    if not (_PROC / "self/stat").exists():
        return None
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = _fields(_PROC / str(pid) / "stat")
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICK


def resident(pid: int) -> float | None:
    """MB of memory that the process has in use (``VmRSS``, proc(5)); ``None`` where the machine has
    no ``/proc``.
    """
    status = _PROC / str(pid) / "status"
    if not status.exists():
        return None
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def _fields(stat: Path) -> list[str]:
    """What follows the command's name, which may hold spaces: state, parent, …, utime at 11, stime
    at 12 (proc(5)).
    """
    return stat.read_text().rpartition(")")[2].split()
