"""Documents made to cost much: none takes many times the work of an honest one of its size, however
a rule selects in it.

Measured against an honest document in the same run, in processor time, with a generous factor and
more than one try.
"""

import contextlib
import json
import time
from collections.abc import Callable
from functools import cache

import pytest

from proxy.errors import VaultError
from proxy.redactor.jsonpath import parse_jsonpath
from proxy.redactor.select import Selection
from tests.support.table import table

SIZE = 1 << 15
#: the dearest of them takes ten times as much; work that grows with the square takes hundreds
FACTOR = 50

PERSON = {
    "id": 12345, "name": "Ann Lindqvist", "email": "ann@example.com",
    "address": {"street": "Main 1", "city": "X"}, "tags": ["a", "b"], "note": "x" * 100,
}  # fmt: skip


def filled(piece: bytes) -> bytes:
    return b"[" + b",".join([piece] * (SIZE // (len(piece) + 1))) + b"]"


def members(spell: Callable[[int], str], size: int) -> bytes:
    return (
        b"{" + b",".join(f'"{spell(number)}":1'.encode() for number in range(SIZE // size)) + b"}"
    )


DOCUMENTS = {
    "empty arrays": filled(b"[]"),
    "empty objects": filled(b"{}"),
    "pairs": filled(b"[[],[]]"),
    "deep arrays": filled(b"[" * 60 + b"]" * 60),
    "deep objects": filled(b'{"a":' * 60 + b"1" + b"}" * 60),
    "the name in itself": filled(b'{"email":' * 60 + b"1" + b"}" * 60),
    "the name and nothing else": filled(b'{"email":1}'),
    "numbers": filled(b"1"),
    "a number without end": b"[" + b"9" * SIZE + b"]",
    "a text of escapes": b'["' + b"\\n" * (SIZE // 2) + b'"]',
    "very many members": members(lambda number: f"k{number}", 12),
    "escaped members": members(lambda number: f"\\u006b{number}", 17),
    # equal remainders by the size of a table, as attacks on hash tables use them; Python's hashes
    # of text are secret
    "names for one place of a hash table": members(lambda number: str(number << 20), 14),
    "names that differ in letter case alone": members(
        lambda number: "".join("aA"[number >> bit & 1] for bit in range(16)), 21
    ),
    "a missing end": filled(b'{"email":1}')[:-1],
    "an unclosed nest": b"[" * SIZE,
}
SELECTIONS = {
    "$..email": Selection(None, (), [parse_jsonpath("$..email")]),
    "$..person": Selection(
        parse_jsonpath("$..person"), [parse_jsonpath("$.name"), parse_jsonpath("$.email")]
    ),
    "$..*": Selection(parse_jsonpath("$..*"), [parse_jsonpath("$.email")]),
    "$.*": Selection(parse_jsonpath("$.*"), [parse_jsonpath("$.email")]),
    "$[*]": Selection(
        parse_jsonpath("$[*]"),
        [parse_jsonpath("$.email"), parse_jsonpath("$.name"), parse_jsonpath("$.tags[*]")],
    ),
    "$": Selection((), [parse_jsonpath("$.email")]),
}


def seconds(selection: Selection, body: bytes) -> float:
    """The processor time of one selection, refused or not."""
    began = time.process_time()
    with contextlib.suppress(VaultError):
        selection.find(body)
    return time.process_time() - began


@cache
def honest(name: str) -> float:
    """The time of an honest document, but at least that of looking at each member of one."""
    body = filled(json.dumps(PERSON).encode())
    return max(seconds(SELECTIONS[name], body), seconds(SELECTIONS["$..email"], body))


@pytest.mark.slow
@table("document", DOCUMENTS)
def test_no_document_takes_many_times_the_work_of_an_honest_one(document: str) -> None:
    for name, selection in SELECTIONS.items():
        body, most = DOCUMENTS[document], FACTOR * honest(name)
        assert any(seconds(selection, body) < most for _ in range(3)), name
