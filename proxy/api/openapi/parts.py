"""What an operation's description is made of, and short ways to write JSON Schema (2020-12)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

#: A JSON Schema.
Json = dict[str, Any]


class Example(NamedTuple):
    """One request and what it is answered with, on a vault that holds what ``world`` says.

    ``answer`` is the JSON of the answer; instants, cursors, identifiers and secrets in it differ
    each time. ``body`` may be the bytes of a form.
    """

    summary: str
    status: int
    path: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: Any = None
    answer: Any = None


class Description(NamedTuple):
    """What an operation means.

    ``request`` and ``answer`` are schemas of bodies; ``None``: there is none.
    """

    tag: str
    summary: str
    text: str
    request: Json | None = None
    answer: Json | None = None
    examples: tuple[Example, ...] = ()
    answered: str = "Done."  #: what the status of success means
    request_type: str = "application/json"
    answer_type: str = "application/json"
    failure: str = "Problem"  #: the component that errors have as body
    failure_type: str = "application/problem+json"
    parameters: tuple[Json, ...] = ()  #: header fields, as Parameter Objects
    links: Mapping[str, Json] = {}  #: Link Objects of the answer of success


def ref(name: str) -> Json:
    """The component schema of that name."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Json, **more: Any) -> Json:
    """An array of such items."""
    return {"type": "array", "items": items, **more}


def closed(properties: Mapping[str, Json], *required: str, **more: Any) -> Json:
    """An object with these members and no others."""
    made: Json = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    if required:
        made["required"] = list(required)
    return {**made, **more}


def string(text: str = "", **more: Any) -> Json:
    """A string, with what it is."""
    return {"type": "string", **({"description": text} if text else {}), **more}


def integer(text: str = "", **more: Any) -> Json:
    """A whole number, with what it is."""
    return {"type": "integer", **({"description": text} if text else {}), **more}


def header(name: str, text: str, *, required: bool = False, **schema: Any) -> Json:
    """A header field as a Parameter Object."""
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": text,
        "schema": {"type": "string", **schema},
    }
