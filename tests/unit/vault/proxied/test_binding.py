import asyncio

import pytest

from proxy import offload
from proxy.storage.changes import Remove
from proxy.storage.rows import RowState
from proxy.vault.collection import HistoryPolicy
from proxy.vault.proxied.binding import StagedWrite, is_large, overtake
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import stage_creates
from tests.support.vaults import Bench, draft, make_bench

COUNT = 40


async def staged(bench: Bench) -> list[tuple[StagedWrite, str]]:
    drafts = [
        draft(name=f"Ann {number}", phone=f"+46 70 123 45 {number:02}") for number in range(COUNT)
    ]
    held = await stage_creates(bench.people, drafts, [None] * COUNT)
    return [(one, str(number)) for number, one in enumerate(held)]


async def states(bench: Bench, pairs) -> dict[str, RowState]:
    rows = await bench.store.rows(bench.people.table, [held.rid for held, _ in pairs])
    return {key: rows[held.rid].state for held, key in pairs}


async def test_many_records_get_their_names_at_once(monkeypatch):
    monkeypatch.setattr(offload, "SLICE", 0.0)
    bench = await make_bench()
    pairs = await staged(bench)

    await bind(bench.people, pairs)

    assert set((await states(bench, pairs)).values()) == {RowState.LIVE}
    assert set(await bench.people.by_key([key for _, key in pairs])) == {key for _, key in pairs}
    assert not bench.people.state.in_flight
    assert not any(is_large(held) for held, _ in pairs)


@pytest.mark.parametrize("key", ["0", str(COUNT - 1)])
async def test_a_delete_that_comes_while_names_are_sealed_is_not_overlooked(monkeypatch, key):
    monkeypatch.setattr(offload, "SLICE", 0.0)
    bench = await make_bench()
    pairs = await staged(bench)
    binding = asyncio.ensure_future(bind(bench.people, pairs))
    for _ in range(6):
        await asyncio.sleep(0)
    assert not binding.done()

    overtake(bench.people, [key])
    await binding

    found = await states(bench, pairs)
    assert found.pop(key) is RowState.PENDING
    assert set(found.values()) == {RowState.LIVE}
    assert bench.events["in_doubt"] == 1


async def test_a_binding_that_is_cancelled_before_its_commit_gives_no_names(monkeypatch):
    monkeypatch.setattr(offload, "SLICE", 0.0)
    bench = await make_bench()
    pairs = await staged(bench)
    binding = asyncio.ensure_future(bind(bench.people, pairs))
    await asyncio.sleep(0)
    binding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await binding

    assert set((await states(bench, pairs)).values()) == {RowState.PENDING}


async def test_a_record_that_loses_an_id_again_stays_in_the_history_where_it_is_already():
    bench = await make_bench()
    bench.people.context = bench.people.context._replace(history=HistoryPolicy(keep=1000))
    (first,) = await stage_creates(bench.people, [draft(name="Ann")], [None])
    await bind(bench.people, [(first, "1")])
    (second,) = await stage_creates(bench.people, [draft(name="Bo")], [None])
    await bind(bench.people, [(second, "1")])
    await bind(bench.people, [(first, "2")])
    (third,) = await stage_creates(bench.people, [draft(name="Cy")], [None])

    await bind(bench.people, [(third, "2")])

    found = await bench.people.by_key(["1", "2"])
    assert {key: row.rid for key, row in found.items()} == {"1": second.rid, "2": third.rid}
    past = await bench.store.past_scan(bench.people.table, (0, 0), 9)
    assert [(one.rid, one.key) for one in past] == [(first.rid, bench.people.key_hash("1"))]
    assert third.displaces


async def test_a_record_that_an_answer_has_named_meanwhile_keeps_that_name():
    bench = await make_bench()
    first, second = (held for held, _ in (await staged(bench))[:2])
    await bind(bench.people, [(first, "1")])

    await bind(bench.people, [(first, "2"), (second, "3")])

    found = await bench.people.by_key(["1", "2", "3"])
    assert {key: row.rid for key, row in found.items()} == {"1": first.rid, "3": second.rid}
    assert bench.events["in_doubt"] == 1


async def test_a_record_that_was_named_and_deleted_meanwhile_does_not_keep_others_from_theirs():
    bench = await make_bench()
    first, second = (held for held, _ in (await staged(bench))[:2])
    await bench.store.commit(bench.people.table, [Remove(first.rid)])

    await bind(bench.people, [(first, "1"), (second, "2")])

    found = await bench.people.by_key(["1", "2"])
    assert {key: row.rid for key, row in found.items()} == {"2": second.rid}
