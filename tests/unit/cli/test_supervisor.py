"""The supervisor with programs that stand for the one that serves; the whole with real ones:
tests/e2e/test_restart.py.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path

import pytest
import uvloop

from proxy.cli import supervisor
from proxy.cli.supervisor import run_on_uvloop, stop_signal
from proxy.config import load_settings
from tests.support.patience import PATIENCE
from tests.support.patience import until as holds
from tests.support.table import table

#: Notes that it was started, says that it serves unless told not to, and waits for its end.
SERVES = """
import os, pathlib, signal, socket, sys, time
folder = pathlib.Path(sys.argv[1])
with (folder / "starts").open("a") as starts:
    starts.write(os.environ["DOMICILE_SOCKETS"] + " ")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
signal.signal(signal.SIGHUP, lambda *_: (folder / "reloaded").touch())
worker = os.environ.get("DOMICILE_WORKER", "0:").partition(":")[0]
if (folder / "fails").exists():
    sys.exit(1)
with (folder / "workers").open("a") as workers:
    workers.write(worker + " ")
socket.socket(fileno=int(os.environ["DOMICILE_SUPERVISOR"])).send(b"serves\\n")
(folder / "pid").write_text(str(os.getpid()))
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the programs leave word."""
    monkeypatch.setattr(supervisor, "_PROGRAM", (sys.executable, "-c", SERVES))
    monkeypatch.setattr(supervisor, "_PAUSES", (0.05, 0.1))
    return tmp_path


def begin(folder: Path, workers: int = 0) -> "asyncio.Task[int]":
    at = {f"DOMICILE__LISTEN__{name}": "127.0.0.1:0" for name in ("PROXY", "VAULT", "ADMIN")}
    at["DOMICILE__DATA"] = str(folder / "data")
    settings = load_settings(None, {"DOMICILE__COUNTRY": "se", **at})
    team = supervisor.Crew(workers, folder) if workers else None
    return asyncio.create_task(supervisor.supervise(settings, [str(folder)], (), team))


async def until(folder: Path, starts: int) -> int:
    """Wait for so many starts, of which the last one serves; its process."""
    pid = folder / "pid"
    async with asyncio.timeout(PATIENCE):
        while len(words(folder)) < starts or not pid.exists() or not pid.read_text():  # noqa: ASYNC110  # other processes bring it about
            await asyncio.sleep(0.02)
    process = int(pid.read_text())
    pid.unlink()
    return process


def words(folder: Path) -> list[str]:
    path = folder / "starts"
    return path.read_text().split() if path.exists() else []


async def test_whatever_serves_is_started_again_at_the_same_sockets_until_the_end(folder):
    work = begin(folder)
    os.kill(await until(folder, 1), signal.SIGKILL)
    process = await until(folder, 2)
    (folder / "fails").touch()
    os.kill(process, signal.SIGTERM)
    async with asyncio.timeout(PATIENCE):
        while len(words(folder)) < 5:  # noqa: ASYNC110  # other processes bring it about
            await asyncio.sleep(0.02)
    (folder / "fails").unlink()
    await until(folder, 6)
    assert len({*words(folder)}) == 1
    assert [word.partition(":")[0] for word in words(folder)[0].split(",")] == [
        "proxy", "vault", "admin",
    ]  # fmt: skip
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(work, PATIENCE) == 3


async def test_a_process_that_never_served_ends_it(folder):
    (folder / "fails").touch()
    assert await asyncio.wait_for(begin(folder), PATIENCE) == 1
    assert len(words(folder)) == 1


async def test_sighup_goes_on_to_the_process_that_serves(folder):
    work = begin(folder)
    await until(folder, 1)
    os.kill(os.getpid(), signal.SIGHUP)
    async with asyncio.timeout(PATIENCE):
        while not (folder / "reloaded").exists():  # noqa: ASYNC110  # another process brings it about
            await asyncio.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)
    assert await asyncio.wait_for(work, PATIENCE) == 3


async def test_who_has_no_supervisor_tells_nobody_and_who_loses_it_stops(monkeypatch):
    monkeypatch.delenv("DOMICILE_SUPERVISOR", raising=False)
    assert supervisor.supervised() is None
    near, far = socket.socketpair()
    monkeypatch.setenv("DOMICILE_SUPERVISOR", str(far.detach()))
    line = supervisor.supervised()
    assert line is not None
    assert "DOMICILE_SUPERVISOR" not in os.environ
    stop = asyncio.get_running_loop().create_future()
    supervisor.tell_served(line, stop)
    assert near.recv(16) == b"serves\n"
    near.close()
    await asyncio.wait_for(stop, PATIENCE)
    line.close()


@pytest.mark.parametrize("before", [True, False])
def test_who_loses_its_supervisor_before_that_has_read_the_word_stops_too(before):
    async def lose() -> None:
        near, far = socket.socketpair()
        stop = asyncio.get_running_loop().create_future()
        if before:
            near.close()
        supervisor.tell_served(far, stop)
        near.close()  # with what it has not read, which ends the line otherwise than an end does
        await asyncio.wait_for(stop, PATIENCE)
        far.close()

    assert supervisor.run_on_uvloop(_status(lose())) == 0


async def _status(work: Coroutine[object, object, None]) -> int:
    await work
    return 0


def serving(folder: Path) -> list[str]:
    """The numbers of the workers that served, in the order of their starts."""
    path = folder / "workers"
    return path.read_text().split() if path.exists() else []


async def workers(folder: Path, *numbers: str) -> None:
    """Wait until these have served, in this order."""
    async with asyncio.timeout(PATIENCE):
        while len(serving(folder)) < len(numbers):  # noqa: ASYNC110  # other processes bring it about
            await asyncio.sleep(0.02)
    assert tuple(serving(folder)) == numbers


@pytest.fixture
def prepared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ``domicile check`` finds nothing to complain of."""

    async def startable(_: object) -> bool:
        return True

    monkeypatch.setattr(supervisor._Supervisor, "_startable", startable)
    return folder


