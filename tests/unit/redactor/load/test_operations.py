from proxy.redactor.load import load_text
from proxy.redactor.rules import IdPlace, IdSource, Verb
from proxy.redactor.words import Absent, Empty, Nulls, OwnToken
from tests.support.rules import faults_of, fields_searched, operation_of, rules_of, with_operations
from tests.support.table import table

SUCCESS = frozenset(range(200, 300))


def test_an_operation_knows_its_place_and_what_it_is_called():
    operation = operation_of('{match: "PUT|PATCH  /n/{id}", update: note}')
    assert operation.label == "PUT|PATCH /n/{id}"
    assert operation.methods == ("PUT", "PATCH")
    assert operation.template == "/n/{id}"
    assert operation.verb is Verb.UPDATE
    assert operation.entity.name == "note"
    assert str(operation.position) == "rules.yaml:13:5"


def test_words_of_writing_have_safe_defaults():
    rule = operation_of('{match: "PUT /n/{id}", update: note}').request
    assert (rule.absent, rule.nulls, rule.empty, rule.own_token) == (
        Absent.KEEP,
        Nulls.ERASE,
        Empty.STORE,
        OwnToken.KEEP,
    )
    rule = operation_of(
        '{match: "PUT /n/{id}", update: note, request: {absent: erase, nulls: keep, empty: keep, '
        "own_token: refuse}}"
    ).request
    assert (rule.absent, rule.nulls, rule.empty, rule.own_token) == (
        Absent.ERASE,
        Nulls.KEEP,
        Empty.KEEP,
        OwnToken.REFUSE,
    )


@table(
    ("rest", "success"),
    [
        ("", SUCCESS),
        (", request: {form: {t: text}}", SUCCESS | {302, 303}),
        (", response: {success: 302}", {302}),
        (", request: {form: {t: text}}, response: {success: [200, 204]}", {200, 204}),
    ],
)
def test_success_is_2xx_and_for_forms_a_redirect_too(rest, success):
    assert (
        operation_of(f'{{match: "PUT /n/{{id}}", update: note{rest}}}').response.success == success
    )


def test_answers_are_restored_where_the_object_stands():
    for text in (
        '{match: "GET /n/{id}", read: note}',
        "{match: POST /n, create: note}",
        '{match: "DELETE /n/{id}", delete: note}',
    ):
        body = operation_of(text).response.body
        assert body is not None
        assert (body.objects, body.fields) == ((), {"text": ("text",)})


def test_query_parameters_carry_fields_the_most_specific_first():
    operation = operation_of(
        '{match: GET /n, read: contact, query: {"m*": email, mail: {field: email}}, response: '
        "{id: $.id}}"
    )
    assert list(fields_searched(operation).items()) == [("mail", "email"), ("m*", "email")]


def test_a_plain_shape_needs_no_same_value_token():
    text = with_operations("{match: GET /n, read: note, query: {t: text}}").replace(
        "text: {kind: text}", "text: {kind: text, token: plain}"
    )
    assert fields_searched(load_text(text).operations[0]) == {"t": "text"}


def test_the_hint_names_a_shape_that_can_be_the_same():
    text = with_operations("{match: GET /n, read: note, query: {t: text}}").replace(
        "{kind: text}", "{kind: text, token: {shape: fixed, value: x}}"
    )
    assert any("{shape: opaque, same: true}" in detail.text for detail in faults_of(text))


def test_an_entity_is_addressed_when_every_answer_that_restores_it_carries_its_id():
    one = '{match: "GET /n/{id}", read: note}'
    assert rules_of(one).entities[1].addressed
    assert (
        rules_of(one, '{match: GET /n, read: note, response: {each: "$[*]", id: $.id}}')
        .entities[1]
        .addressed
    )
    loaded = rules_of(one, '{match: GET /n, read: note, response: {each: "$[*]"}}')
    assert not loaded.entities[1].addressed
    assert all(operation.entity is loaded.entities[1] for operation in loaded.operations)
    assert (
        not rules_of('{match: "GET /n/{id}", read: note, response: {object: "$.a[*]"}}')
        .entities[1]
        .addressed
    )
    many = '{match: "PUT /n", update: note, id: "$.ids[*]", request: {object: $.data}}'
    assert rules_of(many).entities[1].addressed
    assert rules_of(many).operations[0].response.id == IdPlace(IdSource.BODY, path=("id",))
    said = many.replace("$.data}}", "$.data}, response: {object: $}}")
    assert not rules_of(said).entities[1].addressed


def test_a_prefix_stands_in_every_path():
    text = with_operations("{match: GET /crm/n, read: note}").replace(
        "name: crm,", "name: crm, prefix: /crm,"
    )
    assert load_text(text).operations[0].template == "/crm/n"


# ---- uploads


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


@table(
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
