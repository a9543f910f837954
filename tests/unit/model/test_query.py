from proxy.model.query import Op, Query


def test_operators_are_spelled_as_the_specification_has_them() -> None:
    assert [op.value for op in Op] == ["$gt", "$gte", "$lt", "$lte"]


def test_a_search_without_options_takes_the_first_hundred() -> None:
    assert (Query().limit, Query().offset) == (100, 0)
