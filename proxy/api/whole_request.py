"""Requests to the vault that came whole in one piece, under a head that the connection knows.

aiohttp reads the first request under a head: its fields, and that it is an ordinary message. Those
that follow on the connection differ in their address, their length and their body alone, so they
need no parser, stream, writer and response object of their own. Only frequent operations go this
way; whatever is unusual goes aiohttp's, and what a caller sees is the same byte by byte.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from aiohttp import HttpVersion11, web
from multidict import CIMultiDictProxy

from proxy.net.server import ApplicationConnection

_START: Final = re.compile(rb"([A-Z]{3,7}) (/[!-~]*) HTTP/1\.1\r\n")
_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\nContent-Length: "

#: Heads that a connection knows, and bytes of the longest: ten thousand idle connections do so.
_HEADS: Final = 2
_LONGEST: Final = 4096

#: Fields of heads that go aiohttp's way; an ``Idempotency-Key`` seldom comes twice, and its kept
#: answer has fields of its own.
_UNUSUAL: Final = frozenset({"expect", "transfer-encoding", "upgrade", "idempotency-key"})

#: Digits of a length; larger bodies do not come in one piece.
_DIGITS: Final = 7


class WholeMessage(NamedTuple):
    """A request whose bytes are there, by its own account; nobody has checked its head."""

    method: str
    path: str
    head: tuple[bytes, bytes]  #: its fields, before and after the digits of its length
    length: int  #: -1: no ``Content-Length`` in its usual spelling
    body: bytes


def whole(data: bytes) -> WholeMessage | None:
    """The one request that these bytes are, no more and no less."""
    match, end = _START.match(data), data.find(_END)
    if match is None or end < 0:
        return None
    start = match.end()
    before, name, rest = data[start - 2 : end + 2].partition(_LENGTH)
    after, length = b"", -1
    if name:
        digits, _, after = rest.partition(b"\r\n")
        if not digits.isdigit() or len(digits) > _DIGITS:
            return None
        length = int(digits)
    body = data[end + 4 :]
    if len(body) != max(length, 0):
        return None
    method, path = match.groups()
    return WholeMessage(method.decode(), path.decode(), (before, after), length, body)


class WholeRequest(dict[Any, Any]):
    """Such a request as far as frequent operations look at it; its items are as those of aiohttp's.

    ``headers`` are those of the first request under its head: the length in them may be another.
    """

    __slots__ = ("app", "body", "head", "headers", "match_info", "method", "protocol")

    query_string = ""

    def __init__(
        self,
        app: web.Application,
        protocol: ApplicationConnection,
        sent: WholeMessage,
        head: "KnownHead",
        match_info: Mapping[str, str],
    ) -> None:
        self.app = app
        self.protocol = protocol
        self.method, self.body = sent.method, sent.body
        self.head, self.headers = head, head.fields
        self.match_info = match_info


class KnownHead:
    """A head under which aiohttp has read an ordinary request."""

    __slots__ = ("fields", "noted", "sent", "sized")

    def __init__(self, message: WholeMessage, fields: CIMultiDictProxy[str]) -> None:
        self.sent, self.sized = message.head, message.length >= 0
        self.fields = fields
        self.noted: Any = None  #: what those who answer requests have read in the fields


class KnownHeads:
    """The heads that one connection knows."""

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: list[KnownHead] = []

    def find(self, sent: WholeMessage) -> KnownHead | None:
        """The head of a request, if it is known."""
        for head in self._heads:
            if head.sent == sent.head and head.sized == (sent.length >= 0):
                return head
        return None

    def learn(self, sent: WholeMessage, message: Any) -> bool:
        """Remember the head of a request as aiohttp has read it, if it is an ordinary one; whether
        it ends where ``sent`` does.
        """
        if (message.method, message.path) != (sent.method, sent.path):
            return False  # another one, or what aiohttp has in place of one that it cannot read
        fields = message.headers
        if message.chunked or message.upgrade:
            return False
        if fields.getall("Content-Length", ["-1"]) != [str(sent.length)]:
            return False
        ordinary = (
            message.version == HttpVersion11
            and not message.should_close
            and _UNUSUAL.isdisjoint(map(str.lower, fields))
            and sum(map(len, sent.head)) <= _LONGEST
        )
        if ordinary and self.find(sent) is None:
            del self._heads[: max(0, len(self._heads) + 1 - _HEADS)]
            self._heads.append(KnownHead(sent, fields))
        return True


class WholeAnswer(Protocol):
    """An answer that can be sent on a connection."""

    async def leave(self, connection: "WholeRequests") -> None:
        """Send it."""

    def leave_at_once(self, connection: "WholeRequests") -> bool:
        """Send one that is no stream; whether the caller takes further bytes now."""


class Answering(NamedTuple):
    """Two ways to answer requests of one operation."""

    in_turn: Callable[[WholeRequest], Awaitable[WholeAnswer]]
    #: without waiting; ``None``: nothing was done, it takes its turn
    at_once: Callable[[WholeRequest], WholeAnswer | None] | None = None


class Direct(NamedTuple):
    """The frequent operations of an application."""

    app: web.Application
    #: by method and path the route, and the parameters
    match: Callable[[str, str], tuple[web.AbstractRoute, dict[str, str]] | None]
    answering: Mapping[web.AbstractRoute, Answering]  #: what makes the answers of routes


class WholeRequests(ApplicationConnection):
    """A connection that answers such requests in tasks of their own; what comes meanwhile waits."""

    __slots__ = ("_exact", "_fresh", "_heads", "_queued", "_serving", "_under_way", "direct")

    def __init__(self, server: web.Server, **options: Any) -> None:
        super().__init__(server, **options)
        #: those of the application, once aiohttp has routed a request; ``None``: all go its way
        self.direct: Direct | None = None
        self._heads = KnownHeads()
        self._under_way = False  #: aiohttp reads one, or has not answered it
        self._exact = True  #: each piece so far was one whole request: the next one begins another
        self._fresh: WholeMessage | None = None  #: the one that aiohttp reads
        self._serving: asyncio.Task[None] | None = None
        self._queued = b""

    @property
    def idle_since(self) -> float | None:
        """In loop time, since when no request is under way; ``None``: one is."""
        return None if self._serving is not None else super().idle_since

    def learn(self, message: Any) -> None:
        """Take note of a head that aiohttp has read."""
        fresh, self._fresh = self._fresh, None
        if fresh is not None and not self._heads.learn(fresh, message):
            self._exact = False  # its end may be elsewhere

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; the next bytes begin another request."""
        finished = await super().finish_response(request, resp, start_time)
        self._under_way = False
        return finished

    def data_received(self, data: bytes) -> None:
        """Read bytes, or let them wait behind the request under way."""
        if self._serving is not None:
            self._queued += data
            if self.transport is not None:
                self.transport.pause_reading()
            return
        if self._exact and data:  # aiohttp calls with none, to go on with what it has
            self._fresh = sent = None if self._under_way else whole(data)
            self._exact = sent is not None
            if sent is not None and self._taken(sent):
                return
            self._under_way = True
        super().data_received(data)

    def _taken(self, sent: WholeMessage) -> bool:
        """Whether a request is answered here: at once, or in a task."""
        direct, head = self.direct, self._heads.find(sent)
        if direct is None or head is None or self.waiting is not None or self.ending:
            return False
        target = direct.match(sent.method, sent.path)
        answering = None if target is None else direct.answering.get(target[0])
        if target is None or answering is None:
            return False
        request = WholeRequest(direct.app, self, sent, head, target[1])
        answer = answering.at_once(request) if answering.at_once else None
        if answer is not None and answer.leave_at_once(self):
            self.keep()
            return True
        self.keep(busy=True)
        self._serving = asyncio.get_running_loop().create_task(
            self._serve(answering, request, answer)
        )
        return True

    async def _serve(
        self, answering: Answering, request: WholeRequest, answer: WholeAnswer | None
    ) -> None:
        """Answer it, unless it has its ``answer``; go on behind it."""
        try:
            if answer is None:
                answer = await answering.in_turn(request)
                await answer.leave(self)
            else:
                await self.drained()
        except ConnectionError:
            self.force_close()  # the caller has gone
        except BaseException:
            self.force_close()
            raise
        finally:
            self._serving = None
        self.keep()
        if self.ending:
            self.force_close()
        elif self._queued and self.transport is not None:
            queued, self._queued = self._queued, b""
            self.transport.resume_reading()
            self.data_received(queued)

    async def put(self, piece: bytes) -> None:
        """Send a piece of an answer; return when the caller takes bytes again."""
        if self.transport is None:
            raise ConnectionResetError("The caller has gone.")
        self.transport.write(piece)
        await self.drained()

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109  # as aiohttp has it
        """Let the request under way end, then the connection."""
        self.ending = True
        if (serving := self._serving) is not None:
            await asyncio.wait([serving], timeout=timeout)
            serving.cancel()
            await asyncio.wait([serving], timeout=timeout)
        await super().shutdown(timeout)
