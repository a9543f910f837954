"""The method that the body of a POST names, for applications that take it in place of the real one;
and the path that a form names for WordPress.

Browsers send forms by GET and POST only, so frameworks read a member ``_method``: Rails and Rack
from forms, also without a declared type, Laravel from JSON too, Slim in capitals, ASP.NET by the
name of the header. This reads all of them at once. An unreadable body that may name a method is
refused: no body that a rule may cover passes.
"""

import json
import re
from binascii import a2b_qp
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from proxy.errors import Code, VaultError
from proxy.offload import LARGE
from proxy.redactor import content_coding, form
from proxy.redactor.json.text import fold_name
from proxy.redactor.message import Spellings
from proxy.redactor.path import without_foreign
from proxy.redactor.rules import Operation, Verb

#: Names of the member, as loosely as applications compare them.
_NAMES = frozenset({"_method", "x-http-method-override"})

#: Header fields in which frameworks let a caller name another method, and another address.
TELLS_METHOD = 1
TELLS_ADDRESS = 2
_FIELDS = {
    b"x-http-method-override": TELLS_METHOD,
    b"x-http-method": TELLS_METHOD,
    b"x-method-override": TELLS_METHOD,
    b"x-original-url": TELLS_ADDRESS,
    b"x-rewrite-url": TELLS_ADDRESS,
}

#: Kind of a header, or 0; CGI and its heirs treat ``-`` and ``_`` as equal.
TELLING = Spellings(lambda name: _FIELDS.get(name.replace(b"_", b"-"), 0))


def named_method(values: Sequence[bytes]) -> str:
    """The method that header fields name.

    Raises ``VaultError`` (BAD_REQUEST) where they name several.
    """
    named = {method.strip().upper() for value in values for method in value.split(b",")}
    if len(named) > 1:
        raise VaultError(
            Code.BAD_REQUEST, "The request names several methods to override its own: send one."
        )
    # a method has no other letters, and some applications drop them
    return named.pop().decode("ascii", "ignore")


_TYPE = re.compile(r"[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*(?:;|\Z)")
_PARAMETERS = re.compile(r"form-urlencoded|multipart|json|text/plain", re.IGNORECASE)
_CHARSET = re.compile(r"charset[ \t]*=[ \t]*[\"']?([^\"';, \t]*)", re.IGNORECASE)
#: Charsets that spell ASCII as ASCII does, so that a name stands in the body as it is.
_LEGIBLE = re.compile(r"utf-?8|(?:us-)?ascii|latin1|iso-8859-\d+|windows-125\d", re.IGNORECASE)

#: Names of the member in decoded text: alone or after a non-word character, for long bodies, which
#: are not parsed.
_NAMED = re.compile(rb"[_. \[+](?<![a-z]{3}.)method|http-method-override")
#: On its own, for parts of multipart bodies.
_PART_NAME = re.compile(
    rb"[_.](?<![0-9a-z_-].)method(?![0-9a-z_-])"
    rb"|x-http-method-override(?<![0-9a-z_-].{22})(?![0-9a-z_-])"
)
#: A name in several pieces (RFC 2231), or an encoded word (RFC 2047) in a name.
_PIECED = re.compile(
    rb"[nN](?<![A-Za-z].)[aA][mM][eE]"
    rb"(?:[ \t\r\n]{512}|[ \t\r\n]{0,511}(?:\*|=[ \t\r\n]*(?:\"[^\"\r\n]{0,256})?=\?))",
    re.DOTALL,
)
_METHOD = re.compile(b"method")

#: How much of a body is looked at in one go, which keeps the interpreter's lock; what two such
#: stretches share, more than any name takes; and how long an escape is.
_STRETCH = 64 * 1024
_SHARED = 2048
_ESCAPE = 6
#: What ``_decoded`` leaves out: backslashes, and all that is no ASCII.
_LEFT_OUT = bytes([0x5C, *range(0x80, 0x100)])
#: Quoted-printable escapes in place of percent ones, and nothing else that means something there.
_QUOTED = bytes.maketrans(b"%=\r\n", b"=\0\0\0")
#: Methods that change nothing, and all that applications let one be overridden by.
_SAFE = frozenset({"GET", "OPTIONS", "TRACE"})
_METHODS = _SAFE | {"POST", "PUT", "PATCH", "DELETE"}
#: How a body begins that may be a JSON object.
_OBJECT = (b"{", b"\0", b"\xff\xfe", b"\xfe\xff")


