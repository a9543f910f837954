"""Many short lives of one installation: started by fork, killed at will or by themselves, reborn on
the same files.
"""

import asyncio
import atexit
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

from tests.support.crashing import ROUNDS, Life
from tests.support.log_lines import parsed
from tests.support.patience import PATIENCE, within
from tests.support.scraping import SCRAPED
from tests.support.tree import ROOT

_GONE = "the process that forks (tests.support.crashing) has ended"


class Nursery:
    """A line to the process of ``tests.support.crashing``: it forks on demand and tells who ended
    how.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._births: deque[asyncio.Future[int]] = deque()  #: of those told of, in their order
        self._alive: set[int] = set()
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._over = False  #: whether nobody tells of them any more
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with suppress(OSError):
            async for line in self._reader:
                told = json.loads(line)
                if "born" in told:
                    self._bear(told["born"])
                else:
                    self._alive.discard(told["ended"])
                    self.end_of(told["ended"]).set_result(told["status"])
        self._over = True
        for future in (*self._births, *self._ends.values()):
            if not future.done():
                future.set_exception(RuntimeError(_GONE))

    def _bear(self, child: int) -> None:
        self._ends.pop(child, None)  # of an earlier process of that number
        self._alive.add(child)
        birth = self._births.popleft()
        if birth.done():  # nobody waits for it any more
            self.signal(child, signal.SIGKILL)
        else:
            birth.set_result(child)

    def end_of(self, child: int) -> "asyncio.Future[int]":
        """The exit status of that process when it has ended; negative: the signal that killed it."""
        # with whoever waits for it and is cancelled, a future is cancelled, too
        if child not in self._ends or self._ends[child].cancelled():
            self._ends[child] = asyncio.get_running_loop().create_future()
            if self._over:
                self._ends[child].set_exception(RuntimeError(_GONE))
        return self._ends[child]

    async def fork(self, life: Life) -> int:
        """Start a life; its process id."""
        self._births.append(birth := asyncio.get_running_loop().create_future())
        self._tell(life._asdict())
        return await within(PATIENCE, f"the birth of {life.argv}", birth)

    def signal(self, child: int, number: signal.Signals) -> None:
        """Send a signal to that process; no effect when it has ended."""
        self._tell({"child": child, "signal": int(number)})

    def _tell(self, what: dict[str, Any]) -> None:
        self._writer.write(json.dumps(what).encode() + b"\n")

    async def close(self) -> None:
        """End every process that was begun here."""
        for child in self._alive:
            self.signal(child, signal.SIGKILL)
        ends = asyncio.gather(*map(self.end_of, self._alive))
        try:
            await within(PATIENCE, f"the end of {self._alive}", ends)
        finally:
            self._writer.close()
        await within(PATIENCE, "the end of the line to the process that forks", self._reading)


@cache
def _forker() -> str:
    """The address of the process that forks, one for all tests of this process: it takes more than
    a second to import the program.
    """
    folder = tempfile.TemporaryDirectory()
    address = str(Path(folder.name, "forker"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.crashing", str(server.fileno())],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            pass_fds=[server.fileno()],
        )
    for end in (folder.cleanup, process.wait, cast("IO[bytes]", process.stdin).close):
        atexit.register(end)  # the last one first
    return address


async def line_to_nursery() -> Nursery:
    """A nursery that its caller closes."""
    return Nursery(*await asyncio.open_unix_connection(_forker()))


@asynccontextmanager
async def nursery() -> AsyncIterator[Nursery]:
    """A nursery for the length of a block; it takes its children with it."""
    made = await line_to_nursery()
    try:
        yield made
    finally:
        await made.close()


def write_command(path: Path) -> None:
    """Write a command ``domicile`` for scripts; each call is a fork, so that none imports the program
    again, which takes a second.
    """
    forward = ROOT / "tests" / "support" / "forwarded.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{forward}" "{_forker()}" "$@"\n')
    path.chmod(0o755)


async def command(
    folder: Path, environment: Mapping[str, str], *arguments: str
) -> tuple[int, bytes, bytes]:
    """A command of ``domicile`` from its start to its end: status, what it says, what it complains
    of.
    """
    async with nursery() as made:
        with tempfile.TemporaryDirectory() as place:
            said, complained = Path(place, "out"), Path(place, "err")
            life = Life(list(arguments), str(folder), dict(environment), str(said), str(complained))
            end = made.end_of(await made.fork(life))
            status = await within(PATIENCE, f"the end of {arguments}", end)
            out, told = map(Path.read_bytes, (said, complained))
            return status, out, told


@dataclass
class Installation:
    """A folder with rules and data, and at most one process that works on it."""

    nursery: Nursery
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ("serve",)
    proxy: str = ""
    vault: str = ""
    admin: str = ""
    process: int = 0
    lives: int = 0

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def rules(self) -> Path:
        return self.folder / "rules"

    @property
    def armed(self) -> Path:
        """While this file exists, the traps of a life are sharp."""
        return self.folder / "armed"

    @property
    def log(self) -> bytes:
        """What the current or last process wrote to standard error."""
        path = self.folder / f"{self.lives}.log"
        return path.read_bytes() if path.exists() else b""

    @property
    def output(self) -> bytes:
        """What it wrote to standard output."""
        return (self.folder / f"{self.lives}.out").read_bytes()

    @property
    def rounds(self) -> int:
        """How often the janitor has been through, in lives that say how often it comes."""
        path = self.folder / ROUNDS
        return path.stat().st_size if path.exists() else 0

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines of that event in the current life."""
        return [
            event for line in self.log.splitlines() if (event := parsed(line)).get("event") == name
        ]

    async def begin(self, *argv: str, **plan: Any) -> None:
        """Start the command line ``argv`` (``arguments`` where none is given), and do not wait for
        anything.
        """
        self.lives += 1
        self.proxy = self.vault = self.admin = ""
        settings = {
            "DOMICILE__COUNTRY": "se",
            "DOMICILE__DATA": str(self.data),
            "DOMICILE__RULES": str(self.rules),
            "DOMICILE__LISTEN__PROXY": "127.0.0.1:0",
            "DOMICILE__LISTEN__VAULT": "127.0.0.1:0",
            "DOMICILE__LISTEN__ADMIN": "127.0.0.1:0",
            **SCRAPED,
            **self.environment,
        }
        output, log = (str(self.folder / f"{self.lives}.{kind}") for kind in ("out", "log"))
        plan["armed"] = str(self.armed)
        life = Life(list(argv or self.arguments), str(self.folder), settings, output, log, **plan)
        self.process = await self.nursery.fork(life)

    async def start(self, **plan: Any) -> bool:
        """Serve; whether it came to listening before it ended."""
        await self.begin(**plan)
        end = self.nursery.end_of(self.process)
        async with asyncio.timeout(PATIENCE):
            while not self._listening():
                if end.done():
                    return False
                await asyncio.sleep(0.005)
        return True

    def _listening(self) -> bool:
        found = {
            event["listener"]: "http://" + event["address"] for event in self.events("listening")
        }
        self.proxy, self.vault, self.admin = (
            found.get(name, "") for name in ("proxy", "vault", "admin")
        )
        return bool(self.proxy and self.vault and self.admin)

    def serves(self) -> bool:
        """Whether its start is over. One whose store goes away meanwhile starts again by itself, at
        other addresses.
        """
        if not self.proxy or not self._listening():
            return False
        return self.log.rfind(b'"active rules"') > self.log.rfind(b'"listening"')

    async def run(self, *argv: str, **plan: Any) -> int:
        """A command from its start to its end; the exit status."""
        await self.begin(*argv, **plan)
        return await self.ended()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process; no effect when it has ended."""
        self.nursery.signal(self.process, number)

    async def ended(self) -> int:
        """Wait for the end; the exit status, negative for a signal."""
        end = asyncio.shield(self.nursery.end_of(self.process))
        return await within(PATIENCE, f"the end of process {self.process}", end)

    async def kill(self) -> None:
        """kill -9; no effect when it is gone, or was never born."""
        if self.process:
            self.send(signal.SIGKILL)
            await self.ended()

    async def kill_at_work(
        self, work: Iterable[Coroutine[Any, Any, None]], counts: Counter[str], most: int
    ) -> None:
        """kill -9 in the midst of what clients do, when fewer than ``most`` further answers are
        counted; return when all have noticed.

        By answers, not by seconds: on a slow machine as much is tried.
        """
        enough = counts.total() + random.randrange(most)
        async with asyncio.timeout(2 * PATIENCE), asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
            while counts.total() < enough:  # noqa: ASYNC110  # the clients count
                await asyncio.sleep(0.002)
            await asyncio.sleep(random.uniform(0, 0.02))
            await self.kill()

    async def stop(self) -> int:
        """SIGTERM and wait; the exit status."""
        self.send(signal.SIGTERM)
        return await self.ended()
