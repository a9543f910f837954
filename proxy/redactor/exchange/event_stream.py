"""Restores an answer event by event, an export slice by slice, and the messages of a WebSocket.

Each is passed on as soon as it has come.

Memory holds the event that is on its way and no more, and events that came together cost one read
of the vault. Only reads have such answers, so nothing has to be settled.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from msgspec.structs import replace

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.offload import FEW, SMALL, STRIDE, busy, give_way, run_in_thread, strides
from proxy.redactor import redact
from proxy.redactor.bodies.csv_records import CsvRecords, CsvSlice, charset
from proxy.redactor.bodies.events import Cutter, Event, cutter_of, is_stream
from proxy.redactor.exchange.answer_scan import refuses_unread
from proxy.redactor.exchange.audit import Reveals
from proxy.redactor.exchange.bound_operation import count, hidden
from proxy.redactor.exchange.request_tokens import SearchTokens
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.exchange.unnamed_tokens import tell_in_members
from proxy.redactor.guard import JointGuard
from proxy.redactor.message import Media, RawHeaders, Request, header
from proxy.redactor.page_heads import label_of
from proxy.redactor.plan import BodyPlan, Outcome
from proxy.redactor.redact import BodyObject, ParsedBody, read_answer_body
from proxy.redactor.restore import rewritten
from proxy.redactor.rules import Operation, Stream
from proxy.redactor.words import Formulas, OtherKinds
from proxy.vault.proxied import Revealed

_JSON: RawHeaders = ((b"Content-Type", b"application/json"),)
_SWITCHING = 101
#: Values swapped in messages of one WebSocket that later ones are looked through for, and their
#: characters.
_LATELY, _LATELY_SIZE = 256, 64 * 1024
_FEW = 10  #: events of a slice that are looked at for tokens that the rule does not name

_Documents = Sequence[ParsedBody | None]
_Values = Sequence[Sequence[Value | None]]
_Part = TypeVar("_Part")  #: of an answer: its bytes, or its events


class StreamExchange(RuleExchange):
    """The exchange of an operation with ``response: {stream: …}``.

    Where ``stream`` gives one, it takes the place of the answer until ``end``.
    """

    _cutter: Cutter
    _status = 0
    _revealing = False  #: whether any event has shown something stored

    @property
    def longest(self) -> int:
        """Bytes of the longest event or message."""
        return self._operation.endpoint.limits.body

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        """As of any exchange; asks for an answer in no content coding."""
        redacted = await super().redact_request(request, marks)
        return uncoded(redacted)

    async def stream(self, status: int, headers: RawHeaders) -> "StreamExchange | None":
        operation, stream = self._operation, self._operation.response.stream
        if stream is None or status not in operation.response.success or self._is_head():
            return None
        if not is_stream(stream, headers):
            return None
        self._status = status
        self._cutter = cutter_of(stream, headers, self.longest)
        return self

    def pass_unread(self, status: int, headers: RawHeaders) -> None:
        """As of any exchange; a stream in a content coding is one that cannot be read."""
        strict = refuses_unread(self._operation) and status in self._operation.response.success
        if strict and header(headers, b"content-encoding") is not None:
            raise redact.unreadable_answer()
        super().pass_unread(status, headers)

    async def restore(self, piece: bytes) -> bytes:
        events = await run_in_thread(len(piece) > SMALL, self._cutter.feed, piece)
        return await restore_events(events, self.restored_events)

    async def rest(self) -> bytes:
        return event_bytes(await self.restored_events(self._cutter.end()))

    async def end(self) -> None:
        """Close the exchange; called once, whatever became of the stream."""
        self._shows = self._revealing
        self._close(self._status)

    def _is_head(self) -> bool:
        return self._request is not None and self._request.method == "HEAD"

    async def restored_events(self, events: Sequence[Event]) -> Sequence[Event]:
        """Whole events with values in place of tokens. Raises ``VaultError``."""
        size = sum([len(event.raw) for event in events])
        long = size > SMALL or len(events) > STRIDE
        if self._plan.response is None or not size:
            return events
        documents = await run_in_thread(long, self._documents, events)
        self._note_unread(events, documents)
        items = [item for document in documents if document is not None for item in document.items]
        if not any(item.spots for item in items):
            return events
        for document in documents:
            if document is not None and len(document.items) == 1 and document.items[0].id is None:
                document.items[0].id = self._lone()
        write = partial(_written, events, documents)
        restored = await self._restored_items(events, items, (write, long))
        if self.revealed is not None and self.began >= self._joined.answers.due:
            rows = self.revealed.rows
            tell_in_members(self._joined, event_bytes(restored[:_FEW]), (), rows, self.began)
        return restored

    async def _restored_items(
        self,
        unrestored: _Part,
        items: list[BodyObject],
        writing: tuple[Callable[[_Values], tuple[_Part, dict[str, int]]], bool],
    ) -> _Part:
        """A part of the answer with the values of its objects.

        ``writing``: what puts them in, and whether that takes long.
        """
        write, long = writing
        long = long or len(items) > STRIDE
        self.revealed = None
        values = await self._values(ParsedBody(Media.JSON, items), long)
        restored, counts = await run_in_thread(long, write, values)
        reveals = Reveals(frozenset(counts), items, values, self.revealed)
        if not await self._audit(Outcome.TAKEN, self._status, reveals):
            return unrestored
        count(self._joined.restored, counts)
        self._revealing = self._revealing or bool(counts)
        return restored

    def _documents(self, events: Sequence[Event]) -> _Documents:
        return [self._document(event) if event.lines else None for event in events]

    def _document(self, event: Event) -> ParsedBody | None:
        plan = self._plan.response
        return read_document(plan, event, self._operation) if plan is not None else None

    def _note_unread(self, events: Sequence[Event], documents: _Documents) -> None:
        """Count unreadable events; raise if the rule forbids them."""
        unread = sum(
            [
                event.unread or (document is None and bool(event.lines))
                for event, document in zip(events, documents, strict=True)
            ]
        )
        if unread:
            self._collection.observe("unreadable_answer", unread)
            if refuses_unread(self._operation):
                raise redact.unreadable_answer()


class CsvExchange(StreamExchange):
    """The exchange of an operation with ``response: {restore: csv}``."""

    _records: CsvRecords
    _noted = False  #: whether it was counted that the export cannot be read
    _looked = False  #: whether it was looked at for columns that the rule does not name

    async def stream(self, status: int, headers: RawHeaders) -> "CsvExchange | None":
        rule = self._operation.response
        codec = charset(headers)
        if status not in rule.success or codec is None or self._is_head():
            return None
        if header(headers, b"content-encoding") is not None:
            return None
        ident = rule.id.name if rule.id is not None else ""
        most = self._operation.endpoint.limits.body
        self._status = status
        self._records = CsvRecords(
            rule.columns, ident, codec, most, escapes_formulas=rule.formulas is Formulas.ESCAPE
        )
        return self

    async def restore(self, piece: bytes) -> bytes:
        long = len(piece) > SMALL
        return await self._restored_slice(await run_in_thread(long, self._records.feed, piece))

    async def rest(self) -> bytes:
        return await self._restored_slice(self._records.end())

    async def _restored_slice(self, some: CsvSlice) -> bytes:
        if self._records.unread and not self._noted:
            self._noted = True
            self._collection.observe("unreadable_answer")
            if refuses_unread(self._operation):
                raise redact.unreadable_answer()
        if not any(item.spots for item in some.items):
            return some.raw
        write = partial(self._records.written, some)
        long = len(some.raw) > SMALL
        restored = await self._restored_items(some.raw, [*some.items], (write, long))
        if self.revealed is not None and not self._looked:
            self._looked = True
            self._tell_unnamed(some.raw, self.revealed)
        return restored

    def _tell_unnamed(self, first: bytes, revealed: Revealed) -> None:
        """Tell of fields whose tokens stand in columns that the rule does not name, and others do;
        ``first``: rows of these records.
        """
        heads, view = self._joined.answers.heads, self._joined.view
        fields = {heads[label] for label in map(label_of, self._records.names) if label in heads}
        for field in fields - (view.hidden if view is not None else frozenset()):
            tokens = (
                token.encode()
                for record in revealed.rows
                for name, token in (record.values if record is not None else ())
                if name == field
            )
            if any(token in first for token in islice(tokens, _LATELY)):
                self._joined.unnamed.count(
                    field, [self._operation.entity.fields[field].kind], "export"
                )


class MessageExchange(StreamExchange):
    """The exchange of an operation with ``response: {websocket: …}``, from its handshake on.

    Each message is a separate JSON document: values of the caller out, tokens of the application
    back. Those of the caller may search by values that the rule names; one with a field elsewhere
    is refused, as the body of any request is, and so is a value that it or an earlier one swapped.
    """

    _swapped_lately: JointGuard

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        """As in any exchange; no extension is requested, such as compression of messages."""
        sent = await super().redact_request(request, marks)
        dropped = b"sec-websocket-extensions"
        headers = tuple([one for one in sent.headers if one[0].lower() != dropped])
        return replace(sent, headers=headers)

    async def stream(self, status: int, headers: RawHeaders) -> "MessageExchange | None":  # noqa: ARG002  # the names of the port
        if status != _SWITCHING:
            return None
        self._status = status
        self._swapped_lately = JointGuard()
        if self._search is not None:
            self._watch([], [], self._search)
        return self

    @property
    def passes_binary(self) -> bool:
        return self._operation.request.other_kinds is OtherKinds.PASS

    async def restore(self, piece: bytes) -> bytes:
        return event_bytes(
            await self.restored_events([Event(piece, ((0, len(piece)),) if piece else ())])
        )

    async def redact(self, text: bytes) -> bytes:
        """A message of the caller, with tokens. Raises ``VaultError``: then it must not leave."""
        long = len(text) > SMALL
        request = Request("POST", b"/", _JSON, text)
        body = await run_in_thread(long, self._read_message, request)
        items = body.items if body is not None else []
        values: list[list[Value | None]] = []
        if body is not None and any(item.spots for item in items):
            search = SearchTokens(self._collection)
            await search.look_up_all(items)
            values = await search.rows(items)
            view = self._joined.view
            covered = sorted({name for name, _ in search.values if view and view.covers(name)})
            if covered:
                raise hidden(self._operation, covered)
            written = await run_in_thread(long, rewritten, text, body, values)
            request = replace(request, body=written.content)
            self._watch(items, values, search)
            count(self._joined.protected, written.counts)
        await run_in_thread(long, partial(self._swapped_lately.check, request, shared=True))
        self._swapped_lately.trim(_LATELY, _LATELY_SIZE)
        unnamed, now = self._joined.unnamed, self._collection.clock()
        if text and now >= unnamed.due:
            unnamed.take(replace(request, body=text), now)
        return request.body

    def _watch(
        self, items: list[BodyObject], values: list[list[Value | None]], search: SearchTokens
    ) -> None:
        """Have this message and those after it looked through for values that it swapped."""
        if self._joined.guard is not None:
            self._swapped_lately.take(self._joined.guard, items, values, search.guarded)

    def _read_message(self, request: Request) -> ParsedBody | None:
        """Parse a message. Raises ``VaultError`` for a field elsewhere than the rule says."""
        body = self._joined.read(request) if self._plan.request is not None else None
        if request.body and self._plan.elsewhere is not None:
            items = body.items if body is not None else ()
            spots = ((spot.start, spot.end) for item in items for spot in item.spots)
            self._plan.elsewhere.refuse_beside(request.body, spots)
        return body


def read_document(plan: BodyPlan, event: Event, operation: Operation) -> ParsedBody | None:
    """The objects of an event's document; ``None`` for one that is unreadable."""
    try:
        return read_answer_body(plan, Media.JSON, event.document, operation)
    except VaultError as error:
        if error.code not in redact.UNREADABLE:
            raise
        return None


