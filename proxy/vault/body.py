"""Body of a record: its values, each with the token that stands for it."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.model.record import Action, Eras, Fields, Record, RehashTokens
from proxy.model.schema import Value
from proxy.offload import FEW


class TokenizedValue(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A stored value and its token.

    The token is kept as text even where it could be computed again: a token once given stays until
    its value changes, also when the rule file gives the field another shape. ``number`` is unique
    within the record for as long as it lives and makes random tokens of one record differ.
    """

    number: int
    text: str
    json: bool
    token: str
    token_json: bool

    @property
    def value(self) -> Value:
        return Value(self.text, self.json)

    @property
    def is_erased(self) -> bool:
        """Whether nothing is left of it but its token."""
        return self.json and not self.text

    @property
    def stands_for(self) -> Value:
        """The token as it goes to the application."""
        return Value(self.token, self.token_json)


_SHORT = {
    "values": "v",
    "following": "n",
    "fields": "f",
    "action": "a",
    "by": "b",
    "at": "t",
    "tokens": "k",
    "eras": "e",
    "key": "y",
    "deleted": "d",
    "until": "u",
    "earlier": "p",
    "written": "w",
}


class RecordBody(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename=_SHORT):
    """A version of a record, written by the proxy or by the interface.

    The proxy collects ``values``, each with its token; a caller of the interface writes
    ``fields``, which nothing stands for outside.
    """

    values: dict[str, tuple[TokenizedValue, ...]] = {}
    following: int = 1  #: the next free value number
    fields: Fields = {}
    action: Action = Action.CREATE
    by: str = ""  #: the client that made this version
    at: int = 0  #: when, in milliseconds since the epoch; 0: as the row says
    tokens: RehashTokens | None = None  #: those that a rehash has made
    eras: Eras | None = None  #: of ``fields``, where a text has changed
    key: str | None = None  #: in the note of a deletion, where the fields do not have it
    #: when the application marked the record as deleted and its rule kept the values; 0: it did not
    deleted: int = 0
    until: int = 0  #: when those values go; 0: with another delete
    #: values of earlier versions under their own tokens, the oldest first (``versions: keep``)
    #: and what is left of erased ones: the tokens, which stand for ``NO_VALUE``
    earlier: dict[str, tuple[TokenizedValue, ...]] = {}
    #: when fields were written last by updates, where a field's values have one token; a sequence
    #: number
    written: dict[str, int] = {}

    @property
    def names_itself(self) -> bool:
        """Whether it contains the key of its record, so that no statement does."""
        return bool(self.fields)

    @property
    def many(self) -> bool:
        """Whether some field has too many values for a walk on the event loop."""
        return max(map(len, self.values.values()), default=0) > FEW

    def end(self, before: int | None, usual: int | None) -> int | None:
        """When a row with this version ends, where the one before ended then and a live one ends
        as usual: what its rule keeps of a deleted record is not put off.
        """
        if not self.deleted:
            return usual
        return min((one for one in (before, self.until or None) if one is not None), default=None)

    def within(self, live: "RecordBody | None") -> "RecordBody":
        """The same without values of fields that ``live`` has none of; ``None``: as it is."""
        if live is None or self.values.keys() <= live.values.keys():
            return self
        values = {name: several for name, several in self.values.items() if name in live.values}
        return msgspec.structs.replace(self, values=values)

    def written_since(self, at: int, begun: int) -> "TokenizedFields":
        """The fields that were written after ``at``, of a record that began at ``begun``."""
        names = (
            self.values if at < begun else [name for name, of in self.written.items() if of > at]
        )
        return {name: self.values.get(name, ()) for name in names}

    def age(self, name: str, values: Sequence[TokenizedValue]) -> tuple[int, int]:
        """When a field with these values was written: of two versions, the later one has more.

        Numbers of values decide where that is not noted; records that were joined have new ones.
        """
        return self.written.get(name, 0), max((one.number for one in values), default=0)

    def with_create(self, rid: int) -> dict[str, int]:
        """When each field was written last, those of the create with the number of its record."""
        return {**dict.fromkeys(self.values, rid), **self.written}

    def written_with(self, name: str, other: "RecordBody") -> set[str]:
        """The fields that were written last by the requests that wrote this one, in both versions.

        A request that is not noted is the create.
        """
        mine, theirs = self.written, other.written
        pair = mine.get(name), theirs.get(name)
        names = self.values.keys() & other.values.keys()
        return {one for one in names if (mine.get(one), theirs.get(one)) == pair}

    def value_tokens(self) -> set[tuple[str, str]]:
        """Every (field, token text) of the values."""
        return {(name, value.token) for name, values in self.values.items() for value in values}


