"""The guide for operators says what the program does: its tables are those of the code; and what
pages name and link is there.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from proxy.audit.events import MEMBERS
from proxy.cli import COMMANDS, commands
from proxy.cli.command import Command
from proxy.config.document import variable
from proxy.config.schema import SETTINGS
from proxy.telemetry.metrics import METRICS
from tests.support.table import table
from tests.support.tree import ROOT, python_files

GUIDE = (ROOT / "docs/operations.md").read_text("utf-8")
PAGES = [
    "README.md",
    "CHANGELOG.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]
ROWS = [line for line in GUIDE.splitlines() if line.startswith("| `")]


def test_every_setting_and_every_metric_has_its_row():
    settings = [
        f"| `{name}` | `{variable(name)}` | `{setting.default}` | {setting.meaning} |"
        for name, setting in SETTINGS.items()
    ]
    metrics = [
        f"| `{name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.help} |"
        for name, metric in METRICS.items()
    ]
    assert [row for row in settings + metrics if row not in ROWS] == []


def test_no_row_describes_what_is_not_there():
    names = {row.split("`")[1] for row in ROWS}
    described = {name for name in names if name.startswith("domicile_")}
    assert described == set(METRICS)
    variables = {
        row.split("`")[3]
        for row in ROWS
        if row.count("`") >= 4 and row.split("`")[3].startswith("DOMICILE")
    }
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


@table("name", PAGES)
def test_every_file_and_test_that_a_page_names_is_there(name):
    page = (ROOT / name).read_text("utf-8")
    files = set(re.findall(r"`((?:bench|docs|k8s|proxy|rules|tests)/[\w./-]*)`", page))
    assert [file for file in files if not (ROOT / file).exists()] == []
    code = "".join(path.read_text("utf-8") for path in python_files("tests"))
    tests = set(re.findall(r"`(test_\w+)`", page))
    assert [test for test in tests if f"def {test}(" not in code] == []


def test_what_the_map_says_to_look_for_is_there():
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    rows = re.findall(r"`(proxy/[\w/]+\.py)`: `([\w.]+)`", page)
    assert len(rows) >= 10
    missing = [
        f"{file}: {name}"
        for file, name in rows
        if not defines(ast.parse((ROOT / file).read_text("utf-8")), name)
    ]
    assert missing == []


def defines(node: ast.AST, name: str) -> bool:
    """Whether ``name``, such as ``Class.method``, is defined directly in a module or class."""
    first, _, rest = name.partition(".")
    kinds = ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    found = (
        one for one in ast.iter_child_nodes(node) if isinstance(one, kinds) and one.name == first
    )
    return any(not rest or defines(one, rest) for one in found)


def prose(name: str) -> list[str]:
    """The lines of a page without its examples."""
    return re.sub(
        r"^ *```.*?^ *```$", "", (ROOT / name).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    ).splitlines()


def anchors(path: Path) -> set[str]:
    """What headings of a page can be linked by."""
    headings = [
        line.lstrip("# ") for line in path.read_text("utf-8").splitlines() if line.startswith("#")
    ]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@table("name", PAGES)
def test_every_link_of_a_page_leads_somewhere(name):
    links = re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", "\n".join(prose(name)))
    for target, anchor in links:
        path = ((ROOT / name).parent / target).resolve() if target else ROOT / name
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), anchor


@table("name", PAGES)
def test_every_table_of_a_page_is_whole(name):
    """Rows that no head leads to, or that have another number of cells, are shown as a heap of
    strokes.
    """
    tables = [
        list(lines)
        for inside, lines in groupby(prose(name), lambda line: line.startswith("|"))
        if inside
    ]
    heads = [table[0] for table in tables if not re.fullmatch(r"[|: -]+", [*table, ""][1])]
    assert heads == []
    assert [
        table[0]
        for table in tables
        if len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) > 1
    ] == []


def test_every_page_is_linked_from_the_first_one():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [page for page in PAGES if f"]({page})" not in readme] == ["README.md"]


def named(commands: Mapping[str, Command], *path: str) -> Iterator[str]:
    for name, command in commands.items():
        yield " ".join((*path, name))
        yield from named(command.children, *path, name)


@table("name", PAGES)
def test_every_command_that_a_page_names_is_there(name):
    there = set(named(commands()))
    groups = {words.split()[0] for words in there if " " in words}
    page = re.sub(r"[|]", " ", (ROOT / name).read_text("utf-8"))
    for first, second in re.findall(
        r"(?:^|`|bin/|run )domicile ([a-z]+) ?([a-z-]*)", page, re.MULTILINE
    ):
        assert first in there
        assert first not in groups or not second or f"{first} {second}" in there


def test_every_line_of_the_threat_model_names_the_test_that_shows_it():
    page = (ROOT / "docs/threat-model.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "Shown by" not in line]
    assert len(rows) >= 30
    assert [row for row in rows if "`test" not in row.rpartition(" | ")[2]] == []
    attackers = [part for part in page.split("\n## ")[1:] if "| Protection |" in part]
    assert len(attackers) >= 6
    assert [part.splitlines()[0] for part in attackers if "**Not protected.**" not in part] == []


def test_the_members_of_an_audit_line_are_those_of_the_table():
    page = (ROOT / "docs/audit.md").read_text("utf-8")
    rows = [f"| `{name}` | {meaning} |" for name, meaning in MEMBERS.items()]
    assert [row for row in rows if row not in page] == []
    told = page.partition("| Member |")[2].partition("\n\n")[0]
    assert len([line for line in told.splitlines() if line.startswith("| `")]) == len(rows)


def test_the_map_has_a_line_for_every_room():
    text = (ROOT / "proxy/__init__.py").read_text("utf-8")
    lines = [line.split() for line in text.splitlines() if line.startswith("    ")]
    named = [name for words in lines for name in (words[:2] if words[0] == "clock" else words[:1])]
    rooms = {
        path.stem
        for path in (ROOT / "proxy").iterdir()
        if not path.stem.startswith("__") and (path.suffix == ".py" or path.is_dir())
    }
    assert sorted(named) == sorted(rooms)
