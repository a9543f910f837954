"""Tokens that an answer without success may show in the clear.

An application quotes in its errors what it was sent, in any form: decoded, in upper case, out of a
cookie. So a token in an error may be one that the caller wrote there to have another person's value
read out, and no comparison with the request can tell. Only two kinds are restored: tokens of this
exchange, whose values the caller has sent itself, and tokens of the record that the request names.
All others stay tokens, but in a form that is shown again with 2xx where ``restore: anywhere`` says
that pages show anybody: it is such a page, taken or not.
"""

import re
from collections.abc import Collection as SizedCollection
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from msgspec.structs import replace

from proxy.errors import VaultError
from proxy.model.schema import NO_VALUE, Value
from proxy.offload import SMALL, is_long, run_in_thread
from proxy.redactor import restore
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.page_tokens import (
    MOST_QUOTED,
    in_elements,
    nameless_record,
    of_anybody,
    settle_shown,
    with_respelled,
)
from proxy.redactor.exchange.request_tokens import (
    Meaning,
    RequestText,
    SearchTokens,
    StoredToken,
    unambiguous,
)
from proxy.redactor.exchange.unnamed_tokens import tell_in_page
from proxy.redactor.message import RawHeaders, Request, Response, header, says_vobject
from proxy.redactor.plan import OperationPlan, Outcome
from proxy.redactor.restore import Edit, EscapingKinds
from proxy.redactor.rules import Operation, Restore
from proxy.redactor.words import DocumentKind
from proxy.tokenization.base import Resolution
from proxy.tokenization.digits import NUMBER_IN_TEXT
from proxy.vault.body import RecordBody, TokenizedValue
from proxy.vault.proxied import OpenRow, StagedWrite, is_large, open_with_staged

#: Statuses by which an application refuses to show the record: then nothing that is stored of it is
#: shown either.
WITHHELD: Final = frozenset({401, 403, 404, 407, 410})

#: Where the record that the request names is the only one whose tokens are restored.
_BOUND: Final = (Restore.HTML, Restore.TEXT)

#: Kinds in which rules name places.
_NAMED: Final = (EscapingKinds.JSON, EscapingKinds.FORM, EscapingKinds.SCRIPT)
_XML: Final = (EscapingKinds.XML,)

#: The kinds of answers of success in which tokens are restored wherever they stand.
_PAGES: Final[Mapping[Restore, SizedCollection[EscapingKinds]]] = {
    Restore.NAMED: (),
    Restore.ANYWHERE: tuple(EscapingKinds),
    Restore.HTML: (EscapingKinds.HTML,),
    Restore.TEXT: (EscapingKinds.TEXT,),
    Restore.CSV: (),
}

#: Records whose stored values one error may show. A request about more of them gets tokens.
_MOST_RECORDS: Final = 100

#: So many tokens has a shape, and so long are they, that do not stand in running text by chance.
_DISTINCT_TOKENS: Final = 1000.0
_SHORTEST: Final = 4

#: A token that no shape's pattern finds is looked for inside a text only when it is too long to
#: stand there by chance.
_DISTINCT_LENGTH: Final = 12


