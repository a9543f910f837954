from proxy.auth.throttle import BY_ADDRESS, BY_CLIENT, Throttle
from proxy.clock import ManualClock

HOME, STRANGER = "192.0.2.1", "198.51.100.7"


def fail(throttle: Throttle, times: int, client: str = "shop", address: str = STRANGER) -> None:
    for _ in range(times):
        throttle.failed(client, address)


def test_a_few_failures_cost_nothing_and_more_cost_time():
    clock = ManualClock()
    throttle = Throttle(clock)
    fail(throttle, BY_CLIENT.burst - 1)
    assert throttle.wait("shop", STRANGER) == 0
    fail(throttle, 1)
    assert throttle.wait("shop", STRANGER) == BY_CLIENT.every
    clock.advance(BY_CLIENT.every)
    assert throttle.wait("shop", STRANGER) == 0
    fail(throttle, 1)
    assert throttle.wait("shop", STRANGER) == BY_CLIENT.every


def test_guesses_in_the_long_run_are_one_every_few_seconds():
    clock = ManualClock()
    throttle, guesses = Throttle(clock), 0
    for _ in range(3600):
        clock.advance(1000)
        while throttle.wait("shop", STRANGER) == 0:
            throttle.failed("shop", STRANGER)
            guesses += 1
    assert guesses <= BY_CLIENT.burst + 3_600_000 // BY_CLIENT.every


def test_an_address_that_tries_many_clients_is_slowed_too():
    throttle = Throttle(ManualClock())
    for number in range(BY_ADDRESS.burst):
        assert throttle.wait(f"c{number}", STRANGER) == 0
        fail(throttle, 1, f"c{number}")
    assert throttle.wait("another", STRANGER) == BY_ADDRESS.every
    assert throttle.wait("another", HOME) == 0


def test_a_client_guessed_at_from_many_addresses_is_slowed_for_strangers_only():
    throttle = Throttle(ManualClock())
    throttle.succeeded("shop", HOME)
    for number in range(BY_CLIENT.burst):
        fail(throttle, 1, "shop", f"203.0.113.{number}")
    assert throttle.wait("shop", "203.0.113.200") > 0
    assert throttle.wait("shop", HOME) == 0


def test_a_proved_address_has_no_free_guesses_either():
    throttle = Throttle(ManualClock())
    throttle.succeeded("shop", HOME)
    fail(throttle, BY_CLIENT.burst, "shop", HOME)
    assert throttle.wait("shop", HOME) == BY_CLIENT.every
    assert throttle.wait("other", HOME) == 0  # nobody else behind that address notices


def test_addresses_of_one_ipv6_network_are_one_caller():
    throttle = Throttle(ManualClock())
    for number in range(BY_ADDRESS.burst):
        fail(throttle, 1, f"c{number}", f"2001:db8::{number:x}")
    assert throttle.wait("another", "2001:db8::ffff") > 0
    assert throttle.wait("another", "2001:db8:0:1::1") == 0
    assert throttle.wait("another", "fe80::1%eth0") == 0


def test_memory_is_bounded_whatever_names_are_made_up():
    throttle = Throttle(ManualClock(), kept=100)
    for number in range(2000):
        throttle.failed(f"{number}" + "x" * 1000, f"10.0.{number // 256}.{number % 256}")
        throttle.succeeded(f"{number}", HOME)
        throttle.failed(f"{number}", HOME)
    assert len(throttle) <= 400
    assert all(len(key) <= 64 for key in throttle._clients._empty_at)


def test_success_costs_nothing():
    throttle = Throttle(ManualClock())
    for _ in range(1000):
        throttle.succeeded("shop", HOME)
    assert throttle.wait("shop", HOME) == 0
