"""The ordinary exchange of one record in few steps: the same bytes, rows and lines of the audit log
as ``RuleExchange`` gives, without waiting for anything.

Whoever drives it is told by the store when something is durable. Whatever is not ordinary goes the
general way, from wherever the exchange is: ``restore`` gives nothing, and ``general`` hands over
what was done so far.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import msgspec

from proxy.audit.events import with_request
from proxy.audit.services import LineWaiter
from proxy.model.schema import Value
from proxy.offload import BRIEF, LARGE
from proxy.redactor.bodies.uploads import UPLOADS
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.judgement import HINT, tells_refusal
from proxy.redactor.exchange.mixins import viewed
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.exchange.unnamed_tokens import tell_in_members
from proxy.redactor.json.arrays import AlikeObjects
from proxy.redactor.json.native import FieldSpan, Swaps, find_leaves, native_code
from proxy.redactor.json.tree import encode_text
from proxy.redactor.message import Request
from proxy.redactor.plan import UNDECIDED, BodyPlan, OperationPlan, id_in_text
from proxy.redactor.rules import IdSource, Match, PatchKind, Verb
from proxy.redactor.views import FieldView
from proxy.redactor.words import Empty, Nulls
from proxy.storage.base import AtOnce
from proxy.storage.changes import Change, CommitWaiter
from proxy.telemetry.logs import REQUEST_ID
from proxy.vault.proxied import (
    AnswerObject,
    OpenRow,
    StagedWrite,
    binding_of,
    forget_staged,
    open_as_shown,
    promotion_of,
)
from proxy.vault.vault import Vault

_CREATE, _READ = Verb.CREATE, Verb.READ  # looked up several times slower in it
_text: Final = msgspec.json.Decoder(str).decode
_texts: Final = msgspec.json.Decoder(list[str]).decode
_NO_WRITE: Final = cast("StagedWrite", None)

#: See ``NativeCode``; ``None`` where it was not compiled.
_answer_fields: Final = native_code and native_code.answer_fields
_put_back: Final = native_code and native_code.put_back

#: What leaves a place empty.
EMPTY_PLACES: Final = frozenset((b"null", b'""'))
_NULL: Final = frozenset((b"null",))
#: The id that an answer has, and its fields.
FoundFields = tuple[str | None, list[FieldSpan]]


def writes_plainly(plan: OperationPlan) -> bool:
    """Whether the values of a request are texts of one record, found at once."""
    request, patch = plan.request, plan.operation.request.patch
    if request is None or request.selection is None or request.selection.flat is None:
        return False
    ids = request.id_leaf >= 0 or request.id_anchored >= 0
    special = plan.unnamed is not None or request.anchored or request.texts or request.emptied
    if special or ids or not request.outline.flat or request.named & UPLOADS:
        return False
    return patch in (None, PatchKind.MERGE)


def answers_plainly(plan: OperationPlan) -> bool:
    """Whether a successful answer shows one record, whose fields are found at once."""
    answer, operation = plan.response, plan.operation
    if answer is None or answer.selection is None or answer.selection.flat is None:
        return False
    if answer.anchored or answer.texts or answer.id_anchored >= 0:
        return False
    request_id, answer_id = operation.id, operation.response.id
    if operation.verb is _CREATE:
        return request_id is None and answer.id_leaf >= 0
    in_body = answer_id is None or answer_id.source is IdSource.BODY
    return request_id is not None and request_id.source is IdSource.PATH and in_body


def empty_places(plan: OperationPlan) -> frozenset[bytes]:
    """Return what stands in places of a request without a value, unless these keep a record's."""
    rule = plan.operation.request
    keeps = rule.nulls is Nulls.KEEP or rule.empty is Empty.KEEP
    return frozenset() if keeps else EMPTY_PLACES


