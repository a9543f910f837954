"""The connections to one address: last in, first out, bounded, closed when idle too long."""

import asyncio
import math
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from proxy.errors import Code
from proxy.net.client_connection import UpstreamConnection
from proxy.net.outgoing_body import Uploads
from proxy.net.reply import CallLimits, UpstreamAddress, UpstreamFault
from proxy.net.tls import ClientTls

# Circuit breaker of one address: stops calls to an application that keeps failing.
#
# Callers then get their refusal at once instead of a time-out, and a struggling application is
# spared their requests. After the pause one request is admitted; its answer closes the breaker, its
# failure begins another pause.
#
# A failure is the lack of an answer: unreachable, or too late. An answer of any status shows that
# the application is up, so a 500 never opens the breaker; nor does a truncated answer, which one
# odd request may provoke. A late request does not count if others were answered meanwhile: only its
# target hangs, and one caller could cut off all others by requesting that ten times at once.

_COUNTED: Final = frozenset({Code.UPSTREAM_UNREACHABLE, Code.UPSTREAM_TIMEOUT})
#: Faults that say nothing about the application, so that a request that tried it has to be repeated
#: by another.
_NEUTRAL: Final = frozenset({Code.UPSTREAM_BUSY, Code.UPSTREAM_SUSPENDED})

_SUSPENDED: Final = (
    "The application gave no answer several times in a row: for a moment it is not asked at all."
)


class CircuitBreaker:
    """``failures`` in a row open it (0: never) for ``pause`` seconds; tells ``on_circuit``."""

    __slots__ = (
        "_count", "_failures", "_on_circuit", "_pause", "_trying", "_until", "engaged", "open",
    )  # fmt: skip

    def __init__(
        self, failures: int, pause: float, on_circuit: Callable[[bool], None] = lambda _open: None
    ) -> None:
        self.open = False
        #: A failure was seen since the last answer; while this is false, nothing else here need be
        #: asked.
        self.engaged = False
        self._failures = failures
        self._pause = pause
        self._on_circuit = on_circuit
        self._count = 0
        self._until = 0.0  #: in loop time
        #: one request is on its way to see whether the application answers again
        self._trying = False

    def refusal(self, now: float) -> UpstreamFault | None:
        """Return the fault with which a request would be refused now, if any."""
        if not self.open or (now >= self._until and not self._trying):
            return None
        fault = UpstreamFault(Code.UPSTREAM_SUSPENDED, _SUSPENDED, sent=False)
        fault.retry_after = max(1, math.ceil(self._until - now))
        return fault

    def admit(self, now: float) -> bool:
        """Let a request through, or raise its refusal.

        True: it is the one that tries, and its end must be told here.
        """
        if not self.open:
            return False
        fault = self.refusal(now)
        if fault is not None:
            raise fault
        self._trying = True
        return True

    def answered(self) -> None:
        """The application answered a request, whatever it said."""
        self.engaged = self._trying = False
        self._count = 0
        if self.open:
            self.open = False
            self._on_circuit(False)

    def failed(
        self, fault: UpstreamFault, now: float, *, tried: bool, responsive: bool = False
    ) -> None:
        """A request ended without an answer.

        ``tried``: it was the one that ``admit`` let through to see. ``responsive``: others were
        answered while it waited for its answer.
        """
        if tried:
            self._trying = False
            if fault.code not in _NEUTRAL and not fault.starved:
                self._until = now + self._pause
        elif (
            self._failures
            and not self.open
            and fault.code in _COUNTED
            and not fault.starved
            and not (responsive and fault.sent)
        ):
            self.engaged = True
            self._count += 1
            if self._count >= self._failures:
                self.open = True
                self._until = now + self._pause
                self._on_circuit(True)

    def left(self) -> None:
        """The request that tried ended early for reasons of its caller: another may try."""
        self._trying = False


_BUSY = "The application has no free connection: all {} are in use."
_FULL = "Too many requests wait for the application already."
_SLOW = "The application did not take the connection in time."
#: Seconds in which the loop has looked once more whether a connection stands.
_LOOK: Final = 0.05


