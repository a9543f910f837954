"""An upgrade as operators do it: an earlier version of the program serves people, and this one takes
its place.

    make upgrade FROM=REVISION           (the same as ``python -m tests.support.upgrade REVISION``)

On one machine the earlier version stops, or is killed, and this one starts in its folder. On a
database of several instances one after the other is replaced while both versions serve; whichever
came first leads, which does the maintenance. The callers
of ``soak`` know what each answer has to show; each record is read at the end. Each step prints one
line of JSON; status 1 where an answer was wrong.
"""

import asyncio
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from proxy.errors import VaultError
from tests.support.instance import SERVE, Instance
from tests.support.people import rules
from tests.support.postgres import own_server
from tests.support.serving import serving
from tests.support.soak import Caller, fleet, people
from tests.support.tree import ROOT

CALLERS = 4
#: Seconds of each step.
STEP = 10.0


def unpack(revision: str, folder: Path) -> Path:
    """The program of that revision, in this folder."""
    packed = subprocess.run(
        ["git", "archive", revision, "proxy"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def of(instance: Instance, code: Path) -> Instance:
    """The same installation, served by the program in that folder."""
    environment = {**instance.environment, "PYTHONPATH": str(code)}
    return replace(instance, program=SERVE, environment=environment, log=bytearray())


@dataclass
class Abandoned(Caller):
    """A caller who knows whose record it was that he asked for last."""

    last: int | None = None

    async def _ask(
        self, http: aiohttp.ClientSession, name: str, method: str, key: int, **body: Any
    ) -> None:
        self.last = key
        await super()._ask(http, name, method, key, **body)

    def forget(self) -> None:
        """The application was told of a change and nobody answered: it may be there or not."""
        self.faults.clear()
        if self.last is not None:
            self.records.pop(self.last, None)


class Step:
    """Callers at work, with a line for what became of them."""

    def __init__(self) -> None:
        self.ways: list[str] = []
        self.callers = [Abandoned(self.ways, number) for number in range(1, CALLERS + 1)]

    @asynccontextmanager
    async def at_work(self, name: str, ways: Sequence[str]) -> AsyncIterator[None]:
        """Let them ask these, then read all that they have."""
        over = asyncio.Event()
        self.ways[:] = ways
        async with asyncio.TaskGroup() as group:
            for one in self.callers:
                group.create_task(one.work(over))
            yield
            over.set()
        answers = sum(one.answers.total() for one in self.callers)
        records = sum(len(one.records) for one in self.callers)
        print(json.dumps({"step": name, "answers": answers, "records": records}), flush=True)

    @property
    def faults(self) -> list[str]:
        return [fault for one in self.callers for fault in one.faults]


@asynccontextmanager
async def served_before(folder: Path, code: Path) -> AsyncIterator[tuple[Instance, Instance]]:
    """An installation of the program in ``code``, started, and the same of this one."""
    async with serving(people()) as upstream:
        now = Instance(folder, SERVE)
        now.rules.mkdir(parents=True)
        (now.rules / "rules.yaml").write_text(rules(upstream))
        before = of(now, code)
        await before.start()
        yield before, now


async def one_machine(folder: Path, code: Path) -> list[str]:
    """Stop the earlier version and start this one; and the same where it was killed at work."""
    step = Step()
    async with served_before(folder, code) as (before, now):
        async with step.at_work("earlier version", [before.proxy]):
            await asyncio.sleep(STEP)
        await before.stop()
        await now.start()
        async with step.at_work("this one", [now.proxy]):
            await asyncio.sleep(STEP)
            await now.command("audit", "verify")
        await now.stop()
        await now.command("store", "verify")
    return step.faults


async def after_a_kill(folder: Path, code: Path) -> list[str]:
    """The earlier version is killed amid its exchanges; this one shows all that it answered."""
    step = Step()
    async with served_before(folder, code) as (before, now):
        step.ways[:] = [before.proxy]
        work = [asyncio.create_task(one.work(asyncio.Event())) for one in step.callers]
        await asyncio.sleep(STEP / 2)
        await before.kill()
        for task in work:
            task.cancel()
        await asyncio.wait(work)
        for one in step.callers:
            one.forget()
        await now.start()
        async with step.at_work("this one after a kill", [now.proxy]):
            await asyncio.sleep(STEP / 2)
        await now.stop()
        await now.command("store", "verify")
    return step.faults


async def beside(folder: Path, code: Path) -> list[str]:
    """Two instances of the earlier version on one database; one after the other is replaced, and one
    is put back for a while, so that either version does the maintenance for both.
    """
    step = Step()
    with own_server() as server:
        store = server.address(replicas="true")
        async with fleet(folder, store, SERVE) as (first, second):
            await first.stop()
            await second.stop()
            older = [of(one, code) for one in (first, second)]
            for one in older:
                await one.start()
            both = [one.proxy for one in older]
            async with step.at_work("two of the earlier version", both):
                await asyncio.sleep(STEP)
            await older[1].stop()
            await second.start()
            async with step.at_work("one of each, that leads", [older[0].proxy, second.proxy]):
                await asyncio.sleep(STEP)
            await older[0].stop()
            await first.start()
            async with step.at_work("two of this one", [first.proxy, second.proxy]):
                await asyncio.sleep(STEP)
            await second.stop()
            if await goes_back(older[1]):
                async with step.at_work("one of each, this leads", [first.proxy, older[1].proxy]):
                    await asyncio.sleep(STEP)
                await older[1].stop()
            await second.start()
            async with step.at_work("two of this one again", [first.proxy, second.proxy]):
                await asyncio.sleep(STEP / 2)
            for one in (first, second):
                await one.command("audit", "verify")
            for one in (first, second):
                await one.stop()
            await first.command("store", "verify")
    return step.faults


async def goes_back(before: Instance) -> bool:
    """Start the earlier version again; whether it does, which it may refuse."""
    try:
        await before.start()
    except VaultError as error:
        print(json.dumps({"step": "going back is refused", "text": error.message[-600:]}))
        return False
    return True


def main() -> int:
    """Take the place of the revision of the command line; 1 where there is a fault."""
    folder = Path(tempfile.mkdtemp(prefix="domicile-upgrade-"))
    faults: list[str] = []
    try:
        code = unpack(sys.argv[1], folder / "code")
        for number, work in enumerate((one_machine, after_a_kill, beside)):
            faults += asyncio.run(work(folder / str(number), code))
    finally:
        shutil.rmtree(folder)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
