from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.storage.rows import Cells, Column, ColumnType, StagedKind, read_staged, scaled, spelled
from tests.support.table import table

COLUMNS = (Column("a", ColumnType.TEXT), Column("d", ColumnType.DECIMAL))


@given(st.decimals(min_value=-999999999999, max_value=999999999999, places=4))
def test_a_decimal_comes_back_equal_and_keeps_its_order(value: Decimal) -> None:
    stored = scaled(str(value))
    assert stored is not None
    assert Decimal(spelled(stored) or "") == value
    assert stored == value * 10_000


@table(("stored", "text"), [(0, "0"), (-1, "-0.0001"), (125_000, "12.5"), (-120_000, "-12")])
def test_the_shortest_spelling_is_read(stored: int, text: str) -> None:
    assert spelled(stored) == text


@table("unfit", ["1e-5", "1e12", "x", "sNaN", "-Infinity", "", b"1"])
def test_what_does_not_fit_is_refused_without_its_value(unfit: str) -> None:
    with pytest.raises(VaultError) as caught:
        scaled(unfit)
    assert caught.value.code is Code.INTERNAL
    with pytest.raises(VaultError) as other:
        scaled("something else")
    assert caught.value.message == other.value.message


def test_only_decimals_change_on_their_way() -> None:
    cells = Cells(COLUMNS)
    assert cells.stored(("1.50", "1.50")) == ("1.50", 15_000)
    assert cells.read(("1.50", 15_000)) == ("1.50", "1.5")
    assert cells.stored((None, None)) == cells.read((None, None)) == (None, None)


def test_cells_of_a_layout_that_has_grown_since_are_those_of_its_first_columns() -> None:
    cells = Cells(COLUMNS)
    assert cells.stored(()) == (None, None)
    assert cells.stored(("a",)) == ("a", None)


def test_more_cells_than_columns_are_refused() -> None:
    with pytest.raises(VaultError):
        Cells(COLUMNS).stored(("a", "1", "2"))


@table(("number", "kind"), [(1, 1), (2, 2), (0, 1), (9_223_372_036_854, 1)])
def test_a_staged_change_is_read_whatever_number_somebody_wrote_as_its_kind(number, kind):
    change = read_staged((7, 1, number, 5, None, 0, b"sealed"))
    assert (change.sid, change.kind, change.body) == (7, StagedKind(kind), b"sealed")
