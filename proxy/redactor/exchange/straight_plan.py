"""Conditions of an ordinary exchange (``straight``): of an operation, decided once for each, and of
a request, by tests that take no time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from proxy.model.schema import Value
from proxy.redactor.checks import is_patch
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.straight import AnswerPlan, StraightExchange, Swaps, found_leaves
from proxy.redactor.json.tree import encode_text
from proxy.redactor.message import RawHeaders, Request, canonical_uuid, numeric_id
from proxy.redactor.plan import OperationPlan
from proxy.redactor.rules import Absent, IdSource, Match, PatchKind, Restore, Verb
from proxy.redactor.uploads import UPLOADS
from proxy.storage.base import AtOnce
from proxy.storage.changes import Insert
from proxy.storage.rows import Row
from proxy.tokenization.base import Resolution, SealedSpelling
from proxy.vault.body import RecordBody, TokenizedValue
from proxy.vault.collection import Collection
from proxy.vault.proxied import ProxiedDraft, StagedWrite, next_at_once
from proxy.vault.vault import Vault

_CREATE, _READ = Verb.CREATE, Verb.READ  # looked up several times slower in it


class _LeafPlan(NamedTuple):
    """A leaf of a request."""

    field: str
    word: SealedSpelling | None  #: of tokens that are sealed together
    #: where its tokens are found by themselves: whether one is, its hash, whether others share it
    indexed: Callable[[Value], bool] | None
    hash_of: Callable[[bytes], bytes]
    same: bool


class StraightPlan(AnswerPlan):
    """Plan of the ordinary exchanges of one operation."""

    __slots__ = (
        "_blocks",
        "_body",
        "_declared",
        "_erases",
        "_id_name",
        "_leaves",
        "_same",
        "_sealed",
        "_verb",
    )

    def __init__(self, joined: BoundOperation, vault: Vault, at_once: AtOnce) -> None:
        super().__init__(joined, vault, at_once)
        plan, collection = joined.plan, joined.collection
        self._verb = plan.operation.verb
        self._declared = len(collection.declared)
        self._erases = plan.operation.request.absent is Absent.ERASE
        self._id_name = plan.operation.id.name if plan.operation.id is not None else ""
        request = plan.request
        self._body = request.selection.flat if request and request.selection else None
        indexed = {name: rest for name, *rest in collection.indexed}
        tokenizers = collection.tokenizers
        words = {
            name: one.spelling
            for name, one in tokenizers.items()
            if one.spelling is not None and one.spelling.blocks is not None
        }
        #: what seals the tokens of all these fields
        self._blocks = next((one.blocks for one in words.values()), None)
        self._leaves = [
            _LeafPlan(name, words.get(name), *indexed.get(name, (None, bytes, False)))
            for name in (request.fields if request is not None else ())
        ]
        #: whether equal values of some field have equal tokens
        self._same = any(one.same for one in tokenizers.values())
        #: what finds tokens that tell their record, by field
        self._sealed = {
            name: one.pattern.fullmatch
            for name, one in tokenizers.items()
            if one.resolution is Resolution.SEALED
        }

    def begin(self, match: Match, request: Request) -> StraightExchange | None:
        """The exchange of a request; ``None``: it is not ordinary, and nothing was done."""
        keyset = self.collection.context.keyset
        if (
            self.audit.sink.fault is not None
            or self.audit.baited
            or keyset.live_hash_roots[0].other is not None
            or (self._same and keyset.older_tokens)
        ):
            return None
        try:
            if self._verb is _CREATE:
                return self._create(match, request)
            key = self._key(match)
            if key is None:
                return None
            exchange = StraightExchange(self, match, request, key)
            exchange.began = self.collection.clock()
            return exchange if self._verb is _READ or self._updates(exchange, key) else None
        except Exception:  # noqa: BLE001  # whatever it is, the general way meets and tells it
            return None

    def _key(self, match: Match) -> str | None:
        """The id in the path, where nobody spells it in two ways."""
        text = match.params[self._id_name]
        if not text.isascii() or numeric_id(text) is not None:
            return None
        return canonical_uuid(text)

    def _create(self, match: Match, request: Request) -> StraightExchange | None:
        body, collection = request.body, self.collection
        leaves = found_leaves(self._body, body)
        if leaves is None:
            return None
        exchange = StraightExchange(self, match, request, None)
        mints, places, swaps = collection.mints, self._leaves, exchange.swaps
        rid = collection.context.sequence()
        tokens: dict[str, tuple[TokenizedValue, ...]] = {}
        values: dict[str, str] = {}
        pieces: list[bytes] = []
        hashes: list[bytes] = []
        unique: list[bytes] = []
        number, reached = 1, 0
        blocks = b"" if self._blocks is None else self._blocks(rid, len(leaves[0]))
        for index, leaf in enumerate(leaves[0], 1):
            start, end = leaves[1][index]
            raw = body[start:end]
            if raw[0] != 0x22 or end - start < 3 or raw.find(b"\\") >= 0:
                return None
            text = raw[1:-1].decode()
            name, word, is_indexed, hash_of, same = places[leaf]
            if word is not None:
                block = blocks[number * 16 - 16 : number * 16]
                spelled = f"{word.before}{word.write(block)}{word.behind}"
            else:
                token = mints[name](Value(text), rid, number)
                spelled = token.text
                if token.json:
                    return None
                if is_indexed is not None and is_indexed(token):
                    (hashes if same else unique).append(hash_of(spelled.encode()))
            if spelled == text:
                return None
            tokens[name] = (TokenizedValue(number, text, False, spelled, False),)
            swaps[name] = quoted, _ = encode_text(spelled), raw
            values[text] = name
            pieces.append(body[reached:start])
            pieces.append(quoted)
            reached = end
            number += 1
        pieces.append(body[reached:])
        exchange.absent = self._declared + 1 - number
        refused = exchange.absent and self.field_absent == "refuse"
        if not tokens or refused or self._doubts(values, request, pieces):
            return None
        exchange.sent = b"".join(pieces)
        sealer = collection.sealer
        salt = sealer.new_salt()
        record = sealer.record(rid, salt)
        content = RecordBody(tokens, number)
        row = collection.new_row(content, rid, salt, record)
        exchange.write = StagedWrite(rid, content, tokens, None, salt=salt, sealer=record)
        exchange.began = row.created_at
        exchange.changes = (Insert(row, (*hashes, *unique), tuple(unique)),)
        return exchange

    def _updates(self, exchange: StraightExchange, key: str) -> bool:
        """Lock the record of an update and see what becomes of it; ``False``: nothing was done."""
        collection = self.collection
        leaves = found_leaves(self._body, exchange.request.body)
        digest = collection.key_hash(key)
        if leaves is None or self.vault.behind or not collection.state.locks.take(digest):
            return False
        exchange.locks = (digest,)
        try:
            drafted = self._next(exchange, key, leaves)
        except BaseException:
            exchange.close()
            raise
        if not drafted:
            exchange.close()
        return drafted

    def _next(
        self,
        exchange: StraightExchange,
        key: str,
        leaves: tuple[Sequence[int], Sequence[tuple[int, int]]],
    ) -> bool:
        collection, body = self.collection, exchange.request.body
        row = self.at_once.row_by_key(collection.table, exchange.locks[0])
        if row is None or row.staged or row.key is None or row.expires_at is not None:
            return False
        live, name_sealed = collection.sealer.open_with_key(row)
        if name_sealed != key or live.deleted or live.at or live.fields:
            return False
        stored, texts, swaps = live.values, dict[str, str](), exchange.swaps
        tokens: dict[str, tuple[TokenizedValue, ...]] = {}
        pieces: list[bytes] = []
        reached = 0
        for index, leaf in enumerate(leaves[0], 1):
            start, end = leaves[1][index]
            raw, name = body[start:end], self._leaves[leaf].field
            if raw[0] != 0x22 or end - start < 3 or raw.find(b"\\") >= 0:
                return False
            text, before = raw[1:-1].decode(), stored.get(name)
            if before is None or len(before) != 1 or (one := before[0]).text != text:
                return self._moves(exchange, (row, live), leaves)
            if one.json or one.token_json or one.token == text:
                return False
            tokens[name] = before
            swaps[name] = quoted, _ = encode_text(one.token), raw
            texts[text] = name
            pieces.append(body[reached:start])
            pieces.append(quoted)
            reached = end
        if not tokens or (self._erases and len(tokens) < max(len(stored), self._declared)):
            return False
        pieces.append(body[reached:])
        exchange.write = StagedWrite(row.rid, live, tokens, row, live, key=key, salt=row.salt)
        exchange.sent = b"".join(pieces)
        return not (self._look_minted(texts) or self._doubts(texts, exchange.request, pieces))

    def _look_minted(self, values: Mapping[str, str]) -> bool:
        """Whether any value has the form of a token that tells its record."""
        sealed = self._sealed
        for text, name in values.items():
            if name in sealed and sealed[name](text) is not None:
                return True
        return False

    def _moves(
        self,
        exchange: StraightExchange,
        record: tuple[Row, RecordBody],
        leaves: tuple[Sequence[int], Sequence[tuple[int, int]]],
    ) -> bool:
        """Draft the next version of a record, of which some value is another now."""
        collection, body, (row, live) = self.collection, exchange.request.body, record
        fields, texts = dict[str, tuple[Value, ...]](), dict[str, str]()
        spans: list[tuple[str, int, int, bytes]] = []
        for index, leaf in enumerate(leaves[0], 1):
            start, end = leaves[1][index]
            raw, name = body[start:end], self._leaves[leaf].field
            if raw[0] != 0x22 or end - start < 3 or raw.find(b"\\") >= 0:
                return False
            text, before = raw[1:-1].decode(), live.values.get(name, ())
            if len(before) > 1 or (before and (before[0].json or before[0].token_json)):
                return False
            fields[name] = (Value(text),)
            texts[text] = name
            spans.append((name, start, end, raw))
        if self._erases and len(spans) < max(len(live.values), self._declared):
            return False
        if self._look_minted(texts):
            return False
        draft = ProxiedDraft(fields, frozenset(), self._erases, collection.declared)
        staged = next_at_once(collection, row, exchange.key or "", draft, live)
        if staged is None:
            return False
        exchange.write, exchange.changes = staged
        return self._sends(exchange, spans, texts)

    def _sends(
        self,
        exchange: StraightExchange,
        spans: Sequence[tuple[str, int, int, bytes]],
        texts: Mapping[str, str],
    ) -> bool:
        """Put the tokens of an update in their places."""
        body, tokens, swaps = exchange.request.body, exchange.write.tokens, Swaps()
        pieces: list[bytes] = []
        reached = 0
        for name, start, end, raw in spans:
            one = tokens[name][0]
            if one.token_json or one.token == one.text:
                return False
            swaps[name] = quoted, _ = encode_text(one.token), raw
            pieces.append(body[reached:start])
            pieces.append(quoted)
            reached = end
        pieces.append(body[reached:])
        exchange.sent, exchange.swaps = b"".join(pieces), swaps
        return not self._doubts(texts, exchange.request, pieces)

    def _doubts(self, values: Mapping[str, str], request: Request, pieces: list[bytes]) -> bool:
        """Whether a value may stand elsewhere in the request."""
        guard = self.joined.guard
        if guard is None:
            return False
        method, target, headers, _ = request.method, request.target, request.headers, request.body
        return guard.doubts(values, Request(method, target, headers, b'"'.join(pieces[::2])))


def straight_plan(
    joined: BoundOperation | None, vault: Vault, headers: RawHeaders = ()
) -> StraightPlan | None:
    """Plan of the ordinary exchanges of an operation; ``None`` where it has none, or a request with
    these fields is none.
    """
    if joined is None or is_patch(headers):
        return None
    if not joined.planned:
        joined.planned, joined.straight = True, _plan_of(joined, vault)
    plan: StraightPlan | None = joined.straight
    return plan


def _plan_of(joined: BoundOperation, vault: Vault) -> StraightPlan | None:
    collection, plan = joined.collection, joined.plan
    at_once = collection.store.at_once
    if at_once is None or not (_is_plain(joined) and _keeps_plainly(collection)):
        return None
    if plan.operation.verb is not _READ and not _writes_plainly(plan):
        return None
    return StraightPlan(joined, vault, at_once) if _answers_plainly(plan) else None


def _is_plain(joined: BoundOperation) -> bool:
    operation = joined.plan.operation
    endpoint, answer, request = operation.endpoint, operation.response, operation.request
    special = (
        *(operation.branches, operation.graph, operation.parts, operation.envelope),
        *(answer.special, answer.in_parts, answer.stream, answer.carriers, answer.carried),
        *(answer.scan, request.query, request.search, endpoint.views),
        *(joined.view, joined.checks, joined.searching, joined.audit.sink.flushes),
    )
    usual = answer.restore is Restore.NAMED and operation.verb is not Verb.DELETE
    return usual and not any(special)


def _keeps_plainly(collection: Collection) -> bool:
    """Whether records of the collection have values alone, and tokens that differ from these."""
    clear = any(one.resolution is Resolution.CLEAR for one in collection.tokenizers.values())
    special = collection.parts.names or collection.state.peers is not None
    return type(collection) is Collection and not (
        clear or special or collection.expires is not None
    )


def _writes_plainly(plan: OperationPlan) -> bool:
    request, patch = plan.request, plan.operation.request.patch
    if request is None or request.selection is None or request.selection.flat is None:
        return False
    ids = request.id_leaf >= 0 or request.id_anchored >= 0
    special = plan.unnamed is not None or request.anchored or request.texts or request.emptied
    if special or ids or not request.outline.flat or request.named & UPLOADS:
        return False
    return patch in (None, PatchKind.MERGE)


def _answers_plainly(plan: OperationPlan) -> bool:
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
