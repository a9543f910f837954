"""GraphQL requests in an address: ``GET /graphql?query=…&variables=…``, as the ``EventSource`` of a
browser sends them, and the same as a body.
"""

import json
from typing import Any, Final

import msgspec

from proxy.errors import Code
from proxy.redactor import form
from proxy.redactor.message import Request, header
from proxy.redactor.redact import MOST_QUERY, query_span
from proxy.redactor.restore import splice

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
#: Parameters of a request in an address; the first and the third are texts, the others JSON.
_PARAMETERS: Final = ("query", "variables", "operationName", "extensions")


def takes_events(request: Request) -> bool:
    """Whether the caller takes server-sent events for an answer."""
    return b"text/event-stream" in (header(request.headers, b"accept") or b"").lower()


def takes_several(request: Request) -> bool:
    """Whether the caller takes an answer of several documents: events, or parts."""
    accept = (header(request.headers, b"accept") or b"").lower()
    return b"text/event-stream" in accept or b"multipart/mixed" in accept


def body_of_address(target: bytes, unclear: Any) -> tuple[bytes, tuple[str, ...]]:
    """Return the body equivalent to the query of an address, and the names of other parameters.

    Raises ``VaultError`` for what applications may read in several ways.
    """
    parts: dict[str, bytes] = {}
    others: list[str] = []
    start, end = query_span(target)
    query = target[start:end]
    if b"#" in target:
        raise unclear("stands in an address with a '#'", Code.BAD_REQUEST)
    for member in form.form_members(query, MOST_QUERY, _PARAMETERS):
        if member.name not in _PARAMETERS:
            others.append(member.name)
            continue
        text = form.read_form_value(query[member.start : member.end])
        if member.name in parts:
            raise unclear(f"has {member.name} twice", Code.BAD_REQUEST)
        if member.name in _PARAMETERS[::2]:
            parts[member.name] = json.dumps(text).encode()
        elif text:
            parts[member.name] = text.encode()
            if not _is_json(parts[member.name]):
                raise unclear(f"has {member.name} that are no JSON", Code.BAD_REQUEST)
    members = [b'"%b":%b' % (name.encode(), raw) for name, raw in parts.items()]
    return b"{" + b",".join(members) + b"}", tuple(others)


def says_no_more(said: bytes, body: bytes) -> bool:
    """Whether an address says nothing of an operation that the body beside it does not: at most
    the name that the body has, or that of its only operation.
    """
    members = _MEMBERS.decode(said)
    if members.keys() - {"operationName"}:
        return False
    try:
        name = msgspec.json.decode(body)["operationName"] if members else None
    except (msgspec.DecodeError, KeyError, TypeError):
        name = None
    return not name or json.loads(bytes(members["operationName"])) == name


def address_with(target: bytes, before: bytes, after: bytes) -> bytes:
    """The address in which the parts of its body that changed stand as they are now."""
    old, new = _MEMBERS.decode(before), _MEMBERS.decode(after)
    start, end = query_span(target)
    changes = []
    for member in form.form_members(target[start:end], MOST_QUERY):
        raw = bytes(new.get(member.name, b""))
        if raw != bytes(old.get(member.name, b"")):
            text = json.loads(raw) if member.name in _PARAMETERS[::2] else raw.decode()
            span = start + member.start, start + member.end
            changes.append((*span, form.write_form_value(text)))
    return splice(target, changes)


def _is_json(raw: bytes) -> bool:
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
