import pytest

from proxy.redactor.load import load_text
from proxy.redactor.request_rules import ListSpelling, Parameter, SearchRule
from tests.support.rules import faults_of, marked, operation_of, with_operations
from tests.support.table import table


def test_a_query_goes_in_whole_where_one_parameter_says_more():
    rule = operation_of(
        '{match: GET /n, read: contact, query: {"m*": email, q: {refuse: always}, e: {field: email, '
        'split: ";", send: {param: ids, none: "-1"}}, s: {refuse: [name, born]}}, response: {id: $.id}}'
    ).request
    assert rule.addressed
    assert rule.search is not None
    assert list(rule.search.query.values()) == [
        Parameter("ids", "email", ";", none="-1"),
        Parameter("q", refused=True),
        Parameter("e", "email", ";", ListSpelling("ids", ";", "-1")),
        Parameter("s", unwanted={"name": "name", "born": "born"}),
        Parameter("m*", "email"),
    ]


def test_a_parameter_that_says_no_more_than_its_field_is_one_as_well():
    rule = operation_of(
        "{match: GET /n, read: contact, query: {m: {field: email}}, response: {id: $.id}}"
    ).request
    assert rule.search == SearchRule({"m": Parameter("m", "email")}, {}, (), {})


def test_places_of_a_body_and_placeholders_of_a_path():
    rule = operation_of(
        '{match: "POST /n/{mail}", read: contact, path: {mail: {field: email}}, request: {values: '
        '{"$.a[*]": email}, form: {f: email}}, response: {id: $.id}}'
    ).request
    assert rule.body is None
    assert rule.search is not None
    assert [(one.name, one.of) for _, one in rule.search.values] == [("$.a[*]", "email")]
    assert rule.search.path == {"mail": "email"}
    assert list(rule.search.form) == ["f"]


def test_what_is_kept_among_records_goes_by_their_names():
    text = with_operations(
        '{match: "GET /n/{m}", read: contact, path: {m: email}, query: {e: {field: email, split: ","}}, '
        "response: {id: $.id}}"
    ).replace("  contact:\n", "  contact:\n    schema: records\n")
    text = text.replace("same: true}, find: [exact]}", "same: true}, keep_as: key3}")
    search = load_text(text).operations[0].request.search
    assert search is not None
    assert (search.path, search.query["e"].of) == ({"m": "key3"}, "key3")


def test_an_application_may_have_other_names_for_fields_and_parameters_of_nobody():
    rule = operation_of(
        "{match: GET /n, read: contact, query: {tab: {pass: true}, s: {refuse: [name], fields: {realName: name, "
        "e_mail: email}}}, response: {id: $.id}}"
    ).request
    assert rule.search is not None
    assert rule.search.query["tab"] == Parameter("tab")
    assert rule.search.query["s"].unwanted == {"name": "name", "realname": "name"}


