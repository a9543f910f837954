import json
from typing import Any

from proxy.redactor.exchange.rule_test_runner import run_case
from proxy.redactor.exchange.runtime import bind_rules
from proxy.redactor.load import load_text
from proxy.redactor.load.rule_tests import parse_case
from proxy.redactor.rules import Position, RuleTest
from tests.support.audit import audit_services
from tests.support.exchanges import USUAL, desk, rule_text
from tests.support.table import table

FORM = (
    '{match: POST /f, create: p, request: {form: {n: name, m: email}}, response: {id: "header '
    'Location /p/{id}"}}'
)


async def problems(**content: Any) -> list[str]:
    """What does not hold of a test."""
    one = await desk(*USUAL, FORM)
    return await run_case(
        one.runtime, parse_case(RuleTest("t", "app", content, Position("f", 1, 1)))
    )


CREATE = {
    "match": "POST /p",
    "json": {"name": "Zorbina", "email": "Ann@x.example", "vip": True, "n": 1},
}
ANSWER = {
    "status": 201,
    "json": {
        "id": 17,
        "name": "{sent $.name}",
        "text": "is {sent $.email} and {sent $.vip}",
        "all": ["{sent $.no}"],
    },
}


async def test_a_test_that_holds_has_no_problems():
    sees = {
        "without": ["Zorbina", "ann@x.example"],
        "json": {"vip": True, "name": {"shape": "opaque"}, "email": {"shape": "email"}},
    }
    answer = {"status": 201, "json": {"id": 17, "name": "{sent $.name}", "email": "{sent $.email}"}}
    assert await problems(call=CREATE, app_sees=sees, app_answers=answer, caller_sees={"status": 201, "json": {"id": 17, "name": "Zorbina", "email": "Ann@x.example"}}) == []  # fmt: skip


async def test_forms_queries_and_addresses():
    call = {"match": "POST /f", "form": {"n": "Zorbina Å", "m": "Ann@x.example"}}
    sees = {
        "without": ["zorbina"],
        "form": {"n": {"shape": "alphaNumeric"}, "m": {"shape": "emailPersistent"}},
    }
    assert (
        await problems(
            call=call,
            app_sees=sees,
            app_answers={"status": 302, "headers": {"Location": "/p/{sent $.n}"}},
        )
        == []
    )
    search = {"match": "GET /p", "query": {"email": "Ann@x.example", "x": "Ann"}}
    assert (
        await problems(call=search, app_sees={"query": {"email": {"shape": "email"}, "x": "Ann"}})
        == []
    )
    assert await problems(call=search, app_sees={"without": ["Ann"]}) == [
        "the application sees 'Ann', which app_sees.without forbids"
    ]


async def test_a_post_that_names_another_method_meets_the_rule_of_that():
    changed = {"match": "POST /p/17", "json": {"_method": "patch", "name": "Zorbina"}}
    assert await problems(call=changed, app_sees={"without": ["Zorb"]}) == []
    deleted = {"match": "POST /p/17", "form": {"_method": "delete", "reason": "Zorbina"}}
    assert await problems(call=deleted, app_sees={"form": {"reason": "Zorbina"}}) == []
    other = {"match": "POST /p/17", "form": {"_method": "trace"}}
    assert await problems(call=other) == ["no operation matches POST /p/17"]


@table(
    ("sees", "wanted"),
    [
        ({"without": ["x.EXAMPLE"]}, []),
        ({"without": ["tru"]}, ["the application sees 'tru', which app_sees.without forbids"]),
        ({"json": {"vip": 1}}, ["app_sees.json $.vip is not 1"]),
        ({"json": {"n": True}}, ["app_sees.json $.n is not true"]),
        ({"json": {"vip": {"shape": "email"}}}, ["app_sees.json $.vip is no token of shape email"]),
        (
            {"json": {"name": "Zorbina", "x": {}}},
            ['app_sees.json $.name is not "Zorbina"', "app_sees.json $.x is missing"],
        ),
        ({"json": []}, ["app_sees.json $ is not []"]),
        ({"form": {"name": "x"}}, ["app_sees.form $.name is missing"]),
    ],
)
async def test_what_the_application_gets_is_compared(sees, wanted):
    assert await problems(call=CREATE, app_sees=sees) == wanted


