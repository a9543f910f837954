import asyncio
import base64
import json
from itertools import combinations
from typing import Any
from urllib.parse import unquote

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.parts_exchange import each_ended
from proxy.redactor.message import RawHeaders
from proxy.redactor.select import _compile
from tests.support import exchanges
from tests.support.exchanges import FORM, HTML, JSON, USUAL, Desk, desk, rule_text
from tests.support.patience import PATIENCE
from tests.support.table import table

BATCH = '{match: POST /batch, envelope: {each: "$.requests[*]", answers: "$.responses[*]"}}'
RPC = (
    "{match: POST /rpc, envelope: {each: $, path: $.method, body: $.params, id: $.id, base: /rpc/, "
    "defaults: {method: POST}, answers: {each: $, body: $.result}}}"
)
CALLS = (
    "{match: POST /rpc/add, create: p, response: {object: $}}",
    "{match: POST /rpc/put, update: p, id: $.id}",
    '{match: POST /rpc/find, read: p, request: {fields: {email: $.email}}, response: {each: "$[*]", id: $.id}}',
    "{match: POST /rpc/ping, pass: true}",
)  # fmt: skip
ANN = "Ann@x.example"


def inner(method: str, path: str, body: Any = None) -> dict[str, Any]:
    return {"method": method, "path": path, **({} if body is None else {"body": body})}


async def batch(one: Desk, *requests: dict[str, Any]) -> Any:
    return await one.send("POST /batch", {"requests": list(requests)})


def answers(*given: tuple[int, Any]) -> dict[str, Any]:
    return {"responses": [{"status": status, "body": body} for status, body in given]}


async def stored(one: Desk, ident: int, **values: str) -> dict[str, Any]:
    return await one.create(values, ident)


@table(
    ("member", "refused"),
    [("na-me", True), ("Name", True), ("name_", True), ("na.me", False), ("nickname", False)],
)
async def test_a_near_match_of_a_name_in_one_request_refuses_all(member: str, refused: bool):
    one = await desk(*USUAL, BATCH)
    several = inner("POST", "/p", {"name": "Ann"}), inner("POST", "/p", {member: "secret"})
    if not refused:
        assert (await batch(one, *several)).json["requests"][1] == several[1]
        return
    with pytest.raises(VaultError) as caught:
        await batch(one, *several)
    assert caught.value.code is Code.AMBIGUOUS_JSON
    assert "secret" not in caught.value.message
    assert await one.counts() == (0, 0, 0)


async def test_each_request_is_ruled_as_if_it_came_alone():
    one = await desk(*USUAL, BATCH)
    bob = await stored(one, 2, name="Bob")
    call = await batch(
        one,
        inner("POST", "/p", {"name": "Ann", "vip": 1.0}),
        inner("PATCH", "/p/2", {"name": "Bo"}),
        inner("GET", f"/p?email={ANN}&x=%20"),
        inner("GET", "/elsewhere?q=Jim"),
    )
    made, changed, found, other = call.json["requests"]
    assert made["body"]["name"] not in ("Ann", "")
    assert changed["body"]["name"] not in ("Bo", bob["name"])
    assert ANN not in unquote(found["path"]) and found["path"].endswith("&x=%20")  # noqa: PT018  # one place
    assert other == inner("GET", "/elsewhere?q=Jim")
    shown = await call.seen(
        200,
        answers(
            (201, {"id": 1, "name": made["body"]["name"], "vip": 1.0}),
            (200, {"id": 2, "name": changed["body"]["name"]}),
            (200, [{"id": 1, "name": made["body"]["name"]}]),
            (200, {"any": made["body"]["name"]}),
        ),
    )
    assert [part["body"] for part in shown["responses"]] == [
        {"id": 1, "name": "Ann", "vip": 1.0},
        {"id": 2, "name": "Bo"},
        [{"id": 1, "name": "Ann"}],
        {"any": made["body"]["name"]},
    ]
    assert one.idle
    assert await one.counts() == (2, 0, 0)
    assert await one.shown({"id": 2, "name": changed["body"]["name"]}, "GET /p/2") == {
        "id": 2, "name": "Bo"
    }  # fmt: skip


