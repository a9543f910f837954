"""``domicile serve --workers``: several processes at the same sockets, on one vault in PostgreSQL."""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.test_kill import before
from tests.e2e.test_replicas import Unshaken, ended_in_order
from tests.e2e.test_restart import CALLERS, SUPERVISED, Callers, at_work
from tests.support.application import Application
from tests.support.crowd import moody
from tests.support.effort import rounds
from tests.support.graphql import People
from tests.support.instance import Instance
from tests.support.lives import Installation
from tests.support.patience import PATIENCE, until
from tests.support.people import ANN, REFUSING, rules
from tests.support.postgres import fresh_address
from tests.support.scraping import FIELD
from tests.support.serving import serving
from tests.support.tree import ROOT

WORKERS = ("serve", "--workers", "2")


#: Where the vault is: each worker owns it, or one more process does for all.
STORES = pytest.mark.parametrize("store", ["postgresql", "embedded"])


@asynccontextmanager
async def team(
    folder: Path,
    store: str,
    program: tuple[str, ...] = (),
    app: web.Application | None = None,
    text: str = "",
) -> AsyncIterator[Instance]:
    """Two workers before an application, ready; forked, where no program of Python is named.

    ``text``: rules, with ``URL`` for the address of ``app``; otherwise those of people.
    """
    async with serving(app or Application().app()) as upstream:
        shared = {"DOMICILE__STORE": fresh_address(replicas="true")}
        environment = shared if store == "postgresql" else {}
        instance = Instance(folder, program, environment, arguments=WORKERS)
        instance.rules.mkdir()
        told = text.replace("URL", upstream) or rules(upstream)
        (instance.rules / "rules.yaml").write_text(told)
        await instance.start()
        try:
            await ready(instance)
            yield instance
        finally:
            if instance.process is not None:
                await instance.stop()


async def ready(instance: Instance | Installation) -> dict[str, Any]:
    """Wait until all workers serve; what ``/readyz`` tells then."""
    data: dict[str, Any] = {}
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                status, text = await ask(instance, "/readyz")
                data = json.loads(text)
                if status == 200:
                    return data
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not ready: {data}") from None


async def ask(instance: Instance | Installation, path: str) -> tuple[int, str]:
    """What the administration listener answers."""
    async with (
        aiohttp.ClientSession() as caller,
        caller.get(instance.admin + path, headers=FIELD) as answer,
    ):
        return answer.status, await answer.text()


def workers_of(instance: Instance) -> set[psutil.Process]:
    """All processes that the supervisor has started."""
    assert instance.process is not None
    return set(psutil.Process(instance.process.pid).children())


def owner_of(instance: Instance) -> psutil.Process:
    """The one that has the vault."""
    database = str(instance.data / "vault.db")
    (owner,) = (one for one in workers_of(instance) if database in {file.path for file in one.open_files()})  # fmt: skip
    return owner


async def replaced(instance: Instance, before: set[psutil.Process], count: int) -> None:
    """Wait until so many of the workers are others, and both serve."""
    await instance.logged("active rules", len(before) + count, within=2 * PATIENCE)
    async with asyncio.timeout(PATIENCE):
        while len(now := workers_of(instance)) != len(before) or len(now - before) != count:  # noqa: ASYNC110  # other processes bring it about
            await asyncio.sleep(0.05)


async def all_there(instance: Instance, callers: Callers) -> None:
    """Each create that was answered can be read, in clear, as soon as all are ready."""
    await ready(instance)
    async with aiohttp.ClientSession() as caller:
        for ident in callers.made:
            async with caller.get(f"{instance.proxy}/people/{ident}") as answer:
                data = await answer.json()
                assert (answer.status, data.get("name")) == (200, ANN["name"]), data


@pytest.mark.slow
@STORES
async def test_workers_are_replaced_one_after_the_other_and_no_request_is_lost(
    tmp_path: Path, store: str
) -> None:
    async with team(tmp_path, store) as instance:
        async with at_work(instance) as callers:
            before = workers_of(instance)
            instance.send(signal.SIGUSR2)
            await replaced(instance, before, len(before))
            await callers.further(50)
        assert callers.broken == []
        await all_there(instance, callers)