@table(
    ("answer", "caller", "wanted"),
    [
        ({"status": 201, "json": [1, {"a": 2}]}, {"json": [1, {"a": 2}]}, []),
        ({"status": 201, "json": [1, {"a": 2}]}, {"json": [1, {"a": 3, "b": 1}]}, ["caller_sees.json $[1].a is not 3", "caller_sees.json $[1].b is missing"]),
        ({"status": 201, "json": {"a": 1}}, {"json": {}}, ["caller_sees.json $.a is there, and caller_sees does not have it"]),
        ({"status": 201, "json": [1]}, {"json": [1, 2]}, ["caller_sees.json $ is not [1, 2]"]),
        ({"status": 201, "json": 1}, {"json": True}, ["caller_sees.json $ is not true"]),
        ({"status": 201}, {"status": 200}, ["the caller gets status 201, not 200"]),
        ({"status": 422, "json": {"bad": "{sent $.name}"}}, {"status": 422, "json": {"bad": "Zorbina"}}, []),
        ({"status": 204}, {"status": 204}, []),
        (ANSWER, {"json": {"id": 17, "name": "Bo", "text": "x", "all": [None]}}, ['caller_sees.json $.name is not "Bo"', 'caller_sees.json $.text is not "x"']),
    ],
)  # fmt: skip
async def test_what_the_caller_gets_is_compared(answer, caller, wanted):
    assert await problems(call=CREATE, app_answers=answer, caller_sees=caller) == wanted


@table(
    ("shown", "wanted"),
    [
        ("<p>Ann@x.example</p>", []),
        ("<p>Ann&#64;x&#46;example</p>", []),
        (
            "<p>Bo@x.example</p>",
            ['from character 4 on, behind "<p>", "Bo@x.example</p>" is expected; it has 20 characters in place of 19'],
        ),
        (
            "<p>Ann@x.example",
            ['from character 17 on, behind "<p>Ann@x.example", its end is expected; it has 20 characters in place of 16'],
        ),
    ],
)  # fmt: skip
async def test_a_page_is_expected_in_clear_and_its_first_difference_is_told(shown, wanted):
    call = {"match": "POST /f", "form": {"m": "Ann@x.example"}}
    html = {"Content-Type": "text/html"}
    page = {"status": 422, "headers": html, "text": "<p>{sent $.m}</p>"}
    found = await problems(call=call, app_answers=page, caller_sees={"text": shown})
    assert [
        one.removeprefix("the body is not that of caller_sees.text: ") for one in found
    ] == wanted


@table(
    ("sent", "wanted", "media", "alike"),
    [
        ("&#60;b&#62;", "<b>", "text/html", False),
        ("<b>", "&#60;b&#62;", "text/html", False),
        ("a&#46;b", "a.b", "text/html", True),
        ("a&#2046;b", "a.b", "text/html", False),
        ("a&#46;b", "a.b", "text/plain", False),
    ],
)
async def test_markup_and_what_is_escaped_are_two_things(sent, wanted, media, alike):
    answer = {"status": 200, "headers": {"Content-Type": media}, "text": sent}
    found = await problems(
        call={"match": "GET /p/1"}, app_answers=answer, caller_sees={"text": wanted}
    )
    assert (found == []) is alike


async def test_problems_never_tell_what_was_found():
    found = await problems(
        call=CREATE,
        app_sees={"json": {"email": "x", "n": 2}},
        app_answers=ANSWER,
        caller_sees={"json": {"name": "Bo"}},
    )
    assert found
    assert "x.example" not in json.dumps(found)
    assert "Zorbina" not in json.dumps(found)


async def test_a_call_that_no_rule_names_or_that_is_refused_is_a_problem():
    assert await problems(call={"match": "PUT /elsewhere?a=secret"}) == [
        "no operation matches PUT /elsewhere"
    ]
    (refusal,) = await problems(call={"match": "POST /p", "json": {"born": "no date"}})
    assert refusal.startswith("the proxy refuses it with value_unfit")
    assert "no date" not in refusal


@table(
    "call",
    [
        {"match": "POST /p", "json": {}},
        {"match": "POST /b", "json": [{"method": "POST", "path": "/p", "body": {"name": "Ann"}}]},
    ],
)
async def test_the_endpoint_is_reached_by_a_host_of_its_own(call):
    batch = '{match: POST /b, envelope: {each: "$[*]", answers: "$[*]"}}'
    text = rule_text("{match: POST /p, create: p}", batch).replace(
        "{name: app,", "{name: app, host: [b.example, a.example],"
    )
    one = await desk()
    runtime = await bind_rules(load_text(text), one.vault, one.metrics, audit_services())
    case = parse_case(RuleTest("t", "app", {"call": call}, Position("f", 1, 1)))
    assert await run_case(runtime, case) == []