async def test_every_byte_that_is_no_value_stays():
    one = await desk(*USUAL, BATCH)
    raw = b'{ "requests" : [{"path":"\\/p", "method":"POST","body": {"name":"Ann", "n": 1e2}} ],"x":1.0}'
    call = await one.send("POST /batch", raw)
    token = json.loads(call.sent.body)["requests"][0]["body"]["name"]
    assert call.sent.body.replace(token.encode(), b"Ann") == raw
    back = b'{"responses": [ {"status":201,"body" :{"id":1,"name":"%b", "n":1e2}}], "\\u00e9":1}'
    shown = await call.answer(200, back % token.encode())
    assert shown.body == back % b"Ann"


async def test_what_an_inner_request_is_refused_for_refuses_all_and_keeps_nothing():
    one = await desk(*USUAL, BATCH)
    with pytest.raises(VaultError) as caught:
        await batch(
            one, inner("POST", "/p", {"name": "Ann"}), inner("PATCH", "/p/1", {"NAME": "Bo"})
        )
    assert caught.value.code is Code.AMBIGUOUS_JSON
    assert one.idle
    assert await one.counts() == (0, 0, 0)


async def test_each_answer_means_what_it_would_alone():
    one = await desk(*USUAL, BATCH)
    call = await batch(
        one,
        *(inner("POST", "/p", {"name": name}) for name in ("Ann", "Bob", "Cid", "Dan")),
    )
    tokens = [part["body"]["name"] for part in call.json["requests"]]
    shown = await call.seen(
        200,
        {
            "responses": [
                {"status": 201, "body": {"id": 1}},
                {"status": 422, "body": {"error": f"no {tokens[1]}"}},
                {"status": 201, "headers": {"X": "y"}, "body": {"id": 3, "name": tokens[2]}},
                {"status": 204},
            ]
        },
    )
    assert shown["responses"][1]["body"] == {"error": "no Bob"}
    assert shown["responses"][2]["body"] == {"id": 3, "name": "Cid"}
    assert await one.counts() == (3, 0, 0)  # Bob was refused, and Dan has no name yet
    assert one.events["dropped"] == 1


@table(
    ("status", "body", "kept"),
    [
        (400, {"error": "NAME is bad"}, 0),
        (500, {"error": "NAME is bad"}, 1),
        (200, {"responses": []}, 1),
        (200, b"<html>", 1),
        (200, b"", 1),
    ],
)
async def test_an_answer_to_the_envelope_itself(status, body, kept):
    one = await desk(*USUAL, BATCH)
    call = await batch(one, inner("POST", "/p", {"name": "Ann"}))
    token = call.json["requests"][0]["body"]["name"]
    raw = body if isinstance(body, bytes) else json.dumps(body).replace("NAME", token).encode()
    headers: RawHeaders | None = HTML if raw.startswith(b"<") else None
    answer = await call.answer(status, raw, headers)
    assert answer.body == (raw.replace(token.encode(), b"Ann") if status >= 400 else raw)
    assert one.idle
    assert (await one.counts())[0] == kept


async def test_remote_calls_are_told_apart_by_their_method_and_answered_in_any_order():
    one = await desk(*USUAL, RPC, *CALLS)
    calls = [
        {"id": 1, "method": "add", "params": {"name": "Ann", "email": ANN}},
        {"id": 2, "method": "find", "params": {"email": ANN}},
        {"id": 3, "method": "ping"},
        {"id": 4, "method": "add", "params": {"name": "Bob"}},
    ]
    call = await one.send("POST /rpc", calls)
    made, found, _, other = call.json
    assert made["params"]["email"] == found["params"]["email"] != ANN
    shown = await call.seen(
        200,
        [
            {"id": 4, "error": {"message": f"no {other['params']['name']}"}},
            {"id": 2, "result": [{"id": 7, "email": found["params"]["email"]}]},
            {"id": 1, "result": {"id": 7, "name": made["params"]["name"]}},
        ],
    )
    assert shown == [
        {"id": 4, "error": {"message": "no Bob"}},
        {"id": 2, "result": [{"id": 7, "email": ANN}]},
        {"id": 1, "result": {"id": 7, "name": "Ann"}},
    ]
    assert await one.counts() == (1, 0, 0)
    single = await one.send(
        "POST /rpc", {"id": 1, "method": "put", "params": {"id": 7, "name": "A"}}
    )
    await single.answer(200, {"id": 1, "result": {"id": 7}})
    assert one.idle


