"""The laws of the audit log: whatever is done to its lines is found, and what was not touched is
not complained about.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from proxy.audit.chain import CHAIN_START, Checkpoint, LogFault
from proxy.audit.events import EventKind, encode_event
from proxy.audit.files import segment_path
from proxy.audit.verify import log_lines, verify_log
from tests.support.audit import KEY, chained, signatures
from tests.support.effort import examples

AT = "2026-11-22T03:00:00.000Z"
COUNT = 12
FEW = examples(60)

NUMBERS = st.integers(0, COUNT - 1)


def chain() -> tuple[list[bytes], Checkpoint]:
    """A dozen lines, and what is remembered of them."""
    bodies = [
        encode_event(EventKind.REVEAL, schema="p", records=[f"r{number}"], fields=["email"])
        for number in range(COUNT)
    ]
    whole, last = chained(CHAIN_START, AT, bodies)
    return whole.splitlines(keepends=True), Checkpoint(CHAIN_START, last)


LINES, KNOWN = chain()


def faults(lines: Sequence[bytes], cuts: Sequence[int] = ()) -> list[LogFault]:
    """What is found in these lines, put into files that end at ``cuts``."""
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), 0
        for end in (*sorted(set(cuts)), len(lines)):
            segment_path(folder, start + 1).write_bytes(b"".join(lines[start:end]))
            start = end
        return verify_log(log_lines(folder), signatures(), [KEY], KNOWN).faults


@FEW
@given(st.lists(st.integers(1, COUNT - 1), max_size=4))
def test_an_untouched_log_is_in_order_however_it_is_cut_into_files(cuts):
    assert faults(LINES, cuts) == []


@FEW
@given(NUMBERS, st.lists(st.integers(1, COUNT - 1), max_size=3))
def test_any_line_that_was_removed_is_missed(number, cuts):
    assert (
        faults(LINES[:number] + LINES[number + 1 :], [cut for cut in cuts if cut < COUNT - 1]) != []
    )


@FEW
@given(NUMBERS, st.integers(1, COUNT))
def test_any_run_of_lines_that_was_removed_is_missed(start, count):
    assert faults(LINES[:start] + LINES[start + count :]) != []


@FEW
@given(NUMBERS, st.data())
def test_any_byte_that_was_changed_is_found_in_its_line(number, data):
    line = LINES[number]
    at = data.draw(st.integers(0, len(line) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != line[at]))
    changed = line[:at] + bytes((byte,)) + line[at + 1 :]
    found = faults([*LINES[:number], changed, *LINES[number + 1 :]])
    assert number + 1 in {fault.line for fault in found}


@FEW
@given(NUMBERS, NUMBERS)
def test_any_two_lines_that_changed_places_are_found(one, other):
    swapped = list(LINES)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    assert (faults(swapped) != []) is (one != other)


@FEW
@given(NUMBERS, st.integers(0, COUNT))
def test_a_line_that_stands_there_twice_is_found(number, at):
    assert faults([*LINES[:at], LINES[number], *LINES[at:]]) != []


@FEW
@given(NUMBERS, st.binary(min_size=1, max_size=40))
def test_a_line_by_somebody_without_the_key_is_found(number, text):
    forged = LINES[number][:-1] + text + b"\n"
    assert faults([*LINES[: number + 1], forged, *LINES[number + 1 :]]) != []
