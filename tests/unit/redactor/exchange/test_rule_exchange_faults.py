"""What an exchange does when the vault, the application or a caller fails."""

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import Request
from proxy.redactor.rules import Match
from proxy.storage.changes import Bind, Conflict, Insert, Remove, StageRow
from tests.support.exchanges import (
    FIELDS,
    FORM,
    JSON,
    USUAL,
    desk,
    head_refused,
)
from tests.support.table import table
from tests.unit.redactor.exchange.test_rule_exchange import ANN, usual

PHONE = (*FIELDS[:2], "phone: {kind: phone, token: numeric}")


@table(
    ("body", "headers", "code"),
    [
        (b'{"name": "Ann"', JSON, Code.MALFORMED_JSON),
        (b'{"name": "Ann", "name": 1}', JSON, Code.AMBIGUOUS_JSON),
        (b"name=Ann", FORM, Code.UNREADABLE_BODY),
        (b'{"name": "Ann"}', (), Code.UNREADABLE_BODY),
        (b'{"email": 1}', JSON, Code.VALUE_UNFIT),
        (b'{"born": "no date"}', JSON, Code.VALUE_UNFIT),
    ],
)
@table("match", ["POST /p", "PATCH /p/1"])
async def test_what_cannot_be_protected_is_refused_and_leaves_no_trace(match, body, headers, code):
    one = await usual()
    await one.create({"name": "Bo"})
    with pytest.raises(VaultError) as caught:
        await one.send(match, body, headers)
    assert caught.value.code is code
    assert "Ann" not in caught.value.message
    assert one.events["staged"] == 1
    assert await one.counts() == (1, 0, 0)
    assert one.idle


@table(
    ("match", "headers", "code"),
    [
        ("POST /p", JSON, None),
        ("POST /p", (*JSON, (b"Content-Encoding", b"gzip")), None),
        ("POST /p", FORM, Code.UNREADABLE_BODY),
        ("POST /p", (), Code.UNREADABLE_BODY),
        ("POST /p", (*JSON, (b"Content-Encoding", b"rot13")), Code.UNREADABLE_BODY),
        ("PATCH /p/1", JSON, None),
        ("PATCH /p/%FF", JSON, Code.BAD_REQUEST),
        ("PATCH /p/1", ((b"Content-Type", b"application/json-patch+json"),), Code.UNREADABLE_BODY),
    ],
)
async def test_a_request_is_refused_by_its_head_alone_where_that_is_enough(match, headers, code):
    one = await usual()
    method, target = match.split()
    _, matched = one.runtime.match(method, "app", target.encode(), headers)
    assert isinstance(matched, Match)
    refusal = head_refused(
        one.runtime.exchange(matched), Request(method, target.encode(), headers, b"?")
    )
    assert (refusal.code if refusal is not None else None) is code
    assert one.idle


async def test_a_value_that_cannot_be_searched_undoes_a_delete():
    one = await desk(
        *USUAL, "{match: POST /gone, delete: p, id: $.id, request: {fields: {email: $.email}}}"
    )
    await one.create(ANN)
    with pytest.raises(VaultError) as caught:
        await one.send("POST /gone", {"id": 1, "email": 17})
    assert caught.value.code is Code.VALUE_UNFIT
    assert await one.counts() == (1, 0, 0)
    assert one.idle


@table(
    ("match", "change"), [("POST /p", Insert), ("PATCH /p/1", StageRow), ("DELETE /p/1", StageRow)]
)
async def test_nothing_is_sent_when_the_vault_cannot_be_written(match, change):
    one = await usual()
    await one.create(ANN)
    one.store.fail("commit", change=change)
    with pytest.raises(VaultError) as caught:
        await one.send(match, {"name": "Bo"} if "DELETE" not in match else b"")
    assert caught.value.code is Code.VAULT_DOWN
    assert await one.counts() == (1, 0, 0)
    assert one.idle


@table(
    "answer", ["restore: html", "restore: text", "restore: anywhere", "restore: html, form: {tel: phone}"]
)  # fmt: skip
async def test_no_page_passes_with_tokens_unless_the_rules_want_it(answer):
    page = f'{{match: "GET /page/{{id}}", read: p, response: {{{answer}}}}}'
    kind = "text/plain" if "text" in answer else "text/html"
    for rules in ("", "on_error: {vault_down: {read: tokens}}"):
        one = await desk(*USUAL, page, fields=PHONE if "tel" in answer else FIELDS[:2], more=rules)
        ann = {"name": "Ann", "phone": "24771"} if "tel" in answer else {"name": "Ann"}
        stored = await one.create(ann)
        call = await one.send("GET /page/1")
        for verb in ("rows", "by_keys", "by_tokens", "staged"):
            one.store.fail(verb)
        body = f"<p>{stored['name']}<input name=tel value='{stored.get('phone')}'>".encode()
        sent = 200, body, ((b"Content-Type", kind.encode()),)
        if rules:
            assert (await call.answer(*sent)).body == body
            continue
        with pytest.raises(VaultError) as caught:
            await call.answer(*sent)
        assert caught.value.code is Code.VAULT_DOWN


