"""Measure 7: finding five values of a document and putting others in their place, by splicing and
by parsing it all.

Both sides start from the bytes of a body and end with the bytes of the new body, with the five old
values in hand.
"""

import importlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from bench.scenarios import document
from proxy.model.schema import Value
from proxy.redactor import select
from proxy.redactor.json import arrays, native
from proxy.redactor.json import tree as codec
from proxy.redactor.restore import splice
from proxy.redactor.select import Selection

FIELDS = ("first_name", "last_name", "email", "phone", "birth_date")
TOKENS = ("Qm4tW9xBk2", "Zr7vN1cLp8", "kd82mfq1@t.invalid", "+49 30 55512346", "1971-11-23")
SIZES = (("1 KB", 1_000), ("100 KB", 100_000), ("1 MB", 1_000_000))

#: How long one side works on one document in a round, in seconds.
_WINDOW = 0.2

Swap = Callable[[bytes], tuple[bytes, list[str]]]


def run(quick: bool = False) -> dict[str, Any]:
    """Rows of measure 7, one for each size and peer."""
    rows: list[dict[str, Any]] = []
    notes = []
    peers: list[tuple[str, Swap]] = [("json.loads + dumps", by_json)]
    fast = _orjson()
    if fast is None:
        notes.append("Measure 7 against orjson was not taken: orjson is not installed.")
    else:
        peers.append(("orjson.loads + dumps", fast))
    compiled = native.find_leaves is not None
    notes.append(f"Measure 7 was taken {'with' if compiled else 'without'} native code.")
    for case, size in SIZES:
        body = document(size)
        _agree(body, [swap for _, swap in peers])
        figures = _medians(
            body,
            [by_splice, *(swap for _, swap in peers)],
            *_extent(quick),
        )
        rows.extend(
            {
                "measure": 7,
                "case": case if name.startswith("json") else f"{case}, against orjson",
                "unit": "us",
                "ours": figures[0],
                "peer": figure,
                "against": name,
                "ratio": figure / figures[0],
            }
            for (name, _), figure in zip(peers, figures[1:], strict=True)
        )
        if compiled:
            notes.append(_without(body, case, quick))
    return {"rows": rows, "notes": notes}


# ---------------------------------------------------------------------- the two ways

_selection = Selection((), [(name,) for name in FIELDS])


def by_splice(body: bytes) -> tuple[bytes, list[str]]:
    old: list[str] = [""] * len(FIELDS)
    edits = []
    for leaf in _selection.find(body).objects[0].leaves:
        value = codec.read_json_value(body[leaf.start : leaf.end])
        if value is not None:
            old[leaf.name] = value.text
        edits.append((leaf.start, leaf.end, codec.write_json_value(Value(TOKENS[leaf.name]))))
    return splice(body, edits), old


def by_json(body: bytes) -> tuple[bytes, list[str]]:
    parsed = json.loads(body)
    old = [parsed[name] for name in FIELDS]
    parsed.update(zip(FIELDS, TOKENS, strict=True))
    return json.dumps(parsed).encode(), old


def _orjson() -> Swap | None:
    try:
        orjson = importlib.import_module("orjson")
    except ImportError:
        return None

    def by_orjson(body: bytes) -> tuple[bytes, list[str]]:
        parsed = orjson.loads(body)
        old = [parsed[name] for name in FIELDS]
        parsed.update(zip(FIELDS, TOKENS, strict=True))
        return orjson.dumps(parsed), old

    return by_orjson


# ---------------------------------------------------------------------- in turns


def _without(body: bytes, case: str, quick: bool) -> str:
    """The same measure where Python finds the values."""
    with patch.object(select, "find_leaves", None), patch.object(arrays, "find_leaves", None):
        ours, theirs = _medians(body, [by_splice, by_json], *_extent(quick))
    return f"Measure 7, {case}, without native code: {ours:.1f} us, {theirs / ours:.2f}x."


def _extent(quick: bool) -> tuple[int, float]:
    """Rounds, and seconds of a window."""
    return (1, 0.002) if quick else (9, _WINDOW)


def _agree(body: bytes, peers: list[Swap]) -> None:
    """Every way has to find the same values and leave the same document."""
    changed, old = by_splice(body)
    for swap in peers:
        theirs, theirs_old = swap(body)
        if theirs_old != old or json.loads(theirs) != json.loads(changed):
            raise AssertionError("the ways of replacing values do not agree")


def _medians(body: bytes, swaps: list[Swap], rounds: int, window: float) -> list[float]:
    """Microseconds a document for each way, medians of interleaved rounds."""
    taken: list[list[float]] = [[] for _ in swaps]
    for _ in range(rounds):
        for swap, figures in zip(swaps, taken, strict=True):
            figures.append(_timed(swap, body, window))
    return [statistics.median(figures) for figures in taken]


def _timed(swap: Swap, body: bytes, window: float) -> float:
    count = 0
    started = now = time.process_time()
    while now - started < window:
        for _ in _burst(len(body)):
            swap(body)
            count += 1
        now = time.process_time()
    return (now - started) / count * 1e6


def _burst(size: int) -> Iterator[int]:
    """So many documents between two looks at the clock that the clock does not count."""
    return iter(range(max(1, 100_000 // size)))


if __name__ == "__main__":
    for row in run()["rows"]:
        print(
            f"{row['case']:24} {row['ours']:9.1f} us  {row['peer']:9.1f} us {row['against']:22} "
            f"{row['ratio']:5.1f}x"
        )