@pytest.mark.slow
@STORES
async def test_a_killed_worker_is_followed_by_another_one_while_the_other_serves(
    tmp_path: Path, store: str
) -> None:
    async with team(tmp_path, store) as instance:
        async with at_work(instance) as callers:
            before = workers_of(instance)
            victim = max(before, key=lambda one: one.pid)
            victim.kill()
            await callers.further(50)
            await until(lambda: workers_of(instance) & before == before - {victim})
            await replaced(instance, before, 1)
            await callers.further(50)
        assert len(callers.broken) <= CALLERS, callers.broken
        await all_there(instance, callers)
        assert await instance.stop() == 0
        found = await instance.command("audit", "verify")
        assert found["ok"], found
        assert bool(found.get("workers")) == (store == "postgresql")


class Patient(Callers):
    """Callers who try again what is refused while the vault has no owner."""

    refused = 0

    async def visit(self, caller: aiohttp.ClientSession) -> None:
        async with caller.post(self.instance.proxy + "/people", json=ANN) as answer:
            data = await answer.json(content_type=None)
        if answer.status != 201:
            assert (answer.status, data["code"]) == (503, "vault_down"), data
            self.refused += 1
            return
        self.made.append(data["id"])
        self.answers += 3


@pytest.mark.slow
async def test_an_owner_that_is_killed_under_load_takes_nothing_acknowledged_with_it(
    tmp_path: Path,
) -> None:
    async with team(tmp_path, "embedded") as instance:
        callers = Patient(instance)
        async with asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(callers.work(keep=bool(number % 2)))
            for times in (4, 5):
                await callers.further(60)
                owner_of(instance).kill()
                await instance.logged("active rules", times)
                await callers.further(60)
            callers.over = True
        assert callers.broken == [], "callers wait, or are told"
        # twice; a caller that is refused by one front may ask the other one before that has noticed
        assert callers.refused <= 4 * CALLERS, "those whose values were on their way"
        await ready(instance)
        await all_there(instance, callers)
        assert await instance.stop() == 0
        assert (await instance.command("audit", "verify"))["ok"]
        assert (await instance.command("store", "verify"))["ok"]


@pytest.mark.slow
async def test_whichever_is_killed_at_random_nothing_is_lost_or_mixed(tmp_path: Path) -> None:
    application = Application()
    async with before(application, moody(application), tmp_path) as alone:
        one = alone.installation
        with (one.rules / "rules.yaml").open("a") as file:
            file.write(REFUSING)
        crowd = Unshaken(application, alone.caller, one)
        one.arguments, crowd.both = WORKERS, (one,)
        assert await one.start(), one.log.decode()

        def every() -> set[psutil.Process]:
            return set(psutil.Process(one.process).children())

        async def kill() -> str:
            victims = random.sample([*(whole := every())], random.choice((1, 1, 1, 2, 3)))
            database = str(one.data / "vault.db")
            owner = any(database in {file.path for file in each.open_files()} for each in victims)
            crowd.away = time.monotonic()
            for each in victims:
                each.kill()
            await until(lambda: len(every() - {*victims}) == len(whole))
            await ready(one)
            crowd.away = time.monotonic()
            return "owner" if owner else "fronts"

        print(await crowd.survive(kill, rounds(3)), crowd.counts)
        assert not crowd.lives, "the supervisor starts what was killed"
        await ended_in_order(crowd)


def write_rules(at: Instance, fields: int) -> None:
    """Give an instance the rules with so many more searchable fields, at once."""
    file, plain = at.rules / "rules.yaml", at.folder / "plain.yaml"
    if not plain.exists():
        plain.write_text(file.read_text())
    added = "".join(f"      nick{one}: {{kind: text, find: [exact]}}\n" for one in range(fields))
    part = file.with_suffix(".part")
    part.write_text(plain.read_text().replace("operations:\n", added + "operations:\n"))
    part.rename(file)


async def in_force(instance: Instance) -> set[str]:
    """The versions of rules of all that serve; empty while one of them does not answer."""
    status, text = await ask(instance, "/metrics")
    assert status == 200, text
    families = text_string_to_metric_families(text)
    told = [one for each in families if each.name == "domicile_rules_info" for one in each.samples]
    whole = len(told) == len(workers_of(instance))
    return {one.labels["version"] for one in told} if whole else set()


