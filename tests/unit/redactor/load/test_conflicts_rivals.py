import sys
from types import FrameType

import pytest

from proxy.redactor.load import load_text
from tests.support.rules import faults_of, rules_of, with_operations


def read(path: str) -> str:
    return f'{{match: "GET {path}", read: note}}'


@pytest.mark.parametrize(
    "paths",
    [
        ("/a/{x}", "/a/b"),
        ("/a/{x}", "/a/{x}.json", "/a/b.json"),
        ("/{r*}", "/a/{x}", "/a/b/{r*}"),
        ("/a/{x}", "/{y}/b", "/a/b"),
        ("/{x}/b/{z}", "/a/{y}/{z}", "/a/b/{q}"),
        ("/a/{x}/{r*}", "/{y}/b/{r*}", "/a/b/{r*}"),
        ("/a", "/a/b", "/b"),
    ],
)
def test_rules_of_which_one_is_more_specific_live_together_in_any_order(paths):
    for order in (paths, paths[::-1]):
        assert len(rules_of(*map(read, order)).operations) == len(paths)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("/a/{x}", "/a/{y}", "keep one of the two"),
        ("/a", "/a/", "keep one of the two"),
        ("/a/{x}", "/{y}/b", "add a rule for GET /a/b"),
        ("/a/{x}/{z}", "/{y}/b/{r*}", "add a rule for GET /a/b/{p3}"),
        ("/a{x}", "/{y}b", "longer"),
    ],
)
def test_a_tie_is_named_at_the_later_rule(first, second, words):
    for one, other in ((first, second), (second, first)):
        details = faults_of(with_operations(read(one), read(other)))
        assert [detail.source for detail in details] == ["rules.yaml:14:13"]
        assert words in details[0].text
        assert "line 13" in details[0].text


def test_rules_of_different_methods_are_no_rivals():
    assert (
        len(
            rules_of(
                '{match: "GET /a/{x}", read: note}',
                '{match: "PUT /{y}/b", update: note, id: path y}',
            ).operations
        )
        == 2
    )


def calls_for(count: int) -> int:
    """Calls of functions to load so many rules."""
    lines = "".join(
        f'  - {{match: "PUT /api/v{n % 10}/r{n}/{{id}}", update: note}}\n' for n in range(count)
    )
    text = with_operations('{match: "PUT /api/{v}/r0/old/{id}", update: note}') + lines
    calls = 0

    def called(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        assert len(load_text(text).operations) == count + 1
    finally:
        sys.setprofile(None)
    return calls


def test_ten_times_as_many_rules_are_compared_in_about_ten_times_the_work():
    few, many = calls_for(100), calls_for(1_000)
    assert many < 15 * few, f"{few} and {many} calls: each rule is compared with each other one"
