"""Measures 1, 3 to 6, 8, 9, 14, 15 and 16: the whole program as an operator runs it, before an
application, next to its peers.
"""

import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import exactness, peers
from bench.machine import installed
from bench.measures import MEASURES
from bench.ours import domicile
from bench.processes import (
    CACHE,
    ROOT,
    Running,
    Unavailable,
    family,
    free_port,
    processor_seconds,
    resident,
    started,
)
from bench.rounds import QUICK, Driver, Figures, Plan

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that runs for these measures; a peer that cannot be had is a reason instead."""

    driver: Driver
    domicile: Running
    nginx: Running | str
    mitmproxy: Running | str
    quick: bool
    idle: float | None  #: MB of memory before the first request
    start: float | None  #: seconds of processor time until it took requests


def run(quick: bool = False, numbers: Collection[int] = ()) -> dict[str, Any]:
    """Take these measures.

    Raises:
        Unavailable: our own command does not start.
        Failed: an answer was wrong.
    """
    rows: list[Row] = []
    notes: list[str] = []
    with _standing(QUICK if quick else Plan(), quick=quick) as bench:
        for number in sorted(numbers or _TAKEN):
            rows.extend(_TAKEN[number](bench, notes))
    return {"rows": rows, "notes": list(dict.fromkeys(notes))}


@contextmanager
def _standing(plan: Plan, *, quick: bool) -> Iterator[Bench]:
    """The application with every proxy before it.

    The vault lies on the disk of the checkout, not in memory.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name, ExitStack() as stack:
        folder = Path(name)
        app = stack.enter_context(application(folder))
        ours = stack.enter_context(domicile(app.port, folder))
        start = processor_seconds(family(ours.pid))
        yield Bench(
            Driver(app, plan),
            ours,
            _peer(stack, lambda: peers.nginx(app.port, folder, install=not quick)),
            _peer(stack, lambda: peers.mitmproxy(app.port, folder, install=not quick)),
            quick,
            resident(ours.pid),
            start,
        )


@contextmanager
def application(folder: Path) -> Iterator[Running]:
    """The application that every proxy stands before."""
    port = free_port()
    command = [sys.executable, str(ROOT / "bench" / "upstream_app.py"), str(port)]
    with started("application", command, port, folder, proxy=False) as running:
        yield running


def _peer(stack: ExitStack, start: Callable[[], Any]) -> Running | str:
    try:
        running: Running = stack.enter_context(start())
    except Unavailable as reason:
        return str(reason)
    return running


def _costs(
    bench: Bench, notes: list[str], number: int, scenario: str, peer: Running | str
) -> Iterator[Row]:
    """Rows of a measure whose figure is the processor time of the peer over ours."""
    for connections, ours, theirs in _compared(bench, notes, scenario, peer):
        cost = theirs and theirs.cpu_us
        yield {
            "measure": number,
            "case": f"{connections} connections",
            "unit": "CPU us/request",
            "ours": ours.cpu_us,
            "peer": cost,
            "against": _AGAINST[number],
            "ratio": cost / ours.cpu_us if cost and ours.cpu_us else None,
            "detail": _detail(ours, theirs),
        }


def _new_values(bench: Bench, notes: list[str]) -> Iterator[Row]:
    return _costs(bench, notes, 1, "create", bench.mitmproxy)


def _passed_on(bench: Bench, notes: list[str]) -> Iterator[Row]:
    app, folder = bench.driver.app, bench.domicile.log.parent
    port = free_port()
    command = [sys.executable, str(ROOT / "bench" / "plain_proxy.py"), str(port), str(app.port)]
    with started("plain", command, port, folder) as plain:
        yield from _costs(bench, notes, 3, "create", plain)


def _large(bench: Bench, notes: list[str]) -> Iterator[Row]:
    proxies = [bench.domicile]
    if isinstance(bench.mitmproxy, Running):
        proxies.append(bench.mitmproxy)
    else:
        notes.append(f"No figure of the peer: {bench.mitmproxy}.")
    for scenario in ("100 KB", "1 MB"):
        ours, *others = bench.driver.compare(scenario, proxies, 4)
        theirs = others[0] if others else None
        cost = theirs and theirs.cpu_us
        yield {
            "measure": 6,
            "case": f"{scenario}, 4 connections",
            "unit": "CPU us/request",
            "ours": ours.cpu_us,
            "peer": cost,
            "against": _AGAINST[1],
            "ratio": cost / ours.cpu_us if cost and ours.cpu_us else None,
            "detail": _detail(ours, theirs),
        }


def _known_values(bench: Bench, notes: list[str]) -> Iterator[Row]:
    return _costs(bench, notes, 4, "update", bench.nginx)


def _pass_through(bench: Bench, notes: list[str]) -> Iterator[Row]:
    notes.append(
        "Measure 5 sends one head again and again on each connection, as pollers and pooled "
        "clients do; it is read once. "
        "A head that changes with every request is read every time, which this figure does not "
        "show."
    )
    for connections, ours, theirs in _compared(bench, notes, "read", bench.nginx):
        peer = theirs and theirs.cpu_us
        if ours.cpu_us is None:
            notes.append("Processor time is read from /proc, which this machine does not have.")
        yield {
            "measure": 5,
            "case": f"{connections} connections",
            "unit": "CPU us/request",
            "ours": ours.cpu_us,
            "peer": peer,
            "against": _AGAINST[5],
            "ratio": ours.cpu_us / peer if ours.cpu_us and peer else None,
            "detail": _detail(ours, theirs),
        }


