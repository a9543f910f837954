"""What counts as slow, by a clock that the test sets."""

from proxy.net.memory_budget import SLOWEST_BODY, Pace


def test_who_has_just_begun_is_in_time_for_a_second():
    pace = Pace()
    pace.wait(100.0)
    assert pace.behind(100.9) < 0
    assert pace.behind(101.5) == SLOWEST_BODY / 2


def test_single_bytes_fall_behind():
    pace = Pace()
    for second in range(5):
        pace.wait(float(second))
        pace.came(1, second + 1.0)
    pace.wait(5.0)
    assert pace.behind(5.0) == 4 * SLOWEST_BODY - 5


def test_who_sends_as_expected_never_falls_behind():
    pace = Pace()
    for second in range(100):
        pace.wait(float(second))
        assert pace.behind(second + 0.9) <= 0
        pace.came(SLOWEST_BODY, second + 1.0)


def test_what_came_at_once_is_soon_used_up():
    pace = Pace()
    pace.wait(0.0)
    pace.came(10_000_000, 0.1)
    pace.wait(0.1)
    assert pace.behind(2.0) < 0
    assert pace.behind(3.1) == SLOWEST_BODY


def test_the_time_in_which_somebody_else_is_slow_does_not_count():
    pace = Pace()
    pace.wait(0.0)
    pace.came(10, 0.5)
    assert pace.behind(1000.0) == 0
    pace.wait(1000.0)
    assert pace.behind(1000.0) < 0
