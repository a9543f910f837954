"""``domicile adopt`` and ``domicile release`` with Kinto, which holds people in the clear already, and
people who work with it through the proxy meanwhile.
"""

import asyncio
import base64
import json
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support import orders
from tests.support.adoption import Scale, adopted_and_released, killed
from tests.support.effort import rounds
from tests.support.instance import Instance, running
from tests.support.lives import write_command
from tests.support.ports import closed_port
from tests.support.real import kinto
from tests.support.real.inside import faults
from tests.support.real.installed import environment
from tests.support.real.served import served
from tests.support.tree import ROOT

RULES = (ROOT / "rules" / "examples" / "kinto.yaml").read_text("utf-8")
ADDRESS = 'upstream: "http://127.0.0.1:8888"'
LIST = "/v1/buckets/crm/collections/people/records"
AUTH = "Basic " + base64.b64encode(b"editor:correct horse").decode()
MARKERS = ("Zorbina", "wexlomere", "Flumpergatan", "yxmarker")


def person(number: int, name: str = "") -> dict[str, Any]:
    return {
        "name": name or f"Zorbina Quibble{number}", "email": f"z{number}@wexlomere.example",
        "phone": f"+46 70 918 {number:06}", "birth_date": "1931-02-27",
        "address": {"street": f"Flumpergatan {number}", "city": "Visby"},
        "tags": [f"yxmarker-{number}", "yxmarker-two"], "vip": True, "score": 1.50,
    }  # fmt: skip


#: What the server holds when the proxy comes.
_SEEDING = """
import json
with open("people.jsonl") as people:
    for line in people:
        application.registry.storage.create("record", "/buckets/crm/collections/people", json.loads(line))
"""


@dataclass
class Office:
    """Kinto with people in the clear, and the proxy before it; ``direct`` is Kinto's own address."""

    instance: Instance
    direct: str
    session: aiohttp.ClientSession
    log: bytearray

    async def ask(
        self, method: str, base: str, path: str, content: Any = None, **headers: str
    ) -> tuple[int, Any]:
        data = None if content is None else json.dumps(content)
        fields = {"Authorization": AUTH, "Content-Type": "application/json", **headers}
        async with self.session.request(method, base + path, data=data, headers=fields) as answer:
            return answer.status, json.loads(await answer.text())

    async def listed(self, base: str) -> dict[str, dict[str, Any]]:
        """All records by id, without what the server adds."""
        records: dict[str, dict[str, Any]] = {}
        target: str | None = base + LIST
        while target is not None:
            async with self.session.get(target, headers={"Authorization": AUTH}) as answer:
                for one in (await answer.json())["data"]:
                    assert one["id"] not in records, "a record stands there twice"
                    records[one["id"]] = one
                target = answer.headers.get("Next-Page")
        for one in records.values():
            del one["last_modified"], one["id"]
        return records

    def walk(self, *more: str) -> tuple[str, ...]:
        header = ("--header", "Authorization: ${env:AUTH}", "--pages", "header Next-Page")
        return ("--proxy", self.instance.proxy, *header, *more)


@asynccontextmanager
async def office(
    folder: Path, count: int, page: int, rules: str = RULES, **settings: str
) -> AsyncIterator[Office]:
    place = kinto.written(folder / "kinto")
    text = (place / "wsgi.py").read_text()
    (place / "wsgi.py").write_text(
        text.replace('"kinto.paginate_by": "3"', f'"kinto.paginate_by": "{page}"') + _SEEDING
    )
    people = ({"id": f"z{number}", **person(number)} for number in range(count))
    (place / "people.jsonl").write_text("".join(json.dumps(one) + "\n" for one in people))
    async with (
        served(environment(), place) as server,
        aiohttp.ClientSession() as session,
        running(
            folder / "proxy",
            rules.replace(ADDRESS, f'upstream: "http://127.0.0.1:{server.port}"')
            + "\non_error: {vault_down: {read: 503}}\n",
            **settings,
        ) as instance,
    ):
        here = Office(instance, f"http://127.0.0.1:{server.port}", session, server.log)
        account = {"data": {"password": "correct horse"}}
        await here.ask("PUT", here.direct, "/v1/accounts/editor", account)
        for path in ("/v1/buckets/crm", "/v1/buckets/crm/collections/people"):
            assert (await here.ask("PUT", here.direct, path, {}))[0] == 201
        yield here


