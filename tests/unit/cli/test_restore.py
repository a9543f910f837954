import json

from proxy.cli import main
from tests.unit.cli.test_backup import elsewhere

__all__ = ["elsewhere"]


def test_a_backup_is_proved_and_brought_back(elsewhere, capsys):
    assert main(["backup", "b"]) == 0
    assert main(["restore", "--check", "b"]) == 0
    assert "Everything is in order." in capsys.readouterr().out
    assert main(["restore", "b"]) == 1
    assert "a restore overwrites nothing" in capsys.readouterr().err
    (elsewhere / "data").rename(elsewhere / "old")
    (elsewhere / "data").mkdir()
    assert main(["restore", "b"]) == 1
    told = capsys.readouterr().err
    assert "a backup holds none" in told
    assert "domicile init" not in told
    (elsewhere / "old" / "keys.json").rename(elsewhere / "data" / "keys.json")
    assert main(["restore", "b"]) == 0
    told = capsys.readouterr().out
    assert "Restored: " in told
    assert "erase again who has asked for it since" in told
    assert main(["store", "verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]


def test_what_is_no_backup_is_told(elsewhere, capsys):
    (elsewhere / "b").write_text("a letter")
    assert main(["restore", "b"]) == 1
    assert "b is not a backup" in capsys.readouterr().err
