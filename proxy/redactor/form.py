"""Forms and query strings: ``application/x-www-form-urlencoded`` of the WHATWG URL standard."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple
from urllib.parse import quote_plus, unquote_to_bytes

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Value
from proxy.redactor.json.nested import is_nested, pieces
from proxy.redactor.json.text import fold_name, loose_name, without_format

# Name patterns with ``*``: parameters and form members such as ``email_*`` or ``filter[*][email]``.
#
# Only ``*`` is special and stands for any characters, none included; brackets are ordinary
# characters, because frameworks write nested names with them.


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression for ``fullmatch``; at most 1024 patterns are kept.

    Each part is matched at its first place, for good (an atomic group): the first match always
    suffices. So the time grows with the name only, however many ``*`` there are.
    """
    return _in_order([re.escape(part) for part in pattern.split("*")])


def _in_order(parts: Sequence[str]) -> re.Pattern[str]:
    first, *others = parts
    between = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return re.compile(first + between + "".join(f".*{last}" for last in others[-1:]), re.DOTALL)


@lru_cache(maxsize=1024)
def resembling(pattern: str) -> re.Pattern[str]:
    """The same for names that applications take for one of the pattern; both are ``loose_pattern``.

    A sign between letters may be missing, or be one more: servers translate ``birth_date``. Next to
    ``*`` it stays: ``*_name`` is no ``filename``, but ``petName``, where it is ``worded``.
    """
    parts = pattern.split("*")
    spellings = []
    for number, part in enumerate(parts):
        letters = "[_-]?".join(re.escape(sign) for sign in part if sign not in "_-")
        first = part[0] if number and part[:1] in ("_", "-") else "[_-]?"
        last = part[-1] if number + 1 < len(parts) and part[-1:] in ("_", "-") else "[_-]?"
        spellings.append(f"{first}{letters}{last}" if letters else part)
    return _in_order(spellings)


def pattern_weight(pattern: str) -> tuple[bool, int]:
    """Return how specific a pattern is: a name beats all patterns, a longer one a shorter."""
    return ("*" not in pattern, len(pattern) if "*" in pattern else 0)


def patterns_overlap(one: str, other: str) -> bool:
    """Whether some name fits both patterns."""
    if "*" not in one:
        return compiled(other).fullmatch(one) is not None
    if "*" not in other:
        return compiled(one).fullmatch(other) is not None
    # The parts between the first and the last * of each fit in sequence, so the ends alone decide.
    heads = one.partition("*")[0], other.partition("*")[0]
    tails = one.rpartition("*")[2], other.rpartition("*")[2]
    begins = heads[0].startswith(heads[1]) or heads[1].startswith(heads[0])
    return begins and (tails[0].endswith(tails[1]) or tails[1].endswith(tails[0]))


_BROKEN_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_WIDE_PERCENT = re.compile("%u([0-9A-Fa-f]{4})")

_SIGNS = re.compile(r"([_-])[_-]+")
#: Where one word ends and the next begins in ``workEmail`` and ``XMLName``.
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

#: Member in which a browser tells the charset of the form (HTML standard, "constructing the entry
#: list").
_CHARSET_MEMBER = "_charset_"

#: How JSON and XML begin, and no form: some applications look at the body and not at its type.
OTHER_KINDS = (b"{", b"[", b'"', b"<")

#: Names that a set of declared names remembers as harmless, and how long they may be.
_CAPACITY = 1000
_KNOWN_LENGTH = 64

#: Pieces compared after a declared name, and the separators between pieces.
_NESTED = 4
_JOINT = "\x1f"


class Member(NamedTuple):
    """A member: its decoded name, and the span of its raw value.

    ``bare``: there is no ``=``, and no value.
    """

    name: str
    start: int
    end: int
    bare: bool = False

    def edit(self, text: str) -> tuple[int, int, bytes]:
        """The edit that gives this member that value."""
        return self.start, self.end, b"=" * self.bare + write_form_value(text)


def form_members(
    body: bytes, limit: int, declared: tuple[str, ...] = (), spared: tuple[str, ...] = ()
) -> list[Member]:
    """Every member in order, repeated names included; offsets count from the start of ``body``.

    ``declared`` names and patterns are those that a rule looks for. With them the form must be one
    that every application reads alike as far as they are concerned; ``spared`` names are no second
    spelling of them. Raises ``VaultError``: TOO_LARGE for more than ``limit`` members; with
    ``declared``, UNREADABLE_BODY for a name that is not UTF-8 or another charset, and
    AMBIGUOUS_JSON for a name that only some applications take for a declared one.
    """
    if not body:
        return []
    if body.count(b"&") >= limit:
        raise _too_many(limit)
    if declared and b"\0" in body:
        raise VaultError(
            Code.UNREADABLE_BODY, "The form holds zero bytes, as UTF-16 has: encode it in UTF-8."
        )
    watch = _watch(declared, spared) if declared else None
    members: list[Member] = []
    start = 0
    for segment in body.split(b"&"):
        end = start + len(segment)
        if segment:
            equals = segment.find(b"=")
            bare = equals < 0
            name = _name(segment if bare else segment[:equals], strict=watch is not None)
            member = Member(name, end if bare else start + equals + 1, end, bare)
            if watch is not None:
                _judge(watch, member, segment, limit)
            members.append(member)
        start = end + 1
    return members


