"""The contract of what stands beside the rows, over every engine: past versions, files, replies,
objects let go.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.storage import ENGINES, open_store
from proxy.storage.base import Store
from proxy.storage.changes import (
    ANY_ROW,
    AddVersion,
    Attach,
    Bind,
    Change,
    Conflict,
    Detach,
    ForgetReplies,
    Insert,
    Release,
    Remember,
    Remove,
    Replace,
    ReplaceCiphertext,
    Reroot,
    SealedPart,
    StageRow,
    UpdateFile,
)
from proxy.storage.query import MATCH_ALL, Grouping, Select
from proxy.storage.rows import File, Past, Row, Staged, StagedKind, StoredReply
from tests.conformance.test_storage import PLACES
from tests.support.rows import LAYOUT, TABLE, h, insert, live, outlived, row

Changed = tuple[Change, ...]


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(PLACES[request.param](tmp_path))
    await opened.ensure(LAYOUT)
    yield opened
    await opened.close()


async def refused(store: Store, *changes: Change) -> None:
    with pytest.raises(Conflict) as caught:
        await store.commit(TABLE, changes)
    assert caught.value.change == changes[-1]


def version(number: int, *, at: int, rid: int = 1) -> Row:
    return row(rid, at=at, body=b"v%d" % number)._replace(version=number)


def file(name: object, rid: int = 1, *, at: int = 1_000, object_: str = "") -> File:
    return File(
        h(name), rid, h(f"name of {name}"), object_ or f"object of {name}", 12, at, at, b"sealed"
    )


def reply(name: object, expires_at: int = 100) -> StoredReply:
    return StoredReply(h(name), expires_at, b"digest", b"answer")


# ---------------------------------------------------------------- past versions


async def test_past_versions_come_newest_first_a_page_at_a_time_and_are_counted(
    store: Store,
) -> None:
    made, second_row = live(1, "k", at=10), version(2, at=20)._replace(key=h("k"))
    await store.commit(TABLE, [Insert(made)])
    await store.commit(TABLE, [outlived(made), Replace(second_row, 1)])
    await store.commit(TABLE, [outlived(second_row), Replace(version(3, at=30), 2)])
    first = Past(1, 1, h("k"), 10, h("salt1"), b"body1")
    second = Past(1, 2, h("k"), 20, h("salt1"), b"v2")
    assert await store.past(TABLE, h("k"), 10, 0) == ([second, first], 2)
    assert await store.past(TABLE, h("k"), 1, 1) == ([first], 2)
    assert await store.past(TABLE, h("k"), 0, 0) == ([], 2)
    assert await store.past(TABLE, h("other"), 10, 0) == ([], 0)


async def test_a_commit_may_make_a_row_and_its_past(store: Store) -> None:
    made, second = live(1, "k", at=10), version(2, at=20)
    later = outlived(second._replace(key=h("k")))
    await store.commit(
        TABLE, [Insert(made), outlived(made), Replace(second, 1), later, Remove(1, keep_past=True)]
    )
    assert [past.version for past in (await store.past(TABLE, h("k"), 10, 0))[0]] == [2, 1]


async def test_the_past_of_a_key_is_of_every_row_that_had_it(store: Store) -> None:
    first, second = live(1, "a"), live(2, "a", at=6)
    await store.commit(TABLE, [Insert(first), insert(2)])
    taken = (Release(h("a"), 2, 5), Bind(2, h("a"), b"", 6))
    await store.commit(TABLE, [outlived(first), *taken, outlived(second)])
    found, total = await store.past(TABLE, h("a"), 10, 0)
    assert ([(past.rid, past.at) for past in found], total) == ([(1, 1_000), (2, 6)], 2)


async def test_inscribe_adds_a_version_once_whether_the_row_is_there_or_not(store: Store) -> None:
    end = Past(7, 4, h("k"), 40, h("s"), b"end")
    await store.commit(TABLE, [AddVersion(end)])
    await refused(store, AddVersion(end._replace(body=b"other")))
    made = live(7, "k", at=50)
    await store.commit(TABLE, [Insert(made)])
    await store.commit(
        TABLE,
        [outlived(made), AddVersion(end._replace(version=5, at=60)), Remove(7, keep_past=True)],
    )
    found, total = await store.past(TABLE, h("k"), 10, 0)
    assert ([past.at for past in found], total) == ([60, 50, 40], 3)


async def test_the_past_goes_with_its_row_unless_told(store: Store) -> None:
    rows = live(1, "a"), live(2, "b")
    await store.commit(TABLE, [*map(Insert, rows), *map(outlived, rows)])
    await store.commit(TABLE, [Remove(1), Remove(2, keep_past=True)])
    assert (await store.past(TABLE, h("a"), 10, 0))[1] == 0
    await store.commit(TABLE, [Remove(2), Remove(2)])  # gone already: its past is left alone
    assert (await store.past(TABLE, h("b"), 10, 0))[1] == 1


async def test_versions_of_one_instant_are_ordered_by_version_then_by_row(store: Store) -> None:
    pasts = [
        Past(rid, number, h("k"), 5, b"", b"") for rid, number in ((1, 2), (2, 1), (1, 1), (2, 3))
    ]
    await store.commit(TABLE, [AddVersion(past) for past in pasts])
    found, _ = await store.past(TABLE, h("k"), 10, 0)
    assert [(past.rid, past.version) for past in found] == [(2, 3), (1, 2), (2, 1), (1, 1)]


async def test_prune_removes_what_is_too_old_oldest_first_and_limited(store: Store) -> None:
    await store.commit(
        TABLE, [AddVersion(Past(1, at, h("k"), at, b"", b"")) for at in (10, 20, 30, 40)]
    )
    await store.commit(TABLE, [Remember(reply(at, expires_at=at), 0) for at in (5, 6, 7)])
    assert await store.prune(TABLE, 40, 6, 2) == 4
    assert [past.at for past in (await store.past(TABLE, h("k"), 9, 0))[0]] == [40, 30]
    assert await store.prune(TABLE, 40, 6, 2) == 1
    assert await store.prune(TABLE, 40, 6, 2) == 0
    assert await store.reply(TABLE, h(7), 0) == reply(7, expires_at=7)


# ---------------------------------------------------------------- files


async def test_files_are_found_by_row_oldest_first_and_walked_by_id(store: Store) -> None:
    await store.commit(TABLE, [insert(1), insert(2), insert(3)])
    a, b, c = file("a", at=30), file("b", at=20), file("c", rid=2, at=10)
    await store.commit(TABLE, [Attach(a), Attach(b), Attach(c)])
    assert await store.files(TABLE, [1, 2, 3, 9]) == {1: (b, a), 2: (c,)}
    assert await store.file_scan(TABLE, b"", 2) == [a, b]
    assert await store.file_scan(TABLE, b.file_id, 2) == [c]


async def test_attach_conflicts_without_a_row_or_over_an_id_or_a_name(store: Store) -> None:
    await store.commit(TABLE, [insert(1), insert(2), Attach(file("a"))])
    for taken in (file("b", rid=9), file("a", rid=2), file("b")._replace(name=file("a").name)):
        await refused(store, Attach(taken))
    await store.commit(TABLE, [Attach(file("b", rid=2)._replace(name=file("a").name))])
    assert {rid: len(files) for rid, files in (await store.files(TABLE, [1, 2])).items()} == {
        1: 1,
        2: 1,
    }


async def test_amend_overwrites_moves_and_dooms_the_object_before(store: Store) -> None:
    await store.commit(TABLE, [insert(1), insert(2), Attach(file("a", at=10, object_="old"))])
    await store.commit(TABLE, [UpdateFile(file("a", at=20, object_="old"), 1)])
    assert await store.doomed(9) == []
    moved = file("a", rid=2, at=30, object_="new")._replace(
        name=h("new name"), size=5, sealed=b"other"
    )
    await store.commit(TABLE, [UpdateFile(moved, 1)])
    assert await store.files(TABLE, [1, 2]) == {2: (moved._replace(created_at=10),)}
    assert await store.doomed(9) == ["old"]


async def test_amend_conflicts_elsewhere_without_a_row_or_over_a_name(store: Store) -> None:
    await store.commit(TABLE, [insert(1), insert(2), Attach(file("a")), Attach(file("b", rid=2))])
    named = file("a", rid=2)._replace(name=file("b").name)
    for file_, holder in ((file("a"), 2), (file("x"), 1), (file("a", rid=9), 1), (named, 1)):
        await refused(store, UpdateFile(file_, holder))
    assert await store.files(TABLE, [1, 2]) == {1: (file("a"),), 2: (file("b", rid=2),)}
    assert await store.doomed(9) == []


async def test_detach_dooms_the_object_and_conflicts_where_there_is_no_such_file(
    store: Store,
) -> None:
    await store.commit(TABLE, [insert(1), insert(2), Attach(file("a"))])
    await refused(store, Detach(2, file("a").file_id))
    await store.commit(TABLE, [Detach(1, file("a").file_id), Attach(file("a", object_="again"))])
    await store.commit(TABLE, [Detach(1, file("a").file_id)])
    await refused(store, Detach(1, file("a").file_id))
    assert await store.doomed(9) == ["object of a", "again"]
    assert await store.files(TABLE, [1]) == {}


async def test_files_go_with_their_row_and_their_objects_are_doomed(store: Store) -> None:
    await store.commit(
        TABLE,
        [insert(1), insert(2), Attach(file("a")), Attach(file("b")), Attach(file("c", rid=2))],
    )
    await store.commit(TABLE, [Remove(1, keep_past=True)])
    assert (await store.files(TABLE, [1, 2])).keys() == {2}
    assert await store.doomed(9) == ["object of a", "object of b"]
    assert await store.doomed(1) == ["object of a"]
    await store.absolve(["object of a", "never heard of"])
    assert await store.doomed(9) == ["object of b"]


# ---------------------------------------------------------------- replies


async def test_a_reply_is_remembered_until_it_expires(store: Store) -> None:
    await store.commit(TABLE, [Remember(reply("a", expires_at=100), 50)])
    assert await store.reply(TABLE, h("a"), 99) == reply("a", expires_at=100)
    assert await store.reply(TABLE, h("a"), 100) is None
    assert await store.reply(TABLE, h("b"), 0) is None
    await refused(store, insert(1), Remember(reply("a", 300), 99))
    assert await store.rows(TABLE, [1]) == {}
    await store.commit(TABLE, [insert(1), Remember(reply("a", 300), 100)])
    assert await store.reply(TABLE, h("a"), 200) == reply("a", 300)


async def shown(store: Store, *names: str) -> list[bool]:
    """Whether the answers of these replies are there; the replies themselves have to be."""
    found = [await store.reply(TABLE, h(name), 0) for name in names]
    assert all(one is not None and (one.sealed in (b"", b"answer")) for one in found)
    return [bool(one and one.sealed) for one in found]


async def test_a_reply_goes_with_the_first_row_that_it_shows(store: Store) -> None:
    await store.commit(TABLE, [insert(1), insert(2), insert(3), Remember(reply("a"), 0)])
    await store.commit(TABLE, [Remember(reply("b2"), 0, (2,)), Remember(reply("c2"), 0)])
    await store.commit(TABLE, [Remember(reply("d2"), 0, (ANY_ROW,))])
    await store.commit(TABLE, [Remember(reply("z"), 0, (1, 2))])
    assert await shown(store, "z", "b2", "c2", "d2") == [True] * 4
    await store.commit(TABLE, [Remove(1)])
    assert await shown(store, "a", "z", "b2", "c2", "d2") == [True, False, True, True, False]
    await store.commit(TABLE, [Remove(99)])
    await store.commit(TABLE, [Remember(reply("e"), 0, (2,)), Remove(2)])
    assert await shown(store, "b2", "e", "c2") == [False, False, True]
    # Its row is gone already: what is kept after the write shows nothing either.
    await store.commit(TABLE, [Remember(reply("f"), 0, (3, 1))])
    assert await shown(store, "f") == [False]
    await refused(store, Remember(reply("f"), 0))


async def test_a_reply_goes_with_a_value_that_its_row_loses(store: Store) -> None:
    await store.commit(TABLE, [insert(1), insert(2), Remember(reply("a"), 0)])
    await store.commit(TABLE, [Remember(reply("one"), 0, (1,)), Remember(reply("two"), 0, (2,))])
    await store.commit(TABLE, [Remember(reply("any"), 0, (ANY_ROW,))])
    await store.commit(TABLE, [ForgetReplies(1), Remember(reply("now"), 0, (1,))])
    assert await shown(store, "a", "one", "two", "any", "now") == [True, False, True, False, True]
    await store.commit(TABLE, [Remember(reply("then"), 0, (2,)), ForgetReplies(2)])
    await store.commit(TABLE, [ForgetReplies(99)])
    assert await shown(store, "two", "then", "now") == [False, False, True]
    await refused(store, Remember(reply("one"), 0))
    await store.commit(TABLE, [Remove(1)])
    assert await shown(store, "now") == [False]


async def test_a_reply_that_shows_a_file_goes_with_it(store: Store) -> None:
    await store.commit(
        TABLE,
        [insert(1), insert(2), Attach(file("a")), Attach(file("b")), Attach(file("c", rid=2))],
    )
    await store.commit(
        TABLE, [Remember(reply("files"), 0, (1,), True), Remember(reply("none"), 0, (1,))]
    )
    await store.commit(TABLE, [Remember(reply("other"), 0, (2,), True)])
    await store.commit(TABLE, [UpdateFile(file("b", object_="new"), 1)])
    assert await shown(store, "files", "none", "other") == [True, True, True]
    await store.commit(TABLE, [Detach(1, file("a").file_id)])
    assert await shown(store, "files", "none", "other") == [False, True, True]
    await store.commit(TABLE, [UpdateFile(file("c", rid=1), 2)])
    assert await shown(store, "none", "other") == [True, False]


async def test_a_reply_under_a_key_of_before_shows_its_own_rows_alone(store: Store) -> None:
    await store.commit(TABLE, [insert(1), insert(2), Remember(reply("a", 100), 0, (1,))])
    await store.commit(TABLE, [Remember(reply("a", 900), 100, (2,))])
    await store.commit(TABLE, [Remove(1)])
    assert await shown(store, "a") == [True]
    assert await store.prune(TABLE, 0, 900, 9) == 1
    await store.commit(TABLE, [Remember(reply("a", 990), 900)])
    await store.commit(TABLE, [Remove(2)])
    assert await shown(store, "a") == [True]


async def test_of_many_commits_with_one_reply_key_one_wins_with_all_that_it_writes(
    store: Store,
) -> None:
    commits = [
        store.commit(TABLE, [insert(rid), Remember(reply("one"), 1)]) for rid in range(1, 33)
    ]
    results = await asyncio.gather(*commits, return_exceptions=True)
    assert [type(result) for result in results].count(Conflict) == 31
    winner = results.index(None) + 1
    assert (await store.rows(TABLE, range(1, 33))).keys() == {winner}


# ---------------------------------------------------------------- atomicity


async def beside(store: Store) -> list[object]:
    return [
        await store.past(TABLE, h("k"), 99, 0),
        await store.files(TABLE, [1, 2]),
        await store.reply(TABLE, h("r"), 0),
        await store.doomed(99),
        await store.count(TABLE),
    ]


async def test_nothing_beside_is_stored_of_a_commit_that_fails(store: Store) -> None:
    await store.commit(
        TABLE, [Insert(live(1, "k")), insert(2), Attach(file("a")), Attach(file("b", rid=2))]
    )
    before = await beside(store)
    changes: Changed = (
        outlived(live(1, "k")), Replace(version(2, at=20), 1), AddVersion(Past(1, 9, h("k"), 9, b"", b"")), Attach(file("c")),
        UpdateFile(file("a", rid=2, object_="new"), 1), Detach(2, file("b").file_id), Remember(reply("r"), 0), Remove(1),
    )  # fmt: skip
    await refused(store, *changes, Detach(9, h("x")))
    assert await beside(store) == before
    await store.commit(TABLE, changes)
    after = await beside(store)
    assert all(old != new for old, new in zip(before[1:], after[1:], strict=True))


# ---------------------------------------------------------------- tables


async def test_drop_takes_a_table_away_with_everything_in_it(store: Store) -> None:
    await store.ensure(LAYOUT._replace(table="other"))
    await store.commit(
        "other", [Insert(live(1, "k"), (h("t"),)), outlived(live(1, "k")), Attach(file("x"))]
    )
    many: list[Change] = [Insert(live(rid, rid), (h("t"),)) for rid in range(1, 2502)]
    await store.commit(TABLE, [*many, *(outlived(live(rid, rid)) for rid in range(1, 2502))])
    await store.commit(TABLE, [Attach(file("a")), Attach(file("b")), Remember(reply("r"), 0)])
    await store.drop(TABLE)
    assert sorted(await store.doomed(9)) == ["object of a", "object of b"]
    with pytest.raises(VaultError) as caught:
        await store.rows(TABLE, [1])
    assert caught.value.code is Code.INTERNAL
    await store.drop(TABLE)
    await store.drop("never_made")
    await store.ensure(LAYOUT)
    assert await store.count(TABLE) == (0, 0, 0)
    assert await store.by_tokens(TABLE, [h("t")]) == {}
    assert await store.past(TABLE, h(1), 9, 0) == ([], 0)
    assert await store.files(TABLE, [1]) == {}
    assert await store.reply(TABLE, h("r"), 0) is None
    await store.commit(TABLE, [Insert(live(1, "k")), outlived(live(1, "k")), Remove(1)])
    assert await store.past("other", h("k"), 9, 0) == (
        [Past(1, 1, h("k"), 1_000, h("salt1"), b"body1")],
        1,
    )


async def test_a_table_that_is_none_cannot_be_dropped(store: Store) -> None:
    with pytest.raises(VaultError) as caught:
        await store.drop("tables; --")
    assert caught.value.code is Code.INTERNAL


async def test_what_a_table_has_is_known_after_it_was_relaid_while_written(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "k"))])
    kept = asyncio.ensure_future(store.commit(TABLE, [outlived(live(1, "k")), Attach(file("a"))]))
    await store.ensure(LAYOUT._replace(columns=LAYOUT.columns[:3]))
    await kept
    await store.commit(TABLE, [Remove(1)])
    assert await store.past(TABLE, h("k"), 9, 0) == ([], 0)
    assert await store.doomed(9) == ["object of a"]


async def test_every_verb_refuses_an_unknown_table_and_a_closed_store(store: Store) -> None:
    def calls(table: str) -> list[object]:
        return [
            store.past(table, h("k"), 1, 0), store.files(table, [1]), store.file_scan(table, b"", 1),
            store.past_scan(table, (0, 0), 1), store.reply_scan(table, b"", 1),
            store.reply(table, h("k"), 0), store.prune(table, 0, 0, 1), store.scan(table, 0, 1),
            store.select(table, Select(MATCH_ALL, 0)), store.aggregate(table, Grouping(MATCH_ALL, 0, (), (), 1)),
        ]  # fmt: skip

    await every(calls("none"), Code.INTERNAL)
    await store.close()
    await every(
        [*calls(TABLE), store.doomed(1), store.absolve([]), store.drop(TABLE)], Code.VAULT_DOWN
    )


async def every(calls: list[object], code: Code) -> None:
    for call in calls:
        with pytest.raises(VaultError) as caught:
            await call  # type: ignore[misc]  # coroutines of several types
        assert caught.value.code is code


async def test_notes_of_one_ending_go_together_and_others_stay(store: Store) -> None:
    names = (
        "keys:acme", "clients/1:acme", "keys:lacme", "keys:acme2", "keys:ACME", "acme", ":acme",
        "keys:ac%e",
    )  # fmt: skip
    for name in names:
        await store.put_note(name, name.encode(), None)
    assert await store.notes(":acme") == [":acme", "clients/1:acme", "keys:acme"]
    await store.drop_notes(":acme")
    await store.drop_notes(":acme")
    assert await store.notes(":acme") == []
    assert await store.notes("acme") == ["acme", "keys:lacme"]
    left = [name for name in names if await store.note(name) is not None]
    assert left == ["keys:lacme", "keys:acme2", "keys:ACME", "acme", "keys:ac%e"]
    await store.put_note("keys:acme", b"again", None)


# ---------------------------------------------------------------- sealed anew


async def test_other_bytes_take_the_place_of_those_that_are_there_and_nothing_else_changes(
    store: Store,
) -> None:
    made, staged = live(1, "k"), Staged(9, 1, StagedKind.UPDATE, 5, None, False, b"staged")
    past, kept = Past(1, 7, h("k"), 5, b"salt", b"past"), file("f")
    await store.commit(TABLE, [Insert(made), StageRow(staged), AddVersion(past), Attach(kept)])
    (before,) = (await store.rows(TABLE, [1])).values()
    changes = (
        ReplaceCiphertext(SealedPart.ROW, (1,), (before.body, before.key_sealed), (b"b", b"k")),
        ReplaceCiphertext(SealedPart.STAGED, (9, 1), (b"staged",), (b"s",)),
        ReplaceCiphertext(SealedPart.PAST, (1, 7), (b"past",), (b"p",)),
        ReplaceCiphertext(SealedPart.FILE, (kept.file_id, 1), (b"sealed",), (b"f",)),
    )
    await store.commit(TABLE, changes)
    await store.commit(TABLE, changes)  # those are not there any more: no effect
    assert (await store.rows(TABLE, [1])) == {1: before._replace(body=b"b", key_sealed=b"k")}
    assert (await store.staged(TABLE, [1])) == {1: (staged._replace(body=b"s"),)}
    assert (await store.past(TABLE, h("k"), 9, 0)) == ([past._replace(body=b"p")], 1)
    assert (await store.files(TABLE, [1])) == {1: (kept._replace(sealed=b"f"),)}


async def test_bytes_of_another_place_or_of_something_that_is_gone_change_nothing(
    store: Store,
) -> None:
    bare = row(2)
    await store.commit(
        TABLE,
        [Insert(live(1, "k")), Insert(bare), AddVersion(Past(1, 7, h("k"), 5, b"salt", b"past"))],
    )
    for change in (
        ReplaceCiphertext(SealedPart.ROW, (1,), (b"body2", None), (b"x", None)),
        ReplaceCiphertext(SealedPart.ROW, (3,), (b"body2", None), (b"x", None)),
        ReplaceCiphertext(SealedPart.PAST, (1, 8), (b"past",), (b"x",)),
        ReplaceCiphertext(SealedPart.PAST, (2, 7), (b"past",), (b"x",)),
        ReplaceCiphertext(SealedPart.STAGED, (9, 1), (b"staged",), (b"x",)),
        ReplaceCiphertext(SealedPart.FILE, (h("f"), 1), (b"sealed",), (b"x",)),
    ):
        await store.commit(TABLE, [change])
    assert [one.body for one in await store.scan(TABLE, 0, 9)] == [b"body1", b"body2"]
    await store.commit(
        TABLE, [ReplaceCiphertext(SealedPart.ROW, (2,), (bare.body, None), (b"b", None))]
    )
    assert (await store.rows(TABLE, [2]))[2] == bare._replace(body=b"b")


async def test_a_file_whose_object_is_another_by_now_is_not_amended(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "k")), Attach(file("f", object_="first"))])
    second = file("f", object_="second")
    await store.commit(TABLE, [UpdateFile(second, 1, "first")])
    await refused(store, UpdateFile(file("f", object_="third"), 1, "first"))
    assert await store.files(TABLE, [1]) == {1: (second,)}
    assert await store.doomed(9) == ["first"]


async def test_past_versions_and_answers_of_all_are_gone_through_in_order(store: Store) -> None:
    pasts = [
        Past(rid, version, h("k"), 1, b"salt", b"body") for rid in (1, 2) for version in (1, 2, 3)
    ]
    await store.commit(TABLE, [AddVersion(past) for past in reversed(pasts)])
    assert await store.past_scan(TABLE, (0, 0), 4) == pasts[:4]
    assert await store.past_scan(TABLE, (2, 1), 4) == pasts[4:]
    answers = sorted(reply(name, 5) for name in range(5))
    await store.commit(TABLE, [Remember(one, 0) for one in answers])
    assert await store.reply_scan(TABLE, b"", 2) == answers[:2]
    assert await store.reply_scan(TABLE, answers[1].key, 9) == answers[2:]


async def test_the_guard_hears_of_every_commit_before_it_is_accepted(store: Store) -> None:
    heard: list[Changed] = []

    def guard(changes: Sequence[Change]) -> None:
        heard.append(tuple(changes))
        if isinstance(changes[0], Remove):
            raise Conflict(changes[0])

    first, last = Insert(live(1, "k")), Remove(1)
    store.guard = guard
    await store.commit(TABLE, [first])
    await refused(store, last)
    assert (heard, len(await store.rows(TABLE, [1]))) == ([(first,), (last,)], 1)
    store.guard = None
    await store.commit(TABLE, [last])
    assert await store.rows(TABLE, [1]) == {}


async def test_hashes_take_the_place_of_others_only_where_these_still_are(store: Store) -> None:
    past, kept = Past(1, 7, h("k"), 5, b"salt", b"past"), file("cv.pdf")
    made = live(1, "k")
    await store.commit(TABLE, [Insert(made, (h("t"), h("u"))), AddVersion(past), Attach(kept)])
    (before,) = (await store.rows(TABLE, [1])).values()
    after = before._replace(key=h("K"), body=b"again")
    renamed = kept._replace(name=h("other"), sealed=b"s")
    change = Reroot(
        1,
        (before, after),
        ((h("t"), h("T")), (h("x"), h("X"))),
        (h("k"), h("K")),
        ((kept, renamed),),
    )
    for _ in range(2):  # once more: nothing is there any more
        await store.commit(TABLE, [change])
        assert await store.rows(TABLE, [1]) == {1: after}
        assert set(await store.by_keys(TABLE, [h("k"), h("K")])) == {h("K")}
        hashes = [h("t"), h("T"), h("u"), h("x"), h("X")]
        assert await store.by_tokens(TABLE, hashes) == {h("T"): (1,), h("u"): (1,)}
        assert await store.past(TABLE, h("K"), 9, 0) == ([past._replace(key=h("K"))], 1)
        assert await store.files(TABLE, [1]) == {1: (renamed,)}
    stale = Reroot(1, (before, before._replace(body=b"older")), (), None, ((kept, kept),))
    await store.commit(TABLE, [stale, Reroot(9, None, ((h("u"), h("U")),))])
    assert await store.rows(TABLE, [1]) == {1: after}
    assert await store.by_tokens(TABLE, [h("u"), h("U")]) == {h("u"): (1,)}


async def test_a_key_under_another_root_is_not_given_where_another_row_has_it(store: Store) -> None:
    await store.commit(TABLE, [Insert(live(1, "k")), Insert(live(2, "l"))])
    (before,) = (await store.rows(TABLE, [1])).values()
    await refused(store, Reroot(1, (before, before._replace(key=h("l")))))
    assert await store.rows(TABLE, [1]) == {1: before}
