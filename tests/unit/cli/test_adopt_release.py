from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.adopted import Adopted, adopted

SURE = "on_error: {vault_down: {read: 503}}\n"
VIEWS = SURE + "views:\n  - {who: [dpo], contact: clear}\n  - {who: [sales], contact: mask}\n"


@pytest.fixture
def office(hurried: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adopted]:
    monkeypatch.chdir(tmp_path)
    with adopted(3) as office:
        office.rules(tmp_path, SURE)
        for n in range(3):
            office.change(f"p{n}", name=f"t-Ann {n}", email=f"t-a{n}@b.example")
        yield office


def test_values_are_written_back_past_the_proxy(office, told):
    report = told("release", "--proxy", office.proxy)
    assert (report["complete"], report["converted"], report["clear"]) == (True, 3, 3)
    assert office.records["p1"] == {"id": "p1", "name": "Ann 1", "email": "a1@b.example", "n": 1}
    # one of the four asks whether the application heeds conditions, with nothing in it
    assert (office.writes("proxy"), office.writes("application")) == (0, 4)


def test_what_somebody_changes_in_between_is_not_overwritten(office, told):
    meanwhile = {"p1": 2}

    def edit(ident: str) -> None:
        if meanwhile.get(ident):
            meanwhile[ident] -= 1
            office.change(ident, name=f"t-Bo {meanwhile[ident]}")

    office.before = edit
    assert told("release", "--proxy", office.proxy)["complete"]
    assert office.records["p1"]["name"] == "Bo 0"


def test_a_value_that_the_application_makes_something_else_of_is_listed(office, told):
    office.narrow = 5
    report = told("release", "--proxy", office.proxy, status=1)
    assert report["refused"] == 3
    assert report["refusals"][0]["text"] == "the application made something else of email"


def test_rules_that_may_show_tokens_for_values_are_refused(office, told, tmp_path):
    office.rules(tmp_path)
    refusal = told("release", "--proxy", office.proxy, status=1)
    assert "vault_down: {read: 503}" in refusal["message"]
    assert office.requests == []


def test_a_role_that_does_not_see_everything_is_refused(office, told, tmp_path):
    office.rules(tmp_path, VIEWS)
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        rules.read_text().replace(
            "upstream:", 'caller: {from: jwt, jwks: "https://id.example/keys"}, upstream:'
        )
    )
    for role in ((), ("--role", "sales")):
        refusal = told("release", "--proxy", office.proxy, *role, status=1)
        assert "--role" in refusal["message"]
    office.change("p1", name="t-A** *")  # as a caller sees it who is of another role than said
    report = told("release", "--proxy", office.proxy, "--role", "dpo", status=1)
    assert (report["converted"], report["refused"]) == (2, 1)
    assert "looks like a mask" in report["refusals"][0]["text"]
    assert office.records["p1"]["name"] == "t-A** *"
