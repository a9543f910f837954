"""Header rules around a message whose body is rewritten: what described the old body goes, lengths and codings are fixed."""

from collections.abc import Sequence
from typing import Final

from proxy.redactor.codecs.coding import CODINGS
from proxy.redactor.message import RawHeaders, header
from proxy.web.fields import Field

#: Content codings that can be read (RFC 9110 section 8.4.1); anything else is not asked of the application.
READABLE: Final = frozenset({name.encode("ascii") for name in CODINGS} | {b"x-gzip", b"identity"})

_DIGESTS: Final = frozenset(
    {
        b"content-md5",
        b"digest",
        b"content-digest",
        b"repr-digest",
        b"want-digest",
        b"want-content-digest",
        b"want-repr-digest",
    }
)
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"connection", b"te", b"upgrade", b"trailer"})
_REQUEST_DROPS: Final = _DIGESTS | _FRAMING | {b"content-encoding", b"range", b"if-range", b"expect"}
#: Of a restored answer: its length and validators described the tokens, and no shared cache may keep it.
_ANSWER_DROPS: Final = _DIGESTS | _FRAMING | {b"etag", b"accept-ranges", b"surrogate-control", b"cdn-cache-control"}


def request_fields(headers: Sequence[Field], length: int | None) -> list[Field]:
    """Fields of a rewritten request with a body of ``length`` bytes in no coding; ``None``: there is no body at all."""
    fields: list[Field] = []
    for name, value in headers:
        lower = name.lower()
        if lower == b"accept-encoding":
            fields.append((name, readable(value)))
        elif lower not in _REQUEST_DROPS:
            fields.append((name, value))
    if length is not None:
        fields.append((b"Content-Length", b"%d" % length))
    return fields


def readable(accepted: bytes) -> bytes:
    """An Accept-Encoding without codings that cannot be read here; untouched if it has none."""
    listed = [item.strip() for item in accepted.split(b",")]
    kept = [item for item in listed if item.split(b";")[0].strip().lower() in READABLE]
    if len(kept) == len(listed):
        return accepted
    return b", ".join(kept) or b"identity"


def codings_readable(headers: RawHeaders) -> bool:
    """Whether every content coding of an answer can be undone."""
    given = [value for name, value in headers if name.lower() == b"content-encoding"]
    return all(token.strip().lower() in READABLE for value in given for token in value.split(b","))


def answer_fields(headers: RawHeaders, length: int, coding: bytes | None) -> list[Field]:
    """Fields of a restored answer of ``length`` bytes in ``coding`` (``None``: none)."""
    fields: list[Field] = []
    cached = False
    for name, value in headers:
        lower = name.lower()
        if lower == b"cache-control":
            fields.append((name, private(value)))
            cached = True
        elif lower == b"content-encoding":
            if coding is not None:
                fields.append((name, coding))
                coding = None
        elif lower not in _ANSWER_DROPS:
            fields.append((name, value))
    if coding is not None:
        fields.append((b"Content-Encoding", coding))
    if not cached:
        fields.append((b"Cache-Control", b"private"))
    fields.append((b"Content-Length", b"%d" % length))
    return fields


def private(directives: bytes) -> bytes:
    """A Cache-Control value that no shared cache may use (RFC 9111 section 5.2.2); what it says otherwise stays."""
    listed = [item.strip() for item in directives.split(b",") if item.strip()]
    names = [item.split(b"=")[0].strip().lower() for item in listed]
    kept = [item for item, name in zip(listed, names, strict=True) if name not in {b"public", b"s-maxage", b"private"}]
    if b"no-store" not in names:
        kept.append(b"private")
    return b", ".join(kept)


def declared_length(headers: RawHeaders) -> int | None:
    """The Content-Length of a message whose framing was checked before, or ``None``."""
    value = header(headers, b"content-length")
    return int(value) if value is not None and value.isdigit() else None
