"""What a new connection of a listener passes before it is HTTP: the PROXY preamble, where it is spoken, then TLS."""

import asyncio

from aiohttp import web

from proxy.web.api.connection import VaultConnection
from proxy.web.preamble import Preambles
from proxy.web.secure.listener import TlsListener
from proxy.web.server import CallerConnection


class Entrance:
    """Puts the parts that are switched on before a connection. At least one of them is."""

    def __init__(self, preambles: Preambles | None, tls: TlsListener | None) -> None:
        self.preambles = preambles
        self._tls = tls

    def __call__(self, connection: CallerConnection | VaultConnection) -> asyncio.Protocol:
        """What a new connection is handed to."""
        inner: asyncio.Protocol = connection if self._tls is None else self._tls(connection)
        return inner if self.preambles is None else self.preambles(connection, inner)

    def of_vault(self, server: web.Server) -> asyncio.Protocol:
        """What a new connection to the vault listener is handed to."""
        return self(VaultConnection(server))

    def close(self) -> None:
        """End the connections that have not begun to speak HTTP."""
        if self.preambles is not None:
            self.preambles.close()
        if self._tls is not None:
            self._tls.close()
