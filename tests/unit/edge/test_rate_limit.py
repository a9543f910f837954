import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.edge.rate_limit import RateLimit, RatePolicy
from tests.support.limits import time_of_limits

# Of eight requests a second each takes a part of a second that adds up without a rest, so that a
# moment can be hit exactly.


def rates(per_second: int, burst: int = 2) -> RateLimit:
    return RateLimit(RatePolicy("credential", per_second, burst), capacity=100)


def test_a_burst_is_taken_at_once_and_then_so_many_a_second(limits_clock):
    made = rates(8)
    assert [made.take("a").allowed for _ in range(17)] == [True] * 16 + [False]
    limits_clock.now += 0.125
    assert [made.take("a").allowed for _ in range(2)] == [True, False]
    limits_clock.now += 1.0
    assert sum(made.take("a").allowed for _ in range(20)) == 8
    limits_clock.now += 100
    assert sum(made.take("a").allowed for _ in range(50)) == 16


@pytest.mark.parametrize("per_second", [1, 3, 7, 10, 1000])
@pytest.mark.parametrize("now", [0.0, 1000.1, 1e6 / 3])
def test_a_burst_is_whole_at_any_time_and_pace(limits_clock, per_second, now):
    """A clock goes on between two requests, and so a fraction that has no end takes nothing from
    anybody.
    """
    limits_clock.now = now
    made = rates(per_second)
    for left in reversed(range(2 * per_second)):
        assert made.take("a")[:2] == (True, left)
        limits_clock.now += 2e-9  # a thousandth of what a request takes
    assert made.take("a") == (False, 0, 1)


def test_it_is_told_how_much_is_left_and_how_long_to_wait(limits_clock):
    made = rates(8)
    assert made.take("a") == (True, 15, 1)
    for _ in range(14):
        made.take("a")
    assert made.take("a") == (True, 0, 2)
    assert made.take("a") == (False, 0, 1)
    limits_clock.now += 2
    assert made.take("a") == (True, 15, 1)


@pytest.mark.usefixtures("limits_clock")
def test_a_caller_without_a_name_is_counted_too():
    made = rates(1, 1)
    assert (made.take("").allowed, made.take("").allowed, made.full("")) == (True, False, True)


def test_refused_requests_do_not_make_the_wait_longer(limits_clock):
    made = rates(1, 1)
    made.take("a")
    for _ in range(50):
        assert not made.take("a").allowed
    limits_clock.now += 1
    assert made.take("a").allowed


@pytest.mark.usefixtures("limits_clock")
def test_nobody_pays_for_another():
    made = rates(1, 1)
    assert made.take("a").allowed
    assert not made.take("a").allowed
    assert made.take("b").allowed


@pytest.mark.usefixtures("limits_clock")
def test_a_look_costs_nothing():
    made = rates(1, 1)
    assert [made.full("a") for _ in range(3)] == [False] * 3
    made.take("a")
    assert made.full("a")


def test_who_owes_elsewhere_is_refused():
    made = rates(10)
    made.owing.add("a")
    assert (made.take("a"), made.full("a")) == ((False, 0, 1), True)
    assert made.take("b").allowed


@pytest.mark.usefixtures("limits_clock")
def test_what_others_count_is_noted_only_where_somebody_does():
    made = rates(8)
    made.take("a")
    assert made.used is None
    made.used = {}
    for _ in range(30):
        made.take("a")
    assert made.used == {"a": 15}


def test_memory_is_bounded_and_who_has_used_most_is_remembered(limits_clock):
    made = rates(10)
    for number in range(1_000):
        made.take(f"k{number}")
        limits_clock.now += 10
    assert len(made) <= 100
    for _ in range(15):
        made.take("busy")
    for number in range(1_000):
        made.take(f"l{number}")
    assert len(made) <= 100
    assert made.take("busy").remaining < 10


def test_the_policy_is_told_as_the_draft_writes_it():
    assert RatePolicy("credential", 1000, 2).text == '"credential";q=2000;w=2'


@given(st.lists(st.floats(0, 0.5), max_size=200), st.integers(1, 20), st.integers(1, 3))
def test_no_window_holds_more_than_its_share(steps, per_second, burst):
    """Whatever the pace: in any stretch of time, the burst and so many a second are never exceeded."""
    taken: list[float] = []
    with time_of_limits() as clock:
        made = rates(per_second, burst)
        for step in steps:
            clock.now += step
            if made.take("a").allowed:
                taken.append(clock.now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            most = per_second * burst + (taken[last] - taken[first]) * per_second
            assert last - first + 1 <= most + 1e-3 + 1
