"""TLS of one connection, as a transport for its HTTP connection and a protocol of the plain
transport below.

The TLS library works on two buffers in memory (``ssl.MemoryBIO``), so everything here is
synchronous. It behaves as a plain transport: writing never blocks, ``pause_reading`` stops reading,
the buffer that counts is that of the plain transport, ``abort`` sends nothing more (so that a
truncated answer is not taken for a complete one). A caller that announces its end
(``close_notify``, RFC 8446 section 6.1) may still be written to, if the user stays; one that ends
its side without it has left. Our own end is that of the connection.

Not ``loop.start_tls``: asyncio and uvloop end the connection at ``close_notify``, and the caller
never reads its answer (``test_a_caller_that_says_it_sends_nothing_more_gets_its_answer``).
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final, cast

from proxy.clock import Clock, system_clock
from proxy.net.tls import valid_until

#: The largest plain text of one record (RFC 8446 section 5.1).
_RECORD: Final = 16 * 1024

#: Bytes that the TLS library may emit without a write (answers to key updates), left untaken.
_CHATTER: Final = 1024 * 1024

#: Seconds in which a caller that was refused gets to read why, before the connection ends.
_FAREWELL: Final = 2.0

_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no_certificate",
    "CERTIFICATE_VERIFY_FAILED": "bad_certificate",
}


class TlsConnection(asyncio.Transport, asyncio.Protocol):
    """The server's side of TLS on one connection.

    ``user`` gets it as its transport once the handshake is complete.
    """

    def __init__(self, home: "TlsListener", user: asyncio.Protocol) -> None:
        super().__init__()
        self._home = home
        self._user = user
        self._started = asyncio.get_running_loop().time()
        self._over = False  #: the handshake, in whatever way
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._context = home.context
        self._tls = self._context.wrap_bio(self._in, self._out, server_side=True)
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._timer: asyncio.TimerHandle | None = None
        self._open = False  #: the handshake is complete, and the connection is the user's
        self._closing = False
        self._paused = False
        self._half = False  #: the caller has ended its side, and the user stays
        self._valid_until = inf  #: the caller's certificate, if it showed one

    # ------------------------------------------------ the protocol of the plain transport

    @property
    def idle_since(self) -> float | None:
        """Since when no request is under way; a handshake that is not complete is none."""
        return cast("Any", self._user).idle_since if self._open else self._started

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller has come."""
        self._transport = cast("asyncio.Transport", transport)
        self._home.began(self)
        self._timer = asyncio.get_running_loop().call_later(self._home.patience, self._late)

    def data_received(self, data: bytes) -> None:
        if self._open:
            self._in.write(data)
            self._deliver()
        elif not self._closing:
            self._in.write(data)
            self._shake()

    def eof_received(self) -> bool:
        """The caller's side of the plain connection has ended; true keeps ours open.

        Without a farewell it has gone.
        """
        return self._half and not self._closing

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if self._open:
            self._home.left(self)
            self._user.connection_lost(exc)
        else:
            self._finish("left")

    def pause_writing(self) -> None:
        """The caller takes no more for now."""
        if self._open:
            self._user.pause_writing()

    def resume_writing(self) -> None:
        """The caller takes bytes again."""
        if self._open:
            self._user.resume_writing()

    # ------------------------------------------------ the handshake

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._refuse(getattr(self._tls, "refused", "") or _REASONS.get(error.reason, "failed"))
            return
        # a session that goes on is not verified anew, and authorities may have changed meanwhile
        certificate = self._tls.getpeercert()
        ends = min(self._valid_until, valid_until(certificate)) if certificate else inf
        if certificate and self._home.clock() >= ends:
            self._refuse("bad_certificate")
            return
        self._valid_until = ends
        self._flush()
        self._open = True
        self._finish("done")
        self._user.connection_made(self)
        if self._in.pending:
            self._deliver()

    def _refuse(self, outcome: str) -> None:
        """Send the alert, and wait a moment for the caller's end: a reset would discard it."""
        self._finish(outcome)
        self._closing = True
        self._flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(_FAREWELL, self._transport.abort)

    def _late(self) -> None:
        self._finish("late")
        self.abort()

    def _finish(self, outcome: str) -> None:
        """End the handshake, with any result."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._over:
            self._over = True
            self._home.ended(self, outcome)

    # ------------------------------------------------ plain text of the caller

    def distrust(self) -> None:
        """End the connection if its caller shows a certificate: one of until now counts no more."""
        if not self._open:
            self._valid_until = -inf
        elif self._valid_until < inf:
            self._valid_until = -inf
            cast("Any", self._user).expire()

    def _deliver(self) -> None:
        """Hand over complete data, unless it is held back."""
        if self._valid_until < inf and self._home.clock() >= self._valid_until:
            self.distrust()
        if self._paused or self._closing:
            return
        pieces: list[bytes] = []
        over = broken = False
        try:
            while self._in.pending and not over:
                piece = self._tls.read(_RECORD)
                over = not piece
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            broken = True
        if self._out.pending:
            self._flush()
            broken = broken or self._transport.get_write_buffer_size() > _CHATTER
        if broken:  # the data before is incomplete too, as far as known
            self.abort()
            return
        if data := b"".join(pieces):
            self._user.data_received(data)
        if over and not self.is_closing() and not self._report_end():
            self.close()

    def _report_end(self) -> bool:
        """Report the end of the caller's data to the user; return whether it stays."""
        if not self._half:
            self._half = bool(self._user.eof_received())
        return self._half

    # ------------------------------------------------ the transport of the user

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the loops' own TLS tells it; the rest is known to the plain transport."""
        details: dict[str, Callable[[], Any]] = {
            "sslcontext": lambda: self._context,
            "ssl_object": lambda: self._tls,
            "peercert": self._tls.getpeercert,
            "cipher": self._tls.cipher,
            "compression": self._tls.compression,
        }
        return details[name]() if name in details else self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another user from now on."""
        self._user = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._user

    def is_closing(self) -> bool:
        """Whether the connection has ended or will."""
        return self._closing

    def is_reading(self) -> bool:
        """Whether the caller's data is handed over."""
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        """Stop handing over the caller's data."""
        self._paused = True
        if not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Hand it over again."""
        self._paused = False
        if not self._closing:
            self._transport.resume_reading()
            if self._in.pending:
                asyncio.get_running_loop().call_soon(self._deliver)

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Send bytes to the caller; after the end they are dropped."""
        if self._closing or not data:
            return
        try:
            sent = self._tls.write(data)
            if sent < len(data):
                rest = memoryview(data)
                while sent < len(rest):
                    sent += self._tls.write(rest[sent:])
        except ssl.SSLError:
            self.abort()
            return
        self._flush()

    def writelines(self, list_of_data: "Iterable[bytes | bytearray | memoryview[Any]]") -> None:
        """Send these bytes to the caller, as one."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Never: our end is that of the connection."""
        return False

    def write_eof(self) -> None:
        """Raise, as asyncio does for a transport that cannot be half-closed."""
        raise NotImplementedError

    def get_write_buffer_size(self) -> int:
        """Bytes that the caller did not take yet, sealed ones."""
        return self._transport.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Bytes at which writing is resumed and paused."""
        return self._transport.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Other bounds of the buffer."""
        self._transport.set_write_buffer_limits(high, low)

    def close(self) -> None:
        """Say that nothing more comes, and end the connection when all was sent."""
        if self._closing:
            return
        self._closing = True
        if self._open:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the caller's own farewell is not waited for (RFC 8446 section 6.1)
            self._flush()
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once. The caller sees that it is broken."""
        self._closing = True
        self._transport.abort()

    def _flush(self) -> None:
        if self._out.pending:
            self._transport.write(self._out.read())


# TLS of one listener: what new connections are met with, and how their handshakes end.

#: How long a handshake may take, in seconds.
HANDSHAKE_TIMEOUT: Final = 10.0

#: Is told how each handshake ended: one of ``OUTCOMES``.
Observer = Callable[[str], None]

#: ``late``: not complete in time. ``left``: the caller went away. ``failed``: anything else.
OUTCOMES: Final = (
    "done", "no_name", "foreign_name", "no_certificate", "bad_certificate", "late", "left",
    "failed",
)  # fmt: skip


class TlsListener:
    """Puts TLS before the connections of a listener.

    ``context`` may be replaced at any time; new connections get it.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        observe: Observer,
        patience: float = HANDSHAKE_TIMEOUT,
        clock: Clock = system_clock,
    ) -> None:
        self.context = context
        self.patience = patience
        self.clock = clock
        self.shaking: set[TlsConnection] = set()  #: connections whose handshake is not complete
        self._open: set[TlsConnection] = set()  #: those whose handshake is
        self._observe = observe

    def __call__(self, connection: asyncio.Protocol) -> TlsConnection:
        """Wrap a new connection; ``connection`` gets it once the handshake is complete."""
        return TlsConnection(self, connection)

    def began(self, connection: TlsConnection) -> None:
        """A caller begins its handshake."""
        self.shaking.add(connection)

    def ended(self, connection: TlsConnection, outcome: str) -> None:
        self.shaking.discard(connection)
        if outcome == "done":
            self._open.add(connection)
        self._observe(outcome)

    def left(self, connection: TlsConnection) -> None:
        """Forget a connection."""
        self._open.discard(connection)

    def renew(self, context: ssl.SSLContext, *, ended: bool) -> None:
        """Meet new connections with another context; ``ended``: certificates that callers have
        shown may not be valid any more, and whoever has shown one has to do so again.
        """
        self.context = context
        if ended:
            for connection in [*self.shaking, *self._open]:
                connection.distrust()

    def close(self) -> None:
        """End the connections whose handshake is not complete."""
        for connection in list(self.shaking):
            connection.abort()
