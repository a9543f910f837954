import json
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor import redact
from proxy.redactor.load import load_text
from proxy.redactor.message import Media, RawHeaders, Request
from proxy.redactor.plan import OperationPlan, make_plan
from proxy.redactor.redact import (
    ParsedBody,
    check_head,
    query_span,
    query_spots,
    query_values,
    read_body,
    read_request,
    request_ids,
)
from proxy.redactor.rules import Match
from tests.support.exchanges import FORM, JSON, PLAIN, rule_text, written
from tests.support.table import table

BULK = ', response: {each: "$[*]", id: $.id}}'


def plan_of(operation: str) -> OperationPlan:
    return make_plan(load_text(rule_text(operation)).operations[0])


def read(
    operation: str, body: Any, headers: RawHeaders = JSON, target: bytes = b"/p"
) -> tuple[ParsedBody | None, list[str]]:
    """The body, and the ids outside of its objects."""
    plan, request = plan_of(operation), Request("POST", target, headers, written(body))
    found = read_request(plan, request)
    return found, request_ids(plan.operation.id, Match(plan.operation, {"id": "7"}), request, found)


def places(body: ParsedBody | None, raw: bytes) -> list[list[tuple[str, bytes, Value | None]]]:
    assert body is not None
    return [
        [(spot.field, raw[spot.start : spot.end], spot.value) for spot in item.spots]
        for item in body.items
    ]


def test_objects_and_their_places_are_found():
    raw = (
        b'[{"name": "A\\u006en", "x": 1}, [{"tags": ["a", null, 1.0]}], {}, null, {"born": {"y": '
        b"1}}]"
    )
    body, ids = read("{match: POST /p, create: p}", raw)
    assert places(body, raw) == [
        [("name", b'"A\\u006en"', Value("Ann"))],
        [
            ("tags", b'"a"', Value("a")),
            ("tags", b"null", None),
            ("tags", b"1.0", Value("1.0", json=True)),
        ],
        [],
        [("born", b'{"y": 1}', Value('{"y": 1}', json=True))],
    ]
    assert ids == []


@table(
    ("operation", "body", "inside", "outside"),
    [
        ('{match: "PATCH /p/{id}", update: p}', {"name": "a"}, [None], ["7"]),
        ("{match: PATCH /p, update: p, id: $.id}", {"id": 3, "name": "a"}, ["3"], []),
        ("{match: PATCH /p, update: p, id: $.id}", {"id": "3 ", "name": "a"}, ["3 "], []),
        ('{match: PATCH /p, update: p, id: $.id, request: {each: "$[*]"}' + BULK, [{"id": 3}, {"id": -4}], ["3", "-4"], []),
        ('{match: PATCH /p, update: p, id: "$.keys[*]", request: {object: $.data}' + BULK, {"keys": [1, "2", None, "", 1.5, True], "data": {}}, [None], ["1", "2"]),
        ("{match: PATCH /p, update: p, id: $.ref.id, request: {object: $.data}}", {"ref": {"id": 9}, "data": {}}, [None], ["9"]),
        ("{match: DELETE /p, delete: p, id: $.id}", {"id": 3}, [], ["3"]),
        ('{match: DELETE /p, delete: p, id: "$[*]"}', [3, 4], [], ["3", "4"]),
    ],
)  # fmt: skip
def test_ids_are_strings_and_integers_of_the_body_or_the_path(operation, body, inside, outside):
    found, ids = read(operation, body)
    assert found is not None
    assert [item.id for item in found.items] == inside
    assert ids == outside


@table("ident", [{"oid": "Ann"}, ["Ann"]])
@table(
    "operation",
    [
        "{match: PATCH /p, update: p, id: $.id}",
        '{match: PATCH /p, update: p, id: "$.keys[*]", request: {object: $.data}' + BULK,
    ],
)
def test_what_an_id_hides_is_refused(operation, ident):
    with pytest.raises(VaultError) as caught:
        read(operation, {"id": ident, "keys": [1, ident], "data": {}})
    assert caught.value.code is Code.BAD_REQUEST
    assert "Ann" not in caught.value.message


def test_an_answer_may_have_an_object_for_an_id():
    plan = plan_of("{match: POST /p, create: p}")
    assert plan.response is not None
    body = read_body(plan.response, Media.JSON, b'{"id": {"oid": 1}, "name": "t"}', plan.operation)
    assert (body.items[0].id, [spot.field for spot in body.items[0].spots]) == (None, ["name"])


