"""Log lines cannot carry content: their event is a constant text and their fields stand in the
table.
"""

import ast
from collections.abc import Iterator

from proxy.telemetry.logs import FIELDS
from proxy.telemetry.metrics import METRICS
from tests.support.tree import parsed, python_files, relative

_SPEAKS = {"debug", "info", "warning", "error", "exception", "critical"}
_LOGGERS = {"log", "_log", "logger", "_logger"}
_ALLOWED = {"exc_info", "fault"}


def spoken(tree: ast.Module) -> Iterator[ast.Call]:
    """Every call of a level on something that is named like a logger (``log.info(…)``,
    ``self._log.info(…)``).
    """
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _SPEAKS
        ):
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if name in _LOGGERS:
                yield node


def constant(event: ast.expr) -> bool:
    """A text in the code, or one taken from a table of texts, named in capitals (``_TOLD[event]``)."""
    if isinstance(event, ast.Subscript):
        return isinstance(event.value, ast.Name) and event.value.id.isupper()
    return isinstance(event, ast.Constant) and isinstance(event.value, str)


def faults(tree: ast.Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):  # which logs what it is given
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("state.rejected"):
            continue
        if not all(map(constant, node.args[2:])):
            found.append(f"line {node.lineno}: the events must be constant texts")
    for call in spoken(tree):
        if len(call.args) != 1 or not constant(call.args[0]):
            found.append(
                f"line {call.lineno}: the event must be one constant text, everything else a field"
            )
        for keyword in call.keywords:
            if keyword.arg is None:
                found.append(f"line {call.lineno}: name each field, no **fields")
            elif keyword.arg not in FIELDS and keyword.arg not in _ALLOWED:
                found.append(f"line {call.lineno}: {keyword.arg} is not in FIELDS")
    return found


def test_every_log_line_is_a_constant_event_with_listed_fields():
    assert [
        f"{relative(path)}: {fault}"
        for path in python_files("proxy")
        if "telemetry" not in path.parts
        for fault in faults(parsed(path))
    ] == []


def test_a_line_with_content_is_found():
    tree = ast.parse(
        "log.info(f'x {y}')\nlog.info('x', y)\nself._log.error('x', email=1)\nlog.info('x', "
        "**y)\nlog.info('x', count=1)\nlog.info(_TOLD[y])\nself.state.rejected(log, error, 'x', y)"
    )
    assert [fault.split(":")[0] for fault in faults(tree)] == [
        "line 7",
        "line 1",
        "line 2",
        "line 3",
        "line 4",
    ]


def test_every_metric_of_the_table_is_fed_somewhere():
    code = "".join(
        path.read_text("utf-8")
        for path in python_files("proxy")
        if path.parts[-2:] != ("telemetry", "metrics.py")
    )
    assert [name for name in METRICS if f'"{name}"' not in code] == []
