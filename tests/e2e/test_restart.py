"""``domicile serve --supervised``: the process that serves is replaced, dies or is killed, and the
sockets stay.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import psutil
import pytest

from tests.support.application import Application
from tests.support.instance import Instance
from tests.support.patience import PATIENCE, until
from tests.support.people import ANN, rules
from tests.support.serving import serving
from tests.support.tree import ROOT

SUPERVISED = ("serve", "--supervised")
#: The same in a fresh interpreter, as anybody starts it.
FRESH = ("-m", "proxy", *SUPERVISED)
CALLERS = 6


class Callers:
    """Callers that create people all the time and read each one back, half of them on a connection
    for each request; whatever is no answer counts.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.answers = 0
        self.broken: list[str] = []
        self.made: list[int] = []  #: ids of the people whose create was answered
        self.over = False

    async def work(self, *, keep: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=not keep)
        timeout = aiohttp.ClientTimeout(PATIENCE)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as caller:
            while not self.over:
                try:
                    await self.visit(caller)
                except aiohttp.ClientError as error:
                    self.broken.append(repr(error))
                await asyncio.sleep(0.005)

    async def visit(self, caller: aiohttp.ClientSession) -> None:
        people = self.instance.proxy + "/people"
        async with caller.post(people, json=ANN) as answer:
            assert answer.status == 201, await answer.text()
            made = await answer.json()
        self.made.append(made["id"])
        async with caller.get(f"{people}/{made['id']}") as answer:
            assert (answer.status, await answer.json()) == (200, made)
        async with caller.get(self.instance.vault + "/schemas") as answer:
            assert answer.status in (401, 404)
        self.answers += 3

    async def further(self, count: int) -> None:
        """Wait for so many answers more."""
        enough = self.answers + count
        async with asyncio.timeout(PATIENCE):
            while self.answers < enough:  # noqa: ASYNC110  # the callers count
                await asyncio.sleep(0.01)


@asynccontextmanager
async def supervised(folder: Path, program: tuple[str, ...] = ()) -> AsyncIterator[Instance]:
    """A supervised installation before an application; forked, where no program is named."""
    async with serving(Application().app()) as upstream:
        instance = Instance(folder, program, arguments=SUPERVISED)
        instance.rules.mkdir()
        (instance.rules / "rules.yaml").write_text(rules(upstream))
        await instance.start()
        try:
            yield instance
        finally:
            if instance.process is not None:
                await instance.stop()


@asynccontextmanager
async def at_work(instance: Instance) -> AsyncIterator[Callers]:
    callers = Callers(instance)
    async with asyncio.TaskGroup() as group:
        for number in range(CALLERS):
            group.create_task(callers.work(keep=bool(number % 2)))
        await callers.further(30)
        yield callers
        callers.over = True


def server_of(instance: Instance) -> psutil.Process:
    """The process that serves."""
    assert instance.process is not None
    (child,) = psutil.Process(instance.process.pid).children()
    return child


async def served(instance: Instance, times: int) -> None:
    await instance.logged("active rules", times)


@pytest.mark.slow
async def test_no_request_is_lost_while_the_process_that_serves_is_replaced(tmp_path: Path) -> None:
    async with supervised(tmp_path) as instance, at_work(instance) as callers:
        first = server_of(instance)
        for times in (2, 3):
            instance.send(signal.SIGUSR2)
            await served(instance, times)
            await callers.further(30)
        await until(lambda: not first.is_running())
    assert callers.broken == []


@pytest.mark.slow
async def test_a_killed_process_is_followed_by_another_one_and_callers_wait_for_it(
    tmp_path: Path,
) -> None:
    async with supervised(tmp_path) as instance, at_work(instance) as callers:
        server_of(instance).kill()
        await served(instance, 2)
        await callers.further(30)
        assert len(callers.broken) <= CALLERS, "those whose request was under way"


@pytest.mark.slow
async def test_what_could_not_start_replaces_nothing(tmp_path: Path) -> None:
    async with supervised(tmp_path, FRESH) as instance:
        first = server_of(instance)
        (instance.rules / "broken.yaml").write_text("endpoint: {")
        instance.send(signal.SIGUSR2)
        await instance.logged(
            "a new process could not start, and the one that serves goes on: "
            "`domicile check` says why"
        )
        assert server_of(instance) == first
        async with (
            aiohttp.ClientSession() as caller,
            caller.get(instance.admin + "/healthz") as answer,
        ):
            assert answer.status == 200


@pytest.mark.slow
async def test_a_stop_ends_both_and_the_end_of_the_supervisor_that_of_its_process(
    tmp_path: Path,
) -> None:
    async with supervised(tmp_path) as instance:
        assert await instance.stop() == 0
        await instance.start()
        served_by = server_of(instance)
        await instance.kill()
        with suppress(psutil.NoSuchProcess):
            await asyncio.to_thread(served_by.wait, PATIENCE)
        assert not served_by.is_running()


async def test_a_first_start_with_a_fault_ends_with_its_status(tmp_path: Path) -> None:
    instance = Instance(tmp_path, FRESH, {"DOMICILE__KEYS": "env:NOT_THERE"})
    instance.rules.mkdir()
    program = await asyncio.create_subprocess_exec(
        *_command(), cwd=tmp_path, env={**os.environ, **_path(), **instance.settings()},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, told = await asyncio.wait_for(program.communicate(), PATIENCE)
    assert program.returncode == 1
    assert b"NOT_THERE" in told


async def test_sockets_of_systemd_serve_only_where_the_settings_say(tmp_path: Path) -> None:
    for elsewhere in (False, True):
        with socket.create_server(("127.0.0.1", 0)) as own:
            port = 1 if elsewhere else own.getsockname()[1]
            folder = tmp_path / str(port)
            folder.mkdir()
            instance = Instance(
                folder, environment={"DOMICILE__LISTEN__PROXY": f"127.0.0.1:{port}"}
            )
            instance.rules.mkdir()
            program = await asyncio.create_subprocess_exec(
                *_activated(own.fileno()), cwd=folder, pass_fds=[own.fileno()],
                env={**os.environ, **_path(), **instance.settings()},
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                assert program.stderr is not None
                line = await asyncio.wait_for(_line(program.stderr, b"listen"), PATIENCE)
                assert (b"does not listen at 127.0.0.1:1" in line) == elsewhere
                assert elsewhere or str(port).encode() in line
            finally:
                if program.returncode is None:
                    program.terminate()
                await program.wait()


async def _line(stream: asyncio.StreamReader, word: bytes) -> bytes:
    """The next line about the proxy with that word."""
    async for line in stream:
        if word in line and b"proxy" in line:
            return line
    return b""


def _command() -> tuple[str, ...]:
    return (sys.executable, *FRESH)


def _path() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT)}


def _activated(number: int) -> tuple[str, ...]:
    """Starts the program as systemd does: the socket is descriptor 3, and meant for this process."""
    code = (
        f"import os, sys; os.dup2({number}, 3); os.set_inheritable(3, True);"
        " os.environ |= {'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1',"
        " 'LISTEN_FDNAMES': 'proxy'};"
        " os.execv(sys.executable, [sys.executable, '-m', 'proxy', 'serve'])"
    )
    return (sys.executable, "-c", code)
