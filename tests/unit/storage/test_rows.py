from proxy.storage.rows import Row, RowState


def test_a_row_has_nothing_beside_it_unless_told() -> None:
    row = Row(1, None, None, RowState.PENDING, 1, 0, 0, None, b"", b"")
    assert (row.cells, row.staged) == ((), 0)
