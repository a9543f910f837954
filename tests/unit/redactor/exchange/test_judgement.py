"""Answers of success that tell of a refusal in their body."""

from typing import Any

from proxy.redactor.exchange.judgement import MOST, may_tell, tells_refusal, verdict
from proxy.redactor.message import RawHeaders
from tests.support.exchanges import JSON, USUAL, Desk, desk, written
from tests.support.table import table

WEEK = 7 * 86_400_000
FIELDS = ("name: {kind: name}", "pay: {kind: number, token: one}")
ANN, BO = {"name": "Ann Abide"}, {"name": "Bo Both"}
LIST = '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}'
REFUSALS: tuple[dict[str, Any], ...] = (
    {"data": None, "errors": [{"message": "taken"}]},
    {"errors": {"name": ["too short"]}},
    {"error": "no such thing"},
    {"error": True, "message": "no"},
    {"success": False},
    {"success": 0, "message": "no"},
    {"ok": False},
    {"status": "error", "message": "no"},
    {"status": "fail", "data": {"name": "too short"}},
    {"Error": "no such thing"},
    {"Success": False, "Message": "no"},
    {"OK": 0},
    {"Status": "Failed"},
    {"status": "failure"},
    {"code": 500},
    {"status": 422, "title": "no"},
    {"statusCode": 403, "message": "no"},
    {"success": "false"},
    {"isSuccess": False},
    {"result": "error"},
    {"result": False},
    {"status": False, "message": "no"},
    {"errorCode": "LOCKED", "errorMessage": "no"},
    {"errno": 1062},
    {"exception": "NotFound", "message": "no"},
    {"validationErrors": [{"name": "too short"}]},
    {"result": {"ok": False}},
    {"data": {"success": False, "message": "no"}},
    {"Data": {"Errors": {"name": ["too short"]}}},
    {"payload": {"status": "error", "message": "no"}},
    {"data": {"status": 404, "message": "no"}, "meta": {}},
    {"success": True, "data": {"error": "locked", "person": None}},
    {"d": {"result": {"ok": False}}},
)
#: Results of databases, as applications pass them on: no record was changed.
UNCHANGED: tuple[dict[str, Any], ...] = (
    {"acknowledged": True, "deletedCount": 0},
    {"acknowledged": True, "matchedCount": 0, "modifiedCount": 0, "upsertedId": None},
    {"n": 0, "ok": 1, "nModified": 0},
    {"affectedRows": 0, "changedRows": 0, "insertId": 0, "serverStatus": 2},
    {"affected": 0, "raw": []},
    {"command": "DELETE", "rowCount": 0, "rows": []},
    {"changes": 0, "lastInsertRowid": 0},
    {"count": 0},
    {"deleted": False},
    {"updated": 0, "message": "nothing"},
    {"data": {"deletedCount": 0}},
    {"success": True, "data": {"acknowledged": True, "deletedCount": 0}},
    {"result": {"n": 0, "ok": 1}, "connection": {"id": 3}},
    {"data": {"affected": 0, "raw": []}, "meta": {}},
)
#: What may be said in place of a record that was not found, or after a success.
NOTHING = (b"null", b"false", b"0", b" [0]\n", b"[]", b'""')
SUCCESSES: tuple[Any, ...] = (
    {},
    {"ok": True},
    {"success": True, "errors": [], "error": None},
    {"errors": {}, "error": ""},
    {"error": False, "ok": 1},
    {"error": 0, "success": None},
    {"errorCode": 0, "errno": "0", "exception": None, "fieldErrors": [], "loginErrors": 3},
    {"matchedCount": 1, "modifiedCount": 0},
    {"n": 1, "nModified": 0, "ok": 1},
    {"name": "Bo", "deleted": False, "count": 0},  # a record's own
    {"id": 7, "rowCount": 0, "validationErrors": []},
    {"count": None},
    {"deleted": True},
    {"status": "success"},
    {"id": 7, "status": "failed", "code": 450, "result": "error"},  # a record's own
    {"status": "active", "note": "error"},
    {"status": 200, "code": 0, "statusCode": 201},
    {"code": "500", "status": True},
    {"result": 450, "isSuccess": True},
    {"code": 1234, "Status": 600, "name": {"code": 500}},
    {"person": {"errors": ["of something else"], "ok": False}},
    {"data": {"id": 7, "ok": False, "error": "a record's own", "deletedCount": 0}},
    {"data": {"name": "Bo", "status": "failed", "code": 500}},  # likewise
    {"data": {"name": "Bo", "count": 0, "deleted": False}},
    {"data": {"deletedCount": 1}},
    {"data": [{"ok": False}]},
    {"data": None, "result": "gone"},
    {"data": {"result": {"data": {"ok": False}}}},
    [{"error": "not at the top"}],
    "error",
    b'{"error": "cut off',
    b"",
)


