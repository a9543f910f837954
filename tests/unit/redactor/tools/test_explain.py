from typing import Any

import pytest

from proxy.errors import VaultError
from proxy.redactor.load import load_text
from proxy.redactor.tools import explain
from tests.support.rules import rules_of
from tests.support.table import table

RULES = rules_of(
    '{match: "PATCH /contacts/{id}", update: contact}',
    '{match: GET /contacts, read: contact, query: {mail: email}, response: {each: "$.items[*]", '
    "id: $.id}}",
    '{match: POST /forms, create: note, request: {form: {"t_*": text}}, response: {id: "header '
    'Location /notes/{id}"}}',
    '{match: "PUT /bulk", update: note, id: "$.keys[*]", request: {object: $.data, fields: '
    "{text: $.text}}, response: {id: $.id}}",
)


def data(method: str, path: str, host: str = "") -> dict[str, Any]:
    return explain.as_data(explain.find_operation(RULES, method, path, host))


def test_every_default_of_a_short_rule_is_filled_in():
    rule = data("patch", "/contacts/17")["operation"]
    assert rule["match"] == "PATCH /contacts/{id}"
    assert rule["update"] == "contact"
    assert rule["id"] == "path id"
    assert rule["request"]["body"] == {
        "object": "$",
        "fields": {"name": "$.name", "email": "$.email", "born": "$.born"},
        "form": {},
    }
    assert [rule["request"][word] for word in ("absent", "nulls", "empty", "own_token")] == [
        "keep",
        "erase",
        "store",
        "keep",
    ]
    assert rule["response"]["success"] == ["200-299"]
    assert rule["fields"]["email"] == {
        "kind": "email",
        "token": "email",
        "same": True,
        "resolves": "indexed",
        "at": "$.email",
        "find": ["exact"],
        "stored": "sealed",
    }


def test_places_count_from_the_root_of_the_document():
    rule = data("GET", "/contacts")["operation"]
    assert rule["response"]["body"]["each"] == "$.items[*]"
    assert rule["response"]["body"]["fields"]["name"] == "$.items[*].name"
    assert rule["response"]["id"] == "$.items[*].id"
    assert rule["query"] == {"mail": "email"}
    bulk = data("PUT", "/bulk")["operation"]
    assert bulk["id"] == "$.keys[*]"
    assert bulk["request"]["body"]["fields"] == {"text": "$.text"}


def test_forms_and_redirects_show():
    rule = data("POST", "/forms")["operation"]
    assert rule["request"]["body"] == {"object": None, "fields": {}, "form": {"t_*": "text"}}
    assert rule["response"]["id"] == "header location /notes/{id}"
    assert rule["response"]["success"] == ["200-299", "302", "303"]


def test_conditions_of_success_show():
    text = (
        '{match: "PUT /n/{id}", update: note, response: {success: [204, {status: [302, 303], '
        'location: [/n, "/n/{id}"]}, {status: 200, text: ok}]}}'
    )
    endpoint, operation, *_ = explain.find_operation(rules_of(text), "PUT", "/n/1")
    shown = explain.as_data(explain.EffectiveRule(endpoint, operation))["operation"]["response"][
        "success"
    ]
    assert shown == ["204", "302 or 303 to /n or /n/{id}", '200 with the text "ok"']


def test_a_template_as_the_rule_writes_it_finds_the_rule():
    assert data("PATCH", "/contacts/{id}") == data("PATCH", "/contacts/17")


def test_the_text_says_the_same_in_lines():
    text = explain.explanation_text(data("PATCH", "/contacts/17"))
    assert "  match: PATCH /contacts/{id}" in text
    assert (
        "    email: kind email, token email, same yes, resolves indexed, at $.email, find exact, stored sealed"
        in text
    )
    assert "    host: none" not in text.split("endpoint:")[0]
    assert "127.0.0.1" not in text  # an address may be a secret


@table(
    ("unmatched", "words"),
    [("pass", "it passes unchanged ("), ("report", "counted"), ("deny", "refused")],
)
def test_a_request_without_rule_is_told_its_fate(unmatched, words):
    rules = load_text(
        'version: 1\nendpoint: {name: crm, upstream: "http://a", host: a.example, unmatched: '
        f"{unmatched}}}\n"
    )
    text = explain.explanation_text(explain.as_data(explain.find_operation(rules, "GET", "/x")))
    assert words in text
    assert "No endpoint" in explain.explanation_text(
        explain.as_data(explain.find_operation(rules, "GET", "/x", "b.example"))
    )


def test_a_rule_that_passes_is_explained():
    rules = rules_of('{match: "GET /static/{path*}", pass: true}')
    shown = explain.as_data(explain.find_operation(rules, "GET", "/static/a.js"))
    assert shown["operation"] == {
        "match": "GET /static/{path*}",
        "at": "rules.yaml:13:5",
        "pass": True,
    }
    assert "passes unchanged" in explain.explanation_text(shown)
    assert explain.as_data(explain.find_operation(rules, "GET", "/static/{path*}")) == shown


def test_a_ruled_path_says_what_is_refused_on_it():
    rules = rules_of('{match: "GET /notes/{id}", read: note}')
    texts = [
        explain.explanation_text(explain.as_data(explain.find_operation(rules, method, path)))
        for method, path in (("PUT", "/notes/1"), ("PATCH", "/notes/1"), ("PATCH", "/other"))
    ]
    assert ["WebSocket" in text for text in texts] == [True, False, False]
    assert ["passes unchanged" in text for text in texts] == [True, False, True]
    assert "it is refused" in texts[1]


def test_a_request_that_two_rules_name_is_refused_as_the_proxy_does():
    rules = rules_of('{match: "GET /a/{x}", read: note}', "{match: GET /a/b, read: note}")
    with pytest.raises(VaultError):
        explain.find_operation(rules, "GET", "/a/%62")


def test_the_shape_of_values_that_do_not_fit_shows():
    rules = load_text(
        "version: 1\nendpoint: {name: crm, upstream: 'http://127.0.0.1:3000'}\n"
        "entities: {c: {fields: {phone: {kind: phone, token: {shape: numeric, else: lower}}}}}\n"
        "operations: [{match: POST /c, create: c}]\n"
    )
    found = explain.as_data(explain.find_operation(rules, "POST", "/c", ""))
    assert (
        found["operation"]["fields"]["phone"]["token"],
        found["operation"]["fields"]["phone"]["else"],
    ) == (
        "numeric",
        "lower",
    )


def test_a_parameter_that_passes_is_not_explained_as_none():
    rules = rules_of(
        "{match: GET /contacts, read: contact, query: {city: {pass: true}}, response: {id: $.id}}"
    )
    found = explain.as_data(explain.find_operation(rules, "GET", "/contacts"))
    assert found["operation"]["query"] == {"city": "nobody's data, passed on purpose"}
    assert "city: nobody's data" in explain.explanation_text(found)