async def test_a_token_that_would_be_minted_again_is_refused_by_the_name_of_its_field():
    one = await usual()
    await one.create(ANN)
    call = await one.send("PATCH /p/1", {"name": "Bo"})
    await call.exchange.failed(False)
    with pytest.raises(VaultError) as caught:
        await one.send("PATCH /p/1", {"name": call.json["name"]})
    assert caught.value.code is Code.VALUE_UNFIT
    assert [one.source for one in caught.value.details] == ["/name"]


@table("verb", ["by_keys", "staged"])
async def test_answers_pass_with_tokens_while_the_vault_cannot_be_read(verb):
    one = await usual()
    stored = await one.create(ANN)
    await (await one.send("PATCH /p/1", {"name": "Bo"})).exchange.failed(True)
    call = await one.send("GET /p/1")
    one.store.fail(verb)
    assert await call.seen(200, stored) == stored
    assert one.events["unrestored"] == 1
    assert await one.shown(stored) == {**ANN, "id": 1}


@table("status", [200, 409])
async def test_a_file_may_ask_for_an_error_instead(status):
    one = await usual(more="on_error: {vault_down: {read: 503, write: 507}}")
    stored = await one.create(ANN)
    call = await one.send("GET /p/1")
    one.store.fail("rows")
    one.store.fail("by_keys")
    with pytest.raises(VaultError) as caught:
        await call.answer(status, {"name": stored["name"]})
    assert caught.value.code is Code.VAULT_DOWN


async def test_a_delete_is_settled_even_if_its_answer_cannot_be_restored():
    one = await usual(more="on_error: {vault_down: {read: 503}}")
    stored = await one.create(ANN)
    call = await one.send("DELETE /p/1")
    one.store.fail("rows")
    one.store.fail("by_keys")
    with pytest.raises(VaultError):
        await call.answer(200, stored)
    assert await one.counts() == (0, 0, 0)
    assert one.idle


async def test_callers_see_their_own_words_while_the_vault_cannot_be_read():
    one = await usual()
    call = await one.send("POST /p", ANN)
    one.store.fail("rows", times=None)
    one.store.fail("by_keys", times=None)
    assert await call.seen(201, {**call.json, "id": 1, "phone": "x"}) == {
        **ANN,
        "id": 1,
        "phone": "x",
    }


async def test_a_reader_who_finds_nothing_is_told_so_whatever_the_vault_does():
    one = await usual()
    await one.create(ANN)
    call = await one.send("GET /p/1")
    one.store.fail("by_keys")
    assert await call.seen(404, {"error": "no"}) == {"error": "no"}
    assert one.events["late"] == 1


@table("match", ["PATCH /p/1", "DELETE /p/1"])
async def test_what_the_application_did_is_settled_later_when_the_vault_cannot_be_written(match):
    one = await usual()
    stored = await one.create(ANN)
    call = await one.send(match, {"name": "Bo"} if "PATCH" in match else b"")
    one.store.fail("commit", times=None)
    await call.answer(204)
    assert one.events["late"] == 1
    assert (await one.counts())[2] == 1
    one.store.mend()
    await one.vault.maintain()
    assert await one.counts() == ((1, 0, 0) if "PATCH" in match else (0, 0, 0))
    assert one.idle
    if "PATCH" in match:
        assert (await one.shown({**stored, **call.json}))["name"] == "Bo"


async def test_a_reader_who_decides_a_doubt_is_answered_even_if_that_cannot_be_written():
    one = await usual()
    await one.create(ANN)
    call = await one.send("PATCH /p/1", {"name": "Bo"})
    await call.exchange.failed(True)
    one.clock.advance(1)
    one.store.fail("commit", change=Remove, times=None)
    one.store.fail("commit", times=1)
    assert await one.shown({"id": 1, **call.json}) == {"id": 1, "name": "Bo"}
    assert one.events["late"] == 1
    assert (await one.counts())[2] == 1


async def test_a_new_record_whose_id_others_get_again_and_again_stays_until_an_answer_shows_it():
    one = await desk()
    call = await one.send("POST /p", {"name": "Ann"})
    one.store.fail("commit", lambda: Conflict(Remove(0)), change=Bind, times=None)
    assert await call.seen(201, {"id": 1, "name": call.json["name"]}) == {"id": 1, "name": "Ann"}
    assert one.idle
    assert one.events["nameless"] == 1
    one.store.mend()
    one.clock.advance(30 * 86_400_000)
    await one.vault.maintain()
    stored = {**call.json, "id": 1}
    assert await one.shown([stored], "GET /p") == [{"id": 1, "name": "Ann"}]
    one.clock.advance(1000)
    assert await one.shown(stored) == {"id": 1, "name": "Ann"}


NAMED = (
    "first_name: {kind: name, token: {shape: opaque, same: true}}",
    "street: {kind: text, at: $.home_address.street}",
)
READ_P = "{match: 'GET /p/{id}', read: p}"


def changing(key: str, method: str = "PATCH") -> str:
    return f"{{match: '{method} /p/{{id}}', update: p, id: path id, request: {{{key}}}}}"


