"""Messages between a process that serves callers and the owner of its vault, and their framing.

What one side says within a turn of its loop travels as one frame: a length of four bytes and a list
of messages in MessagePack. The first frame of either side is a greeting; a version that differs
ends the connection. Both sides are of one user (Unix socket), or prove themselves by certificates.
"""

import asyncio
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.redactor.bodies.envelopes import CarriedRequest
from proxy.redactor.message import RawHeaders, Request, Response
from proxy.telemetry import logs

_log = logs.logger("web")

#: Version of what is said here.
PROTOCOL: Final = 6
#: Bytes of messages that travel together; a longer one travels alone.
_TOGETHER: Final = 2**20
#: Bytes of the longest frame beside the longest body in it: fields, marks, messages that travel
#: together; and of one before the greeting.
ROOM: Final = 2**22
UNGREETED: Final = 2**10
#: Times the longest body that a restored one may take on its way: values are longer than tokens.
GROWTH: Final = 4
#: Seconds between two looks whether the other side still speaks, and looks without a word that are
#: enough.
LOOK: Final = 2.0
_SILENT: Final = 10


class Fault(msgspec.Struct, array_like=True, gc=False):
    """A ``VaultError`` on its way."""

    code: str
    message: str
    details: Sequence[tuple[str, str]] = ()
    retry_after: int | None = None

    @classmethod
    def of(cls, error: Exception) -> "Fault":
        """Return the fault that tells of an error; of any other than ours no more than that."""
        if not isinstance(error, VaultError):
            return cls(str(Code.INTERNAL), "The request failed inside the proxy.")
        return cls(str(error.code), error.message, error.details, error.retry_after)

    def error(self) -> VaultError:
        """Return the error again."""
        details = tuple(Detail(*one) for one in self.details)
        error = VaultError(Code(self.code), self.message, details)
        error.retry_after = self.retry_after
        return error


class _Message(msgspec.Struct, array_like=True, gc=False, tag=True):
    """A message; ``n`` names the exchange or the question within the connection."""


class Hello(_Message):
    """The greeting of a front."""

    protocol: int
    version: str  #: of the program
    longest: int = ROOM  #: bytes of the longest message that it takes


class Welcome(_Message):
    """The answer to it."""

    protocol: int
    version: str
    country: str
    secret: bytes  #: keys entity tags, so that all fronts make the same


class Redact(_Message):
    """Begin an exchange; with the answer of a read, bring it to its end as well (``Ended``)."""

    n: int
    rules: str  #: version of the rules that matched
    operation: int  #: among ``operations``
    params: Mapping[str, str]
    view: int  #: among ``views_of``
    request: Request
    marks: Sequence[bytes]
    ident: str = ""  #: of the request, for lines of logs
    answer: Response | None = None
    began: int = 0  #: when it was, by the clock of both, where the answer is here


class Reveal(_Message):
    """An ordinary answer to a read of what its path names: its tokens alone, a list in JSON."""

    n: int
    rules: str  #: version of the rules that matched
    operation: int  #: among ``operations``
    params: Mapping[str, str]
    view: int  #: among ``views_of``
    status: int
    id: str | None  #: that the answer has
    fields: Sequence[tuple[str, int, int]]  #: with the places of their tokens in ``tokens``
    tokens: bytes
    ident: str = ""  #: of the request, for its line of the audit log


class RevealDone(_Message):
    """The answer to it, once its line is written."""

    n: int
    fault: Fault | None
    values: bytes = b""  #: the same list with what the caller may see; empty: it is not ordinary
    mark: bytes = b""
    ordinary: bool = True  #: whether others of the same operation may be


class Redacted(_Message):
    """The request as the application may see it."""

    n: int
    fault: Fault | None
    request: Request | None = None
    stage: float = 0.0  #: seconds until its values were durable


class CameBack(_Message):
    """The answer of the application, whole."""

    n: int
    answer: Response


class Settle(_Message):
    """The answer passes as it comes."""

    n: int
    status: int
    headers: RawHeaders


class Fail(_Message):
    """No answer came. ``sent``: the application may have acted all the same."""

    n: int
    sent: bool


class Open(_Message):
    """The answer comes part by part, if its rule says so; it may be asked again of another head."""

    n: int
    status: int
    headers: RawHeaders


class Opened(_Message):
    """The answer to it, which tells whether parts come back restored."""

    n: int
    fault: Fault | None
    parts: bool = False  #: else it is to be read whole, or passes
    longest: int | None = None  #: bytes of a message, where they are those of a WebSocket
    passes_binary: bool = False


class PartWay(enum.IntEnum):
    """Direction of a part, named as the functions of ``events.MessageStream``."""

    RESTORE = 0
    REST = 1
    REDACT = 2


class Part(_Message):
    """A part of such an answer, or a message of the caller. A front sends the next one of the same
    way when this one is answered, so that neither side holds more than one.
    """

    n: int
    exchange: int
    way: PartWay
    content: bytes


class PartDone(_Message):
    """The same as it may pass on."""

    n: int
    fault: Fault | None
    content: bytes = b""


class Close(_Message):
    """Nothing more comes of an answer that came part by part; ``Ended`` answers."""

    n: int


