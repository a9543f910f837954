"""``domicile serve``: the listeners, until SIGTERM or Ctrl-C."""

import contextlib
import fcntl
import gc
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from proxy.cli import SUMMARIES
from proxy.cli.command import (
    FAULT,
    OK,
    Arguments,
    Command,
    argument,
    argument_list,
    count_noun,
    number_option,
    parsed_by,
    printable,
)
from proxy.config import Settings, load_settings
from proxy.config.document import variable
from proxy.errors import Code, VaultError
from proxy.net.sockets import inherited
from proxy.redactor.rules import Endpoint, RuleSet, Unmatched

if TYPE_CHECKING:
    import asyncio

    from proxy.bootstrap.rules import Overrides
    from proxy.cli.ending import Times

#: Seconds that requests under way are given to finish after SIGTERM; Kubernetes allows 30 by
#: default.
_DRAIN: Final = 20.0
#: Most workers: with one more while one is replaced, as many instances as may share a vault.
_MOST: Final = 63
#: Characters of the path of the folder where workers meet, so that their sockets' names fit.
_LONGEST: Final = 90


def run(arguments: Arguments) -> int:
    """Serve until told to stop; exit status 0 after a clean end."""
    variables = {
        variable(name): value
        for name, value in (("rules", arguments.rules), ("country", arguments.country))
        if value is not None
    }
    settings = load_settings(arguments.config, {**os.environ, **variables})
    sockets = inherited(os.environ, os.getpid())
    if arguments.supervised or arguments.workers:
        return _supervised(settings, arguments, variables, sockets)
    gc.disable()  # to look through what is imported takes an eighth of a start, and finds 0.6 MB
    try:
        import proxy.bootstrap.instance  # noqa: F401  # what serves, all of it
        from proxy.bootstrap.api import hide_secrets
        from proxy.bootstrap.edge import raise_file_limit
        from proxy.bootstrap.rules import Overrides
        from proxy.cli.ending import Times
        from proxy.cli.supervisor import run_on_uvloop, which_worker

        gc.freeze()  # nor does the collection at the end of the start look at it
    finally:
        gc.enable()
    settings = replace(settings, worker=which_worker())
    _begin_log(settings)
    hide_secrets(settings)
    raise_file_limit()
    overrides = Overrides({}, arguments.upstream or "", sockets)
    times = Times(threading.Event())
    try:
        return run_on_uvloop(serve(settings, overrides, times))
    finally:
        times.over.set()


def _begin_log(settings: Settings) -> None:
    from proxy.telemetry import logs

    style = settings.log.format
    if style == "auto":
        style = "text" if sys.stderr.isatty() else "json"
    number = 0 if settings.worker is None else settings.worker.number
    logs.configure(
        logs.Style(settings.log.level, style, strict=False, worker=number, span=logs.SPAN)
    )
    logs.log_crashes()


def _supervised(
    settings: Settings,
    arguments: Arguments,
    variables: Mapping[str, str],
    sockets: tuple[tuple[str, int], ...],
) -> int:
    """Keep the listening sockets, and have other processes serve at them."""
    import asyncio

    from proxy.cli.supervisor import Crew, supervise
    from proxy.storage import may_be_shared

    count = arguments.workers or 1
    fronts = count > 1 and not may_be_shared(settings.store.uri)
    if count > 1:
        _refuse_several(settings, fronts=fronts)
    _begin_log(settings)
    os.environ.update(variables)
    words = ["serve"]
    for name, value in (("--config", arguments.config), ("--upstream", arguments.upstream)):
        if value is not None:
            words += [name, str(value)]
    if count == 1:
        return asyncio.run(supervise(settings, words, sockets))
    with _meeting_place(settings) as folder:
        team = Crew(count, folder, fronts=fronts)
        return asyncio.run(supervise(settings, words, sockets, team))


def _refuse_several(settings: Settings, *, fronts: bool) -> None:
    """Raise ``VaultError(BAD_SETTINGS)`` for what several processes cannot do."""
    if settings.remote.vault is not None:
        raise VaultError(
            Code.BAD_SETTINGS,
            "Workers share a vault of this machine, and remote.vault names one elsewhere: start "
            "several instances, or leave out --workers.",
        )
    if settings.audit.stdout and not fronts:
        raise VaultError(
            Code.BAD_SETTINGS,
            "Each worker writes an audit log of its own, and on one standard output nobody could "
            "tell them apart: ship them with audit.syslog, or leave out --workers.",
        )


