"""An exchange of a front: a matched request and its answer, carried out by the owner of the vault
(``owner_protocol``).

A read that searches by nothing holds nothing to swap: it is asked for once, with its answer. Of a
list the owner gets ids and tokens alone: the front cuts it, and puts the values into it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

import msgspec

from proxy.clock import Clock
from proxy.errors import Code, VaultError
from proxy.offload import LARGE
from proxy.redactor.bodies.envelopes import CarriedRequest
from proxy.redactor.bodies.events import EventStream
from proxy.redactor.exchange.answer_scan import wants_body
from proxy.redactor.exchange.bound_operation import field_view
from proxy.redactor.exchange.front_fast_path import FrontReadPlan, FrontWritePlan, ShapeLessons
from proxy.redactor.exchange.front_link import (
    FrontChannel,
    FrontLink,
    FrontMessages,
    FrontStream,
    UnrestoredStream,
    owner_unavailable,
)
from proxy.redactor.exchange.judgement import may_tell
from proxy.redactor.exchange.list_answers import ListPieces, ObjectCut
from proxy.redactor.exchange.matcher import Matcher, has_one_answer, is_untouched, matcher_parts
from proxy.redactor.exchange.owner_protocol import (
    CloseStream,
    Ended,
    Fail,
    OpenStream,
    Redact,
    Redacted,
    RestoreAnswer,
    Settle,
    StreamOpened,
    views_of,
)
from proxy.redactor.json.arrays import ListRows
from proxy.redactor.message import Media, RawHeaders, Request, Response, Timing, classify, header
from proxy.redactor.plan import BodyPlan, OperationPlan, Outcome, list_plan, make_plan, outcome
from proxy.redactor.redact import check_head
from proxy.redactor.rules import Match, RuleSet, Verb
from proxy.redactor.views import View
from proxy.telemetry.logs import REQUEST_ID
from proxy.vault.proxied import PageRun

_BODILESS: Final = frozenset({204, 205, 304})
_SWITCHING: Final = 101
#: Lists at most that go the general way at once, after some in a row that the owner could not
#: restore by rows.
_PAUSE: Final = 16
_encode: Final = msgspec.msgpack.Encoder().encode
#: Of each run the values of each place.
_columns: Final = msgspec.msgpack.Decoder(list[list[list[str]]]).decode


class CutList(ListPieces):
    """One list of a front on its way to the owner of the vault and back."""

    def __init__(self, plan: BodyPlan, rows: ListRows) -> None:
        super().__init__(plan)
        self._rows, self._pieces = rows, list[bytes]()
        self._cuts: list[tuple[ObjectCut, PageRun]] = []

    async def question(self) -> bytes | None:
        """Ids and tokens for the owner; ``None``: no shape fits, or it is long for one look-up."""
        cuts = await self._read(self._rows, self._pieces)
        if cuts is None or not self._rows.ended:
            return None
        self._cuts = cuts
        return _encode([run for _, run in cuts])

    def restored(self, values: bytes) -> bytes:
        """The body with these values, as the owner answers."""
        pieces = self._pieces
        for (cut, run), columns in zip(self._cuts, _columns(values), strict=True):
            self._splice(pieces, cut, run, columns)
        return b"".join([self._rows.before, *pieces, self._rows.after])


class FrontLists:
    """Cuts the answers of one operation, and learns their shapes."""

    def __init__(self, plan: BodyPlan, depth: int) -> None:
        self._plan, self._depth, self._learn = plan, depth, ShapeLessons(plan, depth).learn
        self._pause = 0  #: answers that go the general way from now on
        self._step = 1  #: those after the next one that the owner cannot restore

    async def cut(self, answer: Response) -> tuple[CutList, bytes] | None:
        """A list, and what the owner is told of it; ``None``: it goes the general way."""
        body, selection = answer.body, self._plan.selection
        if self._pause or selection is None or len(body) > LARGE:
            self._pause = max(0, self._pause - 1)
            return None
        try:
            if classify(answer.headers, body) is not Media.JSON:
                return None
            rows = selection.rows(body, self._depth)
        except VaultError:
            return None  # the owner meets and tells it
        question = await (one := CutList(self._plan, rows)).question() if rows is not None else None
        if question is None:
            self._learn(body)
            return None
        return one, question

    def pace(self, *, restored: bool) -> None:
        """Whether the owner could restore one by its rows. One that shows a change under way passes
        soon; where others are alike, each further one has twice as many go the general way.
        """
        self._pause = 0 if restored else self._step
        self._step = 1 if restored else min(2 * self._step, _PAUSE)


class FrontRuntime(Matcher):
    """Rules without a vault."""

    __slots__ = ("fast_path", "lists", "numbers", "plans")

    def __init__(self, rules: RuleSet) -> None:
        super().__init__(*matcher_parts(rules))
        numbers = {id(one): number for number, one in enumerate(self.operations)}
        object.__setattr__(self, "numbers", numbers)
        object.__setattr__(self, "plans", {})
        object.__setattr__(self, "fast_path", {})
        object.__setattr__(self, "lists", {})

    numbers: dict[int, int]  #: of operations, by identity
    plans: dict[int, OperationPlan]  #: by number
    #: by number, and view of callers
    fast_path: dict[tuple[int, View | None], FrontReadPlan | FrontWritePlan | None]
    lists: dict[tuple[int, View | None], FrontLists | None]

    def plan(self, number: int) -> OperationPlan:
        plan = self.plans.get(number)
        if plan is None:
            plan = self.plans[number] = make_plan(self.operations[number])
        return plan

    def cut_lists(self, number: int, view: View | None) -> FrontLists | None:
        """Return the cutter of an operation's lists; ``None``: the owner cuts them."""
        key = number, view
        if key not in self.lists:
            plan = self.plan(number)
            operation, answers = plan.operation, list_plan(plan)
            clear = view is None or field_view(view, operation.entity).clear
            usual = clear and not operation.branches and has_one_answer(operation)
            depth = operation.endpoint.limits.json_depth
            self.lists[key] = FrontLists(answers, depth) if answers is not None and usual else None
        return self.lists[key]


