"""Two instances on one database after a rotation: one re-encrypts while both serve, and the older
key goes when both have agreed, or the one that has not is gone.
"""

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import aiohttp
import pytest

from tests.e2e.test_kill import WORKERS, before, nowhere
from tests.e2e.test_replicas import (
    CHIEF,
    Several,
    Unshaken,
    api,
    crowd,
    ended_in_order,
    link_to,
    pair_of,
    server,
    token,
)
from tests.support.application import Application
from tests.support.crowd import moody
from tests.support.effort import rounds
from tests.support.lives import Installation
from tests.support.patience import PATIENCE, until
from tests.support.people import REFUSING
from tests.support.postgres import Server
from tests.support.scraping import FIELD

__all__ = ["crowd", "server"]

BOATS = {
    "fields": {"id": {"type": "primary_key"}, "name": {"type": "string", "storage": "encrypted"}}
}
#: Of more than four pages of a re-encryption; it is held up in the third.
FLEET, HELD, CHANGED = 450, 250, range(410, 420)
MODEL = "/api/models/boats"
#: They look after their keys this often, and wait so long before the last scan of a rehash.
OFTEN = {"upkeep": 3.0, "pause": 1.0}


async def keys_at(crowd: Several, at: Installation, bearer: str) -> Any:
    """What an instance tells of the data keys."""
    status, seen = await api(crowd, at, bearer, "GET", "/api/keys")
    assert status == 200, seen
    return seen["data"][0]


async def reached(
    crowd: Several,
    at: Installation,
    bearer: str,
    holds: Callable[[Any], bool],
) -> Any:
    """What it tells as soon as that holds."""
    async with asyncio.timeout(PATIENCE):
        while not holds(told := await keys_at(crowd, at, bearer)):  # noqa: ASYNC110  # they go on
            await asyncio.sleep(0.3)
    return told


async def entered(crowd: Several, at: Installation) -> str:
    """A token of an instance, as soon as it has the database again."""
    async with asyncio.timeout(PATIENCE):
        while (told := await token(crowd, at, CHIEF))[0] == 503:  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.1)
    assert told[0] == 200
    return told[1]


async def rotated(crowd: Several, at: Installation, bearer: str, key: str) -> Any:
    """What an instance tells after it has rotated a key, while the other one serves."""
    status, seen = await api(crowd, at, bearer, "POST", "/api/keys/rotate", json={"key": key})
    assert status == 200, (key, seen)
    return seen["data"][0]


async def agreeing(crowd: Several, bearer: str) -> Any:
    """What both tell of the keys in use, as soon as each has heard of the last rotation."""
    async with asyncio.timeout(PATIENCE):
        while True:
            one, other = await asyncio.gather(*(keys_at(crowd, at, bearer) for at in crowd.both))
            roots = [(keys["keys"][-1], keys["token"], keys["hash"]["keys"][-1]) for keys in (one, other)]  # fmt: skip
            if roots[0] == roots[1]:
                return one
            await asyncio.sleep(0.05)


@asynccontextmanager
async def half_way(crowd: Several, bearer: str) -> AsyncIterator[str]:
    """Both serve, and the first one is in the middle of a re-encryption until the block ends; the
    id of the older key.
    """
    first, second = crowd.both
    for one in crowd.both:
        assert await one.stop() == 0  # schemas are for one
        one.environment["DOMICILE__STORE"] += (
            f"&timeout={min(PATIENCE, 60):.0f}"  # while it is held up
        )
    assert await first.start(**OFTEN), first.log.decode()
    status, seen = await api(crowd, first, bearer, "PUT", "/api/schemas/boats", json=BOATS)
    assert status == 201, seen
    for start in range(0, FLEET, 50):
        boats = [{"id": f"b{n}", "name": f"old {n}"} for n in range(start, start + 50)]
        status, seen = await api(crowd, first, bearer, "POST", f"{MODEL}/batch", json=boats)
        assert status == 201, seen
    async with link_to(first.environment["DOMICILE__STORE"]) as held:
        tables = [f"r_{one['name']}" for one in await held.fetch("SELECT name FROM tables")]
        (table,) = [
            one for one in tables if await held.fetchval(f"SELECT count(*) FROM {one}") == FLEET
        ]
        await held.execute("BEGIN")
        one_row = f"SELECT 1 FROM {table} ORDER BY rid LIMIT 1 OFFSET {HELD} FOR UPDATE"
        assert await held.fetch(one_row)
        older = (await rotated(crowd, first, bearer, "data"))["keys"][0]["key_id"]
        assert await second.start(**OFTEN), second.log.decode()
        assert (await keys_at(crowd, second, bearer))["reseal"]["state"] == "running"
        # the body of before becomes a past version, which the older key has sealed
        for number in CHANGED:
            path = f"{MODEL}/b{number}"
            status, seen = await api(crowd, second, bearer, "PATCH", path, json={"name": "new"})
            assert status == 200, seen
        yield older


