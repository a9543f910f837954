from typing import Any

from proxy.redactor.graphql.unread import (
    names_any,
    says_twice,
    unread_name,
    unread_texts,
    variables_in,
    with_arguments,
)
from proxy.redactor.graphql.values import parse_document
from proxy.redactor.search.sought import named_like
from tests.support.table import table

IS_NAME = named_like(["name"])


@table(
    ("value", "ways", "name"),
    [
        ({"name": "x"}, [], "name"),
        ({"a": [{"b": {"name_contains": "x"}}]}, [], "name_contains"),
        ({"name": {"_eq": "x"}}, [("name", "_eq")], ""),
        ({"name": {"_eq": "x", "_sw": "y"}}, [("name", "_eq")], "name"),
        ({"name": [{"_eq": "x"}]}, [("name", "_eq")], "name"),
        ({"name": {"_null": True, "b": ["", None]}}, [], ""),
        ({"a": "x"}, [], ""),
        ("x", [()], ""),
        ('{"name": "x"}', [("name", "_eq")], "name"),
        ({"a": ['{"name": "x"}', [["y"]]]}, [("a", "name")], "name"),
        ({"a": [None, "", {"b": 1}]}, [("a", "name")], ""),
        ({"a": "x"}, [("a", "name"), ("a",)], ""),
    ],
)
def test_a_value_below_the_name_of_a_field_is_found_unless_a_way_leads_there(value, ways, name):
    assert unread_name(value, ways, "", IS_NAME) == name


def test_texts_are_told_with_their_way_unless_a_rule_reads_them():
    value: Any = {"a": [{"b": "x"}, "y", 7, True, None, ""], "c": {"d": "read", "e": "z"}}
    texts = list(unread_texts(value, [("c", "d")], ("q",)))
    assert texts == [
        (("q", "a", "b"), "x"),
        (("q", "a"), "y"),
        (("q", "a"), "7"),
        (("q", "c", "e"), "z"),
    ]


def test_names_are_looked_for_at_any_depth_of_a_variable():
    assert names_any(b'{"a": [{"Name": 1}]}', IS_NAME)
    assert not names_any(b'{"a": [{"b": "name"}]}', IS_NAME)


def test_fields_and_directives_of_a_document_are_walked_with_their_variables():
    document = parse_document(
        "query ($v: S @d(x: 1)) { a(p: [$v, {q: $w}]) @e { ...F } } fragment F on T { b(r: $u) }"
    )
    nodes = list(with_arguments(document))
    assert {node.name.value for node in nodes} == {"a", "b", "d", "e"}
    arguments = [one for node in nodes for one in node.arguments or ()]
    assert {name for one in arguments for name in variables_in(one.value)} == {"v", "w", "u"}


@table(
    ("text", "twice"),
    [
        ("{ a(b: 1, b: 2) }", True),
        ("{ a(b: {c: 1, c: 2}) }", True),
        ("{ a(b: [{d: [{c: 1, c: 2}]}]) }", True),
        ("{ a @d(b: 1, b: 2) }", True),
        ("{ a { ... @d(b: {c: 1, c: 2}) { e } } }", True),
        ("query ($v: S, $v: S = 1) { a }", True),
        ("query ($v: S = {c: 1, c: 2}) { a }", True),
        ("{ x } fragment F on T { a(b: 1, b: 2) }", True),
        ("query ($v: S = {c: [1, 1]}) { a(b: $v, c: {b: 1, c: $v}) b: a(b: [1, 1, {b: 1}, {b: 1}]) }", False),
    ],
)  # fmt: skip
def test_what_is_said_twice_is_found_wherever_it_stands(text, twice):
    assert says_twice(parse_document(text)) is twice
