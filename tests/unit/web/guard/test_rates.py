from hypothesis import given
from hypothesis import strategies as st

from proxy.web.guard.rates import Policy, Rates


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def rates(per_second: int, burst: int = 2, kept: int = 100) -> tuple[Rates, Clock]:
    clock = Clock()
    return Rates(Policy("credential", per_second, burst), clock, kept), clock


def test_a_burst_is_taken_at_once_and_then_so_many_a_second():
    made, clock = rates(10)
    assert [made.take("a").allowed for _ in range(21)] == [True] * 20 + [False]
    clock.now += 0.1
    assert [made.take("a").allowed for _ in range(2)] == [True, False]
    clock.now += 1.0
    assert sum(made.take("a").allowed for _ in range(20)) == 10
    clock.now += 100
    assert sum(made.take("a").allowed for _ in range(50)) == 20


def test_it_is_told_how_much_is_left_and_how_long_to_wait():
    made, clock = rates(10)
    assert made.take("a") == (True, 19, 1)
    for _ in range(18):
        made.take("a")
    assert made.take("a") == (True, 0, 2)
    assert made.take("a") == (False, 0, 1)
    clock.now += 2
    assert made.take("a") == (True, 19, 1)


def test_refused_requests_do_not_make_the_wait_longer():
    made, clock = rates(1, 1)
    made.take("a")
    for _ in range(50):
        assert not made.take("a").allowed
    clock.now += 1
    assert made.take("a").allowed


def test_nobody_pays_for_another():
    made, _ = rates(1, 1)
    assert made.take("a").allowed
    assert not made.take("a").allowed
    assert made.take("b").allowed


def test_a_look_costs_nothing():
    made, _ = rates(1, 1)
    assert [made.full("a") for _ in range(3)] == [False] * 3
    made.take("a")
    assert made.full("a")


def test_who_owes_elsewhere_is_refused():
    made, _ = rates(10)
    made.owing.add("a")
    assert (made.take("a"), made.full("a")) == ((False, 0, 1), True)
    assert made.take("b").allowed


def test_what_others_count_is_noted_only_where_somebody_does():
    made, _ = rates(10)
    made.take("a")
    assert made.used is None
    made.used = {}
    for _ in range(30):
        made.take("a")
    assert made.used == {"a": 19}


def test_memory_is_bounded_and_who_has_used_most_is_remembered():
    made, clock = rates(10, 2, kept=100)
    for number in range(1_000):
        made.take(f"k{number}")
        clock.now += 10
    assert len(made) <= 101
    for _ in range(15):
        made.take("busy")
    for number in range(1_000):
        made.take(f"l{number}")
    assert len(made) <= 101
    assert made.take("busy").remaining < 10


def test_the_policy_is_told_as_the_draft_writes_it():
    assert Policy("credential", 1000, 2).text == '"credential";q=2000;w=2'


@given(st.lists(st.floats(0, 0.5), max_size=200), st.integers(1, 20), st.integers(1, 3))
def test_no_window_holds_more_than_its_share(steps, per_second, burst):
    """Whatever the pace: in any stretch of time, the burst and so many a second are never exceeded."""
    made, clock = rates(per_second, burst)
    taken: list[float] = []
    for step in steps:
        clock.now += step
        if made.take("a").allowed:
            taken.append(clock.now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            most = per_second * burst + (taken[last] - taken[first]) * per_second
            assert last - first + 1 <= most + 1e-3 + 1
