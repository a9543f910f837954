"""A GraphQL request and its answer: an exchange for each of its fields that a rule names."""

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
from msgspec.structs import replace as with_fields

from proxy.errors import Code, VaultError
from proxy.offload import SMALL, busy, give_way, is_long, run_in_thread
from proxy.redactor.bodies.events import Cutter, Event, EventStream, cutter_of
from proxy.redactor.exchange.answer_scan import AnswerScan, refuses_unread
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.event_stream import (
    StreamExchange,
    event_bytes,
    kind_of_several,
    read_document,
    restore_events,
    uncoded,
    with_content,
)
from proxy.redactor.exchange.judgement import verdict
from proxy.redactor.exchange.mixins import viewed
from proxy.redactor.exchange.parts_exchange import SeveralExchanges, each_ended
from proxy.redactor.exchange.settle import settle_unshown
from proxy.redactor.exchange.unnamed_parameters import UnnamedArguments
from proxy.redactor.graphql.address import address_with, takes_several
from proxy.redactor.graphql.answers import (
    ContinuedAnswer,
    answered_at,
    came_first,
    json_document,
    stands,
    was_executed,
)
from proxy.redactor.graphql.requests import RequestedField
from proxy.redactor.graphql.values import edits
from proxy.redactor.guard import JointGuard
from proxy.redactor.message import Media, RawHeaders, Request, Response, canonical_uuid
from proxy.redactor.plan import BodyPlan, Outcome
from proxy.redactor.redact import BodyObject, ParsedBody, unreadable_answer
from proxy.redactor.restore import splice
from proxy.redactor.rules import Match, Verb
from proxy.redactor.views import View
from proxy.vault.vault import Vault

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_JSON: RawHeaders = ((b"content-type", b"application/json"),)
#: Meaning for a field of an answer without ``data``, and of one with a failed execution.
_REFUSED, _FAILED = 400, 500


class FieldExchange(StreamExchange):
    """The exchange of one field: its request is the small document of its values."""

    requested: RequestedField
    _continued: ContinuedAnswer
    #: of each document of an answer of several that is read whole: where its objects stand
    _places: Sequence[Sequence[BodyPlan] | None] = ()
    _unread = 0  #: of these documents, those that cannot be read
    _unshown = False  #: whether null or false stands in the place of its objects

    @property
    def writes(self) -> bool:
        return self._writing is not None

    def unread(self, status: int) -> int:
        """The status that says what an answer means that nobody reads, as far as it succeeded."""
        return _FAILED if self.writes and 200 <= status < 300 else status

    @property
    def record(self) -> tuple[str, bytes]:
        """Return the lock order of the changed record; no bytes if the request names none."""
        body = msgspec.json.decode(self.requested.body)
        ident = body.get("id") if self._operation.verb in (Verb.UPDATE, Verb.DELETE) else None
        if ident is None:
            return self._operation.entity.schema.name, b""
        return self._joined.lock_order(canonical_uuid(str(ident)))

    async def redacted(self) -> bytes:
        """The small document with tokens in it. Raises as ``redact_request``."""
        body = self.requested.body if self.requested.body != b"{}" else b""
        sent = await self.redact_request(Request("POST", b"/", _JSON if body else (), body))
        return sent.body or b"{}"

    def begin(self, status: int) -> None:
        """An answer of several documents begins; ``end`` comes after the last of them."""
        self._status, self._continued = status, ContinuedAnswer(self.requested)

    def _document(self, event: Event) -> ParsedBody | None:
        plans = self._continued.plans(json_document(event.document))
        if plans is None:
            return None
        parsed = ParsedBody(Media.JSON)
        for plan in plans:
            one = read_document(plan, event, self._operation)
            if one is None:
                return None
            parsed = with_fields(parsed, items=[*parsed.items, *one.items])
        return parsed

    def follow(self, documents: Sequence[Any]) -> None:
        """The answer is an array of these: what continues the first is settled with it."""
        continued = ContinuedAnswer(self.requested)
        self._places = [continued.plans(one) for one in documents]

    async def _read_answer(self, answer: Response, long: bool) -> ParsedBody | None:
        if not self._places:
            return await super()._read_answer(answer, long)
        return await run_in_thread(long, self._read_documents, answer.body)

    def _read_documents(self, body: bytes) -> ParsedBody:
        """The objects of an array of documents that has no white space between them."""
        items: list[BodyObject] = []
        start = 1
        for raw, plans in zip(_ELEMENTS.decode(body), self._places, strict=True):
            event = Event(bytes(raw), ((0, len(raw)),))
            read = [read_document(plan, event, self._operation) for plan in plans or ()]
            self._unread += plans is None or None in read
            for one in read:
                items += _moved(one.items, start) if one is not None else ()
            start += len(event.raw) + 1
        return ParsedBody(Media.JSON, items)

    def note_unread(self, more: int) -> None:
        """Count documents that could not be read, with these; raise if the rule forbids them."""
        if unread := self._unread + more:
            self._collection.observe("unreadable_answer", unread)
            if refuses_unread(self._operation):
                raise unreadable_answer()

    async def quoted(self, event: Event) -> Event:
        """An event that refuses, with the caller's own values in it; any other as it is."""
        document = json_document(event.document) if b'"errors"' in event.raw else None
        if not isinstance(document, dict) or not came_first(document, document.get("errors")):
            return event
        scan = AnswerScan(self._joined, self._request, (), self._search)
        refusal = Response(_REFUSED, _JSON, event.document)
        return event.with_document((await scan.restored(refusal, self._keys(), None)).body)

    async def answered(self, document: Any, answer: Response) -> Response:
        """Return the answer, which is ``document``, with the values of this field; settle it."""
        objects, values = answered_at(document, self.requested)
        changed = verdict(values) if self.writes else stands(values) or None
        if changed or (changed is None and not values and any(self._places)):
            self._plan = replace(self._plan, response=self.requested.use.plan(objects))
            return await self.restore_response(answer)
        one = document
        if self.requested.position is not None and isinstance(document, list):
            one = (document[self.requested.position :] or [None])[0]
        errors = one.get("errors") if isinstance(one, dict) else None
        if changed is False or (errors and (self.writes or came_first(one, errors))):
            # texts of the caller may stand in the errors
            meaning = _REFUSED if came_first(one, errors) else _FAILED
            restored = await self.restore_response(with_fields(answer, status=meaning))
            return with_fields(restored, status=answer.status)
        await self.settled(self._meaning(one, values, answer.status), answer.headers)
        return answer

    def _meaning(self, answer: Any, values: Sequence[Any], status: int) -> int:
        """The status that says what became of the records of a field that shows none of them.

        ``values``: nothing that tells of a change, or none where it was left out (``@skip``).
        """
        self._unshown = bool(values)
        if values or not self.writes:
            return status
        whole = isinstance(answer, dict) and isinstance(answer.get("data"), dict)
        return _REFUSED if whole and len(self._places) <= 1 else _FAILED

    def _settle(
        self, outcome: Outcome, status: int, headers: RawHeaders, body: ParsedBody | None
    ) -> Awaitable[None]:
        writing, operation = self._writing, self._operation
        usual = outcome is not Outcome.TAKEN or not self._unshown or operation.verb is Verb.CREATE
        if usual or writing is None or not writing.writes:
            return super()._settle(outcome, status, headers, body)
        self._settling = True
        return settle_unshown(writing, operation, (status, headers, body))


