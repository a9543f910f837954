import asyncio
import os
import signal

import pytest
import uvloop

from proxy.cli.supervisor import run_on_uvloop, stop_signal
from tests.support.patience import PATIENCE
from tests.support.table import table


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
