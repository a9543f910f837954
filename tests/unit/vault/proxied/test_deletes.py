import asyncio
from typing import Any

import pytest

from proxy.storage.changes import Conflict
from proxy.vault.expiry import delete_expired
from proxy.vault.proxied.binding import StagedWrite, forget_staged
from proxy.vault.proxied.deletes import deleted, reconcile_gone
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reconcile import reconcile_objects
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import (
    doubt,
    promote,
    stage_creates,
    stage_deletes,
    stage_updates,
)
from tests.support.exchanges import desk
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, person, token

DAY = 86_400_000


async def made(expires: int | None = None) -> Bench:
    """A vault with one record, bound to 17."""
    bench = await make_bench(recipe=person(expires))
    held = (await stage_creates(bench.people, [draft(name="Ann")], [None]))[0]
    await bind(bench.people, [(held, "17")])
    return bench


async def end(bench: Bench) -> tuple[int | None, int] | None:
    """When the record ends and when it was marked; ``None``: there is none."""
    rows = await bench.people.by_key(["17"])
    if not rows:
        return None
    return rows["17"].expires_at, bench.people.sealer.open(rows["17"]).deleted


async def delete(bench: Bench, keep: int | None) -> None:
    await deleted(bench.people, await stage_deletes(bench.people, ["17", "unknown"], keep))


async def change(bench: Bench, **fields: Any) -> None:
    (held,) = await stage_updates(bench.people, [("17", draft(**fields))])
    await promote(bench.people, held, {})
    forget_staged(bench.people, [held])


async def test_what_is_marked_stays_as_long_as_its_rule_says() -> None:
    bench = await made()
    now = bench.clock()
    await delete(bench, 30 * DAY)
    assert await end(bench) == (now + 30 * DAY, now)
    assert await bench.store.count(bench.people.table) == (1, 0, 0)
    assert (bench.events["marked"], bench.events["deleted"]) == (1, 0)
    bench.clock.advance(30 * DAY - 1)
    assert await delete_expired(bench.people) == 0
    bench.clock.advance(1)
    assert await end(bench) is None
    assert await delete_expired(bench.people) == 1
    assert await bench.store.count(bench.people.table) == (0, 0, 0)


async def test_what_stays_until_another_delete_goes_with_that() -> None:
    bench = await made()
    now = bench.clock()
    await delete(bench, 0)
    assert await end(bench) == (None, now)
    await delete(bench, None)
    assert await bench.store.count(bench.people.table) == (0, 0, 0)


@table(
    ("expires", "first", "second", "days"),
    [(None, 10, 30, 10), (None, 30, 10, 15), (None, 0, 10, 15), (8 * DAY, 30, 30, 8)],
)
async def test_a_second_mark_and_a_rule_that_expires_put_off_nothing(
    expires: int | None, first: int, second: int, days: int
) -> None:
    bench = await made(expires)
    now = bench.clock()
    await delete(bench, first * DAY)
    bench.clock.advance(5 * DAY)
    await delete(bench, second * DAY)
    assert await end(bench) == (now + days * DAY, now)


@table("fields", [{}, {"name": "Ann"}, {"name": "Anna"}])
@table("expires", [None, 100 * DAY])
async def test_an_update_gives_the_record_back(expires: int | None, fields: dict[str, str]) -> None:
    bench = await made(expires)
    await delete(bench, 30 * DAY)
    bench.clock.advance(DAY)
    await change(bench, **fields)
    assert await end(bench) == (None if expires is None else bench.clock() + expires, 0)


async def test_a_mark_in_doubt_is_made_where_the_application_says_that_the_record_is_gone() -> None:
    bench = await made()
    for keep in (30 * DAY, 20 * DAY):
        await doubt(bench.people, await stage_deletes(bench.people, ["17"], keep), answered=True)
    assert await end(bench) == (None, 0)
    bench.clock.advance(DAY)
    await reconcile_gone(bench.people, ["17"], bench.clock())
    assert await end(bench) == (bench.clock() + 20 * DAY, bench.clock())
    assert await bench.store.count(bench.people.table) == (1, 0, 0)


