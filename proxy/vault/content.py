"""What a sealed body holds: the values of one record, each with the token that stands for it."""

from collections.abc import Iterable, Mapping

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


def changed(live: Mapping[str, tuple[Kept, ...]], other: Mapping[str, tuple[Kept, ...]]) -> set[str]:
    """The fields in which two versions of a record differ in tokens."""
    names = live.keys() | other.keys()
    return {name for name in names if _texts(live.get(name, ())) != _texts(other.get(name, ()))}


def _texts(values: tuple[Kept, ...]) -> tuple[str, ...]:
    return tuple(kept.token for kept in values)
