"""kill -9 between any two steps: nothing acknowledged is lost, every token resolves, nothing of a
refusal stays.
"""

import asyncio
import html
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from signal import SIGKILL
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.application import Application, Misbehaviour, found_in
from tests.support.crashing import STEPS as STEPS_OF
from tests.support.crashing import step_at
from tests.support.crowd import FIELDS, MARKERS, TOGETHER, VALUES, Crowd, body, faults, moody
from tests.support.effort import EXPLORE, rounds
from tests.support.lives import Installation, nursery
from tests.support.patience import PATIENCE
from tests.support.people import FLAT, RULES
from tests.support.scraping import FIELD
from tests.support.serving import serving
from tests.support.table import table

DAY = 86_400_000
FLAT_FIELDS = ("name", "email", "phone", "born", "card", "pin")
WORKERS = 6


@asynccontextmanager
async def before(
    application: Application, app: web.Application, folder: Path, text: str = RULES
) -> AsyncIterator[Crowd]:
    """Callers, and an installation that is not running yet, before that application."""
    async with (
        serving(app) as upstream,
        nursery() as cradle,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2 * PATIENCE)) as caller,
    ):
        installation = Installation(cradle, folder)
        installation.rules.mkdir()
        (installation.rules / "rules.yaml").write_text(text.format(upstream=upstream))
        yield Crowd(application, caller, installation)


@pytest.fixture
async def crowd(tmp_path: Path) -> AsyncIterator[Crowd]:
    application = Application()
    async with before(application, application.app(), tmp_path) as made:
        yield made


@pytest.fixture
async def moods(tmp_path: Path) -> AsyncIterator[Crowd]:
    application = Application()
    async with before(application, moody(application), tmp_path) as made:
        yield made


async def gauge(crowd: Crowd) -> dict[str, int]:
    """Records in the vault by state."""
    async with crowd.caller.get(crowd.installation.admin + "/metrics", headers=FIELD) as answer:
        lines = (await answer.text()).splitlines()
    found = [line for line in lines if line.startswith("domicile_records{")]
    return {
        line.split('state="')[1].split('"')[0]: int(float(line.rsplit(" ", 1)[1])) for line in found
    }


async def holding(crowd: Crowd, expected: dict[str, int]) -> None:
    """Wait until the vault holds as many records as it should."""
    found: dict[str, int] = {}
    for _ in range(int(PATIENCE / 0.05)):
        if (found := await gauge(crowd)) == expected:
            return
        await asyncio.sleep(0.05)
    assert found == expected


async def converge(crowd: Crowd, *shifts: int) -> None:
    """After everything that exists was read and ``pending.keep`` has passed, the vault holds what
    the application holds; ``shifts``: milliseconds after which it is read before, where the last
    life was not judged.
    """
    for shift in (*shifts, DAY, 9 * DAY):
        await crowd.installation.kill()
        assert await crowd.installation.start(shift=shift, quick=True)
        await crowd.judge(len(crowd.every))
    live = len(crowd.application.records)
    await holding(crowd, {"live": live, "pending": 0, "staged": 0})
    await crowd.judge(len(crowd.every))
    assert await crowd.installation.stop() == 0


def nowhere(crowd: Crowd) -> None:
    """No value reached the application, a file of the data folder, or the log."""
    heap = b"".join(
        path.read_bytes() for path in crowd.installation.folder.rglob("*") if path.is_file()
    )
    for marker in MARKERS:
        assert not crowd.application.holds(marker)
        assert not found_in(heap, marker)


# ---------------------------------------------------------------------- at named steps

