"""An ordinary exchange that a rule names, driven by what its connections and the store tell of it.

Nothing waits for it: no task is woken when its values are durable, when the answer comes, when that
is settled. The task of the caller's connection goes on with whatever is out of the ordinary, from
where the exchange is then: see ``RedactedHandler.resume``.
"""

from collections.abc import Callable
from time import perf_counter
from typing import ClassVar, Final, NamedTuple, cast

from proxy.errors import VaultError
from proxy.gateway import headers as rewriting
from proxy.gateway.bodies import BodyBudgets, comes_soon
from proxy.gateway.callers import Callers
from proxy.gateway.fast_path_route import FastPathRoute
from proxy.gateway.forwarded import CallerFields
from proxy.gateway.ports import Exchange, OrdinaryExchange, OrdinaryPlan
from proxy.net import entity_tags, response
from proxy.net.hop_headers import response_fields
from proxy.net.http1.body import REQUEST_BUFFER
from proxy.net.http1.head import LENGTH, NONE, ResponseHead
from proxy.net.memory_budget import MemoryBudget, Reservation
from proxy.net.reply import (
    LATER,
    BufferedReply,
    Call,
    PendingReply,
    ReplyConnection,
    UpstreamPort,
    UpstreamResponse,
)
from proxy.net.response import RequestContext
from proxy.offload import SMALL
from proxy.redactor.message import RawHeaders, Request, Timing, header
from proxy.telemetry import logs
from proxy.telemetry.logs import REQUEST_ID

_log = logs.logger("web")

# What an exchange waits for.
_STAGING: Final = 0  #: its values to be durable
_SENT: Final = 1  #: the answer
_SETTLING: Final = 2  #: what that means to be durable
_AUDITING: Final = 3  #: its line of the audit log
_WRITTEN: Final = 4  #: its caller to take it

_UNCHANGED: Final = b"HTTP/1.1 304 Not Modified\r\n"


class FastPath(NamedTuple):
    """Services that such exchanges share."""

    upstream: UpstreamPort
    rooms: BodyBudgets
    callers: Callers  #: what tells their views
    keyed: entity_tags.KeyedTags
    varying: CallerFields | None  #: what gives requests their ids, where they have any
    tell: Callable[[RequestContext, None], None]  #: at the end of an exchange
    refuse: Callable[[RequestContext, VaultError], None]  #: where that is an error


