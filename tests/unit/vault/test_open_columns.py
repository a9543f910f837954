import sys
from collections.abc import Callable

from proxy.crypto.keyset import Keyset
from proxy.storage.rows import ColumnValue, Row, RowState
from proxy.vault.body import RecordBody
from proxy.vault.open_columns import OpenColumns, binds_columns, packed_in
from proxy.vault.seal import Sealer
from tests.support.table import table

NAMES = ("c1", "c2", "c10")
CELLS: tuple[ColumnValue, ...] = ("red", None, b"h" * 16)


def row(cells: tuple[ColumnValue, ...] = CELLS, expires: int | None = 9) -> Row:
    return Row(7, None, None, RowState.LIVE, 1, 3, 5, expires, b"s", b"b", cells)


def bound(cells: tuple[ColumnValue, ...] = CELLS, names: tuple[str, ...] = NAMES) -> bytes:
    return OpenColumns(names).bind(3, 5, 9, cells) + b"{packed}"


def test_a_body_tells_its_columns_and_gives_back_what_was_packed() -> None:
    assert binds_columns(bound())
    assert OpenColumns(NAMES).check(bound(), row()) == (b"{packed}", 5)
    assert packed_in(bound()) == packed_in(b"{packed}") == b"{packed}"
    assert not binds_columns(b"{packed}")
    nothing = OpenColumns(NAMES).bind(3, 5, None, (None,)) + b"x"
    assert OpenColumns(NAMES).check(nothing, row((None, None), None)) == (b"x", 5)
    assert packed_in(nothing) == b"x"


@table(
    "changed",
    [
        row()._replace(created_at=4), row(expires=None), row(expires=10),
        row(("blue", None, b"h" * 16)), row((None, "red", b"h" * 16)), row(("red", "x", b"h" * 16)),
        row(("red", None, None)), row((None, None, None)), row(("red", None, "h" * 16)),
    ],
)  # fmt: skip
def test_every_changed_column_shows(changed: Row) -> None:
    assert OpenColumns(NAMES).check(bound(), changed) is None


def test_a_column_that_a_layout_has_got_since_says_nothing_while_it_has_no_value() -> None:
    grown = OpenColumns(NAMES[:1])
    grown.adopt((*NAMES, "c11"))
    assert grown.check(bound(), row((*CELLS, None))) == (b"{packed}", 5)
    assert grown.check(bound(), row((*CELLS, "x"))) is None
    assert grown.check(bound(("red",)), row(("red",))) == (b"{packed}", 5)


def test_a_column_that_is_not_read_any_more_leaves_the_others_as_they_were_named() -> None:
    fewer = OpenColumns(("c1", "c2"))
    assert fewer.check(bound(), row(("red", None))) == (b"{packed}", 5)
    assert fewer.check(bound(), row(("red", "new"))) is None


def steps(work: Callable[[], object]) -> int:
    """How many functions it calls, those of libraries too."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    work()  # what is made once
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_telling_the_columns_is_a_small_part_of_sealing() -> None:
    """All of it is one hash and one pack."""
    columns = OpenColumns(NAMES)
    sealer = Sealer(Keyset.create("test").aead(), "test", "person", columns)
    content, made = RecordBody(fields={"id": "a", "name": "x" * 60}), row()
    made = made._replace(salt=sealer.new_salt())
    whole = steps(lambda: sealer.with_body(made, content))
    assert steps(lambda: columns.bind(3, 5, 9, CELLS)) < whole / 2
