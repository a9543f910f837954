import asyncio
import os
from pathlib import Path

import pytest

from proxy.audit import log as trails
from proxy.audit.events import EventKind, encode_event
from proxy.audit.log import Options
from proxy.audit.open_log import open_trail
from proxy.clock import ManualClock
from proxy.errors import Code, VaultError
from tests.support.audit import MAC, Remembered, lines, opened, told, trail, verified

LINE = encode_event(EventKind.WRITE, schema="p")


class Disk:
    """Writes that can be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.flushes = 0
        self._write, self._fsync = os.write, os.fsync
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(trails, "_LOOK", 0.0)  # tries again at once

    def write(self, descriptor: int, data: bytes) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return self._write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        self.flushes += 1
        if self.full:
            raise OSError(5, "Input/output error")
        self._fsync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_a_line_is_in_the_file_when_put_returns(tmp_path):
    async with trail(tmp_path) as made:
        made.put(LINE, LINE)
        assert told(tmp_path) == [{"event": "write", "schema": "p"}] * 2
        assert lines(tmp_path)[1]["at"] == "2023-11-14T22:13:20.000Z"


async def test_nothing_is_said_to_be_written_on_a_full_disk(tmp_path, disk):
    memory = Remembered()
    async with trail(tmp_path, memory) as made:
        disk.full = True
        for ask in (made.put, made.happened):
            with pytest.raises(VaultError) as raised:
                ask(LINE)
            assert raised.value.code is Code.AUDIT_DOWN
        with pytest.raises(VaultError):
            made.ready()
        faults = [made.fault]
        disk.full = False
        made.ready()
        assert [*faults, made.fault] == ["No space left on device", None]
        made.put(encode_event(EventKind.DELETE))
    late, after = told(tmp_path)
    assert late["event"] == "write"
    assert late["since"].startswith("2023-11-14T22:13:20")
    assert after == {"event": "delete"}
    assert (await verified(tmp_path, memory)).faults == []


async def test_a_start_on_a_full_disk_has_its_line_when_there_is_room(tmp_path, disk):
    memory = Remembered()
    disk.full = True
    made = await opened(tmp_path, memory)
    assert made.fault is not None
    disk.full = False
    made.look()
    await made.close(memory)
    reasons = [line["reason"] for line in told(tmp_path, "log")]
    assert reasons == ["started", "the log is written again", "stopped"]
    assert (await verified(tmp_path, memory)).faults == []


async def test_what_waits_for_the_disk_is_bounded_and_the_rest_counted(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(trails, "_WAITING", 2)
    async with trail(tmp_path) as made:
        disk.full = True
        for _ in range(5):
            with pytest.raises(VaultError):
                made.happened(LINE)
        disk.full = False
        made.look()
    assert len(told(tmp_path, "write")) == 2
    assert {"event": "log", "count": 3, "reason": "the log is written again"} in told(
        tmp_path, "log"
    )


async def test_files_change_by_size_and_with_the_day(tmp_path):
    clock, memory = ManualClock(), Remembered()
    async with trail(tmp_path, memory, clock=clock, segment=400) as made:
        for _ in range(4):
            made.put(LINE)
        by_size = len(list(tmp_path.iterdir()))
        assert by_size > 2
        clock.advance(86_400_000)
        made.put(LINE)
        assert len(list(tmp_path.iterdir())) == by_size + 1
    assert (await verified(tmp_path, memory)).faults == []


async def test_with_sync_a_line_is_flushed_and_those_that_wait_share_a_flush(tmp_path, disk):
    async with trail(tmp_path, sync=True) as made:
        await made.flushed()
        before = disk.flushes
        made.put(LINE)
        await asyncio.gather(*(made.flushed() for _ in range(20)))
        assert disk.flushes - before == 1
        assert made.flushes


async def test_with_sync_a_disk_that_does_not_take_it_is_told(tmp_path, disk):
    made = await opened(tmp_path, sync=True)
    made.put(LINE)
    disk.full = True
    with pytest.raises(VaultError) as raised:
        await made.flushed()
    assert raised.value.code is Code.AUDIT_DOWN
    disk.full = False
    await made.close(Remembered())


async def test_with_sync_a_full_file_that_does_not_reach_the_disk_is_told(tmp_path, monkeypatch):
    real, full = os.fsync, -1

    def fsync(descriptor: int) -> None:
        nonlocal full
        if descriptor == full:
            full = -1  # once: the number is soon that of another file
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    made = await opened(tmp_path, sync=True, segment=400)
    await made.flushed()
    assert made._segment is not None
    full = made._segment.descriptor
    while len(list(tmp_path.iterdir())) == 1:
        made.put(LINE)
    with pytest.raises(VaultError) as raised:
        await made.flushed()
    assert (raised.value.code, made.fault) == (Code.AUDIT_DOWN, "Input/output error")
    await made.close(Remembered())


async def test_hands_on_the_file_of_a_running_log_raise_an_alarm(tmp_path):
    kinds: list[str] = []
    memory = Remembered()
    async with trail(tmp_path, memory) as made:
        made.alarm = kinds.append
        made.put(LINE)
        made.look()
        assert kinds == []
        next(tmp_path.iterdir()).unlink()
        made.look()
        assert kinds == ["log"]
        made.put(LINE)
    assert told(tmp_path, "alarm") != []
    assert "are missing" in (await verified(tmp_path, memory)).faults[0].text


async def test_a_checkpoint_remembers_the_last_line_that_is_on_the_disk(tmp_path, disk):
    memory = Remembered()
    async with trail(tmp_path, memory) as made:
        made.put(LINE)
        await made.checkpoint(memory)
        first = memory.content
        await made.checkpoint(memory)
        assert memory.content is first, "nothing new was written"
        made.put(LINE)
        disk.full = True
        await made.checkpoint(memory)
        assert memory.content is first, "what is not on the disk is not remembered"
        disk.full = False


async def test_old_files_go_and_the_rest_is_still_whole(tmp_path):
    clock, memory = ManualClock(), Remembered()
    async with trail(tmp_path, memory, clock=clock, segment=400, keep=10_000) as made:
        for _ in range(6):
            made.put(LINE)
        paths = sorted(tmp_path.iterdir())
        for path in paths:
            os.utime(path, (clock() / 1000, clock() / 1000))
        await made.expire(memory)
        assert sorted(tmp_path.iterdir()) == paths
        clock.advance(10_001)
        await made.expire(memory)
        assert set(tmp_path.iterdir()) & set(paths) == {paths[-1]}, "the one that grows stays"
    assert (await verified(tmp_path, memory)).faults == []


class Failing(Remembered):
    """A memory whose store takes nothing, as on a full disk."""

    async def write(self, content: bytes) -> None:
        raise VaultError(Code.VAULT_DOWN, "full")


async def test_a_memory_that_takes_nothing_is_no_reason_not_to_start(tmp_path):
    memory, reported = Failing(), list[VaultError]()
    made = await open_trail(Options(tmp_path), MAC, ManualClock(), memory)
    await made.begin(memory, reported.append)
    assert [error.code for error in reported] == [Code.VAULT_DOWN]
    assert made.fault is None, "lines are written all the same"
    made.put(LINE)
    await made.close(memory)
    assert [line["n"] for line in lines(tmp_path)] == [1, 2, 3]


async def test_old_files_that_cannot_be_removed_are_told_of_and_tried_again(tmp_path, monkeypatch):
    clock, memory = ManualClock(), Remembered()
    async with trail(tmp_path, memory, clock=clock, segment=400, keep=10_000) as made:
        for _ in range(6):
            made.put(LINE)
        for path in tmp_path.iterdir():
            os.utime(path, (clock() / 1000, clock() / 1000))
        clock.advance(10_001)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", _refused)
            with pytest.raises(VaultError, match="Read-only file system") as raised:
                await made.expire(memory)
        assert raised.value.code is Code.NOT_WRITABLE
        await made.expire(memory)
        assert len(list(tmp_path.iterdir())) == 1
    assert (await verified(tmp_path, memory)).faults == []


def _refused(_path: Path, missing_ok: bool) -> None:
    assert missing_ok
    raise OSError(30, "Read-only file system")


async def test_run_looks_after_the_log_and_reports_what_the_memory_cannot_do(tmp_path, monkeypatch):
    monkeypatch.setattr(trails, "_LOOK", 0.001)
    monkeypatch.setattr(trails, "_CHECKPOINT", 0.0)
    monkeypatch.setattr(trails, "_EXPIRE", 0.0)

    class Broken(Remembered):
        async def read(self) -> bytes | None:
            raise VaultError(Code.VAULT_DOWN, "gone")

    made, reported, ticked = await opened(tmp_path), asyncio.Queue[VaultError](), asyncio.Event()
    made.ticks.append(ticked.set)
    work = asyncio.create_task(made.run(Broken(), reported.put_nowait))
    async with asyncio.timeout(20):
        assert (await reported.get()).code is Code.VAULT_DOWN
        await ticked.wait()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await made.close(Broken())
    assert told(tmp_path, "log")[-1]["reason"] == "stopped"
