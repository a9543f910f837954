"""Two instances on one database: with the model they serve by turns, and nobody can tell; creates
that both carry at once are neither lost nor mixed.
"""

import asyncio
import json
import time
from random import Random
from typing import Any

import asyncpg
import pytest

from proxy.storage.changes import Bind
from proxy.storage.postgres.link import GROUP_LOCK
from proxy.storage.postgres.replica_messages import _FORGET
from tests.support.effort import rounds
from tests.support.exchanges import Call, Desk
from tests.support.patience import PATIENCE
from tests.support.replicas import TwoReplicas, link_of

SHARE = rounds(100)
#: Creates at once, ids that the application answers with, and addresses that people share.
_TOGETHER, _IDS, _ADDRESSES = 4, 3, 3


@pytest.mark.parametrize("hosted", [False, True])
async def test_nobody_can_tell_which_of_two_replicas_is_there(hosted: bool) -> None:
    model = TwoReplicas(3, hosted)
    try:
        await model.run(SHARE)
    finally:
        await model.end()
    assert {"POST 200", "PATCH 200", "PATCH 0", "DELETE 200", "GET 200"} <= model.counts.keys()
    assert model.counts["compared"] > SHARE


class OneApplication:
    """An application that answers several creates with one id, and keeps one of them."""

    def __init__(self, desks: list[Desk], chance: Random) -> None:
        self.desks, self.chance = desks, chance
        self.stored: dict[int, dict[str, Any]] = {}  #: by id, as it has them
        self.meant: dict[int, dict[str, Any]] = {}  #: the same, in clear
        self.tokens: dict[str, str] = {}  #: of addresses
        self.people = 0

    async def round(self) -> None:
        """Several creates at once with one id, and what both instances then show."""
        ident = self.chance.randrange(1, _IDS + 1)
        bodies = [self._person() for _ in range(self.chance.randrange(2, _TOGETHER + 1))]
        calls = await asyncio.gather(*(self._at().send("POST /p", body) for body in bodies))
        for call, body in zip(calls, bodies, strict=True):
            assert self.tokens.setdefault(body["email"], call.json["email"]) == call.json["email"]
        kept = self.chance.randrange(len(calls))
        self.stored[ident] = {**calls[kept].json, "id": ident}
        self.meant[ident] = {**bodies[kept], "id": ident}
        ends = (self._end(*one, ident) for one in zip(calls, bodies, strict=True))
        await asyncio.gather(*ends)
        for _ in range(2):  # the first answers decide
            await asyncio.gather(*(self._look(desk, ident) for desk in self.desks))

    def _person(self) -> dict[str, Any]:
        self.people += 1
        address = f"person{self.chance.randrange(_ADDRESSES)}@example.com"
        return {"name": f"Person Number {self.people}", "email": address}

    def _at(self) -> Desk:
        return self.chance.choice(self.desks)

    async def _end(self, call: Call, body: dict[str, Any], ident: int) -> None:
        """The answer to a create: its id, all of it, or none although it was carried out."""
        match self.chance.randrange(4):
            case 0:
                await call.exchange.failed(True)
            case 1:
                await call.answer(201, {"id": ident})
            case _:
                shown = await call.seen(201, {**call.json, "id": ident})
                assert shown == {**body, "id": ident}

    async def _look(self, desk: Desk, ident: int) -> None:
        read = await desk.send(f"GET /p/{ident}")
        assert await read.seen(200, self.stored[ident]) == self.meant[ident]
        listed = await desk.send("GET /p")
        everybody = sorted(self.stored)
        shown = await listed.seen(200, [self.stored[one] for one in everybody])
        assert shown == [self.meant[one] for one in everybody]


async def test_creates_with_one_id_or_one_value_at_both_are_neither_lost_nor_mixed() -> None:
    model = TwoReplicas(5, False)
    await model.begin()
    try:
        application = OneApplication(model.desks, Random(11))
        for _ in range(rounds(20)):
            await application.round()
            model.clock.advance(application.chance.randrange(5_000))
        assert all(desk.idle for desk in model.desks)
        model.clock.advance(8 * 86_400_000)
        for desk in model.desks:  # what stayed in doubt is gone, and what the application has stays
            await desk.vault.maintain()
        for ident in application.stored:
            await asyncio.gather(*(application._look(desk, ident) for desk in model.desks))
    finally:
        await model.end()


async def _gone_everywhere(desks: list[Desk], ident: int) -> None:
    for desk in desks:
        desk.clock.advance(1_000)
        read = await desk.send(f"GET /p/{ident}")
        await read.answer(404, {"error": "not found"})
    desks[0].clock.advance(8 * 86_400_000)
    for desk in desks:
        await desk.vault.maintain()
        assert await desk.counts() == (0, 0, 0)


