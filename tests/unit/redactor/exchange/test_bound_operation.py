import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from proxy.redactor.exchange import bound_operation as notices
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.plan import make_plan
from proxy.telemetry import logs
from proxy.vault.expiry import reap
from proxy.vault.records.history import record_versions
from tests.support.exchanges import FORM, JSON, USUAL, Desk, desk, member_form
from tests.support.rules import operation_of
from tests.support.table import table


async def test_an_operation_has_a_counter_for_each_field_and_direction():
    one = await desk()
    joined = next(iter(one.runtime.joined.values()))
    assert isinstance(joined, BoundOperation)
    assert (
        set(joined.protected) == set(joined.restored) == {"name", "email", "phone", "born", "tags"}
    )
    joined.protected["name"].value += 2
    joined.restored["name"].value += 3
    text = one.metrics.render().decode()
    assert 'domicile_protected_values_total{entity="p",field="name"} 2.0' in text
    assert 'domicile_restored_values_total{entity="p",field="name"} 3.0' in text


async def test_operations_of_one_entity_share_its_counters_and_collection():
    one = await desk()
    first, second, *_ = one.runtime.joined.values()
    assert first.collection is second.collection
    assert first.protected["name"] is second.protected["name"]
    assert first.plan is not second.plan


def test_a_body_of_few_members_takes_no_long_time_however_much_they_hold():
    flat = notices._long(make_plan(operation_of('{match: "POST /contacts", create: contact}')))
    orders = json.dumps([{"id": number, "sum": 1, "paid": True} for number in range(2000)])
    assert not flat(f'{{"name": "Ann", "orders": {orders}}}'.encode())
    assert flat(f'{{"name": "Ann", "orders": {orders}'.encode())
    assert flat(f'{{"name": "Ann", "orders": {orders * 3}}}'.encode())
    assert flat(json.dumps({f"x{number}": number for number in range(2000)}).encode())
    assert flat(json.dumps([{"name": "Ann"}] * 2000).encode())


# ---- What is counted and logged of applications that change tokens, and of updates that no answ


