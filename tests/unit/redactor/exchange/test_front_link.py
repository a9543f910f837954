import asyncio
import time
from typing import Any, cast

import msgspec
import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange import front_link
from proxy.redactor.exchange.owner import OwnerTerms, VaultOwner
from proxy.redactor.exchange.owner_protocol import PROTOCOL, Fail, RulesAnswer
from tests.support.exchanges import desk
from tests.support.fronts import fronted
from tests.support.patience import PATIENCE, until
from tests.support.table import table


async def test_what_begins_while_the_owner_is_replaced_waits_for_the_next_one():
    async with fronted(await desk(), patience=5) as one:
        before = await one.link.channel()
        call = await one.send("POST /p", {"name": "Ann"})
        before_it, one.owner = one.owner, VaultOwner(one.in_force, OwnerTerms("se", b"secret"))
        draining = asyncio.create_task(before_it.drain(5))
        one.up = False
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(one.send("POST /p", {"name": "Bo"}))
        await asyncio.sleep(0.05)
        assert not draining.done(), "an exchange is under way"
        assert not waiting.done()
        await call.answer(201, {**call.json, "id": 1})  # over the connection that it began on
        await draining
        one.up = True
        assert (await waiting).json["name"] != "Bo"
        assert await one.link.channel() is not before


async def test_an_owner_that_says_nothing_is_left(monkeypatch):
    monkeypatch.setattr(front_link, "_ANSWER", 0.1)
    async with fronted(await desk()) as one:
        channel = await one.link.channel()
        with pytest.raises(VaultError, match="does not answer"):
            await channel.ask(Fail(99, False))  # of no exchange: nothing is to be told


async def test_a_pause_of_this_process_is_no_silence_of_its_owner():
    """A front that is stopped for longer than an owner may be silent goes on where it was."""
    async with fronted(await desk(), patience=5) as one:
        channel = await one.link.channel()
        for _ in range(3):
            speaks = asyncio.ensure_future(channel.speaks(look=0.02, gone=0.1))
            await asyncio.sleep(0)
            time.sleep(0.2)  # noqa: ASYNC251  # as a SIGSTOP does
            assert await speaks


class Busy(front_link.FrontChannel):
    """A connection whose owner answers others, for so many looks, and never this question."""

    looks = 10

    async def ask(self, question: object) -> None:
        self.connection = cast("Any", self)
        await asyncio.Event().wait()

    def spoke(self) -> bool:
        self.looks -= 1
        return self.looks > 0


async def test_an_owner_that_answers_others_is_there_and_one_that_says_nothing_is_left():
    channel = Busy(cast("Any", None))
    assert not await channel.speaks(look=0.01, gone=0.02)
    assert channel.looks == -1


class Timers:
    """A loop whose time is told."""

    def __init__(self) -> None:
        self.now, self.set = 0.0, list[tuple[float, Any]]()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, ring: Any) -> str:
        self.set.append((when, ring))
        return "timer"

    def ring(self) -> None:
        self.now, ring = self.set.pop()
        assert self.set == [], "one timer looks after all"
        ring()


async def test_each_question_ends_in_its_own_time_and_what_was_answered_never_does():
    channel, timers = front_link.FrontChannel(cast("Any", None)), Timers()
    channel._loop = cast("Any", timers)
    first, second, third = (asyncio.get_running_loop().create_future() for _ in range(3))
    for number, waiting in enumerate((first, second, third)):
        timers.now = 10.0 * number
        channel.begin(Fail(number, False), waiting)
    channel._receive(msgspec.msgpack.encode([RulesAnswer(1, has=True)]))
    timers.ring()
    assert (first.done(), third.done()) == (True, False)
    assert second.result().has
    timers.ring()
    assert timers.now == 20 + front_link._ANSWER
    assert third.exception() is not None
    assert (timers.set, channel._waiting) == ([], {})
    with pytest.raises(VaultError, match="does not answer"):
        first.result()


async def test_another_protocol_is_told_and_used_for_nothing(monkeypatch):
    async with fronted(await desk(), patience=0.1) as one:
        monkeypatch.setattr(front_link, "PROTOCOL", PROTOCOL + 1)
        await one.lost()
        with pytest.raises(VaultError) as caught:
            await one.link.channel()
        assert caught.value.code is Code.VAULT_DOWN
        assert one.link.fault is not None
        assert "run the same version in both" in one.link.fault


async def test_an_owner_that_ends_begins_nothing_for_those_who_still_come_to_it():
    async with fronted(await desk(), patience=5) as one:
        call = await one.send("POST /p", {"name": "Ann"})
        draining = asyncio.create_task(one.owner.drain(5))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(one.send("POST /p", {"name": "Bo"}))
        await until(lambda: one.connections > 1)  # it was tried
        assert not waiting.done()
        await call.answer(201, {**call.json, "id": 1})
        await draining
        one.owner = VaultOwner(one.in_force, OwnerTerms("se", b"secret"))
        assert (await waiting).json["name"] != "Bo"


class Quiet(front_link.FrontChannel):
    """A connection whose owner answers at once."""

    async def ask(self, question: object) -> None:
        """Nothing is wrong."""


@table("turns", range(5))
async def test_a_front_that_ends_while_its_owner_leaves_comes_to_its_end(turns):
    """A cancellation is never lost: the process did not end then, and was killed after 28 s."""
    async with fronted(await desk()) as one:
        watching = asyncio.create_task(one.link._watch(channel := Quiet(one.link)))
        await asyncio.sleep(0.02)
        channel.retired.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        in_time = watching.cancel()
        await asyncio.wait([watching], timeout=PATIENCE)
        assert watching.cancelled() is in_time
        channel.welcome.cancel()
