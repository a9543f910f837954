import os
from pathlib import Path

import pytest

from proxy.audit.files import (
    LogSegment,
    first_of,
    last_instant,
    log_end,
    log_segments,
    segment_path,
)
from proxy.offload import flush_folder


def test_names_are_in_the_order_of_their_first_lines(tmp_path):
    for number in (100, 9, 1):
        segment_path(tmp_path, number).write_bytes(b"")
    assert [first_of(path) for path in log_segments(tmp_path)] == [1, 9, 100]
    assert first_of(Path("audit-x.jsonl")) == 0


@pytest.mark.parametrize(
    ("content", "end"),
    [
        (b"", (b"", 0, 0)),
        (b"half", (b"", 0, 4)),
        (b"one\n", (b"one\n", 4, 0)),
        (b"one\ntwo\nhal", (b"two\n", 8, 3)),
        (b"x" * 200_000 + b"\n" + b"y" * 150_000 + b"\nz", (b"y" * 150_000 + b"\n", 350_002, 1)),
    ],
)
def test_the_end_of_a_file_is_found_without_reading_it_all(tmp_path, content, end):
    path = tmp_path / "audit-1.jsonl"
    path.write_bytes(content)
    assert log_end(path) == end


def test_the_instant_of_the_last_line_is_read_wherever_it_stands(tmp_path):
    assert last_instant(tmp_path / "none") == last_instant(tmp_path) == 0
    line = b'{"n":7,"at":"1970-01-02T00:00:01.250Z","event":"log","prev":"","hash":""}\n'
    segment_path(tmp_path, 7).write_bytes(line)
    segment_path(tmp_path, 8).write_bytes(b"torn")
    assert last_instant(tmp_path) == 86_401_250
    segment_path(tmp_path, 9).write_bytes(b"no line\n")
    assert last_instant(tmp_path) == 0, "the log itself tells of that"


def test_an_unfinished_line_is_cut_off_before_the_next_one(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one\nhal")
    segment = LogSegment(path, 4)
    segment.append(b"two\n")
    segment.close()
    segment.close()
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_write_that_fails_in_its_middle_leaves_nothing(tmp_path, monkeypatch):
    segment = LogSegment(tmp_path / "a")
    segment.append(b"one\n")
    real = os.write

    def partly(descriptor: int, data: bytes) -> int:
        if len(data) < 4:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[:2])

    monkeypatch.setattr(os, "write", partly)
    with pytest.raises(OSError, match="No space"):
        segment.append(b"two\n")
    monkeypatch.undo()
    assert (tmp_path / "a").read_bytes() == b"one\n"
    segment.append(b"three\n")
    segment.flush()
    flush_folder(tmp_path)
    assert segment.intact
    assert (tmp_path / "a").read_bytes() == b"one\nthree\n"
    segment.close()


def test_a_file_that_was_changed_moved_or_removed_is_no_longer_intact(tmp_path):
    path = tmp_path / "a"
    segment = LogSegment(path)
    segment.append(b"one\n")
    seen = [segment.intact]
    path.write_bytes(b"one\nmore\n")
    seen.append(segment.intact)
    path.unlink()
    seen.append(segment.intact)
    path.write_bytes(b"one\n")
    seen.append(segment.intact)
    assert seen == [True, False, False, False]
    segment.close()
