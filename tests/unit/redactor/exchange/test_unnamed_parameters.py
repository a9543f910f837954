"""Parameters of a read that its rule does not name."""

import asyncio
import json
from io import StringIO
from typing import Any

from proxy.telemetry import logs
from tests.support.exchanges import FORM as FORM_TYPE
from tests.support.exchanges import Desk, desk
from tests.support.table import table

READ = (
    '{match: GET /p, read: p, query: {email: {field: email}, "f_*": {field: email, split: ","}, tab: {pass: true}}, '
    'response: {each: "$[*]", id: $.id}}'
)


def counted(one: Desk, parameter: str) -> float:
    cell = one.metrics.cell(
        "domicile_unnamed_parameters_total", "app", "GET /p", "query", parameter
    )
    return cell.value


async def ask(one: Desk, query: str) -> None:
    call = await one.send(f"GET /p?{query}")
    assert call.sent.target.endswith(query.encode()), "it passes as it came"
    await call.answer(200, [])


async def test_what_a_rule_does_not_name_is_counted_by_a_name_that_is_nobodys():
    one, stream = await desk(READ), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    for query in ("name=Zorbina&page=2", "name=Bob&sortName=x", "Zorbina", "q1=a&z%C3%A9=1"):
        await ask(one, query)
    assert counted(one, "name") == 2
    assert counted(one, "{word}") == 3
    logs.configure(logs.Style())
    told = [json.loads(line)["parameter"] for line in stream.getvalue().splitlines()]
    assert told == ["name", "sortName", "{word}"], "each once"
    assert b"orbina" not in one.metrics.render() + stream.getvalue().encode()


@table("query", ["page=2&per_page=3&pageSize=1", "tab=1", "f_x=", "email=", "_=17", ""])
async def test_what_is_named_or_harmless_is_not(query):
    one = await desk(READ)
    await ask(one, query)
    assert b"domicile_unnamed_parameters_total{" not in one.metrics.render()


def suspicions(one: Desk) -> set[str]:
    rows = one.metrics.render().decode().splitlines()
    return {row for row in rows if row.startswith("domicile_unnamed_suspected{")}


async def test_kinds_of_values_are_suspected_and_the_values_told_nowhere():
    one, stream = await desk(READ), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    for query in (
        "q=a",
        "q=zorbina%40example.com",
        "q=zorbina%40example.com",
        "Zorbina=%2B46701234567",
    ):
        await ask(one, query)
    logs.configure(logs.Style())
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["request_kinds"] for line in told] == [[], ["email"], ["phone"]]
    shown = "".join(suspicions(one)) + stream.getvalue()
    assert 'kind="email"' in shown
    assert 'kind="phone"' in shown
    assert not any(word in shown.lower() for word in ("zorbina", "46701234567"))


@table(
    ("path", "kinds"),
    [
        ("zorbina@example.org", ["email"]),
        ("zorbina%40example.org", ["email"]),
        ("+46701740605", ["phone"]),
        ("19121212-1212", ["national_id"]),
        ("17", []),
        ("7f1c1b1e-8f1c-4b1e-8f1c-4b1e8f1c4b1e", []),
        ("ann-lund", []),
    ],
)
async def test_a_value_in_place_of_an_id_in_a_path_is_told_by_its_kind(path, kinds):
    one, stream = await desk('{match: "GET /p/{id}", read: p}'), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    for _ in range(2):
        await (await one.send(f"GET /p/{path}")).answer(404)
    logs.configure(logs.Style())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [(line["place"], line["parameter"], line["request_kinds"]) for line in lines]
    assert told == ([("path", "{id}", kinds)] if kinds else [])
    rendered = one.metrics.render().decode()
    assert ('parameter="{id}",place="path"} 2.0' in rendered) is bool(kinds)
    assert "zorbina" not in rendered + stream.getvalue()


async def test_a_placeholder_that_the_rule_swaps_is_told_nowhere():
    rule = (
        '{match: "GET /p/{mail}", read: p, path: {mail: email}, response: {each: "$[*]", id: $.id}}'
    )
    one = await desk(rule)
    await (await one.send("GET /p/ann@example.org")).answer(200, [])
    assert b"domicile_unnamed_parameters_total{" not in one.metrics.render()