async def created(instance: Instance, sent: dict[str, Any]) -> dict[str, Any]:
    """A new person as the caller sees it; asked for again while a process is being replaced."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with (
                aiohttp.ClientSession() as caller,
                caller.post(instance.proxy + "/people", json=sent) as answer,
            ):
                data: dict[str, Any] = await answer.json(content_type=None)
                if answer.status != 503:
                    assert answer.status == 201, data
                    return data
            await asyncio.sleep(0.05)


async def all_follow(instance: Instance, gone: psutil.Process, before: set[str]) -> None:
    """Wait until all have the same new rules, with another process in the place of that one."""
    async with asyncio.timeout(2 * PATIENCE):
        now = before
        while gone in workers_of(instance) or now == before or len(now) != 1:
            await asyncio.sleep(0.05)
            now = await in_force(instance)


@pytest.mark.slow
@STORES
async def test_new_rules_come_to_all_while_one_after_the_other_is_killed(
    tmp_path: Path, store: str
) -> None:
    async with team(tmp_path, store) as instance:
        callers, killed = Patient(instance), 0
        async with asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(callers.work(keep=bool(number % 2)))
            for fields in range(1, 4):
                await callers.further(60)
                before, workers = await in_force(instance), workers_of(instance)
                write_rules(instance, fields)
                if fields == 2:
                    instance.send(signal.SIGHUP)
                owner = store == "embedded" and fields > 1
                victim = owner_of(instance) if owner else random.choice([*workers])
                await asyncio.sleep(random.random() / 2)
                victim.kill()
                killed += 1
                await all_follow(instance, victim, before)
                sent = {**ANN, f"nick{fields - 1}": f"Flumpergatan nick {fields}"}
                for _ in range(6):  # whichever of them accepts
                    data = await created(instance, sent)
                    assert data == data | sent
            callers.over = True
        assert b"has other rules than" not in instance.log, "no request is refused for them"
        assert len(callers.broken) <= killed * CALLERS, callers.broken
        await all_there(instance, callers)
        assert await instance.stop() == 0
        assert (await instance.command("audit", "verify"))["ok"]
        assert (await instance.command("store", "verify"))["ok"]


@pytest.mark.slow
@STORES
async def test_whoever_is_asked_answers_for_all(tmp_path: Path, store: str) -> None:
    async with team(tmp_path, store) as instance:
        async with at_work(instance) as callers:
            pass
        assert await instance.stop() == 0
        counted = await instance.command("coverage")
        creates = next(one for one in counted["ruled"] if one["match"] == "POST /people")
        assert creates["count"] == len(callers.made), "what came to both"
        await instance.start()
        await ready(instance)
        everybody = {"1", "2"} if store == "postgresql" else {"0", "1", "2"}
        numbers, served = set[str](), Counter[str]()
        async with asyncio.timeout(PATIENCE):  # one that gets no processor serves nobody meanwhile
            while numbers != everybody or not all(served[number] for number in "12"):
                async with at_work(instance):
                    pass
                _, text = await ask(instance, "/metrics")
                families = {one.name: one for one in text_string_to_metric_families(text)}
                starts = families["process_start_time_seconds"].samples
                numbers, served = {one.labels["worker"] for one in starts}, Counter()
                for one in families["domicile_requests"].samples:
                    served[one.labels["worker"]] += int(one.value)
        assert (await ready(instance))["checks"]["workers"] == "ok"
        (instance.rules / "rules.yaml").write_text("version: 1\n")
        instance.send(signal.SIGHUP)
        async with asyncio.timeout(PATIENCE):
            while True:
                _, text = await ask(instance, "/metrics")
                stale = 'domicile_reload_failed{worker="%d",what="rules"} 1.0'
                if all(stale % number in text for number in (1, 2)):
                    break
                await asyncio.sleep(0.05)
        served_by = {line["worker"] for line in instance.events("listening") if line["listener"] == "proxy"}  # fmt: skip
        assert served_by == {1, 2}
        report = await instance.command("audit", "verify")
        assert report["ok"]
        assert len(report.get("workers", ())) == (2 if store == "postgresql" else 0)
        (tmp_path / "backups").mkdir()
        await instance.command("backup", str(tmp_path / "backups"))
        (backup,) = (tmp_path / "backups").iterdir()
        checked = await instance.command("restore", "--check", str(backup))
        assert checked["ok"], checked
        assert checked["audit_lines"] >= report["lines"] > 0, checked
        async with (
            aiohttp.ClientSession() as caller,
            caller.post(instance.proxy + "/people", json=ANN) as answer,
        ):
            assert answer.status == 201, "rules with a fault are not in force"


@pytest.mark.slow
@STORES
async def test_what_rules_do_not_name_is_told_whichever_process_meets_it(
    tmp_path: Path, store: str
) -> None:
    address = "zorbina@example.com"
    async with team(tmp_path, store) as instance, aiohttp.ClientSession(instance.proxy) as caller:
        body = {**ANN, "contact": {"email": address}}
        async with caller.post("/people", json=body) as answer:
            assert answer.status == 201
            ident = (await answer.json())["id"]
        async with caller.get("/people", params={"search": address, "page": "2"}) as answer:
            assert answer.status == 200
        async with caller.delete(f"/people/{ident}", data={"contact": address}) as answer:
            assert answer.status in (200, 204)
        await instance.stop()
        shown = await instance.command("coverage", status=1)
        log = instance.log
    told = {(one["match"], one["place"], one["parameter"]): one for one in shown["parameters"]}
    assert told.keys() == {
        ("POST /people", "body", "$.contact.email"),
        ("GET /people", "query", "search"),
        ("DELETE /people/{id}", "form", "contact"),
    }
    assert all((one["suspected"], one["count"]) == (["email"], 1) for one in told.values())
    assert b"zorbina" not in log


@pytest.mark.slow
@STORES
async def test_a_stop_ends_all_and_so_does_the_end_of_the_supervisor(
    tmp_path: Path, store: str
) -> None:
    program = ("-m", "proxy", *WORKERS) if store == "embedded" else ()  # as a shell starts it
    async with team(tmp_path, store, program) as instance:
        assert await instance.stop() == 0
        assert not (instance.data / "workers").exists()
        instance.program = ()  # both ways of a start come to the same
        await instance.start()
        await ready(instance)
        served_by = workers_of(instance)
        await instance.kill()
        gone, alive = await asyncio.to_thread(psutil.wait_procs, served_by, PATIENCE)
        assert (len(gone), alive) == (len(served_by), [])
        await instance.start()  # what was left behind is in nobody's way
        await ready(instance)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [WORKERS, SUPERVISED])
async def test_a_start_waits_for_what_a_killed_supervisor_has_left(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    application = Application()
    async with serving(application.app()) as upstream, aiohttp.ClientSession() as caller:
        first = Instance(tmp_path, arguments=arguments)
        first.rules.mkdir()
        (first.rules / "rules.yaml").write_text(rules(upstream))
        await first.start()
        await ready(first)
        same = {
            f"DOMICILE__LISTEN__{name.upper()}": getattr(first, name).removeprefix("http://")
            for name in ("proxy", "vault", "admin")
        }
        again = Instance(tmp_path, environment=same, arguments=arguments)
        application.gate = asyncio.Event()
        asking = asyncio.create_task(caller.post(first.proxy + "/people", json=ANN))
        await until(lambda: application.requests > 0)
        assert first.process is not None
        first.send(signal.SIGKILL)
        await first.process.wait()  # until it is gone it has its lock, as one that lives
        starting = asyncio.create_task(again.start())
        await again.logged("processes of a service that was killed have to end first")
        application.gate.set()
        async with await asking as answer:
            assert answer.status == 201, "what was under way came to its end"
            made = await answer.json()
        await starting
        await ready(again)
        async with caller.get(f"{again.proxy}/people/{made['id']}") as answer:
            assert (answer.status, await answer.json()) == (200, made)
        assert await again.stop() == 0
        await first.ended()


@pytest.mark.parametrize(
    ("arguments", "environment", "status", "told"),
    [
        (
            ("2",),
            {
                "DOMICILE__STORE": "postgresql://x@127.0.0.1:1/x?replicas=true",
                "DOMICILE__AUDIT__STDOUT": "true",
            },
            1,
            "audit.syslog",
        ),
        (("0",), {}, 2, "a whole number from 1 to 63"),
        (("many",), {}, 2, "a whole number from 1 to 63"),
    ],
)
async def test_what_several_cannot_serve_is_refused_with_what_to_do(
    tmp_path: Path,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    status: int,
    told: str,
) -> None:
    instance = Instance(tmp_path, environment=environment)
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy", "serve", "--workers", *arguments, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **instance.settings()},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await asyncio.wait_for(program.communicate(), PATIENCE)
    assert program.returncode == status, said
    assert told in said.decode()
    assert not instance.data.exists()


VERSIONS = """
version: 1
endpoint: {name: app, upstream: "URL"}
entities:
  person:
    versions: keep
    fields:
      name:  {kind: name}
      email: {kind: email, token: {shape: email, same: true}, find: [exact]}
      born:  {kind: date}
      tags:  {kind: text, at: "$.tags[*]"}
