"""A soak: mixed load for so many minutes, while keys rotate, rules are loaded again, backups are
taken and the serving process is replaced.

    make soak MINUTES=30                 (the same as ``python -m tests.support.soak 30``)
    make soak MINUTES=30 REPLICAS=yes    (``… 30 replicas``: two instances on one PostgreSQL)
    make soak MINUTES=30 SEVERAL=yes     (``… 30 several``: two workers before the owner of a file)

It prints one line of JSON each round of upkeep, and ends with status 1 where an answer was wrong or
missing, or where memory or descriptors of the serving process grow.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
import psutil
from aiohttp import web

from tests.support.instance import SERVE, Instance
from tests.support.patience import until
from tests.support.people import rules
from tests.support.postgres import own_server
from tests.support.serving import serving

SUPERVISED = ("-m", "proxy", "serve", "--supervised")
SEVERAL = ("-m", "proxy", "serve", "--workers", "2")
CALLERS = 8
#: Records that each caller keeps, so that nothing but the history of the vault grows.
MOST = 150
#: Seconds that one answer may take while a process is replaced.
LONGEST = 30.0
#: Seconds of them that may be no pause of the machine, and in which neither who asks nor who
#: answers waits for a processor that others have: nothing else makes an answer wait for long.
OWN = 3.0
#: Seconds between two looks whether the machine pauses, and what is a pause.
LOOK, PAUSE = 0.1, 0.1
#: Of the same process, later against earlier: how much more memory.
GROWTH = 1.15
#: Bytes that any process may take besides, for caches that fill.
ROOM = 24 << 20
#: Descriptors that a process may have more after its first round, of what is no connection; and its
#: connections to one address, of callers and of any other side. A leak of one each round is found.
MORE, MOST_OF_CALLERS, MOST_TO_ONE = 2, 2 * CALLERS + 4, 2 * CALLERS


def people() -> web.Application:
    """An application that keeps people in memory, and no more than it is asked to."""
    stored: dict[int, dict[str, Any]] = {}
    numbers = iter(range(1, 1 << 40))

    async def create(request: web.Request) -> web.Response:
        key = next(numbers)
        stored[key] = {**await request.json(), "id": key}
        return web.json_response(stored[key], status=201)

    async def one(request: web.Request) -> web.Response:
        key = int(request.match_info["id"])
        if key not in stored:
            return web.Response(status=404)
        if request.method == "DELETE":
            del stored[key]
            return web.Response(status=204)
        if request.method == "PATCH":
            stored[key] = {**stored[key], **await request.json()}
        return web.json_response(stored[key])

    async def search(request: web.Request) -> web.Response:
        email = request.query["email"]
        items = [record for record in stored.values() if record["email"] == email]
        return web.json_response({"items": items[:50]})

    async def status(_request: web.Request) -> web.Response:
        return web.Response(text="well")

    app = web.Application()
    app.router.add_post("/people", create)
    app.router.add_get("/people", search)
    app.router.add_route("*", "/people/{id:\\d+}", one)
    app.router.add_get("/status", status)
    return app


def person(number: int) -> dict[str, Any]:
    """Somebody who is told by the number."""
    return {
        "name": f"Zorbina Quibblethwaite {number}",
        "email": f"z{number}@wexlomere.example",
        "phone": f"+46 70 {number % 10_000_000:07d}",
        "address": {"street": f"Flumpergatan {number}", "city": "Visby"},
        "tags": [f"yxmarker-{number}"],
    }


class Pace(NamedTuple):
    """How much is done in which time, in seconds."""

    steps: int = 28  #: of upkeep
    pause: float = 64.0  #: before each of them
    rest: float = 0.02  #: of a caller between two visits
    longest: float = LONGEST  #: for one answer
    own: float = OWN  #: of them without pauses of the machine


@dataclass
class Caller:
    """One caller with records of his own, who knows what each answer has to show."""

    ways: list[str]  #: where an instance serves at the moment
    number: int
    records: dict[int, dict[str, Any]] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    #: seconds of the longest answer, and less pauses of the machine, by what was asked and what
    #: the operator did then
    longest: dict[str, float] = field(default_factory=dict)
    own: dict[str, float] = field(default_factory=dict)
    pauses: "Pauses | None" = None
    doing: Callable[[], str] = str
    pace: Pace = field(default_factory=Pace)
    faults: list[str] = field(default_factory=list)
    _made: int = 0

    @property
    def proxy(self) -> str:
        """Any of the ways, as a load balancer takes it."""
        return random.choice(self.ways)

    async def work(self, over: asyncio.Event) -> None:
        """Ask until it is over; whatever is not the right answer is a fault."""
        timed = aiohttp.TraceConfig()
        timed.on_request_start.append(_note_start)
        timed.on_request_end.append(self._note_end)
        patience = aiohttp.ClientTimeout(self.pace.longest)
        async with aiohttp.ClientSession(timeout=patience, trace_configs=[timed]) as http:
            while not over.is_set():
                try:
                    await self._visit(http)
                except (aiohttp.ClientError, TimeoutError, AssertionError, ValueError) as error:
                    self.faults.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(self.pace.rest)
            for key in self.records:
                await self._ask(http, "read", "GET", key)

    async def _note_end(self, _: Any, request: Any, told: aiohttp.TraceRequestEndParams) -> None:
        end = time.monotonic()
        seconds = end - request.started
        what = f"{told.method} while {self.doing()}"
        self.longest[what] = max(self.longest.get(what, 0.0), round(seconds, 2))
        if self.pauses is not None:
            seconds -= self.pauses.within(request.started, end)
        self.own[what] = max(self.own.get(what, 0.0), round(seconds, 2))

    async def _visit(self, http: aiohttp.ClientSession) -> None:
        await self._create(http)
        key = random.choice(list(self.records))
        await self._ask(http, "read", "GET", key)
        self.records[key] |= person(self._next())
        await self._ask(http, "update", "PATCH", key, json=self.records[key])
        email = self.records[key]["email"]
        async with http.get(f"{self.proxy}/people", params={"email": email}) as answer:
            shown = await answer.json()
            assert [record["id"] for record in shown["items"]] == [key], shown
        self.answers["search"] += 1
        async with http.get(f"{self.proxy}/status") as answer:
            assert (answer.status, await answer.text()) == (200, "well")
        self.answers["pass"] += 1
        if len(self.records) > MOST:
            await self._delete(http, random.choice(list(self.records)))

    async def _create(self, http: aiohttp.ClientSession) -> None:
        body = person(self._next())
        async with http.post(f"{self.proxy}/people", json=body) as answer:
            record = await answer.json()
            assert answer.status == 201, (answer.status, record)
        self.records[record["id"]] = {**body, "id": record["id"]}
        assert record == self.records[record["id"]], record
        self.answers["create"] += 1

    async def _ask(
        self, http: aiohttp.ClientSession, name: str, method: str, key: int, **body: Any
    ) -> None:
        async with http.request(method, f"{self.proxy}/people/{key}", **body) as answer:
            record = await answer.json()
            assert (answer.status, record) == (200, self.records[key]), (answer.status, record)
        self.answers[name] += 1

    async def _delete(self, http: aiohttp.ClientSession, key: int) -> None:
        async with http.delete(f"{self.proxy}/people/{key}") as answer:
            assert answer.status == 204, answer.status
        del self.records[key]
        self.answers["delete"] += 1

    def _next(self) -> int:
        self._made += 1
        return self.number * 10_000_000 + self._made


class Look(NamedTuple):
    """What a process takes at one moment."""

    memory: int  #: bytes
    files: int  #: descriptors of anything but connections
    callers: int  #: connections of callers
    others: int  #: connections to one address, the most

    @classmethod
    def at(cls, process: psutil.Process) -> "Look":
        """Look at a process."""
        there = process.net_connections("tcp")
        listening = {one.laddr.port for one in there if one.status == psutil.CONN_LISTEN}
        joined = [one for one in there if one.raddr]
        outwards = Counter(one.raddr for one in joined if one.laddr.port not in listening)
        callers = len(joined) - outwards.total()
        most = max(outwards.values(), default=0)
        return cls(process.memory_info().rss, process.num_fds() - len(joined), callers, most)


class Pauses:
    """Times in which this machine, or its disk, did nothing for anybody: a thread writes a few bytes
    to the disk again and again, and notes where that takes long. It also notes for how long each of
    the processes was ready to run and others had the processors.
    """

    def __init__(self, folder: Path, processes: Callable[[], Iterable[int]] = tuple) -> None:
        self._file = folder / "pauses"
        self._processes = processes
        #: at each look: when it was, and the seconds of each process so far
        self.ready: deque[tuple[float, dict[int, float]]] = deque(maxlen=1000)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.noted: deque[tuple[float, float]] = deque(maxlen=1000)  #: begin and end, the last ones

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with self._file.open("wb", buffering=0) as file:
            began = time.monotonic()
            while not self._over.wait(LOOK):
                file.seek(0)
                file.write(b"pause?")
                os.fsync(file.fileno())
                end = time.monotonic()
                if end - began > LOOK + PAUSE:
                    self.noted.append((began, end))
                began = end
                self.ready.append((end, {one: ready(one) for one in self._processes()}))

    def within(self, begin: float, end: float) -> float:
        """Seconds between these two moments that are not those of who serves."""
        paused = sum(max(0.0, min(end, till) - max(begin, since)) for since, till in [*self.noted])
        looks = [*self.ready]
        first = max((one for one in looks if one[0] <= begin), default=None, key=itemgetter(0))
        last = min((one for one in looks if one[0] >= end), default=None, key=itemgetter(0))
        before = first[1] if first else looks[0][1] if looks else {}
        after = last[1] if last else looks[-1][1] if looks else {}
        # an answer passes through three: who asks, an instance, and a session of the database
        waited = sorted(after[one] - before.get(one, 0.0) for one in after)[-3:]
        return min(end - begin, max(paused, sum(max(0.0, one) for one in waited)))

    def share(self) -> dict[str, float]:
        """Of the time of the looks that are kept, the part in which processes that were there all
        the while waited for a processor: on average, and the one that waited most.
        """
        looks = [*self.ready]
        if len(looks) < 2:
            return {}
        (began, before), (end, after) = looks[0], looks[-1]
        parts = [(after[one] - before[one]) / (end - began) for one in after if one in before]
        if not parts:
            return {}
        return {"average": round(statistics.mean(parts), 2), "most": round(max(parts), 2)}


def ready(process: int) -> float:
    """Seconds for which the main thread of a process was ready to run and did not (proc(5))."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except OSError:  # it has ended, or the machine does not tell
        return 0.0


