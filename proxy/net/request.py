"""Context of a request and its answer, shared by all its handlers."""

import asyncio
import socket
import struct
from typing import Final, Protocol

import msgspec

from proxy.net.client_address import ClientAddress
from proxy.net.coverage import Sample
from proxy.net.coverage_report import Unruled
from proxy.net.http1.body import BodyQueue
from proxy.net.http1.head import RequestHead
from proxy.net.memory_budget import Reservation
from proxy.net.reply import PendingReply
from proxy.redactor.message import RawHeaders, Timing
from proxy.redactor.rules import Endpoint, Match, PassRule
from proxy.telemetry.tracing import Trace

#: Closing a socket with this option sends a reset: a truncated answer cannot be taken for a
#: complete one.
_RESET: Final = struct.pack("ii", 1, 0)


class CallerPort(Protocol):
    """The caller's connection, as far as handlers of a request need it."""

    transport: asyncio.Transport | None  #: none: the caller has gone

    @property
    def client(self) -> ClientAddress:
        """Address of the caller."""

    @property
    def writing_paused(self) -> bool:
        """Whether the caller takes no bytes for now."""

    async def drained(self) -> None:
        """Return when the caller takes bytes again."""

    def answered(self, incoming: "RequestContext") -> None:
        """Continue after the answer to a request that was forwarded at once."""

    def resume(self, incoming: "RequestContext", pending: PendingReply | None) -> None:
        """Let the task of the connection take over a request that was forwarded at once, or all of
        it.
        """


class RequestContext(msgspec.Struct, eq=False):
    """A request as it came, and the answer so far."""

    connection: CallerPort
    head: RequestHead
    payload: BodyQueue
    raw: RawHeaders  #: the fields, as received
    minor: int  #: 1 or 0, of the HTTP version
    target: bytes  #: byte for byte as received
    started: float  #: by ``perf_counter``: the loop's own clock has steps of a millisecond
    close: bool  #: the connection ends with this answer
    request_id: str = ""
    answer_fields: bytes = b""  #: of ours, to be written into the head of the final answer
    trace: Trace | None = None
    timing: Timing | None = None  #: of the steps of a matched request
    endpoint: Endpoint | None = None  #: which the rules found
    match: Match | None = None
    passed: PassRule | None = None  #: the rule that lets it pass
    #: the shape of its path, where no rule names it and that is to be told
    unruled: Unruled | None = None
    sample: Sample | None = None  #: sample of a passing request
    reservation: Reservation | None = None  #: room that its body takes while it is held whole
    pending: PendingReply | None = None  #: the exchange that the task is to go on with
    began: bool = False  #: the head of the final answer is written
    status: int = 0
    size: int = 0  #: bytes of body written

    def find(self, rule: Match | PassRule | None) -> None:
        """Set the rule of the request."""
        self.match = rule if isinstance(rule, Match) else None
        self.passed = rule if isinstance(rule, PassRule) else None

    @property
    def gone(self) -> bool:
        """Whether the caller has left."""
        return self.connection.transport is None

    def begin(self, status: int) -> None:
        """The head of the final answer is about to be written.

        A body still on its way would be read as the next request.
        """
        self.began = True
        self.status = status
        if not self.payload.done:
            self.close = True

    def write(self, data: bytes) -> None:
        """Send bytes to the caller; nothing happens if the caller has gone."""
        transport = self.connection.transport
        if transport is not None:
            if self.answer_fields and self.began:
                data = self.with_fields(data)
            transport.write(data)

    def with_fields(self, data: bytes) -> bytes:
        """The first bytes of the final answer, with our fields behind its status line; those of the
        same name are dropped.
        """
        fields, self.answer_fields = self.answer_fields, b""
        head, _, body = data.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        name = fields.partition(b":")[0].lower()
        lines = [line for line in lines if line.partition(b":")[0].lower() != name]
        return b"\r\n".join([status, fields[:-2], *lines]) + b"\r\n\r\n" + body

    async def drained(self, seconds: float) -> None:
        """Return when the caller takes bytes again; at once if it does.

        Raises ``TimeoutError`` after so long.
        """
        connection = self.connection
        if connection.writing_paused:
            async with asyncio.timeout(seconds):
                await connection.drained()

    @property
    def unsent(self) -> int:
        """Bytes that were written for the caller and that it did not take yet, as far as the system
        tells.
        """
        transport = self.connection.transport
        return transport.get_write_buffer_size() if transport is not None else 0

    def cut(self) -> None:
        """End the connection so that the caller sees that the answer is incomplete."""
        transport = self.connection.transport
        if transport is not None:
            tcp = transport.get_extra_info("socket")
            if tcp is not None:
                tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