#: One write, and what the application does with it.
WRITES: dict[str, tuple[str, tuple[str, ...], Misbehaviour]] = {
    "a create": ("POST", FIELDS, Misbehaviour()),
    "a create that is refused": ("POST", FIELDS, Misbehaviour(status=422)),
    "a create that updates another": ("POST", FIELDS, Misbehaviour(by="upsert")),
    "a create of what is there": ("POST", FIELDS, Misbehaviour(by="duplicate")),
    "a create under an id of before": ("POST", FIELDS, Misbehaviour(by="again")),
    "an update": ("PATCH", ("name", "email", "tags"), Misbehaviour()),
    "an update of tokens that only the record tells apart": (
        "PATCH", ("born", "phone"), Misbehaviour(),
    ),
    "an update that is refused": ("PUT", FIELDS, Misbehaviour(status=422)),
    "an update that fails late": ("PUT", FIELDS, Misbehaviour(status=503, act=True)),
    "an update that fails": ("PATCH", FIELDS, Misbehaviour(status=503)),
    "a delete": ("DELETE", (), Misbehaviour()),
    "a delete that is refused": ("DELETE", (), Misbehaviour(status=403)),
}  # fmt: skip

#: The step, and the how manieth time it is reached within the exchange.
STEPS = (
    ("stage.before", 1), ("transaction.after", 1), ("commit.after", 1), ("send.after", 1),
    ("transaction.after", 2), ("commit.after", 2), ("answer.after", 1),
)  # fmt: skip
#: Others, which leave behind what one of these does: on the disk, at the application, at the caller.
ALIKE = (
    ("transaction.before", 1), ("stage.after", 1), ("send.before", 1), ("settle.before", 1),
    ("transaction.before", 2), ("settle.after", 1), ("answer.before", 1),
)  # fmt: skip


async def write(crowd: Crowd, method: str, fields: tuple[str, ...], way: Misbehaviour) -> int:
    """One such write, on a record of its own where it needs one."""
    assert await crowd.create(0) == 201
    ident = crowd.application.following - 1
    crowd.application.plan = [way]
    crowd.installation.armed.touch()
    path = "/people" if method == "POST" else f"/people/{ident}"
    status, _ = await crowd.ask(
        method, path, **({"json": body(crowd.next(), fields)} if fields else {})
    )
    return status


@pytest.mark.parametrize(("step", "nth"), STEPS + ALIKE if EXPLORE else STEPS)
async def test_killed_at_a_step_of_an_exchange(crowd: Crowd, step: str, nth: int) -> None:
    """Each life but the first is judged before it dies in its turn."""
    assert await crowd.installation.start(kill_at=step, nth=nth)
    for name, (method, fields, way) in WRITES.items():
        status = await write(crowd, method, fields, way)
        assert await crowd.installation.ended() == -SIGKILL, f"{name} does not come to {step}"
        assert status == 0 or step == "answer.after"
        crowd.application.plan = []
        crowd.installation.armed.unlink()
        assert await crowd.installation.start(kill_at=step, nth=nth)
        await crowd.judge(4)  # each in the list; each by itself at the end
        assert await crowd.create(0) == 201
    await converge(crowd)
    nowhere(crowd)


#: Of an exchange that takes the fast path.
FAST_PATH_STEPS = (
    ("transaction.after", 1), ("begin.before", 1), ("begin.after", 1), ("transaction.after", 2),
    ("line.before", 1), ("show.before", 1), ("show.after", 1),
)  # fmt: skip
#: Others of it, which leave behind what one of these does.
FAST_PATH_ALIKE = (
    ("accept.before", 1), ("accept.after", 1), ("transaction.before", 1), ("came.before", 1),
    ("accept.before", 2), ("accept.after", 2), ("transaction.before", 2), ("came.after", 1),
    ("line.after", 1),
)  # fmt: skip


@asynccontextmanager
async def on_fast_path(
    folder: Path, *, odd: bool = False, known: float = 0
) -> AsyncIterator[Crowd]:
    """Callers whose bodies are alike, and rules that name members of objects only."""
    application = Application()
    app = moody(application, known=known) if odd else application.app()
    async with before(application, app, folder, FLAT) as made:
        made.fields, made.whole = FLAT_FIELDS, True
        yield made


