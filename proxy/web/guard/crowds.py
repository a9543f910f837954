"""How many connections one address may have open; further ones are closed before a byte of them is read.

Trusted proxies are not counted: all their callers come from one address. Nothing is asked per request, and nothing when a
connection ends: those that have ended are looked for only where an address seems to have too many.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from proxy.web.guard.quotas import place
from proxy.web.peers import Trusted, peer_of

#: New connections after which those that have ended are forgotten, whoever had them.
_SWEEP: Final = 4096


class Crowds:
    """``most`` connections of each address, at all listeners together. ``told``: of each one that is closed."""

    def __init__(self, most: int, trusted: Trusted, told: Callable[[], None]) -> None:
        self._most = most
        self._trusted = trusted
        self._told = told
        self._open: dict[str, list[asyncio.BaseTransport]] = {}
        self._since = 0

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def __call__(self, inner: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
        """What a new connection is handed to, in place of ``inner``, which follows."""
        return _Door(self, inner)

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether a new connection may stay; then it counts until it has ended."""
        host = peer_of(transport).host
        if self._trusted.holds(host):
            return True
        self._since += 1
        if self._since >= _SWEEP:
            self._sweep()
        key = place(host)
        there = self._open.setdefault(key, [])
        if len(there) >= self._most:
            there[:] = [other for other in there if not other.is_closing()]
            if len(there) >= self._most:
                self._told()
                return False
        there.append(transport)
        return True

    def _sweep(self) -> None:
        self._since = 0
        left = {key: [one for one in there if not one.is_closing()] for key, there in self._open.items()}
        self._open = {key: there for key, there in left.items() if there}


class _Door(asyncio.Protocol):
    def __init__(self, crowds: Crowds, inner: asyncio.BaseProtocol) -> None:
        self._crowds = crowds
        self._inner = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        coming = cast("asyncio.Transport", transport)
        if not self._crowds.admits(coming):
            coming.abort()
            return
        coming.set_protocol(self._inner)
        self._inner.connection_made(coming)
