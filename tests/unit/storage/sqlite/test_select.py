import pytest

from proxy.storage.query import MATCH_ALL, All, Any, Holds, Is, Order, RowPage, Select, Where
from proxy.storage.sqlite.select import FEW_ROWS, few, is_short, scan, sqlite_select
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.where import add_functions
from tests.support.groups import connect
from tests.support.rows import LAYOUT, h, live, row

ONE = Is("@key", (h("k"),))


@pytest.mark.parametrize(
    ("where", "short"),
    [
        (ONE, True), (All((Holds("city", "x"), ONE)), True), (Is("@rid", (1, 2)), True), (MATCH_ALL, False),
        (Any((ONE, ONE)), False), (ONE._replace(negated=True), False), (Is("@key", (None,)), False),
        (Is("city", ("x",)), False), (Is("@rid", tuple(range(FEW_ROWS + 1))), False),
    ],
)  # fmt: skip
def test_few_named_rows_are_a_short_question(where: Where, short: bool) -> None:
    assert is_short(Select(where, 0)) is short


def test_rows_come_in_order_and_in_pages() -> None:
    connection, sql = add_functions(connect()), Statements(LAYOUT)
    cells = ((1, "b", 2**62), (2, None, None), (3, "b", 2**62), (4, "a", -(2**62)))
    rows = {
        rid: live(rid, rid)._replace(cells=(None, city, visits, None))
        for rid, city, visits in cells
    }
    for one in (*rows.values(), row(9)):
        connection.execute(sql.insert, sql.stored(one))
    connection.execute("UPDATE tables SET rows = 5")
    page = sqlite_select(
        connection, sql, Select(MATCH_ALL, 0, (Order("city", descending=True),), 2, 1)
    )
    assert page == RowPage([rows[3], rows[4]], 4, more=True)
    assert sqlite_select(connection, sql, Select(MATCH_ALL, 0, limit=0, counted=False)) == RowPage(
        [], 0, more=True
    )
    assert few(connection, sql, Select(Is("@rid", (1, 3, 9)), 0, limit=1, offset=1)) == RowPage(
        [rows[3]], 2
    )
    assert [one.rid for one in scan(connection, sql, 3, 9)] == [4, 9]
    connection.close()