class Ended(_Message):
    """An exchange is over."""

    n: int
    fault: Fault | None
    unread: Fault | None = None  #: why an answer that was not read may not pass
    answer: Response | None = None  #: restored; ``None``: as it came, but for the body
    mark: bytes = b""
    missed: bool = False
    settle: float = 0.0
    carried: Sequence[CarriedRequest] = ()
    body: bytes = b""  #: restored; empty: as it came

    def of(self, came: Response) -> Response:
        """Return the restored answer, given the one of the application."""
        if self.answer is not None or not self.body:
            return self.answer or came
        return Response(came.status, came.headers, self.body)


class Readdress(_Message):
    """Fields with addresses or cookies of a request to an endpoint."""

    n: int
    rules: str
    host: str
    headers: RawHeaders
    endpoint: str


class Readdressed(_Message):
    """The same with tokens in place of values."""

    n: int
    fault: Fault | None
    headers: RawHeaders = ()


class RulesQuestion(_Message):
    """Whether the owner has these rules; asked now and then, to know that it is there."""

    n: int
    rules: str
    longest: int = 0  #: bytes of the longest message that it takes now, where that has grown


class RulesAnswer(_Message):
    """The answer to it."""

    n: int
    has: bool


class Draining(_Message):
    """The owner ends soon: what begins from now on goes to the next one."""


class Left(_Message):
    """The answer to it: nothing begins here any more."""


#: Questions that are answered, each with its number.
Numbered = Redact | CameBack | Settle | Fail | Open | Part | Close | Readdress | RulesQuestion
Question = Hello | Numbered | Reveal | Left
#: What an exchange, or a part of it, has come to.
Result = Redacted | RevealDone | Opened | PartDone | Ended | Readdressed
Answer = Welcome | Result | RulesAnswer | Draining

decode_questions: Final = msgspec.msgpack.Decoder(list[Question]).decode
decode_answers: Final = msgspec.msgpack.Decoder(list[Answer]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class FrameConnection(asyncio.Protocol):
    """One side of a connection. ``receive`` gets each frame, ``lost`` is called once at the end.

    ``admit``: of the owner's side, whether the other side may be there; it has to go on speaking,
    and to read: while it does not take its answers, nothing more is read from it.
    ``longest``: bytes of the longest frame that may come.
    """

    def __init__(
        self,
        receive: Callable[[bytes], None],
        lost: Callable[[], None],
        admit: Callable[[asyncio.BaseTransport], bool] | None = None,
        longest: int = ROOM,
    ) -> None:
        self._admit = admit
        self.longest = longest
        self._receive = receive
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._came = bytearray()
        self._batch: list[msgspec.Raw] = []
        self._batched = 0  #: bytes of it
        self._heard = True  #: whether anything came since the last look
        self._unsent = 0  #: bytes that were not sent yet at the last look

    @property
    def open(self) -> bool:
        """Whether the other side is there."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._admit is None or self._admit(transport):
            self._transport = cast("asyncio.Transport", transport)
            if self._admit is not None:
                self._end_if_silent()
        else:  # soon, for uvloop leaves a socket open that is aborted here
            self._loop.call_soon(cast("asyncio.Transport", transport).abort)

    def send(self, message: Question | Answer, most: int | None = None) -> bool:
        """Say something, with whatever else is said in this turn; nothing once it is over.

        ``False``: it has more than ``most`` bytes, and is not said.
        """
        content = _encode(message)
        if most is not None and len(content) > most:
            return False
        if self._batch and self._batched + len(content) > _TOGETHER:
            self._flush()
        if not self._batch:
            self._loop.call_soon(self._flush)
        self._batch.append(msgspec.Raw(content))
        self._batched += len(content)
        return True

    def _flush(self) -> None:
        batch, self._batch, self._batched = self._batch, [], 0
        if batch and self._transport is not None and not self._transport.is_closing():
            content = _encode(batch)
            self._transport.write(len(content).to_bytes(4) + content)

    def data_received(self, data: bytes) -> None:
        if not self.open:
            return
        came, self._heard = self._came, True
        came += data
        at, whole = 0, len(came)
        while whole - at >= 4:
            size = int.from_bytes(came[at : at + 4])
            if size > self.longest:
                _log.warning("a connection to the vault was ended: a frame over it is too long")
                self.close()
                return
            end = at + 4 + size
            if end > whole:
                break
            try:
                self._receive(bytes(came[at + 4 : end]))
            except msgspec.MsgspecError:  # another program, or another version of this one
                self.close()
                return
            at = end
        del came[:at]

    def pause_writing(self) -> None:
        """Read nothing from one that does not take its answers: they would fill the memory."""
        if self._admit is not None and self._transport is not None and self.open:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._admit is not None and self._transport is not None and self.open:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # of the port
        self._transport = None
        self._lost()

    def _end_if_silent(self, silent: int = 0) -> None:
        """End it when nothing comes or goes any more, for the other side hangs or is cut off:
        nothing may stay locked for it. It speaks every two seconds; on a busy machine less often.
        """
        if self._transport is None or not self.open:
            return
        unsent = self._transport.get_write_buffer_size()
        alive = self._heard or unsent < self._unsent
        silent, self._heard, self._unsent = 0 if alive else silent + 1, False, unsent
        if silent < _SILENT:
            self._loop.call_later(LOOK, self._end_if_silent, silent)
            return
        _log.warning("a front says nothing any more: its connection to the vault was ended")
        self.abort()

    def close(self) -> None:
        """End it, once what was said is written."""
        if self._transport is not None:
            if self._batch:
                self._flush()
            self._transport.close()

    def abort(self) -> None:
        """End it at once: nobody answers any more."""
        if self._transport is not None:
            self._transport.abort()
