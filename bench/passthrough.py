"""The gateway alone, without vault and rule files, next to nginx: what passing a request through
costs in processor time.

Measure 5 takes the whole program as an operator runs it; this one is for whoever works on the
gateway.

    python -m bench.passthrough
"""

import asyncio
import gc
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop

from bench import peers
from bench.processes import CACHE, ROOT, Unavailable, free_port, started
from bench.redacting import application
from bench.rounds import QUICK, Driver, Plan
from proxy.gateway.gateway import Gateway, GatewayOptions
from proxy.gateway.metrics import MeteredAccessLog
from proxy.gateway.ports import Exchange
from proxy.net.client import HttpUpstream
from proxy.net.coverage import Coverage
from proxy.net.listener import listen
from proxy.redactor.message import RawHeaders
from proxy.redactor.rules import BodyLimits, Endpoint, Match, OnError, RuleSet, Unmatched
from proxy.redactor.views import View
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics


class NothingNamed:
    """Rules that name nothing."""

    def __init__(self, upstream: str) -> None:
        self.endpoint = Endpoint(
            "app", upstream, frozenset(), "", Unmatched.REPORT, BodyLimits(), OnError()
        )

    @property
    def edition(self) -> object:
        return self

    def match(self, *_: object) -> tuple[Endpoint, Match | None]:
        return self.endpoint, None

    def ruled(self, *_: object) -> bool:
        return False

    def overridable(self, *_: object) -> bool:
        return False

    def may_change_operation(self, *_: object) -> bool:
        return False

    def bare_addresses(
        self,
        host: str,  # noqa: ARG002  # the signature of the port
        headers: Sequence[tuple[bytes, bytes]],
    ) -> Sequence[tuple[bytes, bytes]]:
        return headers

    async def redact_headers(
        self,
        endpoint: Endpoint,  # noqa: ARG002  # the signature of the port
        host: str,  # noqa: ARG002  # the signature of the port
        headers: Sequence[tuple[bytes, bytes]],
    ) -> Sequence[tuple[bytes, bytes]]:
        return headers

    def fast_path(self, match: Match, headers: RawHeaders, view: View | None = None) -> None:
        """No exchange is ordinary."""

    def exchange(self, match: Match, view: View | None = None) -> Exchange:
        raise NotImplementedError


async def serve(port: int, upstream: str) -> None:
    """The gateway until the process is ended."""
    logs.configure(logs.Style("warning"))
    rules = NothingNamed(upstream)
    metrics, named = Metrics(), RuleSet("none", (rules.endpoint,), (), ())
    journal, coverage = MeteredAccessLog(metrics, named), Coverage(metrics, named)
    gateway = Gateway(rules, journal, GatewayOptions(HttpUpstream(), bytes), coverage)
    async with listen("proxy", ("127.0.0.1", port), gateway.server):
        gc.collect()
        gc.freeze()
        await asyncio.Event().wait()


def run(quick: bool = False) -> dict[str, Any]:
    """Processor time a request at each number of connections, medians of interleaved rounds; nginx
    may be missing.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name, ExitStack() as stack:
        folder = Path(name)
        app = stack.enter_context(application(folder))
        port = free_port()
        command = [
            sys.executable,
            str(ROOT / "bench" / "passthrough.py"),
            str(port),
            f"http://127.0.0.1:{app.port}",
        ]
        proxies = [stack.enter_context(started("gateway", command, port, folder))]
        try:
            proxies.append(stack.enter_context(peers.nginx(app.port, folder, install=not quick)))
        except Unavailable as reason:
            notes.append(f"No figure of nginx: {reason}.")
        driver = Driver(app, QUICK if quick else Plan())
        for connections in driver.plan.connections:
            ours, *others = driver.compare("read", proxies, connections)
            theirs = others[0] if others else None
            known = ours.cpu_us and theirs and theirs.cpu_us
            rows.append(
                {
                    "case": f"{connections} connections",
                    "ours": ours.cpu_us,
                    "nginx": theirs and theirs.cpu_us,
                    "ratio": ours.cpu_us / theirs.cpu_us
                    if known and ours.cpu_us and theirs and theirs.cpu_us
                    else None,
                    "p50_ms": (ours.p50_ms, theirs and theirs.p50_ms),
                }
            )
    return {"rows": rows, "notes": notes}


def main() -> None:
    """Serve with ``PORT UPSTREAM``, else measure and print."""
    if len(sys.argv) == 3:
        uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
        return
    taken = run("--quick" in sys.argv)
    for row in taken["rows"]:
        ratio = "no ratio" if row["ratio"] is None else f"{row['ratio']:.2f}x"
        print(
            f"{row['case']}: gateway {row['ours']:.1f} us, nginx {row['nginx'] or 0:.1f} us, "
            f"{ratio}, p50 {row['p50_ms']}"
        )
    for note in taken["notes"]:
        print(note)


if __name__ == "__main__":
    main()