class FrontExchange:
    """A matched request and its answer, carried out by the owner."""

    def __init__(
        self, link: FrontLink, match: Match, view: View | None, clock: Clock | None = None
    ) -> None:
        self._link, self._clock = link, clock
        self._unasked: Redact | None = None  #: of a read that the owner does not know of yet
        self._match = match
        self._operation = operation = match.operation
        self._runtime = cast("FrontRuntime", match.scope)
        self._view = view
        self._channel: FrontChannel | None = None
        self._number = 0
        self._target = b""
        self._ended: Ended | None = None
        self.timing = Timing()
        self.carries = bool(operation.envelope or operation.branches)
        self.carried: Sequence[CarriedRequest] = ()
        self.missed = False

    def check_head(self, head: Request) -> None:
        """Raise ``VaultError`` for what no body makes right, where one rule alone tells that."""
        operation = self._operation
        if has_one_answer(operation) and not operation.branches:
            plan = self._runtime.plan(self._runtime.numbers[id(operation)])
            check_head(plan, self._match, head)

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        operation, question = self._operation, self._question(request, marks, REQUEST_ID.get())
        untouched = is_untouched(operation, request)
        if untouched and self._clock is not None and has_one_answer(operation):
            question.began, self._unasked = self._clock(), question
            return request
        try:
            channel = await self._begin(question)
            redacted = cast("Redacted", await channel.ask(question))
        except asyncio.CancelledError:
            self._give_up(sent=False)
            raise
        except VaultError as error:
            self._give_up(sent=False)
            if error.code is Code.VAULT_DOWN and untouched:
                self._channel = None
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

    def resume(self, request: Request, began: int, of: str | FrontChannel | None) -> None:
        """Go on with a read that began then and has that id, of which the owner does not know; or
        with a write that has this number on that line (``None``: it is gone).
        """
        if isinstance(of, str):
            self._unasked = self._question(request, (), of)
            self._unasked.began = began
        else:
            self._target, self._channel, self._number = request.target, of, began

    async def _begin(self, question: Redact) -> FrontChannel:
        """Number a question by the connection on which the exchange begins."""
        self._channel = channel = await self._link.channel()
        self._number = question.n = channel.number()
        return channel

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        """Whether the answer must be read whole; of special operations the owner tells later."""
        if status in _BODILESS or status < 200 or header(headers, b"content-length") == b"0":
            return False
        operation, rule = self._operation, self._operation.response
        special = rule.special or operation.branches or operation.graph
        if special or operation.parts or operation.envelope:
            return True
        judged = outcome(rule, self._target, status, headers, None)
        plan = self._runtime.plan(self._runtime.numbers[id(operation)])
        wanted = judged is Outcome.UNREAD or wants_body(plan, judged, headers)
        return wanted or (judged is Outcome.TAKEN and rule.presumed and may_tell(headers))

    async def stream(self, status: int, headers: RawHeaders) -> EventStream | None:
        """As of any exchange; the owner holds what is on its way between two parts."""
        channel = self._channel
        try:
            if channel is None:
                raise owner_unavailable()
            opened = cast(
                "StreamOpened", await channel.ask(OpenStream(self._number, status, headers))
            )
        except VaultError as error:
            self._give_up(sent=True)
            if status == _SWITCHING:
                raise  # messages of the caller may hold values
            self._pass_with_tokens(error)
            return UnrestoredStream() if header(headers, b"content-encoding") is None else None
        if not opened.parts:
            return None
        way = (self.closed, channel, self._number)
        if opened.longest is None:
            return FrontStream(*way)
        return FrontMessages(*way, opened.longest, opened.passes_binary)

    async def closed(self) -> None:
        """Nothing more comes of an answer that came part by part."""
        with suppress(VaultError):  # the owner saw the connection end
            await self._end(CloseStream(self._number))

    async def restore_response(self, answer: Response) -> Response:
        try:
            by_rows = await self._by_rows(answer)
            if by_rows is not None:
                return by_rows
            ended = await self._end(RestoreAnswer(self._number, answer))
        except VaultError as error:
            self._pass_with_tokens(error)
            return answer
        return ended.of(answer)

    async def _by_rows(self, answer: Response) -> Response | None:
        """A list of which the owner gets ids and tokens alone; ``None``: it goes as any answer."""
        number, operation = self._runtime.numbers[id(self._operation)], self._operation
        lists = self._runtime.cut_lists(number, self._view) if operation.verb is Verb.READ else None
        if lists is None or answer.status not in operation.response.success:
            return None
        cut = await lists.cut(answer)
        if cut is None:
            return None
        head = Response(answer.status, answer.headers, b"")
        ended = await self._end(RestoreAnswer(self._number, head, cut[1]))
        lists.pace(restored=not ended.unsettled)
        if ended.unsettled:
            return None
        if not ended.values:
            return answer
        return Response(answer.status, answer.headers, cut[0].restored(ended.values))

    def mark(self) -> bytes:
        return b"" if self._ended is None else self._ended.mark

    async def settled(self, status: int, headers: RawHeaders) -> None:
        await self._settle(Settle(self._number, status, headers))

    def pass_unread(self, status: int, headers: RawHeaders) -> None:  # noqa: ARG002  # of the port
        if self._ended is not None and self._ended.unread is not None:
            raise self._ended.unread.error()

    async def failed(self, sent: bool) -> None:  # one fact, named by the method
        if self._unasked is None:
            await self._settle(Fail(self._number, sent))

    async def _settle(self, question: Settle | Fail) -> None:
        try:
            await self._end(question)
        except VaultError:
            if self._operation.verb is not Verb.READ:  # else nothing had to be settled
                raise

    async def _end(self, question: RestoreAnswer | Settle | Fail | CloseStream) -> Ended:
        whole = await self._begun_late(question)
        channel, self._channel = self._channel, None
        if channel is None:
            raise owner_unavailable()
        ended = cast("Ended", await channel.ask(whole or question))
        if ended.unsettled:
            self._channel = channel  # it goes on there
            return ended
        self._ended = ended
        self.missed, self.timing.settle = ended.missed, ended.settle
        self.carried = ended.carried
        if ended.fault is not None:
            raise ended.fault.error()
        return ended

    async def _begun_late(
        self, question: RestoreAnswer | Settle | Fail | CloseStream
    ) -> Redact | None:
        """Tell the owner of a read that it does not know of; return a question that tells all."""
        unasked, self._unasked = self._unasked, None
        if unasked is None:
            return None
        channel = await self._begin(unasked)
        if isinstance(question, RestoreAnswer):
            unasked.answer, unasked.rows = question.answer, question.rows
            return unasked
        redacted = cast("Redacted", await channel.ask(unasked))
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
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.connection.send(Fail(self._number, sent))
