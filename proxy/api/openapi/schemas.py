"""What the operations mean that say which fields records have."""

from typing import Any, Final

from proxy.api.openapi.components import INSTANT
from proxy.api.openapi.parts import Description, Example, Json, array, closed, integer, ref, string
from proxy.api.openapi.world import CONTACT
from proxy.model.schema import FieldType, Storage
from proxy.model.schema_change import Effect
from proxy.model.schema_document import LONGEST_STRING, MOST_SCHEMA_FIELDS
from proxy.vault.schema_store import Origin, Phase

SCHEMAS: Final = "Schemas"

_NAME: Final = "^[A-Za-z][A-Za-z0-9_]{0,63}$"
_FLAG: Final[Json] = {"type": "boolean", "default": False}

#: Shared by requests and answers.
FIELD: Final[Json] = closed(
    {
        "type": string("What its values are.", enum=[str(kind) for kind in FieldType]),
        "storage": string(
            "What of it stands beside the sealed record, and so what can be asked of it; the primary key is always `indexed_hashed`.",
            enum=[str(storage) for storage in Storage],
            default=str(Storage.INDEXED_HASHED),
        ),
        "required": {**_FLAG, "description": "New records need a value; those that are there may lack it. The primary key is always required."},
        "max_length": integer(
            f"Characters, at most {LONGEST_STRING:,}: of strings (256 where nothing is said) and of the primary key (128). More only in the "
            "program's own schema.",
            minimum=1,
        ),
        "partial_match": {**_FLAG, "description": "Strings and the primary key: `$like` and `search_keys` find parts of it."},
    },
    "type",
    description="One field. Its name is none that records, requests or answers have already, such as `version` or `created_at`.",
)  # fmt: skip
_FIELDS: Final[Json] = {
    "type": "object",
    "description": "Fields by name, exactly one of them of the type `primary_key`.",
    "minProperties": 1,
    "maxProperties": MOST_SCHEMA_FIELDS,
    "propertyNames": {"pattern": _NAME},
    "additionalProperties": ref("Field"),
}
_CHANGES: Final[Json] = array(
    closed(
        {
            "source": string("JSON Pointer into the definition."),
            "detail": string("What becomes of it."),
            "effect": string("What it costs.", enum=[str(Effect.AT_ONCE), str(Effect.REWRITES)]),
        },
        "source", "detail", "effect",
    ),
    description="How the definition differs from the one before.",
)  # fmt: skip
_STATES: Final = [*map(str, Phase), "done", "failed"]
_MIGRATION: Final[Json] = {
    "type": ["object", "null"],
    "description": "The rewriting of records that is under way, or how the last one ended; `null`: there was none.",
    "required": ["state", "done", "total", "failed"],
    "properties": {
        "state": string(
            "`filling`: the old definition is in force, and what the new one needs is made; `cleaning`: the new one is in force, and what is "
            "left of the old is removed; `reverting`: values do not fit, and the old one stays; `done`; `failed`: it stayed.",
            enum=_STATES,
        ),
        "done": integer("Records that this state has visited.", minimum=0),
        "total": integer("Records that there were when it began.", minimum=0),
        "failed": integer("Records with a value that cannot be converted.", minimum=0),
        "fields": {
            **_FIELDS,
            "description": "While it is filling: the definition that it leads to.",
        },
        "ended_at": INSTANT,
    },
}
_SCHEMA: Final[dict[str, Json]] = {
    "name": string("Of the schema.", pattern=_NAME),
    "origin": string("Who declares it: this interface, a file of the settings, a rule file, or the program itself.", enum=[str(one) for one in Origin]),
    "fields": _FIELDS,
    "records": integer("How many records it holds.", minimum=0),
    "migration": _MIGRATION,
}  # fmt: skip

COMPONENTS: Final[dict[str, Json]] = {
    "Field": FIELD,
    "Schema": closed({**_SCHEMA, "changes": _CHANGES}, *_SCHEMA),
    "SchemaChange": closed(
        {
            "created": {"type": "boolean", "description": "There is no schema of that name yet."},
            "migrates": {"type": "boolean", "description": "Records would be rewritten."},
            "changes": _CHANGES,
        },
        "created", "migrates", "changes",
    ),
}  # fmt: skip

_ORDER: Final[dict[str, Any]] = {
    "fields": {"id": {"type": "primary_key"}, "sum": {"type": "decimal", "storage": "indexed"}}
}

DESCRIBED: Final[dict[str, Description]] = {
    "put_schema": Description(
        SCHEMAS,
        "Declare or change a schema",
        "What can be done at once is: a new schema (201), more fields, longer texts, what is required (200). A change of storage class, "
        "partial match or type, a shorter length, and the removal of a field make records be rewritten in the background (202): reads and "
        "writes go on, what is written meanwhile has to fit both definitions, and `GET` tells how far it is. If a value of a record does not "
        "fit, the old definition stays. What would break records (another primary key, types that have nothing in common) is 400. "
        "With `dry_run=true` nothing is changed, and the answer tells what would be.",
        closed({"fields": _FIELDS}, "fields"),
        {"anyOf": [ref("Schema"), ref("SchemaChange")]},
        (
            Example(
                "The same again", 200, {"schema": "contact"}, body=CONTACT,
            ),
            Example("A new schema", 201, {"schema": "order"}, body=_ORDER, answer={
                "name": "order", "origin": "api",
                "fields": {
                    "id": {"type": "primary_key", "storage": "indexed_hashed", "required": True, "partial_match": False},
                    "sum": {"type": "decimal", "storage": "indexed", "required": False},
                },
                "records": 0, "migration": None, "changes": [],
            }),
            Example("Without a primary key", 400, {"schema": "contact"}, body={"fields": {"email": {"type": "string"}}}),
        ),
        "The definition is in force.",
        links={"show_schema": {"operationId": "show_schema", "parameters": {"schema": "$request.path.schema"}, "description": "See it."}},
    ),
    "list_schemas": Description(
        SCHEMAS,
        "List schemas",
        "In the order in which they were declared, those of rule files among them.",
        answer=closed({"data": array(ref("Schema")), "meta": ref("Meta")}, "data", "meta"),
        examples=(Example("The schemas", 200),),
        answered="A page of schemas.",
    ),
    "show_schema": Description(
        SCHEMAS,
        "See a schema",
        "Its definition with every default, how many records it holds, and how far a migration is.",
        answer=ref("Schema"),
        examples=(Example("A schema", 200, {"schema": "contact"}),),
        answered="The schema.",
    ),
    "remove_schema": Description(
        SCHEMAS,
        "End a schema",
        "One that holds records is refused (409 `schema_in_use`), unless `records=delete` says that they and all that belongs to them go.",
        examples=(
            Example("With its records", 204, {"schema": "contact"}, {"records": "delete"}),
            Example("A schema that holds records", 409, {"schema": "contact"}),
        ),
        answered="It is gone.",
    ),
}  # fmt: skip
