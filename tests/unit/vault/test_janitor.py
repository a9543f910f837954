from proxy.vault.janitor import pending, reap, sweep_expired
from proxy.vault.staging import bind, doubt, forget, stage_creates, stage_updates
from tests.support.vaults import draft, make_bench, person

WEEK = 7 * 86_400_000


async def test_expired_records_are_swept() -> None:
    bench = await make_bench(recipe=person(expires=1000))
    held = await stage_creates(bench.people, [draft(name=f"P{number}") for number in range(450)], [None] * 450)
    await bind(bench.people, [(item, str(number)) for number, item in enumerate(held)])
    assert await sweep_expired(bench.people) == 0
    bench.clock.advance(1000)
    assert await sweep_expired(bench.people) == 450
    assert await pending([bench.people]) == {"person": (0, 0, 0)}


async def test_what_stays_pending_is_reaped_after_its_time_and_not_before() -> None:
    bench = await make_bench()
    lost = (await stage_creates(bench.people, [draft(name="Lost")], [None]))[0]
    live = (await stage_creates(bench.people, [draft(name="Ann")], [None]))[0]
    await bind(bench.people, [(live, "17")])
    changed = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    await doubt(bench.people, [lost, changed], answered=False)
    bench.clock.advance(WEEK - 1)
    assert await reap(bench.people, WEEK) == 0
    bench.clock.advance(2)
    assert await reap(bench.people, WEEK) == 2
    assert await pending([bench.people]) == {"person": (1, 0, 0)}
    assert bench.events["reaped"] == 2


async def test_what_is_under_way_is_never_reaped() -> None:
    bench = await make_bench()
    held = await stage_creates(bench.people, [draft(name="Slow")], [None])
    bench.clock.advance(2 * WEEK)
    assert await reap(bench.people, WEEK) == 0
    forget(bench.people, held)
    assert await reap(bench.people, WEEK) == 1
