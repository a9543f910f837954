"""``domicile serve`` as a real process on free ports, killed and restarted at will."""

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from proxy.errors import Code, VaultError
from tests.support.crashing import Life
from tests.support.lives import Nursery, command, line_to_nursery
from tests.support.log_lines import parsed
from tests.support.patience import PATIENCE, within
from tests.support.scraping import SCRAPED
from tests.support.tree import ROOT

#: The program as anybody starts it.
SERVE = ("-m", "proxy", "serve")


class Forked:
    """A process that ``tests.support.crashing`` forked, used as one of asyncio."""

    def __init__(self, nursery: Nursery, child: int, log: asyncio.StreamReader) -> None:
        self._nursery = nursery
        self.pid = child
        self.stderr: asyncio.StreamReader | None = log

    @property
    def returncode(self) -> int | None:
        end = self._nursery.end_of(self.pid)
        return end.result() if end.done() else None

    def send_signal(self, number: signal.Signals) -> None:
        self._nursery.signal(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        status = await asyncio.shield(self._nursery.end_of(self.pid))
        await self._nursery.close()
        return status


@dataclass
class Instance:
    """One installation: a folder with settings, rules and data, and at most one running process."""

    folder: Path
    #: arguments of Python; nothing: forked from a process that has imported the program
    program: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ("serve",)  #: of the command, where it is forked
    files: int | None = None  #: the limit of open files, soft and hard
    listeners: frozenset[str] = frozenset({"proxy", "vault", "admin"})
    process: Forked | asyncio.subprocess.Process | None = None
    proxy: str = ""
    vault: str = ""
    admin: str = ""
    log: bytearray = field(default_factory=bytearray)
    _reader: asyncio.Task[None] | None = None
    _listening: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def rules(self) -> Path:
        return self.folder / "rules"

    def settings(self) -> dict[str, str]:
        """Settings by environment variable: everything below the folder, on free ports."""
        return {
            "DOMICILE__COUNTRY": "se",
            "DOMICILE__DATA": str(self.data),
            "DOMICILE__RULES": str(self.rules),
            "DOMICILE__LISTEN__PROXY": "127.0.0.1:0",
            "DOMICILE__LISTEN__VAULT": "127.0.0.1:0",
            "DOMICILE__LISTEN__ADMIN": "127.0.0.1:0",
            **SCRAPED,
            # crowds of tests are one client; limits have tests of their own
            "DOMICILE__LIMITS__REQUESTS_PER_SECOND": "0",
            **self.environment,
        }

    async def start(self) -> None:
        """Start and wait until all listeners are open; ``VaultError`` with the log when it ends
        instead.
        """
        self._listening.clear()
        self.process = await (self._exec() if self.program else self._fork())
        self._reader = asyncio.create_task(self._read(self.process))
        waiting = asyncio.create_task(self._listening.wait())
        await asyncio.wait(
            [waiting, self._reader], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
        )
        waiting.cancel()
        if not self._listening.is_set():
            await self.kill()
            raise VaultError(
                Code.INTERNAL, "The process did not start listening:\n" + self.log.decode()
            )

    async def _fork(self) -> Forked:
        """As the command does, in a process that has imported the program already."""
        reader = asyncio.StreamReader()
        nursery = await line_to_nursery()
        with TemporaryDirectory() as folder:
            log = Path(folder, "log")
            os.mkfifo(log)
            read = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
            write = os.open(
                log, os.O_WRONLY
            )  # until the child has opened it, so that it has no end
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb")
            )
            life = Life([*self.arguments], str(self.folder), self.settings(), os.devnull, str(log))
            child = await nursery.fork(life)
            os.close(write)
        return Forked(nursery, child, reader)

    async def _exec(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *self.program,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.settings()},
            stdout=asyncio.subprocess.DEVNULL,
            preexec_fn=self._limit,
            stderr=asyncio.subprocess.PIPE,
        )

    def _limit(self) -> None:
        if self.files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.files, self.files))

    async def _read(self, process: Forked | asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        found: dict[str, str] = {}
        async for line in process.stderr:
            self.log += line
            event = parsed(line)
            if event.get("event") == "listening":
                found[event["listener"]] = "http://" + event["address"]
                if self.listeners <= found.keys():
                    self.proxy, self.vault, self.admin = (
                        found["proxy"],
                        found.get("vault", ""),
                        found["admin"],
                    )
                    self._listening.set()

    async def command(self, *arguments: str, status: int = 0, **variables: str) -> Any:
        """What a command says about this installation, as JSON; it ends with that status."""
        done, said, complained = await command(
            self.folder, {**self.settings(), **variables}, *arguments, "--json"
        )
        assert done == status, (said, complained)
        return json.loads(said.splitlines()[-1]) if said else None

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines of that event so far."""
        return [
            event
            for line in self.log.splitlines()
            if (event := parsed(bytes(line))).get("event") == name
        ]

    async def logged(self, name: str, count: int = 1, within: float = PATIENCE) -> None:
        """Wait until the event was logged so many times."""
        async with asyncio.timeout(within):
            while len(self.events(name)) < count:  # noqa: ASYNC110  # the log comes from another process
                await asyncio.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this very process."""
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process; its exit status."""
        assert self.process is not None
        assert self._reader is not None
        end = f"the end of process {self.process.pid}"
        status = await within(2 * PATIENCE, end, self.process.wait())
        self.process = None
        await within(
            2 * PATIENCE, "the end of its log, which a process of it has open", self._reader
        )
        return status

    async def kill(self) -> None:
        """kill -9; no effect when it is gone."""
        if self.process is not None:
            if self.process.returncode is None:
                self.process.kill()
            await self.ended()

    async def end(self) -> None:
        """kill -9 of it and of its workers, which would otherwise serve their callers to the end."""
        if self.process is not None and self.process.returncode is None:
            workers: list[psutil.Process] = []
            with suppress(psutil.NoSuchProcess):
                workers = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            for one in workers:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        await self.kill()

    async def stop(self) -> int:
        """SIGTERM and wait; the exit status."""
        self.send(signal.SIGTERM)
        return await self.ended()


@asynccontextmanager
async def running(folder: Path, rules: str, **environment: str) -> AsyncIterator[Instance]:
    """An installation with one rule file, started; killed at the end."""
    async with started(Instance(folder, environment=environment), rules) as instance:
        yield instance


@asynccontextmanager
async def started(instance: Instance, rules: str) -> AsyncIterator[Instance]:
    """That installation with one rule file, started; killed at the end."""
    instance.rules.mkdir(parents=True, exist_ok=True)
    (instance.rules / "rules.yaml").write_text(rules)
    await instance.start()
    try:
        yield instance
    finally:
        await instance.end()
