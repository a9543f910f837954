from dataclasses import replace

from proxy.redactor.form import named_field
from proxy.redactor.load import load_text
from proxy.redactor.load.parsers import parse_location
from proxy.redactor.message import Media, RawHeaders
from proxy.redactor.plan import OperationPlan, Outcome, make_plan, outcome, writes
from proxy.redactor.request_rules import RedirectSuccess
from proxy.redactor.rules import IdPlace, IdSource, ResponseRule
from tests.support.exchanges import rule_text
from tests.support.table import table


def plan_of(operation: str) -> OperationPlan:
    return make_plan(load_text(rule_text(operation)).operations[0])


def test_both_directions_are_planned():
    plan = plan_of("{match: POST /p, create: p}")
    assert plan.request is not None
    assert plan.response is not None
    assert plan.request.fields == ("name", "email", "phone", "born", "tags")
    assert (plan.request.id_leaf, plan.response.id_leaf) == (-1, 5)
    assert plan.response.selection is not None
    found = plan.response.selection.find(b'{"id": 7, "name": "x"}')
    assert [leaf.name for leaf in found.objects[0].leaves] == [5, 0]


@table(
    ("operation", "leaf", "anchored", "member"),
    [
        (
            (
                '{match: PATCH /p, update: p, id: "$.keys[*]", request: {object: $.data}, response: '
                '{each: "$[*]", id: $.id}}'
            ),
            -1,
            0,
            "",
        ),
        ('{match: PATCH /p, update: p, id: $.id, request: {each: "$[*]"}}', 5, -1, "id"),
        ("{match: PATCH /p, update: p, id: form key, request: {form: {a: name}}}", -1, -1, "key"),
        ("{match: PATCH /p, update: p, id: query key}", -1, -1, ""),
        ("{match: DELETE /p, delete: p, id: $.id}", -1, 0, "id"),
        ("{match: DELETE /p, delete: p, id: $.a.id}", -1, 0, ""),
    ],
)
def test_the_place_of_the_id_is_known(operation, leaf, anchored, member):
    plan = plan_of(operation).request
    if plan is None:
        assert (leaf, anchored, member) == (-1, -1, "")
    else:
        assert (plan.id_leaf, plan.id_anchored, plan.id_member) == (leaf, anchored, member)


@table(
    ("operation", "kinds"),
    [
        ("{match: POST /p, create: p}", {Media.JSON}),
        (
            "{match: POST /p, create: p, request: {form: {a: name}}, response: {id: $.id}}",
            {Media.FORM},
        ),
        (
            (
                "{match: POST /p, create: p, request: {object: $, form: {a: name}}, response: {id: "
                "$.id}}"
            ),
            {Media.JSON, Media.FORM},
        ),
        # An id in JSON does not open the door to JSON bodies whose fields nobody named, nor one in
        # forms to forms.
        ("{match: PATCH /p, update: p, id: $.id, request: {form: {a: name}}}", {Media.FORM}),
        ("{match: PATCH /p, update: p, id: $.id}", {Media.JSON}),
        ("{match: PATCH /p, update: p, id: form id}", {Media.JSON}),
        ("{match: DELETE /p, delete: p, id: $.id}", {Media.JSON, Media.FORM}),
        ("{match: DELETE /p, delete: p, id: $.a.id}", {Media.JSON}),
        ("{match: DELETE /p, delete: p, id: form id}", {Media.FORM}),
        (
            (
                "{match: POST /q, read: p, request: {fields: {email: $.filter.email}}, response: "
                '{each: "$[*]", id: $.id}}'
            ),
            {Media.JSON},
        ),
    ],
)
def test_a_request_is_of_a_kind_in_which_the_rule_names_its_fields(operation, kinds):
    plan = plan_of(operation).request
    assert plan is not None
    assert plan.named == kinds


@table(
    ("operation", "request_planned", "response_planned"),
    [
        ('{match: "GET /p/{id}", read: p}', False, True),
        ('{match: "DELETE /p/{id}", delete: p}', False, True),
        ("{match: DELETE /p, delete: p, id: query id, response: {id: $.gone}}", False, True),
    ],
)
def test_a_direction_in_which_nothing_is_named_has_no_plan(
    operation, request_planned, response_planned
):
    plan = plan_of(operation)
    assert (plan.request is not None, plan.response is not None) == (
        request_planned,
        response_planned,
    )


@table(
    ("member", "field"),
    [
        ("phone", "phone"),
        ("phone_1", "tags"),
        ("phone_1_x", "name"),
        ("phon", None),
        ("Phone", None),
        ("x[phone_2]", None),
    ],
)
def test_a_form_member_belongs_to_the_closest_name(member, field):
    plan = plan_of(
        "{match: POST /p, create: p, request: {form: {phone: phone, 'phone_*': tags, "
        "'phone_*_x': name}}, response: {id: $.id}}"
    ).request
    assert plan is not None
    assert named_field(plan.form, member) == field


