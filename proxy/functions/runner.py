"""Runs calls of resident functions, each in a process of its own, within limits of time, memory and
number.

One process is always kept ready, so that a call does not wait for an interpreter to start. It
serves one call and ends: nothing of one caller's data can be left for the next.
"""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, BinaryIO, Final

import msgspec

from proxy.errors import Code, VaultError
from proxy.telemetry import logs

# How service and worker talk over their pipes: JSON documents, each with its length before it (4
# bytes, big-endian).
#
# The service asks for one call; the worker asks its handle's questions, each answered before the
# next; its last frame is
# the outcome::
#
#     service  {"target": "package.module:name", "arguments": …}
#     worker   {"ask": "find", "with": {…}}       service  {"answer": …} or {"refused": {…}}
#     worker   {"result": …} or {"failed": "ValueError", "where": "file:line"} or {"limit":
#     "memory"}


#: Bytes of the length before each document.
FRAME_PREFIX: Final = 4

#: No document is longer than so many bytes; the largest page of records fits.
LONGEST_FRAME: Final = 64 * 1024 * 1024

_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


class BrokenFrameError(Exception):
    """What came is not a frame: the other side ended in the middle, or is not of our kind."""


class NotJsonError(Exception):
    """A document that cannot be spelled in JSON, or is too long."""


def encode_frame(document: Any) -> bytes:
    """The frame of a document, decimals as exact numbers. ``NotJsonError`` when there is none."""
    try:
        text = _encode(document)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise NotJsonError from error
    if len(text) > LONGEST_FRAME:
        raise NotJsonError
    return len(text).to_bytes(FRAME_PREFIX, "big") + text


def decode_frame(text: bytes) -> Any:
    """The document of a frame without its prefix; numbers with a point are ``Decimal``."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, InvalidOperation):
        raise BrokenFrameError from None


def size_of(prefix: bytes) -> int:
    """How many bytes follow; ``BrokenFrameError`` where that is beyond ``LONGEST``."""
    size = int.from_bytes(prefix, "big")
    if len(prefix) != FRAME_PREFIX or size > LONGEST_FRAME:
        raise BrokenFrameError
    return size


def read_frame(pipe: BinaryIO) -> Any:
    """The next document of a pipe that blocks; ``BrokenFrameError`` at its end."""
    size = size_of(pipe.read(FRAME_PREFIX))
    text = pipe.read(size)
    if len(text) < size:
        raise BrokenFrameError
    return decode_frame(text)


def write_frame(pipe: BinaryIO, document: Any) -> None:
    """Write one document to a pipe that blocks; raises as ``encode``."""
    pipe.write(encode_frame(document))
    pipe.flush()


_log = logs.logger("functions")

#: Answers a question of the handle: (operation, what it takes) → the answer. Raises ``VaultError``.
Ask = Callable[[str, Any], Awaitable[Any]]

#: What a worker needs of the service's environment; not its settings, which may hold keys.
_INHERITED = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one call may take, and how many may run at one time."""

    time: float  #: seconds
    memory: int  #: bytes of address space
    running: int


class Runner:
    """Calls functions by name.

    ``status_of`` tells the HTTP status of an error, for the function to see.
    """

    def __init__(
        self, functions: Mapping[str, str], bounds: Bounds, status_of: Callable[[VaultError], int]
    ) -> None:
        self.functions = functions
        self._bounds = bounds
        self._status_of = status_of
        self._room = asyncio.Semaphore(bounds.running)
        self._spare: asyncio.Task[Process] | None = None
        # ends a process that nobody waits for any more
        self._forsaken: asyncio.Task[None] | None = None
        self._closed = False

    async def call(self, name: str, arguments: Any, ask: Ask) -> Any:
        """The result of a function; its handle asks ``ask``.

        Raises ``VaultError``: UNKNOWN_FUNCTION; FUNCTION_LIMIT when it takes more time or memory
        than it may, or too many run for all that time; FUNCTION_FAILED when it raises, ends by
        itself, or its result is not JSON.
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

    async def _called(self, name: str, call: Any, ask: Ask) -> Any:
        process = await self._process()
        try:
            outcome = await self._talk(process, call, ask)
        except (BrokenFrameError, NotJsonError, OSError):
            outcome = {"failed": "the process ended", "where": ""}
        finally:
            await _end(process)
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
            message = decode_frame(
                await _exactly(
                    process.stdout, size_of(await _exactly(process.stdout, FRAME_PREFIX))
                )
            )
            if not isinstance(message, dict) or "ask" not in message:
                return message
            document = await self._answered(message, ask)

    async def _answered(self, message: Any, ask: Ask) -> Any:
        try:
            return {"answer": await ask(message["ask"], message["with"])}
        except VaultError as error:
            return {"refused": {"status": self._status_of(error), "code": str(error.code)}}

    async def _process(self) -> Process:
        """The spare process; another one is started in its place."""
        starting = self._spare or asyncio.create_task(self._start())
        self._spare = None if self._closed else asyncio.create_task(self._start())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._forsaken = asyncio.create_task(_end_started(starting))
            raise

    async def _start(self) -> Process:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-s", "-m", "proxy.functions.worker", str(self._bounds.memory)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            # a signal for the service is none for it, and all it starts ends with it
            start_new_session=True,
        )


async def _exactly(pipe: asyncio.StreamReader, size: int) -> bytes:
    try:
        return await pipe.readexactly(size)
    except asyncio.IncompleteReadError:
        raise BrokenFrameError from None


async def _end_started(starting: asyncio.Task[Process]) -> None:
    await _end(await starting)


async def _end(process: Process) -> None:
    """End the process with everything that it started, and wait for it."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:  # it has ended by itself
        pass
    await process.wait()


def _over(limit: str) -> VaultError:
    return VaultError(Code.FUNCTION_LIMIT, f"The resident function took more {limit} than it may.")
