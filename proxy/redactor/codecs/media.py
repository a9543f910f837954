"""What kind of body a message says it carries: ``Content-Type`` by RFC 9110, section 8.3."""

import enum
import re
from functools import lru_cache

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders


class Media(enum.Enum):
    """Kinds of bodies."""

    JSON = "json"  #: ``application/json`` and every ``+json`` type
    FORM = "form"  #: ``application/x-www-form-urlencoded``
    OTHER = "other"  #: a body of any other kind, or of none that is named
    NONE = "none"  #: no body


_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TYPE = re.compile(rb"[ \t]*(" + _TOKEN + rb"/" + _TOKEN + rb")[ \t]*")
_PARAMETER = re.compile(rb"[ \t]*;[ \t]*(?:(" + _TOKEN + rb")=(" + _TOKEN + rb"|" + _QUOTED + rb"))?[ \t]*", re.DOTALL)

#: Charsets in which a body is read; both are UTF-8 as far as they go.
_CHARSETS = frozenset({b"utf-8", b"utf8", b"us-ascii", b"ascii"})


def classify(headers: RawHeaders, body: bytes) -> Media:
    """The kind of the body, by its type; an empty body is ``NONE`` whatever the type says.

    ``VaultError(UNREADABLE_BODY)`` when there are several types, or when a JSON or form type has parameters that
    are malformed or name another charset than UTF-8.
    """
    if not body:
        return Media.NONE
    types = [value for name, value in headers if len(name) == 12 and name.lower() == b"content-type"]
    if not types:
        return Media.OTHER
    if len(types) > 1:
        raise VaultError(Code.UNREADABLE_BODY, "The message has several Content-Type fields: send one.")
    return _kind(types[0])


@lru_cache(maxsize=256)  # an application has few; the bounds on heads bound each
def _kind(value: bytes) -> Media:
    match = _TYPE.match(value)
    if match is None:
        return Media.OTHER
    essence = match[1].lower()
    if essence == b"application/json" or essence.endswith(b"+json"):
        media = Media.JSON
    elif essence == b"application/x-www-form-urlencoded":
        media = Media.FORM
    else:
        media = Media.OTHER
    parameters, rest = _parameters(value[match.end() :])
    if rest.startswith(b",") or (rest and media is not Media.OTHER):
        raise VaultError(Code.UNREADABLE_BODY, "The Content-Type is malformed: send one media type as RFC 9110 has it.")
    if media is not Media.OTHER and any(name == b"charset" and text not in _CHARSETS for name, text in parameters):
        raise VaultError(Code.UNREADABLE_BODY, "The body is in another charset than UTF-8: send it in UTF-8.")
    return media


def _parameters(text: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Names and values of parameters in lower case, without quotes, and the rest that is none of them."""
    found = []
    at = 0
    while match := _PARAMETER.match(text, at):
        at = match.end()
        if match[1]:
            value = match[2]
            plain = re.sub(rb"\\(.)", rb"\1", value[1:-1]) if value.startswith(b'"') else value
            found.append((match[1].lower(), plain.strip().lower()))
    return found, text[at:]