async def _note_start(_session: Any, request: Any, _told: Any) -> None:
    request.started = time.monotonic()


@dataclass
class Upkeep:
    """What an operator does meanwhile, one thing after the other, and what the process takes."""

    instance: Instance
    targets: Path
    #: by process id: its looks, round by round
    looks: dict[int, list[list[Look]]] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    doing: str = "nothing"  #: at the moment
    _looked: int = -1  #: round of the last look

    def look(self, number: int) -> None:
        """Note in that round what the processes that serve take."""
        for one in self.serving():
            rounds = self.looks.setdefault(one.pid, [])
            if not rounds or self._looked < number:
                rounds.append([])
            rounds[-1].append(Look.at(one))
        self._looked = number

    def serving(self) -> list[psutil.Process]:
        """The processes that serve."""
        assert self.instance.process is not None
        return list(psutil.Process(self.instance.process.pid).children())

    def pids(self) -> list[int]:
        """Their numbers; none of one that is being replaced."""
        with suppress(psutil.NoSuchProcess):
            return [one.pid for one in self.serving()]
        return []

    async def verify(self) -> list[Any]:
        """What there is to say of the audit log."""
        return [await self.instance.command("audit", "verify")]

    async def step(self, number: int) -> str:
        """The next thing to do; its name."""
        names = ("rules", "data key", "backup", "rules", "audit key", "backup", "replace")
        name = self.doing = names[number % len(names)]
        match name:
            case "rules":
                file = self.instance.rules / "rules.yaml"
                async with self.told("rules are active"):
                    file.write_text(f"# {number}\n" + file.read_text())
            case "backup":
                target = self.targets / f"{number}.backup"
                await self.instance.command("backup", str(target))
                target.unlink()
            case "replace":
                before = set(self.pids())
                async with self.told("active rules"):
                    self.instance.send(signal.SIGUSR2)
                await until(lambda: before.isdisjoint(self.pids()))
            case _:
                await self.instance.command("keys", "rotate", name.split()[0])
        self.done[name] += 1
        self.doing = "nothing"
        return name

    @asynccontextmanager
    async def told(self, event: str) -> AsyncIterator[None]:
        """Wait after the block until each process that serves has logged it once more."""
        enough = len(self.instance.events(event)) + len(self.serving())
        yield
        await self.instance.logged(event, enough)

    def faults(self) -> list[str]:
        """Processes that grew: in memory, the last third of looks against the third before it; in
        descriptors, each round against the first one after that of its start.
        """
        grown = []
        for pid, rounds in self.looks.items():
            looks = [look for one in rounds for look in one]
            third = len(looks) // 3
            before, after = (
                statistics.median([look.memory for look in part] or [0])
                for part in (looks[third : 2 * third], looks[2 * third :])
            )
            if third >= 5 and after > before * GROWTH + ROOM:
                grown.append(f"process {pid}: {before} to {after} bytes")
            files = [min(look.files for look in one) for one in rounds[1:]]
            if files and max(files) > files[0] + MORE:
                grown.append(f"process {pid}: {files} descriptors, round by round")
            callers, others = (max(look[kind] for look in looks) for kind in (2, 3))
            if callers > MOST_OF_CALLERS or others > MOST_TO_ONE:
                grown.append(f"process {pid}: {callers} connections of callers, {others} to one")
        return grown


