"""What other tests stand on: processes that are forked, and a watch over tests that do not end."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.crashing import Life
from tests.support.lives import Nursery, _forker, command, nursery
from tests.support.tree import ROOT

HELP = Life(["--help"], "/", {}, os.devnull, os.devnull)


async def test_the_process_that_forks_outlives_a_caller_who_leaves_without_reading(
    tmp_path: Path,
) -> None:
    async with nursery() as other:
        child = await other.fork(HELP._replace(argv=["serve", "--help"]))
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(_forker())
            line.sendall(json.dumps(HELP._asdict()).encode() + b"\n")
            await asyncio.to_thread(line.recv, 1, socket.MSG_PEEK)
        assert await other.end_of(child) == 0
    assert (await command(tmp_path, {}, "--help"))[0] == 0


async def test_who_waits_for_a_process_is_told_when_nobody_can_tell_of_it_any_more() -> None:
    here, there = socket.socketpair()
    made = Nursery(*await asyncio.open_connection(sock=here))
    waiting = [made.end_of(7), asyncio.create_task(made.fork(HELP))]
    await asyncio.sleep(0)
    there.close()
    for one in (*waiting, made.end_of(8)):
        with pytest.raises(RuntimeError, match="the process that forks"):
            await one
    await made.close()


async def test_a_process_whose_birth_nobody_waits_for_is_killed() -> None:
    here, there = socket.socketpair()
    made = Nursery(*await asyncio.open_connection(sock=here))
    forking = asyncio.create_task(made.fork(HELP))
    await asyncio.sleep(0)
    forking.cancel()
    reader, writer = await asyncio.open_connection(sock=there)
    assert json.loads(await reader.readline())["argv"] == ["--help"]
    writer.write(b'{"born": 7}\n')
    assert json.loads(await reader.readline()) == {"child": 7, "signal": 9}
    writer.write(b'{"ended": 7, "status": -9}\n')
    await made.close()
    writer.close()


HANGING = """
import asyncio, threading, pytest

@pytest.fixture
async def lasting():
    yield
    await asyncio.Event().wait()

async def deep():
    await asyncio.Event().wait()

async def test_waits():
    async with asyncio.TaskGroup() as group:
        group.create_task(deep())

async def test_fails(lasting):
    assert not "this"

def test_goes_on():
    pass

{last}
"""
LAST = "def test_stands_still(): threading.Event().wait()"


@pytest.mark.parametrize("last", ["", LAST])
def test_a_test_that_hangs_fails_where_it_stands_and_the_others_go_on(
    tmp_path: Path, last: str
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    (tmp_path / "conftest.py").write_text(
        "from tests.support.patience import Watch\n"
        "def pytest_configure(config): config.pluginmanager.register(Watch(1, 1))\n"
    )
    (tmp_path / "test_hanging.py").write_text(HANGING.format(last=last))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    if last:
        assert "test_stands_still did not end within 1 seconds" in done.stderr
        assert "test_hanging.py" in done.stderr.partition("did not end")[2]
        assert done.returncode == 1
        return
    for line in ("FAILED test_hanging.py::test_waits", "ERROR test_hanging.py::test_fails",
                 "FAILED test_hanging.py::test_fails", "PASSED test_hanging.py::test_goes_on"):  # fmt: skip
        assert line in done.stdout
    assert "- deep " in done.stdout
    assert "CancelledError: test_hanging.py::test_waits did not end within 1 seconds" in done.stdout
