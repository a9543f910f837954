"""The owner's side of exchanges that other processes carry (``wire``): it has the vault, keys and
audit log, reads and rewrites bodies, stages and settles.

A front that goes away in the middle leaves what it had begun in doubt, as a broken connection to
the application does: both values stay, and a later answer tells.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, cast

from proxy import __version__
from proxy.errors import Code, VaultError
from proxy.redactor.events import EventStream, MessageStream
from proxy.redactor.exchange.fork_exchange import AnyExchange
from proxy.redactor.exchange.runtime import InForce, Runtime
from proxy.redactor.exchange.wire import (
    PROTOCOL,
    ROOM,
    UNGREETED,
    Answer,
    CameBack,
    Carried,
    Close,
    Draining,
    Ended,
    Fail,
    Fault,
    FrameConnection,
    Hello,
    Left,
    Open,
    Opened,
    Part,
    PartDone,
    PartWay,
    Question,
    Readdress,
    Readdressed,
    Redact,
    Redacted,
    RulesAnswer,
    RulesQuestion,
    Settle,
    Welcome,
    decode_questions,
)
from proxy.redactor.message import header
from proxy.redactor.rules import Endpoint, Match
from proxy.redactor.views import OUTSIDE_VIEW, UNKNOWN_VIEW, View
from proxy.telemetry import logs
from proxy.telemetry.logs import REQUEST_ID

_log = logs.logger("web")

#: Seconds that answers without an end, and other long ones, have left when the owner drains:
#: requests that fronts hold back meanwhile must not wait in vain.
_STREAMS: Final = 5.0
#: Versions of rules that are remembered beside the one in force: fronts follow a moment later.
_EARLIER: Final = 4


def views_of(endpoint: Endpoint) -> list[View | None]:
    """Return what a caller may be shown, in the same order wherever the same rules are read."""
    return [None, UNKNOWN_VIEW, OUTSIDE_VIEW, *endpoint.views]


class OwnerTerms(NamedTuple):
    """Terms that fronts are told at the beginning."""

    country: str
    secret: bytes


class VaultOwner:
    """Answers fronts, whoever they are: the listener has let them in."""

    def __init__(self, in_force: InForce, terms: OwnerTerms) -> None:
        self._in_force = in_force
        self.terms = terms
        self._rules: dict[str, Runtime] = {}
        self._fronts: set[_Front] = set()
        self.servers: list[asyncio.AbstractServer] = []  #: that bring connections
        self._draining = False

    def connection(self, admit: Callable[[asyncio.BaseTransport], bool]) -> FrameConnection:
        """Return what serves a new connection, if it may come from where it does."""
        front = _Front(self, self._fronts.discard, _nobody if self._draining else admit)
        self._fronts.add(front)
        return front.connection

    def rules(self, version: str) -> Runtime | None:
        """Return the rules of that version: in force, or before."""
        runtime = self._in_force.runtime
        if self._rules.get(runtime.rules.version) is not runtime:
            self._rules.pop(runtime.rules.version, None)
            self._rules[runtime.rules.version] = runtime
            for old in list(self._rules)[: -_EARLIER - 1]:
                del self._rules[old]
        return self._rules.get(version)

    def exchange(self, job: Redact) -> AnyExchange:
        """Return the exchange of a request. Raises ``VaultError`` (VAULT_DOWN)."""
        rules = self.rules(job.rules)
        if rules is None:
            raise _other_rules()
        operation = rules.operations[job.operation]
        match = Match(operation, job.params, rules)
        return self._in_force.exchange(match, views_of(operation.endpoint)[job.view])

    def longest(self) -> int:
        """Return the bytes of the longest frame of a front: a body as its rules limit it."""
        known = (self._in_force.runtime, *self._rules.values())
        limits = [end.limits for one in known for end in one.rules.endpoints]
        return ROOM + max((max(one.body, one.inflated) for one in limits), default=0)

    async def drain(self, seconds: float) -> None:
        """Let fronts bring to its end what they have begun, for so long at most; those that connect
        from now on get to the next owner, where one accepts at the same sockets.
        """
        self._draining = True
        for server in self.servers:
            server.close()
        self.servers.clear()
        for front in self._fronts:
            front.connection.send(Draining())
        loop = asyncio.get_running_loop()
        now = loop.time()
        ends = (now + seconds, now + min(seconds, _STREAMS))
        while any(  # noqa: ASYNC110  # fronts bring it about
            loop.time() < (ends[0] if front.waited_for else ends[1])
            for front in self._fronts
            if front.waited_for or front.streams
        ):
            await asyncio.sleep(0.01)
        for front in [*self._fronts]:
            front.connection.close()


def _nobody(_: asyncio.BaseTransport) -> bool:
    return False


class _Front:
    """A connection of a front."""

    def __init__(
        self,
        owner: VaultOwner,
        forget: Callable[["_Front"], None],
        admit: Callable[[asyncio.BaseTransport], bool],
    ) -> None:
        self._owner = owner
        self._forget = forget
        self.connection = FrameConnection(self._receive, self._lost, admit, UNGREETED)
        self._greeted = False
        self.left = False  #: whether nothing begins any more
        self._exchanges: dict[int, AnyExchange] = {}  #: redacted, and not over
        self._redacting: dict[int, asyncio.Task[None]] = {}
        #: whose answers come part by part
        self.streams: dict[int, tuple[AnyExchange, EventStream]] = {}
        self._idents: dict[int, str] = {}  #: of requests that have one
        self._working: set[asyncio.Task[None]] = set()

    @property
    def waited_for(self) -> bool:
        """Whether something is under way, or may still begin."""
        undecided = self.connection.open and not self.left
        return undecided or bool(self._exchanges or self._working)

    def _receive(self, frame: bytes) -> None:
        for question in decode_questions(frame):
            self._take(question)

    def _take(self, question: Question) -> None:
        if isinstance(question, Hello):
            self._greeted = question.protocol == PROTOCOL
            self.connection.longest = self._owner.longest()
            self.connection.send(Welcome(PROTOCOL, __version__, *self._owner.terms))
        if not self._greeted:
            self.connection.close()
        if not self.connection.open:
            return
        match question:
            case Redact():
                if question.n in self._redacting or self._has(question.n):
                    self._refuse()
                    return
                if question.ident:
                    self._idents[question.n] = question.ident
                self._work(self._redact(question), question.ident, question.n)
            case CameBack() | Settle() | Open() | Part() | Close():
                self._take_on(question)
            case Fail():
                self._work_on(self._fail(question.n, sent=question.sent), question.n)
            case Readdress():
                self._work(self._readdress(question))
            case Left():
                self.left = True
            case RulesQuestion():
                has = self._owner.rules(question.rules) is not None
                self.connection.longest = self._owner.longest()  # it asks before it uses them
                self.connection.send(RulesAnswer(question.n, has))

    def _take_on(self, question: CameBack | Settle | Open | Part | Close) -> None:
        """Go on with an exchange that was begun."""
        number = question.exchange if isinstance(question, Part) else question.n
        begun = number in self.streams
        if not (begun if isinstance(question, Part | Close) else self._has(number)):
            self._refuse()
            return
        match question:
            case CameBack():
                self._work_on(self._restore(question), number)
            case Settle():
                self._work_on(self._settle(question), number)
            case Open():
                self._work(self._open(question), self._idents.get(number, ""))
            case Part():
                self._work(self._pass(question), self._idents.get(number, ""))
            case Close():
                self._work_on(self._close(number), number)

    def _has(self, number: int) -> bool:
        return number in self._exchanges or number in self.streams

    def _refuse(self) -> None:
        """End a connection whose other side tells of what was never begun, or is over."""
        _log.warning("a connection to the vault was ended: what came over it makes no sense")
        self.connection.close()

    def _work_on(self, work: Coroutine[Any, Any, None], number: int) -> None:
        """Bring an exchange to its end."""
        self._work(work, self._idents.pop(number, ""))

    def _work(
        self, work: Coroutine[Any, Any, None], ident: str = "", redacting: int | None = None
    ) -> None:
        REQUEST_ID.set(ident)  # of the task, which copies it
        task = asyncio.create_task(work)
        if redacting is not None:
            self._redacting[redacting] = task
        self._working.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a request failed inside the proxy", exc_info=error)

    async def _redact(self, job: Redact) -> None:
        try:
            exchange = self._owner.exchange(job)
            request = await exchange.redact_request(job.request, job.marks)
        except Exception as error:
            self._say(Redacted(job.n, Fault.of(error)))
            if not isinstance(error, VaultError):
                raise
            return
        finally:
            del self._redacting[job.n]
        self._exchanges[job.n] = exchange
        self._say(Redacted(job.n, None, request, exchange.timing.stage))

    async def _restore(self, job: CameBack) -> None:
        exchange, answer = self._taken(job.n), job.answer
        if not exchange.must_buffer(answer.status, answer.headers):
            await self._settled(exchange, Settle(job.n, answer.status, answer.headers))
            return
        try:
            restored = await exchange.restore_response(answer)
        except Exception as error:
            self._say(_ended(job.n, exchange, fault=Fault.of(error)))
            if not isinstance(error, VaultError):
                raise
            return
        ended = _ended(job.n, exchange)
        if restored.body != answer.body or restored.headers != answer.headers:
            ended.answer = restored
        if header(answer.headers, b"etag") is not None:
            ended.mark = exchange.mark()
        self._say(ended)

    async def _settle(self, job: Settle) -> None:
        await self._settled(self._taken(job.n), job)

    async def _settled(self, exchange: AnyExchange, job: Settle) -> None:
        fault = unread = None
        try:
            await exchange.settled(job.status, job.headers)
            try:
                exchange.pass_unread(job.status, job.headers)
            except VaultError as error:
                unread = Fault.of(error)
        except Exception as error:
            fault = Fault.of(error)
            if not isinstance(error, VaultError):
                raise
        finally:
            self._say(_ended(job.n, exchange, fault=fault, unread=unread))

    async def _fail(self, number: int, *, sent: bool) -> None:
        if not self._has(number):  # its front gives up before it is redacted
            if (task := self._redacting.get(number)) is not None:
                task.cancel()
            return
        exchange, fault = self._taken(number), None
        try:
            await exchange.failed(sent)
        except VaultError as error:
            fault = Fault.of(error)
        self._say(_ended(number, exchange, fault=fault))

    def _taken(self, number: int) -> AnyExchange:
        """An exchange that comes to its end; one may be as it would with an answer in parts."""
        exchange = self._exchanges.pop(number, None)
        return self.streams.pop(number)[0] if exchange is None else exchange

    async def _open(self, job: Open) -> None:
        exchange = self._taken(job.n)
        self._exchanges[job.n] = exchange
        stream = await exchange.stream(job.status, job.headers)
        if stream is None:
            self._say(Opened(job.n, None))
            return
        self.streams[job.n] = self._exchanges.pop(job.n), stream
        if isinstance(stream, MessageStream):
            self._say(Opened(job.n, None, True, stream.longest, stream.passes_binary))
        else:
            self._say(Opened(job.n, None, True))

    async def _pass(self, job: Part) -> None:
        stream = self.streams[job.exchange][1]
        try:
            if job.way is PartWay.REST:
                content = await stream.rest()
            elif job.way is PartWay.RESTORE:
                content = await stream.restore(job.content)
            else:
                content = await cast("MessageStream", stream).redact(job.content)
        except Exception as error:
            self._say(PartDone(job.n, Fault.of(error)))
            if not isinstance(error, VaultError):
                raise
            return
        self._say(PartDone(job.n, None, content))

    async def _close(self, number: int) -> None:
        exchange, stream = self.streams.pop(number)
        await stream.end()
        self._say(_ended(number, exchange))

    async def _readdress(self, job: Readdress) -> None:
        try:
            rules = self._owner.rules(job.rules)
            if rules is None:
                raise _other_rules()
            fields = await rules.readdress_referer(job.host, job.headers)
        except VaultError as error:
            self._say(Readdressed(job.n, Fault.of(error)))
            return
        self._say(Readdressed(job.n, None, tuple(fields)))

    def _say(self, answer: Answer) -> None:
        self.connection.send(answer)

    def _lost(self) -> None:
        """The front is gone: what became of its requests nobody knows."""
        self._forget(self)
        for task in self._redacting.values():
            task.cancel()  # nobody sends it on
        for exchange in self._exchanges.values():
            self._work(exchange.failed(True))
        for _, stream in self.streams.values():
            self._work(stream.end())
        self._exchanges.clear()
        self.streams.clear()


def _ended(
    number: int, exchange: AnyExchange, *, fault: Fault | None = None, unread: Fault | None = None
) -> Ended:
    carried: Sequence[Carried] = ()
    if exchange.carries:
        carried = [
            Carried(one.method, one.target, one.label, one.body, one.status, one.answer)
            for one in exchange.carried
        ]
    settle, missed = exchange.timing.settle, exchange.missed
    return Ended(number, fault, unread, None, b"", missed, settle, carried)


def _other_rules() -> VaultError:
    return VaultError(
        Code.VAULT_DOWN, "The owner of the vault has other rules than the process that asks."
    )
