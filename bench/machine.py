"""The machine and the versions that a figure belongs to; no host name, no address, no path."""

import importlib.metadata
import os
import platform
import sqlite3
import sys
import sysconfig
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench import peers
from bench.processes import CACHE, ROOT, cores
from proxy.redactor.json.native import find_leaves

_PACKAGES = Path("/var/lib/dpkg/info")
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
        "Other load": _OTHER_LOAD,
        "Memory": _memory(),
        "System": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Disk of the vault": _file_system(),
        "Python": _python(),
        "Native code": "compiled (make native)" if find_leaves else "none: Python finds the values",
        "SQLite": sqlite3.sqlite_version,
        "Libraries": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES),
        "nginx": peers.nginx_version() or "not installed",
        "mitmproxy": peers.mitmproxy_version() or "not installed",
    }


def installed() -> float:
    """MB of the program and of what it needs, without its extras, compiled files included."""
    sizes = 0.0
    for name in _needed():
        files = importlib.metadata.distribution(name).files or ()
        paths = [Path(str(file.locate())) for file in files]
        sizes += sum([path.stat().st_size for path in paths if path.is_file()])
    own = [path.stat().st_size for path in (ROOT / "proxy").rglob("*") if path.is_file()]
    return (sizes + sum(own)) / 1e6


def absent() -> list[str]:
    """Modules that stand here for development alone, and not where the program is installed.

    Some libraries load others where they find them: structlog has ``rich``, of 5 MB.
    """
    needed = {*_needed(), "pip", "setuptools"}
    return sorted(
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if needed.isdisjoint(map(canonicalize_name, owners)) and module.isidentifier()
    )


def _needed() -> list[str]:
    """The program and every distribution that it needs, without its extras."""
    names = ["domicile"]
    for name in names:
        for text in importlib.metadata.distribution(name).requires or ():
            needed = Requirement(text)
            wanted = needed.marker is None or needed.marker.evaluate({"extra": ""})
            if wanted and canonicalize_name(needed.name) not in names:
                names.append(canonicalize_name(needed.name))
    return names


def _python() -> str:
    """The interpreter, and whether its build says that it was optimised by profiles (PGO).

    Debian's does not say so: ``debian/rules`` of its package asks for that beside the configuration
    (``profile-opt``), and takes the flag out of what is installed.
    """
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        how = "a PGO build"
    elif (package := _debian_package(os.path.realpath(sys.executable))) is not None:
        how = f"Debian's build ({package}), which its packaging builds with PGO"
    else:
        how = "not a PGO build, as far as its configuration tells"
    return f"{platform.python_implementation()} {platform.python_version()}, {how}"


def _debian_package(path: str) -> str | None:
    """The package of Debian that a file came with."""
    for listed in sorted(_PACKAGES.glob("python3*-minimal.list")):
        if path in listed.read_text().splitlines() and _vendor() == "debian":
            return listed.stem
    return None


def _vendor() -> str:
    try:
        return platform.freedesktop_os_release()["ID"]
    except OSError:
        return ""


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.processor() or "unknown")


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _other_load() -> str:
    """How busy the machine was before (pressure stall information): rates and latencies of a run
    beside other work tell of that work, processor times hardly do.
    """
    pressure = Path("/proc/pressure/cpu")
    if not pressure.exists():
        return "unknown"
    waited = pressure.read_text().split("avg60=", 1)[1].split()[0]
    return f"in {waited} % of the minute before, something waited for a processor"


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


#: Read before the first measure.
_OTHER_LOAD = _other_load()