def possible(types: Sequence[str]) -> bool:
    """Whether a body of these declared types may name one: forms, JSON, text, and unclear types."""
    return not types or any(_holds_parameters(declared) for declared in types)


@lru_cache(maxsize=256)
def _holds_parameters(declared: str) -> bool:
    return _TYPE.match(declared) is None or _PARAMETERS.search(declared) is not None


def refuse_types(types: Sequence[str], content_encoding: bytes | None) -> None:
    """Raise ``VaultError`` (UNREADABLE_BODY) if no body of these types and coding is readable."""
    content_coding.refuse_unknown(content_encoding)
    for declared in types:
        _refuse_charset(declared.lower())


def override_method(types: Sequence[str], body: bytes, limit: int) -> str | None:
    """The method that a body free of content codings names, in upper case, or ``None``; ``limit``
    bounds form members.

    Raises ``VaultError``: BAD_REQUEST for two different methods, UNREADABLE_BODY for an unreadable
    body that may name one, TOO_LARGE for a form of too many members, or a body of more than a
    mebibyte, that may name one. Slow for long bodies, and for another thread then: it holds the
    interpreter's lock for short stretches only.
    """
    if not body:
        return None
    methods: dict[str, None] = {}
    for declared in types or ("",):
        methods.update(dict.fromkeys(_by_type(declared.lower(), body, limit)))
    methods.pop("", None)
    if len(methods) > 1:
        raise VaultError(
            Code.BAD_REQUEST,
            "The body names several methods to override that of the request: send one.",
        )
    return next(iter(methods), None)


def _by_type(declared: str, body: bytes, limit: int) -> Iterator[str]:
    """Yield the overrides of a body by its declared type; an unclear type is read in all ways."""
    _refuse_charset(declared)
    kinds = [kind for kind in ("form-urlencoded", "multipart", "json") if kind in declared]
    if "multipart" in kinds and (_holds(_PIECED, body) or _named(_PART_NAME, body)):
        raise _unreadable("is multipart")
    if len(body) > LARGE:
        _refuse_long(
            body,
            as_json=not kinds or "json" in kinds,
            as_form=not kinds or "form-urlencoded" in kinds,
        )
        return
    if not kinds or "form-urlencoded" in kinds:
        yield from _of_form(body, limit)
    if not kinds or "json" in kinds:
        yield from _of_json(body)


def _refuse_long(body: bytes, *, as_json: bool, as_form: bool) -> None:
    """Raise ``VaultError`` (TOO_LARGE) for a long body that may name a method."""
    is_object = as_json and body[:_STRETCH].lstrip(b" \t\r\n\xef\xbb\xbf").startswith(_OBJECT)
    blank = as_json and not body[:_STRETCH].strip(b" \t\r\n\xef\xbb\xbf")
    if not (as_form or is_object or blank):
        return
    if ((is_object or blank) and b"\0" in body) or _named(_NAMED, body):
        raise VaultError(
            Code.TOO_LARGE,
            "The body is long and may name another method, for which there are rules: send less "
            "than a mebibyte, or by that method.",
        )


def _holds(pattern: re.Pattern[bytes], body: bytes) -> bool:
    """Whether the pattern, which matches nothing long, is found."""
    starts = range(0, len(body), _STRETCH)
    return any(
        pattern.search(body, start, start + _STRETCH + _SHARED) is not None for start in starts
    )


def _named(pattern: re.Pattern[bytes], body: bytes) -> bool:
    """Whether the pattern is found in a body that is decoded once, or twice."""
    once = _decoded(body)
    return _holds(pattern, once) or (b"%" in once and _holds(pattern, _decoded(once)))


