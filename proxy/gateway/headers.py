"""Header rules around a message whose body is rewritten: what described the old body goes, lengths
and codings are fixed.

No shared cache may keep restored values. ``Cache-Control: private`` stops standard ones. Others
obey their own fields first, and new ones appear every year. So the name decides: every field named
after a cache is dropped, except for those that only report its work.
"""

import re
from copy import copy
from functools import lru_cache
from typing import Final

from proxy.errors import VaultError
from proxy.net import entity_tags
from proxy.net.hop_headers import response_fields
from proxy.net.http1.head import NONE, RequestHead, ResponseHead
from proxy.net.reply import UpstreamAddress
from proxy.redactor.content_coding import CODINGS
from proxy.redactor.message import Media, RawHeaders, Request, Spellings, classify, header

#: Content codings that can be read (RFC 9110 section 8.4.1); anything else is not asked of the
#: application.
READABLE: Final = frozenset({name.encode("ascii") for name in CODINGS} | {b"x-gzip", b"identity"})

#: Fields by which the answer to a change may say that it was only tried.
_TELLS_OF_TRIES: Final = re.compile(
    rb"^(?:precognition|preference-applied)[ \t]*:", re.IGNORECASE | re.MULTILINE
)

# Treatment of a field. Plain numbers, the usual one zero.
_AS_IT_IS: Final = 0
_DROPPED: Final = 1
_HOST: Final = 2
_ACCEPTED: Final = 3  #: Accept-Encoding
_CODED: Final = 4  #: Content-Encoding
_CACHED: Final = 5  #: Cache-Control
_RANGED: Final = 6  #: Content-Range
_TAGGED: Final = 7  #: ETag
_UNEXPECTED: Final = 8  #: If-None-Match
_SINCE: Final = 9  #: If-Modified-Since
_EXPIRING: Final = 10  #: Expires
_SIGNED: Final = 11  #: of a request

#: Fields with a hash of the body, which is another one now: standard ones (RFC 9530, RFC 1864), and
#: those of stores (``x-amz-content-sha256``, ``x-goog-hash``). An application that has the hash of
#: the body before could find its values by trying.
_DIGEST: Final = re.compile(
    rb"(?:want-)?(?:repr-|content-)?digest|(?:x-.*)?content-(?:md5|hash|crc(?:32c?|64)|sha-?(?:1|[0-9]{3}))"
    rb"|x-(?:goog|body|payload)-hash|x-(?:amz-)?checksum(?:-.*)?"
)
#: Fields with a signature of the whole message, such as those of webhooks: who has its key, as the
#: application has, could find values by trying.
_SIGNATURE: Final = re.compile(
    rb"signature(?:-input)?|.+-(?:signature|sig|hmac)(?:-(?:(?:sha-?|v)?[0-9]+|ed25519))?"
)
#: By the standard, and the drafts before it, a signature says of what it is (RFC 9421).
_OF_ITS_OWN: Final = frozenset({b"signature", b"signature-input"})
_OF_BODY: Final = re.compile(rb"digest", re.IGNORECASE)
_OF_TARGET: Final = re.compile(rb"@(?:query|path|target-uri)|request-target", re.IGNORECASE)
_FRAMING: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"connection", b"te", b"upgrade", b"trailer"}
)
_REQUEST_DROPS: Final = _FRAMING | {b"content-encoding", b"range", b"if-range", b"expect"}
#: Of a restored answer: its length described the tokens. Pragma has no meaning in answers but for
#: old caches.
_ANSWER_DROPS: Final = _FRAMING | {b"accept-ranges", b"pragma"}

#: Names of fields that steer one cache or another: ``CDN-Cache-Control`` (RFC 9213) and its many
#: relatives, ``X-Accel-Expires``, ``Edge-Control``, ``Surrogate-Control``, ``X-LiteSpeed-Tag``,
#: ``X-Varnish-TTL``.
_STEERS_CACHES: Final = re.compile(
    rb"(?:.*-)?(?:(?:cache|caching|cacheable|cachecontrol|surrogate|litespeed|lsadc)(?:-.*)?|(?:accel-expires|edge-control)(?:-.*)?|.+-ttl)"
)
#: Fields that only report a cache's work or staleness: ``X-Cache``, ``CF-Cache-Status``,
#: ``X-LiteSpeed-Purge``.
_TELLS_OF_CACHES: Final = re.compile(
    rb"(?:.*-)?cache(?:-(?:status|hits?|lookup|remote|info))?|(?:.*-)?purge"
)

_REQUEST: Final = {
    **dict.fromkeys(_REQUEST_DROPS, _DROPPED),
    b"host": _HOST,
    b"accept-encoding": _ACCEPTED,
    b"if-none-match": _UNEXPECTED,
    b"if-modified-since": _SINCE,
}
_ANSWER: Final = {
    **dict.fromkeys(_ANSWER_DROPS, _DROPPED),
    b"content-encoding": _CODED,
    b"cache-control": _CACHED,
    b"expires": _EXPIRING,
    b"content-range": _RANGED,
    b"etag": _TAGGED,
}

