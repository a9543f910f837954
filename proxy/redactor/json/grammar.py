"""The grammar of JSON (RFC 8259) over bytes, and how to step over a value without reading it.

Exactly the grammar: no comments, no NaN, no control characters in strings, no second value. Nothing
here recurses, so depth is bounded by the caller's limit and not by the interpreter's. The patterns
work on a text without escapes (``mask_escapes``) and repeat groups a few times: an unbounded group
keeps memory for each round, and its possessive form is broken before Python 3.11.5.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from proxy.errors import Code, VaultError
from proxy.redactor.json.text import mask_escapes

_WS = rb"[ \t\n\r]*+"
_STRING = rb'"[^"\\\x00-\x1f]*+"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_SCALAR = rb"(?:" + _STRING + rb"|" + _NUMBER + rb"|true|false|null)"
_KEY = _STRING + _WS + rb":" + _WS
_COMMA = _WS + rb"," + _WS

SCALAR = re.compile(_SCALAR)

#: After ``{`` or after a value in an object: group 1 is the closing brace, group 2 the next
#: member's raw name.
FIRST_MEMBER = re.compile(_WS + rb"(?:(\})|(" + _STRING + rb")" + _WS + rb":" + _WS + rb")")
NEXT_MEMBER = re.compile(
    _WS + rb"(?:(\})|," + _WS + rb"(" + _STRING + rb")" + _WS + rb":" + _WS + rb")"
)
#: The same in an array: group 1 is the closing bracket; otherwise a value follows.
FIRST_ELEMENT = re.compile(_WS + rb"(?:(\])|)")
NEXT_ELEMENT = re.compile(_WS + rb"(?:(\])|," + _WS + rb")")

#: Bytes between the values of an object: one separator and one name.
_BETWEEN = re.compile(_WS + rb"[{,]" + _WS + _KEY)


def _holding(value: bytes, key: bytes) -> bytes:
    """A pattern of short arrays and objects that hold such values under such names."""
    array = rb"\[" + _WS + rb"(?:" + value + rb"(?:" + _COMMA + value + rb"){0,30})?" + _WS + rb"\]"
    pairs = key + value + rb"(?:" + _COMMA + key + value + rb"){0,30}"
    return rb"(?:" + array + rb"|\{" + _WS + rb"(?:" + pairs + rb")?" + _WS + rb"\})"


#: A value that a pattern can skip: a scalar, or a short array or object of scalars.
_SHORT = rb"(?:" + _SCALAR + rb"|" + _holding(_SCALAR, _KEY) + rb")"

_FORBIDDEN = re.compile(rb"[\\\x00-\x1f]")
#: Inside an array, behind an element: the scalars that follow.
SCALAR_RUN = re.compile(rb"(?:" + _COMMA + _SCALAR + rb"){0,500}")

#: For each kind of container: its first member, the next one, a value to skip, and more members
#: like it. The second pair is for places where no container may stand.
_OBJECT = (
    FIRST_MEMBER,
    NEXT_MEMBER,
    re.compile(_SHORT),
    re.compile(rb"(?:" + _COMMA + _KEY + _SHORT + rb"){0,500}"),
)
_ARRAY = (
    FIRST_ELEMENT,
    NEXT_ELEMENT,
    re.compile(_SHORT),
    re.compile(rb"(?:" + _COMMA + _SHORT + rb"){0,500}"),
)
_LAST_OBJECT = (
    FIRST_MEMBER,
    NEXT_MEMBER,
    SCALAR,
    re.compile(rb"(?:" + _COMMA + _KEY + _SCALAR + rb"){0,500}"),
)
_LAST_ARRAY = (FIRST_ELEMENT, NEXT_ELEMENT, SCALAR, SCALAR_RUN)

#: Bytes that a pattern is shown at once.
_PIECE = 32 * 1024
#: So close to its end a number may be truncated: ``12`` of ``12e+9``.
_CUT = 4


def member_name(raw: bytes) -> str:
    """The decoded name of a member, out of a text that fits the grammar."""
    if b"\\" in raw:
        name: str = json.loads(raw)
        return name
    return raw[1:-1].decode()


def one_name(gap: bytes) -> bool:
    """Whether one separator and one name is all that stands there, before a member's value."""
    return _BETWEEN.fullmatch(mask_escapes(gap)) is not None


def names_of(valid: bytes) -> Iterator[str]:
    """The decoded names of all members of an object, in order; the document is valid."""
    text = mask_escapes(valid)
    at, pattern = 1, FIRST_MEMBER
    while (match := pattern.match(text, at)) and not match[1]:
        yield member_name(valid[match.start(2) : match.end(2)])
        at, pattern = match.end(), NEXT_MEMBER
        value = scalar_end(text, at)
        at = value if value >= 0 else skip(text, at, len(text), 0)


def scalar_end(text: bytes, at: int) -> int:
    """The end of the string, number or word that starts there, without escapes; -1: none."""
    if text[at : at + 1] == b'"':
        close = text.find(b'"', at + 1)
        if close - at > _PIECE:
            return (
                -1 if any(map(_forbidden(text, close), range(at + 1, close, _PIECE))) else close + 1
            )
    match = SCALAR.match(text, at)
    return -1 if match is None else match.end()


