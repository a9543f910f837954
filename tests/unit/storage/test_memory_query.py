from proxy.storage.memory import memory_aggregate, memory_select
from proxy.storage.memory_table import Table
from proxy.storage.query import (
    MATCH_ALL,
    AggregateFunction,
    AggregateGroup,
    AggregateMetric,
    Grouping,
    Holds,
    Order,
    RowPage,
    Select,
)
from tests.support.rows import LAYOUT, live


def test_rows_come_in_order_and_groups_with_their_figures() -> None:
    table = Table(LAYOUT)
    for rid, city, visits in ((1, "b", 2**62), (2, None, None), (3, "b", 2**62), (4, "STRASSE", 7)):
        table.put(live(rid, rid)._replace(cells=(None, city, visits, None)))
    page = memory_select(
        table, Select(Holds("city", "ss", negated=True), 0, (Order("city", descending=True),), 2)
    )
    assert page == RowPage([table.row(1), table.row(3)], 3, more=True)
    figures = (
        AggregateMetric(AggregateFunction.COUNT),
        AggregateMetric(AggregateFunction.SUM, "visits"),
        AggregateMetric(AggregateFunction.MAX, "visits"),
    )
    assert memory_aggregate(table, Grouping(MATCH_ALL, 0, ("city",), figures, 9, (None,))) == [
        AggregateGroup(("STRASSE",), (1, 7, 7), 4),
        AggregateGroup(("b",), (2, 2**63, 2**62), 1),
    ]
