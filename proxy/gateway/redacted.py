"""Handler of requests that a rule names: redact before forwarding, restore the answer.

The body is read whole. A streamed answer is restored event by event.
"""

from collections.abc import Awaitable, Callable
from time import perf_counter

import msgspec

from proxy.edge.quotas import MissLimit
from proxy.errors import Code, VaultError
from proxy.gateway import headers as rewriting
from proxy.gateway.bodies import (
    BodyBudgets,
    BodyTimeouts,
    collect,
    complete_body,
    inflated,
    read_whole,
    waits,
)
from proxy.gateway.callers import Confirm
from proxy.gateway.fast_path_request import FastPathRequest
from proxy.gateway.ports import Exchange
from proxy.gateway.streams import (
    UPGRADE,
    ConfirmedMessages,
    message_stream,
    relay_messages,
    restore_stream,
)
from proxy.net import entity_tags, response
from proxy.net.coverage import Coverage
from proxy.net.hop_headers import RequestFields, response_fields
from proxy.net.http1.head import NONE, TUNNEL, ResponseHead
from proxy.net.memory_budget import Reservation
from proxy.net.reply import Call, UpstreamAddress, UpstreamFault, UpstreamPort, UpstreamResponse
from proxy.net.response import RequestContext
from proxy.offload import SMALL, in_thread, run_in_thread
from proxy.redactor import content_coding
from proxy.redactor.message import RawHeaders, Request, Response, header
from proxy.redactor.method_override import RouteWatch
from proxy.redactor.rules import BodyLimits, Match, Verb

_READ = Verb.READ


class RedactedRequest(msgspec.Struct, frozen=True, gc=False):
    """A matched request without its payload."""

    fields: RequestFields
    match: Match
    address: UpstreamAddress
    body: bytes | None = None  #: as received, if it was read before the match
    viewed: bool = False  #: other callers may be shown another answer
    confirm: Confirm | None = None  #: of a view: that its caller still proves it
    swapped: bool = False  #: whether tokens may have taken the places of values in its fields
    messages: ConfirmedMessages | None = None  #: of a WebSocket