class GraphExchange(SeveralExchanges[FieldExchange]):
    """Carries one GraphQL request and its answer, field by field."""

    def __init__(
        self,
        arguments: UnnamedArguments,
        joined: Mapping[int, BoundOperation],
        view: View | None,
        vault: Vault,
    ) -> None:
        super().__init__()
        self._arguments, self._reader = arguments, arguments.reader
        self._joined = joined  #: by identity of the operation of a field
        self._view = view
        self._vault = vault

    def check_head(self, head: Request) -> None:
        """All that a request asks for stands in its body."""

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:  # noqa: ARG002  # the names of the port
        """The request with tokens in place of the values of its arguments, variables or inline.

        Raises ``VaultError``; then nothing is stored and nothing may be sent.
        """
        whole, request = request, self._reader.with_body(request)
        long = len(request.body) > SMALL // 4 and is_long(request.body)
        requested = await run_in_thread(long, self._read, request)
        fields = [self._field(one) for one in requested]
        self._refuse_twice(fields)
        changes: dict[tuple[int, int], bytes] = {}
        joint = JointGuard()
        try:
            # several records are always locked in one order, so no two requests block each other
            for field in sorted(fields, key=lambda one: (one.writes, one.record)):
                field.joint = joint
                if busy():
                    await give_way()
                redacted = await field.redacted()
                self._begun.append(field)
                _add(changes, edits(field.requested.body, field.requested.origins, redacted))
            body = splice(request.body, [(*span, text) for span, text in changes.items()])
            if whole is request:
                sent = with_fields(whole, body=body)
            else:
                sent = with_fields(whole, target=address_with(whole.target, request.body, body))
            await run_in_thread(long, joint.check, sent)
            if request.body and (now := self._vault.clock()) >= self._arguments.due:
                self._arguments.take(request, now)
        except BaseException:
            await self.failed(False)
            raise
        return uncoded(sent) if self._begun and takes_several(whole) else sent

    def _read(self, request: Request) -> list[RequestedField]:
        with suppress(msgspec.DecodeError):  # the error may hold a part of the text
            requested = self._reader.read(request)
            for one in requested:
                msgspec.json.decode(one.body)  # as others do later
            return requested
        raise VaultError(Code.BAD_REQUEST, "A variable holds a number that is out of range.")

    def _field(self, requested: RequestedField) -> FieldExchange:
        match = Match(requested.use.field.operation, {})
        joined = self._joined[id(match.operation)].under(self._view)
        exchange = viewed(FieldExchange, joined)(joined, match, self._vault)
        exchange.requested = requested
        return exchange

    def _refuse_twice(self, fields: Sequence[FieldExchange]) -> None:
        records = [one.record for one in fields if one.writes and one.record[1]]
        if len(set(records)) < len(records):
            raise VaultError(
                Code.VALUE_UNFIT, "The GraphQL operation changes a record twice: send it in two."
            )

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        writes = status not in (204, 304) and any(field.writes for field in self._begun)
        if writes or (self._begun and kind_of_several(status, headers) is not None):
            return True  # what it says of each field settles that, whatever its status and type
        return any(field.must_buffer(status, headers) for field in self._begun)

    async def stream(self, status: int, headers: RawHeaders) -> EventStream | None:
        kind = kind_of_several(status, headers)
        if kind is None or not self._begun or any(field.writes for field in self._begun):
            return None
        most = max(one.longest for one in self._begun)
        return GraphEvents(self._begun, status, cutter_of(kind, headers, most))

    async def restore_response(self, answer: Response) -> Response:
        kind = kind_of_several(answer.status, answer.headers)
        if kind is None:
            document = json_document(answer.body) if 200 <= answer.status < 500 else None
            taken = 200 <= answer.status < 300 or was_executed(document)
            return await self._restored(answer, document if taken else None)
        cutter = cutter_of(kind, answer.headers, len(answer.body) + 1)
        events = [*cutter.feed(answer.body), *cutter.end()]
        numbers = [number for number, event in enumerate(events) if event.document.strip()]
        if not numbers:
            await self.settled(answer.status, answer.headers)
            return answer
        # they are read together: what a later document shows belongs to what is settled now
        documents = {number: json_document(events[number].document) for number in numbers}
        readable = [number for number in numbers if documents[number] is not None]
        first = documents[numbers[0]]
        headers = tuple([one for one in answer.headers if one[0].lower() != b"content-type"])
        body = events[numbers[0]].document
        if first is not None:
            for field in self._begun:
                field.follow([documents[number] for number in readable])
            body = b"[" + b",".join([events[one].document.strip() for one in readable]) + b"]"
        restored = await self._restored(Response(answer.status, (*_JSON, *headers), body), first)
        if first is None:
            return answer
        for number, raw in zip(readable, _ELEMENTS.decode(restored.body), strict=True):
            events[number] = with_content(events[number], bytes(raw))
        for field in self._begun:
            field.note_unread(len(numbers) - len(readable))
        return with_fields(answer, body=event_bytes(events))

    async def _restored(self, answer: Response, document: Any) -> Response:
        status, waiting = answer.status, self._begun[::-1]
        try:
            while waiting:
                if busy():
                    await give_way()
                field = waiting.pop()
                if document is None:
                    means = with_fields(answer, status=field.unread(status))
                    answer = await field.restore_response(means)
                else:
                    answer = await field.answered(document, with_fields(answer, status=200))
        except BaseException:
            await each_ended(waiting, lambda field: field.failed(True))
            raise
        return with_fields(answer, status=status)

    async def settled(self, status: int, headers: RawHeaders) -> None:
        await each_ended(self._begun, lambda one: one.settled(one.unread(status), headers))


