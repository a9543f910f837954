import asyncio
import threading

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


async def test_a_client_that_does_not_exist_costs_the_same_work_and_never_fits(passwords, monkeypatch):
    compared: list[str] = []

    def watched(stored: str, _secret: str) -> bool:
        compared.append(stored)
        return True

    monkeypatch.setattr(module, "fits", watched)
    _, stored = await passwords.made()
    assert await passwords.fits(stored, "secret")
    assert not await passwords.fits(None, "secret")
    known, nobody = compared
    assert known.rsplit("$", 2)[0] == nobody.rsplit("$", 2)[0]  # the same algorithm and the same parameters
    assert len(known) == len(nobody)


async def test_the_event_loop_goes_on_while_a_secret_is_checked(passwords, monkeypatch):
    going, began = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(_stored: str, _secret: str) -> bool:
        loop.call_soon_threadsafe(began.set)
        return going.wait(10)

    monkeypatch.setattr(module, "fits", slow)
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
