"""The definition of a schema as users write it, over HTTP and in files, and the ``Schema`` that it
means.

``{"fields": {"id": {"type": "primary_key"}, "email": {"type": "string", "storage":
"indexed_hashed", "partial_match": true}}}``

The defaults reveal least: a field is ``indexed_hashed``, so its exact value can be searched and
nothing is readable outside the sealed body; only the primary key is required; parts of texts cannot
be searched.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.model.values import step

#: Names of schemas and fields.
SCHEMA_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)

#: Members of records, requests and answers that no field may be called like.
RESERVED: Final = frozenset(
    (
        "attachments", "country", "created_at", "cursor", "expires_at", "filter", "history", "meta", "options",
        "record_key", "records", "return_keys", "search_key", "search_keys", "updated_at", "update_with", "version",
    )
)  # fmt: skip

#: Fields of one schema; every one that is not encrypted has its own column.
MOST_SCHEMA_FIELDS: Final = 200
#: Characters that a string may be allowed to have, and a primary key.
LONGEST_STRING: Final = 65_536
LONGEST_KEY: Final = 128

_STORAGE: Final = Storage.INDEXED_HASHED
_MEMBERS: Final = ("type", "storage", "required", "max_length", "partial_match")
_NAMING: Final = "A name is a letter and up to 63 more letters (a-z, A-Z), digits and underscores."
_TYPES: Final = ", ".join(FieldType)
_STORAGES: Final = ", ".join(Storage)


def read_definition(name: str, raw: Any) -> Schema:
    """The schema that a definition means; fields in the order in which they stand there.

    Raises ``VaultError(INVALID_SCHEMA)`` with one detail per fault: a JSON Pointer into the
    definition, ``name`` for the name of the schema. No text repeats the input.
    """
    reading = _Reading()
    if not SCHEMA_NAME.fullmatch(name):
        reading.fault("name", f"This cannot be the name of a schema. {_NAMING}")
    fields = reading.schema(raw)
    if reading.details:
        raise VaultError(
            Code.INVALID_SCHEMA,
            "The definition of the schema has faults: fix what is listed.",
            tuple(reading.details),
        )
    return Schema(name, tuple(fields))


def schema_warnings(schema: Schema) -> list[str]:
    """Warn of searchable fields that reveal something to a thief of the database."""
    return [
        f"{schema.name}.{field.name}: with partial_match whoever reads the database without a key "
        "tells about how long each text is; which texts are equal every hashed field tells, and so "
        "the common ones by how often they occur. Of names leave it out unless parts of them have "
        "to be searched for (docs/threat-model.md)."
        for field in schema.fields
        if field.hashed_parts
    ]


def write_definition(schema: Schema) -> dict[str, Any]:
    """The definition of a schema with all defaults written; ``read_definition`` reads it back."""
    return {"fields": {field.name: _written(field) for field in schema.fields}}


def _written(field: Field) -> dict[str, Any]:
    written: dict[str, Any] = {
        "type": str(field.type),
        "storage": str(field.storage),
        "required": field.required,
    }
    if field.max_length is not None:
        written["max_length"] = field.max_length
    if field.type in _TEXTS:
        written["partial_match"] = field.partial_match
    return written


_TEXTS = (FieldType.STRING, FieldType.PRIMARY_KEY)


class _Reading:
    """Parser of one definition; ``details`` collects its faults."""

    def __init__(self) -> None:
        self.details: list[Detail] = []

    def fault(self, pointer: str, text: str) -> None:
        self.details.append(Detail(pointer, text))

    def schema(self, raw: Any) -> list[Field]:
        if not isinstance(raw, Mapping):
            self.fault("", "A definition is an object with the member fields.")
            return []
        for member in raw:
            if member != "fields":
                self.fault(step(str(member)), "A definition has no such member, only fields.")
        fields = raw.get("fields")
        if not isinstance(fields, Mapping):
            self.fault(
                "/fields", "An object is needed here: the definition of each field by its name."
            )
            return []
        if len(fields) > MOST_SCHEMA_FIELDS:
            self.fault("/fields", f"A schema has at most {MOST_SCHEMA_FIELDS} fields.")
            return []
        read = [
            field
            for name, value in fields.items()
            if (field := self.field(str(name), value)) is not None
        ]
        self.primary(fields)
        return read

    def primary(self, fields: Mapping[Any, Any]) -> None:
        """There is exactly one primary key."""
        kinds = [
            (name, value.get("type"))
            for name, value in fields.items()
            if isinstance(value, Mapping)
        ]
        keys = [str(name) for name, kind in kinds if kind == FieldType.PRIMARY_KEY]
        if not keys:
            self.fault(
                "/fields",
                "A schema has exactly one field of the type primary_key, and this one has none.",
            )
        for name in keys[1:]:
            self.fault(
                f"/fields{step(name)}/type",
                "There is a primary key already: a schema has exactly one.",
            )

    def field(self, name: str, raw: Any) -> Field | None:
        at, before = f"/fields{step(name)}", len(self.details)
        if not SCHEMA_NAME.fullmatch(name):
            self.fault(at, f"This cannot be the name of a field. {_NAMING}")
        elif name in RESERVED:
            self.fault(
                at,
                "Records, requests or answers have a member of this name already: choose another "
                "one.",
            )
        if not isinstance(raw, Mapping):
            self.fault(at, 'The definition of a field is an object, such as {"type": "string"}.')
            return None
        for member in raw:
            if member not in _MEMBERS:
                self.fault(
                    at + step(str(member)),
                    f"A field has no such member: there are {', '.join(_MEMBERS)}.",
                )
        kind = self.type(at, raw)
        storage = self.storage(at, raw, kind)
        required = self.flag(at, raw, "required", default=kind is FieldType.PRIMARY_KEY)
        if kind is FieldType.PRIMARY_KEY and not required:
            self.fault(f"{at}/required", "The primary key is always required.")
        field = Field(
            name,
            kind or FieldType.STRING,
            storage,
            required=required,
            max_length=self.max_length(at, raw, kind),
            partial_match=self.partial_match(at, raw, kind, storage),
        )
        return field if len(self.details) == before else None

    def type(self, at: str, raw: Mapping[Any, Any]) -> FieldType | None:
        if "type" not in raw:
            self.fault(f"{at}/type", f"A type is needed: one of {_TYPES}.")
            return None
        text = raw["type"]
        if not isinstance(text, str) or text not in tuple(FieldType):
            self.fault(f"{at}/type", f"There is no such type: write one of {_TYPES}.")
            return None
        return FieldType(text)

    def storage(self, at: str, raw: Mapping[Any, Any], kind: FieldType | None) -> Storage:
        if "storage" not in raw:
            return _STORAGE
        text = raw["storage"]
        if not isinstance(text, str) or text not in tuple(Storage):
            self.fault(
                f"{at}/storage", f"There is no such storage class: write one of {_STORAGES}."
            )
            return _STORAGE
        if kind is FieldType.PRIMARY_KEY and text != Storage.INDEXED_HASHED:
            self.fault(f"{at}/storage", "The primary key is always indexed_hashed.")
        return Storage(text)

    def flag(self, at: str, raw: Mapping[Any, Any], member: str, *, default: bool) -> bool:
        value = raw.get(member, default)
        if isinstance(value, bool):
            return value
        self.fault(f"{at}/{member}", "This is true or false.")
        return default

    def max_length(self, at: str, raw: Mapping[Any, Any], kind: FieldType | None) -> int | None:
        length = raw.get("max_length")
        if "max_length" not in raw:
            return None
        if kind is not None and kind not in _TEXTS:
            self.fault(f"{at}/max_length", "Only strings and the primary key have a length.")
            return None
        most = LONGEST_KEY if kind is FieldType.PRIMARY_KEY else LONGEST_STRING
        if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= most:
            self.fault(
                f"{at}/max_length", f"A length is a whole number of characters from 1 to {most}."
            )
            return None
        return length

    def partial_match(
        self, at: str, raw: Mapping[Any, Any], kind: FieldType | None, storage: Storage
    ) -> bool:
        wanted = self.flag(at, raw, "partial_match", default=False)
        if not wanted or kind is None:
            return wanted
        if kind not in _TEXTS:
            self.fault(
                f"{at}/partial_match",
                "Only parts of strings and of the primary key can be searched for.",
            )
        elif storage is Storage.ENCRYPTED:
            self.fault(
                f"{at}/partial_match",
                "Nothing can be asked of an encrypted field: make it indexed_hashed, or leave "
                "partial_match out.",
            )
        return wanted
