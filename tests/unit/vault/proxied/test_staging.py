from collections.abc import Sequence
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.storage.changes import Change, Conflict
from proxy.storage.rows import RowState
from proxy.tokenization import SHAPES
from proxy.vault.proxied.binding import StagedWrite
from proxy.vault.proxied.deletes import deleted
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import (
    doubt,
    drop_staged,
    promote,
    stage_creates,
    stage_deletes,
    stage_shared,
    stage_updates,
)
from tests.support.vaults import Bench, draft, make_bench, person, token

ANN: dict[str, Any] = {
    "name": "Ann",
    "email": "Ann@Example.com",
    "phone": "+46 70 123 45 67",
    "born": "1987-04-12",
    "tags": ["a", "b"],
}


async def ann(bench: Bench, key: str = "17") -> StagedWrite:
    held = (await stage_creates(bench.people, [draft(**ANN)], [None]))[0]
    await bind(bench.people, [(held, key)])
    return held


async def values(bench: Bench, held: StagedWrite, key: str | None = None) -> dict[str, str | None]:
    """What each token of a staged version resolves to now."""
    places = tuple(
        (name, kept.token) for name, all_kept in held.tokens.items() for kept in all_kept
    )
    revealed = await reveal_objects(bench.people, [AnswerObject(key, places)])
    return {
        name: value.text if value else None
        for (name, _), value in zip(places, revealed.values[0], strict=True)
    }


async def test_a_new_record_is_pending_until_it_is_bound_and_resolves_all_the_time() -> None:
    bench = await make_bench()
    held = (await stage_creates(bench.people, [draft(**ANN)], [None]))[0]
    row = (await bench.store.rows(bench.people.table, [held.rid]))[held.rid]
    assert (row.state, row.key) == (RowState.PENDING, None)
    assert (await values(bench, held))["name"] == "Ann"
    await bind(bench.people, [(held, "17")])
    row = (await bench.people.by_key(["17"]))["17"]
    assert (row.rid, row.state) == (held.rid, RowState.LIVE)
    assert bench.people.sealer.open_key(row) == "17"
    assert await values(bench, held, "17") == {**ANN, "tags": "b"}


async def test_new_records_of_one_request_get_small_tokens_that_differ_where_there_is_room() -> (
    None
):
    bench = await make_bench()
    held = await stage_creates(
        bench.people, [draft(born="1987-04-12") for _ in range(400)], [None] * 400
    )
    assert len({token(item, "born") for item in held}) == len({item.rid for item in held}) == 400
    assert (await bench.store.count(bench.people.table))[0] == 400


async def test_where_there_is_no_room_for_that_they_are_taken_all_the_same() -> None:
    usual = person()
    year = SHAPES["date"]({"from": "1980-01-01", "to": "1980-12-31"})
    bench = await make_bench(recipe=usual._replace(shapes={**usual.shapes, "born": year}))
    held = await stage_creates(
        bench.people, [draft(born="1987-04-12") for _ in range(400)], [None] * 400
    )
    assert (await bench.store.count(bench.people.table))[0] == len(held) == 400


async def test_an_update_gets_no_small_token_of_a_version_in_doubt() -> None:
    bench = await make_bench()
    await ann(bench)
    days = iter(["1950-01-01", "1950-01-01", "1950-01-01", "1960-01-01"])
    bench.people.mints["born"] = lambda *_: Value(next(days))
    first = (await stage_updates(bench.people, [("17", draft(born="1988-01-01"))]))[0]
    await doubt(bench.people, [first], answered=False)
    second = (await stage_updates(bench.people, [("17", draft(born="1989-01-01"))]))[0]
    assert [token(first, "born"), token(second, "born")] == ["1950-01-01", "1960-01-01"]


