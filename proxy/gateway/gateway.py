"""The gateway: each request is shown to the rules, then passed through, redacted, or refused."""

import asyncio
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from time import perf_counter

import msgspec

from proxy.api.connection import ConnectionAcceptor
from proxy.edge.firewall import Firewall
from proxy.edge.quotas import MissLimit, Quotas
from proxy.errors import Code, VaultError
from proxy.gateway.bodies import BodyBudgets, BodyTimeouts, match_overridden, may_override_method
from proxy.gateway.callers import Admission, Callers
from proxy.gateway.fast_path_request import FastPath, FastPathRequest, begin_fast_path
from proxy.gateway.fast_path_route import FastPathRoute, fast_path_route
from proxy.gateway.forwarded import CallerFields, trace_of
from proxy.gateway.passthrough import (
    PassthroughHandler,
    PassthroughReply,
    forwarded_head,
    look_unnamed,
    unruled_shape,
)
from proxy.gateway.ports import FAILURES, AccessLog, ActiveRules, RequestEvent
from proxy.gateway.redacted import RedactedHandler, RedactedRequest
from proxy.net import problem
from proxy.net.caller_connection import CallerServer
from proxy.net.coverage import Coverage
from proxy.net.coverage_report import Unruled
from proxy.net.entity_tags import KeyedTags
from proxy.net.hop_headers import RequestFields, authority, request_fields
from proxy.net.http1.body import REQUEST_BUFFER
from proxy.net.http1.head import Heads
from proxy.net.problem import STATUS, proxy_status
from proxy.net.reply import IDEMPOTENT, LATER, Call, PendingReply, UpstreamAddress, UpstreamPort
from proxy.net.response import RequestContext
from proxy.redactor.rules import Endpoint, Match, PassRule, Unmatched, Verb
from proxy.telemetry.logs import REQUEST_ID


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The way to the applications, and bounds towards callers."""

    upstream: UpstreamPort
    keyed: KeyedTags  #: for entity tags: the same after a restart and on every replica
    heads: Heads = field(default_factory=Heads)
    timeouts: BodyTimeouts = field(default_factory=BodyTimeouts)
    buffered: int = 256 * 1024 * 1024  #: bytes of bodies of matched exchanges, all together
    #: told when an endpoint is first asked for
    met: Callable[[str, UpstreamAddress], None] = lambda _endpoint, _address: None
    special: Container[str] = ()  #: endpoints with their own route
    caller_fields: CallerFields | None = None  #: what tells applications of the caller
    access: bool = False  #: every request is a line of the log, not only those that fail
    acceptor: ConnectionAcceptor | None = None  #: what connections pass before they are HTTP
    firewall: Firewall | None = None  #: where callers may be; none: anywhere
    screened: Callable[[str], None] = lambda _outcome: None  #: called for requests from outside
    quotas: Quotas | None = None  #: how often an address may ask; none: as often as it wants
    limited: Callable[[str], None] = lambda _limit: None  #: called with the limit of each refusal
    misses: MissLimit | None = None  #: how often an address may miss; none: as often as it wants
    callers: Callers = field(default_factory=Callers)  #: what tells their views
    fast_path: bool = True  #: ordinary exchanges take the fast path; tests compare both


class _Route(msgspec.Struct, frozen=True):
    """Decision of the rules on a head, shared by many requests."""

    edition: object  #: of the rules
    endpoint: Endpoint
    match: Match | None
    passed: PassRule | None
    unruled: Unruled | None
    #: without a body and unmatched: forwarded at once
    call: Call | None
    overridable: bool  #: a method in its body may select another rule
    fast_path: FastPathRoute | None = None  #: of a matched head whose exchange may be ordinary


class Gateway:
    """The gateway of a process: ``server`` makes the protocol of each caller's connection.

    ``coverage`` counts unmatched requests.
    """

    def __init__(
        self,
        rules: ActiveRules,
        journal: AccessLog,
        options: GatewayOptions,
        coverage: Coverage | None = None,
    ) -> None:
        self._rules = rules
        self._journal = journal
        self._options = options
        self._upstream = upstream = options.upstream
        self._passthrough = PassthroughHandler(options.upstream, options.timeouts.write)
        self._rooms = BodyBudgets.of(options.buffered, options.timeouts)
        self._redacted = RedactedHandler(
            options.upstream, options.timeouts, self._rooms, options.keyed, options.misses
        )
        self._redacted.coverage = coverage
        self._caller_fields = of_caller = options.caller_fields
        #: where each request has ids of its own
        self._varying = None if of_caller is None or of_caller.steady else of_caller
        self._coverage = coverage
        guarded = options.firewall is not None or options.quotas is not None
        heard = options.screened, options.limited
        self._admission = Admission(options.firewall, options.quotas, heard) if guarded else None
        self._addresses: dict[tuple[str, str], UpstreamAddress] = {}
        self._draining = False
        self.ends_by = 0.0  #: once it drains: until which instant of the loop
        services = upstream, self._rooms, options.callers, options.keyed, self._varying
        self._way = FastPath(*services, self._tell, self._refuse)
        self.server = CallerServer(self.handle, options.heads, self._unreadable, self.begin)
        if (acceptor := options.acceptor) is not None:
            self.server.acceptor = lambda: acceptor(self.server())

    def begin(self, incoming: RequestContext) -> PendingReply | None:
        """Begin the exchange of a request at once, or when its body is there: one that no rule
        names, without a body, for which a connection waits, or an ordinary one; else ``handle``
        follows. The route of a head is cached with it, until the rules change.
        """
        if self._admission is not None and self._admission.holds_back(incoming):
            return None
        route = self._routed(incoming)
        if route is None or self._draining:
            return None
        pending: PendingReply | None = None
        if route.fast_path is not None:
            pending = begin_fast_path(self._way, incoming, route.fast_path)
        elif route.call is not None:
            passthrough = PassthroughReply(incoming=incoming, tell=self._tell)
            pending = passthrough if self._upstream.begin(route.call, passthrough) else None
        if pending is not None and pending is not LATER and self._admission is not None:
            self._admission.count(incoming)
        return pending

    def _fast_path(
        self, incoming: RequestContext, endpoint: Endpoint, match: Match
    ) -> FastPathRoute | None:
        """Route of ordinary exchanges of a matched head; ``None``: other checks come first."""
        counted = self._options.misses is not None and match.operation.verb is Verb.READ
        if not self._options.fast_path or counted:
            return None
        address = self._address(endpoint)
        return fast_path_route(self._rules, match, incoming, address, self._caller_fields)

    def _forwarded(
        self, incoming: RequestContext, fields: RequestFields, address: UpstreamAddress
    ) -> RequestFields:
        """The fields of a request with those that tell the application of its caller."""
        of_caller = self._caller_fields
        return fields if of_caller is None else of_caller(incoming, fields, address)

    def _routed(self, incoming: RequestContext) -> "_Route | None":
        """Return the cached or newly computed route of the head."""
        head = incoming.head
        route: _Route | None = head.route
        if route is None or route.edition is not self._rules.edition:
            route = head.route = self._learn(incoming)
        if route is not None:
            incoming.endpoint = route.endpoint
            incoming.match = route.match
            incoming.passed = route.passed
            incoming.unruled = route.unruled
        return route

    def _learn(self, incoming: RequestContext) -> "_Route | None":
        """Set the rule of ``incoming``; return its route if matched or forwarded at once."""
        head, edition = incoming.head, self._rules.edition
        try:
            endpoint = self._route(incoming)
            match, passed = incoming.match, incoming.passed
            if match is not None:
                posted = head.method.upper() == "POST"
                overridable = posted and may_override_method(self._rules, incoming)
                way = None if overridable else self._fast_path(incoming, endpoint, match)
                return _Route(edition, endpoint, match, None, None, None, overridable, way)
            if (
                head.method not in IDEMPOTENT
                or head.length
                or head.chunked
                or head.upgrade
                or head.close
                or self._varying is not None
                or endpoint.searched
                or (endpoint.cookies and endpoint.may_hold_cookies(head.block))
                or (passed is None and endpoint.unmatched is Unmatched.DENY)
            ):
                return None
            unruled = unruled_shape(self._coverage, incoming, endpoint)
            if unruled is not None and not unruled.settled:
                return None
            address = self._address(endpoint)
            fields = self._forwarded(incoming, request_fields(head), address)
            wire = forwarded_head(incoming, fields, address)
            call = Call(address, head.method, wire)
            return _Route(edition, endpoint, None, passed, unruled, call, False)
        except Exception:  # noqa: BLE001  # ``handle`` meets it again, and tells of it
            return None

    async def handle(self, incoming: RequestContext) -> None:
        if self._varying is not None:
            REQUEST_ID.set(self._varying.identify(incoming))
        incoming.close = incoming.close or self._draining
        try:
            # nothing may hold itself: that would stay until garbage is collected
            pending, incoming.pending = incoming.pending, None
            if isinstance(pending, PassthroughReply):
                await self._passthrough.resume(pending)
            elif isinstance(pending, FastPathRequest):
                await self._redacted.resume(pending)
            else:
                await self._carry(incoming)
        except VaultError as error:
            self._refuse(incoming, error)
        except TimeoutError:  # the caller took nothing of its answer
            incoming.cut()
            self._tell(incoming, None)
        except ConnectionError:  # the caller has left; nobody reads an answer
            incoming.close = True
            self._tell(incoming, None)
        except asyncio.CancelledError:
            self._tell(incoming, None)
            raise
        except Exception:
            self._tell(incoming, Code.INTERNAL)
            raise
        else:
            self._tell(incoming, None)

    async def _carry(self, incoming: RequestContext) -> None:
        incoming.timing = None  # of what was not begun
        if incoming.reservation is not None:
            incoming.reservation.close()
            incoming.payload.hold(REQUEST_BUFFER)
        abroad = self._admission is not None and self._admission.admit(incoming)
        fields = request_fields(incoming.head)
        route = self._routed(incoming) if incoming.endpoint is None else incoming.head.route
        endpoint = incoming.endpoint or self._route(incoming)
        body = None
        if (
            route.overridable
            if route is not None
            else incoming.head.method.upper() == "POST"
            and may_override_method(self._rules, incoming)
        ):
            room, seconds = self._rooms.requests, self._options.timeouts.body
            endpoint, body = await match_overridden(self._rules, incoming, endpoint, seconds, room)
        match = incoming.match
        address = self._admitted(incoming, endpoint)
        block, swapped = incoming.head.block, False
        if endpoint.searched or (endpoint.cookies and endpoint.may_hold_cookies(block)):
            host = authority(incoming.target, incoming.head.host)
            headers = self._options.callers.bare(self._rules, incoming, fields.headers, abroad)
            headers = await self._rules.redact_headers(endpoint, host, headers)
            swapped, fields = headers is not fields.headers, fields._replace(headers=headers)
        fields = self._forwarded(incoming, fields, address)
        if match is not None:
            views = abroad or endpoint.views
            view = await self._options.callers.view(incoming, abroad) if views else None
            confirm = self._options.callers.confirming(incoming, view, self._rules)
            job = RedactedRequest(fields, match, address, body, view is not None, confirm, swapped)
            await self._redacted.carry(incoming, job, self._rules.exchange(match, view))
        else:
            await self._passthrough.forward(incoming, fields, address, body)

    def _route(self, incoming: RequestContext) -> Endpoint:
        """Find the endpoint and operation of the request. Raises ``VaultError``."""
        head, method = incoming.head, incoming.head.method
        if method == "CONNECT":
            raise VaultError(
                Code.BAD_REQUEST,
                "CONNECT is for forward proxies; this one stands before an application.",
            )
        host = authority(incoming.target, head.host)
        endpoint, rule = self._rules.match(method, host, incoming.target, incoming.raw)
        incoming.find(rule)
        incoming.endpoint = endpoint
        return endpoint

    def _admitted(self, incoming: RequestContext, endpoint: Endpoint) -> UpstreamAddress:
        """Return the target of the request.

        Raises ``VaultError`` if it must not, before anything of it is read or stored.
        """
        if incoming.match is None:
            if incoming.passed is None:
                look_unnamed(self._rules, self._coverage, incoming, endpoint)
            return self._address(endpoint)
        address = self._address(endpoint)
        refusal = self._upstream.refusal(address)
        if refusal is not None:
            raise refusal
        return address

    def _address(self, endpoint: Endpoint) -> UpstreamAddress:
        key = (endpoint.name, endpoint.upstream)
        address = self._addresses.get(key)
        if address is None:
            if len(self._addresses) > 1000:  # rule files come and go
                self._addresses.clear()
            special = endpoint.name if endpoint.name in self._options.special else ""
            address = self._addresses[key] = UpstreamAddress.parse(endpoint.upstream)._replace(
                special=special
            )
            self._options.met(endpoint.name, address)
        return address

    # ------------------------------------------------ ends

    def _refuse(self, incoming: RequestContext, error: VaultError) -> None:
        """Answer in our own name, or break the connection if the application's answer has begun."""
        if incoming.began:
            incoming.close = True
            incoming.cut()
        else:
            if error.code is Code.BAD_REQUEST:
                incoming.close = True  # where this request ends, too, may be a matter of opinion
            verb = incoming.match.operation.verb if incoming.match is not None else None
            on_error = incoming.endpoint.on_error if incoming.endpoint is not None else None
            status = proxy_status(error, on_error, verb)
            problem.refuse_request(incoming, status, error)
        ambiguous = error.details if error.code is Code.AMBIGUOUS_JSON else ()
        self._tell(incoming, error.code, ambiguous[0].source if ambiguous else "")

    def _tell(self, incoming: RequestContext, code: Code | None, source: str = "") -> None:
        """Finish the request, whatever its outcome."""
        if incoming.reservation is not None:
            incoming.reservation.close()
        endpoint, match, passed = incoming.endpoint, incoming.match, incoming.passed
        if incoming.unruled is not None and self._coverage is not None:
            status = incoming.status if code is None or code is Code.OPERATION_DENIED else 0
            self._coverage.note(incoming.unruled, status, incoming.sample)
        rule, chosen = passed if match is None else match.operation, incoming.chosen
        if code is not None:
            outcome = "failed" if code in FAILURES else "refused"
        else:
            outcome = "passed" if match is None or chosen == "" else "matched"
        logged = code is not None or self._options.access
        self._journal.record(
            RequestEvent(
                "-" if endpoint is None else endpoint.name,
                "-" if rule is None or chosen == "" else chosen or rule.label,
                incoming.head.method,
                incoming.status,
                incoming.size,
                perf_counter() - incoming.started,
                outcome,
                code,
                None if chosen == "" else incoming.timing,
                incoming.unruled.key[2] if logged and incoming.unruled is not None else "",
                incoming.request_id,
                incoming.trace or (trace_of(incoming.raw) if logged else None),
                endpoint.upstream if outcome == "failed" and endpoint is not None else "",
                source,
            )
        )

    def _unreadable(self, code: Code) -> None:
        """Count an unreadable request or a head that is too large, after its refusal."""
        self._journal.record(RequestEvent("-", "-", "-", STATUS[code], 0, 0.0, "refused", code))

    # ------------------------------------------------ the end of service

    async def drain(self, seconds: float, late: float = 0.0) -> None:
        """Stop listening and finish open requests, for at most ``seconds``.

        Idle connections close after ``late`` seconds, busy ones with their answer.
        """
        self._draining = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.ends_by = began + seconds
        while (now := loop.time()) < self.ends_by:
            idle = now >= began + late
            self._stop_listening(waiting=idle)
            for connection in self.server.callers:
                connection.finish(idle=idle)
            if idle and not any(one.busy for one in self.server.callers):
                break
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """End every connection, to callers and to applications."""
        self._draining = True
        self._stop_listening(waiting=True)
        await asyncio.gather(*(connection.stop() for connection in self.server.callers))
        self._upstream.close()
        if self._coverage is not None:
            await self._coverage.close()

    def _stop_listening(self, *, waiting: bool = False) -> None:
        for listener in self.server.listeners:
            listener.close()
        self.server.listeners.clear()
        if waiting and self._options.acceptor is not None:
            self._options.acceptor.close()
