"""Client secrets checked off the event loop, a few at a time.

A check costs the same work for a client that does not exist.

One check takes some 20 ms of processor and 19 MiB. Done on the event loop it would hold up every
other request; done without a bound, a flood of token requests would take all memory. So half of the
processors check, and a bounded number of requests wait for their turn in a fair queue: each source
has its turn after every other one, and known sources (a client at a network from which it has
authenticated before) come first. Where no room is left, the longest line gives way.
"""

import asyncio
import ipaddress
import os
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import msgspec

from proxy.auth.sealed_notes import SealedNote
from proxy.clock import Clock, steady
from proxy.crypto.client_secrets import NOBODYS_HASH, hash_secret, new_secret, verify_secret
from proxy.errors import Code, VaultError

#: Requests that wait for their turn; at 20 ms each, the last one waits some five seconds.
_WAITING: Final = 256

#: Turns of known sources after which another one has its turn, too.
_AHEAD: Final = 4

#: Requests that wait, by their source, in the order in which the sources have their turn.
_Lines = OrderedDict[str, deque[asyncio.Future[None]]]


class SecretChecks:
    """For the event loop it was made on. ``close`` it after use."""

    def __init__(self, threads: int | None = None, waiting: int = _WAITING) -> None:
        threads = threads or max(1, (os.cpu_count() or 2) // 2)
        self._executor = ThreadPoolExecutor(threads, "secrets")
        self._free = threads
        self._room = waiting
        self._recognized: _Lines = OrderedDict()
        self._others: _Lines = OrderedDict()
        self._ahead = 0  #: turns of known sources since the last one of another

    @asynccontextmanager
    async def slot(self, source: str = "", *, first: bool = False) -> AsyncIterator[None]:
        """Wait for a turn to check a secret; ``first``: ahead of sources that never authenticated.

        Raises ``VaultError(OVERLOADED)`` when too many wait already.
        """
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait(self._recognized if first else self._others, source)
        try:
            yield
        finally:
            self._leave()

    async def _wait(self, lines: _Lines, source: str) -> None:
        if self._room <= 0 and not self._displaced(lines, source):
            raise _overloaded()
        mine = asyncio.get_running_loop().create_future()
        lines.setdefault(source, deque()).append(mine)
        self._room -= 1
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled() and mine.exception() is None:
                self._leave()  # the turn came in the very moment in which the caller went away
            elif mine in lines.get(source, ()):
                self._remove(lines, source, mine)
            raise

    def _leave(self) -> None:
        """End a check: the next in line starts."""
        lines = (
            self._others
            if not self._recognized or (self._others and self._ahead >= _AHEAD)
            else self._recognized
        )
        if not lines:
            self._free += 1
            return
        self._ahead = 0 if lines is self._others else self._ahead + 1
        source = next(iter(lines))
        following = lines[source][0]
        self._remove(lines, source, following)
        if source in lines:
            lines.move_to_end(source)
        following.set_result(None)

    def _remove(self, lines: _Lines, source: str, waiting: asyncio.Future[None]) -> None:
        lines[source].remove(waiting)
        self._room += 1
        if not lines[source]:
            del lines[source]

    def _displaced(self, lines: _Lines, source: str) -> bool:
        """Whether the last one of the longest line has given way to this source."""
        among = self._recognized if lines is self._recognized and not self._others else self._others
        if not among:
            return False
        longest = max(among, key=lambda other: len(among[other]))
        if among is lines and len(among[longest]) <= len(lines.get(source, ())) + 1:
            return False
        last = among[longest][-1]
        self._remove(among, longest, last)
        last.set_exception(_overloaded())
        return True

    async def matches(self, stored: str | None, secret: str) -> bool:
        """Whether this is the secret.

        ``None`` for a client that does not exist: the same work, and never true.
        """
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, self._compare, stored, secret
        )

    async def create(self, secret: str = "") -> tuple[str, str]:
        """A new secret, unless there is one, and what to store of it."""
        secret = secret or new_secret()
        return secret, await asyncio.get_running_loop().run_in_executor(
            self._executor, hash_secret, secret
        )

    def close(self) -> None:
        """Let the threads end; checks under way are finished."""
        self._executor.shutdown(wait=False)

    def _compare(self, stored: str | None, secret: str) -> bool:
        return verify_secret(stored or NOBODYS_HASH, secret) and stored is not None


