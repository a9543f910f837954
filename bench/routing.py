"""Measure 12: finding the operation of a request among 10 000 rules, against finding it among 10.

``python -m bench.routing`` prints the figures; nothing but the router runs.
"""

import json
import statistics
import time
from typing import Any

from proxy.redactor.load import load_text
from proxy.redactor.routing import Router

_FILE = """version: 1
endpoint: {{name: crm, upstream: "http://127.0.0.1:3000"}}
entities: {{contact: {{fields: {{name: {{kind: name}}, email: {{kind: email}}}}}}}}
operations:
{operations}
"""
#: What is looked up: case, method, target.
CASES = (
    ("hit with an id", "PATCH", b"/api/v3/contacts/17"),
    ("hit without placeholder", "POST", b"/api/v3/contacts"),
    ("miss", "GET", b"/static/app/main.js"),
    ("miss deep in the tree", "GET", b"/api/v3/contacts/17/photo"),
    ("escaped path", "PATCH", b"/api/v3/contacts/a%20b"),
)


def router(rules: int) -> Router:
    """A router of about that many operations, three for each collection, among them those of
    ``CASES``.
    """
    lines = []
    for number in range(max(rules // 3, 4)):
        name = "contacts" if number == 3 else f"collection{number}"
        lines.append(f"  - {{match: POST /api/v{number % 10}/{name}, create: contact}}")
        lines.append(f"  - {{match: 'GET /api/v{number % 10}/{name}/{{id}}', read: contact}}")
        lines.append(
            f"  - {{match: 'PUT|PATCH /api/v{number % 10}/{name}/{{id}}', update: contact}}"
        )
    compiled = load_text(_FILE.format(operations="\n".join(lines)))
    return Router(compiled.operations, compiled.endpoints)


def run(quick: bool = False) -> dict[str, Any]:
    """Rows of measure 12; times in microseconds, the median of interleaved rounds."""
    calls, rounds = (2_000, 3) if quick else (20_000, 15)
    few, many = router(10), router(10_000)
    rows = []
    for case, method, target in CASES:
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            times[0].append(_time(many, method, target, calls))
            times[1].append(_time(few, method, target, calls))
        ours, peer = statistics.median(times[0]), statistics.median(times[1])
        rows.append(
            {
                "measure": 12,
                "case": case,
                "unit": "us",
                "ours": round(ours, 3),
                "peer": round(peer, 3),
                "against": "the same with 10 rules",
                "ratio": round(ours / peer, 3),
            }
        )
    return {"rows": rows, "notes": []}


def _time(subject: Router, method: str, target: bytes, calls: int) -> float:
    """Microseconds a look-up."""
    match = subject.match
    start = time.perf_counter()
    for _ in range(calls):
        match(method, "crm.example.com", target)
    return (time.perf_counter() - start) / calls * 1e6


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
