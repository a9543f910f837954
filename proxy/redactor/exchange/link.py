"""The way from a front to the owner of its vault: one connection at a time, made again when it
breaks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from proxy import __version__
from proxy.errors import Code, VaultError
from proxy.redactor.exchange.frame_connection import FrameConnection
from proxy.redactor.exchange.wire import (
    PROTOCOL,
    ROOM,
    Draining,
    Hello,
    Left,
    Numbered,
    Ordinary,
    Part,
    PartDone,
    PartWay,
    RulesAnswer,
    RulesQuestion,
    Welcome,
    decode_answers,
)
from proxy.telemetry import logs

_log = logs.logger("web")

#: Seconds that an answer may take: longer than a store that is away takes to say so.
_ANSWER: Final = 30.0
#: Seconds between two questions whether the owner is there, and until it counts as gone.
_LOOK: Final = 2.0
_GONE: Final = 6.0
#: Seconds that an owner may take to load the rules that a front has loaded.
_FOLLOWS: Final = 5.0
#: Bytes of a frame beside one long message, and of the longest message whose length can be told.
_FRAME: Final = 16
_LONGEST: Final = 2**32 - 2 * _FRAME
#: Seconds between two attempts to connect: at first, and at most.
_PAUSES: Final = (0.05, 1.0)

#: Of an answer that comes too late.
_NOBODY: Final = None, 0.0
#: Opens a connection for a protocol that it makes. Raises ``OSError``.
Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[Any]]


class AnswerWaiter(Protocol):
    """Receiver of the answer to a question: a future, or an exchange that then goes on."""

    def done(self) -> bool:
        """Whether it waits no longer."""

    def set_result(self, result: Any, /) -> None:
        """The answer is here. Must not raise."""

    def set_exception(self, error: VaultError, /) -> None:
        """None comes. Must not raise."""


def away(text: str = "The owner of the vault cannot be reached.") -> VaultError:
    """Return the refusal of what needs the owner."""
    error = VaultError(Code.VAULT_DOWN, text)
    error.retry_after = 1
    return error


class OwnerLine:
    """A connection to the owner, greeted."""

    def __init__(self, owner: "OwnerLink") -> None:
        self._owner = owner
        self.connection = FrameConnection(self._receive, self._lost)
        self._loop = asyncio.get_running_loop()
        self.welcome: asyncio.Future[Welcome] = self._loop.create_future()
        self.ended = asyncio.Event()
        self.over = asyncio.Event()  #: nothing begins there any more
        self._waiting: dict[int, tuple[AnswerWaiter, float]] = {}  #: and until when, in order
        self._timer: asyncio.TimerHandle | None = None  #: of the one that waits longest
        self._number = 0

    def number(self) -> int:
        self._number += 1
        return self._number

    async def ask(self, question: Numbered) -> Any:
        """Return the answer. Raises ``VaultError`` (VAULT_DOWN)."""
        if not self.connection.open:
            raise away()
        waiting = self._loop.create_future()
        self.begin(question, waiting)
        return await waiting

    def begin(self, question: Numbered | Ordinary, waiting: AnswerWaiter) -> None:
        """Ask over an open connection; ``waiting`` is told the answer."""
        self.connection.send(question)
        ends = self._loop.time() + _ANSWER
        self._waiting[question.n] = waiting, ends
        if self._timer is None:
            self._timer = self._loop.call_at(ends, self._look)

    def _look(self) -> None:
        """End what has waited too long. One timer looks after all: few of them ever ring."""
        now, self._timer = self._loop.time(), None
        while self._waiting:
            number, (waiting, ends) = next(iter(self._waiting.items()))
            if ends > now:
                self._timer = self._loop.call_at(ends, self._look)
                return
            del self._waiting[number]
            if not waiting.done():
                waiting.set_exception(away("The owner of the vault does not answer."))

    def _receive(self, frame: bytes) -> None:
        for answer in decode_answers(frame):
            if isinstance(answer, Welcome):
                if not self.welcome.done():
                    self.welcome.set_result(answer)
            elif isinstance(answer, Draining):
                self._owner.leave(self)
                self.connection.send(Left())
            else:
                waiting, _ = self._waiting.pop(answer.n, _NOBODY)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _lost(self) -> None:
        self.ended.set()
        self._owner.leave(self)
        if not self.welcome.done():
            self.welcome.set_exception(ConnectionError())
        waiting, self._waiting = self._waiting, {}
        if self._timer is not None:
            self._timer.cancel()
        for one, _ in waiting.values():
            if not one.done():
                one.set_exception(away())


class OwnerLink:
    """The way to the owner: one connection at a time, made again when it breaks.

    ``patience``: seconds that a question waits for a connection, from the loss of the last one on.
    ``version`` tells the rules in use: an owner hears of them before anything begins.
    """

    def __init__(self, connect: Connect, patience: float, version: Callable[[], str] = str) -> None:
        self._connect = connect
        self._patience = patience
        self._version = version
        self._line: OwnerLine | None = None
        self._there = asyncio.Event()
        self._lost_at = asyncio.get_running_loop().time()
        self.longest = ROOM  #: bytes of the longest message that is taken
        self.fault: str | None = "There was no connection to the owner of the vault yet."
        self.welcome: Welcome | None = None

    async def line(self) -> OwnerLine:
        """Return the connection for what begins now. Raises ``VaultError`` (VAULT_DOWN)."""
        left = self._lost_at + self._patience - asyncio.get_running_loop().time()
        if self._line is None and left > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._there.wait()
        if self._line is None:
            raise away()
        return self._line

    def now(self) -> OwnerLine | None:
        """The same at once; ``None``: there is none."""
        line = self._line
        return line if line is not None and line.connection.open else None

    def allow(self, longest: int) -> None:
        """Take messages of so many bytes from now on."""
        self.longest = max(self.longest, min(longest, _LONGEST))
        if self._line is not None:
            self._tell_longest(self._line)

    def _tell_longest(self, line: OwnerLine) -> None:
        if line.connection.longest < self.longest + _FRAME:
            line.connection.longest = self.longest + _FRAME
            line.connection.send(RulesQuestion(line.number(), "", self.longest))

    def leave(self, line: OwnerLine) -> None:
        """Begin nothing more there: it is over, or soon will be."""
        line.over.set()
        if self._line is line:
            self._line = None
            self._there.clear()
            self._lost_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Keep a connection, for ever."""
        pause = _PAUSES[0]
        while True:
            line = OwnerLine(self)
            try:
                await self._greet(line)
            except (OSError, TimeoutError):
                line.welcome.cancel()
                line.connection.abort()
                self._note("The owner of the vault cannot be reached.")
            except VaultError as error:
                line.connection.close()
                self._note(error.message)
            else:
                self._there.set()
                self.fault, pause = None, _PAUSES[0]
                await self._watch(line)
                continue
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])

    def _note(self, fault: str) -> None:
        if self.fault != fault:
            _log.warning("the owner of the vault cannot be used, and is tried again", text=fault)
        self.fault = fault

    async def _greet(self, line: OwnerLine) -> None:
        async with asyncio.timeout(_GONE):
            await self._connect(lambda: line.connection)
            line.connection.longest = self.longest + _FRAME
            line.connection.send(Hello(PROTOCOL, __version__, self.longest))
            welcome = await line.welcome
            if welcome.protocol == PROTOCOL:
                await line.ask(RulesQuestion(line.number(), self._version()))
        if welcome.protocol != PROTOCOL:
            raise VaultError(
                Code.VAULT_DOWN,
                f"The owner of the vault is version {welcome.version} and speaks protocol "
                f"{welcome.protocol}, this process {PROTOCOL}: run the same version in both.",
            )
        self.welcome, self._line = welcome, line
        self._tell_longest(line)

    async def _watch(self, line: OwnerLine) -> None:
        """Until nothing begins there any more; a connection over which nothing comes is ended."""
        while not line.over.is_set():
            try:
                async with asyncio.timeout(_GONE):
                    await line.ask(RulesQuestion(line.number(), ""))
            except (VaultError, TimeoutError):
                line.connection.abort()
                break
            # ``wait_for`` loses a cancellation that comes in the same turn: it never ended then
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await line.over.wait()

    async def knows(self, version: str) -> bool:
        """Whether the owner has these rules. Raises ``VaultError`` (VAULT_DOWN)."""
        line = await self.line()
        return cast("RulesAnswer", await line.ask(RulesQuestion(line.number(), version))).has

    async def follows(self, version: str) -> bool:
        """The same; an owner that is away, or reads the same files now, is waited for a while."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(self._patience, _FOLLOWS)
        while loop.time() < until:
            with suppress(VaultError):
                if await self.knows(version):
                    return True
            await asyncio.sleep(_PAUSES[0])
        return await self.knows(version)


#: Ends an exchange whose answer came part by part.
Closed = Callable[[], Awaitable[None]]


class RemoteStream:
    """An answer whose parts the owner restores, one after the other."""

    def __init__(self, closed: Closed, line: OwnerLine, number: int) -> None:
        self._closed = closed
        self._line = line
        self._number = number

    async def restore(self, piece: bytes) -> bytes:
        """As ``EventStream.restore``; the same where the owner is away."""
        return await self._passed(PartWay.RESTORE, piece)

    async def rest(self) -> bytes:
        return await self._passed(PartWay.REST, b"")

    async def end(self) -> None:
        await self._closed()

    async def _passed(self, way: PartWay, content: bytes) -> bytes:
        line = self._line
        done = cast("PartDone", await line.ask(Part(line.number(), self._number, way, content)))
        if done.fault is not None:
            raise done.fault.error()
        return done.content


class RemoteMessages(RemoteStream):
    """A WebSocket whose messages the owner reads."""

    def __init__(
        self, closed: Closed, line: OwnerLine, number: int, longest: int, binary: bool
    ) -> None:
        super().__init__(closed, line, number)
        self.longest = longest
        self.passes_binary = binary

    async def redact(self, text: bytes) -> bytes:
        return await self._passed(PartWay.REDACT, text)


class Unrestored:
    """An answer that passes with its tokens, for the owner is away."""

    async def restore(self, piece: bytes) -> bytes:
        return piece

    async def rest(self) -> bytes:
        return b""

    async def end(self) -> None:
        """Nothing was begun."""