@dataclass
class FleetUpkeep(Upkeep):
    """The same for two instances on one database; one is taken out of the load balancer before it
    ends, and put back when it serves. Keys are rotated while one runs alone.
    """

    second: Instance | None = None
    ways: list[str] = field(default_factory=list)
    database: int = 0  #: its main process

    def pids(self) -> list[int]:
        with suppress(psutil.NoSuchProcess):
            sessions = psutil.Process(self.database).children()
            return [*super().pids(), *(one.pid for one in sessions)]
        return []

    def both(self) -> tuple[Instance, Instance]:
        assert self.second is not None
        return self.instance, self.second

    def serving(self) -> list[psutil.Process]:
        processes = [one.process for one in self.both()]
        return [psutil.Process(one.pid) for one in processes if one is not None]

    async def verify(self) -> list[Any]:
        return [await one.command("audit", "verify") for one in self.both()]

    async def step(self, number: int) -> str:
        names = ("rules", "data key", "backup", "restart", "rules", "audit key", "backup")
        name = self.doing = names[number % len(names)]
        match name:
            case "rules":
                for one in self.both():
                    file = one.rules / "rules.yaml"
                    taken = len(one.events("rules are active"))
                    file.write_text(f"# {number}\n" + file.read_text())
                    await one.logged("rules are active", taken + 1)
            case "backup":
                target = self.targets / f"{number}.backup"
                await self.instance.command("backup", str(target))
                target.unlink()
            case "restart":
                for one in self.both():
                    async with self.without(one):
                        pass
            case _:
                async with self.without(self.both()[1]):
                    await self.instance.command("keys", "rotate", name.split()[0])
        self.done[name] += 1
        self.doing = "nothing"
        return name

    @asynccontextmanager
    async def without(self, one: Instance) -> AsyncIterator[None]:
        """Without that instance for a while."""
        self.ways.remove(one.proxy)
        await asyncio.sleep(0.2)
        assert await one.stop() == 0, one.log[-2000:].decode()
        yield
        await one.start()
        self.ways.append(one.proxy)


