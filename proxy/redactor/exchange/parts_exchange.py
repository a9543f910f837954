"""A message with several objects of different entities: an exchange for each of them.

Each reads the message that the previous one has written, so every kind of body can have several
objects. All are staged before anything is sent, or none is, and each is settled separately.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace as replaced

from proxy.errors import Code, VaultError
from proxy.offload import SMALL, is_long, run_in_thread
from proxy.redactor.bodies.envelopes import CarriedRequest
from proxy.redactor.bodies.events import EventStream
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.exchange.unnamed_parameters import NoUnnamed, UnnamedParameters
from proxy.redactor.forks import each_operation
from proxy.redactor.guard import JointGuard
from proxy.redactor.message import RawHeaders, Request, Response, Timing
from proxy.redactor.plan import OperationPlan, make_plan
from proxy.redactor.redact import request_ids
from proxy.redactor.rules import Match, Operation, Verb
from proxy.telemetry.metrics import Metrics

_One = TypeVar("_One")
_Part = TypeVar("_Part", bound="RuleExchange | SeveralExchanges[Any]")
_CHANGES: Final = (Verb.UPDATE, Verb.DELETE)
_LATEST: Final = 2**48  #: milliseconds since the epoch, of whatever is a time


def every_plan(operations: Iterable[Operation]) -> Iterator[OperationPlan]:
    """The plan of each operation on one entity.

    A part that names no place in the body of the message does not refuse the places of others.
    """
    for operation in operations:
        plans = [make_plan(one) for one in each_operation((operation,))]
        named = operation.parts and any(one.unnamed is None for one in plans)  # or searches there
        yield from (replace(one, unnamed=None) for one in plans) if named else plans


def join_parts(metrics: Metrics, parts: Sequence[BoundOperation]) -> None:
    """Have one of the operations look at the parameters of the messages that they share."""
    operations = [one.plan.operation for one in parts]
    for one in parts[1:]:
        one.unnamed = NoUnnamed(metrics, one.plan.operation)
    parts[0].unnamed = UnnamedParameters(metrics, *operations)


async def each_ended(several: Iterable[_One], end: Callable[[_One], Awaitable[None]]) -> None:
    """End each exchange of one request, whatever becomes of another: one that stays open locks its
    record. Raises the first fault, once all have ended.
    """
    fault: BaseException | None = None
    for one in several:
        try:
            await end(one)
        except BaseException as error:  # noqa: BLE001  # raised below
            fault = fault or error
    if fault is not None:
        raise fault


class SeveralExchanges(Generic[_Part]):
    """One message for which several exchanges are begun, each ended for itself."""

    carries = False

    def __init__(self) -> None:
        self._begun: list[_Part] = []  #: those whose request was redacted
        self.timing = Timing()

    @property
    def carried(self) -> Sequence[CarriedRequest]:
        return ()

    @property
    def missed(self) -> bool:
        return any(one.missed for one in self._begun)

    def mark(self) -> bytes:
        """Its answers are about several records."""
        return b""

    async def settled(self, status: int, headers: RawHeaders) -> None:
        await each_ended(self._begun, lambda one: one.settled(status, headers))

    def pass_unread(self, status: int, headers: RawHeaders) -> None:
        for one in self._begun:
            one.pass_unread(status, headers)

    async def failed(self, sent: bool) -> None:
        await each_ended(self._begun, lambda one: one.failed(sent))


class PartsExchange(SeveralExchanges[RuleExchange]):
    """Carries one message and its answer, object by object."""

    joint: JointGuard | None = None  #: looks through the envelope that the message stands in

    def __init__(
        self,
        matches: Sequence[Match],
        joined: Mapping[int, BoundOperation],
        exchanges: Sequence[RuleExchange],
    ) -> None:
        super().__init__()
        self._matches = matches
        self._joined = joined  #: operations by their identity
        self._exchanges = exchanges  #: of these, in their order

    def check_head(self, head: Request) -> None:
        for one in self._exchanges:
            one.check_head(head)

    def mark(self) -> bytes:
        """When the interface corrected one of the shown records last; empty: none."""
        times = [one.revealed.corrected for one in self._begun if one.revealed is not None]
        return b"%016x" % latest if (latest := max(times, default=0)) else b""

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        """The message with tokens in the places of the values of all objects.

        ``marks``: of ``mark``, or a date. Raises ``VaultError``; then nothing is stored or sent.
        """
        long = len(request.body) > SMALL and is_long(request.body)
        order = await run_in_thread(long, self._order, request)
        joint, received = self.joint or JointGuard(), request.received or request
        if marks and marks[0][:1] != b"@":  # that of a single record is no time, so none at all
            times = [int(one or b"0", 16) for one in marks]
            marks = (b"@%d" % max(one if one < _LATEST else 0 for one in times),)
        try:
            for number in order:
                exchange = self._exchanges[number]
                exchange.joint = joint
                request = await exchange.redact_request(replaced(request, received=received), marks)
                self._begun.append(exchange)
            if joint is not self.joint:
                await run_in_thread(long, partial(joint.check, shared=True), request)
        except BaseException:
            await self.failed(False)
            raise
        finally:
            self.timing.stage = sum(one.timing.stage for one in self._exchanges)
        return request

    def _order(self, request: Request) -> list[int]:
        """The parts by their numbers, those that change records last and in one order for all
        messages: those that wait for a record wait for no other.
        """
        verbs = [one.operation.verb for one in self._matches]
        changes = [number for number, verb in enumerate(verbs) if verb in _CHANGES]
        rest = [number for number, verb in enumerate(verbs) if verb not in _CHANGES]
        if len(changes) < 2:
            return [*rest, *changes]
        records = {number: self._records(number, request) for number in changes}
        schemas = [self._schema(number) for number in changes if records[number]]
        if len(set(schemas)) < len(schemas):
            singles = [(self._schema(one), *records[one]) for one in changes if records[one]]
            if any(len(one) > 2 for one in singles) or len(set(singles)) < len(singles):
                label = self._matches[0].operation.label
                raise VaultError(
                    Code.VALUE_UNFIT,
                    f"The request matches {label}, and two of its objects change one record, or "
                    "several records of one kind: send them in two requests.",
                )
        return [*rest, *sorted(changes, key=lambda one: self._lock_order(one, records[one]))]

    def _lock_order(self, number: int, records: Sequence[str]) -> tuple[str, bytes]:
        joined = self._joined[id(self._matches[number].operation)]
        orders = map(joined.lock_order, records)
        return min(orders, default=(self._schema(number), b""))

    def _schema(self, number: int) -> str:
        return self._matches[number].operation.entity.schema.name

    def _records(self, number: int, request: Request) -> list[str]:
        match = self._matches[number]
        body = self._joined[id(match.operation)].read(request)
        ids = request_ids(match.operation.id, match, request, body)
        if body is None or ids:
            return sorted(ids)
        return sorted(item.id for item in body.items if item.id is not None)

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        return any(one.must_buffer(status, headers) for one in self._begun)

    async def stream(self, status: int, headers: RawHeaders) -> EventStream | None:
        streams = [await one.stream(status, headers) for one in self._begun]
        open_streams = [one for one in streams if one is not None]
        return _PartsStream(open_streams) if open_streams else None

    async def restore_response(self, answer: Response) -> Response:
        status, headers = answer.status, answer.headers
        waiting = self._begun[::-1]
        try:
            while waiting:
                one = waiting.pop()
                if one.must_buffer(status, headers):
                    answer = await one.restore_response(answer)
                else:
                    await one.settled(status, headers)
                    one.pass_unread(status, headers)
        except BaseException:
            await each_ended(waiting, lambda one: one.failed(True))
            raise
        finally:
            self.timing.settle = sum(one.timing.settle for one in self._exchanges)
        return answer


class _PartsStream:
    """The events of an answer, restored by one part after the other."""

    def __init__(self, streams: Sequence[EventStream]) -> None:
        self._streams = streams

    async def restore(self, piece: bytes) -> bytes:
        for one in self._streams:
            piece = await one.restore(piece)
        return piece

    async def rest(self) -> bytes:
        rest = b""
        for one in self._streams:
            rest = (await one.restore(rest) if rest else b"") + await one.rest()
        return rest

    async def end(self) -> None:
        for one in self._streams:
            await one.end()
