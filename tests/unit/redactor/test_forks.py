import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.forks import Fork, forked
from proxy.redactor.load import load_text
from proxy.redactor.message import RawHeaders, Request
from proxy.redactor.rules import Operation, PassRule
from tests.support.exchanges import FORM, JSON, rule_text

OPERATIONS = (
    "{match: POST /p, when: {$.method: add}, create: p}",
    "{match: POST /p, when: {$.method: add, $.n: [1, true]}, create: p, request: {object: $.x}}",
    (
        "{match: POST /p, when: {$.method: put, form action: add}, create: p, "
        "request: {form: {name: name}}, response: {id: $.id}}"
    ),
)
FORMS = (
    (
        "{match: POST /p, when: {form action: add}, create: p, request: {form: {name: name}}, "
        "response: {id: $.id}}"
    ),
)
DEFAULT = "{match: POST /p, pass: true}"


def fork(*operations: str) -> Fork:
    rules = load_text(rule_text(*operations, '{match: "GET /p/{id}", read: p}'))
    routed, forks = forked(rules.rules)
    assert len(routed) == 2
    (one,) = forks.values()
    return one


def line(one: Fork, body: bytes, headers: RawHeaders = JSON, target: bytes = b"/p") -> int:
    """Which of the operations a request is for, counted from 1."""
    rule = one.by_body(Request("POST", target, headers, body))
    return sorted(branch.position.line for branch in one.branches).index(rule.position.line) + 1


def refusal(one: Fork, body: bytes, headers: RawHeaders = JSON, target: bytes = b"/p") -> Code:
    with pytest.raises(VaultError) as caught:
        one.by_body(Request("POST", target, headers, body))
    return caught.value.code


@pytest.mark.parametrize(
    ("body", "number"),
    [
        (b'{"method": "add"}', 1),
        (b'{"method": "add", "n": 2}', 1),
        (b'{"method": "add", "n": 1}', 2),
        (b'{"n": true, "method": "\\u0061dd"}', 2),
        (b'{"method": "drop"}', 4),
        (b'{"method": null}', 4),
        (b"", 4),
    ],
)
def test_the_most_specific_operation_wins(body, number):
    assert line(fork(*OPERATIONS, DEFAULT), body) == number


def test_a_member_of_a_form_tells():
    one = fork(*FORMS, DEFAULT)
    assert line(one, b"action=add&name=x", FORM) == 1
    assert line(one, b"action=drop", FORM) == 2
    assert refusal(one, b"action=add&action=x", FORM) is Code.BAD_REQUEST


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b'{"method": "ADD"}', JSON, Code.BAD_REQUEST),
        (b'{"method": " add"}', JSON, Code.BAD_REQUEST),
        (b'{"method": "add", "n": "1"}', JSON, Code.BAD_REQUEST),
        (b'{"method": "add", "method": "x"}', JSON, Code.AMBIGUOUS_JSON),
        (b'{"Method": "add"}', JSON, Code.AMBIGUOUS_JSON),
        (b'{"method": "add"', JSON, Code.MALFORMED_JSON),
        (b"method=add", ((b"Content-Type", b"text/plain"),), Code.UNREADABLE_BODY),
    ],
)
def test_what_is_not_clear_is_refused_and_never_passes(body, headers, code):
    assert refusal(fork(*OPERATIONS, DEFAULT), body, headers) is code


def test_what_fits_none_is_refused():
    assert refusal(fork(*OPERATIONS), b'{"method": "drop"}') is Code.OPERATION_DENIED


HEAD = (
    "{match: POST /p, when: {type: application/json}, create: p}",
    "{match: POST /p, when: {header X-Action: add, type: text/x}, create: p}",
    "{match: POST /p, when: {query do: [add, 7], type: text/y}, create: p}",
)


@pytest.mark.parametrize(
    ("target", "headers", "number"),
    [
        (b"/p", ((b"content-type", b"Application/JSON; charset=utf-8"),), 1),
        (b"/p", ((b"Content-Type", b"text/x"), (b"x_action", b"add")), 2),
        (b"/p?do=7&x=1", ((b"Content-Type", b"text/y"),), 3),
        (b"/p?do=%61dd", ((b"Content-Type", b"text/y"),), 3),
    ],
)
def test_the_head_tells_without_a_body(target, headers, number):
    one = fork(*HEAD)
    rule = one.by_head(target, headers)
    assert rule is not None
    assert line(one, b"", headers, target) == number
    assert sorted(branch.position.line for branch in one.branches)[number - 1] == rule.position.line


@pytest.mark.parametrize(
    ("target", "headers", "code"),
    [
        (b"/p", ((b"Content-Type", b"text/z"),), Code.OPERATION_DENIED),
        (b"/p?do=ADD", ((b"Content-Type", b"text/y"),), Code.BAD_REQUEST),
        (b"/p?do=add&do=x", ((b"Content-Type", b"text/y"),), Code.BAD_REQUEST),
        (
            b"/p",
            ((b"Content-Type", b"text/x"), (b"X-Action", b"add"), (b"X_Action", b"b")),
            Code.BAD_REQUEST,
        ),
    ],
)
def test_a_head_that_is_not_clear_is_refused(target, headers, code):
    with pytest.raises(VaultError) as caught:
        fork(*HEAD).by_head(target, headers)
    assert caught.value.code is code


def test_a_body_is_asked_for_only_where_it_tells():
    one = fork(*OPERATIONS, DEFAULT)
    assert one.by_head(b"/p", JSON) is None
    assert isinstance(one.branches[-1], PassRule)


def test_rules_without_when_stand_as_they_are():
    rules = load_text(rule_text(*OPERATIONS[:1], '{match: "GET /p/{id}", read: p}'))
    routed, forks = forked(rules.rules)
    assert len(forks) == 1
    assert rules.operations[1] in routed
    assert isinstance(routed[0], Operation)
    assert routed[0].branches == (rules.operations[0],)
