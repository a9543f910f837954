"""The contract of questions over every engine: what is found, in which order, what is counted and
added up.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.storage import ENGINES, open_store
from proxy.storage.base import Store
from proxy.storage.changes import Insert, Reindex, Remove
from proxy.storage.query import (
    MATCH_ALL,
    AggregateFunction,
    AggregateGroup,
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
    Select,
    Where,
)
from proxy.storage.rows import ColumnValue
from tests.conformance.test_storage import PLACES
from tests.support.rows import LAYOUT, TABLE, h, insert, live, row
from tests.support.table import table

NOW = 1_000

#: mail, city, visits, balance of rows 1, 2 ...
CELLS: tuple[tuple[ColumnValue, ...], ...] = (
    (h("a"), "Umeå", 5, "1.5"),
    (h("b"), "umea", -3, "-0.0001"),
    (None, None, None, None),
    (h("a"), "STRASSE 1", 2**63 - 1, "999999999999.9999"),
    (h("c"), "Straße 2", 2**63 - 1, "999999999999.9999"),
    (h("c"), "", 0, "0"),
)


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Six rows that are shown, one that waits, one that has expired, one that is about to."""
    opened = await open_store(PLACES[request.param](tmp_path))
    await opened.ensure(LAYOUT)
    shown = [
        live(rid, rid, at=100 - rid)._replace(cells=cells) for rid, cells in enumerate(CELLS, 1)
    ]
    shown[1] = shown[1]._replace(expires_at=NOW + 1, version=2)
    hidden = [row(90, cells=CELLS[0]), live(91, 91)._replace(expires_at=NOW, cells=CELLS[0])]
    await opened.commit(TABLE, [Insert(one, (h("t"), h(one.rid))) for one in (*shown, *hidden)])
    await opened.commit(TABLE, [Reindex(4, drop=(h("t"),))])
    yield opened
    await opened.close()


async def found(store: Store, where: Where, *order: Order) -> list[int]:
    page = await store.select(TABLE, Select(where, NOW, order))
    assert page.total == len(page.rows)
    return [one.rid for one in page.rows]


@table(
    ("where", "rids"),
    [
        (MATCH_ALL, [1, 2, 3, 4, 5, 6]),
        (Any(()), []),
        (Is("city", ("umea", "")), [2, 6]),
        (Is("city", ("umea", None)), [2, 3]),
        (Is("city", ("umea",), negated=True), [1, 3, 4, 5, 6]),
        (Is("city", ("umea", None), negated=True), [1, 4, 5, 6]),
        (Is("city", ()), []),
        (Is("city", (), negated=True), [1, 2, 3, 4, 5, 6]),
        (Is("email", (h("a"),)), [1, 4]),
        (Is("email", (None,)), [3]),
        (Is("balance", ("1.50", 0)), [1, 6]),
        (Is("@key", (h(2), h(91), h("none"))), [2]),
        (Is("@rid", (6, 1, 90)), [1, 6]),
        (Is("@version", (2,)), [2]),
        (Is("@expires_at", (None,)), [1, 3, 4, 5, 6]),
        (Compared("visits", Compare.GT, 0), [1, 4, 5]),
        (Compared("visits", Compare.LTE, 0), [2, 6]),
        (Compared("visits", Compare.GTE, 2**63 - 1), [4, 5]),
        (Compared("balance", Compare.LT, "0"), [2]),
        (Compared("balance", Compare.GTE, "999999999999.9999"), [4, 5]),
        (Compared("city", Compare.GT, "Ume"), [1, 2]),
        (Compared("visits", Compare.LT, None), []),
        (Holds("city", "strasse"), [4, 5]),
        (Holds("city", "å"), [1]),
        (Holds("city", ""), [1, 2, 4, 5, 6]),
        (Holds("city", "strasse", negated=True), [1, 2, 3, 6]),
        (Indexed((h("t"),)), [1, 2, 3, 5, 6]),
        (Indexed((h("t"), h(5))), [5]),
        (Indexed((h("t"), h(5)), negated=True), [1, 2, 3, 4, 6]),
        (Indexed((h("none"),)), []),
        (Indexed(()), [1, 2, 3, 4, 5, 6]),
        (
            All(
                (
                    Is("email", (h("a"), h("c"))),
                    Indexed((h("t"),)),
                    Compared("visits", Compare.GT, 0),
                )
            ),
            [1, 5],
        ),
        (Any((Indexed((h("t"),)), Indexed((h("none"), h("t"))))), [1, 2, 3, 5, 6]),
        (Any((Indexed((h("t"), h(5))), Indexed((h("t"), h(2), h("t"))))), [2, 5]),
        (Any((Indexed((h("t"), h(5), h(1))), Indexed((h("none"),)))), []),
        (All((Any((Indexed((h("t"),)), Indexed((h(4),)))), Is("email", (h("a"),)))), [1, 4]),
        (All((Any((Indexed((h("t"),)),)), Compared("@rid", Compare.GT, 2))), [3, 5, 6]),
        (Any((Is("email", (h("b"),)), All((Holds("city", "2"), Indexed((h(5),)))))), [2, 5]),
    ],
)
async def test_rows_that_hold_are_found(store: Store, where: Where, rids: list[int]) -> None:
    assert await found(store, where) == rids


