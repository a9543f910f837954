"""Requests that come at the same moment: one key has one record, one idempotency key one answer,
and expiry is told to nobody late.
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.interface.schema import DEFINITION
from tests.support.api import ENGINES, Interface, Said, interface

M = "/api/models/row"


async def total(here: Interface) -> int:
    found = await here.client("POST", M + "/find", json={"filter": {}})
    return int(found.json["meta"]["total"])


@pytest.mark.parametrize("engine", ENGINES)
async def test_of_32_creates_of_one_key_one_wins_and_its_record_is_there(
    engine: str, tmp_path: Path
) -> None:
    async with interface(tmp_path, engine) as here:
        await here.declare("row", DEFINITION)

        async def create(number: int) -> Said:
            one, beside = {"id": "same", "integer_plain": number}, {"id": f"beside{number}"}
            if number % 2:  # half of them in a batch, of which nothing else may be there either
                return await here.client("POST", M + "/batch", json=[beside, one])
            return await here.client("POST", M, json=one)

        told = await asyncio.gather(*(create(number) for number in range(32)))
        assert Counter(said.status for said in told) == {201: 1, 409: 31}
        assert {said.json["code"] for said in told if said.status == 409} == {"record_exists"}
        won = next(said.json for said in told if said.status == 201)
        written = won[-1] if isinstance(won, list) else won
        found = await here.client("POST", M + "/find", json={"filter": {"id": "same"}})
        assert found.json["data"][0]["integer_plain"] == written["integer_plain"]
        assert await total(here) == (2 if isinstance(won, list) else 1)


@pytest.mark.parametrize("engine", ENGINES)
async def test_of_many_requests_under_one_idempotency_key_one_is_carried_out(
    engine: str, tmp_path: Path
) -> None:
    async with interface(tmp_path, engine) as here:
        await here.declare("row", DEFINITION)
        sent: dict[str, Any] = {
            "json": {"id": "a", "string_plain": "x"},
            "headers": {"Idempotency-Key": "k1"},
        }
        told = await asyncio.gather(*(here.client("POST", M, **sent) for _ in range(16)))
        assert {said.status for said in told} <= {201, 429}
        first = [
            said
            for said in told
            if said.status == 201 and "Idempotent-Replayed" not in said.headers
        ]
        assert len(first) == 1
        assert {said.json["code"] for said in told if said.status == 429} <= {
            "idempotency_check_failed"
        }
        again = await here.client("POST", M, **sent)
        assert (again.status, again.headers["Idempotent-Replayed"], again.body) == (
            201,
            "true",
            first[0].body,
        )
        other = await here.client("POST", M, json={"id": "b"}, headers=sent["headers"])
        assert (other.status, other.json["code"]) == (429, "idempotency_check_failed")
        assert await total(here) == 1


@pytest.mark.parametrize("engine", ENGINES)
async def test_at_the_instant_of_its_end_nobody_is_told_of_a_record(
    engine: str, tmp_path: Path
) -> None:
    async with interface(tmp_path, engine) as here:
        await here.declare("row", DEFINITION)
        end = "2023-11-14T22:13:21.000Z"  # one second after the clock of tests
        await here.client("POST", M, json={"id": "a", "expires_at": end})
        here.clock.advance(999)
        assert await total(here) == 1
        here.clock.advance(1)
        assert await total(here) == 0
        history = await here.client("GET", M + "/a/history")
        gone = await here.client("DELETE", M + "/a")
        assert (history.status, gone.status) == (404, 404)
        updated = await here.client(
            "POST", M + "/batch/update", json=[{"id": "a", "expires_at": None}]
        )
        assert (updated.status, updated.json) == (201, [])
        assert (await here.client("POST", M, json={"id": "a"})).status == 201
