"""Runs calls of resident functions, each in its own isolated and limited process.

One process is always kept ready, so that a call does not wait for an interpreter to start. It
serves one call and ends: nothing of one caller's data can be left for the next.
"""

import asyncio
import fcntl
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.errors import Code, Detail, VaultError
from proxy.functions.handle import (
    FRAME_PREFIX,
    BrokenFrameError,
    NotJsonError,
    decode_frame,
    encode_frame,
    size_of,
)
from proxy.functions.sandbox import INDISPENSABLE
from proxy.telemetry import logs

_log = logs.logger("functions")

#: Answers a question of the handle: (operation, input) → the answer. Raises ``VaultError``.
Ask = Callable[[str, Any], Awaitable[Any]]

#: Variables that an interpreter needs to start; a function sees only the time zone.
_INHERITED: Final = ("PYTHONPATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")

#: Seconds within which a worker has to be ready.
_READY: Final = 30.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one call, and of the number of calls at one time."""

    time: float  #: seconds
    memory: int  #: bytes of address space, and of a file
    running: int
    network: bool = False
    user: tuple[int, int] | None = None  #: user and group of its process; ``None``: the service's
    #: no call where the kernel lacks what keeps a function from the rest of the machine
    isolated: bool = True
    private: Sequence[Path] = ()  #: files and folders that no function may read


class _Worker(NamedTuple):
    """A process that is ready for one call, and the one folder where it may write."""

    process: Process
    folder: str


class Runner:
    """Calls functions by name.

    ``status_of`` tells the HTTP status of an error, for the function to see.
    """

    def __init__(
        self, functions: Mapping[str, str], bounds: Bounds, status_of: Callable[[VaultError], int]
    ) -> None:
        self.functions = functions
        #: by layer of isolation why it does not hold, empty where it does; as of the last process
        self.layers: Mapping[str, str] = {}
        #: reach of a function for lack of isolation; as of the last process
        self.faults: Sequence[Detail] = ()
        self._bounds = bounds
        self._status_of = status_of
        self._room = asyncio.Semaphore(bounds.running)
        self._folders: _Folders | None = None
        self._spare: asyncio.Task[_Worker] | None = None
        # ends an abandoned process
        self._forsaken: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Make the first process ready, so that a call finds one.

        Raises ``VaultError(BAD_SETTINGS)`` if it does not start, or lacks required isolation.
        """
        if self.functions and self._spare is None:
            self._spare = asyncio.create_task(self._start())
            await asyncio.shield(self._spare)

    async def call(self, name: str, arguments: Any, ask: Ask) -> Any:
        """The result of a function; its handle asks ``ask``.

        Raises ``VaultError``: UNKNOWN_FUNCTION; FUNCTION_LIMIT if it exceeds its time or memory, or
        too many run for all that time; FUNCTION_FAILED if it raises, exits, or its result is not
        JSON.
        """
        target = self.functions.get(name)
        if target is None:
            raise VaultError(
                Code.UNKNOWN_FUNCTION, "No resident function of that name is installed."
            )
        try:
            async with asyncio.timeout(self._bounds.time), self._room:
                return await self._called(name, {"target": target, "arguments": arguments}, ask)
        except TimeoutError:
            _log.warning("a resident function took too long and was ended", reason=name)
            raise _over("time") from None

    async def close(self) -> None:
        """End the process that waits. Idempotent."""
        self._closed = True
        spare, self._spare = self._spare, None
        if spare is not None:
            await _end_started(spare)
        if self._forsaken is not None:
            await self._forsaken
        if self._folders is not None:
            self._folders.close()

    async def _called(self, name: str, call: Any, ask: Ask) -> Any:
        try:
            worker = await self._worker()
        except VaultError as error:
            for detail in error.details:
                _log.error("a resident function cannot run", source=detail.source, text=detail.text)
            raise VaultError(
                Code.FUNCTION_FAILED, "The resident function could not be run; the log says why."
            ) from None
        try:
            outcome = await self._talk(worker.process, call, ask)
        except (BrokenFrameError, NotJsonError, OSError):
            outcome = {"failed": "the process ended", "where": ""}
        finally:
            await _end(worker)
        if "result" in outcome:
            return outcome["result"]
        if "limit" in outcome:
            _log.warning("a resident function took too much memory", reason=name)
            raise _over("memory")
        _log.error(
            "a resident function failed",
            reason=name,
            exception=outcome["failed"],
            where=outcome["where"],
        )
        raise VaultError(
            Code.FUNCTION_FAILED,
            "The resident function failed; the log names the place in its code.",
        )

    async def _talk(self, process: Process, document: Any, ask: Ask) -> Any:
        if process.stdin is None or process.stdout is None:
            raise TypeError("a worker has pipes")
        while True:
            process.stdin.write(encode_frame(document))
            await process.stdin.drain()
            message = await _next_frame(process.stdout)
            if not isinstance(message, dict) or "ask" not in message:
                return message
            document = await self._answered(message, ask)

    async def _answered(self, message: Any, ask: Ask) -> Any:
        try:
            return {"answer": await ask(message["ask"], message["with"])}
        except VaultError as error:
            return {"refused": {"status": self._status_of(error), "code": str(error.code)}}

    async def _worker(self) -> _Worker:
        """The spare process; another one is started in its place."""
        starting = self._spare or asyncio.create_task(self._start())
        self._spare = None if self._closed else asyncio.create_task(self._start())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._forsaken = asyncio.create_task(_end_started(starting))
            raise

    async def _start(self) -> _Worker:
        """A process that is confined and waits for its call; raises as ``start``."""
        try:
            worker = await self._spawned()
        except OSError as error:
            text = f"their process cannot be started ({error.strerror or 'no reason is told'})"
            raise _unusable([Detail("functions", text)]) from None
        try:
            self._admit(await self._terms_accepted(worker))
        except BaseException:
            await _end(worker)
            raise
        return worker

    async def _spawned(self) -> _Worker:
        if self._folders is None:
            self._folders = _Folders()
        folder = self._folders.new(self._bounds.user)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-B", "-P", "-s", "-m", "proxy.functions.worker"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
            # a signal for the service is none for it, and all it starts ends with it
            start_new_session=True,
        )
        return _Worker(process, folder)

    async def _terms_accepted(self, worker: _Worker) -> Any:
        """Send the terms of the call; return the report of the process that applied them."""
        bounds, process = self._bounds, worker.process
        if process.stdin is None or process.stdout is None:
            raise TypeError("a worker has pipes")
        terms = {"memory": bounds.memory, "network": bounds.network, "user": bounds.user}
        process.stdin.write(encode_frame({**terms, "folder": worker.folder}))
        try:
            async with asyncio.timeout(_READY):
                return await _next_frame(process.stdout)
        except (BrokenFrameError, OSError):
            text = (
                "their process ends before it is ready: see that `functions.memory` is enough, and "
                "that the user of `functions.user` may read the installation"
            )
            raise _unusable([Detail("functions", text)]) from None

    def _admit(self, report: Any) -> None:
        """Note the isolation of a process; refuse it if that is too little."""
        bounds, self.layers = self._bounds, report["layers"]
        needed = (*INDISPENSABLE, *(("user",) if bounds.user is not None else ()))
        texts = [
            f"{name} does not hold here ({reason}): run on Linux 5.13 or newer with Landlock and "
            "seccomp, or write best and trust the functions with all that the service may"
            for name, reason in self.layers.items()
            if reason and name in needed
        ]
        texts += [
            f"functions may read {folder}, because packages are there, and so {private}: move one "
            "of the two"
            for folder, private in _exposed(report["readable"], bounds.private)
        ]
        self.faults = [Detail("functions.isolation", text) for text in texts]
        if self.faults and bounds.isolated:
            raise _unusable(self.faults)


