"""The short phrases of the language: what to match, where an id stands, where a value stands.

Each parser takes the text of one scalar and raises ``ValueError`` with a sentence that says what to
write instead.
"""

import re
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from proxy.model.schema import Path
from proxy.redactor.jsonpath import parse_jsonpath
from proxy.redactor.load.value_forms import JsonSchema, ScalarForm, Text, number_within
from proxy.redactor.load.yaml_tree import Scalar, did_you_mean
from proxy.redactor.path_template import PathTemplate, SegmentKind, parse_template
from proxy.redactor.rules import IdPlace, IdSource

#: Registered HTTP methods (IANA "HTTP Method Registry") that an operation may name.
METHODS = (
    "GET", "POST", "PUT", "PATCH", "DELETE", "QUERY", "SEARCH", "REPORT", "OPTIONS", "PROPFIND", "PROPPATCH", "COPY", "MOVE",
    "MKCOL", "LOCK", "UNLOCK", "LINK", "UNLINK", "MERGE", "BIND", "UNBIND", "REBIND", "ACL", "CHECKIN", "CHECKOUT",
    "UNCHECKOUT", "UPDATE", "LABEL", "MKACTIVITY", "MKCALENDAR", "MKREDIRECTREF", "UPDATEREDIRECTREF", "MKWORKSPACE",
    "ORDERPATCH", "BASELINE-CONTROL", "VERSION-CONTROL", "TRACE",
)  # fmt: skip
_METHOD = re.compile(r"[A-Za-z][A-Za-z-]*(\|[A-Za-z-]+)*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class MatchPattern(NamedTuple):
    """The ``match`` of an operation."""

    label: str
    methods: tuple[str, ...]
    template: PathTemplate
    query: tuple[tuple[str, str], ...] = ()  #: parameters that have these values


def parse_match(text: str) -> MatchPattern:
    """``METHOD|METHOD /path/{id}``, also with a query: ``GET /index.php?r=contact/view``."""
    methods, _, path = text.partition(" ")
    path = path.strip()
    address, mark, query = path.partition("?")
    if not path or not _METHOD.fullmatch(methods):
        raise ValueError(
            "match is METHOD and path, such as 'POST /contacts' or 'PUT|PATCH /contacts/{id}'"
        )
    names = tuple(methods.split("|"))
    for name in names:
        _check_method(name)
    if len(set(names)) < len(names):
        raise ValueError(f"a method stands twice in '{methods}'; write it once")
    parameters = _parameters(query) if mark else ()
    return MatchPattern(f"{methods} {path}", names, parse_template(address), parameters)


def _parameters(query: str) -> tuple[tuple[str, str], ...]:
    """The parameters of a query, each with its one value."""
    if "{" in query or "*" in query or "#" in query:
        raise ValueError(
            "a query says which request is meant, so each parameter has one value: "
            "/index.php?r=contact/view; write id: query id for a parameter that is the id"
        )
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        pairs = []
    if not pairs or not all(name and value for name, value in pairs):
        raise ValueError("behind '?' stands NAME=VALUE, such as /index.php?r=contact/view")
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a parameter stands twice in the query; list its values under 'when'")
    return tuple(pairs)


def _check_method(name: str) -> None:
    if name == "HEAD":
        raise ValueError("HEAD is matched by the rule for GET; write GET")
    if name in METHODS:
        return
    if name.upper() in METHODS:
        raise ValueError(
            f"write the method in capitals: {name.upper()}; other spellings in requests are "
            "matched by themselves"
        )
    near = (
        did_you_mean(name, [method.lower() for method in METHODS])
        .upper()
        .replace("DID YOU MEAN", "did you mean")
    )
    raise ValueError(
        f"'{name}' is not an HTTP method; "
        f"{near if 'did you mean' in near else 'write GET, POST, PUT, PATCH or DELETE'}"
    )


def parse_selector(text: str) -> Path:
    """A JSONPath selector of names, elements, ``[*]``, ``.*`` and ``..``."""
    if not text.startswith("$"):
        raise ValueError(
            f"a place begins with '$'; write $.{text}"
            if text.isidentifier()
            else "a place begins with '$', such as $.email or $.data.email"
        )
    return parse_jsonpath(text)


def parse_location(text: str) -> PathTemplate:
    """The target path of a redirect, with placeholders, and parameters that it must have."""
    if "://" in text or text.startswith("//"):
        raise ValueError("write the path alone, without scheme and host: /contacts/{id}")
    path, mark, query = text.partition("?")
    parameters = _parameters(query) if mark else ()
    return replace(parse_template(path), text=text, query=parameters)


def parse_prefix(text: str) -> str:
    """A literal path prefix, without a slash at its end."""
    template = parse_template(text)
    if any(segment.kind is not SegmentKind.LITERAL for segment in template.segments):
        raise ValueError("a prefix has no placeholders; write a plain path such as /crm")
    if not template.segments:
        raise ValueError("the prefix '/' selects everything; leave prefix out")
    return "/" + "/".join(segment.text for segment in template.segments)


def parse_upstream(text: str) -> str:
    """``http://host:port`` or ``https://host:port``; errors never repeat the text."""
    hint = "write http://host:port or https://host:port, without path, query or credentials"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"this is not an address; {hint}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"this is not an address; {hint}")
    if parts.username is not None or parts.path not in ("", "/") or "?" in text or "#" in text:
        raise ValueError(f"this address says more than where the application is; {hint}")
    return text.removesuffix("/")


def parse_host(text: str) -> str:
    """A host name as ``Host`` fields carry it, in lower case, without port."""
    host = text.lower().removesuffix(".")
    if "://" in host or "/" in host or re.search(r":[0-9]+$", host):
        raise ValueError("write the host name alone, without scheme, port and path")
    if "*" in host:
        raise ValueError("host names are matched whole; list each name, without '*'")
    if not re.fullmatch(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]", host):
        raise ValueError(
            "this is not a host name; international names are written in their xn-- form"
        )
    return host


def parse_id(text: str) -> IdPlace:
    """``path NAME``, ``query NAME``, ``form NAME``, ``column NAME``, ``link TEMPLATE``,
    ``header NAME TEMPLATE``, or a selector, with the address that the id stands in where it is not
    the member itself.
    """
    if text.startswith("$"):
        return _id_selector(text)
    source, _, rest = text.partition(" ")
    name = rest.strip()
    if source == "header":
        return _id_header(name)
    if source == "link" and name:
        _check_address(name)
        return IdPlace(IdSource.COLUMN, template=name)
    if source not in ("path", "query", "form", "column") or not name:
        raise ValueError(
            f"'{text}' does not say where the id is; write path NAME, query NAME, form NAME, "
            "header NAME TEMPLATE, column NAME, link TEMPLATE or $.NAME"
        )
    if source == "path" and " " in name:
        raise ValueError(
            f"path names one placeholder, without braces; write path {name.split()[0]}"
        )
    return IdPlace(IdSource(source), name.strip("{}") if source == "path" else name)


#: Header fields that may show values.
_CARRIERS = ("location", "content-location", "link", "refresh", "content-disposition", "href")


class CookiePlace(NamedTuple):
    """A cookie whose value is one of a field."""

    name: str
    field: str


def parse_carrier(text: str) -> bytes | Path | CookiePlace:
    """A header field, in lower case, a selector of addresses in JSON, or a cookie with its field."""
    if text.startswith("$"):
        return parse_jsonpath(text)
    kind, _, rest = text.partition(" ")
    words = rest.split()
    if kind == "cookie" and words and _HEADER.fullmatch(words[0]) and len(words) < 3:
        return CookiePlace(words[0], words[-1])
    name = text.lower().removeprefix("header ").strip()
    if name in ("set-cookie", "cookie") or kind == "cookie":
        raise ValueError(
            "a cookie comes back with every request, and has to be swapped again there; write "
            "its name and the field of its value: cookie last_email email"
        )
    if name not in _CARRIERS:
        raise ValueError(
            f"'{text}' is none of {', '.join(_CARRIERS)}, no cookie NAME FIELD and no selector "
            "such as $.next"
        )
    return name.encode()


def _id_selector(text: str) -> IdPlace:
    selector, blank, template = text.partition(" ")
    if blank and template.lstrip().startswith("/"):
        _check_address(template := template.strip())
        return IdPlace(IdSource.BODY, path=parse_jsonpath(selector), template=template)
    return IdPlace(IdSource.BODY, path=parse_jsonpath(text if blank else selector))


def _id_header(text: str) -> IdPlace:
    name, _, template = text.partition(" ")
    template = template.strip()
    if not _HEADER.fullmatch(name) or not template:
        raise ValueError(
            "write header, its name and the address with the id in it: header Location "
            "/contacts/{id}"
        )
    if template == "{id}":
        return IdPlace(IdSource.HEADER, name.lower(), template=template)
    _check_address(template)
    return IdPlace(IdSource.HEADER, name.lower(), template=template)


def _check_address(template: str) -> None:
    """Raise ``ValueError`` for an address that is not a path with one placeholder, the id, in it or
    in its one parameter.
    """
    path, anchored, anchor = template.partition("#")
    if path and anchored:
        raise ValueError(f"an id behind '#' is told whatever the path is; write #{anchor}")
    path, mark, member = template.partition("?")
    name, _, value = member.partition("=")
    if path[:1] == "#" and not mark:  # a page with many records and an anchor for each
        path = f"/{path[1:].lstrip('/')}"
    parts = [parse_template(path), *([parse_template(f"/{value}")] if value else ())]
    if (
        sum(len(part.names) for part in parts) != 1
        or (
            any(one.kind is SegmentKind.REST for part in parts for one in part.segments)
            and (mark or anchored)
        )
        or (mark and not (name and parts[-1].names and len(parts[-1].segments) == 1))
        or "&" in member
    ):
        raise ValueError(
            f"the address '{template}' must have one placeholder, the id: /contacts/{{id}}, or "
            "/contact.php?id={id} with the one parameter that tells it, or #contact-{id} for "
            "what stands behind the '#' of any path"
        )


# Sizes, durations and statuses as rule files write them.

_SIZE = re.compile(r"([0-9]{1,12}) ?(B|kB|MB|GB|KiB|MiB|GiB)")
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_DURATION = re.compile(r"([0-9]{1,6}) ?(s|m|h|d|w|y)")
_MILLISECONDS = {
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
    "y": 365 * 86_400_000,
}


def _size(node: Scalar) -> int | None:
    if type(node.value) is int and node.value > 0:
        return node.value
    match = _SIZE.fullmatch(node.text)
    return int(match[1]) * _BYTES[match[2]] or None if match else None


def _duration(node: Scalar) -> int | None:
    match = _DURATION.fullmatch(node.text)
    return int(match[1]) * _MILLISECONDS[match[2]] or None if match else None


_SPAN: JsonSchema = {"type": "string", "pattern": f"^{_DURATION.pattern}$"}

#: A number of bytes with its unit, ``2MiB``; a bare number is bytes.
SIZE_IN_BYTES: Final = ScalarForm(
    "size, e.g. `2MiB`",
    "a size above zero such as 512KiB or 2MiB",
    _size,
    {
        "anyOf": [
            {"type": "string", "pattern": f"^{_SIZE.pattern}$"},
            {"type": "integer", "minimum": 1},
        ]
    },
)
#: A span of time, ``7y``; read as milliseconds. A year counts 365 days.
DURATION: Final = ScalarForm(
    "duration, e.g. `90d` or `7y`",
    "a duration above zero such as 12h, 90d or 7y (s, m, h, d, w, y)",
    _duration,
    _SPAN,
)
#: The same, or a word in its place, read as 0.
PERIOD: Final = ScalarForm(
    f"`until_deleted` or {DURATION.label}",
    "'until_deleted' or a duration above zero such as 12h, 30d or 1y",
    lambda node: 0 if node.value == "until_deleted" else _duration(node),
    {"anyOf": [_SPAN, {"const": "until_deleted"}]},
)


def status(least: int, most: int, word: str = "") -> ScalarForm:
    """An HTTP status within bounds; with ``word``, that word may stand instead."""
    number, bounds = number_within(least, most), f"status from {least} to {most}"
    return ScalarForm(
        f"`{word}` or {bounds}" if word else bounds,
        f"'{word}' or an HTTP {bounds}" if word else f"an HTTP {bounds}",
        lambda node: word if word and node.value == word else number.parse(node),
        {"anyOf": [number.schema(), {"const": word}]} if word else number.schema(),
    )


#: Names that a rule file gives: of entities, fields and schemas.
RULE_NAME = r"[A-Za-z][A-Za-z0-9_]{0,62}"
NAME_HINT = "letters, digits and '_', a letter first, at most 63 characters"
SELECTOR = Text("selector", "a JSONPath such as $.email or $.items[*]", r"(?s).+", parse_selector)
