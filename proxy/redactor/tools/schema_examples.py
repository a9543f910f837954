"""Schemas of an OpenAPI document: an example of what one describes, and the places that it leaves
open. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

#: Values and levels that are looked at in one body.
MOST_IN_BODY: Final = 5_000
MOST_LEVELS: Final = 12

#: Values of a schema by its format; of no person.
BY_FORMAT: Final = {
    "email": "x@example.com",
    "idn-email": "x@example.com",
    "date": "2999-01-01",
    "binary": "\0",
}
#: Words of a schema that say what stands there.
_DESCRIBING: Final = ("properties", "items", "enum", "const", "allOf", "anyOf", "oneOf")


def example(document: Any, schema: Any, budget: list[int], depth: int = 0) -> Any:
    """A value of the form that a schema describes; ``budget``: the values it may yet have."""
    schema = resolved(document, schema or {})
    budget[0] -= 1
    if depth > MOST_LEVELS or budget[0] < 0:
        return None
    properties: dict[str, Any] = dict(schema.get("properties") or {})
    for one in (
        *(schema.get("allOf") or ()),
        *(schema.get("anyOf") or schema.get("oneOf") or ())[:4],
    ):
        inner = example(document, one, budget, depth + 1)
        if isinstance(inner, dict):
            properties = {**{name: {"_": inner[name]} for name in inner}, **properties}
        elif inner is not None and not properties:
            return inner
    if properties:
        return {
            name: one["_"]
            if isinstance(one, dict) and "_" in one
            else example(document, one, budget, depth + 1)
            for name, one in properties.items()
        }
    if schema.get("type") == "array" or "items" in schema:
        return [example(document, schema.get("items"), budget, depth + 1)]
    if "string" in (schema.get("type") or ()):
        return BY_FORMAT.get(str(schema.get("format", "")), "x")
    return 0 if "integer" in (schema.get("type") or ()) else None


def open_places(
    document: Any, schema: Any, budget: list[int], at: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Places where a schema lets anything stand: no schema, free members, an object of any form.

    ``budget``: the schemas that may yet be looked at.
    """
    schema = resolved(document, schema)
    budget[0] -= 1
    if len(at) > MOST_LEVELS or budget[0] < 0:
        return
    if _is_open(schema):
        yield at
        return
    if schema.get("additionalProperties") not in (None, False) or schema.get("patternProperties"):
        yield at
    properties = schema.get("properties") or {}
    for name, one in properties.items():
        yield from open_places(document, one, budget, (*at, str(name)))
    every = [resolved(document, one) for one in schema.get("allOf") or ()]
    described = properties or not all(map(_is_open, every))
    choices = [resolved(document, one) for one in schema.get("anyOf") or schema.get("oneOf") or ()]
    # a part that only says what is required, or describes in words, opens nothing
    parts = [one for one in every if not (described and _is_open(one))]
    parts += [one for one in choices if not (properties and _is_open(one))]
    for one in parts:
        yield from open_places(document, one, budget, at)
    if schema.get("type") == "array" or "items" in schema:
        yield from open_places(document, schema.get("items"), budget, (*at, "[*]"))


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says no more than that something, or some object, stands there."""
    kind = schema.get("type") or "object"
    return (
        "object" in kind
        and not any(schema.get(word) for word in _DESCRIBING)
        and schema.get("additionalProperties") is not False
    )


def resolved(document: Any, described: Any) -> Mapping[str, Any]:
    """Follow local references."""
    for _ in range(8):
        reference = described.get("$ref") if isinstance(described, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        described = document
        for step in reference[2:].split("/"):
            described = described[step.replace("~1", "/").replace("~0", "~")]
    return described if isinstance(described, dict) else {}
