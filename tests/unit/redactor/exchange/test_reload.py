import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.errors import VaultError
from proxy.redactor.exchange import reload as module
from proxy.redactor.exchange.reload import Reloader, RuleChanges, RuleFiles
from proxy.redactor.exchange.runtime import Runtime, VaultRules, bind_rules
from proxy.redactor.load import fingerprint as digest
from proxy.redactor.load import load_rule_set, load_text
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from tests.support.audit import audit_services
from tests.support.exchanges import USUAL, desk, rule_text
from tests.support.files import rewrite
from tests.support.patience import PATIENCE
from tests.support.stores import vault_down

GOOD = rule_text("{match: POST /p, create: p}")
OTHER = rule_text("{match: POST /q, create: p}")
BROKEN = GOOD.replace("create:", "creates:")


@dataclass
class Watched:
    """A rule file, what is in force, and what looks after it."""

    path: Path
    in_force: VaultRules
    metrics: Metrics
    reloader: Reloader
    faults: list[VaultError] = field(default_factory=list)

    def matched(self) -> str:
        return self.in_force.runtime.rules.operations[0].label

    def value(self, name: str) -> float:
        return self.metrics.cell(name).value

    async def until(self, label: str) -> None:
        await eventually(lambda: self.matched() == label)


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  # the file is looked at in a thread
            await asyncio.sleep(0.005)


async def watched(folder: Path, text: str = GOOD) -> Watched:
    path = folder / "rules.yaml"
    path.write_text(text)
    one = await desk()
    faults: list[VaultError] = []

    async def adopt(rules: RuleSet) -> Runtime:
        if faults:
            raise faults.pop()
        return await bind_rules(rules, one.vault, one.metrics, audit_services())

    in_force = VaultRules(await adopt(load_rule_set(path)))
    reloader = Reloader(RuleFiles(path), lambda: load_rule_set(path), adopt, in_force, one.metrics)
    return Watched(path, in_force, one.metrics, reloader, faults)


@asynccontextmanager
async def watching(folder: Path, *again: float) -> AsyncIterator[Watched]:
    one = await watched(folder)
    task = asyncio.create_task(one.reloader.watch(0.005, *again))
    try:
        yield one
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_new_rules_take_effect_as_a_whole(tmp_path):
    one = await watched(tmp_path)
    before = one.in_force.runtime
    one.path.write_text(OTHER)
    assert await one.reloader.reload() is True
    assert one.matched() == "POST /q"
    assert one.in_force.runtime is not before
    assert one.in_force.edition is not before
    assert await one.reloader.state.check() is None
    assert one.value("domicile_rules_reload_failures_total") == 0
    assert one.value("domicile_rules_reload_success_timestamp_seconds") > 0
    text = one.metrics.render().decode()
    assert f'domicile_rules_info{{version="{one.in_force.runtime.rules.version}"}} 1.0' in text
    assert before.rules.version not in text


async def test_a_broken_file_changes_nothing_but_what_is_told(tmp_path):
    one = await watched(tmp_path)
    before = one.in_force.runtime
    one.path.write_text(BROKEN)
    assert await one.reloader.reload() is False
    assert one.in_force.runtime is before
    assert one.value("domicile_rules_reload_failures_total") == 1
    fault = await one.reloader.state.check()
    assert fault is not None
    assert "creates" in fault
    assert "rules.yaml" in fault
    one.path.write_text(GOOD)
    assert await one.reloader.reload() is True
    assert await one.reloader.state.check() is None


async def test_rules_that_the_vault_refuses_change_nothing(tmp_path):
    one = await watched(tmp_path)
    before = one.in_force.runtime
    one.path.write_text(OTHER)
    one.faults.append(vault_down())
    assert await one.reloader.reload() is False
    assert one.in_force.runtime is before
    assert await one.reloader.state.check() == vault_down().message
    assert await one.reloader.reload() is True


