import time

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


def seconds_for(count: int) -> float:
    """Processor time to load so many rules."""
    lines = "".join(
        f'  - {{match: "PUT /api/v{n % 10}/r{n}/{{id}}", update: note}}\n' for n in range(count)
    )
    text = with_operations('{match: "PUT /api/{v}/r0/old/{id}", update: note}') + lines
    start = time.process_time()
    assert len(load_text(text).operations) == count + 1
    return time.process_time() - start


def test_ten_times_as_many_rules_are_compared_in_about_ten_times_the_time():
    few, many = seconds_for(1_000), seconds_for(10_000)
    assert many < 40 * few, f"{few} s and {many} s: each rule is compared with each other one"