def event_bytes(events: Iterable[Event]) -> bytes:
    """The bytes of events that follow each other."""
    return b"".join([event.raw for event in events])


def kind_of_several(status: int, headers: RawHeaders) -> Stream | None:
    """The kind of an answer of several documents; ``None`` for another one."""
    kinds = (Stream.SSE, Stream.MULTIPART) if 200 <= status < 300 else ()
    return next((kind for kind in kinds if is_stream(kind, headers)), None)


def with_content(event: Event, content: bytes) -> Event:
    """The event with another document; white space round it stays, and with it the lines."""
    before, bare = event.document, event.document.strip()
    start = before.find(bare)
    return event.with_document(before[:start] + content + before[start + len(bare) :])


def uncoded(request: Request) -> Request:
    """The request, which asks for an answer in no content coding."""
    headers = tuple([one for one in request.headers if one[0].lower() != b"accept-encoding"])
    return replace(request, headers=(*headers, (b"Accept-Encoding", b"identity")))


async def restore_events(
    events: Sequence[Event], restore: Callable[[Sequence[Event]], Awaitable[Sequence[Event]]]
) -> bytes:
    """Restore events, few at a time, so that others get their turn between."""
    if len(events) <= FEW:
        return event_bytes(await restore(events))
    pieces: list[bytes] = []
    for some in strides(events, FEW):
        pieces.append(event_bytes(await restore(some)))
        if busy():
            await give_way()
    return b"".join(pieces)


def _written(
    events: Sequence[Event], documents: _Documents, values: _Values
) -> tuple[Sequence[Event], dict[str, int]]:
    """The events with values in the places of tokens, and how many there are of each field."""
    restored: list[Event] = []
    counts: dict[str, int] = {}
    at = 0
    for event, document in zip(events, documents, strict=True):
        if document is None:
            restored.append(event)
            continue
        rows = values[at : at + len(document.items)]
        at += len(rows)
        written = rewritten(event.document, document, rows)
        restored.append(event.with_document(written.content))
        for name, number in written.counts.items():
            counts[name] = counts.get(name, 0) + number
    return restored, counts
