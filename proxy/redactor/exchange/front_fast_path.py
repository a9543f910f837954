"""Ordinary exchanges of a front in few steps (``fast_path_exchange``): the front parses and splices
bodies, and the owner of the vault is told the values of a write, or the tokens of a read, alone.

No task waits. Whatever is not ordinary goes the general way of a front: a read as if the owner had
never been asked, for nothing is stored for it, and a write from where it is (``Resume``).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import msgspec

from proxy.audit.services import LineWaiter
from proxy.clock import Clock
from proxy.errors import VaultError
from proxy.redactor.exchange.bound_operation import field_view
from proxy.redactor.exchange.fast_path_exchange import (
    AnswerReader,
    FastPathExchange,
    FoundFields,
    empty_places,
)
from proxy.redactor.exchange.fast_path_plan import one_spelling, plain_id
from proxy.redactor.exchange.front_link import FrontChannel, FrontLink, owner_unavailable
from proxy.redactor.exchange.owner_protocol import (
    Ended,
    Fail,
    Resume,
    Reveal,
    RevealDone,
    SettleWrite,
    StageDone,
    StageWrite,
)
from proxy.redactor.guard import BodyCutter, CutBody, Guard
from proxy.redactor.json.native import FieldSpan
from proxy.redactor.json.tree import encode_text
from proxy.redactor.message import Request
from proxy.redactor.plan import BodyPlan, OperationPlan
from proxy.redactor.rules import Match
from proxy.redactor.select import Selection
from proxy.redactor.views import View
from proxy.storage.changes import CommitWaiter

#: Requests that go the general way at once, after the owner found that none is ordinary now.
_PAUSE: Final = 64
#: Answers of an unknown shape from which patterns are learned: all of the first, and of later ones
#: each of so many.
_LESSONS: Final = 64
#: Of what nobody waits for yet.
_NO_LINE: Final = cast("LineWaiter", None)
_NO_COMMIT: Final = cast("CommitWaiter", None)
_values: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


#: Version of the rules, number of an operation, and of a view.
_Scope = tuple[str, int, int]


class ShapeLessons:
    """Learns shapes of bodies in which nothing was found; an owner learns for itself alone."""

    __slots__ = ("_depth", "_find", "_missed")

    def __init__(self, body: BodyPlan | None, depth: int) -> None:
        self._find, self._depth = cast("Selection", body and body.selection).find, depth
        self._missed = 0

    def learn(self, body: bytes) -> None:
        self._missed += 1
        if self._missed <= _LESSONS or self._missed % _LESSONS == 0:
            with suppress(VaultError):  # the owner meets and tells it
                self._find(body, self._depth)


class FrontReadPlan(AnswerReader):
    """Plan of the ordinary reads of one operation, for callers of one view.

    ``general``: goes on with a read that began at that time, has that id, and is not ordinary.
    """

    __slots__ = ("channel", "clock", "general", "learn", "pause", "scope")

    def __init__(
        self,
        plan: OperationPlan,
        scope: _Scope,
        link: FrontLink,
        clock: Clock,
        general: Callable[[Match, Request, int, str], Any],
    ) -> None:
        super().__init__(plan, None)
        self.scope, self.channel, self.clock, self.general = scope, link.current, clock, general
        self.learn = ShapeLessons(plan.response, plan.operation.endpoint.limits.json_depth).learn
        self.pause = 0  #: requests that go the general way from now on

    def begin(
        self,
        match: Match,
        request: Request,
        marks: Sequence[bytes] = (),  # noqa: ARG002  # of the port: a read changes nothing
    ) -> "FrontRead | None":
        """The exchange of a request; ``None``: it is not ordinary, and nothing was done."""
        if self.pause:
            self.pause -= 1
            return None
        return FrontRead(self, match, request, self.clock())


class FrontRead(msgspec.Struct, eq=False):
    """One read and its answer; the owner's answer comes to it."""

    plan: FrontReadPlan
    match: Match
    request: Request
    began: int
    sent: bytes = b""
    settles: bool = False
    ident: str = ""
    tagged: bool = False  #: whether the answer has an entity tag
    body: bytes = b""  #: as it came
    fields: Sequence[FieldSpan] = ()
    key: str | None = None  #: that it has
    waiter: LineWaiter = _NO_LINE
    values: bytes = b""  #: as the owner answers
    hashed: bytes = b""

    def stage(self, waiter: CommitWaiter, status: int = 0) -> bool:  # noqa: ARG002  # of the port
        """Nothing is stored for a read."""
        return False

    settle = stage

    def staged(self) -> None:
        """The request leaves; the owner counts."""

    settled = abandon = close = staged

    def restore(self, body: bytes) -> bytes | None:
        """Find what the answer shows; ``None``: it is not ordinary."""
        reading: FoundFields | None = self.plan.read(body)
        if reading is None:
            self.plan.learn(body)
            return None
        self.body, (self.key, self.fields) = body, reading
        return body

    def audit(self, status: int, waiter: LineWaiter) -> None:
        self.waiter, channel = waiter, self.plan.channel()
        if channel is None:
            self.set_exception(owner_unavailable())
            return
        pieces, fields, body = list[bytes](), list[str](), self.body
        for name, start, end in self.fields:
            pieces.append(body[start:end])
            fields.append(name)
        rules, number, view = self.plan.scope
        rest = status, self.key, fields, b"[%b]" % b",".join(pieces), self.ident, self.tagged
        channel.begin(Reveal(channel.number(), rules, number, self.match.params, view, *rest), self)

    def done(self) -> bool:
        return False

    def set_result(self, revealed: RevealDone) -> None:
        if not revealed.ordinary:
            self.plan.pause = _PAUSE
        if revealed.fault is not None:
            self.set_exception(revealed.fault.error())
        elif not revealed.values:
            self.set_exception(
                owner_unavailable("The owner of the vault carries this the general way.")
            )
        else:
            self.values, self.hashed = revealed.values, revealed.mark
            self.waiter.audited(None)

    def set_exception(self, error: VaultError) -> None:
        self.waiter.audited(error)

    def audited(self) -> bytes:
        pieces, reached, body = list[bytes | msgspec.Raw](), 0, self.body
        for (_, start, end), value in zip(self.fields, _values(self.values), strict=True):
            pieces.append(body[reached:start])
            pieces.append(value)
            reached = end
        pieces.append(body[reached:])
        return b"".join(pieces)

    def mark(self) -> bytes:
        return self.hashed

    def general(self) -> Any:
        return self.plan.general(self.match, self.request, self.began, self.ident)


