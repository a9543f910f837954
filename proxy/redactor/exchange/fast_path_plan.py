"""Conditions of an ordinary exchange (``fast_path_exchange``): of an operation, decided once for
each, and of a request, by tests that take no time.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec

from proxy.model.schema import Value
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.fast_path_exchange import (
    AnswerPlan,
    FastPathExchange,
    answers_plainly,
    empty_places,
    writes_plainly,
)
from proxy.redactor.exchange.matcher import is_plain_operation
from proxy.redactor.guard import BodyCutter, CutBody
from proxy.redactor.json.native import native_code
from proxy.redactor.json.tree import encode_text
from proxy.redactor.message import RawHeaders, Request, canonical_uuid, is_patch, numeric_id
from proxy.redactor.rules import Match, Verb
from proxy.redactor.words import Absent
from proxy.storage.base import AtOnce
from proxy.storage.rows import Row
from proxy.tokenization import write32, write62
from proxy.tokenization.base import Resolution
from proxy.vault.body import RecordBody, TokenizedValue
from proxy.vault.collection import LONG, Collection
from proxy.vault.proxied import StagedWrite, carries_record, insert_at_once, update_at_once
from proxy.vault.vault import Vault

#: An id that may be an address, or a number of a person: its exchange looks closer.
_VALUE: Final = re.compile(r"[^@+]*[@+]|[0-9]{6,8}-[0-9]{4}\Z")
#: What spells words, and the same in native code, where that was compiled.
_native_words: Final[dict[Callable[[Any], str], Callable[[Any], str]]] = (
    {write62: native_code.write62, write32: native_code.write32} if native_code is not None else {}
)
#: See ``NativeCode``.
_tokens: Final = native_code and native_code.tokens
_unchanged: Final = native_code and native_code.unchanged
#: A number or a word, as nearly always, has one spelling.
plain_id: Final = re.compile("[1-9A-Za-z][0-9A-Za-z]{,22}").fullmatch
_CREATE, _READ = Verb.CREATE, Verb.READ  # looked up several times slower in it
#: What is swapped where the body is elsewhere.
_AWAY: Final = b"", b""


class _LeafPlan(msgspec.Struct, frozen=True):
    """A leaf of a request."""

    field: str
    #: of tokens that are sealed together: what writes a block, and the texts around it
    write: Callable[[bytes], str] | None
    before: str
    behind: str
    #: where its tokens are found by themselves: whether one is, if not all are; its hash; whether
    #: others share it
    indexed: Callable[[Value], bool] | None
    hash_of: Callable[[bytes], bytes] | None
    same: bool


class FastPathPlan(AnswerPlan):
    """Plan of the ordinary exchanges of one operation."""

    __slots__ = (
        *("_blocks", "_declared", "_erases", "_id_name", "_leaves", "_roots", "_same", "_signs"),
        *("_verb", "_words", "cut"),
    )

    def __init__(self, joined: BoundOperation, vault: Vault, at_once: AtOnce) -> None:
        super().__init__(joined, vault, at_once)
        plan, collection = joined.plan, joined.collection
        self._verb = plan.operation.verb
        self._roots = collection.context.keyset.live_hash_roots
        self._declared = len(collection.declared)
        self._erases = plan.operation.request.absent is Absent.ERASE
        self._id_name = plan.operation.id.name if plan.operation.id is not None else ""
        request = plan.request
        if self.writes and request is not None:
            self.cut = BodyCutter(plan, empty_places(plan)).cut
        indexed = {
            name: (None if name in collection.certain else is_indexed, hash_of, same)
            for name, is_indexed, hash_of, same in collection.indexed
        }
        tokenizers = collection.tokenizers
        sealed = {
            name: of
            for name, one in tokenizers.items()
            if (of := one.spelling) is not None and of.blocks is not None
        }
        #: what seals the tokens of all these fields
        self._blocks = next((one.blocks for one in sealed.values()), None)
        words = {
            name: (_native_words.get(of.write, of.write), of.before, of.behind)
            for name, of in sealed.items()
        }
        self._leaves = [
            _LeafPlan(
                name, *words.get(name, (None, "", "")), *indexed.get(name, (None, None, False))
            )
            for name in (request.fields if request is not None else ())
        ]
        #: the same for native code: the field, and of sealed words their letters and texts around
        self._words = [
            (one.field, len(one.write(bytes(16))), one.before.encode(), one.behind.encode())
            if one.write is not None and one.write in _native_words.values()
            else (one.field,)
            for one in self._leaves
        ]
        #: whether equal values of some field have equal tokens
        self._same = any(one.same for one in tokenizers.values())
        #: signs that stand in masks alone, where the view masks what a request holds
        self._signs = {
            mask.character
            for name, mask in joined.cover.masks.items()
            if request is not None and name in request.fields
        }

    def begin(
        self,
        match: Match,
        request: Request,
        marks: Sequence[bytes] = (),
        listed: CutBody | None = None,
    ) -> FastPathExchange | None:
        """The exchange of a request; ``None``: it is not ordinary, and nothing was done.

        ``marks``: the record that it changes must have one of these. ``listed``: the texts, where
        the body is not here, and it is known that they stand nowhere else.
        """
        audit = self.audit
        if (
            audit.sink.fault is not None
            or audit.honeytokens.some
            or self._roots[0].other is not None
            or (self._same and self.collection.context.keyset.older_tokens)
        ):
            return None
        try:
            if self._verb is _CREATE:
                return self._create(match, request, listed)
            key = match.params[self._id_name]
            if not plain_id(key):
                if (spelled := one_spelling(key)) is None:
                    return None
                key = spelled
            exchange = FastPathExchange(self, match, request, key)
            exchange.began, exchange.marks = self.collection.clock(), marks
            return exchange if self._verb is _READ or self._updates(exchange, listed) else None
        except Exception:  # noqa: BLE001  # whatever it is, the general way meets and tells it
            return None

    def _create(
        self, match: Match, request: Request, listed: CutBody | None
    ) -> FastPathExchange | None:
        cut = listed or self.cut(request.body)
        if cut is None:
            return None
        collection, (raws, pieces) = self.collection, (cut.raws, cut.pieces)
        exchange, now = FastPathExchange(self, match, request, None), collection.clock()
        rid = collection.context.sequence.at(now)
        entries: tuple[list[bytes], list[bytes]] = [], []
        numbers = range(1, len(cut.texts) + 1)
        blocks = b"" if self._blocks is None else self._blocks(rid, numbers)
        tokens, swaps, number = dict[str, tuple[TokenizedValue, ...]](), exchange.swaps, 1
        form, texts = collection.token_form, zip(cut.leaves, cut.texts, strict=True)
        if _tokens is not None and raws:
            parts = self._words, cut.leaves, cut.texts, raws, pieces, blocks
            minted = partial(self._minted, rid, entries)
            native = _tokens(*parts, TokenizedValue, minted, form, self._is_token)
            if native is None:
                return None
            (tokens, swaps, number), texts = native, zip((), (), strict=True)
            exchange.swaps = swaps
        for leaf, text in texts:
            leaf_plan = self._leaves[leaf]
            name, write = leaf_plan.field, leaf_plan.write
            if text is None:
                tokens[name] = ()
                continue
            spelled: str | None
            if write is not None:
                block = blocks[number * 16 - 16 : number * 16]
                spelled = f"{leaf_plan.before}{write(block)}{leaf_plan.behind}"
            else:
                spelled = self._minted(rid, entries, leaf, text, number)
            if spelled is None or spelled == text or (form(text) and self._is_token(name, text)):
                return None
            tokens[name] = (TokenizedValue(number, text, False, spelled, False),)
            swaps[name] = _AWAY
            if raws:
                swaps[name] = pieces[2 * number - 1], _ = encode_text(spelled), raws[number - 1]
            number += 1
        exchange.absent = self._declared - len(tokens)
        refused = exchange.absent and self.field_absent == "refuse"
        guard = self.joined.guard if raws else None
        signs = self._signs  # with one it may be a mask
        masked = signs and any(sign in text for sign in signs for text in cut.texts if text)
        if not swaps or refused or masked or (guard and guard.doubts(cut, request)):
            return None
        exchange.sent = b"".join(pieces)
        whole = len(tokens) == len(swaps)
        stored = tokens if whole else {name: of for name, of in tokens.items() if of}
        content = RecordBody(stored, number)
        exchange.write, insert = insert_at_once(collection, content, tokens, (rid, now), entries)
        exchange.began, exchange.changes = now, (insert,)
        exchange.settles = True
        return exchange

    def _updates(self, exchange: FastPathExchange, listed: CutBody | None) -> bool:
        """Lock the record of an update and see what becomes of it; ``False``: nothing was done."""
        collection, cut = self.collection, listed or self.cut(exchange.request.body)
        digest = collection.key_hash(cast("str", exchange.key))
        if cut is None or self.vault.late or not collection.state.locks.take(digest):
            return False
        exchange.locks = (digest,)
        drafted = False
        try:
            row = self.at_once.row_by_key(collection.table, digest)
            if row is not None and not row.staged and row.key is not None:
                live, key = collection.sealer.open_with_key(row)
                marks = exchange.marks
                meant = not marks or not {b"", collection.mark(row.rid, live)}.isdisjoint(marks)
                expired = row.expires_at is not None and not collection.alive(row)
                special = expired or live.deleted or live.at or live.fields or len(row.body) > LONG
                special = special or (live.earlier and not collection.keeps)
                if key == exchange.key and meant and not special:
                    drafted = self._next(exchange, cut, row, live)
            return drafted
        finally:
            if not drafted:
                exchange.close()

    def _next(self, exchange: FastPathExchange, cut: CutBody, row: Row, live: RecordBody) -> bool:
        collection, raws, pieces = self.collection, cut.raws, cut.pieces
        stored, swaps, form = live.values, exchange.swaps, collection.token_form
        tokens: dict[str, tuple[TokenizedValue, ...]] = {}
        entries: tuple[list[bytes], list[bytes]] = [], []
        number, at, blocks = live.following, 0, b""
        numbers = range(number, number + len(cut.texts))
        differing: Iterable[tuple[int, str | None]] = zip(cut.leaves, cut.texts, strict=True)
        parts = self._words, cut.leaves, cut.texts, raws, pieces, stored
        native = _unchanged is not None and raws and _unchanged(*parts, form, self._is_token)
        if native:
            (tokens, exchange.swaps), differing = native, ()
        for leaf, text in differing:
            name = self._leaves[leaf].field
            before = stored.get(name, ())
            if text is None and name not in stored:
                tokens[name] = ()
                continue
            one = before[0] if before else None
            odd = one is not None and (len(before) > 1 or one.json or one.token_json)
            if text is None or odd:
                return False
            if one is None or one.text != text:
                leaf_plan, seal = self._leaves[leaf], self._blocks
                write = leaf_plan.write
                if write is None or seal is None:
                    token = self._minted(row.rid, entries, leaf, text, number)
                else:
                    blocks = blocks or seal(row.rid, numbers)
                    block = blocks[16 * (number - numbers.start) :][:16]
                    token = f"{leaf_plan.before}{write(block)}{leaf_plan.behind}"
                # it gets the same again only where all values of the field have that one
                others = (text,) if name in collection.single else (text, token)
                indexed = self._leaves[leaf].hash_of is not None
                again = one and indexed and any(collection.respelled(name, (text,), (one.token,)))
                if again or token is None or (one is not None and one.token in others):
                    return False
                before = (one := TokenizedValue(number, text, False, token, False),)
                number += 1
            if one.token == text or (form(text) and self._is_token(name, text)):
                return False
            tokens[name] = before
            swaps[name] = _AWAY
            if raws:
                swaps[name] = pieces[2 * at + 1], _ = encode_text(one.token), raws[at]
            at += 1
        erased = self._erases and len(tokens) < max(len(stored), self._declared)
        guard = self.joined.guard if raws else None
        if not exchange.swaps or erased or (guard and guard.doubts(cut, exchange.request)):
            return False
        exchange.sent = b"".join(pieces)
        exchange.write = StagedWrite(
            row.rid, live, tokens, row, live, key=exchange.key, salt=row.salt
        )
        untold = not collection.single.isdisjoint(tokens)  # when it was written is noted
        if number > live.following or untold or collection.expires is not None:  # it lives longer
            staged = update_at_once(collection, exchange.write, number, entries, exchange.began)
            exchange.changes = (staged,)
            exchange.settles = True
        return True

    def _is_token(self, name: str, text: str) -> bool:
        """Whether a text with the form of a token is one, or may be, as only the index tells."""
        collection = self.collection
        looked_up = collection.tokenizers[name].resolution is Resolution.INDEXED
        return looked_up or carries_record(collection, name, text)

    def _minted(
        self,
        rid: int,
        entries: tuple[list[bytes], list[bytes]],
        leaf: int,
        text: str,
        number: int,
    ) -> str | None:
        """The token, not sealed with others, of a new value; ``None``: it is no text.

        Its entry in the token index goes to those of tokens that several have, or to the others.
        """
        leaf_plan = self._leaves[leaf]
        indexed, hash_of = leaf_plan.indexed, leaf_plan.hash_of
        token = self.collection.mints[leaf_plan.field](Value(text), rid, number)
        if token.json:
            return None
        if hash_of is not None and (indexed is None or indexed(token)):
            entries[not leaf_plan.same].append(hash_of(token.text.encode()))
        return token.text


def one_spelling(key: str) -> str | None:
    """An id as the vault has it; ``None``: it has several spellings, or may be a value."""
    if not key.isascii() or numeric_id(key) is not None or _VALUE.match(key):
        return None
    return canonical_uuid(key)


def fast_path_plan(
    joined: BoundOperation | None, vault: Vault, headers: RawHeaders = ()
) -> FastPathPlan | None:
    """Plan of an operation's ordinary exchanges; ``None`` where there are none."""
    if joined is None or is_patch(headers):
        return None
    if not joined.planned:
        joined.planned, joined.fast_path = True, _plan_of(joined, vault)
    plan: FastPathPlan | None = joined.fast_path
    return plan


