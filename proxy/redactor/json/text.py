"""JSON texts as bytes: charset, escapes, depth, and when two names of members are the same.

Long texts are processed in pieces: a call holds the interpreter's lock, and large blocks of memory
cost more than the work on them.
"""

import re
import unicodedata
from bisect import bisect_right
from codecs import utf_8_decode
from collections.abc import Callable, Iterable, Iterator

import msgspec

# Equality of member names for lenient readers: letter case, escapes, and JSON spellings.
#
# A rule names a member once, and applications bind it in their own ways: Go and .NET ignore letter
# case, and every parser undoes ``\u0065``. A name that only some of them would take for a declared
# one makes a message ambiguous.

#: Letters that Java's and .NET's case-insensitive look-ups take for "i", though Unicode case
#: folding does not.
_DOTTED = str.maketrans({"\u0130": "i", "\u0131": "i"})

#: JSON's two-character escapes (RFC 8259, section 7), by character.
_SHORT_NAME = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "\b": "b",
    "\f": "f",
    "\n": "n",
    "\r": "r",
    "\t": "t",
}


def fold_name(name: str) -> str:
    """Fold a name as careless readers do: letter case, U+017F, U+212A; C ends at NUL."""
    return name.partition("\0")[0].translate(_DOTTED).casefold()


#: What servers leave out or put in where they translate names: ``birthDate``, ``birth_date``.
JOINTS = str.maketrans("", "", "_-")
#: Signs that no name of a rule has; a sign may become eighteen of another width.
_NO_NAME = 300


def loose_name(name: str) -> str:
    """Fold a name as readers do that translate names, too: no ``_`` and ``-``, and of letters of
    another width or style (NFKC) the usual ones.
    """
    folded = fold_name(without_format(name)).strip()
    return folded.translate(JOINTS) or folded


def fold_all(names: str) -> str:
    """``fold`` of a text of several names, in which NUL ends nothing."""
    return names.translate(_DOTTED).casefold()


def without_format(name: str) -> str:
    """The name in NFKC, without signs of no width, byte order marks among them."""
    if name.isascii():
        return name
    bare = "".join(char for char in name if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", bare) if len(bare) < _NO_NAME else bare


def needle(name: str) -> bytes:
    """The name as a JSON string with the fewest escapes."""
    out = "".join(f"\\{_SHORT_NAME[char]}" if char in '"\\' else char for char in name)
    return f'"{out}"'.encode()


def escapes(names: Iterable[str]) -> re.Pattern[bytes]:
    """Finds the sign that one of the names may be spelled with escapes somewhere in a document.

    For plain ASCII names that is an escaped ASCII character, which serialisers hardly ever write;
    for other names any escape will do.
    """
    text = "".join(names)
    if any(char in _SHORT_NAME or char < " " for char in text):
        return re.compile(rb"\\")
    return re.compile(rb"\\u00[2-7]" if text.isascii() else rb"\\u")


_SHORT_ESCAPE = re.compile(rb'\\["\\/bfnrt]')
_LONG_ESCAPE = re.compile(rb"\\u[0-9A-Fa-f]{4}")

#: One escape of a string: 12 bytes a surrogate pair, 6 bytes half of one, 2 bytes anything else.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[dD][89a-fA-F][0-9A-Fa-f]{2}|.)",
    re.DOTALL,
)

#: The beginning of an escape of half of a surrogate pair, or of such a pair.
_HALF = re.compile(rb"\\u[dD]")

CONTROLS = bytes(range(32))

_SPACE = re.compile(rb"[ \t\n\r]*+")

#: Bytes of a piece.
_PIECE = 32 * 1024
#: Bytes of which brackets are found in one go: to cut a text up costs a fifth more, and the decoder
#: keeps the lock for longer.
_STRETCH = 1024 * 1024

_UNIFY = bytes({ord("{"): ord("["), ord("}"): ord("]")}.get(byte, byte) for byte in range(256))
_REST = bytes(byte for byte in range(256) if byte not in b'"[]{}')
_ESCAPED_QUOTE = re.compile(rb'\\["\\]')

#: Below this size it is quicker to count the brackets first: no document nests deeper than it has
#: brackets.
_SMALL = 4096

#: With fewer escapes than one in so many bytes, stepping from one to the next is faster.
_RARE = 1024


def mask_escapes(body: bytes) -> bytes:
    """The same text with plain characters in place of its escapes, every other byte where it was.

    A remaining backslash belongs to no escape. Outside of strings no escape becomes a JSON token.
    Long texts are processed in pieces, since a call of a pattern holds the interpreter's lock.
    """
    if body.find(b"\\") < 0:
        return body
    if len(body) <= _PIECE:
        return _masked(body)
    pieces: list[bytes] = []
    start = 0
    while start < len(body):
        end = _between_escapes(body, start, start + _PIECE)
        pieces.append(_masked(body[start:end]))
        start = end
    return b"".join(pieces)


def _masked(piece: bytes) -> bytes:
    return _LONG_ESCAPE.sub(b"______", _SHORT_ESCAPE.sub(b"__", piece))


