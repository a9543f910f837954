"""Tokens that an exchange resolves without the vault.

Small tokens (a date, four digits, a constant) mean something in one record and one field only, and
equal values may have been spelled differently: so an object of an answer is first told to be one of
the records at hand. A token that carries its record's id means the same in every object, in the
field that it was made for.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from proxy.model.schema import NO_VALUE, Value
from proxy.offload import each
from proxy.redactor.message import Request
from proxy.redactor.pages import without_references
from proxy.redactor.redact import BodyObject, Spot
from proxy.redactor.search.sought import SoughtValue
from proxy.tokenization import SHAPES
from proxy.tokenization.base import Resolution, Tokenizer
from proxy.vault.body import tokens_of, values_in_order
from proxy.vault.collection import Collection
from proxy.vault.proxied import AnswerObject, Revealed, StagedWrite, own

#: Values by token, by field.
_FieldValues = dict[str, dict[str, Value]]
#: A field and a token of it.
_FieldToken = tuple[str, str]


class StoredToken(NamedTuple):
    """A token of a record that the request names."""

    key: str
    rid: int
    field: str
    value: Value


Meaning = TypeVar("Meaning", Value, StoredToken)


def unambiguous(entries: Iterable[tuple[str, Meaning]]) -> dict[str, Meaning]:
    """Return the meaning by token, without ambiguous tokens; of one record the first."""
    meanings, doubtful = dict[str, Meaning](), set[str]()
    for token, meaning in entries:
        if _differ(meanings.setdefault(token, meaning), meaning):
            doubtful.add(token)
    return {token: meaning for token, meaning in meanings.items() if token not in doubtful}


def _differ(one: Value | StoredToken, other: Value | StoredToken) -> bool:
    if isinstance(one, Value) or isinstance(other, Value):
        return one != other
    return one.value != other.value and (one.rid, one.field) != (other.rid, other.field)


class SearchTokens:
    """Search tokens of a request: same-value tokens sent in place of values."""

    __slots__ = ("_collection", "mixed", "questioned", "returned", "values")

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        #: (field, token) of its searches by token
        self.returned: frozenset[_FieldToken] = frozenset()
        self.mixed: frozenset[Value] = frozenset()  #: values also sent in the clear
        self.questioned = False  #: whether the vault was asked for its record
        #: by (field, token): the searched value as spelled
        self.values: dict[_FieldToken, Value] = {}

    async def look_up(self, places: Sequence[tuple[str, Value]]) -> None:
        """Ask which of these are tokens that come back, and which have earlier ones.

        Applications build links from what they receive, so tokens return in place of values: those
        stay.
        """
        texts = tuple([(field, value.text) for field, value in places])
        self.returned |= await own(self._collection, texts)
        if self._collection.context.keyset.older_tokens:
            await self._collection.recall([(field, [value]) for field, value in places])

    async def look_up_all(self, items: Sequence[BodyObject]) -> None:
        """The same of the values in objects that search by them."""
        spots = (spot for item in items for spot in item.spots)
        await self.look_up([(one.field, one.value) for one in spots if one.value is not None])

    async def rows(self, items: Sequence[BodyObject]) -> list[list[Value | None]]:
        """Return the token of each value in objects that search by them."""
        tokens = iter(await each(self.token, [spot for item in items for spot in item.spots]))
        return [[next(tokens) for _ in item.spots] for item in items]

    @property
    def guarded(self) -> Mapping[_FieldToken, Value]:
        """The values that must not leave in the clear."""
        if not self.mixed:
            return self.values
        return {at: value for at, value in self.values.items() if value not in self.mixed}

    def returns(self, spot: Spot | SoughtValue) -> bool:
        """Whether a token stands there that comes back."""
        return spot.value is not None and (spot.field, spot.value.text) in self.returned

    def token(self, spot: Spot | SoughtValue) -> Value | None:
        """Return the token that finds a value in the application; ``None`` if none is needed."""
        value = spot.value
        if value is None or value.text == "" or self.returns(spot):
            return None
        token = self._collection.same_token(spot.field, value)
        self.values[spot.field, token.text] = value
        return token


async def cookie_token(collection: Collection, field: str, text: str) -> str:
    """Return the token of a text that came in a cookie; the text itself where it is one.

    Raises ``VaultError`` for a value that has none.
    """
    search, spot = SearchTokens(collection), Spot(field, 0, 0, Value(text))
    await search.look_up([(field, Value(text))])
    token = search.token(spot)
    return text if token is None else token.text


class WrittenTokens:
    """The values of all tokens that a request wrote, before and after it."""

    __slots__ = (
        *("_by_record", "_collection", "_owned", "_owners", "_repeated", "_sealed", "_writes"),
    )

    def __init__(self, collection: Collection, writes: Sequence[StagedWrite]) -> None:
        self._collection = collection
        self._writes = writes
        self._by_record: list[_FieldValues] = []
        self._repeated: list[dict[tuple[str, str], Iterator[Value]]] = []
        self._sealed: dict[_FieldToken, Value] = {}
        self._owners: dict[_FieldToken, int] = {}
        self._owned = set[str]()  #: the fields of these

    def rows(self, items: Sequence[BodyObject]) -> list[list[Value | None]]:
        """For each place of each object the value of its token; ``None`` if not known here."""
        self._index()
        keys = {one.key: index for index, one in enumerate(self._writes) if one.key is not None}
        return [self._row(item, self._owner(item, keys, len(items))) for item in items]

    def _index(self) -> None:
        """Make the tables by which any token of any record is found."""
        if self._by_record:
            return
        self._by_record = [_by_field(one) for one in self._writes]
        self._repeated = [_repeated(one) for one in self._writes]
        sealed = [
            name
            for name, tokenizer in self._collection.tokenizers.items()
            if tokenizer.resolution is Resolution.SEALED
        ]
        for index, by_field in enumerate(self._by_record):
            for name in sealed:
                tokens = {(name, token): value for token, value in by_field.get(name, {}).items()}
                self._sealed.update(tokens)
                self._owners.update(dict.fromkeys(tokens, index))
                self._owned.update([name] if tokens else ())

    def _owner(self, item: BodyObject, keys: dict[str, int], count: int) -> int | None:
        """Return the record of an object: by id, by tokens of one record, or both are alone."""
        owners = self._owners
        places = [(spot.field, spot.value.text) for spot in item.spots if spot.value]
        claimed = {owners[spot] for spot in places if spot in owners}
        if item.id is not None and item.id in keys:
            index = keys[item.id]
            # none of its tokens, but others: a create that has changed nothing of what was there
            sent = self._owned & self._by_record[index].keys()
            other = index not in claimed and any(name in sent for name, _ in places)
            return None if other and self._writes[index].live is None else index
        if len(claimed) == 1:
            return claimed.pop()
        alone = count == 1 and len(self._writes) == 1 and not claimed
        return 0 if alone and (item.id is None or self._writes[0].key is None) else None

    def _row(self, item: BodyObject, owner: int | None) -> list[Value | None]:
        by_field: _FieldValues = self._by_record[owner] if owner is not None else {}
        repeated = self._repeated[owner] if owner is not None else {}
        row: list[Value | None] = []
        for spot in item.spots:
            text = spot.value.text if spot.value is not None else None
            value = (
                None
                if text is None
                else by_field.get(spot.field, {}).get(text) or self._sealed.get((spot.field, text))
            )
            if repeated and text is not None and (several := repeated.get((spot.field, text))):
                value = next(several, value)
            row.append(value)
        return row


def add_revealed(
    own_and_certain: tuple[Sequence[list[Value | None]], AbstractSet[str] | None],
    items: Sequence[BodyObject],
    revealed: Revealed,
    sought: Mapping[tuple[str, str], Value],
) -> None:
    """Add the vault's values to the exchange's own, which win in these fields (``None``: all)."""
    own, certain = own_and_certain
    for item, row, values in zip(items, own, revealed.values, strict=True):
        if not sought and len(values) == len(row) and not any(row):
            row[:] = values
            continue
        resolved = iter(values)
        for index, spot in enumerate(item.spots):
            if spot.value is None:
                continue
            first, second = row[index], next(resolved)
            if certain is not None and spot.field not in certain:
                first, second = second, first
            row[index] = first or second or sought.get((spot.field, spot.value.text))


def hide_untold(
    collection: Collection,
    objects: Sequence[AnswerObject],
    values: Sequence[list[Value | None]],
    sought: Container[_FieldToken] | None,  # which stay; all of them
    scattered: AbstractSet[str] = frozenset(),  # fields that no id tells
) -> set[str]:
    """Put no value where a missing id would tell a token from one, and return the fields."""
    names, shapes, pairs = set[str](), collection.shapes, zip(objects, values, strict=True)
    for one, row in [one for one in pairs if (scattered or one[0].id is None) and None in one[1]]:
        for at, (name, text) in enumerate(one.places):
            certain = row[at] is not None or not (one.id is None or name in scattered)
            if not certain and _needs_id(collection.tokenizers[name], Value(text)):
                names.add(name)
                hides = sought is not None and (name, text) not in sought
                row[at] = NO_VALUE if hides and SHAPES[shapes[name].name].looks_like else None
    return names


def _needs_id(field: Tokenizer, token: Value) -> bool:
    indexed = field.resolution is Resolution.INDEXED and field.indexed(token)
    alone = indexed or field.resolution in (Resolution.SEALED, Resolution.CLEAR)
    return not alone and field.resembles(token.text)


def unresolved(
    recall: WrittenTokens | None,
    items: Sequence[BodyObject],
    lone_key: Callable[[], str | None],
    ids_tell: bool = False,
) -> tuple[list[list[Value | None]], list[AnswerObject]]:
    """Return the objects' values known to the exchange, and the objects for the vault.

    The vault gets all objects, or none if no token is left.

    ``lone_key``: gives the id of an only object that shows none. ``ids_tell``: the ids of objects
    without any token may decide something as well.
    """
    if recall is None:
        rows: list[list[Value | None]] = [[None] * len(item.spots) for item in items]
    else:
        rows = recall.rows(items)
    if not items or not (ids_tell or _lacking(items, rows)):
        return rows, []
    lone = lone_key() if len(items) == 1 else None
    return rows, [
        AnswerObject(
            item.id or lone,
            tuple([(one.field, one.value.text) for one in item.spots if one.value is not None]),
        )
        for item in items
    ]


def _lacking(items: Sequence[BodyObject], rows: Sequence[Sequence[Value | None]]) -> bool:
    """Whether some token of these objects is still to be resolved."""
    for item, row in zip(items, rows, strict=True):
        if None not in row:
            continue
        for spot, value in zip(item.spots, row, strict=True):
            if value is None and spot.value is not None:
                return True
    return False


def own_values(write: StagedWrite, item: BodyObject) -> list[Value | None] | None:
    """The values of the only object where it shows its record as that is now, in order."""
    if write.content is None or (
        item.id is not None and write.key is not None and item.id != write.key
    ):
        return None
    places: list[tuple[str, str | None]] = []
    for spot in item.spots:  # a comprehension is one more call with every answer
        places.append((spot.field, spot.value.text if spot.value else None))  # noqa: PERF401  # saves a call
    return values_in_order(write.content.values, places)


def record_mark(
    collection: Collection, revealed: Revealed | None, writes: Sequence[StagedWrite]
) -> bytes:
    """A mark of those values of the only record that share tokens; empty where there are none."""
    rows = revealed.rows if revealed is not None else ()
    row = rows[0] if len(rows) == 1 else None
    rid, content = (row.row.rid, row.live) if row is not None else (0, None)
    one = writes[0] if len(writes) == 1 else None
    if one is not None and (row is None or row.row.rid != one.rid):
        rid, content = one.rid, one.content if one.row is None else one.promoted or one.live
    return collection.mark(rid, content) if content is not None else b""


def _by_field(write: StagedWrite) -> _FieldValues:
    by_field: _FieldValues = {}
    for content in (
        (write.live, write.content) if write.content is not write.live else (write.live,)
    ):
        for name, values in content.values.items() if content is not None else ():
            tokens = by_field.setdefault(name, {})
            for value in values:
                tokens[value.token] = Value(value.text, value.json)
    return by_field


def _repeated(write: StagedWrite) -> dict[tuple[str, str], Iterator[Value]]:
    """The values of the record that share a token of their field, in their order."""
    repeated: dict[tuple[str, str], Iterator[Value]] = {}
    for name, values in write.content.values.items() if write.content is not None else ():
        if len(values) > 1 and len(set(tokens_of(values))) < len(values):
            several: dict[str, list[Value]] = {}
            for value in values:
                several.setdefault(value.token, []).append(value.value)
            repeated.update(
                {(name, token): iter(those) for token, those in several.items() if len(those) > 1}
            )
    return repeated


# The caller's own words: texts of a request in the clear, as an application may repeat them in a
# page.
#
# Only for pages in which a rule restores every token (``restore: anywhere``). A token that the
# caller wrote into the request in one of the usual forms stays a text. The forms cannot be
# enumerated completely, so errors follow another rule (``answer_scan``).


#: Bytes of a request gone through for the tokens of one page, a tenth of a second: one of 1 KiB
#: leaves room for some 60,000 tokens. And for the tokens of one part.
_BYTES = 1 << 28
_PART_BYTES = 1 << 23
#: Tokens of one part.
_PART = 1_000

_ESCAPE = re.compile(rb"\\(?:u00([0-7][0-9A-Fa-f])|([/\"\\]))")


class RequestText:
    """The text of a request; searched only for tokens that the exchange does not know."""

    def __init__(self, request: Request) -> None:
        request = request.received or request  # of a value it wrote, the token is not its own
        parts = [request.target, *(value for _, value in request.headers), request.body]
        raw = b"\n".join(parts)
        unescaped, spaced = _ESCAPE.sub(_character, raw), raw.replace(b"+", b" ")
        bare = [*map(unquote_to_bytes, (unescaped, spaced))]
        bare += [without_references(one) for one in bare if b"&#" in one]
        self._forms = (raw, unescaped, *bare)
        self.full = False  #: whether some tokens were not looked for

    def others(self, tokens: Sequence[str]) -> Iterator[list[str]]:
        """The tokens that the request does not hold, as they are or escaped as JSON, addresses and
        HTML do; in parts that take no time. What there is no time for counts as held.
        """
        size = 1 + sum(map(len, self._forms))
        most, step = _BYTES // size, min(_PART, 1 + _PART_BYTES // size)
        self.full = len(tokens) > most
        for start in range(0, min(len(tokens), most), step):
            part = tokens[start : min(start + step, most)]
            yield [one for one in part if not self._hold(one.encode("utf-8", "surrogatepass"))]

    def _hold(self, token: bytes) -> bool:
        return any(token in form for form in self._forms)


def _character(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 16)]) if match[1] else match[2]
