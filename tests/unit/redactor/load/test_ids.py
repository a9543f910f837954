import pytest

from proxy.model.schema import PathStep
from proxy.redactor.load.ids import is_single
from proxy.redactor.rules import IdPlace, IdSource, Operation
from tests.support.rules import operation_of


def made(match: str, rest: str) -> Operation:
    return operation_of(f'{{match: "{match}", {rest}}}')


def test_a_create_reads_the_id_in_the_answer():
    operation = made("POST /n", "create: note")
    assert operation.id is None
    assert operation.response.id == IdPlace(IdSource.BODY, path=("id",))


@pytest.mark.parametrize(
    ("match", "rest"),
    [
        ("GET /n/{id}", "read: note"),
        ("PUT /n/{id}", "update: note"),
        ("DELETE /n/{id}", "delete: note"),
    ],
)
def test_an_id_in_the_path_is_the_records(match, rest):
    operation = made(match, rest)
    assert operation.id == IdPlace(IdSource.PATH, "id")
    assert operation.response.id is None


def test_an_id_in_the_path_of_a_list_is_somebody_elses():
    assert made("GET /groups/{id}/n", 'read: note, response: {each: "$[*]"}').id is None
    assert made("GET /n", "read: note").id is None


@pytest.mark.parametrize(
    ("rest", "absolute", "path"),
    [
        ("id: $.id", False, ("id",)),
        ("id: $.id, request: {object: $.data}", True, ("id",)),
        ('id: "$.keys[*]", request: {object: $.data}', True, ("keys", PathStep.EACH)),
        ('id: $.id, request: {each: "$.items[*]"}', False, ("id",)),
        ('id: $.id, request: {object: "$..note"}', False, ("id",)),
        ("id: $.id, request: {form: {t: text}}", True, ("id",)),
    ],
)
def test_an_id_in_the_body_counts_from_the_object_or_from_the_root(rest, absolute, path):
    assert made("PUT /n", f"update: note, {rest}").id == IdPlace(
        IdSource.BODY, path=path, absolute=absolute
    )


def test_a_delete_may_take_ids_from_its_body_or_its_answer():
    body = made("POST /n/delete", 'delete: note, id: "$.ids[*]"')
    assert body.id == IdPlace(IdSource.BODY, path=("ids", PathStep.EACH), absolute=True)
    assert body.request.body is None
    assert body.response.body is None
    answer = made("POST /n/purge", 'delete: note, response: {id: "$.deleted[*]"}')
    assert answer.id is None
    assert answer.response.body is None
    assert answer.response.id == IdPlace(
        IdSource.BODY, path=("deleted", PathStep.EACH), absolute=True
    )
    shown = made("POST /n/purge", 'delete: note, response: {each: "$.deleted[*]", id: $.id}')
    assert shown.response.id == IdPlace(IdSource.BODY, path=("id",))


def test_ids_of_answers_stand_in_the_object_a_form_member_or_a_header():
    assert made("GET /n", "read: note, response: {id: $.meta.id}").response.id == IdPlace(
        IdSource.BODY, path=("meta", "id")
    )
    assert made("GET /n", "read: note, response: {id: form nr}").response.id == IdPlace(
        IdSource.BODY, path=("nr",)
    )
    place = made("POST /n", "create: note, response: {id: 'header Location /n/{id}'}").response.id
    assert place == IdPlace(IdSource.HEADER, "location", template="/n/{id}")


def test_a_place_is_single_unless_it_selects_many():
    assert is_single(IdPlace(IdSource.PATH, "id"))
    assert is_single(IdPlace(IdSource.BODY, path=("id",)))
    assert not is_single(IdPlace(IdSource.BODY, path=("ids", PathStep.EACH)))
    assert not is_single(None)