def _between_escapes(body: bytes, start: int, end: int) -> int:
    """A place at or just before ``end`` that is inside no escape of a text from ``start``."""
    if end >= len(body):
        return len(body)
    for at in range(max(end - 5, start), end):  # the longest escape has six bytes
        before = body[start : at + 1]
        if (
            body[at] == 0x5C and (len(before) - len(before.rstrip(b"\\"))) % 2
        ):  # it begins one, and is not escaped itself
            length = 6 if body[at + 1 : at + 2] == b"u" else 2
            if at + length > end and at > start:
                return at
    return end


_ANY_ESCAPE = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CONTROL_NAMES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def unescaped(text: bytes | bytearray) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the text inside a string, ``?`` for escaped non-ASCII, and the end of each escape.

    Each end has the number of bytes saved up to there.
    """
    pieces: list[bytes] = []
    ends: list[tuple[int, int]] = []
    at = fewer = 0
    for escape in _ANY_ESCAPE.finditer(text):
        number, name = escape.groups()
        code = int(number, 16) if number else 0
        char = _CONTROL_NAMES.get(name, name) if name else bytes([code if code < 128 else 0x3F])
        pieces += (bytes(text[at : escape.start()]), char)
        at = escape.end()
        fewer += at - escape.start() - len(char)
        ends.append((at, fewer))
    return b"".join([*pieces, bytes(text[at:])]), ends


def replace_surrogates(body: bytes) -> bytes:
    """The same text with U+FFFD for each half of a surrogate pair; other bytes stay in place."""
    return _ESCAPE.sub(lambda match: rb"\ufffd" if len(match[0]) == 6 else match[0], body)


#: Texts, passed over, and what JSON does not know though many write it.
_LENIENT = re.compile(rb'"[^"]*"|(?<![^ \t\r\n:,\[])(?:NaN|-?Infinity)(?![^ \t\r\n,\]}])')
_MARK = b"\xef\xbb\xbf"

#: Prefixes of JSON that keep other sites from running it as a script.
_PREFIX = re.compile(
    rb"[ \t\r\n]*+(?:\)\]\}'?,?|\{\}[ ]?&&|while ?\(1\);|for ?\(;;\);)[ \t\r\n]*+(?=[\[{])"
)
#: The call of a function by a name that can do nothing else: JSONP.
_NAME = rb"[A-Za-z_$][\w$]*+(?:\.[A-Za-z_$][\w$]*+|\[(?:[0-9]++|\"[\w$]++\"|'[\w$]++')\])*+"
_GUARDED = rb"(?:typeof (" + _NAME + rb") ?={2,3} ?'function' ?&& ?(?=\1 ?\())?"
_CALL = re.compile(
    rb"[ \t\r\n;]*+(?:/\*\*/)?[ \t\r\n]*+" + _GUARDED + _NAME + rb" ?\("
)  # fmt: skip
_CALLED = re.compile(rb"\)[ \t]*+;?[ \t\r\n]*+\Z")
_RAW = msgspec.json.Decoder(msgspec.Raw)
#: Bytes of either, and of what ends a call.
_MOST_BEFORE, _MOST_BEHIND = 512, 16


def unwrapped(body: bytes) -> bytes | None:
    """The same text with blanks in place of a prefix such as ``)]}',``, or of the call of a
    function round it (JSONP), every other byte where it was.

    ``None`` where it has neither.
    """
    start = len(_MARK) if body.startswith(_MARK) else 0
    end = len(body)
    before = _PREFIX.match(body, start, start + _MOST_BEFORE)
    if before is None:
        before = _CALL.match(body, start, start + _MOST_BEFORE)
        behind = _CALLED.search(body, max(start, end - _MOST_BEHIND))
        if before is None or behind is None or behind.start() < before.end():
            return None
        end = behind.start()
        try:  # a script that is more than that may hold quotes in a comment, or in other quotes
            _RAW.decode(body[before.end() : end])
        except (msgspec.DecodeError, RecursionError):
            return None
    return b" " * before.end() + body[before.end() : end] + b" " * (len(body) - end)


def standard(body: bytes) -> bytes | None:
    """The same text without a byte order mark, a prefix or the call of a function round it, and
    with numbers in place of NaN and Infinity, every other byte where it was.

    ``None`` where it holds none of them.
    """
    out = bytearray(unwrapped(body) or body)
    if out.startswith(_MARK):
        out[: len(_MARK)] = b" " * len(_MARK)
    if b"NaN" in body or b"Infinity" in body:
        for match in _LENIENT.finditer(mask_escapes(bytes(out))):
            if match[0][:1] != b'"':
                sign = b"-" if match[0][:1] == b"-" else b""
                out[match.start() : match.end()] = sign + b"0.".ljust(
                    len(match[0]) - len(sign), b"0"
                )
    return None if out == body else bytes(out)


def lone_surrogate(raw: bytes, start: int, end: int) -> bool:
    """Whether a JSON text between two offsets has half a surrogate pair (RFC 8259, 8.2)."""
    if raw.find(b"\\", start, end) < 0:
        return False
    return any(len(match[0]) == 6 for match in _ESCAPE.finditer(raw, start, end))


def is_utf8(body: bytes) -> bool:
    """Whether the bytes are UTF-8; surrogates and overlong forms are not."""
    if body.isascii():
        return True
    at = 0
    try:
        if len(body) <= _PIECE:
            utf_8_decode(body, "strict", True)
            return True
        view = memoryview(body)
        while at < len(body):
            # Piece by piece: a fraction of the time that one string of the whole size takes.
            at += utf_8_decode(view[at : at + _PIECE], "strict", at + _PIECE >= len(body))[1]
    except UnicodeDecodeError:
        return False
    return True


def is_even(body: bytes) -> bool | None:
    """Whether a text has no backslash or control; ``None`` if it may have half a surrogate pair."""
    if body.find(b"\\") >= 0:
        return None if holds_escape(_HALF, body) else False
    if len(body) <= _PIECE:
        return len(body.translate(None, CONTROLS)) == len(body)
    for at in range(0, len(body), _PIECE):
        piece = body[at : at + _PIECE]
        if len(piece.translate(None, CONTROLS)) < len(piece):
            return False
    return True


def holds_escape(escapes: re.Pattern[bytes], body: bytes) -> bool:
    """Whether an escape of a kind may stand in a text; its pattern begins with a backslash.

    Few backslashes are looked at one by one: a search for that byte takes a thirtieth of the other.
    """
    at = body.find(b"\\")
    for _ in range(len(body) // _RARE + 8):
        if at < 0:
            return False
        if escapes.match(body, at) is not None:
            return True
        at = body.find(b"\\", at + 1)
    return at >= 0 and escapes.search(body, at) is not None


def skip_space(body: bytes, at: int) -> int:
    """The end of the white space that starts at ``at``, which may be none."""
    while True:
        match = _SPACE.match(body, at, at + _PIECE)
        end = at if match is None else match.end()
        if end < at + _PIECE:
            return end
        at = end


#: Members and elements that may be examined singly, each of which costs a hundred times its bytes:
#: a base, one more for so many bytes of the document, and a maximum. Honest documents stay far
#: below.
_STEPS = 50_000
_STEP_BYTES = 20
_MOST_STEPS = 300_000


def most_steps(size: int) -> int:
    """Return how many members and elements of a document of ``size`` may be examined singly."""
    return min(_STEPS + size // _STEP_BYTES, _MOST_STEPS)


# How deep a document nests. Only quotes and brackets are kept, and both kinds of brackets become
# one. Where no string holds a bracket, quotes stand in pairs and can go; then every ``[]`` that
# goes takes one level away.


def depth_fits(document: bytes, depth: int) -> bool:
    """Whether no value of a valid document is inside more than ``depth`` containers."""
    if len(document) < _SMALL and document.count(b"{") + document.count(b"[") <= depth:
        return True
    skeleton = _skeleton(document)
    brackets = skeleton.translate(None, b'"')
    if 2 * skeleton.count(b'""') + len(brackets) != len(skeleton):
        # A quote without a neighbour: some string holds a bracket. Every second piece lies outside
        # of strings.
        brackets = b"".join(skeleton.split(b'"')[::2])
    while len(brackets) > 2 * depth and depth > 0:  # so many pairs at least, or all lie flat enough
        brackets = brackets.replace(b"[]", b"")
        depth -= 1
    return len(brackets) <= 2 * depth


def _skeleton(document: bytes) -> bytes:
    """The brackets and unescaped quotes of a document."""
    pieces: list[bytes] = []
    start = 0
    for _ in range(len(document) // _RARE + 1):
        escape = document.find(b"\\", start)
        if escape < 0:
            break
        pieces += _stripped(document, start, escape)
        start = escape + 2
    else:
        document = _ESCAPED_QUOTE.sub(b"", document[start:])
        start = 0
    pieces += _stripped(document, start, len(document))
    return b"".join(pieces)


def _stripped(document: bytes, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, _STRETCH):
        yield document[at : min(at + _STRETCH, end)].translate(_UNIFY, _REST)


class Layer:
    """A text with its escapes undone, and where each of its bytes stands outside."""

    def __init__(
        self,
        at: tuple[bytes, int, int],
        escaped: re.Pattern[bytes],
        decode: Callable[[bytes], bytes],
    ) -> None:
        data, start, end = at
        self._ends, self._outside = [0], [start]  # behind each escape
        pieces: list[bytes] = []
        reached, size = start, 0
        for escape in escaped.finditer(data, start, end):
            char = decode(escape[0])
            pieces += (data[reached : escape.start()], char)
            size += escape.start() - reached + len(char)
            reached = escape.end()
            self._ends.append(size)
            self._outside.append(reached)
        self.content = b"".join([*pieces, data[reached:end]])

    def outside(self, at: int) -> int:
        """The place outside of a byte of the text."""
        before = bisect_right(self._ends, at) - 1
        return self._outside[before] + at - self._ends[before]
