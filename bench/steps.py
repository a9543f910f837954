"""The steps of an exchange, what it would take to make each cheaper, and how long each takes: run
as a program, it serves as ``domicile serve`` does, with its steps timed.
"""

import sys
from array import array
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, Final, NamedTuple

import msgspec

#: The slowest of a step's times, in parts of them, in which other programs had the core.
_SPOILED: Final = 0.02
#: Calls for one exchange below which a step belongs to the few exchanges before those measured.
_RARE: Final = 0.05


class Step(NamedTuple):
    """A step of an exchange."""

    part: str  #: of an exchange
    name: str
    functions: tuple[str, ...]  #: as ``module:name`` or ``module:Class.name``
    takes: str  #: what it would take to make it cheaper
    thread: bool = False  #: whether the writer's thread runs it


_WAY: Final = "proxy.gateway.fast_path_request:FastPathRequest"
_EXCHANGE: Final = "proxy.redactor.exchange.fast_path_exchange"
_PLAN: Final = "proxy.redactor.exchange.fast_path_plan"
_WRITER: Final = "proxy.storage.sqlite.writer:SqliteWriter"

# The parts of an exchange.
HTTP: Final = "HTTP, routes, sockets, the event loop"
_VALUES: Final = "values: found, swapped, sealed, opened, put back"
_STORE: Final = "the store: statements and flushes"
_AUDIT: Final = "audit log, metrics"

STEPS: Final = (
    Step(
        HTTP,
        "read the request",
        ("proxy.net.caller_connection:CallerConnection.data_received",),
        "its head is known by its bytes; only a native reader is cheaper",
    ),
    Step(
        HTTP,
        "find its rule and plan, begin the exchange",
        (
            "proxy.gateway.gateway:Gateway.begin",
            "proxy.gateway.gateway:begin_fast_path",
            f"{_PLAN}:FastPathPlan.begin",
        ),
        "three objects an exchange; one native object that is used again would spare half",
    ),
    Step(
        _VALUES,
        "find the values in its body",
        ("proxy.redactor.guard:BodyCutter.cut",),
        "one pass in C where `make native` ran; it checks all of the JSON, so it grows with the "
        "body",
    ),
    Step(
        _VALUES,
        "lock the record, look it up, open it",
        (
            f"{_PLAN}:FastPathPlan._updates",
            f"{_EXCHANGE}:AnswerPlan.revealed",
            f"{_EXCHANGE}:open_as_shown",
            "proxy.storage.sqlite.raw:SqliteAtOnce.row_by_key",
            "proxy.vault.seal:Sealer.open_with_key",
        ),
        "a keyed hash, a statement, a key for each record, AES-GCM; a cache of opened records "
        "would spare most, and hold clear values of many people in memory",
    ),
    Step(
        _VALUES,
        "make tokens and put them in",
        (f"{_PLAN}:FastPathPlan._create", f"{_PLAN}:FastPathPlan._next"),
        "sealed tokens of a record are one call of AES; of a create spelling and swaps are native, "
        "where compiled",
    ),
    Step(
        _VALUES,
        "guard: the values stand nowhere else",
        ("proxy.redactor.guard:Guard.doubts",),
        "native where compiled; it reads the whole body and the head once",
    ),
    Step(
        _VALUES,
        "seal the values",
        (f"{_PLAN}:insert_at_once", f"{_PLAN}:update_at_once"),
        "a key for each record (shredding), two AES-GCM, a hash for each lookup key: the "
        "promises ask for each",
    ),
    Step(
        _STORE,
        "queue a commit",
        (
            f"{_EXCHANGE}:FastPathExchange.stage",
            "proxy.storage.sqlite.raw:SqliteAtOnce.begin_commit",
        ),
        "nothing: it is an append",
    ),
    Step(
        _STORE,
        "statements that store the values",
        (f"{_WRITER}._start first",),
        "SQLite's own work: a row, its entries in two or three indexes at random places. A log of "
        "our own in front of it would spare two thirds, and is a storage engine of our own",
    ),
    Step(
        _STORE,
        "commit them (thread)",
        (f"{_WRITER}._do_group first",),
        "writing pages to the log, and the flush, shared by a group; where the disk was slow just "
        "now, the statements too. Smaller pages, or that log",
        thread=True,
    ),
    Step(
        HTTP,
        "send to the application",
        (
            f"{_WRITER}._settle",
            f"{_WAY}.set_result",
            f"{_WAY}.start",
            "proxy.net.client:HttpUpstream.begin",
            f"{_EXCHANGE}:FastPathExchange.staged",
        ),
        "asking the kernel whether the idle connection ended is one call in five; without it a "
        "write could go to a connection that has closed",
    ),
    Step(
        HTTP,
        "read the answer",
        ("proxy.net.client_connection:UpstreamConnection.data_received",),
        "as with the request",
    ),
    Step(
        _VALUES,
        "restore the answer",
        (f"{_WAY}.on_complete", f"{_EXCHANGE}:FastPathExchange.restore"),
        "one pass over the answer, then one join; native, it would take a third",
    ),
    Step(
        _VALUES,
        "say what the answer means",
        (
            f"{_EXCHANGE}:FastPathExchange.settle",
            f"{_EXCHANGE}:FastPathExchange.settled",
        ),
        "an update seals its version again, because it stands at another place then; a staged "
        "version that becomes the live one where it is would spare that, and change the format "
        "of the store",
    ),
    Step(
        _STORE,
        "statements that settle it",
        (f"{_WRITER}._start second",),
        "answering before it is durable would not spare it, only the wait; and an acknowledged "
        "write could be lost or not be found after a crash",
    ),
    Step(
        _STORE,
        "commit that (thread)",
        (f"{_WRITER}._do_group second",),
        "one step a write: only where the application's answer came before anything is stored, "
        "which is what a crash would lose",
        thread=True,
    ),
    Step(
        _AUDIT,
        "audit line: made, chained, written",
        (
            f"{_EXCHANGE}:FastPathExchange.audit",
            "proxy.audit.services:LineGroup._write",
        ),
        "a keyed hash for each line and one write for all of a turn of the loop",
    ),
    Step(
        HTTP,
        "answer the caller",
        (
            f"{_WAY}.audited",
            "proxy.gateway.passthrough:PassthroughReply.on_complete",
        ),
        "half of it is the head; an answer with the same head as the last one could share it",
    ),
    Step(
        _AUDIT,
        "metrics and access log",
        ("proxy.gateway.gateway:Gateway._tell",),
        "eight amounts an exchange, which are counted 64 at a time; sampling some of them would be "
        "less to operate with",
    ),
)