def _added(bench: Bench, notes: list[str]) -> Iterator[Row]:
    nginx = bench.nginx
    if not isinstance(nginx, Running):
        notes.append(f"No figure of the peer: {nginx}.")
        return
    for scenario, case in (("read", "pass-through"), ("update", "known"), ("create", "durable")):
        ours, theirs = bench.driver.compare(scenario, [bench.domicile, nginx], 1)
        yield {
            "measure": 8,
            "case": case,
            "unit": "ms p50",
            "ours": ours.p50_ms,
            "peer": theirs.p50_ms,
            "against": _AGAINST[8],
            "ratio": ours.p50_ms - theirs.p50_ms,
            "detail": _detail(ours, theirs),
        }


def _tail(bench: Bench, notes: list[str]) -> Iterator[Row]:
    notes.extend(_waits(bench))
    (ours,) = bench.driver.compare("create", [bench.domicile], 16)
    yield {
        "measure": 9,
        "case": "16 connections",
        "unit": "ms",
        "ours": ours.p99_ms,
        "peer": ours.p50_ms,
        "against": "its own p50",
        "ratio": ours.p99_ms / ours.p50_ms,
        "detail": "",
    }


def _waits(bench: Bench) -> Iterator[str]:
    """How long callers wait, from one at a time to far more than a core can serve, by the number of
    connections.
    """
    for scenario, what in (("create", "create of 1 KB"), ("restored", "read of one record")):
        for connections in (2,) if bench.quick else (1, 16, 64, 512):
            (ours,) = bench.driver.compare(scenario, [bench.domicile], connections)
            yield f"{what}, {connections} connections: {_detail(ours, None)}, {ours.rate:.0f} requests/s."


def _memory(bench: Bench, notes: list[str]) -> Iterator[Row]:
    if bench.idle is None:
        notes.append("Memory is read from /proc, which this machine does not have.")
        return
    bench.driver.compare("create", [bench.domicile], 16)
    figures = (
        ("idle", "MB", bench.idle),
        ("under load", "MB", resident(bench.domicile.pid)),
        ("start to ready", "CPU s", bench.start),
        ("installed", "MB", installed()),
    )
    for case, unit, figure in figures:
        yield {
            "measure": 14,
            "case": case,
            "unit": unit,
            "ours": figure,
            "peer": None,
            "against": "",
            "ratio": figure,
            "detail": "",
        }


def _restored(bench: Bench, notes: list[str]) -> Iterator[Row]:
    del notes
    for connections in bench.driver.plan.connections:
        pairs = [(scenario, bench.domicile) for scenario in ("restored", "read")]
        ours, theirs = bench.driver.alternate(pairs, connections)
        yield {
            "measure": 16,
            "case": f"{connections} connections",
            "unit": "CPU us/request",
            "ours": ours.cpu_us,
            "peer": theirs.cpu_us,
            "against": "our own pass-through",
            "ratio": ours.cpu_us / theirs.cpu_us if ours.cpu_us and theirs.cpu_us else None,
            "detail": _detail(ours, theirs),
        }


def _exact(bench: Bench, notes: list[str]) -> Iterator[Row]:
    count = 20 if bench.quick else 2000
    wrong = exactness.bytes_changed(bench.domicile.port, bench.driver.app.port, count)
    notes.append(f"Measure 15 sent {count} generated documents; each counts in both directions.")
    yield {
        "measure": 15,
        "case": f"{count} documents",
        "unit": "bytes",
        "ours": wrong,
        "peer": None,
        "against": "what was sent",
        "ratio": wrong,
        "detail": "",
    }


def _compared(
    bench: Bench, notes: list[str], scenario: str, peer: Running | str
) -> Iterator[tuple[int, Figures, Figures | None]]:
    """The figures of ours and of the peer at each number of connections."""
    proxies = [bench.domicile]
    if isinstance(peer, Running):
        proxies.append(peer)
    else:
        notes.append(f"No figure of the peer: {peer}.")
    for connections in bench.driver.plan.connections:
        figures = bench.driver.compare(scenario, proxies, connections)
        theirs = figures[1] if len(figures) > 1 else None
        if not bench.quick and theirs is not None and (theirs.rest_busy or 0) > 0.9:
            notes.append(
                f"{proxies[1].name}, {scenario}, {connections} connections: the load and the "
                "application were the limit "
                f"({theirs.rest_busy:.2f} cores busy beside the proxy); compare processor time, "
                "not requests/s."
            )
        yield connections, figures[0], theirs


def _detail(ours: Figures, theirs: Figures | None) -> str:
    """What stands beside the figure: latencies and processor time, ours / the peer's."""
    both = [ours] if theirs is None else [ours, theirs]
    said = ["p50 " + " / ".join(f"{one.p50_ms:.2f}" for one in both) + " ms"]
    said.append("p99 " + " / ".join(f"{one.p99_ms:.2f}" for one in both) + " ms")
    if ours.cpu_us is not None and theirs is not None and theirs.cpu_us is not None:
        said.append(f"CPU {ours.cpu_us:.0f} / {theirs.cpu_us:.0f} us a request")
    return ", ".join(said)


_NGINX = "nginx pass-through"
_AGAINST = {
    1: "mitmproxy addon, dict in memory",
    3: "aiohttp, passing on",
    4: _NGINX,
    5: _NGINX,
    8: _NGINX,
}
_TAKEN: dict[int, Callable[[Bench, list[str]], Iterator[Row]]] = {
    1: _new_values,
    3: _passed_on,
    4: _known_values,
    5: _pass_through,
    6: _large,
    8: _added,
    9: _tail,
    14: _memory,
    15: _exact,
    16: _restored,
}
assert set(_TAKEN) == {
    number for number, measure in MEASURES.items() if measure.module == "redacting"
}