@table(
    ("target", "ids"),
    [
        (b"/p?id=7&id=8", ["7", "8"]),
        (b"/p?x=id&ID=1&id=a%20b+c#id=9", ["a b c"]),
        (b"/p?%69d=7", ["7"]),
        (b"/p", []),
    ],
)
def test_ids_of_the_query(target, ids):
    assert read("{match: PATCH /p, update: p, id: query id" + BULK, {}, target=target)[1] == ids


def test_an_id_of_the_path_is_text():
    plan = plan_of('{match: "PATCH /p/{id}", update: p}')
    with pytest.raises(VaultError) as caught:
        request_ids(
            plan.operation.id,
            Match(plan.operation, {"id": "\udcff"}),
            Request("PATCH", b"/p/%ff", (), b""),
            None,
        )
    assert caught.value.code is Code.BAD_REQUEST


@table(
    ("raw", "one", "ids"),
    [
        (b"id=7&n=Ann", "7", ["7"]),
        (b"id=7&id=8&id=7&n=Ann", None, ["7", "8"]),
        (b"id=7&id=7", "7", ["7"]),
        (b"id=&n=Ann&id", None, []),
    ],
)
def test_ids_of_a_form(raw, one, ids):
    body, outside = read(
        "{match: POST /p, update: p, id: form id, request: {form: {n: name}}" + BULK, raw, FORM
    )
    assert body is not None
    assert (body.items[0].id, outside) == (one, ids)


def test_members_of_a_form_are_places():
    raw = b"n=Ann+%C3%85&x=1&t%5B%5D=a&&t[]=&n"
    body, _ = read(
        "{match: POST /p, create: p, request: {form: {n: name, 't[]': tags}}, response: {id: "
        "$.id}}",
        raw,
        FORM,
    )
    assert places(body, raw) == [
        [
            ("name", b"Ann+%C3%85", Value("Ann Å")),
            ("tags", b"a", Value("a")),
            ("tags", b"", Value("")),
            ("name", b"", Value("")),
        ]
    ]
    assert [spot.bare for spot in body.items[0].spots] == [False, False, False, True]  # type: ignore[union-attr]  # asserted above


@table(
    ("body", "items"),
    [
        ({"m": {"mail": "a@b"}, "d": {"name": "Ann"}}, [["name", "email"]]),
        ({"m": {"mail": "a@b"}}, [["email"]]),
        ({"m": {"mail": "a@b"}, "d": []}, [["email"]]),
        (
            {"m": {"mail": "a@b"}, "d": [{"name": "A"}, {"name": "B"}]},
            [["name"], ["name"], ["email"]],
        ),
        ({"d": {}}, [[]]),
        ({"x": 1}, []),
    ],
)
def test_places_from_the_root_join_the_one_object(body, items):
    found, _ = read(
        "{match: POST /p, create: p, request: {object: $.d, fields: {email: $.m.mail}}}", body
    )
    assert found is not None
    assert [[spot.field for spot in item.spots] for item in found.items] == items


@table(
    ("operation", "body", "headers", "code"),
    [
        ("{match: POST /p, create: p}", b"name=Ann", FORM, Code.UNREADABLE_BODY),
        ("{match: POST /p, create: p}", b'{"name": "Ann"}', PLAIN, Code.UNREADABLE_BODY),
        ("{match: POST /p, create: p}", b'{"name": "Ann"}', (), Code.UNREADABLE_BODY),
        ("{match: POST /p, create: p}", b'{"name": "Ann"', JSON, Code.MALFORMED_JSON),
        ("{match: POST /p, create: p}", b'{"name": 1, "name": "Ann"}', JSON, Code.AMBIGUOUS_JSON),
        ("{match: POST /p, create: p}", b"[" * 65 + b"]" * 65, JSON, Code.TOO_LARGE),
        # An id that stands in a form or in JSON does not let in a body whose fields nobody looks
        # at.
        ("{match: POST /p, update: p, id: $.id}", b"id=7&name=Ann", FORM, Code.UNREADABLE_BODY),
        ("{match: POST /p, update: p, id: form id}", b"id=7&name=Ann", FORM, Code.UNREADABLE_BODY),
        ("{match: POST /p, update: p, id: $.id, request: {form: {n: name}}}", b'{"id": 7, "n": "Ann"}', JSON, Code.UNREADABLE_BODY),
        ("{match: POST /p, update: p, id: form id, request: {form: {n: name}}}", b'{"id": 7, "n": "Ann"}', JSON, Code.UNREADABLE_BODY),
        ("{match: POST /p, update: p, id: $.id, request: {form: {n: name}}}", b"id=7&N=Ann", FORM, Code.AMBIGUOUS_JSON),
        ("{match: POST /p, update: p, id: $.id, request: {form: {n: name}}}", b"id=7&n=%FF", FORM, Code.UNREADABLE_BODY),
    ],
)  # fmt: skip
def test_what_the_rule_does_not_know_its_way_about_is_refused(operation, body, headers, code):
    with pytest.raises(VaultError) as caught:
        read(operation, body, headers)
    assert caught.value.code is code
    assert "Ann" not in caught.value.message


