"""Answers that are a sequence of JSON documents, one an event, cut into events as they arrive.

``ndjson`` has a document per line. ``sse`` has the ``data`` fields of a server-sent event, joined
by line feeds (HTML standard, "Interpreting an event stream"). ``multipart`` has a document per part
(``multipart/mixed``, RFC 2046). All else (comments, ids, retry times, line ends, boundaries) passes
byte for byte, and so does an event over the limit.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from proxy.redactor.message import RawHeaders, header
from proxy.redactor.rules import Stream

#: Types of answers with a document per line. Many declare no special type.
_LINES = re.compile(rb"application/(?:[\w.-]+\+)?(?:x-)?(?:nd)?json(?:l|-?lines)?|text/plain|")
_TYPES: Mapping[Stream, re.Pattern[bytes]] = {
    Stream.NDJSON: _LINES,
    Stream.SSE: re.compile(rb"text/event-stream"),
    Stream.MULTIPART: re.compile(rb"multipart/mixed"),
}
#: Lines of one event: each of them is held by itself.
_MOST_LINES = 10_000
_PARAMETER = re.compile(
    rb'[ \t]*;[ \t]*([\w!#$%&\'*+.^`|~-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))[ \t]*'
)
#: Of a boundary, characters (RFC 2046); of the head of a part, bytes.
_LONGEST_BOUNDARY, _LONGEST_HEAD = 70, 8192


def is_stream(stream: Stream, headers: RawHeaders) -> bool:
    """Whether an answer with these fields holds such events, in no content coding."""
    coding = header(headers, b"content-encoding")
    if coding is not None and coding.strip().lower() not in (b"", b"identity"):
        return False
    declared = (header(headers, b"content-type") or b"").partition(b";")[0].strip().lower()
    if _TYPES[stream].fullmatch(declared) is None:
        return False
    return stream is not Stream.MULTIPART or boundary_of(headers) is not None


def boundary_of(headers: RawHeaders) -> bytes | None:
    """The boundary that a message names for its parts; ``None`` where it cannot be told."""
    declared = header(headers, b"content-type") or b""
    at, named = len(declared.partition(b";")[0]), list[bytes]()
    while (parameter := _PARAMETER.match(declared, at)) is not None:
        if parameter[1].lower() == b"boundary":
            named.append(parameter[2] or parameter[3] or b"")
        at = parameter.end()
    usable = len(named) == 1 and 0 < len(named[0]) <= _LONGEST_BOUNDARY and b"\\" not in named[0]
    return named[0] if usable and at == len(declared) else None


class EventStream(Protocol):
    """An answer that is restored event by event. ``end`` is called once, whatever became of it."""

    async def restore(self, piece: bytes) -> bytes:
        """The events that this piece completes, restored. Raises ``VaultError``."""

    async def rest(self) -> bytes:
        """The same for the rest at the end."""

    async def end(self) -> None:
        """Nothing more comes."""


@runtime_checkable
class MessageStream(EventStream, Protocol):
    """A WebSocket whose messages ``restore`` gives the caller one by one."""

    @property
    def longest(self) -> int:
        """Bytes of the longest message."""

    @property
    def passes_binary(self) -> bool:
        """Whether the caller may send binary messages."""

    async def redact(self, text: bytes) -> bytes:
        """A message of the caller as the application may see it. Raises ``VaultError``."""


class Event(NamedTuple):
    """Bytes of a stream, as received, and the document in them."""

    raw: bytes
    #: where the lines of the document stand in ``raw``; none: it holds no document
    lines: tuple[tuple[int, int], ...] = ()
    unread: bool = False  #: it exceeds the limit, so it was not parsed
    length: tuple[int, int] | None = None  #: where the size of the document is told before it

    @property
    def document(self) -> bytes:
        return b"\n".join([self.raw[start:end] for start, end in self.lines])

    def with_document(self, document: bytes) -> "Event":
        """The event with another document of as many lines; of any number, where it has one."""
        if len(self.lines) == 1:
            return self._with_all(document)
        pieces: list[bytes] = []
        lines: list[tuple[int, int]] = []
        reached = size = 0
        for (start, end), line in zip(self.lines, document.split(b"\n"), strict=True):
            pieces += (self.raw[reached:start], line)
            size += start - reached
            lines.append((size, size + len(line)))
            size += len(line)
            reached = end
        return Event(b"".join((*pieces, self.raw[reached:])), tuple(lines))

    def _with_all(self, document: bytes) -> "Event":
        raw, ((start, end),), length = self.raw, self.lines, self.length
        head = raw[:start]
        if length is not None:
            size = b"%d" % len(document)
            head = head[: length[0]] + size + head[length[1] :]
            length = length[0], length[0] + len(size)
        span = len(head), len(head) + len(document)
        return Event(b"".join((head, document, raw[end:])), (span,), length=length)


class Cutter(Protocol):
    """Cuts an answer into its events."""

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completes, in order."""

    def end(self) -> list[Event]:
        """The rest of a stream that ends without the end of an event."""