@table(
    ("requests", "code"),
    [
        ([inner("PATCH", "/p/1", {"name": "A"}), inner("DELETE", "/p/1")], Code.VALUE_UNFIT),
        ([inner("POST", "/batch", {"requests": []})], Code.BAD_REQUEST),
        ([inner("PATCH", "/p", {"name": "A"})], Code.OPERATION_DENIED),
        ([inner("QUERY", "/p", {"email": ANN})], Code.OPERATION_DENIED),
        ([inner("POST", "/p", "text")], Code.VALUE_UNFIT),
        ([inner("POST", "/p", {"name": "Annabella", "note": "to Annabella"})], Code.VALUE_ELSEWHERE),
    ],
)  # fmt: skip
async def test_what_cannot_be_ruled_inside_is_refused(requests, code):
    one = await desk(*USUAL, BATCH)
    with pytest.raises(VaultError) as caught:
        await batch(one, *requests)
    assert caught.value.code is code
    assert one.idle


async def test_other_bodies_than_json_are_refused():
    one = await desk(*USUAL, BATCH)
    with pytest.raises(VaultError) as caught:
        await one.send("POST /batch", b"a=b", FORM)
    assert caught.value.code is Code.UNREADABLE_BODY


async def test_what_no_rule_names_inside_passes_or_is_denied_as_if_it_came_alone(monkeypatch):
    request = {"requests": [inner("GET", "/elsewhere")]}
    one = await desk(*USUAL, BATCH)
    call = await one.send("POST /batch", request)
    assert call.sent.body == json.dumps(request).encode()
    assert not call.exchange.must_buffer(200, ())

    def denying(*parts: Any, **more: Any) -> str:
        return rule_text(*parts, **more).replace('3000"', '3000", unmatched: deny', 1)

    monkeypatch.setattr(exchanges, "rule_text", denying)
    strict = await desk(*USUAL, BATCH)
    with pytest.raises(VaultError) as caught:
        await strict.send("POST /batch", request)
    assert caught.value.code is Code.OPERATION_DENIED


LOWER, UPPER = "0b9f6a1e-7c4d-4e2a-9f10-aabbccddeeff", "0B9F6A1E-7C4D-4E2A-9F10-AABBCCDDEEFF"


@table("turned", [False, True])
async def test_an_envelope_and_a_request_for_several_records_never_wait_for_each_other(turned):
    one = await desk(*USUAL, BATCH)
    # as they are locked, and not as they are written
    last, first = next(
        pair for pair in combinations(map(str, range(10, 99)), 2)
        if one.people.key_hash(pair[0]) > one.people.key_hash(pair[1])
    )  # fmt: skip
    holder = await one.send(f"PATCH /p/{first}", {"name": "held"})
    order = (last, first) if turned else (first, last)
    waiting = asyncio.create_task(
        batch(one, *(inner("PATCH", f"/p/{ident}", {"name": "X"}) for ident in order))
    )
    await asyncio.sleep(0)
    # what it does not have yet it keeps from nobody
    async with asyncio.timeout(PATIENCE):
        other = await one.send(f"PATCH /p/{last}", {"name": "Y"})
        await other.answer(200, {"id": last})
        await holder.answer(200, {"id": first})
        await (await waiting).answer(200, answers(*[(200, {})] * 2))
    assert one.idle


