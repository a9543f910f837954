import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.load.yaml_tree import (
    DEEPEST,
    MOST_RULE_FAULTS,
    Items,
    Members,
    RuleFaults,
    Scalar,
    did_you_mean,
    plain_values,
    read_tree,
)
from proxy.redactor.rules import Position
from tests.support.rules import messages
from tests.support.table import table


def values(text: str) -> object:
    faults = RuleFaults()
    tree = read_tree(text, "f", faults)
    assert messages(faults) == []
    assert tree is not None
    return plain_values(tree)


def refused(text: str) -> str:
    faults = RuleFaults()
    read_tree(text, "f", faults)
    found = messages(faults)
    assert len(found) == 1
    return found[0]


@table(
    "written, read",
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("17", 17),
        ("-0", 0),
        ("010", 10),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ("0x1f", "0x1f"),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("1e5x", "1e5x"),
        (".inf", ".inf"),
        ("'17'", "17"),
        ('"true"', "true"),
        ("=", "="),
    ],
)
def test_scalars_follow_the_core_schema(written, read):
    assert values(f"a: {written}\n") == {"a": read}


def test_a_number_of_thousands_of_digits_stays_text():
    assert values("a: " + "9" * 5000) == {"a": "9" * 5000}


def test_keys_are_texts_however_they_look():
    assert values("1: a\ntrue: b\nnull: c\n") == {"1": "a", "true": "b", "null": "c"}


def test_every_node_and_every_key_knows_its_place():
    tree = read_tree("a:\n  - b: {c: d}\n", "f", RuleFaults())
    assert isinstance(tree, Members)
    assert tree.position("a") == Position("f", 1, 1)
    assert tree.position("missing") == tree.at
    items = tree.entries["a"]
    assert isinstance(items, Items)
    inner = items.nodes[0]
    assert isinstance(inner, Members)
    flow = inner.entries["b"]
    assert isinstance(flow, Members)
    assert str(flow.at) == "f:2:8"
    value = flow.entries["c"]
    assert isinstance(value, Scalar)
    assert str(value.at) == "f:2:12"


def test_aliases_repeat_what_they_name():
    assert values("a: &x {b: [1]}\nc: *x\nd: [*x, *x]\n") == {
        "a": {"b": [1]},
        "c": {"b": [1]},
        "d": [{"b": [1]}, {"b": [1]}],
    }


def test_depth_is_bounded_through_aliases_too():
    deep = "[" * (DEEPEST - 2) + "]" * (DEEPEST - 2)
    assert values(f"a: {deep}\n")
    assert "levels deep" in refused(f"a: &x {deep}\nb: [[*x]]\n")


def test_the_number_of_values_is_bounded(monkeypatch):
    monkeypatch.setattr("proxy.redactor.load.yaml_tree.MOST_NODES", 12)
    assert values("a: &x [1, 2]\nb: *x\n")
    assert "aliases counted" in refused("a: &x [1, 2, 3]\nb: [*x, *x]\n")


@table(
    ("text", "place"),
    [
        ("a: 1\nb: \x00\n", "f:2:4"),
        ("a: \ud800\n", "f:1:4"),
        ("a: [\n", "f:2:1"),
        ("a: 'x\n", "f:2:1"),
        ("a: @b\n", "f:1:4"),
    ],
)
def test_what_is_no_yaml_is_refused_at_its_place(text, place):
    assert refused(text).startswith(f"{place}: ")


def test_a_duplicate_key_is_a_fault_and_the_rest_is_still_read():
    faults = RuleFaults()
    tree = read_tree("a: 1\na: 2\nb: 3\n", "f", faults)
    assert tree is not None
    assert plain_values(tree) == {"a": 1, "b": 3}
    assert messages(faults) == ["f:2:1: the key 'a' stands twice (first in line 1); keep one"]


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
