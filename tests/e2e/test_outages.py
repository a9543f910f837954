"""The disk, the vault or the application fails while the proxy runs: what callers see, and that it
mends by itself.
"""

import asyncio
import json
import resource
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from signal import SIGHUP, SIGTERM
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.application import Application, Misbehaviour, found_in
from tests.support.crowd import MARKERS, Crowd, body, faults
from tests.support.lives import Installation, nursery
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.ports import closed_port
from tests.support.real.inside import Counts, counts
from tests.support.scraping import FIELD
from tests.support.serving import serving


@pytest.fixture
async def crowd(tmp_path: Path) -> AsyncIterator[Crowd]:
    """Callers before an installation that is not running yet."""
    application = Application()
    async with (
        serving(application.app()) as upstream,
        nursery() as cradle,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2 * PATIENCE)) as caller,
    ):
        installation = Installation(cradle, tmp_path, {"DOMICILE__LOG__LEVEL": "debug"})
        installation.rules.mkdir()
        (installation.rules / "rules.yaml").write_text(rules(upstream))
        yield Crowd(application, caller, installation)
        await installation.kill()
        nowhere(application, tmp_path)


def nowhere(application: Application, folder: Path) -> None:
    """No value reached the application or a log line."""
    for marker in MARKERS:
        assert not application.holds(marker)
        assert not found_in(b"".join(log.read_bytes() for log in folder.glob("*.log")), marker)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  # another process makes it so
            await asyncio.sleep(0.02)


async def send(crowd: Crowd, method: str, path: str, **options: Any) -> tuple[int, Any]:
    """A request whose answer may be the proxy's own; such a one never quotes what was sent."""
    async with crowd.caller.request(
        method, crowd.installation.proxy + path, allow_redirects=False, **options
    ) as got:
        raw = await got.read()
        if got.content_type == "application/problem+json":
            assert {"status", "code", "detail"} <= json.loads(raw).keys()
            assert not any(found_in(raw, marker) for marker in MARKERS)
        return got.status, json.loads(raw) if raw else None


async def metrics(crowd: Crowd, name: str, label: str) -> float:
    """The sum of the samples of a metric that carry this text in their labels."""
    async with crowd.caller.get(crowd.installation.admin + "/metrics", headers=FIELD) as answer:
        lines = (await answer.text()).splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith(name + "{") and label in line
    )


def kept(crowd: Crowd) -> Counts:
    """What the vault has now; the gauges tell it late."""
    return counts(crowd.installation.data)


async def ready(crowd: Crowd) -> None:
    """Wait until nothing is wrong any more."""
    async with asyncio.timeout(PATIENCE):
        while (await crowd.caller.get(crowd.installation.admin + "/readyz")).status != 200:  # noqa: ASYNC110  # another process makes it so
            await asyncio.sleep(0.05)


def limit(crowd: Crowd, size: int) -> None:
    """Let no file of the process grow beyond that size: a full disk, to be freed at will."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.prlimit(crowd.installation.process, resource.RLIMIT_FSIZE, (size, hard))


FREE = resource.RLIM_INFINITY

WRITES = [
    ("POST", "/people", 201), ("PATCH", "/people/1", 200), ("PUT", "/people/1", 200),
    ("DELETE", "/people/1", 204),
]  # fmt: skip


def sending(method: str, number: int) -> dict[str, Any]:
    """What a request of that method carries."""
    return {} if method == "DELETE" else {"json": body(number)}


# ---------------------------------------------------------------------- the disk


async def test_a_full_disk_refuses_writes_sends_nothing_on_and_mends_by_itself(
    crowd: Crowd,
) -> None:
    assert await crowd.installation.start()
    assert await crowd.create(0) == 201
    limit(crowd, 100)  # not even a log line fits
    before = crowd.application.requests
    for method, path, _ in WRITES:
        status, problem = await send(crowd, method, path, **sending(method, 9))
        assert (status, problem["code"]) == (503, "vault_down")
    assert crowd.application.requests == before
    # no line of the audit log fits, so nothing is revealed
    status, listed = await send(crowd, "GET", "/people")
    assert status == 200
    assert not any(found_in(json.dumps(listed).encode(), marker) for marker in MARKERS)
    limit(crowd, FREE)
    await ready(crowd)
    for method, path, status in WRITES:
        assert (await send(crowd, method, path, **sending(method, crowd.next())))[0] == status
    await crowd.judge()
    await until(lambda: kept(crowd).pending == 0)


@pytest.mark.slow
async def test_a_disk_that_fills_up_during_the_start_does_not_end_it(crowd: Crowd) -> None:
    """Lines of the audit log still fit, the vault's database takes no checkpoint of it any more."""
    assert await crowd.installation.start()
    assert await crowd.installation.stop() == 0
    crowd.installation.armed.touch()
    assert await crowd.installation.start(failing=["put_notes"])
    assert await crowd.create(0) == 201
    await until(
        lambda: bool(
            crowd.installation.events("maintenance of the audit log failed and will be retried")
        )
    )
    crowd.installation.armed.unlink()
    await crowd.judge()
    assert await crowd.installation.stop() == 0


