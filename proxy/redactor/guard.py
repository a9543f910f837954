"""The guard: a value that was just swapped for its token leaves nowhere else in the same request.

The search covers the rest of the body, the address, header fields and cookies: unchanged, with
JSON's escapes, percent-encoded and in base64. From six characters on a value is found inside longer
text as well; a shorter one only as a whole value, so that short names inside other words raise no
alarm. One pass over the request nearly always proves that nothing is there; only a hit is examined
closely.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from json import JSONDecoder
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Value
from proxy.redactor.message import Request, Spellings
from proxy.redactor.redact import BodyObject
from proxy.redactor.rules import Operation

#: Characters from which on a value is found inside longer text, too.
INSIDE: Final = 6
#: Digits alone are everywhere: an age, a count. This many count as a value.
_DIGITS: Final = 4
#: Bytes to look through for all values together, from which on they are looked for by their
#: beginnings.
_MUCH: Final = 1 << 22
#: Values that are searched one by one in any text: a search runs at a 200th of the time for a byte
#: that ``_likely`` takes.
_FEW_VALUES: Final = 32
_CHUNK: Final = 1 << 16

#: The base64 of so many bytes, at any alignment and in either alphabet, has 14 of these in a row.
_CODED_SIZE: Final = 11
_RUN: Final = b"a" * 14
_RUNS: Final = bytes(
    0x61 if byte < 128 and (chr(byte).isalnum() or chr(byte) in "+/-_") else 0x20
    for byte in range(256)
)
#: Rows of them that are looked through one by one.
_FEW_RUNS: Final = 256

_ESCAPES: Final = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}(?:\\u[0-9A-Fa-f]{4})*|(.))", re.DOTALL)
_RARE: Final = 200  #: bytes for each escape, from which on they are few
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_SIGNS: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}
#: While escapes are undone: a backslash of the text, a quote of the text, a quote of the document.
_STAND_INS: Final = bytes.maketrans(b"\0\1\2", b'\\""')
_decoded: Final = JSONDecoder(strict=False).decode
_NAME: Final = re.compile(rb"[A-Za-z_]\w*")
_WHOLE_TEXT: Final = re.compile(rb"(?<=[\"=&;/\n])[^\"=&;/\n]{2,24}(?=[\"&;/\n])")

#: Technical fields without personal data.
_TECHNICAL: Final = frozenset(
    b"host origin content-type content-length accept accept-encoding accept-language "
    b"accept-charset user-agent connection upgrade-insecure-requests cache-control pragma te dnt "
    b"via priority expect transfer-encoding content-encoding date".split()
)
_searched: Final = Spellings(lambda name: name not in _TECHNICAL and name[:4] != b"sec-")


class JointGuard:
    """Collects the values that the exchanges of one message swap; checks the whole message.

    A value of one part may stand in another.
    """

    __slots__ = ("_clear", "_tokens", "_values")

    def __init__(self) -> None:
        self._values: dict[str, tuple[Guard, str]] = {}
        self._tokens: set[str] = set()
        self._clear: set[str] = set()

    def take(
        self,
        guard: "Guard",
        items: Sequence[BodyObject],
        tokens: Sequence[Sequence[Value | None]],
        searched: Mapping[tuple[str, str], Value],
    ) -> None:
        """Add what one exchange has swapped, as for ``Guard.check``; ``guard``: its operation's."""
        values, _, clear = _swapped(items, tokens, searched)
        self._values.update((text, (guard, name)) for text, name in values.items())
        self._tokens.update(one.text for row in tokens for one in row if one is not None)
        self._tokens.update(token for _, token in searched)
        self._clear.update(clear)

    def check(self, sent: Request) -> None:
        """Look for everything in the message as it is to leave. Raises as ``Guard.check``."""
        by_guard: dict[int, tuple[Guard, dict[str, str]]] = {}
        for text, (guard, name) in self._values.items():
            if text not in self._clear:
                by_guard.setdefault(id(guard), (guard, {}))[1][text] = name
        for guard, values in by_guard.values():
            guard.check_sent(values, self._tokens, sent)


