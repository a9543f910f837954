"""Whoever guesses secrets is slowed down, and nobody else.

Failures are counted by address and by client. Each has so many that cost nothing, and they are forgiven one by one as time
passes; after these it waits. Two things keep that from being a weapon against the clients themselves: an address from
which a client has already proved itself has a count of its own for that client, so that strangers who fail in its name do
not lock it out; and success costs nothing, so that many clients behind one address never notice.

Not a job for the rate limiter of ``web.guard``: that refuses what is too much and counts no further. Failures are known only after
the event, and those of attempts that were under way at the same time all count, however many there are.
"""

import ipaddress
from collections import OrderedDict
from typing import Final, NamedTuple

from proxy.clock import Clock

_KEPT: Final = 10_000  # entries of each table
_NAME: Final = 64  # characters of a made-up client id that are kept


class Allowance(NamedTuple):
    """So many failures at once, and one more every so many milliseconds."""

    burst: int
    every: int


BY_ADDRESS: Final = Allowance(20, 2_000)
BY_CLIENT: Final = Allowance(10, 5_000)

_Key = str | tuple[str, str]


class _Failures:
    """Failures by key as a leaky bucket: all that is kept is when the bucket will be empty (GCRA)."""

    def __init__(self, allowance: Allowance, kept: int) -> None:
        self._allowance = allowance
        self._kept = kept
        self._empty_at: OrderedDict[_Key, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._empty_at)

    def wait(self, key: _Key, now: int) -> int:
        burst, every = self._allowance
        return max(0, self._empty_at.get(key, 0) - now - (burst - 1) * every)

    def add(self, key: _Key, now: int) -> None:
        self._empty_at[key] = max(self._empty_at.get(key, 0), now) + self._allowance.every
        self._empty_at.move_to_end(key)
        if len(self._empty_at) > self._kept:
            self._empty_at.popitem(last=False)


class Throttle:
    """For the thread of the event loop. Client ids and addresses are as callers send them."""

    def __init__(self, clock: Clock, kept: int = _KEPT) -> None:
        self._clock = clock
        self._kept = kept
        self._addresses = _Failures(BY_ADDRESS, kept)
        self._clients = _Failures(BY_CLIENT, kept)
        self._pairs = _Failures(BY_CLIENT, kept)
        self._proved: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._addresses) + len(self._clients) + len(self._pairs) + len(self._proved)

    def wait(self, client: str, address: str) -> int:
        """Milliseconds until this client may try again from this address; 0: now."""
        now, pair = self._clock(), _pair(client, address)
        if pair in self._proved:
            return self._pairs.wait(pair, now)
        return max(self._clients.wait(pair[0], now), self._addresses.wait(pair[1], now))

    def failed(self, client: str, address: str) -> None:
        """Count a wrong secret, or a client that does not exist."""
        now, pair = self._clock(), _pair(client, address)
        if pair in self._proved:
            self._pairs.add(pair, now)
            return
        self._clients.add(pair[0], now)
        self._addresses.add(pair[1], now)

    def succeeded(self, client: str, address: str) -> None:
        """Remember that the client has proved itself from there."""
        pair = _pair(client, address)
        self._proved[pair] = None
        self._proved.move_to_end(pair)
        if len(self._proved) > self._kept:
            self._proved.popitem(last=False)


def _pair(client: str, address: str) -> tuple[str, str]:
    return client[:_NAME], _network(address)


def _network(address: str) -> str:
    """Where the caller is: its IPv4 address, or the /64 that one IPv6 household or machine has to itself."""
    if ":" not in address:
        return address
    return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
