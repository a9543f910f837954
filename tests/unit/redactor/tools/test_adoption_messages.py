"""Walks from message to message, where objects with ids of their own stand in others."""

import json

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.load import load_text
from proxy.redactor.tools.adoption import WalkChoice, plan_walk
from proxy.redactor.tools.adoption_records import RecordState, WalkPlan
from tests.support.rules import HEAD
from tests.support.table import table

ENTITIES = """entities:
  contact: {fields: {name: {kind: name}, email: {kind: email}}}
  courier: {fields: {name: {kind: name}}}
operations:
"""
LIST = (
    "{match: GET /orders, objects: ["
    '{read: contact, response: {each: "$.items[*].customer", id: $.id}}, '
    '{read: courier, response: {each: "$.items[*].courier", id: $.id}}]}'
)
READ = (
    '{match: "GET /orders/{order}", objects: ['
    "{read: contact, response: {object: $.customer, id: $.id}}, "
    "{read: courier, response: {object: $.courier, id: $.id}}]}"
)
WRITE = (
    '{match: "PATCH /orders/{order}", objects: ['
    "{update: contact, id: $.customer.id, request: {object: $.customer}, response: {object: $.customer}}, "
    "{update: courier, id: $.courier.id, request: {object: $.courier}, response: {object: $.courier}}]}"
)
ORDER = {
    "id": 7, "total": 1.5, "customer": {"id": 3, "name": "Ann", "email": "a@b.example"},
    "courier": {"id": 4, "name": "Bob"},
}  # fmt: skip


def plan(*operations: str, entity: str = "contact", target: str = "") -> WalkPlan:
    text = HEAD + ENTITIES + "".join(f"  - {one}\n" for one in operations)
    return plan_walk(load_text(text), WalkChoice(entity, "", target))


def refusal(*operations: str, **choice: str) -> str:
    with pytest.raises(VaultError) as refused:
        plan(*operations, **choice)
    assert refused.value.code is Code.BAD_RULES
    return refused.value.message


def body(content: object) -> bytes:
    return json.dumps(content).encode()


def test_an_order_is_written_again_with_all_of_its_objects():
    found = plan(LIST, READ, WRITE)
    assert [one.name for one in found.entities] == ["contact", "courier"]
    (record,) = found.listing.records(body({"items": [ORDER]}))
    assert record.id == "7"
    assert [one.field for one in record.spots] == [
        "contact.name", "contact.email", "courier.name"
    ]  # fmt: skip
    assert found.complete(record)
    read = found.reading.record("7", body(ORDER))
    assert json.loads(found.update_body(read)) == {
        "customer": ORDER["customer"],
        "courier": ORDER["courier"],
    }
    assert found.read_target("7") == found.update_target("7") == "/orders/7"
    clear = found.listing.records(body({"items": [ORDER]}))[0]
    assert found.state(record, clear) is RecordState.CLEAR
    half = {**ORDER, "courier": {"id": 4, "name": "k3"}}
    token = found.listing.records(body({"items": [half]}))[0]
    assert found.state(token, clear) is RecordState.MIXED


def test_several_messages_of_a_page_keep_their_own_objects():
    found = plan(LIST, READ, WRITE)
    other = {"id": 8, "customer": {"id": 5, "name": "Cy", "email": "c@b.example"}}
    records = found.listing.records(body({"items": [ORDER, other, {"id": 9}]}))
    values = [[value.text for _, value in one.values] for one in records]
    assert values == [["Ann", "a@b.example", "Bob"], ["Cy", "c@b.example"], []]
    assert [found.complete(one) for one in records] == [True, False, False]


def test_a_message_that_is_an_object_itself_has_the_id_that_its_rule_names():
    found = plan(
        "{match: GET /people, objects: ["
        '{read: contact, response: {each: "$.items[*]", id: $.document}}, '
        '{read: courier, response: {each: "$.items[*].visits[*]", id: $.document}}]}',
        '{match: "GET /people/{id}", read: contact}',
        '{match: "PUT /people/{id}", update: contact}',
    )
    person = {"id": 594, "document": "d1", "name": "Ann", "visits": [{"document": "v1", "id": 3}]}
    (record,) = found.listing.records(body({"items": [person]}))
    assert (record.id, found.read_target(record.id)) == ("d1", "/people/d1")


