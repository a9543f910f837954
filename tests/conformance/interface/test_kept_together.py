"""The record-based family: requests of one key at the same moment.

Every answer has a place in one order, and no record is of two bodies.
"""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.conformance.interface.kept import BODIES, DECIMALS, INTEGERS, TEXTS, R, full
from tests.support.api import ENGINES, Interface, interface
from tests.support.register import Done, linearizable

_CLIENTS = 4
_CALLS = 6
_ROUNDS = 4
_VERBS = ("put", "put", "batch", "update", "delete", "read", "read")
_EVERYTHING = (*TEXTS, *BODIES, *INTEGERS, *DECIMALS)


def body(value: int) -> dict[str, Any]:
    """A record all of whose fields say the same number."""
    return full("same", str(value), value, value)


def number(record: dict[str, Any]) -> int:
    """Which one it is, once it is seen that no field is of another."""
    assert {int(record[name]) for name in _EVERYTHING} == {record["range_key"]}, record
    return int(record["range_key"])


class Client:
    """One of several clients of one record; ``history`` and ``ticks`` are everybody's."""

    def __init__(
        self, here: Interface, history: list[Done], ticks: list[int], chance: Random
    ) -> None:
        self._here, self._history, self._ticks, self._chance = here, history, ticks, chance

    async def work(self) -> None:
        for _ in range(_CALLS):
            verb, value, begin = self._chance.choice(_VERBS), self._tick(), self._tick()
            told = await getattr(self, f"_{verb}")(value)
            ok = told is not None if verb in ("update", "delete") else True
            kind, said = {"batch": "put"}.get(verb, verb), None if verb == "delete" else told
            self._history.append(Done(kind, value, said, ok, begin, self._tick()))

    def _tick(self) -> int:
        self._ticks[0] += 1
        return self._ticks[0]

    async def _put(self, value: int) -> int:
        answer = await self._here.client("POST", R, json=body(value))
        assert answer.status == 201, answer.body
        return number(answer.json)

    async def _batch(self, value: int) -> int:
        beside = {"key": f"beside{value}"}
        answer = await self._here.client(
            "POST", R + "/batch", json={"country": "se", "records": [beside, body(value)]}
        )
        assert answer.status == 201, answer.body
        return number(answer.json[1])

    async def _update(self, value: int) -> int | None:
        answer = await self._here.client(
            "POST", R + "/batch/update", json={"country": "se", "records": [body(value)]}
        )
        assert answer.status == 200, answer.body
        return number(answer.json[0]) if answer.json else None

    async def _delete(self, _value: int) -> int | None:
        answer = await self._here.client("DELETE", R + "/se/same")
        assert answer.status in (204, 404), answer.body
        return 0 if answer.status == 204 else None

    async def _read(self, _value: int) -> int | None:
        answer = await self._here.client(
            "POST", R + "/find", json={"country": "se", "filter": {"key": "same"}}
        )
        assert answer.status == 200, answer.body
        return number(answer.json["data"][0]) if answer.json["data"] else None


@pytest.mark.parametrize("engine", ENGINES)
async def test_some_order_explains_what_clients_of_one_record_are_told(
    engine: str, tmp_path: Path
) -> None:
    async with interface(tmp_path, engine) as here:
        for seed in range(_ROUNDS):
            await here.client("DELETE", R + "/se/same")
            history: list[Done] = []
            ticks = [0]
            clients = [
                Client(here, history, ticks, Random(seed * _CLIENTS + one))
                for one in range(_CLIENTS)
            ]
            await asyncio.gather(*(client.work() for client in clients))
            assert len(history) == _CLIENTS * _CALLS
            assert linearizable(history), (seed, history)


@pytest.mark.parametrize("engine", ENGINES)
async def test_versions_of_an_overwritten_record_are_whole_and_in_order(
    engine: str, tmp_path: Path
) -> None:
    async with interface(tmp_path, engine) as here:
        told = await asyncio.gather(
            *(here.client("POST", R, json=body(value)) for value in range(24))
        )
        assert {answer.status for answer in told} == {201}
        assert sorted(answer.json["version"] for answer in told) == list(range(1, 25))
        written = {answer.json["version"]: number(answer.json) for answer in told}
        history = await here.client("GET", R + "/se/same/history")
        assert {
            entry["version"]: number(entry["record"]) for entry in history.json["data"]
        } == written
        found = await here.client("POST", R + "/find", json={"country": "se"})
        assert [number(record) for record in found.json["data"]] == [written[24]]