@pytest.mark.parametrize(("method", "path", "status"), WRITES)
async def test_the_disk_fills_up_while_the_application_works(
    crowd: Crowd, method: str, path: str, status: int
) -> None:
    assert await crowd.installation.start(upkeep=0.3)
    assert await crowd.create(0) == 201
    crowd.application.gate = asyncio.Event()
    seen = crowd.application.requests
    asking = asyncio.create_task(send(crowd, method, path, **sending(method, crowd.next())))
    await until(lambda: crowd.application.requests > seen)
    limit(crowd, 100)
    crowd.application.gate.set()
    answered, answer = await asking
    # the application took it, and no line can say so
    assert (answered, answer["code"]) == (503, "audit_down")
    async with asyncio.timeout(PATIENCE):  # a settle behind the answer is met by the disk after it
        while not await metrics(crowd, "domicile_vault_events_total", 'event="late"'):  # noqa: ASYNC110  # the instance counts by itself
            await asyncio.sleep(0.05)
    assert (await send(crowd, "PATCH", "/people/1", json=body(3)))[0] == 503
    limit(crowd, FREE)
    await ready(crowd)
    answered, listed = await send(crowd, "GET", "/people")
    assert not [fault for record in listed["items"] for fault in faults(record)]
    await until(lambda: kept(crowd)[:3] == (len(crowd.application.records), 0, 0))
    crowd.every.update(crowd.application.records)
    await crowd.judge()


async def test_a_database_that_leaves_its_place_is_not_written_to(crowd: Crowd) -> None:
    assert await crowd.installation.start()
    assert await crowd.create(0) == 201
    database = crowd.installation.data / "vault.db"
    database.rename(database.with_name("elsewhere.db"))
    before = crowd.application.requests
    status, problem = await send(crowd, "POST", "/people", json=body(2))
    assert (status, problem["code"]) == (503, "vault_down")
    assert str(crowd.installation.folder) not in json.dumps(problem), (
        "a caller learns nothing of our folders"
    )
    assert crowd.application.requests == before
    database.with_name("elsewhere.db").rename(database)
    assert await crowd.create(0) == 201
    await crowd.judge()


# ---------------------------------------------------------------------- the vault


async def test_a_vault_that_cannot_be_read_shows_tokens_or_a_status(crowd: Crowd) -> None:
    verbs = ["rows", "by_keys", "by_tokens", "staged"]
    assert await crowd.installation.start(failing=verbs)
    assert await crowd.create(0) == 201
    crowd.installation.armed.touch()
    status, seen = await send(crowd, "GET", "/people/1")
    assert (status, seen) == (200, crowd.application.records[1]), "tokens"
    assert await metrics(crowd, "domicile_vault_events_total", 'event="unrestored"') == 1
    crowd.installation.armed.unlink()
    await crowd.judge()
    file = crowd.installation.rules / "rules.yaml"
    file.write_text(
        file.read_text().replace(
            "entities:", "on_error: {vault_down: {read: 507, write: 598}}\nentities:", 1
        )
    )
    await until(lambda: bool(crowd.installation.events("rules are active")))
    crowd.installation.armed.touch()
    assert (await send(crowd, "GET", "/people/1"))[0] == 507
    assert (await send(crowd, "PATCH", "/people/1", json=body(5)))[0] == 598
    crowd.installation.armed.unlink()
    await crowd.judge()


