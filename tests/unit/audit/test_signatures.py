"""What a public key tells of lines, to somebody who cannot write one."""

from pathlib import Path

import pytest

from proxy.audit.chain import CHAIN_START, LogFindings, LogKey, chain_lines
from proxy.audit.events import EventKind, encode_event
from proxy.audit.files import FOREIGN, segment_path
from proxy.audit.log import AuditOptions, open_log
from proxy.audit.verify import log_lines, shipped_lines, verify_log
from proxy.crypto.public_keys import AuditKey
from tests.support.audit import KEY, Remembered, lines, log_key, opened, signatures, told, verified
from tests.support.clock import ManualClock

LINE = encode_event(EventKind.WRITE, schema="p")
NEXT = log_key(AuditKey.create())


def proven(folder: Path, *keys: LogKey) -> LogFindings:
    """What somebody finds who has these public keys and no secret."""
    return verify_log(log_lines(folder), signatures(*keys))


async def put(folder: Path, memory: Remembered, count: int = 3) -> None:
    """One life of a log: count lines, signed after the first of them and at the end."""
    log = await opened(folder, memory)
    log.notes = lambda: 7
    for number in range(count):
        log.put(LINE)
        if number == 0:
            await log.checkpoint()
    await log.close()


def rewritten(folder: Path, before: bytes, after: bytes) -> None:
    """Somebody with the keyed hash, and without the private key, changes lines and all behind them."""
    n, prev = 0, CHAIN_START.hash.encode()
    for path in sorted(folder.glob("*.jsonl")):
        fresh = b""
        for line in path.read_bytes().replace(before, after).splitlines():
            start, end = line.index(b',"at":"') + 7, line.rindex(b',"prev":')
            made, n, prev = chain_lines(
                KEY.mac, (n, prev), line[start : start + 24], [line[start + 26 : end]]
            )
            fresh += made
        path.write_bytes(fresh)


async def test_everything_up_to_the_last_signed_line_is_proven_over_starts(tmp_path: Path) -> None:
    memory = Remembered()
    for _ in range(2):
        await put(tmp_path, memory)
    found = proven(tmp_path)
    assert (found.faults, found.proven, found.notes) == ([], [(1, 12)], 7)
    signed = [line for line in lines(tmp_path) if "signature" in line]
    assert [line["reason"] for line in signed] == ["signed", "stopped"] * 2


async def test_after_a_crash_the_lines_that_were_not_signed_yet_are_with_the_next_ones(
    tmp_path: Path,
) -> None:
    memory = Remembered()
    log = await opened(tmp_path, memory)
    log.put(LINE)
    await log.checkpoint()
    log.put(LINE)
    log._writer.close()  # the process is gone
    assert (proven(tmp_path).proven, proven(tmp_path).last.n) == ([(1, 3)], 4)
    await put(tmp_path, memory)
    assert (proven(tmp_path).faults, proven(tmp_path).proven) == ([], [(1, 10)])


async def test_who_verifies_cannot_forge(tmp_path: Path) -> None:
    await put(tmp_path, Remembered())
    rewritten(tmp_path, b'"schema":"p"', b'"schema":"q"')
    keyed = (await verified(tmp_path)).faults
    assert [fault.text for fault in keyed] == [
        "The lines before it are not those that it was signed for."
    ] * 2, "the keyed hashes hold, for who rewrote the log has their key"
    found = proven(tmp_path)
    assert len(found.faults) == 2
    assert found.proven == []


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (b'"notes":7', b'"notes":9', "Its signature does not hold."),
        (b'"reason":"stopped"', b'"reason":"started"', "Its signature does not hold."),
    ],
)
async def test_a_signed_line_cannot_be_changed(
    tmp_path: Path, before: bytes, after: bytes, fault: str
) -> None:
    await put(tmp_path, Remembered())
    rewritten(tmp_path, before, after)
    assert fault in {one.text for one in proven(tmp_path).faults}


async def test_lines_that_are_missing_are_named_and_the_rest_is_proven(tmp_path: Path) -> None:
    memory = Remembered()
    for _ in range(2):
        await put(tmp_path, memory)
    path = segment_path(tmp_path, 1)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:4] + whole[5:]))
    found = proven(tmp_path)
    assert [fault.text for fault in found.faults] == ["Line 5 is missing before it."]
    assert found.proven == [(1, 3), (6, 12)]
    path.write_bytes(b"".join(whole[4:]))
    found = proven(tmp_path)
    assert (found.faults, found.proven) == ([], [(6, 12)])


async def test_another_key_writes_from_its_line_on_and_older_lines_verify_for_ever(
    tmp_path: Path,
) -> None:
    memory = Remembered()
    log = await opened(tmp_path, memory)
    log.put(LINE)
    log.put_signed("another key writes the log", NEXT)
    log.put(LINE)
    await log.checkpoint()
    log._writer.close()  # as after a crash: the memory knows the newer key
    log = await open_log(AuditOptions(tmp_path), [KEY, NEXT], ManualClock(), memory)
    assert log.key == NEXT
    log.put(LINE)
    await log.close()
    found = verify_log(log_lines(tmp_path), signatures(KEY, NEXT), [KEY, NEXT])
    assert (found.faults, found.proven) == ([], [(1, found.last.n)])
    assert verify_log(log_lines(tmp_path), signatures(), [KEY]).faults != []
    for key in (KEY, NEXT):
        alone = proven(tmp_path, key)
        assert (alone.faults, alone.proven) == ([], [(1, found.last.n)]), (
            "the older key introduces the newer one, and the newer one signs for all lines"
        )
    stranger = proven(tmp_path, log_key(AuditKey.create()))
    assert (stranger.faults, stranger.proven) == ([], [])


async def test_an_older_key_writes_no_more_once_another_one_has(tmp_path: Path) -> None:
    memory = Remembered()
    log = await opened(tmp_path, memory)
    log.put_signed("another key writes the log", NEXT)
    await log.close()
    link = log.link
    path = segment_path(tmp_path, 1)
    forged, *_ = chain_lines(
        KEY.mac, (link.n, link.hash.encode()), b"2026-11-22T03:00:00.000Z", [LINE]
    )
    path.write_bytes(path.read_bytes() + forged)
    log = await open_log(AuditOptions(tmp_path), [KEY, NEXT], ManualClock(), memory)
    await log.begin()
    await log.close()
    assert [line["reason"] for line in told(tmp_path, "alarm")] == [FOREIGN]
    found = verify_log(log_lines(tmp_path), signatures(KEY, NEXT), [KEY, NEXT])
    assert found.faults[0].line == link.n + 1


async def test_lines_that_were_shipped_are_read_with_what_a_collector_adds(tmp_path: Path) -> None:
    await put(tmp_path / "audit", Remembered())
    (path,) = (tmp_path / "audit").glob("*.jsonl")
    whole = path.read_bytes().splitlines(keepends=True)
    shipped = [tmp_path / "one.log", tmp_path / "two.log"]
    head = b"<110>1 2026-11-22T03:00:00.000Z host domicile 1 audit - "
    shipped[0].write_bytes(b"".join(head + line for line in whole[:4]))
    shipped[1].write_bytes(b"".join(head + line for line in whole[2:]))
    found = verify_log(shipped_lines(shipped), signatures())
    assert (found.faults, found.proven, found.lines) == ([], [(1, 6)], 6)
