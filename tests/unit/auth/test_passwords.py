import asyncio
import threading
from contextlib import suppress

import pytest

from proxy.auth import passwords as module
from proxy.auth.passwords import Passwords
from proxy.errors import Code, VaultError


@pytest.fixture
async def passwords():
    made = Passwords(threads=1, waiting=2)
    await made.prepare()
    yield made
    made.close()


async def test_the_right_secret_fits_and_no_other(passwords):
    secret, stored = await passwords.made()
    assert await passwords.fits(stored, secret)
    assert not await passwords.fits(stored, secret + "x")
    assert not await passwords.fits(None, secret)


async def test_a_client_that_does_not_exist_costs_the_same_work_and_never_fits(
    passwords, monkeypatch
):
    compared: list[str] = []

    def watched(stored: str, _secret: str) -> bool:
        compared.append(stored)
        return True

    monkeypatch.setattr(module, "verify_secret", watched)
    _, stored = await passwords.made()
    assert await passwords.fits(stored, "secret")
    assert not await passwords.fits(None, "secret")
    known, nobody = compared
    # the same algorithm and the same parameters
    assert known.rsplit("$", 2)[0] == nobody.rsplit("$", 2)[0]
    assert len(known) == len(nobody)


async def test_the_event_loop_goes_on_while_a_secret_is_checked(passwords, monkeypatch):
    going, began = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(_stored: str, _secret: str) -> bool:
        loop.call_soon_threadsafe(began.set)
        return going.wait(10)

    monkeypatch.setattr(module, "verify_secret", slow)
    task = asyncio.create_task(passwords.fits("stored", "secret"))
    await began.wait()
    going.set()
    assert await task


async def test_more_than_can_wait_are_told_to_come_later(passwords):
    going = asyncio.Event()

    async def one() -> None:
        async with passwords.turn():
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


async def test_without_preparation_nothing_is_said_of_unknown_clients():
    made = Passwords(threads=1)
    with pytest.raises(RuntimeError):
        await made.fits(None, "secret")
    made.close()


async def served(passwords: Passwords, waiting: list[tuple[str, bool]]) -> list[str]:
    """In which order these have their turn, where each waits while one check is under way; those
    that gave way are left out.
    """
    order: list[str] = []
    going = asyncio.Event()

    async def busy() -> None:
        async with passwords.turn():
            await going.wait()

    async def one(name: str, source: str, known: bool) -> None:
        with suppress(VaultError):
            async with passwords.turn(source, known=known):
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
    passwords = Passwords(threads=1, waiting=20)
    crowd = [("a", False)] * 6 + [("b", False), ("c", False), ("k", True), ("k", True)]
    assert await served(passwords, crowd) == [
        "k8",
        "k9",
        "a0",
        "b6",
        "c7",
        "a1",
        "a2",
        "a3",
        "a4",
        "a5",
    ]
    passwords.close()


async def test_known_sources_leave_a_turn_to_others_now_and_then():
    passwords = Passwords(threads=1, waiting=20)
    assert (await served(passwords, [("a", False)] + [("k", True)] * 8)).index("a0") == 4
    passwords.close()


async def test_where_no_room_is_left_the_longest_line_gives_way():
    passwords = Passwords(threads=1, waiting=4)
    order = await served(
        passwords,
        [("a", False)] * 4 + [("b", False), ("k", True), ("a", False), ("k", True), ("k", True)],
    )
    assert [name[0] for name in order] == ["k", "k", "k", "b"]
    assert passwords._room == 4
    passwords.close()


async def test_who_goes_away_while_it_waits_leaves_its_place():
    passwords, going = Passwords(threads=1, waiting=2), asyncio.Event()

    async def one(source: str) -> None:
        async with passwords.turn(source):
            await going.wait()

    first, second, third = (asyncio.create_task(one(source)) for source in "abc")
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    assert passwords._room == 1
    going.set()
    await asyncio.gather(first, third)
    assert (passwords._room, passwords._free) == (2, 1)
    passwords.close()