ENVELOPE = b"<s:Envelope xmlns:s='u'><s:Header><w:ok xmlns:w='w'>false</w:ok></s:Header><s:Body>%b</s:Body></s:Envelope>"
XML_REFUSALS = (
    b"<e><status>error</status></e>", b"<result success='false'/>", b"<errors><error>x</error></errors>",
    b"<error>x</error>", b"<problem xmlns='urn:ietf:rfc:7807'><title>x</title></problem>", b"<r><code>404</code><message>no</message></r>",
    b"<problem xmlns='urn:ietf:rfc:7807'><title>no</title><status>403</status></problem>",
    ENVELOPE % b"<DeleteResponse><DeleteResult><Success>False</Success></DeleteResult></DeleteResponse>",
    b"<r><deleted>0</deleted></r>", ENVELOPE % b"<s:Fault/>",
)  # fmt: skip
XML_SUCCESSES = (
    b"<e><status>ok</status></e>", b"<result success='true'><errors/></result>", b"<r><errors type='array'/></r>",
    b"<contact><id>7</id><status>failed</status></contact>", b"<contact id='7'><status>error</status></contact>",
    ENVELOPE % b"<DeleteResponse><DeleteResult>true</DeleteResult></DeleteResponse>", b"<r/>", b"<r>", b"<e:r:s/>",
    b"<r><a><status>error</status></a><b/></r>", b"<r><deleted>1</deleted></r>", b"<r xsi:nil='true' xmlns:xsi='u'/>",
)  # fmt: skip


@table("body", XML_REFUSALS)
def test_a_refusal_of_xml_is_told_at_its_root_or_alone_in_it(body):
    assert tells_refusal(body)


@table("body", XML_SUCCESSES)
def test_so_it_is_with_no_other_answer_of_xml(body):
    assert not tells_refusal(body)


@table("body", [*REFUSALS, *UNCHANGED])
def test_a_refusal_is_told_by_the_members_at_the_top(body):
    assert tells_refusal(written(body))
    assert tells_refusal(b")]}',\n" + written(body))


@table("body", [*SUCCESSES, *NOTHING])
def test_anything_else_tells_none(body):
    assert not tells_refusal(written(body))


def test_depth_tells_none():
    assert not tells_refusal(b'{"error":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@table(
    ("fields", "read"),
    [
        (JSON, True),
        ((*JSON, (b"Content-Length", b"%d" % MOST)), True),
        ((*JSON, (b"Content-Length", b"%d" % (MOST + 1))), False),
        ((*JSON, (b"Content-Length", b"0")), False),
        (((b"Content-Type", b"application/problem+json"),), True),
        (((b"Content-Type", b"text/html"),), False),
        (((b"Content-Type", b"text/html"), (b"Content-Length", b"9")), True),
        (((b"Content-Type", b"text/csv"), (b"Content-Length", b"9")), False),
        ((), True),
    ],
)
def test_short_answers_of_json_are_read_for_it(fields: RawHeaders, read: bool):
    assert may_tell(fields) == read


def rules(success: str) -> tuple[str, ...]:
    """The usual operations; those that write say what success is, or do not."""
    stated = f", response: {{{success}}}" if success else ""
    several = (
        '{match: POST /remove, delete: p, id: "$.ids[*]"}',
        '{match: POST /change, update: p, id: "$.ids[*]", request: {object: $.data}}',
    )
    return (
        f"{{match: POST /p, create: p{stated}}}",
        LIST,
        USUAL[2],
        f'{{match: "PATCH /p/{{id}}", update: p{stated}}}',
        f'{{match: "DELETE /p/{{id}}", delete: p{stated}}}',
        *(() if success else several),
    )


async def office(success: str = "") -> tuple[Desk, list[dict[str, Any]]]:
    one = await desk(*rules(success), fields=FIELDS)
    return one, [await one.create(ANN, number) for number in (1, 2)]


def names(shown: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in shown]


