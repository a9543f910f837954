from proxy.model.schema import Value
from proxy.redactor.load import load_text
from proxy.redactor.request_rules import ConditionSource
from tests.support.exchanges import rule_text


def test_conditions_are_compiled():
    rules = load_text(
        rule_text(
            "{match: POST /p, when: {$.a.b: x, header X-Y: 1, query q: [a, b], "
            "form f: x, type: Text/X}, create: p}",
            "{match: POST /p, create: p}",
        )
    )
    when = {(one.source, one.name, one.path): one.values for one in rules.operations[0].when}
    assert when == {
        (ConditionSource.BODY, "", ("a", "b")): {Value("x")},
        (ConditionSource.HEADER, "x-y", ()): {Value("1")},
        (ConditionSource.QUERY, "q", ()): {Value("a"), Value("b")},
        (ConditionSource.FORM, "f", ()): {Value("x")},
        (ConditionSource.TYPE, "content-type", ()): {Value("text/x")},
    }


def test_operations_that_lie_in_each_other_or_apart_load():
    rules = load_text(
        rule_text(
            "{match: POST /p, when: {$.a: [x, y]}, create: p}",
            "{match: POST /p, when: {$.a: x, $.b: true}, create: p}",
            "{match: POST /p, when: {$.a: z}, create: p}",
            "{match: POST /p, pass: true}",
        )
    )
    assert len(rules.rules) == 4