@dataclass
class Soak:
    """What came of a soak."""

    callers: list[Caller]
    upkeep: Upkeep
    pauses: Pauses | None = None

    def faults(self) -> list[str]:
        """Every wrong or missing answer, and every process that grew."""
        most = max(one.pace.own for one in self.callers)
        slow = [f"{what} took {own} s" for what, own in self.longest("own").items() if own > most]
        wrong = [fault for one in self.callers for fault in one.faults]
        return [*wrong, *slow, *self.upkeep.faults()]

    def longest(self, kind: str = "longest") -> dict[str, float]:
        """Seconds of the longest answers of all callers, by circumstance, the longest first."""
        whole = {"none": 0.0}
        for one in self.callers:
            for what, seconds in getattr(one, kind).items():
                whole[what] = max(whole.get(what, 0.0), seconds)
        return dict(sorted(whole.items(), key=lambda one: -one[1]))

    def summary(self) -> dict[str, Any]:
        """What was done, for one line of JSON."""
        return {
            "answers": dict(sum((one.answers for one in self.callers), Counter())),
            "slowest": dict([*self.longest().items()][:3]),
            "without_pauses_of_the_machine": dict([*self.longest("own").items()][:3]),
            "waited_for_a_processor": {} if self.pauses is None else self.pauses.share(),
            "upkeep": dict(self.upkeep.done),
            "memory_mib": [one[-1][-1].memory >> 20 for one in self.upkeep.looks.values()],
            "descriptors": [one[-1][-1][1:] for one in self.upkeep.looks.values()],
            "faults": len(self.faults()),
            "last_fault": (self.faults() or [""])[-1],
        }


