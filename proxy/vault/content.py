"""What a sealed body holds: the values of one record, each with the token that stands for it."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proxy.model.value import Value


class Kept(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One stored value and its token.

    The token is kept as text even where it could be computed again: a token once given stays until its value
    changes, also when the rule file gives the field another shape. ``number`` is unique within the record for
    as long as it lives and makes random tokens of one record differ.
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
    def stands_for(self) -> Value:
        """The token as it goes to the application."""
        return Value(self.token, self.token_json)


class Content(msgspec.Struct, array_like=True, frozen=True):
    """All values of a record by field name, and the next free value number."""

    fields: dict[str, tuple[Kept, ...]]
    following: int = 1

    def tokens(self) -> set[tuple[str, str]]:
        """Every (field, token text) of the record."""
        return {(name, kept.token) for name, values in self.fields.items() for kept in values}


#: The values of a version, by field.
Fields = Mapping[str, tuple[Kept, ...]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Content).decode


def pack(content: Content) -> bytes:
    """The content as bytes, ready to be sealed."""
    return _encode(content)


def unpack(plain: bytes) -> Content:
    """The content from opened bytes; ``msgspec.DecodeError`` cannot happen to bytes that authenticated."""
    return _decode(plain)


def following(contents: Iterable[Content]) -> int:
    """The next value number that none of these versions of one record has used."""
    return max((content.following for content in contents), default=1)


def changed(live: Fields, other: Fields) -> set[str]:
    """The fields in which two versions of a record differ, in values or in tokens."""
    return {name for name in live.keys() | other.keys() if _said(live.get(name, ())) != _said(other.get(name, ()))}


def alike(live: Fields, other: Fields) -> set[str]:
    """The fields in which they differ in values only: no answer of the application tells which of the two it kept."""
    return {name for name in changed(live, other) if tokens(live.get(name, ())) == tokens(other.get(name, ()))}


def tells(shown: Sequence[str], old: Sequence[Kept], new: Sequence[Kept]) -> bool | None:
    """Whether an application that shows these tokens of a field has kept its newer values; ``None``: they do not tell."""
    before, after, texts = tokens(old), tokens(new), set(shown)
    if before == after or not texts:
        return None
    if texts & (set(after) - set(before)):
        return True
    if texts & (set(before) - set(after)):
        return False
    if sorted(before) != sorted(after):  # values were added, or taken away, and a part of them may be shown
        return None
    return True if tuple(shown) == after else False if tuple(shown) == before else None


def taken(shown: Iterable[tuple[str, str]], live: Content, versions: Sequence[Content]) -> list[bool | None]:
    """For each version in doubt whether the application took it, as far as an object with these (field, token) tells.

    It did where the object shows what only this version has, among those that it may have taken. It did not where the object
    shows what the version replaces.
    """
    here, before, own = set(shown), live.tokens(), [version.tokens() for version in versions]
    against = [bool(here & (before - mine)) for mine in own]
    told = [bool(here & (mine - before).difference(*own[:at], *own[at + 1 :])) for at, mine in enumerate(own)]
    verdicts: list[bool | None] = []
    for at, mine in enumerate(own):
        rivals = [other for index, other in enumerate(own) if index != at and (told[index] or not against[index])]
        lone = not against[at] and bool(here & (mine - before).difference(*rivals))
        verdicts.append(True if told[at] or lone else False if against[at] else None)
    return verdicts


def newest(values: Iterable[Kept]) -> int:
    """What tells which of two versions wrote a field later: numbers of values only grow."""
    return max((kept.number for kept in values), default=0)


def adopted(shown: Sequence[str], old: Sequence[Kept], new: Sequence[Kept]) -> tuple[Kept, ...]:
    """The newer values of a field, and those older ones that the application shows all the same: it adds to what it has."""
    beyond = set(shown) - set(tokens(new))
    return (*new, *(kept for kept in old if kept.token in beyond))


def tokens(values: Iterable[Kept]) -> tuple[str, ...]:
    """The tokens of values, in their order."""
    return tuple(kept.token for kept in values)


def _said(values: Iterable[Kept]) -> tuple[tuple[str, bool, str], ...]:
    return tuple((kept.text, kept.json, kept.token) for kept in values)
