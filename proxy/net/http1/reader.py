"""Messages in the bytes of one connection: heads, bodies and pipelined messages, in order.

There is one reader for each role; neither does I/O.

Nothing is read twice: a head waits until it is whole, a body is handed on as it comes.
"""

import re
from typing import Final, cast

from proxy.net.http1.body import EMPTY, BodyQueue, ChunkReader, Flow
from proxy.net.http1.fields import BadMessageError
from proxy.net.http1.head import (
    CHUNKED,
    CLOSE,
    LENGTH,
    NONE,
    TUNNEL,
    Framing,
    Heads,
    RequestHead,
    ResponseHead,
    check_request_start,
    check_response_start,
    parse_request_head,
    parse_request_line,
    parse_response_head,
    with_line_ends,
)

#: A request and its body; or the fault of an invalid request, and the bytes after it.
Message = tuple[RequestHead | BadMessageError, BodyQueue]

#: Empty lines; taken off in one step, for a megabyte may hold half a million.
_EMPTY_LINES: Final = re.compile(rb"\A(?:\r\n)+")

#: Requests read ahead of the one that is handled; more wait as bytes.
READ_AHEAD: Final = 32

#: Bytes of a request's head that is remembered: ten thousand idle connections do so.
_REMEMBERED: Final = 4096
#: Heads of answers that a connection remembers: those of one operation differ in their lengths.
_HEADS: Final = 8
#: Statuses of answers that have no body, whatever their head says (RFC 9112 section 6.3).
_BARE: Final = frozenset({204, 304})

# Kind of the next bytes. Plain numbers: an enumeration's members cost a look-up each time.
HEAD: Final = 0
_LENGTH: Final = 1
_CHUNKED: Final = 2
RAW: Final = 3  #: a body that ends with the connection, or a tunnel
SWITCH: Final = 4  #: perhaps another protocol: undecided until the request before is answered
DEAD: Final = 5  #: whatever: the connection ends


class _MessageReader:
    """Base of both roles: heads that arrive in pieces, and bodies with their framing."""

    __slots__ = ("_chunks", "_left", "_scanned", "body", "pending", "state")

    def __init__(self) -> None:
        self.state = HEAD
        self.body: BodyQueue = EMPTY  #: of the message under way
        self.pending = b""  #: the beginning of a head, bytes too far ahead, or perhaps no HTTP
        self._scanned = 0  #: prefix of it without an end of a head
        self._left = 0
        self._chunks: ChunkReader | None = None

    def _join(self, data: bytes) -> tuple[bytes, int]:
        """Join the pending bytes and ``data``; return them with the end of the head, or -1."""
        data, self.pending = self.pending + data, b""
        end = data.find(b"\r\n\r\n", self._scanned)
        self._scanned = 0
        return data, end

    def _keep(self, data: bytes) -> None:
        """Let a head wait that is not whole."""
        self.pending = data
        self._scanned = max(0, len(data) - 3)

    def start_body(self, body: BodyQueue, framing: Framing, length: int, trailers: int) -> None:
        """Read the bytes after the head into ``body``; ``trailers``: bytes of them at most."""
        self.body = body
        if framing in (LENGTH, NONE):
            self._left = length if framing is LENGTH else 0
            self.state = _LENGTH
        elif framing is CHUNKED:
            self._chunks = ChunkReader(trailers)
            self.state = _CHUNKED
        else:
            self.state = RAW

    def feed_body(self, data: bytes) -> bytes:
        """Hand bytes to the body; gives those behind its end, where ``body.done`` is set.

        Raises ``BadMessageError``.
        """
        body = self.body
        if self.state == _LENGTH:
            left = self._left
            if len(data) < left:
                self._left = left - len(data)
                if data:
                    body.feed(data)
                return b""
            self.state = HEAD
            if left:
                body.feed(data if len(data) == left else data[:left])
            body.finish()
            return data[left:]
        if self.state == _CHUNKED:
            chunks = cast("ChunkReader", self._chunks)
            content = chunks.feed(data)
            if content:
                body.feed(content[0] if len(content) == 1 else b"".join(content))
            if not chunks.done:
                return b""
            self._chunks = None
            self.state = HEAD
            body.finish(chunks.trailers)
            return chunks.rest
        if data:
            body.feed(data)
        return b""