def read_form_value(raw: bytes | memoryview) -> str:
    """The text of a raw value; ``VaultError(UNREADABLE_BODY)``: a broken ``%``, or not UTF-8."""
    data = bytes(raw)
    text = None if _BROKEN_PERCENT.search(data) else _text(_unquoted(data))
    if text is None:
        raise VaultError(
            Code.UNREADABLE_BODY, "A form value is not percent-encoded UTF-8: encode it in UTF-8."
        )
    return text


def write_form_value(text: str) -> bytes:
    """The text as a raw value; ``VaultError(VALUE_UNFIT)`` for half of a surrogate pair."""
    try:
        return quote_plus(text, safe="*-._").encode()
    except UnicodeEncodeError:
        pass  # The error holds the text; it must not become the context of ours.
    raise VaultError(
        Code.VALUE_UNFIT,
        "A value holds half of a surrogate pair and cannot be written into a form.",
    )


def read_value(raw: bytes | memoryview) -> Value:
    """``read`` as the registry of codecs has it."""
    return Value(read_form_value(raw))


def write_value(value: Value) -> bytes:
    """``write`` as the registry of codecs has it: of JSON the spelling is written."""
    return write_form_value(value.text)


def pattern_matches(pattern: str, name: str) -> bool:
    """Whether a declared name, in which ``*`` stands for any characters, is that of a member."""
    return compiled(pattern).fullmatch(name) is not None


def named_field(names: Mapping[str, str], name: str, passed: Sequence[str] = ()) -> str | None:
    """The field of a parameter or part, by names and patterns; an exact name wins over a pattern,
    the longest pattern over others. ``passed``: names and patterns of those that carry none.
    """
    exact = names.get(name)
    if exact is not None or name in passed:
        return exact
    fits = [pattern for pattern in names if "*" in pattern and pattern_matches(pattern, name)]
    if not fits:
        return None
    best = max(fits, key=len)
    more = (one for one in passed if "*" in one and len(one) > len(best))
    return None if any(pattern_matches(one, name) for one in more) else names[best]


class _Watch:
    """Declared names, exact and as loosely as some application may compare them."""

    def __init__(self, declared: tuple[str, ...], spared: tuple[str, ...]) -> None:
        self.names = declared
        self._spared = frozenset(spared)
        self._exact = [compiled(pattern) for pattern in declared]
        self._loose = [resembling(loose_pattern(pattern)) for pattern in declared]
        ways = (_JOINT.join(map(loose_pattern, pieces(pattern))) for pattern in declared)
        self._ways = [resembling(way) for way in ways]
        self._deep = max(len(pieces(pattern)) for pattern in declared) + _NESTED
        self._wide = any("*" in pattern for pattern in declared)
        self._harmless: set[str] = set()

    def doubtful(self, name: str) -> bool:
        """Whether some applications take the name for a declared one, and others do not."""
        if name in self._harmless:
            return False
        if not self.declared(name) and self.resembled(name):
            return True
        if len(name) <= _KNOWN_LENGTH:
            if len(self._harmless) >= _CAPACITY:
                self._harmless.clear()
            self._harmless.add(name)
        return False

    def declared(self, name: str) -> bool:
        return name in self._spared or any(pattern.fullmatch(name) for pattern in self._exact)

    def resembled(self, name: str) -> bool:
        loose = loose_pattern(name)
        if any(pattern.fullmatch(loose) for pattern in self._loose):
            return True
        words = worded(name) if self._wide else name
        if words != name and self.resembled(words):
            return True
        opened = loose.partition("[")
        # PHP takes a bracket that nothing closes for an underscore.
        if opened[1] and "]" not in opened[2]:
            mangled = loose_pattern(loose.replace("[", "_", 1))
            if any(pattern.fullmatch(mangled) for pattern in self._loose):
                return True
        if not is_nested(name):
            return False
        # The place that the name spells out, and its containers: ``a[b][]`` and ``a.b.c`` fill
        # ``a[b]`` and ``a``.
        holders = list(
            accumulate(map(loose_pattern, pieces(name)[: self._deep]), f"{{}}{_JOINT}{{}}".format)
        )
        return any(pattern.fullmatch(holder) for holder in holders for pattern in self._ways)


