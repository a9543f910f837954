import gc

from proxy.model.schema import Value


def test_a_number_is_not_the_text_of_it() -> None:
    assert Value("1.0", json=True) != Value("1.0")
    assert Value("1.0", json=True) != Value("1.00", json=True)
    assert len({Value("a"), Value("a"), Value("a", json=True)}) == 2


def test_values_cost_the_cycle_collector_nothing() -> None:
    assert not gc.is_tracked(Value("Ann"))