class _Folders:
    """Makes the folders where functions may write, and removes those that a killed service left.

    A lock on the folder above them tells that a service lives.
    """

    _PREFIX: Final = "domicile-functions-"

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{self._PREFIX}*"):
            _remove_unlocked(left)
        while not self._claim():
            pass  # a service that started just now took it for one that was left

    def _claim(self) -> bool:
        """Make a folder and lock it; whether it is still there then."""
        self._folder = tempfile.mkdtemp(prefix=self._PREFIX)
        try:
            self._lock = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            Path(self._folder).chmod(0o711)  # another user's processes pass through it
        except FileNotFoundError:
            os.close(self._lock)
            return False
        return True

    def new(self, user: tuple[int, int] | None) -> str:
        """An empty folder, which belongs to that user and group."""
        folder = tempfile.mkdtemp(dir=self._folder)
        if user is not None:
            os.chown(folder, *user)
        return folder

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def _remove_unlocked(folder: Path) -> None:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # another user's, or gone by now
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:  # its service lives
        pass
    finally:
        os.close(lock)


def _exposed(folders: Sequence[str], private: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield each readable folder with the private path inside it."""
    for path in private:
        own = path.resolve()
        for folder in folders:
            if own.is_relative_to(folder):
                yield folder, path


async def _next_frame(pipe: asyncio.StreamReader) -> Any:
    try:
        prefix = await pipe.readexactly(FRAME_PREFIX)
        return decode_frame(await pipe.readexactly(size_of(prefix)))
    except asyncio.IncompleteReadError:
        raise BrokenFrameError from None


async def _end_started(starting: asyncio.Task[_Worker]) -> None:
    try:
        worker = await starting
    except VaultError:  # it has not started, and its caller has been informed
        return
    await _end(worker)


async def _end(worker: _Worker) -> None:
    """End the process with everything that it started, and remove its folder."""
    try:
        os.killpg(worker.process.pid, 9)
    except ProcessLookupError:  # it has ended already
        pass
    await worker.process.wait()
    try:
        os.rmdir(worker.folder)  # noqa: PTH106 - most functions leave nothing there
    except OSError:
        await asyncio.to_thread(shutil.rmtree, worker.folder, ignore_errors=True)


def _unusable(faults: Sequence[Detail]) -> VaultError:
    text = "Resident functions cannot run as the settings ask for."
    return VaultError(Code.BAD_SETTINGS, text, tuple(faults))


def _over(limit: str) -> VaultError:
    return VaultError(Code.FUNCTION_LIMIT, f"The resident function took more {limit} than it may.")