@table(
    ("operation", "headers", "refused"),
    [
        ("{match: POST /p, create: p}", JSON, False),
        ("{match: POST /p, create: p}", FORM, True),
        ("{match: POST /p, create: p}", PLAIN, True),
        ("{match: POST /p, create: p}", (), True),
        ("{match: POST /p, create: p}", (*JSON, *JSON), True),
        ("{match: POST /p, create: p}", ((b"Content-Type", b"application/json; charset=utf-16"),), True),
        ("{match: POST /p, create: p}", ((b"Content-Type", b"application/json-patch+json"),), True),
        ("{match: POST /p, create: p}", (*JSON, (b"Content-Encoding", b"gzip, br")), False),
        ("{match: POST /p, create: p}", (*JSON, (b"Content-Encoding", b"rot13")), True),
        ("{match: POST /p, create: p, request: {object: $, other_kinds: pass}}", ((b"Content-Type", b"image/png"),), False),
        ("{match: POST /p, create: p, request: {object: $, other_kinds: pass}}", PLAIN, True),
        ('{match: "GET /p/{id}", read: p}', JSON, False),
        ('{match: "GET /p/{id}", read: p}', PLAIN, True),
    ],
)  # fmt: skip
def test_what_its_head_tells_is_refused_without_the_body(operation, headers, refused):
    plan = plan_of(operation)
    match, head = Match(plan.operation, {"id": "7"}), Request("POST", b"/p", headers, b"")
    if not refused:
        check_head(plan, match, head)
        return
    with pytest.raises(VaultError) as caught:
        check_head(plan, match, head)
    assert caught.value.code is Code.UNREADABLE_BODY


def test_the_refusal_says_which_kinds_the_rule_names():
    with pytest.raises(
        VaultError, match="application/json or application/x-www-form-urlencoded, and"
    ):
        read(
            "{match: POST /p, create: p, request: {object: $, form: {a: name}}, response: {id: "
            "$.id}}",
            b"x",
            PLAIN,
        )


@table("headers", [JSON, FORM, PLAIN, ()])
def test_an_empty_body_says_nothing(headers):
    assert read("{match: POST /p, create: p}", b"", headers) == (None, [])


def test_a_body_of_which_the_rule_names_nothing_passes_without_fields_of_the_entity():
    operation = '{match: "GET /p/{id}", read: p}'
    assert read(operation, b'{"x": ["a"]}', JSON) == (None, ["7"])
    for body, code in (
        (b"{{", Code.MALFORMED_JSON),
        (b'{"x": [{"name": "Ann"}]}', Code.UNREADABLE_BODY),
    ):
        with pytest.raises(VaultError) as caught:
            read(operation, body, JSON)
        assert caught.value.code is code


def test_beside_ids_a_body_carries_no_field_that_the_rule_does_not_name():
    with pytest.raises(VaultError) as caught:
        read("{match: DELETE /p, delete: p, id: $.id}", {"id": 3, "name": "Ann"})
    assert caught.value.code is Code.UNREADABLE_BODY


@table(
    ("target", "query"),
    [
        (b"/p?a=1#f?b", b"a=1"),
        (b"/p", b""),
        (b"/p#x?a", b"a"),
        (b"/p?", b""),
        (b"/?a?b", b"a?b"),
        (b"http://h/p?a", b"a"),
    ],
)
def test_the_query_of_a_target(target, query):
    start, end = query_span(target)
    assert target[start:end] == query


