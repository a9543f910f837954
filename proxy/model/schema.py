"""What a record type looks like: its fields, their types and how each one is stored.

Types and storage classes are those of the interface specification, "Model record".
"""

import enum

import msgspec


class FieldType(enum.StrEnum):
    """Declarable field types (specification, "Model record")."""

    PRIMARY_KEY = "primary_key"
    STRING = "string"
    INTEGER = "integer"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATETIME = "datetime"
    DATE = "date"
    TIME = "time"
    JSON = "json"


class Storage(enum.StrEnum):
    """How a field is stored and therefore what can be asked of it.

    ``INDEXED`` keeps the typed value in the clear beside the sealed body; ``INDEXED_HASHED`` keeps a keyed
    hash of its normal form; ``ENCRYPTED`` keeps nothing outside the sealed body.
    """

    INDEXED = "indexed"
    INDEXED_HASHED = "indexed_hashed"
    ENCRYPTED = "encrypted"


class Field(msgspec.Struct, frozen=True):
    """One field of a schema. ``kind`` names the normal form that hashes and same-value tokens use."""

    name: str
    type: FieldType = FieldType.STRING
    storage: Storage = Storage.ENCRYPTED
    kind: str = "text"
    required: bool = False  #: a record without a value for it is refused
    max_length: int | None = None  #: characters of a string; ``None``: what the limits say
    partial_match: bool = False  #: parts of the text can be searched for through keyed n-grams
    #: Which of the fields of this name it is: each change of what stands beside the sealed body begins another life, whose
    #: column and index entries are its own, so that nothing of an earlier one is ever taken for it.
    life: int = 0

    @property
    def has_column(self) -> bool:
        """Whether it has a column of its own beside the sealed body. The primary key is the row's key; JSON is asked by hashes of its leaves."""
        return self.storage is not Storage.ENCRYPTED and self.type not in _WITHOUT_COLUMN

    @property
    def why_unasked(self) -> str:
        """Why nothing can be asked of an encrypted field; completes a sentence."""
        return "the field is stored encrypted, and nothing is kept beside it"


class Veiled(Field, frozen=True):
    """A field as a caller knows it who must not see its value; it is as good as encrypted, so that nothing can be asked of it."""

    how: str = "redacted"

    @property
    def why_unasked(self) -> str:
        return f"it is shown {self.how}, and an answer would tell more of it"


_WITHOUT_COLUMN = (FieldType.PRIMARY_KEY, FieldType.JSON)


class Schema(msgspec.Struct, frozen=True):
    """A named record type. Field order is the declaration order; names are unique."""

    name: str
    fields: tuple[Field, ...]

    def field(self, name: str) -> Field:
        """The field of that name; ``KeyError`` when there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    @property
    def kept_outside(self) -> tuple[Field, ...]:
        """The fields that have a column of their own beside the sealed body, in declaration order."""
        return tuple(field for field in self.fields if field.has_column)

    @property
    def primary(self) -> Field | None:
        """The primary key field; ``None`` where an application's own ids are the keys (entities of rule files)."""
        return next((field for field in self.fields if field.type is FieldType.PRIMARY_KEY), None)
