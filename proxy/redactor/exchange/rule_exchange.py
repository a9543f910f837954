"""A matched request and its answer, from redaction to restoration.

The order is the promise: values are durable in the vault before ``redact_request`` returns, and the
answer is settled before ``restore_response`` does. All state lives for one exchange; nothing is
shared between the requests of a connection.
"""

import asyncio
from collections.abc import Awaitable, Collection, Sequence

from msgspec.structs import replace

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.offload import SMALL, STRIDE, discard, in_thread, is_long, run_in_thread
from proxy.redactor import message, redact
from proxy.redactor.bodies.envelopes import CarriedRequest
from proxy.redactor.bodies.events import EventStream
from proxy.redactor.bodies.xml_bodies import read_any_answer
from proxy.redactor.exchange.answer_scan import AnswerScan, is_page, refuses_unread, wants_body
from proxy.redactor.exchange.audit import NO_REVEALS, Reveals
from proxy.redactor.exchange.bound_operation import BoundOperation, count
from proxy.redactor.exchange.judgement import asks_plainly, declines, may_tell, respelled
from proxy.redactor.exchange.misfits import explained, refuse_invalid
from proxy.redactor.exchange.request_tokens import (
    SearchTokens,
    WrittenTokens,
    add_revealed,
    hide_untold,
    own_values,
    record_mark,
    unresolved,
)
from proxy.redactor.exchange.settle import nothing_to_settle, settle
from proxy.redactor.exchange.unnamed_tokens import tell_in_members
from proxy.redactor.exchange.writing import Writing
from proxy.redactor.guard import JointGuard
from proxy.redactor.message import RawHeaders, Request, Response, Timing, classify, header
from proxy.redactor.plan import Outcome, header_ids, outcome
from proxy.redactor.redact import ParsedBody, request_ids
from proxy.redactor.restore import Edit, Written, rewritten
from proxy.redactor.rules import IdSource, Match, Restore, Verb
from proxy.vault.proxied import (
    AnswerObject,
    Revealed,
    StagedWrite,
    drop_staged,
    reconcile_gone,
    reconcile_objects,
    reveal_objects,
)
from proxy.vault.vault import Vault

_GONE, _BODILESS = (404, 410), (204, 304)
_TAKEN, _UNREAD = Outcome.TAKEN, Outcome.UNREAD
_SEARCHING = _READ, _DELETE = Verb.READ, Verb.DELETE  #: whose bodies are searched by, not stored


