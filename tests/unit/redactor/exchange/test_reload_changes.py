import json
from typing import Any, cast

import pytest

from proxy.errors import VaultError
from proxy.redactor.exchange.reload import RuleChanges
from proxy.redactor.exchange.runtime import Runtime, VaultRules, bind_rules
from proxy.redactor.load import load_text
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from tests.support.audit import audit_services
from tests.support.exchanges import USUAL, desk, rule_text
from tests.support.stores import vault_down


class Told:
    """What is written into the audit log."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def put_quietly(self, line: bytes) -> None:
        self.lines.append(json.loads(b"{" + line + b"}"))


@pytest.fixture
def log(capsys):
    logs.configure(logs.Style("info", "json"))
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    logs.configure(logs.Style())


async def test_what_new_rules_lose_is_told_in_the_log_a_metric_and_the_audit_log(log):
    one, told, seen = await desk(), Told(), list[str]()
    whole = load_text(rule_text(*USUAL))

    async def bind(rules: RuleSet) -> Runtime:
        if not rules.operations:
            raise vault_down()
        return await bind_rules(rules, one.vault, one.metrics, audit_services())

    in_force = VaultRules(await bind(whole))
    audit = cast("Any", told)
    notes = (lambda rules: seen.append(rules.version),)
    changes = RuleChanges(bind, notes, in_force, audit, one.metrics)
    lost = one.metrics.cell("domicile_rules_lost_protection")
    log()
    for operations, count in ((USUAL[:2], 3), (USUAL[:2], None), (USUAL, 0)):
        fresh = load_text(rule_text(*operations))
        in_force.runtime = await changes.adopt(fresh)
        assert seen.pop() == fresh.version
        if count is None:  # the same once more
            assert (told.lines, log(), lost.value) == ([], [], 3)
            continue
        assert lost.value == count
        (line,) = told.lines
        told.lines.clear()
        assert line["subject"] == fresh.version
        assert line["reason"].endswith(": 3") is bool(count)
        first, *rest = [line for line in log() if line["level"] == "warning"] or [{}]
        assert first.get("count", 0) == len(rest) == count
        if count:
            assert {line["source"] for line in rest} == {
                f"app: {what} /p/{{id}}" for what in ("GET", "PATCH", "DELETE")
            }
    with pytest.raises(VaultError):
        await changes.adopt(load_text("version: 1\nendpoint: {name: a, upstream: 'http://a:1'}\n"))
    assert (told.lines, lost.value) == ([], 0)
