import pytest

from proxy.errors import VaultError
from proxy.redactor.load import load_text
from proxy.redactor.rules import Verb
from proxy.redactor.tools.difference import differences
from proxy.redactor.tools.explain import arguments_in_words, as_data, find_operation
from tests.support.exchanges import rule_text
from tests.support.table import table

TEXT = rule_text(
    "{match: POST /g, graphql: {Mutation.add: {create: p, object: a.b}, "
    "Mutation.put: {update: p, object: a, key: a.id, id: key}, "
    "all: {read: p, arguments: {f.email: email}}}, persisted: {"
    + "AB" * 32
    + ': "{ all { id } }"}}'
)


def test_each_field_is_an_operation_of_its_own():
    (operation,) = load_text(TEXT).operations
    add, put, every = operation.graph
    assert (add.operation.verb, add.object, add.key, add.id) == (Verb.CREATE, ("a", "b"), (), "id")
    assert (put.object, put.key, put.id) == (("a",), ("a", "id"), "key")
    assert every.arguments == {("f", "email"): "email"}
    assert add.small == {("born",)}
    assert operation.verb is Verb.UPDATE
    assert operation.persisted == (("ab" * 32, "{ all { id } }"),)
    assert add.operation.endpoint is operation.endpoint


def test_an_argument_may_be_refused():
    text = rule_text(
        "{match: GET|POST /g, graphql: {all: {read: p, arguments: {q: {refuse: always}, "
        "sort.by: {refuse: [name, email]}}}}}"
    )
    (field,) = load_text(text).operations[0].graph
    assert field.refused["q",].refused
    assert field.refused["sort", "by"].unwanted == {"name": "name", "email": "email"}
    assert arguments_in_words(field) == {"q": "refused", "sort.by": "refused with email or name"}


@table(
    ("rule", "words"),
    [
        ("{create: p, arguments: {a: name, b: name}}", "another argument holds name"),
        ("{create: p, arguments: {a: {refuse: always}}}", "'refuse' means nothing to a create"),
        ("{create: p, arguments: {a: nme}}", "'nme'"),
        ("{update: p, arguments: {a: name}}", "add key"),
        ("{read: p, arguments: {q: {refuse: [nme]}}}", "'nme'"),
        ("{read: p, arguments: {q: {}}}", "refuse"),
        ("{read: p, arguments: {q: {field: name}}}", "field"),
        ("{create: p, object: o, arguments: {q: {refuse: always}}}", "means nothing to a create"),
    ],
)
def test_an_argument_that_is_refused_in_a_wrong_way_is_a_fault(rule, words):
    with pytest.raises(VaultError) as caught:
        load_text(rule_text(f"{{match: GET|POST /g, graphql: {{all: {rule}}}}}"))
    assert words in str([one.text for one in caught.value.details])


def test_answers_may_lack_the_id_so_tokens_tell_their_record():
    rules = load_text(TEXT)
    assert rules.entities[0].addressed is False
    assert rules.operations[0].graph[0].operation.entity is rules.entities[0]


def test_an_operation_in_the_address_is_warned_of():
    rule = "{match: %s /g, graphql: {p: {entity: p}}}"
    (warning,) = load_text(rule_text(rule % "POST")).warnings
    assert "write match: GET|POST /g" in warning
    assert load_text(rule_text(rule % "GET|POST")).warnings == ()


def test_a_field_whose_arguments_hold_nobodys_data_is_told_apart():
    rule = "{match: GET|POST /g, graphql: {p: {entity: p}, Query.goods: {pass: true}}}"
    rules = load_text(rule_text(rule))
    (operation,) = rules.operations
    assert operation.passed_fields == ("Query.goods",)
    assert [one.name for one in operation.graph] == ["p"]
    shown = as_data(find_operation(rules, "POST", "/g"))["operation"]["graphql"]
    assert shown["Query.goods"] == {"pass": True}


@table(
    ("old", "new", "effects"),
    [
        ("", ", goods: {pass: true}", ["loses"]),
        (", goods: {pass: true}", "", ["gains"]),
        (", a: {pass: true}", ", b: {pass: true}", ["loses", "gains"]),
        (", goods: {read: p}", ", goods: {pass: true}", ["loses", "loses"]),
    ],
)
def test_that_arguments_pass_is_a_difference_of_rules(old, new, effects):
    rule = "{match: POST /g, graphql: {p: {entity: p}%s}}"
    found = differences(*(load_text(rule_text(rule % one)) for one in (old, new)))
    named = [one for one in found if "GraphQL" in one.text]
    assert [str(one.effect) for one in named if str(one.effect) != "changes"] == effects