@asynccontextmanager
async def supervised(
    folder: Path, program: tuple[str, ...] = SUPERVISED, **environment: str
) -> AsyncIterator[Instance]:
    """A supervised installation before the application, with a local socket for its commands."""
    socket = {"DOMICILE__LISTEN__SOCKET": str(folder / "admin.sock")}
    async with serving(people()) as upstream:
        instance = Instance(folder, program, socket | environment)
        instance.rules.mkdir(parents=True)
        (instance.rules / "rules.yaml").write_text(rules(upstream))
        await instance.start()
        try:
            yield instance
        finally:
            await instance.stop()


async def soak(folder: Path, pace: Pace, program: tuple[str, ...] = SUPERVISED) -> Soak:
    """Load an installation in this folder while it is looked after at that pace."""
    async with supervised(folder, program) as instance:
        return await _loaded(Upkeep(instance, folder), [instance.proxy], pace)


async def soak_fleet(folder: Path, pace: Pace, program: tuple[str, ...] = SERVE) -> Soak:
    """The same with two instances on a database of their own."""
    with own_server() as server:
        store = server.address(replicas="true")
        async with fleet(folder, store, program) as (first, second):
            ways = [first.proxy, second.proxy]
            upkeep = FleetUpkeep(first, folder, second=second, ways=ways)
            upkeep.database = server.process.pid if server.process is not None else 0
            return await _loaded(upkeep, ways, pace)


@asynccontextmanager
async def fleet(
    folder: Path, store: str, program: tuple[str, ...]
) -> AsyncIterator[tuple[Instance, Instance]]:
    """Two instances on one store, with keys and attachments in common."""
    async with serving(people()) as upstream, AsyncExitStack() as stack:
        both = []
        for name in ("one", "two"):
            place = folder / name
            environment = {
                "DOMICILE__STORE": store,
                "DOMICILE__KEYS": f"file://{folder}/keys.json",
                "DOMICILE__FILES": f"file://{folder}/files",
                "DOMICILE__LISTEN__SOCKET": str(place / "admin.sock"),
            }
            instance = Instance(place, program, environment)
            instance.rules.mkdir(parents=True)
            (instance.rules / "rules.yaml").write_text(rules(upstream))
            await instance.start()
            stack.push_async_callback(instance.kill)
            both.append(instance)
        yield both[0], both[1]


async def _loaded(upkeep: Upkeep, ways: list[str], pace: Pace) -> Soak:
    numbers = range(1, CALLERS + 1)
    callers = [Caller(ways, one, doing=lambda: upkeep.doing, pace=pace) for one in numbers]
    result = Soak(callers, upkeep)
    over = asyncio.Event()
    with Pauses(upkeep.targets, lambda: [os.getpid(), *upkeep.pids()]) as pauses:
        result.pauses = pauses
        async with asyncio.TaskGroup() as group:
            for caller in callers:
                caller.pauses = pauses
                group.create_task(caller.work(over))
            for number in range(pace.steps):
                for _ in range(10):
                    await asyncio.sleep(pace.pause / 10)
                    result.upkeep.look(number)
                print(json.dumps({"step": await result.upkeep.step(number), **result.summary()}))
                sys.stdout.flush()
            over.set()
    print(json.dumps({"audit": await upkeep.verify()}))
    return result


def main() -> int:
    """Soak for the minutes of the command line; 1 where there is a fault."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    folder = Path(tempfile.mkdtemp(prefix="domicile-soak-"))
    try:
        work: Callable[[Path, Pace], Coroutine[Any, Any, Soak]] = soak
        if "replicas" in sys.argv[2:]:
            work = soak_fleet
        elif "several" in sys.argv[2:]:
            work = partial(soak, program=SEVERAL)
        result = asyncio.run(work(folder / "run", Pace(28, minutes * 60 / 28)))
    finally:
        shutil.rmtree(folder)
    for fault in result.faults():
        print(fault, file=sys.stderr)
    return 1 if result.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
