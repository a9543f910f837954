"""Answers that are a sequence of JSON documents, one an event, cut into events as they arrive.

``ndjson`` has a document per line. ``sse`` has the ``data`` fields of a server-sent event, joined
by line feeds (HTML standard, "Interpreting an event stream"). All else (comments, ids, retry times,
line ends) passes byte for byte, and so does an event over the limit.
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
}


def is_stream(stream: Stream, headers: RawHeaders) -> bool:
    """Whether an answer with these fields holds such events, in no content coding."""
    coding = header(headers, b"content-encoding")
    if coding is not None and coding.strip().lower() not in (b"", b"identity"):
        return False
    declared = (header(headers, b"content-type") or b"").partition(b";")[0].strip().lower()
    return _TYPES[stream].fullmatch(declared) is not None


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

    @property
    def document(self) -> bytes:
        """The document, its lines joined."""
        return b"\n".join([self.raw[start:end] for start, end in self.lines])

    def with_document(self, document: bytes) -> "Event":
        """The event with another document of as many lines."""
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


class NdjsonEvents:
    """Cuts lines. ``most``: bytes of the longest one that is looked into."""

    _ends: tuple[bytes, ...] = (b"\n",)  #: of lines

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest: list[bytes] = []  #: of a line whose end is still to come
        self._size = 0
        self._skipping = False  #: until the end of an event over the limit

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completes, in order."""
        cut = max(piece.rfind(end) for end in self._ends) + 1
        if not cut:
            return self._keep(piece)
        block = b"".join((*self._rest, piece[:cut]))
        self._rest.clear()
        self._size = 0
        return [*self._cut(block), *self._keep(piece[cut:])]

    def end(self) -> list[Event]:
        """Return the rest of a stream that ends without the end of an event."""
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
        if self._long > self._most:
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


#: What cuts each kind of stream.
CUTTERS: Mapping[Stream, type[NdjsonEvents]] = {
    Stream.NDJSON: NdjsonEvents,
    Stream.SSE: SseEvents,
}