class FrontWritePlan(AnswerReader):
    """Plan of the ordinary creates or updates of one operation, for callers of one view.

    ``general``: an exchange that goes on with a write of that number which is not ordinary.
    """

    __slots__ = (
        *("_cut", "_id_name", "_learn", "fields", "general", "guard", "learn_answer", "channel"),
        *("pause", "scope"),
    )

    def __init__(
        self,
        plan: OperationPlan,
        scope: _Scope,
        link: FrontLink,
        view: View | None,
        general: Callable[[Match, Request, int, FrontChannel | None], Any],
    ) -> None:
        super().__init__(plan, None if view is None else field_view(view, plan.operation.entity))
        self.scope, self.channel, self.general = scope, link.current, general
        operation, request = plan.operation, cast("BodyPlan", plan.request)
        depth = operation.endpoint.limits.json_depth
        self._cut = BodyCutter(plan, empty_places(plan)).cut
        self._id_name = operation.id.name if operation.id is not None else ""
        self.fields = request.fields
        # what it only suspects is the owner's to find and to report
        watched = operation.endpoint.on_error.guard != "off"
        self.guard = Guard(plan, lambda _field, _where: None) if watched else None
        self._learn = ShapeLessons(request, depth).learn
        self.learn_answer = ShapeLessons(plan.response, depth).learn
        self.pause = 0  #: requests that go the general way from now on

    def begin(
        self, match: Match, request: Request, marks: Sequence[bytes] = ()
    ) -> "FrontWrite | None":
        """The exchange of a request; ``None``: it is not ordinary, and nothing was done."""
        if self.pause:
            self.pause -= 1
            return None
        try:
            return self._begun(match, request, marks)
        except Exception:  # noqa: BLE001  # whatever it is, the general way meets and tells it
            return None

    def _begun(self, match: Match, request: Request, marks: Sequence[bytes]) -> "FrontWrite | None":
        key, body = match.params.get(self._id_name), request.body
        if key is not None and not plain_id(key) and (key := one_spelling(key)) is None:
            return None
        cut = self._cut(body)
        if cut is None:
            self._learn(body)
            return None
        if not cut.raws or (self.guard and self.guard.doubts(cut, request)):
            return None
        one = FrontWrite(self, match, request, key)
        one.marks, one.settles, one.cut = marks, True, cut
        return one


