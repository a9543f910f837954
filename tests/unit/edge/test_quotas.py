import asyncio
import ipaddress

import pytest

from proxy.edge.quotas import ConcurrencyLimit, LimitedError, MissLimit, Quotas, address_group
from proxy.edge.rate_limit import RateLimit, RatePolicy
from proxy.errors import Code, VaultError
from proxy.net.client_address import Trusted
from tests.support.table import table


def test_what_is_off_asks_nobody():
    assert (Quotas().client("a"), Quotas().caller("192.0.2.1")) == (None, None)


@pytest.mark.usefixtures("limits_clock")
def test_too_many_are_refused_with_everything_a_caller_needs_to_know():
    told: list[str] = []
    quotas = Quotas(credential=RateLimit(RatePolicy("credential", 1, 1)))
    assert quotas.client("a", told.append) is not None
    with pytest.raises(LimitedError) as caught:
        quotas.client("a", told.append)
    error = caught.value
    assert (error.code, error.retry_after, told) == (Code.TOO_MANY_REQUESTS, 1, ["credential"])
    assert error.limit == {
        "RateLimit-Policy": '"credential";q=1;w=1',
        "RateLimit": '"credential";r=0;t=1',
    }


@pytest.mark.usefixtures("limits_clock")
def test_an_address_is_a_machine_or_a_household():
    assert address_group("192.0.2.1") == "192.0.2.1"
    assert address_group("2001:db8::1") == address_group("2001:db8::ffff%eth0") == "2001:db8::/64"
    quotas = Quotas(address=RateLimit(RatePolicy("address", 1, 1)))
    quotas.caller("2001:db8::1")
    with pytest.raises(LimitedError):
        quotas.caller("2001:db8::2")
    quotas.caller("2001:db8:0:1::1")


@table(("peer", "host"), [("192.0.2.1", "192.0.2.1"), ("10.0.0.1", "198.51.100.7"), ("", "")])
def test_only_trusted_proxies_tell_of_somebody_else(peer, host):
    quotas = Quotas(trusted=Trusted((ipaddress.ip_network("10.0.0.0/8"),)))
    assert quotas.host(peer, ((b"x-forwarded-FOR", b"198.51.100.7"), (b"A", b"b"))) == host


@pytest.mark.usefixtures("limits_clock")
def test_an_address_that_keeps_missing_raises_one_alarm_and_is_refused():
    told, alarms = list[str](), list[tuple[str, str]]()
    rates = RateLimit(RatePolicy("address", 1, 2))
    misses = MissLimit(
        rates, Quotas(), told.append, lambda endpoint, label: alarms.append((endpoint, label))
    )
    group = misses.admit("192.0.2.1", ())
    misses.count(group, "app", "GET /p")
    assert alarms == []
    misses.count(misses.admit("192.0.2.1", ()), "app", "GET /p")
    assert alarms == [("app", "GET /p")]
    with pytest.raises(LimitedError, match="More than 1 searches without a hit a second") as caught:
        misses.admit("192.0.2.1", ())
    assert (caught.value.retry_after, told) == (1, ["misses"])
    misses.admit("192.0.2.2", ())


# ---- concurrency


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


@table("code", [Code.TOO_MANY_REQUESTS, Code.TOO_MANY_UPLOADS])
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


async def test_a_turn_is_free_where_it_would_come_at_once():
    limit = ConcurrencyLimit(2, 2)
    assert limit.free("a", 8)
    await limit.enter("a")
    assert limit.free("a")
    assert not limit.free("a", 2)
    await limit.enter("a")
    assert not limit.free("a")
    assert limit.free("b")
    waiting = asyncio.create_task(limit.enter("a", 2))
    await settled()
    limit.leave("a")
    assert not limit.free("a")  # another one is first
    limit.leave("a")
    await waiting
    limit.leave("a", 2)
    assert limit.free("a")