def markers_in(records: dict[str, dict[str, Any]]) -> list[str]:
    text = json.dumps(records).lower()
    return [marker for marker in MARKERS if marker.lower() in text]


@pytest.mark.slow
async def test_what_an_application_holds_becomes_tokens_and_values_again(tmp_path):
    async with office(tmp_path, 12, 5) as here:
        people = {f"z{n}": person(n) for n in range(12)}
        counted = await here.instance.command("adopt", "--dry-run", *here.walk(), AUTH=AUTH)
        assert (counted["records"], counted["clear"], counted["converted"]) == (12, 12, 0)
        assert await here.listed(here.direct) == people
        adopted = await here.instance.command("adopt", *here.walk(), "person", AUTH=AUTH)
        assert (adopted["complete"], adopted["tokens"], adopted["converted"]) == (True, 12, 12)
        assert adopted["conditional"] == 12
        assert adopted["changed_members"] == ["last_modified"]
        held = await here.listed(here.direct)
        assert markers_in(held) == []
        assert [one["address"]["city"] for one in held.values()] == ["Visby"] * 12
        assert await here.listed(here.instance.proxy) == people
        path = f"{LIST}?email=Z7@wexlomere.example"
        _, found = await here.ask("GET", here.instance.proxy, path)
        assert [one["id"] for one in found["data"]] == ["z7"]
        assert list(here.instance.folder.glob("domicile-*.json")) == []
        again = await here.instance.command("adopt", *here.walk(), AUTH=AUTH)
        assert (again["converted"], again["passes"]) == (0, 1)
        assert await here.listed(here.direct) == held

        released = await here.instance.command("release", *here.walk(), AUTH=AUTH)
        assert (released["complete"], released["clear"], released["converted"]) == (True, 12, 12)
        assert await here.listed(here.direct) == people
        assert await here.listed(here.instance.proxy) == people
        assert faults(here.instance) == []


async def test_people_are_changed_and_found_while_some_of_them_are_adopted(tmp_path):
    """Kinto finds any of several addresses (``in_email``): the token, or the value."""
    mixed = 'email:     {field: email, send: {param: in_email, join: ","}, mixed: true}'
    rules = RULES.replace("email:     {field: email}", mixed)
    assert mixed in rules
    async with office(tmp_path, 6, 50, rules=rules) as here:
        stranger = await here.instance.command(
            "adopt", *here.walk(), status=1, AUTH="Basic bm86bm8="
        )
        assert "--header" in stranger["message"]
        pages = ("--proxy", here.instance.proxy, "--header", "Authorization: ${env:AUTH}")
        pageless = await here.instance.command("adopt", *pages, status=1, AUTH=AUTH)
        assert "--pages" in pageless["message"]

        proxy = here.instance.proxy
        email = person(1)["email"]
        await here.ask(
            "PATCH", proxy, f"{LIST}/z1", {"data": {"name": "Zorbina Novum", "email": email}}
        )
        await here.ask("PUT", proxy, f"{LIST}/new", {"data": person(99)})
        await here.ask("DELETE", proxy, f"{LIST}/z2")

        async def finds(number: int) -> list[str]:
            address = person(number)["email"]
            _, answer = await here.ask("GET", proxy, f"{LIST}?email={address}")
            assert all(one["email"] == address for one in answer["data"])
            return [one["id"] for one in answer["data"]]

        found = [["z1"], ["z3"], ["new"], [], []]
        assert [await finds(number) for number in (1, 3, 99, 2, 7)] == found
        counted = await here.instance.command("adopt", "--dry-run", *here.walk(), AUTH=AUTH)
        assert [counted[one] for one in ("clear", "mixed", "tokens")] == [4, 1, 1]
        adopted = await here.instance.command("adopt", *here.walk(), AUTH=AUTH)
        assert adopted["converted"] == 5
        people = {f"z{n}": person(n) for n in (0, 3, 4, 5)}
        people |= {"z1": person(1, "Zorbina Novum"), "new": person(99)}
        assert await here.listed(proxy) == people
        assert markers_in(await here.listed(here.direct)) == []
        assert [await finds(number) for number in (1, 3, 99, 2, 7)] == found