def _decoded(body: bytes) -> bytes:
    """Return a body in lower case, without escapes and non-ASCII bytes.

    The escapes are those of forms, JSON and quoted strings.

    It serves no other purpose: ``=`` and line ends are gone, too. It uses quoted-printable, for
    which the standard library has a quick decoder, in stretches that cut no escape in two.
    """
    left = bytearray()
    start = 0
    while start < len(body):
        end = start + _STRETCH
        if end < len(body):
            escape = max(body.rfind(mark, end - _ESCAPE, end) for mark in (b"%", b"\\"))
            end = escape if escape >= 0 else end
        some = body[start:end].lower().replace(b"%u00", b"%").replace(b"\\u00", b"%")
        some = some.translate(_QUOTED, _LEFT_OUT)
        for _ in range(2):  # a sign that begins no escape must not take the next one with it
            some = some.replace(b"==", b"=\0=")
        left += a2b_qp(some).translate(None, _LEFT_OUT)
        start = end
    return bytes(left)


def _refuse_charset(declared: str) -> None:
    if any(_LEGIBLE.fullmatch(charset) is None for charset in _CHARSET.findall(declared)):
        raise _unreadable("is in another charset than UTF-8")


def _of_form(body: bytes, limit: int) -> Iterator[str]:
    """Values of the member in a form with ``&``, or old applications' ``;``, between members."""
    if body.count(b"&") + body.count(b";") >= limit and not _hinted(body):
        return
    for text in dict.fromkeys((body, body.replace(b";", b"&"))):
        for member in form.form_members(text, limit):
            if is_name(member.name):
                yield _method(_text(text[member.start : member.end]))


def in_query(query: bytes) -> Iterator[str]:
    """Values of the parameter in a query; Salesforce has a different name for it.

    Older applications separate by ``;``, too.
    """
    text = query.replace(b";", b"&")
    for member in form.form_members(text, len(text) + 1):
        if is_name(member.name) or form.loosely(member.name) == "_httpmethod":
            yield _method(_text(text[member.start : member.end]))


def methods_named(method: str, query: bytes, override: str | None) -> list[str]:
    """The method, and those that an override names, in upper case, HEAD as GET."""
    named = [method.upper()]
    if override:
        named.append(override.strip().upper())
    if named[0] == "POST" and query and maybe_in_query(query):
        named.extend(in_query(query))
    return list(dict.fromkeys("GET" if name == "HEAD" else name for name in named))


def refuse_disputed(sent: str, methods: Sequence[str], operation: Operation) -> None:
    """Raise ``VaultError`` (BAD_REQUEST) unless a request is for its operation whether the
    application follows an override or not. ``methods`` are ``methods_named`` the one that was sent.

    Else who asks for what is always answered with success (OPTIONS) would have the vault carry out
    what no application did. Browsers and frameworks override POST alone, by methods that change.
    And most applications take a method for another one unless it is in capitals.
    """
    served, verb, (own, *named) = operation.methods, operation.verb, methods
    disputing = () if own == "POST" and verb is Verb.READ else _SAFE if own == "POST" else _METHODS
    meant = own in ("POST", *served) and all(one in served for one in named if one in disputing)
    if (not named or meant) and not (verb is Verb.DELETE and sent != sent.upper()):
        return
    raise VaultError(
        Code.BAD_REQUEST,
        "The request can be read as one by another method: send it by the one that is meant, in "
        "capitals, and name no other.",
    )


def maybe_in_query(query: bytes) -> bool:
    """Whether a query may hold the parameter; cheap, and wrong only towards yes."""
    if b"method" in query.lower():
        return True
    return (b"%" in query or not query.isascii()) and b"method" in without_foreign(
        unquote_to_bytes(query)
    ).lower()


def is_name(name: str) -> bool:
    """Whether a form member is it or an element: ``_METHOD``, ``.method``, ``[_method]``."""
    loose = form.loosely(name)
    # PHP takes a bracket that nothing closes for an underscore: ``[method``.
    return (
        loose == "[method"
        or next((piece for piece in re.split(r"[\[\]]+", loose) if piece), "") in _NAMES
    )


