"""Ordinary exchanges of a front, which the owner carries in few steps (``fast_path_exchange``): no
task is woken when values are durable, when an answer is settled, or when its line of the audit log
is written. Whatever is out of the ordinary goes on the general way, from where the exchange is.
"""

from time import perf_counter
from typing import Final, NamedTuple, Protocol, cast

from proxy.errors import VaultError
from proxy.redactor.exchange.fast_path_exchange import FastPathExchange, RestoredAnswer
from proxy.redactor.exchange.fast_path_plan import FastPathPlan
from proxy.redactor.exchange.owner_protocol import (
    Ended,
    Fault,
    Result,
    Reveal,
    RevealDone,
    SettleWrite,
    StageDone,
    StageWrite,
    views_of,
)
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.exchange.runtime import Runtime, VaultRules
from proxy.redactor.exchange.unnamed_parameters import UnnamedParameters
from proxy.redactor.guard import CutBody
from proxy.redactor.message import Request
from proxy.redactor.rules import Match, Operation
from proxy.telemetry import logs

_log = logs.logger("web")

#: Milliseconds after which a body that a front was to bring, and did not, is wanted again.
_PATIENCE: Final = 1_000
# What an exchange waits for.
_STAGING: Final = 0  #: its values to be durable
SENT: Final = 1  #: the answer
_SETTLING: Final = 2  #: what that means to be durable
_AUDITING: Final = 3  #: its line of the audit log

#: What is left of a request that reads, and of one whose values alone came.
_READS: Final = Request("GET", b"", (), b"")
_UNSEEN: Final = Request("", b"", (), b"")


class GeneralWay(Protocol):
    """The connection of the front, which does whatever is out of the ordinary."""

    def send(self, answer: Result) -> None:
        """Send an answer."""

    def finish(self, number: int) -> None:
        """Nothing more comes of the job of that number, of which nothing ``Ended`` is said."""

    def give_up(self, exchange: RuleExchange, *, sent: bool, ident: str = "") -> None:
        """Bring an exchange without an answer to its end."""


class StageJob:
    """An ordinary write whose front has its request and reads its answer: here are its values. The
    waiter of its commits and of its line.
    """

    phase = _STAGING  #: what it waits for
    _settling = _settle = 0.0
    _status = 0  #: of the answer of the application
    _gone = False  #: whether nobody waits any more

    def __init__(self, way: GeneralWay, number: int, exchange: FastPathExchange) -> None:
        self._way, self._number, self._exchange = way, number, exchange
        self.ident, self._began = exchange.ident, perf_counter()

    def start(self) -> bool:
        """Have its values made durable; ``False``: nothing was done."""
        if self._exchange.settles:
            return self._exchange.stage(self)
        self._send()
        return True

    def general(self) -> RuleExchange:
        """The exchange that goes on from here; this is over."""
        self._way.finish(self._number)
        return self._exchange.general()

    def resume(self, request: Request) -> RuleExchange:
        """The exchange that goes on with that request; this is over."""
        self._exchange.request = request
        return self.general()

    def settle_write(self, job: SettleWrite) -> None:
        """The application took it: settle, and tell the audit log."""
        exchange, self._status, self._settling = self._exchange, job.status, perf_counter()
        try:
            exchange.tagged = job.tagged
            exchange.answer = RestoredAnswer(job.key, frozenset(job.fields), b"")
            self.phase = _SETTLING
            if not exchange.settles:
                self.phase = _AUDITING
                exchange.audit(job.status, self)
            elif not exchange.settle(self, job.status):
                self._hand_over()
        except Exception:  # noqa: BLE001  # nobody who calls may fail for it
            self._stumble()

    def front_lost(self) -> None:
        """Nobody waits any more; once the application may act it is brought to its end."""
        self._gone = True
        if self.phase == SENT:
            self._way.give_up(self.general(), sent=True, ident=self.ident)

    # ------------------------------------------------ what store and audit log tell

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        try:
            if self.phase == _STAGING:
                self._send()
                return
            exchange = self._exchange
            exchange.settled()
            self._settle = perf_counter() - self._settling
            self.phase = _AUDITING
            exchange.audit(self._status, self)
        except Exception:  # noqa: BLE001  # nobody who calls may fail for it
            self._stumble()

    def set_exception(self, _: BaseException) -> None:
        """It will never be there: nothing was stored, or settled."""
        if self.phase != _STAGING:
            self._hand_over()
            return
        self._exchange.abandon()
        self._way.finish(self._number)
        if not self._gone:
            self._way.send(StageDone(self._number))

    def audited(self, error: VaultError | None) -> None:
        """Continue: the audit log has the line, or refused it."""
        if error is not None:
            self._exchange.close()
            self._end(Fault.of(error))
            return
        try:
            self._exchange.audited()
        except Exception:  # noqa: BLE001  # nobody who calls may fail for it
            self._stumble()
            return
        self._end(None)

    # ------------------------------------------------ the steps

    def _send(self) -> None:
        exchange = self._exchange
        exchange.staged()
        self.phase = SENT
        if self._gone:
            self._way.give_up(self.general(), sent=False, ident=self.ident)
            return
        stage = perf_counter() - self._began if exchange.settles else 0.0
        tokens = [of[0].token if of else None for of in exchange.write.tokens.values()]
        self._way.send(StageDone(self._number, None, tokens, stage=stage))

    def _end(self, fault: Fault | None) -> None:
        exchange = self._exchange
        mark = exchange.mark() if exchange.tagged and fault is None else b""
        self._way.send(Ended(self._number, fault, mark=mark, settle=self._settle))

    def _stumble(self) -> None:
        """Log a fault of ours in its ``except``, and go on the general way."""
        _log.error("an exchange failed inside the proxy, and goes on", exc_info=True)
        self._hand_over()

    def _hand_over(self) -> None:
        """Let the front go on the general way: it has request and answer."""
        if self.phase == _STAGING:
            self._way.give_up(self.general(), sent=False, ident=self.ident)
            self._way.send(StageDone(self._number))
            return
        self.phase, self._exchange.answer = SENT, None
        if self._gone:
            self.front_lost()
        else:
            self._way.send(Ended(self._number, None, unsettled=True))


