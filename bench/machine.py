"""The machine and the versions that a figure belongs to; no host name, no address, no path."""

import importlib.metadata
import os
import platform
import sqlite3
from pathlib import Path

from bench import peers
from bench.processes import CACHE, cores

_LIBRARIES = ("aiohttp", "httptools", "uvloop", "msgspec", "cryptography", "cffi")


def description() -> dict[str, str]:
    """What a reader needs to compare figures, by name, in the order to be shown."""
    ours, others = cores()
    apart = ours and not ours & others
    return {
        "Processor": _cpu_model(),
        "Cores": (
            f"{_usable_cores()} usable; the proxy under test "
            f"{'has one for itself' if apart else 'shares all of them'}"
        ),
        "Memory": _memory(),
        "System": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Disk of the vault": _file_system(),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "SQLite": sqlite3.sqlite_version,
        "Libraries": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES),
        "nginx": peers.nginx_version() or "not installed",
        "mitmproxy": peers.mitmproxy_version() or "not installed",
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.processor() or "unknown")


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _file_system() -> str:
    """The type of file system below the cache folder, because a durable write costs what the disk
    takes.
    """
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    points = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    over = [(len(point), kind) for point, kind in points if CACHE.is_relative_to(point)]
    return max(over, default=(0, "unknown"))[1]
