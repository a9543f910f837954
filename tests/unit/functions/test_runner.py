import asyncio
import io
import os
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.functions.runner import (
    LONGEST_FRAME,
    Bounds,
    BrokenFrameError,
    NotJsonError,
    Runner,
    encode_frame,
    read_frame,
    size_of,
    write_frame,
)
from tests.support.functions import NAMES, install

TARGETS = {name: f"sample_functions:{name}" for name in NAMES}
MEMORY = 256 << 20


async def ask(operation, given):
    if given["schema"] == "unknown":
        raise VaultError(Code.UNKNOWN_SCHEMA, "There is no such schema.")
    return {"data": [{"operation": operation}], "meta": {"count": 1, "sum": Decimal("0.10")}}


def bounds(time: float = 60.0, running: int = 4) -> Bounds:
    return Bounds(time, MEMORY, running)


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
    assert "DOMICILE_KEY" not in first["environment"]
    # three that lead nowhere, the two pipes, and the folder that is being read
    assert first["open"] <= 6


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
    process = await spare
    await runner.close()
    assert process.returncode is not None


@pytest.mark.parametrize(
    "document", [None, {"a": [1, "ä", True, None]}, Decimal("0.10"), 2**70, ""]
)
def test_what_is_written_is_read(document):
    pipe = io.BytesIO()
    write_frame(pipe, document)
    pipe.seek(0)
    assert read_frame(pipe) == document


@pytest.mark.parametrize("document", [object(), {1j: 2}, "\ud800"])
def test_what_is_not_json_is_not_written(document):
    with pytest.raises(NotJsonError):
        encode_frame(document)


def test_a_document_without_end_is_not_written():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(NotJsonError):
        encode_frame(endless)


@pytest.mark.parametrize(
    "sent",
    [
        b"", b"\0\0\0", b"\0\0\0\x05{}", b"\0\0\0\x02{]", b"\0\0\0\x161e99999999999999999999",
        (LONGEST_FRAME + 1).to_bytes(4, "big"),
    ],
)  # fmt: skip
def test_half_a_frame_is_told_from_a_whole_one(sent):
    with pytest.raises(BrokenFrameError):
        read_frame(io.BytesIO(sent))


def test_the_longest_document_is_still_one():
    assert size_of(LONGEST_FRAME.to_bytes(4, "big")) == LONGEST_FRAME