class FrontWrite(FastPathExchange, eq=False):
    """One write and its answer; the owner's answers come to it."""

    plan: FrontWritePlan  # type: ignore[assignment]  # what an answer is restored by
    cut: CutBody = CutBody((), ())
    channel: FrontChannel | None = None  #: on which it was begun
    number: int = 0
    waiter: CommitWaiter = _NO_COMMIT
    ended: Ended | None = None

    def stage(self, waiter: CommitWaiter) -> bool:
        """Have the owner keep the values; ``False``: nothing was done."""
        channel = self.plan.channel()
        if channel is None:
            return False
        self.waiter, self.channel, self.number = waiter, channel, channel.number()
        cut, (rules, operation, view) = self.cut, self.plan.scope
        head = self.number, rules, operation, dict(self.match.params), view
        job = StageWrite(*head, cut.leaves, cut.texts, self.marks, self.ident)
        channel.begin(job, self)
        return True

    def done(self) -> bool:
        return False

    def set_result(self, answer: StageDone | Ended) -> None:
        waiter = self.waiter
        if isinstance(answer, Ended):
            if answer.unsettled:
                waiter.set_exception(
                    owner_unavailable("The owner of the vault carries this the general way.")
                )
                return
            self.ended = answer
            waiter.set_result(None)
        elif answer.tokens:
            self._splice(answer.tokens)
            waiter.set_result(None)
        else:
            if not answer.ordinary:
                self.plan.pause = _PAUSE
            waiter.set_exception(
                owner_unavailable("The owner of the vault carries this the general way.")
            )

    def set_exception(self, error: VaultError) -> None:
        """Continue: none comes."""
        channel, self.channel = self.channel, None
        if not self.sent and channel is not None:
            channel.connection.send(Fail(self.number, sent=False))  # it may not hear it
        self.waiter.set_exception(error)

    def _splice(self, tokens: Sequence[str | None]) -> None:
        names, cut, swaps, at = self.plan.fields, self.cut, self.swaps, 0
        for leaf, token in zip(cut.leaves, tokens, strict=True):
            if token is not None:
                swaps[names[leaf]] = cut.pieces[2 * at + 1], _ = encode_text(token), cut.raws[at]
                at += 1
        self.sent = b"".join(cut.pieces)

    def staged(self) -> None:
        """The request leaves; the owner counts."""

    settled = abandon = close = staged

    def restore(self, body: bytes, read: FoundFields | None = None) -> bytes | None:
        """As of any; the shape of what is not ordinary is learned."""
        read = read or self.plan.read(body)
        if read is None:
            self.plan.learn_answer(body)
            return None
        return FastPathExchange.restore(self, body, read)

    def settle(self, waiter: CommitWaiter, status: int) -> bool:
        """Have the owner settle it and tell the audit log; ``False``: nothing was done."""
        channel, answer = self.channel, self.answer
        if channel is None or not channel.connection.open or answer is None:
            return False
        self.waiter = waiter
        visible = tuple(answer.fields)
        channel.begin(SettleWrite(self.number, status, answer.key, visible, self.tagged), self)
        return True

    def audit(self, status: int, waiter: LineWaiter) -> None:  # noqa: ARG002  # of the port
        """It was told with the settling."""
        fault = self.ended.fault if self.ended is not None else None
        waiter.audited(None if fault is None else fault.error())

    def audited(self) -> bytes:
        return self.answer.body if self.answer is not None else b""

    def mark(self) -> bytes:
        return b"" if self.ended is None else self.ended.mark

    def general(self) -> Any:
        """The exchange that goes on from here; the owner is told of its request first."""
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.connection.send(Resume(self.number, self.request))
        return self.plan.general(self.match, self.request, self.number, channel)
