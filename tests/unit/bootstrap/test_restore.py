import base64
import fcntl
import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from proxy.bootstrap.backup import make_backup, read_head
from proxy.bootstrap.open_vault import key_source
from proxy.bootstrap.restore import restore_backup
from proxy.config import Settings, embedded_files, parsers
from proxy.errors import Code, VaultError
from tests.support.patience import PATIENCE
from tests.support.postgres import fresh_address
from tests.support.tree import ROOT
from tests.unit.bootstrap.test_backup import settings

__all__ = ["settings"]


def silent(_count: int) -> None:
    """Nobody looks."""


@pytest.fixture
def backup(tmp_path: Path, settings: Settings) -> Path:
    """A backup of more than one chunk; the vault that it was made from is gone, but for its key."""
    (tmp_path / "home" / "rules" / "large.txt").write_bytes(os.urandom(70_000))
    make_backup(settings, tmp_path / "b", silent)
    assert settings.store.file is not None
    assert settings.files.folder is not None
    settings.store.file.unlink()
    for folder in (settings.files.folder, settings.audit.folder):
        shutil.rmtree(folder, ignore_errors=True)
    return tmp_path / "b"


def test_what_was_backed_up_is_put_in_place_after_it_was_verified(settings, backup, tmp_path):
    checked = restore_backup(settings, backup, silent, check=True)
    assert (checked.sound, checked.restored, settings.store.file.exists()) == (True, [], False)
    (tmp_path / "home" / "rules").rename(tmp_path / "home" / "old")
    restored = restore_backup(settings, backup, silent)
    assert restored.sound
    assert settings.store.file in restored.restored
    assert settings.rules in restored.restored
    assert (settings.rules / "more" / "orders.yaml").read_text() == "version: 1"
    assert settings.store.file.stat().st_mode & 0o777 == 0o600
    assert not list(settings.data.glob(".domicile-restore-*"))


def test_a_vault_that_is_there_is_never_overwritten(settings, backup):
    settings.store.file.write_bytes(b"somebody's vault")
    with pytest.raises(VaultError, match="a restore overwrites nothing"):
        restore_backup(settings, backup, silent)
    assert settings.store.file.read_bytes() == b"somebody's vault"
    assert restore_backup(settings, backup, silent, check=True).sound


def test_the_log_of_a_database_that_is_gone_is_not_applied_to_the_restored_one(settings, backup):
    """As it stands after ``kill -9``; SQLite would mix the two databases."""
    log = settings.store.file.with_name(f"{settings.store.file.name}-wal")
    log.write_bytes(b"of later commits")
    with pytest.raises(VaultError, match=r"There is something at .*-wal") as refused:
        restore_backup(settings, backup, silent)
    assert refused.value.code is Code.BAD_STORE
    assert not settings.store.file.exists()
    log.unlink()
    assert restore_backup(settings, backup, silent).sound


def test_a_volume_of_its_own_takes_what_is_restored(settings, backup, monkeypatch):
    """Its root cannot be replaced, and has a folder of the file system."""
    (settings.files.folder / "lost+found").mkdir(parents=True)
    before = settings.files.folder.stat().st_ino
    monkeypatch.setattr(os.path, "ismount", lambda path: path == settings.files.folder)
    assert restore_backup(settings, backup, silent).sound
    assert settings.files.folder.stat().st_ino == before
    assert list(settings.files.folder.glob("owner"))


