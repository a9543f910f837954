"""Reading and rewriting an answer: tokens out, values in. Pure functions on bytes."""

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from proxy.errors import VaultError
from proxy.model.value import Value
from proxy.offload import free
from proxy.redactor import html
from proxy.redactor.codecs import form as form_codec
from proxy.redactor.codecs import json as json_codec
from proxy.redactor.codecs.media import Media
from proxy.redactor.grammar import evened
from proxy.redactor.idents import plain
from proxy.redactor.message import RawHeaders, header
from proxy.redactor.redact import Body, Spot
from proxy.redactor.rules import IdPlace
from proxy.redactor.splice import splice

#: A JSON string literal, or a bare number, in an ``evened`` text: the places of it where a token can stand.
_JSON_LITERAL = re.compile(rb'"[^"]*+"|-?[0-9][0-9.eE+-]*+')
_JSON_ESCAPE = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}|.)")
_JSON_NAME = re.compile(rb"[ \t\n\r]*:")

#: Characters that are searched at once, and more than any token has.
_SEARCHED = 64 * 1024
_LONGEST = 4096

#: Bytes ``start`` to ``end`` become ``content``.
Edit = tuple[int, int, bytes]


def encode(media: Media, value: Value) -> bytes:
    """A value as it is written into a body of that kind."""
    return form_codec.write(value.text) if media is Media.FORM else json_codec.write(value)


def edits(body: Body, values: Sequence[Sequence[Value | None]]) -> list[Edit]:
    """The edits that put these values into the places of the body's objects; ``None`` leaves a place alone."""
    made: list[Edit] = []
    for item, found in zip(body.items, values, strict=True):
        for spot, value in zip(item.spots, found, strict=True):
            if value is None or value == spot.value:
                continue
            written = encode(body.media, value)
            made.append((spot.start, spot.end, b"=" + written if spot.bare else written))
    return made


class Written(NamedTuple):
    """A body with other values in it, and how many there are of each field."""

    content: bytes
    counts: dict[str, int]


def rewritten(content: bytes, body: Body, values: Sequence[Sequence[Value | None]]) -> Written:
    """The bytes of a body with these values in their places."""
    counts: dict[str, int] = {}
    for item, row in zip(body.items, values, strict=True):
        for spot, value in zip(item.spots, row, strict=True):
            if value is not None:
                counts[spot.field] = counts.get(spot.field, 0) + 1
    made = edits(body, values)
    written = Written(splice(content, made), counts)
    free(made)
    return written


def places(spots: Iterable[Spot]) -> tuple[tuple[str, str], ...]:
    """(field, text) of each place that holds anything."""
    return tuple((spot.field, spot.value.text) for spot in spots if spot.value is not None)


def header_ids(place: IdPlace, headers: RawHeaders) -> list[str]:
    """Ids in an address header such as ``Location``, absolute or relative, by the rule's template."""
    pattern = _address_pattern(place.template)
    found = []
    for name, value in headers:
        if name.lower() == place.name.encode():
            match = pattern.fullmatch(_path(value))
            if match is not None:
                found.append(plain(unquote(match[1])))
    return found


def _path(address: bytes) -> str:
    """The path of an address; empty for what is none."""
    try:
        return urlsplit(address.decode("utf-8", "replace").strip()).path
    except ValueError:
        return ""


def _address_pattern(template: str) -> re.Pattern[str]:
    before, _, rest = template.partition("{")
    _, _, after = rest.partition("}")
    return re.compile(re.escape(before) + "([^/]+)" + re.escape(after) + "/?")


# ---------------------------------------------------------------------- anywhere in a body


class Surroundings(enum.Enum):
    """The kinds of text in which tokens are restored wherever they stand."""

    JSON = "json"
    FORM = "form"
    HTML = "html"
    PLAIN = "plain"


_SURROUNDINGS = {
    b"application/json": Surroundings.JSON,
    b"application/x-www-form-urlencoded": Surroundings.FORM,
    b"text/html": Surroundings.HTML,
    b"text/plain": Surroundings.PLAIN,
}


class Candidate(NamedTuple):
    """A stretch of text that may be a token; ``whole`` when it is a value of its own, ``quoted`` inside a JSON string."""

    text: str
    start: int
    end: int
    whole: bool
    quoted: bool


def surroundings(headers: RawHeaders) -> Surroundings | None:
    """What kind of text the answer is by its declared type; ``None`` for what is not text that can be restored."""
    declared = (header(headers, b"content-type") or b"").partition(b";")[0].strip().lower()
    if declared.endswith(b"+json"):
        return Surroundings.JSON
    return _SURROUNDINGS.get(declared)


