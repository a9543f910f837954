"""What the owners of a store agree to, and who does what there is to do for all."""

import asyncio
from itertools import count
from typing import Any, cast

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.notes import Agreement
from proxy.vault.replicas import agreement_on, taking_turns, until_agreed, until_alone
from tests.support.memory import MemoryStore


class Others:
    """Other owners, who agree when they have been asked often enough; and their locks."""

    def __init__(self, asked: int = 0) -> None:
        self.left = asked
        self.locked: set[bytes] = set()

    async def disagreeing(self, _agreement: Agreement) -> list[str]:
        self.left -= 1
        return ["instance 3 (of an earlier version, which cannot agree)"] if self.left >= 0 else []

    async def lock(self, names: tuple[bytes, ...], *, wait: bool) -> bool:
        assert not wait
        if self.locked.intersection(names):
            return False
        self.locked.update(names)
        return True

    def unlock(self, names: tuple[bytes, ...]) -> None:
        self.locked.difference_update(names)


def store_with(others: Others) -> MemoryStore:
    store = MemoryStore()
    store.replicas = cast(Any, others)
    return store


async def test_a_change_waits_until_all_agree_and_names_those_that_do_not() -> None:
    numbers = count()

    async def agree() -> Agreement:
        return agreement_on("catalog:x", b"%d" % next(numbers))

    await until_agreed(MemoryStore(), agree)
    assert next(numbers) == 0, "there is nobody to agree with"
    await until_agreed(store_with(Others(3)), agree, pause=0.001)
    assert next(numbers) == 5, "what is agreed to is looked at each time"
    with pytest.raises(VaultError, match="instance 3") as caught:
        await until_agreed(store_with(Others(10**6)), agree, 0.01, 0.001)
    assert caught.value.code is Code.REPLICAS_RUNNING


def test_nobody_proposes_what_everybody_agrees_to() -> None:
    proposals = {agreement_on("x", content).proposal for content in (None, b"1", b"2")}
    assert (len(proposals), 0 in proposals) == (3, False)


async def test_one_owner_at_a_time_does_what_is_to_be_done() -> None:
    store, story = store_with(Others()), list[str]()

    async def turn(name: str) -> None:
        async with taking_turns(store, "fill", 0.001):
            story.append(name)
            await asyncio.sleep(0.01)
            story.append(name)

    await asyncio.gather(turn("a"), turn("b"))
    assert story in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


async def test_what_only_one_that_is_alone_may_do_waits_for_that() -> None:
    class Beside:
        told = iter((None, None, 3))

        async def alone(self) -> int | None:
            return next(self.told)

    store = MemoryStore()
    await until_alone(store)
    store.replicas = cast(Any, Beside())
    await until_alone(store, 0.001)
    assert list(Beside.told) == []