class NdjsonEvents:
    """Cuts lines. ``most``: bytes of the longest one that is looked into."""

    _ends: tuple[bytes, ...] = (b"\n",)  #: of lines

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest: list[bytes] = []  #: of a line whose end is still to come
        self._size = 0
        self._skipping = False  #: until the end of an event over the limit

    def feed(self, piece: bytes) -> list[Event]:
        cut = max(piece.rfind(end) for end in self._ends) + 1
        if not cut:
            return self._keep(piece)
        block = b"".join((*self._rest, piece[:cut]))
        self._rest.clear()
        self._size = 0
        return [*self._cut(block), *self._keep(piece[cut:])]

    def end(self) -> list[Event]:
        block = b"".join(self._rest)
        self._rest.clear()
        return list(self._cut(block)) if block else []

    def _keep(self, piece: bytes) -> list[Event]:
        if piece:
            self._rest.append(piece)
            self._size += len(piece)
        return self._overflow() if self._size > self._most else []

    def _overflow(self) -> list[Event]:
        event = Event(b"".join(self._rest), (), not self._skipping)
        self._rest.clear()
        self._size = 0
        self._skipping = True
        return [event]

    def _cut(self, block: bytes) -> Iterator[Event]:
        *lines, last = block.split(b"\n")
        for line in (*[line + b"\n" for line in lines], *([last] if last else ())):
            if self._skipping:
                self._skipping = False
                yield Event(line)
            elif len(line) > self._most:
                yield Event(line, (), unread=True)
            else:
                size = len(line.rstrip(b" \t\r\n"))
                yield Event(line, ((0, size),) if size else ())


_SSE_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\n|\r|\Z)")
_BOM = b"\xef\xbb\xbf"


class SseEvents(NdjsonEvents):
    """Cuts server-sent events; lines without data pass at once, unless data waits."""

    _ends = (b"\n", b"\r")

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._event: list[bytes] = []  #: lines of an event whose end is still to come
        self._data: list[tuple[int, int]] = []
        self._long = 0  #: bytes of it
        self._begun = False  #: whether a first line came, before which a mark may stand
        self._returned = False  #: whether the last byte was a carriage return

    def end(self) -> list[Event]:
        """Return the rest; clients drop an event without its empty line, and some do not."""
        return [*super().end(), *self._flush()]

    def _cut(self, block: bytes) -> Iterator[Event]:
        at = 0
        if self._returned and block.startswith(b"\n"):  # the second half of a line end
            at = 1
            yield from self._add(b"\n", 0)
        self._returned = block.endswith(b"\r")
        while at < len(block):
            line = _SSE_LINE.match(block, at)
            if line is None:  # never: it matches anything
                break
            at = line.end()
            yield from self._line(line[0], line[1])

    def _line(self, raw: bytes, text: bytes) -> Iterator[Event]:
        mark = 0
        if not self._begun:
            self._begun, mark = True, len(_BOM) * text.startswith(_BOM)
        if self._skipping:
            self._skipping = bool(text)
            yield Event(raw)
        elif not text:
            yield from self._add(raw, 0)
            yield from self._flush()
        else:
            name, colon, value = text[mark:].partition(b":")
            start = mark + len(name) + len(colon) + value.startswith(b" ")
            yield from self._add(raw, start if name == b"data" else 0, len(text))

    def _add(self, raw: bytes, start: int, end: int = 0) -> Iterator[Event]:
        """Put a line behind those that wait; ``start``: where its data begins, if it has any."""
        if not start and not self._data:
            yield Event(raw)
            return
        if start:
            self._data.append((self._long + start, self._long + end))
        self._event.append(raw)
        self._long += len(raw)
        if self._long > self._most or len(self._event) > _MOST_LINES:
            self._skipping = True
            yield self._take(unread=True)

    def _overflow(self) -> list[Event]:
        waiting = [self._take(unread=True)] if self._event else []
        return [*waiting, *super()._overflow()]

    def _flush(self) -> Iterator[Event]:
        if self._event:
            yield self._take(unread=False)

    def _take(self, *, unread: bool) -> Event:
        event = Event(b"".join(self._event), () if unread else tuple(self._data), unread)
        self._event.clear()
        self._data.clear()
        self._long = 0
        return event


_LINE_END = b"\r\n"
_FIELD = re.compile(rb"([\w!#$%&'*+.^`|~-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_JSON_PART = re.compile(
    rb'application/(?:[\w.+-]+\+)?json(?:[ \t]*;[ \t]*charset="?utf-?8"?)?', re.IGNORECASE
)


