"""``pass: true`` of places of a write, and parameters of its address that are called like members."""

import asyncio
import json
from io import StringIO
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.net.coverage_report import CoverageReport, coverage_data
from proxy.redactor.load import load_text
from proxy.redactor.message import RawHeaders
from proxy.redactor.tools.difference import differences
from proxy.redactor.tools.explain import as_data, find_operation
from proxy.telemetry import logs
from tests.support.exchanges import FIELDS, FORM, JSON, Desk, desk, rule_text
from tests.support.table import table

NAME = "Zorbina"
CSV: RawHeaders = ((b"Content-Type", b"text/csv"),)


def create(request: str) -> str:
    answers = {
        "{form": ', response: {id: "header Location /p/{id}"}',
        "{csv": ', response: {id: "$.ids[*]"}',
    }
    answer = answers.get(request.partition(":")[0], "")
    return f"{{match: POST /p, create: p, request: {request}{answer}}}"


def upload(**parts: str) -> tuple[bytes, bytes]:
    """A form of parts and its content type."""
    body = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
        for name, text in parts.items()
    )
    return f"{body}--b--\r\n".encode(), b"multipart/form-data; boundary=b"


FORM_TYPE = FORM[0][1]
CASES = {
    "a member": (
        "{values: {$.city: {pass: true}}}",
        ({"name": NAME, "city": NAME}, JSON[0][1]),
    ),
    "a member beside an object": (
        '{object: $.p, values: {"$.places[*].city": {pass: true}}}',
        ({"p": {"name": NAME}, "places": [{"city": NAME}, {"city": "x"}]}, JSON[0][1]),
    ),
    "all beneath a place": (
        "{values: {$.company: {pass: true}}}",
        ({"name": NAME, "company": {"names": [NAME]}}, JSON[0][1]),
    ),
    "a member of a form": (
        "{form: {name: name, city: {pass: true}}}",
        (f"name={NAME}&city={NAME}".encode(), FORM_TYPE),
    ),
    "all other members": (
        '{form: {name: name, "*": {pass: true}}}',
        (f"name={NAME}&city={NAME}&b=1".encode(), FORM_TYPE),
    ),
    "a part": (
        "{multipart: {name: name, city: {pass: true}}}",
        upload(name=NAME, city=NAME),
    ),
    "a column": (
        "{csv: {Name: name, City: {pass: true}}}",
        (f"Name,City\n{NAME},{NAME}\nBo,Ystad\n".encode(), b"text/csv"),
    ),
}  # fmt: skip


@table("case", CASES)
async def test_a_value_of_a_field_may_stand_in_a_place_that_passes(case):
    rule, (body, kind) = CASES[case]
    one = await desk(create(rule))
    call = await one.send("POST /p", body, ((b"Content-Type", kind),))
    text = call.sent.body.decode()
    assert text.count(NAME) == 1, "the place that passes keeps it, and the field has a token"
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    refused = await desk(create(_bare(rule)))
    with pytest.raises(VaultError) as caught:
        await refused.send("POST /p", raw, ((b"Content-Type", kind),))
    assert caught.value.code is Code.VALUE_ELSEWHERE, "without the word it is refused"


def _bare(rule: str) -> str:
    """The rule without what passes."""
    for passed in (
        "values: {$.city: {pass: true}}", 'values: {"$.places[*].city": {pass: true}}',
        "values: {$.company: {pass: true}}",
    ):  # fmt: skip
        rule = rule.replace(passed, "empty: store")
    for name in ("city", '"*"', "City"):
        rule = rule.replace(f", {name}: {{pass: true}}", "")
    return rule


async def test_the_value_of_a_place_that_passes_may_stand_nowhere_else_unless_it_passes_there():
    one = await desk(create("{values: {$.city: {pass: true}}}"))
    with pytest.raises(VaultError) as caught:
        await one.send("POST /p", {"name": NAME, "city": NAME, "note": f"of {NAME}"})
    assert caught.value.details[0].source == "the body"
    call = await one.send("POST /p", {"name": "Bo", "city": NAME, "note": f"of {NAME}"})
    assert call.json["note"] == f"of {NAME}", "a city is nobody's value"


async def test_of_several_objects_in_one_message_each_lets_its_places_pass():
    part = "{{create: p, request: {{object: $.{0}, values: {{$.{0}.city: {{pass: true}}}}}}, response: {{object: $.{0}}}}}"
    other = "q: {fields: {name: {kind: name}}}"
    rule = f"{{match: POST /p, objects: [{part.format('a')}, {part.format('b').replace('create: p', 'create: q')}]}}"
    one = await desk(rule, entities=(f"  {other}",))
    body = {"a": {"name": NAME, "city": "Bertram"}, "b": {"name": "Bertram", "city": NAME}}
    call = await one.send("POST /p", body)
    assert (call.json["a"]["city"], call.json["b"]["city"]) == ("Bertram", NAME)
    body["a"]["note"] = NAME
    with pytest.raises(VaultError) as caught:
        await one.send("POST /p", body)
    assert caught.value.code is Code.VALUE_ELSEWHERE