@table("kind", [None, b"text/html", b"text/plain", b"text/javascript"])
async def test_so_does_json_that_has_another_type(kind):
    one, _ = await office()
    call = await one.send("PATCH /p/1", BO)
    body = b'{"error": "locked"}'
    length = (b"Content-Length", b"%d" % len(body))
    await call.answer(200, body, ((b"Content-Type", kind), length) if kind else (length,))
    (row,) = (await one.people.by_key(["1"])).values()
    assert one.people.sealer.open(row).values["name"][0].text == ANN["name"]
    assert await one.counts() == (2, 0, 1)


@table("body", REFUSALS)
@table("took", [False, True])
async def test_an_update_is_in_doubt(body, took):
    one, [stored, _] = await office()
    call = await one.send("PATCH /p/1", BO)
    await call.answer(200, body)
    assert one.idle
    assert await one.counts() == (2, 0, 1)
    new = {"id": 1, **call.json}
    # each token has its own value, and what the application shows decides
    shown = new if took else stored
    assert (await one.shown(shown))["name"] == (BO if took else ANN)["name"]
    assert await one.counts() == (2, 0, 0)
    gone = stored if took else new
    assert await one.shown(gone) == gone


async def test_an_update_in_doubt_ends_with_the_time():
    one, [stored, _] = await office()
    await (await one.send("PATCH /p/1", BO)).answer(200, {"ok": False})
    one.clock.advance(WEEK + 1)
    await one.vault.maintain()
    assert await one.counts() == (2, 0, 0)
    assert (await one.shown(stored))["name"] == ANN["name"]


async def test_a_refusal_shows_the_caller_its_own_values():
    one, _ = await office()
    call = await one.send("PATCH /p/1", BO)
    token = call.json["name"]
    seen = await call.seen(200, {"id": 1, "name": token, "errors": [f"{token} is taken"]})
    assert seen == {"id": 1, "name": BO["name"], "errors": [f"{BO['name']} is taken"]}
    assert await one.counts() == (2, 0, 1)


@table("body", [*UNCHANGED, *NOTHING])
@table("took", [False, True])
async def test_an_update_of_which_nothing_is_told_is_shown_and_keeps_what_was_before(body, took):
    one, [stored, _] = await office()
    call = await one.send("PATCH /p/1", BO)
    await call.answer(200, body, JSON)
    one.clock.advance(WEEK + 1)
    await one.vault.maintain()
    shown = {"id": 1, **call.json} if took else stored
    assert (await one.shown(shown))["name"] == (BO if took else ANN)["name"]


@table("body", NOTHING)
@table("there", [False, True])
async def test_a_delete_of_which_nothing_is_told_is_carried_out_unless_the_record_is_shown(
    body, there
):
    one, [stored, _] = await office()
    await (await one.send("DELETE /p/1")).answer(200, body, JSON)
    assert await one.counts() == (2, 0, 1)
    if there:
        assert (await one.shown(stored))["name"] == ANN["name"]
    one.clock.advance(WEEK + 1)
    await one.vault.maintain()
    assert await one.counts() == (2 if there else 1, 0, 0)


@table("body", [*REFUSALS, *UNCHANGED])
async def test_a_delete_is_in_doubt(body):
    one, [stored, _] = await office()
    await (await one.send("DELETE /p/1")).answer(200, body)
    assert (await one.shown(stored))["name"] == ANN["name"]
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    assert (await one.shown(stored))["name"] == ANN["name"]


async def test_a_delete_in_doubt_is_carried_out_where_the_record_is_gone():
    one, _ = await office()
    await (await one.send("DELETE /p/1")).answer(200, {"success": False})
    await (await one.send("GET /p/1")).answer(404)
    assert await one.counts() == (1, 0, 0)


@table("body", REFUSALS)
async def test_changes_of_several_are_in_doubt(body):
    one, stored = await office()
    await (await one.send("POST /remove", {"ids": [1, 2]})).answer(200, body)
    call = await one.send("POST /change", {"ids": [1, 2], "data": BO})
    await call.answer(200, body)
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    assert names(await one.shown(stored, "GET /p")) == [ANN["name"]] * 2
    assert await one.counts() == (2, 0, 0)


ONE_REFUSED: tuple[dict[str, Any], ...] = (
    {"status": 403},
    {"status": 409, "name": "Bo", "etag": 4},
    {"error": "locked", "name": "Bo"},
    {"ok": False},
    {"status": "failed", "message": "no"},
    {"errors": [{"code": 7}]},
    {"deleted": False},
    {"Updated": 0},
)
ONE_TAKEN: tuple[dict[str, Any], ...] = (
    {"status": 200, "error": None},
    {"status": "failed", "age": "a record's own"},
    {"ok": True},
    {"deleted": True},
    {"deleted": False, "age": "a record's own"},
)
DONE = 'id: "$.ids[*]", response: {each: "$.done[*]", id: $.id}'


