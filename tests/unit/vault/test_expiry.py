from typing import Any

import pytest

from proxy.storage.rows import RowState, StagedKind
from proxy.vault.collection import HistoryPolicy
from proxy.vault.expiry import delete_expired, pending, prune, reap
from proxy.vault.proxied.binding import forget_staged
from proxy.vault.proxied.deletes import reconcile_gone
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject, open_with_staged
from proxy.vault.proxied.reconcile import reconcile_objects
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import doubt, stage_creates, stage_updates
from proxy.vault.records.commit import locked, no_changes
from proxy.vault.records.history import record_versions
from proxy.vault.records.update import change_records
from proxy.vault.seal import Tampered
from tests.support.contacts import Contacts, contact, make_contacts
from tests.support.memory import MemoryStore
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, person, token

WEEK = 7 * 86_400_000


async def test_expired_records_are_swept() -> None:
    bench = await make_bench(recipe=person(expires=1000))
    held = await stage_creates(
        bench.people, [draft(name=f"P{number}") for number in range(450)], [None] * 450
    )
    await bind(bench.people, [(item, str(number)) for number, item in enumerate(held)])
    assert await delete_expired(bench.people) == 0
    bench.clock.advance(1000)
    assert await delete_expired(bench.people) == 450
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
    forget_staged(bench.people, held)
    assert await reap(bench.people, WEEK) == 1


async def dropped_later(bench: Bench, **doubtful: str) -> str:
    """A record with an update in doubt, whose time is over; the name's token in that."""
    (made,) = await stage_creates(bench.people, [draft(name="Ann", email="a@x.org")], [None])
    await bind(bench.people, [(made, "1")])
    changed = await stage_updates(bench.people, [("1", draft(**doubtful))])
    await doubt(bench.people, changed, answered=True)
    bench.clock.advance(2 * WEEK)
    return token(changed[0], "name")


async def test_no_later_value_gets_the_token_of_a_version_that_was_dropped() -> None:
    bench = await make_bench()
    dropped = await dropped_later(bench, name="Anna")
    (before,) = await bench.store.scan(bench.people.table, 0, 10)
    assert await reap(bench.people, WEEK) == 1
    (row,) = await bench.store.scan(bench.people.table, 0, 10)
    # nothing but the number is another, and not the version: promised deletes count by that
    assert row == before._replace(body=row.body, staged=0)
    content, key = bench.people.sealer.open_with_key(row)
    assert (content.values["name"][0].text, key) == ("Ann", "1")
    (changed,) = await stage_updates(bench.people, [("1", draft(name="Bo"))])
    assert token(changed, "name") != dropped


async def test_nor_that_of_one_that_an_answer_ended_or_put_another_in_place_of() -> None:
    bench = await make_bench()
    first = await dropped_later(bench, name="Anna")
    second = await stage_updates(bench.people, [("1", draft(name="Annie"))])
    await doubt(bench.people, second, answered=True)
    bench.clock.advance(1)
    for shown in (first, first):  # it becomes the live one, then the later one ends
        objects = [AnswerObject("1", (("name", shown),))]
        await reconcile_objects(
            bench.people, objects, await reveal_objects(bench.people, objects), bench.clock()
        )
        bench.clock.advance(1)
    assert await pending([bench.people]) == {"person": (1, 0, 0)}
    (changed,) = await stage_updates(bench.people, [("1", draft(name="Bo"))])
    assert token(changed, "name") not in (first, token(second[0], "name"))


async def test_a_record_that_nobody_showed_goes_with_the_changes_in_doubt_beside_it() -> None:
    bench = await make_bench()
    (lost,) = await stage_creates(bench.people, [draft(name="Lost")], [None])
    await doubt(bench.people, [lost], answered=False)
    (change,) = await stage_updates(
        bench.people, [("1", draft(name=token(lost, "name"), email="l@x.org"))]
    )
    assert change.rid == lost.rid
    await doubt(bench.people, [change], answered=False)
    bench.clock.advance(2 * WEEK)
    await reap(bench.people, WEEK)
    assert await pending([bench.people]) == {"person": (0, 0, 0)}


async def test_what_stands_beside_a_locked_record_is_left_to_the_next_sweep() -> None:
    bench = await make_bench()
    await dropped_later(bench, name="Anna")
    locks, key = bench.people.state.locks, bench.people.key_hash("1")
    assert await locks.attempt(key)
    assert await reap(bench.people, WEEK) == 0
    locks.release([key])
    assert await reap(bench.people, WEEK) == 1


@table(
    "columns", [{"expires_at": 1 << 50}, {"updated_at": 1}, {"created_at": 1}, {"key": bytes(16)}]
)
async def test_a_row_whose_columns_were_changed_is_not_sealed_anew(columns) -> None:
    bench = await make_bench()
    await dropped_later(bench, name="Anna")
    (before,) = await bench.store.scan(bench.people.table, 0, 10)
    await changed(bench, before.rid, **columns)
    assert await reap(bench.people, WEEK) == 0
    assert bench.events["tampered"] == 1
    assert await bench.store.scan(bench.people.table, 0, 10) == [before._replace(**columns)]
    await changed(bench, before.rid, **{name: getattr(before, name) for name in columns})
    assert await reap(bench.people, WEEK) == 1


