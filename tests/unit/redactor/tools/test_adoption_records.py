import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.tools.adoption_records import (
    ReadRecord,
    RecordReader,
    RecordState,
    changed_members,
    compare_records,
)
from tests.support.rules import operation_of
from tests.support.table import table

LIST = RecordReader(
    operation_of('{match: GET /people, read: contact, response: {each: "$.items[*]", id: $.id}}')
)
ONE = RecordReader(operation_of('{match: "GET /people/{id}", read: contact}'))


def record(content: str) -> ReadRecord:
    return ONE.record("17", content.encode())


def test_records_of_a_page_have_their_id_their_own_bytes_and_places():
    first, second = LIST.records(
        b'{"items": [{"id": 7, "name": "Ann", "n": 1.50}, {"name": null, "id": "b", "email": ""}]}'
    )
    assert (first.id, first.content) == ("7", b'{"id": 7, "name": "Ann", "n": 1.50}')
    assert [(field, value.text) for field, value in first.values] == [("name", "Ann")]
    assert first.rest == (b'{"id": 7, "name": ', b', "n": 1.50}')
    assert (second.id, second.values) == ("b", [])


def test_a_list_whose_rule_names_no_id_has_it_at_the_usual_place():
    reader = RecordReader(operation_of('{match: GET /notes, read: note, response: {each: "$[*]"}}'))
    assert [one.id for one in reader.records(b'[{"id": 7, "text": "A"}, {"id": "x"}]')] == [
        "7",
        "x",
    ]
    for body in (b'[{"name": "A"}]', b'[{"id": null}]', b'[{"id": {}}]'):
        with pytest.raises(VaultError):
            reader.records(body)


@table(("reader", "body"), [(LIST, b'{"items": [{"name": "Ann"}]}'), (ONE, b"[]"), (ONE, b"7")])
def test_an_answer_that_is_not_as_the_rule_says_is_refused(reader, body):
    with pytest.raises(VaultError) as refused:
        reader.records(body) if reader is LIST else reader.record("1", body)
    assert refused.value.code is Code.UNREADABLE_ANSWER


@table(
    ("proxied", "state"),
    [
        ('{"name": "Ann", "email": "a@b.example"}', RecordState.CLEAR),
        ('{"name": "k3", "email": "x@y.example"}', RecordState.TOKENS),
        ('{"name": "Ann", "email": "x@y.example"}', RecordState.MIXED),
        ('{"name": "Ann"}', None),
        ('{"name": "Ann", "email": "a@b.example", "version": 2}', None),
        ('{"email": "a@b.example", "name": "Ann"}', RecordState.CLEAR),
        ('{"email": "x@y.example", "name": "k3"}', RecordState.TOKENS),
        ('{"email": "x@y.example", "name": "Ann"}', RecordState.MIXED),
    ],
)
def test_what_differs_on_both_sides_is_a_token(proxied, state):
    direct = record('{"name": "Ann", "email": "a@b.example"}')
    assert compare_records(direct, record(proxied), ()) is state


def test_members_of_objects_within_objects_may_stand_in_any_order():
    body = '{match: "GET /people/{id}", read: contact, response: {fields: {name: "$.of[*].name"}}}'
    reader = RecordReader(operation_of(body))
    direct, proxied = (
        reader.record("17", text.encode())
        for text in (
            '{"of": {"a": {"name": "k3", "n": 1}, "b": {"name": "Bo", "n": 2}}, "c": [1, 2]}',
            '{"c": [1, 2], "of": {"b": {"n": 2, "name": "Bo"}, "a": {"n": 1, "name": "Ann"}}}',
        )
    )
    assert compare_records(direct, proxied, ()) is RecordState.MIXED
    moved = reader.record("17", proxied.content.replace(b"[1, 2]", b"[2, 1]"))
    assert compare_records(direct, moved, ()) is None


def test_nothing_at_any_place_is_neither_value_nor_token():
    empty = record('{"name": null, "email": "", "city": "Visby"}')
    assert compare_records(empty, empty, ()) is RecordState.EMPTY
    ann = record('{"name": "Ann"}')
    assert compare_records(ann, ann, {"name"}) is RecordState.EMPTY


def test_where_answers_show_more_than_named_places_the_rest_may_differ():
    direct, proxied = record('{"name": "k3", "hello": "k3"}'), record('{"name": "A", "hello": "A"}')
    assert compare_records(direct, proxied, ()) is None
    assert compare_records(direct, proxied, (), exact=False) is RecordState.TOKENS


def test_members_that_an_update_took_away_or_changed_are_told():
    before = record('{"name": "Ann", "city": "Visby", "rank": 1, "none": null, "gone": 2}')
    after = record('{"name": "k3", "city": "Visby", "rank": 2}')
    assert changed_members(before, after, {"name"}) == (["gone"], ["rank"])


@table(("body", "why"), [(b"<html>", "not valid JSON at byte 0"), (b'{"id": 1', "not valid JSON")])
def test_an_answer_that_is_no_json_is_told_as_the_applications(body, why):
    for reader, label in ((LIST, "GET /people: "), (ONE, "GET /people/{id}: ")):
        with pytest.raises(VaultError) as refused:
            reader.records(body)
        said = refused.value.message
        assert said.startswith(f"{label}the answer is not what the rule reads"), said
        assert (why in said, "send JSON" in said) == (True, False)


def test_an_operation_without_json_has_no_records():
    with pytest.raises(VaultError) as refused:
        RecordReader(
            operation_of('{match: "GET /notes/{id}", read: note, response: {restore: html}}')
        )
    assert "JSON" in refused.value.message
