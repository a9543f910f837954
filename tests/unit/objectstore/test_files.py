import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.objectstore.base import NoObject
from proxy.objectstore.files import FolderObjects, Threads, open_folder

NAME = "ab" + "0" * 46


async def piece(*content: bytes) -> AsyncIterator[Sequence[bytes]]:
    yield content or [b"x"]


@pytest.fixture
async def objects(tmp_path: Path) -> AsyncIterator[FolderObjects]:
    made = FolderObjects(tmp_path / "files")
    yield made
    await made.close()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


async def test_the_layout_is_what_the_docstring_says_and_open_to_the_owner_alone(objects, tmp_path):
    await objects.put(NAME, piece())
    await objects.claim("me")
    root = tmp_path / "files"
    assert files(root) == {"ab/" + "0" * 46, "owner", ".lock"}
    assert (root / "owner").read_text() == "me\n"
    assert {path.stat().st_mode & 0o077 for path in [root, *root.rglob("*")]} == {0}


async def test_an_object_is_flushed_before_it_has_its_name_and_the_name_after(objects, monkeypatch):
    await objects.put("ab" + "1" * 46, piece())  # the folder of the shard is there
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def flushing(descriptor: int) -> None:
        done.append("flush folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "flush")
        fsync(descriptor)

    def renaming(before: Path, after: Path) -> None:
        done.append("rename")
        rename(before, after)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(os, "rename", renaming)
    await objects.put(NAME, piece())
    assert done == ["flush", "rename", "flush folder"]
    await objects.put("cd" + "0" * 46, piece())
    assert done[3:] == ["flush", "rename", "flush folder", "rename", "flush folder"]


async def test_another_process_may_not_use_the_folder(objects, tmp_path):
    with pytest.raises(VaultError, match="Another process") as caught:
        await open_folder(str(tmp_path / "files"), own=True)
    assert caught.value.code is Code.STORE_BUSY
    await objects.close()
    await (await open_folder(str(tmp_path / "files"), own=True)).close()


async def test_a_folder_that_cannot_be_made_is_told_by_its_name(tmp_path):
    (tmp_path / "files").write_text("a file")
    with pytest.raises(VaultError, match=str(tmp_path)) as caught:
        await open_folder(str(tmp_path / "files"), own=True)
    assert caught.value.code is Code.NOT_WRITABLE


@pytest.mark.parametrize(
    "fault",
    [
        (errno.ENOSPC, "full"), (errno.EDQUOT, "full"), (errno.EROFS, "read-only"),
        (errno.EIO, "EIO"), (errno.EFBIG, "ulimit -f"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", ["open", "write", "fsync", "rename"])
async def test_a_disk_that_fails_is_told_in_words_and_leaves_nothing(
    objects, tmp_path, monkeypatch, fault, step
):
    number, text = fault
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise OSError(number, "x")

        broken.setattr(os, step, fail)
        with pytest.raises(VaultError, match=text) as caught:
            await objects.put(NAME, piece())
    assert caught.value.code is Code.FILES_UNAVAILABLE
    assert str(tmp_path) not in caught.value.message
    assert files(tmp_path / "files") == {".lock"}
    await objects.put(NAME, piece())


async def test_a_write_that_takes_less_goes_on(objects, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:3]))
    await objects.put(NAME, piece(b"01234", b"56789"))
    pread = os.pread
    monkeypatch.setattr(
        os, "pread", lambda descriptor, length, at: pread(descriptor, min(length, 4), at)
    )
    opened = await objects.open(NAME)
    assert await opened.read(0, 20) == b"0123456789"
    opened.close()


async def test_a_folder_that_went_away_is_no_proof_that_an_object_did(objects, tmp_path):
    await objects.put(NAME, piece())
    (tmp_path / "files").rename(tmp_path / "elsewhere")
    for asked in (
        objects.open(NAME),
        objects.delete(NAME),
        objects.listed("ab"),
        objects.put(NAME, piece()),
    ):
        with pytest.raises(VaultError, match="not there any more") as caught:
            await asked
        assert caught.value.code is Code.FILES_UNAVAILABLE
    assert not (tmp_path / "files").exists(), "it is not made anew: its disk may come back"
    (tmp_path / "elsewhere").rename(tmp_path / "files")
    await objects.delete(NAME)
    with pytest.raises(NoObject):
        await objects.open(NAME)


async def test_what_a_dead_process_left_behind_is_cleared_when_it_is_old(tmp_path):
    left = tmp_path / "files/incoming" / NAME
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    (left.parent / "owner").write_text("half a mark")
    objects = FolderObjects(tmp_path / "files")
    at = left.stat().st_mtime_ns // 1_000_000
    assert await objects.clear(at) == 0
    assert await objects.clear(at + 1) == 1
    assert not left.exists()
    await objects.claim("me")
    assert await objects.owner() == "me"
    await objects.close()


async def test_foreign_files_are_not_objects(objects, tmp_path):
    await objects.put(NAME, piece())
    (tmp_path / "files/ab/readme").write_text("x")
    assert [stored.name for stored in await objects.listed("ab")] == [NAME]
    with pytest.raises(ValueError, match="48"):
        await objects.open("../../../etc/passwd")


async def test_a_draft_that_cannot_be_removed_hides_no_fault(objects, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "x")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(VaultError, match="read-only"):
        await objects.put(NAME, piece())


async def test_writers_do_not_hold_up_the_loop(objects):
    await asyncio.gather(
        *(objects.put(f"{n:02x}" + "0" * 46, piece(b"x" * 100_000)) for n in range(32))
    )
    assert [len(await objects.listed(f"{n:02x}")) for n in range(32)] == [1] * 32


async def test_the_next_piece_arrives_while_one_is_written(objects, tmp_path):
    arrived = threading.Event()

    def slowly() -> Iterator[bytes]:
        assert arrived.wait(30)
        yield b"first, "

    async def pieces() -> AsyncIterator[Iterable[bytes]]:
        yield slowly()
        arrived.set()
        yield (b"second",)

    async with asyncio.timeout(20):
        assert await objects.put(NAME, pieces()) == 13
    assert (tmp_path / "files" / NAME[:2] / NAME[2:]).read_bytes() == b"first, second"


async def test_whoever_breaks_off_waits_for_the_piece_that_is_written(objects):
    go_on, ended = threading.Event(), []

    def slowly() -> Iterator[bytes]:
        assert go_on.wait(30)
        yield b"x"
        ended.append(True)

    async def pieces() -> AsyncIterator[Iterable[bytes]]:
        yield slowly()
        raise ConnectionResetError

    putting = asyncio.create_task(objects.put(NAME, pieces()))
    await asyncio.sleep(0.05)
    assert not putting.done()  # its file is not closed under the thread
    go_on.set()
    with pytest.raises(ConnectionResetError):
        await putting
    assert ended == [True]


async def test_work_answers_and_raises():
    threads = Threads(1)
    assert await threads.run(int, "12") == 12
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(int, "x")
    threads.close()
    threads.close()


async def test_who_is_cancelled_waits_for_his_thread():
    threads, begun, go_on, ended = Threads(1), threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        go_on.wait(30)
        ended.append(True)

    task = asyncio.create_task(threads.run(work))
    await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
    threads.close()


async def test_no_more_work_at_once_than_allowed():
    threads, now, most, lock = Threads(2), 0, 0, threading.Lock()
    both = threading.Barrier(2)

    def work() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        both.wait(30)
        with lock:
            now -= 1

    await asyncio.gather(*(threads.run(work) for _ in range(8)))
    assert most <= 3  # the one that leaves may still count while the next begins
    threads.close()