def test_protected_parameters():
    target = b"/p?email=a%40b&x=1&email_2=&E-post=z&email"
    spots = query_spots(target, {"email": "email", "email_*": "tags"})
    assert [(spot.field, target[spot.start : spot.end], spot.value) for spot in spots] == [
        ("email", b"a%40b", Value("a@b")),
        ("tags", b"", Value("")),
        ("email", b"", Value("")),
    ]
    assert query_values(target, "x") == ["1"]
    with pytest.raises(VaultError) as caught:
        query_spots(b"/p?EMAIL=a", {"email": "email"})
    assert caught.value.code is Code.AMBIGUOUS_JSON


@table(
    ("path", "ambiguous"),
    [
        ("/p;email=a@b", True), ("/p;x=1;Email=a@b/17", True), ("/p%3Bemail=a@b", True), ("/p%253b%65mail=a@b", True),
        ("/p/;email[]=a", True), ("/p;jsessionid=1;x=email", False), ("/p;v=1/email", False), ("/p/a%20;b", False),
    ],
)  # fmt: skip
def test_a_protected_parameter_within_the_path_is_ambiguous(path, ambiguous):
    """``;email=x`` in a segment, as Java's frameworks read it."""
    for target in (path, f"{path}?x=1"):
        if not ambiguous:
            assert query_spots(target.encode(), {"email": "email"}) == []
            continue
        with pytest.raises(VaultError) as caught:
            query_spots(target.encode(), {"email": "email"})
        assert caught.value.code is Code.AMBIGUOUS_JSON
        assert [one.source for one in caught.value.details] == ["email"]


def test_numbers_booleans_and_containers_keep_their_spelling():
    raw = (
        json.dumps({"name": [1.50, True], "born": False, "phone": 1})
        .replace("1.5", "1.50e+0")
        .encode()
    )
    body, _ = read("{match: POST /p, create: p}", raw)
    assert [[(s.field, s.value) for s in item.spots] for item in body.items] == [  # type: ignore[union-attr]  # raw is a body
        [
            ("name", Value("[1.50e+0, true]", json=True)),
            ("born", Value("false", json=True)),
            ("phone", Value("1", json=True)),
        ]
    ]


@table("body", ["Ann", 1, ["Ann"], {"tags": "Ann"}, [{"name": "Ann"}, 5]])
def test_a_request_with_something_else_on_the_way_to_a_place_is_refused(body):
    with pytest.raises(VaultError) as caught:
        read("{match: POST /p, create: p}", body)
    assert caught.value.code is Code.VALUE_UNFIT
    assert "Ann" not in caught.value.message


def test_objects_values_and_ids_of_one_request_are_bounded(monkeypatch):
    monkeypatch.setattr(redact, "MOST_OBJECTS", 3)
    monkeypatch.setattr(redact, "MOST_VALUES", 4)
    many = (
        "{match: PATCH /p, update: p, id: '$.ids[*]', request: {object: $.data}, response: "
        "{each: '$[*]', id: $.id}}"
    )
    read("{match: POST /p, create: p}", [{}, {}, {}])
    read("{match: POST /p, create: p}", {"tags": ["a"] * 4})
    read(many, {"ids": [1, 2, 3], "data": {}})
    for operation, body in (
        ("{match: POST /p, create: p}", [{}] * 4),
        ("{match: POST /p, create: p}", {"tags": ["a"] * 5}),
        (many, {"ids": [1, 2, 3, 4], "data": {}}),
    ):
        with pytest.raises(VaultError) as caught:
            read(operation, body)
        assert caught.value.code is Code.TOO_LARGE


@table("body", [b'{"name": "Ann"}', b" \r\n[1]", b"<name>Ann</name>", b'"Ann"'])
def test_a_form_that_begins_like_another_kind_of_body_is_refused(body):
    with pytest.raises(VaultError) as caught:
        read(
            "{match: POST /p/1, update: p, id: query id, request: {form: {n: name}}}",
            body,
            FORM,
            b"/p/1?id=1",
        )
    assert caught.value.code is Code.UNREADABLE_BODY


@table("target", [b"/p?x=1#&n=Ann", b"/p#?n=Ann", b"/p?n=Ann#"])
def test_a_fragment_in_a_target_with_named_parameters_is_refused(target):
    with pytest.raises(VaultError) as caught:
        query_spots(target, {"n": "name"})
    assert caught.value.code is Code.BAD_REQUEST