#: How often some decode a path, and once more as it is.
_DECODES = 3


@lru_cache(maxsize=1024)
def _watch(declared: tuple[str, ...], spared: tuple[str, ...] = ()) -> _Watch:
    return _Watch(declared, spared)


def loosely(name: str) -> str:
    """A name as the most forgiving applications read it.

    ASP.NET decodes ``%u0065``, C strings end at NUL, PHP drops white space round a name and turns
    dots and spaces into underscores, some skip signs of no width, and many ignore letter case.
    """
    wide = _WIDE_PERCENT.sub(lambda match: chr(int(match[1], 16)), name)
    bare = without_format(wide).partition("\0")[0].strip()
    return fold_name(bare.replace(".", "_").replace(" ", "_"))


def loose_pattern(name: str) -> str:
    """``loosely``, with one sign for several between words."""
    return _SIGNS.sub(r"\1", loosely(name))


def worded(name: str) -> str:
    """A name with a sign between its words: ``workEmail`` is what ``*_email`` means."""
    return _CAMEL.sub("_", name)


def loose_form_name(name: str) -> str:
    """``loose_name`` of a name as forms have it: one idea of names, in JSON and beside it."""
    return loose_name(loosely(name))


def check_member(
    declared: tuple[str, ...], name: str, content: bytes, spared: tuple[str, ...] = ()
) -> None:
    """Raise ``VaultError`` for a member that some take for a declared one, or with a charset."""
    if _watch(declared, spared).doubtful(name):
        raise _ambiguous(declared, name)
    if name == _CHARSET_MEMBER:
        _check_charset(content)


def _too_many(limit: int) -> VaultError:
    return VaultError(
        Code.TOO_LARGE,
        f"The form has more than {limit} members: send fewer, or raise limits.form_fields.",
    )


def _judge(watch: _Watch, member: Member, segment: bytes, limit: int) -> None:
    if watch.doubtful(member.name) or (b";" in segment and _hidden(watch, segment, limit)):
        raise _ambiguous(watch.names, member.name)
    if member.name == _CHARSET_MEMBER:
        _check_charset(segment[len(segment) - (member.end - member.start) :])


def _ambiguous(declared: tuple[str, ...], name: str) -> VaultError:
    """The error for a name that resembles a declared one; tells that one, not the sent one."""
    resembled = [one for one in declared if _watch((one,)).resembled(name)]
    return VaultError(
        Code.AMBIGUOUS_JSON,
        "The form, query or file is ambiguous: a name differs from an expected one only in letter "
        "case, spacing, brackets, dots or separators. If the application has both, name the other "
        "in the rule, too, with its field; pass: true lets its values leave in the clear.",
        tuple(Detail(one, "is the expected one") for one in resembled[:1]),
    )


def _check_charset(charset: bytes) -> None:
    if charset.lower() not in (b"", b"utf-8", b"utf8", b"us-ascii"):
        raise VaultError(
            Code.UNREADABLE_BODY,
            "The form says that it is in another charset than UTF-8: send UTF-8.",
        )


def _hidden(watch: _Watch, segment: bytes, limit: int) -> str:
    """The expected name that hides behind ``;``, once a separator like ``&``; else empty.

    Raises ``VaultError(TOO_LARGE)`` for more than ``limit`` names that differ.
    """
    raw = dict.fromkeys(piece.partition(b"=")[0] for piece in segment.split(b";")[1:])
    if len(raw) > limit:
        raise _too_many(limit)
    names = (_name(piece, strict=False) for piece in raw)
    return next((name for name in names if watch.resembled(name)), "")


def check_path(declared: tuple[str, ...], path: bytes) -> None:
    """Raise ``VaultError`` for a parameter within a path that some take for a declared one:
    ``/people;email=x``, be the sign escaped or not.
    """
    if not declared:
        return
    watch = _watch(declared)
    for _ in range(_DECODES):
        for segment in path.split(b"/") if b";" in path else ():
            if name := _hidden(watch, segment, len(segment)):
                raise _ambiguous(declared, name)
        path = unquote_to_bytes(path)


def _name(raw: bytes, *, strict: bool) -> str:
    """A decoded name. A broken ``%`` stays, as in the standard; ``strict`` demands UTF-8."""
    data = _unquoted(raw)
    text = _text(data)
    if text is None:
        if strict:
            raise VaultError(
                Code.UNREADABLE_BODY,
                "A form name is not percent-encoded UTF-8: encode it in UTF-8.",
            )
        return data.decode(errors="ignore")
    return text


def _unquoted(raw: bytes) -> bytes:
    if b"+" in raw:
        raw = raw.replace(b"+", b" ")
    return unquote_to_bytes(raw) if b"%" in raw else raw


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