def test_one_person_nested_in_a_message_with_a_root_of_its_own():
    found = plan(
        '{match: GET /orders, read: contact, response: {each: "$.data[*].customer", id: $.id}}',
        '{match: "GET /orders/{order}", read: contact, response: {object: $.data.customer, id: $.id}}',
        '{match: "PUT /orders/{order}", update: contact, id: $.data.customer.id, '
        "request: {object: $.data.customer}}",
    )
    read = found.reading.record("7", body({"data": ORDER}))
    assert json.loads(found.update_body(read)) == {"data": ORDER}
    assert (found.method, found.whole) == ("PUT", True)


def test_a_list_of_several_kinds_serves_for_records_with_operations_of_their_own():
    people = '{read: contact, response: {each: "$.people[*]", id: $.id}}'
    couriers = '{read: courier, response: {each: "$.couriers[*]", id: $.id}}'
    operations = (
        f"{{match: GET /all, objects: [{people}, {couriers}]}}",
        '{match: "GET /people/{id}", read: contact}',
        '{match: "PATCH /people/{id}", update: contact}',
    )
    found = plan(*operations)
    page = body({"people": [{"id": 3, "name": "Ann", "email": "e"}], "couriers": [{"id": 4}]})
    assert [one.id for one in found.listing.records(page)] == ["3"]
    assert found.update_target("3") == "/people/3"
    assert dict(found.steps) == {
        "GET /all": "lists them",
        "GET /people/{id}": "reads one",
        "PATCH /people/{id}": "writes again: email, name",
    }


def test_a_list_of_messages_beside_one_of_its_own_is_told_and_may_be_named():
    own = (
        '{match: GET /people, read: contact, response: {each: "$[*]", id: $.id}}',
        '{match: "GET /people/{id}", read: contact}',
        '{match: "PATCH /people/{id}", update: contact}',
    )
    usual = plan(*own, LIST, READ, WRITE)
    assert usual.update_target("3") == "/people/3"
    assert "go through it with --list" in dict(usual.steps)["GET /orders"]
    named = plan(*own, LIST, READ, WRITE, target="/orders?limit=5")
    assert (named.update_target("7"), named.target) == ("/orders/7", "/orders?limit=5")


@table(
    ("operations", "reason"),
    [
        ((LIST, READ), "Nor do they name"),
        ((LIST, WRITE), "no operation reads one of what it lists"),
        ((LIST, READ, WRITE.replace("update: courier, id: $.courier.id", "create: courier").replace(
            "response: {object: $.courier}", "response: {object: $.courier, id: $.id}")),
            "it is a create of courier as well"),
        ((LIST, READ, WRITE.replace("$.customer.id", "query person")),
            "the id of contact stands in neither its path nor its body"),
        ((LIST, READ, WRITE.replace("/{order}", "")), "has not one placeholder more"),
        ((LIST, READ, WRITE.replace("object: $.courier", "object: $.driver").replace(
            "$.courier.id", "$.driver.id")), "its objects are not those of GET /orders/{order}"),
        ((LIST.replace("GET /orders", '"GET /shops/{shop}"'), READ, WRITE), "name one with --list"),
        ((LIST, READ, WRITE.replace("{object: $.courier}, r", '{each: "$.couriers[*]"}, r').replace(
            "id: $.courier.id", "id: $.id").replace("update: courier", "update: contact")),
            "changes several records of contact in two places"),
    ],
)  # fmt: skip
def test_what_is_in_the_way_is_told(operations, reason):
    assert reason in refusal(*operations)


def test_a_list_within_other_records_is_said_to_leave_their_copies():
    found = plan(
        '{match: GET /orders, read: contact, response: {each: "$.items[*].customer", id: $.id}}',
        '{match: "GET /people/{id}", read: contact}',
        '{match: "PATCH /people/{id}", update: contact}',
    )
    assert "copies of values stay as they are" in dict(found.steps)["GET /orders"]
    assert "copies" not in dict(plan(LIST, READ, WRITE).steps)["GET /orders"]