@contextlib.contextmanager
def _meeting_place(settings: Settings) -> Iterator[Path]:
    """An empty folder that this user alone may enter, for the length of a block."""
    folder = settings.data / "workers"
    if len(str(folder)) > _LONGEST:
        with tempfile.TemporaryDirectory(prefix="domicile-") as name:
            yield Path(name)
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise VaultError(
            Code.NOT_WRITABLE,
            f"Workers cannot meet in {folder} ({error.strerror}): end others that do, or name "
            "another folder with the setting data.",
        ) from error
    try:
        for left in folder.iterdir():  # by a service that was killed
            left.unlink()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


async def serve(settings: Settings, overrides: "Overrides", times: "Times | None" = None) -> int:
    """Start, wait for a signal, drain, stop; start again where replicas took this one for dead.

    ``times``: limits of the end of the process after the signal; ``None``: it may last.
    """
    import asyncio

    from proxy.cli.ending import end_in_time
    from proxy.cli.supervisor import stop_signal
    from proxy.storage import may_be_shared
    from proxy.telemetry import logs

    stop, gone, log = stop_signal(), asyncio.Event(), logs.logger("serve")
    if times is not None:
        loop = asyncio.get_running_loop()
        stop.add_done_callback(lambda _: end_in_time(loop, times))
    # a parent that holds the sockets starts it again itself
    rejoins = may_be_shared(settings.store.uri) and not overrides.sockets
    while True:
        try:
            status = await _serve(settings, overrides, stop, gone)
            if not gone.is_set():
                return status
        except asyncio.CancelledError:
            if not stop.done():
                raise
            log.info("stopped before the start was over")
            return OK
        except VaultError:  # of what closing would still write, too
            if not gone.is_set():
                raise
        if not rejoins:
            log.error("another instance has taken over the vault, and this one ends")
            return FAULT
        log.error("the other instances took this one for dead: it starts again")
        gone.clear()


