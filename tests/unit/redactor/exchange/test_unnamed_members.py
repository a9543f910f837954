"""What stands beside the places of a rule in a body of JSON, and in arguments of GraphQL."""

from typing import Any

from proxy.model.schema import PathStep
from proxy.redactor.exchange.unnamed_members import suspected_arguments, suspected_members
from proxy.redactor.load import load_text
from proxy.redactor.named_places import named_places
from proxy.redactor.search.sought import named_like
from tests.support.exchanges import rule_text
from tests.support.table import table

EACH = PathStep.EACH
EMAIL, PHONE = "zorbina@example.com", "+46701234567"
CREATE = "{match: POST /p, create: p}"
LIST = '{match: POST /p, create: p, request: {each: "$.people[*]"}, response: {each: "$[*]", id: $.id}}'


def found(rule: str, document: Any) -> tuple[dict[Any, list[str]], bool]:
    (operation,) = load_text(rule_text(rule)).operations
    return suspected_members(document, list(named_places(operation)))


@table(
    ("rule", "document", "paths", "named"),
    [
        (CREATE, {"name": "Eve", "email": EMAIL, "note": "well", "n": 7, "x": None}, {}, True),
        (CREATE, {"patient": {"email": EMAIL}}, {("patient", "email"): ["email"]}, False),
        (CREATE, {"name": "Eve", "a": {"b": [{"c": PHONE}]}}, {("a", "b", EACH, "c"): ["phone"]}, True),
        (CREATE, {"email": {"work": EMAIL}, "tags": [EMAIL]}, {}, True),
        (CREATE, [{"email": EMAIL}, [{"email": EMAIL, "b": EMAIL}]], {(EACH, EACH, "b"): ["email"]}, True),
        (LIST, {"people": [{"email": EMAIL}, {"mail": EMAIL}]}, {("people", EACH, "mail"): ["email"]}, True),
        (LIST, {"email": EMAIL, "people": []}, {("email",): ["email"]}, False),
        (CREATE, {"name": "E", "first_name": "Eve"}, {("first_name",): ["name"]}, True),
        (CREATE, {"name": "E", EMAIL: "yes"}, {(EMAIL,): ["email"]}, True),
        (CREATE, EMAIL, {(): ["email"]}, False),
    ],
)  # fmt: skip
def test_members_beside_the_places_of_a_rule_are_suspected(rule, document, paths, named):
    assert found(rule, document) == (paths, named)


def test_a_place_at_any_depth_and_an_id_are_named():
    rule = (
        "{match: POST /p/f, update: p, id: $.key, request: {object: $.data, fields: "
        '{email: "$..mail"}}, response: {object: $}}'
    )
    document = {"key": EMAIL, "data": {"mail": EMAIL, "a": [{"mail": EMAIL, "b": EMAIL}]}}
    members, named = found(rule, document)
    assert named
    assert members.keys() == {("data", "a", EACH, "b")}


def test_a_long_document_is_looked_at_in_part():
    many = {"rows": [{"a": "x"} for _ in range(60_000)], "mail": EMAIL}
    assert found(CREATE, many)[0] == {("mail",): ["email"]}
    nested: Any = EMAIL
    for _ in range(500):
        nested = [nested]
    assert list(found(CREATE, nested)[0].values()) == [["email"]]


@table(
    ("path", "text", "kinds"),
    [
        (("find", "q"), EMAIL, ["email"]),
        (("find", "byName"), "x", []),
        (("find", "names"), "x", []),
        (("byFirstName", "value"), "x", []),
        (("find", "q"), "x", None),
        (("find", "enamel"), "x", None),
    ],
)
def test_arguments_are_told_for_their_values_or_their_names(path, text, kinds):
    is_field = named_like(["name", "first_name"])
    assert suspected_arguments([(path, text)], is_field) == ({} if kinds is None else {path: kinds})
