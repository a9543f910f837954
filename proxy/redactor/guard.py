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
from typing import Final, cast

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Value
from proxy.offload import BRIEF, SMALL
from proxy.redactor.json.arrays import AlikeObjects
from proxy.redactor.json.native import native_code
from proxy.redactor.message import RawHeaders, Request, Spellings
from proxy.redactor.passed_places import PassedParts, cut_out, without_passed
from proxy.redactor.plan import BodyPlan, OperationPlan
from proxy.redactor.redact import BodyObject
from proxy.redactor.select import Selection
from proxy.redactor.value_scan import (
    FEW_VALUES,
    INSIDE,
    LONG_BODY,
    LongPart,
    is_escaped,
    suspects,
    takes_long,
    text_readings,
    unswapped,
)

_NAME: Final = re.compile(rb"[A-Za-z_]\w*")

#: See ``NativeCode.cut``; ``None`` where it was not compiled.
_cut: Final = native_code and native_code.cut

#: Technical fields without personal data.
_TECHNICAL: Final = frozenset(
    b"host origin content-type content-length accept accept-encoding accept-language "
    b"accept-charset user-agent connection upgrade-insecure-requests cache-control pragma te dnt "
    b"via priority expect transfer-encoding content-encoding date".split()
)
#: Values that a very long body is searched for within the event loop.
_FEW: Final = 8
#: Of those that begin with ``Sec-``, the one that scripts of a page fill.
_PROTOCOLS: Final = b"sec-websocket-protocol"
_searched: Final = Spellings(
    lambda name: name not in _TECHNICAL and (name[:4] != b"sec-" or name == _PROTOCOLS)
)


class CutBody(msgspec.Struct, frozen=True, gc=False):
    """Texts of a request, each with the number of its leaf; ``None``: nothing stands there. Beside
    them, where the body is here, the values as they are written, and what stands between them.
    """

    leaves: Sequence[int]
    texts: Sequence[str | None]
    fields: dict[str, str] = {}  #: by text
    spans: Sequence[tuple[int, int]] = ()  #: of all places
    raws: Sequence[bytes] = ()  #: of texts
    pieces: list[bytes | memoryview] = []  #: a place for a token behind each but the last


class BodyCutter:
    """Cuts the texts out of bodies of one operation. ``nothing``: what stands in empty places."""

    __slots__ = ("_depth", "_flat", "_names", "_nothing", "_selection")

    def __init__(self, plan: OperationPlan, nothing: Collection[bytes]) -> None:
        request = cast("BodyPlan", plan.request)
        self._selection = cast("Selection", request.selection)
        self._flat = cast("AlikeObjects", self._selection.flat)
        self._depth = plan.operation.endpoint.limits.json_depth
        self._names, self._nothing = request.fields, nothing

    def cut(self, body: bytes) -> CutBody | None:
        """The texts of a body; ``None``: another shape, or a value that is no plain text."""
        short = len(body) <= SMALL
        leaves = self._flat.whole(body) if short else self._selection.brief(body, self._depth)
        if leaves is None:
            return None
        spans, nothing = leaves[1][1:], self._nothing if len(body) < LONG_BODY else ()
        if _cut is not None:
            parts = _cut(body, leaves, self._names, bool(nothing))
            if parts is None:
                return None
            return CutBody(leaves[0], parts[0], parts[1], spans, parts[2], parts[3])
        texts, raws, pieces, reached = (
            list[str | None](),
            list[bytes](),
            list[bytes | memoryview](),
            0,
        )
        fields, names, view = dict[str, str](), self._names, body if short else memoryview(body)
        for leaf, (start, end) in zip(leaves[0], spans, strict=True):
            raw = body[start:end]
            if raw in nothing:
                texts.append(None)
                continue
            if raw[0] != 0x22 or end - start < 3 or raw.find(b"\\") >= 0:
                return None
            text = raw[1:-1].decode()
            texts.append(text)
            fields[text] = names[leaf]
            raws.append(raw)
            pieces += view[reached:start], b""
            reached = end
        pieces.append(view[reached:])
        return CutBody(leaves[0], texts, fields, spans, raws, pieces)


class JointGuard:
    """Collects the values that the exchanges of one message swap; checks the whole message.

    A value of one part may stand in another, or in a later message of the same WebSocket.
    """

    __slots__ = ("_clear", "_tokens", "_values")

    def __init__(self) -> None:
        self._values: dict[str, tuple[Guard, str]] = {}
        self._tokens: dict[str, None] = {}
        self._clear: dict[str, None] = {}

    def take(
        self,
        guard: "Guard",
        items: Sequence[BodyObject],
        tokens: Sequence[Sequence[Value | None]],
        searched: Mapping[tuple[str, str], Value],
    ) -> None:
        """Add what one exchange has swapped, as for ``Guard.check``; ``guard``: its operation's."""
        values, _, clear = _swapped(items, tokens, searched)
        for text, name in values.items():
            self._values.pop(text, None)  # the latest stand last
            self._values[text] = guard, name
        self._tokens.update((one.text, None) for row in tokens for one in row if one is not None)
        self._tokens.update((token, None) for _, token in searched)
        self._clear.update(dict.fromkeys(clear))

    def trim(self, most: int, size: int) -> None:
        """Forget the oldest beyond so many values, tokens, and characters of either."""
        for texts in (self._values, self._tokens, self._clear):
            whole = sum(map(len, texts))
            while len(texts) > most or whole > size:
                oldest = next(iter(texts))
                whole -= len(oldest)
                del texts[oldest]

    def check(self, sent: Request, *, shared: bool = False) -> None:
        """Look through the whole message (``shared``: no envelope). Raises as ``Guard.check``."""
        if not self._values:
            return
        if shared:
            sent = without_passed(sent, {one.passed for one, _ in self._values.values()})
        by_guard: dict[int, tuple[Guard, dict[str, str]]] = {}
        for text, (guard, name) in self._values.items():
            if text not in self._clear:
                by_guard.setdefault(id(guard), (guard, {}))[1][text] = name
        for guard, values in by_guard.values():
            guard.check_sent(values, self._tokens, sent)