FORM = (
    "{match: POST /p/f, create: p, request: {form: {email: email}}, "
    'response: {id: "header Location /p/{id}"}}'
)


async def test_members_of_a_form_are_counted_and_told_where_a_value_is_suspected():
    one, stream = await desk(FORM), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    for body in (
        b"email=ann%40example.com&csrf_token=x&save=1",
        b"email=ann%40example.com&second_email=zorbina%40example.com",
    ):
        fields = ((b"Content-Type", b"application/x-www-form-urlencoded"),)
        call = await one.send("POST /p/f", body, fields)
        await call.answer(302, b"", ((b"Location", b"/p/1"),))
    logs.configure(logs.Style())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (line,) = [line for line in lines if "place" in line]
    assert (line["place"], line["request_kinds"]) == ("form", ["email"])
    rendered = one.metrics.render().decode()
    assert 'parameter="save",place="form"} 1.0' in rendered
    assert "csrf" not in rendered
    assert "zorbina" not in rendered + stream.getvalue()


async def test_only_the_first_values_of_a_parameter_are_looked_at():
    one = await desk(READ)
    for _ in range(20):
        await ask(one, "q=a")
    await ask(one, "q=zorbina%40example.com")
    assert suspicions(one) == set()


IMPORT = '{match: POST /p/i, create: p, request: {csv: {Mail: email}}, response: {id: "$.ids[*]"}}'
UPLOAD = "{match: POST /p/u, create: p, request: {multipart: {mail: email}, files: pass}}"


async def uploaded(rule: str, kind: bytes, body: bytes, answer: bytes) -> tuple[list[Any], str]:
    """The log lines with a place and the metrics after one upload."""
    one, stream = await desk(rule), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    path = rule.split()[2].rstrip(",")
    call = await one.send(f"POST {path}", body, ((b"Content-Type", kind),))
    await call.answer(201, answer, ((b"Content-Type", b"application/json"),))
    logs.configure(logs.Style())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    rendered = one.metrics.render().decode()
    assert "zorbina" not in (rendered + stream.getvalue()).lower()
    return [line for line in lines if "place" in line], rendered


async def test_columns_of_an_import_that_no_rule_names_are_counted_and_told():
    body = b"Mail,Phone,Note\nann@example.com,+46701234567,swims\nbo@example.com,,\n"
    (line,), rendered = await uploaded(IMPORT, b"text/csv", body, b'{"ids": [1, 2]}')
    assert (line["place"], line["request_kinds"]) == ("upload", ["phone"])
    counted = [one for one in rendered.splitlines() if one.startswith("domicile_unnamed_param")]
    assert [one.endswith('place="upload"} 1.0') for one in counted] == [True, True]
    assert 'parameter="mail"' not in rendered


async def test_texts_of_a_form_of_parts_that_no_rule_names_are_counted_and_told():
    parts = {"mail": "ann@example.com", "second_mail": "zorbina@example.com", "save": "1"}
    body = b"".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
        for name, text in parts.items()
    )
    kind = b"multipart/form-data; boundary=b"
    (line,), rendered = await uploaded(UPLOAD, kind, body + b"--b--\r\n", b'{"id": 1}')
    assert (line["place"], line["request_kinds"]) == ("upload", ["email"])
    assert 'parameter="save",place="upload"} 1.0' in rendered


# ---------------------------------------------------------------------- members of JSON

EMAIL, PHONE = "zorbina@example.com", "+46701234567"
CREATE = "{match: POST /p, create: p}"


XML = ((b"Content-Type", b"application/xml"),)


async def told(rule: str, *bodies: Any, wait: int = 0) -> tuple[Desk, list[Any], str]:
    """What is logged and counted of these bodies, one each ``wait`` milliseconds."""
    one, stream = await desk(rule), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    for number, body in enumerate(bodies, 1):
        call = await one.send("POST /p", body, XML if isinstance(body, bytes) else None)
        await call.answer(201, {"id": number})
        await asyncio.sleep(0)
        one.clock.advance(wait)
    logs.configure(logs.Style())
    rendered = one.metrics.render().decode()
    assert "zorbina" not in (rendered + stream.getvalue()).lower()
    return one, [json.loads(line) for line in stream.getvalue().splitlines()], rendered


