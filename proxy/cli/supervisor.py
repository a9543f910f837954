"""``domicile serve --supervised`` and ``--workers``: a small parent holds the sockets.

It starts the serving processes, and restarts those that end or are to be replaced.

New connections meanwhile wait in the kernel's queue for the next process that accepts; none is
refused. All processes accept at the same sockets, so connections that a dead one has not accepted
go to the others; separate sockets (``SO_REUSEPORT``) would die with it.

Where one process serves, it owns the vault: a replacement starts when the process before has
answered its last request. Where several do, the replacement starts first, as a worker with a
number that is free, and the one before ends when it serves.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.config import Settings, Worker
from proxy.net.sockets import INHERITED, local_socket, open_sockets, taken_over
from proxy.telemetry import logs

_log = logs.logger("serve")

#: What serves.
_PROGRAM: Final = (sys.executable, "-m", "proxy")
#: Environment variable: the file descriptor on which a served process says that it serves, and sees
#: the end of its supervisor.
_LINE: Final = "DOMICILE_SUPERVISOR"
#: Environment variable: number and role of a worker, and the folder where all of them meet.
_WORKER: Final = "DOMICILE_WORKER"
_SERVES: Final = b"serves\n"

#: Seconds before the next try after a process that ended before it served: at first, and at most.
_PAUSES: Final = (0.1, 5.0)
#: Seconds after which a process that does not end is killed: longer than it gives its requests.
_PATIENCE: Final = 28.0

#: Lock of all processes of a service, in the folder ``data``; seconds that a start waits for
#: orphans, longer than they give their requests, and between two looks.
_LOCK: Final = "supervised.lock"
_ORPHANS, _LOOK = 30.0, 0.05

#: Listening sockets: listener and socket of each.
Sockets = Sequence[tuple[str, socket.socket]]


async def supervise(
    settings: Settings,
    arguments: Sequence[str],
    inherited: Sequence[tuple[str, int]],
    team: "Crew | None" = None,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit status of the process that served last.

    SIGHUP is passed to all, SIGUSR2 replaces one after the other. ``arguments`` follow ``domicile``
    on the command line; ``inherited`` are sockets of systemd.

    Raises ``VaultError`` (PORT_IN_USE, BAD_SETTINGS).
    """
    sockets: list[tuple[str, socket.socket]] = []
    lock = await _after_orphans(settings.data / _LOCK)
    for name, address in settings.listen.addresses().items():
        opened = taken_over(name, address, inherited) or open_sockets(name, address)
        sockets += [(name, one) for one in opened]
    if settings.listen.socket is not None:
        sockets.append(("socket", local_socket(settings.listen.socket)))
    if team is not None and team.fronts:
        sockets.append(("owner", local_socket(team.folder / "owner")))
    try:
        return await _Supervisor(sockets, arguments, team, lock).run()
    finally:
        if lock is not None:
            os.close(lock)
        for _, one in sockets:
            one.close()
        if settings.listen.socket is not None:
            settings.listen.socket.unlink(missing_ok=True)