@table(("told", "doubts"), [*((one, 1) for one in ONE_REFUSED), *((one, 0) for one in ONE_TAKEN)])
@table("first", [True, False])
async def test_one_of_several_of_which_the_answer_says_that_it_is_as_before_is_in_doubt(
    told, doubts, first
):
    delete = f"{{match: POST /remove, delete: p, {DONE}}}"
    change = f"{{match: POST /change, update: p, {DONE}, request: {{object: $.data}}}}"
    one = await desk(*USUAL[:1], LIST, delete, change, fields=FIELDS)
    stored = [await one.create(ANN, number) for number in (1, 2)]
    results = [{"id": 1, "status": 200}] * first + [{"id": 2, **told}]
    call = await one.send("POST /change", {"ids": [1, 2], "data": BO})
    await call.answer(200, {"done": results})
    assert await one.counts() == (2, 0, doubts + (not first))
    if doubts:
        assert names(await one.shown(stored[1:], "GET /p")) == [ANN["name"]]
    await (await one.send("POST /remove", {"ids": [1, 2]})).answer(207, {"done": results})
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    assert await one.counts() == (doubts + (not first), 0, 0)


@table("places", ['response: {id: "$.done[*]"}', 'response: {each: "$.done[*]", id: $.id}'])
async def test_those_of_several_that_the_answer_names_are_changed_all_the_same(places):
    change = (
        f'{{match: POST /change, update: p, id: "$.ids[*]", request: {{object: $.data}}, {places}}}'
    )
    one = await desk(*USUAL[:1], LIST, change, fields=FIELDS)
    stored = [await one.create(ANN, number) for number in (1, 2)]
    call = await one.send("POST /change", {"ids": [1, 2], "data": BO})
    done: list[Any] = [1] if "each" not in places else [{"id": 1, **call.json["data"]}]
    await call.answer(200, {"done": done, "errors": [{"id": 2, "message": "locked"}]})
    assert await one.counts() == (2, 0, 1)
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    shown = await one.shown([{"id": 1, **call.json["data"]}, stored[1]], "GET /p")
    assert names(shown) == [BO["name"], ANN["name"]]


async def test_a_create_without_an_id_ends_unless_an_answer_shows_it():
    one, _ = await office()
    lost = await one.send("POST /p", BO)
    await lost.answer(200, {"errors": ["taken"]})
    kept = await one.send("POST /p", {"name": "Cy Clist"})
    await kept.answer(200, {"errors": ["taken"]})
    assert await one.counts() == (4, 2, 0)
    assert (await one.shown({"id": 9, **kept.json}, "GET /p/9"))["name"] == "Cy Clist"
    one.clock.advance(WEEK + 1)
    await one.vault.maintain()
    assert await one.counts() == (3, 0, 0)
    assert (await one.shown({"id": 9, **kept.json}, "GET /p/9"))["name"] == "Cy Clist"


async def test_a_create_that_names_the_record_was_carried_out():
    one, _ = await office()
    call = await one.send("POST /p", BO)
    await call.answer(201, {"id": 3, "errors": ["a warning"]})
    assert await one.counts() == (3, 0, 0)
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    assert (await one.shown({"id": 3, **call.json}, "GET /p/3"))["name"] == BO["name"]


@table("body", SUCCESSES)
async def test_any_other_answer_of_success_is_believed(body):
    one, _ = await office()
    await (await one.send("PATCH /p/1", BO)).answer(200, body)
    assert await one.counts() == (2, 0, 0)
    await (await one.send("DELETE /p/1")).answer(200, body)
    assert await one.counts() == (1, 0, 0)


@table("body", REFUSALS)
async def test_a_rule_that_says_what_success_is_is_believed(body):
    one, _ = await office("success: [200, 201]")
    await (await one.send("PATCH /p/1", BO)).answer(200, body)
    await (await one.send("DELETE /p/2")).answer(200, body)
    assert await one.counts() == (1, 0, 0)


async def test_a_text_that_only_success_has_makes_a_refusal_of_it():
    one, [stored, _] = await office("success: {status: [200, 201], text: '\"id\"'}")
    call = await one.send("PATCH /p/1", BO)
    await call.answer(200, {"errors": ["no"]})
    assert await one.counts() == (2, 0, 0)
    assert (await one.shown(stored))["name"] == ANN["name"]


