"""Deletes in doubt, decided by lists of all records that lack one."""

import asyncio
from typing import Any

import pytest

from proxy.errors import VaultError
from proxy.redactor.message import RawHeaders
from proxy.vault.proxied.deletes import OLDEST_LIST
from tests.support.exchanges import JSON, USUAL, Desk, desk
from tests.support.table import table

LIST = '{match: GET /p, read: p, query: {email: {field: email}}, response: {each: "$[*]", id: $.id, complete: true}}'
INNER = '{match: GET /p, read: p, response: {each: "$.items[*]", id: $.id, complete: true, carriers: [$.next]}}'
BOTH = (2, 0, 1)  #: records, of them pending, changes in doubt: nothing was decided
ONE = (1, 0, 0)  #: the record is gone


async def doubted(listed: str = LIST, more: str = "") -> tuple[Desk, list[dict[str, Any]]]:
    """Two records, a delete of the second one in doubt, an hour later."""
    operations = [listed if "GET /p," in one else one for one in USUAL]
    one = await desk(*operations, more=more)
    stored = [await one.create({"name": name}, ident) for ident, name in ((1, "Ann"), (2, "Bo"))]
    call = await one.send("DELETE /p/2")
    await call.answer(500)
    one.clock.advance(OLDEST_LIST)
    assert await one.counts() == BOTH
    return one, stored


async def listed(
    one: Desk,
    body: Any,
    match: str = "GET /p",
    *,
    headers: RawHeaders = (),
    back: RawHeaders = (),
    status: int = 200,
) -> Any:
    call = await one.send(match, b"", headers)
    answer = await call.answer(status, body, (*JSON, *back))
    assert one.idle
    return answer


async def test_what_a_list_of_all_records_lacks_has_been_deleted():
    one, (ann, bo) = await doubted()
    assert b'"Ann"' in (await listed(one, [ann])).body
    assert await one.counts() == ONE
    assert await one.shown(bo, "GET /p/2") == bo
    assert await one.shown(ann) == {"name": "Ann", "id": 1}
    assert one.events["reconciled"] == 1


@table("hours", [0, 1])
async def test_a_list_that_shows_the_record_leaves_it(hours):
    one, (ann, bo) = await doubted()
    one.clock.advance(hours * 3_600_000)
    await listed(one, [ann, {**bo, "id": "02"}])
    assert (await one.counts())[0] == 2


async def test_a_rule_that_does_not_say_it_decides_nothing_by_absence():
    one, (ann, _) = await doubted(LIST.replace(", complete: true", ""))
    await listed(one, [ann])
    assert await one.counts() == BOTH


@table(
    ("match", "headers"),
    [
        ("GET /p?email=ann@example.com", ()),
        ("GET /p?", ()),
        ("GET /p/", ()),
        ("GET //p", ()),
        ("GET /p;limit=1", ()),
        ("HEAD /p", ()),
        ("GET /p", ((b"Range", b"items=0-1"),)),
        ("GET /p", ((b"Prefer", b"maxpagesize=1"),)),
        ("GET /p", ((b"X-Tenant", b"7"),)),
        ("GET /p", ((b"X-Http-Method-Override", b"GET"),)),
    ],
)
async def test_a_request_that_may_choose_some_records_decides_nothing(match, headers):
    one, (ann, _) = await doubted()
    await listed(one, [ann], match, headers=headers)
    assert await one.counts() == BOTH


@table(
    "back",
    [
        (b"Age", b"3"), (b"Content-Range", b"items 0-0/2"), (b"Link", b'</p?page=2>; rel="next"'), (b"X-Total-Count", b"2"),
        (b"Next-Page", b"http://app/p?page=2"), (b"X-Cache", b"HIT from squid"), (b"Date", b"Tue, 14 Nov 2023 22:13:20 GMT"),
        (b"Date", b"yesterday"), (b"Warning", b"110 - stale"), (b"X-Per-Page", b"1"), (b"X-Has-More", b"true"),
    ],

)  # fmt: skip
async def test_the_head_of_an_answer_that_tells_of_a_part_or_a_copy_decides_nothing(back):
    one, (ann, _) = await doubted()
    await listed(one, [ann], back=(back,))
    assert await one.counts() == BOTH


