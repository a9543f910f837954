import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.crypto import master_key
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from tests.support.table import table
from tests.support.tree import ROOT

ONE, OTHER = MasterKey(bytes(range(32))), MasterKey(bytes(range(1, 33)))


def refuse(master: MasterKey, blob: bytes, context: bytes = b"context") -> str:
    with pytest.raises(VaultError) as caught:
        master.unwrap(blob, context)
    assert caught.value.code is Code.BAD_KEYS
    return caught.value.message


def test_what_is_wrapped_unwraps_and_looks_different_each_time():
    blobs = [ONE.wrap(b"keys", b"context") for _ in range(10)]
    assert len(set(blobs)) == 10
    assert all(ONE.unwrap(blob, b"context") == b"keys" for blob in blobs)


def test_the_fingerprint_tells_keys_apart_and_is_stable():
    assert ONE.id == MasterKey(bytes(range(32))).id != OTHER.id
    assert len(ONE.id) == 16
    assert ONE.id not in bytes(range(32)).hex()


def test_another_master_key_is_named_by_fingerprint_and_the_setting_to_change():
    message = refuse(OTHER, ONE.wrap(b"keys", b"context"))
    assert ONE.id in message
    assert OTHER.id in message
    assert "`keys`" in message


@table("cut", [9, 15, 21, -1])
def test_a_cut_blob_is_damaged(cut):
    assert "damaged" in refuse(ONE, ONE.wrap(b"keys", b"context")[:cut])


def test_context_and_format_are_bound():
    blob = ONE.wrap(b"keys", b"context")
    assert "damaged" in refuse(ONE, blob, b"other")
    assert "newer version" in refuse(ONE, b"\x02" + blob[1:])
    assert "newer version" in refuse(ONE, b"")


@table("length", [0, 16, 31, 33])
def test_a_master_key_has_thirty_two_bytes(length):
    with pytest.raises(ValueError, match="32 bytes"):
        MasterKey(bytes(length))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.json"


def refuse_of_key_file(code: Code, act, *given) -> str:
    with pytest.raises(VaultError) as caught:
        act(*given)
    assert caught.value.code is code
    return caught.value.message


def names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def status(mode: int, uid: int, gid: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


@pytest.fixture
def as_user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getegid", lambda: 1000)
    monkeypatch.setattr(os, "getgroups", lambda: [2000])


def test_a_new_file_is_private_and_reads_back(path):
    master_key.write_new(str(path), b"content")
    assert master_key.read_key_file(str(path)) == b"content"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(path.parent) == ["keys.json"]


@pytest.mark.parametrize("mask", [0, 0o077, 0o777])
def test_a_new_file_is_private_whatever_the_umask(path, mask):
    before = os.umask(mask)
    try:
        master_key.write_new(str(path), b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


_KILLED = """
import os, signal, sys
from proxy.crypto import master_key as keyfile
def kill(descriptor): os.kill(os.getpid(), signal.SIGKILL)
setattr(os, sys.argv[2], lambda *_, **__: kill(0))
keyfile.write_new(sys.argv[1], b"secret")
"""


@pytest.mark.parametrize("step", ["fsync", "link"])
def test_a_process_that_is_killed_leaves_no_draft_of_a_key(path, step):
    killed = subprocess.run([sys.executable, "-c", _KILLED, path, step], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert names(path.parent) == []


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EISDIR])
def test_where_no_file_is_without_a_name_a_draft_takes_its_place(path, monkeypatch, number):
    opened = os.open

    def refuse_nameless(name, flags, *more, **named):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, os.strerror(number))
        return opened(name, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse_nameless)
    master_key.write_new(str(path), b"content")
    assert master_key.read_key_file(str(path)) == b"content"
    assert names(path.parent) == ["keys.json"]
    refuse_of_key_file(Code.BAD_KEYS, master_key.write_new, str(path), b"new")
    assert names(path.parent) == ["keys.json"]


def test_where_processes_cannot_be_looked_into_a_draft_takes_its_place(path, monkeypatch):
    linked = os.link

    def link(*given, **named):
        if "src_dir_fd" in named:
            raise FileNotFoundError(errno.ENOENT, "no /proc")
        linked(*given)

    monkeypatch.setattr(os, "link", link)
    master_key.write_new(str(path), b"content")
    assert names(path.parent) == ["keys.json"]


def test_what_is_there_is_never_overwritten(path):
    path.write_bytes(b"precious")
    assert "never overwritten" in refuse_of_key_file(
        Code.BAD_KEYS, master_key.write_new, str(path), b"new"
    )
    assert path.read_bytes() == b"precious"
    assert names(path.parent) == ["keys.json"]


def test_a_dangling_link_is_not_written_through(path):
    path.symlink_to(path.parent / "elsewhere")
    refuse_of_key_file(Code.BAD_KEYS, master_key.write_new, str(path), b"new")
    assert not (path.parent / "elsewhere").exists()


