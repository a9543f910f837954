"""Limits on open connections, per address and in all.

Where there is no room, a long idle one gives way.

Idle is a connection that has no request under way: one whose PROXY preamble, TLS handshake or
request head is not complete, or that is kept for a next request. Its protocol says since when
(``idle_since``). Where none is idle, the new connection is closed before a byte of it is read.

The address of a trusted proxy is that of all its callers, so it is not counted; if it speaks the
PROXY protocol, the address that it reports is. There is no work per request, nor at the end of a
connection: closed ones are searched for only if the count seems too high.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol, cast

from proxy.edge.quotas import address_group
from proxy.net.client_address import Trusted, peer_of

#: Connections that are looked at for an idle one, at each new connection; the next one looks
#: further.
_EXAMINED: Final = 64

#: New connections after which closed ones are forgotten.
_ADMITTED: Final = 4096

#: Closed ones are searched for among so many at any time, and among more once a second.
_FEW: Final = 1024
_SWEEP_SECONDS: Final = 1.0


class Idle(Protocol):
    """Protocol that knows since when its connection is idle."""

    @property
    def idle_since(self) -> float | None:
        """In loop time, since when it has no request under way; ``None``: it has one."""


_Connections = OrderedDict[asyncio.BaseTransport, float]


class ConnectionLimit:
    """``most`` connections in all and ``of_address`` from one address (0: no limit), at all its
    listeners together.

    ``closed`` is called for each connection that is refused or gives way.
    """

    def __init__(
        self, most: int, of_address: int, trusted: Trusted, closed: Callable[[], None]
    ) -> None:
        self.backlog = 128  #: of its listeners: connections that wait to be accepted
        self._most = most
        self._of_address = of_address
        self._trusted = trusted
        self._closed = closed
        # when each was looked at last; the longest ago first
        self._all: _Connections = OrderedDict()
        self._by_address: dict[str, _Connections] = {}
        self._swept = 0.0
        self._admitted = 0

    def __len__(self) -> int:
        return len(self._all)

    def __call__(self, inner: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
        """Wrap the protocol of a new connection, which ``inner`` follows once admitted."""
        return _Admission(self, inner)

    def admit(self, transport: asyncio.BaseTransport) -> bool:
        """Whether a new connection may stay; then it counts until it has ended."""
        host = peer_of(transport).host
        now = asyncio.get_running_loop().time()
        there = None if self._trusted.holds(host) else self._connections_of(host)
        if there is not None and not self._has_room(there, self._of_address):
            return False
        if not self._has_room(self._all, self._most):
            return False
        self._all[transport] = now
        if there is not None:
            there[transport] = now
        self._admitted += 1
        if self._admitted % _ADMITTED == 0:
            self._forget_ended()
        return True

    def counted(self, transport: asyncio.BaseTransport, host: str) -> bool:
        """Count a connection of a trusted proxy by its told address, too; whether it may stay."""
        there = self._connections_of(host)
        if there is None:
            return True
        if not self._has_room(there, self._of_address):
            return False
        there[transport] = asyncio.get_running_loop().time()
        return True

    def _connections_of(self, host: str) -> _Connections | None:
        """The connections of an address; ``None`` where they are not bounded."""
        return (
            self._by_address.setdefault(address_group(host), OrderedDict())
            if self._of_address
            else None
        )

    def _has_room(self, connections: _Connections, most: int) -> bool:
        """Whether one more may join them; an idle one gives way where it has to."""
        if len(connections) < most or not most:
            return True
        self._sweep(connections)
        if len(connections) < most:
            return True
        return self._give_way(connections)

    def _give_way(self, connections: _Connections) -> bool:
        """Close an idle connection; whether there was one among those looked at.

        One that was idle all the time since it was last looked at is closed at once; of the others
        (up to ``_EXAMINED``), which go to the end of the line, that which is idle for longest: the
        second chance of page replacement.
        """
        now, longest = (
            asyncio.get_running_loop().time(),
            (math.inf, cast("asyncio.BaseTransport | None", None)),
        )
        for _ in range(min(_EXAMINED, len(connections))):
            transport, looked_at = next(iter(connections.items()))
            idle = cast("Idle", transport.get_protocol())
            since = -math.inf if transport.is_closing() else idle.idle_since
            if since is not None:
                longest = min(longest, (since, transport), key=lambda one: one[0])
                if since <= looked_at:
                    break
            connections[transport] = now
            connections.move_to_end(transport)
        victim = longest[1]
        if victim is None or not victim.is_closing():
            self._closed()
        if victim is not None:
            del connections[victim]
            self._all.pop(victim, None)
            cast("asyncio.Transport", victim).abort()
        return victim is not None

    def _sweep(self, connections: _Connections) -> None:
        """Forget ended connections where that is cheap, or was not done for a while."""
        now = asyncio.get_running_loop().time()
        if len(connections) <= _FEW:
            _forget_ended(connections)
        elif now - self._swept >= _SWEEP_SECONDS:
            self._swept = now
            self._forget_ended()

    def _forget_ended(self) -> None:
        _forget_ended(self._all)
        for key, there in list(self._by_address.items()):
            _forget_ended(there)
            if not there:
                del self._by_address[key]


def _forget_ended(connections: _Connections) -> None:
    for transport in [one for one in connections if one.is_closing()]:
        del connections[transport]


class _Admission(asyncio.Protocol):
    def __init__(self, limit: ConnectionLimit, inner: asyncio.BaseProtocol) -> None:
        self._limit = limit
        self._inner = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        coming = cast("asyncio.Transport", transport)
        if not self._limit.admit(coming):
            coming.abort()
            return
        coming.set_protocol(self._inner)
        self._inner.connection_made(coming)
