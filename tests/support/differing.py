"""The same exchange driven directly and through a proxy, and what differs between the two beyond
what may.

What may differ, and why:

=====================================================
===================================================================== Difference
Why it is allowed =====================================================
===================================================================== HTTP version of a start line
every hop speaks its own (RFC 9110 section 2.5) Connection, Keep-Alive, Proxy-Connection, TE,
Upgrade  they concern one connection (RFC 9110 section 7.6.1) fields that Connection names
the sender says that they do, too Transfer-Encoding; Content-Length beside a chunked     how a body
is framed is settled between two hops (RFC 9112 section 6); or close-delimited body; sizes and
extensions of       the bytes of the body are compared chunks
white space around a field value                       it is no part of the value (RFC 9110 section
5.5) Host, where a caller of HTTP/1.0 sent none             a request of HTTP/1.1 needs one (RFC
9112 section 3.2) LF in place of CRLF at the ends of an answer's head    a proxy writes CRLF (RFC
9112 section 2.2) =====================================================
=====================================================================

Everything else is compared: methods, targets, statuses, reasons, names, values, order and
repetition of fields, bodies, trailers and interim answers.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support.rawclient import RawClient
from tests.support.rawhttp import Fields, Message, Wire
from tests.support.rawserver import OK, RawServer

#: Seconds for one exchange. Generous: it ends what hangs, and judges nobody's speed.
PATIENCE = 10.0

_HOP = frozenset(
    b"connection keep-alive proxy-connection te upgrade transfer-encoding content-length".split()
)


class Case(NamedTuple):
    """One exchange, or several on one connection."""

    name: str
    requests: tuple[bytes, ...]  #: pipelined if there are several
    answers: tuple[bytes, ...] = (OK,)  #: one for each request; the last one again and again
    early: bytes = b""  #: sent by the application as soon as it has the head of a request
    waits: bool = False  #: the caller sends its body only after an interim answer
    closes: bool = False  #: the application ends the connection behind its answer
    half: bool = False  #: the caller ends its side behind its request
    #: what the application says in place of its answer where it is asked directly
    direct: bytes = b""


@dataclass
class Seen:
    """What both ends saw of one case."""

    requests: list[Message] = field(default_factory=list)
    answers: list[Message] = field(default_factory=list)  #: interim ones included
    fault: str = ""  #: why the caller did not get all its answers


class Recorder:
    """The application: answers as the case under way says, and keeps what came. One case at a time."""

    def __init__(self) -> None:
        self.case = Case("nothing yet", ())
        self.seen = Seen()
        self.server = RawServer(self._behave)

    async def _behave(self, wire: Wire, _: RawServer) -> None:
        while True:
            message = await wire.head()
            case, seen = self.case, self.seen
            if case.early:
                await wire.send(case.early)
            seen.requests.append(await wire.body(message))
            await wire.send(case.answers[min(len(seen.requests), len(case.answers)) - 1])
            if case.closes:
                return

    async def drive(self, case: Case, port: int) -> Seen:
        """The case with a caller at that port."""
        self.case, self.seen = case, Seen()
        try:
            async with asyncio.timeout(PATIENCE), RawClient(port) as client:
                await _call(client, case, self.seen.answers)
        except (TimeoutError, OSError, EOFError, ValueError, AssertionError) as fault:
            self.seen.fault = type(fault).__name__
            # what is still on its way belongs to this case, not to the next
            await asyncio.sleep(0.2)
        return self.seen

    async def directly(self, case: Case) -> Seen:
        """The case without a proxy."""
        return await self.drive(
            case._replace(answers=(case.direct,)) if case.direct else case, self.server.port
        )


async def _call(client: RawClient, case: Case, answers: list[Message]) -> None:
    first, rest = case.requests[0], case.requests[1:]
    if case.waits:
        head, _, first = first.partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        answers.append(await client.head())
    await client.send(first + b"".join(rest))
    if case.half:
        client.half_close()
    for request in case.requests:
        while True:
            message = await client.head()
            answers.append(message)
            if message.status >= 200 or message.status == 101:
                break
        await client.body(message, answer_to=request.split(b" ", 1)[0].decode("latin-1"))


def differences(direct: Seen, through: Seen) -> list[str]:
    """What differs though it may not, in words; empty if nothing does."""
    found = []
    if direct.fault or not direct.answers:
        found.append(f"the case itself fails without a proxy: {direct.fault}")
    if through.fault:
        found.append(f"the caller met {through.fault}")
    for what, ones, others in (
        ("request", direct.requests, through.requests),
        ("answer", direct.answers, through.answers),
    ):
        if len(ones) != len(others):
            found.append(f"{len(others)} {what}s instead of {len(ones)}")
        for one, other in zip(ones, others, strict=False):
            found += [f"{what}: {text}" for text in _compared(one, other)]
    return found


def _compared(one: Message, other: Message) -> list[str]:
    pairs: dict[str, tuple[Any, Any]] = {
        "start": (_start(one), _start(other)),
        "fields": (_kept(one, one), _kept(other, one)),
        "length": _lengths(one, other),
        "body": (one.body, other.body),
        "trailers": (one.trailers, other.trailers),
    }
    return [f"{name} {_brief(a)} became {_brief(b)}" for name, (a, b) in pairs.items() if a != b]


def _start(message: Message) -> list[bytes]:
    """A start line without the version."""
    words = message.start.split(b" ")
    return words[1:] if words[0].startswith(b"HTTP/") else words[:-1]


def _kept(message: Message, original: Message) -> Fields:
    """Fields that must be the same; ``original`` is the message as it came without a proxy."""
    named = {
        token.strip().lower() for value in original.all("connection") for token in value.split(b",")
    }
    # they must never be named; a proxy may keep them or obey
    named -= {b"host", b"authorization", b"cookie"}
    if original.start.endswith(b"HTTP/1.0") and not original.all("host"):
        named.add(b"host")
    return [(name, value) for name, value in message.fields if name.lower() not in _HOP | named]


def _lengths(one: Message, other: Message) -> tuple[list[bytes], list[bytes]]:
    """The declared lengths, as far as they must agree: not where one of the two frames a body in
    another way.
    """
    if one.all("transfer-encoding") or other.all("transfer-encoding") or one.closed or other.closed:
        return [], []
    return one.all("content-length"), other.all("content-length")


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) < 160 else f"{text[:110]}… ({len(text)} characters)"


def listing(found: dict[str, list[str]]) -> str:
    """All differences of one proxy, a line a case."""
    return (
        "\n".join(f"  {name}: {'; '.join(texts)}" for name, texts in sorted(found.items()))
        or "  none"
    )
