from pathlib import Path

import pytest

from proxy.audit.events import EventKind, encode_event
from proxy.audit.files import CUT, FOREIGN, MISSING
from proxy.audit.log import AuditOptions, check_folder, open_log
from proxy.clock import ManualClock
from proxy.errors import Code, VaultError
from tests.support.audit import KEY, Remembered, lines, opened, trail, verified


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