class MultipartEvents:
    """Cuts ``multipart/mixed``. No line of JSON begins with a boundary, so a part is complete as
    the boundary behind it begins, or with the size that its head tells.
    """

    def __init__(self, most: int, boundary: bytes) -> None:
        self._most = most
        self._mark = b"\r\n--" + boundary
        #: unread bytes; a line end stands before the first boundary
        self._rest = bytearray(_LINE_END)
        self._before = len(_LINE_END)  #: bytes of them that the application did not send
        self._scanned = 0  #: bytes of them in which no boundary begins
        self._inside = False  #: whether they begin with the head of a part
        self._begun = self._ended = False

    def feed(self, piece: bytes) -> list[Event]:
        """The parts that this piece completes, and what stands between them, in order."""
        self._rest += piece
        events: list[Event] = []
        while not self._ended and (event := self._part() if self._inside else self._outside()):
            events.append(event)
        if self._ended and self._rest:
            events.append(self._taken(len(self._rest)))
        return [event for event in events if event.raw]

    def end(self) -> list[Event]:
        """The rest; a part that was cut off is none that can be read."""
        unread = not self._begun or (self._inside and bool(self._rest.strip()))
        rest = self._taken(len(self._rest), unread=unread)
        return [rest] if rest.raw else []

    def _outside(self) -> Event | None:
        """Return what stands before the next part, as far as it is there."""
        at = self._rest.find(self._mark)
        if at >= 0:
            self._inside = self._begun = True
            return self._taken(at + len(self._mark))
        ready = len(self._rest) - len(self._mark) + 1
        return self._taken(ready) if ready > 0 else None

    def _part(self) -> Event | None:
        """The part that comes next, once it is complete; its head, where nothing in it is read."""
        if self._rest[:2] == b"--":
            self._ended = True
            return None
        start = self._rest.find(b"\r\n\r\n", 0, _LONGEST_HEAD) + 4
        if start < 4:
            return self._beyond() if len(self._rest) >= _LONGEST_HEAD else None
        fields = _fields(bytes(self._rest[:start]))
        if fields is None or not _readable(fields):
            self._inside = False  # a boundary may begin with the end of the head
            return self._taken(start - 2, unread=fields is None or _may_be_json(fields))
        length = fields.get(b"content-length")
        if length is None:
            end = self._rest.find(self._mark, max(start - 2, self._scanned))
        else:
            end = start + int(length[0])
        if end == start - 2:  # nothing at all
            return self._taken(end + len(self._mark))
        if end < 0 or end > len(self._rest):
            if len(self._rest) - start > self._most or end - start > self._most:
                return self._beyond()
            self._scanned = max(len(self._rest) - len(self._mark), 0)
            return None
        self._inside = length is None
        stop = end if length else end + len(self._mark)
        span = None if length is None else length[1:]
        document = ((start, end),) if end - start <= self._most else ()
        return self._taken(stop)._replace(lines=document, unread=not document, length=span)

    def _beyond(self) -> Event:
        """A part over the limit passes unread, up to the next boundary."""
        self._inside = False
        return self._taken(1, unread=True)

    def _taken(self, size: int, *, unread: bool = False) -> Event:
        own = min(self._before, size)
        raw = bytes(self._rest[own:size])
        self._before -= own
        self._scanned = 0
        del self._rest[:size]
        return Event(raw, (), unread)


def _fields(head: bytes) -> dict[bytes, tuple[bytes, int, int]] | None:
    """The fields of a part's head, and where their values stand; ``None``: readable in two ways."""
    fields: dict[bytes, tuple[bytes, int, int]] = {}
    at = 0
    for line in head.split(_LINE_END):
        match = _FIELD.fullmatch(line)
        if match is not None and match[1].lower() not in fields:
            fields[match[1].lower()] = match[2], at + match.start(2), at + match.end(2)
        elif line.strip(b" \t") or (match is None and at and line):
            return None
        at += len(line) + len(_LINE_END)
    return fields


def _readable(fields: Mapping[bytes, tuple[bytes, int, int]]) -> bool:
    """Whether the part is JSON, as it is."""
    coding = fields.get(b"content-transfer-encoding", (b"binary", 0, 0))[0].lower()
    size = fields.get(b"content-length", (b"0", 0, 0))[0]
    uncoded = coding in (b"7bit", b"8bit", b"binary") and b"content-encoding" not in fields
    counted = size.isdigit() and len(size) < 10
    return uncoded and counted and _JSON_PART.fullmatch(_kind(fields)) is not None


def _may_be_json(fields: Mapping[bytes, tuple[bytes, int, int]]) -> bool:
    """Whether a part that cannot be read may hold documents all the same."""
    kind = _kind(fields)
    return kind.startswith(b"multipart/") or b"json" in kind


def _kind(fields: Mapping[bytes, tuple[bytes, int, int]]) -> bytes:
    return fields.get(b"content-type", (b"application/json", 0, 0))[0].lower()


def cutter_of(stream: Stream, headers: RawHeaders, most: int) -> Cutter:
    """The cutter of an answer for which ``is_stream`` holds.

    ``most``: bytes of the longest event that is looked into.
    """
    if stream is Stream.MULTIPART:
        return MultipartEvents(most, boundary_of(headers) or b"")
    return SseEvents(most) if stream is Stream.SSE else NdjsonEvents(most)
