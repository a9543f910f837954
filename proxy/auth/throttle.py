"""Slows down who guesses secrets, by address; never a client by its name, which anybody may write.

Failures are counted by address, by network, and by client at one address. Each has so many that cost nothing, and they are forgiven
one by one as time passes; after these it waits. What strangers do elsewhere counts for nobody else. A network from which a client has
authenticated before is remembered, over restarts, too (``KnownNetworks``): there that client has a count of its own, so that strangers
behind the same address do not slow it down, and it is served first (``passwords``). Success costs nothing.

Not a job for the rate limiter of ``web.guard``: that refuses what is too much and counts no further. Failures are known only after
the event, and those of attempts that were under way at the same time all count, however many there are.
"""

import ipaddress
from collections import Counter, OrderedDict
from typing import Final, NamedTuple

import msgspec

from proxy.auth.sealed import SealedNote
from proxy.clock import Clock
from proxy.errors import Code, VaultError

_KEPT: Final = 10_000  # entries of each table
_NAME: Final = 64  # characters of a made-up client id that are kept

#: Networks that are remembered, of all clients and of one, and milliseconds after the last success for which they are.
MOST_NETWORKS: Final = 4_096
MOST_OF_CLIENT: Final = 64
EXPIRY: Final = 90 * 24 * 3_600_000

#: Milliseconds after which another success from a network is worth a new note.
_FRESH: Final = 24 * 3_600_000


class Allowance(NamedTuple):
    """So many failures at once, and one more every so many milliseconds."""

    burst: int
    every: int


BY_ADDRESS: Final = Allowance(20, 2_000)
BY_CLIENT: Final = Allowance(10, 5_000)
#: Of the /48 that a site of IPv6 has, with 65,536 networks in it.
BY_SITE: Final = Allowance(200, 200)

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


class KnownNetworks:
    """Where each client has authenticated from, bounded and with an expiry; one sealed note of the store keeps it over restarts."""

    def __init__(self, clock: Clock, note: SealedNote | None = None, most: int = MOST_NETWORKS) -> None:
        self._clock = clock
        self._note = note
        self._most = most
        self._seen: OrderedDict[tuple[str, str], int] = OrderedDict()  # last success, the oldest first
        self._clients: Counter[str] = Counter()
        self._changed = False

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, pair: tuple[str, str]) -> bool:
        seen = self._seen.get(pair)
        return seen is not None and self._clock() - seen < EXPIRY

    def add(self, pair: tuple[str, str]) -> None:
        """A client has authenticated from a network."""
        now, before = self._clock(), self._seen.get(pair)
        if before is not None and now - before < _FRESH:
            self._seen.move_to_end(pair)
            return
        self._put(pair, now)
        self._changed = True

    async def load(self) -> None:
        """Read the note. Raises what the store raises."""
        content = await self._note.read() if self._note is not None else None
        for client, network, seen in _decode(content) if content else ():
            self._put((client, network), seen)

    async def save(self) -> None:
        """Write the note if something has changed. Raises what the store raises; then the next call writes it."""
        if self._note is None or not self._changed:
            return
        self._changed = False
        now = self._clock()
        kept = [(*pair, seen) for pair, seen in self._seen.items() if now - seen < EXPIRY]
        try:
            await self._note.write(_encode(kept))
        except VaultError as error:
            self._changed = True
            if error.code is not Code.CONFLICT:
                raise
            await self._note.read()  # another process has written: the next call writes what is known here

    def _put(self, pair: tuple[str, str], seen: int) -> None:
        if self._seen.pop(pair, None) is None:
            self._clients[pair[0]] += 1
        self._seen[pair] = seen
        if self._clients[pair[0]] > MOST_OF_CLIENT:
            self._drop(next(other for other in self._seen if other[0] == pair[0]))
        elif len(self._seen) > self._most:
            self._drop(next(iter(self._seen)))

    def _drop(self, pair: tuple[str, str]) -> None:
        del self._seen[pair]
        self._clients[pair[0]] -= 1
        if not self._clients[pair[0]]:
            del self._clients[pair[0]]


_decode = msgspec.json.Decoder(list[tuple[str, str, int]]).decode
_encode = msgspec.json.Encoder().encode


class Throttle:
    """For the thread of the event loop. Client ids and addresses are as callers send them."""

    def __init__(self, clock: Clock, kept: int = _KEPT, known: KnownNetworks | None = None) -> None:
        self._clock = clock
        self._sites = _Failures(BY_SITE, kept)
        self._addresses = _Failures(BY_ADDRESS, kept)
        self._pairs = _Failures(BY_CLIENT, kept)
        self.known = KnownNetworks(clock, most=kept) if known is None else known

    def __len__(self) -> int:
        return len(self._sites) + len(self._addresses) + len(self._pairs) + len(self.known)

    def wait(self, client: str, address: str) -> int:
        """Milliseconds until this client may try again from this address; 0: now."""
        now, pair = self._clock(), _pair(client, address)
        wait = self._pairs.wait(pair, now)
        if pair in self.known:
            return wait
        return max(wait, self._addresses.wait(pair[1], now), self._sites.wait(_site(pair[1]), now))

    def failed(self, client: str, address: str) -> None:
        """Count a wrong secret, or a client that does not exist."""
        now, pair = self._clock(), _pair(client, address)
        self._pairs.add(pair, now)
        if pair not in self.known:
            self._addresses.add(pair[1], now)
            if ":" in pair[1]:
                self._sites.add(_site(pair[1]), now)

    def succeeded(self, client: str, address: str) -> None:
        """Remember that the client has authenticated from there."""
        self.known.add(_pair(client, address))

    def source(self, client: str, address: str) -> tuple[str, bool]:
        """Whose turn an attempt takes, and whether it is a known one: a client at its network, else the network alone."""
        pair = _pair(client, address)
        return (" ".join(pair), True) if pair in self.known else (pair[1], False)


def _pair(client: str, address: str) -> tuple[str, str]:
    return client[:_NAME], _network(address)


def _network(address: str, prefix: int = 64) -> str:
    """Where the caller is: its IPv4 address, or the /64 that one IPv6 household or machine has to itself."""
    if ":" not in address:
        return address
    return str(ipaddress.IPv6Network((address.partition("%")[0], prefix), strict=False))


def _site(network: str) -> str:
    """The /48 of an IPv6 network; an IPv4 address is none."""
    return _network(network.partition("/")[0], 48) if ":" in network else ""