async def _serve(
    settings: Settings, overrides: "Overrides", stop: "asyncio.Future[None]", gone: "asyncio.Event"
) -> int:
    import asyncio
    import signal

    from proxy.bootstrap.instance import serving
    from proxy.cli.supervisor import supervised, tell_served
    from proxy.net.server import ON_ITS_WAY
    from proxy.telemetry import logs

    log, loop, starting = logs.logger("serve"), asyncio.get_running_loop(), asyncio.current_task()
    # a SIGHUP from before there is anything to load again; unhandled, it would end the process
    early = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, early.set)
    # a task without a reference may vanish before it is done
    reloads: set[asyncio.Task[None]] = set()

    def give_up(_: "asyncio.Future[None]") -> None:
        if starting is not None:
            starting.cancel()

    # a start may wait for long, for a database or for another instance
    stop.add_done_callback(give_up)
    async with serving(settings, overrides) as started:
        stop.remove_done_callback(give_up)
        announce(started.rules.runtime.rules, sys.stderr)
        looking = asyncio.create_task(
            look_for_applications(started.rules.runtime.rules, sys.stderr)
        )

        def reload() -> None:
            if stop.done():
                return  # what it would be loaded into is being closed
            task = asyncio.create_task(started.reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        loop.add_signal_handler(signal.SIGHUP, reload)
        if early.is_set():
            reload()
        if (line := supervised()) is not None:
            tell_served(line, stop)
        taken_over = asyncio.create_task(started.taken_over.wait())
        await asyncio.wait((stop, taken_over), return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        if taken_over.done():
            gone.set()
            return OK  # nothing under way can come to a good end any more
        taken_over.cancel()
        log.info("stopping: requests under way may finish")
        # the next process accepts at the same sockets: callers do not notice
        late = ON_ITS_WAY if overrides.sockets else 0.0
        await started.gateway.drain(_DRAIN, late)
        if started.owner is not None:
            await started.owner.drain(_DRAIN)
    log.info("stopped")
    return OK


def _address(text: str) -> str:
    from proxy.redactor.load.parsers import parse_upstream

    return parsed_by(parse_upstream)(text)


_arguments: Final = argument_list(
    argument("--upstream", type=_address, metavar="URL",
        help="the application, in place of the address in the rule file; without rule files "
        "everything passes to it, and the log tells what to write rules for"),
    argument("--supervised", action="store_true",
        help="keep the listening sockets in a process of their own, which starts the serving one "
        "again when it ends, and replaces it on SIGUSR2; callers wait meanwhile"),
    argument("--workers", metavar="N",
        type=number_option(1, _MOST, f"write a whole number from 1 to {_MOST}"),
        help="serve with so many processes, supervised likewise; where the vault is not in "
        "PostgreSQL with replicas=true, one more owns it"),
    argument("--rules", metavar="DIR", help="the setting rules"),
    argument("--country", metavar="CC", help="the setting country, such as se"),
)  # fmt: skip

COMMAND: Final = Command(SUMMARIES["serve"],
    "domicile serve --upstream http://127.0.0.1:3000 --rules rules --country se", run, _arguments,
    data=False)  # fmt: skip


# Output of ``domicile serve`` at the start: active rules, their applications, and the treatment of
# all other requests.

_FATES: Final[dict[Unmatched, str]] = {
    Unmatched.REPORT: (
        "passes unchanged; each shape of a path is told once in the log, with the kinds of "
        "values suspected in it"
    ),
    Unmatched.PASS: "passes unchanged, and nothing is said of it",
    Unmatched.DENY: "is refused",
}


def announce(rules: RuleSet, stream: TextIO) -> None:
    """Show the active rules: a page on a terminal, log lines elsewhere."""
    if stream.isatty():
        print(printable(banner(rules)), file=stream, flush=True)
        return
    from proxy.telemetry import logs

    log = logs.logger("serve")
    log.info(
        "active rules", version=rules.version, files=list(rules.files), count=len(rules.operations)
    )
    for endpoint in rules.endpoints:
        operations, passed = _counts(rules, endpoint)
        log.info(
            "active endpoint",
            endpoint=endpoint.name,
            address=endpoint.upstream,
            count=operations,
            passed=passed,
            unmatched=str(endpoint.unmatched),
        )
    if not rules.endpoints:
        log.warning(
            "no rules: the proxy serves no application, the vault's own interface alone is in use"
        )
    if is_demo(rules):
        log.warning(
            "these are the rules of the demo, for its sample application", files=list(rules.files)
        )


async def look_for_applications(rules: RuleSet, stream: TextIO) -> None:
    """Warn on a terminal of applications that nothing answers for, such as after a wrong port.

    Elsewhere they may well start later, and requests that fail tell the address.
    """
    from proxy.bootstrap.network import unreachable_applications
    from proxy.telemetry import logs

    for endpoint in await unreachable_applications(rules) if stream.isatty() else ():
        logs.logger("serve").warning(
            "nothing answers at the address of the application: does it run, and is the address "
            "in the rule file right?",
            endpoint=endpoint.name,
            address=endpoint.upstream,
        )


def banner(rules: RuleSet) -> str:
    """Return the active rules as text for people."""
    lines = [f"  Rules      {file}" for file in rules.files]
    for endpoint in rules.endpoints:
        operations, passed = _counts(rules, endpoint)
        protected = count_noun(operations, "operation")
        lines += [
            f"  Endpoint   {endpoint.name}{_selected(endpoint)} -> {endpoint.upstream}",
            f"             {protected} protected, {passed} passed on purpose",
            f"             all else: {_FATES[endpoint.unmatched]}",
        ]
    if not rules.endpoints:
        lines.append(
            "  Rules      none: the proxy serves no application, the vault's own interface alone "
            "is in use"
        )
    if is_demo(rules):
        lines.append(
            "  Note       these are the rules of the demo, for its sample application: write "
            "your own, and name them with the setting rules"
        )
    return "\n".join(["", *lines, ""])


def _counts(rules: RuleSet, endpoint: Endpoint) -> tuple[int, int]:
    """Operations of an endpoint, and rules that let requests pass."""
    return (
        sum(rule.endpoint.name == endpoint.name for rule in rules.operations),
        sum(rule.endpoint.name == endpoint.name for rule in rules.on_purpose),
    )


def _selected(endpoint: Endpoint) -> str:
    """Describe how requests of an endpoint are recognized."""
    hosts = f" ({', '.join(sorted(endpoint.hosts))})" if endpoint.hosts else ""
    return f"{hosts} {endpoint.prefix}".rstrip()


def is_demo(rules: RuleSet) -> bool:
    """Whether these are the rules of ``domicile demo``, which protect its sample application."""
    return any(
        (rule.endpoint.name, rule.endpoint.upstream, rule.label)
        == ("contacts", "http://127.0.0.1:3000", "POST /api/contacts")
        for rule in rules.operations
    )