class StepTimes:
    """Times of the steps in the process that is timed."""

    def __init__(self) -> None:
        self.by_step: dict[str, array[float]] = {}
        self._inner: list[float] = [0.0]  #: of each step under way, what others in it took
        self._own = self._extra = 0.0  #: what timing takes, inside the time and outside it
        self._calibrate()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose calls count for that step, but for the steps inside it."""
        add, inner = self._times(name).append, self._inner

        def call(*arguments: Any, **named: Any) -> Any:
            inner.append(0.0)
            began = perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                took = perf_counter() - began
                add(took - inner.pop() - self._own)
                inner[-1] += took + self._extra

        return call

    def timed_alone(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same of what is in no other step and takes long, by the processor time of its thread:
        other programs would have the core in too many of its calls.
        """
        add = self._times(name).append

        def call(*arguments: Any, **named: Any) -> Any:
            began = thread_time()
            try:
                return function(*arguments, **named)
            finally:
                add(thread_time() - began)

        return call

    def by_commit(
        self, steps: Sequence[str], function: Callable[..., Any], *, thread: bool
    ) -> Callable[..., Any]:
        """What runs a group of commits: its calls count for the first of two steps where it stores
        values, and for the second where it settles them. ``thread``: the writer's thread runs it.
        """
        from proxy.storage.changes import Insert, StageRow

        first, second = (self.timed_alone(step, function) for step in steps)

        def call(writer: Any, *arguments: Any, **named: Any) -> Any:
            group = arguments[0] if thread else writer._waiting  # noqa: SLF001  # taken apart
            if len(group[0]) < 3:  # other work of the writer
                return function(writer, *arguments, **named)
            stores = isinstance(group[0][2][0], Insert | StageRow)
            return (first if stores else second)(writer, *arguments, **named)

        return call

    def _times(self, name: str) -> "array[float]":
        return self.by_step.setdefault(name, array("d"))

    def _calibrate(self) -> None:
        count = 2_000

        def nothing() -> None:
            pass

        def loop(called: Callable[[], None]) -> float:
            began = perf_counter()
            for _ in range(count):
                called()
            return perf_counter() - began

        wrapped = self.timed("", nothing)
        bare, loaded = (min(loop(called) for _ in range(20)) for called in (nothing, wrapped))
        times = sorted(self.by_step.pop(""))
        self._own = times[len(times) // 10]
        self._extra = max(0.0, (loaded - bare) / count - self._own)
        self._inner[0] = 0.0

    def install(self) -> None:
        """Time every step of this process from now on."""
        for step in STEPS:
            for place in step.functions:
                if not place.endswith((" first", " second")):
                    owner, name = _owner(place)
                    setattr(owner, name, self.timed(step.name, getattr(owner, name)))
        for method in ("_start", "_do_group"):
            steps = [step for step in STEPS if any(f".{method} " in one for one in step.functions)]
            owner, name = _owner(f"{_WRITER}.{method}")
            both = [step.name for step in steps]
            one = self.by_commit(both, getattr(owner, name), thread=steps[0].thread)
            setattr(owner, name, one)

    def micros(self) -> dict[str, float]:
        """By step, how long an exchange is in it."""
        ended = len(self._times(STEPS[-1].name))
        return {
            name: _trimmed(times) * len(times) / ended * 1e6
            for name, times in self.by_step.items()
            if ended and len(times) / ended > _RARE
        }


def _owner(place: str) -> tuple[Any, str]:
    module, _, path = place.partition(":")
    owner: Any = import_module(module)
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    return owner, name


def _trimmed(times: "array[float]") -> float:
    kept = sorted(times)[: max(1, int(len(times) * (1 - _SPOILED)))]
    return sum(kept) / len(kept)


def serve(target: Path, arguments: Sequence[str]) -> int:
    """Run the proxy with timed steps; their times are in ``target`` when it has ended."""
    from proxy.cli import main as proxy

    times = StepTimes()
    times.install()
    try:
        return proxy(["serve", *arguments])
    finally:
        target.write_bytes(msgspec.json.encode(times.micros()))


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1]), sys.argv[2:]))
