"""One interface document (OpenAPI 3.1) of the table of operations, their descriptions, and the
schemas that users defined.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from proxy import __version__
from proxy.api.context import COMMON_STATUSES, Access, ApiOperation, Takes, is_repeatable
from proxy.api.openapi.components import COMPONENTS
from proxy.api.openapi.parts import Description, Example, Json, header, ref
from proxy.api.openapi.recordparts import COMPONENTS as OF_RECORDS
from proxy.api.openapi.schemas import COMPONENTS as OF_SCHEMAS
from proxy.api.openapi.text import INTRODUCTION, PARAMETERS, STATUSES, TAGS
from proxy.api.openapi.types import model
from proxy.model.record import DEFAULTS, RecordLimits
from proxy.model.schema import Schema

_IN_PATH: Final = re.compile(r"\{(\w+)\}")
_IDEMPOTENCY: Final = header(
    "Idempotency-Key",
    "Makes it safe to send the request again: see *Sending again*.",
    minLength=1,
    maxLength=255,
    pattern="^[!-~]+$",
)
_IF_MATCH: Final = header(
    "If-Match",
    "Only if it still is what one of these entity tags was given for; `*`: if it is there at all. Else 412.",
)
_IF_NONE_MATCH: Final = header(
    "If-None-Match",
    "A read: 304 if it is what one of these entity tags was given for. A write: 412 then; `*`: only if it is not there.",
)


def assemble(
    operations: Iterable[ApiOperation],
    described: Mapping[str, Description],
    schemas: Sequence[Schema] = (),
    limits: RecordLimits = DEFAULTS,
) -> Json:
    """The document. ``schemas`` are shown as components, and as the names that paths take; without
    them any name may stand there.
    """
    paths: dict[str, Json] = {}
    for operation in operations:
        shown = _operation(
            operation, described[operation.name], [schema.name for schema in schemas]
        )
        paths.setdefault(operation.path, {})[operation.method.lower()] = shown
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Domicile",
            "version": __version__,
            "summary": "Records of people, kept in one country.",
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [
            {
                "url": "/",
                "description": "The listener that this document comes from (`listen.vault`).",
            }
        ],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "security": [{"client": []}],
        "paths": paths,
        "components": {
            "schemas": {**COMPONENTS, **OF_SCHEMAS, **OF_RECORDS, **_models(schemas, limits)},
            "securitySchemes": {
                "client": {
                    "type": "oauth2",
                    "description": "An access token of client credentials (RFC 6749, section 4.4), sent as `Authorization: Bearer …`.",
                    "flows": {"clientCredentials": {"tokenUrl": "/oauth2/token", "scopes": {}}},
                }
            },
        },
    }


def render(document: Json) -> bytes:
    """The document as JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def _models(schemas: Sequence[Schema], limits: RecordLimits) -> Json:
    """A component for each schema, and ``Record`` for whichever of them the path names."""
    own = {f"model.{schema.name}": model(schema, limits) for schema in schemas}
    anything = {
        "type": "object",
        "properties": {"expires_at": {"type": ["string", "null"], "format": "date-time"}},
    }
    record: Json = {"anyOf": [ref(name) for name in own]} if own else anything
    text = "The fields that the schema has, and `expires_at`, when the record ends by itself."
    return {**own, "Record": {"description": text, **record}}


def _operation(operation: ApiOperation, described: Description, names: Sequence[str]) -> Json:
    shown: Json = {
        "operationId": operation.name,
        "tags": [described.tag],
        "summary": described.summary,
        "description": described.text,
        "parameters": _parameters(operation, described, names),
        "responses": _responses(operation, described),
    }
    if operation.access is Access.OPEN:
        shown["security"] = []
    if operation.access is Access.ADMIN:
        shown["description"] += "\n\nNeeds a client with the scope `admin`."
    if described.request is not None:
        content: Json = {"schema": described.request}
        if examples := _bodies(
            example for example in described.examples if example.status == operation.success
        ):
            content["examples"] = examples
        shown["requestBody"] = {"required": True, "content": {described.request_type: content}}
    if not shown["parameters"]:
        del shown["parameters"]
    return shown


def _parameters(
    operation: ApiOperation, described: Description, names: Sequence[str]
) -> list[Json]:
    # administrators name what is not there yet
    known = () if operation.access is Access.ADMIN else names
    shown = [_path(name, described, known) for name in _IN_PATH.findall(operation.path)]
    for name in operation.query:
        text, schema = PARAMETERS[name]
        shown.append({"name": name, "in": "query", "description": text, "schema": schema})
    shown += described.parameters
    if is_repeatable(operation):
        shown.append(_IDEMPOTENCY)
    if HTTPStatus.PRECONDITION_FAILED in operation.failures:
        shown += [_IF_MATCH, _IF_NONE_MATCH]
    return shown


def _path(name: str, described: Description, names: Sequence[str]) -> Json:
    text, schema = PARAMETERS[name]
    if name == "schema" and names:
        schema = {**schema, "enum": list(names)}
    shown: Json = {
        "name": name,
        "in": "path",
        "required": True,
        "description": text,
        "schema": schema,
    }
    given = (example.path[name] for example in described.examples if name in example.path)
    value = next(given, "{")
    if not value.startswith("{"):  # else it differs each time
        shown["example"] = value
    return shown


def _responses(operation: ApiOperation, described: Description) -> Json:
    success: Json = {"description": described.answered}
    if described.answer is not None:
        success["content"] = _content(described, operation.success)
    if described.links:
        success["links"] = dict(described.links)
    shown = {str(operation.success): success}
    for status in operation.also:
        shown[str(status)] = {"description": STATUSES[status]}
        if status != HTTPStatus.NOT_MODIFIED:
            shown[str(status)]["content"] = _content(described, status)
    for status in sorted({*operation.failures, *_common(operation)}):
        shown[str(status)] = _failure(status, described, _answers(described.examples, status))
    shown["5XX"] = _failure(500, described, {})
    return shown


def _content(described: Description, status: int) -> Json:
    """The body of an answer that is not an error."""
    content: Json = {"schema": described.answer}
    if examples := _answers(described.examples, status):
        content["examples"] = examples
    return {described.answer_type: content}


def _common(operation: ApiOperation) -> tuple[int, ...]:
    """Statuses of every operation, and of HTTP itself: a body that does not arrive in time, a
    request that ends in the middle.
    """
    return COMMON_STATUSES if operation.takes is Takes.NOTHING else (*COMMON_STATUSES, 408)


def _failure(status: int, described: Description, examples: Json) -> Json:
    content: Json = {"schema": ref(described.failure)}
    if examples:
        content["examples"] = examples
    text = STATUSES.get(status, HTTPStatus(status).phrase)
    return {"description": text, "content": {described.failure_type: content}}


def _bodies(examples: Iterable[Example]) -> Json:
    return {
        _key(number, example): {"summary": example.summary, "value": example.body}
        for number, example in enumerate(examples, 1)
        if example.body is not None and not isinstance(example.body, bytes)
    }


def _answers(examples: Iterable[Example], status: int) -> Json:
    return {
        _key(number, example): {"summary": example.summary, "value": example.answer}
        for number, example in enumerate((item for item in examples if item.status == status), 1)
        if example.answer is not None
    }


def _key(number: int, example: Example) -> str:
    """A name for an example that may stand in a document."""
    words = re.findall(r"[a-z0-9]+", example.summary.lower())
    return f"{number}-" + "-".join(words)