class AnswerReader:
    """Finds what the answers of one operation show; needs no vault."""

    __slots__ = (
        *("_alike", "_digits", "_id_leaf", "_names", "_template", "judged", "limit", "success"),
        *("view", "writes"),
    )

    def __init__(self, plan: OperationPlan, view: FieldView | None) -> None:
        operation, answer = plan.operation, cast("BodyPlan", plan.response)
        #: whether an answer of success may tell of a refusal; a create that is named was done
        self.judged = operation.verb is Verb.UPDATE and operation.response.presumed
        success = operation.response.success
        self.success = success - UNDECIDED if self.judged else success
        #: bytes of a request's body that is read within the event loop
        self.limit = min(operation.endpoint.limits.body, BRIEF if find_leaves is None else LARGE)
        self.writes = operation.verb is not _READ
        self._alike = cast("AlikeObjects", answer.selection and answer.selection.flat)
        self._names = answer.fields
        self._id_leaf, self._digits, self._template = (
            answer.id_leaf,
            answer.id_digits,
            answer.id_template,
        )
        #: where not every value of an answer is shown as it is
        self.view = view if view is not None and any(map(view.covers, answer.fields)) else None

    def read(self, body: bytes) -> FoundFields | None:
        """The id of the one object of an answer, and its fields that hold anything: texts all."""
        leaves = self._alike.whole(body)
        if leaves is None:
            return None
        names, id_leaf, empties = self._names, self._id_leaf, not self.writes
        ident, raw, spans = None, None, list[FieldSpan]()
        if _answer_fields is not None:
            raw, spans = _answer_fields(body, leaves, names, id_leaf, empties) or (None, spans)
        else:  # no call: this is on the way of every request
            # an empty text in the answer to a write may be what became of a value
            nothing = EMPTY_PLACES if empties else _NULL
            for index, leaf in enumerate(leaves[0], 1):
                start, end = leaves[1][index]
                if leaf == id_leaf:
                    raw = body[start:end]
                elif body[start:end] in nothing:
                    continue
                elif body[start] == 0x22:
                    spans.append((names[leaf], start, end))
                else:
                    return None
        if raw is not None:
            if len(raw) < self._digits and raw.isdigit():
                ident = raw.decode()
            elif raw[0] == 0x22 and raw.find(b"\\") < 0 and len(raw) > 2:
                ident = id_in_text(self._template, raw[1:-1].decode())
            else:
                return None
        return (ident, spans) if spans else None

    @staticmethod
    def visible(
        view: FieldView, spans: Sequence[FieldSpan], body: bytes, written: Sequence[bytes]
    ) -> list[bytes]:
        """The values as the view shows them: as they are written, masked, or their tokens."""
        values = list(written)
        for index, (name, start, end) in enumerate(spans):
            if view.covers(name):
                value = view.visible(name, Value(_text(values[index])))
                values[index] = body[start:end] if value is None else encode_text(value.text)
        return values


class AnswerPlan(AnswerReader):
    """Plan of the answers of one operation."""

    __slots__ = (
        *("at_once", "audit", "collection", "count", "field_absent", "joined", "schema"),
        "vault",
    )

    def __init__(self, joined: BoundOperation, vault: Vault, at_once: AtOnce) -> None:
        super().__init__(joined.plan, joined.view)
        self.joined, self.vault, self.at_once = joined, vault, at_once
        self.collection, self.audit = joined.collection, joined.audit
        self.count, self.schema = joined.collection.context.observe, joined.collection.name
        self.field_absent = joined.plan.operation.endpoint.on_error.field_absent

    def revealed(
        self, key: str, spans: Sequence[FieldSpan], body: bytes, *pairs: tuple[str, str]
    ) -> tuple[OpenRow, list[bytes]] | tuple[None, None]:
        """The record with that key and its values as they are written, all of them texts, if the
        answer shows it as it is now. ``pairs``: fields and tokens, where the body is elsewhere.
        """
        collection = self.collection
        row = self.at_once.row_by_key(collection.table, collection.key_hash(key))
        if row is None:
            return None, None
        read = [*pairs]
        for name, start, end in spans:
            raw = body[start:end]
            if raw.find(b"\\") >= 0:
                return None, None
            read.append((name, raw[1:-1].decode()))
        opened = open_as_shown(collection, AnswerObject(key, tuple(read)), row)
        if opened is None or opened[0].live.at:  # one that was corrected has another Last-Modified
            return None, None
        texts = [encode_text(one.text) for one in opened[1] if one is not None and not one.json]
        return (opened[0], texts) if len(texts) == len(read) else (None, None)


