"""Request rates by key: so many a second, with a burst of some seconds' worth.

A leaky bucket for each key (GCRA), by the library that also counts for several replicas
(``bucket_store``, ``shared_limits``). ``RateLimit.take`` decides; ``quotas`` refuses by it.
"""

import math
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from throttled import BaseRateLimiter

    from proxy.edge.bucket_store import BucketStore

#: Entries that are kept; a bucket that is not empty counts more than one that nearly is.
_CAPACITY: Final = 131_072

#: Seconds that count for nothing: what adding up fractions leaves.
_GRAIN: Final = 1e-6


class RatePolicy(NamedTuple):
    """A limit, as callers see it."""

    name: str
    per_second: int
    burst: int  #: seconds' worth of requests that may come at once

    @property
    def quota(self) -> int:
        """Requests in a window of ``burst`` seconds."""
        return self.per_second * self.burst

    @property
    def text(self) -> str:
        """The field ``RateLimit-Policy`` (draft-ietf-httpapi-ratelimit-headers)."""
        return f'"{self.name}";q={self.per_second * self.burst};w={self.burst}'


class Verdict(NamedTuple):
    """Result of the limit for one request, for the field ``RateLimit``."""

    allowed: bool
    remaining: int  #: requests that may follow at once
    #: seconds until all of the quota is there again; of a refused one, until the next is taken
    reset: int


class RateLimit:
    """Decides whether a request by a key is within its rate, for one process."""

    def __init__(self, policy: RatePolicy, capacity: int = _CAPACITY) -> None:
        self.policy = policy
        #: keys that are refused until they have paid what other replicas know of
        self.owing: set[str] = set()
        #: requests by key, if they are counted for all replicas
        self.used: dict[str, int] | None = None
        self._capacity = capacity

    @cached_property
    def _buckets(self) -> "BucketStore":
        # the library takes 70 ms and 7 MB: loaded with the first request that is counted
        from proxy.edge.bucket_store import BucketStore

        return BucketStore(self._capacity)

    @cached_property
    def _limiter(self) -> "BaseRateLimiter":
        from proxy.edge.bucket_store import leaky_bucket

        return leaky_bucket(self.policy.per_second, self.policy.quota, self._buckets)

    def __len__(self) -> int:
        return self._buckets.count()

    def take(self, key: str) -> Verdict:
        """Count a request; one that is refused costs nothing."""
        if key in self.owing:
            return Verdict(False, 0, 1)
        result = self._limiter.limit(key)
        state = result.state
        if result.limited:
            return Verdict(False, 0, max(1, math.ceil(state.retry_after - _GRAIN)))
        if self.used is not None:
            self.used[key] = self.used.get(key, 0) + 1
        return Verdict(True, state.remaining, math.ceil(state.reset_after - _GRAIN))

    def full(self, key: str) -> bool:
        """Whether the next request would be refused."""
        return key in self.owing or self._limiter.peek(key).remaining < 1