def _of_json(body: bytes) -> Iterator[str]:
    if not _hinted(body) and b"\0" not in body:  # NUL: UTF-16 and its kind
        return
    try:
        content = json.loads(body, object_pairs_hook=_Members)
    except (ValueError, RecursionError):
        content = None  # the error holds the text; it must not become the context of ours
    if content is None and body.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(_OBJECT):
        raise _unreadable("is not valid JSON")
    for name, value in content if isinstance(content, _Members) else ():
        if isinstance(value, str) and fold_name(name).strip() in _NAMES:
            yield _method(value)


class _Members(list[tuple[str, object]]):
    """The members of one object, repeated names included."""


def _hinted(body: bytes) -> bool:
    """Whether the word that all names have may stand anywhere.

    Cheap, and wrong only towards yes.
    """
    return _named(_METHOD, body)


def _text(raw: bytes) -> str:
    """A form value for applications that drop invalid UTF-8."""
    return unquote_to_bytes(raw.replace(b"+", b" ")).decode(errors="ignore")


def _method(value: str) -> str:
    return value.partition("\0")[0].strip().upper()


def _unreadable(why: str) -> VaultError:
    return VaultError(
        Code.UNREADABLE_BODY,
        f"The body {why} and may name another method, for which there are rules: send a plain "
        "form or JSON in UTF-8.",
    )


# WordPress serves ``/wp-json/…`` at any path where a form has a member ``rest_route``: its method
# and what it holds are those of the form. So where rules name such paths, no form may have it.

_SIGNS = {"_": r"(?:[_. \[]|%(?:5[FfBb]|2[Ee]))"}
_NAME = "".join(
    _SIGNS.get(one, f"(?:{one}|%{ord(one):02x}|%{ord(one):02X})") for one in "rest_route"
)
#: The name as PHP reads it, where a member may begin: in a form, and in a form of parts.
_ROUTES = (
    ("form-urlencoded", re.compile(rf"[&;] ?{_NAME}(?=[^\w-])".encode())),
    ("multipart", re.compile(rf"[nN][aA][mM][eE]\s*=\s*[\"']?[\\ ]*{_NAME}(?=[^\w-])".encode())),
)
_BLANKS = re.compile(rb"(?:[ +]|%20)+")
#: Bytes that no name with its beginning exceeds once blanks are one.
_LONGEST_NAME = 80


class RouteWatch:
    """Passes the pieces of a form on until one names a path for WordPress: then it raises
    ``VaultError`` (BAD_REQUEST), and the application never has the whole of it.
    """

    def __init__(self, types: Sequence[str], content_encoding: bytes | None) -> None:
        """Raises ``VaultError`` (UNREADABLE_BODY) for a form in a content coding."""
        declared = " ".join(types).lower()
        self._patterns = [pattern for kind, pattern in _ROUTES if kind in declared]
        self._before = b"&"
        if self._patterns and content_encoding is not None:
            raise VaultError(
                Code.UNREADABLE_BODY,
                "The form is in a content coding and may name a path that a rule protects: send "
                "it as it is.",
            )

    def of(self, body: bytes | AsyncIterator[bytes]) -> bytes | AsyncIterator[bytes]:
        """The same body, watched. Raises as the class where it is whole."""
        if not self._patterns:
            return body
        return self.passed(body) if isinstance(body, bytes) else self._each(body)

    async def _each(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces; those of a short form only once it is whole."""
        waiting, size = list[bytes](), 0
        async for piece in body:
            waiting.append(self.passed(piece))
            size += len(piece)
            if size >= _STRETCH:
                yield b"".join(waiting)
                waiting, size = [], 0
        yield b"".join(waiting)

    def passed(self, piece: bytes) -> bytes:
        """The same piece. Raises ``VaultError``, as the class says."""
        text = _BLANKS.sub(b" ", self._before + piece)
        maybe = b"route" in text or b"%" in text
        if maybe and any(pattern.search(text) for pattern in self._patterns):
            raise VaultError(
                Code.BAD_REQUEST,
                "The form names a path ('rest_route'), and rules protect paths of that kind: send "
                "the path itself.",
            )
        self._before = text[-_LONGEST_NAME:]
        return piece
