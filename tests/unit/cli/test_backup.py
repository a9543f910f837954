import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from proxy.bootstrap.instance import prepare_instance
from proxy.cli import main
from proxy.config import load_settings
from tests.support.patience import PATIENCE


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a vault in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOMICILE__COUNTRY", "se")
    asyncio.run(prepare_instance(load_settings(None, {"DOMICILE__COUNTRY": "se"})))
    return tmp_path


def test_a_backup_says_what_is_in_it_and_that_the_key_is_not(elsewhere, capsys):
    assert main(["backup", "b"]) == 0
    told = capsys.readouterr().out
    assert "b: " in told
    assert "0 attachments" in told
    assert "keep a copy of it apart (--keys FILE)" in told


def test_the_key_is_copied_apart_and_never_over_another_one(elsewhere, capsys):
    for name in ("b", "c"):
        assert main(["backup", name, "--keys", "copy.json"]) == 0
    assert (elsewhere / "copy.json").read_bytes() == (elsewhere / "data/keys.json").read_bytes()
    assert (elsewhere / "copy.json").stat().st_mode & 0o777 == 0o600
    assert "copy.json: keep it apart" in capsys.readouterr().out
    (elsewhere / "copy.json").write_text("another one")
    assert main(["backup", "d", "--keys", "copy.json"]) == 1
    assert "never overwritten" in capsys.readouterr().err


def test_a_key_that_is_no_file_cannot_be_copied(elsewhere, capsys, monkeypatch):
    key = json.loads((elsewhere / "data/keys.json").read_text())["key"]
    monkeypatch.setenv("MASTER", key)
    monkeypatch.setenv("DOMICILE__KEYS", "env:MASTER")
    assert main(["backup", "b", "--keys", "copy.json"]) == 1
    assert "which is no file" in capsys.readouterr().err
    assert not (elsewhere / "copy.json").exists()


def test_the_newest_backups_of_a_folder_stay(elsewhere, capsys):
    folder = elsewhere / "backups"
    folder.mkdir()
    (folder / "letter.txt").write_text("not ours")
    for hour in range(3):
        (folder / f"domicile-20200101T{hour:02}0000Z.backup").write_text("old")
    assert main(["backup", "backups", "--keep", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["removed"] == [f"domicile-20200101T{hour:02}0000Z.backup" for hour in range(2)]
    assert sorted(path.name for path in folder.iterdir()) == [
        "domicile-20200101T020000Z.backup",
        Path(told["file"]).name,
        "letter.txt",
    ]


@pytest.mark.parametrize(("arguments", "status", "text"), [
    (["backup", "new", "--keep", "2"], 1, "name a folder"),
    (["backup", "data/vault.db"], 1, "is there already"),
    (["backup", "b", "--keep", "0"], 2, "a whole number from 1 on"),
    (["backup", "b", "--every", "24h"], 1, "name a folder"),
    (["backup", "data", "--every", "5s"], 2, "a minute at least"),
    (["backup", "data", "--every", "often"], 2, "a minute at least"),
    (["backup"], 2, "TARGET"),
])  # fmt: skip
def test_what_cannot_be_done_is_told(elsewhere, capsys, arguments, status, text):
    assert main(arguments) == status
    assert text in capsys.readouterr().err


def test_it_goes_on_by_itself_when_the_newest_one_is_old_enough(elsewhere):
    folder = elsewhere / "backups"
    folder.mkdir()
    old = datetime.now(UTC) - timedelta(seconds=58)
    (folder / old.strftime("domicile-%Y%m%dT%H%M%SZ.backup")).write_text("old")
    arguments = ["-m", "proxy", "backup", "backups", "--every", "1m", "--keep", "1", "--json"]
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert [path.name for path in folder.iterdir()] == [Path(told["file"]).name]
    assert len(told["removed"]) == 1


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
