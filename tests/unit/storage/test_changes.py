from proxy.storage.changes import Conflict, Release, Remove


def test_a_conflict_names_its_change_and_no_content() -> None:
    change = Release(b"k", 1, 0)
    error = Conflict(change, (b"h",))
    assert (str(error), error.change, error.hashes) == ("Release", change, (b"h",))


def test_history_goes_with_its_row_unless_told() -> None:
    assert Remove(1).keep_past is False