async def test_a_changed_file_is_seen(tmp_path, monkeypatch):
    looks: list[str] = []

    def look(path: Path) -> str:
        looks.append(digest(path))
        return looks[-1]

    monkeypatch.setattr(module, "fingerprint", look)
    async with watching(tmp_path) as one:
        rewrite(one.path, OTHER)
        await one.until("POST /q")
        rewrite(one.path, BROKEN)
        await eventually(lambda: one.value("domicile_rules_reload_failures_total") == 1)
        assert await one.reloader.state.check() is not None
        seen = len(looks)
        await eventually(lambda: len(looks) > seen + 3)
        assert one.value("domicile_rules_reload_failures_total") == 1, "one fault is told once"
        rewrite(one.path, GOOD)
        await one.until("POST /p")
        assert await one.reloader.state.check() is None


async def test_files_in_order_are_tried_again_when_the_vault_could_not_take_them(tmp_path):
    async with watching(tmp_path, 0.0) as one:
        one.faults.extend([vault_down(), vault_down()])
        one.path.write_text(OTHER)
        await one.until("POST /q")
        assert one.value("domicile_rules_reload_failures_total") == 2
        assert await one.reloader.state.check() is None


async def test_two_loads_at_once_end_in_the_files_as_they_are(tmp_path):
    one = await watched(tmp_path)
    one.path.write_text(OTHER)
    first = asyncio.create_task(one.reloader.reload())
    await asyncio.sleep(0)
    one.path.write_text(GOOD)
    await asyncio.gather(first, one.reloader.reload())
    assert one.matched() == "POST /p"


async def test_a_load_that_changes_nothing_is_told(tmp_path):
    stream = io.StringIO()
    logs.configure(logs.Style("info", "json"), stream)
    try:
        one = await watched(tmp_path)
        assert await one.reloader.reload() is True
        one.path.write_text(OTHER)
        assert await one.reloader.reload() is True
    finally:
        logs.configure(logs.Style())
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == [
        "rules reloaded without changes",
        "rules are active",
    ]


async def test_native_code_that_cannot_be_used_is_told(tmp_path, monkeypatch):
    stream = io.StringIO()
    logs.configure(logs.Style("info", "json"), stream)
    monkeypatch.setattr(module, "unusable", "invalid ELF header")
    try:
        await watched(tmp_path)
    finally:
        logs.configure(logs.Style())
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["level"], line["reason"]) == ("warning", "invalid ELF header")
    assert "make native" in line["event"]


async def test_a_folder_that_is_swapped_by_its_link_is_seen(tmp_path):
    """How Kubernetes replaces the files of a config map."""
    for name, text in (("a", GOOD), ("b", OTHER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rules.yaml").write_text(text)
    (tmp_path / "data").symlink_to("a")
    one = await desk()
    path = tmp_path / "data"
    in_force = VaultRules(
        await bind_rules(load_rule_set(path), one.vault, one.metrics, audit_services())
    )
    reloader = Reloader(
        RuleFiles(path),
        lambda: load_rule_set(path),
        lambda rules: bind_rules(rules, one.vault, one.metrics, audit_services()),
        in_force,
        one.metrics,
    )
    task = asyncio.create_task(reloader.watch(0.005))
    (tmp_path / "new").symlink_to("b")
    (tmp_path / "new").replace(path)
    await eventually(lambda: in_force.runtime.rules.operations[0].label == "POST /q")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_what_changes_while_an_instance_starts_is_read_again(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    files, one = RuleFiles(path), await desk()

    async def adopt(rules: RuleSet) -> Runtime:
        return await bind_rules(rules, one.vault, one.metrics, audit_services())

    def read() -> RuleSet:
        return load_rule_set(path)

    first = read()
    path.write_text(OTHER)  # the store lets the start wait
    in_force = VaultRules(await adopt(first))
    task = asyncio.create_task(Reloader(files, read, adopt, in_force, one.metrics).watch(0.005))
    await eventually(lambda: in_force.runtime.rules.operations[0].label == "POST /q")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_look_comes_soon_enough_for_the_promise():
    assert module._LOOK <= 0.5


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