async def _create_first(desk: Desk) -> None:
    """The record with the id 1, which a delete then ends."""
    first = await desk.send("POST /p", {"code": "code 1", "name": "Name Number 1"})
    await first.answer(201, {**first.json, "id": 1})


@pytest.mark.parametrize(("known", "overlaps"), [(False, True), (False, False), (True, False)])
async def test_a_create_at_one_knows_of_the_delete_of_its_id_at_the_other(
    known: bool, overlaps: bool
) -> None:
    """Of one that is under way, whose answer gets lost, then or before, and of one that has ended:
    the values stayed for good.
    """
    model = TwoReplicas(7, False)
    await model.begin()
    try:
        one, two = model.desks
        if known:
            await _create_first(one)
        create = await one.send("POST /p", {"code": "code 2", "name": "Name Number 2"})
        delete = await two.send("DELETE /p/1")
        if known:
            await delete.answer(204)
        elif not overlaps:
            await delete.exchange.failed(True)
        await create.answer(201, {**create.json, "id": 1})
        if overlaps:
            await delete.exchange.failed(True)
        await _gone_everywhere(model.desks, 1)
    finally:
        await model.end()


@pytest.mark.parametrize(("known", "lost"), [(False, False), (True, False), (False, True)])
async def test_a_name_is_not_given_where_a_whole_delete_came_between(
    known: bool, lost: bool
) -> None:
    """It begins and ends at the other instance while this one is about to store the name: by the
    answer to the create, or where that got lost (``lost``) by the next answer that shows the record.
    """
    model = TwoReplicas(7, False)
    await model.begin()
    try:
        one, two = model.desks
        if known:
            await _create_first(one)
        call = create = await one.send("POST /p", {"code": "code 2", "name": "Name Number 2"})
        if lost:
            await create.exchange.failed(True)
            call = await one.send("GET /p/1")
        gate = one.store.pause("commit", change=Bind)
        naming = asyncio.create_task(call.answer(200 if lost else 201, {**create.json, "id": 1}))
        await gate.reached()
        await (await two.send("DELETE /p/1")).answer(204)
        gate.open()
        await naming
        await _gone_everywhere(model.desks, 1)
    finally:
        await model.end()


async def test_a_create_that_has_its_name_is_under_way_no_more() -> None:
    """Else an answer at the other one, which shows another create to be the same record, finds that
    about to get its name, and keeps its values for good beside it.
    """
    model = TwoReplicas(7, False)
    await model.begin()
    try:
        one, two = model.desks
        create = await one.send("POST /p", {"code": "code 1", "name": "Name Number 1"})
        await two.people.state.look()
        (row,) = await two.people.store.scan(two.people.table, 0, 2)
        assert row.rid in two.people.state.at_work
        await create.answer(201, {**create.json, "id": 1})
        await two.people.state.look()
        assert row.rid not in two.people.state.at_work
    finally:
        await model.end()


async def test_a_delete_of_an_unknown_id_waits_for_names_that_are_being_stored() -> None:
    """They are found then; those that are stored later know of the delete."""
    model = TwoReplicas(7, False)
    await model.begin()
    address = link_of(model.stores[0]).address
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND classid = $1"
    storing = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    try:
        shared = f"SELECT pg_advisory_lock_shared({GROUP_LOCK}, hashtext(current_schema()))"
        await storing.execute(shared)
        deleting = asyncio.create_task(model.desks[1].send("DELETE /p/1"))
        async with asyncio.timeout(PATIENCE):
            while not await storing.fetch(waiting, GROUP_LOCK):  # noqa: ASYNC110  # of a server
                await asyncio.sleep(0.01)
        assert not deleting.done()
    finally:
        await storing.close()
        await (await deleting).answer(204)
        await model.end()


async def test_of_names_that_are_told_only_those_that_end_are_walked_through() -> None:
    """Each second, of thousands: a bulk of deletes is told of for two minutes."""
    model = TwoReplicas(7, False)
    await model.begin()
    address = link_of(model.stores[0]).address
    one = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    now = int(time.time() * 1000) - 1_577_836_800_000
    rows = [(None, 60_000), (None, 500_000), (7, 60_000), (7, -60_000)]  #: whose, and how old
    told = [
        ("another", b"%d" % number, rid, b"", now - age << 21)
        for rid, age in rows
        for number in range(500)
    ]
    try:
        async with one.transaction():
            await one.copy_records_to_table("overtaken", records=told)
            await one.execute("SET LOCAL enable_seqscan = off")  # as it is where there are more
            plan = await one.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {_FORGET}")
            left = await one.fetch("SELECT rid, count(*) FROM overtaken GROUP BY rid")
    finally:
        await one.close()
        await model.end()
    assert "Seq Scan" not in plan
    assert "Rows Removed by Filter" not in plan
    assert json.loads(plan)[0]["Plan"]["Plans"][-1]["Actual Rows"] == 1000
    assert sorted(map(tuple, left), key=str) == [(7, 500), (None, 500)]