async def test_an_update_after_one_whose_settling_is_late_wins(crowd: Crowd) -> None:
    assert await crowd.installation.start(failing=["commit Replace"], upkeep=1.5)
    assert await crowd.create(0) == 201
    crowd.installation.armed.touch()
    status, seen = await send(
        crowd, "PATCH", "/people/1", json=body(crowd.next(), ("name", "born"))
    )
    assert (status, faults(seen)) == (200, [])
    assert await metrics(crowd, "domicile_vault_events_total", 'event="late"') == 1
    crowd.installation.armed.unlink()
    for number in (crowd.next(), 1):  # another value, and the one that was there first
        status, seen = await send(crowd, "PATCH", "/people/1", json=body(number, ("name", "born")))
        assert (status, faults(seen)) == (200, [])
    await until(lambda: kept(crowd).staged == 0)
    rounds = crowd.installation.rounds
    # the first of them may have begun before
    await until(lambda: crowd.installation.rounds >= rounds + 2)
    await crowd.judge()


async def test_one_damaged_record_takes_no_other_with_it(crowd: Crowd) -> None:
    assert await crowd.installation.start()
    for _ in range(3):
        assert await crowd.create(0) == 201
    assert await crowd.installation.stop() == 0
    with sqlite3.connect(crowd.installation.data / "vault.db") as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'r\\_%' ESCAPE '\\'"
        )
        counted = {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for (name,) in tables.fetchall()
        }
        # the instance has a table of its own as well
        (table,) = (name for name, count in counted.items() if count)
        (rid, sealed) = connection.execute(
            f"SELECT rid, body FROM {table} ORDER BY rid LIMIT 1"
        ).fetchone()
        connection.execute(
            f"UPDATE {table} SET body = ? WHERE rid = ?",
            (sealed[:-1] + bytes([sealed[-1] ^ 1]), rid),
        )
    connection.close()
    assert await crowd.installation.start()
    status, listed = await send(crowd, "GET", "/people")
    assert status == 200
    assert listed["items"][0]["name"] == crowd.application.records[1]["name"]
    assert not faults(listed["items"][1]) + faults(listed["items"][2])
    assert await metrics(crowd, "domicile_vault_events_total", 'event="unopenable"') >= 1


# ---------------------------------------------------------------------- the application


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_write_that_was_cut_off_is_never_sent_twice(crowd: Crowd, method: str) -> None:
    assert await crowd.installation.start()
    assert await crowd.create(0) == 201
    crowd.application.plan = [Misbehaviour(cut=True, act=True), Misbehaviour(status=422)]
    before = crowd.application.requests
    status, problem = await send(crowd, method, "/people/1", **sending(method, crowd.next()))
    assert (status, problem["code"]) == (502, "upstream_broken")
    assert crowd.application.requests == before + 1
    crowd.application.plan = []
    assert (await send(crowd, "GET", "/people/1"))[0] == (404 if method == "DELETE" else 200)
    await crowd.judge()
    await crowd.installation.kill()
    assert await crowd.installation.start()
    await crowd.judge()
    await until(lambda: kept(crowd).live == len(crowd.application.records))


async def test_an_application_that_is_not_there_leaves_nothing_in_the_vault(crowd: Crowd) -> None:
    with closed_port() as port:
        (crowd.installation.rules / "rules.yaml").write_text(rules(f"http://127.0.0.1:{port}"))
        assert await crowd.installation.start(quick=True)
        status, problem = await send(crowd, "POST", "/people", json=body(1))
    assert (status, problem["code"]) == (502, "upstream_unreachable")
    assert str(port) not in json.dumps(problem), "a caller learns nothing of the network behind"
    assert await metrics(crowd, "domicile_vault_events_total", 'event="dropped"') == 1
    await until(lambda: kept(crowd)[:3] == (0, 0, 0))


async def test_an_application_that_falls_silent_is_given_up_and_its_record_kept(
    crowd: Crowd,
) -> None:
    crowd.installation.environment["DOMICILE__UPSTREAM__HEAD"] = "300ms"
    assert await crowd.installation.start()
    tries, crowd.application.plan = 0, [Misbehaviour(hang=True, act=True)] * 20
    # where this machine pauses, the application may have learned of it too late, or not at all
    while not crowd.application.records:
        tries += 1
        assert tries < 10
        status, problem = await send(crowd, "POST", "/people", json=body(1))
        assert (status, problem["code"]) == (504, "upstream_timeout")
        assert await metrics(crowd, "domicile_vault_events_total", 'event="in_doubt"') == tries
    assert await crowd.installation.stop() == 0
    # what follows is answered, however long it takes
    del crowd.installation.environment["DOMICILE__UPSTREAM__HEAD"]
    assert await crowd.installation.start()
    crowd.application.plan = []
    crowd.every.update(crowd.application.records)
    await crowd.judge()
    made = len(crowd.application.records)
    assert await metrics(crowd, "domicile_vault_events_total", 'event="reconciled"') == made


