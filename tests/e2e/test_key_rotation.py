"""Rotating every kind of key while requests go on, over the vault's interface and through the
proxy, and killed in the middle of it.

No request fails, every record, past version and file can be read, what was interrupted goes on by
itself, and data keys that nothing needs any more are gone.
"""

import asyncio
import contextlib
import io
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.test_workers import WORKERS, ready
from tests.support.application import Application
from tests.support.effort import rounds
from tests.support.instance import Instance, started
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.serving import serving

SCHEMA = {
    "fields": {"id": {"type": "primary_key"}, "note": {"type": "string", "storage": "encrypted"}}
}
#: Deaths in the middle of a rotation.
ROUNDS = rounds(2)
BULK = 600
#: Of them, records that have a past version, and contents of files: one chunk, several, and more
#: than are sealed in one go.
UPDATED = 300
CONTENTS = {"small": b"small", "middle": bytes(range(256)) * 800, "large": os.urandom(3 << 20)}


class House:
    """An instance with an application behind it, and an administrator."""

    def __init__(self, instance: Instance, caller: aiohttp.ClientSession) -> None:
        self.instance = instance
        self.caller = caller
        self.proof: dict[str, str] = {}
        self.token = ""
        self.kept: dict[str, str] = {}  #: what was acknowledged over the interface
        self.people: dict[str, str] = {}  #: and through the proxy
        self.files: dict[str, str] = {}  #: id of each file by the name of its content

    async def domicile(self, *arguments: str) -> Any:
        return await self.instance.command(*arguments)

    async def arrive(self) -> None:
        """Start, and get a token."""
        await self.instance.start()
        form = {"grant_type": "client_credentials", **self.proof}
        async with self.caller.post(self.instance.vault + "/oauth2/token", data=form) as answer:
            assert answer.status == 200
            self.token = (await answer.json())["access_token"]

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """An answer of the interface, which must be one of success."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self.caller.request(
            method, self.instance.vault + path, json=body, headers=headers
        ) as answer:
            content = await answer.json(content_type=None)
            assert answer.status < 300, (path, answer.status, content)
            return content

    async def rotate(self, key: str) -> Any:
        return await self.ask("POST", "/api/keys/rotate", {"key": key})

    async def replace(self) -> Any:
        """What ``keys replace`` says of the running instance."""
        variables = {f"DOMICILE_{name.upper()}": text for name, text in self.proof.items()}
        words = ("keys", "replace", "--url", self.instance.vault)
        return await self.instance.command(*words, status=0, **variables)

    async def sealed_anew(self) -> Any:
        """Wait until nothing is being sealed anew, and no older key is left."""
        async with asyncio.timeout(2 * PATIENCE):
            while True:
                (told,) = (await self.ask("GET", "/api/keys"))["data"]
                if told["reseal"]["state"] == "done" and len(told["keys"]) == 1:
                    return told
                await asyncio.sleep(0.02)

    async def replaced(self) -> None:
        """Wait until nothing is under an older data key or hash root but answers that are kept for
        a day.
        """
        async with asyncio.timeout(2 * PATIENCE):
            while True:
                (told,) = (await self.ask("GET", "/api/keys"))["data"]
                left = set(told["hash"]["rehash"]["left"])
                for key in told["keys"][:-1]:
                    left |= set(key["used_by"] or ("not looked",))
                states = {told["reseal"]["state"], told["hash"]["rehash"]["state"]}
                if left <= {"replies"} and states <= {"done", "none"}:
                    return
                await asyncio.sleep(0.1)

    async def rehashed(self) -> Any:
        """Wait until nothing is under an older hash root, and none is left."""
        async with asyncio.timeout(2 * PATIENCE):
            while True:
                told = (await self.ask("GET", "/api/keys"))["data"][0]["hash"]
                if len(told["keys"]) == 1:
                    return told
                await asyncio.sleep(0.1)

    async def attach(self) -> None:
        """Give a record files."""
        headers = {"Authorization": f"Bearer {self.token}"}
        for name, content in CONTENTS.items():
            form = aiohttp.FormData()
            form.add_field("file", io.BytesIO(content), filename=name, content_type="text/plain")
            path = self.instance.vault + "/api/models/contact/b0/files"
            async with self.caller.post(
                path, data=form, headers={**headers, "x-filename": name}
            ) as answer:
                assert answer.status == 201
                self.files[name] = (await answer.json())["file_id"]

    # ------------------------------------------------ load

    async def write(self, name: str) -> None:
        """Write a record, and read it again."""
        await self.ask("POST", "/api/models/contact", {"id": name, "note": f"note of {name}"})
        self.kept[name] = f"note of {name}"
        found = await self.ask("POST", "/api/models/contact/find", {"filter": {"id": name}})
        assert found["data"][0]["note"] == self.kept[name]

    async def meet(self, name: str) -> None:
        """Write a person through the proxy, and read it again."""
        async with self.caller.post(self.instance.proxy + "/people", json={"name": name}) as answer:
            assert answer.status == 201
            made = await answer.json()
        self.people[str(made["id"])] = name
        async with self.caller.get(f"{self.instance.proxy}/people/{made['id']}") as answer:
            assert (answer.status, (await answer.json())["name"]) == (200, name)

    async def load(self, number: int, over: asyncio.Event) -> int:
        """Write until it is over; how much that was.

        It leaves the processor to what is tried meanwhile, most of the time.
        """
        count = 0
        while not over.is_set():
            count += 1
            await asyncio.sleep(0.02)
            await (self.write if number % 2 else self.meet)(
                f"p{number}x{len(self.kept)}x{len(self.people)}"
            )
        return count

    async def judge(self) -> None:
        """Everything that was acknowledged can be read, and nothing is there twice."""
        names = list(self.kept)
        for start in range(0, len(names), 500):
            asked = {"filter": {"id": names[start : start + 500]}, "options": {"limit": 500}}
            found = await self.ask("POST", "/api/models/contact/find", asked)
            read = sorted((one["id"], one["note"]) for one in found["data"])
            assert read == sorted((name, self.kept[name]) for name in names[start : start + 500])
        headers = {"Authorization": f"Bearer {self.token}"}
        for name, file_id in self.files.items():
            path = f"{self.instance.vault}/api/models/contact/b0/files/{file_id}"
            async with self.caller.get(path, headers=headers) as answer:
                assert (answer.status, await answer.read()) == (200, CONTENTS[name])
        for number in range(0, UPDATED, 20):
            told = await self.ask("GET", f"/api/models/contact/b{number}/history")
            assert [one["record"]["note"] for one in told["data"]] == [f"old {number}", "older"]
        for ident, name in self.people.items():
            async with self.caller.get(f"{self.instance.proxy}/people/{ident}") as answer:
                assert (answer.status, (await answer.json()).get("name")) == (200, name)
        async with self.caller.get(f"{self.instance.proxy}/people") as answer:
            assert answer.status == 200, await answer.text()
            shown = [str(one["id"]) for one in (await answer.json())["items"]]
        assert len(shown) == len(set(shown))
        assert self.people.keys() <= set(shown)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    timeout = aiohttp.ClientTimeout(2 * PATIENCE)
    async with (
        serving(Application().app()) as upstream,
        aiohttp.ClientSession(timeout=timeout) as caller,
    ):
        made = House(Instance(tmp_path), caller)
        made.instance.rules.mkdir()
        (made.instance.rules / "rules.yaml").write_text(rules(upstream))
        first = await made.domicile("init")
        made.proof = {"client_id": first["client_id"], "client_secret": first["client_secret"]}
        await made.arrive()
        await made.ask("PUT", "/api/schemas/contact", SCHEMA)
        for start in range(0, BULK, 100):
            batch = [
                {"id": f"b{number}", "note": f"old {number}"}
                for number in range(start, start + 100)
            ]
            if start < UPDATED:
                await made.ask(
                    "POST", "/api/models/contact/batch", [{**one, "note": "older"} for one in batch]
                )
            path = "/api/models/contact/batch" + ("/update" if start < UPDATED else "")
            await made.ask("POST", path, batch)
            made.kept |= {one["id"]: one["note"] for one in batch}
        await made.attach()
        yield made
        await made.instance.kill()


@pytest.mark.slow
async def test_every_kind_of_key_is_rotated_under_load_and_no_request_fails(house: House) -> None:
    over = asyncio.Event()
    workers = [asyncio.create_task(house.load(number, over)) for number in range(4)]
    try:
        before = await house.ask("GET", "/api/keys")
        for key in ("data", "hash", "master", "token", "signing", "data"):
            reached = len(house.kept) + len(house.people)
            await house.rotate(key)
            while len(house.kept) + len(house.people) < reached + 20:
                assert not [worker for worker in workers if worker.done()]
                await asyncio.sleep(0.01)
        told = await house.sealed_anew()
        told["hash"] = await house.rehashed()
    finally:
        over.set()
        done = await asyncio.gather(*workers)
    assert min(done) > 0
    after = await house.ask("GET", "/api/keys")
    assert after["master"] != before["master"]
    assert after["signing"][-1] != before["signing"][-1]
    before_keys = {key["key_id"] for key in before["data"][0]["keys"]}
    assert before_keys.isdisjoint(key["key_id"] for key in told["keys"])
    assert told["reseal"]["unreadable"] == told["hash"]["rehash"]["unreadable"] == 0
    assert told["hash"]["keys"] != before["data"][0]["hash"]["keys"]
    assert len(after["data"][0]["token"]["keys"]) == 2
    await house.judge()

    assert await house.instance.stop() == 0  # and all of it once more, from what is on disk
    verified = await house.domicile("keys", "verify")
    (counted,) = verified["environments"]
    assert set(counted["sealed"]) == {told["keys"][-1]["key_id"]}
    rotated = await house.domicile("keys", "rotate", "data")
    assert len(rotated["data"][0]["keys"]) == 2
    assert (await house.domicile("keys", "rotate", "master"))["master"] != after["master"]
    await house.arrive()
    assert (await house.sealed_anew())["keys"] == rotated["data"][0]["keys"][-1:]
    await house.judge()


@pytest.mark.slow
async def test_killed_in_the_middle_it_goes_on_and_everything_opens(house: House) -> None:
    for number in range(ROUNDS):
        over = asyncio.Event()
        workers = [asyncio.create_task(house.load(worker, over)) for worker in range(2)]
        keys = ["data", "master", "signing", "hash", "token", "audit"]
        random.shuffle(keys)
        reached = len(house.kept) + len(house.people)
        while len(house.kept) + len(house.people) < reached + 5:  # noqa: ASYNC110  # the workers count
            await asyncio.sleep(0.005)
        rotations = asyncio.create_task(_all(house, keys))
        await asyncio.sleep(random.choice((random.uniform(0, 0.1), random.uniform(2, 3))))
        await house.instance.kill()
        over.set()
        await asyncio.gather(rotations, *workers, return_exceptions=True)
        await house.arrive()
        await house.judge()
        told = (await house.ask("GET", "/api/keys"))["data"][0]
        assert len(told["keys"]) <= number + 2
    await house.rotate("data")
    told = await house.sealed_anew()
    assert told["reseal"]["unreadable"] == 0
    assert (await house.rehashed())["rehash"]["unreadable"] == 0
    await house.judge()
    assert await house.instance.stop() == 0
    assert (await house.domicile("store", "verify"))["ok"]
    assert (await house.domicile("audit", "verify"))["ok"]
    (counted,) = (await house.domicile("keys", "verify"))["environments"]
    assert set(counted["sealed"]) == {told["keys"][-1]["key_id"]}


@pytest.mark.slow
async def test_killed_while_every_key_is_replaced_it_goes_on_and_shows_nothing_twice(
    house: House,
) -> None:
    over = asyncio.Event()
    workers = [asyncio.create_task(house.load(worker, over)) for worker in range(2)]
    replacing = asyncio.create_task(house.replace())
    await asyncio.sleep(random.uniform(1, 3))
    await house.instance.kill()
    over.set()
    await asyncio.gather(replacing, *workers, return_exceptions=True)
    await house.arrive()
    await house.judge()
    await house.replaced()
    await house.judge()
    assert await house.instance.stop() == 0
    assert (await house.domicile("store", "verify"))["ok"]
    assert (await house.domicile("audit", "verify"))["ok"]


async def test_killed_while_each_part_is_sealed_anew_it_goes_on_and_the_older_key_goes(
    house: House,
) -> None:
    fresh = None
    for what in ("records", "versions", "contents"):
        fresh = (await house.rotate("data"))["data"][0]["keys"][-1]
        async with asyncio.timeout(PATIENCE):
            while (await house.ask("GET", "/api/keys"))["data"][0]["reseal"][what] == 0:
                pass
        await house.instance.kill()
        # half with the one key, half with the other
        assert (await house.domicile("store", "verify"))["ok"]
        await house.arrive()
        assert (await house.sealed_anew())["keys"] == [fresh]
        await house.judge()
    assert await house.instance.stop() == 0
    verified = await house.domicile("store", "verify")
    assert (verified["ok"], verified["records"], verified["versions"]) == (True, BULK, UPDATED)
    assert (verified["attachments"], verified["bytes"]) == (
        len(CONTENTS),
        sum(map(len, CONTENTS.values())),
    )
    (counted,) = (await house.domicile("keys", "verify"))["environments"]
    assert [*counted["sealed"]] == [fresh and fresh["key_id"]]


async def _all(house: House, keys: list[str]) -> None:
    for key in keys:
        with contextlib.suppress(aiohttp.ClientError):
            await house.rotate(key)


async def test_workers_begin_while_there_are_two_hash_roots(tmp_path: Path) -> None:
    """Answers that are kept for a day keep the older one for as long."""
    async with (
        serving(Application().app()) as upstream,
        started(Instance(tmp_path, arguments=WORKERS), rules(upstream)) as instance,
        aiohttp.ClientSession() as caller,
    ):
        await ready(instance)
        async with caller.post(f"{instance.proxy}/people", json={"name": "Ann"}) as answer:
            assert answer.status == 201
        assert await instance.stop() == 0
        told = (await instance.command("keys", "rotate", "hash"))["data"][0]["hash"]
        assert len(told["keys"]) == 2
        await instance.start()
        await ready(instance)
        async with caller.get(f"{instance.proxy}/people/1") as answer:
            assert (answer.status, (await answer.json())["name"]) == (200, "Ann")
