import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.functions.runner import Bounds, Runner
from tests.support.functions import NAMES, install, isolated

TARGETS = {name: f"sample_functions:{name}" for name in NAMES}
MEMORY = 256 << 20


async def ask(operation, given):
    if given["schema"] == "unknown":
        raise VaultError(Code.UNKNOWN_SCHEMA, "There is no such schema.")
    return {"data": [{"operation": operation}], "meta": {"count": 1, "sum": Decimal("0.10")}}


def bounds(time: float = 60.0, running: int = 4) -> Bounds:
    return Bounds(time, MEMORY, running, isolated=isolated())


@pytest.fixture
def folder(tmp_path, monkeypatch) -> None:
    path = [
        str(install(tmp_path)),
        *os.environ.get("PYTHONPATH", "").split(os.pathsep),
        str(Path.cwd()),
    ]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    monkeypatch.setenv("DOMICILE_KEY", "a key")


@pytest.fixture
async def runner(folder) -> AsyncIterator[Runner]:
    made = Runner(TARGETS, bounds(), lambda _: 400)
    yield made
    await made.close()


async def test_a_function_gets_its_arguments_and_its_result_comes_back(runner):
    assert await runner.call("echo", {"a": ["ä", None]}, ask) == {"a": ["ä", None]}


async def test_numbers_stay_exact_both_ways(runner):
    assert await runner.call("exact", {"more": Decimal("0.2")}, ask) == Decimal("0.3")


async def test_a_function_asks_through_its_handle(runner):
    record, meta = await runner.call("found", {"key": "k"}, ask)
    assert (record, meta) == ({"operation": "find"}, {"count": 1, "sum": Decimal("0.10")})


async def test_a_refusal_reaches_the_function(runner):
    assert await runner.call("refused", {}, ask) == ["RefusedError", 400, "unknown_schema"]


async def test_a_function_sees_nothing_of_the_service_and_nothing_of_an_earlier_call(runner):
    first, second = [await runner.call("surroundings", {}, ask) for _ in range(2)]
    assert first["state"] == second["state"] == 1
    assert set(first["environment"]) <= {"HOME", "TMPDIR", "TZ"}
    assert first["open"] == 5  # three that lead nowhere, and the two pipes


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("raises", Code.FUNCTION_FAILED), ("ends", Code.FUNCTION_FAILED),
        ("not_json", Code.FUNCTION_FAILED), ("hungry", Code.FUNCTION_LIMIT),
        ("nobody", Code.UNKNOWN_FUNCTION),
    ],
)  # fmt: skip
async def test_what_goes_wrong_has_its_code_and_the_next_call_works(runner, name, code, capsys):
    with pytest.raises(VaultError) as caught:
        await runner.call(name, {"secret": "4711-0815"}, ask)
    assert caught.value.code is code
    assert "4711-0815" not in str(caught.value) + capsys.readouterr().err
    assert await runner.call("echo", 1, ask) == 1


async def test_a_function_that_takes_too_long_is_ended(folder):
    runner = Runner(TARGETS, bounds(time=1.0), lambda _: 400)
    with pytest.raises(VaultError) as caught:
        await runner.call("sleepy", {}, ask)
    assert caught.value.code is Code.FUNCTION_LIMIT
    await runner.close()


async def test_only_so_many_run_at_one_time(folder):
    runner = Runner(TARGETS, bounds(running=2), lambda _: 400)
    running = most = 0

    async def counting(_operation, _given):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return {"data": [], "meta": {}}

    await asyncio.gather(*(runner.call("found", {"key": "k"}, counting) for _ in range(5)))
    await runner.close()
    assert most <= 2


async def test_no_process_is_left_when_the_runner_closes(folder):
    runner = Runner(TARGETS, bounds(), lambda _: 400)
    await runner.call("echo", 1, ask)
    spare = runner._spare
    assert spare is not None
    worker = await spare
    await runner.close()
    assert worker.process.returncode is not None
    assert not Path(worker.folder).parent.exists()


async def test_services_that_start_together_leave_each_other_their_folders(
    folder, monkeypatch, tmp_path
):
    """Another one takes a folder for one that was left, in the moment before it is locked."""
    made: list[str] = []

    def raced(**named: str) -> str:
        made.append(mkdtemp(**named))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    mkdtemp = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", raced)
    runner = Runner(TARGETS, bounds(), lambda _: 400)
    assert await runner.call("echo", 1, ask) == 1
    other = Runner(TARGETS, bounds(), lambda _: 400)
    assert await other.call("echo", 2, ask) == 2
    assert await runner.call("echo", 3, ask) == 3
    await other.close()
    await runner.close()
