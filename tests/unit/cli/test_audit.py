import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.audit.events import EventKind, encode_event
from proxy.bootstrap.audit import open_audit
from proxy.bootstrap.instance import prepare_instance
from proxy.bootstrap.open_vault import open_environments, open_with_key
from proxy.cli import main
from proxy.clock import system_clock
from proxy.config import load_settings
from proxy.telemetry.metrics import Metrics
from tests.support.patience import PATIENCE
from tests.support.tree import ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a log with four lines."""
    monkeypatch.setenv("DOMICILE__DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    asyncio.run(write())
    return tmp_path / "data" / "audit"


async def write() -> None:
    settings = load_settings(None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": "data"})
    await prepare_instance(settings)
    store, _ = await open_with_key(settings)
    _, keysets = await open_environments(settings, store)
    audit = await open_audit(settings, store, keysets["default"], system_clock, Metrics())
    await audit.log.begin()
    for key in ("1", "2"):
        mark = audit.services.record_id("default", "contact", key)
        audit.log.put(
            encode_event(
                EventKind.REVEAL,
                by="k1",
                operation="find",
                schema="contact",
                records=[mark, "of-a-list"],
                fields=["a", "b"],
            )
        )
    audit.log.put(encode_event(EventKind.ALARM, reason="look"))
    await audit.close()
    await store.close()


def run(capsys: Any, *words: str) -> tuple[int, str]:
    status = main(["audit", *words])
    return status, capsys.readouterr().out


def test_a_whole_log_is_in_order(folder, capsys):
    status, text = run(capsys, "verify")
    assert (status, "Every line is there" in text) == (0, True)
    status, text = run(capsys, "verify", "--json")
    assert (status, json.loads(text)["lines"], json.loads(text)["faults"]) == (0, 5, [])


def test_what_was_done_to_a_log_is_named_by_file_and_line(folder, capsys):
    (path,) = folder.glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:1], *lines[2:]]))
    status, text = run(capsys, "verify")
    assert status == 1
    assert f"{path.name}:2: Line 2 is missing before it." in text
    assert "Looked at 4 lines in 1 file; the last one is line 5." in text
    assert "1 fault in all." in text
    path.unlink()
    _, text = run(capsys, "verify")
    assert "  the log: Line " in text
    status, text = run(capsys, "verify", "--json")
    assert (status, json.loads(text)["ok"]) == (1, False)


def test_the_last_lines_are_shown_for_people_and_as_they_are(folder, capsys):
    status, text = run(capsys, "tail", "--lines", "3")
    assert (status, len(text.splitlines())) == (0, 3)
    assert "reveal   k1 find contact fields=a,b records=" in text
    assert "(look)" in text
    _, text = run(capsys, "tail", "--json")
    assert [json.loads(line)["n"] for line in text.splitlines()] == [1, 2, 3, 4, 5]


def test_what_happened_to_one_record_is_found_by_its_key(folder, capsys):
    _, text = run(capsys, "tail", "--json", "--schema", "contact", "--record", "2")
    assert [json.loads(line)["n"] for line in text.splitlines()] == [3]
    assert "of-a-list" in text
    _, text = run(capsys, "tail", "--schema", "contact", "--record", "2")  # may be handed on
    assert ("records=" in text, "of-a-list" in text) == (True, False)
    assert run(capsys, "tail", "--schema", "contact", "--record", "3") == (0, "")
    assert main(["audit", "tail", "--record", "2"]) == 1
    assert "--schema" in capsys.readouterr().err


def test_a_line_of_somebody_else_is_shown_as_such(folder, capsys):
    (path,) = folder.glob("*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"n":6,oops}\n')
    assert "none of the audit log" in run(capsys, "tail")[1]


def test_lines_that_come_are_followed(folder):
    command = [sys.executable, "-m", "proxy", "audit", "tail", "--json", "--follow", "--lines", "1"]
    environment = {
        "DOMICILE__COUNTRY": "se",
        "DOMICILE__DATA": str(folder.parent),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=folder.parent)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["n"] == 5
        asyncio.run(write())
        assert [json.loads(process.stdout.readline())["n"] for _ in range(2)] == [6, 7]
    finally:
        process.kill()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("command", ["verify", "tail"])
def test_without_a_log_that_is_said(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DOMICILE__DATA", str(tmp_path / "data"))
    assert main(["audit", command]) == 1
    assert "There is no" in capsys.readouterr().err


def test_a_log_that_cannot_be_read_is_said(folder, capsys, monkeypatch):
    def refuse(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert main(["audit", "tail"]) == 1
    assert "cannot be read (Permission denied)" in capsys.readouterr().err
