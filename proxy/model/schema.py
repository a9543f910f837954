"""Schema of a record type: its fields, their types and storage classes.

Types and storage classes are those of the interface specification, "Model record".
"""

import enum
from dataclasses import dataclass
from typing import Final

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
    """Storage class of a field, which decides the possible queries.

    ``INDEXED`` keeps the typed value in the clear in a column; ``INDEXED_HASHED`` keeps a keyed
    hash of its normal form; ``ENCRYPTED`` keeps nothing outside the sealed body.
    """

    INDEXED = "indexed"
    INDEXED_HASHED = "indexed_hashed"
    ENCRYPTED = "encrypted"


class Field(msgspec.Struct, frozen=True):
    """A field of a schema. ``kind`` names the normal form that hashes and same-value tokens use."""

    name: str
    type: FieldType = FieldType.STRING
    storage: Storage = Storage.ENCRYPTED
    kind: str = "text"
    required: bool = False  #: a record without a value for it is refused
    max_length: int | None = None  #: characters of a string; ``None``: the general limit
    partial_match: bool = False  #: parts of the text can be searched for through keyed n-grams
    fine_parts: bool = False  #: in the index of earlier versions, which tells more of the texts
    #: Number of the field's life under this name: each change of its columns begins another one
    #: with its own column and index entries, so that older ones are never taken for it.
    life: int = 0

    @property
    def has_column(self) -> bool:
        """Whether it has a column outside the sealed body.

        The primary key is the row's key; JSON is searched by hashes of its leaves.
        """
        return self.storage is not Storage.ENCRYPTED and self.type not in _WITHOUT_COLUMN

    @property
    def hashed_parts(self) -> bool:
        """Whether its parts stand in the index of parts; those of a text in the clear do not."""
        return self.partial_match and self.storage is Storage.INDEXED_HASHED

    @property
    def no_query_reason(self) -> str:
        """Reason why an encrypted field cannot be queried; completes a sentence."""
        return "the field is stored encrypted, and nothing is kept beside it"


class ConcealedField(Field, frozen=True):
    """A field for a caller who must not see its value: as if encrypted, so nothing can be asked."""

    how: str = "redacted"

    @property
    def no_query_reason(self) -> str:
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
    def column_fields(self) -> tuple[Field, ...]:
        """The fields with a column outside the sealed body, in declaration order."""
        return tuple(field for field in self.fields if field.has_column)

    @property
    def primary(self) -> Field | None:
        """The primary key field; ``None`` if an application's ids are the keys (rule entities)."""
        return next((field for field in self.fields if field.type is FieldType.PRIMARY_KEY), None)


# The schema of the record-based family: every environment has it, undeclared (specification,
# "Record").
#
# Its fields are fixed. An operator chooses which keys stand in the clear, and in which hashed ones
# parts of texts can be searched. Both may change at any time: existing records are rewritten in the
# background.

#: The name of the schema, in policies, in ``/api/schemas`` and for the operations that name a
#: schema.
RECORDS_SCHEMA: Final = "records"

#: How many fields there are of each numbered kind.
KEYS: Final = tuple(f"key{number}" for number in range(1, 26))
SERVICE_KEYS: Final = tuple(f"service_key{number}" for number in range(1, 6))
RANGE_KEYS: Final = tuple(f"range_key{number}" for number in range(1, 11))
DECIMAL_KEYS: Final = tuple(f"decimal_key{number}" for number in range(1, 21))

BODY: Final = "body"
PRECOMMIT_BODY: Final = "precommit_body"
PROFILE_KEY: Final = "profile_key"
PARENT_KEY: Final = "parent_key"
RECORD_KEY: Final = "record_key"

#: A caller's statement about a record that it has sealed: the version of its key. Not searchable.
STATED_VERSION: Final = "stated_version"
IS_ENCRYPTED: Final = "is_encrypted"
#: Fields of ``records`` that requests have no name for, and that say nothing of a person.
TECHNICAL: Final = (STATED_VERSION, IS_ENCRYPTED)

#: Fields that an entity of a rule file may keep a value in. In those of ``IN_THE_CLEAR`` it can be
#: read in the vault's own table.
IN_THE_CLEAR: Final = (*RANGE_KEYS, *DECIMAL_KEYS)
KEPT_AS: Final = (
    BODY,
    PRECOMMIT_BODY,
    PROFILE_KEY,
    PARENT_KEY,
    *SERVICE_KEYS,
    *KEYS,
    *IN_THE_CLEAR,
)
#: Of those, the ones that hold several values of a field, too: as the text of a JSON array.
SEVERAL: Final = (BODY, PRECOMMIT_BODY)

