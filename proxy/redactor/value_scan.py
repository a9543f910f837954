"""Whether values seem to stand in a text, in whatever form: the first look of the guard.

It proves for nearly every request that nothing is there, and may err the other way only: what it
suspects is examined closely. A long part of a body is neither copied nor read as a whole: a byte
that it lacks, or has in few places, tells where a value can be at all.
"""

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from json import JSONDecoder
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.redactor.content_lines import is_content_lines, line_readings
from proxy.redactor.inner_texts import is_xml, xml_readings
from proxy.redactor.json.native import native_code

#: Characters from which on a value is found inside longer text, too.
INSIDE: Final = 6
#: Digits alone are everywhere: an age, a count. This many count as a value.
_DIGITS: Final = 4
#: Bytes to look through for all values together, from which on they are looked for by their
#: beginnings.
_MUCH: Final = 1 << 22
#: Values that are searched one by one in any text: a search runs at a 200th of the time for a byte
#: that ``_likely`` takes.
FEW_VALUES: Final = 32
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
#: Either alphabet as the decoder takes it, with one of its characters for any other byte, so that
#: all keep their places.
_DECODABLE: Final = bytes(
    0x2B if byte in b"+-" else 0x2F if byte in b"/_" else byte if mark == 0x61 else 0x41
    for byte, mark in enumerate(_RUNS)
)
#: Bytes of rows that are kept with what they are the code of: a token in the fields of a request
#: comes again with the next one.
_KEPT_ROWS: Final = 8 * 1024

_ESCAPES: Final = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}(?:\\u[0-9A-Fa-f]{4})*|(.))", re.DOTALL)
_RARE: Final = 200  #: bytes for each escape, from which on they are few
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_SIGNS: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}
#: While escapes are undone: a backslash of the text, a quote of the text, a quote of the document.
_STAND_INS: Final = bytes.maketrans(b"\0\1\2", b'\\""')
_decoded: Final = JSONDecoder(strict=False).decode
_WHOLE_TEXT: Final = re.compile(rb"(?<=[\"=&;/\n])[^\"=&;/\n]{2,24}(?=[\"&;/\n])")

#: What stands before and behind a whole value, behind one in base64 too.
_BEFORE: Final = b'"=&;/?\n'
_BEHIND: Final = b'"&;/?\n='
#: Places of a short value that are looked at, before it is suspected: some, and one in so many
#: bytes.
_LOOKS: Final = 1000
_BYTES_EACH: Final = 16

#: See ``NativeCode.absent``; ``None`` where it was not compiled.
_absent: Final = native_code and native_code.absent

#: Bytes of a part that is long, of it that are looked at to tell which bytes are rare, and places
#: of a rare byte that are looked at one by one.
LONG_BODY: Final = 16 * 1024
_SAMPLE: Final = 512
_FEW_PLACES: Final = 256
_BYTES: Final = bytes(range(256))
#: The bytes of base64, and so many different ones that text seldom has.
_CODE: Final = frozenset(byte for byte, mark in enumerate(_RUNS) if mark == 0x61)
_MOST_OF_THEM: Final = 55
#: Searches of a long part that take less time than to find the rows of base64 in it.
_FEW_SEARCHES: Final = 6


