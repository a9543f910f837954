"""A request whose body tells which of several operations it is for."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from proxy.errors import Code, VaultError
from proxy.offload import SMALL, is_long, run_in_thread
from proxy.redactor.bodies.envelopes import CarriedRequest
from proxy.redactor.bodies.events import EventStream
from proxy.redactor.exchange.envelope import EnvelopeExchange
from proxy.redactor.exchange.parts_exchange import PartsExchange
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.forks import Fork
from proxy.redactor.message import RawHeaders, Request, Response, Timing, carries_unseen, header
from proxy.redactor.routing import UNNAMED
from proxy.redactor.rules import Operation, PassRule, Unmatched

if TYPE_CHECKING:  # imported where a rule is of GraphQL
    from proxy.redactor.exchange.graph_exchange import GraphExchange

_DENIED = "No rule names this request, and the endpoint answers only what its rules name."
#: What carries a matched request.
AnyExchange: TypeAlias = (
    "RuleExchange | GraphExchange | EnvelopeExchange | PartsExchange | ForkExchange"
)


class ForkExchange:
    """Chooses the operation once the body is there, and is its exchange from then on."""

    carries = True  # as far as anybody knows before

    def __init__(self, fork: Fork, exchange: Callable[[Operation], AnyExchange]) -> None:
        self._fork = fork
        self._exchange_of = exchange
        self._exchange: AnyExchange | None = None  #: ``None`` where nothing is swapped
        self._outcome: CarriedRequest | None = None  #: what was chosen
        self.timing = Timing()

    @property
    def missed(self) -> bool:
        return self._exchange is not None and self._exchange.missed

    @property
    def carried(self) -> Sequence[CarriedRequest]:
        """The request itself with the label that it has, empty where it is as if no rule named it;
        and those of an envelope.
        """
        inner = self._exchange.carried if self._exchange is not None else ()
        return inner if self._outcome is None else (self._outcome, *inner)

    def check_head(self, head: Request) -> None:
        """Refuse what fits no operation, whatever its body will be. Raises ``VaultError``."""
        self._fork.by_head(head.target, head.headers)

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        """As of the operation that the body tells; unchanged where that is one that passes."""
        long = len(request.body) > SMALL and is_long(request.body)
        rule = await run_in_thread(long, self._fork.by_body, request)
        label = "" if isinstance(rule, PassRule) and rule.unmatched else rule.label
        self._outcome = CarriedRequest(request.method, request.target, label, request.body)
        if isinstance(rule, PassRule):
            if rule.unmatched:
                self._refuse_unnamed(rule, request)
            return request
        exchange = self._exchange_of(rule)
        exchange.timing = self.timing
        redacted = await exchange.redact_request(request, marks)
        self._exchange = exchange
        return redacted

    def _refuse_unnamed(self, rule: PassRule, request: Request) -> None:
        """Refuse what would be refused if no operation named the request (``VaultError``)."""
        kinds = (header(request.headers, b"content-type") or b"").decode("latin-1").strip().lower()
        unseen = carries_unseen(request.method, (kinds,), bodied=bool(request.body))
        if unseen or rule.endpoint.unmatched is Unmatched.DENY:
            self._note(403)
            raise VaultError(Code.OPERATION_DENIED, UNNAMED if unseen else _DENIED)

    def _note(self, status: int) -> None:
        if self._outcome is not None:
            self._outcome.status = status

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        return self._exchange is not None and self._exchange.must_buffer(status, headers)

    async def stream(self, status: int, headers: RawHeaders) -> EventStream | None:
        return await self._exchange.stream(status, headers) if self._exchange is not None else None

    def mark(self) -> bytes:
        return self._exchange.mark() if self._exchange is not None else b""

    async def restore_response(self, answer: Response) -> Response:
        self._note(answer.status)
        return (
            await self._exchange.restore_response(answer) if self._exchange is not None else answer
        )

    async def settled(self, status: int, headers: RawHeaders) -> None:
        self._note(status)
        if self._exchange is not None:
            await self._exchange.settled(status, headers)

    def pass_unread(self, status: int, headers: RawHeaders) -> None:
        if self._exchange is not None:
            self._exchange.pass_unread(status, headers)

    async def failed(self, sent: bool) -> None:
        if self._exchange is not None:
            await self._exchange.failed(sent)