class RedactedHandler:
    """Carries matched requests.

    After the request is sent, the exchange is completed even if the caller leaves.
    """

    def __init__(
        self,
        upstream: UpstreamPort,
        timeouts: BodyTimeouts,
        rooms: BodyBudgets,
        keyed: entity_tags.KeyedTags,
        misses: MissLimit | None = None,
    ) -> None:
        self._upstream = upstream
        self._timeouts = timeouts
        self._rooms = rooms
        self._keyed = keyed  #: for entity tags
        self._misses = misses
        #: called for the requests of envelopes
        self.coverage: Coverage | None = None

    def carry(
        self, incoming: RequestContext, job: RedactedRequest, exchange: Exchange
    ) -> Awaitable[None]:
        """Redact, forward, settle, restore, answer; count what searched and is shown nothing.

        Raises ``VaultError`` where the caller gets an error instead.
        """
        operation = job.match.operation
        if exchange.carries and self.coverage is not None:
            return self._covered(self.coverage, incoming, job, exchange)
        if self._misses is None or operation.verb is not _READ:
            return self._carry(incoming, job, exchange)
        return self._counted(self._misses, incoming, job, exchange)

    async def _covered(
        self, coverage: Coverage, incoming: RequestContext, job: RedactedRequest, exchange: Exchange
    ) -> None:
        try:
            await self._carry(incoming, job, exchange)
        finally:
            carried, operation = exchange.carried, job.match.operation
            if carried and operation.branches:  # the first is the request itself
                incoming.chosen = carried[0].label
                carried = carried[bool(carried[0].label) :]
            if carried:
                coverage.carried(operation.endpoint, carried)

    async def _counted(
        self, misses: MissLimit, incoming: RequestContext, job: RedactedRequest, exchange: Exchange
    ) -> None:
        operation = job.match.operation
        group = misses.admit(incoming.connection.client.host, incoming.raw)
        try:
            await self._carry(incoming, job, exchange)
        finally:
            if exchange.missed:
                misses.count(group, operation.endpoint.name, operation.label)

    async def _carry(
        self, incoming: RequestContext, job: RedactedRequest, exchange: Exchange
    ) -> None:
        limits = job.match.operation.endpoint.limits
        timing = incoming.timing = exchange.timing
        timing.started, timing.matched = incoming.started, perf_counter()
        body = job.body
        if body is None:
            body = complete_body(incoming, limits, self._rooms.requests)
            if body is None:
                if (
                    incoming.head.length or waits(incoming)
                ) and incoming.head.length <= limits.body:
                    exchange.check_head(
                        Request(
                            incoming.head.method, incoming.target, tuple(job.fields.headers), b""
                        )
                    )
                body = await read_whole(incoming, limits, self._timeouts.body, self._rooms.requests)
        headers = tuple(job.fields.headers)
        coded = content_coding.field(headers, b"content-encoding")
        inflated_body, _ = (
            await inflated(body, coded, limits.inflated) if coded is not None else (body, ())
        )
        if inflated_body is not body and incoming.reservation is not None:
            incoming.reservation.add(len(inflated_body))
        if job.match.operation.endpoint.rest_routes:
            watch = RouteWatch(incoming.head.values(b"content-type"), None)
            await run_in_thread(len(inflated_body) > SMALL, watch.of, inflated_body)
        timing.received = perf_counter()
        request = Request(incoming.head.method, incoming.target, headers, inflated_body)
        if job.swapped:
            received = msgspec.structs.replace(request, headers=tuple(incoming.raw))
            request = msgspec.structs.replace(request, received=received)
        marks = _expected(incoming) if entity_tags.CONDITIONED(incoming.head.block) else ()
        redacted = await exchange.redact_request(request, marks)
        timing.redacted = perf_counter()
        messages = None
        if incoming.head.upgrade:
            messages = await message_stream(incoming, job.match.operation, exchange, job.confirm)
        call = self._call(incoming, redacted, job, messages is not None)
        if messages is not None:
            job = msgspec.structs.replace(job, messages=messages)
        await self._forward(incoming, job, exchange, call)

    async def resume(self, begun: FastPathRequest) -> None:
        """Bring what was begun on the fast path to its end. Raises as ``carry``."""
        incoming = begun.incoming
        if begun.written:
            await response.drain(incoming, self._timeouts.write)
            return
        exchange, route = begun.general(), begun.route
        incoming.timing = exchange.timing
        viewed = route.viewed
        job = RedactedRequest(route.fields, route.match, route.address, viewed=viewed)
        call = msgspec.structs.replace(begun.asking(), interim=begun.interim)
        pending = begun if begun.sent else None
        await self._forward(incoming, job, exchange, call, pending)

    async def _forward(
        self,
        incoming: RequestContext,
        job: RedactedRequest,
        exchange: Exchange,
        call: Call,
        pending: FastPathRequest | None = None,
    ) -> None:
        messages, limits = job.messages, job.match.operation.endpoint.limits
        try:
            reply = await self._upstream.send(call, pending)
        except UpstreamFault as fault:
            await exchange.failed(fault.sent)
            raise
        except BaseException:
            await exchange.failed(True)
            raise
        if job.viewed:
            reply.head = rewriting.private_head(reply.head)
        try:
            if messages is not None and reply.framing is TUNNEL:
                tunnel = self._upstream.tunnel(reply)
                await relay_messages(incoming, reply, tunnel, messages, self._timeouts.write)
            elif not job.match.operation.response.in_parts or not await restore_stream(
                incoming, reply, exchange, self._timeouts.write, job.confirm
            ):
                await self._answer(incoming, reply, exchange, limits)
        finally:
            reply.abort()

    def _call(
        self, incoming: RequestContext, redacted: Request, job: RedactedRequest, upgrade: bool
    ) -> Call:
        body = redacted.body
        has_body = body or job.fields.chunked or rewriting.declared_length(incoming.raw) is not None
        length, moved = len(body) if has_body else None, redacted.target != incoming.target
        head = rewriting.request_head(redacted, length, job.address, body=bool(body), target=moved)
        if upgrade:
            head = head[:-2] + UPGRADE

        def interim(status: int, reason: bytes, headers: RawHeaders) -> None:
            if status != 100:  # we requested the body, before the application knew of the request
                response.pass_interim(incoming, status, reason, rewriting.interim_fields(headers))

        # A write that was cut off is never repeated: the application may have acted on the first
        # request, and its refusal of the second (404 to a delete, 422 to a put) would drop the kept
        # values from the vault.
        once = job.match.operation.verb is not _READ
        return Call(
            job.address, redacted.method, head, body, upgrade=upgrade, interim=interim, once=once
        )

    async def _answer(
        self,
        incoming: RequestContext,
        reply: UpstreamResponse,
        exchange: Exchange,
        limits: BodyLimits,
    ) -> None:
        """Decide before the first byte whether the answer is rewritten whole or streamed."""
        head = reply.head
        status = head.status
        headers = tuple(response_fields(head.headers, NONE, status, 0))
        coded = content_coding.field(headers, b"content-encoding")
        readable = coded is None or rewriting.codings_readable(coded)
        if not (readable and exchange.must_buffer(status, headers)):
            exchange.timing.answered = perf_counter()
            await exchange.settled(status, headers)
            exchange.pass_unread(status, headers)
            if not _unmodified(incoming, status, headers, header(headers, b"etag")):
                await response.stream(incoming, reply, self._timeouts.write)
            await response.drain(incoming, self._timeouts.write)
            return
        holding = Reservation(self._rooms.answers)
        try:
            raw = reply.whole
            if raw is None or len(raw) > limits.inflated or not holding.at_once(len(raw)):
                raw = await self._collect(reply, exchange, headers, (raw, limits.inflated, holding))
            exchange.timing.answered = perf_counter()
            read = (
                (raw, ())
                if coded is None
                else await self._inflate(exchange, status, headers, raw, limits.inflated)
            )
            if read is None:
                # not in the coding it names: nothing of ours can be in it
                response.whole_response(incoming, head, reply.framing, raw, reply.trailers)
            else:
                decoded, codings = read
                answer = await exchange.restore_response(Response(status, headers, decoded))
                # The fields of an answer to HEAD describe the body that GET would have: the
                # restored one.
                if (
                    answer.body != decoded
                    or answer.headers != headers
                    or incoming.head.method == "HEAD"
                ):
                    await self._restored(incoming, head, answer, codings, exchange.mark)
                elif not _unmodified(incoming, status, headers, header(headers, b"etag")):
                    response.whole_response(incoming, head, reply.framing, raw, reply.trailers)
            if incoming.unsent > response.WRITE_BUFFER:
                await response.drain(incoming, self._timeouts.write)
        finally:
            holding.close()

    async def _collect(
        self,
        reply: UpstreamResponse,
        exchange: Exchange,
        headers: RawHeaders,
        bounds: tuple[bytes | None, int, Reservation],
    ) -> bytes:
        """The whole body of an answer that is not here yet, or not fit.

        Settles before it raises.
        """
        try:
            raw = await collect(reply, *bounds)
        except UpstreamFault:
            await exchange.failed(True)
            raise
        except VaultError:  # no room: the application has acted, and its answer goes unread
            await exchange.settled(reply.head.status, headers)
            raise
        if raw is None:
            reply.abort()
            await exchange.settled(reply.head.status, headers)
            raise VaultError(
                Code.ANSWER_TOO_LARGE,
                "The answer of the application is over the limit for restoring it.",
            )
        return raw

    async def _inflate(
        self, exchange: Exchange, status: int, headers: RawHeaders, raw: bytes, limit: int
    ) -> tuple[bytes, tuple[str, ...]] | None:
        """The body of an answer without its codings, and those; ``None``, settled: unreadable."""
        try:
            return await inflated(raw, content_coding.field(headers, b"content-encoding"), limit)
        except VaultError as error:
            await exchange.settled(status, headers)
            if error.code is Code.TOO_LARGE:
                raise VaultError(
                    Code.ANSWER_TOO_LARGE, "The inflated answer is over the limit for restoring it."
                ) from None
            exchange.pass_unread(status, headers)
            return None

    async def _restored(
        self,
        incoming: RequestContext,
        head: ResponseHead,
        answer: Response,
        codings: tuple[str, ...],
        mark: Callable[[], bytes],
    ) -> None:
        """Write a rewritten answer, in a coding that the application chose; or 304 to its owner."""
        accepted = content_coding.field(incoming.raw, b"accept-encoding") if codings else None
        name = (
            content_coding.acceptable(accepted, codings[::-1])
            if codings
            else content_coding.IDENTITY
        )
        coded = None if name == content_coding.IDENTITY else name.encode("ascii")
        bodiless = incoming.head.method == "HEAD"
        own_tag = header(answer.headers, b"etag")
        tag = (
            None
            if own_tag is None
            else entity_tags.restored_tag(
                own_tag, None if bodiless else answer.body, coded, self._keyed, mark()
            )
        )
        if tag is not None and _unmodified(incoming, head.status, answer.headers, tag):
            return
        long = coded is not None and len(answer.body) > SMALL
        body = answer.body
        if coded is not None:
            deflate = content_coding.deflate
            body = await in_thread(deflate, body, name) if long else deflate(body, name)
        lines = rewriting.answer_lines(answer.headers, None if bodiless else len(body), coded, tag)
        response.restored(incoming, (head.status, head.reason), lines, body)


def _expected(incoming: RequestContext) -> tuple[bytes, ...]:
    """Return what the changed record must be (``Exchange.redact_request``)."""
    raw, field = incoming.raw, content_coding.field
    return entity_tags.expected_marks(field(raw, b"if-match"), field(raw, b"if-unmodified-since"))


def _unmodified(
    incoming: RequestContext, status: int, headers: RawHeaders, tag: bytes | None
) -> bool:
    """Answer 304 if the caller asked for an answer only where it is another than the one with this
    tag, and say so.

    The application was not asked that (RFC 9110 section 13.2.2).
    """
    if tag is None or status != 200 or incoming.head.method not in rewriting.READS:
        return False
    listed = content_coding.field(incoming.raw, b"if-none-match")
    if listed is None or not entity_tags.lists_tag(listed, tag):
        return False
    response.restored(
        incoming, (304, b"Not Modified"), rewriting.unchanged_lines(headers, tag), b""
    )
    return True
