from dataclasses import replace
from pathlib import Path

import pytest

from proxy.bootstrap.rules import TRIALS, Overrides, RuleHistory, load_rules, try_rules
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from proxy.redactor.exchange.runtime import Runtime
from proxy.redactor.load import load_files, load_text
from proxy.redactor.load.rule_tests import Case
from proxy.redactor.rules import RuleSet, Unmatched
from tests.support.exchanges import USUAL, desk, rule_text
from tests.support.people import rules
from tests.support.tree import ROOT


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    given = {"COUNTRY": "se", "DATA": str(tmp_path / "data"), "RULES": str(tmp_path / "rules.yaml")}
    return load_settings(None, {f"DOMICILE__{name}": text for name, text in given.items()})


def test_applications_are_redirected_by_the_name_of_their_endpoint(settings):
    plain = load_rules(settings)
    moved = load_rules(
        settings, Overrides({"people": "http://127.0.0.1:4000", "others": "http://127.0.0.1:1"})
    )
    assert [endpoint.upstream for endpoint in plain.endpoints] == ["http://127.0.0.1:9"]
    assert [endpoint.upstream for endpoint in moved.endpoints] == ["http://127.0.0.1:4000"]
    assert {id(operation.endpoint) for operation in moved.operations} == {id(moved.endpoints[0])}
    assert moved.version == plain.version
    assert (
        load_rules(settings, Overrides({"others": "http://127.0.0.1:1"})).endpoints
        == plain.endpoints
    )


def test_one_address_stands_for_the_only_application(settings, tmp_path):
    only = Overrides({}, "http://127.0.0.1:4000")
    moved = load_rules(settings, only)
    assert [endpoint.upstream for endpoint in moved.endpoints] == ["http://127.0.0.1:4000"]
    assert moved.operations == tuple(
        replace(one, endpoint=moved.endpoints[0]) for one in load_rules(settings).operations
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    (passing,) = load_rules(replace(settings, rules=folder), only).endpoints
    assert (passing.upstream, passing.unmatched) == ("http://127.0.0.1:4000", Unmatched.REPORT)
    for name in ("people", "others"):
        text = rules("http://127.0.0.1:9").replace("people,", f"{name}, host: {name}.example,", 1)
        (folder / f"{name}.yaml").write_text(text.replace("person", f"person_{name}"))
    with pytest.raises(VaultError, match="the rules name several"):
        load_rules(replace(settings, rules=folder), only)


def test_faulty_rules_are_told_with_their_places(settings):
    settings.rules.write_text(
        settings.rules.read_text().replace("create: person", "creates: person", 1)
    )
    with pytest.raises(VaultError) as fault:
        load_rules(settings)
    assert fault.value.code is Code.BAD_RULES
    assert [detail.source.rpartition("/")[2] for detail in fault.value.details] == [
        "rules.yaml:17:5"
    ]


async def test_the_tests_of_the_sample_rules_hold_and_leave_nothing(
    settings, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "trials"))
    (tmp_path / "trials").mkdir()
    sample = replace(settings, rules=ROOT / "rules" / "contacts.yaml")
    results = await try_rules(load_rules(sample))
    assert list((tmp_path / "trials").iterdir()) == []
    assert len(results) >= 4
    assert set(map(tuple, results.values())) == {()}


async def test_a_test_that_does_not_hold_says_what_is_wrong(settings):
    text = (ROOT / "rules" / "contacts.yaml").read_text()
    settings.rules.write_text(text.replace("[Ann, L", "[Stockholm, L"))
    results = await try_rules(load_rules(settings))
    assert all(name.startswith("contacts: ") for name in results)
    told = [problem for problems in results.values() for problem in problems]
    assert told == ["the application sees 'Stockholm', which app_sees.without forbids"] * 2


async def test_a_text_that_stands_in_a_token_by_chance_is_no_fault(settings):
    tries: list[str] = []

    async def run_case(_runtime: object, case: Case) -> list[str]:
        tries.append(case.call.target)
        return ["never holds", f"chance {len(tries)}"]

    text = (ROOT / "rules" / "contacts.yaml").read_text()
    settings.rules.write_text(text)
    results = await try_rules(load_rules(settings), run_case)
    assert set(map(tuple, results.values())) == {("never holds",)}
    assert len(tries) == TRIALS * len(results)


HOUR = 3_600_000


def numbered(number: int) -> RuleSet:
    return load_text(rule_text(*USUAL) + f"# {number}\n")


async def test_the_last_rules_that_fronts_used_are_there_for_the_next_owner():
    one = await desk()
    clock = one.clock
    bound: list[str] = []

    async def bind(rules: RuleSet) -> Runtime:
        bound.append(rules.version)
        return one.runtime

    def history() -> RuleHistory:
        return RuleHistory(one.vault.store, clock, load_files, bind)

    first, second = numbered(1), numbered(2)
    assert await history().recall(first.version) is None
    for used in (first, second, first):  # went back
        await history().remember(used)
        clock.advance(HOUR)
    for used in (first, second):
        assert await history().recall(used.version) is one.runtime
    assert bound == [first.version, second.version]
    clock.advance(24 * HOUR)
    assert await history().recall(second.version) is None, "replaced a day ago"
    assert await history().recall(first.version) is not None
    for number in range(3, 8):
        await history().remember(numbered(number))
    assert await history().recall(first.version) is None, "five are remembered"
    assert await history().recall(numbered(3).version) is not None


async def test_what_was_read_from_no_file_is_not_remembered():
    one = await desk()

    async def bind(_: RuleSet) -> Runtime:
        raise AssertionError

    history = RuleHistory(one.vault.store, one.clock, load_files, bind)
    await history.remember(RuleSet("none", (), (), ()))
    assert await history.recall("none") is None
