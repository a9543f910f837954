"""``domicile adopt`` and ``release`` over so many records of the application of
``docs/guides/fastapi.md``, which people use meanwhile; the command and the proxy are killed.

``python -m tests.support.adoption 100000 20000`` adopts so many, releases so many of them, and says
what it measured: some 15 minutes for each 20,000 on a machine with two cores that has other work.
"""

import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.support.guides import Guide
from tests.support.instance import Instance, running
from tests.support.lives import write_command
from tests.support.patience import PATIENCE
from tests.support.ports import closed_port
from tests.support.real.inside import faults
from tests.support.real.installed import GUIDES, environment
from tests.support.tree import ROOT

RULES = (ROOT / "rules" / "examples" / "fastapi.yaml").read_text("utf-8")
UPSTREAM = 'upstream: "http://127.0.0.1:8000"'
#: While people are given back, an answer without the vault must show no token.
ON_ERROR = "on_error:\n"
VAULT_DOWN = "  vault_down: {read: 503}\n"
MARKERS = (b"Zorbina", b"wexlomere")
FIELDS = ("name", "email", "phone", "birth_date")
CITIES = ("Arboga", "Visby")
WORKERS = 3

#: Two processes, which have time to start on a busy machine.
SERVE = (
    *("-m", "uvicorn", "tagged:app", "--log-level", "error", "--workers", "2"),
    *("--timeout-worker-healthcheck", "300", "--timeout-keep-alive", "300"),
)

#: The application of the guide with entity tags, as its callers need them to change it at the same
#: time, and a count of what the walk asks of it.
TAGGED = """
import asyncio, contextlib, fcntl, hashlib, json
from fastapi import HTTPException
from main import app as guide, shown

changing = asyncio.Lock()
guard = open("guard", "ab")
counts = {name: open(name, "ab", 0) for name in ("get list", "get one", "patch one")}


@contextlib.asynccontextmanager
async def alone():  # of all tasks, and of all processes
    async with changing:
        fcntl.flock(guard, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(guard, fcntl.LOCK_UN)


async def answered(scope, receive):
    messages = []

    async def send(message):
        messages.append(message)

    await guide(scope, receive, send)
    return messages[0], b"".join(one.get("body", b"") for one in messages[1:])


def tag_now(number):
    with contextlib.suppress(HTTPException):
        return tag_of(shown(int(number)).model_dump(mode="json"))


def tag_of(record):
    text = json.dumps(record, sort_keys=True)  # its processes write members in different orders
    return b'"%s"' % hashlib.sha256(text.encode()).hexdigest()[:16].encode()


async def told(send, status, headers, body):
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def app(scope, receive, send):
    if scope["type"] != "http":
        return await guide(scope, receive, send)
    headers = dict(scope["headers"])
    if b"x-walk" in headers:
        kind = "list" if scope["path"] == "/people" else "one"
        counts["%s %s" % (scope["method"].lower(), kind)].write(b".")
    if not scope["path"].startswith("/people/"):
        return await guide(scope, receive, send)
    change, wanted = scope["method"] == "PATCH", headers.get(b"if-match")
    async with alone() if change else contextlib.nullcontext():
        if change and wanted and tag_now(scope["path"][8:]) not in (None, wanted):
            return await told(send, 412, [], b"")
        start, body = await answered(scope, receive)
    fields = [*start["headers"], (b"etag", tag_of(json.loads(body)))] if start["status"] == 200 else start["headers"]
    await told(send, start["status"], fields, body)
"""


def person(number: int) -> dict[str, Any]:
    """Somebody whom the application holds when the proxy comes."""
    return {
        "name": f"Zorbina Quibble{number}", "email": f"z{number}@wexlomere.example",
        "phone": f"+46 70 918 {number:06}", "birth_date": f"19{number % 90 + 10}-02-27",
    }  # fmt: skip


class Scale(NamedTuple):
    """How much is walked."""

    adopted: int
    released: int  #: the first ones of these
    kills: int  #: in each direction