class ErrorTokens:
    """The tokens of one exchange and of the records that its request names."""

    def __init__(
        self,
        joined: BoundOperation,
        writes: Sequence[StagedWrite],
        searched: Mapping[tuple[str, str], Value],
        returned: Iterable[tuple[str, str]],
        only: AbstractSet[str] = frozenset(),
    ) -> None:
        """``searched``: tokens sent in place of searched values, by (field, token).

        ``only``: the fields that may be shown; empty: all. ``returned``: (field, token) that the
        request itself contained in place of a value. They stay tokens for that caller.
        """
        self._collection = collection = joined.collection
        self._view = view = joined.view
        self._writes = writes
        self._only = (only or collection.declared) - (view.hidden if view else frozenset())
        self._returned = {*returned, *_returned(writes)}
        self.returned = {token for _, token in self._returned}  #: as texts
        self.telling = {
            name
            for name, shape in collection.shapes.items()
            if name in self._only
            and shape.capacity() >= _DISTINCT_TOKENS
            and shape.resolution is not Resolution.CLEAR
        }
        sent = (
            (name, value)
            for one in writes
            for name, values in one.tokens.items()
            for value in values
        )
        #: By token: values that the caller sent in the clear.
        self.exchange: dict[str, Value] = {token: value for (_, token), value in searched.items()}
        self.exchange.update(
            unambiguous((value.token, visible) for _, value, visible in self._distinct(sent))
        )

    def of_held(self) -> dict[str, StoredToken]:
        """The stored tokens of the records that the exchange holds already."""
        return self._stored(
            (one.key or "", one.rid, one.live) for one in self._writes if one.live is not None
        )

    async def of_records(self, keys: Sequence[str], began: int | None) -> dict[str, StoredToken]:
        """The stored tokens of these records, in all versions, also those replaced since ``began``.

        Raises ``VaultError(VAULT_DOWN)``.
        """
        if len(keys) > _MOST_RECORDS:
            return {}
        rows = await self._collection.by_key(keys)
        opened = await open_with_staged(self._collection, (), rows.values())
        return self._stored(
            (key, row.rid, content)
            for key, row in rows.items()
            if (one := opened.get(row.rid)) is not None
            for content in (
                one.live,
                *(content for _, content in one.staged if content is not None),
                *(self._collection.past(row.rid, began, one.live) if began is not None else ()),
            )
        )

    def of_open(self, key: str, record: OpenRow) -> dict[str, StoredToken]:
        """The certain stored tokens of a record that means the one of this id."""
        return self.certain(self._stored([(key, record.row.rid, record.live)]))

    def patterns(self, tokens: Iterable[str]) -> list[re.Pattern[str]]:
        """Return patterns that find tokens in running text: of all shapes, and of these tokens."""
        patterns = {
            tokenizer.pattern.pattern: tokenizer.pattern
            for name, tokenizer in self._collection.tokenizers.items()
            if name in self._only
            and tokenizer.resolution in (Resolution.SEALED, Resolution.INDEXED)
        }
        own = [
            re.escape(token)
            for token in tokens
            if len(token) >= _DISTINCT_LENGTH
            and not any(pattern.fullmatch(token) for pattern in patterns.values())
        ]
        return [
            *patterns.values(),
            *([re.compile(rf"(?<!\w)(?:{'|'.join(own)})(?!\w)", re.ASCII)] if own else []),
        ]

    def certain(self, tokens: Mapping[str, Meaning]) -> dict[str, Meaning]:
        """Return the tokens that no number of a page equals by chance: long enough to be unique."""
        fields = self._collection.tokenizers
        shapes = [field for name, field in fields.items() if name in self._only]
        return {
            text: meaning
            for text, meaning in tokens.items()
            if NUMBER_IN_TEXT.fullmatch(text) is None
            or any(field.resembles(text) and field.indexed(Value(text)) for field in shapes)
        }

    def _stored(self, versions: Iterable[tuple[str, int, RecordBody]]) -> dict[str, StoredToken]:
        entries = (
            (value.token, StoredToken(key, rid, name, visible))
            for key, rid, content in versions
            for name, value, visible in self._distinct(
                (name, value) for name, values in content.values.items() for value in values
            )
        )
        return unambiguous(entries)

    def _distinct(
        self, values: Iterable[tuple[str, TokenizedValue]]
    ) -> Iterable[tuple[str, TokenizedValue, Value]]:
        """Yield values with a token unlikely by chance and not in the request; with their view."""
        for name, value in values:
            if (
                name in self.telling
                and len(value.token) >= _SHORTEST
                and (name, value.token) not in self._returned
            ):
                visible = (
                    value.value if self._view is None else self._view.visible(name, value.value)
                )
                if visible is not None:
                    yield name, value, visible


def _returned(writes: Sequence[StagedWrite]) -> Iterable[tuple[str, str]]:
    """The stored tokens of fields in which one of them came back in a value's place."""
    for one in writes:
        for name in one.own:
            for value in one.live.values.get(name, ()) if one.live is not None else ():
                yield name, value.token


