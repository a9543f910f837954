"""Ports of the gateway: to the redactor, and to metrics and log."""

from collections.abc import Container, Sequence
from typing import Final, Protocol

import msgspec

from proxy.audit.services import LineWaiter
from proxy.errors import Code
from proxy.redactor.bodies.envelopes import CarriedRequest
from proxy.redactor.bodies.events import EventStream
from proxy.redactor.message import RawHeaders, Request, Response, Timing
from proxy.redactor.routing import MatchingRules
from proxy.redactor.rules import Endpoint, Match
from proxy.redactor.views import View
from proxy.storage.changes import CommitWaiter
from proxy.telemetry.tracing import Trace


class Exchange(Protocol):
    """A matched request and its answer, from redaction to restoration.

    The gateway calls ``redact_request`` once. If it raises, nothing is sent and nothing else is
    called. Otherwise exactly one of ``restore_response``, ``settled``, ``failed`` and a ``stream``
    to its end follows, also when the caller has gone away meanwhile.
    """

    timing: Timing  #: of its steps; the gateway adds its own

    @property
    def missed(self) -> bool:
        """Whether it searched, and nothing stored is shown."""

    @property
    def carries(self) -> bool:
        """Whether there may be requests in it, as in an envelope."""

    @property
    def carried(self) -> Sequence[CarriedRequest]:
        """Return the requests of a finished envelope; empty for any other request."""

    def check_head(self, head: Request) -> None:
        """Refuse a request whose body is still to come, for what its head tells.

        Raises ``VaultError``.

        May be called before ``redact_request``; promises nothing about that.
        """

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        """The request as the application may see it, durable in the vault. Raises ``VaultError``.

        ``marks``: the record that it changes must have one of these (``mark``).

        The body given is free of content codings, and so must be the one returned;
        ``Content-Encoding``, ``Content-Length`` and ``Transfer-Encoding`` among the fields returned
        are ignored.
        """

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        """Whether the answer must be read whole and rewritten.

        Decided once, before its first byte is passed on.
        """

    async def stream(self, status: int, headers: RawHeaders) -> EventStream | None:
        """Return the restorer of a streamed answer; ``None``: see ``must_buffer``."""

    async def restore_response(self, answer: Response) -> Response:
        """Settle, and restore.

        Called when ``must_buffer`` said yes; the body is whole and free of content codings.

        Raises ``VaultError``: the caller gets the error in place of the answer.
        """

    def mark(self) -> bytes:
        """A mark of the answer's values that the application cannot tell apart; empty: none."""

    async def settled(self, status: int, headers: RawHeaders) -> None:
        """Settle only: the answer is passed on as it is (or is too large to be read)."""

    def pass_unread(self, status: int, headers: RawHeaders) -> None:
        """Whether the settled, unread answer may be passed on unchanged.

        Raises ``VaultError`` where it may not.
        """

    async def failed(self, sent: bool) -> None:  # one fact, named by the method
        """No answer came. ``sent``: the application may have acted all the same."""


class OrdinaryPlan(Protocol):
    """Plan of the ordinary exchanges of one operation."""

    @property
    def success(self) -> Container[int]:
        """The statuses of answers that can be ordinary."""

    @property
    def limit(self) -> int:
        """Bytes of a body at most."""

    @property
    def writes(self) -> bool:
        """Whether its requests write, and have bodies."""

    def begin(
        self, match: Match, request: Request, marks: Sequence[bytes] = ()
    ) -> "OrdinaryExchange | None":
        """The exchange of a request; ``None``: it is not ordinary, and nothing was done.

        ``marks``: as of ``Exchange.redact_request``.
        """


