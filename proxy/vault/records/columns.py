"""Columns and index entries stored beside the bodies of records."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.record import Fields, RehashTokens
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage.query import ValidatedQuery
from proxy.storage.rows import ColumnValue, Row, spelled_exactly
from proxy.tokenization.normalize import folded, normalize, plain_text
from proxy.vault.collection import Collection
from proxy.vault.part_index import field_life, forms_of, part_index, texts_of_field, under_other

_encode = msgspec.json.Encoder(decimal_format="string").encode

#: Where something stands in a JSON document, from its root.
NgramSteps = tuple[str | int, ...]


def leaves(document: Any, at: NgramSteps = ()) -> Iterator[tuple[NgramSteps, Any, bool]]:
    """Every scalar of a JSON document: (where, value, whether it is an element of the array that
    stands there).

    An element of an array is indexed twice: at its own number, and as an element of the array.
    """
    if isinstance(document, dict):
        for name, value in document.items():
            yield from leaves(value, (*at, name))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            if not isinstance(value, dict | list):
                yield at, value, True
            yield from leaves(value, (*at, number))
    else:
        yield at, document, False


def leaf(at: NgramSteps, value: Any, inside: bool) -> bytes:
    """A leaf as bytes to hash: equal for equal values in any spelling (``1`` and ``1.0``)."""
    if isinstance(value, str):
        value = plain_text(value)
    elif isinstance(value, int | Decimal) and not isinstance(value, bool):
        value = [_spelled(Decimal(value))]  # in a list, so that no text is taken for it
    return _encode([inside, at, value])


def _spelled(value: Decimal) -> str:
    """Return the canonical text of a number; no exponent can make it long."""
    sign, digits, exponent = value.as_tuple()
    significant = "".join(map(str, digits)).lstrip("0")
    bare = significant.rstrip("0")
    if not bare or not isinstance(exponent, int):
        return "0"
    return f"{'-' if sign else ''}{bare}e{exponent + len(significant) - len(bare)}"


#: Converts a value to the column of its field.
ToCell = Callable[[Any], ColumnValue]


class Columns:
    """Columns and index entries of the records of one schema."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.schema: Schema = collection.schema
        #: ``None`` in a schema that rules declare: the ids of the application are the keys.
        self.primary = self.schema.primary
        keyset = collection.context.keyset
        self._hashers = {
            field.name: keyset.hasher("field", self.schema.name, field.name)
            for field in self.schema.fields
        }
        hash_parts = {
            field: keyset.hasher("gram", self.schema.name, field.name, *field_life(field))
            for field in self.schema.fields
            if field.hashed_parts
        }
        self._parts = {field.name: part_index(of, field) for field, of in hash_parts.items()}
        #: the same under the other hash root, while there are two
        self._other_parts = {
            field.name: part_index(under_other(of), field) for field, of in hash_parts.items()
        }
        self._leaf = {
            field.name: keyset.hasher("json", self.schema.name, field.name, *field_life(field))
            for field in self.schema.fields
            if field.type is FieldType.JSON and field.storage is not Storage.ENCRYPTED
        }
        #: Hashes a rehash token for look-ups.
        self.rehashed = keyset.hasher("rehashed", self.schema.name)
        #: Whether the token index has anything of a record.
        self.has_parts = bool(self._parts or self._leaf)
        self._columns = {
            field.name: column
            for field, column in zip(self.schema.column_fields, collection.columns, strict=True)
        }
        self._places = {
            field.name: index for index, field in enumerate(collection.slots) if field is not None
        }
        #: fields whose column is a hash, and questions that the columns allow
        self.hashed = frozenset(
            field.name
            for field in self.schema.column_fields
            if field.storage is Storage.INDEXED_HASHED and field.type is not FieldType.PRIMARY_KEY
        )
        self.validated = ValidatedQuery(collection.layout)
        self._to_cell = {field.name: self._column(field) for field in self.schema.fields}
        #: which field a column is of
        self.field_in = {column: name for name, column in self._columns.items()}
        self._cells = [
            None if of is None else (of.name, self._to_cell[of.name]) for of in collection.slots
        ]

    def cells(self, fields: Fields) -> tuple[ColumnValue, ...]:
        """Return the columns of a record, in the order of the layout."""
        cells: list[ColumnValue] = []
        for of in self._cells:  # no comprehension, which is one more call
            value = None if of is None else fields.get(of[0])
            cells.append(None if of is None or value is None else of[1](value))
        return tuple(cells)

    def hashes(self, fields: Fields, *, before: bool = False) -> set[bytes]:
        """Return the token index entries of a record: hashes of text parts and JSON leaves.

        ``before``: also in forms in which texts are not indexed any more, and under the other hash
        root, so that they go with the text.
        """
        hashes: set[bytes] = set()
        if not self.has_parts:
            return hashes
        for name, index in self._parts.items():
            value = fields.get(name)
            for one in texts_of_field(value):
                for text in forms_of(index, one) if before else (folded(one),):
                    hashes.update(index.entries(text))
        for name, hash_of in self._leaf.items():
            value = fields.get(name)
            if value is not None:
                hashes.update(hash_of(leaf(at, item, inside)) for at, item, inside in leaves(value))
        return hashes | self.other_parts(fields) if before and self.two_roots else hashes

    @property
    def two_roots(self) -> bool:
        """Whether rows may have hashes under either of two roots."""
        return self.collection.context.keyset.live_hash_roots[0].other is not None

    def other_parts(self, fields: Fields) -> set[bytes]:
        """Return the text parts of ``hashes`` under the other root."""
        return {
            bytes(entry)
            for name, index in self._other_parts.items()
            for one in texts_of_field(fields.get(name))
            for text in forms_of(index, one)
            for entry in index.entries(text)
        }

    def token_hashes(self, tokens: RehashTokens) -> set[bytes]:
        """Return the token index entries of tokens that a rehash has made."""
        return {
            self.rehashed(text.encode())
            for one in tokens.values()
            if one.indexed
            for text in (one.token, *one.old)
        }

    def column(self, name: str) -> str:
        """The column that holds a field that has one (``KeyError``), as questions name it.

        Raises as ``refuse_unready``.
        """
        self.refuse_unready(name)
        return self._columns[name]

    def refuse_unready(self, name: str) -> None:
        """Raise ``VaultError(OVERLOADED)`` while records of before get what a field is found by: an
        answer would lack some.
        """
        if name in self.collection.state.filling:
            raise VaultError(
                Code.OVERLOADED,
                "The vault is still making records ready for this search; send the request again "
                "later.",
            )

    def stored(self, row: Row, name: str) -> ColumnValue:
        """Return a row's value in the column of a field that has one (``KeyError``)."""
        at = self._places[name]
        return row.cells[at] if at < len(row.cells) else None

    def cell(self, name: str, value: Any) -> ColumnValue:
        """Return the column value of a field; for the primary key, the hash in ``@key``."""
        return self._to_cell[name](value)

    def part_entries(self, name: str, text: str) -> list[list[bytes]]:
        """Lists of index entries: a text with this one inside has all entries of one list.

        Other texts may have them, too. Raises as ``refuse_unready``.
        """
        self.refuse_unready(name)
        return [
            entries
            for parts in ((self._parts, self._other_parts) if self.two_roots else (self._parts,))
            for form in forms_of(parts[name], text)
            for entries in parts[name].alternatives(form)
        ]

    def leaf_hash(self, name: str, at: NgramSteps, value: Any, *, inside: bool) -> bytes:
        """The index entry of a JSON field with that scalar; ``inside``: an array's element."""
        return self._leaf[name](leaf(at, value, inside))

    def _column(self, field: Field) -> ToCell:
        if field.type is FieldType.PRIMARY_KEY:
            return self.collection.key_hash
        text = self._spelling(field)
        if field.storage is Storage.INDEXED_HASHED:
            return self._hashed(text, self._hashers[field.name])
        if field.type in (FieldType.INTEGER, FieldType.BOOLEAN):
            return int
        return text

    def _hashed(self, text_of: Callable[[Any], str], hash_of: Callable[[bytes], bytes]) -> ToCell:
        """The same hash, of one text not made twice in a row: a question has it made to be asked,
        and again of each record that it finds.
        """
        roots = self.collection.context.keyset.live_hash_roots
        last: tuple[str, bytes, object] = "", b"", None

        def cell(value: Any) -> bytes:
            nonlocal last
            current, (text, digest, under) = roots[0], last
            if under is current and type(value) is str and value == text:
                return digest
            digest = hash_of(text_of(value).encode())
            if type(value) is str:
                last = value, digest, current
            return digest

        return cell

    def _spelling(self, field: Field) -> Callable[[Any], str]:
        """The normal form of a value as text."""
        if field.type is FieldType.STRING:
            if field.kind == "text":
                return plain_text
            region = self.collection.context.region
            return lambda value: normalize(field.kind, value, region)
        if field.type is FieldType.DECIMAL:
            return spelled_exactly
        if field.type is FieldType.BOOLEAN:
            return lambda value: "true" if value else "false"
        return str
