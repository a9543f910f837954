"""The resident functions of an instance: their runner, and reports on their isolation."""

import asyncio
import os
import pwd
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from proxy.api.wire import api_status
from proxy.config import Settings
from proxy.errors import Code, Detail, VaultError, bad_setting
from proxy.functions.runner import Bounds, Runner
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics

_log = logs.logger("functions")


def runner(settings: Settings) -> Runner:
    """Return the runner of the installed resident functions.

    Raises ``VaultError(BAD_SETTINGS)`` for a function that is not callable, and for an unknown
    user.
    """
    terms = settings.functions
    bounds = Bounds(
        terms.time / 1000,
        terms.memory,
        terms.running,
        network=terms.network,
        user=None if terms.user is None else _user(terms.user),
        isolated=terms.isolation == "required",
        private=tuple(_private(settings)),
    )
    return Runner(installed(), bounds, lambda error: api_status("", error.code))


async def start_functions(functions: Runner, metrics: Metrics) -> None:
    """Make the first process ready, and say in log and metrics which layers isolate it.

    Raises as ``Runner.start``.
    """
    await functions.start()
    for layer, reason in functions.layers.items():
        metrics.cell("domicile_functions_isolation", layer).value = float(not reason)
        if reason:
            _log.warning("resident functions lack a layer of isolation", layer=layer, reason=reason)
        else:
            _log.info("resident functions have a layer of isolation", layer=layer)
    for fault in functions.faults:
        _log.warning("resident functions are not isolated", source=fault.source, text=fault.text)


def check_functions(settings: Settings) -> str:
    """Count the functions and name their isolation; raises as a start would."""

    async def first_process() -> None:
        try:
            await functions.start()
        finally:
            await functions.close()

    functions = runner(settings)
    if not functions.functions:
        return ""
    asyncio.run(first_process())
    layers = (f"no {name}: {fault}" if fault else name for name, fault in functions.layers.items())
    faults = "".join(f"; {fault.text}" for fault in functions.faults)
    return f"{len(functions.functions)} installed; isolated by {', '.join(layers)}{faults}"


def _user(name: str) -> tuple[int, int]:
    """User and group of that name or number."""
    if os.geteuid() != 0:
        raise _bad_user("only root may run functions as another user: remove it")
    try:
        account = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        raise _bad_user("there is no such user: name one that this machine has") from None
    return account.pw_uid, account.pw_gid


_bad_user = partial(
    bad_setting, "Resident functions cannot run as the settings ask for.", "functions.user"
)


def _private(settings: Settings) -> Iterator[Path]:
    """The files and folders that hold keys, secrets and sealed data."""
    tls, upstream = settings.listen.tls, settings.upstream.tls
    yield from (settings.data, settings.audit.folder)
    yield from filter(None, (settings.files.folder, settings.store.file))
    yield from tls.key or tls.certificate
    if upstream.key is not None:
        yield upstream.key
    if settings.auth.first_client is not None:
        yield settings.auth.first_client
    sources = settings.keys, settings.admin.metrics_token, settings.auth.introspection_credentials
    for source in sources:
        if source is not None and source.source == "file":
            yield Path(source.locator)


ENTRY_POINT_GROUP = "domicile.functions"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def installed() -> Mapping[str, str]:
    """Target (``package.module:name``) by name of the function, in order of the alphabet.

    Raises ``VaultError(BAD_SETTINGS)`` with one detail per fault: a name that cannot stand in a
    path, one that two packages give, a target without a function.
    """
    targets: dict[str, str] = {}
    faults: list[Detail] = []
    if not _may_be_declared():
        return targets
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=ENTRY_POINT_GROUP)):
        package = point.dist.name if point.dist is not None else "a package without a name"
        source = f"{package}: {point.name} = {point.value}"
        if not _NAME.fullmatch(point.name):
            faults.append(
                Detail(
                    source,
                    "a name has letters, digits, - and _, 64 at most, and begins with a letter",
                )
            )
        elif not _TARGET.fullmatch(point.value):
            faults.append(Detail(source, "write package.module:function"))
        elif targets.setdefault(point.name, point.value) != point.value:
            faults.append(
                Detail(source, "another package has a function of that name: remove one of the two")
            )
    if faults:
        raise VaultError(
            Code.BAD_SETTINGS, "Functions that are installed cannot be used.", tuple(faults)
        )
    return targets


def _may_be_declared() -> bool:
    """Whether a package on the path may declare functions. To ask each for its entry points, and to
    import what does, takes a start 30 ms; hardly any has such a package.
    """
    group = ENTRY_POINT_GROUP.encode()
    folders = {Path(name) for name in sys.path}
    if any(folder.is_file() for folder in folders):
        return True  # an archive, which only ``importlib`` reads
    files = [file for folder in folders for file in folder.glob("*-info/entry_points.txt")]
    eggs = [folder / "EGG-INFO/entry_points.txt" for folder in folders]
    try:
        return any(group in file.read_bytes() for file in (*files, *eggs) if file.is_file())
    except OSError:
        return True
