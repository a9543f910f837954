"""The resident functions that the examples of the interface call."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from proxy.api.wire import api_status
from proxy.functions.runner import Bounds, Runner
from tests.support.functions import install, isolated


class WithoutSpare(Runner):
    """Starts a process for each call, and none for the next: a test calls once, if at all."""

    async def _worker(self) -> Any:
        return await self._start()


@asynccontextmanager
async def resident() -> AsyncIterator[Runner]:
    """What runs them; processes of their own find them as a file that imports little, since this
    one takes ten times as long to import as a call takes.
    """
    before = os.environ.get("PYTHONPATH")
    with TemporaryDirectory() as folder:
        site = install(Path(folder))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), before)))
        try:
            functions = {"oldest": "sample_functions:oldest"}
            bounds = Bounds(60.0, 512 << 20, 4, isolated=isolated())
            runner = WithoutSpare(functions, bounds, lambda error: api_status("", error.code))
            yield runner
            await runner.close()
        finally:
            os.environ.pop("PYTHONPATH")
            if before is not None:
                os.environ["PYTHONPATH"] = before
