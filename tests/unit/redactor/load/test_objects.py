from proxy.redactor.rules import Verb
from tests.support.rules import rules_of

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
