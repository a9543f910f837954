"""The schema of the record-based family: the one that every environment has, and nobody declares (specification, "Record").

Its fields are fixed; what an operator chooses is which of the keys stand in the clear, and in which hashed ones parts of texts can
be searched for. Both may be chosen anew at any time: the records that are there are rewritten in the background.
"""

from dataclasses import dataclass
from typing import Final

from proxy.model.schema import Field, FieldType, Schema, Storage

#: The name of the schema, in policies, in ``/api/schemas`` and for the operations that name a schema.
RECORDS: Final = "records"

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

#: What a caller says of a record that it has sealed itself: with which version of its key, and that it has. Not for questions.
STATED_VERSION: Final = "stated_version"
IS_ENCRYPTED: Final = "is_encrypted"

#: Fields that an entity of a rule file may keep a value in. In those of ``IN_THE_CLEAR`` it can be read in the vault's own table.
IN_THE_CLEAR: Final = (*RANGE_KEYS, *DECIMAL_KEYS)
KEPT_AS: Final = (BODY, PRECOMMIT_BODY, PROFILE_KEY, PARENT_KEY, *SERVICE_KEYS, *KEYS, *IN_THE_CLEAR)
#: Of those, the ones that hold several values of a field, too: as the text of a JSON array.
SEVERAL: Final = (BODY, PRECOMMIT_BODY)

#: What the keys of records begin with that the proxy collects; callers cannot give such a key to a record.
_COLLECTED: Final = "rules:"

#: Texts in which parts can be searched for, where the operator says so.
SEARCHABLE: Final = (RECORD_KEY, PROFILE_KEY, PARENT_KEY, *KEYS, *SERVICE_KEYS)

#: Characters of a body: more than any request may have, so that the limit of requests is what counts.
_BODY: Final = 2**30


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """How the keys of records are kept. A key that is not ``plain`` is hashed; ``partial_match`` says nothing about a plain one."""

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
        RECORDS,
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
    """What the keys of an entity's records begin with; the application's own id follows."""
    return f"{_COLLECTED}{entity}/"


def is_collected(key: str | None) -> bool:
    """Whether a record of that key is one that the proxy has collected; it has none before the application told its id."""
    return key is None or key.startswith(_COLLECTED)
