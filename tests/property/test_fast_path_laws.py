"""The fast path gives what the general way gives: the same bytes to the application and to the
caller, the same rows, lines of the audit log, and counts.

``make explore`` draws new exchanges, that many times as many; a hundred thousand are
``EXPLORE=125 pytest tests/property/test_fast_path_laws.py``.
"""

import asyncio
import random
import re
import time
from collections import Counter
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from proxy.crypto.keyset import Keyset
from proxy.errors import VaultError
from proxy.gateway.forwarded import CallerFields, Correlation, ForwardedHeaders
from proxy.model.record import RecordDraft
from proxy.net.client_address import Trusted
from proxy.vault.proxied.correction import correct_record
from proxy.vault.records.commit import no_changes
from proxy.vault.records.repository import Records
from tests.support.clock import ManualClock
from tests.support.draws import ACTS, Draw
from tests.support.effort import EXPLORE, rounds
from tests.support.patience import PATIENCE
from tests.support.twoways import House, carried, house
from tests.support.viewers import Badges

#: Of each way, whose exchanges are not those of the others: all acts are among them. Those of the
#: second number differ from one of the first only in what is told of callers, or in how long records
#: live.
EXCHANGES, FEWER = 400, 230


async def told(one: House, key: str) -> dict[object, object]:
    """All that is compared."""
    return {
        "sent": [one.plain(request) for request in one.seen],
        "audit": one.told(),
        "stored": await one.stored(key),
        **await one.counts(),
    }


async def differences(
    houses: tuple[House, House], key: str, unlike: set[str], seconds: float
) -> dict[object, tuple[object, object]]:
    """What is told of both in two ways, also after so many seconds: of an end that no answer waits
    for, an owner hears after the caller.
    """
    end = time.monotonic() + seconds
    while True:
        one, other = [await told(each, key) for each in houses]
        every = {*one, *other} - unlike
        unequal = {at: (one.get(at), other.get(at)) for at in every if one.get(at) != other.get(at)}
        if not unequal or time.monotonic() >= end:
            return unequal
        await asyncio.sleep(0.01)


class Way(NamedTuple):
    """One of the ways that are compared with the general one."""

    seed: int  #: of the exchanges that every run tries
    fast_path: float  #: share of exchanges that it carries in few steps, at least
    handed_over: float = 0.0  #: of these, of those that go on the general way
    fronted: bool = False
    remote: bool = False  #: whether the front is on another machine
    kept: float = 0.0  #: share of exchanges of which the owner of a vault gets values alone
    caller: str = ""  #: how roles are proved, where views tell what callers see
    fields: CallerFields | None = None  #: that tell the application of callers
    expires: str = ""  #: how long records live, of which some are gone when they are asked for
    exchanges: int = FEWER


LOOPBACK = Trusted((ip_network("127.0.0.0/8"),))
IDS = Correlation(ids=True, sample=100)
FORWARDED = ForwardedHeaders(x_forwarded=True, forwarded=True, via=True)
WAYS = {
    "fast_path": Way(120, 1 / 3, 1 / 20, exchanges=EXCHANGES),
    "behind a front": Way(24, 1 / 3, fronted=True, kept=1 / 6, exchanges=EXCHANGES),
    "behind a front elsewhere": Way(
        24, 1 / 8, fronted=True, remote=True, kept=1 / 8, exchanges=EXCHANGES
    ),
    "records that expire": Way(31, 1 / 3, 1 / 20, expires="2m"),
    "telling of callers": Way(31, 1 / 3, 1 / 20, fields=CallerFields(FORWARDED, LOOPBACK)),
    "ids of requests": Way(58, 1 / 3, 1 / 20, fields=CallerFields(FORWARDED, LOOPBACK, IDS)),
    "ids of requests behind a front": Way(
        31,
        1 / 8,
        fronted=True,
        kept=1 / 8,
        fields=CallerFields(FORWARDED, LOOPBACK, IDS),
        exchanges=EXCHANGES,
    ),
    "signed tokens": Way(1, 1 / 6, 1 / 40, caller="jwt"),
    "tokens that are asked about": Way(208, 1 / 6, 1 / 40, caller="introspection"),
    "signed tokens behind a front": Way(
        28, 1 / 10, fronted=True, kept=1 / 40, caller="jwt", exchanges=EXCHANGES
    ),
}


