from proxy.redactor.load import load_text
from proxy.redactor.tools.explain import as_data, find_operation
from tests.support.rules import HEAD, operation_of, rules_of

PACKED = (
    '{match: GET /n, read: contact, response: {each: "$[*]", id: $.id, '
    'values: {"$[*].p": {json: {$.a: email, $.b: {json: {$.c: {field: name}}}}}}}}'
)


def test_a_text_belongs_to_the_object_that_it_stands_in():
    body = operation_of(PACKED).response.body
    assert body is not None
    (text,) = body.texts
    assert (text.source, text.path, text.fields) == ("object", ("p",), ((("a",), "email"),))
    assert [(one.path, one.fields) for one in text.texts] == [(("b",), ((("c",), "name"),))]
    assert body.fields.keys() == {"name", "email", "born"}, "the object is looked at as ever"


def test_explain_tells_of_texts():
    found = find_operation(rules_of(PACKED), "GET", "/n")
    body = as_data(found)["operation"]["response"]["body"]
    assert body["texts of JSON"] == {"$.p": "$.a email, $.b ($.c name)"}


def test_texts_have_the_names_of_the_record_schema():
    rules = load_text(
        f"{HEAD}entities:\n  c: {{schema: records, fields: {{mail: {{kind: email, keep_as: key1}}}}}}\n"
        "operations:\n  - {match: POST /n, create: c, request: {form: {p: {json: {$.m: mail}}}}, "
        'response: {id: "header Location /n/{id}"}}\n'
    )
    body = rules.operations[0].request.body
    assert body is not None
    assert [one.fields for one in body.texts] == [((("m",), "key1"),)]
