"""A rehash of all records: online, through kill -9, each record whole; and the command for it."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.office import Office, opened
from tests.support.patience import PATIENCE
from tests.support.ports import closed_port
from tests.support.rehashing import DTK

#: Records, and deaths in the middle; a release is tried with 100,000 and 20.
RECORDS = int(os.environ.get("RECORDS", "2000"))
DEATHS = int(os.environ.get("DEATHS", "2"))
BATCH = 100
#: Records between a start and the next death: of few there would be none left after the first.
STEP = RECORDS // (2 * DEATHS) if RECORDS >= 50_000 else 1

ALL = "/api/records/rehash/all"
RULES = {
    "key1": {"strategy": "alphaNumeric"},
    "mail": {"strategy": "emailPersistent"},
    "key2": {"strategy": "uuid"},
}


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    with closed_port() as port:
        async with opened(tmp_path, {"DOMICILE__LISTEN__VAULT": f"127.0.0.1:{port}"}) as made:
            yield made


def record(number: int) -> dict[str, Any]:
    body = json.dumps({"mail": f"person{number % 50}@example.com"})
    return {
        "record_key": f"r{number}",
        "profile_key": f"p{number}",
        "key1": f"one {number}",
        "key2": "two",
        "body": body,
    }


async def fill(office: Office, count: int) -> None:
    for start in range(0, count, BATCH):
        records = [record(number) for number in range(start, start + BATCH)]
        await office.ask(
            "POST", "/api/records/batch", {"country": "se", "records": records}, status=201
        )


async def tokens(office: Office) -> dict[str, dict[str, str]]:
    """The tokens of every record that has any, in one listing."""
    found: dict[str, dict[str, str]] = {}
    following = ""
    while True:
        page = await office.ask("GET", f"/api/records/rehash/tokens?limit=1000{following}")
        found |= {one["record_key"]: one["fields"] for one in page["data"]}
        if page["meta"]["next"] is None:
            return found
        following = f"&next={page['meta']['next']}"


async def reached(office: Office, done: int) -> Any:
    """The run once it has visited so many, or has ended."""
    async with asyncio.timeout(PATIENCE + RECORDS / 50):
        while (run := await office.ask("GET", ALL))["state"] == "running" and run["done"] < done:  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.005)
    return run


async def at_work(office: Office, number: int, counts: list[int]) -> None:
    """Somebody who writes and reads records of its own until the instance dies."""
    with suppress(aiohttp.ClientError, ConnectionError):
        while True:
            key = f"w{number}-{counts[number] % 7}"
            mine = {
                "record_key": key,
                "country": "se",
                "key1": f"own {counts[number]}",
                "body": '{"mail": "me@example.com"}',
            }
            await office.ask("POST", "/api/records", mine, status=201)
            found = await office.ask(
                "POST", "/api/records/find", {"country": "se", "filter": {"record_key": key}}
            )
            assert found["data"][0]["key1"] == mine["key1"]
            counts[number] += 1


async def test_it_goes_on_through_kill_9_while_others_work_and_no_record_is_between_two_states(
    office: Office,
) -> None:
    await fill(office, RECORDS)
    counts, deaths, runs = [0, 0], 0, 0
    run: dict[str, Any] = {"state": "none", "done": 0}
    seen: dict[str, dict[str, str]] = {}
    now: dict[str, dict[str, str]] = {}
    while deaths < DEATHS or run["state"] == "running":
        if run["state"] != "running":
            run, seen, runs = (
                await office.ask("POST", ALL, {"dtk": DTK, "rules": RULES}, status=202),
                {},
                runs + 1,
            )
            assert runs < 20, "every run was through before anybody could stop it"
        workers = [
            asyncio.create_task(at_work(office, number, counts)) for number in range(len(counts))
        ]
        run = await reached(office, 2 * RECORDS if deaths == DEATHS else run["done"] + STEP)
        if run["state"] == "running":
            await office.instance.kill()
            deaths += 1
        else:
            await served(counts)
            for worker in workers:
                worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        if office.instance.process is None:
            await office.instance.start()
        now = {key: fields for key, fields in (await tokens(office)).items() if key.startswith("r")}
        assert {key: now[key] for key in seen} == seen  # who was given a token keeps it
        assert all(fields.keys() == RULES.keys() for fields in now.values())
        seen = now if run["state"] == "running" and runs == 1 else {}
    assert (run["state"], run["failed"], run["unreadable"]) == ("done", 0, 0)
    assert len(now) == RECORDS
    assert len({fields["key1"] for fields in now.values()}) == RECORDS
    assert len({fields["mail"] for fields in now.values()}) == 50
    some = [fields["key1"] for fields in list(now.values())[:100]]
    found = await office.ask("POST", "/api/records/rehash/resolve", {"tokens": some})
    assert [one["token"] for one in found["data"]] == some


async def served(counts: list[int]) -> None:
    """Wait until readers and writers got more answers."""
    before = sum(counts)
    async with asyncio.timeout(PATIENCE):
        while sum(counts) < before + 2:  # noqa: ASYNC110  # answers of another process
            await asyncio.sleep(0.005)


async def test_the_command_begins_it_follows_it_and_fetches_the_tokens(
    office: Office, tmp_path: Path
) -> None:
    await fill(office, 2 * BATCH)
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    told = await office.command(
        "rehash", "--rules", "rules.json", "--tokens", "tokens.jsonl", DOMICILE_DTK=DTK
    )
    assert (told["state"], told["done"], told["failed"], told["tokens"]) == (
        "done",
        2 * BATCH,
        0,
        2 * BATCH,
    )
    lines = [json.loads(line) for line in (tmp_path / "tokens.jsonl").read_text().splitlines()]
    (one,) = (
        await office.ask(
            "POST",
            "/api/records/rehash",
            {"dtk": DTK, "keys": ["p7"], "rules": {"mail": RULES["mail"]}},
        )
    )["data"]
    assert one["fields"]["mail"] == next(
        line["fields"]["mail"] for line in lines if line["record_key"] == "r7"
    )
    assert (await office.command("rehash", "--forget"))["state"] == "done"
    assert (await office.command("rehash"))["state"] == "done"
    told = await office.command("rehash", "--stop")
    assert told["state"] == "done"
    assert DTK.encode() not in b"".join(
        path.read_bytes() for path in office.instance.data.rglob("*") if path.is_file()
    )
