"""What the operations of rehashes mean."""

from typing import Any, Final

from proxy.api.openapi.models import fault
from proxy.api.openapi.parts import Description, Example, Json, array, closed, integer, string
from proxy.tokenization.strategy import strategy_names

TAG: Final = "Rehash"

_DTK: Final = "k3yA" * 24
_AT: Final = "2026-05-04T10:15:00.000Z"
_RULE: Final = closed(
    {
        "strategy": string(
            "The names that end in `Persistent` give equal values equal tokens.",
            enum=strategy_names(),
        ),
        "strategyOptions": {
            "type": ["object", "null"],
            "description": "The options of the token shape ([docs/rules.md]), and `kind`: what the field holds.",
        },
    },
    "strategy",
)
_RULES: Final[Json] = {
    "type": "object",
    "description": "By field of the record, member of a `body` that is a JSON object, path into it (`$.a.b`); `*`: every text not named.",
    "additionalProperties": _RULE,
    "minProperties": 1,
    "maxProperties": 100,
}
_KEY: Final = string(
    "Your own key, 96 letters and digits; it is not kept.", pattern="^[0-9A-Za-z]{96}$"
)
_NAMED: Final[dict[str, Json]] = {
    "record_key": {"type": ["string", "null"]},
    "profile_key": {"type": ["string", "null"]},
}
_FIELDS: Final[Json] = {
    "type": "object",
    "description": "By the names of the rules.",
    "additionalProperties": {},
}
_COUNT: Final = closed({"count": integer("How many there are.", minimum=0)}, "count")
_RUN: Final[Json] = {
    "type": "object",
    "required": ["state"],
    "properties": {
        "state": {"enum": ["none", "running", "done", "stopped"]},
        "run": string("Which one it is."),
        "total": integer("Records when it began.", minimum=0),
        "done": integer("Records visited.", minimum=0),
        "failed": integer(
            "Records with a value that its strategy does not take; they stay as they were.",
            minimum=0,
        ),
        "unreadable": integer("Records that do not open.", minimum=0),
        "began_at": string(format="date-time"),
        "ended_at": {"type": ["string", "null"], "format": "date-time"},
    },
}
_SHOWN: Final[dict[str, Any]] = {
    "answer": _RUN,
    "examples": (Example("There was none", 200, answer={"state": "none"}),),
    "answered": "The run.",
}
_EMAIL: Final[dict[str, Any]] = {"strategy": "emailPersistent"}
_MASK: Final[dict[str, Any]] = {
    "strategy": "masking",
    "strategyOptions": {"type": "alphanumeric", "first": 1},
}

DESCRIBED: Final[dict[str, Description]] = {
    "rehash_records": Description(
        TAG,
        "New tokens for some records",
        "For whoever keeps tokens of the values outside the vault. What the records hold does not change. Tokens that stand for one value are "
        "kept beside it until they are told to be forgotten, so that old ones are found, too. A persistent strategy gives the same for the same "
        "`dtk`, field and value, always. A value that does not fit its strategy is 422, and nothing is made.",
        closed({"dtk": _KEY, "keys": array({"type": "string"}, minItems=1, description="Profile keys."), "rules": _RULES,
                "country": string("The country of this instance.")}, "dtk", "keys", "rules"),
        closed({"data": array(closed({**_NAMED, "fields": _FIELDS}, "record_key", "profile_key", "fields")), "meta": _COUNT}, "data", "meta"),
        (
            Example(
                "One record", 200,
                body={"dtk": _DTK, "keys": ["p-1", "nobody"], "rules": {"key1": _MASK, "name": {"strategy": "zero"}, "key2": _EMAIL}},
                answer={
                    "data": [{
                        "record_key": "r-1", "profile_key": "p-1",
                        "fields": {"key1": "a*****@*******.***", "name": "0", "key2": None},
                    }],
                    "meta": {"count": 1},
                },
            ),
            Example("Every fault at once", 400, body={"dtk": "short", "keys": ["p-1"], "rules": {"key1": {"strategy": "rot13"}}}),
            Example("A value that does not fit", 422, body={"dtk": _DTK, "keys": ["p-1"], "rules": {"key1": {"strategy": "luhn"}}}, answer=fault(
                422, "Unprocessable Entity", "value_unfit", "A value does not fit the strategy of its field.",
                ("/rules/key1", "A value does not fit the token shape luhn: it takes digits with spaces and separators, or a JSON number without exponent."),
            )),
        ),
        "The records that have these profile keys, with their new tokens.",
    ),
    "resolve_tokens": Description(
        TAG,
        "What tokens stand for",
        "Which record and field, and which token of the value is the newest; the value itself is found by the key of the record. Small tokens "
        "(masks, dates, fewer than six digits) cannot be told from others and are not found.",
        closed({"tokens": array({"type": "string"}, minItems=1, description="At most 1,000.")}, "tokens"),
        closed(
            {
                "data": array(closed({"token": string(), **_NAMED, "field": string(), "newest": string()}, "token", "field", "newest")),
                "meta": _COUNT,
            },
            "data", "meta",
        ),
        (Example("One that nothing has", 200, body={"tokens": ["KqIn4GXpBzLQ3zBNcYCq2l"]}, answer={"data": [], "meta": {"count": 0}}),),
        "Those that stand for something.",
    ),
    "list_tokens": Description(
        TAG,
        "The tokens of all records",
        "The newest of each value, page by page in the order of the age of the records: ask again with `next` until there is none.",
        answer=closed(
            {
                "data": array(closed({**_NAMED, "fields": _FIELDS}, "record_key", "profile_key", "fields")),
                "meta": closed({"count": integer(minimum=0), "next": {"type": ["string", "null"]}}, "count", "next"),
            },
            "data", "meta",
        ),
        examples=(Example("None yet", 200, query={"limit": "500"}, answer={"data": [], "meta": {"count": 0, "next": None}}),),
        answered="A page of records that have any.",
    ),
    "begin_rehash": Description(
        TAG,
        "Rehash all records",
        "In the background, while others read and write; after a crash it goes on where it was. Each record gets all of its tokens at once. With "
        "`forget` the tokens that are there before the newest are found no longer; without `rules` that is all that is done.",
        closed({"dtk": _KEY, "rules": _RULES, "forget": {"type": "boolean", "default": False}}),
        _RUN,
        (
            Example("All mail addresses", 202, body={"dtk": _DTK, "rules": {"key1": _EMAIL}}, answer={
                "state": "running", "run": "9f2c61d07ab34e58", "total": 0, "done": 0, "failed": 0, "unreadable": 0, "began_at": _AT, "ended_at": None,
            }),
            Example("Nothing to do", 400, body={}),
        ),
        "It has begun.",
    ),
    "show_rehash": Description(
        TAG,
        "How far the rehash of all records is",
        "Or how the last one ended.",
        **_SHOWN,
    ),
    "stop_rehash": Description(
        TAG,
        "Stop the rehash of all records",
        "What it has done stays. Where none is under way, nothing happens.",
        **_SHOWN,
    ),
}  # fmt: skip
