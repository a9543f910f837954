"""Documents of JSON in texts: of bodies of every kind, stored and shown."""

import json
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from tests.support.exchanges import FORM, JSON, Desk, desk, member_form
from tests.support.table import table

INNER = '{json: {$.email: email, "$.who.name": name, "$.tags[*]": tags}}'
RULES = (
    "{match: POST /p, create: p, request: {values: {$.payload: " + INNER + "}}, "
    "response: {values: {$.payload: " + INNER + "}, id: $.id}}",
    '{match: GET /p, read: p, response: {each: "$[*]", id: $.id, values: {"$[*].payload": '
    + INNER + "}}}",
    '{match: "PATCH /p/{id}", update: p, request: {values: {$.deep: {json: {$.a: {json: {$.born: born}}}}}}}',
    '{match: "GET /p/{id}", read: p, response: {values: {$.deep: {json: {$.a: {json: {$.born: born}}}}}}}',
    ("{match: POST /form, create: p, request: {form: {name: name, payload: {json: {$.email: email}}}}, "
        "response: {success: [200], id: $.id}}"),
    ("{match: POST /parts, create: p, request: {multipart: {name: name, payload: {json: {$.email: email}}}}, "
        "response: {id: $.id}}"),
)  # fmt: skip
EMAIL, NAME = "Ann@Wexlomere.example", 'Ann "Wexham" Lomère \\ Ω'
DOCUMENT = {"email": EMAIL, "n": 1.0, "who": {"name": NAME, "vip": True}, "tags": ["yx-1", "yx-2"]}


async def office() -> Desk:
    return await desk(*RULES)


def clear(raw: bytes) -> bool:
    return any(
        word in raw.decode()
        for word in ("Wexham", "Wexlomere", "Lomè", "Lom\\u00e8", "yx-", "1931-02-27")
    )


@table("spaced", [True, False])
async def test_a_text_of_json_is_swapped_and_restored_byte_for_byte(spaced):
    one = await office()
    text = json.dumps(DOCUMENT, ensure_ascii=False, indent=1 if spaced else None)
    raw = (
        b' {"x": 1e2, "payload" :%b,"note":"\\u00e9"}'
        % json.dumps(text, ensure_ascii=False).encode()
    )
    call = await one.send("POST /p", raw)
    assert not clear(call.sent.body)
    inner = json.loads(call.json["payload"])
    assert inner["n"] == 1.0
    assert inner["who"]["vip"] is True
    assert inner["email"] != EMAIL
    answer = call.sent.body.replace(b'"x": 1e2', b'"id": 1')
    shown = await call.answer(201, answer)
    assert shown.body == raw.replace(b'"x": 1e2', b'"id": 1')
    listed = [{**call.json, "id": 1}, {"id": 2, "payload": "no JSON"}, {"id": 3, "payload": None}]
    seen = await (await one.send("GET /p")).seen(200, listed)
    assert json.loads(seen[0]["payload"]) == DOCUMENT
    assert seen[1:] == listed[1:], "what is no document is shown as it came"
    assert await one.counts() == (1, 0, 0)
    assert one.idle


async def test_a_text_in_a_text_is_followed_and_its_small_tokens_resolve_by_the_record():
    one = await office()
    await one.create({"payload": json.dumps({"email": EMAIL})})
    deep = json.dumps({"a": json.dumps({"born": "1931-02-27", "n": 1}), "b": "\\"})
    call = await one.send("PATCH /p/1", {"deep": deep})
    assert not clear(call.sent.body)
    assert json.loads(json.loads(call.json["deep"])["a"])["n"] == 1
    await call.answer(204)
    shown = await (await one.send("GET /p/1")).answer(200, {"deep": call.json["deep"]})
    assert json.loads(shown.body) == {"deep": deep}


async def test_a_member_of_a_form_and_a_part_hold_documents():
    one = await office()
    text = json.dumps({"email": EMAIL, "x": "a&b=c+d %41"})
    raw = member_form(name=NAME, payload=text, other="x")
    call = await one.send("POST /form", raw, FORM)
    assert not clear(call.sent.body)
    sent = call.form
    inner = json.loads(sent["payload"])
    assert inner["x"] == "a&b=c+d %41"
    token = member_form(payload=inner["email"]).partition(b"=")[2]
    back = call.sent.body.replace(token, member_form(payload=EMAIL).partition(b"=")[2])
    named = member_form(name=sent["name"])
    assert back.replace(named, member_form(name=NAME)) == raw
    await call.answer(200, {"id": 1})
    lines = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
    raw = lines % (b"name", NAME.encode()) + lines % (b"payload", text.encode()) + b"--b--\r\n"
    parts = ((b"Content-Type", b"multipart/form-data; boundary=b"),)
    call = await one.send("POST /parts", raw, parts)
    assert not clear(call.sent.body)
    await call.answer(201, {"id": 2})
    assert await one.counts() == (2, 0, 0)
    assert one.idle


@table(
    ("payload", "code"),
    [
        ("no JSON " + EMAIL, Code.MALFORMED_JSON),
        ({"email": EMAIL}, Code.VALUE_UNFIT),
        ([EMAIL], Code.VALUE_UNFIT),
        (17, Code.VALUE_UNFIT),
        (json.dumps({"who": EMAIL}), Code.VALUE_UNFIT),
        (json.dumps({"Email": EMAIL}), Code.AMBIGUOUS_JSON),
        (json.dumps({"email": "b@x.example", "email ": EMAIL}), Code.AMBIGUOUS_JSON),
        (json.dumps({"email": EMAIL, "note": f"to {EMAIL}"}), Code.VALUE_ELSEWHERE),
        (json.dumps({"x": [[]]})[:-1] + ', "y": ' + "[" * 70 + "]" * 70 + "}", Code.TOO_LARGE),
    ],
)
async def test_a_text_that_nobody_understands_is_refused(payload: Any, code: Code):
    one = await office()
    with pytest.raises(VaultError) as caught:
        await one.send("POST /p", {"payload": payload})
    assert caught.value.code is code
    assert EMAIL not in str(caught.value)
    assert one.idle
    assert await one.counts() == (0, 0, 0)


@table("payload", [None, "", " ", True])
async def test_what_holds_no_document_passes(payload: Any):
    one = await office()
    call = await one.send("POST /p", {"payload": payload, "name": "Ann"}, JSON)
    assert call.json["payload"] == payload
    await call.answer(201, {"id": 1})
