"""Messages between a process that serves callers and the owner of its vault.

The first message of either side is a greeting; a version that differs ends the connection. Both
sides are of one user (Unix socket), or prove themselves by certificates. ``frame_connection`` has
their framing.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.redactor.bodies.envelopes import CarriedRequest
from proxy.redactor.message import RawHeaders, Request, Response
from proxy.redactor.rules import Endpoint, RuleSet
from proxy.redactor.views import OUTSIDE_VIEW, UNKNOWN_VIEW, View

#: Version of what is said here.
PROTOCOL: Final = 10
#: Bytes of the longest frame beside the longest body in it: fields, marks, messages that travel
#: together; and of one before the greeting.
ROOM: Final = 2**22
UNGREETED: Final = 2**10
#: Times the longest body that a restored one may take on its way: values are longer than tokens.
GROWTH: Final = 4


def longest_body(rules: RuleSet) -> int:
    """Return the bytes of the longest body that is read or restored by these rules."""
    limits = [endpoint.limits for endpoint in rules.endpoints]
    return max((max(one.body, one.inflated) for one in limits), default=0)


def views_of(endpoint: Endpoint) -> list[View | None]:
    """Return what a caller may be shown, in the same order wherever the same rules are read."""
    return [None, UNKNOWN_VIEW, OUTSIDE_VIEW, *endpoint.views]


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
    """A message; ``n`` names the exchange or the question within the connection.

    Its tag is what it is called in this version of the protocol, whatever its class is called.
    """


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


class _Begin(_Message):
    """The first message of an exchange."""

    n: int
    rules: str  #: version of the rules that matched
    operation: int  #: among ``operations``
    params: Mapping[str, str]
    view: int  #: among ``views_of``


class Redact(_Begin):
    """Begin an exchange; with the answer of a read, bring it to its end as well (``Ended``)."""

    request: Request
    marks: Sequence[bytes]
    ident: str = ""  #: of the request, for lines of logs
    answer: Response | None = None
    began: int = 0  #: when it was, by the clock of both, where the answer is here
    rows: bytes = b""  #: of that answer, as of ``RestoreAnswer``


class Reveal(_Begin):
    """An ordinary answer to a read of what its path names: its tokens alone, a list in JSON."""

    status: int
    id: str | None  #: that the answer has
    fields: Sequence[str]  #: of the tokens
    tokens: bytes
    ident: str = ""  #: of the request, for its line of the audit log
    tagged: bool = False  #: whether the answer has an entity tag, which needs a mark


class RevealDone(_Message):
    """The answer to it, once its line is written."""

    n: int
    fault: Fault | None
    values: bytes = b""  #: the same list with what the caller may see; empty: it is not ordinary
    mark: bytes = b""
    ordinary: bool = True  #: whether others of the same operation may be


class StageWrite(_Begin, tag="Keep"):
    """Begin an ordinary create or update of one record: its texts alone.

    The front has found that they stand nowhere else in the request, and keeps that.
    """

    leaves: Sequence[int]  #: the numbers of the texts' leaves
    texts: Sequence[str | None]  #: ``None``: nothing stands there
    marks: Sequence[bytes]
    ident: str = ""  #: of the request, for its line of the audit log


class StageDone(_Message, tag="KeepDone"):
    """The answer to it, once the texts are durable."""

    n: int
    fault: Fault | None = None  #: why the tokens do not come; it goes the general way
    #: the same list with tokens; empty: it is not ordinary, nothing was done
    tokens: Sequence[str | None] = ()
    ordinary: bool = True  #: whether others of the same operation may be
    stage: float = 0.0  #: seconds until they were durable


class SettleWrite(_Message, tag="WriteTaken"):
    """The application took what was kept: settle it, and have the audit log told."""

    n: int
    status: int
    key: str  #: of the record
    fields: Sequence[str]  #: that the caller is shown
    tagged: bool = False  #: as of ``Reveal``


class Resume(_Message):
    """The request of a ``StageWrite`` that goes on the general way."""

    n: int
    request: Request


class Redacted(_Message):
    """The request as the application may see it."""

    n: int
    fault: Fault | None
    request: Request | None = None
    stage: float = 0.0  #: seconds until its values were durable


class RestoreAnswer(_Message, tag="CameBack"):
    """The answer of the application, whole; of a list, its rows in place of its body."""

    n: int
    answer: Response
    rows: bytes = b""  #: as ``front_exchange.CutList`` tells them


class Settle(_Message):
    """The answer passes as it comes."""

    n: int
    status: int
    headers: RawHeaders


class Fail(_Message):
    """No answer came. ``sent``: the application may have acted all the same."""

    n: int
    sent: bool


class OpenStream(_Message, tag="Open"):
    """The answer comes part by part, if its rule says so; it may be asked again of another head."""

    n: int
    status: int
    headers: RawHeaders


class StreamOpened(_Message, tag="Opened"):
    """The answer to it, which tells whether parts come back restored."""

    n: int
    fault: Fault | None
    parts: bool = False  #: else it is to be read whole, or passes
    longest: int | None = None  #: bytes of a message, where they are those of a WebSocket
    passes_binary: bool = False


class PartDirection(enum.IntEnum):
    """Direction of a part, named as the functions of ``events.MessageStream``."""

    RESTORE = 0
    REST = 1
    REDACT = 2


class StreamPart(_Message, tag="Part"):
    """A part of such an answer, or a message of the caller. A front sends the next one of the same
    way when this one is answered, so that neither side holds more than one.
    """

    n: int
    exchange: int
    direction: PartDirection
    content: bytes


class StreamPartDone(_Message, tag="PartDone"):
    """The same as it may pass on."""

    n: int
    fault: Fault | None
    content: bytes = b""


class CloseStream(_Message, tag="Close"):
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
    #: of what was kept, or came in rows: nothing was done, it goes on the general way
    unsettled: bool = False
    values: bytes = b""  #: of the rows of a list; empty: it passes as it came

    def of(self, came: Response) -> Response:
        """Return the restored answer, given the one of the application."""
        if self.answer is not None or not self.body:
            return self.answer or came
        return Response(came.status, came.headers, self.body)


class RedactHeaders(_Message, tag="Readdress"):
    """Fields with addresses or cookies of a request to an endpoint."""

    n: int
    rules: str
    host: str
    headers: RawHeaders
    endpoint: str


class HeadersRedacted(_Message, tag="Readdressed"):
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


class DrainAccepted(_Message, tag="Left"):
    """The answer to it: nothing begins here any more."""


#: Questions that are answered, each with its number.
Numbered = (
    Redact
    | RestoreAnswer
    | Settle
    | Fail
    | OpenStream
    | StreamPart
    | CloseStream
    | RedactHeaders
    | RulesQuestion
)
#: Questions of ordinary exchanges.
Ordinary = Reveal | StageWrite | SettleWrite
Question = Hello | Numbered | Ordinary | Resume | DrainAccepted
#: What an exchange, or a part of it, has come to.
Result = Redacted | RevealDone | StageDone | StreamOpened | StreamPartDone | Ended | HeadersRedacted
Answer = Welcome | Result | RulesAnswer | Draining

decode_questions: Final = msgspec.msgpack.Decoder(list[Question]).decode
decode_answers: Final = msgspec.msgpack.Decoder(list[Answer]).decode


def other_rules() -> VaultError:
    """Return the refusal of what was matched by rules that the owner does not know."""
    return VaultError(
        Code.VAULT_DOWN, "The owner of the vault has other rules than the process that asks."
    )
