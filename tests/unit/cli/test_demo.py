import argparse
import socket
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import pytest

from proxy.cli import demo, main
from proxy.config import Settings
from proxy.errors import Code, VaultError
from tests.support.ports import closed_port
from tests.support.tree import ROOT


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a clone, and is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "contacts.yaml").write_text("version: 1\n")
    return tmp_path


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


class Recorder:
    """Stands for the demo itself: notes what it is started with, and fails as often as it is told
    to.
    """

    def __init__(self, *faults: VaultError) -> None:
        self.started: list[tuple[Settings, demo.Ports]] = []
        self.faults = list(faults)

    async def demo(self, settings: Settings, ports: demo.Ports) -> int:
        self.started.append((settings, ports))
        if self.faults:
            raise self.faults.pop(0)
        return 0


def test_ports_that_are_free_are_taken_and_those_of_others_replaced(taken):
    with closed_port() as free:
        found = demo.free_ports((free, taken, 0, 0, 0))
    assert found.page == free
    assert found.proxy not in (taken, free)
    assert len(set(astuple(found))) == 5


def test_one_port_is_not_given_away_twice():
    with closed_port() as free:
        found = demo.free_ports((free, free, free, free, free))
    assert len(set(astuple(found))) == 5


def test_the_vault_of_a_demo_is_its_own_whatever_the_settings_say(clone, monkeypatch):
    (clone / "domicile.yaml").write_text("country: no\nlog: {level: debug}\n")
    monkeypatch.delenv("DOMICILE__COUNTRY")
    for name, text in {
        "STORE": "sqlite:////real/vault.db",
        "KEYS": "env:REAL",
        "RULES": "/real/rules",
    }.items():
        monkeypatch.setenv(f"DOMICILE__{name}", text)
    recorder = Recorder()
    monkeypatch.setattr(demo, "demo", recorder.demo)
    assert main(["demo", "--data", "mine", "--port", "0"]) == 0
    ((settings, ports),) = recorder.started
    assert settings.country == "no"
    assert settings.store.file == clone / "mine" / "vault.db"
    assert settings.keys.locator == str(clone / "mine" / "keys.json")
    assert settings.rules == clone / "rules" / "contacts.yaml"
    assert settings.listen.proxy == ("127.0.0.1", ports.proxy)
    assert settings.listen.vault == ("127.0.0.1", ports.vault)
    assert settings.listen.admin == ("127.0.0.1", ports.admin)


def test_ports_of_the_settings_are_asked_for_first(clone, monkeypatch):
    with closed_port() as free:
        monkeypatch.setenv("DOMICILE__LISTEN__PROXY", f"127.0.0.1:{free}")
    recorder = Recorder()
    monkeypatch.setattr(demo, "demo", recorder.demo)
    assert main(["demo", "--port", "0"]) == 0
    ((settings, ports),) = recorder.started
    assert (settings.listen.proxy, ports.proxy) == (("127.0.0.1", free), free)


def test_a_port_that_somebody_takes_meanwhile_is_replaced_once(clone, monkeypatch, capsys):
    recorder = Recorder(VaultError(Code.PORT_IN_USE, "Cannot listen."))
    monkeypatch.setattr(demo, "demo", recorder.demo)
    with closed_port() as usual:
        assert main(["demo", f"--port={usual}"]) == 0
        first, second = (ports for _, ports in recorder.started)
        assert first.page == usual
        assert not set(astuple(first)) & set(astuple(second)), (
            "whoever took one of the usual ports may take them all"
        )
    recorder.faults = [VaultError(Code.PORT_IN_USE, "Cannot listen.") for _ in range(2)]
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "domicile: Cannot listen.\n"


def test_another_fault_is_told_at_once(clone, monkeypatch, capsys):
    recorder = Recorder(VaultError(Code.STORE_BUSY, "Somebody has it."))
    monkeypatch.setattr(demo, "demo", recorder.demo)
    assert main(["demo"]) == 1
    assert len(recorder.started) == 1
    assert capsys.readouterr().err == "domicile: Somebody has it.\n"


def test_a_data_folder_that_takes_no_copy_is_told_in_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["demo", "--data", "file/data", "--port", "0"]) == 1
    assert capsys.readouterr().err.startswith("domicile: The rules of the demo cannot be copied")


@pytest.mark.parametrize("text", ["-1", "65536", "eighty", "²", "1e3", ""])
def test_what_is_no_port_is_wrong_usage(text, clone, capsys):
    assert main(["demo", f"--port={text}"]) == 2
    assert "a port is a whole number from 0 to 65535" in capsys.readouterr().err


def test_ports_of_the_whole_range_are_understood():
    parser = argparse.ArgumentParser()
    demo.COMMAND.arguments(parser)
    assert [parser.parse_args([f"--port={text}"]).port for text in ("0", "8090", "65535")] == [
        0,
        8090,
        65535,
    ]
    assert parser.parse_args([]).port == 8090
    assert parser.parse_args([]).data == Path("demo-data")


def test_outside_a_clone_the_rules_are_copied_into_the_data_folder_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorder = Recorder()
    monkeypatch.setattr(demo, "demo", recorder.demo)
    assert main(["demo", "--port", "0"]) == 0
    rules = tmp_path / "demo-data" / "contacts.yaml"
    assert recorder.started[0][0].rules == rules
    assert rules.read_text() == (ROOT / "rules" / "contacts.yaml").read_text()
    rules.write_text("version: 1\n")
    assert main(["demo", "--port", "0"]) == 0
    assert rules.read_text() == "version: 1\n"