async def whole_fleet(crowd: Several, at: Installation, bearer: str) -> None:
    """Everything is there and opens, past versions too."""
    sought = {"filter": {}, "options": {"limit": 500}}
    status, found = await api(crowd, at, bearer, "POST", f"{MODEL}/find", json=sought)
    assert status == 200, found
    names = {boat["id"]: boat["name"] for boat in found["data"]}
    assert names == {f"b{n}": "new" if n in CHANGED else f"old {n}" for n in range(FLEET)}
    for number in CHANGED:
        status, seen = await api(crowd, at, bearer, "GET", f"{MODEL}/b{number}/history")
        assert status == 200, seen
        assert [one["record"]["name"] for one in seen["data"]] == ["new", f"old {number}"]


@pytest.mark.slow
async def test_a_re_encryption_comes_to_its_end_while_both_serve(crowd: Several) -> None:
    first, second = crowd.both
    _, bearer = await token(crowd, first, CHIEF)
    async with half_way(crowd, bearer) as older:
        pass
    for one in crowd.both:
        told = await reached(crowd, one, bearer, lambda one: one["reseal"]["state"] == "done")
        assert (told["reseal"]["records"], told["reseal"]["versions"]) == (FLEET, len(CHANGED))
        async with crowd.caller.get(one.admin + "/metrics", headers=FIELD) as answer:
            shown = f'domicile_resealed_records{{environment="default",state="done"}} {FLEET}.0'
            assert shown in (await answer.text()).splitlines()
        await whole_fleet(crowd, one, bearer)
    for one in crowd.both:  # the leader drops it when both have agreed, and the other one follows
        told = await reached(crowd, one, bearer, lambda one: len(one["keys"]) == 1)
        assert (told["keys"][0]["key_id"] != older, told["reseal"]["blocked_by"]) == (True, [])
        async with crowd.caller.get(one.admin + "/metrics", headers=FIELD) as answer:
            shown = 'domicile_key_drop_blockers{environment="default",kind="data"} 0.0'
            assert shown in (await answer.text()).splitlines()
        await whole_fleet(crowd, one, bearer)
    # while a row is locked, it tries again now and then
    for event in first.events("re-encryption was interrupted and will resume"):
        assert event["text"].startswith("Another session"), event
    assert second.events("re-encryption was interrupted and will resume") == []


@pytest.mark.slow
async def test_the_older_hash_root_goes_while_both_serve(crowd: Several) -> None:
    first, second = crowd.both
    _, bearer = await token(crowd, first, CHIEF)
    for one in crowd.both:
        assert await one.stop() == 0
    for one in crowd.both:
        assert await one.start(**OFTEN), one.log.decode()
    for number in range(5):
        await crowd.create(number)
    seen = await rotated(crowd, second, bearer, "hash")
    for one in crowd.both:  # each waits first until no request of before can be under way
        told = await reached(crowd, one, bearer, lambda one: len(one["hash"]["keys"]) == 1)
        assert told["hash"]["keys"] == seen["hash"]["keys"][1:]
        assert told["hash"]["rehash"]["blocked_by"] == []
    await crowd.judge()


@pytest.mark.slow
async def test_one_that_stands_still_keeps_the_older_key_until_it_is_taken_for_dead(
    crowd: Several,
) -> None:
    first, second = crowd.both
    _, bearer = await token(crowd, first, CHIEF)
    async with half_way(crowd, bearer) as older:
        pass
    listeners = len(second.events("listening"))
    second.send(SIGSTOP)

    def waits(one: Any) -> bool:
        """Whether only that one is missing: all is counted, and nothing needs the key."""
        used = [key["used_by"] for key in one["keys"] if key["key_id"] == older]
        return "instance 1" in str(one["reseal"]["blocked_by"]) and used == [{}]

    told = await reached(crowd, first, bearer, waits)
    assert f"process {second.process})" in told["reseal"]["blocked_by"][-1]
    await reached(crowd, first, bearer, lambda one: len(one["keys"]) == 1)
    second.send(SIGCONT)
    taken = "the other instances took this one for dead: it starts again"
    await until(lambda: bool(second.events(taken)))
    await until(lambda: len(second.events("listening")) >= 2 * listeners)
    assert second._listening()
    for one in crowd.both:
        await reached(crowd, one, bearer, lambda one: len(one["keys"]) == 1)
        await whole_fleet(crowd, one, bearer)


