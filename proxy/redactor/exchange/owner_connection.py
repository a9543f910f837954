"""The owner's side of the connection of one front: questions, in the order in which they come."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from proxy import __version__
from proxy.errors import Code, VaultError
from proxy.redactor.bodies.events import EventStream, MessageStream
from proxy.redactor.exchange.fork_exchange import AnyExchange
from proxy.redactor.exchange.frame_connection import FrameConnection
from proxy.redactor.exchange.list_answers import ListExchange
from proxy.redactor.exchange.owner_fast_path import SENT, Begun, GeneralWay, StageJob
from proxy.redactor.exchange.owner_protocol import (
    PROTOCOL,
    UNGREETED,
    CloseStream,
    DrainAccepted,
    Ended,
    Fail,
    Fault,
    Hello,
    OpenStream,
    PartDirection,
    Question,
    Redact,
    Redacted,
    RedactHeaders,
    RestoreAnswer,
    Result,
    Resume,
    Reveal,
    RulesAnswer,
    RulesQuestion,
    Settle,
    SettleWrite,
    StageDone,
    StageWrite,
    StreamOpened,
    StreamPart,
    StreamPartDone,
    Welcome,
    decode_questions,
)
from proxy.redactor.message import header
from proxy.telemetry import logs

_log = logs.logger("web")


class OwnerPort(Protocol):
    """The owner, as a connection needs it (``owner.VaultOwner``)."""

    @property
    def terms(self) -> tuple[str, bytes]:
        """Country and secret, which fronts are told at the beginning."""

    async def knows(self, version: str) -> bool:
        """Whether a front may use the rules of that version."""

    def exchange(self, job: Redact) -> AnyExchange:
        """Return the exchange of a request. Raises ``VaultError`` (VAULT_DOWN)."""

    def begin(self, way: GeneralWay, job: Reveal | StageWrite) -> Begun | None:
        """Begin in few steps; ``None`` as of ``VaultOwner.begin``."""

    async def redact_headers(self, way: GeneralWay, job: RedactHeaders) -> None:
        """Say the fields with tokens in place of the values in addresses and cookies."""

    def longest(self) -> int:
        """Return the bytes of the longest frame of a front: a body as its rules limit it."""


class OwnerConnection:
    """A connection of a front."""

    def __init__(
        self,
        owner: OwnerPort,
        forget: Callable[["OwnerConnection"], None],
        admit: Callable[[asyncio.BaseTransport], bool],
    ) -> None:
        self._owner = owner
        self._forget = forget
        self.connection = FrameConnection(self._receive, self._lost, admit, UNGREETED)
        self._greeted = False
        self._most = UNGREETED  #: bytes of the longest message that the front takes
        self.drained = False  #: whether nothing begins any more
        self._exchanges: dict[int, AnyExchange] = {}  #: redacted, and not over
        self._redacting: dict[int, asyncio.Task[None]] = {}
        self._ordinary: dict[int, Begun] = {}  #: carried in few steps
        self.streams: dict[int, tuple[AnyExchange, EventStream]] = {}  #: answered part by part
        self._idents: dict[int, str] = {}  #: of requests that have one
        self._working: set[asyncio.Task[None]] = set()

    @property
    def waited_for(self) -> bool:
        """Whether something is under way, or may still begin."""
        under_way = self._exchanges or self._working or self._ordinary
        return bool(under_way) or (self.connection.open and not self.drained)

    def _receive(self, frame: bytes) -> None:
        # nearly all that a busy vault hears is one of three: few calls for each
        for question in decode_questions(frame):
            if self.connection.closing:
                return
            if type(question) is SettleWrite:
                job = self._ordinary.get(question.n)
                if type(job) is not StageJob or job.phase != SENT:
                    self._refuse()
                else:
                    job.settle_write(question)
            elif self._greeted and (type(question) is StageWrite or type(question) is Reveal):
                self._begin(question)
            else:
                self._handle(question)

    def _handle(self, question: Question) -> None:
        if isinstance(question, Hello):
            self._greet(question)
        if not self._greeted:
            self.connection.close()
            return
        match question:
            case Redact() | Reveal():
                self._begin(question)
            case Resume():
                self._resume(question)
            case RestoreAnswer() | Settle() | OpenStream() | StreamPart() | CloseStream():
                self._continue(question)
            case Fail(n=number):
                self._go_general(number)
                if (job := self._ordinary.get(number)) is not None:
                    job.front_lost()
                else:
                    self._work_on(self._fail(number, sent=question.sent), number)
            case RedactHeaders():
                self._work(self._owner.redact_headers(self, question))
            case DrainAccepted():
                self.drained = True
            case RulesQuestion():
                self._most = max(self._most, question.longest)
                self._work(self._tell_rules(question))

    def _greet(self, hello: Hello) -> None:
        self._greeted, self._most = hello.protocol == PROTOCOL, hello.longest
        self.connection.longest = self._owner.longest()
        self.connection.send(Welcome(PROTOCOL, __version__, *self._owner.terms))

    async def _tell_rules(self, question: RulesQuestion) -> None:
        has = question.rules != "" and await self._owner.knows(question.rules)
        self.connection.longest = self._owner.longest()  # it asks before it uses them
        self.connection.send(RulesAnswer(question.n, has))

    def _begin(self, job: Redact | Reveal | StageWrite) -> None:
        number, ordinary = job.n, self._ordinary
        taken = number in ordinary or number in self._redacting or number in self._exchanges
        if taken or number in self.streams:
            self._refuse()
        elif isinstance(job, Redact):
            if job.ident:
                self._idents[number] = job.ident
            self._work(self._redact(job), job.ident, number)
        elif (begun := self._owner.begin(self, job)) is not None:
            ordinary[number] = begun

    def _sent(self, number: int) -> StageJob | None:
        job = self._ordinary.get(number)
        return job if isinstance(job, StageJob) and job.phase == SENT else None

    def _resume(self, question: Resume) -> None:
        if (job := self._sent(question.n)) is None:
            self._refuse()
            return
        self._idents[question.n] = job.ident
        self._exchanges[question.n] = job.resume(question.request)

    def _go_general(self, number: int) -> None:
        if (job := self._sent(number)) is not None:
            self._exchanges[number] = job.general()

    def finish(self, number: int) -> None:
        self._ordinary.pop(number, None)

    def give_up(self, exchange: AnyExchange, *, sent: bool, ident: str = "") -> None:
        self._work(exchange.failed(sent), ident)

    def _continue(
        self, question: RestoreAnswer | Settle | OpenStream | StreamPart | CloseStream
    ) -> None:
        number = question.exchange if isinstance(question, StreamPart) else question.n
        begun = number in self.streams
        if not (begun if isinstance(question, StreamPart | CloseStream) else self._has(number)):
            self._refuse()
            return
        match question:
            case RestoreAnswer():
                self._work_on(self._restore(question), number)
            case Settle():
                self._work_on(self._settled(question), number)
            case OpenStream():
                self._work(self._open(question), self._idents.get(number, ""))
            case StreamPart():
                self._work(self._pass(question), self._idents.get(number, ""))
            case CloseStream():
                self._work_on(self._close(number), number)

    def _has(self, number: int) -> bool:
        return number in self._exchanges or number in self.streams

    def _refuse(self) -> None:
        """End a connection whose other side tells of what was never begun, or is over."""
        _log.warning("a connection to the vault was ended: what came over it makes no sense")
        self.connection.close()

    def _work_on(self, work: Coroutine[Any, Any, None], number: int) -> None:
        self._work(work, self._idents.pop(number, ""))

    def _work(
        self, work: Coroutine[Any, Any, None], ident: str = "", redacting: int | None = None
    ) -> None:
        logs.REQUEST_ID.set(ident)  # of the task, which copies it
        task = asyncio.create_task(work)
        if redacting is not None:
            self._redacting[redacting] = task
        self._working.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a request failed inside the proxy", exc_info=error)

    async def _redact(self, job: Redact) -> None:
        try:
            exchange = self._owner.exchange(job)
            request = await exchange.redact_request(job.request, job.marks)
            if job.answer is not None and request != job.request:
                raise TypeError("the application was asked with values in its request")
        except Exception as error:
            kind = Redacted if job.answer is None else Ended
            self.send(kind(job.n, Fault.of(error)))
            if not isinstance(error, VaultError):
                raise
            return
        finally:
            del self._redacting[job.n]
        self._exchanges[job.n] = exchange
        if job.answer is not None:
            await self._restore(RestoreAnswer(job.n, job.answer, job.rows))
            return
        self.send(Redacted(job.n, None, request, exchange.timing.stage))

    async def _restore(self, job: RestoreAnswer) -> None:
        exchange, answer = self._pop(job.n), job.answer
        if not exchange.must_buffer(answer.status, answer.headers):
            await self._settled(Settle(job.n, answer.status, answer.headers), exchange)
            return
        try:
            if job.rows:
                await self._restore_rows(job, exchange)
                return
            restored = await exchange.restore_response(answer)
        except Exception as error:
            self.send(_ended(job.n, exchange, fault=Fault.of(error)))
            if not isinstance(error, VaultError):
                raise
            return
        ended = _ended(job.n, exchange)
        if restored.body != answer.body or restored.headers != answer.headers:
            ended.answer = restored
        if header(answer.headers, b"etag") is not None:
            ended.mark = exchange.mark()
        self.send(ended)

    async def _restore_rows(self, job: RestoreAnswer, exchange: AnyExchange) -> None:
        values, ended = None, _ended(job.n, exchange)
        if isinstance(exchange, ListExchange):
            values = await exchange.reveal_rows(job.answer.status, job.rows)
        if values is None:
            self._exchanges[job.n], ended.unsettled = exchange, True
        ended.values = values or b""
        self.send(ended)

    async def _settled(self, job: Settle, taken: "AnyExchange | None" = None) -> None:
        exchange, fault, unread = taken or self._pop(job.n), None, None
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
            self.send(_ended(job.n, exchange, fault=fault, unread=unread))

    async def _fail(self, number: int, *, sent: bool) -> None:
        if not self._has(number):  # its front gives up before it is redacted
            if (task := self._redacting.get(number)) is not None:
                task.cancel()
            return
        exchange, fault = self._pop(number), None
        try:
            await exchange.failed(sent)
        except VaultError as error:
            fault = Fault.of(error)
        self.send(_ended(number, exchange, fault=fault))

    def _pop(self, number: int) -> AnyExchange:
        exchange = self._exchanges.pop(number, None)
        return self.streams.pop(number)[0] if exchange is None else exchange

    async def _open(self, job: OpenStream) -> None:
        exchange = self._pop(job.n)
        self._exchanges[job.n] = exchange
        stream = await exchange.stream(job.status, job.headers)
        opened = StreamOpened(job.n, None, stream is not None)
        if stream is not None:
            self.streams[job.n] = self._exchanges.pop(job.n), stream
        if isinstance(stream, MessageStream):
            opened.longest, opened.passes_binary = stream.longest, stream.passes_binary
        self.send(opened)

    async def _pass(self, job: StreamPart) -> None:
        stream = self.streams[job.exchange][1]
        try:
            if job.direction is PartDirection.REST:
                content = await stream.rest()
            elif job.direction is PartDirection.RESTORE:
                content = await stream.restore(job.content)
            else:
                content = await cast("MessageStream", stream).redact(job.content)
        except Exception as error:
            self.send(StreamPartDone(job.n, Fault.of(error)))
            if not isinstance(error, VaultError):
                raise
            return
        self.send(StreamPartDone(job.n, None, content))

    async def _close(self, number: int) -> None:
        exchange, stream = self.streams.pop(number)
        await stream.end()
        self.send(_ended(number, exchange))

    def send(self, answer: Result) -> None:
        """Send an answer; the refusal of one that is longer than a front takes."""
        if type(answer) is Ended and not answer.unsettled:
            self._ordinary.pop(answer.n, None)
        if self.connection.send(answer, self._most):
            return
        begun = isinstance(answer, Redacted | StageDone)
        code, text = (Code.TOO_LARGE, "request") if begun else (Code.ANSWER_TOO_LARGE, "answer")
        error = VaultError(
            code,
            f"The {text} has more than {self._most} bytes with what was put in, and cannot come "
            "from the owner of the vault: ask for less, or raise limits.inflated.",
        )
        self.connection.send(type(answer)(answer.n, Fault.of(error)))
        if begun:
            self._go_general(answer.n)
            self._work_on(self._pop(answer.n).failed(False), answer.n)

    def _lost(self) -> None:
        self._forget(self)
        for task in self._redacting.values():
            task.cancel()  # nobody sends it on
        for job in [*self._ordinary.values()]:
            job.front_lost()
        for exchange in self._exchanges.values():
            self._work(exchange.failed(True))
        for _, stream in self.streams.values():
            self._work(stream.end())
        self._exchanges.clear()
        self.streams.clear()


def _ended(
    number: int, exchange: AnyExchange, *, fault: Fault | None = None, unread: Fault | None = None
) -> Ended:
    carried = exchange.carried if exchange.carries else ()
    settle, missed = exchange.timing.settle, exchange.missed
    return Ended(number, fault, unread, None, b"", missed, settle, carried)
