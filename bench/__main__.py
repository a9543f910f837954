"""``python -m bench``: take the measures, print the table, keep it with ``--write``; ``python -m
bench ledger``: take one exchange apart.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import ledger, machine, report
from bench.measures import MEASURES, modules_of
from bench.processes import ROOT, Unavailable
from bench.rounds import Failed

PAGE = ROOT / "docs" / "benchmarks.md"


@dataclass(slots=True)
class Taken:
    """What came of a run."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when every figure could be taken and reaches what it must, else 1.

    A quick run says nothing about speed, so there only a figure that could not be taken counts.
    """
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["ledger"]:
        return ledger.main(words[1:])
    arguments = _parser().parse_args(words)
    numbers = sorted(set(arguments.measures or MEASURES))
    taken = _take(numbers, quick=arguments.quick)
    left = [str(number) for number in MEASURES if number not in numbers]
    if taken.rows:
        print(report.table(taken.rows))
    for line in (*report.details(taken.rows), *taken.notes):
        print(line)
    if left:
        print(f"Not taken in this run: {', '.join(left)}.")
    if arguments.quick:
        print("This was a quick run: the harness works, the figures say nothing about speed.")
    faults = list(taken.faults)
    if not arguments.quick:
        faults += [f"Below what it must reach: {line}" for line in report.below_must(taken.rows)]
    if arguments.write and not taken.faults:
        PAGE.parent.mkdir(exist_ok=True)
        before = PAGE.read_text() if PAGE.exists() else ""
        PAGE.write_text(report.page(taken.rows, taken.notes, machine.description(), before))
        print(f"Written: {PAGE.relative_to(ROOT)}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Domicile against its peers and print the ratios.",
        epilog="\n".join(f"{number:>3}  {measure.title}" for number, measure in MEASURES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("measures", nargs="*", type=_number, help="their numbers; all when absent")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--quick", action="store_true", help="a few seconds, to see that the harness works"
    )
    mode.add_argument(
        "--write", action="store_true", help="write docs/benchmarks.md of these measures"
    )
    return parser


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) not in MEASURES:
        raise argparse.ArgumentTypeError(
            f"there is no measure {text}; they are {', '.join(map(str, MEASURES))}"
        )
    return int(text)


def _take(numbers: Sequence[int], *, quick: bool) -> Taken:
    """Run the modules that take these measures; the fault of one leaves the figures of the others."""
    taken = Taken()
    for name in modules_of(numbers):
        mine = [number for number in numbers if MEASURES[number].module == name]
        print(f"Measuring {', '.join(map(str, mine))} ({name}) ...", file=sys.stderr)
        run = importlib.import_module(f"bench.{name}").run
        try:
            answer = run(quick=quick, numbers=mine) if name == "redacting" else run(quick=quick)
        except (Unavailable, Failed) as fault:
            taken.faults.append(f"No figures of {name}: {fault}")
            continue
        taken.rows.extend(answer["rows"])
        taken.notes.extend(answer["notes"])
    taken.rows.sort(key=lambda row: int(row["measure"]))
    return taken


if __name__ == "__main__":
    sys.exit(main())