class Guard:
    """Looks through the requests of one operation; made when rules load."""

    __slots__ = ("_literals", "_operation", "_report")

    def __init__(self, operation: Operation, report: Callable[[str, str], None]) -> None:
        """``report``: called with the field and its place, if findings are reported only."""
        self._operation = operation
        self._literals = frozenset(operation.template.encode().split(b"/"))
        self._report = report

    def check(
        self,
        items: Sequence[BodyObject],
        tokens: Sequence[Sequence[Value | None]],
        searched: Mapping[tuple[str, str], Value],
        sent: Request,
        rest: bytes | None = None,
    ) -> None:
        """Search the rest of a request, with its original body, for redacted values.

        Raises ``VaultError`` (VALUE_ELSEWHERE) if the request must not leave then. ``searched``:
        values by (field, token). ``rest``: the body without the swapped parts, if known.
        """
        values, spans, _ = _swapped(items, tokens, searched)
        if not values:
            return
        rest = _rest(sent.body, spans) if rest is None else rest
        sent = Request(sent.method, sent.target, sent.headers, rest)
        for text in _suspects(values, self._heap(sent)):
            own = {one.text for row in tokens for one in row if one is not None}
            where = self._where(text, own | {token for _, token in searched}, sent)
            if where:
                self._tell(values[text], where + self._row(items, text))
                return

    def doubts(self, values: Mapping[str, str], sent: Request, pieces: list[bytes]) -> bool:
        """Whether any of these values seems to stand in a request, whose body has them between
        these pieces, and a token behind each; only ``check`` tells.
        """
        rest = b'"'.join(pieces[::2])
        looked = Request(sent.method, sent.target, sent.headers, rest)
        return bool(_suspects(values, self._heap(looked)))

    def check_sent(self, values: Mapping[str, str], tokens: Collection[str], sent: Request) -> None:
        """Look for values, each with its field, in a request that has all tokens in its body
        already. Raises as ``check``.
        """
        for text in _suspects(values, self._heap(sent)):
            if where := self._where(text, tokens, sent):
                self._tell(values[text], where)
                return

    def _heap(self, sent: Request) -> tuple[bytes, bytes]:
        """Head and body of a request in which no value may stand, in every reading."""
        path, _, query = sent.target.partition(b"?")
        lines, literals, searched = [b"", query], self._literals, _searched
        # no comprehensions: each is one more call with every request
        for one in path.split(b"/"):
            if one not in literals:
                lines.append(one)  # noqa: PERF401  # saves a call
        for name, line in sent.headers:
            if searched[name]:
                lines.append(line)
        head, content = b"\n".join(lines), sent.body
        holds = content.find  # ``in`` asks first whether it is a number, and takes longer for that
        if head.find(b"%") >= 0 or head.find(b"\\") >= 0 or query.find(b"+") >= 0:
            head = b"\n".join(_readings(head))
        plus = holds(b"+") >= 0 and content[:1] not in b"{["
        if plus or holds(b"\\") >= 0 or holds(b"%") >= 0:
            content = b"\n".join(_readings(content))
        return b"%b\n" % head, b"\n%b\n" % content

    def _row(self, items: Sequence[BodyObject], text: str) -> str:
        """Name the row of a file, or the object, that holds the value; empty for the only one.

        Rows count from the line of names, which is the first.
        """
        if len(items) < 2:
            return ""
        mine = (
            number
            for number, item in enumerate(items, 1)
            if any(spot.value is not None and spot.value.text == text for spot in item.spots)
        )
        number, body = next(mine, 0), self._operation.request.body
        csv = body is not None and body.csv
        return (f" (row {number + 1})" if csv else f" (object {number})") if number else ""

    def _tell(self, name: str, where: str) -> None:
        if self._operation.endpoint.on_error.guard == "report":
            self._report(name, where)
            return
        raise VaultError(
            Code.VALUE_ELSEWHERE,
            f"The request matches {self._operation.label}, and a value of {name} stands in {where} "
            "as well, where no rule names it: leave it out there, or name that place in the rule.",
            (Detail(where, name),),
        )

    def _where(self, value: str, tokens: Iterable[str], sent: Request) -> str:
        """Return the part that really contains a value; empty if it only seemed so."""
        pattern = _pattern(value)
        raw = value.encode("utf-8", "surrogatepass")
        own = [token.encode("utf-8", "surrogatepass") for token in tokens]
        own = [token for token in own if pattern.search(b'"%b"' % token)]
        for where, part in self._parts(sent):
            for reading in _readings(part):
                rest = reading
                for token in own:
                    rest = rest.replace(token, b"\0")
                if any(_counts(raw, hit, rest) for hit in pattern.finditer(rest)):
                    return where
        return ""

    def _parts(self, sent: Request) -> Iterator[tuple[str, bytes]]:
        path, _, query = sent.target.partition(b"?")
        segments = [one for one in path.split(b"/") if one not in self._literals]
        yield "the address", b"/%b?%b" % (b"/".join(segments), query)
        for name, line in sent.headers:
            if _searched[name]:
                yield f"the header field {name.decode('latin-1')}", line
        yield "the body", sent.body


