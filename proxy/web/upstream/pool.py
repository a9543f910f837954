"""The connections to one address: used last in, first out, bounded in number, closed when idle too long."""

import asyncio
import math
import ssl
from collections import deque
from collections.abc import Callable

from proxy.errors import Code
from proxy.web.upstream.breaker import Breaker
from proxy.web.upstream.connection import Connection
from proxy.web.upstream.limits import Limits
from proxy.web.upstream.port import Address, UpstreamFault
from proxy.web.upstream.tls import ClientTls
from proxy.web.upstream.uploads import Uploads

_BUSY = "The application has no free connection: all {} are in use."
_FULL = "Too many requests wait for the application already."
_SLOW = "The application did not take the connection in time."


class Pool:
    """Gives out a connection for one exchange and takes it back. A place is an open connection or one being opened."""

    def __init__(
        self,
        address: Address,
        limits: Limits,
        tls: ClientTls | None = None,
        told: Callable[[bool], None] = lambda _open: None,
    ) -> None:
        self.breaker = Breaker(limits.failures, limits.pause, told)
        self.idle: list[Connection] = []
        self.open: set[Connection] = set()
        self.uploads = Uploads(limits.connections // 2, limits.connect)
        self._address = address
        self._limits = limits
        self.tls = tls  #: for connections that are made from now on
        self._freed = -math.inf  #: when an answer was complete last, in loop time
        self._opening = 0
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._closed = False

    @property
    def busy(self) -> int:
        """How many connections carry an exchange."""
        return len(self.open) - len(self.idle)

    def lively(self, now: float) -> bool:
        """Whether an answer came in the time after which a request is too late."""
        return self._freed > now - min(self._limits.head, self._limits.idle)

    async def fresh(self) -> Connection:
        """A new connection; or, where all places are taken, the first that becomes free. Raises ``UpstreamFault``."""
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

    async def _wait(self, until: float) -> Connection | None:
        """Wait in line until that loop time. ``None``: a place became free."""
        if len(self._waiters) >= self._limits.queue:
            raise _busy(_FULL)
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(until):
                return await waiter
        except (TimeoutError, asyncio.CancelledError) as end:
            self._hand_on(waiter)
            if isinstance(end, TimeoutError):
                raise _busy(_BUSY.format(self._limits.connections)) from None
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _hand_on(self, waiter: "asyncio.Future[Connection | None]") -> None:
        """What was given to one who stopped waiting in the same moment goes to the next."""
        if waiter.done() and not waiter.cancelled():
            connection = waiter.result()
            if connection is not None and connection.usable:
                self.release(connection)
            else:
                self._wake()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        scheme, host, port, _ = self._address
        tls = self.tls if scheme == "https" else None
        try:
            async with asyncio.timeout(self._limits.connect):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self._limits, self),
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

    def release(self, connection: Connection) -> None:
        """Part of ``Home``: to the first who waits, else into the idle ones."""
        connection.park()
        self._freed = connection.deadline - self._limits.keep
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if self._closed:
            connection.retire()
            return
        self.idle.append(connection)

    def lost(self, connection: Connection) -> None:
        """Part of ``Home``: forget it; who waits may open another."""
        self.open.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def sweep(self, now: float, late: float = 0.0) -> None:
        """End what is over its deadline. ``late``: so long the proxy itself stood still, and could not have read an answer."""
        if late:
            for connection in self.open:
                connection.forgive(late)
        for connection in [one for one in self.open if one.deadline < now or one.expires < now]:
            connection.overdue()

    def close(self) -> None:
        """Drop idle connections now and the others when their exchange is over."""
        self._closed = True
        for connection in list(self.idle):
            connection.retire()


def _busy(text: str) -> UpstreamFault:
    return UpstreamFault(Code.UPSTREAM_BUSY, text, sent=False)


def _sentence(error: OSError) -> str:
    """What to tell; the address stays out, for a caller may read it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "The certificate of the application is not trusted: name its CA, or the host name it was issued for."
    if isinstance(error, ssl.SSLError):
        return "The TLS handshake with the application failed."
    if isinstance(error, ConnectionRefusedError):
        return "The application refused the connection: is it running, and does it listen at the endpoint's address?"
    if type(error).__name__ == "gaierror":
        return "The host name of the application was not found."
    return "The application cannot be reached."