def domicile(folder: Path) -> str:
    """The path of the command; who kills it kills the process that was forked for it, too."""
    write_command(command := folder / "bin" / "domicile")
    return str(command)


@pytest.mark.slow
async def test_killing_either_side_loses_nothing_while_people_work(tmp_path, capsys):
    """``python -m tests.support.adoption 100000 20000`` does so with as many."""
    with capsys.disabled():
        await adopted_and_released(tmp_path, Scale(60, 25, rounds(3)), seed=160)


@asynccontextmanager
async def shop(folder: Path, count: int) -> AsyncIterator[tuple[Path, str]]:
    """The application of orders in a process of its own: its database and its address."""
    file = folder / "orders.sqlite"
    orders.seed(str(file), count)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.orders", "0", str(file)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield file, (await process.stdout.readline()).decode().strip()
    finally:
        killed(process)
        await process.wait()


@pytest.mark.slow
async def test_people_within_orders_are_adopted_and_released_whatever_is_killed(tmp_path):
    chance, count = random.Random(7), 60
    people = {number: orders.order(number) for number in range(1, count + 1)}
    with closed_port() as port:
        address = {"DOMICILE__LISTEN__PROXY": f"127.0.0.1:{port}"}
        async with (
            shop(tmp_path, count) as (file, upstream),
            running(tmp_path / "proxy", orders.RULES.format(port=upstream), **address) as instance,
        ):
            walk = ("--proxy", instance.proxy, "--parallel", "2", "--pages", "$.next", "courier")
            counted = await instance.command("adopt", "--dry-run", *walk)
            assert (counted["records"], counted["clear"]) == (count, count)
            assert counted["operations"] == {
                "GET /orders": "lists them", "GET /orders/{order}": "reads one",
                "PATCH /orders/{order}": "writes again: couriers, customer",
            }  # fmt: skip
            assert orders.stored(str(file)) == people
            kills = 0
            while True:
                process = await asyncio.create_subprocess_exec(
                    *(domicile(tmp_path), "adopt", *walk, "--rate", "20/s", "--json"),
                    cwd=tmp_path,
                    env={**os.environ, **instance.settings()},
                    stdout=asyncio.subprocess.PIPE,
                )
                output = asyncio.create_task(process.communicate())
                done, _ = await asyncio.wait([output], timeout=chance.uniform(1.2, 2.5))
                if done or kills == 4:
                    break
                kills += 1
                if kills % 2:
                    await instance.kill()
                    await instance.start()
                killed(process)
                await output
            said, _ = await output
            assert process.returncode == 0, said
            report = json.loads(said)
            assert (report["complete"], report["tokens"], kills >= 2) == (True, count, True)
            held = orders.stored(str(file))
            assert not any(
                one in json.dumps(held) for one in ("Wexlomere", "wexlo.", "Flumper", "+46 70 918")
            )
            assert [one["total"] for one in held.values()] == [
                one["total"] for one in people.values()
            ]
            assert await _orders_shown(instance.proxy, count) == people
            released = await instance.command("release", *walk)
            assert (released["complete"], released["clear"]) == (True, count)
            assert orders.stored(str(file)) == people
            assert faults(instance) == []


async def _orders_shown(proxy: str, count: int) -> dict[int, Any]:
    shown: dict[int, Any] = {}
    async with aiohttp.ClientSession() as session:
        for number in range(1, count + 1):
            async with session.get(f"{proxy}/orders/{number}") as answer:
                one = await answer.json()
                shown[one.pop("id")] = one
    return shown
