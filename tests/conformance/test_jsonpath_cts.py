"""JSONPath: every case of the compliance test suite is either refused, or selects exactly what the
suite says.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from proxy.redactor.json.walk import locate
from proxy.redactor.jsonpath import parse_jsonpath
from tests.support.tree import ROOT

_OWN = ROOT / "tests/vectors/jsonpath.json"
_WHOLE = ROOT.parent / "shared/data/public/jsonpath_cts.json"

_STEP = re.compile(r"\[(?:(\d+)|'((?:[^'\\]|\\.)*)')\]")


def cases_of(file: Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["tests"]
    return cases


def at(document: Any, normalized: str) -> Any:
    """The value at a normalized path (RFC 9535, 2.7)."""
    for number, name in _STEP.findall(normalized):
        document = document[
            int(number)
            if number
            else json.loads('"' + name.replace("\\'", "'").replace('"', '\\"') + '"')
        ]
    return document


def outcome(case: dict[str, Any]) -> str:
    """Refused, or selected as the suite says; anything else fails."""
    try:
        path = parse_jsonpath(case["selector"])
    except ValueError:
        return "invalid" if case.get("invalid_selector") else "refused"
    assert not case.get("invalid_selector"), f"{case['name']}: accepted"
    body = json.dumps(case["document"], ensure_ascii=False).encode()
    selected = [json.loads(body[start:end]) for start, end in locate(path, body, 64)]
    # Each place counts once here; the suite lists a place as often as it is reached.
    paths = dict.fromkeys(
        case["result_paths"] if "result_paths" in case else case["results_paths"][0]
    )
    expected = [at(case["document"], place) for place in paths]
    assert sorted(map(json.dumps, selected)) == sorted(map(json.dumps, expected)), case["name"]
    return "selected"


def test_our_own_cases_hold():
    seen = Counter(outcome(case) for case in cases_of(_OWN))
    assert seen == {"selected": 25, "invalid": 10}


def test_the_whole_suite_holds(unavailable):
    if not _WHOLE.exists():
        unavailable(
            "the JSONPath Compliance Test Suite",
            "the public test data is not beside the repository",
        )
    seen = Counter(outcome(case) for case in cases_of(_WHOLE))
    assert seen["invalid"] == sum("invalid_selector" in case for case in cases_of(_WHOLE))
    assert seen["selected"] >= 46