def _forbidden(text: bytes, end: int) -> Callable[[int], re.Match[bytes] | None]:
    """Return a matcher of bytes that no string may hold, in a piece of the text."""
    return lambda start: _FORBIDDEN.search(text, start, min(start + _PIECE, end))


@lru_cache(maxsize=1024)
def skip_patterns(
    names: frozenset[str], *, escapes: bool, heads: frozenset[str] = frozenset()
) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Patterns for runs of members, and of elements, in which none of these loose names can stand.

    They skip simple values and names of plain ASCII: names that a reader may confuse with a
    selected one are left to be examined. ``escapes``: there are some in the text, so an underscore
    may be one. ``heads``: so are names with separators in them that contain one of these.
    """
    watched = rb"(?![ _-]*+(?i:" + _spellings(names) + rb')[ _-]*+")' if names else b""
    chars = rb'[^"\\\x00-\x1f\x80-\xff' + b"_" * escapes
    text = chars + rb"]*+"
    if heads:
        text = (
            rb"(?:"
            + chars
            + rb'./>\[\]]*+(?=")|(?!(?:[^"]*[./>\[\]\'$ :])?[_-]*+(?i:'
            + _spellings(heads)
            + rb")[_-]*+[./\[\]>'\" :])"
            + text
            + rb")"
        )
    key = rb'"' + watched + text + rb'"' + _WS + rb":" + _WS
    flat = _holding(_SCALAR, key)
    value = (
        rb"(?:" + _SCALAR + rb"|" + _holding(rb"(?:" + _SCALAR + rb"|" + flat + rb")", key) + rb")"
    )
    return re.compile(rb"(?:" + _COMMA + key + value + rb"){0,500}"), re.compile(
        rb"(?:" + _COMMA + value + rb"){0,500}"
    )


def _spellings(names: Iterable[str]) -> bytes:
    """A pattern of loose names with signs between their letters."""
    return "|".join(
        "[_-]*+".join(map(re.escape, name)) for name in sorted(names) if name.isascii()
    ).encode()


def skip(text: bytes, at: int, room: int, depth: int) -> int:
    """The end of the array or object that starts at ``at``, which may nest ``room`` levels, itself
    included.

    Raises ``VaultError``: MALFORMED_JSON, or TOO_LARGE naming ``depth``, the limit of the whole
    document.
    """
    closers: list[bool] = []  #: true for each open object
    fresh = True
    while True:
        if fresh:
            if len(closers) == room:
                raise too_deep(depth)
            closers.append(text[at] == 0x7B)
            at += 1
        if len(closers) < room:
            kind = _OBJECT if closers[-1] else _ARRAY
        else:
            kind = _LAST_OBJECT if closers[-1] else _LAST_ARRAY
        at, fresh = _step(text, at, kind, fresh)
        if not fresh:
            closers.pop()
            if not closers:
                return at


def _step(
    text: bytes, at: int, kind: tuple[re.Pattern[bytes], ...], fresh: bool
) -> tuple[int, bool]:
    """Go on in an open container: to a container that starts (true), or behind its end."""
    first, following, value, run = kind
    while True:
        match = (first if fresh else following).match(text, at)
        if match is None:
            raise broken(at)
        at = match.end()
        if match[1]:
            return at, False
        stepped = value.match(text, at, at + _PIECE)
        end = stepped.end() if stepped is not None else -1
        # too long to be stepped over at once, or nothing that can be
        if end < 0 or end > at + _PIECE - _CUT:
            if text[at : at + 1] in (b"{", b"["):
                return at, True
            end = scalar_end(text, at)
            if end < 0:
                raise broken(at)
        at = run_end(run, text, end)
        fresh = False


def run_end(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    """The end of a run of members or elements, or of a part of a long one; it may be empty."""
    reach = at + _PIECE
    match = pattern.match(text, at, reach)
    end = at if match is None else match.end()
    if end <= reach - _CUT or reach >= len(text):
        return end
    # The value may continue after it: a run up to a comma ends with a whole value.
    match = pattern.match(text, at, max(text.rfind(b",", at, reach), at))
    return at if match is None else match.end()


# ---------------------------------------------------------------------- errors


def not_utf8() -> VaultError:
    """The error for a body in another charset."""
    return VaultError(Code.UNREADABLE_BODY, "The JSON body is not UTF-8: send it in UTF-8.")


def broken(at: int) -> VaultError:
    """The error for a body that is no JSON; the offset counts bytes from 0."""
    return VaultError(
        Code.MALFORMED_JSON,
        f"The body is not valid JSON at byte {at}: send JSON as RFC 8259 has it.",
    )


def too_deep(depth: int) -> VaultError:
    """The error for a body that nests deeper than allowed."""
    return VaultError(
        Code.TOO_LARGE,
        f"The JSON body nests deeper than {depth} levels: flatten it, or raise limits.json_depth.",
    )


def too_many() -> VaultError:
    """The error for a body with more places to look at than its size explains."""
    return VaultError(
        Code.TOO_LARGE,
        "The JSON body has too many members and elements where a rule looks at each of them: "
        "send it in parts.",
    )


def ambiguous(reason: str) -> VaultError:
    """The error for a body that two readers may understand differently."""
    return VaultError(
        Code.AMBIGUOUS_JSON,
        f"The JSON body is ambiguous: {reason}. Send one document with distinct names.",
    )