@pytest.mark.parametrize(
    ("step", "nth"), FAST_PATH_STEPS + FAST_PATH_ALIKE if EXPLORE else FAST_PATH_STEPS
)
async def test_killed_at_a_step_of_an_exchange_on_the_fast_path(
    tmp_path: Path, step: str, nth: int
) -> None:
    async with on_fast_path(tmp_path) as crowd:
        assert await crowd.installation.start(kill_at=step, nth=nth)
        for updates in (False, True):
            assert [await crowd.create(0) for _ in range(6)] == [201] * 6
            ident = crowd.application.following - 1
            assert [await crowd.replace(ident) for _ in range(6)] == [200] * 6
            crowd.installation.armed.touch()
            status = await (crowd.replace(ident) if updates else crowd.create(0))
            assert await crowd.installation.ended() == -SIGKILL, f"it does not come to {step}"
            assert status in (0, 200 if updates else 201)
            assert status == 0 or step in ("show.after", "line.after")
            crowd.installation.armed.unlink()
            assert await crowd.installation.start(kill_at=step, nth=nth)
            await crowd.judge(4)
        await converge(crowd)
        nowhere(crowd)


def deaths(usual: int, enough: Callable[[], bool]) -> Iterator[int]:
    """Rounds that end when enough was tried as well: chance may have it otherwise in the usual ones."""
    for number in range(4 * rounds(usual)):
        if number >= rounds(usual) and enough():
            return
        yield number
    assert enough(), "nothing was tried"


@pytest.mark.slow
@pytest.mark.parametrize("known", [0, 0.3] if EXPLORE else [0])
async def test_killed_at_random_on_the_fast_path(tmp_path: Path, known: float) -> None:
    """``known``: of creates with the id of a record that is there, beside changes in doubt, nothing
    tells which value of a constant token is live. Only ``make explore`` draws those; every run draws
    them in one process (``lifecheck``).
    """
    async with on_fast_path(tmp_path, odd=True, known=known) as crowd:
        if known:
            crowd.fields = tuple(name for name in FLAT_FIELDS if name not in TOGETHER)
        tried = {"POST 201", "PUT 200", "GET 200", "POST 422"}
        for number in deaths(9, lambda: tried <= set(crowd.counts)):
            assert await crowd.installation.start(), crowd.installation.log.decode()
            if number % 7 == 6:
                await crowd.judge()
            work = (crowd.visit(worker, WORKERS) for worker in range(WORKERS))
            await crowd.installation.kill_at_work(work, crowd.counts, 40)
        if known:  # a record of before with many changes in doubt may be left without a name
            assert await crowd.installation.start()
            await crowd.judge(len(crowd.every))
            assert await crowd.installation.stop() == 0
        else:
            await converge(crowd, 0)
        nowhere(crowd)


@pytest.mark.parametrize(
    ("step", "nth"),
    [
        ("reconcile.before", 1), ("transaction.after", 1), ("commit.after", 1),
        ("reconcile.after", 1),
    ],
)  # fmt: skip
async def test_killed_while_an_answer_decides_what_was_in_doubt(
    crowd: Crowd, step: str, nth: int
) -> None:
    assert await crowd.installation.start()
    for act in (True, False):
        for fields in (FIELDS, ("born",), ("phone", "card")):
            await write(crowd, "PATCH", fields, Misbehaviour(status=500, act=act))
        await write(crowd, "POST", FIELDS, Misbehaviour(status=500, act=act))
        await crowd.installation.kill()
        assert await crowd.installation.start(kill_at=step, nth=nth)
        assert (await crowd.ask("GET", "/people"))[0] == 0
        assert await crowd.installation.ended() == -SIGKILL
        crowd.installation.armed.unlink()
        assert await crowd.installation.start()
        await crowd.judge(100)
    await converge(crowd)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("side", ["before", "after"])
async def test_killed_while_the_log_is_moved_into_the_database_or_emptied(
    crowd: Crowd, side: str, nth: int
) -> None:
    for _ in range(3 if EXPLORE else 1):
        assert await crowd.installation.start(kill_at=f"log.{side}", nth=nth, quick=True)
        assert [await crowd.create(0) for _ in range(5)] == [201] * 5
        crowd.installation.armed.touch()
        await crowd.create(0)
        assert await crowd.installation.ended() == -SIGKILL
        crowd.installation.armed.unlink()
        assert await crowd.installation.start()
        await crowd.judge(100)
        await crowd.installation.kill()
    await converge(crowd)


