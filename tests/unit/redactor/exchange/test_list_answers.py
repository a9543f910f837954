"""Lists that are restored page by page; that each is restored as any answer is, is a law."""

import json
from typing import Any

from proxy.redactor.exchange.list_answers import ListExchange
from tests.support.exchanges import JSON, Call, Desk, desk
from tests.support.table import table

FLAT = (
    "name: {kind: name}",
    "email: {kind: email, find: [exact]}",
    "pay: {kind: text, token: {shape: numeric}}",
)
RULES = (
    "{match: POST /p, create: p}",
    '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}',
    '{match: GET /p, read: p, response: {each: "$[*]", id: "$.url /p/{id}"}}',
)


def person(number: int) -> dict[str, Any]:
    return {"name": f'Ann "{number}"', "email": f"ann{number}@x.example", "pay": 10**9 + number}


async def people(count: int) -> tuple[Desk, list[dict[str, Any]]]:
    """An office, and what its application has of so many people; the shape of these is learnt."""
    one = await desk(*RULES[:2], fields=FLAT)
    stored = [await one.create(person(number), number) for number in range(1, count + 1)]
    for _ in range(5):
        await listed(one, stored[:2])
    return one, stored


async def listed(one: Desk, objects: Any) -> Any:
    return await (await one.send("GET /p")).seen(200, objects)


async def by_pages(one: Desk, objects: Any) -> Any:
    """The list as it is restored page by page; ``None`` where it is not."""
    call: Call = await one.send("GET /p")
    assert isinstance(call.exchange, ListExchange)
    body = json.dumps(objects, ensure_ascii=False).encode()
    answer = await call.answer(200, body)
    page = await call.exchange._by_pages(type(answer)(200, JSON, body))
    if page is not None:
        assert page.body == answer.body
    return None if page is None else json.loads(page.body)


async def test_a_long_list_is_restored_in_pages():
    one, stored = await people(230)
    wanted = [{**person(number), "id": number} for number in range(1, 231)]
    assert await by_pages(one, stored) == wanted


async def test_objects_of_several_shapes_stand_in_one_page():
    one, stored = await people(6)
    mixed = [
        {**stored[number], "more": [1]} if number % 2 else stored[number] for number in range(6)
    ]
    for _ in range(5):
        await listed(one, mixed)
    restored = await by_pages(one, mixed)
    assert [each["name"] for each in restored] == [person(number)["name"] for number in range(1, 7)]


async def test_a_list_of_one_object_is_a_page_of_one():
    one, stored = await people(3)
    assert await by_pages(one, stored[:1]) == [{**person(1), "id": 1}]


async def test_a_list_of_the_one_record_that_the_request_names_is_restored_as_any_answer():
    one = await desk(
        RULES[0],
        '{match: "GET /p/{id}", read: p, id: path id, response: {each: "$[*]"}}',
        fields=FLAT,
    )
    stored = [await one.create(person(number), number) for number in range(1, 3)]
    bare = [{name: each[name] for name in person(1)} for each in stored]
    for _ in range(5):
        await (await one.send("GET /p/1")).seen(200, bare[:1] * 2)
    call = await one.send("GET /p/1")
    assert isinstance(call.exchange, ListExchange)
    body = json.dumps(bare[:1]).encode()
    answer = await call.answer(200, body)
    assert json.loads(answer.body) == [person(1)]
    assert await call.exchange._by_pages(type(answer)(200, JSON, body)) is None
    assert await call.exchange._by_pages(type(answer)(200, JSON, json.dumps(bare).encode()))


async def test_what_is_no_list_is_restored_as_ever():
    one, stored = await people(3)
    assert await by_pages(one, []) is None
    assert await by_pages(one, stored[0]) is None
    assert await by_pages(one, "no object") is None


async def test_the_audit_log_names_each_record_that_was_shown():
    one, stored = await people(3)
    assert await by_pages(one, stored) is not None
    before = len(one.audit.lines)
    restored = await listed(one, [*stored, {"name": "Nobody", "email": "", "pay": None, "id": 9}])
    assert restored[3] == {"name": "Nobody", "email": "", "pay": None, "id": 9}
    (line,) = one.audit.lines[before:]
    assert line["event"] == "reveal"
    assert (line["count"], len(set(line["records"]))) == (3, 3)
    assert line["fields"] == ["email", "name", "pay"]


async def test_without_the_log_a_list_shows_tokens():
    one, stored = await people(3)
    call = await one.send("GET /p")
    one.audit.down = True
    assert await call.seen(200, stored) == stored


async def test_without_the_vault_a_list_shows_tokens():
    one, stored = await people(3)
    call = await one.send("GET /p")
    one.store.fail("by_keys", times=None)
    assert await call.seen(200, stored) == stored
    assert one.idle


async def test_ids_inside_addresses_tell_records():
    one = await desk(
        RULES[0],
        RULES[2],
        fields=FLAT,
    )
    stored = [await one.create(person(number), number) for number in range(1, 5)]
    shown = [{**each, "url": f"http://app/p/{each['id']}"} for each in stored]
    for _ in range(5):
        await listed(one, shown)
    restored = await by_pages(one, shown)
    assert [each["name"] for each in restored] == [person(number)["name"] for number in range(1, 5)]


@table(("count", "reads"), [(1000, 1), (1001, 2), (2500, 3)])
async def test_a_thousand_records_of_a_list_cost_one_read(count, reads):
    one, stored = await people(230)
    several = [stored[number % 230] for number in range(count)]
    one.store.calls.clear()
    seen = await listed(one, several)
    assert [record["name"] for record in seen] == [
        f'Ann "{number % 230 + 1}"' for number in range(count)
    ]
    assert one.store.calls == ["by_keys"] * reads


async def test_foreign_objects_of_a_long_list_are_told_apart_in_parts():
    one, stored = await people(230)
    shown = [{**each, "name": "Somebody Else"} if each["id"] % 2 else each for each in stored]
    wanted = [
        {**person(number), "id": number} | ({"name": "Somebody Else"} if number % 2 else {})
        for number in range(1, 231)
    ]
    assert await by_pages(one, shown) == wanted