class RuleExchange:
    """Carries one request and its answer: by ``redact_request``, then exactly one of
    ``restore_response``, ``settled``, ``failed``.
    """

    missed = False  #: whether it searched, and nothing stored is shown
    carries = False  #: whether there may be requests in it
    carried: Sequence[CarriedRequest] = ()  #: these, which are counted separately
    joint: JointGuard | None = None  #: checks the whole message that this is a part of
    _more: Sequence[Edit] = ()  #: what else is edited in an answer
    _own: list[Value | None] | None = None  #: values of the only object, shown as just written

    def __init__(self, joined: BoundOperation, match: Match, vault: Vault) -> None:
        self._joined, self._match = joined, match
        self._plan = plan = joined.plan
        self._operation = operation = plan.operation
        self.timing = timing = Timing()
        self._collection = collection = joined.collection
        self._exchange_audit, self.began = joined.audit, collection.clock()
        self._writing = Writing(joined, vault, timing) if operation.verb is not _READ else None
        self._ids: list[str] = []
        self._search: SearchTokens | None = None  #: its search values
        self._request: Request | None = None  #: as received
        self.revealed: Revealed | None = None  #: what its answer was restored from
        self._settling = self._shows = False  #: is its answer decided; is anything stored in it

    def check_head(self, head: Request) -> None:
        """Raise ``VaultError`` for values in a head, before the body is sent."""
        self._permit()
        redact.check_head(self._plan, self._match, head)
        if (searching := self._joined.searching) is not None:
            searching.plan.check_head(head)

    def _permit(self) -> None:
        if self._exchange_audit.sink.fault is not None:
            self._joined.permit(writes=self._writing is not None)

    def _permit_search(self, fields: Collection[str]) -> None:
        """Raise ``VaultError`` where the caller may not search by one of these fields."""

    async def redact_request(self, request: Request, marks: Sequence[bytes] = ()) -> Request:
        """The request as the application may see it.

        ``marks``: the record that it changes must have one of these (``mark``), or not be corrected
        after ``@`` and milliseconds. Raises ``VaultError``; then nothing is stored or may be sent.
        """
        self._request = request
        self._permit()
        self._joined.address.check(request.target)
        if (searching := self._joined.searching) is not None:
            request, self._search = await searching.redact(request, self._permit_search)
        operation, writing, read = self._operation, self._writing, self._joined.read
        long = len(request.body) > SMALL and self._joined.is_long(request.body)
        body = await in_thread(read, request) if long else read(request)
        items = body.items if body is not None else []
        if operation.id is not None:
            self._ids = request_ids(operation.id, self._match, request, body)
        try:
            if items and operation.verb in _SEARCHING:
                self._search = self._search or SearchTokens(self._collection)
                await self._search.look_up_all(items)
            if body is not None and self._joined.checks:
                await refuse_invalid(self._joined, request, body, self._ids)
            if writing is not None and (items or self._ids or operation.verb is _DELETE):
                writing.headers = request.headers
                await writing.stage(items, self._ids, marks)
        except VaultError as error:
            raise await run_in_thread(long, explained, error, self._joined, request, body) from None
        if not items and (self._search is None or not self._search.values):
            return request
        try:
            return await self._swapped(request, body, long)
        except BaseException as error:
            await self.failed(False)
            if not isinstance(error, VaultError):
                raise
            raise await run_in_thread(long, explained, error, self._joined, request, body) from None

    async def _swapped(self, request: Request, body: ParsedBody | None, long: bool) -> Request:
        """The request with tokens in the places of its values, and nowhere any of these."""
        items, writing, search = body.items if body is not None else [], self._writing, self._search
        values: list[list[Value | None]] = []
        if items and writing is not None and self._operation.verb is not _DELETE:
            values = await run_in_thread(len(items) > STRIDE, writing.all_tokens, items)
        elif items:
            values = await (search or SearchTokens(self._collection)).rows(items)
        guard, searched = self._joined.guard, search.guarded if search is not None else {}
        if guard is not None and self.joint is not None:
            self.joint.take(guard, items, values, searched)
            guard = None

        def written() -> Written:
            sent = request.body
            new = rewritten(sent, body, values) if body and items else Written(sent, {})
            if guard is not None:
                guard.check(items, values, searched, request, new.rest)
            return new

        new = await in_thread(written) if long else written()
        count(self._joined.protected, new.counts)
        if long:
            discard(items, values)
        return replace(request, body=new.content)

    def mark(self) -> bytes:
        """A mark of those values that share tokens, so that the application cannot tell them apart,
        in the one record of the answer as it is live now; empty where there are none.
        """
        return record_mark(self._collection, self.revealed, self._writes)

    def must_buffer(self, status: int, headers: RawHeaders) -> bool:
        """Whether the answer must be read whole: tokens, ids or a refusal may stand in its body."""
        if status in _BODILESS or status < 200 or header(headers, b"content-length") == b"0":
            return False
        rule = self._operation.response
        taken = status in rule.success
        outcome = _TAKEN if taken else self._outcome(status, headers, None)
        if outcome is _UNREAD or wants_body(self._plan, outcome, headers):
            return True
        return taken and rule.presumed and may_tell(headers)

    async def stream(self, status: int, headers: RawHeaders) -> EventStream | None:
        """``None``: the answer is one document."""

    async def settled(self, status: int, headers: RawHeaders) -> None:
        """The answer is passed on as it comes: settle by its status and headers alone."""
        try:
            outcome = self._outcome(status, headers, None)
            await self._settle(outcome, status, headers, None)
            await self._audit(outcome, status)
        finally:
            self._close(status)

    def pass_unread(self, status: int, headers: RawHeaders) -> None:
        """Raise ``VaultError`` where the rule says that an answer may not pass unread."""
        strict = refuses_unread(self._operation) and self.must_buffer(status, headers)
        taken = strict and self._outcome(status, headers, None) is _TAKEN
        if taken and wants_body(self._plan, _TAKEN, headers):
            raise redact.unreadable_answer()

    async def failed(self, sent: bool) -> None:
        """No answer came. ``sent``: the application may have got the request, or a part of it."""
        writing = self._writing
        try:
            if writing is not None and writing.writes:
                if sent:
                    await writing.doubt(writing.writes, answered=False)
                    await self._exchange_audit.doubted(writing.writes)
                else:
                    await writing.settle(drop_staged, writing.writes)
        finally:
            self._close()

    async def restore_response(self, answer: Response) -> Response:
        """Return the answer for the caller, after the vault has settled its meaning."""
        try:
            outcome, writing = _TAKEN, self._writing
            rule = self._operation.response
            if answer.status not in rule.success or writing is not None:
                outcome = self._outcome(answer.status, answer.headers, answer.body)
            judged = outcome is _TAKEN and rule.presumed
            if judged and await declines(writing, self._operation, answer, self._read_answer):
                outcome = Outcome.DOUBTFUL
            if outcome is _TAKEN and not (rule.special and is_page(self._plan, answer)):
                return await self._restore(answer)
            await self._settle(outcome, answer.status, answer.headers, None)
            await self._audit(outcome, answer.status)
            anybody = rule.restore is Restore.ANYWHERE and answer.status < 300
            form = self.began if anybody and outcome is Outcome.REFUSED else None
            scan = AnswerScan(self._joined, self._request, self._writes, self._search, form)
            page = self.began if outcome is _TAKEN else None
            if page is not None:
                self._learn_ids(answer)
            restored = await scan.restored(answer, self._keys(), page)
            self._shows = scan.revealed
            return restored
        except asyncio.CancelledError:
            if not self._settling:  # the meaning of the answer for the vault is unknown
                await self.failed(True)
            raise
        finally:
            self._close(answer.status)

    async def _restore(self, answer: Response) -> Response:
        long = len(answer.body) > SMALL and is_long(answer.body)
        body = await self._read_answer(answer, long)
        if body is None:
            await self._settle(_TAKEN, answer.status, answer.headers, None)
            await self._audit(_TAKEN, answer.status)
            if answer.body:
                self.pass_unread(answer.status, answer.headers)
            return answer
        self._learn_ids(answer)
        if len(self._ids) == 1:
            self._ids = respelled(self._operation, self._writing, self._ids, answer, body)
        if self._operation.verb is _DELETE:
            try:
                restored = await self._values(body, long)
            finally:
                await self._settle(_TAKEN, answer.status, answer.headers, body)
        else:
            if len(body.items) == len(self._writes) == 1:
                self._own = await run_in_thread(long, own_values, self._writes[0], body.items[0])
            await self._settle(_TAKEN, answer.status, answer.headers, body)
            restored = await self._values(body, long)
        parts = answer.body, body, restored, self._more
        written = await in_thread(rewritten, *parts) if long else rewritten(*parts)
        count(self._joined.restored, written.counts)
        reveals = Reveals(frozenset(written.counts), body.items, restored, self.revealed)
        audited = await self._audit(_TAKEN, answer.status, reveals)
        revealed, headers = self.revealed, answer.headers
        lone = revealed.rows[0] if revealed is not None and len(revealed.rows) == 1 else None
        if lone is not None and lone.live.at:
            headers = message.modified_later(headers, lone.live.at, self._collection.clock())
        if revealed is not None and self.began >= self._joined.answers.due:
            named = [(one.start, one.end) for item in body.items for one in item.spots]
            tell_in_members(self._joined, answer.body, named, revealed.rows, self.began)
        if long:
            discard(body.items, restored, *(revealed[:4] if revealed is not None else ()))
        return Response(answer.status, headers, written.content) if audited else answer

    def _learn_ids(self, answer: Response) -> None:
        """A header field of the answer to a read may say which record it shows."""
        ident = self._operation.response.id
        if ident is not None and ident.source is IdSource.HEADER and self._writing is None:
            self._ids = self._ids or header_ids(ident, answer.headers, self._operation.template)

    async def _read_answer(self, answer: Response, long: bool) -> ParsedBody | None:
        """The objects of the answer; ``None``: it cannot be read, and passes with its tokens."""
        if self._plan.response is None or not answer.body:
            return None
        try:
            media = classify(answer.headers, answer.body)
            read = self._plan.response, media, answer.body, self._operation
            return await in_thread(read_any_answer, *read) if long else read_any_answer(*read)
        except VaultError as error:
            if error.code not in redact.UNREADABLE:
                raise
            self._collection.observe("unreadable_answer")
            return None

    async def _values(self, body: ParsedBody, long: bool) -> list[list[Value | None]]:
        """The values of all tokens in the answer, those of this exchange from memory."""
        if self._own is not None:  # as nearly always
            return [self._own]
        items, writing = body.items, self._writing
        # of a record that took the place of another one, the vault tells what is live
        writes = [write for write in self._writes if not write.twins[0]]
        recall = WrittenTokens(self._collection, writes) if writes else None
        ids_tell = self._writing is None and self._collection.state.deletes
        parts = recall, items, self._lone, ids_tell
        own, missing = await in_thread(unresolved, *parts) if long else unresolved(*parts)
        if not missing:
            return own
        try:
            revealed = await reveal_objects(self._collection, missing, self.began)
        except VaultError as error:
            self._joined.pass_with_tokens(error)
            return own
        self.revealed = revealed
        await self._reconcile(missing, revealed)
        certain = writing.certain(revealed) if writing is not None else None
        sought = self._search.values if self._search is not None else {}
        notices, of = self._joined.notices, self._collection
        searched = sought if notices.hides else None
        notices.untold(of, hide_untold(of, missing, revealed.values, searched, notices.scattered))
        answer = (own, certain), items, revealed, sought
        if long:
            await in_thread(add_revealed, *answer)
            discard(missing)
        else:
            add_revealed(*answer)
        return own

    def _lone(self) -> str | None:
        """The id of the one record that the request is about."""
        return ids[0] if len(ids := self._keys()) == 1 else None

    def _keys(self) -> list[str]:
        """The ids of the records that the request is about."""
        return self._ids or [one.key for one in self._writes if one.key is not None]

    @property
    def _writes(self) -> Sequence[StagedWrite]:
        return self._writing.writes if self._writing is not None else ()

    async def _reconcile(self, objects: Sequence[AnswerObject], revealed: Revealed) -> None:
        notices, of = self._joined.notices, self._collection
        notices.other_id(of, objects[0], revealed.rows[0])
        if revealed.may_decide:
            reconciling = reconcile_objects(of, objects, revealed, self.began)
            await self._joined.decide(notices.undecided_by(reconciling))

    def _outcome(self, status: int, headers: RawHeaders, body: bytes | None) -> Outcome:
        target = self._request.target if self._request else b""
        return outcome(self._operation.response, target, status, headers, body)

    def _settle(
        self, outcome: Outcome, status: int, headers: RawHeaders, body: ParsedBody | None
    ) -> Awaitable[None]:
        """Settle what was staged, or a delete in doubt, by the answer."""
        self._settling = True
        if self._writing is not None:
            answer = status, headers, body
            return settle(self._writing, self._operation, outcome, answer, bool(self._own))
        if status in _GONE and len(self._ids) == 1 and asks_plainly(self._operation, self._request):
            return self._joined.decide(reconcile_gone(self._collection, self._ids, self.began))
        return nothing_to_settle()

    async def _audit(self, outcome: Outcome, status: int, reveals: Reveals = NO_REVEALS) -> bool:
        """Record the writes and reveals; return whether values may be shown. Raises AUDIT_DOWN."""
        writing, self._shows = self._writing, bool(reveals.fields)
        try:
            if writing is not None and writing.writes:
                await self._exchange_audit.settled(outcome, status, writing.writes, reveals.fields)
            elif reveals.fields:
                lone = self._lone() if len(reveals.items) == 1 else None
                keys = await reveals.keys(lone, self._collection)
                await self._exchange_audit.revealed(status, keys, reveals.fields, reveals.opened)
        except VaultError as error:
            if writing is not None:
                raise
            self._joined.pass_with_tokens(error)
            return False
        return True

    def _close(self, status: int = 0) -> None:
        """End it; without a ``status`` there was no answer."""
        request, unnamed = self._request, self._joined.unnamed
        if request is not None and (unnamed.in_body or unnamed.unusual(request.target)):
            unnamed.look(request, self._plan.request, self._match.params)
        if request is not None and request.body and self.began >= unnamed.due:
            unnamed.take(request, self.began)
        if self._writing is not None:
            self._writing.close()
            return
        if not self._shows and 200 <= status < 500 and status != 304:
            searched = self._search and (self._search.values or self._search.questioned)
            self.missed = bool(searched or (status in _GONE and self._ids))
            if self.missed:
                self._exchange_audit.missed()