@table("keep", [None, 0, DAY])
async def test_the_usual_path_of_a_marked_record_says_nothing_of_a_later_delete_in_doubt(
    keep: int | None,
) -> None:
    """It is answered with 404 because the record is in the bin."""
    bench = await made()
    now = bench.clock()
    await delete(bench, 30 * DAY)
    await doubt(bench.people, await stage_deletes(bench.people, ["17"], keep), answered=True)
    await reconcile_gone(bench.people, ["17"], bench.clock())
    assert await end(bench) == (now + 30 * DAY, now)
    await change(bench)
    assert await end(bench) == (None, 0), "given back"


async def test_what_is_shown_leaves_a_mark_in_doubt_for_a_bin_shows_it_too() -> None:
    bench = await made()
    (held,) = await stage_updates(bench.people, [("17", draft(name="Anna"))])
    await promote(bench.people, held, {})
    forget_staged(bench.people, [held])
    await doubt(bench.people, await stage_deletes(bench.people, ["17"], DAY), answered=True)
    bench.clock.advance(1)
    shown = [AnswerObject("17", (("name", token(held, "name")),))]
    revealed = await reveal_objects(bench.people, shown)
    await reconcile_objects(bench.people, shown, revealed, bench.clock())
    assert await bench.store.count(bench.people.table) == (1, 0, 1)
    await reconcile_gone(bench.people, ["17"], bench.clock())
    assert await end(bench) == (bench.clock() + DAY, bench.clock())


@table("before", [True, False])
async def test_an_update_in_doubt_that_was_taken_gives_back_what_was_marked_before_it(
    before: bool,
) -> None:
    bench = await made()
    if before:
        await delete(bench, DAY)
    bench.clock.advance(1)
    (held,) = await stage_updates(bench.people, [("17", draft(name="Anna"))])
    await doubt(bench.people, [held], answered=True)
    bench.clock.advance(1)
    if not before:
        await delete(bench, DAY)
    marked = bench.clock()
    shown = [AnswerObject("17", (("name", token(held, "name")),))]
    bench.clock.advance(1)
    await reconcile_objects(
        bench.people, shown, await reveal_objects(bench.people, shown), bench.clock()
    )
    rows = await bench.people.by_key(["17"])
    assert bench.people.sealer.open(rows["17"]).values["name"][0].text == "Anna"
    assert await end(bench) == ((None, 0) if before else (marked + DAY, marked))


async def test_what_changes_under_a_mark_is_marked_as_it_is_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await made()
    held = await stage_deletes(bench.people, ["17"], DAY)
    commit, refused = bench.store.commit, list[int]()

    async def once(table: str, changes: Any) -> None:
        if not refused:
            refused.append(1)
            raise Conflict(changes[0])
        await commit(table, changes)

    monkeypatch.setattr(bench.store, "commit", once)
    await deleted(bench.people, held)
    assert await end(bench) == (bench.clock() + DAY, bench.clock())
    await deleted(bench.people, [StagedWrite(4711, None, {}, None, sid=1, key="gone", keep=DAY)])
    assert await bench.store.count(bench.people.table) == (1, 0, 0)


@table("answered", [True, False])
async def test_a_record_that_gets_its_id_while_a_delete_looks_for_it_goes_with_that(
    answered: bool,
) -> None:
    """The delete had found nothing, and the answer that gave the id knew of no delete."""
    clerk = await desk()
    create = await clerk.send("POST /p", {"name": "Zorbina Quibblethwaite"})
    await create.exchange.failed(True)
    read = await clerk.send("GET /p/1")
    gate = clerk.store.pause("by_keys", late=True)
    deleting = asyncio.create_task(clerk.send("DELETE /p/1"))
    await gate.reached()
    assert (await read.seen(200, {**create.json, "id": 1}))["name"] == "Zorbina Quibblethwaite"
    gate.open()
    delete = await deleting
    if answered:
        await delete.answer(204)
    else:  # its process ends
        clerk = await desk(before=clerk)
        await (await clerk.send("GET /p/1")).answer(404, {"error": "not found"})
    assert await clerk.counts() == (0, 0, 0)
