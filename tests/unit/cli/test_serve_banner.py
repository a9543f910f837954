"""What is said at start."""

import io
import json
from pathlib import Path

from proxy.cli import serve
from proxy.redactor.load import load_rule_set as load_rules
from proxy.redactor.load import load_text
from proxy.telemetry import logs

RULES = """version: 1
endpoint: {name: crm, upstream: "http://10.0.0.7:8000", host: crm.example, unmatched: deny}
entities: {note: {fields: {text: {kind: text}}}}
operations:
  - {match: POST /notes, create: note}
  - {match: "GET /notes/{id}", read: note}
  - {match: "GET /static/{path*}", pass: true}
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_in_force():
    stream = Terminal()
    serve.announce(load_text(RULES, "/etc/rules/crm.yaml"), stream)
    shown = stream.getvalue()
    for text in (
        "/etc/rules/crm.yaml",
        "crm (crm.example) -> http://10.0.0.7:8000",
        "2 operations",
        "1 passed",
        "is refused",
    ):
        assert text in shown
    assert "demo" not in shown


def test_elsewhere_log_lines_say_the_same(capfd):
    logs.configure(logs.Style())
    serve.announce(load_text(RULES, "/etc/rules/crm.yaml"), io.StringIO())
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["rules in force", "endpoint in force"]
    assert (lines[0]["files"], lines[0]["count"]) == (["/etc/rules/crm.yaml"], 2)
    told = {
        name: lines[1][name] for name in ("endpoint", "address", "count", "passed", "unmatched")
    }
    assert told == {
        "endpoint": "crm",
        "address": "http://10.0.0.7:8000",
        "count": 2,
        "passed": 1,
        "unmatched": "deny",
    }


def test_the_rules_of_the_demo_are_called_so(capfd):
    logs.configure(logs.Style())
    shipped = load_rules(Path(serve.__file__).parents[2] / "rules" / "contacts.yaml")
    stream = Terminal()
    serve.announce(shipped, stream)
    assert "rules of the demo" in stream.getvalue()
    serve.announce(shipped, io.StringIO())
    assert "rules of the demo" in capfd.readouterr().err
