"""A gateway on a real socket, with rules and exchanges that tests steer and that take notes."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from msgspec import structs

from proxy.errors import Code, VaultError
from proxy.gateway.callers import Callers
from proxy.gateway.gateway import Gateway, GatewayOptions
from proxy.gateway.ports import RequestEvent
from proxy.model.schema import Schema
from proxy.net.caller_connection import CallerConnection
from proxy.net.client import HttpUpstream
from proxy.net.coverage import Coverage
from proxy.net.listener import listen
from proxy.net.reply import CallLimits
from proxy.redactor.bodies.envelopes import CarriedRequest
from proxy.redactor.bodies.events import EventStream
from proxy.redactor.message import RawHeaders, Request, Response, Timing
from proxy.redactor.rules import (
    BodyLimits,
    Endpoint,
    Entity,
    Match,
    OnError,
    Operation,
    PassRule,
    Position,
    RequestRule,
    ResponseRule,
    Stream,
    Unmatched,
    Verb,
)
from proxy.redactor.views import CallerRule, CallerSource, View
from tests.support.clock import ManualClock
from tests.support.issuer import AskedIssuer, claims, document, made, public, token

#: Requests whose target begins with this are matched.
MATCHED = b"/people"

#: Targets that a rule lets pass, and those that rules name for other requests.
PASSED, RULED = b"/open", b"/ruled"

#: Targets that are matched if the body names the method PUT.
OVERRIDDEN = b"/staff"

#: What the exchange swaps, one way and back.
VALUE, TOKEN = b"Ann", b"tok_9f8e7d6c"


@dataclass
class Exchange:
    """Swaps ``VALUE`` for ``TOKEN`` in bodies and back, and notes each call."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    wanted: bool = True
    strict: bool = False
    refusal: VaultError | None = None
    out: Callable[[Request], Request] | None = None
    back: Callable[[Response], Response] | None = None
    missed: bool = False
    carries = False
    carried: Sequence[CarriedRequest] = ()
    timing: Timing = field(default_factory=Timing)
    longest: int = 1000  #: bytes of a message
    passes_binary: bool = False
    events: bool = False  #: whether its answers are streams, of which it restores each piece

    def check_head(self, head: Request) -> None:
        if self.refusal is not None:
            raise self.refusal

    def mark(self) -> bytes:
        return b""

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        self.calls.append(("outgoing", request))
        if self.out is not None:
            return self.out(request)
        return structs.replace(request, body=request.body.replace(VALUE, TOKEN))

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        return self.wanted

    async def restore_response(self, answer: Response) -> Response:
        self.calls.append(("incoming", answer))
        if self.back is not None:
            return self.back(answer)
        return structs.replace(answer, body=answer.body.replace(TOKEN, VALUE))

    async def stream(self, status: int, headers: RawHeaders) -> EventStream | None:
        return self if self.events else None

    async def restore(self, piece: bytes) -> bytes:
        self.calls.append(("restore", piece))
        if self.refusal is not None:
            raise self.refusal
        return piece.replace(TOKEN, VALUE)

    async def redact(self, text: bytes) -> bytes:
        self.calls.append(("redact", text))
        if self.refusal is not None:
            raise self.refusal
        return text.replace(VALUE, TOKEN)

    async def rest(self) -> bytes:
        return b"rest"

    async def end(self) -> None:
        self.calls.append(("end",))

    async def settled(self, status: int, headers: RawHeaders) -> None:
        self.calls.append(("settled", status, headers))

    def pass_unread(self, status: int, headers: RawHeaders) -> None:
        if self.strict:
            raise VaultError(Code.UNREADABLE_ANSWER, "The answer cannot be read.")

    async def failed(self, sent: bool) -> None:
        self.calls.append(("failed", sent))

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