def _overloaded() -> VaultError:
    error = VaultError(
        Code.OVERLOADED, "Too many requests for access tokens wait already: try again soon."
    )
    error.retry_after = 1
    return error


# Throttles failed secret checks by address, never by a client's name, which anyone may send.
#
# Failures are counted by address, by network, and by client at one address. Each count has some
# free failures, which are forgiven one by one as time passes; after these it waits. Failures
# elsewhere affect no other caller. A network from which a client has authenticated before is
# remembered, also over restarts (``KnownNetworks``): there that client has its own count and is
# served first (``secret_checks``), so strangers behind the same address do not slow it down.
# Success costs nothing.
#
# The rate limiter of ``edge`` does not fit: it refuses excess requests and counts no further.
# Failures are known only afterwards, and all concurrent failed attempts must count.

_TABLE_ENTRIES: Final = 10_000  # entries of each table
_NAME: Final = 64  # characters of a made-up client id that are kept

#: Networks that are remembered, of all clients and of one, and milliseconds after the last success
#: for which they are.
MOST_NETWORKS: Final = 4_096
MOST_OF_CLIENT: Final = 64
EXPIRY: Final = 90 * 24 * 3_600_000

#: Milliseconds after which another success from a network is worth a new note.
_FRESH: Final = 24 * 3_600_000


class Allowance(NamedTuple):
    """Burst of failures, and the milliseconds after which one more is free."""

    burst: int
    every: int


BY_ADDRESS: Final = Allowance(20, 2_000)
BY_CLIENT: Final = Allowance(10, 5_000)
#: Of the /48 that a site of IPv6 has, with 65,536 networks in it.
BY_SITE: Final = Allowance(200, 200)

_Key = str | tuple[str, str]


class _Failures:
    """Failures by key as a leaky bucket (GCRA): only the time when it is empty is stored."""

    def __init__(self, allowance: Allowance, most: int) -> None:
        self._allowance = allowance
        self._most = most
        self._empty_at: OrderedDict[_Key, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._empty_at)

    def wait(self, key: _Key, now: int) -> int:
        burst, every = self._allowance
        return max(0, self._empty_at.get(key, 0) - now - (burst - 1) * every)

    def add(self, key: _Key, now: int) -> None:
        self._empty_at[key] = max(self._empty_at.get(key, 0), now) + self._allowance.every
        self._empty_at.move_to_end(key)
        if len(self._empty_at) > self._most:
            self._empty_at.popitem(last=False)