async def test_a_member_is_told_once_and_counted_and_its_value_told_nowhere():
    body = {"name": "Eve", "patient": {"email": EMAIL, "Zorbina 1": [{"phone": PHONE}]}}
    _, lines, rendered = await told(CREATE, body, body)
    assert [(line["place"], line["parameter"], line["request_kinds"]) for line in lines] == [
        ("body", "$.patient.email", ["email"]),
        ("body", "$.patient.{word}[*].phone", ["phone"]),
    ]
    assert 'parameter="$.patient.email",place="body"} 2.0' in rendered
    assert 'kind="phone",operation="POST /p",parameter="$.patient.{word}[*].phone"' in rendered


ELEMENTS = f"""<a:person xmlns:a='urn:a' mail='{EMAIL}'><name>Eve</name><email>a@b.example</email>
<home lang='sv'><phone>{PHONE}</phone></home><mobile note='x'>{PHONE}</mobile></a:person>"""
CALLED = f"""<methodCall><methodName>add</methodName><params><param><value><struct>
<member><name>name</name><value>Eve</value></member>
<member><name>mail</name><value>{EMAIL}</value></member></struct></value></param></params></methodCall>"""


@table(
    ("kind", "body", "expected"),
    [
        (
            "xml: $.person", ELEMENTS,
            {"$.person[*].{word}": ["email"], "$.person[*].home[*].phone[*]": ["phone"], "$.person[*].mobile[*].{word}": ["phone"]},
        ),
        ("xml: $.people", f"<person><email>{EMAIL}</email></person>", {"$.person[*].email[*]": ["email"], "": []}),
        ('xmlrpc: "$.params[0]"', CALLED, {"$.params[*].mail": ["email"]}),
    ],
)  # fmt: skip
async def test_elements_beside_the_places_of_a_rule_are_told(
    kind: str, body: str, expected: dict[str, list[str]]
) -> None:
    rule = f"{{match: POST /p, create: p, request: {{{kind}}}}}"
    _, lines, _ = await told(rule, body.encode())
    seen = {line.get("parameter", ""): line.get("request_kinds", []) for line in lines}
    assert seen == expected, seen


async def test_ordinary_bodies_are_told_nowhere():
    body = {"name": "Eve", "email": EMAIL, "note": "well", "rows": [{"size": 7, "a": "12"}]}
    one, lines, rendered = await told(CREATE, body)
    assert lines == []
    assert "domicile_unnamed_parameters_total{" not in rendered
    assert suspicions(one) == set()


async def test_a_create_without_any_named_field_is_told_once():
    _, lines, _ = await told(CREATE, {"patient": {"age": 7}}, {"patient": {"age": 8}})
    (line,) = [line for line in lines if "is `object` missing?" in line["event"]]
    assert (line["endpoint"], line["operation"]) == ("app", "POST /p")


async def test_paths_that_are_told_are_bounded():
    words = ("first", "last", "home", "work", "second", "third", "primary", "secondary")
    bodies = [{"name": "Eve", one: {two: EMAIL}} for one in words for two in words]
    bodies.append({"name": "Eve", "a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": EMAIL}}}}}}}})
    _, lines, rendered = await told(CREATE, *bodies, wait=10_001)
    assert len(lines) == 51
    assert 'parameter="other",place="body"} 15.0' in rendered


async def test_after_the_first_bodies_one_is_looked_at_each_ten_seconds():
    harmless, body = {"name": "Eve"}, {"name": "Eve", "mail": EMAIL}
    _, lines, _ = await told(CREATE, *[harmless] * 20, *[body] * 5, wait=1000)
    assert lines == []
    _, lines, _ = await told(CREATE, *[harmless] * 20, *[body] * 11, wait=1000)
    assert len(lines) == 1


PATCHES = {
    "json": (
        [
            {"op": "replace", "path": "/email", "value": "ann@wexlo.example"},
            {"op": "add", "path": "/contacts/-", "value": {"mail": EMAIL, "id": 4}},
            {"op": "add", "path": "/Zorbina/city", "value": "Visby"},
            {"op": "add", "path": "/birth", "value": "1931-02-27"},
            {"op": "remove", "path": "/mail"},
        ],
        {("$.contacts[*].mail", "email"), ("$.birth", "birth_date")},
    ),
    "scim": (
        {"Operations": [{"op": "add", "path": "emails", "value": [{"value": EMAIL}]}]},
        {("$.emails[*].value", "email")},
    ),
    "dotted": (
        {"$set": {"email": "ann@wexlo.example", "home.mail": EMAIL}},
        {("$.home.mail", "email")},
    ),
}


