from proxy.redactor.rules import Verb
from tests.support.rules import operation_of


def test_parts_have_their_usual_names_unless_the_rule_says_others():
    operation = operation_of(
        '{match: POST /b, envelope: {each: "$.r[*]", answers: "$.a[*]"}, when: {$.kind: batch}}'
    )
    rule = operation.envelope
    assert rule is not None
    assert (rule.method, rule.path, rule.headers, rule.body) == (
        ("method",), ("path",), ("headers",), ("body",)
    )  # fmt: skip
    assert (rule.status, rule.answer_headers, rule.answer_body) == (
        ("status",), ("headers",), ("body",)
    )  # fmt: skip
    assert (rule.id, rule.base, rule.defaults) == (None, "", ("", ""))
    assert (operation.verb, operation.response.special, len(operation.when)) == (
        Verb.UPDATE, True, 1
    )  # fmt: skip


def test_other_names():
    rule = operation_of(
        "{match: PUT|POST /b, envelope: {each: $, method: $.m, path: $.a.url, headers: $.h, "
        "body: $.p, id: $.id, base: /v1/, defaults: {method: get, path: /x}, "
        "answers: {each: $.out, status: $.code, headers: $.h, body: $.r}}}"
    ).envelope
    assert rule is not None
    assert (rule.path, rule.id, rule.base, rule.defaults) == (
        ("a", "url"), ("id",), "/v1/", ("GET", "/x")
    )  # fmt: skip
    assert (rule.status, rule.answer_headers, rule.answer_body) == (("code",), ("h",), ("r",))