@dataclass
class Steered:
    """Rules and journal in one: what tests set, and what they look at."""

    endpoint: Endpoint
    exchange_: Exchange = field(default_factory=Exchange)
    verb: Verb = Verb.UPDATE
    stream: Stream | None = None
    asked: list[tuple[str, str, bytes, RawHeaders]] = field(default_factory=list)
    notes: list[RequestEvent] = field(default_factory=list)
    views: list[View | None] = field(default_factory=list)
    fault: Exception | None = None
    gateway: Gateway | None = None

    @property
    def edition(self) -> object:
        return self.endpoint if self.fault is None else self.fault

    def match(
        self,
        method: str,
        host: str,
        target: bytes,
        headers: RawHeaders,
        override: str | None = None,
    ) -> tuple[Endpoint, Match | PassRule | None]:
        self.asked.append((method, host, target, headers))
        if self.fault is not None:
            raise self.fault
        if target.startswith(PASSED):
            return self.endpoint, PassRule(
                "GET /open", self.endpoint, ("GET",), "/open", Position("rules.yaml", 1, 1)
            )
        if not target.startswith(MATCHED) and not (
            target.startswith(OVERRIDDEN) and override == "PUT"
        ):
            return self.endpoint, None
        return self.endpoint, Match(operation(self.endpoint, self.verb, self.stream), {})

    def ruled(self, host: str, target: bytes) -> bool:
        return target.startswith((MATCHED, RULED))

    def overridable(self, host: str, target: bytes) -> bool:
        return target.startswith(OVERRIDDEN)

    def may_change_operation(self, match: Match, target: bytes) -> bool:
        return False

    async def redact_headers(
        self, endpoint: Endpoint, host: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[tuple[bytes, bytes]]:
        return tuple(
            (name, value.replace(VALUE, TOKEN) if name == b"Referer" else value)
            for name, value in headers
        )

    def bare_addresses(
        self, host: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[tuple[bytes, bytes]]:
        return tuple(field for field in headers if field[0] != b"Referer")

    def fast_path(self, match: Match, headers: RawHeaders, view: View | None = None) -> None:
        """None of its exchanges is ordinary."""

    def exchange(self, match: Match, view: View | None = None) -> Exchange:
        self.views.append(view)
        return self.exchange_

    def record(self, event: RequestEvent) -> None:
        self.notes.append(event)

    @property
    def callers(self) -> list[CallerConnection]:
        """The connections to callers that are open."""
        assert self.gateway is not None
        return self.gateway.server.callers


def endpoint(url: str, **more: Any) -> Endpoint:
    """An endpoint that passes what no rule names, unless told otherwise."""
    made = Endpoint("crm", url, frozenset(), "", Unmatched.PASS, BodyLimits(), OnError())
    return replace(made, **more)


def operation(at: Endpoint, verb: Verb = Verb.UPDATE, stream: Stream | None = None) -> Operation:
    """An operation of that endpoint on people."""
    return Operation(
        "PUT /people/{id}",
        at,
        verb,
        ("PUT",),
        "/people/{id}",
        Entity("person", Schema("person", ()), {}, None, True),
        None,
        RequestRule(None),
        ResponseRule(None, None, frozenset({200, 201}), stream=stream, in_parts=stream is not None),
        Position("rules.yaml", 1, 1),
    )


class Proving(NamedTuple):
    """A caller whose token proves a view for five minutes, and how a gateway learns of it."""

    clock: ManualClock
    callers: Callers
    field: str  #: of its requests
    endpoint: dict[str, Any]  #: what its endpoint has


def proving() -> Proving:
    """A caller in sales, with a token of an issuer that can be asked."""
    clock, key = ManualClock(), made("ES256")
    issuer = AskedIssuer(document(public(key, kid="one")))
    rule = CallerRule(CallerSource.JWT, "https://id.example/keys")
    view = View("sales", frozenset({"sales"}), {})
    shown = token(key, claims(clock(), roles=["sales"]))
    return Proving(
        clock,
        Callers(issuer, clock),
        f"Authorization: Bearer {shown}",
        {"caller": rule, "views": (view,)},
    )


def keyed(message: bytes) -> bytes:
    """What makes entity tags here."""
    return blake2b(message, key=b"tags", digest_size=16).digest()


@asynccontextmanager
async def gateway(
    url: str,
    *,
    limits: CallLimits | None = None,
    options: dict[str, Any] | None = None,
    coverage: Coverage | None = None,
    **more: Any,
) -> AsyncIterator[tuple[int, Steered]]:
    """A gateway before the application at ``url``; gives its port and what steers it.

    ``more`` is for the endpoint.
    """
    steered = Steered(endpoint(url, **more))
    made = Gateway(
        steered, steered, GatewayOptions(HttpUpstream(limits), keyed, **(options or {})), coverage
    )
    steered.gateway = made
    try:
        async with listen("proxy", ("127.0.0.1", 0), made.server) as place:
            yield int(place.rpartition(":")[2]), steered
    finally:
        await made.close()
