import pytest

from proxy.storage.query import (
    MATCH_ALL,
    All,
    Any,
    Compare,
    Compared,
    Holds,
    Indexed,
    Is,
    Where,
    holds,
)
from proxy.storage.rows import ColumnValue

CELLS: dict[str, ColumnValue] = {"city": "Straße", "age": 5, "none": None}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Is("city", ("Straße", "x")), True),
        (Is("city", ("x",), negated=True), True),
        (Is("none", (None,)), True),
        (Is("none", ("x",), negated=True), True),
        (Compared("age", Compare.GT, 4), True),
        (Compared("age", Compare.GTE, 5), True),
        (Compared("age", Compare.LT, 5), False),
        (Compared("age", Compare.LTE, 5), True),
        (Compared("none", Compare.LT, 5), False),
        (Holds("city", "strass"), True),
        (Holds("none", "x"), False),
        (Holds("none", "x", negated=True), True),
        (Indexed((b"a", b"b")), True),
        (Indexed((b"a", b"c")), False),
        (Indexed((b"c",), negated=True), True),
        (MATCH_ALL, True),
        (Any(()), False),
        (All((Is("age", (5,)), Is("age", (6,)))), False),
        (Any((Is("age", (5,)), Is("age", (6,)))), True),
    ],
)
def test_a_condition_holds_for_a_row_or_not(where: Where, expected: bool):
    assert holds(where, CELLS.__getitem__, (b"a", b"b").__contains__) is expected