def _swapped(
    items: Sequence[BodyObject],
    tokens: Sequence[Sequence[Value | None]],
    searched: Mapping[tuple[str, str], Value],
) -> tuple[dict[str, str], list[tuple[int, int]], list[str]]:
    """The field of each text that a token took the place of, where those stand in the body, and the
    texts that the rule lets out.
    """
    values: dict[str, str] = {}
    spans: list[tuple[int, int]] = []
    clear: list[str] = []
    for number, item in enumerate(items):  # ``zip`` takes three times as long to begin
        row = tokens[number]
        for index, spot in enumerate(item.spots):
            value, token = spot.value, row[index]
            if token is None or value is None:
                continue
            if (text := value.text) == token.text:
                clear.append(text)  # the rule lets it out
                continue
            values[text] = spot.field
            spans.append((spot.start, spot.end))
    for (name, text), value in searched.items():
        if value.text != text:
            values[value.text] = name
    for text in clear:
        values.pop(text, None)
    return values, spans, clear


def _rest(body: bytes, spans: list[tuple[int, int]]) -> bytes:
    """A body without what tokens took the place of."""
    pieces, at = [], 0
    for start, end in sorted(spans):
        if end > start:
            pieces.append(body[at:start])
            at = max(at, end)
    pieces.append(body[at:])
    return b'"'.join(pieces)


def _suspects(values: Mapping[str, str], parts: tuple[bytes, bytes]) -> list[str]:
    """The values that seem to stand in one of two texts."""
    heap = b"".join(parts)
    holds = heap.find
    runs = heap.translate(_RUNS)
    first = runs.find(_RUN)
    coded = _in_runs(heap, runs, first) if first >= 0 else b""
    suspects: list[str] = []
    few = len(values) <= _FEW_VALUES or len(values) * len(heap) < _MUCH
    for text in values if few else _likely(values, heap):
        raw = text.encode("utf-8", "surrogatepass")
        size = len(raw)
        if len(text) < INSIDE:
            if size < 2 or (size < _DIGITS and text.isdigit()):
                continue
            if holds(raw) >= 0 or holds(b2a_base64(raw, newline=False).rstrip(b"=")) >= 0:
                suspects.append(text)
        elif holds(raw) >= 0 or (
            (size < _CODED_SIZE or coded)
            and _holds_coded(heap if size < _CODED_SIZE else coded, raw)
        ):
            suspects.append(text)
    return suspects


def _in_runs(text: bytes, runs: bytes, at: int) -> bytes:
    """All of a text that may be a longer value in base64: rows of its characters from ``at`` on, as
    ``runs`` shows them; the whole text where they are many.
    """
    pieces: list[bytes] = []
    while at >= 0:
        if len(pieces) == _FEW_RUNS:
            return text
        end = runs.find(b" ", at)
        pieces.append(text[at:end])  # it ends with the end of a line, which is none of them
        at = runs.find(_RUN, end)
    return b"\n".join(pieces)