_TAKEN = Outcome.TAKEN  # looked up several times slower in its enumeration


def refuses_unread(operation: Operation) -> bool:
    """Whether no answer of the operation passes that could not be read."""
    return operation.endpoint.on_error.unreadable_answer != "tokens"


def wants_body(plan: OperationPlan, outcome: Outcome, headers: RawHeaders) -> bool:
    """Whether tokens or ids may stand in the body of an answer with these fields."""
    declared = header(headers, b"content-type")
    operation, kind = plan.operation, restore.surroundings(declared)
    if outcome is not _TAKEN:
        return operation.endpoint.on_error.upstream_not_2xx == "scan" and kind is not None
    body = plan.response
    if body is not None and (
        kind in (_NAMED if body.xml is None else _XML)
        or (declared is None and refuses_unread(operation))
        or (body.kind is DocumentKind.VOBJECT and says_vobject(declared))
    ):
        return True
    rule = operation.response
    return kind in _PAGES[rule.restore] or (rule.scan and kind is not None)


def is_page(plan: OperationPlan, answer: Response) -> bool:
    """Whether tokens are restored in an answer of success wherever they stand."""
    kind = restore.surroundings(header(answer.headers, b"content-type"))
    rule = plan.operation.response
    if kind is None or not (rule.scan or kind in _PAGES[rule.restore]):
        return False
    body = plan.response
    return body is None or kind not in (_NAMED if body.xml is None else _XML)