@table("other", [
    inner("GET", f"/elsewhere?q={ANN}"),
    inner("GET", "/elsewhere?q=Ann%40x.example"),
    inner("POST", "/elsewhere", {"note": f"to {ANN}, please"}),
    inner("POST", "/p", {"name": "Bob", "note": ANN}),
    {**inner("GET", "/elsewhere"), "headers": {"X-Mail": ANN}},
    {**inner("GET", "/elsewhere"), "note": base64.b64encode(ANN.encode()).decode()},
])  # fmt: skip
@table("last", [False, True])
async def test_a_value_swapped_in_one_request_leaves_in_no_other(other, last):
    one = await desk(*USUAL, BATCH)
    made = inner("POST", "/p", {"email": ANN})
    with pytest.raises(VaultError) as caught:
        await batch(one, *((made, other) if last else (other, made)))
    assert caught.value.code is Code.VALUE_ELSEWHERE
    assert [detail.text for detail in caught.value.details] == ["email"]
    assert one.idle
    assert await one.counts() == (0, 0, 0), "nothing of it is kept"
    call = await batch(one, made, inner("POST", "/p", {"email": ANN}), inner("GET", "/elsewhere"))
    assert ANN not in call.sent.body.decode(), "a value of two requests is one of both"


async def test_places_that_a_rule_lets_pass_are_not_looked_through():
    passing = (
        "{match: POST /q, create: p, request: {object: $, values: {$.desk: {pass: true}}}, "
        "query: {tab: {pass: true}}}"
    )
    one = await desk(*USUAL, passing, BATCH)
    made = inner("POST", "/q", {"email": ANN, "desk": f"ask {ANN}", "n": 1})
    call = await batch(one, made, inner("POST", f"/q?tab={ANN}", {"name": "Bo Wexlomere"}))
    first, second = call.json["requests"]
    assert first["body"]["desk"] == f"ask {ANN}"
    assert second["path"] == f"/q?tab={ANN}"
    assert first["body"]["email"] != ANN
    for other in (
        inner("POST", "/q", {"email": ANN, "desk": "x", "note": ANN}),
        inner("POST", f"/q?x={ANN}", {"desk": "x", "name": "Bo"}),
        inner("POST", "/elsewhere", {"desk": ANN}),
    ):
        with pytest.raises(VaultError) as caught:
            await batch(one, made, other)
        assert caught.value.code is Code.VALUE_ELSEWHERE


async def test_a_value_that_another_request_swaps_too_is_none_elsewhere():
    one = await desk(*USUAL, BATCH)
    call = await batch(one, inner("POST", "/p", {"email": ANN}), inner("GET", f"/p?email={ANN}"))
    made, found = call.json["requests"]
    assert found["path"] == f"/p?email={made['body']['email']}".replace("@", "%40")
    with pytest.raises(VaultError, match="the header field X-Note"):
        await one.send(
            "POST /batch",
            {"requests": [inner("POST", "/p", {"email": ANN})]},
            (*JSON, (b"X-Note", f"to {ANN}".encode())),
        )


async def test_a_record_that_two_requests_spell_differently_is_one():
    one = await desk(*USUAL, BATCH)
    with pytest.raises(VaultError) as caught:
        async with asyncio.timeout(PATIENCE):
            await batch(
                one,
                inner("PATCH", f"/p/{LOWER}", {"name": "A"}),
                inner("PATCH", f"/p/{UPPER}", {"name": "B"}),
            )
    assert caught.value.code is Code.VALUE_UNFIT
    assert one.idle


async def test_a_fault_or_the_end_of_one_exchange_leaves_no_other_open():
    ended: list[int] = []

    async def end(number: int) -> None:
        ended.append(number)
        if number == 1:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await each_ended([1, 2, 3], end)
    assert ended == [1, 2, 3]


@table("path", ["/p\t", "/\tp", "/p\n", "/p ", "/p\x00", "/\u200bp", "/p\xa0"])
async def test_signs_that_libraries_leave_out_of_addresses_are_refused(path):
    one = await desk(*USUAL, BATCH)
    with pytest.raises(VaultError) as caught:
        await batch(one, inner("POST", path, {"name": "Ann"}))
    assert caught.value.code is Code.BAD_REQUEST


@table("method", [" POST", "POST\n", "POST\x00", "PO ST"])
async def test_a_method_that_is_none_is_refused(method):
    one = await desk(*USUAL, BATCH)
    with pytest.raises(VaultError) as caught:
        await batch(one, inner(method, "/p", {"name": "Ann"}))
    assert caught.value.code is Code.BAD_REQUEST