#: Prefix of the keys of proxied records; callers cannot use it.
_COLLECTED: Final = "rules:"

#: Texts in which parts can be searched for, where the operator says so.
SEARCHABLE: Final = (RECORD_KEY, PROFILE_KEY, PARENT_KEY, *KEYS, *SERVICE_KEYS)

#: Characters of a body: more than any request may have, so that the limit of requests is what
#: counts.
_BODY: Final = 2**30


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """Storage of record keys.

    A key that is not ``plain`` is hashed; ``partial_match`` says nothing about a plain one.
    """

    plain: frozenset[str] = frozenset()  #: of ``KEYS``
    partial_match: frozenset[str] = frozenset()  #: of ``SEARCHABLE``


#: How keys are kept where no setting says otherwise: nothing of them can be read.
HASHED: Final = RecordKeys()


def records_schema(keys: RecordKeys = HASHED) -> Schema:
    """The schema, with its keys kept so."""

    def hashed(name: str) -> Field:
        return Field(name, storage=Storage.INDEXED_HASHED, partial_match=name in keys.partial_match)

    def key(name: str) -> Field:
        return Field(name, storage=Storage.INDEXED) if name in keys.plain else hashed(name)

    primary = Field(
        RECORD_KEY,
        FieldType.PRIMARY_KEY,
        Storage.INDEXED_HASHED,
        required=True,
        partial_match=RECORD_KEY in keys.partial_match,
    )
    return Schema(
        RECORDS_SCHEMA,
        (
            primary,
            Field(BODY, max_length=_BODY),
            Field(PRECOMMIT_BODY, max_length=_BODY),
            hashed(PROFILE_KEY),
            hashed(PARENT_KEY),
            *(Field(name, FieldType.INTEGER, Storage.INDEXED) for name in RANGE_KEYS),
            *map(hashed, SERVICE_KEYS),
            *map(key, KEYS),
            *(Field(name, FieldType.DECIMAL, Storage.INDEXED) for name in DECIMAL_KEYS),
            Field(STATED_VERSION, FieldType.INTEGER, Storage.INDEXED),
            Field(IS_ENCRYPTED, FieldType.BOOLEAN),
        ),
    )


def collected_keys(entity: str) -> str:
    """Return the prefix of the keys of an entity's records; the application's id follows."""
    return f"{_COLLECTED}{entity}/"


def is_collected(key: str | None) -> bool:
    """Whether a record of that key was collected by the proxy; none is before its id is known."""
    return key is None or key.startswith(_COLLECTED)


# A value that travels between a message and the vault.


class Value(msgspec.Struct, frozen=True, gc=False):
    """Text, or the exact JSON spelling of something that is not a string.

    ``text`` is the decoded text of a JSON string or form member when ``json`` is false. When
    ``json`` is true it is the raw JSON source of a number, boolean, object or array (``1.0`` stays
    ``1.0``), and it is written back without quotes. ``null`` is never a value: it means "there is
    none", which is ``NO_VALUE`` where an erased value stood.
    """

    text: str
    json: bool = False


#: What an erased value is: ``null`` in JSON, and no text anywhere else.
NO_VALUE: Final = Value("", json=True)


# Paths in a JSON document, as steps from a root.
#
# A JSONPath selector of a rule file compiles to a ``Path``: member names, array elements, wildcards
# and descent; no filters, no slices, no scripts.


class PathStep(enum.Enum):
    """The steps that are not a plain name or index.

    ``[*]`` and ``.*`` select the same, all elements of an array or members of an object (RFC 9535,
    2.3.2); the spelling is kept because it tells which of both a rule expects, and the fast path
    reckons with that.
    """

    EACH = "[*]"  #: every element, an array is expected
    MEMBERS = ".*"  #: every member, an object is expected
    DEEP = ".."  #: the node itself and everything below it


#: Steps from the root (or from an object): ``str`` a member, ``int`` an element (0 or more), or a
#: ``Step``.
Path = tuple[str | int | PathStep, ...]


def spell(path: Path, root: str = "$") -> str:
    """The path as JSONPath text, for messages and ``rules explain``."""
    out = root
    for step in path:
        if isinstance(step, int):
            out += f"[{step}]"
        elif isinstance(step, str):
            bare = step.replace("_", "a").isalnum() and not step[0].isdigit()
            separator = "" if out.endswith("..") else "."
            out += separator + step if bare else "[" + repr(step) + "]"
        elif step is PathStep.MEMBERS:
            out += "*" if out.endswith("..") else ".*"
        else:
            out += step.value
    return out
