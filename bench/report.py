"""The table: on the terminal while working, as ``docs/benchmarks.md`` when it is to be kept."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from bench.measures import MEASURES, STANDINGS, Measure, standing

Row = Mapping[str, Any]

_HEADINGS = ("#", "Measure", "Case", "Ours", "Peer", "Ratio", "must / goal / moonshot", "Reached")

_PAGE = """\
# Benchmarks

What `make bench` measured on {date}, on {python}. Written by `python -m bench --write`; change nothing here by hand.

{meaning}A ratio compares two programs that ran in turns on one machine in the same minutes, so it travels to other machines
better than the absolute figures beside it. Every answer was looked at: one that is not 2xx, or lacks the value that was
sent, fails the whole run, and so does a value that reaches the application through a redacting proxy.

{table}

{details}## The machine

{machine}

{notes}## Repeat it

```
make bench                     # everything, a few minutes; installs nginx and mitmproxy where they are absent
make bench ARGS="1 4"          # a choice of measures
make bench INTERPRETER=/usr/bin/python3.11   # ours and the peers on that one, in environments of its own
make bench ARGS="--write"      # everything, and this page again; with numbers those, and the other lines stay
make bench ARGS=ledger         # what each step of an exchange takes: docs/performance.md
make bench ARGS=--quick        # seconds; shows that the harness works, and says nothing about speed
```

Windows of 3 seconds after a warm-up of half a second, at 16 and at 64 connections, 5 interleaved rounds, medians. Load
and application run beside the proxy under test, which has a core for itself where the machine has two. The vault is an
SQLite file on disk; a request that creates a record is forwarded only after its commit is durable. The
mitmproxy addon (`bench/mitm_addon.py`) does less: a dict in memory, no encryption, nothing survives the process.
"""


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table with aligned columns, which reads well on a terminal too."""
    return _aligned([_cells(row) for row in rows])


def _aligned(cells: Sequence[tuple[str, ...]]) -> str:
    lines = [_HEADINGS, *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    text = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def page(
    rows: Sequence[Row], notes: Sequence[str], machine: Mapping[str, str], before: str = ""
) -> str:
    """The whole of ``docs/benchmarks.md``.

    ``before``: the page as it is; the figures of measures that were not taken again stay.
    """
    taken = {str(row["measure"]) for row in rows}
    cells = [_cells(row) for row in rows]
    lines = [f"- {line}" for line in details(rows)]
    kept = [found.groups() for found in _CELLS.finditer(before) if found[1] not in taken]
    cells += [tuple(cell.strip() for cell in one) for one in kept]
    lines += [found[0] for found in _DETAIL.finditer(before) if found[1] not in taken]
    if kept:
        numbers = ", ".join(sorted({one[0] for one in kept}, key=int))
        date = match[1] if (match := _DATE.search(before)) else "an earlier day"
        notes = [*notes, f"Not taken again, but on {date} or before: measures {numbers}."]
    return _PAGE.format(
        date=datetime.now(UTC).date().isoformat(),
        python=machine.get("Python", "an unknown interpreter"),
        meaning=_meaning(rows),
        table=_aligned(sorted(cells, key=lambda one: int(one[0]))),
        details=_section(
            "Beside the ratios",
            "Ours / the peer's, medians of the same windows.",
            sorted(lines, key=lambda line: int(line[2 : line.index(",")])),
        ),
        machine="\n".join(f"- {name}: {value}" for name, value in machine.items()),
        notes=_section("Notes of this run", "", [f"- {note}" for note in notes]),
    )


#: A line of the table, a detail and the day, as a page has them.
_CELLS: Final = re.compile(r"^\| (\d+) +" + r"\|([^|\n]*)" * 7 + r"\|$", re.MULTILINE)
_DETAIL: Final = re.compile(r"^- (\d+), .*$", re.MULTILINE)
_DATE: Final = re.compile(r"measured on (\S+), on")

#: What single figures mean for who buys a machine: measure, beginning of its case, sentence.
_SENTENCES: tuple[tuple[int, str, Callable[[Row], str]], ...] = (
    (1, "16", lambda row: (
        f"One core redacts some {_number(round(1e6 / row['ours'], -2))} new records of 1 KB a "
        "second, each encrypted and on disk before the application hears of it."
    )),
    (8, "durable", lambda row: (
        f"A caller who creates a record waits {_number(row['ratio'])} ms longer than through nginx."
    )),
    (16, "16", lambda row: (
        f"To read a record with its values put back takes {_number(row['ours'])} microseconds of "
        "processor time."
    )),
    (19, "point read", lambda row: (
        f"The vault answers {_number(row['ratio'])} times as many questions as a bare table without "
        "keys, clients, policies and log."
    )),
    (14, "under load", lambda row: f"One process takes {_number(row['ours'])} MB under load."),
)  # fmt: skip

_CHART = """\
```mermaid
xychart-beta
    title "Processor time of a request, microseconds"
    x-axis ["create, mitmproxy addon", "create, Domicile", "read, Domicile"]
    y-axis "microseconds"
    bar [{addon:.0f}, {create:.0f}, {read:.0f}]
```
"""


def _meaning(rows: Sequence[Row]) -> str:
    """What the figures mean, in five sentences and a chart, as far as they were taken."""
    sentences = [
        says(row)
        for number, case, says in _SENTENCES
        if (row := _row(rows, number, case)) is not None
    ]
    text = "\n".join([*sentences, "", ""]) if sentences else ""
    create, read = _row(rows, 1, "16"), _row(rows, 16, "16")
    if create is None or read is None or create["peer"] is None:
        return text
    chart = _CHART.format(addon=create["peer"], create=create["ours"], read=read["ours"])
    return f"{text}{chart}\n"


def _row(rows: Sequence[Row], number: int, case: str) -> Row | None:
    """The row of a measure whose case begins so, where there is a figure."""
    taken = (
        row
        for row in rows
        if row["measure"] == number
        and row["case"].startswith(case)
        and row["ours"]
        and row["ratio"] is not None
    )
    return next(taken, None)


def below_must(rows: Sequence[Row]) -> list[str]:
    """Every case that does not reach what it must, in words."""
    return [
        f"measure {row['measure']}, {row['case']}: {_ratio(MEASURES[row['measure']], row)}"
        for row in rows
        if standing(MEASURES[row["measure"]], row["case"], row["ratio"]) == STANDINGS[0]
    ]


def _section(title: str, words: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return "\n".join([f"## {title}", "", *([words, ""] if words else []), *lines, "", ""])


def details(rows: Sequence[Row]) -> list[str]:
    """Latencies and processor times of the rows that have them, a line each."""
    return [
        f"{row['measure']}, {row['case']}: {row['detail']}" for row in rows if row.get("detail")
    ]


def _cells(row: Row) -> tuple[str, ...]:
    measure = MEASURES[row["measure"]]
    levels = " / ".join(f"{level:g}" for level in measure.levels_of(row["case"]))
    peer = "" if row["peer"] is None else f"{_number(row['peer'])} ({row['against']})"
    return (
        str(measure.number),
        measure.title,
        row["case"],
        f"{_number(row['ours'])} {row['unit']}",
        peer or f"not measured ({row['against']})" if measure.unit == "x" else row["against"],
        _ratio(measure, row),
        f"{levels} {measure.unit}",
        standing(measure, row["case"], row["ratio"]),
    )


def _ratio(measure: Measure, row: Row) -> str:
    if row["ratio"] is None:
        return "–"
    return f"{_number(row['ratio'])} {measure.unit}"


def _number(value: float | None) -> str:
    """Three digits that count, thousands apart."""
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
