from proxy.model.schema import PathStep
from proxy.redactor.jsonpath import parse_jsonpath
from proxy.redactor.load.ids import is_single, selectors_overlap, selects_many
from proxy.redactor.rules import IdPlace, IdSource, Operation, ResponseRule
from tests.support.rules import faults_of, operation_of, with_operations
from tests.support.table import table


def made(match: str, rest: str) -> Operation:
    return operation_of(f'{{match: "{match}", {rest}}}')


def test_a_create_reads_the_id_in_the_answer():
    operation = made("POST /n", "create: note")
    assert operation.id is None
    assert operation.response.id == IdPlace(IdSource.BODY, path=("id",))


@table(
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


@table(
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


# ---- outcomes


def rule_of(success: str, more: str = "") -> ResponseRule:
    return operation_of(
        f'{{match: "PUT /n/{{id}}", update: note, response: {{success: {success}{more}}}}}'
    ).response


def test_statuses_count_as_they_are_or_on_a_condition():
    rule = rule_of(
        '[204, {status: [302, 303], location: ["/n/{id}", /n]}, {status: 200, text: was saved}]'
    )
    assert rule.success == {204}
    redirects, pages = rule.conditions
    assert redirects.statuses == {302, 303}
    assert [template.text for template in redirects.locations] == ["/n/{id}", "/n"]
    assert redirects.text == ""
    assert pages.statuses == {200}
    assert (pages.locations, pages.text) == ((), "was saved")


def test_one_condition_may_stand_alone():
    rule = rule_of("{status: 302, location: /n}")
    assert rule.success == frozenset()
    assert [condition.statuses for condition in rule.conditions] == [{302}]


def test_without_a_word_every_2xx_counts():
    rule = operation_of('{match: "PUT /n/{id}", update: note}').response
    assert (rule.success, rule.conditions) == (frozenset(range(200, 300)), ())


@table(
    "success",
    ["[201, {status: 302, location: /login}]", '{status: 302, location: [/login, "/n/{nr}/edit"]}'],
)
def test_an_id_in_location_is_told_by_a_redirect_that_leads_there_or_by_another_status(success):
    text = (
        '{match: POST /n, create: note, response: {id: "header Location /n/{id}/edit", '
        f"success: {success}}}}}"
    )
    assert operation_of(text).response.id is not None


def test_a_create_that_only_redirects_needs_an_id_in_the_redirect():
    text = with_operations(
        "{match: POST /n, create: note, response: {success: {status: 302, location: /n}}}"
    )
    assert any("header Location" in detail.text for detail in faults_of(text))


# ---- overlaps


@table(
    ("one", "other"),
    [
        ("$.a", "$.a"),
        ("$.a", "$.a.b"),
        ("$.a", "$.A"),
        ("$", "$.a"),
        ("$.t[*]", "$.t[0]"),
        ("$.t[*].a", "$.t[3].a"),
        ("$.*", "$.a"),
        ("$.*.b", "$.a"),
        ("$..a", "$.a"),
        ("$..a", "$.x[*].a"),
        ("$..a", "$..a"),
        ("$.x..a", "$..y.a"),
        ("$..['a']", "$.b.c.a"),
    ],
)
def test_selectors_that_can_select_the_same_place_overlap(one, other):
    assert selectors_overlap(parse_jsonpath(one), parse_jsonpath(other))
    assert selectors_overlap(parse_jsonpath(other), parse_jsonpath(one))


@table(
    ("one", "other"),
    [
        ("$.a", "$.b"), ("$.t[0]", "$.t[1]"), ("$.t[*]", "$.t.a"), ("$.*", "$[0]"), ("$..a", "$.b"),
        ("$..a", "$..b"), ("$.a.b", "$.a.c"), ("$.*", "$[*]"),
    ],
)  # fmt: skip
def test_selectors_of_different_places_do_not(one, other):
    assert not selectors_overlap(parse_jsonpath(one), parse_jsonpath(other))
    assert not selectors_overlap(parse_jsonpath(other), parse_jsonpath(one))


@table(
    ("text", "many"),
    [("$.a[0]", False), ("$", False), ("$.a[*]", True), ("$.*", True), ("$..a", True)],
)
def test_wildcards_and_descent_select_many(text, many):
    assert selects_many(parse_jsonpath(text)) is many


@table("text", ["$.ids[*]", "$..id"])
def test_several_ids_belong_to_the_whole_body_or_to_none(text):
    operation = made("POST /n/bulk", f'update: note, id: "{text}"')
    assert operation.id is not None
    assert operation.id.absolute
    rule = f'{{match: POST /n/bulk, update: note, id: "{text}", request: {{each: "$.items[*]"}}}}'
    (fault,) = faults_of(with_operations(rule))
    assert fault.text.startswith("each of several objects has one id")