@table(
    ("order", "rids"),
    [
        ((), [1, 2, 3, 4, 5, 6]),
        ((Order("city"),), [3, 6, 4, 5, 1, 2]),
        ((Order("city", descending=True),), [2, 1, 5, 4, 6, 3]),
        ((Order("visits", descending=True),), [4, 5, 1, 6, 2, 3]),
        ((Order("visits"), Order("@created_at")), [3, 2, 6, 1, 5, 4]),
        ((Order("balance"), Order("@rid", descending=True)), [3, 2, 6, 1, 5, 4]),
        ((Order("@created_at"),), [6, 5, 4, 3, 2, 1]),
        ((Order("@expires_at", descending=True), Order("@updated_at")), [2, 6, 5, 4, 3, 1]),
    ],
)
async def test_rows_come_in_the_order_that_is_asked(
    store: Store, order: tuple[Order, ...], rids: list[int]
) -> None:
    assert await found(store, MATCH_ALL, *order) == rids
    pages = [
        (await store.select(TABLE, Select(MATCH_ALL, NOW, order, 2, at))).rows
        for at in range(0, 8, 2)
    ]
    assert [one.rid for page in pages for one in page] == rids


async def test_rows_come_whole_and_are_counted_where_somebody_asks(store: Store) -> None:
    page = await store.select(TABLE, Select(Is("city", ("Umeå", "umea")), NOW, limit=1))
    assert page == ([(await store.rows(TABLE, [1]))[1]], 2, True)
    assert await store.select(TABLE, Select(MATCH_ALL, NOW, limit=0)) == ([], 6, True)
    assert await store.select(TABLE, Select(MATCH_ALL, NOW, limit=0, counted=False)) == (
        [],
        0,
        True,
    )
    assert await store.select(TABLE, Select(MATCH_ALL, NOW, limit=9, offset=9)) == ([], 6, False)


async def test_where_more_rows_match_than_anybody_wants_none_is_shown(store: Store) -> None:
    for where in (MATCH_ALL, Indexed((h("t"),)), Any((Indexed((h("t"),)), Indexed((h(4),))))):
        page = await store.select(TABLE, Select(where, NOW, (Order("@rid"),), 3, most=4))
        assert (page.rows, page.total > 4) == ([], True)
        page = await store.select(TABLE, Select(where, NOW, (Order("@rid"),), 3, 1, most=6))
        assert [one.rid for one in page.rows] == [2, 3, 4 if where != Indexed((h("t"),)) else 5]
        assert (page.total, page.more) == (5 if where == Indexed((h("t"),)) else 6, True)
        turned = Select(where, NOW, (Order("@rid", descending=True),), 2, most=6)
        assert [one.rid for one in (await store.select(TABLE, turned)).rows] == [6, 5]


async def test_a_page_holds_no_more_bytes_than_it_has_room_for_and_always_one_row(
    store: Store,
) -> None:
    whole = (await store.select(TABLE, Select(MATCH_ALL, NOW))).rows
    sizes = [len(row.body) for row in whole]
    for room, held in (
        (0, 1),
        (sizes[0], 1),
        (sum(sizes[:3]), 3),
        (sum(sizes[:3]) - 1, 2),
        (10**9, 6),
    ):
        page = await store.select(TABLE, Select(MATCH_ALL, NOW, room=room))
        assert (page.rows, page.total, page.more) == (whole[:held], 6, held < 6)
        named = await store.select(TABLE, Select(Is("@rid", (1, 2, 3)), NOW, room=room))
        assert (named.rows, named.more) == (
            whole[: min(held, 3)] if named.rows[0] == whole[0] else named.rows,
            held < 3,
        )


async def test_long_lists_of_ids_are_answered(store: Store) -> None:
    assert await found(store, Is("@rid", tuple(range(2, 100_002)))) == [2, 3, 4, 5, 6]
    assert await found(store, Is("@rid", tuple(range(2, 100_002)), negated=True)) == [1]


async def test_scan_walks_rows_of_any_state(store: Store) -> None:
    assert [one.rid for one in await store.scan(TABLE, 0, 3)] == [1, 2, 3]
    assert [one.rid for one in await store.scan(TABLE, 5, 9)] == [6, 90, 91]
    assert await store.scan(TABLE, 91, 9) == []
    assert (await store.scan(TABLE, 6, 1))[0] == (await store.rows(TABLE, [90]))[90]


# ---------------------------------------------------------------- groups

COUNT = AggregateMetric(AggregateFunction.COUNT)


