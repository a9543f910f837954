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
from proxy.redactor.exchange.owner_protocol import (
    PROTOCOL,
    ROOM,
    DrainAccepted,
    Draining,
    Hello,
    Numbered,
    Ordinary,
    PartDirection,
    RulesAnswer,
    RulesQuestion,
    StreamPart,
    StreamPartDone,
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


def owner_unavailable(text: str = "The owner of the vault cannot be reached.") -> VaultError:
    """Return the refusal of what needs the owner."""
    error = VaultError(Code.VAULT_DOWN, text)
    error.retry_after = 1
    return error


class FrontChannel:
    """A connection to the owner, greeted."""

    def __init__(self, owner: "FrontLink") -> None:
        self._owner = owner
        self.connection = FrameConnection(self._receive, self._lost)
        self._loop = asyncio.get_running_loop()
        self.welcome: asyncio.Future[Welcome] = self._loop.create_future()
        self.ended = asyncio.Event()
        self.retired = asyncio.Event()  #: nothing begins there any more
        self._waiting: dict[int, tuple[AnswerWaiter, float]] = {}  #: and until when, in order
        self._timer: asyncio.TimerHandle | None = None  #: of the one that waits longest
        self._number = 0

    def number(self) -> int:
        self._number += 1
        return self._number

    async def ask(self, question: Numbered) -> Any:
        """Return the answer. Raises ``VaultError`` (VAULT_DOWN)."""
        if not self.connection.open:
            raise owner_unavailable()
        waiting = self._loop.create_future()
        self.begin(question, waiting)
        return await waiting

    async def speaks(self, look: float = _LOOK, gone: float = _GONE) -> bool:
        """Whether the owner answers a question. It is waited for while anything else comes from it;
        a pause of this very process counts as one look, however long it is.
        """
        answer = asyncio.ensure_future(self.ask(RulesQuestion(self.number(), "")))
        silent, _ = 0.0, self.connection.spoke()  # before it was asked
        try:
            while not answer.done() and silent < gone:
                await asyncio.wait([answer], timeout=look)
                silent = 0.0 if self.connection.spoke() else silent + look
            return answer.done() and answer.exception() is None
        finally:
            answer.cancel()

    def begin(self, question: Numbered | Ordinary, waiting: AnswerWaiter) -> None:
        """Ask over an open connection; ``waiting`` is told the answer."""
        self.connection.send(question)
        ends = self._loop.time() + _ANSWER
        self._waiting[question.n] = waiting, ends
        if self._timer is None:
            self._timer = self._loop.call_at(ends, self._expire)

    def _expire(self) -> None:
        """End what has waited too long. One timer looks after all: few of them ever ring."""
        now, self._timer = self._loop.time(), None
        while self._waiting:
            number, (waiting, ends) = next(iter(self._waiting.items()))
            if ends > now:
                self._timer = self._loop.call_at(ends, self._expire)
                return
            del self._waiting[number]
            if not waiting.done():
                waiting.set_exception(owner_unavailable("The owner of the vault does not answer."))

    def _receive(self, frame: bytes) -> None:
        for answer in decode_answers(frame):
            if isinstance(answer, Welcome):
                if not self.welcome.done():
                    self.welcome.set_result(answer)
            elif isinstance(answer, Draining):
                self._owner.retire(self)
                self.connection.send(DrainAccepted())
            else:
                waiting, _ = self._waiting.pop(answer.n, _NOBODY)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _lost(self) -> None:
        self.ended.set()
        self._owner.retire(self)
        if not self.welcome.done():
            self.welcome.set_exception(ConnectionError())
        waiting, self._waiting = self._waiting, {}
        if self._timer is not None:
            self._timer.cancel()
        for one, _ in waiting.values():
            if not one.done():
                one.set_exception(owner_unavailable())


class FrontLink:
    """The way to the owner: one connection at a time, made again when it breaks.

    ``patience``: seconds that a question waits for a connection, from the loss of the last one on.
    ``version`` tells the rules in use: an owner hears of them before anything begins.
    """

    def __init__(self, connect: Connect, patience: float, version: Callable[[], str] = str) -> None:
        self._connect = connect
        self._patience = patience
        self._version = version
        self._channel: FrontChannel | None = None
        self._there = asyncio.Event()
        self._lost_at = asyncio.get_running_loop().time()
        self.longest = ROOM  #: bytes of the longest message that is taken
        self.fault: str | None = "There was no connection to the owner of the vault yet."
        self.welcome: Welcome | None = None

    async def channel(self) -> FrontChannel:
        """Return the connection for what begins now. Raises ``VaultError`` (VAULT_DOWN)."""
        left = self._lost_at + self._patience - asyncio.get_running_loop().time()
        if self._channel is None and left > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._there.wait()
        if self._channel is None:
            raise owner_unavailable()
        return self._channel

    def current(self) -> FrontChannel | None:
        """The same at once; ``None``: there is none."""
        channel = self._channel
        return channel if channel is not None and channel.connection.open else None

    def allow(self, longest: int) -> None:
        """Take messages of so many bytes from now on."""
        self.longest = max(self.longest, min(longest, _LONGEST))
        if self._channel is not None:
            self._tell_longest(self._channel)

    def _tell_longest(self, channel: FrontChannel) -> None:
        if channel.connection.longest < self.longest + _FRAME:
            channel.connection.longest = self.longest + _FRAME
            channel.connection.send(RulesQuestion(channel.number(), "", self.longest))

    def retire(self, channel: FrontChannel) -> None:
        """Begin nothing more there: it is over, or soon will be."""
        channel.retired.set()
        if self._channel is channel:
            self._channel = None
            self._there.clear()
            self._lost_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Keep a connection, for ever."""
        pause = _PAUSES[0]
        while True:
            channel = FrontChannel(self)
            try:
                await self._greet(channel)
            except (OSError, TimeoutError):
                channel.welcome.cancel()
                channel.connection.abort()
                self._note("The owner of the vault cannot be reached.")
            except VaultError as error:
                channel.connection.close()
                self._note(error.message)
            else:
                self._there.set()
                self.fault, pause = None, _PAUSES[0]
                await self._watch(channel)
                continue
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])

    def _note(self, fault: str) -> None:
        if self.fault != fault:
            _log.warning("the owner of the vault cannot be used, and is tried again", text=fault)
        self.fault = fault

    async def _greet(self, channel: FrontChannel) -> None:
        async with asyncio.timeout(_GONE):
            await self._connect(lambda: channel.connection)
            channel.connection.longest = self.longest + _FRAME
            channel.connection.send(Hello(PROTOCOL, __version__, self.longest))
            welcome = await channel.welcome
            if welcome.protocol == PROTOCOL:
                await channel.ask(RulesQuestion(channel.number(), self._version()))
        if welcome.protocol != PROTOCOL:
            raise VaultError(
                Code.VAULT_DOWN,
                f"The owner of the vault is version {welcome.version} and speaks protocol "
                f"{welcome.protocol}, this process {PROTOCOL}: run the same version in both.",
            )
        self.welcome, self._channel = welcome, channel
        self._tell_longest(channel)

    async def _watch(self, channel: FrontChannel) -> None:
        """Until nothing begins there any more; a connection over which nothing comes is ended."""
        while not channel.retired.is_set():
            if not await channel.speaks():
                channel.connection.abort()
                break
            # ``wait_for`` loses a cancellation that comes in the same turn: it never ended then
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await channel.retired.wait()

    async def knows(self, version: str) -> bool:
        """Whether the owner has these rules. Raises ``VaultError`` (VAULT_DOWN)."""
        channel = await self.channel()
        return cast("RulesAnswer", await channel.ask(RulesQuestion(channel.number(), version))).has

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


class FrontStream:
    """An answer whose parts the owner restores, one after the other."""

    def __init__(self, closed: Closed, channel: FrontChannel, number: int) -> None:
        self._closed = closed
        self._channel = channel
        self._number = number

    async def restore(self, piece: bytes) -> bytes:
        """As ``EventStream.restore``; the same where the owner is away."""
        return await self._passed(PartDirection.RESTORE, piece)

    async def rest(self) -> bytes:
        return await self._passed(PartDirection.REST, b"")

    async def end(self) -> None:
        await self._closed()

    async def _passed(self, direction: PartDirection, content: bytes) -> bytes:
        channel = self._channel
        done = cast(
            "StreamPartDone",
            await channel.ask(StreamPart(channel.number(), self._number, direction, content)),
        )
        if done.fault is not None:
            raise done.fault.error()
        return done.content


class FrontMessages(FrontStream):
    """A WebSocket whose messages the owner reads."""

    def __init__(
        self, closed: Closed, channel: FrontChannel, number: int, longest: int, binary: bool
    ) -> None:
        super().__init__(closed, channel, number)
        self.longest = longest
        self.passes_binary = binary

    async def redact(self, text: bytes) -> bytes:
        return await self._passed(PartDirection.REDACT, text)


class UnrestoredStream:
    """An answer that passes with its tokens, for the owner is away."""

    async def restore(self, piece: bytes) -> bytes:
        return piece

    async def rest(self) -> bytes:
        return b""

    async def end(self) -> None:
        """Nothing was begun."""
