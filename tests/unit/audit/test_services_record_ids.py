import re

from proxy.audit.services import record_ids
from proxy.crypto.prf import hasher

MARK = record_ids(hasher(b"k" * 32))


def test_a_record_has_one_mark_and_another_record_another():
    assert MARK("default", "p", "1") == MARK("default", "p", "1")
    cases = [
        ("default", "p", "1"),
        ("other", "p", "1"),
        ("default", "q", "1"),
        ("default", "p", "2"),
        ("default", "p1", ""),
    ]
    assert len({MARK(*case) for case in cases}) == len(cases)


def test_without_the_key_nobody_makes_it():
    assert record_ids(hasher(b"x" * 32))("default", "p", "1") != MARK("default", "p", "1")


def test_any_key_can_be_marked_and_a_mark_is_one_word():
    for key in ("", "å\U0001f600", "\ud800", "a\0b", "x" * 10_000):
        assert re.fullmatch(r"[A-Za-z0-9_-]{12}", MARK("default", "p", key))