async def told(rule: str, match: str, body: Any, kind: bytes) -> tuple[Desk, list[Any]]:
    one, stream = await desk(rule), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    call = await one.send(match, body, ((b"Content-Type", kind),))
    await call.answer(201, {"id": 1, "ids": [1]}, JSON)
    await asyncio.sleep(0)
    logs.configure(logs.Style())
    return one, [json.loads(line) for line in stream.getvalue().splitlines()]


@table(
    ("request_", "body", "kind"),
    [
        ("{values: {$.desk: {pass: true}}}", {"name": "Bo", "desk": {"mail": "a@example.com"}}, JSON[0][1]),
        ("{form: {name: name, mail: {pass: true}}}", b"name=Bo&mail=a%40example.com", FORM_TYPE),
        ("{multipart: {name: name, mail: {pass: true}}}", *upload(name="Bo", mail="a@example.com")),
        ("{csv: {Name: name, Mail: {pass: true}}}", b"Name,Mail\nBo,a@example.com\n", b"text/csv"),
    ],
)  # fmt: skip
async def test_what_passes_on_purpose_is_not_reported(request_, body, kind):
    one, lines = await told(create(request_), "POST /p", body, kind)
    assert lines == [] or not [line for line in lines if "place" in line]
    assert "domicile_unnamed_parameters_total{" not in one.metrics.render().decode()


def test_coverage_and_explain_show_what_passes_on_purpose_and_diff_tells_it():
    text = rule_text(create("{values: {$.city: {pass: true}}}"))
    rules = load_text(text)
    (passed,) = coverage_data(CoverageReport(), rules)["passed"]
    assert (passed["match"], passed["place"], passed["parameter"]) == ("POST /p", "body", "$.city")
    explained = as_data(find_operation(rules, "POST", "/p"))["operation"]
    assert explained["passed"] == ["body $.city"]
    (change,) = differences(load_text(rule_text("{match: POST /p, create: p}")), rules)
    assert change.text == "the request's $.city: none becomes nobody's data, passed on purpose"


@table(
    ("request_", "text"),
    [
        ("{values: {$.name: {pass: true}}}", "overlaps a field at $.name"),
        ("{values: {$.city: {pass: true, field: name}}}", "'field' means nothing"),
        ("{values: {$.city: {field: name}}}", "or pass: true where it is nobody's"),
        ("{form: {city: {pass: true}}}", "'form' names no field"),
        ('{form: {"n_*": name, "*_m": {pass: true}}}', "neither is more specific"),
        ("{csv: {Name: name, City: {}}}", "column lacks 'pass'"),
    ],
)
def test_a_place_that_passes_and_cannot_is_a_fault(request_, text):
    with pytest.raises(VaultError) as caught:
        load_text(rule_text(create(request_)))
    assert text in str(caught.value.details)


def test_a_patch_is_not_followed_to_places_that_pass():
    rule = '{match: "PATCH /p/{id}", update: p, request: {patch: json, values: {$.city: {pass: true}}}}'
    with pytest.raises(VaultError) as caught:
        load_text(rule_text(rule))
    assert "not followed to places that pass" in str(caught.value.details)


async def test_the_most_specific_name_counts():
    one = await desk(create('{form: {name: name, "tag_*": tags, tag_size: {pass: true}}}'))
    call = await one.send("POST /p", b"name=Bo&tag_a=Zorbina&tag_size=Grande", FORM)
    assert call.form["tag_size"] == "Grande"
    assert call.form["tag_a"] != NAME


async def test_a_pattern_that_lets_all_pass_makes_no_other_spelling_of_a_field_an_expected_name():
    query = '{match: GET /p, read: p, query: {email: email, "*": {pass: true}}, response: {each: "$[*]"}}'
    one = await desk(query.replace("email: email", "email: {field: email}"), fields=(
        "email: {kind: email, token: {shape: email, same: true}}",
    ))  # fmt: skip
    with pytest.raises(VaultError) as caught:
        await one.send("GET /p?Email=zorbina%40example.com")
    assert caught.value.code is Code.AMBIGUOUS_JSON
    assert (await one.send("GET /p?page=Zorbina")).sent.target == b"/p?page=Zorbina"


@table(
    ("request_rule", "body", "kind"),
    [
        (
            "{form: {email: email, _email: email}}",
            b"email=a%40x.example&_email=a%40x.example",
            FORM,
        ),
        ("{csv: {Email: email, E-Mail: email}}", b"Email,E-Mail\na@x.example,a@x.example\n", CSV),
        ("{csv: {Email: email, E-Mail: email}}", b"Email,E-Mail\na@x.example,\n", CSV),
        ("{object: $}", b'{"email": "a@x.example", "_email": "a@x.example"}', JSON),
    ],
)
async def test_two_names_that_are_nearly_one_are_both_swapped_where_the_rule_names_both(
    request_rule: str, body: bytes, kind: RawHeaders
):
    twin = "again: {kind: email, at: $._email}"
    one = await desk(create(request_rule), fields=(*FIELDS, twin) if kind is JSON else FIELDS)
    sent = (await one.send("POST /p", body, kind)).sent.body
    assert b"x.example" not in sent
    assert sent.count(b"example.org") == body.count(b"x.example")


