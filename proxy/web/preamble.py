"""Reads the PROXY protocol before a connection is the HTTP server's, from peers that are trusted to speak it.

The specification forbids to guess whether a preamble is there. Here the peer's address decides: a trusted proxy must
send one, within five seconds, and anybody else speaks HTTP at once, so that a preamble of theirs is answered with 400.
Where the setting is off, this file has no part in a connection.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from proxy.telemetry import logs
from proxy.web.peers import UNKNOWN, Client, Network, Trusted, peer_of, plain
from proxy.web.proxyprotocol import BadPreambleError, Preamble, parse

_log = logs.logger("web")

#: How long a preamble may take. It is one segment of a machine nearby; the specification asks for three seconds or more.
PATIENCE: Final = 5.0


class Greeted(Protocol):
    """An HTTP connection that can be told who its caller is."""

    learned: Client | None  #: who the caller is, once somebody asked or a trusted proxy told


class Preambles:
    """Makes the protocol of new connections: a reader of the preamble, with the connection that follows it.

    ``secure``: what follows the preamble is TLS, so that callers come over it whatever the preamble says.
    """

    def __init__(self, networks: Sequence[Network], patience: float = PATIENCE, *, secure: bool = False) -> None:
        self.trusted = Trusted(networks)
        self.patience = patience
        self.secure = secure
        self.waiting: set[_Reader] = set()  #: connections whose preamble is not complete
        #: Whether a connection may stay, now that the address of its caller is known.
        self.admit: Callable[[asyncio.BaseTransport, str], bool] = lambda _transport, _host: True

    def __call__(self, connection: Greeted, inner: asyncio.Protocol) -> asyncio.Protocol:
        """What a new connection is handed to; ``inner`` gets it afterwards, ``connection`` is told of the caller."""
        return _Reader(self, connection, inner)

    def close(self) -> None:
        """End the connections that have not begun to speak HTTP."""
        for reader in list(self.waiting):
            reader.end()


class _Reader(asyncio.Protocol):
    def __init__(self, home: Preambles, connection: Greeted, inner: asyncio.Protocol) -> None:
        self._home = home
        self._connection = connection
        self._inner = inner
        self._held = b""
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._timer: asyncio.TimerHandle | None = None
        self.idle_since = asyncio.get_running_loop().time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._home.trusted.holds(peer_of(transport).host):
            self._hand_over(b"")
            return
        self._home.waiting.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._home.patience, self._refuse, "it did not come in time")

    def data_received(self, data: bytes) -> None:
        self._held += data
        try:
            preamble = parse(self._held)
        except BadPreambleError as why:
            self._refuse(str(why))
            return
        if preamble is not None:
            self._forget()
            learned = self._connection.learned = self._learned(preamble)
            if learned.host and not preamble.local and not self._home.admit(self._transport, learned.host):
                self._transport.abort()
                return
            self._hand_over(self._held[preamble.size :])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the name is asyncio's
        self._forget()

    def _learned(self, preamble: Preamble) -> Client:
        """Who the caller is. One that the proxy does not tell of is unknown, never the trusted proxy itself."""
        secure = self._home.secure or preamble.secure
        if preamble.local:
            return peer_of(self._transport)._replace(secure=secure)
        if not preamble.host:
            return UNKNOWN._replace(secure=secure)
        return Client(plain(preamble.host), preamble.port, secure)

    def _hand_over(self, rest: bytes) -> None:
        transport, inner = self._transport, self._inner
        transport.set_protocol(inner)
        inner.connection_made(transport)
        if rest:
            inner.data_received(rest)

    def _refuse(self, reason: str) -> None:
        _log.warning("a trusted proxy sent no PROXY preamble and was refused", reason=reason)
        self.end()

    def _forget(self) -> None:
        self._home.waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Drop the connection."""
        self._forget()
        self._transport.abort()
