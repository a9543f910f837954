import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.forks import Fork, forked
from proxy.redactor.load import load_text
from proxy.redactor.message import RawHeaders, Request
from proxy.redactor.rules import Operation, PassRule
from tests.support.exchanges import FORM, JSON, rule_text
from tests.support.table import table

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


@table(
    ("body", "number"),
    [
        (b'{"method": "add"}', 1),
        (b'{"method": "add", "n": 2}', 1),
        (b'{"method": "add", "n": 1}', 2),
        (b'{"n": true, "method": "\\u0061dd"}', 2),
        (b'{"method": "drop"}', 4),
        (b'{"method": null}', 4),
        (b'{"method": "additive; see add"}', 4),
        (b'{"other": ["add"]}', 4),
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


@table(
    ("body", "headers", "code"),
    [
        (b'{"method": "ADD"}', JSON, Code.BAD_REQUEST),
        (b'{"method": " add"}', JSON, Code.BAD_REQUEST),
        (b'{"method": "add", "n": "1"}', JSON, Code.BAD_REQUEST),
        (b'{"method": "add", "method": "x"}', JSON, Code.AMBIGUOUS_JSON),
        (b'{"method": "\\"add\\""}', JSON, Code.BAD_REQUEST),
        (b'{"method": "\\u0000add"}', JSON, Code.BAD_REQUEST),
        (b'{"method": "\\uff41dd"}', JSON, Code.BAD_REQUEST),
        (b'{"method": "add", "n": 1.0}', JSON, Code.BAD_REQUEST),
        (b'{"method": "add", "n": "01"}', JSON, Code.BAD_REQUEST),
        (b'[{"method": "add"}]', JSON, Code.BAD_REQUEST),
        (b'[{"method": "drop"}, {"method": "add"}]', JSON, Code.BAD_REQUEST),
        (b'"method=add"', JSON, Code.BAD_REQUEST),
        (b'{"method": ["add"]}', JSON, Code.BAD_REQUEST),
        (b'{"method": {"0": "add"}}', JSON, Code.BAD_REQUEST),
        (b'{"Method": "add"}', JSON, Code.AMBIGUOUS_JSON),
        (b'{"method": "add"', JSON, Code.MALFORMED_JSON),
        (b"method=add", ((b"Content-Type", b"text/plain"),), Code.UNREADABLE_BODY),
    ],
)
def test_what_is_not_clear_is_refused_and_never_passes(body, headers, code):
    assert refusal(fork(*OPERATIONS, DEFAULT), body, headers) is code


@table(
    ("body", "code"),
    [
        (b"action=add;name=x", Code.BAD_REQUEST),
        (b"action=%00add&name=x", Code.BAD_REQUEST),
        (b"action=%22add%22&name=x", Code.BAD_REQUEST),
        (b"action=add%0D%0A&name=x", Code.BAD_REQUEST),
        (b"action=x;action=add&name=x", Code.AMBIGUOUS_JSON),
        (b"Action=add&name=x", Code.AMBIGUOUS_JSON),
        (b'{"action": "add"}', Code.UNREADABLE_BODY),
    ],
)
def test_a_form_that_some_applications_read_otherwise_never_passes(body, code):
    assert refusal(fork(*FORMS, DEFAULT), body, FORM) is code


def test_a_place_on_the_way_to_a_condition_is_what_it_should_be():
    one = fork("{match: POST /p, when: {$.data.type: add}, create: p}", DEFAULT)
    assert line(one, b'{"data": {"type": "x"}}') == 2
    assert line(one, b'{"data": null}') == 2
    assert refusal(one, b'{"data": [{"type": "add"}]}') is Code.BAD_REQUEST
    assert refusal(one, b'{"data": "{\\"type\\": \\"add\\"}"}') is Code.BAD_REQUEST


@table(
    ("rule", "body", "headers"),
    [(FORMS[0], b"name=x", FORM), (OPERATIONS[0], b'{"name": "x"}', JSON)],
)
def test_a_query_never_says_what_the_body_should(rule, body, headers):
    one = fork(rule, DEFAULT)
    assert line(one, body, headers, b"/p?action=drop&method=drop&page=add") == 2
    for query in (b"action=add&method=add", b"action=ADD&method=ADD", b"#action=add&method=add"):
        assert refusal(one, body, headers, b"/p?" + query) is Code.BAD_REQUEST
    assert refusal(one, body, headers, b"/p?Action=add&Method=add") is Code.AMBIGUOUS_JSON


def test_a_number_that_another_rule_names_is_that_rules_and_other_letters_are_nobodys():
    one = fork(
        "{match: POST /p, when: {$.v: ['1', x]}, create: p}",
        "{match: POST /p, when: {$.v: ['1.0', X]}, create: p, request: {object: $.x}}",
        DEFAULT,
    )
    assert line(one, b'{"v": "1"}') == 1
    assert line(one, b'{"v": "1.0"}') == 2
    assert refusal(one, b'{"v": 1}') is Code.BAD_REQUEST
    assert refusal(one, b'{"v": "X"}') is Code.BAD_REQUEST


def test_what_fits_none_is_refused():
    assert refusal(fork(*OPERATIONS), b'{"method": "drop"}') is Code.OPERATION_DENIED


HEAD = (
    "{match: POST /p, when: {type: application/json}, create: p}",
    "{match: POST /p, when: {header X-Action: add, type: text/x}, create: p}",
    "{match: POST /p, when: {query do: [add, 7], type: text/y}, create: p}",
)


@table(
    ("target", "headers", "number"),
    [
        (b"/p", ((b"content-type", b"Application/JSON; charset=utf-8"),), 1),
        (b"/p", ((b"Content-Type", b"text/x"), (b"x-action", b"add")), 2),
        (b"/p?do=7&x=1", ((b"Content-Type", b"text/y"),), 3),
        (b"/p?do=%61dd", ((b"Content-Type", b"text/y"),), 3),
    ],
)
def test_the_head_tells_without_a_body(target, headers, number):
    one = fork(*(HEAD[:2] if number == 1 else HEAD))
    rule = one.by_head(target, headers)
    assert rule is not None
    assert line(one, b"", headers, target) == number
    assert sorted(branch.position.line for branch in one.branches)[number - 1] == rule.position.line


@table(
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


ACTIONS = (
    "{match: POST /p, when: {query do: [add, 7]}, create: p}",
    "{match: POST /p, when: {header X-Action: add}, create: p}",
    "{match: POST /p, when: {type: application/json}, create: p}",
)


@table("index", [0, 1, 2])
def test_a_head_that_says_something_else_is_for_the_operation_without_conditions(index):
    one = fork(ACTIONS[index], DEFAULT)
    for target, headers in (
        (b"/p", ()),
        (b"/p?page=add&do=adding&done=add", ((b"X-Actions", b"add"), (b"X-Action", b"adder, y"))),
        (b"/p?do=8", ((b"Content-Type", b'multipart/related; type="application/json"'),)),
    ):
        assert isinstance(one.by_head(target, headers), PassRule)


@table(
    "query",
    [
        *(
            "Do=add", "DO=add", "do[]=add", "do.=add", "do%00=add", "+do=add", ".do=add",
            "do[x]=add",
        ),
        *(
            "a;do=add", "do=x;do=add", "x&amp;do=add", "#&do=add", "do=add#", "do=add;x",
            "do=%00add",
        ),
        *("do=07", "do=7.0", "do=%EF%BC%97", "do='add'"),
    ],
)  # fmt: skip
def test_a_query_that_some_applications_read_otherwise_is_refused(query):
    with pytest.raises(VaultError) as caught:
        fork(ACTIONS[0], DEFAULT).by_head(b"/p?" + query.encode(), ())
    assert caught.value.code in (Code.BAD_REQUEST, Code.AMBIGUOUS_JSON)


@table(
    "body, headers, code",
    [
        (b"do=add&name=Ann", FORM, Code.BAD_REQUEST),
        (b"do=ADD&name=Ann", FORM, Code.BAD_REQUEST),
        (b"Do=add&name=Ann", FORM, Code.AMBIGUOUS_JSON),
        (b'{"do": "add", "name": "Ann"}', JSON, Code.BAD_REQUEST),
        (b'{"do": 7, "name": "Ann"}', JSON, Code.BAD_REQUEST),
        (b'{"do[]": "add"}', JSON, Code.AMBIGUOUS_JSON),
    ],
)
@table("query", [b"", b"?do=ping", b"?page=add"])
def test_a_body_that_says_what_a_rule_asks_of_the_query_is_refused(body, headers, code, query):
    one = fork(ACTIONS[0], DEFAULT)
    assert one.by_head(b"/p" + query, headers) is None, "what passes is not read otherwise"
    assert refusal(one, body, headers, b"/p" + query) is code
    harmless = body.replace(b"add", b"x").replace(b"ADD", b"x").replace(b": 7", b": 8")
    if code is Code.BAD_REQUEST:
        assert line(one, harmless, headers, b"/p" + query) == 2
        assert line(one, body, headers, b"/p?do=" + (b"7" if b"7" in body else b"add")) == 1


@table(
    ("name", "value"),
    [
        *((b"X-Action", value) for value in (b"add,x", b"x, ADD", b'"add"', b"add;q=1", b"'add'")),
        *((b"X-Action", value) for value in (b'"a\\dd"', b"do=add", b"x add", b"add (now)")),
        *(
            (b"Content-Type", value)
            for value in (b"text/x, application/json", b'"application/json"')
        ),
        *((name, b"add") for name in (b"X_Action", b"x_action", b"X.Action")),
    ],
)
def test_a_header_that_some_applications_read_otherwise_is_refused(name, value):
    with pytest.raises(VaultError) as caught:
        fork(ACTIONS[1 + (name == b"Content-Type")], DEFAULT).by_head(b"/p", ((name, value),))
    assert caught.value.code is Code.BAD_REQUEST


def test_a_header_beyond_ascii_is_read_as_utf_8_and_as_latin_1():
    one = fork("{match: POST /p, when: {header X-Action: ändern}, create: p}", DEFAULT)
    for spelled in ("ändern".encode(), "ändern".encode("latin-1")):
        assert isinstance(one.by_head(b"/p", ((b"X-Action", spelled),)), Operation)


ROUTED = (
    "{match: POST /p?r=person/add, create: p, request: {form: {name: name}}, response: {id: $.id}}",
    "{match: POST /p, pass: true}",
)


@table(
    ("query", "code"),
    [
        (b"r=person/add", None),
        (b"x=1&r=person%2Fadd", None),
        *((b"r=" + one, Code.BAD_REQUEST) for one in (
            b"person/add/", b"/person/add", b"person//add", b"person/./add", b"person%5Cadd", b"person%252Fadd",
            b"Person/Add", b"person/add%00", b"x/y&r=person/add",
        )),
        *((one + b"=person/add", Code.AMBIGUOUS_JSON) for one in (b"R", b"r[]", b"r%00", b"x=1;r", b"+r")),
    ],
)  # fmt: skip
def test_a_route_that_some_applications_read_otherwise_is_refused(query, code):
    one, target = fork(*ROUTED), b"/p?" + query
    if code is None:
        assert line(one, b"name=x", FORM, target) == 1
    else:
        assert refusal(one, b"name=x", FORM, target) is code
    assert line(one, b"name=x", FORM, b"/p?r=person/list") == 2


PARTS: RawHeaders = ((b"Content-Type", b"multipart/form-data; boundary=b"),)


def parts(name: bytes, text: bytes) -> bytes:
    return b"--b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n--b--\r\n" % (name, text)


def test_a_form_of_parts_tells_as_any_form_does():
    one = fork(*FORMS, DEFAULT)
    assert line(one, parts(b'name="action"', b"add"), PARTS) == 1
    assert line(one, parts(b'name="action"', b"drop"), PARTS) == 2
    assert refusal(one, parts(b'name="Action"', b"add"), PARTS) is Code.AMBIGUOUS_JSON
    assert refusal(one, parts(b'name="action"', b"ADD"), PARTS) is Code.BAD_REQUEST
    assert refusal(one, parts(b'name="action"; filename="a"', b"add"), PARTS) is Code.BAD_REQUEST
    assert refusal(one, b"no parts", PARTS) is Code.UNREADABLE_BODY


def test_a_form_of_parts_never_says_what_the_query_should():
    one = fork(*ROUTED)
    assert one.by_head(b"/p?r=person/list", PARTS) is None, "its body is asked for"
    for target in (b"/p", b"/p?r=person/list"):
        assert refusal(one, parts(b'name="r"', b"person/add"), PARTS, target) is Code.BAD_REQUEST
    assert line(one, parts(b'name="r"', b"person/list"), PARTS) == 2
