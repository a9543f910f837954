import pytest

from proxy.redactor.rules import ResponseRule
from tests.support.rules import faults_of, operation_of, with_operations


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


@pytest.mark.parametrize(
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
