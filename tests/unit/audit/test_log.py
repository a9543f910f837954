import asyncio
import os
from pathlib import Path

import pytest

from proxy.audit.events import EventKind, encode_event
from proxy.audit.files import CUT, FOREIGN, MISSING
from proxy.audit.log import AuditOptions, check_folder, open_log
from proxy.errors import Code, VaultError
from tests.support.audit import KEY, Remembered, lines, opened, told, trail, verified
from tests.support.clock import ManualClock
from tests.support.patience import PATIENCE

LINE = encode_event(EventKind.WRITE, schema="p")


class Disk:
    """Writes that can be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.flushes = 0
        self._write, self._fsync = os.write, os.fsync
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "fsync", self.fsync)

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
    async with trail(tmp_path, memory, look=0.0) as made:
        disk.full = True
        for ask in (made.put, made.put_or_queue):
            with pytest.raises(VaultError) as raised:
                ask(LINE)
            assert raised.value.code is Code.AUDIT_DOWN
        with pytest.raises(VaultError):
            made.ready()
        faults = [made.fault]
        disk.full = False
        made.ready()
        assert [*faults, made.fault] == [f"{tmp_path}: No space left on device", None]
        made.put(encode_event(EventKind.DELETE))
    late, after = told(tmp_path)
    assert late["event"] == "write"
    assert late["since"].startswith("2023-11-14T22:13:20")
    assert after == {"event": "delete"}
    assert (await verified(tmp_path, memory)).faults == []


async def test_who_leaves_the_log_to_another_process_writes_nothing_any_more(tmp_path):
    async with trail(tmp_path) as made:
        made.put(LINE)
        made.leave()
        for ask in (made.put, made.put_or_queue):
            with pytest.raises(VaultError) as raised:
                ask(LINE)
            assert raised.value.code is Code.AUDIT_DOWN
        made.look()
    assert [line["event"] for line in lines(tmp_path)] == ["log", "write"], "not that it stopped"


async def test_a_start_on_a_full_disk_has_its_line_when_there_is_room(tmp_path, disk):
    memory = Remembered()
    disk.full = True
    made = await opened(tmp_path, memory, look=0.0)
    assert made.fault is not None
    disk.full = False
    made.look()
    await made.close()
    reasons = [line["reason"] for line in told(tmp_path, "log")]
    assert reasons == ["started", "the log is written again", "stopped"]
    assert (await verified(tmp_path, memory)).faults == []


async def test_what_waits_for_the_disk_is_bounded_and_the_rest_counted(tmp_path, disk):
    async with trail(tmp_path, look=0.0, waiting=2) as made:
        disk.full = True
        for _ in range(5):
            with pytest.raises(VaultError):
                made.put_or_queue(LINE)
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
    made = await opened(tmp_path, sync=True, look=0.0)
    made.put(LINE)
    disk.full = True
    with pytest.raises(VaultError) as raised:
        await made.flushed()
    assert raised.value.code is Code.AUDIT_DOWN
    disk.full = False
    await made.close()


async def test_with_sync_a_full_file_that_does_not_reach_the_disk_is_told(tmp_path, monkeypatch):
    real, full = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal full
        if os.fstat(descriptor).st_ino == full:
            full = 0
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    made = await opened(tmp_path, sync=True, segment=400)
    await made.flushed()
    (path,) = tmp_path.iterdir()
    full = path.stat().st_ino
    while len(list(tmp_path.iterdir())) == 1:
        made.put(LINE)
    with pytest.raises(VaultError) as raised:
        await made.flushed()
    assert (raised.value.code, made.fault) == (Code.AUDIT_DOWN, f"{tmp_path}: Input/output error")
    await made.close()


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
    async with trail(tmp_path, memory, look=0.0) as made:
        made.put(LINE)
        await made.checkpoint()
        first = memory.content
        await made.checkpoint()
        assert memory.content is first, "nothing new was written"
        made.put(LINE)
        disk.full = True
        await made.checkpoint()
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
        await made.expire()
        assert sorted(tmp_path.iterdir()) == paths
        clock.advance(10_001)
        await made.expire()
        assert set(tmp_path.iterdir()) & set(paths) == {paths[-1]}, "the one that grows stays"
    assert (await verified(tmp_path, memory)).faults == []


class Failing(Remembered):
    """A memory whose store takes nothing, as on a full disk."""

    async def write(self, content: bytes) -> None:
        raise VaultError(Code.VAULT_DOWN, "full")


async def test_a_memory_that_takes_nothing_is_no_reason_not_to_start(tmp_path, capsys):
    made = await open_log(AuditOptions(tmp_path), [KEY], ManualClock(), Failing())
    await made.begin()
    assert "maintenance of the audit log failed" in capsys.readouterr().err
    assert made.fault is None, "lines are written all the same"
    made.put(LINE)
    await made.close()
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
                await made.expire()
        assert raised.value.code is Code.NOT_WRITABLE
        await made.expire()
        assert len(list(tmp_path.iterdir())) == 1
    assert (await verified(tmp_path, memory)).faults == []


def _refused(_path: Path, missing_ok: bool) -> None:
    assert missing_ok
    raise OSError(30, "Read-only file system")


async def test_run_looks_after_the_log_and_goes_on_after_faults_of_the_memory(tmp_path, capsys):
    class Broken(Remembered):
        down = False

        async def read(self) -> bytes | None:
            if self.down:
                raise VaultError(Code.VAULT_DOWN, "gone")
            return await super().read()

    memory, ticked = Broken(), asyncio.Event()
    made = await opened(tmp_path, memory, look=0.001, checkpoint=0.0, expire=0.0)
    memory.down = True
    made.ticks.append(ticked.set)
    work = asyncio.create_task(made.run())
    async with asyncio.timeout(PATIENCE):
        for _ in range(2):
            await ticked.wait()
            ticked.clear()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await made.close()
    assert "maintenance of the audit log failed" in capsys.readouterr().err
    assert told(tmp_path, "log")[-1]["reason"] == "stopped"


# ---- opening


async def put(folder: Path, memory: Remembered, count: int = 3) -> None:
    async with trail(folder, memory) as made:
        for _ in range(count):
            made.put(encode_event(EventKind.WRITE))


async def alarms(folder: Path, memory: Remembered) -> list[str]:
    async with trail(folder, memory):
        pass
    return [line["reason"] for line in lines(folder) if line["event"] == "alarm"]


async def test_the_chain_goes_on_where_it_ended(tmp_path):
    memory = Remembered()
    await put(tmp_path, memory)
    await put(tmp_path, memory)
    assert [line["n"] for line in lines(tmp_path)] == list(range(1, 11))
    assert await alarms(tmp_path, memory) == []


async def test_an_unfinished_line_is_cut_off_and_told_of(tmp_path):
    memory = Remembered()
    await put(tmp_path, memory)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + b'{"n":6,"at":"20')
    await put(tmp_path, memory)
    assert (await verified(tmp_path, memory)).faults == []
    assert [line["reason"] for line in lines(tmp_path) if line.get("reason") == CUT] == [CUT]


async def test_a_file_that_has_no_whole_line_is_gone_on_in(tmp_path):
    memory = Remembered()
    await put(tmp_path, memory)
    (tmp_path / "audit-000000000000000006.jsonl").write_bytes(b"")
    await put(tmp_path, memory)
    assert (await verified(tmp_path, memory)).faults == []
    other = tmp_path / "other"
    other.mkdir()
    (other / "audit-000000000000000001.jsonl").write_bytes(b"{")
    await put(other, Remembered())
    assert (await verified(other)).faults == []


async def test_lines_that_were_cut_off_raise_an_alarm_and_the_gap_stays(tmp_path):
    memory = Remembered()
    await put(tmp_path, memory)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    assert await alarms(tmp_path, memory) == [MISSING]
    (fault,) = (await verified(tmp_path, memory)).faults
    assert (fault.line, fault.text) == (3, "Lines 3 to 5 are missing before it.")
    assert await alarms(tmp_path, memory) == [MISSING], "one alarm for one loss"


async def test_a_folder_that_was_emptied_raises_an_alarm(tmp_path):
    memory = Remembered()
    kinds: list[str] = []
    await put(tmp_path, memory)
    for path in tmp_path.iterdir():
        path.unlink()
    made = await open_log(AuditOptions(tmp_path), [KEY], ManualClock(), memory, kinds.append)
    await made.begin()
    await made.close()
    assert kinds == ["log"]
    assert lines(tmp_path)[0]["n"] == 6


async def test_a_last_line_of_somebody_else_raises_an_alarm(tmp_path):
    memory = Remembered()
    await put(tmp_path, memory)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes().replace(b'"reason":"stopped"', b'"reason":"stripped"'))
    assert await alarms(tmp_path, memory) == [FOREIGN]
    assert len((await verified(tmp_path, memory)).faults) == 1


async def test_a_start_that_fails_later_has_written_nothing(tmp_path):
    memory = Remembered()
    await put(tmp_path, memory)
    (path,) = tmp_path.iterdir()
    before = (path.read_bytes(), memory.content)
    made = await open_log(AuditOptions(tmp_path), [KEY], ManualClock(), memory)
    await made.close()
    assert (path.read_bytes(), memory.content) == before


async def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(VaultError) as raised:
        await opened(tmp_path / "file")
    assert raised.value.code is Code.NOT_WRITABLE
    assert "audit.folder" in raised.value.message
    for place in (tmp_path / "file", tmp_path / "file" / "audit"):
        with pytest.raises(VaultError) as looked:
            check_folder(place)
        assert looked.value.code is Code.NOT_WRITABLE
    check_folder(tmp_path)
    check_folder(tmp_path / "new" / "audit")
    assert not (tmp_path / "new").exists()
