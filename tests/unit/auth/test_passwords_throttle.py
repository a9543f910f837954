import pytest

from proxy.auth.passwords import (
    BY_ADDRESS,
    BY_CLIENT,
    BY_SITE,
    EXPIRY,
    MOST_OF_CLIENT,
    KnownNetworks,
    Throttle,
)
from proxy.auth.sealed_notes import SealedNote
from proxy.clock import ManualClock
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.memory import MemoryStore

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


def test_a_client_guessed_at_from_many_addresses_waits_at_none_of_its_own():
    throttle = Throttle(ManualClock())
    for number in range(1000):
        fail(throttle, 5, "shop", f"203.0.{number // 256}.{number % 256}")
    assert throttle.wait("shop", HOME) == 0, "an address from which nobody failed"
    throttle.succeeded("shop", HOME)
    assert throttle.wait("shop", HOME) == 0


def test_strangers_behind_the_same_address_do_not_slow_down_a_client_that_is_known_there():
    throttle = Throttle(ManualClock())
    throttle.succeeded("shop", HOME)
    for number in range(100):
        fail(throttle, 1, f"c{number}", HOME)
    assert throttle.wait("shop", HOME) == 0
    assert throttle.wait("other", HOME) > 0


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
    for number in range(BY_SITE.burst):
        fail(throttle, 1, f"c{number}", f"2001:db8:0:{number:x}::1")
    assert throttle.wait("another", "2001:db8:0:ffff::1") > 0, (
        "a site has so many networks as it likes"
    )
    assert throttle.wait("another", "2001:db8:1::1") == 0
    assert throttle.wait("another", "fe80::1%eth0") == 0


def test_memory_is_bounded_whatever_names_are_made_up():
    throttle = Throttle(ManualClock(), kept=100)
    for number in range(2000):
        throttle.failed(f"{number}" + "x" * 1000, f"10.0.{number // 256}.{number % 256}")
        throttle.succeeded(f"{number}", HOME)
        throttle.failed(f"{number}", HOME)
    assert len(throttle) <= 400
    assert all(len(pair[0]) <= 64 for pair in throttle._pairs._empty_at)


def test_success_costs_nothing():
    throttle = Throttle(ManualClock())
    for _ in range(1000):
        throttle.succeeded("shop", HOME)
    assert throttle.wait("shop", HOME) == 0


def note(store: MemoryStore, keyset: Keyset) -> SealedNote:
    return SealedNote(store, keyset.aead(), "default", "networks")


async def test_where_a_client_has_authenticated_from_is_known_after_a_restart_until_it_expires():
    store, keyset, clock = MemoryStore(), Keyset.create("default"), ManualClock()
    known = KnownNetworks(clock, note(store, keyset))
    known.add(("shop", HOME))
    await known.save()
    stored = await store.note("networks:default")
    assert stored is not None
    assert HOME.encode() not in stored, "it is sealed"
    again = KnownNetworks(clock, note(store, keyset))
    await again.load()
    assert ("shop", HOME) in again
    assert ("shop", STRANGER) not in again
    clock.advance(EXPIRY)
    assert ("shop", HOME) not in again
    await again.save()
    assert await store.note("networks:default") == stored, (
        "nothing has changed that is worth a note"
    )
    again.add(("other", HOME))
    await again.save()
    fresh = KnownNetworks(clock, note(store, keyset))
    await fresh.load()
    assert len(fresh) == 1, "what has expired is not written again"


async def test_a_note_that_somebody_else_has_written_is_written_at_the_next_try():
    store, keyset, clock = MemoryStore(), Keyset.create("default"), ManualClock()
    one, other = (
        KnownNetworks(clock, note(store, keyset)),
        KnownNetworks(clock, note(store, keyset)),
    )
    await one.load()
    await other.load()
    one.add(("shop", HOME))
    other.add(("shop", STRANGER))
    await one.save()
    await other.save()
    await other.save()
    fresh = KnownNetworks(clock, note(store, keyset))
    await fresh.load()
    assert ("shop", STRANGER) in fresh


async def away(*_: object) -> None:
    raise VaultError(Code.OVERLOADED, "away")


async def test_a_store_that_takes_no_note_is_asked_again():
    store, keyset, clock = MemoryStore(), Keyset.create("default"), ManualClock()
    known = KnownNetworks(clock, note(store, keyset))
    known.add(("shop", HOME))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "put_note", away)
        with pytest.raises(VaultError):
            await known.save()
    await known.save()
    assert await store.note("networks:default") is not None


def test_a_client_with_many_addresses_drives_out_its_own_oldest_alone():
    known = KnownNetworks(ManualClock(), most=1000)
    known.add(("shop", HOME))
    for number in range(MOST_OF_CLIENT + 10):
        known.add(("crowd", f"10.0.0.{number}"))
    assert ("shop", HOME) in known
    assert len(known) == MOST_OF_CLIENT + 1
    assert ("crowd", "10.0.0.0") not in known