def _plan_of(joined: BoundOperation, vault: Vault) -> FastPathPlan | None:
    collection, plan = joined.collection, joined.plan
    at_once = collection.store.at_once
    special = joined.checks, joined.searching, joined.audit.sink.flushes
    if at_once is None or any(special) or not is_plain_operation(plan.operation):
        return None
    if not _keeps_plainly(collection):
        return None
    if plan.operation.verb is not _READ and not writes_plainly(plan):
        return None
    if collection.keeps and plan.operation.verb is Verb.UPDATE:
        return None
    usual = answers_plainly(plan) and _is_seen(joined)
    return FastPathPlan(joined, vault, at_once) if usual else None


def _is_seen(joined: BoundOperation) -> bool:
    """Whether callers of the view see something, and what they send is taken as it comes."""
    view, plan = joined.view, joined.plan
    if view is None or view.clear:
        return True
    sent: frozenset[str] = frozenset()
    if plan.request is not None and plan.operation.verb is not _READ:
        sent = joined.collection.declared.intersection(plan.request.fields)
    if joined.cover.telling & sent:
        return False
    if plan.operation.verb is Verb.UPDATE and any(map(view.covers, sent)):
        return False  # masks and tokens may come back
    answer = plan.response
    visible = set(answer.fields) - view.hidden if answer is not None else set()
    return bool(joined.collection.declared & visible)


def _keeps_plainly(collection: Collection) -> bool:
    """Whether records of the collection have values alone, and tokens that differ from these."""
    clear = any(one.resolution is Resolution.CLEAR for one in collection.tokenizers.values())
    special = collection.parts.names or collection.state.replicas is not None
    return type(collection) is Collection and not (clear or special)