class KnownNetworks:
    """Networks from which each client has authenticated, bounded and with an expiry.

    A sealed note of the store keeps them over restarts.
    """

    def __init__(
        self, clock: Clock, note: SealedNote | None = None, most: int = MOST_NETWORKS
    ) -> None:
        self._clock = clock
        self._note = note
        self._most = most
        # last success, the oldest first
        self._last_success: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._clients: Counter[str] = Counter()
        self._changed = False

    def __len__(self) -> int:
        return len(self._last_success)

    def __contains__(self, pair: tuple[str, str]) -> bool:
        success = self._last_success.get(pair)
        return success is not None and self._clock() - success < EXPIRY

    def add(self, pair: tuple[str, str]) -> None:
        """A client has authenticated from a network."""
        now, before = self._clock(), self._last_success.get(pair)
        if before is not None and now - before < _FRESH:
            self._last_success.move_to_end(pair)
            return
        self._put(pair, now)
        self._changed = True

    async def load(self) -> None:
        """Read the note. Raises the errors of the store."""
        content = await self._note.read() if self._note is not None else None
        for client, network, success in _decode(content) if content else ():
            self._put((client, network), success)

    async def save(self) -> None:
        """Write the note if something has changed.

        Raises the errors of the store; the next call then writes it.
        """
        if self._note is None or not self._changed:
            return
        self._changed = False
        now = self._clock()
        fresh = [(*pair, at) for pair, at in self._last_success.items() if now - at < EXPIRY]
        try:
            await self._note.write(_encode(fresh))
        except VaultError as error:
            self._changed = True
            if error.code is not Code.CONFLICT:
                raise
            # another process has written: the next call writes the current state
            await self._note.read()

    def _put(self, pair: tuple[str, str], success: int) -> None:
        if self._last_success.pop(pair, None) is None:
            self._clients[pair[0]] += 1
        self._last_success[pair] = success
        if self._clients[pair[0]] > MOST_OF_CLIENT:
            self._drop(next(other for other in self._last_success if other[0] == pair[0]))
        elif len(self._last_success) > self._most:
            self._drop(next(iter(self._last_success)))

    def _drop(self, pair: tuple[str, str]) -> None:
        del self._last_success[pair]
        self._clients[pair[0]] -= 1
        if not self._clients[pair[0]]:
            del self._clients[pair[0]]


_decode = msgspec.json.Decoder(list[tuple[str, str, int]]).decode
_encode = msgspec.json.Encoder().encode


class Throttle:
    """For the thread of the event loop. Client ids and addresses are as callers send them."""

    def __init__(
        self, clock: Clock, most: int = _TABLE_ENTRIES, networks: KnownNetworks | None = None
    ) -> None:
        self._clock = steady(clock)  # else a failure from before the clock was set back locks out
        self._sites = _Failures(BY_SITE, most)
        self._addresses = _Failures(BY_ADDRESS, most)
        self._pairs = _Failures(BY_CLIENT, most)
        self.networks = KnownNetworks(clock, most=most) if networks is None else networks

    def __len__(self) -> int:
        return len(self._sites) + len(self._addresses) + len(self._pairs) + len(self.networks)

    def wait(self, client: str, address: str) -> int:
        """Milliseconds until this client may try again from this address; 0: now."""
        now, pair = self._clock(), _pair(client, address)
        wait = self._pairs.wait(pair, now)
        if pair in self.networks:
            return wait
        return max(wait, self._addresses.wait(pair[1], now), self._sites.wait(_site(pair[1]), now))

    def failed(self, client: str, address: str) -> None:
        """Count a wrong secret, or a client that does not exist."""
        now, pair = self._clock(), _pair(client, address)
        self._pairs.add(pair, now)
        if pair not in self.networks:
            self._addresses.add(pair[1], now)
            if ":" in pair[1]:
                self._sites.add(_site(pair[1]), now)

    def succeeded(self, client: str, address: str) -> None:
        """Remember that the client has authenticated from there."""
        self.networks.add(_pair(client, address))

    def source(self, client: str, address: str) -> tuple[str, bool]:
        """Return the throttling key of an attempt, and whether the client is known there.

        The key is client and network for a known pair, else the network alone.
        """
        pair = _pair(client, address)
        return (" ".join(pair), True) if pair in self.networks else (pair[1], False)


def _pair(client: str, address: str) -> tuple[str, str]:
    return client[:_NAME], _network(address)


def _network(address: str, prefix: int = 64) -> str:
    """Network of the caller: its IPv4 address, or the /64 of an IPv6 household or machine."""
    if ":" not in address:
        return address
    return str(ipaddress.IPv6Network((address.partition("%")[0], prefix), strict=False))


def _site(network: str) -> str:
    """The /48 of an IPv6 network; an IPv4 address is none."""
    return _network(network.partition("/")[0], 48) if ":" in network else ""