class Pool:
    """Gives out a connection for one exchange and takes it back.

    A place is an open connection or one being opened.
    """

    def __init__(
        self,
        address: UpstreamAddress,
        limits: CallLimits,
        tls: ClientTls | None = None,
        on_circuit: Callable[[bool], None] = lambda _open: None,
    ) -> None:
        self.breaker = CircuitBreaker(limits.failures, limits.pause, on_circuit)
        self.idle: list[UpstreamConnection] = []
        self.open: set[UpstreamConnection] = set()
        self.uploads = Uploads(limits.connections // 2, limits.connect)
        self._address = address
        self._limits = limits
        self.tls = tls  #: for connections that are made from now on
        self._freed = -math.inf  #: when an answer was complete last, in loop time
        self._opening = 0
        #: who waits for a connection, the first one first
        self.line: deque[asyncio.Future[UpstreamConnection | None]] = deque()
        self._closed = False

    @property
    def busy(self) -> int:
        """Number of connections that carry an exchange."""
        return len(self.open) - len(self.idle)

    def refusal(self, now: float) -> UpstreamFault | None:
        """Return the fault that a request would be refused with at this moment."""
        if len(self.line) >= self._limits.queue > 0:
            return _busy(_FULL)
        return self.breaker.refusal(now)

    def responsive(self, now: float) -> bool:
        """Whether an answer came in the time after which a request is too late."""
        return self._freed > now - min(self._limits.head, self._limits.idle)

    async def fresh(self) -> UpstreamConnection:
        """A new connection; or, where all places are taken, the first that becomes free.

        Raises ``UpstreamFault``.
        """
        if len(self.open) + self._opening >= self._limits.connections:
            until = asyncio.get_running_loop().time() + self._limits.connect
            while len(self.open) + self._opening >= self._limits.connections:
                connection = await self._wait(until)
                if connection is not None and connection.usable:
                    return connection
        self._opening += 1
        try:
            return await self._connect()
        except BaseException:
            self._wake()
            raise
        finally:
            self._opening -= 1

    async def _wait(self, until: float) -> UpstreamConnection | None:
        """Wait in line until that loop time. ``None``: a place became free."""
        if len(self.line) >= self._limits.queue:
            raise _busy(_FULL)
        waiter: asyncio.Future[UpstreamConnection | None] = (
            asyncio.get_running_loop().create_future()
        )
        self.line.append(waiter)
        try:
            async with asyncio.timeout_at(until):
                return await waiter
        except (TimeoutError, asyncio.CancelledError) as end:
            self._hand_on(waiter)
            if isinstance(end, TimeoutError):
                raise _busy(_BUSY.format(self._limits.connections)) from None
            raise
        finally:
            if waiter in self.line:
                self.line.remove(waiter)

    def _hand_on(self, waiter: "asyncio.Future[UpstreamConnection | None]") -> None:
        """Hand the connection of a waiter that has just given up to the next one."""
        if waiter.done() and not waiter.cancelled():
            connection = waiter.result()
            if connection is not None and connection.usable:
                self.release(connection)
            else:
                self._wake()

    async def _connect(self) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        scheme, host, port, _ = self._address
        tls = self.tls if scheme == "https" else None
        end = loop.time() + self._limits.connect
        try:
            async with _until(end):
                _, connection = await loop.create_connection(
                    lambda: UpstreamConnection(loop, self._limits, self),
                    host,
                    port,
                    ssl=None if tls is None else tls.context,
                    server_hostname=None if tls is None else tls.server_name or host,
                )
        except TimeoutError:
            raise UpstreamFault(Code.UPSTREAM_TIMEOUT, _SLOW, sent=False) from None
        except OSError as error:
            raise UpstreamFault(Code.UPSTREAM_UNREACHABLE, _sentence(error), sent=False) from None
        self.open.add(connection)
        return connection

    def release(self, connection: UpstreamConnection) -> None:
        """Part of ``ConnectionOwner``: give it to the first waiter, else to the idle ones."""
        self._freed = connection.deadline - self._limits.keep
        while self.line:
            waiter = self.line.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if self._closed:
            connection.retire()
            return
        self.idle.append(connection)

    def lost(self, connection: UpstreamConnection) -> None:
        """Part of ``ConnectionOwner``: forget it; a waiter may open another."""
        self.open.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)
        self._wake()

    def _wake(self) -> None:
        while self.line:
            waiter = self.line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def sweep(self, now: float, late: float = 0.0) -> None:
        """End exchanges past their deadline.

        ``late``: seconds for which the proxy itself stood still, and could not have read an answer.
        """
        if late:
            for connection in self.open:
                connection.forgive(late)
        for connection in [one for one in self.open if one.deadline < now or one.expires < now]:
            connection.overdue()

    def close(self) -> None:
        """Drop idle connections now, and the others when their exchange ends."""
        self._closed = True
        for connection in list(self.idle):
            connection.retire()


@asynccontextmanager
async def _until(end: float) -> AsyncIterator[None]:
    """Raise ``TimeoutError`` where the block is not over at that loop time. What the proxy itself
    stood still is given back: the connection may stand, and nobody has looked.
    """
    loop = asyncio.get_running_loop()

    def expire() -> None:
        now = loop.time()
        limit.reschedule(now + max(now - end, _LOOK))

    async with asyncio.timeout(None) as limit:
        timer = loop.call_at(end, expire)
        try:
            yield
        finally:
            timer.cancel()


def _busy(text: str) -> UpstreamFault:
    return UpstreamFault(Code.UPSTREAM_BUSY, text, sent=False)


def _sentence(error: OSError) -> str:
    """Describe the error without the address, for a caller may read it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            "The certificate of the application is not trusted: name its CA, or the host name it "
            "was issued for."
        )
    if isinstance(error, ssl.SSLError):
        return "The TLS handshake with the application failed."
    if isinstance(error, ConnectionRefusedError):
        return (
            "The application refused the connection: is it running, and does it listen at the "
            "endpoint's address?"
        )
    if type(error).__name__ == "gaierror":
        return "The host name of the application was not found."
    return "The application cannot be reached."
