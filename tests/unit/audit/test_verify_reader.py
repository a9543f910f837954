from proxy.audit.events import EventKind, encode_event
from proxy.audit.verify import LogReader, number_of
from tests.support.audit import trail

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