class Guard:
    """Looks through the requests of one operation; made when rules load."""

    __slots__ = ("_latest", "_literals", "_operation", "_report", "passed")

    def __init__(self, plan: OperationPlan, report: Callable[[str, str], None]) -> None:
        """``report``: called with the field and its place, if findings are reported only."""
        self._operation = operation = plan.operation
        self.passed = PassedParts(plan)
        self._literals = frozenset(operation.template.encode().split(b"/"))
        self._report = report
        #: the last address and header fields, and what is searched of both and of the latter
        self._latest: tuple[bytes, RawHeaders, bytes, bytes] = b"\n", (), b"", b""

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
        body, content, parts = sent.body, rest, list[LongPart]()
        if len(body) >= LONG_BODY and len(values) <= FEW_VALUES and not is_escaped(body):
            content, parts = unswapped(body, spans, values)
        elif content is None:
            content = rest = cut_out(body, spans)
        suspected = suspects(values, self._heap(sent, content), parts)
        if not suspected:
            return
        if self.passed.some:
            sent = without_passed(sent, (self.passed,), spans)
        else:
            rest = cut_out(body, spans) if rest is None else rest
            sent = Request(sent.method, sent.target, sent.headers, rest)
        for text in suspected:
            own = {one.text for row in tokens for one in row if one is not None}
            where = self._where(text, own | {token for _, token in searched}, sent)
            if where:
                self._tell(values[text], where + self._row(items, text))
                return

    def doubts(self, cut: CutBody, sent: Request) -> bool:
        """Whether a text that was cut out seems to stand elsewhere; only ``check`` tells."""
        values = cut.fields
        if len(sent.body) < LONG_BODY or len(values) > FEW_VALUES:
            return bool(suspects(values, self._heap(sent, b'"'.join(cut.pieces[::2]))))
        if len(sent.body) > BRIEF and (len(values) > _FEW or takes_long(sent.body)):
            return True  # it takes longer than there is time for
        content, parts = unswapped(sent.body, cut.spans, values)
        return bool(suspects(values, self._heap(sent, content), parts))

    def check_sent(self, values: dict[str, str], tokens: Collection[str], sent: Request) -> None:
        """Look for values, each with its field, in a request whose body is done."""
        for text in suspects(values, self._heap(sent, sent.body)):
            if where := self._where(text, tokens, sent):
                self._tell(values[text], where)
                return

    def _heap(self, sent: Request, content: bytes) -> bytes:
        """Head of a request, and of its body what no value may stand in, in every reading."""
        # callers send the same head, or at least the same fields, again and again
        target, headers, head, fields = self._latest
        others = sent.headers != headers
        if others:
            lines, searched = [b""], _searched
            for name, line in sent.headers:  # no comprehensions: each is one more call
                if searched[name]:
                    lines.append(line)
            fields = b"\n".join(lines)
        if others or sent.target != target:
            path, _, query = sent.target.partition(b"?")
            lines, literals = [b"", query], self._literals
            for one in path.split(b"/"):
                if one not in literals:
                    lines.append(one)  # saves a call
            head = b"\n".join(lines) + fields
            if head.find(b"%") >= 0 or head.find(b"\\") >= 0 or query.find(b"+") >= 0:
                head = b"\n".join(text_readings(head))
            self._latest = sent.target, sent.headers, head, fields
        holds = content.find  # ``in`` asks first whether it is a number, and takes longer for that
        plus = holds(b"+") >= 0 and sent.body[:1] not in b"{["
        if plus or holds(b"\\") >= 0 or holds(b"%") >= 0 or is_escaped(content):
            content = b"\n".join(text_readings(content))
        return b"%b\n\n%b\n" % (head, content)

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
            for reading in text_readings(part):
                rest = reading
                for token in own:
                    rest = rest.replace(token, b"\0")
                if any(_counts(raw, hit, rest) for hit in pattern.finditer(rest)):
                    body = where == _BODY and any(map(pattern.search, _FILE_NAME.findall(part)))
                    return "the name of a file" if body else where
        return ""

    def _parts(self, sent: Request) -> Iterator[tuple[str, bytes]]:
        path, _, query = sent.target.partition(b"?")
        segments = [one for one in path.split(b"/") if one not in self._literals]
        yield "the address", b"/%b?%b" % (b"/".join(segments), query)
        for name, line in sent.headers:
            if _searched[name]:
                yield f"the header field {name.decode('latin-1')}", line
        yield _BODY, sent.body


_BODY: Final = "the body"
#: The line of an upload that names a file.
_FILE_NAME: Final = re.compile(rb"\nContent-Disposition:[^\r\n]*; *filename[^\r\n]*", re.IGNORECASE)


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
