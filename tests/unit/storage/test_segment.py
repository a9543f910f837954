"""What a segment refuses, so that one statement over all changes of a kind does what they do one
after the other; the engines' own tests run whole groups against the reference.
"""

from collections.abc import Sequence

from proxy.storage.changes import (
    Accept,
    Attach,
    Bind,
    Change,
    Detach,
    MarkInDoubt,
    Release,
    Remove,
    Replace,
    Unstage,
    UpdateFile,
)
from proxy.storage.rows import File
from proxy.storage.segment import Segment, row_left_by
from proxy.storage.sqlite.statements import Statements
from tests.support.rows import LAYOUT, h, insert, row
from tests.support.table import table


class OnceSegment(Segment[Statements]):
    once = True


def taken(kind: type[Segment[Statements]], changes: Sequence[Change]) -> int:
    """How many of the changes a segment takes before it has to run."""
    segment = kind(Statements(LAYOUT))
    return next(
        (at for at, one in enumerate(changes) if not segment.adding[type(one)](segment, one)),
        len(changes),
    )


@table(
    "twice",
    [
        [Accept(1, 1), Accept(1, 2)],
        [Bind(1, h("a"), b"", 1), Bind(1, h("a"), b"x", 2)],
        [Replace(row(1), 1), Replace(row(1), 2)],
        [Release(h("a"), 1, 1), Release(h("a"), 2, 2)],
        [MarkInDoubt(1, 5, 1, True), MarkInDoubt(1, 5, 2, False)],
        [Unstage(1, 5), Unstage(1, 6)],
    ],
)
def test_where_a_statement_runs_once_no_row_comes_twice(twice: list[Change]) -> None:
    assert taken(Segment, twice) == 2
    assert taken(OnceSegment, twice) == 1


def test_changes_of_other_rows_and_of_later_kinds_go_together() -> None:
    changes: list[Change] = [
        insert(1), insert(2), Bind(1, h("a"), b"", 1), Bind(2, h("b"), b"", 1),
        Replace(row(1), 1), Replace(row(2), 1), Remove(1), Remove(2),
    ]  # fmt: skip
    assert taken(OnceSegment, changes) == len(changes)
    assert taken(OnceSegment, [Remove(1), insert(1)]) == 1


def test_a_file_leaves_the_row_that_it_is_taken_from_or_moved_away_from() -> None:
    file = File(h("f"), 2, h("n"), "o", 1, 1, 1, b"")
    assert row_left_by(Attach(file)) is None
    assert row_left_by(UpdateFile(file, 2)) is None
    assert row_left_by(UpdateFile(file, 1)) == 1
    assert row_left_by(Detach(3, h("f"))) == 3
