"""``domicile serve``: the listeners, until SIGTERM or Ctrl-C."""

import os
import sys
from typing import Final

from proxy.cli.command import OK, Arguments, Command
from proxy.config import Settings, load

#: Seconds that requests under way are given to finish after SIGTERM; Kubernetes allows 30 by default.
_DRAIN: Final = 20.0


def run(arguments: Arguments) -> int:
    """Serve until told to stop; exit status 0 after a clean end."""
    settings = load(arguments.config, os.environ)
    from proxy.cli.process import run_on_uvloop
    from proxy.composition.guard import raise_file_limit
    from proxy.telemetry import logs

    logs.configure(logs.Style(settings.log.level, settings.log.format, strict=False))
    raise_file_limit()
    return run_on_uvloop(serve(settings))


async def serve(settings: Settings) -> int:
    """Start, wait for a signal, drain, stop."""
    import asyncio
    import signal

    from proxy.bootstrap import running
    from proxy.cli.banner import announce
    from proxy.cli.process import stop_signal
    from proxy.telemetry import logs

    log = logs.logger("serve")
    stop, loop = stop_signal(), asyncio.get_running_loop()
    early = asyncio.Event()  # a SIGHUP from before there is anything to load again; unhandled, it would end the process
    loop.add_signal_handler(signal.SIGHUP, early.set)
    reloads: set[asyncio.Task[None]] = set()  # a task that nobody holds may vanish before it is done
    async with running(settings) as started:
        announce(started.rules.runtime.rules, sys.stderr)

        async def again() -> None:
            await started.reloader.reload()
            await started.redeclare()
            await started.guard.reload()

        def reload() -> None:
            started.renew()
            task = asyncio.create_task(again())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        loop.add_signal_handler(signal.SIGHUP, reload)
        if early.is_set():
            reload()
        await stop
        log.info("stopping: requests under way may finish")
        await started.gateway.drain(_DRAIN)
    log.info("stopped")
    return OK


COMMAND: Final = Command(
    summary="Serve: the redacting proxy, the vault's own interface and the admin listener, until SIGTERM or Ctrl-C.",
    example="domicile serve --config domicile.yaml",
    run=run,
)