TOKEN_OF: Final = attrgetter("token")


def tokens_beyond(body: RecordBody | None, names: Container[str]) -> set[str]:
    """The tokens of other fields than these: the rules had fields once that have gone, or have
    other names now.
    """
    some = body.values.items() if body is not None else ()
    return {one.token for name, values in some if name not in names for one in values}


#: The values of a version, by field.
TokenizedFields = Mapping[str, tuple[TokenizedValue, ...]]

#: No values: the first member of bodies that the interface writes.
NO_VALUES: Final[dict[str, tuple[TokenizedValue, ...]]] = {}

# The first byte of a packed body tells its format. JSON carries all of it, with exact numbers.
# Values alone, the content of an exchange, take a third less time as a pair in MessagePack. Both
# have been written since 0.1.0, so that every store opens unchanged.
_JSON, _PAIR = 0x7B, 0x92
_PAIR_BYTE: Final = b"\x92"

_encode_json = msgspec.json.Encoder(decimal_format="number").encode
_decode_json = msgspec.json.Decoder(RecordBody, float_hook=Decimal).decode
_encode_pair = msgspec.msgpack.Encoder().encode
_decode_pair = msgspec.msgpack.Decoder(tuple[dict[str, tuple[TokenizedValue, ...]], int]).decode


def pack(body: RecordBody) -> bytes:
    """The body as bytes, ready to be sealed; decimals keep all of their digits."""
    if body.fields or body.at or body.deleted or body.earlier or body.written:
        return _encode_json(body)
    return _encode_pair((body.values, body.following))


#: ``pack`` of the values and the next number of a body that has nothing else.
pack_plain: Final = _encode_pair


def unpack(clear: bytes) -> RecordBody:
    """The body of opened bytes; a decimal without a point comes back as ``int``.

    Raises ``VaultError(CANNOT_OPEN)`` for a format that this version does not know.
    """
    form = clear[0] if clear else 0
    if form == _PAIR:
        return RecordBody(*_decode_pair(clear))
    if form == _JSON:
        return _decode_json(clear)
    raise VaultError(
        Code.CANNOT_OPEN,
        "The body of a record has a format that this version does not know: a newer one wrote it.",
    )


def unpack_values(clear: bytes) -> TokenizedFields | None:
    """The values of opened bytes that hold nothing else; ``None`` where they do."""
    return _decode_pair(clear)[0] if clear[:1] == _PAIR_BYTE else None


def next_generation(contents: Iterable[RecordBody]) -> int:
    """The next value number that none of these versions of one record has used."""
    return max([content.following for content in contents], default=1)


def changed(live: TokenizedFields, other: TokenizedFields) -> set[str]:
    """The fields in which two versions of a record differ, in values or in tokens."""
    names: set[str] = set()
    for name, values in live.items():
        others = other.get(name, ())
        if values is not others and _differ(values, others):
            names.add(name)
    for name, values in other.items():
        if values and name not in live:
            names.add(name)
    return names


def alike(live: TokenizedFields, other: TokenizedFields) -> set[str]:
    """The fields that differ in values only: no answer tells which of the two was kept."""
    return {
        name
        for name in changed(live, other)
        if tokens_of(live.get(name, ())) == tokens_of(other.get(name, ()))
    }


def values_in_order(
    fields: TokenizedFields, places: Iterable[tuple[str, str | None]]
) -> list[Value | None] | None:
    """The values of an object's (field, token) in its order; ``None`` unless all are known.

    A place without a token has no value.
    """
    values: list[Value | None] = []
    reached: dict[str, int] = {}  #: by field, how many of its values came already
    add, find = values.append, fields.get
    for name, text in places:
        if text is None:
            add(None)
            continue
        stored, at = find(name, ()), 0
        if name in reached:
            at = reached[name]
        if at == len(stored) or (value := stored[at]).token != text:
            return None
        add(Value(value.text, value.json))
        reached[name] = at + 1
    return values


def renumbered(
    fields: TokenizedFields, start: int
) -> tuple[dict[str, tuple[TokenizedValue, ...]], int]:
    """The values under numbers that are free in their new record, and the next free one."""
    moved: dict[str, tuple[TokenizedValue, ...]] = {}
    for name, values in fields.items():
        moved[name] = tuple(
            TokenizedValue(number, value.text, value.json, value.token, value.token_json)
            for number, value in enumerate(values, start)
        )
        start += len(values)
    return moved, start


