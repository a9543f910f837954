"""Small tokens of a page by the words above or before them: heads of columns, and labels.

The record is that of the page, or the one that all tokens of a row are of. The head names the
field, so a date is known in other manners of writing, too. A text that is none of the record's
tokens there is no value: the application has made it of a token, or it is somebody else's. It is
not shown (``untold_token``), for people would believe it.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from proxy.model.schema import NO_VALUE, Value
from proxy.offload import SMALL, busy, give_way, run_in_thread
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.request_tokens import RequestText
from proxy.redactor.message import Request, Response, canonical_uuid
from proxy.redactor.page_heads import ROW_ID, Headed, HeadedPlace, Run, headed_texts
from proxy.redactor.pages import NamedText, text
from proxy.redactor.plan import header_ids
from proxy.redactor.restore import Edit
from proxy.redactor.rules import IdSource, ResponseRule, Verb
from proxy.redactor.shown_dates import language_of, shown_like
from proxy.tokenization import SHAPES
from proxy.tokenization.base import TELLS_RECORD, Resolution, Tokenizer
from proxy.tokenization.digits import NUMBER_IN_TEXT
from proxy.vault.proxied import (
    AnswerObject,
    OpenRow,
    reconcile_objects,
    reveal_anywhere,
    reveal_objects,
)

#: Places of a page that are read; those beyond are taken for those of nobody.
_MOST: Final = 20_000


class ColumnEdits(NamedTuple):
    """The edits of the columns of a page, and what they show."""

    edits: list[Edit]
    fields: frozenset[str] = frozenset()
    opened: Mapping[int, OpenRow] = {}  # never written


async def headed(joined: BoundOperation, answer: Response) -> Headed:
    """The places of a page that the rule names by their heads."""
    rule, page = joined.plan.operation.response, answer.body
    if not rule.heads:
        return Headed([], set())
    named = rule.id is not None and _has_ids(rule) and rule.id.name
    heads = {**rule.heads, **({named: ROW_ID} if named else {})}
    return await run_in_thread(len(page) > SMALL, headed_texts, page, heads)


def as_texts(joined: BoundOperation, page: Headed) -> list[NamedText]:
    """The texts of the places that hold small tokens."""
    names = telling_fields(joined)
    return [
        NamedText(spot.field, *run)
        for spot in page.places
        for run in (*spot.runs, *spot.attributes)
        if spot.field != ROW_ID and not _tells(spot.field, run, names)
    ]


async def in_columns(
    joined: BoundOperation, request: Request | None, answer: Response, began: int
) -> tuple[list[Edit], bool]:
    """The values of small tokens below heads, each by the record that its row is of; and whether
    there is one.

    Tokens that the caller wrote into the request tell nothing. ``began``: the time of the request.
    Raises ``VaultError``.
    """
    page, telling = await headed(joined, answer), telling_fields(joined)
    if request is None or not (page.places or page.unread):
        return [], False
    collection = joined.collection
    texts = dict.fromkeys(one for spot in page.places for one in _tokens(joined, spot, telling))
    words = RequestText(request)
    own = {one for part in words.others([*texts]) for one in part}
    records = (await reveal_anywhere(collection, own, telling, began)).opened.values()
    parts = dict[int, list[HeadedPlace]]()
    for spot in page.places[:_MOST]:
        parts.setdefault(spot.part, []).append(spot)
    if words.full or len(page.places) > _MOST:
        collection.observe("page_full")
    columns = _Columns(joined, telling, language_of(answer.body))
    by_token, rows = _by_token(records, telling), list[_RowOfPage]()
    for places in parts.values():
        tokens = {one for spot in places for one in _tokens(joined, spot, telling)}
        certain = {one for one in tokens & own if one in by_token}
        rows.append(_RowOfPage(places, tokens, certain, _owner(certain, by_token)))
    by_id = dict[int, OpenRow | None]()
    if _has_ids(joined.plan.operation.response):
        by_id = await _by_id(joined, page, rows, began)
    for number, row in enumerate(rows):
        columns.add(row.places, by_id.get(number, row.owner), theirs=number in by_id)
        if number % 100 == 99 and busy():
            await give_way()
    columns.add(page.places[_MOST:], None)
    result = columns.done(page, answer.body, records)
    if result.fields:
        await joined.audit.revealed_anywhere(
            answer.status, result.opened, collection, result.fields
        )
    return result.edits, bool(result.fields)


class _RowOfPage(NamedTuple):
    """A row of a table, or what else belongs to one record."""

    places: Sequence[HeadedPlace]
    tokens: AbstractSet[str]  #: texts that may tell its record
    certain: AbstractSet[str]  #: those of them that are tokens
    owner: OpenRow | None  #: of all of these


async def _by_id(
    joined: BoundOperation, page: Headed, rows: Sequence[_RowOfPage], began: int
) -> dict[int, OpenRow | None]:
    """The record of each row that shows an id, by the number of the row; a row with a text that
    may be a token of somebody else has none. A row tells the id of its record, as an object of JSON
    does. Raises ``VaultError``.
    """
    collection, shapes = joined.collection, joined.collection.tokenizers
    telling, objects = telling_fields(joined), dict[int, AnswerObject]()
    for number, row in enumerate(rows):
        ids = _ids(joined, page, row)
        if len(ids) != 1 or (row.certain and row.owner is None):
            continue
        spots = [
            (name, one) for one in row.certain for name in telling if shapes[name].resembles(one)
        ]
        others = [
            (spot.field, run.text)
            for spot in row.places
            if spot.field in shapes and spot.field not in telling
            for run in spot.runs
        ]
        objects[number] = AnswerObject(canonical_uuid(ids.pop()), (*spots, *others))
    revealed = await reveal_objects(collection, [*objects.values()], began)
    if revealed.may_decide and joined.plan.operation.verb is Verb.READ:
        reconciling = reconcile_objects(collection, [*objects.values()], revealed, began)
        await joined.decide(joined.notices.undecided_by(reconciling))
    records = dict(zip(objects, revealed.rows, strict=True))
    return {
        number: record
        for number, record in records.items()
        if rows[number].tokens <= (record.token_texts if record is not None else set())
    }


def _ids(joined: BoundOperation, page: Headed, row: _RowOfPage) -> set[str]:
    """The ids that a row shows, in its column or in its links."""
    operation = joined.plan.operation
    where = operation.response.id
    if where is None or where.name:
        return {run.text for spot in row.places if spot.field == ROW_ID for run in spot.runs}
    links = page.links.get(row.places[0].part, ())
    fields = tuple([(b"", one.encode()) for one in links])
    return {*header_ids(where, fields, operation.template)}


def _has_ids(rule: ResponseRule) -> bool:
    """Whether the tables of a page have a column of ids."""
    return bool(rule.heads) and rule.id is not None and rule.id.source is IdSource.COLUMN


def of_record(
    joined: BoundOperation,
    page: tuple[Headed, bytes],
    record: OpenRow | None,
    values: Mapping[tuple[str, str], Value | None],
) -> ColumnEdits:
    """The values below heads and behind labels of a page about one record; ``None``: the vault
    does not have it, and all stays.

    ``values``: of its exact tokens, by field and token.
    """
    (places, body), telling = page, telling_fields(joined)
    columns, parts = (
        _Columns(joined, telling, language_of(body), values),
        dict[int, list[HeadedPlace]](),
    )
    if record is None and not joined.notices.scattered:
        return ColumnEdits([])
    for spot in places.places:
        parts.setdefault(spot.part, []).append(spot)
    for part in parts.values():
        tokens = {one for spot in part for one in _tokens(joined, spot, telling)}
        of = record if record is not None and tokens <= record.token_texts else None
        columns.add(part, of, theirs=record is None)
    return columns.done(places, body, [] if record is None else [record])


def joined_edits(first: Iterable[Edit], second: Iterable[Edit]) -> list[Edit]:
    """Both in order, without those of the second that touch one of the first."""
    taken = sorted(first)
    ends = [end for _, end, _ in taken]
    more = [
        one
        for one in second
        if (at := bisect_right(ends, one[0])) == len(taken) or taken[at][0] >= one[1]
    ]
    return sorted([*taken, *more])


class _Columns:
    """Collects the edits of one page."""

    def __init__(
        self,
        joined: BoundOperation,
        telling: AbstractSet[str],
        language: str,
        values: Mapping[tuple[str, str], Value | None] | None = None,
    ) -> None:
        self._joined, self._telling, self._values = joined, telling, values or {}
        self._language = language  #: of the page
        self._edits, self._untold = list[Edit](), set[str]()
        self._fields, self._opened = set[str](), dict[int, OpenRow]()

    def add(
        self, places: Iterable[HeadedPlace], record: OpenRow | None, *, theirs: bool = False
    ) -> None:
        """Add the places of one record; ``None``: nobody knows of which one, or ``theirs``, that
        the vault does not have it.
        """
        scattered = self._joined.notices.scattered
        every = record is not None or not theirs
        for spot in places if every else [one for one in places if one.field in scattered]:
            hits = 0
            for run in spot.runs:
                hits += self._shows(spot.field, run, record)
            for run in spot.attributes:
                self._shows(spot.field, run, record)
            if not hits:
                self._hide(spot, record)

    def done(self, page: Headed, body: bytes, records: Iterable[OpenRow]) -> ColumnEdits:
        """The edits, with notices of what a page shows that is no value."""
        heads = {*self._joined.plan.operation.response.heads.values()}
        absent = heads - self._telling - {one.field for one in page.places}
        tokens = [at for one in records if absent for at in one.values if at[0] in absent]
        unread = page.unread | {name for name, token in tokens if token.encode() in body}
        self._joined.notices.untold(self._joined.collection, self._untold | unread)
        return ColumnEdits(self._edits, frozenset(self._fields), self._opened)

    def _shows(self, field: str, run: Run, record: OpenRow | None) -> bool:
        """Note the value of a token of the record; ``False`` where it is none."""
        if record is None or field == ROW_ID or _tells(field, run, self._telling):
            return False
        value = self._values.get((field, run.text)) or value_in(
            record, field, run.text, self._language
        )
        if value is None:
            return False
        if self._joined.view is not None:
            value = self._joined.view.visible(field, value)
        if value is not None:
            self._edits.append((run.start, run.end, text(value.text)))
            self._opened[record.row.rid] = record
            self._fields |= {field} if value != NO_VALUE else set()
        return True

    def _hide(self, spot: HeadedPlace, record: OpenRow | None) -> None:
        """Show no value where a text may be a token, or be made of one."""
        collection, view, field = self._joined.collection, self._joined.view, spot.field
        alike = field != ROW_ID and SHAPES[collection.shapes[field].name].looks_like
        if not alike or (view is not None and field in view.hidden):
            return
        lone = field in self._joined.notices.scattered
        if record is not None and field not in record.live.values and not lone:
            return  # the vault has none: it is the application's own
        field_of = collection.tokenizers[field]
        runs = [run for run in spot.runs if _may_be(field_of, run.text)]
        self._untold |= {field} if runs else set()
        if self._joined.notices.hides:
            self._edits += [(run.start, run.end, b"") for run in runs]


def _may_be(field: Tokenizer, written: str) -> bool:
    """Whether a text may be a token that only its record tells, or be made of one."""
    if field.resolution not in TELLS_RECORD:
        return field.resolution is Resolution.BY_RECORD and any(map(str.isdigit, written))
    indexed = field.resolution is Resolution.INDEXED and field.indexed(Value(written))
    return (
        NUMBER_IN_TEXT.fullmatch(written) is not None and not indexed and field.resembles(written)
    )


def value_in(record: OpenRow, field: str, written: str, language: str = "") -> Value | None:
    """The value of a text that is a token of the record in this field, in any manner of writing."""
    value = record.values.get((field, written))
    if value is not None:
        return value
    for (name, token), one in record.values.items():
        spelled = shown_like(written, token, one.text, language) if name == field else None
        if spelled is not None:
            return NO_VALUE if one == NO_VALUE else Value(spelled)
    return None


def telling_fields(joined: BoundOperation) -> frozenset[str]:
    """The fields of the entity whose tokens tell their record."""
    shapes = joined.collection.tokenizers
    return frozenset(name for name, one in shapes.items() if one.resolution in TELLS_RECORD)


def _tells(field: str, run: Run, telling: AbstractSet[str]) -> bool:
    """Whether a text may be a token that tells its record; a number may be a short one."""
    return field in telling and NUMBER_IN_TEXT.fullmatch(run.text) is None


def _tokens(joined: BoundOperation, spot: HeadedPlace, telling: AbstractSet[str]) -> set[str]:
    """Texts that may be tokens that tell their record, in a place of such a field."""
    if spot.field not in telling:
        return set()
    shapes = joined.collection.tokenizers
    whole = {run.text for run in spot.runs if _tells(spot.field, run, telling)}
    patterns = {shapes[name].pattern for name in telling}
    return {
        one
        for one in (
            *whole,
            *(
                hit[0]
                for pattern in patterns
                for run in spot.runs
                for hit in pattern.finditer(run.text)
            ),
        )
        if NUMBER_IN_TEXT.fullmatch(one) is None
        and any(shapes[name].resembles(one) for name in telling)
    }


def _by_token(
    records: Iterable[OpenRow], telling: AbstractSet[str]
) -> Mapping[str, Sequence[OpenRow]]:
    """The records that each token tells."""
    owners = dict[str, list[OpenRow]]()
    for record in records:
        for token in {token for name, token in record.values if name in telling}:
            owners.setdefault(token, []).append(record)
    return owners


def _owner(tokens: Collection[str], owners: Mapping[str, Sequence[OpenRow]]) -> OpenRow | None:
    """The one record that all these tokens are of; those of nobody say nothing."""
    sets = [{one.row.rid: one for one in owners[token]} for token in tokens if token in owners]
    common = set.intersection(*map(set, sets)) if sets else set()
    return sets[0][common.pop()] if len(common) == 1 else None