@table("kind", PATCHES)
async def test_changes_at_paths_that_no_rule_names_are_told(kind):
    body, expected = PATCHES[kind]
    rule = f'{{match: "PATCH /p/{{id}}", update: p, request: {{patch: {kind}}}}}'
    one, stream = await desk(rule), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    media = ((b"Content-Type", b"application/json-patch+json"),) if kind == "json" else None
    call = await one.send("PATCH /p/1", body, media)
    await call.answer(200, {"id": 1})
    await asyncio.sleep(0)
    logs.configure(logs.Style())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {(line["parameter"], line["request_kinds"][0]) for line in lines} == expected
    assert EMAIL not in stream.getvalue()


@table(
    ("path", "value"),
    [
        ("emails.value", EMAIL), ("Emails", [{"value": EMAIL}]), ("emails", {"value": EMAIL}),
        ("urn:ietf:params:scim:schemas:core:2.0:User:emails", [{"value": EMAIL}]),
    ],
)  # fmt: skip
async def test_fields_in_the_spellings_of_scim_are_named(path, value):
    rule = '{match: "PATCH /p/{id}", update: p, request: {patch: scim}}'
    one, stream = (
        await desk(rule, fields=('mail: {kind: email, at: "$.emails[*].value"}',)),
        StringIO(),
    )
    logs.configure(logs.Style("warning", "json"), stream)
    call = await one.send(
        "PATCH /p/1", {"Operations": [{"op": "add", "path": path, "value": value}]}
    )
    assert EMAIL.encode() not in call.sent.body
    await call.answer(200, {"id": 1})
    await asyncio.sleep(0)
    logs.configure(logs.Style())
    assert stream.getvalue() == ""


async def test_long_bodies_are_not_looked_at():
    _, lines, _ = await told(CREATE, {"name": "Eve", "mail": EMAIL, "x": "y" * 70_000})
    assert lines == []


# ---------------------------------------------------------------------- forms that no rule names

BODIES = {
    "a read": ("{match: POST /s, read: p, query: {email: email}, response: {each: \"$[*]\", id: $.id}}", "POST /s"),
    "a delete": ('{match: "POST /p/{id}/delete", delete: p}', "POST /p/7/delete"),
}  # fmt: skip


@table("name", BODIES)
async def test_members_of_a_form_where_a_rule_names_none_are_told_in_the_sample(name):
    rule, request = BODIES[name]
    one, stream = await desk(rule), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    for _ in range(2):
        body = b"reason=sold&contact=zorbina%40example.com&Zorbina=1"
        call = await one.send(request, body, FORM_TYPE)
        assert call.sent.body == body
        await call.answer(200, [])
        await asyncio.sleep(0)
    logs.configure(logs.Style())
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["place"], line["parameter"], line["request_kinds"]) == (
        "form",
        "contact",
        ["email"],
    )
    rendered = one.metrics.render().decode()
    assert 'parameter="contact",place="form"} 2.0' in rendered
    assert "zorbina" not in (rendered + stream.getvalue()).lower()


# ---------------------------------------------------------------------- arguments of GraphQL

GRAPH = """{match: POST /g, graphql: {Query.find: {read: p, arguments: {mail: email, q: {refuse: always}}},
  Mutation.add: {create: p, object: input}, Query.goods: {pass: true},
  Mutation.rename: {update: p, key: id, arguments: {name: name, to.mail: email}}}}""".replace(
    "\n", " "
)


async def asked(*bodies: Any) -> tuple[list[tuple[str, list[str]]], str]:
    """The arguments that are told of, each with its kinds, and the metrics."""
    one, stream = await desk(GRAPH), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    for body in bodies:
        call = await one.send("POST /g", body if isinstance(body, list) else {"query": body})
        await call.answer(200, {"data": {}})
        await asyncio.sleep(0)
    logs.configure(logs.Style())
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    lines = [line for line in told if "parameter" in line]
    rendered = one.metrics.render().decode()
    assert "zorbina" not in (rendered + stream.getvalue()).lower()
    assert {(line["place"], line["operation"]) for line in lines} <= {("argument", "POST /g")}
    return [(line["parameter"], line["request_kinds"]) for line in lines], rendered