async def _after_orphans(path: Path) -> int | None:
    """Wait for the processes of a supervisor that was killed: they have its sockets, and its vault,
    until their last requests end. Return a lock that those of this one inherit, if there is a place
    for it; a supervisor that lives keeps its own.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:  # this process has it alone, as long as it lives
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    ends, warned = time.monotonic() + _ORPHANS, False
    while time.monotonic() < ends:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        if not warned:
            _log.warning("processes of a service that was killed have to end first")
        warned = True
        await asyncio.sleep(_LOOK)
    return lock


class Crew(NamedTuple):
    """Several processes that serve."""

    size: int  #: processes that answer callers
    folder: Path  #: where they meet
    fronts: bool = False  #: whether the vault has an owner beside them, else each owns it


class _Child(NamedTuple):
    """A process that serves, or is to."""

    process: Process
    line: socket.socket
    number: int  #: of a worker; 0: it serves alone


class _Supervisor:
    """Starts and ends processes, at one seat or at several."""

    def __init__(
        self, sockets: Sockets, arguments: Sequence[str], team: Crew | None, lock: int | None
    ) -> None:
        self._numbers = [one.fileno() for _, one in sockets] + ([] if lock is None else [lock])
        self._named = ",".join(f"{name}:{one.fileno()}" for name, one in sockets)
        self._arguments = arguments
        self._team = team
        self._children: list[_Child] = []
        self._used: set[int] = set()  #: numbers of workers
        self._seats = [_Seat(self, alone=True)] if team is None or team.fronts else []
        if team is not None:
            role = "front" if team.fronts else "replica"
            self._seats += [_Seat(self, role, alone=False) for _ in range(team.size)]
        self.stop, self._replace = asyncio.Event(), asyncio.Event()
        self.served_once = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)
        loop.add_signal_handler(signal.SIGUSR2, self._replace.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        # the first one alone: it makes missing parts, and may do work that only one may
        tasks = [asyncio.create_task(self._seats[0].keep())]
        helpers = [asyncio.create_task(one) for one in (self.served_once.wait(), self._roll())]
        await asyncio.wait((tasks[0], helpers[0]), return_when=asyncio.FIRST_COMPLETED)
        if self.served_once.is_set():
            tasks += [asyncio.create_task(seat.keep()) for seat in self._seats[1:]]
        statuses = await asyncio.gather(*tasks)
        for task in helpers:
            task.cancel()
        return next(filter(None, statuses), 0)

    async def begin(self, role: str) -> tuple[_Child, bool]:
        """A new process, and whether it came to serve."""
        own, team, number = {INHERITED: self._named}, self._team, 0
        if team is not None:
            if role != "owner":
                number = next(free for free in range(1, team.size + 2) if free not in self._used)
                self._used.add(number)
            own[_WORKER] = f"{number}:{role}:{team.folder}"
        line, far = socket.socketpair()
        line.setblocking(False)
        with far:
            process = await asyncio.create_subprocess_exec(
                *_PROGRAM, *self._arguments,
                env={**os.environ, **own, _LINE: str(far.fileno())},
                pass_fds=[*self._numbers, far.fileno()],
            )  # fmt: skip
        child = _Child(process, line, number)
        self._children.append(child)
        return child, await self._serves(child)

    async def _serves(self, child: _Child) -> bool:
        """Wait until the process serves; false: it ended before, perhaps because it was to stop."""
        loop = asyncio.get_running_loop()
        word = asyncio.create_task(loop.sock_recv(child.line, len(_SERVES)))
        stop = asyncio.create_task(self.stop.wait())
        await asyncio.wait((word, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if word.done() and not self.stop.is_set():
            return word.exception() is None and word.result() == _SERVES
        word.cancel()
        signal_to(child, signal.SIGTERM)
        return False

    def note_served(self) -> None:
        """A process serves, at whichever seat."""
        self.served_once.set()
        if self._team is not None and all(seat.served for seat in self._seats):
            Worker(0, self._team.folder).all_served.touch()

    async def ended(self, child: _Child) -> int:
        """Wait for the end of a process, but not for ever."""
        try:
            status = await asyncio.wait_for(child.process.wait(), _PATIENCE)
        except TimeoutError:
            signal_to(child, signal.SIGKILL)
            status = await child.process.wait()
        child.line.close()
        self._children.remove(child)
        self._used.discard(child.number)
        if self._team is not None:  # it may have been killed
            (self._team.folder / str(child.number)).unlink(missing_ok=True)
        return status

    async def _roll(self) -> None:
        """Replace processes on demand, one after the other, for ever; where one cannot be replaced,
        it and those behind it go on.
        """
        while True:
            await self._replace.wait()
            self._replace.clear()
            if not await self._startable():
                continue
            for seat in self._seats:
                _log.info("the process that serves is replaced")
                if not await seat.replace():
                    break

    async def _startable(self) -> bool:
        """Whether a process would start with the current settings; else the old one stays."""
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
        for child in self._children:
            signal_to(child, signal.SIGHUP)


class _Seat:
    """Keeps one process at work. ``alone``: it owns what its replacement needs."""

    def __init__(self, supervisor: _Supervisor, role: str = "owner", *, alone: bool) -> None:
        self._supervisor = supervisor
        self._role = role
        self._alone = alone
        self._wanted = asyncio.Event()
        self._replaced: asyncio.Future[bool] | None = None
        self.served = False

    async def keep(self) -> int:
        """Until it is to stop; the exit status of the last process."""
        supervisor, pause = self._supervisor, _PAUSES[0]
        following: _Child | None = None
        while True:
            child, serves = (following, True) if following else await supervisor.begin(self._role)
            following = None
            if serves:
                pause, self.served = _PAUSES[0], True
                supervisor.note_served()
                following = await self._until_over(child)
            status = await supervisor.ended(child)
            if following is not None or self._alone:
                self._tell_replaced(done=True)
            if following is not None:
                continue
            if supervisor.stop.is_set() and status == -signal.SIGTERM:
                return 0  # it was told to before it could listen to that
            if supervisor.stop.is_set() or not supervisor.served_once.is_set():
                return status
            if serves:
                continue
            _log.error("the process that was to serve ended, and is started again", count=status)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(supervisor.stop.wait(), pause)
                return status
            pause = min(2 * pause, _PAUSES[1])

    async def replace(self) -> bool:
        """Let another process serve here; whether one could."""
        self._replaced = asyncio.get_running_loop().create_future()
        self._wanted.set()
        return await self._replaced

    def _tell_replaced(self, *, done: bool) -> None:
        if self._replaced is not None and not self._replaced.done():
            self._replaced.set_result(done)

    async def _until_over(self, child: _Child) -> _Child | None:
        """Wait until the serving process ended or was told to; its successor, if that serves."""
        stop, end = self._supervisor.stop, asyncio.create_task(child.process.wait())
        while True:
            waits = [asyncio.create_task(one.wait()) for one in (stop, self._wanted)]
            await asyncio.wait((end, *waits), return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()
            if end.done() and not stop.is_set():
                _log.error(
                    "the process that served ended, and is started again", count=end.result()
                )
                return None
            following = None
            if not stop.is_set():
                self._wanted.clear()
                following = None if self._alone else await self._following()
            if following is not None or self._alone or stop.is_set():
                signal_to(child, signal.SIGTERM)
                return following

    async def _following(self) -> _Child | None:
        """A process that serves, too."""
        child, serves = await self._supervisor.begin(self._role)
        if serves:
            return child
        await self._supervisor.ended(child)
        _log.error("a new process could not start, and the one that serves goes on")
        self._tell_replaced(done=False)
        return None


def signal_to(child: _Child, number: signal.Signals) -> None:
    """Send a signal to a process; no effect when it has ended."""
    with contextlib.suppress(ProcessLookupError):
        child.process.send_signal(number)


# The other end: messages of the serving process to its supervisor.


def which_worker() -> Worker | None:
    """Return the number of this worker; ``None``: the process serves alone."""
    number, _, rest = os.environ.pop(_WORKER, "").partition(":")
    role, _, folder = rest.partition(":")
    return Worker(int(number), Path(folder), role) if number else None


def supervised() -> socket.socket | None:
    """The line to the supervisor of this process; ``None``: it has none."""
    number = os.environ.pop(_LINE, "")
    return socket.socket(fileno=int(number)) if number else None


def tell_served(line: socket.socket, stop: "asyncio.Future[None]") -> None:
    """Say that this process serves; it stops with its supervisor, for the next needs the vault."""

    def look() -> None:
        try:
            if line.recv(16):
                return
        except BlockingIOError:
            return
        except ConnectionResetError:
            pass  # it ended before it read the word, and uvloop calls but once of that
        loop.remove_reader(line)
        _settle(stop)

    loop = asyncio.get_running_loop()
    line.setblocking(False)
    line.set_inheritable(False)
    with contextlib.suppress(BrokenPipeError):  # it has ended, which is read in a moment
        line.send(_SERVES)
    loop.add_reader(line, look)


def run_on_uvloop(work: Coroutine[Any, Any, int]) -> int:
    """Run what serves to its end on uvloop, which needs half the time of the standard loop."""
    import uvloop  # the parent of serving processes stays small

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def stop_signal() -> asyncio.Future[None]:
    """Done when SIGTERM or SIGINT (Ctrl-C) arrives."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _settle, stop)
    return stop


def _settle(stop: "asyncio.Future[None]") -> None:
    if not stop.done():
        stop.set_result(None)