class RequestReader(_MessageReader):
    """Requests of one caller. ``flow`` is the connection."""

    __slots__ = ("_flow", "_last", "_limits", "_switching")

    def __init__(self, flow: Flow, limits: Heads) -> None:
        super().__init__()
        self._flow = flow
        self._limits = limits
        self._switching = False
        #: The last head and its bytes, to its end: an identical one is not parsed again. Not if it
        #: is long, or its target has a query: search values must not stay in memory for that.
        self._last: tuple[bytes, RequestHead | None] = (b"", None)

    @property
    def in_body(self) -> bool:
        """Whether the last request read has a body that is not complete."""
        return self.state in (_LENGTH, _CHUNKED)

    @property
    def in_head(self) -> bool:
        """Whether a head has begun and is not complete."""
        return self.state == HEAD and bool(self.pending)

    def complete_message(self, data: bytes) -> Message | None:
        """The one request that these bytes are, whole and with a head as the last one, as nearly
        always; ``None``: nothing was done.
        """
        raw, head = self._last
        if head is None or self.pending or self.state != HEAD:
            return None
        start = len(raw)
        if not data.startswith(raw):
            try:
                again = self._again(data, head)
            except BadMessageError:  # ``feed`` tells it
                return None
            if again is None:
                return None
            head, start = again
            self._remember(data[:start], head)
        length = head.length
        if len(data) - start != length or head.chunked or head.upgrade:
            return None
        body = self.body = BodyQueue(None, data[start:]) if length else EMPTY
        return head, body

    def _again(self, data: bytes, last: RequestHead) -> tuple[RequestHead, int] | None:
        """A head of which only the first line differs from that of the last one, and where it ends;
        ``None`` where more does.
        """
        first = data.find(b"\r\n") + 2
        end = first + len(last.block) + 2
        if data[end - 2 : end] != b"\r\n" or not data.startswith(last.block, first):
            return None
        start = parse_request_line(data[: first - 2], self._limits)
        same = start[2] == last.minor and end - 4 <= self._limits.whole
        return (last.again(start), end) if same else None

    def _remember(self, raw: bytes, head: RequestHead) -> None:
        short = len(raw) <= _REMEMBERED and head.target.find(b"?") < 0
        self._last = (raw, head) if short else (b"", None)

    def feed(self, data: bytes, room: int = READ_AHEAD) -> list[Message]:
        """The requests that begin in these bytes, and in those that wait; at most ``room``."""
        messages: list[Message] = []
        while data or self.pending:
            if self.state == HEAD:
                if len(messages) >= room:
                    self.pending += data
                    break
                rest = self._on_head(data, messages)
                if rest is None:
                    break
                data = rest
            elif self.state == SWITCH:
                self.pending += data
                break
            elif self.state == DEAD:
                if data:
                    self.body.feed(data)  # which nobody will read
                break
            else:
                data = self._on_body(data)
            if not data and not self.pending:
                break
        return messages

    def switched(self) -> bytes:
        """The bytes of the other protocol so far, now that it is spoken."""
        data, self.pending = self.pending, b""
        self.state = DEAD
        return data

    def decline(self) -> None:
        """Stay with HTTP: waiting and later bytes are the next request."""
        if self.state == SWITCH:
            self.state = HEAD

    def end(self) -> None:
        """End the input; bytes that wait for another protocol stay."""
        if self.state != SWITCH:
            self._break("the connection ended before the body did")

    def _on_head(self, data: bytes, messages: list[Message]) -> bytes | None:
        """Read a head at the start of the waiting bytes and ``data``.

        Return the bytes after it, or ``None`` if it is incomplete.
        """
        if self.pending:
            data, end = self._join(data)
        else:
            end = data.find(b"\r\n\r\n")
        try:
            # empty lines before a request are read over (RFC 9112 section 2.2)
            if data[:1] == b"\r":
                data = _EMPTY_LINES.sub(b"", data, 1)
                end = data.find(b"\r\n\r\n")
            if end < 0:
                self._keep(data)
                if data and data != b"\r":
                    check_request_start(data, self._limits)
                return None
            if end > self._limits.whole:
                check_request_start(data[:end], self._limits)  # names the exceeded limit
            raw, head = self._last
            if head is None or not data.startswith(raw):
                again = None if head is None else self._again(data, head)
                head = again[0] if again else parse_request_head(data, end, self._limits)
                self._remember(data[: end + 4], head)
        except BadMessageError as why:
            self.state = DEAD
            self.pending = b""
            self.body = BodyQueue(self._flow)
            messages.append((why, self.body))
            return None
        return self._begin(head, data[end + 4 :], messages)

    def _begin(self, head: RequestHead, rest: bytes, messages: list[Message]) -> bytes:
        """A head is there: its body begins, or the next request."""
        self._switching = head.upgrade
        length = head.length
        if not head.chunked and len(rest) >= length:
            body = BodyQueue(None, rest[:length]) if length else EMPTY
            if head.upgrade:
                self.state = SWITCH
            rest = rest[length:]
            self.body = body
        else:
            body = BodyQueue(self._flow)
            framing = CHUNKED if head.chunked else LENGTH
            self.start_body(body, framing, length, self._limits.whole // 4)
        messages.append((head, body))
        return rest

    def _on_body(self, data: bytes) -> bytes:
        try:
            data = self.feed_body(data)
        except BadMessageError:
            self._break("the body is not framed as its head says")
            return b""
        if self._switching and self.body.done:
            self.state = SWITCH
        return data

    def _break(self, why: str) -> None:
        """The body under way will never be complete. The start of the next request is unknown."""
        self.body.fail(BadMessageError(why))
        self.state = DEAD
        self.pending = b""


class ResponseReader(_MessageReader):
    """Answers of one application, one after the other.

    ``most``: bytes of a head, and of trailers.
    """

    __slots__ = ("_heads", "_interim", "_most")

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._interim = 0  #: bytes of interim answers before the final one
        #: some heads by their bytes, which need not be read again
        self._heads: dict[bytes, ResponseHead] = {}

    def complete_message(self, data: bytes) -> tuple[ResponseHead, bytes] | None:
        """The one answer that these bytes are, whole and with a head that says its length, as
        nearly always to a method but HEAD; ``None``: nothing was done.
        """
        end = data.find(b"\r\n\r\n")
        if end < 0 or end > self._most or self.pending:
            return None
        head = self._heads.get(data[:end])
        if head is None:  # it has an entity tag, a time or an id of its own
            try:
                head = parse_response_head(data, end)
            except BadMessageError:  # ``read_head`` tells it
                return None
            if head.status < 200:
                return None
            self._note(head, data[:end])
        if head.length != len(data) - end - 4 or head.status in _BARE:
            return None
        self._interim = 0
        return head, data[end + 4 :]

    def read_head(self, data: bytes) -> tuple[ResponseHead, bytes] | None:
        """Read the next head, interim or final; return it with the bytes after it, or ``None``.

        ``None`` means that it is incomplete. Raises ``BadMessageError``.
        """
        if self.pending:
            data, end = self._join(data)
        else:
            end = data.find(b"\r\n\r\n")
        # without an end, up to three bytes may be the beginning of it
        if end > self._most or (end < 0 and len(data) > self._most + 3):
            return self._read_bare(data, BadMessageError("its head is too large"))
        if end < 0:
            whole = check_response_start(data)
            if whole is not data:
                return self.read_head(whole)
            self._keep(data)
            return None
        raw = data[:end]
        known_head = self._heads.get(raw)
        if known_head is not None:
            self._interim = 0
            return known_head, data[end + 4 :]
        try:
            head = parse_response_head(data, end)
        except BadMessageError as why:
            return self._read_bare(data, why)
        self._note(head, raw)
        return head, data[end + 4 :]

    def _read_bare(self, data: bytes, why: BadMessageError) -> tuple[ResponseHead, bytes] | None:
        """A head whose lines all end with a bare LF: an end in the form of HTTP is its body's.

        Raises ``why`` if its first line does not end so, or it is not whole.
        """
        whole = with_line_ends(data)
        if whole is data:
            raise why
        return self.read_head(whole)

    def _note(self, head: ResponseHead, raw: bytes) -> None:
        """Remember a final head, and how much came of interim ones before it."""
        if head.status < 200 and head.status != 101:
            self._interim += len(raw)
            if self._interim > self._most:
                raise BadMessageError("it has too many interim answers before it")
            return
        self._interim = 0
        if head.status >= 200 and len(raw) <= _REMEMBERED and head.block.find(b"ookie") < 0:
            if len(self._heads) >= _HEADS:
                self._heads.clear()
            self._heads[raw] = head

    @staticmethod
    def framing(head: ResponseHead, method: str) -> Framing:
        """Return the framing of a final answer to ``method`` (RFC 9112 section 6.3)."""
        if head.status == 101:
            return TUNNEL
        if method == "HEAD" or head.status in _BARE:
            return NONE
        if head.chunked:
            return CHUNKED
        return LENGTH if head.length >= 0 else CLOSE