@table(
    ("body", "status"),
    [
        ([], 200),  # perhaps of a caller who may see nobody
        ([{"id": 9}], 200),  # ids that the vault does not know
        ([{"id": 1}, {"name": "no id"}], 200),
        ([{"id": 1}, None], 200),
        ([{"id": 1}], 206),
        ([{"id": 1}], 203),
        ([{"id": 1}], 404),
        (b'[{"id": 1}', 200),
        (b'[{"id": 1, "id": 1}]', 200),
        (b')]}\',\n[{"id": 1}]', 200),
        ({"items": [{"id": 1}]}, 200),
    ],
)
async def test_an_answer_that_is_no_list_of_all_records_decides_nothing(body, status):
    one, _ = await doubted()
    await listed(one, body, status=status)
    assert await one.counts() == BOTH


@table(
    ("beside", "decides"),
    [
        ({}, True), ({"next": None}, True), ({"next": ""}, True), ({"total": 1, "limit": 50}, True), ({"page": {"hasMore": False}}, True),
        ({"next": "/p?page=2"}, False), ({"total": 2}, False), ({"limit": 1}, False), ({"page": {"hasNextPage": True}}, False),
        ({"meta": [{"cursor": "x"}]}, False), ({"@odata.nextLink": "/p"}, False), ({"totalResults": 7}, False),
    ],

)  # fmt: skip
async def test_members_beside_the_list_that_tell_of_more_decide_nothing(beside, decides):
    one, (ann, _) = await doubted(INNER)
    await listed(one, {"items": [ann], **beside})
    assert await one.counts() == (ONE if decides else BOTH)


async def test_a_list_that_was_asked_for_before_the_delete_was_in_doubt_decides_nothing():
    one, (ann, _) = await doubted()
    early = await one.send("GET /p")
    one.clock.advance(1)
    await (await one.send("DELETE /p/1")).answer(500)
    await early.answer(200, [{"id": 2}], JSON)
    assert await one.counts() == (2, 0, 2)
    one.clock.advance(1)
    await listed(one, [ann])  # which shows that the other delete was not carried out
    assert await one.counts() == ONE


async def test_a_record_that_changed_lately_may_be_missing_in_a_cached_list():
    one = await desk(*[LIST if "GET /p," in rule else rule for rule in USUAL])
    ann, _ = [await one.create({"name": name}, ident) for ident, name in ((1, "Ann"), (2, "Bo"))]
    await (await one.send("DELETE /p/2")).answer(500)
    one.clock.advance(OLDEST_LIST - 3)
    await listed(one, [ann])
    assert await one.counts() == BOTH
    one.clock.advance(1)
    await listed(one, [ann])
    assert await one.counts() == ONE


async def test_a_change_under_way_or_in_doubt_keeps_the_record():
    one, (ann, _) = await doubted()
    change = await one.send("PATCH /p/2", {"name": "Bob"})
    await (await one.send("GET /p")).answer(200, [ann], JSON)
    assert await one.counts() == (2, 0, 2)
    await change.answer(502)
    one.clock.advance(1)
    await listed(one, [ann])
    assert await one.counts() == (2, 0, 2)
    shown = await one.shown({**change.json, "id": 2}, "GET /p/2")
    assert shown == {"name": "Bob", "id": 2}


async def test_a_delete_under_way_is_decided_by_its_own_answer():
    one = await desk(*[LIST if "GET /p," in rule else rule for rule in USUAL])
    ann, _ = [await one.create({"name": name}, ident) for ident, name in ((1, "Ann"), (2, "Bo"))]
    one.clock.advance(OLDEST_LIST)
    call = await one.send("DELETE /p/2")
    await (await one.send("GET /p")).answer(200, [ann], JSON)
    assert await one.counts() == BOTH
    await call.answer(409)
    assert await one.counts() == (2, 0, 0)


