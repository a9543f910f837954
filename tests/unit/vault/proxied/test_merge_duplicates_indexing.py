"""The token index holds what some version of a record has, and nothing else."""

from proxy.vault.expiry import reap
from proxy.vault.proxied.binding import StagedWrite
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reconcile import reconcile_objects
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import doubt, drop_staged, promote, stage_creates, stage_updates
from tests.support.vaults import Bench, draft, make_bench, token

WEEK = 7 * 86_400_000
OLD, NEW, OTHER = "old@example.com", "new@example.com", "other@example.com"


async def record(bench: Bench, **values: str) -> StagedWrite:
    held = (await stage_creates(bench.people, [draft(**values)], [None]))[0]
    await bind(bench.people, [(held, "17")])
    return held


async def update(bench: Bench, **values: str) -> StagedWrite:
    bench.clock.advance(1)
    return (await stage_updates(bench.people, [("17", draft(**values))]))[0]


async def entries(bench: Bench, *held: StagedWrite) -> list[bool]:
    """Whether the token index has the e-mail token of each."""
    hashes = [bench.people.token_hash("email", token(one, "email")) for one in held]
    found = await bench.store.by_tokens(bench.people.table, hashes)
    return [digest in found for digest in hashes]


async def show(bench: Bench, held: StagedWrite) -> None:
    bench.clock.advance(1)
    shown = [AnswerObject("17", (("email", token(held, "email")),))]
    await reconcile_objects(
        bench.people, shown, await reveal_objects(bench.people, shown), bench.clock()
    )


async def test_a_refused_change_leaves_what_a_doubtful_one_has_too() -> None:
    bench = await make_bench()
    old = await record(bench, email=OLD)
    doubtful = await update(bench, email=NEW)
    await doubt(bench.people, [doubtful], answered=False)
    refused = await update(bench, email=NEW)
    await drop_staged(bench.people, [refused])
    assert await entries(bench, old, doubtful) == [True, True]
    shown = AnswerObject(None, (("email", token(doubtful, "email")),))
    assert [
        value and value.text for value in (await reveal_objects(bench.people, [shown])).values[0]
    ] == [NEW]


async def test_a_refused_change_takes_its_entries_along() -> None:
    bench = await make_bench()
    old = await record(bench, email=OLD)
    first = await update(bench, email=NEW)
    await drop_staged(bench.people, [first])
    doubtful = await update(bench, email=NEW)
    await doubt(bench.people, [doubtful], answered=False)
    refused = await update(bench, email=OTHER)
    await drop_staged(bench.people, [refused])
    assert await entries(bench, old, doubtful, refused) == [True, True, False]


async def test_a_change_that_is_taken_beside_a_doubtful_one_leaves_only_what_is_needed() -> None:
    bench = await make_bench()
    old = await record(bench, email=OLD)
    doubtful = await update(bench, email=NEW)
    await doubt(bench.people, [doubtful], answered=False)
    taken = await update(bench, email=OTHER)
    await promote(bench.people, taken, {})
    assert await entries(bench, old, doubtful, taken) == [False, True, True]


async def test_what_an_answer_decides_leaves_no_entries_behind() -> None:
    bench = await make_bench()
    old = await record(bench, email=OLD)
    doubtful = await update(bench, email=NEW)
    await doubt(bench.people, [doubtful], answered=True)
    await show(bench, doubtful)
    assert await entries(bench, old, doubtful) == [False, True]
    again = await update(bench, email=OTHER)
    await doubt(bench.people, [again], answered=True)
    await show(bench, doubtful)
    assert await entries(bench, doubtful, again) == [True, False]


async def test_while_the_record_is_being_changed_its_entries_stay() -> None:
    bench = await make_bench()
    old = await record(bench, email=OLD)
    doubtful = await update(bench, email=NEW)
    await doubt(bench.people, [doubtful], answered=True)
    locks = bench.people.state.locks
    held = await locks.acquire([bench.people.key_hash("17")])
    await show(bench, doubtful)
    assert await entries(bench, old, doubtful) == [True, True]
    locks.release(held)
    assert len(locks) == 0


async def test_what_is_reaped_leaves_no_entries_behind() -> None:
    bench = await make_bench()
    old = await record(bench, email=OLD)
    reaped = await update(bench, email=NEW)
    await doubt(bench.people, [reaped], answered=False)
    bench.clock.advance(WEEK)
    younger = await update(bench, email=OTHER)
    await doubt(bench.people, [younger], answered=False)
    assert await reap(bench.people, WEEK - 1) == 1
    assert await entries(bench, old, reaped, younger) == [True, False, True]
    assert len(bench.people.state.locks) == 0


async def test_tokens_of_a_field_that_the_rules_have_lost_stay() -> None:
    bench = await make_bench()
    await record(bench, email=OLD, name="Ann")
    del bench.people.tokenizers["name"]  # as a collection of other rules has it
    changed = await update(bench, email=NEW)
    await promote(bench.people, changed, {})
    assert (await bench.store.count(bench.people.table)) == (1, 0, 0)
