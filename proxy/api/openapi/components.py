"""Schemas that several operations share."""

from typing import Any, Final

from proxy.api.openapi.parts import Json, array, closed, integer, ref, string
from proxy.errors import Code
from proxy.model.query import Op

INSTANT: Final[Json] = {
    "type": "string",
    "format": "date-time",
    "description": "An instant in UTC, `YYYY-MM-DDThh:mm:ss.sssZ`.",
    "example": "2026-05-04T10:15:00.000Z",
}
_SCALAR: Final[Json] = {"type": ["string", "number", "boolean", "null"]}
#: A text or several.
TEXTS: Final[Json] = {"anyOf": [{"type": "string"}, array({"type": "string"}, minItems=1)]}
#: What numbers are compared by.
NUMBERS: Final = {
    op.value: {
        "type": ["number", "string"],
        "description": "Integer, Decimal, Date&Time, Date and Time fields that are indexed, and `version`.",
    }
    for op in Op
}

_ATTACHMENT: Final[Json] = {
    "file_id": string("Identifies the attachment."),
    "filename": string("The name it was given."),
    "hash": string("SHA-256 of the content, hexadecimal."),
    "mime_type": string("Its media type."),
    "size": integer("Bytes.", minimum=0),
    "created_at": INSTANT,
    "updated_at": INSTANT,
    "download_link": string("Where it is downloaded, from the address of this interface."),
}

COMPONENTS: Final[dict[str, Any]] = {
    "Problem": {
        "type": "object",
        "description": "Every error (RFC 9457). It never repeats a value that was sent or stored.",
        "required": ["type", "title", "status", "code", "detail", "errors"],
        "properties": {
            "type": string("Always `about:blank`."),
            "title": string("The usual phrase of the status."),
            "status": integer("The status of the answer."),
            "code": string("Stable: decide by it.", enum=[str(code) for code in Code]),
            "detail": string("What to do about it, for people."),
            "errors": array(ref("Fault"), description="Every fault of the request, each with its place."),
        },
    },
    "Fault": {
        "type": "object",
        "required": ["title", "source", "detail"],
        "properties": {
            "title": string("The code."),
            "source": string("A JSON Pointer into the body, or the name of a parameter."),
            "detail": string("What is wrong there."),
        },
    },
    "OAuthError": {
        "type": "object",
        "description": "An error of the token service (RFC 6749, section 5.2).",
        "required": ["error"],
        "properties": {"error": string("The word of the RFC."), "error_description": string("For people.")},
    },
    "Meta": {
        "type": "object",
        "required": ["count", "limit", "offset", "total"],
        "properties": {
            "count": integer("How many are in this answer.", minimum=0),
            "limit": integer("How many there could have been.", minimum=0),
            "offset": integer("How many were left out before them.", minimum=0),
            "total": integer("How many there are in all.", minimum=0),
            "next": string("Where a search goes on, where there is more: `options.next` of the same request."),
            "unreadable": integer("How many records of this page were left out because they do not open.", minimum=1),
            "redacted_fields": array(string(), description="Fields that access policies show redacted or masked, where there are any."),
        },
    },
    "Attachment": {
        "type": "object",
        "required": [
            "file_id", "filename", "hash", "mime_type", "size", "created_at", "updated_at", "download_link",
        ],
        "properties": _ATTACHMENT,
    },
    "ChangedAttachment": {
        "type": "object",
        "description": "An attachment; for who may not read the record, what was sent of it alone.",
        "required": ["file_id", "updated_at", "download_link"],
        "properties": _ATTACHMENT,
    },
    "Changes": {
        "type": "object",
        "description": "What is to be changed of a record: its key, or the field of `search_key`, and the fields that get another value.",
        "minProperties": 1,
    },
    "Written": {
        "type": "object",
        "description": "A record as a write answers with it: its fields, and what the service set.",
        "required": ["created_at", "updated_at"],
        "properties": {
            "created_at": INSTANT,
            "updated_at": INSTANT,
            "expires_at": INSTANT,
            "meta": closed(
                {"redacted_fields": array(string())},
                "redacted_fields",
                description="Fields that access policies show redacted or masked, where there are any.",
            ),
        },
    },
    "Found": {
        "type": "object",
        "description": "A record as a search answers with it. Records of a rule file's entity have their `record_key` beside their fields.",
        "required": ["created_at", "updated_at", "version", "attachments"],
        "properties": {
            "created_at": INSTANT,
            "updated_at": INSTANT,
            "expires_at": INSTANT,
            "version": integer("How often the record was written.", minimum=1),
            "meta": {"type": "object", "description": "Of a record that was asked for by its key: `redacted_fields`, where there are any."},
            "attachments": array(ref("Attachment"), description="Empty when there are none."),
        },
    },
    "Filter": {
        "type": "object",
        "description": "Tests by field; all hold (AND). See *Filters*.",
        "properties": {
            "record_key": {**TEXTS, "description": "The primary key, whatever the schema calls it."},
            "version": {"description": "The version of the record."},
            "search_keys": string("Occurs in one string field at least.", minLength=3, maxLength=200),
            "$or": array({"type": "object"}, minItems=2, description="One of these filters holds; string fields only."),
        },
        "additionalProperties": {"anyOf": [_SCALAR, array(_SCALAR, minItems=1), ref("Condition")]},
    },
    "Condition": {
        "type": "object",
        "description": "Operators, or for a JSON field paths such as `$.address.city` with a scalar or an array that must be contained.",
        "properties": {
            "$not": {"description": "String fields, the primary key, and `version`: has none of these."},
            "$like": string("String fields: occurs in it, whatever the letter case. May stand with `$not`.", minLength=1),
            **NUMBERS,
        },
    },
    "Options": closed(
        {
            "limit": integer("How many records; 100 unless said otherwise.", minimum=1),
            "offset": integer("How many to leave out before them. A deep one is slow: go on with `next`.", minimum=0),
            "next": string("`meta.next` of the page before, with the same filter and order and without `offset`.", minLength=1),
            "sort": array(
                {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": {"enum": ["asc", "desc"]},
                },
                description="String and Integer fields, `created_at`, `updated_at`, `expires_at`; the first one counts most.",
            ),
        }
    ),
    "Search": closed({"filter": ref("Filter"), "options": ref("Options")}),
    "SearchIn": closed(
        {"schema": string("The name of the schema."), "filter": ref("Filter"), "options": ref("Options")}, "schema"
    ),
    "Page": {
        "type": "object",
        "required": ["data", "meta"],
        "properties": {"data": array(ref("Found")), "meta": ref("Meta")},
    },
    "Receipt": {
        "type": "object",
        "required": ["record_key", "created_at"],
        "properties": {"record_key": string("The primary key."), "created_at": INSTANT},
    },
}  # fmt: skip
