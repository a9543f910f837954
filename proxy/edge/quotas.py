"""Quotas of an instance: all limits on how often, and how much at a time, that listeners ask.

A limit that is off is ``None``.
"""

import asyncio
import ipaddress
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from proxy.edge.rate_limit import RateLimit, Verdict
from proxy.errors import Code, VaultError
from proxy.net.client_address import Trusted, caller_of
from proxy.redactor.message import RawHeaders

#: Told of each refusal: by which limit (credential, address, concurrent, uploads).
ObserveRefusal = Callable[[str], None]


def _untold(_limit: str) -> None:
    """Nobody counts."""


class ConcurrencyLimit:
    """``most`` at one time for each key, and as many as ``waiting`` behind them.

    ``on_refused``: of each that is refused.
    """

    def __init__(
        self,
        most: int,
        waiting: int,
        code: Code = Code.TOO_MANY_REQUESTS,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._most = most
        self._waiting = waiting
        self._code = code
        self._on_refused = on_refused
        self._running: dict[str, int] = {}  # weights together
        self._lines: dict[str, deque[tuple[asyncio.Future[None], int]]] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def enter(self, key: str, weight: int = 1) -> None:
        """Wait for a turn; call ``leave`` at its end.

        Raises ``VaultError`` where the line is full.

        One that weighs more than ``most`` has its turn alone.
        """
        running = self._running.get(key, 0)
        line = self._lines.get(key)
        if line is None and (running == 0 or running + weight <= self._most):
            self._running[key] = running + weight
            return
        if line is None:
            line = deque()
        if len(line) >= self._waiting:
            raise self._refused()
        self._lines[key] = line
        mine = asyncio.get_running_loop().create_future()
        line.append((mine, weight))
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                # the turn came in the very moment in which the caller went away
                self.leave(key, weight)
            else:
                self._go_on(key)  # the next in line may fit
            raise

    def free(self, key: str, weight: int = 1) -> bool:
        """Whether ``enter`` would give a turn at once."""
        running = self._running.get(key, 0)
        return key not in self._lines and (running == 0 or running + weight <= self._most)

    def leave(self, key: str, weight: int = 1) -> None:
        """Release a slot; requests next in line that fit take it."""
        running = self._running[key] - weight
        if running and key not in self._lines:
            self._running[key] = running
        elif running or key in self._lines:
            self._running[key] = running
            self._go_on(key)
        else:
            del self._running[key]

    def _go_on(self, key: str) -> None:
        line, running = self._lines.get(key), self._running[key]
        while line:
            following, weight = line[0]
            if not following.done():
                if running and running + weight > self._most:
                    break
                running += weight
                following.set_result(None)
            line.popleft()
        if not line:
            self._lines.pop(key, None)
        if running:
            self._running[key] = running
        else:
            del self._running[key]

    def _refused(self) -> VaultError:
        self._on_refused()
        if self._code is Code.OVERLOADED:
            text = (
                "Too many large pages are under way at the same time; ask again, or for fewer "
                "records."
            )
        else:
            what = "uploads" if self._code is Code.TOO_MANY_UPLOADS else "requests"
            text = f"This client has too many {what} under way at the same time."
        refusal = VaultError(self._code, text)
        refusal.retry_after = 1
        return refusal


class LargePages:
    """Turns of pages that are too large to be held by everybody at once: a few in all, and fewer of
    one caller.

    Each one is in memory until it is sent, sealed and encoded.
    """

    def __init__(
        self, most: int = 3, waiting: int = 256, on_refused: Callable[[], None] = lambda: None
    ) -> None:
        self._own = ConcurrencyLimit(max(1, most - 1), waiting, on_refused=on_refused)
        self._all = ConcurrencyLimit(most, waiting, Code.OVERLOADED, on_refused)

    async def enter(self, key: str) -> None:
        """Wait for a turn; call ``leave`` at its end.

        Raises ``VaultError`` where the line is full.
        """
        await self._own.enter(key)
        try:
            await self._all.enter("")
        except BaseException:
            self._own.leave(key)
            raise

    def leave(self, key: str) -> None:
        """Release the slot of one page."""
        self._all.leave("")
        self._own.leave(key)


@dataclass(slots=True)
class Quotas:
    """The limits of an instance."""

    credential: RateLimit | None = None  #: requests of a client, by its id
    address: RateLimit | None = None  #: requests from an address, at all listeners together
    concurrent: ConcurrencyLimit | None = None  #: concurrent requests of a client
    uploads: ConcurrencyLimit | None = None  #: concurrent uploads of a client
    #: whose forwarding fields tell where a caller is
    trusted: Trusted = field(default_factory=lambda: Trusted(()))

    def client(
        self, client: str, on_refused: ObserveRefusal = _untold
    ) -> tuple[RateLimit, Verdict] | None:
        """Count a request of a client. Raises ``VaultError`` (TOO_MANY_REQUESTS)."""
        return _taken(self.credential, client, on_refused, "credential")

    def caller(
        self, host: str, on_refused: ObserveRefusal = _untold
    ) -> tuple[RateLimit, Verdict] | None:
        """Count a request from an address. Raises ``VaultError`` (TOO_MANY_REQUESTS)."""
        return _taken(self.address, address_group(host), on_refused, "address")

    def spent(self, host: str) -> bool:
        """Whether the next request from an address would be refused."""
        return self.address is not None and self.address.full(address_group(host))

    def host(self, peer: str, headers: RawHeaders) -> str:
        """The address of a request's caller, from raw fields."""
        if not self.trusted.holds(peer):
            return peer
        chain = [
            value.decode("latin-1") for name, value in headers if name.lower() == b"x-forwarded-for"
        ]
        return caller_of(peer, chain, self.trusted)


class MissLimit:
    """Searches through the proxy that show nothing, by the address that they come from."""

    def __init__(
        self,
        rates: RateLimit,
        quotas: Quotas,
        refused: ObserveRefusal,
        alarm: Callable[[str, str], None],
    ) -> None:
        """``alarm``: called with the endpoint and the operation if an address misses too often."""
        self._rates = rates
        self._quotas = quotas
        self._refused = refused
        self._alarm = alarm

    def admit(self, peer: str, headers: RawHeaders) -> str:
        """The address that counts; ``VaultError`` (TOO_MANY_REQUESTS) where it missed too often."""
        group = address_group(self._quotas.host(peer, headers))
        if self._rates.full(group):
            self._refused("misses")
            raise LimitedError(self._rates, Verdict(False, 0, 1), "searches without a hit")
        return group

    def count(self, group: str, endpoint: str, operation: str) -> None:
        """Count a miss; the last one that is allowed raises the alarm."""
        if self._rates.take(group).remaining < 1:
            self._alarm(endpoint, operation)


class LimitedError(VaultError):
    """A refusal with the fields of its limit."""

    def __init__(self, rates: RateLimit, verdict: Verdict, what: str = "requests") -> None:
        super().__init__(
            Code.TOO_MANY_REQUESTS,
            f"More than {rates.policy.per_second} {what} a second, by {rates.policy.name}: "
            "send the request later again.",
        )
        self.retry_after = max(1, verdict.reset)
        self.counted = rates, verdict
        self.limit = limit_fields(rates, verdict)


def _taken(
    rates: RateLimit | None, key: str, on_refused: ObserveRefusal, limit: str
) -> tuple[RateLimit, Verdict] | None:
    if rates is None:
        return None
    verdict = rates.take(key)
    if not verdict.allowed:
        on_refused(limit)
        raise LimitedError(rates, verdict)
    return rates, verdict


def limit_fields(rates: RateLimit, verdict: Verdict) -> dict[str, str]:
    """Return the fields that tell callers of a limit (draft-ietf-httpapi-ratelimit-headers)."""
    policy = rates.policy
    return {
        "RateLimit-Policy": policy.text,
        "RateLimit": f'"{policy.name}";r={verdict.remaining};t={verdict.reset}',
    }


_PREFIX: Final = 64


def address_group(host: str) -> str:
    """Group of a caller: its IPv4 address, or the /64 of an IPv6 household or machine."""
    if ":" not in host:
        return host
    return str(ipaddress.IPv6Network((host.partition("%")[0], _PREFIX), strict=False))
