"""Lists that a front cuts: the owner of the vault gets ids and tokens alone. That each is restored
as any answer is, is a law (``tests/property/test_list_laws.py``); other exchanges: ``test_front``.
"""

import json
from typing import Any

import pytest

from proxy.redactor.exchange.owner_protocol import Redact, RestoreAnswer
from proxy.redactor.message import Response
from tests.support.exchanges import JSON, Call
from tests.support.fronts import Fronted, fronted
from tests.support.table import table
from tests.unit.redactor.exchange.test_list_answers import people, person


async def listed(one: Fronted, stored: Any, target: str = "GET /p") -> tuple[Any, list[Any]]:
    """What comes of a list, and what the owner is told of its answer."""
    channel = await one.link.channel()
    told, send = list[Any](), channel.connection.send

    def spied(message: Any, most: int | None = None) -> bool:
        if isinstance(message, RestoreAnswer | Redact) and message.answer is not None:
            told.append(message)
        return send(message, most)

    channel.connection.send = spied  # type: ignore[method-assign]  # spied on
    call: Call = await one.send(target)
    answer = await call.exchange.restore_response(Response(200, JSON, json.dumps(stored).encode()))
    channel.connection.send = send  # type: ignore[method-assign]  # spied on
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


async def test_behind_lists_that_do_not_show_their_records_twice_as_many_go_as_any() -> None:
    at, stored = await people(3)
    async with fronted(at, clock=at.clock) as one:
        await learned(one, stored)
        foreign = [*stored, {**stored[0], "name": "Somebody Else"}]
        wanted = [{**person(number), "id": number} for number in (1, 2, 3, 1)]
        wanted[3]["name"] = "Somebody Else"

        async def ways(answers: list[Any], expected: list[Any]) -> list[bool]:
            """Whether each goes by its rows."""
            by_rows = list[bool]()
            for answer in answers:
                shown, told = await listed(one, answer)
                assert shown == expected
                by_rows.append(bool(told[0].rows))
            return by_rows

        for behind in (1, 2, 4, 8, 16, 16):  # one is tried, and those behind it are not
            assert await ways([foreign] * (1 + behind), wanted) == [True] + [False] * behind
        assert await ways([stored] * 3, wanted[:3]) == [True] * 3
        assert await ways([foreign], wanted) == [True]
        assert await ways([stored] * 2, wanted[:3]) == [False, True]
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
