import pytest

from tests.support.rules import operation_of


def body_of(request: str, response: str = "{id: $.id}"):
    made = operation_of(
        f"{{match: POST /n, create: contact, request: {{{request}}}, response: {response}}}"
    )
    return made.request.body, made.response


def test_texts_and_columns_name_their_fields():
    parts, _ = body_of('multipart: {mail: email, "n_*": name}, files: pass')
    assert parts is not None
    assert (parts.multipart, parts.objects) == ({"mail": "email", "n_*": "name"}, None)
    rows, _ = body_of("csv: {E-mail: email}, part: file")
    assert rows is not None
    assert (rows.csv, rows.part, rows.multipart) == ({"E-mail": "email"}, "file", {})


@pytest.mark.parametrize(
    ("response", "objects", "absolute"),
    [
        ('{id: "$.ids[*]"}', None, False),
        ("{id: $.id}", (), False),
        ('{each: "$[*]", id: $.id}', ("*",), False),
    ],
)
def test_an_answer_that_lists_ids_alone_has_no_objects(response, objects, absolute):
    _, answer = body_of("csv: {E-mail: email}", response)
    assert (answer.body is None) is (objects is None)
    assert answer.id is not None
    assert answer.id.absolute is absolute


def test_a_list_of_ids_is_of_imports_alone():
    _, answer = body_of("object: $", '{id: "$.ids[*]"}')
    assert answer.body is not None
