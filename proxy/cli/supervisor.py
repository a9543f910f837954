"""``domicile serve --supervised``: a small process that keeps the listening sockets and starts the
serving one anew when it ends or is to be replaced.

Callers that connect meanwhile wait in the kernel's queue and are served by the next process; nobody
is refused. One process serves at a time, for one owns the vault; so a restart takes as long as a
start, and a start begins when the process before has answered its last request.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Final

from proxy.config import Settings
from proxy.net.sockets import INHERITED, open_sockets
from proxy.telemetry import logs

_log = logs.logger("serve")

#: What serves.
_PROGRAM: Final = (sys.executable, "-m", "proxy")
#: Environment variable: the file descriptor on which a served process says that it serves, and sees
#: the end of its supervisor.
_LINE: Final = "DOMICILE_SUPERVISOR"
_SERVES: Final = b"serves\n"

#: Seconds before the next try after a process that ended before it served: at first, and at most.
_PAUSES: Final = (0.1, 5.0)
#: Seconds after which a process that does not end by itself is killed: longer than it gives its
#: requests.
_PATIENCE: Final = 28.0


async def supervise(settings: Settings, arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; the exit status of the process that served last.

    SIGHUP goes on to it, SIGUSR2 replaces it. ``arguments`` are those of the command line behind
    ``domicile``. Raises ``VaultError`` (PORT_IN_USE).
    """
    sockets = [
        (name, one)
        for name, address in settings.listen.addresses().items()
        for one in open_sockets(name, address)
    ]
    try:
        return await _Supervisor(sockets, arguments).run()
    finally:
        for _, one in sockets:
            one.close()


class _Supervisor:
    """Keeps one process at work."""

    def __init__(
        self, sockets: Sequence[tuple[str, socket.socket]], arguments: Sequence[str]
    ) -> None:
        self._numbers = [one.fileno() for _, one in sockets]
        self._named = ",".join(f"{name}:{one.fileno()}" for name, one in sockets)
        self._arguments = arguments
        self._process: Process | None = None
        self._stop, self._replace = asyncio.Event(), asyncio.Event()

    async def run(self) -> int:
        """See ``supervise``."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGUSR2, self._replace.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        pause, served_once = _PAUSES[0], False
        while True:
            process, line = await self._start()
            serves = await self._serves(process, line)
            status = await self._until_over(process) if serves else await self._ended(process)
            line.close()
            if self._stop.is_set() or not (serves or served_once):
                return status
            served_once = True
            if serves:
                pause = _PAUSES[0]
            else:
                _log.error(
                    "the process that was to serve ended, and is started again", count=status
                )
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause)
                    return status
                pause = min(2 * pause, _PAUSES[1])

    async def _start(self) -> tuple[Process, socket.socket]:
        """A new process, and the line to it."""
        line, far = socket.socketpair()
        line.setblocking(False)
        with far:
            process = self._process = await asyncio.create_subprocess_exec(
                *_PROGRAM, *self._arguments,
                env={**os.environ, INHERITED: self._named, _LINE: str(far.fileno())},
                pass_fds=[*self._numbers, far.fileno()],
            )  # fmt: skip
        return process, line

    async def _serves(self, process: Process, line: socket.socket) -> bool:
        """Wait until the process serves; false: it ended before, perhaps because it was to stop."""
        loop = asyncio.get_running_loop()
        word = asyncio.create_task(loop.sock_recv(line, len(_SERVES)))
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait((word, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if word.done() and not self._stop.is_set():
            return word.exception() is None and word.result() == _SERVES
        word.cancel()
        _signal(process, signal.SIGTERM)
        return False

    async def _until_over(self, process: Process) -> int:
        """The exit status of a process that serves, when it ended or was told to."""
        end = asyncio.create_task(process.wait())
        while True:
            waits = [asyncio.create_task(one.wait()) for one in (self._stop, self._replace)]
            await asyncio.wait((end, *waits), return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()
            if end.done():
                if not self._stop.is_set():
                    _log.error(
                        "the process that served ended, and is started again", count=end.result()
                    )
                return end.result()
            if self._stop.is_set():
                break
            self._replace.clear()
            if await self._startable():
                _log.info("the process that serves is replaced")
                break
        _signal(process, signal.SIGTERM)
        return await self._ended(process)

    async def _ended(self, process: Process) -> int:
        """Wait for the end of a process, but not for ever."""
        try:
            return await asyncio.wait_for(process.wait(), _PATIENCE)
        except TimeoutError:
            _signal(process, signal.SIGKILL)
            return await process.wait()

    async def _startable(self) -> bool:
        """Whether settings, rules and keys as they are now would let a process start: else the one
        that serves goes on.
        """
        words = [word for word in self._arguments[1:] if word]
        config = words[words.index("--config") :][:2] if "--config" in words else []
        check = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "proxy", "check", *config, stdout=asyncio.subprocess.DEVNULL
        )
        if await check.wait() == 0:
            return True
        _log.error(
            "a new process could not start, and the one that serves goes on: "
            "`domicile check` says why"
        )
        return False

    def _reload(self) -> None:
        if self._process is not None:
            _signal(self._process, signal.SIGHUP)


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


# The other end: what the process that serves tells its supervisor.


def supervised() -> socket.socket | None:
    """The line to the supervisor of this process; ``None``: it has none."""
    number = os.environ.pop(_LINE, "")
    return socket.socket(fileno=int(number)) if number else None


def tell_served(line: socket.socket, stop: "asyncio.Future[None]") -> None:
    """Say that this process serves; it stops when its supervisor is gone, for the next one needs
    the vault.
    """

    def look() -> None:
        with contextlib.suppress(BlockingIOError):
            if line.recv(16) == b"":
                asyncio.get_running_loop().remove_reader(line)
                if not stop.done():
                    stop.set_result(None)

    line.setblocking(False)
    line.set_inheritable(False)
    line.send(_SERVES)
    asyncio.get_running_loop().add_reader(line, look)
