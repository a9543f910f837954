import pytest

from proxy.errors import VaultError
from proxy.redactor.rules import Verb
from tests.support.rules import operation_of, rules_of
from tests.support.table import table

BOTH = (
    "{match: POST /n, objects: [{create: note, request: {object: $.a}, response: {object: $.a}}, "
    "{create: contact, request: {object: $.b}, response: {id: $.ids.b}}]}"
)


def test_each_object_is_an_operation_of_its_own_at_one_path():
    (operation,) = rules_of(BOTH).operations
    note, contact = operation.parts
    assert [(one.verb, one.entity.name) for one in operation.parts] == [
        (Verb.CREATE, "note"), (Verb.CREATE, "contact"),
    ]  # fmt: skip
    assert {one.label for one in (operation, note, contact)} == {"POST /n"}
    assert note.response.body is not None
    assert contact.response.body is None, "the answer shows what its rule says, and no more"
    assert operation.request.body is None


def test_what_may_write_counts_as_a_write():
    (operation,) = rules_of(BOTH).operations
    assert operation.verb is Verb.UPDATE
    (operation,) = rules_of(
        "{match: GET /n, objects: [{read: note, response: {object: $.a, id: $.id}}, "
        "{read: contact, query: {email: email}, response: {object: $.b, id: $.id}}]}"
    ).operations
    assert operation.verb is Verb.READ
    assert operation.addressed
    assert operation.endpoint.searched
    assert all(one.endpoint is operation.endpoint for one in operation.parts)


@table(
    ("said", "told"),
    [
        ("", ["nothing restores this note of GET /n/{id}"]),
        (", response: {id: $.id}", ["nothing restores this note of GET /n/{id}"]),
        (", response: {object: $}", []),
        (", response: {scan: true}", []),
        (", response: {restore: anywhere}", []),
        (", query: {email: {refuse: always}}", []),
    ],
)
def test_an_object_that_is_read_and_shown_nowhere_is_told(said, told):
    rules = rules_of(
        f'{{match: "GET /n/{{id}}", objects: [{{read: note, id: path id{said}}}, '
        "{read: contact, response: {object: $.b, id: $.id}}]}"
    )
    lines = [line for line in rules.warnings if "nothing restores" in line]
    assert [line.partition(": callers")[0].partition(": ")[2] for line in lines] == told


ORDER = (
    '{{match: "PATCH /n/{{id}}", objects: ['
    "{{update: note, {note}request: {{object: $.a}}, response: {{object: $.a}}}}, "
    "{{update: contact, {contact}request: {{object: $.b}}, response: {{object: $.b}}}}]}}"
)


@table(
    ("note", "contact"), [("id: path id, ", ""), ("id: path id, ", "id: path id, "), ("", "id: $.b.id, ")]
)  # fmt: skip
def test_the_id_of_the_path_is_that_of_one_object_or_of_those_that_say_so(note, contact):
    (operation,) = rules_of(ORDER.format(note=note, contact=contact)).operations
    assert all(one.id is not None for one in operation.parts)


def test_an_id_of_the_path_that_would_be_every_objects_is_a_fault():
    with pytest.raises(VaultError) as refused:
        rules_of(ORDER.format(note="", contact=""))
    (detail,) = refused.value.details
    assert "{id} of the path would be the id of this contact and of note at once" in detail.text


def test_an_object_that_an_answer_shows_with_its_own_id_has_not_that_of_the_path():
    (operation,) = rules_of(
        '{match: "GET /n/{id}", objects: [{read: note, response: {object: $.a, id: $.id}}, '
        "{read: contact, id: path id, response: {object: $.b, id: $.id}}]}"
    ).operations
    note, contact = operation.parts
    assert (note.id, contact.id is not None) == (None, True)


def test_parts_have_their_usual_names_unless_the_rule_says_others():
    operation = operation_of(
        '{match: POST /b, envelope: {each: "$.r[*]", answers: "$.a[*]"}, when: {$.kind: batch}}'
    )
    rule = operation.envelope
    assert rule is not None
    assert (rule.method, rule.path, rule.headers, rule.body) == (
        ("method",), ("path",), ("headers",), ("body",)
    )  # fmt: skip
    assert (rule.status, rule.answer_headers, rule.answer_body) == (
        ("status",), ("headers",), ("body",)
    )  # fmt: skip
    assert (rule.id, rule.base, rule.defaults) == (None, "", ("", ""))
    assert (operation.verb, operation.response.special, len(operation.when)) == (
        Verb.UPDATE, True, 1
    )  # fmt: skip


def test_other_names():
    rule = operation_of(
        "{match: PUT|POST /b, envelope: {each: $, method: $.m, path: $.a.url, headers: $.h, "
        "body: $.p, id: $.id, base: /v1/, defaults: {method: get, path: /x}, "
        "answers: {each: $.out, status: $.code, headers: $.h, body: $.r}}}"
    ).envelope
    assert rule is not None
    assert (rule.path, rule.id, rule.base, rule.defaults) == (
        ("a", "url"), ("id",), "/v1/", ("GET", "/x")
    )  # fmt: skip
    assert (rule.status, rule.answer_headers, rule.answer_body) == (("code",), ("h",), ("r",))