operations:
  - match: POST /graphql
    graphql:
      person: {entity: person}
      Query.people: {read: person, arguments: {email: email}}
      Mutation.createPerson: {create: person, object: input}
      Mutation.updatePerson: {update: person, key: id, object: input}
      Mutation.deletePerson: {delete: person, key: id}
"""


XML = """
version: 1
endpoint: {name: app, upstream: "URL"}
entities: {person: {fields: {name: {kind: name}, born: {kind: date}}}}
operations:
  - {match: POST /p, create: person, request: {xml: $.person}, response: {xml: $.person, id: "$['@id']"}}
  - {match: GET /p, read: person, response: {xml: "$.people.person[*]", id: "$['@id']"}}
  - {match: "GET /p/{id}", read: person, response: {xml: $.person}}
"""


async def test_answers_of_xml_are_shown_by_every_worker(tmp_path: Path) -> None:
    stored: list[bytes] = []

    async def answer(request: web.Request) -> web.Response:
        if request.method == "POST":
            stored.append((await request.read()).replace(b"<person", b"<person id='1'"))
        body = (
            stored[0]
            if request.path != "/p" or request.method == "POST"
            else b"<people>%b</people>" % stored[0]
        )
        return web.Response(body=body, content_type="text/xml")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with team(tmp_path, "embedded", app=app, text=XML) as instance:
        sent = "<person><name>Ann &amp; Wexlomere</name><born>1931-02-27</born></person>"
        shown = sent.replace("<person", "<person id='1'")
        for _ in range(4):  # each a connection of its own
            async with aiohttp.ClientSession(headers={"Content-Type": "text/xml"}) as caller:
                if not stored:
                    async with caller.post(f"{instance.proxy}/p", data=sent) as said:
                        assert await said.text() == shown
                for path, wanted in (("/p/1", shown), ("/p", f"<people>{shown}</people>")):
                    async with caller.get(instance.proxy + path) as said:
                        assert (said.status, await said.text()) == (200, wanted)
    assert b"Wexlomere" not in stored[0]


@pytest.mark.slow
@STORES
async def test_each_version_of_a_record_of_graphql_is_shown_by_every_worker(
    tmp_path: Path, store: str
) -> None:
    people, app, every = People(), web.Application(), "id name email born tags"
    app.router.add_post("/graphql", people.serve)
    async with team(tmp_path, store, app=app, text=VERSIONS) as instance:

        async def ask(query: str, **variables: Any) -> Any:
            body = {"query": query.replace("EVERY", every), "variables": variables}
            url = f"{instance.proxy}/graphql"
            async with aiohttp.ClientSession() as caller, caller.post(url, json=body) as answer:
                data: dict[str, Any] = await answer.json(content_type=None)
                assert (answer.status, "errors" in data) == (200, False), data
                return data["data"]

        async def shown(stored: dict[str, Any]) -> Any:
            people.people["1"] = stored
            return (await ask("query { person(id: 1) { EVERY } }"))["person"]

        create = "mutation ($in: PersonInput!) { createPerson(input: $in) { EVERY } }"
        update = "mutation ($in: PersonInput!) { updatePerson(id: 1, input: $in) { EVERY } }"
        versions = []
        for number in range(4):
            meant = {
                "name": f"Wexlomere {number}", "email": f"a{number}@wexlomere.example",
                "born": f"195{number}-02-03", "tags": [f"yxmarker-{number}"],
            }  # fmt: skip
            await ask(update if number else create, **{"in": meant})
            versions.append((dict(people.people["1"]), {"id": "1", **meant}))
        for stored, wanted in versions * 3:
            assert await shown(stored) == wanted
        found = await ask('{ people(email: "a2@wexlomere.example") { EVERY } }')
        assert found == {"people": []}  # the application has the last one
        stored, wanted = versions[2]
        people.people["1"] = stored
        found = await ask('{ people(email: "a2@wexlomere.example") { EVERY } }')
        assert found == {"people": [wanted]}
        await ask("mutation { deletePerson(id: 1) }")
        for stored, _ in versions:
            assert await shown(stored) == stored
        assert not any("exlomere" in one or "yxmarker" in one for one in people.received)
