"""The interface document as one page for people: no script, no font, nothing from elsewhere."""

import base64
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from proxy.api.openapi.markup import anchor, blocks, inline
from proxy.api.openapi.parts import Description, Example, Json

_STYLE: Final = (Path(__file__).parent / "page.css").read_text("utf-8")
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

#: The page may use its own style and nothing else.
POLICY: Final = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_BASE: Final = "http://127.0.0.1:8081"


def page(document: Json, described: Mapping[str, Description]) -> bytes:
    """The page; ``described`` has the examples as requests, which a document can only show in
    parts.
    """
    return "".join(_page(document, described)).encode()


def _page(document: Json, described: Mapping[str, Description]) -> Iterator[str]:
    info = document["info"]
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(info['title'])} · the vault's interface</title><style>{_STYLE}</style></head><body>"
    yield from _contents(document)
    yield f"<main><header><h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>"
    yield f'<p class="lead">{inline(info["summary"])} The same for programs: <a href="/openapi.json">openapi.json</a></p></header>'
    yield f'<section class="text">{blocks(info["description"])}</section>'
    for tag in document["tags"]:
        yield f'<h2 class="tag" id="{anchor(tag["name"])}">{escape(tag["name"])}</h2><p>{inline(tag["description"])}</p>'
        for path, method, operation in _operations(document, tag["name"]):
            yield from _operation(path, method, operation, described[operation["operationId"]])
    yield '<h2 class="tag" id="shapes">Shapes</h2>'
    for name, schema in document["components"]["schemas"].items():
        yield f'<section class="shape" id="shape-{escape(name)}"><h3>{escape(name)}</h3>'
        yield f"<p>{inline(schema['description'])}</p>" if "description" in schema else ""
        yield f"{_shape(schema)}</section>"
    yield "</main></body></html>"


def _operations(document: Json, tag: str) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if tag in operation["tags"]:
                yield path, method.upper(), operation


def _contents(document: Json) -> Iterator[str]:
    yield "<nav><ul>"
    for line in document["info"]["description"].splitlines():
        if line.startswith("## "):
            yield f'<li><a href="#{anchor(line)}">{escape(line[3:])}</a></li>'
    for tag in document["tags"]:
        yield f'<li><a href="#{anchor(tag["name"])}">{escape(tag["name"])}</a><ul>'
        for _, method, operation in _operations(document, tag["name"]):
            name = escape(operation["operationId"])
            yield f'<li><a href="#{name}"><b class="{method.lower()}">{method}</b> {escape(operation["summary"])}</a></li>'
        yield "</ul></li>"
    yield '<li><a href="#shapes">Shapes</a></li></ul></nav>'


def _operation(path: str, method: str, operation: Json, described: Description) -> Iterator[str]:
    yield f'<article id="{escape(operation["operationId"])}"><h3>{escape(operation["summary"])}</h3>'
    yield f'<p class="address"><b class="{method.lower()}">{method}</b> <code>{escape(path)}</code></p>'
    yield blocks(operation["description"])
    if parameters := operation.get("parameters"):
        yield "<h4>Parameters</h4><dl>"
        for parameter in parameters:
            yield f"<dt><code>{escape(parameter['name'])}</code> <i>{escape(parameter['in'])}</i></dt>"
            yield f"<dd>{inline(parameter['description'])}</dd>"
        yield "</dl>"
    if described.request is not None:
        yield f"<h4>Body</h4><p><code>{escape(described.request_type)}</code></p>{_shape(described.request)}"
    yield "<h4>Answers</h4><dl>"
    for status, answer in operation["responses"].items():
        yield f'<dt><code class="s{status[0]}">{escape(status)}</code></dt><dd>{inline(answer["description"])}'
        yield _shape(described.answer) if status[0] == "2" and described.answer is not None else ""
        yield "</dd>"
    yield "</dl>"
    yield "<h4>Examples</h4>" if described.examples else ""
    for example in described.examples:
        yield f"<details><summary>{escape(example.summary)} <code>{example.status}</code></summary>"
        yield f"<pre>{escape(_curl(path, method, example, described, guarded='security' not in operation))}</pre>"
        if example.answer is not None:
            yield f"<pre>{escape(_json(example.answer))}</pre>"
        yield "</details>"
    yield "</article>"


def _shape(schema: Json) -> str:
    """A schema as a list of its members."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<p><a href="#shape-{escape(name)}">{escape(name)}</a></p>'
    if "anyOf" in schema:
        return "<p>One of:</p>" + "".join(_shape(item) for item in schema["anyOf"])
    if schema.get("type") == "array":
        return (
            f"<p>An array of:</p>{_shape(schema['items'])}"
            if schema.get("items")
            else "<p>An array.</p>"
        )
    if not schema.get("properties"):
        return f"<p>{inline(_kind(schema))}</p>"
    required = schema.get("required", ())
    rows = (
        f"<dt><code>{escape(name)}</code>{' <i>required</i>' if name in required else ''}</dt><dd>{_member(inner)}</dd>"
        for name, inner in schema["properties"].items()
    )
    return f'<dl class="members">{"".join(rows)}</dl>'


def _member(schema: Json) -> str:
    text = f"{inline(_kind(schema))}"
    if "description" in schema:
        text += f" – {inline(schema['description'])}"
    inner = schema.get("items", {}) if schema.get("type") == "array" else schema
    return text + (
        _shape(inner) if "$ref" in inner or "properties" in inner or "anyOf" in inner else ""
    )


def _kind(schema: Json) -> str:
    if "enum" in schema and len(schema["enum"]) <= 8:
        return " or ".join(f"`{item}`" for item in schema["enum"])
    kind = schema.get("type", "any value")
    text = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if text == "array" and isinstance(inner := schema.get("items"), dict) and "type" in inner:
        text = f"array of {inner['type']}"
    return text


def _curl(
    path: str, method: str, example: Example, described: Description, *, guarded: bool
) -> str:
    """The example as a line for a shell."""
    for name, value in example.path.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    if example.query:
        path += "?" + urlencode(example.query)
    lines = [f"curl -X {method} {shlex.quote(_BASE + path)}"]
    if "Authorization" in example.headers:
        lines.append('-u "$CLIENT_ID:$CLIENT_SECRET"')
    elif guarded:
        lines.append('-H "Authorization: Bearer $TOKEN"')
    rest = [(name, value) for name, value in example.headers.items() if name != "Authorization"]
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in rest]
    if isinstance(example.body, bytes):
        lines.append(f"--data-binary {shlex.quote(example.body.decode('utf-8', 'replace'))}")
    elif example.body is not None:
        lines += [
            f"-H 'Content-Type: {described.request_type}'",
            f"-d {shlex.quote(_json(example.body))}",
        ]
    return " \\\n  ".join(lines)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
