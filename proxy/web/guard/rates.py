"""How often somebody may ask: so many requests a second, and some seconds' worth of them at once.

A leaky bucket for each key (GCRA): all that is kept is when the bucket will be empty again, so an entry that has run empty
can be forgotten, memory is bounded, and a request costs less than a microsecond whatever the number of clients.

Why not the in-memory store of the library that counts for several replicas (``shared``): measured with 10 000 keys, its
asynchronous kind took 860 us a request, for it looks through all keys each time, and its other kind keeps starting threads.
"""

import math
import time
from collections.abc import Callable
from typing import Final, NamedTuple

#: Entries that are kept; a bucket that is not empty counts more than one that nearly is.
_KEPT: Final = 131_072


#: Seconds that count for nothing: what adding up fractions leaves.
_GRAIN: Final = 1e-6


class Policy(NamedTuple):
    """A limit, as callers are told of it."""

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
        return f'"{self.name}";q={self.quota};w={self.burst}'


class Verdict(NamedTuple):
    """What came of a request, for the field ``RateLimit``."""

    allowed: bool
    remaining: int  #: requests that may follow at once
    reset: int  #: seconds until all of the quota is there again; of a refused one, until the next is taken


class Rates:
    """Requests by key, for one process. ``clock``: seconds that never go back."""

    def __init__(self, policy: Policy, clock: Callable[[], float] = time.monotonic, kept: int = _KEPT) -> None:
        self.policy = policy
        self.owing: set[str] = set()  #: keys that are refused until they have paid what other replicas know of
        self.used: dict[str, int] | None = None  #: requests by key, where somebody counts them for all replicas
        self._every = 1 / policy.per_second
        self._window = float(policy.burst)
        self._clock = clock
        self._kept = kept
        self._empty_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._empty_at)

    def take(self, key: str) -> Verdict:
        """Count a request; one that is refused costs nothing."""
        now = self._clock()
        empty = self._empty_at.get(key, now)
        ahead = max(now, empty) + self._every - now
        if key in self.owing:
            return Verdict(False, 0, 1)
        if ahead > self._window + _GRAIN:
            return Verdict(False, 0, max(1, math.ceil(ahead - self._window - _GRAIN)))
        self._empty_at[key] = now + ahead
        if self.used is not None:
            self.used[key] = self.used.get(key, 0) + 1
        if len(self._empty_at) > self._kept:
            self._forget(now)
        return Verdict(True, int((self._window - ahead) / self._every + _GRAIN), math.ceil(ahead - _GRAIN))

    def full(self, key: str) -> bool:
        """Whether the next request would be refused."""
        now = self._clock()
        return key in self.owing or self._empty_at.get(key, now) + self._every - now > self._window + _GRAIN

    def _forget(self, now: float) -> None:
        """An empty bucket is as good as none; where there are too many others, the emptier half goes."""
        left = {key: empty for key, empty in self._empty_at.items() if empty > now}
        if len(left) > self._kept // 2:
            fullest = sorted(left, key=left.__getitem__, reverse=True)[: self._kept // 2]
            left = {key: left[key] for key in fullest}
        self._empty_at = left
