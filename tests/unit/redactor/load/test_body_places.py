from proxy.model.schema import PathStep
from proxy.redactor.rules import BodyPlace
from tests.support.rules import faults_of, operation_of, with_operations
from tests.support.table import table

WHOLE = {"name": ("name",), "email": ("email",), "born": ("born",)}


def request(
    inner: str, verb: str = "PUT /n", rest: str = "update: contact, id: query id"
) -> BodyPlace | None:
    return operation_of(f"{{match: {verb}, {rest}, request: {{{inner}}}}}").request.body


def test_a_write_takes_the_whole_body_where_nothing_is_said():
    assert request("absent: keep") == BodyPlace((), False, WHOLE, {}, {})


def test_a_read_takes_nothing_of_the_request_where_nothing_is_said():
    assert operation_of('{match: "GET /n/{id}", read: contact}').request.body is None


def test_object_and_each_say_where():
    assert request("object: $.data.attributes") == BodyPlace(
        ("data", "attributes"), False, WHOLE, {}, {}
    )
    assert request('each: "$.items[*].contact"') == BodyPlace(
        ("items", PathStep.EACH, "contact"), True, WHOLE, {}, {}
    )


def test_a_form_alone_expects_no_json():
    assert request('form: {mail: email, "n_*": {field: name}}') == BodyPlace(
        None, False, {}, {}, {"mail": "email", "n_*": "name"}
    )


def test_object_and_form_may_stand_together():
    assert request("object: $.c, form: {mail: email}") == BodyPlace(
        ("c",), False, WHOLE, {}, {"mail": "email"}
    )


def test_own_places_inside_of_the_object_count_from_it():
    made = request("object: $.c, fields: {email: $.c.mail.work, name: $.title}")
    assert made == BodyPlace(
        ("c",), False, {"born": ("born",), "email": ("mail", "work")}, {"name": ("title",)}, {}
    )
    made = request('each: "$.c[*]", fields: {email: "$.c[*].mail"}')
    assert made is not None
    assert made.fields["email"] == ("mail",)
    assert made.anchored == {}


def test_own_places_of_a_read_stand_alone():
    made = operation_of(
        "{match: POST /s, read: contact, request: {fields: {email: $.q.mail}}, response: {id: "
        "$.id}}"
    ).request.body
    assert made == BodyPlace(None, False, {}, {"email": ("q", "mail")}, {})


def test_members_are_kept_the_most_specific_first():
    made = request('form: {"*": name, "mail_*": email, mail_1: born}')
    assert made is not None
    assert list(made.form) == ["mail_1", "mail_*", "*"]


def test_patterns_of_one_length_that_meet_are_a_tie_unless_they_mean_the_same():
    assert request('form: {"a*": email, "*a": email}') is not None
    assert request('form: {"a*": email, "b*": name}') is not None
    details = faults_of(
        with_operations(
            '{match: PUT /n, update: contact, id: query id, request: {form: {"a*": email, "*a": '
            "name}}}"
        )
    )
    assert "neither is more specific" in details[0].text


@table(
    "inner",
    [
        "object: $.a, fields: {email: $.a.name}",
        "object: $.a, fields: {email: $.a.born.x, name: $.n}",
    ],
)
def test_own_places_must_not_lie_in_those_of_other_fields(inner):
    details = faults_of(
        with_operations(f"{{match: PUT /n, update: contact, id: query id, request: {{{inner}}}}}")
    )
    assert "overlaps" in details[0].text