@table(
    "operation, fault",
    [
        ("GET /n|query: {e: ▲{split: ','}}", "does not say what it holds"),
        ("GET /n|query: {e: {refuse: always, ▲field: email}}", "means nothing"),
        ("GET /n|query: {e: {refuse: [▲always, name]}}", "stands alone"),
        ("GET /n|query: {e: {pass: true, ▲field: email}}", "means nothing"),
        ("GET /n|query: {e: {refuse: [name], fields: {x: ▲nme}}}", "no field 'nme'"),
        ("GET /n|query: {e: {refuse: [▲nme]}}", "did you mean 'name'"),
        ("GET /n|query: {e: {field: ▲emial, split: ','}}", "did you mean 'email'"),
        ("GET /n|query: {e: ▲{field: name, split: ','}}", "equal values need equal tokens"),
        ("GET /n|query: {e: {field: email, split: ▲a}}", "one to three signs"),
        ("GET /n|query: {e: {field: email, send: {join: ',', ▲repeat: true}}}", "keep one"),
        ("GET /n|query: {'e*': {field: email, split: ','}, ▲'*f': email}", "make one of them longer"),
        ("GET /n/{id}/{x*}|path: {▲x: email}", "takes several segments"),
        ("GET /n/{mail}|path: {▲mial: email}", "no placeholder 'mial'"),
        ("GET /n/{mail}|path: {mail: ▲name}", "equal values need equal tokens"),
        ("GET /n/{mail}|id: ▲path mail, path: {mail: email}", "this id is the protected field"),
        ("GET /n|id: ▲query e, query: {e: {field: email, split: ','}}", "this id is the protected field"),
        ("POST /n|request: {values: {▲$.a: {field: email}, $.a.b: email}}", "overlaps"),
        ("POST /n|request: {values: {▲$: {field: email}}}", "whole document"),
        ("POST /n|request: {values: {▲a: email}}", "begins with '$'"),
        ("POST /n|request: {values: {▲'$.a[*]': {field: email, send: {param: b}}}}", "stands in one member"),
        ("POST /n|request: {values: {$.a: email}, ▲object: $.b}", "name each place under 'values'"),
    ],
)  # fmt: skip
def test_a_parameter_at_fault_is_told_with_its_place(operation, fault):
    match, _, rest = operation.partition("|")
    if "$.a.b" in rest:
        rest = rest.replace("▲", "").replace("$.a.b", "▲$.a.b")
    text, places = marked(
        with_operations(f'{{match: "{match}", read: contact, {rest}, response: {{id: $.id}}}}')
    )
    told = faults_of(text)
    assert any(
        fault in one.text and one.source.endswith(f":{place}") for one in told for place in places
    ), told


def test_what_is_stored_is_not_looked_for():
    for verb, match in (("create", "POST /n"), ("update", "PUT /n/{id}")):
        (fault,) = faults_of(
            with_operations(
                f'{{match: "{match}", {verb}: contact, request: {{form: {{e: {{field: email, split: ","}}}}}}, '
                "response: {id: $.id}}"
            )
        )
        assert f"the body of a {verb}" in fault.text


def test_an_order_may_name_fields_of_another_entity():
    rule = operation_of(
        "{match: GET /n, read: note, query: {sort: {refuse: [text, contact.name]}, order: {drop: "
        "[contact.email]}}, response: {id: $.id}}"
    ).request.search
    assert rule is not None
    assert rule.query["sort"].unwanted == {"text": "text", "name": "contact.name"}
    dropped = rule.query["order"]
    assert (dropped.dropped, dropped.unwanted) == (True, {"email": "contact.email"})


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("read: note, query: {s: {refuse: [other.name]}}", "there is no entity 'other'"),
        ("read: note, query: {s: {drop: [contact.nme]}}", "contact has no field 'nme'"),
        ("read: note, query: {s: {drop: always, refuse: always}}", "'drop' means nothing"),
        ("read: note, request: {form: {s: {drop: always}}}", "only a parameter of the address"),
        ("read: note, request: {values: {$.s: {drop: always}}}", "only a parameter of the address"),
    ],
)
def test_what_of_such_an_order_cannot_be_is_a_fault(operation, words):
    text = with_operations(f"{{match: GET|POST /n, {operation}, response: {{id: $.id}}}}")
    assert any(words in one.text for one in faults_of(text))


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        ("{field: name, else: pass}", "of the kind email"),
        ("{field: email, else: nme}", "contact has no field 'nme'"),
        ("{field: email, else: name}", "name looks for name, so equal values need equal tokens"),
        ("{field: email, else: pass, send: {param: x}}", "without 'send'"),
    ],
)
def test_what_else_a_box_cannot_take_is_a_fault(parameter, words):
    text = with_operations(
        f"{{match: POST /n, read: contact, request: {{values: {{$.who: {parameter}}}}}}}"
    )
    told = " | ".join(one.text for one in faults_of(text))
    assert words.replace("name looks", "looks") in told, told
