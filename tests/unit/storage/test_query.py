from proxy.storage.query import MATCH_ALL, Compare


def test_nothing_that_has_to_hold_always_holds() -> None:
    assert MATCH_ALL.parts == ()


def test_comparisons_are_those_of_the_database_language() -> None:
    assert {how.value for how in Compare} == {">", ">=", "<", "<="}