class RevealJob:
    """An ordinary answer to a read: the waiter of its line."""

    def __init__(self, way: GeneralWay, number: int, exchange: FastPathExchange) -> None:
        self._way, self._number, self._exchange = way, number, exchange

    def front_lost(self) -> None:
        """Nobody waits any more; nothing has to be brought to its end."""

    def audited(self, error: VaultError | None) -> None:
        try:
            if error is not None:
                revealed = RevealDone(self._number, Fault.of(error))
            else:
                exchange = self._exchange
                mark = exchange.mark() if exchange.tagged else b""
                revealed = RevealDone(self._number, None, exchange.audited(), mark)
        except Exception as fault:  # noqa: BLE001  # lines of others follow; its front goes on
            _log.error("an exchange failed inside the proxy, and goes on", exc_info=True)
            revealed = RevealDone(self._number, Fault.of(fault))
        self._way.finish(self._number)
        self._way.send(revealed)


#: What was begun in few steps.
Begun = StageJob | RevealJob


class BoundPlan(NamedTuple):
    """The plan of an operation for callers of a view, with the rules that it belongs to."""

    operation: Operation
    rules: Runtime
    plan: FastPathPlan


def bound_plan(
    in_force: VaultRules, rules: Runtime | None, number: int, view: int
) -> BoundPlan | None:
    """Return the plan of the operation of that number; ``None``: there is none."""
    if rules is None or number >= len(rules.operations):
        return None
    operation = rules.operations[number]
    match = Match(operation, {}, rules)
    plan = in_force.fast_path(match, (), views_of(operation.endpoint)[view])
    return None if plan is None else BoundPlan(operation, rules, plan)


def reveal(way: GeneralWay, job: Reveal, bound: BoundPlan | None) -> RevealJob | None:
    """Begin the answer to an ordinary read; ``None``: it is not ordinary, which was said."""
    exchange: FastPathExchange | None = None
    if bound is not None and not bound.plan.writes:
        exchange = bound.plan.begin(Match(bound.operation, job.params, bound.rules), _READS)
    if exchange is None:
        way.send(RevealDone(job.n, None, ordinary=False))
        return None
    try:
        ordinary = exchange.reveal(job.id or cast("str", exchange.key), job.fields, job.tokens)
    except Exception:  # noqa: BLE001  # whatever it is, the general way meets and tells it
        ordinary = False
    if not ordinary:
        way.send(RevealDone(job.n, None))
        return None
    exchange.ident, exchange.tagged = job.ident, job.tagged
    begun = RevealJob(way, job.n, exchange)
    exchange.audit(job.status, begun)
    return begun


def _wants_body(unnamed: UnnamedParameters, now: int) -> bool:
    """Whether a front is to bring the body of a request that began then, in milliseconds: no more
    at a time than are looked at, for each takes the longer way.
    """
    if now >= unnamed.again:
        unnamed.wanted, unnamed.again = 0, now + _PATIENCE
    unnamed.wanted += 1
    return unnamed.wanted <= max(unnamed.left, 1)


def stage_write(way: GeneralWay, job: StageWrite, bound: BoundPlan | None) -> StageJob | None:
    """Have an ordinary write made durable; ``None``: it is not ordinary, which was said."""
    if bound is None or not bound.plan.writes:
        way.send(StageDone(job.n, ordinary=False))
        return None
    operation, rules, plan = bound
    match, cut = Match(operation, job.params, rules), CutBody(job.leaves, job.texts)
    exchange = plan.begin(match, _UNSEEN, job.marks, cut)
    unnamed = plan.joined.unnamed
    if exchange is not None and (
        exchange.began < unnamed.due or not _wants_body(unnamed, exchange.began)
    ):
        exchange.ident = job.ident
        begun = StageJob(way, job.n, exchange)
        if exchange.stage(begun) if exchange.settles else begun.start():
            return begun
    elif exchange is not None:
        exchange.close()  # the whole body is to be looked at
    way.send(StageDone(job.n))
    return None
