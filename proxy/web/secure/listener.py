"""TLS of one listener: what new connections are met with, and how their handshakes end."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from proxy.web.secure.transport import TlsConnection

#: How long a handshake may take, in seconds.
PATIENCE: Final = 10.0

#: Is told how each handshake ended: one of ``OUTCOMES``.
Observer = Callable[[str], None]

#: ``late``: not complete in time. ``left``: the caller went away. ``failed``: anything else.
OUTCOMES: Final = ("done", "no_name", "foreign_name", "no_certificate", "bad_certificate", "late", "left", "failed")


class TlsListener:
    """Puts TLS before the connections of a listener. ``context`` may be replaced at any time; new connections get it."""

    def __init__(self, context: ssl.SSLContext, observe: Observer, patience: float = PATIENCE) -> None:
        self.context = context
        self.patience = patience
        self.shaking: set[TlsConnection] = set()  #: connections whose handshake is not complete
        self._observe = observe

    def __call__(self, connection: asyncio.Protocol) -> TlsConnection:
        """What a new connection is handed to; ``connection`` gets it once the handshake is complete."""
        return TlsConnection(self, connection)

    def began(self, connection: TlsConnection) -> None:
        """A caller begins its handshake."""
        self.shaking.add(connection)

    def ended(self, connection: TlsConnection, outcome: str) -> None:
        """A handshake is over."""
        self.shaking.discard(connection)
        self._observe(outcome)

    def close(self) -> None:
        """End the connections whose handshake is not complete."""
        for connection in list(self.shaking):
            connection.abort()