@table("path", ["http:/p", "http:p", "http:\\\\h\\p", "http://h?/p", "ws://h/p"])
async def test_what_is_nearly_an_address_is_refused_also_where_a_base_goes_before_it(path):
    based = BATCH.replace('"$.requests[*]",', '"$.requests[*]", base: /,')
    one = await desk(*USUAL, based)
    with pytest.raises(VaultError) as caught:
        await batch(one, inner("POST", path, {"name": "Ann"}))
    assert caught.value.code is Code.BAD_REQUEST


@table(
    ("request_", "headers"),
    [
        (inner("POST", "/p/2", {"_method": "PATCH", "name": "Ann"}), ()),
        (inner("POST", "/p/2", {"name": "Ann"}), ((b"X-HTTP-Method-Override", b"PATCH"),)),
        ({**inner("POST", "/p/2", {"name": "Ann"}), "headers": {"X-Http-Method": "PATCH"}}, ()),
    ],
)
async def test_a_method_that_an_inner_request_or_its_envelope_names_beside_its_own_counts(
    request_, headers
):
    one = await desk(*USUAL, BATCH, "{match: PATCH /batch, pass: true}")
    await stored(one, 2, name="Bob")
    call = await one.send("POST /batch", {"requests": [request_]}, (*JSON, *headers))
    assert call.json["requests"][0]["body"]["name"] != "Ann"
    await call.answer(200, answers((200, {"id": 2})))
    assert one.idle


async def test_a_text_that_an_inner_request_carries_as_a_form_names_its_method():
    one = await desk(*USUAL, BATCH)
    form = {
        **inner("POST", "/p/2", "_method=patch&name=Ann"),
        "headers": {"Content-Type": FORM[0][1].decode()},
    }
    with pytest.raises(VaultError) as caught:
        await batch(one, form)
    assert caught.value.code is Code.UNREADABLE_BODY


async def test_a_cookie_that_a_rule_names_is_refused_inside():
    carrier = '{match: "GET /me/{id}", read: p, response: {object: $, carriers: [cookie email]}}'
    one = await desk(*USUAL, carrier, BATCH)
    for cookie in ("a=b; email=ann@x.example", "e%6dail=ann@x.example"):
        with pytest.raises(VaultError) as caught:
            await batch(one, {**inner("GET", "/elsewhere"), "headers": {"Cookie": cookie}})
        assert caught.value.code is Code.BAD_REQUEST
        assert "a cookie that a rule names" in caught.value.message
    await batch(one, {**inner("GET", "/elsewhere"), "headers": {"Cookie": "a=b"}})


async def test_a_header_of_an_answer_keeps_its_letters():
    rule = USUAL[1].replace("id: $.id}", "id: $.id, carriers: [Link]}")
    one = await desk(USUAL[0], rule, *USUAL[2:], BATCH)
    call = await batch(one, inner("GET", f"/p?email={ANN}"))
    path = call.json["requests"][0]["path"]
    link = f'<{path}&page=2>; title="Nästa"'
    part = {"status": 200, "headers": {"X-O": "ö", "Link": link}, "body": []}
    shown = await call.seen(200, {"responses": [part]})
    headers = shown["responses"][0]["headers"]
    assert headers["X-O"] == "ö"
    assert "Ann" in headers["Link"]
    assert headers["Link"].endswith('title="Nästa"')


@table("more", [
    {"path": "/p?x=" + "a" * 9000},
    {"headers": {f"X-{number}": "y" for number in range(101)}},
    {"headers": {"X-Long": "y" * 66_000}},
])  # fmt: skip
async def test_the_head_of_an_inner_request_is_bounded_as_that_of_one_that_comes_alone(more):
    one = await desk(*USUAL, BATCH)
    with pytest.raises(VaultError) as caught:
        await batch(one, {**inner("GET", "/p"), **more})
    assert caught.value.code is Code.TOO_LARGE


@table("name", ["X-HTTP-Method-Override ", "X-HTTP-Method-Override:", "X\u00e9", ""])
async def test_a_name_of_a_header_that_no_head_may_hold_is_refused(name):
    one = await desk(*USUAL, BATCH)
    with pytest.raises(VaultError) as caught:
        await batch(one, {**inner("POST", "/p/1", {"name": "Ann"}), "headers": {name: "PATCH"}})
    assert caught.value.code is Code.BAD_REQUEST


