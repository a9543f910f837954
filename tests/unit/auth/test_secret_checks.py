import asyncio
import threading
from contextlib import suppress

import pytest

from proxy.auth import secret_checks as module
from proxy.auth.sealed_notes import SealedNote
from proxy.auth.secret_checks import (
    BY_ADDRESS,
    BY_CLIENT,
    BY_SITE,
    EXPIRY,
    MOST_OF_CLIENT,
    KnownNetworks,
    SecretChecks,
    Throttle,
)
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore


@pytest.fixture
async def secret_checks():
    made = SecretChecks(threads=1, waiting=2)
    yield made
    made.close()


async def test_the_right_secret_fits_and_no_other(secret_checks):
    secret, stored = await secret_checks.create()
    assert await secret_checks.matches(stored, secret)
    assert not await secret_checks.matches(stored, secret + "x")
    assert not await secret_checks.matches(None, secret)


async def test_a_client_that_does_not_exist_costs_the_same_work_and_never_fits(
    secret_checks, monkeypatch
):
    compared: list[str] = []

    def watched(stored: str, _secret: str) -> bool:
        compared.append(stored)
        return True

    monkeypatch.setattr(module, "verify_secret", watched)
    _, stored = await secret_checks.create()
    assert await secret_checks.matches(stored, "secret")
    assert not await secret_checks.matches(None, "secret")
    known, nobody = compared
    # the same algorithm and the same parameters
    assert known.rsplit("$", 2)[0] == nobody.rsplit("$", 2)[0]
    assert len(known) == len(nobody)


async def test_the_event_loop_goes_on_while_a_secret_is_checked(secret_checks, monkeypatch):
    going, began = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(_stored: str, _secret: str) -> bool:
        loop.call_soon_threadsafe(began.set)
        return going.wait(10)

    monkeypatch.setattr(module, "verify_secret", slow)
    task = asyncio.create_task(secret_checks.matches("stored", "secret"))
    await began.wait()
    going.set()
    assert await task


async def test_more_than_can_wait_are_told_to_come_later(secret_checks):
    going = asyncio.Event()

    async def one() -> None:
        async with secret_checks.slot():
            await going.wait()

    tasks = [asyncio.create_task(one()) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(VaultError) as caught:
        await one()
    assert caught.value.code is Code.OVERLOADED
    assert caught.value.retry_after == 1
    going.set()
    await asyncio.gather(*tasks)
    await one()


async def served(secret_checks: SecretChecks, waiting: list[tuple[str, bool]]) -> list[str]:
    """In which order these have their turn, where each waits while one check is under way; those
    that gave way are left out.
    """
    order: list[str] = []
    going = asyncio.Event()

    async def busy() -> None:
        async with secret_checks.slot():
            await going.wait()

    async def one(name: str, source: str, known: bool) -> None:
        with suppress(VaultError):
            async with secret_checks.slot(source, first=known):
                order.append(name)

    tasks = [asyncio.create_task(busy())]
    await asyncio.sleep(0)
    for number, (source, known) in enumerate(waiting):
        tasks.append(asyncio.create_task(one(f"{source}{number}", source, known)))
        await asyncio.sleep(0)
    going.set()
    await asyncio.gather(*tasks)
    return order


async def test_each_source_has_its_turn_after_every_other_one_and_known_ones_come_first():
    secret_checks = SecretChecks(threads=1, waiting=20)
    crowd = [("a", False)] * 6 + [("b", False), ("c", False), ("k", True), ("k", True)]
    assert await served(secret_checks, crowd) == [
        "k8", "k9", "a0", "b6", "c7", "a1", "a2", "a3", "a4", "a5",
    ]  # fmt: skip
    secret_checks.close()


async def test_known_sources_leave_a_turn_to_others_now_and_then():
    secret_checks = SecretChecks(threads=1, waiting=20)
    assert (await served(secret_checks, [("a", False)] + [("k", True)] * 8)).index("a0") == 4
    secret_checks.close()


async def test_where_no_room_is_left_the_longest_line_gives_way():
    secret_checks = SecretChecks(threads=1, waiting=4)
    order = await served(
        secret_checks,
        [("a", False)] * 4 + [("b", False), ("k", True), ("a", False), ("k", True), ("k", True)],
    )
    assert [name[0] for name in order] == ["k", "k", "k", "b"]
    assert secret_checks._room == 4
    secret_checks.close()


async def test_who_goes_away_while_it_waits_leaves_its_place():
    secret_checks, going = SecretChecks(threads=1, waiting=2), asyncio.Event()

    async def one(source: str) -> None:
        async with secret_checks.slot(source):
            await going.wait()

    first, second, third = (asyncio.create_task(one(source)) for source in "abc")
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    assert secret_checks._room == 1
    going.set()
    await asyncio.gather(first, third)
    assert (secret_checks._room, secret_checks._free) == (2, 1)
    secret_checks.close()


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


def test_a_clock_that_is_set_back_locks_nobody_out():
    clock = ManualClock()
    throttle = Throttle(clock)
    for _ in range(20):
        throttle.failed("crm", "192.0.2.1")
    waits = throttle.wait("crm", "192.0.2.1")
    clock.advance(-86_400_000)
    assert 0 < throttle.wait("crm", "192.0.2.1") == waits
    clock.advance(waits)
    assert throttle.wait("crm", "192.0.2.1") == 0


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
    throttle = Throttle(ManualClock(), most=100)
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
        patch.setattr(store, "put_notes", away)
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
