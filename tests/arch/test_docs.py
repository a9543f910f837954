"""The guide for operators says what the program does: its tables are those of the code."""

import re

import pytest

from proxy.audit.members import MEMBERS
from proxy.cli import COMMANDS
from proxy.config.environment import variable
from proxy.config.table import SETTINGS
from proxy.telemetry.metrics import METRICS
from tests.support.tree import ROOT, python_files

GUIDE = (ROOT / "docs/operations.md").read_text("utf-8")
ROWS = [line for line in GUIDE.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize(("name", "setting"), SETTINGS.items())
def test_every_setting_has_its_row(name, setting):
    assert f"| `{name}` | `{variable(name)}` | `{setting.default}` | {setting.meaning} |" in ROWS


@pytest.mark.parametrize(("name", "metric"), METRICS.items())
def test_every_metric_has_its_row(name, metric):
    assert f"| `{name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.help} |" in ROWS


def test_no_row_describes_what_is_not_there():
    names = {row.split("`")[1] for row in ROWS}
    described = {name for name in names if name.startswith("domicile_")}
    assert described == set(METRICS)
    variables = {row.split("`")[3] for row in ROWS if row.count("`") >= 4 and row.split("`")[3].startswith("DOMICILE")}
    assert variables == {variable(name) for name in SETTINGS}


def test_every_metric_that_the_guide_speaks_of_is_there():
    spoken = set(re.findall(r"`(domicile_[a-z_]+)", GUIDE))
    assert len(spoken) >= len(METRICS)
    assert spoken <= set(METRICS)


def test_every_log_line_that_the_guide_quotes_is_there():
    quoted = re.findall(r"(?:log|log line|or) `([a-z ,.]{20,})`", GUIDE)
    code = "".join(path.read_text("utf-8") for path in python_files("proxy"))
    assert len(quoted) >= 3
    assert [text for text in quoted if f'"{text}"' not in code] == []


def test_the_health_command_of_the_guide_is_there():
    assert "`domicile health --ready`" in GUIDE
    assert "health" in COMMANDS


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CHANGELOG.md",
        "docs/access.md",
        "docs/audit.md",
        "docs/threat-model.md",
        "docs/interface.md",
        "docs/operations.md",
        "docs/policies.md",
        "docs/promises.md",
        "docs/rules.md",
    ],
)
def test_every_file_and_test_that_a_page_names_is_there(name):
    page = (ROOT / name).read_text("utf-8")
    files = set(re.findall(r"`((?:bench|docs|k8s|proxy|rules|tests)/[\w./-]*)`", page))
    assert [file for file in files if not (ROOT / file).exists()] == []
    code = "".join(path.read_text("utf-8") for path in python_files("tests"))
    tests = set(re.findall(r"`(test_\w+)`", page))
    assert [test for test in tests if f"def {test}(" not in code] == []


def test_every_line_of_the_threat_model_names_the_test_that_shows_it():
    page = (ROOT / "docs/threat-model.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "Shown by" not in line]
    assert len(rows) >= 30
    assert [row for row in rows if "`test" not in row.rpartition(" | ")[2]] == []
    attackers = [part for part in page.split("\n## ")[1:] if "| What holds |" in part]
    assert len(attackers) >= 6
    assert [part.splitlines()[0] for part in attackers if "**What does not hold.**" not in part] == []


def test_the_members_of_an_audit_line_are_those_of_the_table():
    page = (ROOT / "docs/audit.md").read_text("utf-8")
    rows = [f"| `{name}` | {meaning} |" for name, meaning in MEMBERS.items()]
    assert [row for row in rows if row not in page] == []
    told = page.partition("| Member |")[2].partition("\n\n")[0]
    assert len([line for line in told.splitlines() if line.startswith("| `")]) == len(rows)
