import pytest

from proxy.redactor.message import RawHeaders
from proxy.redactor.path_template import parse_template
from proxy.redactor.plan import Outcome, outcome
from proxy.redactor.rules import RedirectSuccess, ResponseRule


def rule_of(*conditions: RedirectSuccess) -> ResponseRule:
    return ResponseRule(None, None, frozenset({200}), conditions)


def to(*templates: str) -> RedirectSuccess:
    return RedirectSuccess(
        frozenset({302}), tuple(parse_template(template) for template in templates)
    )


def said(
    rule: ResponseRule, status: int, location: str | None = None, body: bytes | None = None
) -> Outcome:
    headers: RawHeaders = () if location is None else ((b"LOCATION", location.encode()),)
    return outcome(rule, b"/people/17/edit?from=list", status, headers, body)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(200, Outcome.TAKEN), (201, Outcome.REFUSED), (404, Outcome.REFUSED), (302, Outcome.DOUBTFUL), (500, Outcome.DOUBTFUL)],
)  # fmt: skip
def test_a_status_alone_decides_where_nothing_else_is_asked(status, expected):
    assert said(rule_of(), status) is expected


@pytest.mark.parametrize(
    "location",
    [
        "/people/17/",
        "/people/17",
        "/people/17?saved=1#top",
        "https://crm.example/people/17/",
        "../17",
        "./",
        "/people/%31%37/",
        "/staff/../people/17/",
        "/list",
        "/files/a/b/c",
        "/report-17.html",
    ],
)
def test_a_redirect_counts_when_it_leads_where_the_rule_says(location):
    rule = rule_of(to("/people/{id}/", "/list"), to("/files/{rest*}", "/report-{id}.html"))
    assert said(rule, 302, location) is Outcome.TAKEN


@pytest.mark.parametrize(
    "location",
    [
        None,
        "",
        "/login",
        "/login?next=/people/17/",
        "/people/",
        "/people/17/edit",
        "/people/1%2F7/x",
        "/files",
        "/report-.html",
        "https://[broken",
        "edit",
    ],
)
def test_a_redirect_that_leads_elsewhere_leaves_the_request_in_doubt(location):
    rule = rule_of(to("/people/{id}/", "/list"), to("/files/{rest*}", "/report-{id}.html"))
    assert said(rule, 302, location) is Outcome.DOUBTFUL


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