#: Of a body, where nothing is known but that there is one.
_SOME: Final = b"?"

#: In the head of a restored answer, where its body is not known yet: the hash in its entity tag.
#: No head has it.
HASH: Final = b"\0"

#: Methods whose answer a caller may have already.
READS: Final = frozenset({"GET", "HEAD"})

_of_request: Final = Spellings(
    lambda name: _REQUEST.get(
        name,
        _DROPPED
        if _DIGEST.fullmatch(name)
        else _SIGNED
        if _SIGNATURE.fullmatch(name)
        else _AS_IT_IS,
    )
)
_of_answer: Final = Spellings(
    lambda name: _ANSWER.get(
        name, _DROPPED if _DIGEST.fullmatch(name) or steers_caches(name) else _AS_IT_IS
    )
)


def steers_caches(name: bytes) -> bool:
    """Whether a field of that lower-case name, which is not Cache-Control itself, may let a shared
    cache keep the answer.

    CGI and its heirs know no difference between ``-`` and ``_``.
    """
    if name == b"cache-control":
        return False
    name = name.replace(b"_", b"-")
    return _STEERS_CACHES.fullmatch(name) is not None and _TELLS_OF_CACHES.fullmatch(name) is None


def interim_fields(headers: RawHeaders) -> RawHeaders:
    """The fields of an interim answer (1xx) before one that may be restored."""
    parts = _of_answer
    return tuple([field for field in headers if parts[field[0]] == _AS_IT_IS])


def request_head(
    request: Request, length: int | None, address: UpstreamAddress, *, body: bool, target: bool
) -> bytes:
    """The head of a rewritten request with a body of ``length`` bytes in no coding; ``None``: there
    is no body at all.

    If it has no Host field, it gets that of ``address``. ``body``, ``target``: whether these may be
    others than the caller sent. Whether an answer is still the one that
    the caller has, the application is not asked: it knows tokens only.
    """
    parts = _of_request
    lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), request.target)]
    hosted = False
    reads = request.method.upper() in READS
    for field in request.headers:
        part = parts[field[0]]
        if part == _AS_IT_IS:
            lines.append(b"%b: %b\r\n" % field)
        elif part == _HOST:
            hosted = True
            lines.append(b"%b: %b\r\n" % field)
        elif part == _ACCEPTED:
            lines.append(b"%b: %b\r\n" % (field[0], readable(field[1])))
        elif part == _UNEXPECTED and (not reads or field[1] == b"*"):
            lines.append(b"%b: %b\r\n" % (field[0], entity_tags.own_tag(field[1])))
        elif (part == _SINCE and not reads) or (
            part == _SIGNED and _signature_holds(field[0].lower(), request, body, target)
        ):
            lines.append(b"%b: %b\r\n" % field)
    if length is not None:
        lines.append(b"Content-Length: %d\r\n" % length)
    lines.append(b"\r\n" if hosted else b"Host: %b\r\n\r\n" % address.authority)
    return b"".join(lines)


def _signature_holds(name: bytes, request: Request, body: bool, target: bool) -> bool:
    """Whether a signature is of nothing that may have been changed."""
    if not (body or target):
        return True
    own = b"".join([value for key, value in request.headers if key.lower() in _OF_ITS_OWN])
    lost = (body and _OF_BODY.search(own)) or (target and _OF_TARGET.search(own))
    return name in _OF_ITS_OWN and not lost


@lru_cache(maxsize=256)  # callers are programs of few kinds; the bounds on heads bound each value
def readable(accepted: bytes) -> bytes:
    """An Accept-Encoding without codings that cannot be read here; untouched if it has none."""
    listed = [item.strip() for item in accepted.split(b",")]
    accepted_codings = [item for item in listed if item.split(b";")[0].strip().lower() in READABLE]
    if len(accepted_codings) == len(listed):
        return accepted
    return b", ".join(accepted_codings) or b"identity"


def codings_readable(codings: bytes | None) -> bool:
    """Whether every content coding in the joined Content-Encoding of an answer can be undone."""
    return codings is None or all(
        (token := one.strip().lower()) in READABLE or not token for one in codings.split(b",")
    )


def answer_lines(
    headers: RawHeaders, length: int | None, coding: bytes | None, tag: bytes | None = None
) -> list[bytes]:
    """The fields of a restored answer of ``length`` bytes (``None``: not told) in ``coding``
    (``None``: none), as lines.

    ``tag`` is its ETag, if it has one.
    """
    parts = _of_answer
    lines: list[bytes] = []
    cached = False
    for field in headers:
        part = parts[field[0]]
        if part == _AS_IT_IS:
            lines.append(b"%b: %b\r\n" % field)
        elif part == _CACHED:
            lines.append(b"%b: %b\r\n" % (field[0], private(field[1])))
            cached = True
        elif part == _CODED and coding is not None:
            lines.append(b"%b: %b\r\n" % (field[0], coding))
            coding = None
        elif part == _TAGGED and tag is not None:
            lines.append(b"%b: %b\r\n" % (field[0], tag))
            tag = None
        elif part == _EXPIRING:
            lines.append(
                b"%b: 0\r\n" % field[0]
            )  # over at once, for caches that know nothing else (RFC 9111 section 5.3)
        elif part == _RANGED:
            lines.extend(_ranged(field[0], field[1], length))
    if coding is not None:
        lines.append(b"Content-Encoding: %b\r\n" % coding)
    if not cached:
        lines.append(b"Cache-Control: private\r\n")
    if length is not None:
        lines.append(b"Content-Length: %d\r\n" % length)
    return lines