@pytest.mark.slow
async def test_the_other_one_goes_on_with_a_re_encryption_whose_leader_is_killed(
    crowd: Several,
) -> None:
    first, second = crowd.both
    _, bearer = await token(crowd, first, CHIEF)
    async with half_way(crowd, bearer) as older:
        await first.kill()
        first.proxy = ""
    told = await reached(crowd, second, bearer, lambda one: len(one["keys"]) == 1)
    assert (told["reseal"]["records"], told["reseal"]["unreadable"]) == (FLEET, 0), told
    assert told["keys"][0]["key_id"] != older
    assert await first.start(**OFTEN), first.log.decode()
    for one in crowd.both:
        await whole_fleet(crowd, one, bearer)
        assert one.events("re-encryption was interrupted and will resume") == []


@pytest.mark.slow
async def test_every_key_is_rotated_while_both_serve_and_one_of_them_is_killed(
    crowd: Several,
) -> None:
    first, second = crowd.both
    _, bearer = await token(crowd, first, CHIEF)
    before = await keys_at(crowd, first, bearer)
    killed = asyncio.Event()

    async def visits(worker: int) -> None:
        while not killed.is_set():  # an instance may have been taken for dead by a slow machine
            await crowd.visit(worker, WORKERS)

    work = [asyncio.create_task(visits(worker)) for worker in range(WORKERS)]
    for at, key in ((first, "data"), (second, "token"), (second, "hash"), (second, "data")):
        since, enough = crowd.counts.total(), crowd.counts.total() + 40
        await rotated(crowd, at, bearer, key)
        async with asyncio.timeout(PATIENCE):
            while crowd.counts.total() < enough:
                for caller in work:
                    assert not caller.done(), caller.result()  # it was told something odd
                await asyncio.sleep(0.01)
        print(key, "rotated; answers since", crowd.counts.total() - since)
    known = await agreeing(crowd, bearer)
    assert known["keys"][-1] != before["keys"][-1]
    assert known["token"] != before["token"]
    rotation = asyncio.create_task(
        api(crowd, first, bearer, "POST", "/api/keys/rotate", json={"key": "master"})
    )
    await asyncio.sleep(random.uniform(0, 0.3))
    killed.set()
    await first.kill_at_work([], crowd.counts, 1)
    await asyncio.gather(*work)  # until each has asked the one that is gone
    await asyncio.gather(rotation, return_exceptions=True)
    assert await first.start(), first.log.decode()
    await crowd.judge(len(crowd.every))
    assert (await rotated(crowd, second, bearer, "data"))["keys"][-1] != known["keys"][-1]
    await crowd.judge()
    for one in crowd.both:
        assert await one.stop() == 0
        one.proxy = ""
    assert await second.run("store", "verify") == 0, second.output + second.log
    nowhere(crowd)


CONTENTS = {"small": b"small", "long": bytes(range(256)) * 1500}


async def attached(crowd: Several, at: Installation, bearer: str, name: str) -> str:
    """The id of a new attachment of the first boat."""
    headers, form = {"x-filename": name}, aiohttp.FormData()
    form.add_field("file", CONTENTS[name], filename=name, content_type="text/plain")
    status, seen = await api(crowd, at, bearer, "POST", f"{MODEL}/b0/files", data=form, headers=headers)  # fmt: skip
    assert status == 201, seen
    return str(seen["file_id"])


@asynccontextmanager
async def with_a_standby(folder: Path, primary: Server) -> AsyncIterator[tuple[Unshaken, Server]]:
    """Two instances, each with a key file of its own, on a database that a standby follows."""
    application, standby = Application(), Server(primary.folder.with_name("standby"))
    address = primary.address(pool="4", timeout="5", replicas="true").replace(
        f":{primary.port}/", f":{primary.port},127.0.0.1:{standby.port}/"
    )
    try:
        primary.mirror(standby)
        async with before(application, moody(application), folder) as alone:
            first, second = pair_of(alone.installation, address)
            with (first.rules / "rules.yaml").open("a") as file:
                file.write(REFUSING)
            shutil.copytree(first.rules, second.rules, dirs_exist_ok=True)
            second.environment["DOMICILE__KEYS"] = f"file://{second.folder}/keys.json"
            crowd = Unshaken(application, alone.caller, first)
            crowd.both = (first, second)
            assert await first.start(**OFTEN), first.log.decode()
            shutil.copy(first.folder / "keys.json", second.folder / "keys.json")
            assert await second.start(**OFTEN), second.log.decode()
            yield crowd, standby
            for one in crowd.both:
                await one.kill()
    finally:
        standby.kill()


