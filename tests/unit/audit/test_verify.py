from pathlib import Path
from typing import Any

from proxy.audit.chain import CHAIN_START, MOST_FAULTS, LogFindings
from proxy.audit.events import EventKind, encode_event
from proxy.audit.verify import ROLLED_BACK, LineFilter, LogReader, number_of
from tests.support.audit import Remembered, auditor, trail, verified


async def logged(folder: Path, memory: Remembered, count: int = 6, **given: Any) -> None:
    async with trail(folder, memory, **given) as made:
        for number in range(count):
            made.put(encode_event(EventKind.WRITE, count=number))


async def test_an_untouched_log_has_no_faults_across_files_and_starts(tmp_path):
    memory = Remembered()
    await logged(tmp_path, memory, segment=700)
    await logged(tmp_path, memory, segment=700)
    found = await verified(tmp_path, memory)
    assert found.faults == []
    assert found.lines == found.last.n == 16
    assert found.files > 2


async def test_an_empty_folder_is_in_order_only_where_nothing_is_remembered(tmp_path):
    assert (await verified(tmp_path, Remembered())).last == CHAIN_START
    memory = Remembered()
    await logged(tmp_path, memory)
    for path in tmp_path.iterdir():
        path.unlink()
    assert [fault.line for fault in (await verified(tmp_path, memory)).faults] == [0]


async def test_a_file_that_was_taken_away_or_stands_there_twice_is_found(tmp_path):
    memory = Remembered()
    await logged(tmp_path, memory, segment=700)
    first, second = sorted(tmp_path.iterdir())[:2]
    kept = first.read_bytes()
    first.unlink()
    (fault,) = (await verified(tmp_path, memory)).faults
    assert (fault.file, fault.line) == (second.name, 1)
    assert fault.text.startswith("Lines 1 to ")
    first.write_bytes(kept)
    (tmp_path / "audit-000000000000000099.jsonl").write_bytes(kept)
    faults = (await verified(tmp_path, memory)).faults
    assert faults[0].file == "audit-000000000000000099.jsonl"
    assert "moved, or there twice" in faults[0].text


async def test_a_log_under_another_key_has_a_fault_in_every_line(tmp_path):
    await logged(tmp_path, Remembered())
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes().replace(b'"hash":"', b'"hash":"0', 1))
    path.write_bytes(path.read_bytes().replace(b'"reason":"started"', b'"reason":"strated"', 1))
    faults = (await verified(tmp_path)).faults
    assert [fault.line for fault in faults] == [1]
    assert "Is no line of an audit log" in faults[0].text


def test_of_very_many_faults_the_number_is_told():
    found = LogFindings()
    for number in range(MOST_FAULTS + 5):
        found.add("a", number, "x")
    assert (len(found.faults), found.more) == (MOST_FAULTS, 5)


# ---- reader


LINE = encode_event(EventKind.WRITE)


async def test_lines_come_once_in_their_order_across_files_while_they_are_written(tmp_path):
    reader = LogReader(tmp_path)
    assert list(reader.lines()) == []
    async with trail(tmp_path, segment=300) as made:
        seen = [number for number, _ in reader.lines()]
        assert seen == [1]
        for _ in range(7):
            made.put(LINE, LINE)
            seen += [number for number, _ in reader.lines()]
        assert seen == list(range(1, 16))
        assert list(reader.lines()) == []
    reader.close()
    later = LogReader(tmp_path, after=12)
    assert [number for number, _ in later.lines()] == [13, 14, 15, 16]
    later.close()


async def test_a_line_that_is_being_written_is_waited_for(tmp_path):
    async with trail(tmp_path):
        pass
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    reader = LogReader(tmp_path)
    assert [number for number, _ in reader.lines()] == [1]
    path.write_bytes(whole)
    assert [number for number, _ in reader.lines()] == [2]
    reader.close()


async def test_old_files_that_went_are_skipped(tmp_path):
    async with trail(tmp_path, segment=300) as made:
        for _ in range(5):
            made.put(LINE)
        min(tmp_path.iterdir()).unlink()
        reader = LogReader(tmp_path)
        assert next(iter(reader.lines()))[0] > 1
        reader.close()


def test_what_is_no_line_has_no_number():
    assert [number_of(line) for line in (b"", b"{}", b'{"n":x,', b'{"n":12,"at"')] == [0, 0, 0, 12]


def test_the_chains_of_workers_are_verified_and_searched_with_it(tmp_path):
    lines = [encode_event(EventKind.WRITE, by=who) for who in ("ann", "bob", "ann")]
    tmp_path = tmp_path / "log"
    own = auditor(tmp_path, *lines[:2])._replace(
        others=(auditor(tmp_path / "worker-1", *lines), auditor(tmp_path / "worker-3", *lines[2:]))
    )
    findings = own.verify()
    own.compare(findings)
    assert (findings.lines, findings.files, findings.faults) == (6, 3, [])
    assert [(one["worker"], one["lines"]) for one in findings.as_json()["workers"]] == [
        ("worker-1", 3), ("worker-3", 1),
    ]  # fmt: skip
    after, more, pages = 0, True, []
    while more:
        page = own.search(LineFilter(by="ann"), after, 1)
        after, more = page.after, page.more
        pages += page.lines
    assert len(pages) == 4
    assert own.search(LineFilter(), 2**50, 1).lines == [], "behind all of them"
    (segment,) = (tmp_path / "worker-1").glob("audit-*")
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:-1]))
    own.compare(findings)
    assert [fault.text for fault in findings.faults] == [ROLLED_BACK]
    segment.write_bytes(segment.read_bytes().replace(b"bob", b"eve"))
    (fault,) = own.verify().faults
    assert (fault.file, fault.line) == (f"worker-1/{segment.name}", 2)