async def test_small_tokens_resolve_by_the_record_id_alone() -> None:
    bench = await make_bench()
    held = await ann(bench)
    assert (await values(bench, held, "17"))["born"] == "1987-04-12"
    assert (await values(bench, held))["born"] == "1987-04-12", (
        "the record is told by the other tokens of the object"
    )
    alone = AnswerObject(None, (("born", token(held, "born")),))
    assert (await reveal_objects(bench.people, [alone])).values == [[None]]


async def test_nothing_of_a_refused_create_stays() -> None:
    bench = await make_bench()
    held = (await stage_creates(bench.people, [draft(**ANN)], [None]))[0]
    await drop_staged(bench.people, [held])
    assert await bench.store.count(bench.people.table) == (0, 0, 0)
    assert set((await values(bench, held)).values()) == {None}
    assert not bench.people.state.in_flight


async def test_an_unchanged_update_stages_nothing_and_sends_the_same_tokens() -> None:
    bench = await make_bench()
    held = await ann(bench)
    again = (await stage_updates(bench.people, [("17", draft(**ANN))]))[0]
    assert again.sid is None
    assert again.tokens == held.tokens
    assert (await bench.store.count(bench.people.table))[2] == 0


async def test_both_versions_resolve_until_the_update_is_promoted() -> None:
    bench = await make_bench()
    old = await ann(bench)
    new = (
        await stage_updates(bench.people, [("17", draft(name="Anna", email="anna@example.com"))])
    )[0]
    assert token(new, "name") != token(old, "name")
    assert (await values(bench, old, "17"))["name"] == "Ann"
    assert (await values(bench, new, "17"))["name"] == "Anna"
    await promote(bench.people, new, {})
    assert (await values(bench, old, "17"))["name"] is None
    assert await values(bench, new, "17") == {"name": "Anna", "email": "anna@example.com"}
    assert (await values(bench, old, "17"))["phone"] == ANN["phone"]
    assert await bench.store.count(bench.people.table) == (1, 0, 0)


async def test_a_dropped_update_leaves_the_live_version_and_nothing_of_the_other() -> None:
    bench = await make_bench()
    old = await ann(bench)
    new = (await stage_updates(bench.people, [("17", draft(name="Anna", phone="0707654321"))]))[0]
    await drop_staged(bench.people, [new])
    assert (await values(bench, old, "17"))["name"] == "Ann"
    assert set((await values(bench, new, "17")).values()) == {None}
    digest = bench.people.token_hash("phone", token(new, "phone"))
    assert await bench.store.by_tokens(bench.people.table, [digest]) == {}


async def test_a_field_that_the_answer_shows_unchanged_keeps_its_old_value() -> None:
    bench = await make_bench()
    old = await ann(bench)
    new = (await stage_updates(bench.people, [("17", draft(name="Anna", phone="0707654321"))]))[0]
    await promote(
        bench.people, new, {"name": (token(old, "name"),), "phone": (token(new, "phone"),)}
    )
    assert (await values(bench, old, "17"))["name"] == "Ann"
    assert (await values(bench, new, "17"))["phone"] == "0707654321"


async def test_a_doubtful_update_keeps_both() -> None:
    bench = await make_bench()
    old = await ann(bench)
    new = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    await doubt(bench.people, [new], answered=False)
    assert (await values(bench, old, "17"))["name"] == "Ann"
    assert (await values(bench, new, "17"))["name"] == "Anna"
    staged = (await bench.store.staged(bench.people.table, [old.rid]))[old.rid][0]
    assert (staged.doubt, staged.answered) == (bench.clock(), False)


async def test_value_numbers_are_never_used_twice_while_versions_wait() -> None:
    bench = await make_bench()
    await ann(bench)
    first = (await stage_updates(bench.people, [("17", draft(name="A"))]))[0]
    await doubt(bench.people, [first], answered=True)
    second = (await stage_updates(bench.people, [("17", draft(name="B"))]))[0]
    assert token(first, "name") != token(second, "name")
    assert (await values(bench, first, "17"))["name"] == "A"
    assert (await values(bench, second, "17"))["name"] == "B"


