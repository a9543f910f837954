import asyncio
import gc
import io
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.bootstrap import instance as bootstrap
from proxy.bootstrap.rules import Overrides
from proxy.cli import main, serve
from proxy.cli.supervisor import run_on_uvloop
from proxy.config import Settings, load_settings
from proxy.redactor.load import load_rule_set as load_rules
from proxy.redactor.load import load_text
from proxy.telemetry import logs
from tests.support.people import rules
from tests.support.rawserver import RawServer, silent


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Free ports and a rule file, in a folder of its own that is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "people.yaml").write_text(rules("http://127.0.0.1:9"))
    for owner, hook in ((sys, "excepthook"), (threading, "excepthook"), (sys, "unraisablehook")):
        monkeypatch.setattr(owner, hook, getattr(owner, hook))  # back as it was, afterwards
    for name in ("PROXY", "ADMIN"):
        monkeypatch.setenv(f"DOMICILE__LISTEN__{name}", "127.0.0.1:0")
    return load_settings(None, os.environ)


class Instance:
    """Stands for a running instance: notes what is asked of it, and signals this process when it
    has started.
    """

    def __init__(self, *signals: signal.Signals) -> None:
        self.asked: list[str] = []
        self.signals = signals
        self.gateway = SimpleNamespace(drain=self.drain)
        self.rules = SimpleNamespace(
            runtime=SimpleNamespace(rules=load_text(rules("http://127.0.0.1:9")))
        )
        self.early = False  #: signals come while it starts
        self.settings: Settings | None = None
        self.overrides = Overrides({})
        self.owner = None

    @asynccontextmanager
    async def running(self, settings: Settings, overrides: Overrides) -> AsyncIterator[Any]:
        assert gc.isenabled(), "it was off while the program was imported"
        self.settings, self.overrides = settings, overrides
        self.taken_over = asyncio.Event()  # of this loop
        if self.early:
            self.signal()
            await asyncio.sleep(0.01)  # so that the loop gets to see them
        else:
            asyncio.get_running_loop().call_later(0.05, self.signal)
        yield self
        self.asked.append("closed")

    def signal(self) -> None:
        for number in self.signals:
            os.kill(os.getpid(), number)

    def take_over(self) -> None:
        self.taken_over.set()

    async def drain(self, seconds: float, late: float) -> None:
        assert late == 0, "nobody follows at these sockets"
        assert 0 < seconds < 30, "Kubernetes kills after thirty seconds"
        self.asked.append("drained")

    async def reload(self) -> None:
        self.asked.append("reloaded")
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_finish_before_everything_closes(settings, monkeypatch, number):
    instance = Instance(number)
    monkeypatch.setattr(bootstrap, "running", instance.running)
    assert run_on_uvloop(serve.serve(settings, Overrides({}))) == 0
    assert instance.asked == ["drained", "closed"]


def test_an_instance_whose_vault_another_one_has_ends_with_a_fault(settings, monkeypatch):
    instance = Instance()
    monkeypatch.setattr(instance, "signal", instance.take_over)
    monkeypatch.setattr(bootstrap, "running", instance.running)
    assert run_on_uvloop(serve.serve(settings, Overrides({}))) == 1
    assert instance.asked == ["closed"]


def test_one_of_several_that_was_taken_for_dead_starts_again(settings, monkeypatch):
    class Twice(Instance):
        def signal(self) -> None:
            if self.asked:
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                self.take_over()

    shared = replace(settings, store=replace(settings.store, uri="postgresql://h/v?replicas=true"))
    for sockets, asked, status in (
        ((), ["closed", "drained", "closed"], 0),
        ((("proxy", 99),), ["closed"], 1),  # whose parent starts it again
    ):
        instance = Twice()
        monkeypatch.setattr(bootstrap, "running", instance.running)
        assert run_on_uvloop(serve.serve(shared, Overrides({}, sockets=sockets))) == status
        assert instance.asked == asked


def test_sighup_loads_the_rules_again_and_serving_goes_on(settings, monkeypatch):
    instance = Instance(signal.SIGHUP)
    monkeypatch.setattr(bootstrap, "running", instance.running)
    assert run_on_uvloop(serve.serve(settings, Overrides({}))) == 0
    assert instance.asked == ["reloaded", "drained", "closed"]