#: What a first start does, in order, and the how manieth time.
FIRST = [
    (f"{name}.{side}", nth)
    for name, nth in (
        ("folder", 1), ("file", 1), ("format", 1), ("draft of the key", 1), ("key", 1), ("note", 1),
        ("note", 2), ("table", 1),
    )
    for side in ("before", "after")
    if EXPLORE or side == "after" or name == "folder"  # what is before one is what another left
]  # fmt: skip


@pytest.mark.slow
async def test_killed_at_each_step_of_the_first_start(crowd: Crowd) -> None:
    for number, (step, nth) in enumerate(FIRST):
        crowd.installation.environment["DOMICILE__DATA"] = str(
            crowd.installation.folder / f"data{number}"
        )
        crowd.installation.armed.touch()
        assert not await crowd.installation.start(kill_at=step, nth=nth), (
            f"a first start does not come to {step}"
        )
        assert await crowd.installation.ended() == -SIGKILL
        crowd.installation.armed.unlink()
        assert await crowd.installation.start(), crowd.installation.log.decode()
        crowd.application.records.clear()
        assert await crowd.create(0) == 201
        await crowd.installation.kill()
        assert await crowd.installation.start()
        await crowd.judge(1)
        await crowd.installation.kill()


#: A list of all records, and the step of a delete at which the process dies, or of that list.
COMPLETE = RULES.replace('each: "$.items[*]", id: $.id', 'each: "$.items[*]", id: $.id, complete: true')  # fmt: skip
ENDS = ("send.before", "send.after", "settle.before", "commit.before", "commit.after")
LATER = 2 * 3_600_000


def ahead(application: Application) -> web.Application:
    """The application, whose clock runs ahead like that of the process."""

    @web.middleware
    async def dated(request: web.Request, handler: Any) -> web.StreamResponse:
        answer: web.StreamResponse = await handler(request)
        answer.headers["Date"] = formatdate(time.time() + LATER / 1000, usegmt=True)
        return answer

    made = application.app()
    made.middlewares.append(dated)
    return made


@pytest.mark.parametrize("step", ENDS)
async def test_a_delete_whose_process_was_killed_is_settled_by_a_list_of_all_records(
    tmp_path: Path, step: str
) -> None:
    application = Application()
    async with before(application, ahead(application), tmp_path, COMPLETE) as crowd:
        at_the_list = step.startswith("commit")
        plan: dict[str, Any] = {"kill_at": step, "nth": 1}
        assert await crowd.installation.start(**({} if at_the_list else plan))
        assert [await crowd.create(0) for _ in range(3)] == [201] * 3
        if at_the_list:
            application.plan = [Misbehaviour(status=500, act=True)]
        else:
            crowd.installation.armed.touch()
        status, _ = await crowd.ask("DELETE", "/people/2")
        if at_the_list:
            assert status == 500
            await crowd.installation.kill()
            assert await crowd.installation.start(shift=LATER, quick=True, **plan)
            await holding(crowd, {"live": 3, "pending": 0, "staged": 1})
            crowd.installation.armed.touch()
            await crowd.ask("GET", "/people")
        assert await crowd.installation.ended() == -SIGKILL
        crowd.installation.armed.unlink()
        assert await crowd.installation.start(shift=LATER, quick=True)
        taken = 2 not in application.records
        assert taken is (step != "send.before")
        status, seen = await crowd.ask("GET", "/people")
        assert status == 200
        assert not [fault for one in seen["items"] for fault in faults(one)]
        await holding(crowd, {"live": 3 - taken, "pending": 0, "staged": 0})
        await crowd.judge(3)
        nowhere(crowd)


