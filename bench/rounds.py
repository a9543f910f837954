"""Two proxies in turns, A B A B …, under the same load, so that whatever else the machine does hits
both alike.
"""

import json
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from bench.load import Job, Result
from bench.processes import ROOT, Running, cores, family, on

#: Proxies that must not show the application a value of the load.
REDACTING = frozenset({"domicile", "mitmproxy"})

#: Scenarios whose requests have no bodies.
_READING = frozenset({"read", "restored"})

#: Running numbers that one window of load may use up.
_NUMBERS_EACH = 2_000_000


class Failed(Exception):
    """A run that measured nothing worth telling: an error among the answers, or values that reached
    the application.
    """


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often; the defaults are those of a run that may be quoted."""

    connections: tuple[int, ...] = (16, 64)
    rounds: int = 5
    seconds: float = 3.0
    warmup: float = 0.5
    count: int = 10_000_000


#: Ends with its fiftieth answer; the seconds are for a machine that stands still meanwhile.
QUICK = Plan(connections=(2,), rounds=1, seconds=120, warmup=0.05, count=50)


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians over the rounds of one proxy at one number of connections."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float | None
    rest_busy: float | None


@dataclass(slots=True)
class Driver:
    """Runs windows of load against proxies that stand before one application."""

    app: Running
    plan: Plan
    next_number: int = 1

    def compare(self, scenario: str, proxies: Sequence[Running], connections: int) -> list[Figures]:
        """The figures of each proxy, in their order, from interleaved rounds.

        Raises:
            Failed: a window had an error in it, ended without an answer, or showed the application
            what it must not see.
        """
        return self.alternate([(scenario, proxy) for proxy in proxies], connections)

    def alternate(self, pairs: Sequence[tuple[str, Running]], connections: int) -> list[Figures]:
        """The same of pairs of a scenario and a proxy."""
        results: list[list[Result]] = [[] for _ in pairs]
        for _ in range(self.plan.rounds):
            for pair, kept in zip(pairs, results, strict=True):
                kept.append(self._window(*pair, connections))
        return [_medians(kept) for kept in results]

    def _window(self, scenario: str, proxy: Running, connections: int) -> Result:
        seen, clear = self._counts()
        result = self._load(scenario, proxy, connections)
        if result.errors or not result.requests:
            what = result.first_error or "no answer came"
            raise Failed(f"{scenario} through {proxy.name} at {connections} connections: {what}")
        seen_after, clear_after = self._counts()
        bodies, shown = seen_after - seen, clear_after - clear
        if proxy.name in REDACTING and shown:
            raise Failed(
                f"{proxy.name} does not redact: {shown} of {bodies} bodies reached the "
                "application in the clear"
            )
        if scenario not in _READING and bodies < result.requests:
            raise Failed(
                f"{proxy.name} answered {result.requests} requests, but the application saw only "
                f"{bodies}"
            )
        return result

    def _load(self, scenario: str, proxy: Running, connections: int) -> Result:
        """One window of load, made by a process of its own."""
        job = Job(
            scenario,
            proxy.port,
            connections,
            self.plan.seconds,
            count=self.plan.count,
            warmup=self.plan.warmup,
            start=self.next_number,
            pids=family(proxy.pid),
            rest=family(self.app.pid),
        )
        self.next_number += _NUMBERS_EACH
        with on(cores()[1]):
            done = subprocess.run(
                [sys.executable, "-m", "bench.load", msgspec.json.encode(job).decode()],
                capture_output=True,
                check=False,
                timeout=self.plan.seconds + 90,
                cwd=ROOT,
            )
        if done.returncode or done.stderr:
            raise Failed(
                f"the load against {proxy.name} failed: "
                f"{done.stderr.decode(errors='replace')[-400:]}"
            )
        return msgspec.json.decode(done.stdout, type=Result)

    def _counts(self) -> tuple[int, int]:
        """How many bodies the application got so far, and how many of them showed a clear value."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.app.port}/counts", timeout=120
        ) as answer:
            counts = json.load(answer)
        return counts["seen"], counts["clear"]


def _medians(results: Sequence[Result]) -> Figures:
    return Figures(
        rate=statistics.median(one.rate for one in results),
        p50_ms=statistics.median(one.p50_ms for one in results),
        p99_ms=statistics.median(one.p99_ms for one in results),
        cpu_us=_median([one.cpu_us for one in results]),
        rest_busy=_median([one.rest_busy for one in results]),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