def _holds_coded(heap: bytes, raw: bytes) -> bool:
    """Whether a text holds bytes in base64, in either alphabet."""
    size = len(raw)
    # the three alignments in base64
    first = b2a_base64(raw, newline=False)[: size * 4 // 3]
    second = b2a_base64(b"\0" + raw, newline=False)[2 : (size + 1) * 4 // 3]
    third = b2a_base64(b"\0\0" + raw, newline=False)[3 : (size + 2) * 4 // 3]
    coded, holds = b"%b %b %b" % (first, second, third), heap.find
    if holds(first) >= 0 or holds(second) >= 0 or holds(third) >= 0:
        return True
    if b"+" in coded or b"/" in coded:
        return any(holds(way) >= 0 for way in coded.translate(_URL_SAFE).split())
    return False


def _readings(part: bytes) -> list[bytes]:
    """A part of a request, and with the escapes of JSON and percent-encoding undone."""
    readings = [part]
    if b"\\" in part:
        readings.append(_without_escapes(part))
    if b"%" in part or b"+" in part:
        readings.append(unquote_to_bytes(readings[-1].replace(b"+", b" ")))
    return readings


def _without_escapes(part: bytes) -> bytes:
    """Undo the escapes of JSON: many by a decoder, as one string, its quotes held back."""
    many = part.count(b"\\") * _RARE > len(part) and part.find(b"\\u000") < 0
    if many and part.translate(None, b"\0\1\2") == part:
        text = part.replace(b"\\\\", b"\0").replace(b'\\"', b"\1").replace(b'"', b"\2")
        with suppress(ValueError):  # not UTF-8, or an escape that JSON does not have
            undone: str = _decoded(f'"{text.decode()}"')
            return undone.encode("utf-8", "replace").translate(_STAND_INS)
    return _ESCAPES.sub(_character, part)


def _character(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return _SIGNS.get(match[1], match[1])
    units = bytes.fromhex(match[0].replace(b"\\u", b"").decode())
    return units.decode("utf-16-be", "surrogatepass").encode("utf-8", "replace")


def _pattern(value: str) -> re.Pattern[bytes]:
    """All forms of a value: inside longer text, or as a whole one where it is short."""
    raw = value.encode("utf-8", "surrogatepass")
    if len(value) < INSIDE:
        coded = b2a_base64(raw, newline=False).rstrip(b"=\n")
        forms = rb"(?:%b|%b={0,2})" % (re.escape(raw), re.escape(coded))
        return re.compile(rb"(?:(?<=[\"=&;/?\n])|\A)[ ]?" + forms + rb"(?=[\"&;/?\n]|\Z)")
    coded = rb"|".join(
        re.escape(b2a_base64(before + raw, newline=False)[start : (len(before + raw)) * 4 // 3])
        for start, before in ((0, b""), (2, b"\0"), (3, b"\0\0"))
    )
    url_safe = coded.replace(rb"\+", b"-").replace(b"+", b"-").replace(b"/", b"_")
    exact = re.escape(raw)
    if value.isascii() and value.isdigit():
        exact = rb"(?<![0-9])" + exact + rb"(?![0-9])"
    return re.compile(b"|".join((exact, coded, url_safe)))


def _counts(raw: bytes, hit: re.Match[bytes], part: bytes) -> bool:
    """Whether a hit is a value, and not the name of a member."""
    start, end = hit.span()
    if _NAME.fullmatch(raw) is None:
        return True
    before, after = part[start - 1 : start], part[end : end + 8].lstrip()
    if before == b'"' and after[:1] == b'"':
        return part[end + 1 : end + 8].lstrip()[:1] != b":"
    return not (before in (b"", b"&", b"?") and after[:1] == b"=")


def _likely(values: Mapping[str, str], text: bytes) -> Iterator[str]:
    """Of very many values those that may stand in the text: by their beginnings, or as a whole."""
    beginnings: dict[bytes, list[str]] = {}
    short: dict[bytes, str] = {}
    for value in values:
        raw = value.encode("utf-8", "surrogatepass")
        if len(value) < INSIDE:
            short[raw] = value
            short[b2a_base64(raw, newline=False).rstrip(b"=\n")] = value
            continue
        coded = [b2a_base64(before + raw, newline=False) for before in (b"", b"\0", b"\0\0")]
        for form in (raw, coded[0], coded[1][2:], coded[2][3:]):
            beginnings.setdefault(form[:INSIDE], []).append(value)
    chosen: dict[str, None] = {}
    for start in range(0, len(text), _CHUNK):
        chunk = text[start : start + _CHUNK + INSIDE - 1]
        parts = {chunk[at : at + INSIDE] for at in range(len(chunk) - INSIDE + 1)}
        for beginning in parts & beginnings.keys():
            chosen.update(dict.fromkeys(beginnings[beginning]))
    for whole in {*_WHOLE_TEXT.findall(text)} & short.keys():
        chosen[short[whole]] = None
    yield from chosen
