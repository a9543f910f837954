"""Every mistake in a rule file is named with file, line and column, says what to write instead, and
nothing else is named.
"""

import pytest

from proxy.errors import VaultError
from proxy.redactor.load import load_text
from tests.support.broken_rules import CASES
from tests.support.rules import faults_of, marked
from tests.support.table import table


def test_the_table_is_long_enough_and_names_each_case_once():
    names = [name for name, _, _ in CASES]
    assert len(names) >= 80
    assert len(set(names)) == len(names)


@table("name, text, words", CASES)
def test_a_broken_file_is_refused_at_the_place_of_its_fault(name, text, words):
    text, places = marked(text)
    details = faults_of(text, "folder/broken.yaml")
    assert [detail.source for detail in details] == [
        f"folder/broken.yaml:{place}" for place in places
    ]
    for detail, word in zip(details, words, strict=True):
        assert word in detail.text


def test_all_faults_of_a_file_are_named_at_once_in_the_order_of_the_file():
    broken = (
        'version: 1\nendpoint: {name: CRM, upstream: "ftp://a"}\nentities: {p: {fields: {a: '
        "{kind: x}, b: {kind: text, c: 1}}}}\n"
        "operations:\n  - {match: GET a, read: p}\n  - {match: POST /a, create: q}\n"
    )
    lines = [detail.source for detail in faults_of(broken, "f")]
    assert lines == ["f:2:18", "f:2:33", "f:3:35", "f:3:55", "f:5:13", "f:6:30"]


@table("secret", ["hunter2-secret", "http://user:hunter2-secret@crm", "ftp://hunter2-secret"])
def test_no_fault_shows_what_a_reference_resolves_to(secret):
    text = (
        'version: 1\nendpoint: {name: crm, upstream: "${env:ADDRESS}", host: "${env:ADDRESS}", '
        'prefix: "${env:ADDRESS}"}\n'
    )
    with pytest.raises(VaultError) as caught:
        load_text(text, environ={"ADDRESS": secret})
    assert len(caught.value.details) >= 2
    assert "hunter2" not in f"{caught.value} {caught.value.details}"


def test_an_alias_bomb_is_refused_quickly():
    levels = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    levels += [
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    assert "aliases" in faults_of("\n".join(levels))[0].text