@pytest.mark.parametrize("check", [True, False])
def test_a_disk_without_room_is_told_and_the_restore_works_once_there_is_some(
    settings: Settings, backup: Path, check: bool
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(VaultError, match=r"cannot be unpacked to .*raise ulimit -f") as refused:
            restore_backup(settings, backup, silent, check=check)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert refused.value.code is Code.NOT_WRITABLE
    assert not list(settings.data.glob(".domicile-restore-*"))
    assert restore_backup(settings, backup, silent, check=check).sound


def test_sigterm_ends_a_command_with_its_folder(tmp_path):
    """Nor is one left that was killed before its folder had a lock."""
    (half := tmp_path / ".domicile-backup-half").mkdir()
    os.utime(half, (0, 0))
    script = f"""
import pathlib, time
from proxy.bootstrap.backup import scratch_folder
with scratch_folder("backup", pathlib.Path({str(tmp_path)!r})) as folder:
    (folder / "vault.db").write_bytes(b"x")
    print("there", flush=True)
    time.sleep(60)
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        assert [path.name for path in tmp_path.glob(".domicile-*/vault.db")] == ["vault.db"]
        process.terminate()
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_command_has_left_goes_and_a_running_one_keeps_its_own(settings, backup):
    running, killed = (settings.data / f".domicile-restore-{name}" for name in ("a", "b"))
    for folder in (running, killed):
        folder.mkdir()
        (folder / "lock").touch()
        (folder / "vault.db").write_bytes(b"as large as a vault")
    with (running / "lock").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert restore_backup(settings, backup, silent).sound
    assert list(settings.data.glob(".domicile-restore-*")) == [running]


def test_a_restore_to_a_server_that_was_cut_off_goes_on(settings, backup, monkeypatch, tmp_path):
    place = parsers.store(fresh_address())
    elsewhere = replace(settings, store=place, files=embedded_files(tmp_path / "files"))
    with monkeypatch.context() as cut:
        cut.setattr("proxy.bootstrap.restore.verify_copy", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            restore_backup(elsewhere, backup, silent)
    for folder in (elsewhere.files.folder, elsewhere.audit.folder):
        shutil.rmtree(folder, ignore_errors=True)
    assert restore_backup(elsewhere, backup, silent).sound
    with pytest.raises(VaultError, match="a restore overwrites nothing"):
        restore_backup(elsewhere, backup, silent)


@pytest.mark.parametrize(("change", "code"), [
    (lambda content: content[:-1], Code.CANNOT_OPEN),
    (lambda content: content[:-40_000], Code.CANNOT_OPEN),
    (lambda content: content.replace(b'"se"', b'"no"', 1), Code.CANNOT_OPEN),
    (lambda content: content[:9_000] + bytes([content[9_000] ^ 1]) + content[9_001:], Code.CANNOT_OPEN),
    (lambda content: content + b"x", Code.CANNOT_OPEN),
    (lambda content: b"PK" + content, Code.BAD_SETTINGS),
    (lambda content: content.replace(b'"version":1', b'"version":2', 1), Code.BAD_SETTINGS),
])  # fmt: skip
def test_what_was_changed_or_cut_is_refused_and_leaves_nothing(
    settings: Settings, backup: Path, change: Callable[[bytes], bytes], code: Code
) -> None:
    backup.write_bytes(change(backup.read_bytes()))
    for check in (False, True):
        with pytest.raises(VaultError) as refused:
            restore_backup(settings, backup, silent, check=check)
        assert refused.value.code is code
    assert settings.store.file is not None
    assert not settings.store.file.exists()
    assert not list(settings.data.glob(".domicile-restore-*"))


def test_a_chunk_border_is_no_end(settings, backup):
    """A cut right behind a chunk is noticed, for the last chunk knows that it is."""
    content = backup.read_bytes()
    first = content.index(b"\n") + 1 + 12 + 65_536 + 16
    backup.write_bytes(content[:first])
    with pytest.raises(VaultError) as refused:
        restore_backup(settings, backup, silent, check=True)
    assert refused.value.code is Code.CANNOT_OPEN


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "rules/../../evil", "files/../../evil"])
def test_a_name_that_leads_elsewhere_is_refused(settings, backup, tmp_path, name):
    head = read_head(backup)
    line = msgspec.json.encode(head) + b"\n"
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    sealer = key_source(settings.keys).load().files().sealer(base64.b64decode(head.salt), line)
    made = [line, sealer.header, bytes(sealer.update(content.getvalue())), sealer.finish()]
    backup.write_bytes(b"".join(made))
    with pytest.raises(VaultError, match="a name that no backup has"):
        restore_backup(settings, backup, silent, check=True)
    assert not list(tmp_path.rglob("evil"))


def test_another_key_opens_nothing_and_says_which_one_would(settings, backup):
    source = key_source(settings.keys)
    wanted = source.load().id
    Path(settings.keys.locator).unlink()
    source.create()
    with pytest.raises(VaultError, match=wanted) as refused:
        restore_backup(settings, backup, silent, check=True)
    assert refused.value.code is Code.BAD_KEYS


def test_a_key_that_was_rotated_since_still_opens_it(settings, backup):
    source = key_source(settings.keys)
    source.stage()
    source.switch()
    assert restore_backup(settings, backup, silent, check=True).sound