def test_sighup_during_the_start_ends_nothing_and_is_followed_afterwards(settings, monkeypatch):
    instance = Instance(signal.SIGHUP)
    instance.early = True
    monkeypatch.setattr(bootstrap, "running", instance.running)
    assert run_on_uvloop(serve.serve(settings, Overrides({}))) == 0
    assert instance.asked == ["reloaded", "drained", "closed"]


def test_the_log_is_written_as_the_settings_say(settings, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "running", Instance(signal.SIGTERM).running)
    assert main(["serve"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == [
        "active rules",
        "active endpoint",
        "stopping: requests under way may finish",
        "stopped",
    ]
    monkeypatch.setenv("DOMICILE__LOG__FORMAT", "text")
    monkeypatch.setenv("DOMICILE__LOG__LEVEL", "error")
    assert main(["serve"]) == 0
    assert capsys.readouterr().err == ""


def test_on_a_terminal_the_log_is_text(settings, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "running", Instance(signal.SIGTERM).running)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["serve"]) == 0
    line = capsys.readouterr().err.splitlines()[-1]
    assert "serve    stopped" in line
    assert not line.startswith("{")


def test_options_take_the_place_of_settings(tmp_path, monkeypatch):
    instance = Instance(signal.SIGTERM)
    monkeypatch.setattr(bootstrap, "running", instance.running)
    options = ["--upstream", "http://127.0.0.1:3000/", "--rules", "elsewhere", "--country", "NO"]
    assert main(["serve", *options]) == 0
    assert instance.settings is not None
    assert (instance.settings.rules, instance.settings.country) == (tmp_path / "elsewhere", "no")
    assert instance.overrides == Overrides({}, "http://127.0.0.1:3000")


def test_an_address_that_is_none_is_refused_with_what_to_write(capsys):
    assert main(["serve", "--upstream", "localhost:3000"]) == 2
    assert "write http://host:port or https://host:port" in capsys.readouterr().err


def test_faulty_rules_are_named_and_no_vault_is_made(settings, capsys):
    (settings.rules / "people.yaml").write_text("version: 1\n")
    assert main(["serve"]) == 1
    assert "people.yaml:1:1" in capsys.readouterr().err
    assert not settings.data.exists()
    assert gc.isenabled()


def test_faulty_settings_are_named(monkeypatch, capsys):
    monkeypatch.setenv("DOMICILE__LISTN", "x")
    assert main(["serve"]) == 1
    assert "DOMICILE__LISTN" in capsys.readouterr().err


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


def test_a_terminal_obeys_no_name_of_a_rule_file():
    stream = Terminal()
    serve.announce(load_text(RULES, "/etc/rules/a\x1b]0;b\x07\u202eb.yaml"), stream)
    said = stream.getvalue()
    assert "a\\u001b]0;b\\u0007\\u202eb.yaml" in said
    assert [sign for sign in said if not (sign.isprintable() or sign == "\n")] == []


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
    one = RULES.replace('  - {match: "GET /static/{path*}", pass: true}\n', "").splitlines()
    single = "\n".join(line for line in one if "match: POST" not in line)
    stream = Terminal()
    serve.announce(load_text(single), stream)
    assert "1 operation protected" in stream.getvalue()


async def test_a_terminal_is_told_of_an_application_that_nothing_answers_for(capfd):
    logs.configure(logs.Style())
    async with RawServer(silent()) as server:
        rules = load_text(RULES.replace("http://10.0.0.7:8000", server.url))
        await serve.look_for_applications(rules, Terminal())
        assert server.requests == []
    assert capfd.readouterr().err == ""
    await serve.look_for_applications(rules, io.StringIO())
    assert capfd.readouterr().err == ""
    await serve.look_for_applications(rules, Terminal())
    line = json.loads(capfd.readouterr().err)
    assert (line["level"], line["endpoint"], line["address"]) == ("warning", "crm", server.url)


def test_elsewhere_log_lines_say_the_same(capfd):
    logs.configure(logs.Style())
    serve.announce(load_text(RULES, "/etc/rules/crm.yaml"), io.StringIO())
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["active rules", "active endpoint"]
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