async def test_arguments_that_no_rule_names_are_told_by_their_way():
    hits, rendered = await asked(
        '{ find(byName: "Zorbina", page: 2) { id } }',
        '{ find(byName: "Zorbina") { id } goods(search: "zorbina@example.com") { id } }',
        '{ find(where: {text: "zorbina@example.com"}) { id people(emails: ["Zorbina"]) { id } } }',
        '{ find(zorbina: {x: ["+46701234567"]}) { id } }',
    )
    assert hits == [
        ("find.byName", []),
        ("find.where.text", ["email"]),
        ("people.emails", []),
        ("find.{word}.{word}", ["phone"]),
    ]
    assert 'parameter="find.byName",place="argument"} 2.0' in rendered
    assert (
        'kind="email",operation="POST /g",parameter="find.where.text",place="argument"' in rendered
    )


async def test_arguments_beside_those_that_are_values_themselves_are_told_of():
    named = 'name: "Bo", to: {mail: "bo@example.com"}'
    hits, rendered = await asked(
        f"mutation {{ rename(id: 7, {named}) {{ id }} }}",
        f'mutation {{ rename(id: 7, {named}, reason: "zorbina@example.com") {{ id }} }}',
        'mutation { rename(id: 7, to: {cc: ["zorbina@example.com"]}) { id } }',
        'mutation { rename(id: "zorbina", reason: "moved") { id } }',
    )
    assert hits == [("rename.reason", ["email"]), ("rename.to.{word}", ["email"])]
    assert 'parameter="rename.reason",place="argument"' in rendered


async def test_and_in_variables_and_lists_of_operations():
    query = "query ($f: F, $m: S) { find(filter: $f, mail: $m) { id } }"
    variables = {"f": {"text": EMAIL}, "m": "eve@example.com"}
    hits, _ = await asked([{"query": "{ version }"}, {"query": query, "variables": variables}])
    assert hits == [("find.filter.text", ["email"])]


async def test_arguments_that_rules_read_and_ordinary_ones_are_not_told():
    hits, rendered = await asked(
        '{ find(mail: "zorbina@example.com", first: 10, order: CITY) { id } }',
        'mutation { add(input: {name: "Zorbina", email: "zorbina@example.com"}) { id } }',
        '{ goods(name: "zorbina@example.com", named: {byEmail: "zorbina"}) { id } version }',
        '{ __type(name: "Person") { name } }',
    )
    assert hits == []
    assert "domicile_unnamed_parameters_total{" not in rendered


ORDERS = (
    "query: {by: {refuse: [name]}, order: {refuse: always}, sort_me: {pass: true}, "
    "sorted: {drop: [name, email]}}"
)


@table(
    ("query", "told"),
    [
        ("sort=-name", ["sort", "p.name"]),
        ("sort=owner.email%3Aasc&sort=owner.email", ["sort", "p.email"]),
        ("orderBy=created,e_mail", ["orderBy", "p.email"]),
        ("sort_order=city,email", ["sort_order", "p.email"]),
        ("sort_me=name", []),
        ("sort=created&q=name", []),
        ("sort=", []),
    ],
)
async def test_an_order_by_a_protected_field_of_whatever_entity_is_told_where_no_rule_refuses_it(
    query, told
):
    rule = f'{{match: GET /p, read: p, {ORDERS}, response: {{each: "$[*]", id: $.id}}}}'
    one, stream = await desk(rule), StringIO()
    logs.configure(logs.Style("warning", "json"), stream)
    for _ in range(2):
        await ask(one, query)
    logs.configure(logs.Style())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    orders = [[one["parameter"], *one["request_kinds"]] for one in lines if one["place"] == "order"]
    assert orders == ([told] if told else [])


async def test_a_ruled_order_is_told_where_it_names_a_field_that_its_rule_leaves_out():
    rule = "{match: GET /p, read: p, query: {sort: {refuse: [name]}}, response: {id: $.id}}"
    one = await desk(rule)
    await ask(one, "sort=owner.email")
    assert any('kind="p.email"' in row and 'place="order"' in row for row in suspicions(one))
