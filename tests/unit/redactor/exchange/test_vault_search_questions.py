"""Searches that the vault answers, over a vault in memory: ids go to the application, and nothing
else.
"""

from typing import Any

import pytest

from proxy.errors import Code, VaultError
from tests.support.exchanges import FORM, HTML, Desk, desk
from tests.support.table import table

SEND = 'send: {param: ids, join: ",", none: "-1", most: 5}'
FIELDS = (
    "name: {kind: name, find: [exact, partial]}",
    "email: {kind: email, find: [exact]}",
    "born: {kind: date, token: opaque, stored: plain, find: [range, exact]}",
    "size: {kind: number, token: opaque, stored: plain}",
)
QUERY = (
    f"q: {{field: [name, email], via: vault, {SEND}}}, born_from: {{field: born, via: vault, find: from, {SEND}}}, "
    f"born_before: {{field: born, via: vault, find: before, {SEND}}}, "
    f'mail: {{field: email, via: vault, split: ",", {SEND}}}, sort: {{via: vault, {SEND}}}'
)
OPERATIONS = (
    "{match: POST /p, create: p}",
    f'{{match: GET /p, read: p, query: {{{QUERY}}}, response: {{each: "$[*]", id: $.id}}}}',
    '{match: "PATCH /p/{id}", update: p}',
    '{match: "DELETE /p/{id}", delete: p}',
    (
        "{match: POST /find, read: p, request: {values: {$.q: {field: name, via: vault, send: {param: ids, repeat: "
        'true, none: "-1"}}}}, response: {each: "$[*]", id: $.id}}'
    ),
    f"{{match: POST /form, read: p, request: {{form: {{q: {{field: name, via: vault, {SEND}}}}}}}, response: {{id: $.id}}}}",
)
PEOPLE: tuple[dict[str, Any], ...] = (
    {"name": "Zorbina Quibble", "email": "z@x.example", "born": "1980-02-28", "size": 9},
    {"name": "Bartolomew Quist", "email": "b@x.example", "born": "1990-01-01", "size": 10},
    {"name": "Ann Ek", "email": "quist@x.example", "born": "1970-12-31"},
)


@pytest.fixture
async def office() -> Desk:
    one = await desk(*OPERATIONS, fields=FIELDS)
    for number, person in enumerate(PEOPLE, 1):
        await one.create(person, number)
    return one


async def target(office: Desk, query: str) -> str:
    return (await office.send(f"GET /p?{query}")).sent.target.decode()


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("x=1&q=QUI&y=2", "x=1&ids=1,2&y=2"),
        ("q=quibb", "ids=1"),
        ("q=quist%40x.example", "ids=3"),
        ("q=nobody", "ids=-1"),
        ("q=", "q="),
        ("mail=z@x.example,quist@x.example", "ids=1,3"),
        ("born_from=1980-02-28", "ids=1,2"),
        ("born_from=28.2.1980&born_before=1990-01-01", "ids=1"),
        ("a=b&q=qui&page=2&born_before=1985-01-01", "a=b&ids=1&page=2"),
        ("sort=born", "ids=3,1,2"),
        ("sort=-born&q=qui", "ids=2,1"),
        ("sort=-size", "ids=2,1,3"),
        ("sort=id,-created", "sort=id,-created"),
        ("page=2", "page=2"),
    ],
)
async def test_ids_take_the_place_of_what_is_searched_for(office, query, sent):
    assert await target(office, query) == f"/p?{sent}"


@pytest.mark.parametrize(
    "query",
    ["q=qu", "born_from=soon", "born_from=01/02/1980", "sort=name", "sort=born,id", "sort=born.x"],
)
async def test_what_the_vault_cannot_answer_is_refused(office, query):
    with pytest.raises(VaultError) as caught:
        await office.send(f"GET /p?{query}")
    assert caught.value.code is Code.SEARCH_REFUSED
    assert "1980" not in caught.value.message.replace("1980-02-28", "")


@pytest.mark.parametrize(
    "query",
    ["q=qui&q=ann", "q=qui&ids=7", "q=qui&IDS=7", "q=qui&ids[]=7", "q=qui;ids=7", "q=qui&ids.0=7"],
)
async def test_a_question_is_asked_once_and_by_the_proxy(office, query):
    with pytest.raises(VaultError) as caught:
        await office.send(f"GET /p?{query}")
    assert caught.value.code in (Code.BAD_REQUEST, Code.AMBIGUOUS_JSON)
    assert await target(office, "ids=7,8") == "/p?ids=7,8", "a link of the application's own"


async def test_more_than_the_rule_allows_is_refused_with_the_bound(office):
    for number in range(4, 9):
        await office.create({"name": f"Quill {number}"}, number)
    with pytest.raises(VaultError, match="more than 5 records") as caught:
        await office.send("GET /p?q=qui")
    assert caught.value.code is Code.TOO_BROAD


async def test_records_whose_ids_no_answer_has_told_are_not_counted(office):
    for number in range(4, 9):
        call = await office.send("POST /p", {"name": f"Quill {number}"})
        await call.answer(202)
    assert await target(office, "q=qui") == "/p?ids=1,2"
    assert await target(office, "sort=born") == "/p?ids=3,1,2"


