"""A request that carries others, and its answer: an exchange for each that a rule names."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.offload import SMALL, busy, give_way, is_long, run_in_thread
from proxy.redactor.bodies.envelopes import (
    CarriedRequest,
    EnvelopeReader,
    InnerAnswer,
    InnerRequest,
    edits_of,
    paired,
)
from proxy.redactor.bodies.events import EventStream
from proxy.redactor.cookies import no_token, with_tokens
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.parts_exchange import PartsExchange, SeveralExchanges, each_ended
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.guard import JointGuard
from proxy.redactor.json.text import is_utf8, unwrapped
from proxy.redactor.json.tree import read_json_value, write_json_value
from proxy.redactor.message import (
    Media,
    RawHeaders,
    Request,
    Response,
    carries_unseen,
    classify,
    header,
)
from proxy.redactor.method_override import TELLING, TELLS_METHOD, override_method, possible
from proxy.redactor.passed_places import PassedParts, without_passed
from proxy.redactor.redact import request_ids, unreadable_answer
from proxy.redactor.restore import Edit, EscapingKinds, splice, surroundings
from proxy.redactor.routing import MatchingRules
from proxy.redactor.rules import Match, Operation, PassRule, Unmatched, Verb
from proxy.redactor.views import View

_JSON = (b"content-type", b"application/json")
_REFUSED = 400  #: meaning of an answer with neither a status nor a body at its place
_CHANGES = (Verb.UPDATE, Verb.DELETE)
#: The exchange of a request in an envelope.
InnerExchange = RuleExchange | PartsExchange


class InnerRules(MatchingRules, Protocol):
    """The rules that inner requests are matched by."""

    @property
    def joined(self) -> Mapping[int, BoundOperation]:
        """Operations by their identity."""

    def branch(self, match: Match, request: Request) -> Match | PassRule:
        """The match of the very operation that a whole request is for."""

    def exchange(self, match: Match, view: View | None = None) -> Any:
        """A new exchange for one request."""


class _Inner:
    """An inner request with its exchange; ``None`` where it passes."""

    def __init__(self, request: InnerRequest, exchange: InnerExchange | None, label: str) -> None:
        self.request = request
        self.exchange = exchange
        target = request.targets[0].encode("utf-8", "surrogatepass")
        self.carried = CarriedRequest(request.method, target, label, request.body)
        #: the one that it changes, as those are locked: its schema, and the hash of its key
        self.record: tuple[str, bytes] = ("", b"")
        self.writes = False
        self.passed: list[PassedParts] = []  #: its places that hold nobody's data

    def edits(self, came: Request, sent: Request) -> tuple[list[Edit], list[Edit]]:
        """Edits to its redacted form, and to the form that the guard looks through."""
        edits = edits_of(self.request, came, sent)
        if not self.passed:
            return edits, edits
        rest = without_passed(sent, self.passed)
        if self.request.path_at is None:  # it is a constant of the rule
            rest = replace(rest, target=sent.target)
        return edits, edits_of(self.request, came, rest)


class EnvelopeExchange(SeveralExchanges[InnerExchange]):
    """Carries one envelope and its answer, request by request."""

    missed, carries = False, True

    def __init__(self, operation: Operation, rules: InnerRules, view: View | None) -> None:
        if operation.envelope is None:
            raise TypeError("the operation is no envelope")
        super().__init__()
        self._operation = operation
        self._rules = rules
        self._view = view
        self._by_id = operation.envelope.id is not None
        depth = operation.endpoint.limits.json_depth
        self._reader = EnvelopeReader(operation.envelope, operation.label, depth)
        self._inner: list[_Inner] = []

    @property
    def carried(self) -> Sequence[CarriedRequest]:
        return [one.carried for one in self._inner]

    def check_head(self, head: Request) -> None:
        """Raise ``VaultError`` for a body that is no JSON."""
        if classify(head.headers, b"?") is not Media.JSON:
            raise VaultError(
                Code.UNREADABLE_BODY,
                f"The rule of {self._operation.label} reads a Content-Type of application/json, "
                "and this is another.",
            )

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:  # noqa: ARG002  # the names of the port
        """The envelope with tokens in the places of values of its requests.

        Raises ``VaultError``; then nothing is stored and nothing may be sent.
        """
        self.check_head(request)
        long = len(request.body) > SMALL and is_long(request.body)
        inner = await run_in_thread(long, self._reader.requests, request.body)
        lone = [(self._sent(one, request), one) for one in inner]
        naming = tuple(field for field in request.headers if TELLING[field[0]] == TELLS_METHOD)
        self._inner = []
        cookies = self._operation.endpoint.cookies
        for alone, each in lone:
            if cookies and await with_tokens(cookies, each.headers, no_token) is not each.headers:
                raise self._refusal("one of its requests holds a cookie that a rule names")
            self._inner.append(self._matched(each, alone, naming))
            if busy():
                await give_way()
        requests = {id(one): alone for one, (alone, _) in zip(self._inner, lone, strict=True)}
        self._refuse_twice()
        edits, looked_at = list[Edit](), list[Edit]()
        joint = JointGuard()
        try:
            # several records are always locked in one order, so no two requests block each other
            for one in sorted(self._inner, key=lambda one: (one.writes, one.record)):
                if one.exchange is not None:
                    alone = requests[id(one)]
                    one.exchange.joint = joint
                    redacted = await one.exchange.redact_request(alone)
                    self._begun.append(one.exchange)
                    redacting, rest = one.edits(alone, redacted)
                    edits += redacting
                    looked_at += rest
            sent = replace(request, body=splice(request.body, edits))
            checked = replace(request, body=splice(request.body, looked_at))
            await run_in_thread(long, joint.check, checked)
        except BaseException:
            await self.failed(False)
            raise
        return sent

    def _sent(self, one: InnerRequest, outer: Request) -> Request:
        """An inner request as if it came alone."""
        own = {name.lower() for name, _ in one.headers}
        typed = () if b"content-type" in own or not one.body else (_JSON,)
        taken = own | {b"content-type", b"content-length"}
        rest = tuple(field for field in outer.headers if field[0].lower() not in taken)
        target = one.targets[0].encode("utf-8", "surrogatepass")
        return Request(one.method, target, (*one.headers, *typed, *rest), one.body)

    def _matched(self, one: InnerRequest, request: Request, naming: RawHeaders) -> _Inner:
        """``naming``: fields of the envelope that name a method: some applications hand them on."""
        host = (header(request.headers, b"host") or b"").decode("latin-1").lower()
        readings: list[Match | PassRule | None] = []
        for text in one.targets:
            target = text.encode("utf-8", "surrogatepass")
            head = one.method, host, target, (*one.headers, *naming)
            endpoint, match = self._rules.match(*head)
            if (method := self._named(one, match, host, target)) is not None:
                endpoint, match = self._rules.match(*head, method)
            if endpoint.name != self._operation.endpoint.name:
                raise self._refusal("one of its requests is for another application")
            readings.append(match)
            if match is None and self._carries_unseen(one, host, target):
                raise self._denied(one)
        named = [match for match in readings if match is not None]
        rules = {id(one.operation if isinstance(one, Match) else one) for one in named}
        if len(rules) > 1 or (named and readings[0] is None):
            raise self._refusal("the path of one of its requests can be read in two ways")
        if not named and self._operation.endpoint.unmatched is Unmatched.DENY:
            raise self._denied(one)
        first = readings[0]
        if isinstance(first, Match):
            first = self._rules.branch(first, request)
        if isinstance(first, Match):
            return self._ruled(one, first, request)
        if first is not None and first.unmatched:
            denied = first.endpoint.unmatched is Unmatched.DENY
            if denied or self._carries_unseen(one, host, one.targets[0].encode()):
                raise self._denied(one)
            first = None
        return _Inner(one, None, first.label if first is not None else "")

    def _ruled(self, one: InnerRequest, match: Match, request: Request) -> _Inner:
        operation = match.operation
        parts = operation.parts or (operation,)
        whole = operation.envelope is not None or operation.graph
        if whole or any(part.response.in_parts for part in parts):
            raise self._refusal("one of its requests is of a kind that cannot come in another")
        inner = _Inner(one, self._rules.exchange(match, self._view), operation.label)
        inner.writes = any(part.verb is not Verb.READ for part in parts)
        for part in parts:
            guard = self._rules.joined[id(part)].guard
            if guard is not None and guard.passed.some:
                inner.passed.append(guard.passed)
            if part.verb not in _CHANGES:
                continue
            if inner.record[1]:  # requests that lock one record each never wait in a circle
                raise self._refusal("two objects of one of its requests change what is stored")
            inner.record = self._record(part, match, request)
        return inner

    def _record(self, operation: Operation, match: Match, request: Request) -> tuple[str, bytes]:
        """The one record that an inner request changes, by its place in the order of locks."""
        body = self._rules.joined[id(operation)].read(request)
        ids = request_ids(operation.id, match, request, body)
        if body is not None:
            ids = ids or [item.id for item in body.items if item.id is not None]
        if len(set(ids)) != 1:
            raise self._refusal("one of its requests does not name the one record it changes")
        return self._rules.joined[id(operation)].lock_order(ids[0])

    def _named(
        self, one: InnerRequest, match: Match | PassRule | None, host: str, target: bytes
    ) -> str | None:
        """The method that the body of an inner POST names, if it may select another rule."""
        if one.method.upper() != "POST" or not one.body:
            return None
        if isinstance(match, Match):
            matters = self._rules.may_change_operation(match, target)
        else:
            matters = self._rules.overridable(host, target)
        types = [text.decode("latin-1") for name, text in one.headers if name.lower() == _JSON[0]]
        if not matters or not possible(types):
            return None
        content, kinds = one.body, types or [_JSON[1].decode()]
        if content.startswith(b'"') and (value := read_json_value(content)) is not None:
            content, kinds = value.text.encode("utf-8", "surrogatepass"), types
        return override_method(kinds, content, self._operation.endpoint.limits.form_fields)

    def _carries_unseen(self, one: InnerRequest, host: str, target: bytes) -> bool:
        """Whether a request without a rule is of a kind that is refused on ruled paths."""
        kinds = (header(one.headers, b"content-type") or b"").decode("latin-1").strip().lower()
        unseen = carries_unseen(one.method, (kinds,), bodied=bool(one.body))
        return unseen and self._rules.ruled(host, target)

    def _refuse_twice(self) -> None:
        records = [one.record for one in self._inner if one.record[1]]
        if len(set(records)) < len(records):
            raise VaultError(
                Code.VALUE_UNFIT,
                f"The request matches {self._operation.label}, and two of its requests change one "
                "record: send them in two.",
            )

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        kind = surroundings(header(headers, b"content-type"))
        empty = status in (204, 304) or header(headers, b"content-length") == b"0"
        return bool(self._begun) and kind is not None and not empty

    async def stream(self, status: int, headers: RawHeaders) -> EventStream | None:
        """Its answers are read whole."""

    async def restore_response(self, answer: Response) -> Response:
        if not 200 <= answer.status < 300:
            return await self._refused(answer)
        answers = await self._answers(answer)
        if answers is None:
            await self._doubted()
            self.pass_unread(answer.status, answer.headers)
            return answer
        edits: list[Edit] = []
        waiting = list(zip(self._inner, answers, strict=True))[::-1]
        try:
            while waiting:
                one, inner = waiting.pop()
                if inner is not None:
                    one.carried.status = inner.status or (200 if inner.taken else _REFUSED)
                    one.carried.answer = inner.body
                if one.exchange is None:
                    continue
                if inner is None:
                    await one.exchange.failed(True)
                else:
                    edits += await self._restored(one.exchange, inner)
        except BaseException:
            await each_ended(
                [one.exchange for one, _ in waiting if one.exchange is not None], _doubt
            )
            raise
        self.missed = any(one.missed for one in self._begun)
        return replace(answer, body=splice(answer.body, edits))

    async def _answers(self, answer: Response) -> list[InnerAnswer | None] | None:
        if surroundings(header(answer.headers, b"content-type")) is not EscapingKinds.JSON:
            return None
        long = len(answer.body) > SMALL and is_long(answer.body)
        try:
            body = unwrapped(answer.body) or answer.body
            answers = await run_in_thread(long, self._reader.answers, body)
        except VaultError:
            return None
        return paired([one.request for one in self._inner], answers, by_id=self._by_id)

    async def _restored(self, exchange: InnerExchange, inner: InnerAnswer) -> list[Edit]:
        status = inner.status or (200 if inner.taken else _REFUSED)
        if not (inner.taken or status >= _REFUSED):
            await exchange.settled(status, inner.headers)
            return []
        typed = () if header(inner.headers, b"content-type") else (_JSON,)
        answer = Response(status, (*inner.headers, *typed), inner.body)
        if not exchange.must_buffer(status, answer.headers):
            await exchange.settled(status, answer.headers)
            return []
        restored = await exchange.restore_response(answer)
        edits: list[Edit] = [(*inner.body_at, restored.body)]
        fields = zip(inner.headers, restored.headers, inner.fields_at, strict=False)
        for (_, came), (_, text), (start, end) in fields:
            if came != text:
                readable = text.decode("utf-8" if is_utf8(text) else "latin-1")
                edits.append((start, end, write_json_value(Value(readable))))
        return edits

    async def _refused(self, answer: Response) -> Response:
        """An answer to the envelope itself: it means the same for each of its requests."""
        waiting = self._begun[::-1]
        try:
            while waiting:
                answer = await waiting.pop().restore_response(answer)
        except BaseException:
            await each_ended(waiting, _doubt)
            raise
        return answer

    async def settled(self, status: int, headers: RawHeaders) -> None:
        """Settle each request by the status of the unread answer; a success leaves it in doubt."""
        for inner in self._inner:
            inner.carried.status = status
        if 200 <= status < 300:
            await self._doubted()
            return
        await each_ended(self._begun, lambda one: one.settled(status, headers))

    def pass_unread(self, status: int, headers: RawHeaders) -> None:
        strict = self._operation.endpoint.on_error.unreadable_answer != "tokens"
        if strict and 200 <= status < 300 and self.must_buffer(status, headers):
            raise unreadable_answer()

    async def _doubted(self) -> None:
        await each_ended(self._begun, _doubt)

    def _refusal(self, what: str) -> VaultError:
        return VaultError(
            Code.BAD_REQUEST, f"The request matches {self._operation.label}, and {what}."
        )

    def _denied(self, one: InnerRequest) -> VaultError:
        self._inner = [_Inner(one, None, "")]
        self._inner[0].carried.status = 403
        return VaultError(
            Code.OPERATION_DENIED,
            f"The request matches {self._operation.label}, and no rule names one of its requests, "
            "which may not pass then.",
        )


def _doubt(one: InnerExchange) -> Awaitable[None]:
    return one.failed(True)