def renumbered_versions(versions: Sequence[RecordBody], start: int, rid: int) -> list[RecordBody]:
    """Values and earlier values of these versions of a record under numbers from ``start`` on.

    The order of the numbers stays, for it tells which value was written later. ``rid``: the number
    of their record, where it is noted when fields were written; else 0.
    """
    parts = [list(part.values()) for one in versions for part in (one.earlier, one.values)]
    values = dict.fromkeys(value for part in parts for several in part for value in several)
    order = sorted(values, key=attrgetter("number"))
    moved = {value: replace(value, number=at) for at, value in enumerate(order, start)}

    def renumber(fields: TokenizedFields) -> dict[str, tuple[TokenizedValue, ...]]:
        return {name: tuple(map(moved.__getitem__, several)) for name, several in fields.items()}

    following = start + len(moved)
    return [
        RecordBody(renumber(one.values), following, earlier=renumber(one.earlier), written=written)
        for one in versions
        for written in [one.with_create(rid) if rid else one.written]
    ]


def tokens_of(values: Iterable[TokenizedValue]) -> tuple[str, ...]:
    """The tokens of values, in their order."""
    return tuple(map(TOKEN_OF, values))


def _differ(one: Sequence[TokenizedValue], other: Sequence[TokenizedValue]) -> bool:
    if len(one) != len(other):
        return True
    for index, value in enumerate(one):
        twin = other[index]
        if value.text != twin.text or value.json != twin.json or value.token != twin.token:
            return True
    return False


class Extras(NamedTuple):
    """Parts of a document other than the fields."""

    tokens: RehashTokens | None = None
    eras: Eras | None = None


#: No other parts.
NO_EXTRAS: Final = Extras()


# Eras of values: which value of its field a text is, counted by changes and independent of its
# content.
#
# A redacted text stays the same until the value behind it changes, and does not return when that
# one does. So each record remembers for each text the version that brought it: a new number for
# every change, since versions only grow. A text that came with the record itself has none, so that
# a new record stores nothing.
#
# A writer of a text that it does not see begins an era in any case. Else it could write a guess,
# and learn from the redacted value whether it was right.

#: Makes one era of the numbers of several values: a prime beyond those that records have, and a
#: bound.
_MANY, _BEYOND = 1_000_003, 2**61 - 1


def next_eras(before: Record, after: Fields, fresh: Collection[str], version: int) -> Eras:
    """The eras of the version that has the fields ``after``.

    Texts of ``fresh`` fields count as new.
    """
    previous = before.eras or {}
    eras: Eras = {}
    for name, value in after.items():
        if not isinstance(value, str):
            continue
        if name in fresh or value != before.fields.get(name):
            eras[name] = version
        elif name in previous:
            eras[name] = previous[name]
    return eras


def moved(documents: Iterable[RecordBody], first: int) -> list[RecordBody]:
    """Turn versions of a record into those of another one, from ``first`` on, with new eras."""
    begun: dict[tuple[str, object], int] = {}
    versions: list[RecordBody] = []
    for version, document in enumerate(documents, first):
        eras = document.eras or {}
        fresh: Eras = {
            name: begun.setdefault((name, eras.get(name, 0)), version)
            for name, value in document.fields.items()
            if isinstance(value, str)
        }
        versions.append(replace(document, eras=fresh))
    return versions


def texts_of(content: RecordBody) -> tuple[Fields, Eras]:
    """Return the fields of a proxied record and their eras.

    A field is a text, or a list if it has several.

    The number of a value is its era: it is unique within the record, and another value has another
    one.
    """
    fields: Fields = {}
    eras: Eras = {}
    for name, values in content.values.items():
        if values:
            alone = len(values) == 1
            fields[name] = values[0].text if alone else [value.text for value in values]
            eras[name] = values[0].number if alone else [value.number for value in values]
    return fields, eras


def array_of(values: Sequence[TokenizedValue]) -> str:
    """Several texts as the text of a JSON array."""
    return msgspec.json.encode([value.text for value in values]).decode()


def era_of(values: Sequence[TokenizedValue]) -> int:
    """The era of several values as one: another one as soon as one of them is another."""
    era = 0
    for value in values:
        era = (era * _MANY + value.number) % _BEYOND
    return era