PAGED = """\
version: 1
endpoint: {{name: paged, upstream: "{upstream}"}}
entities:
  person:
    fields:
      name: {{kind: name, find: [partial]}}
      born: {{kind: date, token: {{shape: fixed, value: "1900-01-01"}}}}
operations:
  - {{match: POST /people, create: person, request: {{form: {{name: name, born: born}}}},
     response: {{success: [{{status: 302, location: "/people/{{id}}"}}], id: "header Location /people/{{id}}"}}}}
  - {{match: "POST /people/{{id}}", update: person, request: {{form: {{name: name, born: born}}}},
     response: {{success: [{{status: 302, location: "/people/{{id}}"}}]}}}}
  - {{match: "GET /people/{{id}}", read: person, id: path id, response: {{restore: html, form: {{born: born}}}}}}
  - match: GET /people
    read: person
    query: {{q: {{field: [name], via: vault, send: {{param: ids, join: ",", none: "0"}}}}}}
    response: {{restore: html, only: [name]}}
"""
CARD = '<h1>{name}</h1><input name="born" value="{born}">'


@pytest.mark.parametrize("step", ["send.after", "settle.before"])
async def test_a_page_keeps_an_update_whose_process_was_killed(tmp_path: Path, step: str) -> None:
    stored: dict[str, str] = {}
    asked: list[str] = []

    async def save(request: web.Request) -> web.Response:
        stored.update({name: str(value) for name, value in (await request.post()).items()})
        return web.Response(status=302, headers={"Location": "/people/1"})

    async def page(request: web.Request) -> web.Response:
        asked.append(request.query.get("ids", ""))
        return web.Response(text=CARD.format(**stored), content_type="text/html")

    app = web.Application()
    app.add_routes(
        [
            *(web.post(path, save) for path in ("/people", "/people/1")),
            *(web.get(path, page) for path in ("/people", "/people/1")),
        ]
    )
    before_it = {"name": "Ann Berg", "born": "1931-02-27"}
    after_it = {"name": "Hanna Lind", "born": "2015-08-15"}

    async with before(Application(), app, tmp_path, PAGED) as crowd:
        installation = crowd.installation

        async def post(path: str, data: dict[str, str]) -> int:
            url = installation.proxy + path
            async with crowd.caller.post(url, data=data, allow_redirects=False) as answer:
                return answer.status

        async def card(path: str = "/people/1") -> str:
            async with crowd.caller.get(installation.proxy + path) as answer:
                return html.unescape(await answer.text())

        assert await installation.start(kill_at=step, nth=1)
        assert await post("/people", before_it) == 302
        installation.armed.touch()
        with pytest.raises(aiohttp.ClientError):
            await post("/people/1", after_it)
        assert await installation.ended() == -SIGKILL
        installation.armed.unlink()
        for shift in (0, 9 * DAY, 18 * DAY):
            assert await installation.start(shift=shift, upkeep=0.05)
            assert await card() == CARD.format(**after_it)
            seen = installation.rounds
            async with asyncio.timeout(PATIENCE):
                while installation.rounds <= seen + 1:  # noqa: ASYNC110  # another process counts
                    await asyncio.sleep(0.02)
            assert "Hanna Lind" in await card("/people?q=hanna")
            assert asked[-1] == "1"
            await installation.kill()


# ---------------------------------------------------------------------- at random


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2 if EXPLORE else 1))
async def test_killed_at_random(moods: Crowd, part: int) -> None:
    installation, counts = moods.installation, moods.counts
    tried = {"POST 201", "PATCH 200", "PUT 200", "DELETE 204", "POST 422"}
    for number in deaths(11, lambda: tried <= set(counts) and counts["POST killed"] > 5):
        if random.random() < 0.1:  # while it starts
            await installation.begin()
            await asyncio.sleep(random.uniform(0, 0.25))
            await installation.kill()
            continue
        assert await installation.start(), installation.log.decode()
        if number % 7 == 6:
            await moods.judge()
        work = (moods.visit(worker, WORKERS) for worker in range(WORKERS))
        await installation.kill_at_work(work, counts, 40)
    await converge(moods, 0)
    nowhere(moods)


@table("place", [place for places in STEPS_OF.values() for place in places])
def test_each_step_is_a_function_of_the_program(place: str) -> None:
    owner, name = step_at(place)
    assert callable(getattr(owner, name))


def test_the_judge_sees_a_wrong_value() -> None:
    seen = body(7)
    assert not faults(seen)
    for name in FIELDS:
        assert faults({**seen, name: VALUES[name](8)}) == [f"{name}_w=7: {VALUES[name](8)!r}"]
