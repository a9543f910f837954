from collections.abc import Iterator
from sqlite3 import Connection

import pytest

from proxy.storage.query import MATCH_ALL, All, Any, Holds, Is, Order, RowPage, Select, Where
from proxy.storage.sqlite.prompt import FEW_ROWS, few, frequent_page, is_short, prompt_page
from proxy.storage.sqlite.select import sqlite_select
from proxy.storage.sqlite.statements import Statements
from proxy.storage.sqlite.where import add_functions
from tests.support.groups import connect
from tests.support.rows import LAYOUT, h, live, row
from tests.support.table import table

ONE = Is("@key", (h("k"),))
SQL = Statements(LAYOUT)


@pytest.fixture
def connection() -> Iterator[Connection]:
    connection = add_functions(connect())
    yield connection
    connection.close()


def fill(connection: Connection, count: int, city: str = "Lund", body: bytes = b"b") -> None:
    for rid in range(1, count + 1):
        one = live(rid, rid)._replace(cells=(None, city, 7, None), body=body)
        connection.execute(SQL.insert, SQL.stored(one))
    connection.execute("UPDATE tables SET rows = ?", (count,))


def rids(page: RowPage | None) -> list[int] | None:
    return None if page is None else [one.rid for one in page.rows]


@table(
    ("where", "short"),
    [
        (ONE, True), (All((Holds("city", "x"), ONE)), True), (Is("@rid", (1, 2)), True), (MATCH_ALL, False),
        (Any((ONE, ONE)), False), (ONE._replace(negated=True), False), (Is("@key", (None,)), False),
        (Is("city", ("x",)), False), (Is("@rid", tuple(range(FEW_ROWS + 1))), False),
    ],
)  # fmt: skip
def test_few_named_rows_are_a_short_question(where: Where, short: bool) -> None:
    assert is_short(Select(where, 0)) is short


def test_named_rows_come_in_pages(connection):
    fill(connection, 3)
    page = few(connection, SQL, Select(Is("@rid", (1, 3, 9)), 0, limit=1, offset=1))
    assert (rids(page), page.total, page.more) == ([3], 2, False)


def test_the_first_rows_of_many_are_answered_at_once(connection):
    fill(connection, 100)
    page = prompt_page(connection, SQL, Select(MATCH_ALL, 0, limit=2, offset=1))
    assert (rids(page), page and page.total, page and page.more) == ([2, 3], 100, True)
    newest = (Order("@rid", descending=True),)
    page = prompt_page(connection, SQL, Select(MATCH_ALL, 0, newest, 2, after=(99,)))
    assert rids(page) == [98, 97]
    assert not connection.in_transaction


def test_rows_of_a_rare_value_are_answered_at_once(connection):
    fill(connection, FEW_ROWS)
    asked = Select(Is("city", ("Lund",)), 0, (Order("visits", descending=True),), 3)
    page = prompt_page(connection, SQL, asked)
    assert (rids(page), page and page.total, page and page.more) == ([1, 2, 3], FEW_ROWS, True)
    assert rids(prompt_page(connection, SQL, asked._replace(where=Is("city", ("Malmö",))))) == []


@pytest.mark.parametrize(
    "asked",
    [
        Select(Is("city", ("Lund",)), 0, limit=3),  # too many have it
        Select(MATCH_ALL, 0, limit=FEW_ROWS + 1),
        Select(MATCH_ALL, 0),
        Select(MATCH_ALL, 0, (Order("city"),), 2),  # no index has every row in this order
        Select(Holds("city", "u"), 0, limit=2),
        Select(Is("city", ("Lund",), negated=True), 0, limit=2),
    ],
)
def test_any_other_question_is_none_of_them(connection, asked):
    fill(connection, FEW_ROWS + 1)
    assert prompt_page(connection, SQL, asked) is None
    assert not connection.in_transaction


def test_many_hidden_rows_and_long_bodies_are_for_a_thread(connection):
    fill(connection, 3, body=b"b" * 50_000)
    assert rids(prompt_page(connection, SQL, Select(MATCH_ALL, 0, limit=2))) == [1, 2]
    assert prompt_page(connection, SQL, Select(MATCH_ALL, 0, limit=3)) is None
    for rid in range(10, 11 + FEW_ROWS):
        connection.execute(SQL.insert, SQL.stored(row(rid)))
    assert prompt_page(connection, SQL, Select(MATCH_ALL, 0, limit=1)) is None


@pytest.mark.parametrize("count", [0, 1, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("room", [None, 1000, 2**20])
@pytest.mark.parametrize("order", [(), (Order("@rid", descending=True),), (Order("visits"),)])
def test_frequent_questions_are_answered_as_any_other(connection, count, room, order):
    fill(connection, count, body=b"b" * 300)
    for where in (All(()), All((Is("city", ("Lund",)),)), All((Is("city", ("Malmö",)),))):
        for limit, offset in ((1, 0), (3, 2), (FEW_ROWS, 0), (FEW_ROWS + 1, 0), (None, 0)):
            asked = Select(where, 0, order, limit, offset, room=room)
            page = frequent_page(connection, SQL, asked)
            # where it has nothing to say of no row at all, a thread has
            if page is not None:
                assert page == sqlite_select(connection, SQL, asked)
            if where.parts and count <= FEW_ROWS:
                assert page is not None
            assert not connection.in_transaction


def test_a_value_of_many_rows_costs_no_look_at_them(connection):
    fill(connection, 3000)
    for question in (prompt_page, frequent_page):
        steps: list[int] = []
        connection.set_progress_handler(lambda steps=steps: steps.append(1), 100)
        assert question(connection, SQL, Select(All((Is("city", ("Lund",)),)), 0, limit=1)) is None
        connection.set_progress_handler(None, 0)
        assert len(steps) < 30


@pytest.mark.parametrize("never", [Is("@rid", ()), Any(()), Any((Is("@rid", ()), Any(())))])
def test_what_cannot_hold_is_left_to_the_planner(connection, never):
    fill(connection, 3)
    query = Select(All((Is("city", ("Lund",)), never)), 0)
    assert prompt_page(connection, SQL, query) is None
    assert rids(sqlite_select(connection, SQL, query)) == []