async def test_what_another_process_left_is_decided_likewise():
    """As after a kill: nobody marked the delete as in doubt."""
    before, (ann, _) = await doubted()
    await before.send("DELETE /p/1")
    rules = [LIST if "GET /p," in rule else rule for rule in USUAL]
    one = await desk(*rules, before=before)
    one.clock.advance(1)
    await listed(one, [ann])
    assert (await one.counts())[0] == 1


async def test_what_is_marked_as_deleted_is_in_no_list_and_stays():
    binned = '{match: "DELETE /p/{id}", delete: p, keep: 30d}'
    rules = [LIST if "GET /p," in rule else rule for rule in USUAL if "DELETE" not in rule]
    one = await desk(*rules, binned, '{match: "DELETE /bin/{id}", delete: p}')
    ann, bo = [await one.create({"name": name}, ident) for ident, name in ((1, "Ann"), (2, "Bo"))]
    await (await one.send("DELETE /p/2")).answer(204)
    await (await one.send("DELETE /bin/2")).answer(500)
    one.clock.advance(OLDEST_LIST)
    await listed(one, [ann])
    assert await one.counts() == BOTH
    assert await one.shown(bo, "GET /p/2") == {"name": "Bo", "id": 2}


async def test_a_mark_in_doubt_is_made():
    binned = '{match: "DELETE /p/{id}", delete: p, keep: 30d}'
    rules = [LIST if "GET /p," in rule else rule for rule in USUAL if "DELETE" not in rule]
    one = await desk(*rules, binned, '{match: "DELETE /bin/{id}", delete: p}')
    ann, _ = [await one.create({"name": name}, ident) for ident, name in ((1, "Ann"), (2, "Bo"))]
    await (await one.send("DELETE /p/2")).answer(500)
    one.clock.advance(OLDEST_LIST)
    await listed(one, [ann])
    rows = await one.people.by_key(["2"])
    assert one.people.sealer.open(rows["2"]).deleted == one.clock()
    assert await one.counts() == (2, 0, 0)


async def test_without_a_delete_under_way_nothing_more_is_asked():
    one, (ann, _) = await doubted()
    await listed(one, [ann])
    asked: list[str] = []
    store = one.people.store

    class Counting:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(store, name)

    one.people.store = Counting()
    await listed(one, [ann])
    await listed(one, [ann])
    assert asked.count("unsettled") == 1
    await (await one.send("DELETE /p/1")).answer(500)
    one.clock.advance(1)
    await listed(one, [ann])
    assert asked.count("unsettled") == 2


async def test_a_vault_that_is_down_shows_the_list_all_the_same():
    one, (ann, _) = await doubted()
    one.store.fail("unsettled")
    assert (await listed(one, [ann])).status == 200
    assert await one.counts() == BOTH
    await listed(one, [ann])
    assert await one.counts() == ONE


async def test_callers_under_views_settle_it_too_but_those_who_see_nothing():
    views = "views: [{who: [a], p: mask}, {who: [b], p: token}]"
    one, (ann, _) = await doubted(more=views)
    for role, counts in (("b", BOTH), ("a", ONE)):
        call = await one.send("GET /p", view=one.view(role))
        await call.answer(200, [ann], JSON)
        assert await one.counts() == counts


async def test_a_404_erases_nothing_that_is_being_changed():
    one, _ = await doubted()
    change = await one.send("PATCH /p/2", {"name": "Bob"})
    read = await one.send("GET /p/2")
    await read.answer(404)
    await change.answer(200, {**change.json, "id": 2})
    assert await one.shown({**change.json, "id": 2}, "GET /p/2") == {"name": "Bob", "id": 2}
    assert one.idle


async def test_many_lists_at_once_settle_it_once():
    one, (ann, _) = await doubted()
    calls = [await one.send("GET /p") for _ in range(8)]
    await asyncio.gather(*(call.answer(200, [ann], JSON) for call in calls))
    assert await one.counts() == ONE
    with pytest.raises(VaultError):
        await one.send("PATCH /p/1", b"{")
    assert one.idle