def veiled(shown: list[tuple[bytes, bytes] | str]) -> list[tuple[bytes, bytes] | str]:
    """What a caller sees without what masks leave readable: where that is of a token that the vault
    does not know (a view masks it as well), it is another one in each house.
    """
    return [
        one if isinstance(one, str) else (one[0], re.sub(rb'"[^"]*\*\*[^"]*"', b'"**"', one[1]))
        for one in shown
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
async def test_both_ways_give_the_same(tmp_path: Path, name: str) -> None:
    way = WAYS[name]
    keyset, seed = Keyset.create("test"), random.randrange(1 << 30) if EXPLORE else way.seed
    acts, now, by_chance = Counter[str](), ManualClock(), 0
    badges = Badges(random.Random(seed + 1), now)
    draw = Draw(seed, badges if way.caller else None)
    unlike = {"steps"} if way.fronted else set()  # a front does not know all of them
    caller = (way.caller, badges) if way.caller else None
    given: dict[str, Any] = {"caller": caller, "fields": way.fields, "expires": way.expires}
    front: dict[str, Any] = {"fronted": way.fronted, "remote": way.remote}
    for folder in ("fast_path", "general"):
        (tmp_path / folder).mkdir()
    async with (
        house(tmp_path / "fast_path", keyset, fast_path=True, **front, **given) as fast,
        house(tmp_path / "general", keyset, fast_path=False, **given) as general,
    ):
        for number in range(rounds(way.exchanges)):
            now.advance(fast.clock() - now())
            exchange = draw.exchange()
            acts[exchange.act] += 1
            where = f"exchange {number} of seed {seed}: {exchange}"
            # a front refuses no head before its body is there
            shown = [await carried(one, exchange, whole=way.fronted) for one in (fast, general)]
            if way.caller and shown[0] != shown[1]:
                shown, by_chance = [veiled(one) for one in shown], by_chance + 1
            assert shown[0] == shown[1], where
            draw.created(fast.number)
            target = exchange.request.split(b" ", 2)[1].decode().rpartition("/")[2]
            key = target if target.isdigit() else str(fast.number)
            unequal = await differences((fast, general), key, unlike, PATIENCE * way.fronted)
            assert not unequal, f"{unequal}, {where}, {fast.fast_path}"
            for one in (fast, general):
                one.seen.clear()
                one.audit.lines.clear()
            if number % 40 == 39:  # a value is erased over the vault's interface
                erasure = {("name", "email", "phone")[number // 40 % 3]: None}
                for one in (fast, general):
                    records = Records(next(iter(one.vault.collections())))
                    with suppress(VaultError):  # an update of it is in doubt
                        await correct_record(records, RecordDraft(key, erasure), "", no_changes)
            if number % 20 == 19:
                for one in (fast, general):
                    one.clock.advance(1000)
                    with suppress(VaultError):  # a late settle has met the fault as well
                        await one.vault.maintain()
    assert general.fast_path["fast_path"] == 0
    assert fast.fast_path["fast_path"] > way.exchanges * way.fast_path, fast.fast_path
    assert fast.fast_path["handed over"] >= way.exchanges * way.handed_over, fast.fast_path
    assert bool(fast.fast_path["revealed"]) is (way.fronted and not way.remote), fast.fast_path
    assert fast.fast_path["kept"] >= way.exchanges * way.kept, fast.fast_path
    assert by_chance <= rounds(way.exchanges) / 200
    assert set(acts) == set(ACTS), "not everything was tried"