async def test_a_name_that_servers_translate_into_a_named_one_passes_where_its_rule_says_so():
    members = "{name: name, naMe: {pass: true}}"
    for key, body, kind in (
        ("form", b"name=Wexlomere&naMe=Zorbina", FORM),
        ("csv", b"name,naMe\nWexlomere,Zorbina\n", CSV),
    ):
        one = await desk(create(f"{{{key}: {members}}}"))
        sent = (await one.send("POST /p", body, kind)).sent.body
        assert b"Zorbina" in sent
        assert b"Wexlomere" not in sent
        with pytest.raises(VaultError) as caught:
            await one.send("POST /p", body.replace(b"naMe", b"na_me"), kind)
        assert caught.value.code is Code.AMBIGUOUS_JSON


# ---------------------------------------------------------------------- the address of a write

FORMS = create("{form: {name: name, 'p[born]': born, \"tag_*\": tags}}")
OBJECT = create("{object: $.p}")


@table(
    ("rule", "query", "called"),
    [
        (FORMS, "name=Zorbina", "name"),
        (FORMS, "page=1&Name=Zorbina", "name"),
        (FORMS, "a=1;name=Zorbina", "name"),
        (FORMS, "name[]=Zorbina", "name"),
        (FORMS, "Na-me=Zorbina", "name"),
        (FORMS, "%6eame=Zorbina", "name"),
        (FORMS, "p[born]=1980-01-01", "p.born"),
        (FORMS, "tag_1=Zorbina", "tag_*"),
        (FORMS, "tagFirst=Zorbina", "tag_*"),
        (OBJECT, "p[name]=Zorbina", "p.name"),
        (OBJECT, "p.name=Zorbina", "p.name"),
        (OBJECT, "name=Zorbina", "name"),
    ],
)
async def test_a_parameter_of_a_write_that_is_called_like_a_member_of_its_body_is_refused(
    rule, query, called
):
    one = await desk(rule)
    body, kind = (b"name=Bo", FORM) if rule is FORMS else ({"p": {"name": "Bo"}}, JSON)
    with pytest.raises(VaultError) as caught:
        await one.send(f"POST /p?{query}", body, kind)
    assert caught.value.code is Code.VALUE_ELSEWHERE
    assert caught.value.details[0].source == f"the parameter {called} of the address"
    assert NAME not in str(caught.value)
    assert one.idle


@table(
    "target",
    ["/p;name=Zorbina", "/p;a=1;Name=Zorbina?b=2", "/p%3Bname=Zorbina", "/p%253bname%253dZorbina"],
)
async def test_so_is_one_within_the_path_of_a_write(target):
    one = await desk(FORMS)
    with pytest.raises(VaultError) as caught:
        await one.send(f"POST {target}", b"name=Bo", FORM)
    assert caught.value.code is Code.VALUE_ELSEWHERE
    assert one.idle
    assert (await one.send("POST /p;v=1;name", b"name=Bo", FORM)).sent.target == b"/p;v=1;name"


@table(
    "query", ["id=17&page=2", "name=", "name", "next=/p&sort=name", "surname=x", "order[name]=asc", ""]
)  # fmt: skip
async def test_other_parameters_of_a_write_pass(query):
    one = await desk(FORMS)
    call = await one.send(f"POST /p?{query}", b"name=Bo", FORM)
    assert call.sent.target == f"/p?{query}".encode()


async def test_a_parameter_of_a_write_passes_that_its_rule_lets_pass():
    rule = FORMS.replace("request:", "query: {name: {pass: true}}, request:")
    one = await desk(rule)
    call = await one.send("POST /p?name=list", b"name=Bo", FORM)
    assert call.sent.target == b"/p?name=list"
    await call.answer(302, b"", ((b"Location", b"/p/1"),))
    assert "domicile_unnamed_parameters_total{" not in one.metrics.render().decode()
    call = await one.send(f"POST /p?name={NAME}", f"name={NAME}".encode(), FORM)
    assert NAME.encode() in call.sent.target, "the guard passes it over"


@table(("guard", "found"), [("report", 1), ("off", 0)])
async def test_the_guard_of_the_rules_says_what_becomes_of_it(guard, found):
    one = await desk(FORMS, more=f"on_error: {{guard: {guard}}}")
    call = await one.send("POST /p?name=Zorbina", b"name=Bo", FORM)
    assert call.sent.target == b"/p?name=Zorbina"
    assert one.events["elsewhere"] == found


async def test_a_read_reports_such_a_parameter_and_the_id_of_a_write_is_none():
    one = await desk(
        '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}',
        "{match: PUT /p, update: p, id: query name2}",
        fields=("name: {kind: name}", "name2: {kind: text, at: $.x}"),
    )
    assert (await one.send("GET /p?name=Zorbina")).sent.target == b"/p?name=Zorbina"
    assert (await one.send("PUT /p?name2=17", {"name": "Bo"})).sent.target == b"/p?name2=17"
