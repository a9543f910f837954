from proxy.audit.chain import CHAIN_START, GENESIS, Checkpoint, Link, parse_line, recall, remember
from proxy.crypto.prf import hasher
from tests.support.audit import MAC, Remembered, chained

AT = "2026-11-22T03:00:00.000Z"


def test_a_line_reads_as_it_was_written_and_is_genuine():
    line, link = chained(CHAIN_START, AT, [b'"event":"log"'])
    found = parse_line(line)
    assert found is not None
    assert (found.n, found.prev, found.link) == (1, GENESIS, link)
    assert found.genuine(MAC)
    assert not found.genuine(hasher(b"x" * 32))


def test_lines_of_one_group_are_tied_to_one_another():
    both, last = chained(Link(7, "a" * 32), AT, [b'"event":"log"', b'"event":"write"'])
    first, second = (parse_line(line) for line in both.splitlines(keepends=True))
    assert first is not None
    assert second is not None
    assert (first.prev, second.prev) == ("a" * 32, first.hash)
    assert last == second.link == Link(9, second.hash)


def test_what_is_no_line_of_ours_is_told_from_one():
    line, _ = chained(CHAIN_START, AT, [b'"event":"log"'])
    assert parse_line(line[:-1]) is not None  # without its end of line, as a reader of lines has it
    for other in (
        b"",
        b"{}\n",
        line[1:],
        line + b"\n",
        line.replace(b'"n":1', b'"n":0'),
        line.replace(b"}", b""),
    ):
        assert parse_line(other) is None


# ---- memory


async def test_what_is_remembered_is_recalled_and_at_first_there_is_nothing():
    memory = Remembered()
    assert await recall(memory) == Checkpoint(CHAIN_START, CHAIN_START)
    await remember(memory, Checkpoint(Link(3, "a" * 32), Link(9, "b" * 32)))
    assert await recall(memory) == Checkpoint(Link(3, "a" * 32), Link(9, "b" * 32))