NEW = "{match: POST /p, create: p}"
BESIDE = "{match: POST /p, create: p, request: {values: {$.%s: {pass: true}}}}"
LISTED = '{match: POST /p, create: p, request: {each: "$.people[*]"}, response: {each: "$[*]", id: $.id}}'
IN_TEXT = "{match: POST /p, create: p, request: {object: $.x, values: {$.doc: {json: {$.first_name: first_name}}}}}"
SEEKING = "{match: POST /p, read: p, request: {values: {$.q.first_name: {field: first_name}}}, response: {each: '$[*]'}}"
SAVED = "{match: 'PUT|PATCH /p', update: p, id: %s, when: {$.type: person}}"
UNREAD = "{match: POST /p, read: p, response: {object: $}}"


@table(
    ("rule", "body", "spelling"),
    [
        (NEW, {"first_name": "x", "firstName": "secret"}, "/firstName"),
        (NEW, {"FIRST-NAME": "secret"}, "/FIRST-NAME"),
        (NEW, {"firstName": None}, "/firstName"),
        (NEW, {"homeAddress": {"street": "secret"}}, "/homeAddress"),
        (NEW, {"home_address": {"street_": "secret"}}, "/home_address/street_"),
        (NEW, {"homeAddress.street": "secret"}, "/homeAddress.street"),
        (NEW, {"first_name": "x", "home": {"firstName": "y"}, "home_address": {"first-name": "z"}}, ""),
        (BESIDE % "firstName", {"first_name": "x", "firstName": "y"}, ""),
        (BESIDE % "firstName", {"first_name": "x", "Firstname": "y"}, "/Firstname"),
        (BESIDE % "meta.firstName", {"firstName": "y", "meta": {"firstName": 1}}, "/firstName"),
        (LISTED, {"people": [{"first_name": "x"}, {"firstName": "secret"}]}, "/people/1/firstName"),
        (LISTED, {"firstName": "y", "people": [{"first_name": "x"}]}, ""),
        (IN_TEXT, {"x": {}, "doc": '{"firstName": "secret"}'}, "/firstName"),
        (SEEKING, {"q": {"firstName": "secret"}}, "/q/firstName"),
        (SAVED % "$.id", {"type": "person", "id": 1, "_id": 1, "first_name": "x", "_type": "y"}, ""),
        (SAVED % "$._id", {"type": "person", "_id": 1, "id": 1, "first_name": "x"}, ""),
        (SAVED % "$.id", {"type": "person", "id": 1, "_id": 1, "_first_name": "secret"}, "/_first_name"),
        (UNREAD, {"a": [{"firstName": "secret"}]}, "/{word}/0/firstName"),
        (UNREAD, {"a": [{"first": "y"}]}, ""),
        (changing("patch: merge"), {"firstName": None}, "/firstName"),
        (changing("patch: scim"), {"Operations": [{"op": "replace", "path": "firstName", "value": "secret"}]}, "/firstName"),
        (changing("patch: scim"), {"Operations": [{"op": "add", "value": {"firstName": "secret"}}]}, "/firstName"),
        (changing("patch: dotted"), {"$set": {"homeAddress.street": "secret"}}, "/homeAddress"),
        (changing("patch: json"), [{"op": "replace", "path": "/firstName", "value": "secret"}], "/firstName"),
        (changing("patch: json"), [{"op": "add", "path": "/homeAddress", "value": {"street": "secret"}}], "/homeAddress"),
        (changing("patch: json"), [{"op": "remove", "path": "/home_address/Street"}], "/home_address/Street"),
        (changing("patch: json"), [{"op": "replace", "path": "/other/firstName", "value": "y"}], ""),
    ],
)  # fmt: skip
async def test_a_member_that_servers_translate_into_a_named_one_is_refused(rule, body, spelling):
    one = await desk(rule, READ_P, fields=NAMED)
    match = "PATCH /p" if "PUT" in rule else "PATCH /p/1" if "PATCH" in rule else "POST /p"
    for _ in range(6):  # later ones are read by what was learned of the first
        if not spelling:
            call = await one.send(match, body, JSON)
            assert b'"x"' not in call.sent.body
            await call.answer(400)
            continue
        with pytest.raises(VaultError) as caught:
            await one.send(match, body, JSON)
        assert caught.value.code is Code.AMBIGUOUS_JSON
        assert [detail.source for detail in caught.value.details] == [spelling]
        assert "secret" not in caught.value.message
        assert await one.counts() == (0, 0, 0)


async def test_an_entity_may_have_fields_of_which_servers_translate_one_into_the_other():
    twins = (*NAMED, "called: {kind: text, at: $.firstName}")
    for rule, body in (
        (NEW, {"first_name": "Quibble", "firstName": "Wexlomere", "first": "x"}),
        (changing("patch: json"), [{"op": "add", "path": "/firstName", "value": "Quibble"}]),
    ):
        one = await desk(rule, READ_P, fields=twins)
        match = "PATCH /p/1" if "PATCH" in rule else "POST /p"
        sent = (await one.send(match, body, JSON)).sent.body
        assert b"Quibble" not in sent
        assert b"Wexlomere" not in sent