class FastPathRequest(PendingReply, eq=False, kw_only=True):
    """One exchange, from the request on."""

    lasting: ClassVar[bool] = True

    way: FastPath
    incoming: RequestContext
    route: FastPathRoute
    plan: OrdinaryPlan
    exchange: OrdinaryExchange
    ids: bytes = b""  #: lines of the head for the application that tell its ids
    phase: int = _STAGING
    came_whole: tuple[ResponseHead, bytes] | None = None  #: the answer, where it did
    answer: ResponseHead | None = None  #: as its body is restored
    head: bytes = b""  #: of the answer for the caller, but for the length
    out: bytes = b""  #: its body
    status: int = 0
    #: when the steps ended, by ``perf_counter``; 0: they did not
    matched: float = 0.0
    received: float = 0.0
    redacted: float = 0.0
    durable: float = 0.0
    answered: float = 0.0
    settled: float = 0.0

    # ------------------------------------------------ what the store and the connection tell

    def done(self) -> bool:
        """It waits to its end."""
        return False

    def on_complete(self, head: ResponseHead, body: bytes) -> None:
        """Continue: an answer came whole."""
        try:
            self.came_whole = head, body
            if self.watch.engaged:
                self.watch.answered()
            self._restore(head, body)
        except Exception:  # noqa: BLE001  # the connection may not fail for it; the task goes on
            self._stumble()

    def set_result(self, reply: UpstreamResponse | None) -> None:
        """Continue: the head of the answer came, or the commit is durable."""
        try:
            if reply is not None:
                self.reply = reply
                if self.watch.engaged:
                    self.watch.answered()
                self.on_response()
            elif self.phase == _STAGING:
                self.durable = perf_counter()
                self.exchange.staged()
                self.phase = _SENT
                if not self.way.upstream.begin(self.asking(), self):
                    self.phase = _STAGING
                    self._hand_over()  # which waits for a connection
            elif self.phase == _SENT:
                self.on_response()  # more of it came
            else:
                self.settled = perf_counter()
                self.exchange.settled()
                self.phase = _AUDITING
                self.exchange.audit(self.status, self)
        except Exception:  # noqa: BLE001  # neither of them may fail for it; the task goes on
            self._stumble()

    def set_exception(self, error: BaseException) -> None:
        """It will never be there."""
        if self.phase == _STAGING:  # nothing was stored or sent
            self.exchange.abandon()
            self._begin_again()
            return
        if self.phase == _SENT:
            self.error = error
        self._hand_over()

    def interim(self, status: int, reason: bytes, headers: RawHeaders) -> None:
        """Pass an interim answer on; the body was here before the application asked for it."""
        if status != 100:
            response.pass_interim(self.incoming, status, reason, rewriting.interim_fields(headers))

    def drop(self) -> None:
        """Once the application may act it is brought to its end, whatever the caller does."""

    # ------------------------------------------------ the steps

    def start(self) -> bool:
        """Send an exchange that stores nothing; ``False``: no connection waits idle."""
        self.durable = perf_counter() if self.plan.writes else self.redacted
        self.phase = _SENT
        if self.way.upstream.begin(self.asking(), self):
            self.exchange.staged()
            return True
        self.phase = _STAGING
        self.exchange.abandon()
        return False

    def asking(self) -> Call:
        """The request for the application."""
        route, sent = self.route, self.exchange.sent
        if sent:
            head = b"%b%bContent-Length: %d\r\n\r\n" % (route.head, self.ids, len(sent))
        else:
            head = b"%b%b\r\n" % (route.head, self.ids)
        method = self.incoming.head.method
        return Call(route.address, method, head, sent, once=self.plan.writes)

    def on_response(self) -> None:
        """The head of the answer is there, or more of its body."""
        reply = self.reply
        body = reply.buffered if reply is not None else None
        if reply is not None and body is not None:
            self._restore(reply.head, body)
        elif reply is None or reply.waiting > SMALL or not self._waits(reply):
            self._hand_over()

    def _waits(self, reply: UpstreamResponse) -> bool:
        """Wait for the rest of an answer that may be ordinary, as its head tells."""
        if reply.head.status not in self.plan.success or not rewriting.restored_head(reply.head):
            return False
        return reply.tell(self)

    def _restore(self, answer: ResponseHead, body: bytes) -> None:
        """Restore an answer, and go on with what it means."""
        self.answered = perf_counter()
        exchange, status = self.exchange, answer.status
        if status in self.plan.success and body and len(body) <= SMALL:
            if self.route.viewed:
                answer = answer.viewed or rewriting.private_head(answer)
            head = answer.restored
            if head is None:
                head = rewriting.restored_head(answer)
            if head and exchange.restore(body) is not None:
                self.answer, self.head, self.status = answer, head, status
                exchange.tagged = head.find(rewriting.HASH) >= 0
                if not exchange.settles:
                    self.phase = _AUDITING
                    exchange.audit(status, self)
                    return
                self.phase = _SETTLING
                if exchange.settle(self, status):
                    return
        self._hand_over()

    def audited(self, error: VaultError | None) -> None:
        """Continue: the audit log has the line, or refused it."""
        settle = self.settled - self.answered if self.settled else 0.0
        times = self.matched, self.received, self.durable, self.answered
        stage = self.durable - self.redacted
        self.incoming.timing = Timing(self.incoming.started, *times, stage, settle)
        try:
            if error is None:
                self.out = self.exchange.audited()
                self._answer()
            elif self.plan.writes:
                self._refuse(error)
            else:
                self._hand_over()  # where tokens may pass
        except Exception:  # noqa: BLE001  # the lines of others follow; the task goes on
            self._stumble()

    def _refuse(self, error: VaultError) -> None:
        self.exchange.close()
        self.way.refuse(self.incoming, error)
        self.incoming.connection.answered(self.incoming)

    def _stumble(self) -> None:
        """Log a fault of ours in its ``except``, and let the general code go on."""
        named = REQUEST_ID.set(self.incoming.request_id)
        _log.error("an exchange failed inside the proxy, and goes on", exc_info=True)
        REQUEST_ID.reset(named)
        self._hand_over()

    def _answer(self) -> None:
        if self.exchange.tagged:
            self._tag()
        incoming, body = self.incoming, self.out
        self.phase = _WRITTEN
        incoming.began, incoming.status = True, self.status  # its body was whole
        incoming.size += len(body)
        length = b"Content-Length: %d\r\n" % len(body) if body else b""
        tail = b"Connection: close\r\n\r\n" if incoming.close else b"\r\n"
        data = self.head + length + tail + body
        transport = incoming.connection.transport
        if transport is not None:
            transport.write(incoming.with_fields(data) if incoming.answer_fields else data)
        if transport is not None and transport.get_write_buffer_size() > response.WRITE_BUFFER:
            self._hand_over()  # a slow caller
            return
        self.way.tell(incoming, None)
        incoming.connection.answered(incoming)

    def _tag(self) -> None:
        """Give the answer its entity tag; a caller who has it already gets no body."""
        hashed = entity_tags.body_hash(self.out, None, self.way.keyed, self.exchange.mark())
        listed = self.route.if_none_match
        if listed is not None and self.status == 200 and self.answer is not None:
            headers = tuple(response_fields(self.answer.headers, NONE, 200, 0))
            tag = entity_tags.tag_of(header(headers, b"etag") or b"", hashed) or b""
            if entity_tags.lists_tag(listed, tag):
                lines = b"".join(rewriting.unchanged_lines(headers, tag))
                self.head, self.out, self.status = b"%b%b" % (_UNCHANGED, lines), b"", 304
        self.head = self.head.replace(rewriting.HASH, hashed)

    # ------------------------------------------------ the way back into the general code

    def _hand_over(self) -> None:
        if self.reply is None and self.came_whole is not None:
            head, body = self.came_whole
            self.reply = BufferedReply(
                head, LENGTH, cast("ReplyConnection", self.carrier), len(body), body
            )
        self.incoming.connection.resume(self.incoming, self)

    def _begin_again(self) -> None:
        incoming = self.incoming
        if incoming.reservation is not None:
            incoming.reservation.close()
            incoming.reservation = None
        incoming.connection.resume(incoming, None)

    @property
    def written(self) -> bool:
        """Whether its answer is written, and the caller has to be waited for."""
        return self.phase == _WRITTEN

    @property
    def sent(self) -> bool:
        """Whether the application was asked."""
        return self.phase != _STAGING

    def general(self) -> Exchange:
        """The exchange that goes on from here."""
        exchange = self.exchange.general()
        timing = exchange.timing
        timing.started, timing.matched = self.incoming.started, self.matched
        timing.received, timing.redacted = self.received, self.durable
        timing.stage = self.durable - self.redacted
        return exchange


