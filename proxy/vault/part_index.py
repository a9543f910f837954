"""Index of text parts, in which the store sees only keyed hashes.

The grams of a text are all runs of three characters of its folded normal form. A searched text has
all its grams in each text that contains it; the reverse is not certain, and several grams share an
entry of the index, so a query opens its candidates (``records.query``).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from proxy.crypto.prf import Prf
from proxy.errors import Code, VaultError
from proxy.model import length_of
from proxy.model.schema import Field, Schema
from proxy.storage.changes import Reindex
from proxy.tokenization.normalize import DOTTED_I, casefolded, folded
from proxy.vault.body import RecordBody

#: Characters of a gram, and so the shortest text that can be searched for.
SIZE = 3
_GRAM = re.compile("." * SIZE, re.DOTALL)


def folded_before(text: str) -> str | None:
    """The form that was indexed before ``İ`` was found by ``i``; ``None`` where it is the same."""
    if text.isascii() or DOTTED_I not in (earlier := casefolded(text)):
        return None
    return earlier


def grams(text: str) -> set[str]:
    """Every three characters in a row of a folded text; none of a shorter one."""
    return {gram for start in range(SIZE) for gram in _GRAM.findall(text, start)}


# The index of parts. A reader of the store without a key sees the entries of a row, and may know
# how common each text is. So texts of about one length have the same number of entries, several
# grams share one, and the texts are spread over groups, in each of which a gram has another entry:
# frequent texts reveal next to nothing about others.

#: Entries of the shortest texts; longer ones have twice as many, four times …
_SMALLEST = 8
#: Buckets for each entry of a text: one text of twenty has a bucket.
_SPREAD = 20
#: Groups of texts by their class of entries; a single one for longer texts, which are no names.
_GROUPS, _GROUPED = 16, 32
#: Characters that folding makes of one, at most (of U+FDFA).
_UNFOLDED = 18
#: Buckets of a text in a query: a row has them all by chance once in 10^10.
_AT_MOST = 8

_BUCKET, _GROUP, _FILL = b"\x00", b"\x01", b"\x02"  # hashed texts begin with their purpose


class PartIndex:
    """The entries by which the texts of one field are found by their parts."""

    def __init__(self, hash_of: Prf, longest: int) -> None:
        self._hash = hash_of
        self._classes = [_SMALLEST]
        while self._classes[-1] < longest * _UNFOLDED:
            self._classes.append(2 * self._classes[-1])

    def entries(self, text: str) -> set[bytes]:
        """Return the index entries of a folded text, as many as its class has."""
        parts, encoded = grams(text), text.encode()
        size = next((one for one in self._classes if one >= len(parts)), self._classes[-1])
        group = self._hash(_GROUP + encoded)[0] % _groups(size)
        prefix, entries = self._buckets(size, group, parts)
        drawn = 0
        while len(entries) < size:
            fill = self._hash(_FILL + drawn.to_bytes(4, "big") + encoded)
            entries.update(
                prefix + _number(fill[at : at + 4], size)
                for at in range(0, len(fill), 4)[: size - len(entries)]
            )
            drawn += 1
        return entries

    def alternatives(self, text: str) -> list[list[bytes]]:
        """Entries that a text has all in which this folded one occurs, for each class and group."""
        parts = grams(text)
        return [
            sorted(self._buckets(size, group, parts)[1])[:_AT_MOST]
            for size in self._classes
            if size >= len(parts)
            for group in range(_groups(size))
        ]

    def _buckets(self, size: int, group: int, parts: Iterable[str]) -> tuple[bytes, set[bytes]]:
        head = _BUCKET + bytes((size.bit_length(), group))
        prefix = self._hash(head)[:12]
        return prefix, {prefix + _number(self._hash(head + part.encode()), size) for part in parts}


def _groups(size: int) -> int:
    return _GROUPS if size <= _GROUPED else 1


def _number(digest: bytes, size: int) -> bytes:
    """The bucket of a digest, one of those of a class."""
    return (int.from_bytes(digest[:4], "big") % (size * _SPREAD)).to_bytes(4, "big")


class FinePartIndex:
    """The form of earlier versions, an entry for each gram, until it is rebuilt."""

    def __init__(self, hash_of: Prf) -> None:
        self._hash = hash_of

    def entries(self, text: str) -> set[bytes]:
        """Return the index entries of the grams of a folded text."""
        return {self._hash(gram.encode()) for gram in grams(text)}

    def alternatives(self, text: str) -> list[list[bytes]]:
        """The entries of each text in which this folded one occurs."""
        return [list(self.entries(text))]


def under_other(hash_of: Prf) -> Prf:
    """The hash under the other root, while there are two."""
    return lambda message: getattr(digest := hash_of(message), "other", digest)


def part_index(hash_of: Prf, field: Field) -> PartIndex | FinePartIndex:
    """The index of the parts of a field."""
    return FinePartIndex(hash_of) if field.fine_parts else PartIndex(hash_of, length_of(field))


def forms_of(index: PartIndex | FinePartIndex, text: str) -> list[str]:
    """The forms of a text in the index: the current one, and the former one in an old index."""
    before = folded_before(text) if isinstance(index, FinePartIndex) else None
    return [folded(text)] if before is None else [folded(text), before]


def field_life(field: Field) -> tuple[str, ...]:
    """Return the label that separates a field's index entries from those of an earlier field."""
    return (str(field.life),) if field.life else ()


def texts_of_field(value: Any) -> Sequence[str]:
    """The texts of a field; proxied records may have several."""
    return () if value is None else (value,) if isinstance(value, str) else value


#: Characters of a collected value in a field that is searched in part.
LONGEST = 1000


class CollectedParts:
    """Part index of the proxied records of one schema."""

    def __init__(self, hasher: Callable[..., Prf], schema: Schema) -> None:
        indexes = {
            field: part_index(hasher("gram", schema.name, field.name, *field_life(field)), field)
            for field in schema.fields
        }
        self._indexes = {of.name: index for of, index in indexes.items() if of.hashed_parts}
        self.names = frozenset(self._indexes)  #: of the fields that are searched in part
        self._others = {of.name: index for of, index in indexes.items() if not of.hashed_parts}

    def hashes(self, content: RecordBody) -> set[bytes]:
        """The entries of a version."""
        return _entries(self._indexes, content)

    def leftovers(self, content: RecordBody) -> set[bytes]:
        """Return the entries it may have of fields that are no longer searched in part."""
        return _entries(self._others, content)

    def moves(self, rid: int, before: RecordBody, after: RecordBody) -> list[Reindex]:
        """Return the index changes from one live version of a record to the next."""
        if all(before.values.get(name) == after.values.get(name) for name in self._indexes):
            return []
        new, old = self.hashes(after), self.hashes(before)
        return [Reindex(rid, tuple(new), tuple(old - new))]

    def check(self, content: RecordBody) -> None:
        """Raise ``VaultError(VALUE_UNFIT)`` for a value too long to be found by its parts."""
        for name in self._indexes:
            if any(len(value.text) > LONGEST for value in content.values.get(name, ())):
                raise VaultError(
                    Code.VALUE_UNFIT,
                    f"A value of {name} has more than {LONGEST} characters, and parts of it could "
                    "not be searched for: send a shorter one, or leave 'partial' out of the rule.",
                )


def _entries(indexes: Mapping[str, PartIndex | FinePartIndex], content: RecordBody) -> set[bytes]:
    return {
        entry
        for name, index in indexes.items()
        for value in content.values.get(name, ())
        if len(value.text) <= LONGEST
        for entry in index.entries(folded(value.text))
    }
