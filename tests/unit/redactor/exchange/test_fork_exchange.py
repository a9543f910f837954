import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import Request
from proxy.redactor.rules import Match, PassRule
from tests.support.exchanges import FORM, desk, desk_of, rule_text
from tests.support.table import table

OPERATIONS = (
    (
        "{match: POST /rpc, when: {$.do: add}, create: p, request: {object: $.p}, "
        "response: {object: $.p}}"
    ),
    "{match: POST /rpc, when: {$.do: show}, read: p, response: {object: $.p, id: $.id}}",
    "{match: POST /rpc, when: {$.do: ping}, pass: true}",
    '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}',
)


async def test_the_body_chooses_the_operation_of_both_directions():
    one = await desk(*OPERATIONS)
    call = await one.send("POST /rpc", {"do": "add", "p": {"name": "Ann Wexlomere", "vip": True}})
    stored = {**call.json["p"], "id": 1}
    assert stored["name"] != "Ann Wexlomere"
    assert (await call.seen(201, {"p": stored}))["p"]["name"] == "Ann Wexlomere"
    call = await one.send("POST /rpc", {"do": "show", "id": 1})
    assert (await call.seen(200, {"p": stored}))["p"]["name"] == "Ann Wexlomere"
    assert not call.exchange.missed
    assert one.idle


async def test_what_passes_is_left_alone():
    one = await desk(*OPERATIONS)
    call = await one.send("POST /rpc", {"do": "ping", "p": {"name": "x"}})
    assert call.json == {"do": "ping", "p": {"name": "x"}}
    assert call.exchange.mark() == b""
    assert await call.exchange.stream(200, ()) is None
    assert not call.exchange.must_buffer(200, ((b"Content-Type", b"application/json"),))
    assert (await call.answer(200, {"pong": 1})).body == b'{"pong": 1}'
    await call.exchange.failed(True)
    assert await one.counts() == (0, 0, 0)


async def test_what_fits_none_is_refused_and_nothing_stays_of_what_was_not_sent():
    one = await desk(*OPERATIONS)
    with pytest.raises(VaultError) as caught:
        await one.send("POST /rpc", {"do": "drop", "p": {"name": "secret"}})
    assert caught.value.code is Code.OPERATION_DENIED
    call = await one.send("POST /rpc", {"do": "add", "p": {"name": "Ann"}})
    await call.exchange.failed(False)
    assert await one.counts() == (0, 0, 0)
    assert one.idle


PATCH = ((b"Content-Type", b"application/json-patch+json"),)
METHODS = (
    '{match: "PUT|PATCH /p/{id}", update: p}',
    (
        '{match: "PATCH|POST /p/{id}", when: {type: application/json-patch+json}, update: p, '
        "request: {patch: json}}"
    ),
    "{match: GET|POST /p, pass: true}",
    "{match: POST /p, when: {$.do: add}, create: p}",
    '{match: "GET /p/{id}", read: p}',
)


async def test_operations_may_share_some_of_their_methods():
    one = await desk(*METHODS)
    stored = await one.create({"do": "add", "name": "Ann Wexlomere"})
    steps = [{"op": "replace", "path": "/name", "value": "Ann Flumper"}]
    for match in ("PATCH /p/1", "POST /p/1"):
        call = await one.send(match, steps, PATCH)
        assert call.json[0]["value"] != "Ann Flumper"
        stored = {**stored, "name": call.json[0]["value"]}
        await call.answer(200, stored)
    for match in ("PUT /p/1", "PATCH /p/1"):
        call = await one.send(match, {"name": f"Ann {match}", "id": 1})
        assert call.json["name"] != f"Ann {match}"
        assert (await call.seen(200, call.json))["name"] == f"Ann {match}"
    assert (await one.send("POST /p", {"do": "else", "x": 1})).json == {"do": "else", "x": 1}
    assert one.idle


@table(
    ("match", "body", "headers", "code"),
    [
        ("PUT /p/1", [{"op": "add", "path": "/name", "value": "secret"}], PATCH, Code.UNREADABLE_BODY),
        ("POST /p/1", {"name": "secret"}, None, Code.OPERATION_DENIED),
        ("POST /p", {"do": "ADD", "name": "secret"}, None, Code.BAD_REQUEST),
    ],
)  # fmt: skip
async def test_a_method_that_one_of_them_has_does_not_lead_to_the_other(match, body, headers, code):
    one = await desk(*METHODS)
    with pytest.raises(VaultError) as caught:
        await one.send(match, body, headers)
    assert caught.value.code is code
    assert await one.counts() == (0, 0, 0)


async def test_a_rule_that_passes_keeps_the_methods_that_no_operation_shares():
    one = await desk(*METHODS)
    _, rule = one.runtime.match("GET", "app", b"/p", ())
    assert isinstance(rule, PassRule)
    assert rule.methods == ("GET",)


ROUTED = (
    "{match: POST /i.php?r=p/add, create: p, request: {form: {name: name}}, response: {id: $.id}}",
    "{match: POST /i.php, unmatched: true}",
)


async def test_coverage_is_told_which_operation_it_was_and_what_none_takes():
    one = await desk(*ROUTED)
    call = await one.send("POST /i.php?r=p/add", b"name=Ann", FORM)
    assert call.form["name"] != "Ann"
    await call.answer(201, {"id": 1})
    (told,) = call.exchange.carried
    assert (told.label, told.status) == ("POST /i.php?r=p/add", 201)
    call = await one.send("POST /i.php?r=x", b"name=Ann", FORM)
    assert call.form == {"name": "Ann"}
    await call.answer(302)
    (told,) = call.exchange.carried
    assert (told.label, told.target, told.status) == ("", b"/i.php?r=x", 302)


async def test_what_none_takes_is_refused_as_if_no_rule_named_it():
    one = await desk(*ROUTED)
    parts = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--b--\r\n'
    kind = ((b"Content-Type", b"multipart/form-data; boundary=b"),)
    text = rule_text(*ROUTED).replace("name: app,", "name: app, unmatched: deny,")
    denying = await desk_of(text)
    for which, body, headers in ((one, parts, kind), (denying, b"name=Ann", FORM)):
        request = Request("POST", b"/i.php?r=x", headers, body)
        _, match = which.runtime.match("POST", "app", request.target, headers)
        assert isinstance(match, Match)
        exchange = which.runtime.exchange(match)
        with pytest.raises(VaultError) as caught:
            await exchange.redact_request(request)
        assert caught.value.code is Code.OPERATION_DENIED
        assert [told.status for told in exchange.carried] == [403]
