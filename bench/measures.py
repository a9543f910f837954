"""The measures: what is compared, what it must, should and could reach, and which module takes it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the goals.

    ``must``, ``goal`` and ``moonshot`` are ratios of ours to the peer's; ``higher`` says whether
    more is better. ``by_case`` holds them for the cases that have goals of their own, by the text
    of the case's beginning.
    """

    number: int
    title: str
    module: str
    levels: tuple[float, float, float]
    higher: bool = True
    unit: str = "x"
    by_case: tuple[tuple[str, tuple[float, float, float]], ...] = ()

    def levels_of(self, case: str) -> tuple[float, float, float]:
        """Must, goal and moonshot of one case."""
        return next(
            (levels for start, levels in self.by_case if case.startswith(start)), self.levels
        )


MEASURES: dict[int, Measure] = {
    measure.number: measure
    for measure in (
        Measure(
            1,
            "redacting POST 1 KB, new values, durable, 1 lookup key: CPU time of the peer over ours",
            "redacting",
            (6, 8, 13),
        ),
        Measure(
            3,
            "redacting POST 1 KB, new values: CPU time of a naive aiohttp proxy that only passes "
            "them on over ours",
            "redacting",
            (0.7, 1.0, 1.5),
        ),
        Measure(
            4,
            "redacting PUT 1 KB, values known: CPU time of the peer over ours",
            "redacting",
            (0.12, 0.17, 0.28),
        ),
        Measure(
            5,
            "pass-through of what no rule names: CPU time a request",
            "redacting",
            (1.6, 1.4, 1.1),
            higher=False,
        ),
        Measure(
            6,
            "redacting POST of large bodies with 5 new values: CPU time of the peer over ours",
            "redacting",
            (5, 10, 12),
            by_case=(("1 MB", (8, 15, 18)),),
        ),
        Measure(
            7,
            "finding and replacing 5 values by splicing: speed",
            "splice",
            (9, 10, 15),
            by_case=(("1 KB", (1.7, 2, 2.5)), ("100 KB", (9, 10, 15)), ("1 MB", (9, 12, 15))),
        ),
        Measure(
            8,
            "p50 at one connection that is added to that of nginx",
            "redacting",
            (0.6, 0.4, 0.25),
            higher=False,
            unit="ms",
            by_case=(("pass-through", (0.1, 0.05, 0.02)), ("known", (0.3, 0.15, 0.08))),
        ),
        Measure(
            9,
            "p99 of durable redaction over its own p50",
            "redacting",
            (4, 2, 1.5),
            higher=False,
        ),
        Measure(10, "durable inserts through the vault: records/s", "inserts", (0.6, 0.8, 0.95)),
        Measure(
            11,
            "a list of 100 records with 5 tokens each, restored: speed",
            "lists",
            (2, 4, 8),
        ),
        Measure(
            12,
            "matching with 10 000 rules against 10: time a request",
            "routing",
            (1.3, 1.1, 1.0),
            higher=False,
        ),
        Measure(
            13,
            "a record by its key, and durable inserts, with many rows against 10,000: time",
            "large",
            (3, 2, 1.5),
            higher=False,
            by_case=(("insert", (4, 2.5, 2)),),
        ),
        Measure(
            14,
            "memory of one process, processor time of a start, and what is installed",
            "redacting",
            (160, 110, 80),
            higher=False,
            unit="MB or s",
            by_case=(
                ("idle", (80, 60, 45)),
                ("start", (1.5, 0.8, 0.5)),
                ("installed", (130, 100, 80)),
            ),
        ),
        Measure(
            15,
            "bytes changed outside the selected values",
            "redacting",
            (0, 0, 0),
            higher=False,
            unit="bytes",
        ),
        Measure(
            16,
            "GET of one record, restored: CPU time a request",
            "redacting",
            (7, 5, 3),
            higher=False,
        ),
        Measure(17, "attachments of 100 MB up and down: speed", "attachments", (0.5, 0.7, 0.9)),
        Measure(
            18,
            "who calls and what it may see, among 10 000 clients and 1 000 policies: time a "
            "request",
            "access",
            (2, 1.5, 1.2),
            higher=False,
        ),
        Measure(
            19,
            "the vault's interface: point read, create, list of 20, find by a hashed field: "
            "requests/s",
            "interface",
            (0.3, 0.45, 0.6),
        ),
        Measure(
            20,
            "questions about a million records of the vault: time",
            "questions",
            (3, 1.5, 1),
            higher=False,
            by_case=(
                ("one record by its key", (6, 3, 2)),
                ("a hashed field", (5, 3, 2)),
                ("part of a hashed text", (1, 0.3, 0.1)),
                ("newest first", (8, 5, 3)),
                ("count and sum", (1, 0.6, 0.4)),
            ),
        ),
        Measure(
            21,
            "the longest turn of the event loop, in which nobody else is served",
            "turns",
            (50, 20, 5),
            higher=False,
            unit="ms",
        ),
        Measure(
            22,
            "mixed load of a small CRM at 16 connections: requests/s, and the p99 of a create over "
            "which the lists may not rise",
            "mixed",
            (0.4, 0.6, 0.8),
            by_case=(("p99", (0.33, 0.5, 0.77)),),
        ),
        Measure(
            23,
            "durable inserts through the PostgreSQL engine: records/s",
            "postgres",
            (0.6, 0.8, 0.95),
        ),
        Measure(
            24,
            "searches that the vault answers, through the proxy, among a million people: time",
            "search",
            (100, 50, 20),
            higher=False,
            unit="ms",
        ),
        Measure(
            25,
            "two worker processes on two cores against one process: requests that the processor "
            "time allows",
            "workers",
            (1.6, 1.8, 1.95),
        ),
        Measure(
            26,
            "long work: time of each object, against the same work on fewer",
            "turns",
            (2, 1.4, 1.1),
            higher=False,
        ),
    )
}

#: Measures of the same module are taken in one go: they share its processes.
MODULES: tuple[str, ...] = tuple(dict.fromkeys(measure.module for measure in MEASURES.values()))

STANDINGS: tuple[str, ...] = ("below must", "must", "goal", "moonshot")


def standing(measure: Measure, case: str, ratio: float | None) -> str:
    """The highest level that ``ratio`` reaches, in words; "not measured" where there is none."""
    if ratio is None:
        return "not measured"
    levels = measure.levels_of(case)
    reached = [ratio >= level if measure.higher else ratio <= level for level in levels]
    return STANDINGS[max((place + 1 for place, yes in enumerate(reached) if yes), default=0)]


def modules_of(numbers: Sequence[int]) -> tuple[str, ...]:
    """The modules that take these measures, in the order of the list."""
    wanted = {MEASURES[number].module for number in numbers}
    return tuple(name for name in MODULES if name in wanted)
