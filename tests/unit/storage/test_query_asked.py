import pytest

from proxy.errors import Code, VaultError
from proxy.storage.query import (
    MATCH_ALL,
    AggregateFunction,
    AggregateMetric,
    All,
    Any,
    Compare,
    Compared,
    Grouping,
    Holds,
    Indexed,
    Is,
    Order,
    ValidatedQuery,
    Where,
    parts_of,
)
from tests.support.rows import LAYOUT, h
from tests.support.table import table

ASKED = ValidatedQuery(LAYOUT)


def test_values_become_what_the_columns_keep() -> None:
    asked = All((
        Is("balance", ("1.50", 2, None)), Any((Compared("balance", Compare.GT, "-0.0001"), Is("@key", (h("k"),)))),
        Holds("city", "x"), Indexed((h("t"),)),
    ))  # fmt: skip
    assert ASKED.where(asked) == All((
        Is("balance", (15_000, 20_000, None)), Any((Compared("balance", Compare.GT, -1), Is("@key", (h("k"),)))),
        Holds("city", "x"), Indexed((h("t"),)),
    ))  # fmt: skip


@table("edge", [-(2**63), 2**63 - 1])
def test_the_edges_of_64_bits_are_asked_for(edge: int) -> None:
    assert ASKED.where(Is("visits", (edge,))) == Is("visits", (edge,))


def test_a_comparison_with_nothing_never_holds() -> None:
    assert ASKED.where(Compared("visits", Compare.GTE, None)) == Any(())


@table(
    "where",
    [
        Is("nowhere", ()), Is("@nowhere", (None,)), Is("city", (b"x",)), Is("visits", ("1",)), Is("@rid", (2**63,)),
        Is("email", ("text",)), Compared("visits", Compare.LT, -(2**63) - 1), Compared("balance", Compare.LT, "0.00001"),
        Holds("email", "x"), All((Any((Is("nowhere", ()),)),)),
    ],
)  # fmt: skip
def test_what_no_column_can_answer_is_refused_without_the_value(where: Where) -> None:
    with pytest.raises(VaultError) as caught:
        ASKED.where(where)
    assert caught.value.code is Code.INTERNAL
    assert "0.00001" not in caught.value.message


def test_order_and_figures_need_columns_that_are_there_and_sums_numbers() -> None:
    ASKED.order((Order("city"), Order("@updated_at", descending=True)))
    ASKED.grouping(
        Grouping(
            MATCH_ALL,
            0,
            ("city",),
            (
                AggregateMetric(AggregateFunction.COUNT),
                AggregateMetric(AggregateFunction.COUNT, "email"),
            ),
            1,
        )
    )
    with pytest.raises(VaultError):
        ASKED.order((Order("nowhere"),))
    for keys, metric in (
        (("x",), AggregateMetric(AggregateFunction.COUNT)),
        ((), AggregateMetric(AggregateFunction.SUM)),
        ((), AggregateMetric(AggregateFunction.MIN, "city")),
    ):
        with pytest.raises(VaultError) as caught:
            ASKED.grouping(Grouping(MATCH_ALL, 0, keys, (metric,), 1))
        assert caught.value.code is Code.INTERNAL


def test_what_has_to_hold_together_is_told_part_by_part() -> None:
    one, two, either = Is("city", ()), Holds("city", "a"), Any((Is("city", ()), Is("city", ())))
    assert parts_of(All((one, All((two, All(()))), either))) == (one, two, either)
    assert parts_of(Any((All((one, two)),))) == (one, two)
    assert parts_of(one) == (one,)
    assert parts_of(Any(())) == (Any(()),)
