from proxy.storage.rows import Row, State


def test_a_row_has_nothing_beside_it_unless_told() -> None:
    row = Row(1, None, None, State.PENDING, 1, 0, 0, None, b"", b"")
    assert (row.cells, row.staged) == ((), 0)