async def test_a_request_never_chooses_where_it_is_sent(crowd: Crowd) -> None:
    reached: list[str] = []

    async def trap(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.json_response({"name": "trap"})

    victim = web.Application()
    victim.router.add_route("*", "/{rest:.*}", trap)
    assert await crowd.installation.start()
    host, port = crowd.installation.proxy.removeprefix("http://").split(":")
    async with serving(victim) as address:
        place = address.removeprefix("http://")
        for request in (
            f"GET {address}/people/1 HTTP/1.1\r\nHost: {place}\r\n",
            f"GET {address}/secret HTTP/1.1\r\nHost: localhost\r\n",
            f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n",
            (
                f"GET /people/1 HTTP/1.1\r\nHost: {place}\r\nX-Forwarded-Host: {place}\r\nForwarded: "
                f"host={place}\r\n"
            ),
            f"GET //{place}/people/1 HTTP/1.1\r\nHost: localhost\r\n",
            f"GET /@{place}/ HTTP/1.1\r\nHost: localhost\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request.encode() + b"Connection: close\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), PATIENCE)).startswith(b"HTTP/1.1 ")
            writer.close()
            await writer.wait_closed()
    assert not reached


# ---------------------------------------------------------------------- signals


async def refusing(crowd: Crowd) -> None:
    """Wait until no connection is taken any more."""
    host, port = crowd.installation.proxy.removeprefix("http://").split(":")
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                return
            except ConnectionResetError:  # it stood in line when the listener closed
                continue
            writer.close()


async def test_sigterm_lets_a_slow_request_finish_and_takes_no_new_one(crowd: Crowd) -> None:
    assert await crowd.installation.start()
    crowd.application.gate = asyncio.Event()
    asking = asyncio.create_task(send(crowd, "POST", "/people", json=body(crowd.next())))
    await until(lambda: crowd.application.requests > 0)
    crowd.installation.send(SIGTERM)
    await until(lambda: bool(crowd.installation.events("stopping: requests under way may finish")))
    await refusing(crowd)
    crowd.application.gate.set()
    status, seen = await asking
    assert (status, faults(seen)) == (201, [])
    assert await crowd.installation.ended() == 0
    assert not crowd.installation.data.joinpath("vault.db-wal").exists(), (
        "the log was not moved into the database"
    )
    crowd.application.gate = None
    assert await crowd.installation.start()
    await crowd.judge()
    await until(lambda: kept(crowd).live == 1)


async def test_sighup_loads_the_rules_again_and_keeps_the_old_ones_where_they_are_broken(
    crowd: Crowd,
) -> None:
    assert await crowd.installation.start()
    assert await crowd.create(0) == 201
    crowd.installation.send(SIGHUP)
    file = crowd.installation.rules / "rules.yaml"
    good = file.read_text()
    file.write_text("version: 1\nnonsense: true\n")
    crowd.installation.send(SIGHUP)
    await until(
        lambda: bool(crowd.installation.events("rules rejected; previous rules stay active"))
    )
    await crowd.judge()
    assert await crowd.create(0) == 201
    file.write_text(good)
    crowd.installation.send(SIGHUP)
    async with asyncio.timeout(PATIENCE):
        while True:
            async with crowd.caller.get(crowd.installation.admin + "/readyz") as answer:
                if not (await answer.json())["stale"]:
                    break
            await asyncio.sleep(0.02)
    await crowd.judge()


# ---------------------------------------------------------------------- the clock


async def test_a_start_with_a_clock_that_was_set_back_says_so_and_serves(crowd: Crowd) -> None:
    installation = crowd.installation
    assert await installation.start(shift=3_600_000)
    assert (await send(crowd, "POST", "/people", json=body(1)))[0] == 201
    assert await installation.stop() == 0
    assert await installation.run("check") == 0
    assert b"the clock of this machine is 3" in installation.output, "some 3,590 seconds"
    assert await installation.start()
    await until(lambda: installation.events("the clock of this machine was set back") != [])
    async with crowd.caller.get(installation.admin + "/readyz", headers=FIELD) as answer:
        assert answer.status == 200
        assert (await answer.json())["stale"] == ["clock"]
    assert (await send(crowd, "GET", "/people/1"))[1]["name"] == body(1)["name"]
