from proxy.storage.memory_query import aggregate, select
from proxy.storage.memory_table import Table
from proxy.storage.query import ALWAYS, Func, Group, Grouping, Holds, Metric, Order, Page, Select
from tests.support.rows import LAYOUT, live


def test_rows_come_in_order_and_groups_with_their_figures() -> None:
    table = Table(LAYOUT)
    for rid, city, visits in ((1, "b", 2**62), (2, None, None), (3, "b", 2**62), (4, "STRASSE", 7)):
        table.put(live(rid, rid)._replace(cells=(None, city, visits, None)))
    page = select(table, Select(Holds("city", "ss", negated=True), 0, (Order("city", descending=True),), 2))
    assert page == Page([table.row(1), table.row(3)], 3, more=True)
    figures = (Metric(Func.COUNT), Metric(Func.SUM, "visits"), Metric(Func.MAX, "visits"))
    assert aggregate(table, Grouping(ALWAYS, 0, ("city",), figures, 9, (None,))) == [
        Group(("STRASSE",), (1, 7, 7), 4),
        Group(("b",), (2, 2**63, 2**62), 1),
    ]
