"""Schemas of the vault as JSON Schema: what a record of each looks like on the wire."""

from typing import Final

from proxy.api.openapi.components import INSTANT
from proxy.api.openapi.parts import Json, closed
from proxy.model.record import RecordLimits
from proxy.model.schema import Field, FieldType, Schema, Storage

_TYPES: Final[dict[FieldType, Json]] = {
    FieldType.INTEGER: {
        "type": "integer",
        "minimum": -(2**63),
        "maximum": 2**63 - 1,
        "format": "int64",
    },
    FieldType.DECIMAL: {
        "type": "number",
        "description": "Exact: at most 12 digits before the point and 4 after it.",
    },
    FieldType.BOOLEAN: {"type": "boolean"},
    FieldType.DATETIME: INSTANT,
    FieldType.DATE: {"type": "string", "format": "date", "example": "2026-05-04"},
    FieldType.TIME: {
        "type": "string",
        "pattern": "^[0-9]{2}:[0-9]{2}:[0-9]{2}$",
        "example": "10:15:00",
    },
    FieldType.JSON: {"type": "object"},
}

#: What can be asked of each class of storage.
_ASKED: Final = {
    Storage.INDEXED: "Kept in the clear beside the sealed body: every operator.",
    Storage.INDEXED_HASHED: "Kept as a keyed hash: exact, list, `$not`.",
    Storage.ENCRYPTED: "Kept in the sealed body alone: cannot be asked for.",
}


def model(schema: Schema, limits: RecordLimits) -> Json:
    """What is sent to make a record of the schema."""
    properties = {field.name: of_field(field, limits) for field in schema.fields}
    properties["expires_at"] = {
        **INSTANT,
        "type": ["string", "null"],
        "description": "When the record ends by itself.",
    }
    required = [field.name for field in schema.fields if field.required or field is schema.primary]
    return closed(properties, *required, description=f"A record of `{schema.name}`.")


def of_field(field: Field, limits: RecordLimits) -> Json:
    """The values of a field."""
    if field.type is FieldType.PRIMARY_KEY:
        made: Json = {"type": "string", "minLength": 1, "maxLength": limits.key}
    elif field.type is FieldType.STRING:
        made = {"type": "string", "maxLength": field.max_length or limits.string}
    else:
        made = dict(_TYPES[field.type])
    if not field.required and field.type is not FieldType.PRIMARY_KEY:
        made["type"] = [made["type"], "null"]
    asked = _ASKED[field.storage]
    if field.partial_match:
        asked = asked.removesuffix(".") + "; parts of it with `$like` and `search_keys`."
    made["description"] = f"{made['description']} {asked}" if "description" in made else asked
    return made