def test_a_missing_folder_is_named_with_the_remedy(tmp_path):
    message = refuse_of_key_file(
        Code.NOT_WRITABLE, master_key.write_new, str(tmp_path / "no" / "keys.json"), b"x"
    )
    assert "make the folder" in message


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "right to write"), (errno.EROFS, "writable"),
        (errno.ENOSPC, "free some space"), (errno.EIO, "check"), (errno.EFBIG, "ulimit -f"),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_written_leaves_nothing(path, monkeypatch, number, remedy):
    def fail(_descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    assert remedy in refuse_of_key_file(Code.NOT_WRITABLE, master_key.write_new, str(path), b"x")
    assert names(path.parent) == []


def test_file_and_folder_are_made_durable(path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
    )
    master_key.write_new(str(path), b"x")
    assert synced == [False, True]


def test_a_missing_file_says_how_to_make_one(path):
    assert "domicile init" in refuse_of_key_file(Code.BAD_KEYS, master_key.read_key_file, str(path))


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_private_modes_are_accepted(path, mode):
    path.write_bytes(b"x")
    path.chmod(mode)
    assert master_key.read_key_file(str(path)) == b"x"


@pytest.mark.parametrize(
    "mode", [0o640, 0o440, 0o604, 0o644, 0o620, 0o660, 0o666, 0o601, 0o610, 0o777]
)
def test_modes_open_to_others_name_the_command_to_run(path, mode):
    path.write_bytes(b"x")
    path.chmod(mode)
    message = refuse_of_key_file(Code.BAD_KEYS, master_key.read_key_file, str(path))
    assert f"chmod 600 {path}" in message
    assert f"{mode:04o}" in message


def test_what_is_no_file_is_refused(tmp_path):
    assert "regular file" in refuse_of_key_file(
        Code.BAD_KEYS, master_key.read_key_file, str(tmp_path)
    )
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "regular file" in refuse_of_key_file(
        Code.BAD_KEYS, master_key.read_key_file, str(tmp_path / "pipe")
    )


def test_a_path_below_a_file_is_refused(path):
    path.write_bytes(b"x")
    assert "cannot be read" in refuse_of_key_file(
        Code.BAD_KEYS, master_key.read_key_file, str(path / "below")
    )


@pytest.mark.parametrize(
    ("mode", "uid", "gid"),
    [(0o600, 1000, 1000), (0o400, 1000, 1), (0o440, 0, 2000), (0o640, 0, 1000), (0o400, 0, 0)],
)
def test_ours_and_secrets_of_root_shared_with_our_group_are_accepted(as_user, mode, uid, gid):
    master_key._check_access("keys", status(mode, uid, gid))


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "remedy"),
    [
        (0o440, 0, 3000, "fsGroup"),  # a group of root's file that we are not in
        (0o460, 0, 2000, "chmod"),  # the group may write
        (0o444, 0, 2000, "defaultMode"),  # everybody may read
        (0o440, 1000, 2000, "chmod"),  # our own file needs no group
        (0o600, 1001, 1001, "chown 1000"),  # somebody else's
    ],
)
def test_anything_more_open_is_refused_with_the_remedy(as_user, mode, uid, gid, remedy):
    assert remedy in refuse_of_key_file(
        Code.BAD_KEYS, master_key._check_access, "keys", status(mode, uid, gid)
    )


def test_a_mounted_secret_is_read_through_its_links(tmp_path):
    real = tmp_path / "..2024" / "keys.json"
    real.parent.mkdir()
    real.write_bytes(b"x")
    real.chmod(0o400)
    (tmp_path / "..data").symlink_to("..2024")
    (tmp_path / "keys.json").symlink_to(Path("..data") / "keys.json")
    assert master_key.read_key_file(str(tmp_path / "keys.json")) == b"x"


def test_advice_covers_an_error_without_a_number():
    assert "check the folder" in master_key._advice("keys", Path("folder"), OSError("no number"))


def test_a_system_that_knows_no_files_without_a_name_makes_the_key_file_all_the_same(
    tmp_path, monkeypatch
):
    monkeypatch.delattr(os, "O_TMPFILE")
    master_key.write_new(str(tmp_path / "keys.json"), b"content")
    assert master_key.read_key_file(str(tmp_path / "keys.json")) == b"content"
    assert names(tmp_path) == ["keys.json"]


def test_a_file_is_replaced_as_a_whole_and_stays_private(tmp_path):
    place = tmp_path / "keys.json"
    master_key.write_new(str(place), b"old")
    (tmp_path / ".keys.json.new").write_bytes(b"of somebody who was interrupted")
    master_key.replace_key_file(str(place), b"new")
    assert master_key.read_key_file(str(place)) == b"new"
    assert place.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_what_cannot_be_replaced_stays_as_it_is(tmp_path, monkeypatch):
    place, link = tmp_path / "keys.json", tmp_path / "link.json"
    master_key.write_new(str(place), b"old")
    link.symlink_to(place)
    with pytest.raises(VaultError, match="is a link") as caught:
        master_key.replace_key_file(str(link), b"new")
    assert caught.value.code is Code.NOT_WRITABLE

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(VaultError, match="free some space") as caught:
        master_key.replace_key_file(str(place), b"new")
    assert caught.value.code is Code.NOT_WRITABLE
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["keys.json", "link.json"]
    assert place.read_bytes() == b"old"