@dataclass
class Office:
    """The guide's application, the proxy before it, and the time that it is dead."""

    scale: Scale
    folder: Path
    direct: str
    instance: Instance
    session: aiohttp.ClientSession
    deaths: int = 0
    dead: bool = False

    @property
    def file(self) -> Path:
        return self.folder / "application" / "people.db"

    async def ask(self, method: str, address: str, content: Any = None) -> tuple[int, Any]:
        async with self.session.request(method, address, json=content) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text else None

    async def all_people(self, base: str) -> dict[int, dict[str, Any]]:
        """What the list shows, page by page."""
        people: dict[int, dict[str, Any]] = {}
        while True:
            status, page = await self.ask("GET", f"{base}/people?offset={len(people)}&limit=1000")
            assert status == 200, page
            if not page:
                return people
            before = len(people)
            people.update((one["id"], one) for one in page)
            assert len(people) == before + len(page), "a record stands there twice"

    def rows(self) -> dict[int, dict[str, Any]]:
        """The people in the file of its database."""
        with closing(sqlite3.connect(self.file)) as base:
            base.row_factory = sqlite3.Row
            return {row["id"]: dict(row) for row in base.execute("SELECT * FROM person")}

    def bytes_of_file(self) -> bytes:
        """Its database without replaced rows, as ``docs/adopt.md`` says."""
        with closing(sqlite3.connect(self.file)) as base:
            base.execute("VACUUM")
        return self.file.read_bytes()

    def counts(self) -> dict[str, int]:
        """How often the walk has asked the application, by what."""
        files = (self.file.with_name(name) for name in ("get list", "get one", "patch one"))
        return {one.name: one.stat().st_size for one in files}

    async def die(self) -> None:
        """kill -9 of the proxy, and a new one soon."""
        self.dead, self.deaths = True, self.deaths + 1
        await self.instance.kill()
        await self.instance.start()
        self.dead = False


@asynccontextmanager
async def office(folder: Path, scale: Scale) -> AsyncIterator[Office]:
    """The application with people in the clear, and the proxy before it."""
    with closed_port() as port, closed_port() as proxy:
        async with application(folder / "application", scale, port) as direct:
            rules = RULES.replace(UPSTREAM, f'upstream: "{direct}"')
            rules = rules.replace(ON_ERROR, ON_ERROR + VAULT_DOWN)
            listen = {
                "DOMICILE__LISTEN__PROXY": f"127.0.0.1:{proxy}",
                "DOMICILE__UPSTREAM__CONNECT": "60s",  # the application shares a busy machine
            }
            async with (
                running(folder / "proxy", rules, **listen) as instance,
                aiohttp.ClientSession() as session,
            ):
                yield Office(scale, folder, direct, instance, session)