class RestoredAnswer(NamedTuple):
    """Restored body of an answer, with the record and the fields that it shows."""

    key: str  #: of its record
    fields: frozenset[str]
    body: bytes


class FastPathExchange(msgspec.Struct, eq=False):
    """One request and its answer; see ``gateway.ports.OrdinaryExchange`` for the order of calls."""

    plan: AnswerPlan
    match: Match
    request: Request
    key: str | None  #: that the request names
    sent: bytes = b""
    began: int = 0
    marks: Sequence[bytes] = ()  #: of which the record that it changes has one
    changes: Sequence[Change] = ()  #: to be durable before anything is sent
    settles: bool = False  #: whether there are any
    locks: tuple[bytes, ...] = ()
    write: StagedWrite = _NO_WRITE
    swaps: Swaps = msgspec.field(default_factory=dict)
    absent: int = 0  #: how many declared fields it lacks, where that is counted
    answer: RestoredAnswer | None = None
    row: OpenRow | None = None  #: of the record of a read
    ident: str = ""  #: of the request, for its line and what is logged of it
    tagged: bool = False  #: whether the answer has an entity tag

    # ------------------------------------------------ before the application

    def stage(self, waiter: CommitWaiter) -> bool:
        """Have what the request holds made durable; ``False``: nothing was done."""
        collection = self.plan.collection
        collection.state.in_flight.add(self.write.sid or self.write.rid)
        if self.plan.at_once.begin_commit(collection.table, self.changes, waiter):
            return True
        self.abandon()
        return False

    def staged(self) -> None:
        plan = self.plan
        if self.settles:
            plan.count("staged", plan.schema, 1)
        if self.absent:
            plan.count("field_absent", plan.schema, self.absent)
        protected = plan.joined.protected
        for name in self.swaps:
            protected[name].value += 1

    def abandon(self) -> None:
        """It is not, and nothing was sent: the general way begins anew."""
        if self.changes:
            forget_staged(self.plan.collection, (self.write,))
        self.close()

    # ------------------------------------------------ behind it

    def restore(self, body: bytes, read: FoundFields | None = None) -> bytes | None:
        """Restore the body of an answer of success; ``None``: it is not ordinary, and nothing was
        done. ``read``: what it shows, where that was found already.
        """
        own, read, plan = self.key, read or self.plan.read(body), self.plan
        # an answer without these words, as nearly all are, costs no call
        refused = plan.judged and HINT.search(body) is not None and tells_refusal(body)
        if read is None or refused:
            return None
        ident, spans = read
        key, view, swaps = ident or own, plan.view, self.swaps
        written: list[bytes] | None = None
        restored = None
        if not plan.writes:
            self.row, written = plan.revealed(key or "", spans, body)
            if self.row is not None and self.began >= plan.joined.answers.due:
                places = [span[1:] for span in spans]
                tell_in_members(plan.joined, body, places, [self.row], self.began)
        elif key is None or (own is not None and key != own):
            return None
        elif _put_back is not None and view is None:
            restored = _put_back(body, spans, swaps)
        else:
            written = []
            for name, start, end in spans:
                swap = swaps.get(name)
                if swap is None or body[start:end] != swap[0]:
                    return None
                written.append(swap[1])
        if written is not None:
            written = written if view is None else plan.visible(view, spans, body, written)
            reached, pieces = 0, list[bytes]()
            for index, (_, start, end) in enumerate(spans):
                pieces += body[reached:start], written[index]
                reached = end
            pieces.append(body[reached:])
            restored = b"".join(pieces)
        if restored is None or restored == body:
            return None
        whole = self.swaps and len(spans) == len(self.swaps)
        fields = frozenset(self.swaps if whole else [name for name, _, _ in spans])
        if view is not None:
            fields -= view.hidden
        self.answer = RestoredAnswer(key or "", fields, restored)
        return restored

    def reveal(self, key: str, names: Sequence[str], tokens: bytes) -> bool:
        """As ``restore``, a list in JSON of the tokens of these fields of the record."""
        plan, view, texts = self.plan, self.plan.view, _texts(tokens)
        self.row, written = plan.revealed(key, (), b"", *zip(names, texts, strict=True))
        if written is None or tokens.find(b"\\") >= 0:
            return False
        fields = frozenset(names)
        if view is not None:
            for at, name in enumerate(names):
                if view.covers(name):
                    value = view.visible(name, Value(_text(written[at])))
                    written[at] = encode_text(texts[at] if value is None else value.text)
            fields -= view.hidden
        self.answer = RestoredAnswer(key, fields, b"[%b]" % b",".join(written))
        return self.answer.body != tokens

    def settle(self, waiter: CommitWaiter, status: int) -> bool:  # noqa: ARG002  # of the port
        """Have made durable what the answer means; ``False``: nothing was done."""
        plan, write, answer = self.plan, self.write, self.answer
        if answer is None:
            return False
        if write.row is None:
            changes = binding_of(plan.collection, write, answer.key)
        else:
            changes = promotion_of(plan.collection, write)
        return bool(changes) and plan.at_once.begin_commit(plan.collection.table, changes, waiter)

    def settled(self) -> None:
        if self.answer is not None:
            self.write.key = self.answer.key
        plan = self.plan
        forget_staged(plan.collection, (self.write,))
        plan.count("settled", plan.schema, 1)

    def audit(self, status: int, waiter: LineWaiter) -> None:
        answer, audit = self.answer or RestoredAnswer("", frozenset(), b""), self.plan.audit
        if self.swaps:
            line = audit.wrote(status, answer.key, frozenset(self.write.tokens), answer.fields)
        else:
            line = audit.showed(status, answer.key, answer.fields)
        if self.ident:
            (line,) = with_request((line,), self.ident)
        audit.group.put(line, waiter, done=bool(self.swaps))

    def audited(self) -> bytes:
        """It was told: the answer leaves, with this body."""
        plan, answer, body = self.plan, self.answer, b""
        if answer is not None:
            restored, body = plan.joined.restored, answer.body
            for name in answer.fields:
                restored[name].value += 1
        if self.locks:
            plan.collection.state.locks.release(self.locks)
            self.locks = ()
        unnamed = plan.joined.unnamed
        if self.swaps and self.began >= unnamed.due and self.request.body:
            named = REQUEST_ID.set(self.ident)
            unnamed.take(self.request, self.began)
            REQUEST_ID.reset(named)
        return body

    def mark(self) -> bytes:
        """A mark of the values of the record that the application cannot tell apart."""
        one, row, collection = self.write, self.row, self.plan.collection
        if row is not None:
            return collection.mark(row.row.rid, row.live)
        content = one.content if one.row is None else one.promoted or one.live
        return collection.mark(one.rid, content) if content is not None else b""

    def close(self) -> None:
        locks, self.locks = self.locks, ()
        if locks:
            self.plan.collection.state.locks.release(locks)

    def general(self) -> RuleExchange:
        """The exchange that goes on from here, with all that was done; this one is over then."""
        joined = self.plan.joined
        return viewed(_HandedOver, joined)(joined, self.match, self.plan.vault).take_over(self)


class _HandedOver(RuleExchange):
    """Goes on with what was begun on the fast path."""

    def take_over(self, begun: FastPathExchange) -> RuleExchange:
        self._request, self.began = begun.request, begun.began or self.began
        if begun.key is not None:
            self._ids = [begun.key]
        if self._writing is not None:
            self._writing.writes = [begun.write]
            self._writing.locks, begun.locks = begun.locks, ()
        return self