@table("rounds", [1, 2, 12])
@table("took", [False, True])
@table("wait", [1, 2 * WEEK])
async def test_an_answer_that_shows_the_record_as_it_was_decides_nothing(rounds, took, wait):
    """So answers ``findOneAndUpdate`` unless it is told otherwise, as well as a refusal."""
    one, [stored, _] = await office()
    before, value = stored, ANN
    for number in range(rounds):
        call = await one.send("PATCH /p/1", {"name": f"Bo {number}"})
        assert (await call.seen(200, before))["name"] == value["name"]
        if took:
            before, value = {"id": 1, **call.json}, {"name": f"Bo {number}"}
    one.clock.advance(wait)
    await one.vault.maintain()
    assert names(await one.shown([before], "GET /p")) == [value["name"]]
    one.clock.advance(WEEK)
    assert names(await one.shown([before], "GET /p")) == [value["name"]]
    assert await one.counts() == (2, 0, 0)


@table(
    "field",
    [
        (b"Precognition", b"true"),
        (b"Preference-Applied", b"return=representation, tx=rollback"),
    ],
)
@table("status", [200, 204])
@table("success", ["", "success: [200, 201, 204]"])
async def test_what_was_only_tried_changes_nothing(field, status, success):
    one, [stored, _] = await office(success)
    for match in ("PATCH /p/1", "POST /p", "DELETE /p/1"):
        call = await one.send(match, b"" if "DELETE" in match else BO)
        new = {"id": 1, **call.json} if call.sent.body else {"id": 1}
        shown = await call.answer(status, new if status == 200 else b"", (*JSON, field))
        assert (status == 204) or ("DELETE" in match) or BO["name"].encode() in shown.body
    assert await one.counts() == (2, 0, 0)
    assert (await one.shown(stored))["name"] == ANN["name"]


async def test_values_with_one_token_are_kept_until_a_write_is_taken():
    one, _ = await office()
    stored = {"id": 3, **(call := await one.send("POST /p", {**ANN, "pay": 100})).json}
    await call.answer(201, {"id": 3})
    await (await one.send("PATCH /p/3", {"pay": 200})).answer(200, {"success": False})
    assert (await one.shown(stored, "GET /p/3"))["pay"] == 100


@table(
    ("values", "made"),
    [
        ([], None), ([None], None), ([False], None), ([[]], None), ([{}], None), ([0], None),
        ([True], True), (["17"], True), ([[True, None]], True), ([{"id": "1"}], True),
        ([{"__typename": "Person"}], True), ([{"affected_rows": 2}], True),
        ([{"affected_rows": 0}], None), ([{"person": None, "message": "done"}], None),
        ([{"success": True, "message": "done"}], True), ([{"ok": False, "id": 1}], False),
        ([{"person": None, "userErrors": [{"message": "no"}]}], False),
        ([{"person": {"id": 1}, "userErrors": []}], True),
        ([{"__typename": "NotFoundError", "message": "no"}], False),
        ([{"__typename": "ErrorReport", "id": "1"}], True),
        ([[{"id": "1"}, {"errors": ["no"]}]], False),
    ],
)  # fmt: skip
def test_what_stands_in_the_place_of_a_mutation_tells_whether_it_was_made(values, made):
    assert verdict(values) is made


@table(
    ("match", "headers", "over"),
    [
        ("GET /p/1", (), True),
        ("GET /p/%31", (), False),
        ("GET /%70/1", (), False),
        ("GET /%2570/1", (), False),
        ("GET /x/../p/1", (), False),
        ("GET /P/1", (), False),
        ("GET /p/1/", (), False),
        ("GET //p/1", (), False),
        ("GET /p/1;v=2", (), False),
        ("GET /p/1?tenant=2", (), False),
        ("HEAD /p/1", (), False),
        ("GET /p/1", ((b"X-Tenant", b"2"),), False),
        ("GET /p/1", ((b"Accept", b"*/*"), (b"If-None-Match", b'"a"'), (b"Cookie", b"a=b")), True),
    ],
)
async def test_only_a_plain_question_is_answered_by_404_with_regard_to_its_record(
    match, headers, over
):
    """Whatever an application does not understand it answers so, to everybody."""
    one = await desk(*USUAL)
    await one.create({"name": "Ann"}, 1)
    await (await one.send("DELETE /p/1")).exchange.failed(True)
    one.clock.advance(1)
    await (await one.send(match, b"", headers)).answer(404, {"error": "no"})
    assert (await one.counts() == (0, 0, 0)) is over
    assert one.idle
