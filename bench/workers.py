"""Measure 25: what two worker processes serve on two cores, against one process on one.

Load and applications run on the same cores, so it is reckoned from processor time: two cores serve
at most two seconds of it a second, and with the embedded store the owner of the vault at most one.
``ours`` is what a request takes of the busier core, the owner's own time or half of all; the detail
says what the owner alone allows, however many workers there are.
The requests are those of measure 22, each kind by itself and all of them mixed; the time of a
database server is in neither figure.

    python -m bench.workers SECONDS ROUNDS KIND …    # a closer look, pass-through and searches too
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import uvloop

from bench.mixed import MIX, Crowd, Plan, domicile
from bench.processes import CACHE, START, Running, Unavailable, family, processor_seconds
from tests.support.postgres import Server

#: Kinds of requests by the name of a case.
KINDS: Final = {
    "create": {"create": 1}, "update": {"update": 1}, "change": {"change": 1}, "read": {"read": 1},
    "list": {"list": 1}, "search": {"search": 1}, "pass-through": {"pass": 1}, "mixed": MIX,
}  # fmt: skip
#: Those of the measure, whose run ends within three minutes.
MEASURED: Final = ("create", "update", "change", "read", "list", "mixed")
WORKERS: Final = ("--workers", "2")


class Closer(NamedTuple):
    """How closely it is looked at."""

    people: int = 300
    rounds: int = 3
    seconds: float = 0.8
    connections: tuple[int, ...] = (16, 64)
    kinds: tuple[str, ...] = MEASURED
    stores: tuple[str, ...] = ("SQLite", "PostgreSQL")


QUICK: Final = Closer(60, 1, 0.3, (2,))


class Cost(NamedTuple):
    """Processor microseconds of a request: of all processes, and of the owner among them."""

    all: float
    owner: float

    @property
    def busier(self) -> float:
        """What the busier of two cores has to do."""
        return max(self.owner, self.all / 2)


class Service:
    """One process, or a team of them, and the crowd before it."""

    def __init__(self, running: Running, seed: int) -> None:
        self._crowd = Crowd(running, seed)
        self._pids = family(running.pid)
        self._owner = [pid for pid in self._pids if _has_vault(pid)] if len(self._pids) > 1 else []

    def fill(self, people: int) -> None:
        """Create the people that the requests are about."""
        uvloop.run(self._crowd.fill(Plan(people)))

    def window(self, case: str, look: Closer, connections: int) -> Cost:
        """One window of requests of that kind."""
        plan = Plan(0, 1, look.seconds, connections)
        before = self._used()
        began = time.perf_counter()
        came = uvloop.run(self._crowd.window(plan, KINDS[case]))
        count = came.rate * (time.perf_counter() - began)
        spent = [after - first for after, first in zip(self._used(), before, strict=True)]
        return Cost(*(one / count * 1e6 for one in spent))

    def _used(self) -> tuple[float, float]:
        everything = processor_seconds(self._pids)
        if everything is None:
            raise Unavailable("processor time is read from /proc, which this machine lacks")
        return everything, processor_seconds(self._owner) or 0.0


def _has_vault(pid: int) -> bool:
    """Whether the process has the file of an embedded store open."""
    return any(
        one.readlink().name == "vault.db"
        for one in Path(f"/proc/{pid}/fd").iterdir()
        if one.exists()
    )


@contextmanager
def _services(folder: Path, uri: str) -> Iterator[tuple[Service, Service]]:
    """One process and a team, ready; the address of a store in which each has its own schema."""
    with ExitStack() as stack:
        made: list[Service] = []
        for seed, arguments in enumerate(((), WORKERS), 1):
            place = folder / str(seed)
            place.mkdir()
            store = uri.format(seed) if uri else ""
            running = stack.enter_context(domicile(place, arguments, store, pinned=False))
            _ready(running, 1 if not arguments else 2 if uri else 3)
            made.append(Service(running, seed))
        yield made[0], made[1]


def _ready(running: Running, processes: int) -> None:
    """Wait until so many of them serve."""
    deadline = time.monotonic() + START
    while running.log.read_text(errors="replace").count("active rules") < processes:
        if time.monotonic() > deadline:
            raise Unavailable(f"{running.name} did not get ready: {running.log.read_text()[-300:]}")
        time.sleep(0.05)


def _store(engine: str, uri: str, look: Closer) -> list[dict[str, Any]]:
    """The rows of one store, rounds by turns."""
    CACHE.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(dir=CACHE, prefix="workers-") as name,
        _services(Path(name), uri) as services,
    ):
        for service in services:
            service.fill(look.people)
        for case in look.kinds:
            for connections in look.connections:
                pairs = [
                    [service.window(case, look, connections) for service in services]
                    for _ in range(look.rounds)
                ]
                rows.append(_row(f"{case}, {engine}, {connections} connections", pairs))
    return rows


def _row(case: str, pairs: list[list[Cost]]) -> dict[str, Any]:
    one = median(alone.all for alone, _ in pairs)
    every, owner = (median(team[at] for _, team in pairs) for at in (0, 1))
    ratios = [alone.all / team.busier for alone, team in pairs if team.busier]  # ticks are 10 ms
    limit = f": at most {one / owner:.2f} times with more workers" if owner else ""
    of = f", the owner {owner:.0f} of them{limit}" if owner else ""
    return {
        "measure": 25,
        "case": case,
        "unit": "CPU us/request",
        "ours": median(team.busier for _, team in pairs),
        "peer": one,
        "against": "one process",
        "ratio": median(ratios) if ratios else None,
        "detail": f"one process {one:.0f} us, two workers {every:.0f}{of}",
    }


def run(quick: bool = False, look: Closer | None = None) -> dict[str, Any]:
    """Each store; interleaved rounds, medians."""
    look = look or (QUICK if quick else Closer())
    rows = _store("SQLite", "", look) if "SQLite" in look.stores else []
    if "PostgreSQL" in look.stores:
        rows += _on_postgresql(look)
    return {"rows": rows, "notes": []}


def _on_postgresql(look: Closer) -> list[dict[str, Any]]:
    """The rows of a server that is started for them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the server runs as another user
        server = Server(Path(folder, "server"))
        server.make()
        server.start()
        try:
            return _store("PostgreSQL", server.address("w{}", replicas="true"), look)
        finally:
            server.stop()


def main(words: Sequence[str]) -> None:
    """A closer look: seconds of a window, rounds, kinds; SQLite alone."""
    kinds = tuple(words[2:]) or tuple(KINDS)
    look = Closer(rounds=int(words[1]), seconds=float(words[0]), kinds=kinds)
    for row in _store("SQLite", "", look):
        print(f"{row['case']}: {row['ratio']:.2f}; {row['detail']}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
