"""Lists that a front cuts: the owner of the vault gets ids and tokens alone. That each is restored
as any answer is, is a law (``tests/property/test_list_laws.py``); other exchanges: ``test_front``.
"""

import json
from typing import Any

import pytest

from proxy.redactor.exchange.wire import CameBack, Redact
from proxy.redactor.message import Response
from tests.support.exchanges import JSON, Call
from tests.support.fronts import Fronted, fronted
from tests.support.table import table
from tests.unit.redactor.exchange.test_list_answers import people, person


async def listed(one: Fronted, stored: Any, target: str = "GET /p") -> tuple[Any, list[Any]]:
    """What comes of a list, and what the owner is told of its answer."""
    line = await one.link.line()
    told, send = list[Any](), line.connection.send

    def spied(message: Any, most: int | None = None) -> bool:
        if isinstance(message, CameBack | Redact) and message.answer is not None:
            told.append(message)
        return send(message, most)

    line.connection.send = spied  # type: ignore[method-assign]  # spied on
    call: Call = await one.send(target)
    answer = await call.exchange.restore_response(Response(200, JSON, json.dumps(stored).encode()))
    line.connection.send = send  # type: ignore[method-assign]  # spied on
    return json.loads(answer.body), told


async def learned(one: Fronted, stored: Any) -> None:
    """Lists of that shape are cut from now on."""
    for _ in range(5):
        await listed(one, stored)


@table(("target", "clocks"), [("GET /p", True), ("GET /p", False), ("GET /p?email=x", True)])
async def test_the_owner_gets_ids_and_tokens_alone(target: str, clocks: bool) -> None:
    at, stored = await people(60)
    wanted = [{**person(number), "id": number} for number in range(1, 61)]
    async with fronted(at, clock=at.clock if clocks else None) as one:
        await learned(one, stored)
        noted = [{**each, "note": "met at the fair"} for each in stored]
        await learned(one, noted)
        shown, (told,) = await listed(one, noted, target)
        assert shown == [{**each, "note": "met at the fair"} for each in wanted]
        assert told.answer.body == b""
        assert b"fair" not in told.rows
        assert b"60" in told.rows
        (line,) = at.audit.lines[-1:]
        assert (line["event"], line["count"], line["fields"]) == ("reveal", 60, sorted(person(1)))
        assert at.idle


async def test_one_that_does_not_show_its_records_goes_as_any_and_some_behind_it_at_once() -> None:
    at, stored = await people(3)
    async with fronted(at, clock=at.clock) as one:
        await learned(one, stored)
        foreign = [*stored, {**stored[0], "name": "Somebody Else"}]
        wanted = [{**person(number), "id": number} for number in (1, 2, 3, 1)]
        wanted[3]["name"] = "Somebody Else"
        shown, told = await listed(one, foreign)
        assert shown == wanted
        assert [bool(each.rows) for each in told] == [True, False]
        ways = list[bool]()
        for _ in range(17):
            shown, (whole,) = await listed(one, stored)
            assert shown == wanted[:3]
            ways.append(bool(whole.rows))
        assert ways == [False] * 16 + [True]
        assert at.idle


@pytest.mark.parametrize("missing", ["log", "vault", "owner"])
async def test_without_what_it_takes_tokens_are_shown(missing: str) -> None:
    at, stored = await people(3)
    async with fronted(at, clock=at.clock) as one:
        await learned(one, stored)
        call = await one.send("GET /p")
        at.audit.down = missing == "log"
        if missing == "vault":
            at.store.fail("by_keys", times=None)
        if missing == "owner":
            one.up = False
            await one.lost()
        assert await call.seen(200, stored) == stored
        assert at.idle
