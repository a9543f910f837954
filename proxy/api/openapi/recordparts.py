"""What records of the record-based family are, as components of the interface document, and in its
examples.
"""

from typing import Any, Final

from proxy.api.openapi.components import INSTANT, NUMBERS, TEXTS
from proxy.api.openapi.parts import Json, array, closed, integer, ref, string
from proxy.api.openapi.types import of_field
from proxy.model.record import DEFAULTS
from proxy.model.schema import (
    BODY,
    DECIMAL_KEYS,
    IS_ENCRYPTED,
    KEYS,
    PRECOMMIT_BODY,
    RANGE_KEYS,
    SERVICE_KEYS,
    STATED_VERSION,
    records_schema,
)

_TIME: Final = "2026-05-04T10:15:00.000Z"
_SCHEMA: Final = records_schema()
_OTHER: Final = {"record_key": "key", "range_key1": "range_key"}
_COUNTRY: Final = string("The country of this instance, lower-case ISO code.", pattern="^[a-z]{2}$")
_VERSION: Final = integer(
    "Kept as it is sent; where it is not, the service counts how often the record was written.",
    minimum=-(2**63),
    maximum=2**63 - 1,
)
_NULLABLE_VERSION: Final = {**_VERSION, "type": ["integer", "null"]}
_EXPIRES: Final = {
    **INSTANT,
    "type": ["string", "null"],
    "description": "When the record ends by itself.",
}


def _fields() -> dict[str, Json]:
    """Every field under each of its names."""
    found: dict[str, Json] = {}
    for field in _SCHEMA.fields:
        if field.name in (STATED_VERSION, IS_ENCRYPTED):
            continue
        told = of_field(field, DEFAULTS)
        if field.name in (BODY, PRECOMMIT_BODY):
            told = {
                "type": ["string", "null"],
                "description": "Encrypted; as long as a request may be.",
            }
        found[field.name] = told
        if other := _OTHER.get(field.name):
            found[other] = {**told, "description": f"Another name of `{field.name}`."}
    return found


_FIELDS: Final = _fields()
_SENT: Final = {
    **_FIELDS,
    "version": _NULLABLE_VERSION,
    "expires_at": _EXPIRES,
    "country": _COUNTRY,
}
_KEYED: Final = [{"required": ["record_key"]}, {"required": ["key"]}]
_INSTANTS: Final = {
    "anyOf": [
        {"type": ["string", "null"]},
        array({"type": ["string", "null"]}, minItems=1),
        {
            "type": "object",
            "propertyNames": {"enum": list(NUMBERS)},
            "additionalProperties": {"type": "string"},
            "minProperties": 1,
        },
    ],
    "description": "ISO 8601 with an offset: exactly, one of several, or compared.",
}

_ASKED: Final = {"anyOf": [*TEXTS["anyOf"], {"type": "null"}, ref("Condition")]}

COMPONENTS: Final[dict[str, Any]] = {
    "RecordToKeep": closed(_SENT, "country", anyOf=_KEYED, description="A record as it is sent."),
    "RecordInBatch": closed(_SENT, anyOf=_KEYED, description="A record as it is sent in a batch."),
    "RecordChanges": closed(_SENT, description="The members of a record that get another value."),
    "KeptRecord": {
        "type": "object",
        "description": "A record as every answer has it: all fields, `null` where there is no value.",
        "required": [*_FIELDS, "version", "created_at", "updated_at", "expires_at", "country", "attachments"],
        "properties": {
            **_FIELDS,
            "version": _VERSION,
            "created_at": INSTANT,
            "updated_at": INSTANT,
            "expires_at": _EXPIRES,
            "country": _COUNTRY,
            "attachments": array(ref("Attachment"), description="Empty when there are none."),
        },
    },
    "RecordFilter": closed(
        {
            **dict.fromkeys(("record_key", "key", "profile_key", "parent_key", *SERVICE_KEYS, *KEYS), _ASKED),
            **{name: {"description": "A number, several, or a comparison."} for name in (*RANGE_KEYS, "range_key", *DECIMAL_KEYS, "version")},
            **dict.fromkeys(("created_at", "updated_at", "expires_at"), _INSTANTS),
            "search_keys": string("Occurs in one searchable string field at least.", minLength=3, maxLength=200),
            "$or": array({"type": "object"}, minItems=2, description="One of these filters holds; string fields only."),
        },
        description="Tests by field; all hold (AND).",
    ),
}  # fmt: skip


def shown(**values: Any) -> dict[str, Any]:
    """A record of an example, with everything that answers say beside these values."""
    found: dict[str, Any] = dict.fromkeys(_FIELDS)
    found |= {
        "version": 1,
        "created_at": _TIME,
        "updated_at": _TIME,
        "expires_at": None,
        "country": "se",
        "attachments": [],
    }
    found |= values
    return found | {other: found[name] for name, other in _OTHER.items()}


def kept(record: dict[str, Any]) -> dict[str, Any]:
    """What the history tells of a record of an example."""
    return {name: record[name] for name in (*_FIELDS, "version")}
