"""All limits on how often, and how much at a time, as one thing that listeners ask.

What is switched off is ``None``.
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from proxy.edge.concurrency import ConcurrencyLimit
from proxy.edge.rate_limit import Rates, Verdict
from proxy.errors import Code, VaultError
from proxy.net.client_address import Trusted, caller_of
from proxy.redactor.message import RawHeaders

#: Told of each refusal: by which limit (credential, address, concurrent, uploads).
ObserveRefusal = Callable[[str], None]


def _untold(_limit: str) -> None:
    """Nobody counts."""


@dataclass(slots=True)
class Quotas:
    """The limits of an instance."""

    credential: Rates | None = None  #: requests of a client, by its id
    address: Rates | None = None  #: requests from an address, at all listeners together
    concurrent: ConcurrencyLimit | None = None  #: requests of a client at the same time
    uploads: ConcurrencyLimit | None = None  #: uploads of a client at the same time
    #: whose forwarding fields tell where a caller is
    trusted: Trusted = field(default_factory=lambda: Trusted(()))

    def client(self, client: str, told: ObserveRefusal = _untold) -> tuple[Rates, Verdict] | None:
        """Count a request of a client. Raises ``VaultError`` (TOO_MANY_REQUESTS)."""
        return _taken(self.credential, client, told, "credential")

    def caller(self, host: str, told: ObserveRefusal = _untold) -> tuple[Rates, Verdict] | None:
        """Count a request from an address. Raises ``VaultError`` (TOO_MANY_REQUESTS)."""
        return _taken(self.address, address_group(host), told, "address")

    def spent(self, host: str) -> bool:
        """Whether the next request from an address would be refused."""
        return self.address is not None and self.address.full(address_group(host))

    def host(self, peer: str, headers: RawHeaders) -> str:
        """The address that a request comes from, of fields as they came."""
        if not self.trusted.holds(peer):
            return peer
        chain = [
            value.decode("latin-1") for name, value in headers if name.lower() == b"x-forwarded-for"
        ]
        return caller_of(peer, chain, self.trusted)


class LimitedError(VaultError):
    """A refusal that knows what to tell of the limit."""

    def __init__(self, rates: Rates, verdict: Verdict) -> None:
        super().__init__(
            Code.TOO_MANY_REQUESTS,
            f"More than {rates.policy.per_second} requests a second, by {rates.policy.name}: "
            "send the request later again.",
        )
        self.retry_after = max(1, verdict.reset)
        self.counted = rates, verdict
        self.limit = limit_fields(rates, verdict)


def _taken(
    rates: Rates | None, key: str, told: ObserveRefusal, limit: str
) -> tuple[Rates, Verdict] | None:
    if rates is None:
        return None
    verdict = rates.take(key)
    if not verdict.allowed:
        told(limit)
        raise LimitedError(rates, verdict)
    return rates, verdict


def limit_fields(rates: Rates, verdict: Verdict) -> dict[str, str]:
    """What answers tell of a limit (draft-ietf-httpapi-ratelimit-headers)."""
    policy = rates.policy
    return {
        "RateLimit-Policy": policy.text,
        "RateLimit": f'"{policy.name}";r={verdict.remaining};t={verdict.reset}',
    }


_PREFIX: Final = 64


def address_group(host: str) -> str:
    """Where a caller is: its IPv4 address, or the /64 that one IPv6 household or machine has to
    itself.
    """
    if ":" not in host:
        return host
    return str(ipaddress.IPv6Network((host.partition("%")[0], _PREFIX), strict=False))
