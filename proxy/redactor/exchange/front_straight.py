"""Ordinary reads of a front in few steps (``straight``): the front parses and splices the answer,
and the owner of the vault is told its tokens alone.

No task waits. Whatever is not ordinary, or meets an owner that is away, goes the general way of a
front, as if the owner had never been asked: nothing is stored for a read.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import msgspec

from proxy.audit.services import LineWaiter
from proxy.clock import Clock
from proxy.errors import VaultError
from proxy.redactor.exchange.link import OwnerLink, away
from proxy.redactor.exchange.straight import AnswerReader, FieldSpan, FoundFields
from proxy.redactor.exchange.wire import Reveal, RevealDone
from proxy.redactor.message import Request
from proxy.redactor.plan import BodyPlan, OperationPlan
from proxy.redactor.rules import Match
from proxy.redactor.select import Selection
from proxy.storage.changes import CommitWaiter

#: Requests that go the general way at once, after the owner found that none is ordinary now.
_PAUSE: Final = 64
#: Answers of an unknown shape from which patterns are learned: all of the first, and of later ones
#: each of so many.
_LESSONS: Final = 64
_values: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class FrontPlan(AnswerReader):
    """Plan of the ordinary reads of one operation, for callers of one view.

    ``scope``: version of the rules, number of the operation, and of the view. ``general``: goes on
    with a read that began at that time, has that id, and is not ordinary.
    """

    __slots__ = ("_depth", "_find", "_missed", "clock", "general", "line", "pause", "scope")

    def __init__(
        self,
        plan: OperationPlan,
        scope: tuple[str, int, int],
        link: OwnerLink,
        clock: Clock,
        general: Callable[[Match, Request, int, str], Any],
    ) -> None:
        super().__init__(plan)
        self.scope, self.line, self.clock, self.general = scope, link.now, clock, general
        selection = cast("BodyPlan", plan.response).selection
        self._find, self._depth = (
            cast("Selection", selection).find,
            plan.operation.endpoint.limits.json_depth,
        )
        self._missed = 0  #: answers in which nothing was found
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

    def learn(self, body: bytes) -> None:
        """Learn the shape of an answer in which nothing was found: the owner, which reads it now,
        learns it for itself alone.
        """
        self._missed += 1
        if self._missed <= _LESSONS or self._missed % _LESSONS == 0:
            with suppress(VaultError):  # the owner meets and tells it
                self._find(body, self._depth)


class FrontRead(msgspec.Struct, eq=False):
    """One read and its answer; the owner's answer comes to it."""

    plan: FrontPlan
    match: Match
    request: Request
    began: int
    sent: bytes = b""
    settles: bool = False
    ident: str = ""
    body: bytes = b""  #: as it came
    fields: Sequence[FieldSpan] = ()
    key: str | None = None  #: that it has
    waiter: LineWaiter | None = None
    revealed: RevealDone | None = None

    def stage(self, waiter: CommitWaiter) -> bool:  # noqa: ARG002  # of the port
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

    def tell(self, status: int, waiter: LineWaiter) -> None:
        """Ask the owner, which has the audit log told."""
        self.waiter, line = waiter, self.plan.line()
        if line is None:
            self.set_exception(away())
            return
        pieces, fields, at = list[bytes](), list[FieldSpan](), 1
        for name, start, end in self.fields:
            pieces.append(self.body[start:end])
            fields.append((name, at, at + end - start))
            at += end - start + 1
        rules, number, view = self.plan.scope
        rest = (status, self.key, fields, b"[%b]" % b",".join(pieces), self.ident)
        line.begin(Reveal(line.number(), rules, number, self.match.params, view, *rest), self)

    def done(self) -> bool:
        """It waits to its end."""
        return False

    def set_result(self, revealed: RevealDone) -> None:
        """Continue: the owner has answered."""
        if not revealed.ordinary:
            self.plan.pause = _PAUSE
        if revealed.fault is not None:
            self.set_exception(revealed.fault.error())
        elif not revealed.values:
            self.set_exception(away("The owner of the vault carries this the general way."))
        else:
            self.revealed = revealed
            cast("LineWaiter", self.waiter).audited(None)

    def set_exception(self, error: VaultError) -> None:
        """Continue on the general way."""
        cast("LineWaiter", self.waiter).audited(error)

    def audited(self) -> bytes:
        """The restored body."""
        pieces, reached, body = list[bytes | msgspec.Raw](), 0, self.body
        for (_, start, end), value in zip(self.fields, _values(self._values()), strict=True):
            pieces.append(body[reached:start])
            pieces.append(value)
            reached = end
        pieces.append(body[reached:])
        return b"".join(pieces)

    def _values(self) -> bytes:
        return b"" if self.revealed is None else self.revealed.values

    def mark(self) -> bytes:
        """As the owner tells it."""
        return b"" if self.revealed is None else self.revealed.mark

    def general(self) -> Any:
        """The exchange that goes on from here."""
        return self.plan.general(self.match, self.request, self.began, self.ident)