async def test_names_of_headers_are_compiled_and_kept_nowhere():
    one = await desk(*USUAL, BATCH)
    sent = {**inner("GET", "/p"), "headers": {"X-One": "1"}}
    await batch(one, sent)
    before = _compile.cache_info().currsize
    await batch(one, {**sent, "headers": {"X-Never-Before": "1", "X-One": "1"}})
    assert _compile.cache_info().currsize == before


# ------------------------------------------------------------------ several objects in a request

OTHER = "  q: {fields: {title: {kind: text}}}"
ORDER = (
    "{match: POST /o, objects: ["
    "{create: p, request: {object: $.a}, response: {object: $.a, id: $.id}}, "
    "{create: q, request: {object: $.b}, response: {object: $.b, id: $.id}}]}"
)
CHANGE = (
    '{match: "PUT /o/{id}", objects: ['
    "{update: p, id: path id, request: {object: $.a}, response: {object: $.a}}, "
    "{create: q, request: {object: $.b}, response: {object: $.b, id: $.id}}]}"
)
TWO = (
    '{match: "PUT /two", objects: ['
    "{update: p, id: $.a.id, request: {object: $.a}, response: {object: $.a}}, "
    "{delete: q, id: query gone}]}"
)


async def orders() -> Desk:
    return await desk(*USUAL, BATCH, ORDER, CHANGE, TWO, entities=(OTHER,))


async def test_a_request_with_several_objects_is_ruled_as_if_it_came_alone():
    one = await orders()
    await stored(one, 5, name="Bob")
    both = {"a": {"name": "Ann Wexlomere"}, "b": {"title": "secret one"}}
    more = {"a": {"name": "Bo Wexlomere"}, "b": {"title": "secret two"}}
    call = await batch(one, inner("POST", "/o", both), inner("PUT", "/o/5", more))
    assert b"Wexlomere" not in call.sent.body
    assert b"secret" not in call.sent.body
    made, changed = (part["body"] for part in call.json["requests"])
    made = {"a": {**made["a"], "id": 1}, "b": {**made["b"], "id": 1}}
    changed = {"a": changed["a"], "b": {**changed["b"], "id": 2}}
    seen = await call.seen(200, answers((201, made), (200, changed)))
    assert [part["body"] for part in seen["responses"]] == [
        {"a": {**both["a"], "id": 1}, "b": {**both["b"], "id": 1}},
        {"a": more["a"], "b": {**more["b"], "id": 2}},
    ]
    assert one.idle
    assert await one.shown({"id": 5, **changed["a"]}, "GET /p/5") == {"id": 5, **more["a"]}


async def test_a_value_of_one_object_stands_in_no_other_request():
    one = await orders()
    both = {"a": {"name": "Ann Wexlomere"}, "b": {"title": "x"}}
    with pytest.raises(VaultError) as caught:
        await batch(one, inner("POST", "/o", both), inner("POST", "/p", {"x": "Ann Wexlomere"}))
    assert caught.value.code is Code.VALUE_ELSEWHERE
    assert await one.counts() == (0, 0, 0)
    assert one.idle


async def test_objects_that_change_two_records_do_not_come_in_an_envelope():
    one = await orders()
    with pytest.raises(VaultError) as caught:
        await batch(one, inner("PUT", "/two?gone=3", {"a": {"id": 1, "name": "secret"}}))
    assert caught.value.code is Code.BAD_REQUEST
    assert "secret" not in caught.value.message
    assert one.idle


async def test_an_error_of_the_envelope_drops_what_all_objects_have_staged():
    one = await orders()
    both = {"a": {"name": "Ann Wexlomere"}, "b": {"title": "secret one"}}
    call = await batch(one, inner("POST", "/o", both), inner("POST", "/o", both))
    await call.answer(400, {"error": call.json["requests"][0]["body"]["a"]["name"]})
    assert await one.counts() == (0, 0, 0)
    assert one.idle
    call = await batch(one, inner("POST", "/o", both))
    await call.exchange.failed(True)
    assert one.idle