def begin_fast_path(
    way: FastPath, incoming: RequestContext, route: FastPathRoute
) -> PendingReply | None:
    """Begin the exchange of a request; ``LATER``: its body has to come; ``None``: not ordinary."""
    view = way.callers.cached_view(incoming) if route.viewed else None
    plan = route.plans[view] if view is not None or not route.viewed else None
    if plan is None:
        return None
    head, payload, room = incoming.head, incoming.payload, way.rooms.requests
    size = head.length
    if size > plan.limit or not (payload.done or comes_soon(incoming)):
        return None
    if not payload.done:
        if size > REQUEST_BUFFER and not _reserved(incoming, room):
            return None
        incoming.timing = Timing(incoming.started, perf_counter())
        return LATER
    if incoming.reservation is not None:  # for the time that its body was on its way
        incoming.reservation.close()
        incoming.reservation = None
    matched = incoming.timing.matched if incoming.timing else perf_counter()
    if 2 * size > room.small and not room.at_hand(2 * size):  # its answer, about as long, counts
        return None
    body = payload.joined if size else b""
    if body is None or len(body) != size:
        return None
    received = perf_counter()
    headers, varying = tuple(route.fields.headers), way.varying
    headers, ids = (headers, b"") if varying is None else _with_ids(varying, incoming, headers)
    request = Request(head.method, incoming.target, headers, body)
    exchange = plan.begin(route.match, request, route.marks)
    if exchange is None:
        return None
    if body:
        incoming.reservation = Reservation(room, 2 * len(body))
    exchange.ident = incoming.request_id
    begun = FastPathRequest(
        way=way, incoming=incoming, route=route, plan=plan, exchange=exchange, ids=ids
    )
    begun.matched, begun.received, begun.redacted = matched, received, perf_counter()
    if exchange.stage(begun) if exchange.settles else begun.start():
        return begun
    if incoming.reservation is not None:
        incoming.reservation.close()
        incoming.reservation = None
    return None


def _with_ids(
    varying: CallerFields, incoming: RequestContext, headers: RawHeaders
) -> tuple[RawHeaders, bytes]:
    """The fields for the application with the ids of the request, and the lines of these."""
    varying.identify(incoming)
    own = varying.ids(incoming)
    return (*headers, *own), b"".join([b"%b: %b\r\n" % field for field in own])


def _reserved(incoming: RequestContext, room: MemoryBudget) -> bool:
    """Whether there is room for a long body, which waits then until all of it is here."""
    size = 2 * incoming.head.length
    if not room.at_hand(size):
        return False
    incoming.reservation = Reservation(room, size)
    incoming.payload.hold(incoming.head.length)
    return True
