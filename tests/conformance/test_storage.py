"""One contract over every engine in the registry: each verb, each conflict, atomicity, order,
limits, concurrency.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.storage import ENGINES
from proxy.storage.base import Store
from proxy.storage.changes import (
    Accept,
    Bind,
    Change,
    Conflict,
    Insert,
    MarkInDoubt,
    Reindex,
    Release,
    Remove,
    Replace,
    StageRow,
    Unstage,
)
from proxy.storage.rows import ERASED_AT, RowState, StagedKind
from tests.support.postgres import fresh_address
from tests.support.rows import EMPTY, TABLE, h, insert, live, row, staged
from tests.support.table import table

#: How the tests open each engine; an engine without a line here fails the suite.
PLACES: dict[str, Callable[[Path], str]] = {
    "sqlite": "sqlite:///{}/vault.db".format,
    "memory": lambda _folder: "memory:",
    "postgresql": lambda _folder: fresh_address(),
}

Open = Callable[[], Awaitable[Store]]


def test_every_engine_of_the_registry_is_under_this_contract() -> None:
    assert PLACES.keys() == ENGINES.keys()


async def refused(store: Store, *changes: Change) -> Conflict:
    with pytest.raises(Conflict) as caught:
        await store.commit(TABLE, changes)
    return caught.value


async def test_a_row_comes_back_as_it_was_written(store: Store) -> None:
    whole = live(7, "key")._replace(
        version=3,
        created_at=1,
        updated_at=2,
        expires_at=3,
        cells=(h("mail"), "Örebro", -5, "-12.5"),
    )
    await store.commit(TABLE, [Insert(whole)])
    assert await store.rows(TABLE, [7]) == {7: whole}
    (found,) = (await store.rows(TABLE, [7])).values()
    assert found.state is RowState.LIVE


async def test_the_largest_id_and_an_empty_body_are_kept(store: Store) -> None:
    last = row(2**63 - 1)._replace(body=b"", salt=b"\x00" * 16)
    await store.commit(TABLE, [Insert(last)])
    assert await store.rows(TABLE, [last.rid]) == {last.rid: last}


async def test_absent_rows_are_left_out_and_asking_twice_answers_once(store: Store) -> None:
    await store.commit(TABLE, [insert(1), insert(2)])
    assert list(await store.rows(TABLE, [2, 9, 2])) == [2]
    assert await store.rows(TABLE, []) == {}


async def test_long_lists_are_answered_whole(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(rid, rid), (h(rid),)) for rid in range(1, 1201)])
    rids = range(1, 1201)
    assert (await store.rows(TABLE, rids)).keys() == set(rids)
    assert len(await store.by_keys(TABLE, [h(rid) for rid in rids])) == 1200
    assert await store.by_tokens(TABLE, [h(rid) for rid in rids]) == {
        h(rid): (rid,) for rid in rids
    }


async def test_an_insert_over_an_id_conflicts(store: Store) -> None:
    await store.commit(TABLE, [insert(1)])
    change = Insert(row(1, body=b"other"))
    assert (await refused(store, change)).change is change
    assert (await store.rows(TABLE, [1]))[1].body == b"body1"


async def test_an_insert_under_a_taken_key_conflicts(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "key"))])
    assert (await refused(store, Insert(live(2, "key")))).hashes == ()
    assert (await store.by_keys(TABLE, [h("key")]))[h("key")].rid == 1


async def test_decimals_are_exact(store: Store) -> None:
    texts: dict[str | int, str] = {
        "12.50": "12.5",
        12: "12",
        "-0.0001": "-0.0001",
        "0": "0",
        "999999999999.9999": "999999999999.9999",
    }
    for rid, written in enumerate(texts):
        await store.commit(TABLE, [Insert(row(rid, cells=(None, None, None, written)))])
    rows = await store.rows(TABLE, range(len(texts)))
    assert [rows[rid].cells[3] for rid in range(len(texts))] == [*texts.values()]


@table("unfit", ["0.00001", "1000000000000", "much", "NaN", "Infinity"])
async def test_a_decimal_that_does_not_fit_is_refused_without_telling_it(
    store: Store, unfit: str
) -> None:
    with pytest.raises(VaultError) as caught:
        await store.commit(TABLE, [insert(2), Insert(row(1, cells=(None, None, None, unfit)))])
    assert caught.value.code is Code.INTERNAL
    assert unfit not in caught.value.message
    assert await store.rows(TABLE, [1, 2]) == {}


async def test_a_row_that_was_made_before_its_layout_grew_has_nothing_in_the_new_columns(
    store: Store,
) -> None:
    await store.commit(
        TABLE, [Insert(row(1, cells=(h("m"),))), Replace(row(1, cells=(h("n"), "Umeå")), 1)]
    )
    assert (await store.rows(TABLE, [1]))[1].cells == (h("n"), "Umeå", None, None)


async def test_cells_that_do_not_fit_the_layout_are_refused_alone(store: Store) -> None:
    good, bad = await asyncio.gather(
        store.commit(TABLE, [insert(1)]),
        store.commit(TABLE, [Insert(row(2, cells=(*EMPTY, None)))]),
        return_exceptions=True,
    )
    assert good is None
    assert isinstance(bad, VaultError)
    assert (await store.rows(TABLE, [1, 2])).keys() == {1}


# ---------------------------------------------------------------- keys


async def test_only_live_rows_are_found_by_key(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "a")), Insert(live(2, "b")), insert(3)])
    assert {
        key: found.rid
        for key, found in (await store.by_keys(TABLE, [h("a"), h("b"), h("c")])).items()
    } == {
        h("a"): 1,
        h("b"): 2,
    }
    await store.commit(TABLE, [Release(h("a"), 3, 2_000)])
    assert await store.by_keys(TABLE, [h("a")]) == {}


async def test_accept_keeps_a_pending_row_for_good_and_it_can_be_bound_later(store: Store) -> None:
    await store.commit(TABLE, [insert(1), insert(2), Accept(1, 2_000), Accept(9, 2_000)])
    assert (await store.rows(TABLE, [1]))[1] == row(1)._replace(
        state=RowState.LIVE, updated_at=2_000
    )
    assert [found.rid for found in (await store.unsettled(TABLE, 9_999, 10))[0]] == [2]
    await store.commit(TABLE, [Bind(1, h("key"), b"sealed", 3_000), Accept(1, 4_000)])
    assert (await store.by_keys(TABLE, [h("key")]))[h("key")].updated_at == 3_000


async def test_bind_makes_a_pending_row_live(store: Store) -> None:
    await store.commit(TABLE, [insert(1)])
    await store.commit(TABLE, [Bind(1, h("key"), b"sealed", 2_000)])
    bound = row(1)._replace(
        key=h("key"), key_sealed=b"sealed", state=RowState.LIVE, updated_at=2_000
    )
    assert await store.rows(TABLE, [1]) == {1: bound}


async def test_bind_again_with_the_same_key_is_no_conflict(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "key"))])
    await store.commit(TABLE, [Bind(1, h("key"), b"again", 3_000)])
    found = (await store.rows(TABLE, [1]))[1]
    assert (found.key_sealed, found.updated_at) == (b"again", 3_000)


async def test_bind_conflicts_when_the_row_is_gone_bound_otherwise_or_the_key_is_taken(
    store: Store,
) -> None:
    await store.commit(TABLE, [Insert(live(1, "a")), Insert(live(2, "b")), insert(3)])
    for change in (Bind(9, h("c"), b"", 1), Bind(1, h("c"), b"", 1), Bind(3, h("a"), b"", 1)):
        assert (await refused(store, change)).change is change
    assert (await store.rows(TABLE, [3]))[3] == row(3)


async def test_release_takes_the_key_from_its_holder_alone(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "a")), Insert(live(2, "b"))])
    await store.commit(TABLE, [Release(h("a"), 1, 5_000), Release(h("none"), 9, 5_000)])
    assert (await store.rows(TABLE, [1]))[1] == live(1, "a")
    await store.commit(TABLE, [Release(h("a"), 3, 5_000)])
    assert await store.rows(TABLE, [1, 2]) == {
        1: row(1)._replace(updated_at=5_000),
        2: live(2, "b"),
    }


async def test_release_takes_the_key_from_that_holder_and_leaves_its_statement(
    store: Store,
) -> None:
    await store.commit(TABLE, [Insert(live(1, "a")), Insert(live(2, "b"))])
    await store.commit(TABLE, [Release(h("a"), 3, 5_000, 2, b"unbound")])
    assert (await store.rows(TABLE, [1]))[1] == live(1, "a")
    await store.commit(TABLE, [Release(h("a"), 3, 5_000, 1, b"unbound")])
    released = row(1)._replace(updated_at=5_000, key_sealed=b"unbound")
    assert await store.rows(TABLE, [1, 2]) == {1: released, 2: live(2, "b")}
    await store.commit(TABLE, [Accept(1, 6_000, b"accepted"), Accept(2, 6_000, b"accepted")])
    accepted = released._replace(state=RowState.LIVE, updated_at=6_000, key_sealed=b"accepted")
    assert await store.rows(TABLE, [1, 2]) == {1: accepted, 2: live(2, "b")}


async def test_release_then_bind_moves_a_key_to_a_newer_record(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "a")), insert(2)])
    await store.commit(TABLE, [Release(h("a"), 2, 5_000), Bind(2, h("a"), b"sealed", 5_000)])
    assert (await store.by_keys(TABLE, [h("a")]))[h("a")].rid == 2
    assert (await store.rows(TABLE, [1]))[1].state is RowState.PENDING


async def test_a_record_takes_the_key_and_the_values_of_another_in_one_commit(store: Store) -> None:
    before, new = live(1, "a"), row(2, body=b"with those of before")._replace(version=2)
    await store.commit(TABLE, [Insert(before, (h("t"),)), insert(2)])
    join: list[Change] = [
        Release(h("a"), 2, 5_000, 1),
        Accept(1, 5_000),
        Bind(2, h("a"), b"sealed", 5_000),
        Replace(before, 1),
        Replace(new, 1),
        StageRow(staged(9, 2)),
        Remove(1, keep_past=True),
        Reindex(2, add=(h("t"),)),
    ]
    late: list[Change] = [*join[:3], Replace(before, 7), *join[4:]]
    assert (await refused(store, *late)).change is late[3]
    assert (await store.by_keys(TABLE, [h("a")]))[h("a")].rid == 1
    await store.commit(TABLE, join)
    (home,) = (await store.by_keys(TABLE, [h("a")])).values()
    assert (home.rid, home.version, home.body, home.staged) == (2, 2, b"with those of before", 1)
    assert await store.by_tokens(TABLE, [h("t")]) == {h("t"): (2,)}
    assert await store.count(TABLE) == (1, 0, 1)


# ---------------------------------------------------------------- versions


async def test_replace_overwrites_all_but_key_and_state(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "a"))])
    newer = row(1, body=b"newer", cells=(h("m"), "Umeå", 7, "1.5"))._replace(
        version=2, created_at=11, updated_at=12, expires_at=13, salt=h("new")
    )
    await store.commit(TABLE, [Replace(newer, 1)])
    expected = newer._replace(key=h("a"), key_sealed=b"sealed " + h("a"), state=RowState.LIVE)
    assert await store.rows(TABLE, [1]) == {1: expected}


async def test_replace_conflicts_on_another_version_or_no_row(store: Store) -> None:
    await store.commit(TABLE, [insert(1)])
    for change in (Replace(row(1)._replace(version=3), 2), Replace(row(9), 1)):
        assert (await refused(store, change)).change is change
    assert (await store.rows(TABLE, [1]))[1] == row(1)


async def test_of_many_replacements_of_one_version_one_wins(store: Store) -> None:
    await store.commit(TABLE, [insert(1)])
    results = await asyncio.gather(
        *(
            store.commit(TABLE, [Replace(row(1, body=b"%d" % n)._replace(version=2), 1)])
            for n in range(20)
        ),
        return_exceptions=True,
    )
    assert [type(result) for result in results].count(Conflict) == 19
    winner = results.index(None)
    assert (await store.rows(TABLE, [1]))[1].body == b"%d" % winner


# ---------------------------------------------------------------- staged changes


async def test_staged_changes_wait_beside_the_row_oldest_first(store: Store) -> None:
    await store.commit(TABLE, [insert(1), insert(2), insert(3)])
    late, early = staged(20, 1), staged(10, 1, kind=StagedKind.DELETE)
    await store.commit(TABLE, [StageRow(late), StageRow(early), StageRow(staged(30, 2))])
    assert await store.staged(TABLE, [1, 2, 3, 4]) == {1: (early, late), 2: (staged(30, 2),)}
    assert {rid: found.staged for rid, found in (await store.rows(TABLE, [1, 2, 3])).items()} == {
        1: 2,
        2: 1,
        3: 0,
    }


async def test_what_an_insert_says_of_staged_changes_is_not_believed(store: Store) -> None:
    await store.commit(TABLE, [Insert(row(1)._replace(staged=5))])
    assert (await store.rows(TABLE, [1]))[1].staged == 0


async def test_stage_conflicts_without_a_row_over_an_id_or_on_a_taken_hash(store: Store) -> None:
    await store.commit(TABLE, [insert(1, unique=(h("t"),)), insert(2), StageRow(staged(10, 2))])
    taken = StageRow(staged(12, 2), (), (h("n"), h("t")))
    for change, hashes in (
        (StageRow(staged(11, 9)), ()),
        (StageRow(staged(10, 1)), ()),
        (taken, (h("t"),)),
    ):
        caught = await refused(store, change)
        assert (caught.change, caught.hashes) == (change, hashes)
    assert await store.by_tokens(TABLE, [h("n")]) == {}
    assert (await store.count(TABLE))[2] == 1


async def test_stage_puts_its_hashes_into_the_index(store: Store) -> None:
    await store.commit(TABLE, [insert(1)])
    await store.commit(TABLE, [StageRow(staged(10, 1), (h("s"),), (h("u"),))])
    assert await store.by_tokens(TABLE, [h("s"), h("u")]) == {h("s"): (1,), h("u"): (1,)}


async def test_unstage_and_doubt_touch_one_change_and_ignore_absent_ones(store: Store) -> None:
    await store.commit(
        TABLE, [insert(1), insert(2), StageRow(staged(10, 1)), StageRow(staged(11, 1))]
    )
    await store.commit(
        TABLE,
        [
            MarkInDoubt(1, 10, 7_000, True),
            Unstage(1, 11),
            Unstage(1, 99),
            MarkInDoubt(1, 99, 1, False),
        ],
    )
    # of another row: not this one's
    await store.commit(TABLE, [Unstage(2, 10), MarkInDoubt(2, 10, 1, False)])
    assert await store.staged(TABLE, [1]) == {
        1: (staged(10, 1)._replace(doubt=7_000, answered=True),)
    }
    assert (await store.rows(TABLE, [1]))[1].staged == 1


# ---------------------------------------------------------------- token index


async def test_equal_tokens_answer_all_their_records_in_order(store: Store) -> None:
    await store.commit(
        TABLE, [insert(3, hashes=(h("s"),)), insert(1, hashes=(h("s"), h("x"))), insert(2)]
    )
    assert await store.by_tokens(TABLE, [h("s"), h("x"), h("none")]) == {
        h("s"): (1, 3),
        h("x"): (1,),
    }


async def test_a_common_token_answers_32_records_and_hides_no_other(store: Store) -> None:
    await store.commit(TABLE, [insert(rid, hashes=(h("common"),)) for rid in range(1, 301)])
    await store.commit(TABLE, [insert(999, hashes=(h("rare"), h("z")))])
    first = tuple(range(1, 33))
    assert await store.by_tokens(TABLE, [h("common")]) == {h("common"): first}
    found = await store.by_tokens(TABLE, [h("rare"), h("common"), h("z"), h("none")])
    assert found == {h("rare"): (999,), h("common"): first, h("z"): (999,)}


async def test_a_unique_hash_must_be_new_whoever_holds_it(store: Store) -> None:
    await store.commit(TABLE, [insert(1, hashes=(h("shared"),), unique=(h("own"),))])
    for taken in (h("shared"), h("own")):
        caught = await refused(store, insert(2, unique=(h("new"), taken)))
        assert caught.hashes == (taken,)
        assert (await refused(store, StageRow(staged(5, 1), (), (taken,)))).hashes == (taken,)
    assert await store.by_tokens(TABLE, [h("new")]) == {}


async def test_a_hash_that_is_named_twice_in_one_change_is_in_the_index_once(store: Store) -> None:
    await store.commit(TABLE, [insert(1, hashes=(h("a"), h("a"), h("b")), unique=(h("b"), h("b")))])
    assert await store.by_tokens(TABLE, [h("a"), h("b")]) == {h("a"): (1,), h("b"): (1,)}


@pytest.mark.usefixtures("ordered")
async def test_of_two_commits_with_one_unique_hash_the_first_wins(store: Store) -> None:
    results = await asyncio.gather(
        *(store.commit(TABLE, [insert(rid, unique=(h("one"),))]) for rid in range(1, 6)),
        return_exceptions=True,
    )
    assert results[0] is None
    assert all(
        isinstance(result, Conflict) and result.hashes == (h("one"),) for result in results[1:]
    )
    assert (await store.rows(TABLE, range(1, 6))).keys() == {1}


async def test_a_unique_hash_may_be_shared_later(store: Store) -> None:
    await store.commit(TABLE, [insert(1, unique=(h("t"),)), insert(2, hashes=(h("t"),))])
    assert await store.by_tokens(TABLE, [h("t")]) == {h("t"): (1, 2)}


async def test_reindex_drops_then_adds_for_its_own_row(store: Store) -> None:
    await store.commit(TABLE, [insert(1, hashes=(h("a"), h("b"))), insert(2, hashes=(h("a"),))])
    await store.commit(TABLE, [Reindex(1, add=(h("b"), h("c")), drop=(h("a"), h("b"), h("none")))])
    assert await store.by_tokens(TABLE, [h("a"), h("b"), h("c")]) == {
        h("a"): (2,),
        h("b"): (1,),
        h("c"): (1,),
    }


async def test_reindex_of_a_row_that_is_gone_leaves_nothing(store: Store) -> None:
    await store.commit(TABLE, [Reindex(9, add=(h("a"),))])
    assert await store.by_tokens(TABLE, [h("a")]) == {}


async def test_remove_takes_everything_beside_the_row_and_frees_its_hashes_and_key(
    store: Store,
) -> None:
    await store.commit(
        TABLE, [Insert(live(1, "k"), (h("s"),), (h("u"),)), insert(2, hashes=(h("s"),))]
    )
    await store.commit(TABLE, [StageRow(staged(10, 1), (h("n"),)), StageRow(staged(11, 2))])
    await store.commit(TABLE, [Remove(1), Remove(1), Remove(99)])
    assert (await store.rows(TABLE, [1, 2])).keys() == {2}
    assert await store.staged(TABLE, [1, 2]) == {2: (staged(11, 2),)}
    assert await store.by_tokens(TABLE, [h("s"), h("u"), h("n")]) == {h("s"): (2,)}
    await store.commit(TABLE, [Insert(live(3, "k"), (), (h("u"),))])
    assert await store.count(TABLE) == (2, 1, 1)


# ---------------------------------------------------------------- one commit


async def test_a_commit_is_all_or_nothing(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "a"), (h("s"),)), insert(2), StageRow(staged(10, 2))])
    before = await whole(store)
    changes: list[Change] = [
        insert(3, hashes=(h("s"),), unique=(h("u"),)),
        Release(h("a"), 3, 9_000),
        Bind(3, h("a"), b"sealed", 9_000),
        Replace(row(2)._replace(version=2), 1),
        StageRow(staged(11, 3)),
        MarkInDoubt(2, 10, 9_000, False),
        Unstage(2, 10),
        Reindex(1, drop=(h("s"),)),
        Remove(1),
        Bind(99, h("z"), b"", 9_000),  # fails
    ]
    assert (await refused(store, *changes)).change == changes[-1]
    assert await whole(store) == before
    await store.commit(TABLE, changes[:-1])
    assert await whole(store) != before


async def whole(store: Store) -> list[object]:
    """Everything that the tests of this file put in, as the port shows it."""
    rids, names = range(1, 12), [h(name) for name in ("a", "s", "u", "t", "z")]
    return [
        await store.rows(TABLE, rids),
        await store.by_keys(TABLE, names),
        await store.by_tokens(TABLE, names),
        await store.staged(TABLE, rids),
        await store.count(TABLE),
    ]


async def test_changes_apply_in_their_order(store: Store) -> None:
    await store.commit(
        TABLE,
        [
            insert(1, hashes=(h("a"),)),
            Remove(1),
            insert(1, unique=(h("a"),)),
            StageRow(staged(5, 1)),
        ],
    )
    await store.commit(
        TABLE, [Unstage(1, 5), StageRow(staged(5, 1, at=2_000)), Remove(1), Insert(live(1, "k"))]
    )
    await store.commit(
        TABLE, [Remove(1), Insert(live(2, "k")), Release(h("k"), 9, 3_000), Insert(live(3, "k"))]
    )
    assert await store.rows(TABLE, [1, 2, 3]) == {
        2: row(2)._replace(updated_at=3_000),
        3: live(3, "k"),
    }
    assert await store.by_tokens(TABLE, [h("a")]) == {}
    assert await store.count(TABLE) == (2, 1, 0)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_the_last_of_several_changes_to_one_row_wins_in_any_order(
    store: Store, order: tuple[int, ...]
) -> None:
    await store.commit(TABLE, [Insert(live(1, "k")), insert(2)])
    changes: list[Change] = [
        Replace(row(1, body=b"new")._replace(updated_at=111), 1),
        Release(h("k"), 2, 222),
        Reindex(1, add=(h("a"),)),
    ]
    await store.commit(TABLE, [changes[place] for place in order])
    last = max((order.index(0), 111), (order.index(1), 222))[1]
    assert (await store.rows(TABLE, [1]))[1].updated_at == last


async def test_marks_of_erased_records_are_in_no_count_and_settle_never(store: Store) -> None:
    mark = row(3)._replace(updated_at=ERASED_AT)
    await store.commit(TABLE, [Insert(live(1, "a")), insert(2), Insert(mark, (h("t"),))])
    assert await store.count(TABLE) == (2, 1, 0)
    pending, _ = await store.unsettled(TABLE, ERASED_AT, 10)
    assert [one.rid for one in pending] == [2]
    assert await store.by_tokens(TABLE, [h("t")]) == {h("t"): (3,)}
    assert await store.scan(TABLE, 2, 10) == [mark]
    await store.commit(TABLE, [Remove(3)])
    assert await store.count(TABLE) == (2, 1, 0)


async def test_an_empty_commit_does_nothing(store: Store) -> None:
    await store.commit(TABLE, [])
    assert await store.count(TABLE) == (0, 0, 0)


async def test_a_failed_commit_does_not_touch_its_neighbours(store: Store) -> None:
    await store.commit(TABLE, [insert(1)])
    commits = [
        store.commit(TABLE, [insert(rid), StageRow(staged(rid, rid))]) for rid in range(1, 41)
    ]
    results = await asyncio.gather(*commits, return_exceptions=True)
    assert isinstance(results[0], Conflict)
    assert set(results[1:]) == {None}
    assert await store.count(TABLE) == (40, 40, 39)


async def test_many_writers_at_once_lose_nothing(store: Store) -> None:
    async def writer(number: int) -> None:
        for step in range(25):
            rid = 1 + number * 100 + step
            await store.commit(TABLE, [insert(rid, hashes=(h(number),), unique=(h(f"u{rid}"),))])
            await store.commit(
                TABLE, [Release(h(f"k{rid}"), rid, 2_000), Bind(rid, h(f"k{rid}"), b"s", 2_000)]
            )
            assert (await store.by_keys(TABLE, [h(f"k{rid}")]))[h(f"k{rid}")].rid == rid

    await asyncio.gather(*(writer(number) for number in range(16)))
    assert await store.count(TABLE) == (400, 0, 0)
    assert await store.by_tokens(TABLE, [h(3)]) == {h(3): tuple(range(301, 326))}


@pytest.mark.usefixtures("ordered")
async def test_commits_called_in_one_breath_apply_in_the_order_of_their_calls(store: Store) -> None:
    first = store.commit(TABLE, [insert(1)])
    rest = [store.commit(TABLE, [Replace(row(1)._replace(version=n + 1), n)]) for n in range(1, 30)]
    await asyncio.gather(first, *rest)
    assert (await store.rows(TABLE, [1]))[1].version == 30


async def test_a_cancelled_commit_harms_nobody(store: Store) -> None:
    tasks = [asyncio.ensure_future(store.commit(TABLE, [insert(rid)])) for rid in (1, 2, 3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.commit(TABLE, [insert(4)])
    assert {1, 3, 4} <= (await store.rows(TABLE, [1, 2, 3, 4])).keys()