async def test_a_record_that_is_being_changed_is_left_to_the_next_sweep() -> None:
    contacts = await make_contacts()
    await contacts.add(*[contact(key, expires_at=contacts.clock()) for key in "ab"])
    collection = contacts.records.collection
    async with locked(contacts.records, [collection.key_hash("a")]):
        assert await delete_expired(collection) == 1
        assert await delete_expired(collection) == 0
    assert await delete_expired(collection) == 1


class PuttingOff(MemoryStore):
    """Lets the end of a record be put off between the sweep's question and its look."""

    contacts: Contacts | None = None

    async def expired(self, table: str, now: int, limit: int) -> list[int]:
        rids = await super().expired(table, now, limit)
        if self.contacts is not None:
            contacts, self.contacts = self.contacts, None
            contacts.clock.advance(-1)
            await change_records(contacts.records, [contact("a", expires_at=None)], "x", no_changes)
            contacts.clock.advance(1)
        return rids


async def test_a_record_whose_end_was_put_off_meanwhile_stays() -> None:
    contacts = await make_contacts(store := PuttingOff())
    await contacts.add(*[contact(key, expires_at=contacts.clock() + 1) for key in "ab"])
    contacts.clock.advance(1)
    store.contacts = contacts
    assert await delete_expired(contacts.records.collection) == 1
    assert await contacts.keys("a", "b") == ["a"]


async def test_past_versions_are_forgotten_when_they_have_been_past_for_long_enough() -> None:
    contacts = await make_contacts(history=HistoryPolicy(keep=1000))
    await contacts.add(contact("a", age=1))
    contacts.clock.advance(5000)
    for age in (2, 3):
        contacts.clock.advance(500)
        await change_records(contacts.records, [contact("a", age=age)], "x", no_changes)
    collection = contacts.records.collection
    contacts.clock.advance(500)
    assert await prune(collection) == 0
    contacts.clock.advance(1)
    assert await prune(collection) == 1
    assert [one.version for one in (await record_versions(contacts.records, "a", 10, 0))[0]] == [
        3,
        2,
    ]


async def test_a_whole_backlog_is_pruned() -> None:
    contacts = await make_contacts(history=HistoryPolicy(keep=1))
    await contacts.add(*[contact(str(number)) for number in range(250)])
    await change_records(
        contacts.records, [contact(str(number)) for number in range(250)], "x", no_changes
    )
    contacts.clock.advance(2)
    assert await prune(contacts.records.collection) == 250


async def changed(bench: Bench, rid: int, **columns: Any) -> None:
    """Somebody writes columns of a row in the store, without a key."""
    rows = bench.store._tables[bench.people.table].rows  # type: ignore[attr-defined]  # in memory
    rows[rid] = rows[rid]._replace(**columns)


@table(
    "columns",
    [
        {"state": RowState.PENDING, "key": None, "updated_at": 1},
        {"state": RowState.PENDING, "key": None, "key_sealed": None, "updated_at": 1},
        {"expires_at": 1},
        {"updated_at": 1},
        {"created_at": 1},
        {"state": RowState.PENDING},
    ],
)
async def test_a_collected_row_whose_columns_were_changed_is_neither_reaped_nor_swept(columns):
    bench = await make_bench()
    (held,) = await stage_creates(bench.people, [draft(name="Ann", born="1980-01-31")], [None])
    await bind(bench.people, [(held, "1")])
    await changed(bench, held.rid, **columns)
    bench.clock.advance(30 * 86_400_000)
    assert await delete_expired(bench.people) == await reap(bench.people, 1) == 0
    (row,) = await bench.store.scan(bench.people.table, 0, 10)
    with pytest.raises(Tampered):
        bench.people.sealer.open_with_key(row)
    assert await open_with_staged(bench.people, (), [row]) == {}
    assert bench.events["tampered"] > 0


async def test_a_refused_row_whose_state_was_changed_is_no_record():
    bench = await make_bench()
    (held,) = await stage_creates(bench.people, [draft(name="Ann")], [None])
    await changed(bench, held.rid, state=RowState.LIVE)
    (row,) = await bench.store.scan(bench.people.table, 0, 10)
    with pytest.raises(Tampered):
        bench.people.sealer.open_with_key(row)


async def test_a_staged_update_that_was_made_a_delete_ends_nothing():
    bench = await make_bench()
    (held,) = await stage_creates(bench.people, [draft(name="Ann")], [None])
    await bind(bench.people, [(held, "1")])
    updates = await stage_updates(bench.people, [("1", draft(name="Anna"))])
    await doubt(bench.people, updates, answered=True)
    staged = bench.store._tables[bench.people.table].staged  # type: ignore[attr-defined]  # in memory
    for sid, change in staged.items():
        staged[sid] = change._replace(kind=StagedKind.DELETE)
    bench.clock.advance(1)
    await reconcile_gone(bench.people, ["1"], bench.clock())
    assert len(await bench.store.scan(bench.people.table, 0, 10)) == 1
    assert bench.events["tampered"] == 1
