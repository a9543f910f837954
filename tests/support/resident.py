"""The resident functions that the examples of the interface call."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from proxy.api.wire import api_status
from proxy.functions.handle import Handle
from proxy.functions.runner import Bounds, Runner
from tests.support.functions import isolated
from tests.support.tree import ROOT


def oldest(handle: Handle, arguments: Any) -> Any:
    """The greatest age in a city."""
    options = {"sort": [{"age": "desc"}], "limit": 1}
    found = handle.find("contact", {"city": arguments["city"]}, options)["data"]
    return found[0]["age"] if found else None


class WithoutSpare(Runner):
    """Starts a process for each call, and none for the next: a test calls once, if at all."""

    async def _worker(self) -> Any:
        return await self._start()


@asynccontextmanager
async def resident() -> AsyncIterator[Runner]:
    """What runs them; processes of their own find this file."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), before)))
    try:
        functions = {"oldest": f"{__name__}:{oldest.__name__}"}
        bounds = Bounds(60.0, 512 << 20, 4, isolated=isolated())
        runner = WithoutSpare(functions, bounds, lambda error: api_status("", error.code))
        yield runner
        await runner.close()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
