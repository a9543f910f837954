import pytest

from proxy.redactor.restore import splice


def test_stretches_are_replaced_and_all_else_stays():
    assert splice(b"0123456789", [(8, 9, b"xyz"), (0, 2, b""), (4, 5, b"-")]) == b"23-567xyz9"


def test_nothing_to_do_leaves_the_body():
    assert splice(b"body", []) == b"body"
    assert splice(b"", []) == b""


def test_insertions_at_one_place_keep_their_order():
    assert splice(b"ab", [(1, 1, b"x"), (1, 1, b"y"), (2, 2, b"z")]) == b"axybz"


@pytest.mark.parametrize(
    "edits",
    [
        [(0, 3, b""), (2, 4, b"")],
        [(1, 0, b"")],
        [(3, 5, b"")],
        [(-1, 1, b"")],
        [(0, 2, b""), (1, 1, b"x")],
    ],
)
def test_overlapping_and_outlying_edits_are_refused(edits):
    with pytest.raises(ValueError, match="overlaps"):
        splice(b"0123", edits)