class GraphEvents:
    """Restores events (graphql-sse) or parts, each with an answer or what continues one."""

    def __init__(self, fields: Sequence[FieldExchange], status: int, cutter: Cutter) -> None:
        self._fields = fields
        self._cutter = cutter
        for field in fields:
            field.begin(status)

    async def restore(self, piece: bytes) -> bytes:
        events = await run_in_thread(len(piece) > SMALL, self._cutter.feed, piece)
        return await restore_events(events, self._restored_events)

    async def rest(self) -> bytes:
        return event_bytes(await self._restored_events(self._cutter.end()))

    async def end(self) -> None:
        """Close the exchanges of all fields; called once, whatever became of the stream."""
        for field in self._fields:
            await field.end()

    async def _restored_events(self, events: Sequence[Event]) -> Sequence[Event]:
        # what completes a stream says nothing: its data are empty
        events = [one if one.document.strip() else Event(one.raw) for one in events]
        for field in self._fields:
            events = [await field.quoted(one) for one in await field.restored_events(events)]
        return events


def _moved(items: Iterable[BodyObject], by: int) -> Iterator[BodyObject]:
    """The objects of a document that begins there in a longer one."""
    for one in items:
        spots = [with_fields(spot, start=spot.start + by, end=spot.end + by) for spot in one.spots]
        yield with_fields(one, spots=spots)


def _add(changes: dict[tuple[int, int], bytes], more: Iterable[tuple[int, int, bytes]]) -> None:
    for start, end, text in more:
        if changes.setdefault((start, end), text) != text:
            raise VaultError(
                Code.VALUE_UNFIT,
                "A variable of the GraphQL operation stands for two fields: send one for each.",
            )
