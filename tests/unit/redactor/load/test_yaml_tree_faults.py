import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.load.yaml_tree import MOST_RULE_FAULTS, RuleFaults, did_you_mean
from proxy.redactor.rules import Position
from tests.support.table import table


def raised(faults: RuleFaults) -> VaultError:
    with pytest.raises(VaultError) as caught:
        faults.raise_any()
    return caught.value


def test_without_faults_nothing_is_raised():
    faults = RuleFaults()
    faults.raise_any()
    assert not faults


def test_faults_are_raised_together_in_order_and_once_each():
    faults = RuleFaults()
    for line, column, text in [(10, 1, "c"), (2, 9, "b"), (2, 10, "d"), (2, 9, "b"), (2, 9, "a")]:
        faults.add(Position("f.yaml", line, column), text)
    error = raised(faults)
    assert error.code is Code.BAD_RULES
    assert error.message == "The rules have 4 faults; nothing of them was loaded."
    assert [(detail.source, detail.text) for detail in error.details] == [
        ("f.yaml:2:9", "a"),
        ("f.yaml:2:9", "b"),
        ("f.yaml:2:10", "d"),
        ("f.yaml:10:1", "c"),
    ]


def test_no_more_faults_are_shown_than_help():
    faults = RuleFaults()
    for line in range(MOST_RULE_FAULTS + 10):
        faults.add(Position("f", line, 1), "x")
    error = raised(faults)
    assert len(error.details) == MOST_RULE_FAULTS
    assert f"{MOST_RULE_FAULTS + 10} faults" in error.message


def test_one_fault_is_one_fault():
    faults = RuleFaults()
    faults.add(Position("f", 1, 1), "x")
    assert "1 fault;" in raised(faults).message


@table(
    ("word", "hint"),
    [
        ("creat", "did you mean 'create'?"),
        ("READ", "did you mean 'read'?"),
        ("zzz", "known here: create, read."),
    ],
)
def test_a_misspelt_word_gets_the_nearest_or_all_known_ones(word, hint):
    assert did_you_mean(word, ["create", "read"]) == hint


def test_where_nothing_is_known_nothing_may_stand():
    assert did_you_mean("a", []) == "nothing may stand here."