async def test_a_change_and_a_delete_are_found_as_they_are_now(office):
    call = await office.send("PATCH /p/1", {"name": "Wolfgang"})
    assert await target(office, "q=quibble") == "/p?ids=1", "not taken yet"
    await call.answer(200, {"id": 1, **call.json})
    assert await target(office, "q=quibble") == "/p?ids=-1"
    assert await target(office, "q=olfga") == "/p?ids=1"
    call = await office.send("PATCH /p/1", {"name": "Refused"})
    await call.answer(422)
    assert await target(office, "q=refuse") == "/p?ids=-1"
    await (await office.send("DELETE /p/1")).answer(204)
    assert await target(office, "q=olfga") == "/p?ids=-1"


async def test_an_update_in_doubt_is_found_once_it_shows(office):
    call = await office.send("PATCH /p/1", {"name": "Wolfgang"})
    await call.exchange.failed(True)
    shown = {"id": 1, **call.json}
    await (await office.send("GET /p?q=")).answer(200, [shown])
    assert await target(office, "q=olfga") == "/p?ids=1"
    assert await target(office, "q=quibble") == "/p?ids=-1"


async def test_bodies_are_searched_alike(office):
    call = await office.send("POST /find", {"page": 1, "q": "qui", "z": "1"})
    assert call.sent.body == b'{"page": 1, "ids":["1","2"], "z": "1"}'
    assert (await office.send("POST /find", {"q": "nobody"})).json == {"ids": ["-1"]}
    call = await office.send("POST /form", b"a=1&q=qui", FORM)
    assert call.sent.body == b"a=1&ids=1,2"


async def test_a_body_that_sends_ids_by_itself_is_refused(office):
    for name in ("ids", "IDS", "i\\u0064s", "ids[]", "ids.0"):
        body = f'{{"q": "qui", "{name}": ["7"]}}'.encode()
        with pytest.raises(VaultError) as caught:
            await office.send("POST /find", body)
        assert caught.value.code in (Code.BAD_REQUEST, Code.AMBIGUOUS_JSON)
    assert (await office.send("POST /find", {"ids": ["7"], "q": ""})).json == {
        "ids": ["7"],
        "q": "",
    }


async def test_a_search_that_shows_nothing_is_a_miss(office):
    call = await office.send("GET /p?q=nobody")
    await call.answer(200, [])
    assert call.exchange.missed
    call = await office.send("GET /p?page=1")
    await call.answer(200, [])
    assert not call.exchange.missed


async def test_without_the_vault_nothing_is_sent(office):
    office.store.fail("select")
    with pytest.raises(VaultError) as caught:
        await office.send("GET /p?q=quibble")
    assert caught.value.code is Code.VAULT_DOWN


async def test_while_records_are_made_ready_a_search_waits(office):
    office.people.state.filling = {"name", "email"}
    with pytest.raises(VaultError) as caught:
        await office.send("GET /p?q=quibble")
    assert (caught.value.code, caught.value.retry_after) == (Code.OVERLOADED, 30)


async def test_addresses_in_headers_lose_their_question(office):
    header = ((b"Referer", b"http://app/p?q=Zorbina&x=1"),)
    assert await office.runtime.readdress_referer("app", header) == ((b"Referer", b"http://app/p"),)


@table("query", ["q=qui", "q=q", "born_from=1980-01-01", "sort=born", "q=nobody"])
async def test_nobody_asks_the_vault_for_what_they_do_not_see(query):
    views = "views: [{who: [dpo], p: clear}, {who: [support], p: clear, except: {name: mask, born: token}}]"
    one = await desk(*OPERATIONS, fields=FIELDS, more=views)
    for number in range(1, 10):
        call = await one.send("POST /p", PEOPLE[0], view=one.view("dpo"))
        await call.answer(201, {"id": number})
    with pytest.raises(VaultError) as caught:
        await one.send(f"GET /p?{query}", view=one.view("support"))
    assert caught.value.code is Code.FIELD_HIDDEN, "and not that there are too many"
    sent = (await one.send("GET /p?mail=no@x.example", view=one.view("support"))).sent
    assert sent.target == b"/p?ids=-1"


async def test_a_record_is_found_by_the_values_that_a_form_answered_by_a_redirect_may_have_left():
    form = '{match: "POST /p/{id}/edit", update: p, request: {form: {name: name, email: email}}, response: {success: [302]}}'
    page = '{match: "GET /card/{id}", read: p, response: {restore: html}}'
    one = await desk(*OPERATIONS, form, page, fields=FIELDS)
    stored = [await one.create(person, number) for number, person in enumerate(PEOPLE, 1)]
    body = b"name=Refused+Quist&email=r%40x.example"
    back = ((b"Location", b"/card/3"),)
    await (await one.send("POST /p/3/edit", body, FORM)).answer(302, b"", back)
    for query, ids in (("q=ann", "3"), ("q=Refused", "3"), ("q=quist%40x.example", "3")):
        assert await target(one, query) == f"/p?ids={ids}"
    assert await target(one, "q=quist&born_before=1980-01-01") == "/p?ids=3"
    assert await target(one, "q=nobody") == "/p?ids=-1"
    one.clock.advance(1)
    shown = await (await one.send("GET /card/3")).answer(200, stored[2]["name"].encode(), HTML)
    assert b"Ann" in shown.body
    assert await target(one, "q=Refused") == "/p?ids=-1"
    assert await target(one, "q=ann") == "/p?ids=3"
