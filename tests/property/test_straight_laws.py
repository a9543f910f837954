"""The straight way gives what the general way gives: the same bytes to the application and to the
caller, the same rows, lines of the audit log, and counts.

``make explore`` draws new exchanges, that many times as many; a hundred thousand are
``EXPLORE=125 pytest tests/property/test_straight_laws.py``.
"""

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.crypto.keyset import Keyset
from proxy.errors import VaultError
from tests.support.effort import EXPLORE, rounds
from tests.support.twoways import ACTS, Draw, House, carried, house

EXCHANGES = 800


async def told(one: House, key: str) -> dict[object, object]:
    """All that is compared."""
    return {
        "sent": [one.plain(request) for request in one.seen],
        "audit": one.audit.lines,
        "stored": await one.stored(key),
        **await one.counts(),
    }


#: A front and its owner: the shares of exchanges that it carries in few steps differ.
WAYS = {"straight": (1 / 3, 1 / 20), "behind a front": (1 / 3, 0)}


@pytest.mark.parametrize("way", WAYS)
async def test_both_ways_give_the_same(tmp_path: Path, way: str) -> None:
    keyset, seed = Keyset.create("test"), random.randrange(1 << 30) if EXPLORE else 7
    draw, acts = Draw(seed), Counter[str]()
    unlike = {"steps"} if "front" in way else set()  # a front does not know all of them
    for name in ("straight", "general"):
        (tmp_path / name).mkdir()
    async with (
        house(tmp_path / "straight", keyset, straight=True, fronted="front" in way) as straight,
        house(tmp_path / "general", keyset, straight=False) as general,
    ):
        for number in range(rounds(EXCHANGES)):
            exchange = draw.exchange()
            acts[exchange.act] += 1
            where = f"exchange {number} of seed {seed}: {exchange}"
            shown = [await carried(one, exchange) for one in (straight, general)]
            assert shown[0] == shown[1], where
            draw.created(straight.number)
            target = exchange.request.split(b" ", 2)[1].decode().rpartition("/")[2]
            key = target if target.isdigit() else str(straight.number)
            both = [await told(one, key) for one in (straight, general)]
            for what in (both[0].keys() | both[1].keys()) - unlike:
                same = both[0].get(what) == both[1].get(what)
                assert same, (
                    f"{what}: {both[0].get(what)} | {both[1].get(what)}, {where}, {straight.straight}"
                )
            for one in (straight, general):
                one.seen.clear()
                one.audit.lines.clear()
            if number % 20 == 19:
                for one in (straight, general):
                    one.clock.advance(1000)
                    with suppress(VaultError):  # a late settle has met the fault as well
                        await one.vault.upkeep()
    assert general.straight["straight"] == 0
    in_few_steps, handed_over = WAYS[way]
    assert straight.straight["straight"] > EXCHANGES * in_few_steps, straight.straight
    assert straight.straight["handed over"] >= EXCHANGES * handed_over, straight.straight
    assert set(acts) == set(ACTS), "not everything was tried"