FIELDS = (
    "name: {kind: name}",
    "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
    "phone: {kind: phone}",
    "born: {kind: date, token: {shape: fixed, value: '1900-01-01'}}",
    "open: {kind: text, token: plain}",
    "tags: {kind: text, at: '$.tags[*]'}",
)
ANN: dict[str, Any] = {
    "name": "Ann",
    "email": "Ann@x.example",
    "phone": "+46 70 123 45 67",
    "born": "1987-04-12",
}

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The warnings until now."""
    stream = io.StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logs.configure(logs.Style())


def altered(one: Desk, field: str) -> float:
    return one.metrics.cell("domicile_altered_tokens_total", "p", field).value


def undecided(one: Desk, field: str) -> float:
    return one.metrics.cell("domicile_undecided_updates_total", "p", field).value


@pytest.mark.parametrize(
    ("field", "change", "reason"),
    [
        ("name", str.lower, notices._CASE),
        ("name", str.upper, notices._CASE),
        ("name", lambda token: token[:12], notices._CUT),
        ("name", lambda token: token[:12].lower(), notices._CUT),
        ("phone", lambda token: token.replace(" ", ""), notices._TRIMMED),
        ("email", lambda token: token.partition("@")[2], notices._CUT),
        ("name", lambda _: "somebody", notices._OTHER),
    ],
)
@pytest.mark.parametrize("verb", ["create", "update", "first update"])
async def test_an_application_that_changes_tokens_is_noticed(
    field, change, reason, verb, lines: Lines
):
    one = await desk(fields=FIELDS)
    if verb == "update":
        await one.create(ANN)
    match, status = ("POST /p", 201) if verb == "create" else ("PATCH /p/1", 200)
    shown = ""
    for count in (1, 2):
        call = await one.send(
            match,
            {field: {**ANN, "name": f"Bo {count}", "phone": f"112 {count}7"}[field]},
        )
        shown = change(call.json[field])
        assert (await call.seen(status, {"id": 1, field: shown}))[field] == shown
        assert altered(one, field) == count
    (line,) = [line for line in lines() if "changes the tokens" in line["event"]]
    assert (line["field"], line["entity"], line["reason"]) == (field, "p", reason)
    assert "Ann" not in json.dumps(line)
    assert shown not in json.dumps(line)


@pytest.mark.parametrize(
    "shown", [{}, {"name": None}, {"name": ""}, {"tags": []}, {"open": "changed"}, {"phone": "1"}]
)
async def test_an_answer_that_does_not_show_the_field_is_no_sign(shown, lines: Lines):
    one = await desk(fields=FIELDS)
    await one.create(ANN)
    call = await one.send("PATCH /p/1", {"name": "Bo", "open": "Open", "tags": ["a"]})
    await call.answer(200, {"id": 1, **shown})
    assert [altered(one, name) for name in ("name", "open", "tags", "phone")] == [0, 0, 0, 0]
    assert lines() == []


@pytest.mark.parametrize("which", ["old", "new", "another record", "a part of a list"])
async def test_a_token_of_either_version_is_no_sign(which, lines: Lines):
    told = '{match: "PATCH /p/{id}", update: p, response: {id: $.id}}'
    one = await desk(*USUAL[:3], told, fields=FIELDS)
    stored = await one.create({**ANN, "tags": ["a"]})
    call = await one.send("PATCH /p/1", {"name": "Bo", "tags": ["a", "b", "c"]})
    new = {**stored, **call.json}
    answer = {
        "old": stored,
        "new": new,
        "another record": {**new, "id": 2, "name": "whatever"},
        "a part of a list": {**new, "tags": [new["tags"][1], "more"]},
    }[which]
    await call.answer(200, answer)
    assert altered(one, "name") == altered(one, "tags") == 0
    assert lines() == []


async def test_a_record_beside_which_a_version_is_in_doubt_is_no_sign():
    one = await desk(fields=FIELDS)
    stored = await one.create(ANN)
    doubtful = await one.send("PATCH /p/1", {"name": "Bo"})
    await doubtful.answer(500)
    call = await one.send("PATCH /p/1", {"name": "Cy"})
    await call.answer(200, {**stored, **doubtful.json})
    assert altered(one, "name") == 0


async def test_a_form_is_noticed_like_json():
    form = (
        "{match: 'POST /f', create: p, request: {form: {name: name}}, response: {form: {name: "
        "name}, id: $.id}}"
    )
    one = await desk(*USUAL, form, fields=FIELDS)
    call = await one.send("POST /f", member_form(name="Ann"), FORM)
    await call.answer(200, member_form(id="1", name=call.form["name"].lower()), FORM)
    assert altered(one, "name") == 1


@pytest.mark.parametrize("answered", [True, False])
async def test_an_update_that_no_answer_can_decide_is_told_with_its_field(answered, lines: Lines):
    one = await desk(fields=FIELDS)
    stored = await one.create(ANN)
    call = await one.send("PATCH /p/1", {"born": "1990-05-05", "email": "ann@X.example"})
    await (call.answer(500) if answered else call.exchange.failed(True))
    told = [(line["field"], line["operation"]) for line in lines() if "in doubt" in line["event"]]
    assert told == [("born", "PATCH /p/{id}"), ("email", "PATCH /p/{id}")]
    one.clock.advance(1)
    await one.shown(stored)
    assert (undecided(one, "born"), undecided(one, "email")) == (1, 1), "once"
    assert "1990-05-05" not in json.dumps(lines())


async def test_what_its_other_fields_can_decide_is_not_told(lines: Lines):
    one = await desk(fields=FIELDS)
    await one.create(ANN)
    await (await one.send("PATCH /p/1", {"born": "1990-05-05", "name": "Bo"})).answer(500)
    assert undecided(one, "born") == 0
    assert lines() == []


async def test_what_a_process_left_that_died_is_told_when_it_is_met(lines: Lines):
    one = await desk(fields=FIELDS)
    stored = await one.create(ANN)
    await one.send("PATCH /p/1", {"born": "1990-05-05"})
    one.clock.advance(1)
    other = await desk(fields=FIELDS, before=one)
    for _ in range(2):
        one.clock.advance(1)
        assert await other.shown(stored) == {**ANN, "id": 1}
    assert undecided(other, "born") == 1
    (line,) = lines()
    assert (line["field"], line["operation"]) == ("born", "GET /p/{id}")


async def test_a_create_without_an_id_is_told_once(lines: Lines):
    one = await desk(fields=FIELDS)
    assert lines() == []
    for _ in range(2):
        await (await one.send("POST /p", ANN)).answer(204)
    (line,) = lines()
    assert "without the id of its record" in line["event"]
    assert (line["operation"], line["entity"], "Ann" in json.dumps(line)) == ("POST /p", "p", False)


LISTED = '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}'
SLUGS = (
    "{match: POST /p, create: p}",
    '{match: "GET /p/{slug}", read: p, id: path slug}',
    '{match: "PATCH /p/{slug}", update: p, id: path slug}',
)


async def test_an_entity_with_two_kinds_of_id_is_told_once(lines: Lines):
    one = await desk(*SLUGS, fields=FIELDS)
    stored = await one.create(ANN)
    assert await one.shown(stored, "GET /p/1") == {**ANN, "id": 1}
    assert lines() == []
    for _ in range(2):
        await one.shown(stored, "GET /p/ann")
    (line,) = lines()
    assert "two kinds of id" in line["event"]
    assert (line["reason"], line["operation"]) == ("number and word", "GET /p/{slug}")
    assert "Ann" not in json.dumps(line)


async def test_a_list_that_shows_another_kind_of_id_is_told_too(lines: Lines):
    create = '{match: POST /p, create: p, response: {id: "header Location /p/{id}"}}'
    one = await desk(create, LISTED, '{match: "GET /p/{id}", read: p}', fields=FIELDS)
    call = await one.send("POST /p", ANN)
    await call.answer(201, b"", ((b"Location", b"/p/ann-lind"),))
    for _ in range(2):
        await one.shown([{**call.json, "id": 17}, {"id": 18, "name": "Bo"}], "GET /p")
    (line,) = lines()
    assert (line["reason"], line["operation"]) == ("word and number", "GET /p")


@table("shown", [["born"], ["phone"], ["id", "born"], ["name", "born"]])
async def test_a_list_without_ids_is_told_whose_dates_nobody_can_tell(shown, lines: Lines):
    """As of ``?fields=born`` of an application that leaves the id out."""
    one, before = await desk(), len(lines())
    ann = {"name": "Ann", "born": "1987-04-12", "phone": "24771"}
    stored = [await one.create(ann, number) for number in (1, 2)]
    people = [{name: of[name] for name in shown} for of in stored]
    clear = [{name: {**ann, "id": number}[name] for name in shown} for number in (1, 2)]
    untold = shown in (["born"], ["phone"])
    hidden = [{**of, "born": None} if "born" in of else {"phone": None} for of in people]
    for _ in range(2):
        assert await one.shown(people, "GET /p") == (hidden if untold else clear)
        assert (await one.shown(people[:1], "GET /p/1")) == clear[:1]
    said = [(one["field"], one["operation"], one["event"][:38]) for one in lines()[before:]]
    assert said == [(shown[0], "GET /p", "an answer shows objects without their ")] * untold
    assert (one.events["untold"] > 0) is untold


@table(
    ("body", "headers"),
    [('[{"born": "%s"}]', JSON), ('{"items": [{"born": "%s"}], "more": 1}', JSON)],
)
@table("word", ["hide", "leave"])
async def test_a_rule_may_show_what_the_id_alone_tells_from_a_value(word, body, headers):
    each = "$[*]" if body[0] == "[" else "$.items[*]"
    read = f'{{match: GET /p, read: p, response: {{each: "{each}", id: $.id}}}}'
    one = await desk(*USUAL[:1], read, more=f"on_error: {{untold_token: {word}}}")
    born = (await one.create({"name": "Ann", "born": "1987-04-12"}))["born"]
    answer = (body % born).encode()
    seen = (await (await one.send("GET /p")).answer(200, answer, headers)).body
    assert seen == (answer if word == "leave" else answer.replace(f'"{born}"'.encode(), b"null"))


async def test_a_copied_row_has_an_id_of_its_own(lines: Lines):
    one = await desk(fields=FIELDS)
    stored = await one.create(ANN)
    await one.shown({**stored, "id": 2}, "GET /p/2")
    assert lines() == []


OPERATIONS = ("{match: POST /p, create: p}", '{match: "GET /p/{id}", read: p}')


@pytest.mark.parametrize("hosted", [False, True])
async def test_an_id_that_is_given_again_leaves_the_record_before_in_its_history(
    hosted: bool, lines: Lines
):
    kept = (FIELDS[0], FIELDS[1].replace("find: [exact]", "keep_as: key3"), FIELDS[3])
    one = await desk(*OPERATIONS, fields=kept if hosted else FIELDS[:4], hosted=hosted)
    await one.create({"name": "Ann", "born": "1987-04-12"}, 7)
    (ann,) = (await one.people.by_key(["7"])).values()
    assert "displaced" not in one.events
    assert "reason" not in one.audit.lines[-1]

    stored = await one.create({"name": "Bo", "born": "1990-01-01"}, 7)

    assert one.events["displaced"] == 1
    assert [line["event"] for line in lines()] == [
        (
            "a create was answered with the id of a record that the vault has: the values "
            "before stay with the new ones until an answer shows what the record has; it is "
            "meant where the rules write an update without an id as a create (PATCH /me)"
        )
    ]
    assert one.audit.lines[-1]["reason"].endswith(
        "the id of a record that the vault had: see its history"
    )
    assert await one.shown(stored, "GET /p/7") == {"name": "Bo", "born": "1990-01-01", "id": 7}
    people = one.people
    one.clock.advance(8 * 86_400_000)
    await reap(people, 7 * 86_400_000)
    past, total = await people.store.past(people.table, people.key_hash("7"), 9, 0)
    assert total == 1
    (row,) = (await people.by_key(["7"])).values()
    (before,) = past
    was = ann._replace(version=before.version, salt=before.salt, body=before.body)
    body = people.sealer.open(was)
    assert {name: values[0].text for name, values in body.values.items()} == {
        "name": "Ann",
        "born": "1987-04-12",
    }
    if hosted:
        records = one.records("records")
        versions, _ = await record_versions(records, records.open(row).key or "", 9, 0)
        assert [version.rid for version in versions] == [row.rid, before.rid]
    await one.create({"name": "Cy"}, 7)
    assert one.events["displaced"] == 2
    assert len(lines()) == 1
    assert (await people.store.past(people.table, people.key_hash("7"), 9, 0))[1] == 2


async def test_an_answer_that_shows_a_nameless_record_under_the_id_of_another_keeps_both():
    one = await desk(fields=FIELDS[:2])
    await one.create({"name": "Ann"}, 7)
    call = await one.send("POST /p", {"name": "Bo"})
    await call.answer(201)
    one.clock.advance(1)

    assert await one.shown({**call.json, "id": 7}, "GET /p/7") == {"name": "Bo", "id": 7}

    assert one.events["displaced"] == 1
    assert (await one.people.store.past(one.people.table, one.people.key_hash("7"), 9, 0))[1] == 1


async def test_one_id_for_two_records_of_an_answer_is_the_last_ones():
    one = await desk(
        "{match: POST /bulk, create: p, request: {each: '$[*]'}, response: {each: '$[*]', id: $.id}}",
        fields=("name: {kind: name}",),
    )
    call = await one.send("POST /bulk", [{"name": "Ann"}, {"name": "Bo"}])
    assert await call.seen(201, [{**each, "id": 7} for each in call.json]) == [
        {"name": "Ann", "id": 7},
        {"name": "Bo", "id": 7},
    ]
    row = (await one.people.by_key(["7"]))["7"]
    assert one.people.sealer.open(row).values["name"][0].text == "Bo"
    assert await one.counts() == (2, 1, 0)


async def test_a_token_that_tells_its_record_finds_the_rest_of_it_after_an_update_by_id():
    """Of a create that was answered without an id: the phone number has one token for one record,
    and with it come the date and the name, whose tokens tell nothing.
    """
    one = await desk()
    call = await one.send(
        "POST /p", {"name": "Ann", "phone": "+46 70 123 45 67", "born": "1987-04-12"}
    )
    await call.answer(201)
    one.clock.advance(1)
    update = await one.send("PATCH /p/7", {"name": "Bea"})
    await update.answer(204)
    one.clock.advance(1)
    shown = await one.shown({**call.json, **update.json, "id": 7}, "GET /p/7")
    assert shown == {"name": "Bea", "phone": "+46 70 123 45 67", "born": "1987-04-12", "id": 7}
    assert await one.counts() == (1, 0, 0)


async def test_a_date_alone_tells_no_record_because_another_may_have_it_in_the_clear():
    """The application may hold people of before the proxy, whose dates look like tokens: shown by
    the date alone, one of them would get what another one wrote.
    """
    one = await desk()
    call = await one.send("POST /p", {"name": "Ann", "born": "1987-04-12"})
    await call.answer(201)
    one.clock.advance(1)
    update = await one.send("PATCH /p/7", {"name": "Bea"})
    await update.answer(204)
    one.clock.advance(1)
    stored = {**call.json, **update.json, "id": 7}
    assert await one.shown(stored, "GET /p/7") == {"name": "Bea", "born": stored["born"], "id": 7}
    assert await one.counts() == (2, 0, 0)