def candidates(
    kind: Surroundings, body: bytes, patterns: Sequence[re.Pattern[str]], known: Mapping[str, Value]
) -> list[Candidate]:
    """Everything in the body that may be one of our tokens: by the shapes' patterns, or because it is known."""
    found: list[Candidate] = []
    for start, end, quoted in _stretches(kind, body):
        raw = body[start:end]
        if not raw:
            continue  # no token is empty
        text = _read(kind, raw)
        if text is not None and (text in known or any(pattern.fullmatch(text) for pattern in patterns)):
            names = quoted and _JSON_NAME.match(body, end + 1) is not None
            found.append(Candidate(text, start, end, not names, quoted))
        elif kind is not Surroundings.FORM and len(raw) > 1:
            found.extend(_inside(_as_seen(kind, raw), start, quoted, patterns))
    return found if kind is not Surroundings.HTML else _shown(body, found)


def _read(kind: Surroundings, raw: bytes) -> str | None:
    """The text of a whole stretch; ``None`` where it has none."""
    try:
        if kind is Surroundings.FORM:
            return form_codec.read(raw)
        if kind is Surroundings.JSON and b"\\" in raw:
            value = json_codec.read(b'"' + raw + b'"')
            return value.text if value is not None else None
        return raw.decode()
    except (VaultError, UnicodeDecodeError):
        return None


def _as_seen(kind: Surroundings, raw: bytes) -> str:
    """Running text, a byte for each character. The letters and digits of an escape in JSON are none beside a token."""
    if kind is Surroundings.JSON and b"\\" in raw:
        raw = _JSON_ESCAPE.sub(lambda escape: b" " * len(escape[0]), raw)
    return raw.decode("latin-1")


def _shown(page: bytes, found: Sequence[Candidate]) -> list[Candidate]:
    """Those that stand where a page only shows them."""
    kept: list[Candidate] = []
    stretches = html.acting(page)
    start, end = next(stretches, (len(page), len(page)))
    for item in found:
        while end <= item.start < len(page) and start < len(page):
            start, end = next(stretches, (len(page), len(page)))
        if item.end <= start:
            kept.append(item)
    return kept


def rewrite(kind: Surroundings, found: Iterable[Candidate], values: Mapping[str, Value]) -> list[Edit]:
    """The edits that put the values of resolved candidates into the body, escaped for their surroundings."""
    made: list[Edit] = []
    for item in found:
        value = values.get(item.text)
        if value is None:
            continue
        if kind is Surroundings.JSON:
            made.append(_json_edit(item, value))
        else:
            made.append((item.start, item.end, _ESCAPES[kind](value.text)))
    return made


def replaced(kind: Surroundings, body: bytes, found: Sequence[Candidate], values: Mapping[str, Value]) -> bytes:
    """A body with the values of those candidates that have one."""
    edits = rewrite(kind, found, values)
    return splice(body, edits) if edits else body


_ESCAPES: Mapping[Surroundings, Callable[[str], bytes]] = {
    Surroundings.FORM: form_codec.write,
    Surroundings.HTML: html.text,
    Surroundings.PLAIN: str.encode,
}


def _json_edit(item: Candidate, value: Value) -> Edit:
    if item.quoted and item.whole:
        return (item.start - 1, item.end + 1, json_codec.write(value))
    if item.quoted:
        return (item.start, item.end, json_codec.write(Value(value.text))[1:-1])
    return (item.start, item.end, json_codec.write(value))


def _stretches(kind: Surroundings, body: bytes) -> Iterator[tuple[int, int, bool]]:
    if kind is Surroundings.JSON:
        for match in _JSON_LITERAL.finditer(evened(body)):
            quoted = body[match.start()] == 0x22
            yield (match.start() + 1, match.end() - 1, True) if quoted else (match.start(), match.end(), False)
    elif kind is Surroundings.FORM:
        for member in form_codec.members(body, len(body) + 1):
            yield member.start, member.end, False
    else:
        yield 0, len(body), False


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """All matches in a text; in a long one piece by piece, since nobody else gets the interpreter's lock during one search.

    A piece is looked at so far beyond its end that no token lies across it unseen.
    """
    if len(text) <= _SEARCHED:
        yield from pattern.finditer(text)
        return
    reached = 0
    for start in range(0, len(text), _SEARCHED):
        for match in pattern.finditer(text, max(start, reached), start + _SEARCHED + _LONGEST):
            if match.start() >= start + _SEARCHED:
                break
            yield match
            reached = match.end()


def _inside(text: str, offset: int, quoted: bool, patterns: Sequence[re.Pattern[str]]) -> Iterator[Candidate]:
    last = -1
    spans = sorted((m.start(), -m.end(), m[0]) for pattern in patterns for m in _matches(pattern, text))
    for start, negative_end, token in spans:
        if start >= last:
            last = -negative_end
            yield Candidate(token, offset + start, offset + last, False, quoted)