async def test_workers_are_replaced_by_one_that_serves_already(prepared):
    work = begin(prepared, workers=2)
    await workers(prepared, "1", "2")
    await holds((prepared / "all").exists)  # they say that they serve after they wrote that
    os.kill(os.getpid(), signal.SIGUSR2)
    await workers(prepared, "1", "2", "3", "1")  # the spare number first, then the one that is free
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(work, PATIENCE) == 3


async def test_what_does_not_come_to_serve_replaces_no_worker(prepared, capsys):
    work = begin(prepared, workers=2)
    await workers(prepared, "1", "2")
    (prepared / "fails").touch()
    os.kill(os.getpid(), signal.SIGUSR2)
    async with asyncio.timeout(PATIENCE):
        while len(words(prepared)) < 3:  # noqa: ASYNC110  # other processes bring it about
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)
    assert len(words(prepared)) == 3, "the other worker is not tried either"
    assert (
        "a new process could not start, and the one that serves goes on" in capsys.readouterr().err
    )
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(work, PATIENCE) == 3


async def test_a_worker_is_told_which_one_it_is(monkeypatch):
    monkeypatch.delenv("DOMICILE_WORKER", raising=False)
    assert supervisor.which_worker() is None
    monkeypatch.setenv("DOMICILE_WORKER", "3:front:/data/a:b")
    worker = supervisor.which_worker()
    assert worker is not None
    assert (worker.number, worker.role, worker.folder) == (3, "front", Path("/data/a:b"))
    assert "DOMICILE_WORKER" not in os.environ


def test_the_work_runs_on_uvloop_and_its_result_is_the_exit_status() -> None:
    async def work() -> int:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        return 7

    assert run_on_uvloop(work()) == 7


@table("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_and_a_second_one_does_no_harm(number: signal.Signals) -> None:
    async def work() -> int:
        stop = stop_signal()
        assert not stop.done()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop, PATIENCE)
        os.kill(os.getpid(), number)
        await asyncio.sleep(0.05)
        return 0

    assert run_on_uvloop(work()) == 0


def test_a_fault_leaves_no_loop_behind() -> None:
    async def work() -> int:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        run_on_uvloop(work())
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
