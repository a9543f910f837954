"""Bodies that both families of records have, those of schemas and the record-based one: said once,
so that they stay the same.
"""

from typing import Final

from proxy.api.openapi.components import INSTANT
from proxy.api.openapi.parts import Json, array, closed, ref, string

_PAGING: Final = (
    closed({"next": string("The cursor of the page before.")}, "next"),
    closed({"cursor": string("The same under its other name.")}, "cursor"),
)

#: A group of an aggregation, and what was worked out for it.
GROUP: Final = closed({
    "group": closed({"keys": {"type": "object", "description": "Field and value."}}, "keys"),
    "metrics": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
}, "group", "metrics")  # fmt: skip

#: What stands beside the groups of a page.
NEXT: Final = closed(
    {
        "next": {
            "type": ["string", "null"],
            "description": "The cursor of the next page; `null` on the last one.",
        }
    },
    "next",
)

#: The versions of a record.
VERSIONS: Final = closed({
    "data": array(closed({
        "version": {"type": "integer", "description": "How often the record had been written."},
        "action": {"enum": ["create", "update", "delete"]},
        "at": INSTANT,
        "by": string("The client that wrote it."),
        "record": {"type": "object", "description": "The fields as they were."},
    }, "version", "action", "at", "by", "record")),
    "meta": ref("Meta"),
}, "data", "meta")  # fmt: skip


def aggregation(key: Json, matching: Json, **more: Json) -> Json:
    """What is to be worked out, or the cursor of a further page.

    ``key``: the fields of a sum; ``matching``: the filter.
    """
    metric = {
        "func": {
            "enum": ["count", "sum", "min", "max", "avg", "COUNT", "SUM", "MIN", "MAX", "AVG"]
        },
        "key": key,
    }
    asked = {
        "metrics": {
            "type": "object",
            "minProperties": 1,
            "description": "By a name of your own: what to work out.",
            "additionalProperties": closed(metric, "func"),
        },
        "filter": matching,
        "group_by": closed({
            "keys": array({"type": "string"}, minItems=1, description="The fields to group by."),
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Groups of a page."},
        }, "keys"),
        **more,
    }  # fmt: skip
    return {"anyOf": [closed(asked, "metrics"), *_PAGING]}


def some_keys(text: str, **more: Json) -> Json:
    """The keys of records that are to be deleted, by the name that ``text`` tells."""
    named = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "description": text,
        "additionalProperties": array({"type": "string"}, minItems=1),
    }
    return closed({"filter": named, **more}, "filter")