async def test_an_update_of_an_unknown_id_creates_the_record() -> None:
    bench = await make_bench()
    held = (await stage_updates(bench.people, [("99", draft(name="Bo"))]))[0]
    assert (held.row, held.key) == (None, "99")
    await bind(bench.people, [(held, "99")])
    assert (await values(bench, held, "99"))["name"] == "Bo"


async def test_one_change_for_many_records_gives_all_of_them_the_same_tokens() -> None:
    bench = await make_bench()
    await ann(bench, "1")
    await ann(bench, "2")
    held = await stage_shared(bench.people, ["1", "2", "3"], draft(name="Team", tags=["x"]))
    assert len({token(item, "name") for item in held}) == 1
    for item in held[:2]:
        await promote(bench.people, item, {})
    await bind(bench.people, [(held[2], "3")])
    for key in ("1", "2", "3"):
        assert (await values(bench, held[0], key))["name"] == "Team"
    await deleted(bench.people, await stage_deletes(bench.people, ["1"]))
    assert (await values(bench, held[0], "2"))["name"] == "Team"
    assert (await values(bench, held[0]))["name"] == "Team"


async def test_a_deleted_record_is_gone_with_all_its_tokens() -> None:
    bench = await make_bench()
    held = await ann(bench)
    doomed = await stage_deletes(bench.people, ["17", "unknown"])
    assert (await values(bench, held, "17"))["name"] == "Ann"
    await deleted(bench.people, doomed)
    assert set((await values(bench, held, "17")).values()) == {None}
    assert await bench.store.count(bench.people.table) == (0, 0, 0)


async def test_a_refused_delete_leaves_the_record() -> None:
    bench = await make_bench()
    held = await ann(bench)
    await drop_staged(bench.people, await stage_deletes(bench.people, ["17"]))
    assert (await values(bench, held, "17"))["name"] == "Ann"
    assert await bench.store.count(bench.people.table) == (1, 0, 0)


async def test_an_id_that_the_application_gives_again_belongs_to_the_newer_record() -> None:
    bench = await make_bench()
    old = await ann(bench)
    new = (await stage_creates(bench.people, [draft(name="Bo")], [None]))[0]
    await bind(bench.people, [(new, "17")])
    assert (await bench.people.by_key(["17"]))["17"].rid == new.rid
    assert (await values(bench, old))["name"] == "Ann", "the older record's tokens still resolve"


async def test_an_expired_record_is_never_answered() -> None:
    bench = await make_bench(recipe=person(expires=1000))
    held = await ann(bench)
    bench.clock.advance(1000)
    assert set((await values(bench, held, "17")).values()) == {""}
    fresh = (await stage_updates(bench.people, [("17", draft(name="Bo"))]))[0]
    assert fresh.row is None


async def test_a_shape_that_is_full_is_an_error_and_nothing_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await make_bench()
    attempts = 0

    async def taken(_table: str, changes: Sequence[Change]) -> None:
        nonlocal attempts
        attempts += 1
        raise Conflict(changes[0])

    monkeypatch.setattr(bench.vault.both_roots, "commit", taken)
    with pytest.raises(VaultError) as caught:
        await stage_creates(bench.people, [draft(**ANN)], [None])
    assert caught.value.code is Code.SHAPE_FULL
    assert attempts > 1, "a colliding random token is tried again"
    assert not bench.people.state.in_flight


async def test_a_number_too_short_to_be_found_again_needs_the_id_in_every_answer() -> None:
    bench = await make_bench(recipe=person()._replace(addressed=False))
    with pytest.raises(VaultError) as caught:
        await stage_creates(bench.people, [draft(phone="12345")], [None])
    assert caught.value.code is Code.VALUE_UNFIT
    assert "12345" not in caught.value.message
    assert (await bench.store.count(bench.people.table))[0] == 0