class AnswerScan:
    """Restores tokens anywhere: in a page those of anybody, else those that it may name."""

    def __init__(
        self,
        joined: BoundOperation,
        request: Request | None,
        writes: Sequence[StagedWrite],
        search: SearchTokens | None,
        form: int | None = None,
    ) -> None:
        """``form``: when it was sent, if the answer may be a form that is shown again."""
        self._joined, self._request, self._writes = joined, request, writes
        self._search, self._form = search, form
        self.revealed = False  #: whether anything stored was restored

    async def restored(self, answer: Response, keys: Sequence[str], page: int | None) -> Response:
        """The answer with values; ``keys``, ``page``: as of ``edits``."""
        errors = self._joined.plan.operation.endpoint.on_error.upstream_not_2xx
        if page is None and errors != "scan":
            return answer
        edits = await self.edits(answer, keys, page)
        if page is not None:
            await tell_in_page(self._joined, answer, page, edits)
        long = len(answer.body) > SMALL
        return replace(answer, body=await run_in_thread(long, restore.splice, answer.body, edits))

    async def edits(
        self,
        answer: Response,
        keys: Sequence[str],
        page: int | None,
        taken: Sequence[tuple[int, int]] = (),
    ) -> list[Edit]:
        """Return the edits that restore a body. ``keys``: the records that the request names.

        ``page``: when the answer was requested, if it is a page. ``taken``: stretches, in order,
        that something else is written to.
        """
        declared, long = header(answer.headers, b"content-type"), len(answer.body) > SMALL
        kind, body = await run_in_thread(long, restore.taken_as, declared, answer.body)
        if not body or kind is None:
            if restore.surroundings(declared) is EscapingKinds.XML:
                self._joined.collection.observe("unreadable_answer")
            return []
        rule = self._joined.plan.operation.response
        wide = page is not None and rule.restore is Restore.HTML
        named = self._joined.plan.operation.id is not None or bool(keys and not self._writes)
        bound = named and (rule.scan or rule.restore in _BOUND)
        sent = self._request
        much = any(map(is_large, self._writes)) or (sent is not None and is_long(sent.body))
        tokens = await run_in_thread(much, self._tokens, page)
        withheld, values = answer.status in WITHHELD, dict(tokens.exchange)
        stored = {} if withheld else await run_in_thread(much, tokens.of_held)
        if page is not None:
            stored, values = tokens.certain(stored), tokens.certain(values)
        meant = {**{text: one.value for text, one in stored.items()}, **values}
        patterns = await run_in_thread(much, tokens.patterns, meant)
        look = partial(restore.candidates, wide=wide)
        likely = await run_in_thread(long, look, kind, body, patterns, meant)
        edits = list[Edit]()
        elements = (rule.members or rule.heads) and kind is EscapingKinds.HTML
        try:
            if bound and page is not None:
                await settle_shown(self._joined, self._request, answer, (keys, page))
            if elements:
                edits = await self._in_elements(answer, keys, page)
                taken = [(start, end) for start, end, _ in edits]
            likely = await run_in_thread(long, restore.untouched, likely, taken)
            others = (item.text for item in likely if item.text not in meant)
            unknown = dict.fromkeys(text for text in others if text not in tokens.returned)
            if unknown and page is not None and not bound:
                values.update(await self._of_anybody(unknown, answer.status, page))
            elif unknown and not withheld:
                more, home = await self._of_record(tokens, keys, unknown, page)
                stored.update(more)
                form = self._form if kind is EscapingKinds.HTML else None
                values.update(await self._of_anybody({*unknown} - {*more}, answer.status, form))
                if home is not None and elements:
                    edits = await self._in_elements(answer, keys, page, home)
                    taken = [(start, end) for start, end, _ in edits]
                    likely = restore.untouched(likely, taken)
                if page is not None:
                    look = partial(with_respelled, (kind, body, wide))
                    likely = await run_in_thread(long, look, likely, {*stored, *values}, taken)
            unsent = stored.keys() - values.keys()
            quoted = {item.text: stored[item.text] for item in likely if item.text in unsent}
            await self._quote(answer.status, quoted, values)
        except VaultError as error:
            self._joined.pass_with_tokens(error)
        return [*edits, *await run_in_thread(long, restore.rewrite, kind, likely, values)]

    async def _quote(
        self, status: int, quoted: Mapping[str, StoredToken], values: dict[str, Value]
    ) -> None:
        """Add the values of stored tokens, and a line of the audit log for them."""
        if stored := [one for one in quoted.values() if one.value != NO_VALUE]:
            self.revealed = True
            await self._joined.audit.quoted(status, stored)
        values.update((text, one.value) for text, one in quoted.items())

    def _tokens(self, page: int | None) -> ErrorTokens:
        search = self._search
        values, returned = (search.values, search.returned) if search is not None else ({}, ())
        only = self._joined.plan.operation.response.only if page is not None else frozenset()
        return ErrorTokens(self._joined, self._writes, values, returned, only)

    async def _in_elements(
        self, answer: Response, keys: Sequence[str], page: int | None, home: OpenRow | None = None
    ) -> list[Edit]:
        sent, at = (self._request, self._writes), (keys, home, page)
        edits, shows = await in_elements(self._joined, answer, sent, at)
        self.revealed |= shows
        return edits

    async def _of_record(
        self,
        tokens: ErrorTokens,
        keys: Sequence[str],
        unknown: Mapping[str, None],
        page: int | None,
    ) -> tuple[Mapping[str, StoredToken], OpenRow | None]:
        """The tokens of the records that the request names; and the record that a page is about
        whose id no answer has told yet, where it is one.
        """
        more = await tokens.of_records(keys, page)
        if page is None:
            return more, None
        if more.keys() >= unknown.keys() or self._request is None or len(unknown) > MOST_QUOTED:
            return tokens.certain(more), None
        words = RequestText(self._request).others([one for one in unknown if one not in more])
        others = [one for part in words for one in part]
        home, erased = await nameless_record(self._joined, keys, (others, tokens.telling), page)
        unnamed = tokens.of_open(keys[0], home) if home is not None else {}
        return {**erased, **unnamed, **tokens.certain(more)}, home

    async def _of_anybody(
        self, unknown: SizedCollection[str], status: int, page: int | None
    ) -> Mapping[str, Value]:
        """The values of tokens in a page, without those that the caller wrote itself."""
        if self._request is None or page is None:
            return {}
        sought = self._search.values if self._search is not None else ()
        values = await of_anybody(self._joined, self._request, unknown, (status, page), sought)
        self.revealed |= bool(values)
        return values