class OrdinaryExchange(Protocol):
    """One ordinary exchange, in steps that wait for nothing: ``stage`` and ``staged`` where it
    ``settles``, else ``staged`` alone; ``restore``; ``settle`` and ``settled`` where it does;
    ``audit``, ``audited``. Instead of any of them from ``staged`` on, ``general``.
    """

    @property
    def sent(self) -> bytes:
        """The body for the application."""

    #: Whether its values, and what the answer means, have to be made durable.
    settles: bool
    ident: str  #: the id of the request, where it has one
    tagged: bool  #: whether the answer has an entity tag, for which alone it is asked for a mark

    def stage(self, waiter: CommitWaiter) -> bool:
        """Have its values made durable; false: nothing was done."""

    def staged(self) -> None:
        """They are, where that was needed, and the request leaves."""

    def abandon(self) -> None:
        """Nothing was stored, and nothing leaves."""

    def restore(self, body: bytes) -> bytes | None:
        """Restore the body of an answer of success; ``None``: it is not ordinary. The caller gets
        what ``audited`` returns.
        """

    def settle(self, waiter: CommitWaiter, status: int) -> bool:
        """Have made durable what an answer of that status means; false: nothing was done."""

    def settled(self) -> None:
        """It is."""

    def audit(self, status: int, waiter: LineWaiter) -> None:
        """Have the audit log told of it before the answer leaves; ``waiter`` hears when it is."""

    def audited(self) -> bytes:
        """It was, and this is over: the restored body."""

    def mark(self) -> bytes:
        """As of the general way (``Exchange.mark``), once it is settled."""

    def close(self) -> None:
        """It is over; harmless when done twice."""

    def general(self) -> Exchange:
        """Hand over to an exchange of the general way."""


class ActiveRules(MatchingRules, Protocol):
    """The active rules."""

    @property
    def edition(self) -> object:
        """Identity of the rules: results of ``match`` hold as long as it is the same object."""

    async def redact_headers(
        self, endpoint: Endpoint, host: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[tuple[bytes, bytes]]:
        """The fields with tokens in place of values in the addresses that they hold (``Referer``
        and its like), and in cookies that rules of the endpoint name.
        """

    def bare_addresses(
        self, host: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[tuple[bytes, bytes]]:
        """The fields without values in the addresses that they hold."""

    def fast_path(
        self, match: Match, headers: RawHeaders, view: View | None = None
    ) -> OrdinaryPlan | None:
        """Plan of its ordinary exchanges, if any; ``headers``: of the request; ``view``: of the
        caller.
        """

    def exchange(self, match: Match, view: View | None = None) -> Exchange:
        """Return a new exchange for a matched request; its caller sees all, or the view."""


#: Faults of the application; all others are refusals of the proxy.
FAILURES: Final = frozenset({
    Code.UPSTREAM_UNREACHABLE, Code.UPSTREAM_TIMEOUT, Code.UPSTREAM_BUSY, Code.UPSTREAM_SUSPENDED,
    Code.UPSTREAM_BROKEN, Code.UNREADABLE_ANSWER, Code.ANSWER_TOO_LARGE,
})  # fmt: skip


class RequestEvent(msgspec.Struct, frozen=True, gc=False):
    """A finished request, for metrics and the access log. Holds no path and no query of anybody."""

    endpoint: str  #: ``-`` if none was found
    operation: str  #: the label of the operation or of the rule that passes, ``-`` if none
    method: str
    status: int  #: 0: the caller went away before an answer began
    size: int  #: bytes of body sent to the caller
    seconds: float
    outcome: str  #: passed, matched, refused (by the proxy), failed (by the application)
    code: Code | None  #: of the error, if there was one
    timing: Timing | None = None  #: of a matched request
    shape: str = ""  #: of the path of a request that no rule names
    request_id: str = ""
    trace: Trace | None = None  #: that it is a part of
    address: str = ""  #: of an application that failed
    #: which member of a refused request is ambiguous: no name but those of rules, and public words
    source: str = ""


class AccessLog(Protocol):
    """Sink of metrics and log lines of requests."""

    def record(self, event: RequestEvent) -> None:
        """Record a finished request. Must not raise and must not wait."""
