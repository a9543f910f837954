"""Cookies that rules name (``carriers: ["cookie NAME FIELD"]``): their text and its escapings.

A browser sends a cookie back on every path of its site, whatever rules say of that. So its value is
swapped for its token in every request to the endpoint, and what cannot be swapped does not leave.
The escaping is that of the cookie as it stands: percent-encoded as most libraries write it, plain
with signs such as ``@``, or in quotes.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

_COOKIE: Final = b"cookie"
#: What a value holds that is percent-encoded as a whole.
_ENCODED: Final = re.compile(rb"[A-Za-z0-9%._~-]*")
_ESCAPED: Final = re.compile(rb"\\(?:([0-3][0-7]{2})|(.))", re.DOTALL)
#: Signs that stand as they are, in a plain value and in quotes (RFC 6265 section 4.1.1).
_UNQUOTED: Final = "!#$&'()*+-./:<=>?@[]^_`{|}~"
_QUOTED: Final = _UNQUOTED + " ,"

#: What some readers take for ``_`` in a name; ``+`` for those that take it for a blank.
_UNDERSCORES: Final = "_. [+"
_AS_UNDERSCORES: Final = str.maketrans(dict.fromkeys(_UNDERSCORES, "_"))


class CookieField(NamedTuple):
    """The field whose values a cookie holds."""

    schema: str
    field: str


class CookieText(NamedTuple):
    """The text of a cookie's value, and the signs that stand in it as they are."""

    text: str
    safe: str
    quotes: bytes = b""

    def written(self, text: str) -> bytes:
        return b"%b%b%b" % (self.quotes, quote(text, safe=self.safe).encode("ascii"), self.quotes)


def read_cookie(raw: bytes) -> CookieText | None:
    """Return the text of a value; ``None`` where it is no UTF-8."""
    raw, quotes, safe = raw.strip(), b"", ""
    if len(raw) > 1 and raw[:1] == raw[-1:] == b'"':
        raw, quotes, safe = _ESCAPED.sub(_unescaped, raw[1:-1]), b'"', _QUOTED
    elif not _ENCODED.fullmatch(raw):
        safe = _UNQUOTED
    try:
        return CookieText(unquote_to_bytes(raw).decode(), safe, quotes)
    except UnicodeDecodeError:
        return None


def may_hold(names: Iterable[str], head: bytes) -> bool:
    """Whether a request's head may have one of these cookies, as some reader sees it."""
    return _spellings(tuple(names)).search(head.lower()) is not None


@lru_cache(maxsize=64)
def _spellings(names: tuple[str, ...]) -> re.Pattern[bytes]:
    """Every spelling of these names that some reader understands, in lower case."""
    spelled = ("".join(map(_sign, name)) for name in names)
    return re.compile("|".join(spelled).encode("latin-1"))


def _sign(sign: str) -> str:
    """The expression of a sign of a name, as it is or percent-encoded, once or twice."""
    signs = sorted(_UNDERSCORES if sign in _UNDERSCORES else {sign.lower(), sign.upper()})
    literals = dict.fromkeys(re.escape(one.lower()) for one in signs)
    return f"(?:{'|'.join(literals)}|%(?:25)?(?:{'|'.join(f'{ord(one):02x}' for one in signs)}))"


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8)]) if escape[1] else escape[2]


#: Gives the token of a text in a field of a schema, or the text itself where it is one.
#: ``None``: it has none, and must not leave; nor has a cookie without a text that can be read.
Swap = Callable[[CookieField, str | None], Awaitable[str | None]]


async def no_token(_field: CookieField, _text: str | None) -> None:
    """Let no such cookie pass."""


async def with_tokens(
    names: Mapping[str, CookieField], headers: Sequence[tuple[bytes, bytes]], swap: Swap
) -> Sequence[tuple[bytes, bytes]]:
    """The fields of a request with tokens in cookies of these names; without those that have none.

    The same fields where no such cookie is there.
    """
    fields: list[tuple[bytes, bytes]] = []
    changed = in_quotes = False
    for name, value in headers:
        if name.lower() != _COOKIE:
            fields.append((name, value))
            continue
        swapped, in_quotes = await _swapped(names, value, swap, in_quotes)  # fields are joined
        changed |= swapped != value
        if swapped.strip():
            fields.append((name, swapped))
    return fields if changed else headers


async def _swapped(
    names: Mapping[str, CookieField], value: bytes, swap: Swap, in_quotes: bool
) -> tuple[bytes, bool]:
    """A field with its tokens; and whether a dropped value goes on in the next field."""
    alike = {_alike(name.encode("latin-1")): field for name, field in names.items()}
    pairs: list[bytes] = []
    for pair in value.split(b";"):
        name, sign, raw = pair.partition(b"=")
        field = names.get(name.strip().decode("latin-1"))
        if in_quotes:  # the rest of a value that some readers take as one
            in_quotes = not _ESCAPED.sub(b"", pair).rstrip().endswith(b'"')
            continue
        if field is None or not raw.strip():
            other = _read_as(alike, pair) if field is None else None
            if other is None:
                pairs.append(pair)
            else:
                await swap(other, None)
                quotes = (pair.count(b'"'), _ESCAPED.sub(b"", pair).count(b'"'))
                in_quotes = any(count % 2 for count in quotes)
            continue
        in_quotes = raw.strip()[:1] == b'"' and not _CLOSED.fullmatch(raw.strip())
        present = None if in_quotes else read_cookie(raw)
        token = await swap(field, None if present is None else present.text)
        if present is not None and token is not None:
            same = token == present.text
            pairs.append(pair if same else name + sign + present.written(token))
    return b";".join(pairs).lstrip(), in_quotes


#: A value in quotes that ends with the last of them: others are escaped.
_CLOSED: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
#: Starts of cookies within a pair, for readers that divide cookies by commas or blanks (RFC 2109).
_WITHIN: Final = re.compile(rb'(?:^[\s=]*+|[\s,"])([^\s,="]++)(?=[\s"]*+=)')
#: Ends of names: of an array (PHP), and of a text of C.
_NAME_ENDS: Final = re.compile(r"[\[\0]")
_EDGES: Final = '" \t\r\n\v\f\x1c\x1d\x1e\x1f\x85\xa0'  #: of names: quotes and white space


def _read_as(alike: Mapping[str, CookieField], pair: bytes) -> CookieField | None:
    """The field of one of these cookies that some reader sees in a pair of another name.

    Some divide by commas; others undo percent signs in names, ignore case, write ``_`` for dots, or
    take ``name[key]`` for a part of ``name``.
    """
    for name in (*_WITHIN.findall(pair), pair.partition(b"=")[0]):
        whole = unquote_to_bytes(name.replace(b"+", b" "))
        array = _NAME_ENDS.split(whole.decode("latin-1").lstrip(_EDGES), 1)[0]
        field = alike.get(_alike(name)) or alike.get(_alike(array.encode("latin-1")))
        if field is not None:
            return field
    return None


def _alike(name: bytes) -> str:
    """The same text for names that some reader takes for one."""
    text = unquote_to_bytes(name.replace(b"+", b" ")).decode("latin-1").strip(_EDGES)
    return text.translate(_AS_UNDERSCORES).lower()


def set_cookie(line: bytes) -> tuple[str, bytes, bytes, bytes]:
    """Split a ``Set-Cookie``: name, everything before the value, the value, and the attributes."""
    pair, sign, rest = line.partition(b";")
    name, equals, raw = pair.partition(b"=")
    return name.strip().decode("latin-1"), name + equals, raw, sign + rest
