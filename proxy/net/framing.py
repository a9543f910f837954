"""The chunked transfer coding (RFC 9112 section 7.1): a strict reader that takes bytes as they
come, and the writer.
"""

import re
from typing import Final

from proxy.net.http1 import BadAnswerError, parse_fields
from proxy.redactor.message import RawHeaders

#: The size line: up to 15 hexadecimal digits; extensions are read over, as RFC 9112 section 7.1.1
#: asks.
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_LINE_MAX: Final = 1024


def frame(piece: bytes) -> bytes:
    """One piece of a body as one chunk; not for an empty piece, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


class ChunkReader:
    """Feed it bytes; it gives the pieces of content in them.

    ``done`` is set at the end, with trailers and the rest.
    """

    __slots__ = ("_held", "_left", "_trailer_max", "_trailing", "done", "rest", "trailers")

    def __init__(self, trailer_max: int) -> None:
        self.done = False
        self.rest = b""  #: bytes that came after the end
        self.trailers: RawHeaders = ()
        self._held = b""  #: an incomplete size line, or the trailer so far
        #: bytes of the current chunk still to come, its line end included; 0: a size line is next
        self._left = 0
        self._trailing = False
        self._trailer_max = trailer_max

    def feed(self, data: bytes) -> list[bytes]:
        """The content in these bytes, in order. Raises ``BadAnswerError``."""
        pieces: list[bytes] = []
        if self._held:
            data, self._held = self._held + data, b""
        at = 0
        while not self.done:
            if self._trailing:
                self._trailer(data[at:])
                break
            if not self._left:
                at = self._size(data, at)
                if at < 0:
                    break
                continue
            if at >= len(data):
                break
            at = self._content(data, at, pieces)
        return pieces

    def _size(self, data: bytes, at: int) -> int:
        """Read a size line at ``at``; gives the place behind it, or -1 if it is not complete."""
        end = data.find(b"\r\n", at)
        if end < 0:
            if len(data) - at > _LINE_MAX:
                raise BadAnswerError("the size line of a chunk is too long")
            if data.find(b"\n", at) >= 0:
                raise BadAnswerError("the size line of a chunk ends with a bare line end")
            self._held = data[at:]
            return -1
        line = _SIZE.fullmatch(data, at, end)
        if line is None or end - at > _LINE_MAX:
            raise BadAnswerError("the size line of a chunk is not a hexadecimal number")
        size = int(line[1], 16)
        if size:
            self._left = size + 2
        else:
            self._trailing = True
        return end + 2

    def _content(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        here = min(len(data) - at, self._left)
        content = min(here, self._left - 2)
        if content > 0:
            pieces.append(data[at : at + content])
        else:
            content = 0
        ending = data[at + content : at + here]
        self._left -= here
        if ending and ending != b"\r\n"[2 - self._left - len(ending) : 2 - self._left]:
            raise BadAnswerError("a chunk is longer or shorter than its size line says")
        return at + here

    def _trailer(self, data: bytes) -> None:
        if data.startswith(b"\r\n"):
            self.done, self.rest = True, data[2:]
            return
        end = data.find(b"\r\n\r\n")
        if end > self._trailer_max or (end < 0 and len(data) > self._trailer_max):
            raise BadAnswerError("the trailers are too large")
        if end < 0:
            if data.count(b"\n") != data.count(b"\r\n"):
                raise BadAnswerError("the trailers hold a bare line end")
            self._held = data
            return
        self.trailers = parse_fields(data[: end + 2])
        self.done, self.rest = True, data[end + 4 :]


# Whether a body comes from its caller as fast as may be expected of anybody.
#
# A body that comes too slowly is in the way of others only where there is no room for them; until
# then nobody minds. What counts is the time in which its caller is waited for, not that in which
# somebody else does not take what has come. And it is the last seconds that count: who sends a
# megabyte at once and then nothing more is behind soon, too.


#: Bytes a second that are expected of a caller, and how many seconds of them it may be ahead at
#: most, and is at first.
SLOWEST_BODY: Final = 4096
_AHEAD: Final = 2.0
_FIRST: Final = 1.0


class Pace:
    """Of one body on its way. Times are of the loop, in seconds."""

    __slots__ = ("_ahead", "_since")

    def __init__(self) -> None:
        self._ahead = _FIRST * SLOWEST_BODY  #: bytes more than were expected so far
        self._since: float | None = None  #: when its caller began to be waited for

    def wait(self, now: float) -> None:
        """Its caller is waited for from now on."""
        self._since = now

    def came(self, size: int, now: float) -> None:
        """So many bytes came."""
        since = now if self._since is None else self._since
        self._ahead = min(self._ahead - (now - since) * SLOWEST_BODY + size, _AHEAD * SLOWEST_BODY)
        self._since = None

    def behind(self, now: float) -> float:
        """Bytes that should have come and did not; not above zero for a body in time, and for one
        that waits for somebody else.
        """
        return 0.0 if self._since is None else (now - self._since) * SLOWEST_BODY - self._ahead
