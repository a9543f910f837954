"""The front's side of exchanges whose vault another process owns (``wire``): rules and router are
here, what needs the vault is asked for.

While the owner is away, writes are refused and reads go as ``on_error`` of their rule says. An
exchange belongs to one connection: where that breaks, the owner leaves it in doubt.

A read of what its path names holds nothing to swap: beside an owner on the same machine it is asked
for once, with its answer and when it began, by the clock of both.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from proxy.clock import Clock
from proxy.errors import Code, VaultError
from proxy.redactor.bodies.envelopes import CarriedRequest
from proxy.redactor.bodies.events import EventStream
from proxy.redactor.cookies import no_token, with_tokens
from proxy.redactor.exchange.answer_scan import wants_body
from proxy.redactor.exchange.front_straight import FrontPlan, FrontWritePlan
from proxy.redactor.exchange.judgement import may_tell
from proxy.redactor.exchange.link import (
    Connect,
    OwnerLine,
    OwnerLink,
    RemoteMessages,
    RemoteStream,
    Unrestored,
    away,
)
from proxy.redactor.exchange.matcher import (
    CurrentRules,
    Matcher,
    carries,
    cookies_in,
    has_one_answer,
    holds_address,
    is_plain_operation,
    is_untouched,
    longest_body,
    matcher_parts,
    views_of,
)
from proxy.redactor.exchange.straight_exchange import answers_plainly, writes_plainly
from proxy.redactor.exchange.wire import (
    GROWTH,
    ROOM,
    CameBack,
    Close,
    Ended,
    Fail,
    Open,
    Opened,
    Readdress,
    Readdressed,
    Redact,
    Redacted,
    Settle,
)
from proxy.redactor.message import RawHeaders, Request, Response, Timing, header, is_patch
from proxy.redactor.plan import OperationPlan, Outcome, make_plan, outcome
from proxy.redactor.rules import Endpoint, Match, RuleSet, Verb
from proxy.redactor.views import View
from proxy.telemetry.logs import REQUEST_ID

_BODILESS: Final = frozenset({204, 205, 304})
_SWITCHING: Final = 101


class _Runtime(Matcher):
    """Rules without a vault."""

    __slots__ = ("numbers", "plans", "straight")

    def __init__(self, rules: RuleSet) -> None:
        super().__init__(*matcher_parts(rules))
        numbers = {id(one): number for number, one in enumerate(self.operations)}
        object.__setattr__(self, "numbers", numbers)
        object.__setattr__(self, "plans", {})
        object.__setattr__(self, "straight", {})

    numbers: dict[int, int]  #: of operations, by identity
    plans: dict[int, OperationPlan]  #: by number
    #: by number, and view of callers
    straight: dict[tuple[int, View | None], FrontPlan | FrontWritePlan | None]

    def plan(self, number: int) -> OperationPlan:
        """Return the plan of an operation on one entity."""
        plan = self.plans.get(number)
        if plan is None:
            plan = self.plans[number] = make_plan(self.operations[number])
        return plan


class FrontRules(CurrentRules[_Runtime]):
    """The rules in force before the vault of another process.

    ``connect`` opens a connection to the owner; ``patience`` as of ``OwnerLink``; ``clock``: of
    this process and of the owner, where they have one.
    """

    def __init__(self, connect: Connect, patience: float, clock: Clock | None = None) -> None:
        super().__init__(_Runtime(RuleSet("none", (), (), ())))
        self._clock = clock
        self.link = OwnerLink(connect, patience, lambda: self.runtime.rules.version)

    def begin(self, rules: RuleSet) -> None:
        """Take the first rules."""
        self._make_room(rules)
        self.runtime = _Runtime(rules)

    async def adopt(self, rules: RuleSet) -> _Runtime:
        """Return rules ready to take effect. Raises ``VaultError``: the owner has others."""
        self._make_room(rules)
        if not await self.link.follows(rules.version):
            raise VaultError(
                Code.VAULT_DOWN,
                "The owner of the vault has other rules: give both the same files.",
            )
        return _Runtime(rules)

    def _make_room(self, rules: RuleSet) -> None:
        self.link.allow(ROOM + GROWTH * longest_body(rules))

    async def check(self) -> str | None:
        """For ``/readyz``: why requests that rules name cannot be carried out."""
        if self.link.fault is not None:
            return self.link.fault
        try:
            if await self.link.knows(self.runtime.rules.version):
                return None
        except VaultError as error:
            return error.message
        return "The owner of the vault has other rules: give both the same files."

    async def redact_headers(
        self, endpoint: Endpoint, host: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[tuple[bytes, bytes]]:
        """The fields with tokens in place of the values in addresses that they hold, and in cookies
        that the rules name; without the owner, these are left out.
        """
        runtime, cookies = self.runtime, cookies_in(endpoint, headers)
        if not cookies and not (endpoint.searched and carries(headers, runtime.sign)):
            return headers
        try:
            line = await self.link.line()
            version, fields = runtime.rules.version, tuple(headers)
            question = Readdress(line.number(), version, host, fields, endpoint.name)
            answer = cast("Readdressed", await line.ask(question))
            if answer.fault is not None:
                raise answer.fault.error()
        except VaultError:
            left = [one for one in headers if not holds_address(*one, runtime.sign)]
            return await with_tokens(endpoint.cookies, left, no_token) if cookies else left
        return answer.headers

    def straight(
        self, match: Match, headers: RawHeaders, view: View | None = None
    ) -> FrontPlan | FrontWritePlan | None:
        """Plan of its ordinary exchanges, if any, where the owner has the same clock."""
        runtime, endpoint = cast("_Runtime", match.scope), match.operation.endpoint
        if (endpoint.searched and carries(headers, runtime.sign)) or cookies_in(endpoint, headers):
            return None
        if match.operation.verb is not Verb.READ and is_patch(headers):
            return None
        key = runtime.numbers[id(match.operation)], view
        if key not in runtime.straight:
            runtime.straight[key] = self._plan(runtime, *key)
        return runtime.straight[key]

    def _plan(
        self, runtime: _Runtime, number: int, view: View | None
    ) -> FrontPlan | FrontWritePlan | None:
        operation, clock = runtime.operations[number], self._clock
        visible = view.shows(operation.entity.name) if view else not operation.endpoint.views
        if clock is None or not (visible and is_plain_operation(operation)):
            return None
        plan, views = runtime.plan(number), views_of(operation.endpoint)
        scope = runtime.rules.version, number, views.index(view)
        if not answers_plainly(plan):
            return None
        if operation.verb is Verb.READ:
            late, usual = partial(self._further, view), has_one_answer(operation)
            return FrontPlan(plan, scope, self.link, clock, late) if usual else None
        if not writes_plainly(plan):
            return None
        return FrontWritePlan(plan, scope, self.link, view, partial(self._further, view))

    def _further(self, view: View | None, match: Match, *begun: Any) -> "RemoteExchange":
        exchange = self.exchange(match, view)
        exchange.go_on(*begun)
        return exchange

    def exchange(self, match: Match, view: View | None = None) -> "RemoteExchange":
        """A new exchange for one matched request; its caller sees all, or what the view shows."""
        return RemoteExchange(self.link, match, view, self._clock)


class RemoteExchange:
    """A matched request and its answer, carried out by the owner."""

    def __init__(
        self, link: OwnerLink, match: Match, view: View | None, clock: Clock | None = None
    ) -> None:
        self._link, self._clock = link, clock
        self._unasked: Redact | None = None  #: of a read that the owner does not know of yet
        self._match = match
        self._operation = operation = match.operation
        self._runtime = cast("_Runtime", match.scope)
        self._view = view
        #: whether nothing stored can stand in an answer that settles nothing either
        self._passing = (
            view is not None
            and operation.verb is Verb.READ
            and not view.shows(operation.entity.name)
        )
        self._line: OwnerLine | None = None
        self._number = 0
        self._target = b""
        self._ended: Ended | None = None
        self.timing = Timing()
        self.carries = bool(operation.envelope or operation.branches)
        self.carried: Sequence[CarriedRequest] = ()
        self.missed = False

    def check_head(self, head: Request) -> None:
        """Nothing is refused before its body is there."""

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        """The request with tokens, durable in the vault. Raises ``VaultError``."""
        operation, question = self._operation, self._question(request, marks, REQUEST_ID.get())
        untouched = is_untouched(operation, request)
        if untouched and self._clock is not None and has_one_answer(operation):
            question.began, self._unasked = self._clock(), question
            return request
        try:
            line = await self._begin(question)
            redacted = cast("Redacted", await line.ask(question))
        except asyncio.CancelledError:
            self._give_up(sent=False)
            raise
        except VaultError as error:
            self._give_up(sent=False)
            if error.code is Code.VAULT_DOWN and untouched:
                self._line = None
                return request
            raise
        if redacted.fault is not None:
            raise redacted.fault.error()
        self.timing.stage = redacted.stage
        return cast("Request", redacted.request)

    def _question(self, request: Request, marks: Sequence[bytes], ident: str) -> Redact:
        runtime, operation = self._runtime, self._operation
        self._target = request.target
        return Redact(
            0,
            runtime.rules.version,
            runtime.numbers[id(operation)],
            dict(self._match.params),
            views_of(operation.endpoint).index(self._view),
            request,
            marks,
            ident,
        )

    def go_on(self, request: Request, began: int, of: str | OwnerLine | None) -> None:
        """Go on with a read that began then and has that id, of which the owner does not know; or
        with a write that has this number on that line (``None``: it is gone).
        """
        if isinstance(of, str):
            self._unasked = self._question(request, (), of)
            self._unasked.began = began
        else:
            self._target, self._line, self._number = request.target, of, began

    async def _begin(self, question: Redact) -> OwnerLine:
        """Number a question by the connection on which the exchange begins."""
        self._line = line = await self._link.line()
        self._number = question.n = line.number()
        return line

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        """Whether the answer must be read whole; of special operations the owner tells later."""
        if status in _BODILESS or status < 200 or header(headers, b"content-length") == b"0":
            return False
        operation, rule = self._operation, self._operation.response
        special = rule.special or operation.branches or operation.graph
        if special or operation.parts or operation.envelope:
            return True
        if self._passing:
            return False
        judged = outcome(rule, self._target, status, headers, None)
        plan = self._runtime.plan(self._runtime.numbers[id(operation)])
        wanted = judged is Outcome.UNREAD or wants_body(plan, judged, headers)
        return wanted or (judged is Outcome.TAKEN and rule.presumed and may_tell(headers))

    async def stream(self, status: int, headers: RawHeaders) -> EventStream | None:
        """As of any exchange; the owner holds what is on its way between two parts."""
        line = self._line
        try:
            if line is None:
                raise away()
            opened = cast("Opened", await line.ask(Open(self._number, status, headers)))
        except VaultError as error:
            self._give_up(sent=True)
            if status == _SWITCHING:
                raise  # messages of the caller may hold values
            self._pass_with_tokens(error)
            return Unrestored() if header(headers, b"content-encoding") is None else None
        if not opened.parts:
            return None
        way = (self.closed, line, self._number)
        if opened.longest is None:
            return RemoteStream(*way)
        return RemoteMessages(*way, opened.longest, opened.passes_binary)

    async def closed(self) -> None:
        """Nothing more comes of an answer that came part by part."""
        with suppress(VaultError):  # the owner saw the connection end
            await self._end(Close(self._number))

    async def restore_response(self, answer: Response) -> Response:
        """Settle, and restore. Raises ``VaultError``."""
        try:
            ended = await self._end(CameBack(self._number, answer))
        except VaultError as error:
            self._pass_with_tokens(error)
            return answer
        return ended.of(answer)

    def mark(self) -> bytes:
        """As the owner tells it."""
        return b"" if self._ended is None else self._ended.mark

    async def settled(self, status: int, headers: RawHeaders) -> None:
        """Settle only: the answer is passed on as it is."""
        await self._tell(Settle(self._number, status, headers))

    def pass_unread(self, status: int, headers: RawHeaders) -> None:  # noqa: ARG002  # of the port
        """Raise ``VaultError`` where the answer, settled and not read, may not pass."""
        if self._ended is not None and self._ended.unread is not None:
            raise self._ended.unread.error()

    async def failed(self, sent: bool) -> None:  # one fact, named by the method
        """No answer came. ``sent``: the application may have acted all the same."""
        if self._unasked is None:
            await self._tell(Fail(self._number, sent))

    async def _tell(self, question: Settle | Fail) -> None:
        try:
            await self._end(question)
        except VaultError:
            if self._operation.verb is not Verb.READ:  # else nothing had to be settled
                raise

    async def _end(self, question: CameBack | Settle | Fail | Close) -> Ended:
        whole = await self._begun_late(question)
        line, self._line = self._line, None
        if line is None:
            raise away()
        ended = self._ended = cast("Ended", await line.ask(whole or question))
        self.missed, self.timing.settle = ended.missed, ended.settle
        self.carried = ended.carried
        if ended.fault is not None:
            raise ended.fault.error()
        return ended

    async def _begun_late(self, question: CameBack | Settle | Fail | Close) -> Redact | None:
        """Tell the owner of a read that it does not know of; return a question that tells all."""
        unasked, self._unasked = self._unasked, None
        if unasked is None:
            return None
        line = await self._begin(unasked)
        if isinstance(question, CameBack):
            unasked.answer = question.answer
            return unasked
        redacted = cast("Redacted", await line.ask(unasked))
        if redacted.fault is not None:
            raise redacted.fault.error()
        question.n = self._number
        return None

    def _pass_with_tokens(self, error: VaultError) -> None:
        """The owner is away: a read passes with its tokens unless its rule says otherwise."""
        gone = self._ended is None and error.code is Code.VAULT_DOWN
        operation = self._operation
        if not (gone and operation.passes_tokens and operation.verb is Verb.READ):
            raise error

    def _give_up(self, *, sent: bool) -> None:
        """Tell the owner that nobody waits any more; it may not hear it."""
        line, self._line = self._line, None
        if line is not None:
            line.connection.send(Fail(self._number, sent))