async def rotated_somehow(crowd: Several, key: str) -> tuple[str, int, Any]:
    """What an instance tells of a rotation during which the database may go away."""
    at = random.choice(crowd.both)
    try:
        status, bearer = await token(crowd, at, CHIEF)
        if status != 200:
            return key, status, None
        sent = {"key": key}
        return key, *await api(crowd, at, bearer, "POST", "/api/keys/rotate", json=sent)
    except (aiohttp.ClientError, OSError) as error:
        return key, 0, repr(error)


async def failed_over(crowd: Several, primary: Server, standby: Server) -> None:
    """The primary dies in the middle of two rotations, and the standby takes its place."""
    kinds = random.sample(["data", "hash", "token"], 2)
    rotations = [asyncio.create_task(rotated_somehow(crowd, kind)) for kind in kinds]
    await asyncio.sleep(random.uniform(0, 0.6))
    await asyncio.to_thread(primary.kill)
    await asyncio.to_thread(standby.promote)
    for kind, status, seen in await asyncio.gather(*rotations):
        assert status in (0, 200, 409, 503), (kind, seen)


async def a_new_master_key(crowd: Several, bearer: str) -> None:
    """It is refused until the other instance has the key file that holds it."""
    first, second = crowd.both
    way, sent = ("POST", "/api/keys/rotate"), {"key": "master"}
    status, seen = await api(crowd, first, bearer, *way, json=sent)
    assert (status, seen["code"]) == (409, "replicas_running"), seen
    shutil.copy(first.folder / "keys.json", second.folder / "keys.json")
    earlier = (await api(crowd, first, bearer, "GET", "/api/keys"))[1]["master"]
    status, seen = await api(crowd, first, bearer, *way, json=sent)
    assert (status, seen["master"] != earlier) == (200, True), seen
    new = seen["master"]["key_id"]
    assert (await rotated(crowd, second, bearer, "data"))["wrapped_by"] == new


@pytest.mark.slow
async def test_keys_are_rotated_while_a_standby_takes_over_and_each_has_its_key_file(
    tmp_path: Path, server: Server
) -> None:
    async with with_a_standby(tmp_path, server) as (crowd, standby):
        first, second = crowd.both
        _, bearer = await token(crowd, first, CHIEF)
        assert (await api(crowd, first, bearer, "PUT", "/api/schemas/boats", json=BOATS))[0] == 201
        assert (await api(crowd, first, bearer, "POST", MODEL, json={"id": "b0"}))[0] == 201
        files = [
            (await attached(crowd, at, bearer, name), CONTENTS[name])
            for at, name in zip(crowd.both, CONTENTS, strict=True)
        ]
        work = [asyncio.create_task(crowd.visit(n, WORKERS)) for n in range(WORKERS)]
        primary = server
        for number in range(rounds(1)):
            await crowd._answers(60)
            crowd.away = time.monotonic()
            await failed_over(crowd, primary, standby)
            crowd.away = time.monotonic()
            await crowd._answers(60)
            if number + 1 < rounds(1):  # the one that was killed follows the other one
                primary, standby = standby, primary
                await asyncio.to_thread(primary.mirror, standby)
        crowd.over = True
        await asyncio.gather(*work)
        crowd.over = False
        bearer = await entered(crowd, second)
        last = (await rotated(crowd, second, bearer, "data"))["keys"][-1]["key_id"]
        for one in crowd.both:
            told = await reached(
                crowd, one, bearer, lambda one: len(one["keys"]) == len(one["hash"]["keys"]) == 1
            )
            assert (told["reseal"]["unreadable"], told["keys"][0]["key_id"]) == (0, last)
            for ident, content in files:
                path, headers = f"{MODEL}/b0/files/{ident}", {"Authorization": f"Bearer {bearer}"}
                async with crowd.caller.get(one.vault + path, headers=headers) as answer:
                    assert (answer.status, await answer.read()) == (200, content)
        await a_new_master_key(crowd, bearer)
        await crowd.judge(len(crowd.every))
        await ended_in_order(crowd)
        assert await second.start(**OFTEN), second.log.decode()
        assert await second.stop() == 0
        second.proxy = ""
        assert await second.run("store", "verify") == 0, second.output + second.log