def test_everything_but_reading_writes():
    told = {
        text: writes(plan_of(text).operation)
        for text in ("{match: POST /p, create: p}", '{match: "GET /p/{id}", read: p}')
    }
    assert list(told.values()) == [True, False]


def test_an_id_without_a_member_name_is_in_no_form():
    operation = load_text(rule_text("{match: PATCH /p, update: p, id: $.id}")).operations[0]
    plan = make_plan(replace(operation, id=IdPlace(IdSource.BODY, path=(0,)))).request
    assert plan is not None
    assert plan.id_member == ""


# ---- success


def rule_of(*conditions: RedirectSuccess) -> ResponseRule:
    return ResponseRule(None, None, frozenset({200}), conditions)


def to(*templates: str) -> RedirectSuccess:
    return RedirectSuccess(
        frozenset({302}), tuple(parse_location(template) for template in templates)
    )


def said(
    rule: ResponseRule, status: int, location: str | None = None, body: bytes | None = None
) -> Outcome:
    headers: RawHeaders = () if location is None else ((b"LOCATION", location.encode()),)
    return outcome(rule, b"/people/17/edit?from=list", status, headers, body)


@table(
    ("status", "expected"),
    [(200, Outcome.TAKEN), (201, Outcome.REFUSED), (404, Outcome.REFUSED), (302, Outcome.DOUBTFUL), (500, Outcome.DOUBTFUL)],
)  # fmt: skip
def test_a_status_alone_decides_where_nothing_else_is_asked(status, expected):
    assert said(rule_of(), status) is expected


@table(
    "location",
    [
        "/people/17/", "/people/17", "/people/17?saved=1#top", "https://crm.example/people/17/",
        "../17", "./", "/people/%31%37/", "/staff/../people/17/", "/list", "/files/a/b/c",
        "/report-17.html",
    ],
)  # fmt: skip
def test_a_redirect_counts_when_it_leads_where_the_rule_says(location):
    rule = rule_of(to("/people/{id}/", "/list"), to("/files/{rest*}", "/report-{id}.html"))
    assert said(rule, 302, location) is Outcome.TAKEN


@table(
    "location",
    [
        None, "", "/login", "/login?next=/people/17/", "/people/", "/people/17/edit",
        "/people/1%2F7/x", "/files", "/report-.html", "https://[broken", "edit",
    ],
)  # fmt: skip
def test_a_redirect_that_leads_elsewhere_leaves_the_request_in_doubt(location):
    rule = rule_of(to("/people/{id}/", "/list"), to("/files/{rest*}", "/report-{id}.html"))
    assert said(rule, 302, location) is Outcome.DOUBTFUL


@table(
    ("location", "expected"),
    [
        ("/i.php?r=person/view&id=7", Outcome.TAKEN),
        ("../../i.php?id=7&r=person%2Fview", Outcome.TAKEN),
        ("/i.php?r=site/login", Outcome.DOUBTFUL),
        ("/i.php?r=site/login&back=?r=person/view", Outcome.DOUBTFUL),
        ("/i.php?r=site/login&r=person/view", Outcome.DOUBTFUL),
        ("/i.php", Outcome.DOUBTFUL),
    ],
)
def test_a_redirect_is_told_from_another_by_its_parameters(location, expected):
    assert said(rule_of(to("/i.php?r=person/view")), 302, location) is expected


def test_two_locations_lead_nowhere():
    headers = ((b"Location", b"/list"), (b"Location", b"/login"))
    assert outcome(rule_of(to("/list")), b"/", 302, headers, b"") is Outcome.DOUBTFUL


def test_the_condition_is_about_its_own_statuses():
    assert said(rule_of(to("/list")), 303, "/list") is Outcome.DOUBTFUL
    assert said(rule_of(to("/list")), 200, "/login") is Outcome.TAKEN


def test_a_page_counts_when_it_holds_the_text():
    rule = ResponseRule(
        None, None, frozenset({302}), (RedirectSuccess(frozenset({200}), (), "<p>Sparat åt dig"),)
    )
    assert said(rule, 200, body="<h1>Klart</h1><p>Sparat åt dig.".encode()) is Outcome.TAKEN
    assert said(rule, 200, body=b"<p>sparat") is Outcome.REFUSED
    assert said(rule, 200, body=b"") is Outcome.REFUSED
    assert said(rule, 200, body=None) is Outcome.UNREAD
    assert said(rule, 302, body=None) is Outcome.TAKEN