def private_head(head: ResponseHead) -> ResponseHead:
    """The head of an answer that other callers may be shown otherwise: no shared cache keeps it,
    and that of a browser keeps it for one token alone. Made once of each.
    """
    if head.viewed is not None:
        return head.viewed
    parts = _of_answer
    cached = b", ".join([value for name, value in head.headers if parts[name] == _CACHED])
    fields = [
        field
        for field in head.headers
        if parts[field[0]] not in (_CACHED, _EXPIRING) and not steers_caches(field[0].lower())
    ]
    marked = copy(head)
    marked.headers = (*fields, (b"Cache-Control", private(cached)), (b"Vary", b"Authorization"))
    marked.verbatim, marked.wire, marked.restored = False, None, None
    head.viewed = marked
    return marked


def _ranged(name: bytes, value: bytes, length: int | None) -> list[bytes]:
    """A Content-Range (RFC 9110 section 14.4).

    A restored answer is a complete document, so it ignores ranges.

    Ranges of other units, such as the items of a list, stay true.
    """
    if not value.lstrip().lower().startswith(b"bytes"):
        return [b"%b: %b\r\n" % (name, value)]
    return [b"%b: bytes 0-%d/%d\r\n" % (name, length - 1, length)] if length else []


_DIRECTIVE: Final = re.compile(
    rb"""[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)((?:=(?:"(?:[^"\\]|\\.)*"|[^\s",;]*))?)[ \t]*(?:,|\Z)""",
    re.DOTALL,
)
_SHARED: Final = frozenset({b"public", b"s-maxage", b"private"})


@lru_cache(maxsize=256)  # an application has few; the bounds on heads bound each value
def private(directives: bytes) -> bytes:
    """A Cache-Control value that forbids shared caches (RFC 9111 section 5.2.2).

    The rest after a syntax error is dropped: an unclosed quote would hide the directives after it.
    Ours come first.
    """
    items = []
    at = 0
    while (directive := _DIRECTIVE.match(directives, at)) is not None or directives[
        at : at + 1
    ] in (b",", b" ", b"\t"):
        at = directive.end() if directive is not None else at + 1
        if directive is not None and directive[1].lower() not in _SHARED:
            items.append(directive[1] + directive[2])
    if b"no-store" not in [item.lower() for item in items]:
        items.insert(0, b"private")
    return b", ".join(items)


def unchanged_lines(headers: RawHeaders, tag: bytes | None) -> list[bytes]:
    """The fields of a 304 for a restored answer: of a body only its address (RFC 9110, 15.4.5)."""
    names = ((field, field[0].lower()) for field in headers)
    fields = tuple(
        [
            field
            for field, name in names
            if name == b"content-location" or not name.startswith(b"content-")
        ]
    )
    return answer_lines(fields, None, None, tag)


def declared_length(headers: RawHeaders) -> int | None:
    """The Content-Length of a message whose framing was checked before, or ``None``."""
    value = header(headers, b"content-length")
    return int(value) if value is not None and value.isdigit() else None


def is_usual(head: RequestHead, headers: RawHeaders) -> bool:
    """Whether nothing in the fields of a request asks for more than an ordinary exchange."""
    if head.minor != 1 or head.close or head.upgrade or head.chunked:
        return False
    if header(headers, b"content-encoding") is not None or header(headers, b"expect") is not None:
        return False
    if not head.length:
        return declared_length(head.headers) is None
    try:
        return classify(headers, _SOME) is Media.JSON
    except VaultError:
        return False


def restored_head(head: ResponseHead) -> bytes:
    """Status line and fields of a restored answer, but for its length and the ``HASH`` of its body;
    empty where that may be no JSON, or has to be looked at more closely. Made once of each.
    """
    if head.restored is None:
        head.restored = _restored_head(head)
    return head.restored


def _restored_head(head: ResponseHead) -> bytes:
    headers = tuple(response_fields(head.headers, NONE, head.status, 0))
    for name in (b"content-encoding", b"content-range"):
        if header(headers, name) is not None:
            return b""
    if _TELLS_OF_TRIES.search(head.block) is not None:
        return b""
    try:
        if head.status in (204, 205, 304) or classify(headers, _SOME) is not Media.JSON:
            return b""
    except VaultError:
        return b""
    own_tag = header(headers, b"etag")
    tag = None if own_tag is None else entity_tags.tag_of(own_tag, HASH)
    lines = answer_lines(headers, None, None, tag)
    return b"HTTP/1.1 %d %b\r\n%b" % (head.status, head.reason, b"".join(lines))
