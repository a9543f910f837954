import asyncio

import pytest

from proxy.edge.limits import ConcurrencyLimit
from proxy.errors import Code, VaultError


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_as_many_as_may_go_on_and_the_others_in_the_order_in_which_they_came():
    turns, went = ConcurrencyLimit(2, 10), []

    async def one(name: str) -> None:
        await turns.enter("a")
        went.append(name)

    tasks = [asyncio.create_task(one(str(number))) for number in range(5)]
    await settled()
    assert went == ["0", "1"]
    turns.leave("a")
    await settled()
    assert went == ["0", "1", "2"]
    turns.leave("a")
    turns.leave("a")
    await asyncio.gather(*tasks)
    assert went == ["0", "1", "2", "3", "4"]
    turns.leave("a")
    turns.leave("a")
    assert len(turns) == 0


async def test_nobody_waits_for_another():
    turns = ConcurrencyLimit(1, 10)
    await turns.enter("a")
    waiting = asyncio.create_task(turns.enter("a"))
    await settled()
    await turns.enter("b")
    assert not waiting.done()
    turns.leave("a")
    await waiting


@pytest.mark.parametrize("code", [Code.TOO_MANY_REQUESTS, Code.TOO_MANY_UPLOADS])
async def test_where_the_line_is_full_the_next_is_refused(code):
    told: list[int] = []
    turns = ConcurrencyLimit(1, 0, code, lambda: told.append(1))
    await turns.enter("a")
    with pytest.raises(VaultError) as caught:
        await turns.enter("a")
    assert (caught.value.code, caught.value.retry_after, told) == (code, 1, [1])
    turns.leave("a")
    await turns.enter("a")
    turns.leave("a")
    assert len(turns) == 0


async def test_who_goes_away_leaves_its_place_in_the_line():
    turns = ConcurrencyLimit(1, 10)
    await turns.enter("a")
    gone, stays = asyncio.create_task(turns.enter("a")), asyncio.create_task(turns.enter("a"))
    await settled()
    gone.cancel()
    await settled()
    turns.leave("a")
    await stays
    turns.leave("a")
    assert len(turns) == 0


async def test_who_goes_away_as_its_turn_comes_hands_it_on():
    turns = ConcurrencyLimit(1, 10)
    await turns.enter("a")
    gone, stays = asyncio.create_task(turns.enter("a")), asyncio.create_task(turns.enter("a"))
    await settled()
    turns.leave("a")
    gone.cancel()
    await stays
    assert gone.cancelled() or gone.done()
    turns.leave("a")
    assert len(turns) == 0


async def test_what_weighs_more_takes_the_place_of_several_and_none_goes_before_it():
    turns, went = ConcurrencyLimit(4, 10), []

    async def one(name: str, weight: int) -> None:
        await turns.enter("a", weight)
        went.append(name)

    tasks = [
        asyncio.create_task(one(name, weight))
        for name, weight in (("x", 3), ("heavy", 3), ("y", 1), ("z", 9))
    ]
    await settled()
    assert went == ["x"]
    turns.leave("a", 3)
    await settled()
    assert went == ["x", "heavy", "y"]
    turns.leave("a", 3)
    await settled()
    assert went == ["x", "heavy", "y"]
    turns.leave("a", 1)
    await asyncio.gather(*tasks)
    assert went == ["x", "heavy", "y", "z"], "what is too heavy for any place has it alone"
    turns.leave("a", 9)
    assert len(turns) == 0


async def test_those_behind_one_that_went_away_find_its_room():
    turns = ConcurrencyLimit(2, 10)
    await turns.enter("a", 1)
    heavy, light = (
        asyncio.create_task(turns.enter("a", 2)),
        asyncio.create_task(turns.enter("a", 1)),
    )
    await settled()
    heavy.cancel()
    await light
    turns.leave("a")
    turns.leave("a")
    assert len(turns) == 0
