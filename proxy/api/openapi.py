"""The interface document (OpenAPI 3.1), its page at ``/docs``, and the handlers of both.

``openapi.yaml`` holds every text, schema and example; its head says how it is written. It is read
when first wanted. Paths, statuses and query parameters come from the table of operations.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from proxy import __version__
from proxy.api.context import (
    COMMON_STATUSES,
    Access,
    ApiOperation,
    ApiRequest,
    ApiResponse,
    Takes,
    is_repeatable,
)
from proxy.api.dispatch import count_by_client, outside
from proxy.errors import Code, Detail, VaultError
from proxy.model.record import DEFAULTS, RecordLimits
from proxy.model.schema import Field, FieldType, Schema
from proxy.net.problem import problem
from proxy.tokenization import strategy_names

DocumentPart = dict[str, Any]  #: a JSON Schema, or another part of the document

_SOURCE: Final = Path(__file__).with_name("openapi.yaml")
_VIEWER: Final = Path(__file__).with_name("viewer")
_MEDIA_TYPES: Final = {
    "index.html": "text/html",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
}

#: The page runs its own scripts, in its own style, and speaks with this listener alone.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBERED: Final = re.compile(r"(\w+?)(\d+)\.\.(\d+)")
_IN_PATH: Final = re.compile(r"\{(\w+)\}")


class Example(msgspec.Struct, forbid_unknown_fields=True):
    """A request, and the answer to it where the vault holds the records of the tests."""

    summary: str
    status: int = 0
    path: dict[str, str] = {}
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: Any = None  #: as JSON
    raw: str | None = None  #: a body that is not JSON
    answer: Any = None
    code: str = ""  #: of an error, with its ``detail`` and its ``errors``, pointer by pointer
    detail: str = ""
    errors: dict[str, str] = {}


class Description(msgspec.Struct, forbid_unknown_fields=True):
    """The texts of one operation; ``request`` and ``answer`` are schemas of bodies."""

    summary: str
    description: str
    tag: str = ""
    headers: list[str] = []  #: names of parameters
    request: DocumentPart | None = None
    request_type: str = "application/json"
    answered: str = "Done."  #: meaning of the success status
    answer: DocumentPart | None = None
    answer_type: str = "application/json"
    errors: str = "Problem"  #: the schema of its error bodies
    links: dict[str, DocumentPart] = {}
    path: dict[str, str] = {}  #: path values of the examples unless they give others
    examples: list[Example] = []


class Source(msgspec.Struct, forbid_unknown_fields=True):
    """The content of ``openapi.yaml``."""

    document: DocumentPart
    tags: dict[str, str]
    statuses: dict[str, str]
    parameters: dict[str, DocumentPart]
    fields: dict[str, dict[str, Any]]
    operations: dict[str, dict[str, Description]]
    schemas: dict[str, DocumentPart]
    shared: Any = None

    @property
    def described(self) -> dict[str, Description]:
        """The descriptions by ``operationId``."""
        return {name: one for group in self.operations.values() for name, one in group.items()}


async def openapi(call: ApiRequest) -> ApiResponse:
    """Answer with the document, and to a caller with a token with the schemas that it may use."""
    operations, limits = call.services.operations, call.services.limits
    if "Authorization" not in call.request.headers:
        return ApiResponse(200, await asyncio.to_thread(_bare, operations))
    caller = await _authenticated(call)
    rights = [(caller.rights(one.records), one.schema) for one in caller.space.catalog.schemas()]
    schemas = [
        right.view or schema
        for right, schema in rights
        if right.actions and not caller.blocked(right)
    ]
    body = await asyncio.to_thread(lambda: render(interface_document(operations, schemas, limits)))
    return ApiResponse(200, body)


async def docs(call: ApiRequest) -> ApiResponse:
    """Answer with the page, or with a file of it; it loads only the files in its own folder."""
    name = call.path.get("file", "index.html")
    media_type = _MEDIA_TYPES.get(name)
    if media_type is None:
        raise VaultError(Code.NOT_FOUND, "The page has no such file; /docs is the page.")
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "max-age=3600"}
    body = await asyncio.to_thread((_VIEWER / name).read_bytes)
    return ApiResponse(200, body, headers, f"{media_type}; charset=utf-8")


async def _authenticated(call: ApiRequest) -> ApiRequest:
    """The call with its principal, held to the firewall and limits that others are held to."""
    principal = await call.services.access(call.request)
    abroad = outside(call.request, call.services, call.operation, principal)
    count_by_client(call.services, principal, call.fields)
    return replace(call, principal=principal, outside=abroad)


@lru_cache(2)
def _bare(operations: tuple[ApiOperation, ...]) -> bytes:
    return render(interface_document(operations))


def render(content: DocumentPart) -> bytes:
    """Encode the document as JSON."""
    return msgspec.json.encode(content)


@lru_cache(2)
def source(operations: tuple[ApiOperation, ...]) -> Source:
    """Read ``openapi.yaml``; examples get the status and path that they leave out."""
    read = yaml.load(_SOURCE.read_text("utf-8"), _LOADER)  # noqa: S506  # a safe loader, ours or the C library's
    content = msgspec.convert(_expand(read), Source)
    success = {operation.name: operation.success for operation in operations}
    for tag, group in content.operations.items():
        for name, described in group.items():
            described.tag = tag
            for example in described.examples:
                example.status = example.status or success.get(name, 200)
                example.path = {**described.path, **example.path}
    return content


def _expand(node: Any) -> Any:
    """Write out the conventions of ``openapi.yaml``: names, ``closed``, ``whole`` and ``$ref``."""
    if isinstance(node, list):
        return [name for item in node for name in _names(_expand(item))]
    if not isinstance(node, dict):
        return node
    written = {name: _expand(inner) for key, inner in node.items() for name in _names(key)}
    if "whole" in written:
        written["required"] = list(written["whole"])
    if (members := written.pop("whole", None) or written.pop("closed", None)) is not None:
        described = {"type": "object", "properties": members, "additionalProperties": False}
        written = {**described, **written}
    if isinstance(target := written.get("$ref"), str):
        written["$ref"] = _reference("schemas", target)["$ref"]
    return written


def _names(item: Any) -> list[Any]:
    """``key1..3`` as ``key1``, ``key2``, ``key3``, ``$strategies`` as those; else as it is."""
    numbered = _NUMBERED.fullmatch(item) if isinstance(item, str) else None
    if numbered is None:
        return strategy_names() if item == "$strategies" else [item]
    return [f"{numbered[1]}{n}" for n in range(int(numbered[2]), int(numbered[3]) + 1)]


def interface_document(
    operations: tuple[ApiOperation, ...],
    schemas: Sequence[Schema] = (),
    limits: RecordLimits = DEFAULTS,
) -> DocumentPart:
    """The document; ``schemas`` become components, and the only names that paths take."""
    content = source(operations)
    described, names = content.described, [schema.name for schema in schemas]
    components: dict[str, DocumentPart] = {
        **content.document["components"],
        "schemas": {**content.schemas, **_models(content, schemas, limits)},
        "parameters": {},
        "responses": {},
    }
    paths: dict[str, DocumentPart] = {}
    for operation in operations:
        entry = _Entry(content, operation, described[operation.name], names, components)
        paths.setdefault(operation.path, {})[operation.method.lower()] = entry.written()
    return {
        **content.document,
        "info": {**content.document["info"], "version": __version__},
        "tags": [{"name": name, "description": text} for name, text in content.tags.items()],
        "paths": paths,
        "components": components,
    }


def _reference(kind: str, name: str) -> DocumentPart:
    return {"$ref": f"#/components/{kind}/{name}"}


@dataclass
class _Entry:
    """Writes one operation; ``components`` collects the parts that it shares with others."""

    content: Source
    operation: ApiOperation
    described: Description
    schemas: Sequence[str]
    components: dict[str, DocumentPart]

    def written(self) -> DocumentPart:
        """The Operation Object."""
        operation, described = self.operation, self.described
        entry: DocumentPart = {
            "operationId": operation.name,
            "tags": [described.tag],
            "summary": described.summary,
            "description": described.description,
        }
        if parameters := self._parameters():
            entry["parameters"] = parameters
        if described.request is not None:
            examples = [
                (one.summary, one.body)
                for one in described.examples
                if one.status == operation.success and one.raw is None
            ]
            content = {described.request_type: _content(described.request, examples)}
            entry["requestBody"] = {"required": True, "content": content}
        entry["responses"] = self._responses()
        if operation.access is Access.OPEN:
            entry["security"] = []
        if operation.access is Access.ADMIN:
            roles = "".join(f", or one with the role `{role}`" for role in operation.roles)
            entry["description"] += f"\n\nNeeds a client with the scope `admin`{roles}."
        return entry

    def _parameters(self) -> list[DocumentPart]:
        texts = self.content.parameters
        parameters: list[DocumentPart] = []
        for name in _IN_PATH.findall(self.operation.path):
            parameter = {"name": name, "in": "path", "required": True, **texts[name]}
            # administrators name schemas that do not exist yet
            if name == "schema" and self.schemas and self.operation.access is not Access.ADMIN:
                parameter["schema"] = {**parameter["schema"], "enum": list(self.schemas)}
            value = self.described.path.get(name, "{")
            if not value.startswith("{"):  # else it differs each time
                parameter["example"] = value
            parameters.append(parameter)
        parameters += [
            {"name": name, "in": "query", **texts[name]} for name in self.operation.query
        ]
        for name in self._headers():
            header = {"name": name, "in": "header", **texts[name]}
            parameters.append(self._shared("parameters", name, header))
        return parameters

    def _headers(self) -> list[str]:
        purpose = ["x-purpose"] if self.operation.access is Access.CLIENT else []
        names = [*self.described.headers, *purpose]
        if is_repeatable(self.operation):
            names.append("Idempotency-Key")
        if HTTPStatus.PRECONDITION_FAILED in self.operation.failures:
            names += ["If-Match", "If-None-Match"]
        return names

    def _shared(self, kind: str, name: str, content: DocumentPart) -> DocumentPart:
        self.components[kind][name] = content
        return _reference(kind, name)

    def _responses(self) -> DocumentPart:
        operation, described = self.operation, self.described
        success = self._success(operation.success, described.answered)
        if described.links:
            success["links"] = described.links
        written = {str(operation.success): success}
        for status in operation.also:
            written[str(status)] = self._success(status, self.content.statuses[str(status)])
        common = COMMON_STATUSES if operation.takes is Takes.NOTHING else (*COMMON_STATUSES, 408)
        for status in sorted({*operation.failures, *common}):
            written[str(status)] = self._failure(str(status), self._answers(status))
        return {**written, "5XX": self._failure("5XX", [])}

    def _success(self, status: int, text: str) -> DocumentPart:
        waits = self.operation.approval and status == HTTPStatus.ACCEPTED != self.operation.success
        schema = _reference("schemas", "Approval") if waits else self.described.answer
        if schema is None or status == HTTPStatus.NOT_MODIFIED:
            return {"description": text}
        content = _content(schema, self._answers(status))
        return {"description": text, "content": {self.described.answer_type: content}}

    def _failure(self, status: str, examples: list[tuple[str, Any]]) -> DocumentPart:
        """An error answer: in place where it has examples, else the one of all operations."""
        schema = self.described.errors
        kind = "application/problem+json" if schema == "Problem" else "application/json"
        content = {kind: _content(_reference("schemas", schema), examples)}
        written = {"description": self.content.statuses[status], "content": content}
        return written if examples else self._shared("responses", f"{schema}.{status}", written)

    def _answers(self, status: int) -> list[tuple[str, Any]]:
        return [
            (example.summary, expected_answer(example))
            for example in self.described.examples
            if example.status == status
        ]


def expected_answer(example: Example) -> Any:
    """The JSON of the answer to an example; ``None``: it has none, or says nothing of it."""
    if not example.code:
        return example.answer
    details = tuple(Detail(source, text) for source, text in example.errors.items())
    return msgspec.json.decode(problem(example.status, Code(example.code), example.detail, details))


def _content(schema: DocumentPart | None, examples: Sequence[tuple[str, Any]]) -> DocumentPart:
    """A Media Type Object."""
    written = {
        f"{number}-" + "-".join(re.findall(r"[a-z0-9]+", summary.lower())): {
            "summary": summary,
            "value": value,
        }
        for number, (summary, value) in enumerate(examples, 1)
        if value is not None
    }
    return {"schema": schema, "examples": written} if written else {"schema": schema}


def _models(content: Source, schemas: Sequence[Schema], limits: RecordLimits) -> DocumentPart:
    """A component for each schema, and ``Record`` for whichever of them the path names."""
    models = {f"model.{schema.name}": model(content, schema, limits) for schema in schemas}
    if not models:
        return {}
    text = content.schemas["Record"]["description"]
    choices = [_reference("schemas", name) for name in models]
    return {**models, "Record": {"description": text, "anyOf": choices}}


def model(content: Source, schema: Schema, limits: RecordLimits) -> DocumentPart:
    """The JSON Schema of records of a schema, as they are sent."""
    properties = {field.name: _property(content.fields, field, limits) for field in schema.fields}
    properties["expires_at"] = _reference("schemas", "RecordExpiry")
    return {
        "type": "object",
        "description": f"A record of `{schema.name}`.",
        "properties": properties,
        "additionalProperties": False,
        "required": [
            field.name for field in schema.fields if field.required or field is schema.primary
        ],
    }


def _property(
    fields: Mapping[str, dict[str, Any]], field: Field, limits: RecordLimits
) -> DocumentPart:
    written = dict(fields["types"][field.type])
    if field.type is FieldType.PRIMARY_KEY:
        written["maxLength"] = limits.key
    elif field.type is FieldType.STRING:
        written["maxLength"] = field.max_length or limits.string
    if not field.required and field.type is not FieldType.PRIMARY_KEY:
        written["type"] = [written["type"], "null"]
    queries: str = fields["storage"][field.storage]
    if field.partial_match:
        queries = queries.removesuffix(".") + fields["storage"]["partial_match"]
    written["description"] = " ".join(filter(None, (written.get("description"), queries)))
    return written