class LongPart:
    """A long part of a body, seen where it is."""

    __slots__ = (
        "_absent", "_body", "_coded", "_end", "_first", "_often", "_searches", "_start", "span"
    )  # fmt: skip

    def __init__(self, body: bytes, start: int, end: int) -> None:
        self.span = self._body, self._start, self._end = body, start, end
        self._often: bytes | None = None  #: in a sample of it, once needed
        self._first: dict[int, int] = {}  #: by byte that is rare its first place; -1: it has none
        self._absent = b""  #: those that have none
        self._searches = 0  #: for base64 in all of it
        self._coded: bytes | None = None  #: what may be base64 in it, once needed

    def _rare(self, raw: bytes) -> bytes | None:
        """Return which of these bytes are rare in it; ``None``: it lacks one.

        To look for one takes a tenth of the time that a search for all takes, and tells for other
        values, too.
        """
        if self._often is None:
            step = max((self._end - self._start) // _SAMPLE, 1)
            rare = _BYTES.translate(None, self._body[self._start : self._end : step])
            self._often = _BYTES.translate(None, rare)  # a set of them takes ten times as long
        rare = raw.translate(None, self._often)
        if rare and len(rare.translate(None, self._absent)) < len(rare):
            return None
        for byte in sorted(rare):  # the same ones for several values
            if byte not in self._first:
                at = self._first[byte] = self._body.find(byte, self._start, self._end)
                if at < 0:
                    self._absent += bytes((byte,))
                    return None
        return rare

    def places(self, raw: bytes) -> Iterator[int]:
        """The places of these bytes: those of a rare one are looked at, if they are few."""
        rare = self._rare(raw)
        if rare is None:
            return
        body, start, end = self._body, self._start, self._end
        if rare:
            byte, index = rare[0], raw.find(rare[:1])
            at = self._first[byte]
            for _ in range(_FEW_PLACES):
                if at - index >= start and body.startswith(raw, at - index, end):
                    yield at - index
                at = body.find(byte, at + 1, end)
                if at < 0:
                    return
            start = max(start, at - index)
        at = body.find(raw, start, end)
        while at >= 0:
            yield at
            at = body.find(raw, at + 1, end)

    def holds(self, raw: bytes) -> bool:
        """Whether the bytes stand in it, or their base64."""
        if next(self.places(raw), -1) >= 0:
            return True
        for form in _coded_forms(raw):
            if self._rare(form) is None:
                continue
            self._searches += 1
            if len(raw) < _CODED_SIZE or self._searches <= _FEW_SEARCHES:
                if next(self.places(form), -1) >= 0:
                    return True
            elif self._rows().find(form) >= 0:
                return True
        return False

    def _rows(self) -> bytes:
        """Return the rows of characters that may be the base64 of a longer value."""
        if self._coded is None:
            text = self._body[self._start : self._end] + b" "
            runs = text.translate(_RUNS)
            self._coded = _in_runs(text, runs, runs.find(_RUN))
        return self._coded

    def has_whole(self, raw: bytes) -> bool:
        return _is_whole(self._body, raw, self.places(raw))


def _is_whole(text: bytes, raw: bytes, places: Iterable[int]) -> bool:
    """Whether a value stands whole at one of these places of a text, or at very many at all."""
    size, end = len(raw), len(text)
    for looks, at in enumerate(places):
        behind = at + size
        if behind == end or text[behind] in _BEHIND:
            before = text[max(at - 2, 0) : at]
            if before[-1:] == b" ":
                before = before[:-1]
            if before[-1:] in _BEFORE:
                return True
        if looks > _LOOKS + end // _BYTES_EACH:
            return True
    return False


def _places(text: bytes, raw: bytes, at: int) -> Iterator[int]:
    """The places of bytes in a text, of which the first is known."""
    while at >= 0:
        yield at
        at = text.find(raw, at + 1)


def unswapped(
    body: bytes, spans: Sequence[tuple[int, int]], values: Iterable[str]
) -> tuple[bytes, list[LongPart]]:
    """A body without these spans: its short parts, and around what must be read in another way than
    it is written; and its long ones, in that reading too where much is so.
    """
    # no form of a value that holds nothing to be undone is longer
    reach = 2 * max([len(text.encode("utf-8", "surrogatepass")) for text in values]) + 16
    pieces: list[bytes] = []
    parts: list[LongPart] = []
    at, size = 0, len(body)
    for start, end in [*sorted(span for span in spans if span[1] > span[0]), (size, size)]:
        if start - at < LONG_BODY:
            pieces.append(body[at:start])
        else:
            parts.append(LongPart(body, at, start))
            windows = _windows(body, at, start, reach)
            if windows is None:
                others = text_readings(body[at:start])[1:]
                parts += [LongPart(other, 0, len(other)) for other in others]
            else:
                pieces += windows
        at = max(at, end)
    return b'"'.join(pieces), parts


def takes_long(body: bytes) -> bool:
    """Whether to look for values in a very long body takes milliseconds for each of them: it may
    hold base64, in which no byte is rare, or many places that are read in another way.
    """
    sample = body[:: max(len(body) // _SAMPLE, 1)]
    if len(_CODE.intersection(sample)) > _MOST_OF_THEM:
        return True
    for sign in b"\\%":
        at = body.find(sign)
        for _ in range(_FEW_PLACES):
            if at < 0:
                break
            at = body.find(sign, at + 1)
        else:
            return True
    return False


def _windows(body: bytes, start: int, end: int, reach: int) -> list[bytes] | None:
    """The text so far around each escape and percent-encoded byte; ``None``: too much."""
    signs = [sign for sign in b"\\%" if body.find(sign, start, end) >= 0]
    if signs or body[:1] not in b"{[":
        signs.append(0x2B)  # it is a space where percent-encoding is undone
    most = (end - start) // (4 * reach)
    places: list[int] = []
    for sign in signs:
        at = body.find(sign, start, end)
        while at >= 0:
            places.append(at)
            if len(places) > most:
                return None
            at = body.find(sign, at + 1, end)
    windows: list[bytes] = []
    first = last = -1
    for at in [*sorted(places), end + 2 * reach]:
        if first >= 0 and at - reach > last:
            windows.append(body[max(first, start) : min(last, end)])
            first = -1
        if first < 0:
            first = max(at - reach, 0)
        last = at + reach
    return windows


def suspects(values: dict[str, str], heap: bytes, parts: Sequence[LongPart] = ()) -> list[str]:
    """The values that seem to stand in a text, or in one of these parts."""
    few = len(values) <= FEW_VALUES or len(values) * len(heap) < _MUCH
    if few and _absent is not None and _absent(values, heap):
        if not parts or all(_absent(values, *part.span) for part in parts):
            return []
        heap = b""
    holds = heap.find
    runs = heap.translate(_RUNS)
    first = runs.find(_RUN)
    rows = _in_runs(heap, runs, first) if first >= 0 else b""
    uncode = _uncoded if len(rows) <= _KEPT_ROWS else _uncoded.__wrapped__
    uncoded = uncode(rows) if rows else b""
    suspected: list[str] = []
    for text in values if few else _likely(values, heap):
        raw = text.encode("utf-8", "surrogatepass")
        size = len(raw)
        if len(text) < INSIDE:
            counts = size >= 2 and (size >= _DIGITS or not text.isdigit())
            forms = raw, b2a_base64(raw, newline=False).rstrip(b"=")
            nowhere = not parts and holds(raw) < 0 and holds(forms[1]) < 0  # as nearly always
            suspicious = counts and not nowhere and _holds_short(heap, forms, parts)
        elif holds(raw) >= 0 or uncoded.find(raw) >= 0:
            suspicious = True
        else:
            suspicious = size < _CODED_SIZE and max(map(holds, _coded_forms(raw))) >= 0
            suspicious = suspicious or (bool(parts) and any(part.holds(raw) for part in parts))
        if suspicious:
            suspected.append(text)
    return suspected


def _holds_short(heap: bytes, forms: Iterable[bytes], parts: Sequence[LongPart]) -> bool:
    """Whether a form of a short value stands whole in a text or in one of these parts."""
    for form in forms:
        at = heap.find(form)
        if at >= 0 and _is_whole(heap, form, _places(heap, form, at)):
            return True
        if parts and any(part.has_whole(form) for part in parts):
            return True
    return False


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


@lru_cache(maxsize=64)
def _uncoded(rows: bytes) -> bytes:
    """The bytes that rows of base64 stand for, wherever in them a code begins."""
    text = rows.translate(_DECODABLE) + b"AAAA"
    return b"\n".join([a2b_base64(text[at : at + (len(text) - at & -4)]) for at in range(4)])


def _coded_forms(raw: bytes) -> list[bytes]:
    """The base64 of bytes at its three alignments, in either alphabet."""
    size = len(raw)
    coded = [
        b2a_base64(raw, newline=False)[: size * 4 // 3],
        b2a_base64(b"\0" + raw, newline=False)[2 : (size + 1) * 4 // 3],
        b2a_base64(b"\0\0" + raw, newline=False)[3 : (size + 2) * 4 // 3],
    ]
    joined = b" ".join(coded)
    if joined.find(b"+") >= 0 or joined.find(b"/") >= 0:
        coded += joined.translate(_URL_SAFE).split()
    return coded


#: Matches a part that may spell values as XML, or as content lines do.
is_escaped = re.compile(rb"[\xef\xbb\xbf \t\r\n]*+(?:<|(?i:BEGIN:V))").match


def text_readings(part: bytes) -> list[bytes]:
    """A part of a request, and with its escapes and percent-encoding undone."""
    text_readings = [part]
    if is_xml(part):
        text_readings += xml_readings(part)
        part = b"\n".join(text_readings)
    elif is_content_lines(part):
        text_readings += line_readings(part)
        part = b"\n".join(text_readings)
    if b"\\" in part:
        part = _without_escapes(part)
        text_readings.append(part)
    if b"%" in part or b"+" in part:
        text_readings.append(unquote_to_bytes(part.replace(b"+", b" ")))
    return text_readings


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
