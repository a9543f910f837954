import pytest

from proxy.redactor.load.rule_tests import ABSENT, parse_case
from proxy.redactor.rules import Position, RuleTest
from tests.support.table import table

AT = Position("f", 1, 1)


def case(**content: object):
    return parse_case(RuleTest("name", "crm", {"call": {"match": "GET /n"}, **content}, AT))


def test_a_whole_test_becomes_typed_structures():
    found = case(
        call={"match": "POST /n?a=b", "json": None, "query": {"c": "d e"}, "headers": {"X-A": "1"}},
        app_sees={
            "without": ["Ann"],
            "json": {"mail": {"shape": "email"}},
            "form": {"a": "b"},
            "query": {"c": {"shape": "opaque"}},
        },
        app_answers={
            "status": 201,
            "json": {"id": 1, "mail": "{sent $.mail}"},
            "headers": {"Location": "/n/1"},
        },
        caller_sees={"status": 201, "json": {"id": 1}},
    )
    assert (found.name, found.endpoint, found.position) == ("name", "crm", AT)
    assert (found.call.method, found.call.target) == ("POST", "/n?a=b&c=d+e")
    assert (found.call.json, found.call.form, found.call.headers) == (None, None, {"X-A": "1"})
    assert found.app_sees.without == ("Ann",)
    assert found.app_sees.json == {"mail": {"shape": "email"}}
    assert found.app_answers.status == 201
    assert found.app_answers.headers == {"Location": "/n/1"}
    assert found.caller_sees.json == {"id": 1}


def test_what_a_test_does_not_say_is_absent_which_is_not_null():
    found = case()
    assert found.call.json is ABSENT
    assert found.app_sees.json is ABSENT
    assert repr(found.caller_sees.json) == "ABSENT"
    assert (found.app_answers.status, found.caller_sees.status) == (200, None)


def test_method_and_path_may_stand_apart():
    found = case(call={"method": "PUT", "path": "/n/1", "form": {"a": "b"}})
    assert (found.call.method, found.call.target, found.call.form) == ("PUT", "/n/1", {"a": "b"})


@table(
    ("content", "words"),
    [
        ({"call": {}}, "match: GET"),
        ({"call": {"match": "GET /n", "path": "/n"}}, "leave"),
        ({"call": {"match": "get /n"}}, "METHOD and path"),
        ({"call": {"match": "GET n"}}, "METHOD and path"),
        ({"call": {"match": "GET /n/{id}"}}, "without placeholders"),
        ({"call": {"match": "GET /n", "json": 1, "form": {}}}, "one body"),
        ({"app_sees": {"json": [{"shape": "mail"}]}}, "any token of a shape"),
        ({"app_answers": {"json": "{sent mail}"}}, "repeats a place"),
        ({"app_answers": {"json": ["{sent}"]}}, "not one"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_to_write(content, words):
    with pytest.raises(ValueError, match=words):
        case(**content)


def test_placeholders_count_only_where_they_stand_for_something():
    found = case(
        call={"match": "POST /n", "json": {"shape": "circle", "text": "{sent"}},
        caller_sees={"json": {"shape": "circle"}},
    )
    assert found.call.json["shape"] == "circle"