async def test_figures_of_all_rows(store: Store) -> None:
    metrics = (
        COUNT, AggregateMetric(AggregateFunction.COUNT, "city"), AggregateMetric(AggregateFunction.SUM, "visits"), AggregateMetric(AggregateFunction.MIN, "visits"),
        AggregateMetric(AggregateFunction.MAX, "visits"), AggregateMetric(AggregateFunction.SUM, "balance"), AggregateMetric(AggregateFunction.MIN, "balance"),
    )  # fmt: skip
    (group,) = await store.aggregate(TABLE, Grouping(MATCH_ALL, NOW, (), metrics, 10))
    figures = (6, 5, 2 * (2**63 - 1) + 2, -3, 2**63 - 1, 2 * (10**16 - 1) + 15_000 - 1, -1)
    assert group == AggregateGroup((), figures, 1)


async def test_without_rows_there_is_one_group_without_keys_and_none_with_them(
    store: Store,
) -> None:
    metrics = (
        COUNT,
        AggregateMetric(AggregateFunction.COUNT, "city"),
        AggregateMetric(AggregateFunction.SUM, "visits"),
        AggregateMetric(AggregateFunction.MIN, "visits"),
    )
    query = Grouping(Any(()), NOW, (), metrics, 10)
    assert await store.aggregate(TABLE, query) == [AggregateGroup((), (0, 0, 0, None), 0)]
    assert await store.aggregate(TABLE, query._replace(keys=("city",))) == []
    (nothing,) = await store.aggregate(
        TABLE, query._replace(where=Is("@rid", (3,)), keys=("city",))
    )
    assert nothing == AggregateGroup((None,), (1, 0, 0, None), 3)


async def test_groups_are_ascending_and_go_on_after_the_last_one(store: Store) -> None:
    query = Grouping(MATCH_ALL, NOW, ("email", "visits"), (COUNT,), 2)
    groups: list[AggregateGroup] = []
    while page := await store.aggregate(TABLE, query):
        assert len(page) <= 2
        groups += page
        query = query._replace(after=page[-1].keys)
    assert [group.keys for group in groups] == [
        (None, None), (h("a"), 5), (h("a"), 2**63 - 1), (h("b"), -3), (h("c"), 0), (h("c"), 2**63 - 1),
    ]  # fmt: skip
    assert [group.rid for group in groups] == [3, 1, 4, 2, 6, 5]


async def test_keys_of_decimals_count_ten_thousandths(store: Store) -> None:
    query = Grouping(Compared("balance", Compare.GT, "0"), NOW, ("balance",), (COUNT,), 10)
    assert await store.aggregate(TABLE, query) == [
        AggregateGroup((15_000,), (1,), 1),
        AggregateGroup((10**16 - 1,), (2,), 4),
    ]
    assert await store.aggregate(TABLE, query._replace(after=(15_000,))) == [
        AggregateGroup((10**16 - 1,), (2,), 4)
    ]


# ---------------------------------------------------------------- at the same time


async def test_a_question_sees_every_commit_that_has_returned(store: Store) -> None:
    for number in range(10):
        await store.commit(
            TABLE, [Insert(live(200 + number, 200 + number)._replace(cells=CELLS[0]))]
        )
        assert len(await found(store, Is("city", ("Umeå",)))) == number + 2
        await store.commit(
            TABLE,
            [
                Remove(200 + number),
                Insert(live(300 + number, 300 + number)._replace(cells=CELLS[0])),
            ],
        )


async def test_total_and_rows_belong_to_one_state(store: Store) -> None:
    async def write() -> None:
        for rid in range(1000, 1060):
            await store.commit(TABLE, [Insert(live(rid, rid)._replace(cells=CELLS[0]))])

    async def ask() -> None:
        while not writing.done():
            page = await store.select(TABLE, Select(Is("city", ("Umeå",)), NOW, (Order("visits"),)))
            assert page.total == len(page.rows)
            await asyncio.sleep(0)

    writing = asyncio.ensure_future(write())
    await asyncio.gather(writing, ask(), ask(), ask())


async def test_callers_that_give_up_harm_nobody(store: Store) -> None:
    tasks = [
        asyncio.ensure_future(store.select(TABLE, Select(Holds("city", "s"), NOW)))
        for _ in range(20)
    ]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await found(store, Is("city", ("Umeå",))) == [1]
    await store.commit(TABLE, [insert(500)])


@table(
    "query",
    [
        Select(Is("nowhere", ()), 0), Select(MATCH_ALL, 0, (Order("nowhere"),)), Select(Is("visits", ("5",)), 0),
        Grouping(MATCH_ALL, 0, ("nowhere",), (), 1), Grouping(MATCH_ALL, 0, (), (AggregateMetric(AggregateFunction.SUM, "city"),), 1),
    ],
)  # fmt: skip
async def test_what_no_column_can_answer_is_refused(store: Store, query: Select | Grouping) -> None:
    with pytest.raises(VaultError) as caught:
        await (
            store.select(TABLE, query)
            if isinstance(query, Select)
            else store.aggregate(TABLE, query)
        )
    assert caught.value.code is Code.INTERNAL
