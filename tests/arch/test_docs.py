"""The guide for operators says what the program does: its tables are those of the code."""

import re

import pytest

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
        "docs/interface.md",
        "docs/operations.md",
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