@asynccontextmanager
async def application(folder: Path, scale: Scale, port: int) -> AsyncIterator[str]:
    """The application of the guide with so many people, in two processes of its own."""
    python = written(folder, scale)
    process = await asyncio.create_subprocess_exec(
        str(python), *SERVE, "--port", str(port), cwd=folder, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await _listening(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            process.terminate()  # so that its workers end, too
        await process.wait()


def written(folder: Path, scale: Scale) -> Path:
    """Make the folder of the application with so many people; the Python that runs it."""
    folder.mkdir(parents=True)
    (folder / "main.py").write_text(Guide.named("fastapi").files()["main.py"])
    (folder / "tagged.py").write_text(TAGGED)
    python = environment(GUIDES)
    subprocess.run([str(python), "-c", "import main"], cwd=folder, check=True)
    rows = ((*person(one).values(), city(one, scale)) for one in range(1, scale.adopted + 1))
    with closing(sqlite3.connect(folder / "people.db")) as base, base:
        columns = ", ".join((*FIELDS, "city"))
        base.executemany(f"INSERT INTO person ({columns}) VALUES (?, ?, ?, ?, ?)", rows)
    return python


async def _listening(port: int, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            assert process.returncode is None, "the application ended"
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


def city(number: int, scale: Scale) -> str:
    """Where somebody lives: who is released, in the first one."""
    return CITIES[number > scale.released]


def killed(process: asyncio.subprocess.Process) -> None:
    """Kill it; one that has ended by itself in the meantime is as good."""
    with suppress(ProcessLookupError):
        process.kill()


@dataclass
class Worker:
    """Somebody who works with records of their own, remembers each answer and looks at each."""

    here: Office
    own: int
    random: random.Random
    write: str = ""  #: the address that writes go to
    #: by id, what its name may be: one text once an answer came
    names: dict[int, set[str]] = field(default_factory=dict)
    created: dict[str, bool] = field(default_factory=dict)  #: by address, whether surely
    deleted: dict[int, bool] = field(default_factory=dict)
    tokens: set[int] = field(default_factory=set)  #: whose values the proxy has written
    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  #: of each answer
    stop: bool = False

    async def work(self) -> None:
        number = 0
        while not self.stop:
            number += 1
            begun, deaths, dead = time.monotonic(), self.here.deaths, self.here.dead
            kind = self.random.choices([*_WORK], [one for one, _ in _WORK.values()])[0]
            try:
                await _WORK[kind][1](self, number)
                self.counts[kind] += 1
                self.seconds.append(time.monotonic() - begun)
            except (aiohttp.ClientError, OSError, TimeoutError):
                assert dead or self.here.deaths > deaths, f"{kind} got no answer while all ran"
                self.counts["killed"] += 1
                await asyncio.sleep(0.1)
            await asyncio.sleep(self.random.uniform(0, 0.5))

    @property
    def mine(self) -> range:
        return range(self.own + 1, self.here.scale.adopted + 1, WORKERS)

    def somebody(self) -> int:
        return self.random.choice(self.mine)

    def shown(self, ident: int) -> dict[str, Any]:
        """A record but for its name."""
        return {**person(ident), "id": ident, "city": city(ident, self.here.scale)}

    def is_right(self, record: dict[str, Any], ident: int) -> bool:
        names = self.names.get(ident, {person(ident)["name"]})
        return record["name"] in names and {**record, "name": ""} == {
            **self.shown(ident),
            "name": "",
        }

    async def read(self, _: int) -> None:
        """A person sees the person, adopted or not."""
        ident = self.somebody()
        status, record = await self.here.ask("GET", f"{self.here.instance.proxy}/people/{ident}")
        if ident in self.deleted and status == 404:
            return
        assert (status, not self.deleted.get(ident)) == (200, True), (ident, status, record)
        assert self.is_right(record, ident), record

    async def browse(self, _: int) -> None:
        """A page of the list shows people alone."""
        start = self.random.randrange(self.here.scale.adopted)
        path = f"/people?offset={start}&limit=20"
        status, page = await self.here.ask("GET", self.here.instance.proxy + path)
        assert status == 200, page
        assert all("wexlomere.example" in one["email"] for one in page), page
        assert all(one["name"].startswith("Zorbina") for one in page), page

    async def search(self, _: int) -> None:
        """Whoever is found is right; whose values are tokens surely is found."""
        ident = self.somebody()
        if self.tokens and self.random.random() < 0.7:
            ident = self.random.choice([*self.tokens])
        sure = ident in self.tokens and ident not in self.deleted
        email = person(ident)["email"]
        key = self.random.choice(("email", "q"))
        path = f"/people?{key}={email}"
        status, found = await self.here.ask("GET", self.here.instance.proxy + path)
        assert status == 200, found
        assert len(found) <= 1, found
        assert found or not sure, f"{path} finds nobody"
        assert all(self.is_right(one, ident) for one in found), found

    async def rename(self, number: int) -> None:
        ident = self.somebody()
        if ident in self.deleted:
            return
        name = f"Zorbina {ident} {number}"
        self.names.setdefault(ident, {person(ident)["name"]}).add(name)
        adopts = self.write == self.here.instance.proxy and self.random.random() < 0.5
        content = {**person(ident), "name": name} if adopts else {"name": name}
        status, record = await self.here.ask("PATCH", f"{self.write}/people/{ident}", content)
        assert (status, record.get("name")) == (200, name), record
        self.names[ident] = {name}
        if adopts:
            self.tokens.add(ident)

    async def create(self, number: int) -> None:
        email = f"n{self.own}x{number}x{self.random.randrange(10**9)}@wexlomere.example"
        self.created[email] = False
        content = {**person(number), "email": email, "city": CITIES[1]}
        status, record = await self.here.ask("POST", f"{self.write}/people", content)
        assert (status, record.get("email")) == (201, email), record
        self.created[email] = True

    async def delete(self, _: int) -> None:
        ident = self.somebody()
        if ident in self.deleted:
            return
        self.deleted[ident] = False
        status, _answer = await self.here.ask("DELETE", f"{self.write}/people/{ident}")
        assert status == 204, status
        self.deleted[ident] = True
        self.tokens.discard(ident)

    def check(self, people: Mapping[int, dict[str, Any]]) -> None:
        """Nothing of what was answered is lost, and nothing is there twice."""
        for ident in self.mine:
            record = people.get(ident)
            if record is None:
                assert ident in self.deleted, f"{ident} is lost"
                continue
            assert not self.deleted.get(ident), f"{ident} is there again"
            assert self.is_right(record, ident), f"{ident} is not what it was: {record}"


_WORK: dict[str, tuple[int, Any]] = {
    "read": (30, Worker.read), "browse": (10, Worker.browse), "search": (20, Worker.search),
    "rename": (30, Worker.rename), "create": (8, Worker.create), "delete": (2, Worker.delete),
}  # fmt: skip


@asynccontextmanager
async def at_work(workers: list[Worker], write: str) -> AsyncIterator[None]:
    """People work for the length of the block; what one of them finds wrong ends it."""
    async with asyncio.TaskGroup() as group:
        for one in workers:
            one.stop, one.write = False, write
            group.create_task(one.work())
        try:
            yield
        finally:
            for one in workers:
                one.stop = True


class Walked(NamedTuple):
    """What a walk says at its end, and what it took."""

    report: dict[str, Any]
    seconds: float
    kills: Counter[str]
    requests: dict[str, int]  #: of the walk, that reached the application


async def walked(here: Office, chance: random.Random, command: str, path: str, due: int) -> Walked:
    """Walk to the end while this very process and the proxy are killed after random shares of it."""
    kills, begun = Counter[str](), time.monotonic()
    write_command(program := here.folder / "bin" / "domicile")
    words = ("--proxy", here.instance.proxy, "--header", "X-Walk: yes", "--pages", "offset+0")
    arguments = (command, *words, "--list", path, "--json", "person")
    before = here.counts()
    ends = sorted(chance.uniform(0, due) for _ in range(here.scale.kills))
    while True:
        with (here.folder / "walk.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(str(program), *arguments),
                cwd=here.folder,
                env={**os.environ, **here.instance.settings()},
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        output = asyncio.create_task(process.communicate())
        while not output.done() and ends:
            await asyncio.wait([output], timeout=0.3)
            if output.done() or here.counts()["patch one"] - before["patch one"] < ends[0]:
                continue
            victim = ("proxy", "command", "both")[len(ends) % 3]
            ends.pop(0)
            kills[victim] += 1
            if victim != "proxy":
                killed(process)
            if victim != "command":
                await here.die()
        said, _ = await output
        if process.returncode in (-9, 137):
            continue
        assert process.returncode == 0, (said, (here.folder / "walk.log").read_text()[-9000:])
        requests = {name: count - before[name] for name, count in here.counts().items()}
        return Walked(json.loads(said), time.monotonic() - begun, kills, requests)


async def adopted_and_released(folder: Path, scale: Scale, seed: int) -> None:
    """The whole story; prints what was measured."""
    chance = random.Random(seed)
    async with office(folder, scale) as here:
        workers = [Worker(here, own, random.Random(seed + own)) for own in range(WORKERS)]
        size = max(20, min(500, scale.adopted // 40))
        async with at_work(workers, here.instance.proxy):
            path = f"/people?limit={size}"
            adopted = await walked(here, chance, "adopt", path, scale.adopted)
        _tell("adopt", adopted, workers)
        await _check_adopted(here, workers)
        for one in workers:  # a search by a token finds those who are not released
            one.tokens = {i for i in one.mine if i > scale.released} - one.deleted.keys()
        async with at_work(workers, here.direct):
            path = f"/people?city={CITIES[0]}&limit={size}"
            released = await walked(here, chance, "release", path, scale.released)
        _tell("release", released, workers)
        await _check_released(here, workers)
        assert faults(here.instance) == []


async def _check_adopted(here: Office, workers: list[Worker]) -> None:
    """Each record through the proxy is as it was; none of its values is in the database."""
    people = await here.all_people(here.instance.proxy)
    for one in workers:
        one.check(people)
    _check_created(people, workers)
    rows = here.rows()
    assert rows.keys() == people.keys()
    clear = [
        (ident, name)
        for ident, row in rows.items()
        for name in FIELDS
        if row[name] == people[ident][name]
    ]
    assert clear == []
    content = here.bytes_of_file()
    assert [one for one in MARKERS if one in content] == []


async def _check_released(here: Office, workers: list[Worker]) -> None:
    """The database has values again where people are released, and callers see what they saw."""
    people = await here.all_people(here.instance.proxy)
    for one in workers:
        one.check(people)
    _check_created(people, workers)
    rows = here.rows()
    assert rows.keys() == people.keys()
    for ident in range(1, here.scale.released + 1):
        assert rows.get(ident) == people.get(ident), ident


def _check_created(people: Mapping[int, dict[str, Any]], workers: list[Worker]) -> None:
    there = Counter(one["email"] for one in people.values() if one["email"].startswith("n"))
    for one in workers:
        for email, sure in one.created.items():
            assert there.pop(email, 0) in ((1,) if sure else (0, 1)), email
    assert there == {}, "records that nobody made"


def _tell(name: str, walk: Walked, workers: list[Worker]) -> None:
    report, requests = walk.report, walk.requests
    assert report["complete"], report
    counts = sum((one.counts for one in workers), Counter[str]())
    count = max(1, report["converted"])  # as the state file has it, which a kill leaves behind
    seconds = sorted(one for worker in workers for one in worker.seconds) or [0.0]
    for one in workers:
        one.counts.clear()
        one.seconds.clear()
    print(
        f"{name}: {report['records']} records, {count} written again in {walk.seconds:.0f} s "
        f"({count / walk.seconds:.1f} a second), {dict(walk.kills)} killed\n"
        f"  of each the application was asked {requests['get one'] / count:.2f} times and written "
        f"{requests['patch one'] / count:.2f} times; {requests['get list']} pages; {report['passes']} passes, "
        f"{report['conditional']} conditional\n"
        f"  meanwhile people: {dict(counts)}; half of their answers within {seconds[len(seconds) // 2]:.3f} s, "
        f"99 % within {seconds[len(seconds) * 99 // 100]:.2f} s, all within {seconds[-1]:.2f} s\n"
        f"  load averages of the machine: {os.getloadavg()}",
        flush=True,
    )


def main(words: list[str]) -> int:
    """Adopt and release so many records; 0 when all is as it has to be."""
    adopted, released = (int(one) for one in words)
    kills = max(8, adopted // 10_000)
    with tempfile.TemporaryDirectory() as folder:
        scale = Scale(adopted, released, kills)
        asyncio.run(adopted_and_released(Path(folder), scale, random.randrange(10**6)))
    print("all records, answers and the database's file are right")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
