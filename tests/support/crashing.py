"""``domicile`` as a process that kills itself with SIGKILL at a named step, or whose store fails on
demand.

``python -m tests.support.crashing`` imports the program once, then forks a process for each line on
its socket: a start costs milliseconds instead of a second, so that hundreds of deaths fit into a
test. A fork shares nothing with its siblings but the files. The production code has no hook for
this; the functions that are the steps get wrapped.
"""

import asyncio
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import proxy.clock
from proxy.api.app import vault_app
from proxy.bootstrap import keys
from proxy.errors import Code, VaultError
from proxy.redactor.load.loader import load_rule_set
from proxy.storage.sqlite.writer import SqliteWriter, WriterLimits
from tests.support.api import services
from tests.support.patience import PATIENCE
from tests.support.people import rules

#: Step: the function that it is. Each is reached twice: ``NAME.before`` and ``NAME.after``.
STEPS: dict[str, tuple[str, ...]] = {
    # the first start
    "folder": ("proxy.storage.sqlite.file:_claim",),
    "file": ("proxy.storage.sqlite.file:_make",),
    "format": ("proxy.storage.sqlite.file:run_migrations",),
    "draft of the key": ("proxy.crypto.master_key:_fill",),
    "key": ("proxy.crypto.key_sources:FileSource.create",),
    "note": (
        "proxy.storage.sqlite.store:SqliteStore.write_notes",
        "proxy.storage.postgres.store:PostgresStore.write_notes",
    ),
    "table": ("proxy.storage.sqlite.store:SqliteStore.ensure",),
    # the end of an environment
    "notes": ("proxy.storage.sqlite.store:SqliteStore.drop_notes",),
    "drop": ("proxy.storage.sqlite.store:SqliteStore.drop",),
    # one exchange
    "stage": ("proxy.redactor.exchange.writing:Writing.stage",),
    "commit": ("proxy.storage.sqlite.store:SqliteStore.commit",),
    "transaction": (
        "proxy.storage.sqlite.apply:begin_group",
        "proxy.storage.sqlite.writer:begin_group",
    ),
    "send": ("proxy.net.client:HttpUpstream.send",),
    "settle": tuple(
        f"proxy.redactor.exchange.writing:Writing.{verb}" for verb in ("settle", "remove", "doubt")
    ),
    "answer": tuple(
        f"proxy.net.{name}"
        for name in (
            "response:restored",
            "response:whole_response",
            "response:stream",
            "problem:refuse_request",
        )
    ),
    # the same where it takes the fast path
    "accept": ("proxy.storage.sqlite.raw:SqliteAtOnce.begin_commit",),
    "begin": ("proxy.net.client:HttpUpstream.begin",),
    "came": ("proxy.gateway.fast_path_request:FastPathRequest._restore",),
    "line": ("proxy.audit.services:LineGroup._write",),
    "show": ("proxy.gateway.fast_path_request:FastPathRequest._answer",),
    # later
    "log": ("proxy.storage.sqlite.writer:SqliteWriter._checkpoint",),
    "reconcile": ("proxy.redactor.exchange.rule_exchange:reconcile_objects",),
}


#: In the folder of a life that says how often the janitor comes: a file with one byte for each of
#: its rounds.
ROUNDS = "rounds"


class Life(NamedTuple):
    """How one process is to live: what a line on the socket says."""

    argv: list[str]
    folder: str
    environment: dict[str, str]
    output: str = ""  #: file that standard output is appended to; of a caller who sends none
    log: str = ""  #: file that standard error is appended to, likewise
    kill_at: str = ""  #: ``NAME.before`` or ``NAME.after``
    nth: int = 1
    armed: str = ""  #: steps and failures count only while this file exists
    shift: int = 0  #: milliseconds that the clock of this process runs ahead
    quick: bool = False  #: the janitor comes every 50 ms, as the log is moved and emptied
    upkeep: float = 0  #: seconds between two rounds of the janitor; 0: as in service
    #: seconds from a scan for data under an older hash root to the last one; 0: as in service
    pause: float = 0
    failing: list[str] = []  # noqa: RUF012  # read, never written: verbs of the store, ``commit Bind`` for one kind of change


def live(life: Life) -> int:
    """Be that process."""
    os.chdir(life.folder)
    os.environ.update(life.environment)
    if life.kill_at:
        _mine(life)
    for verb in life.failing:
        _break(verb, life.armed)
    if life.quick:
        _set("proxy.bootstrap.instance:_ROUND", 0.05)
        often = partial(SqliteWriter, limits=WriterLimits(idle=0.02, log_idle=0.05))
        _set("proxy.storage.sqlite.store:SqliteWriter", often)
    if life.upkeep:
        _set("proxy.bootstrap.instance:_ROUND", life.upkeep)
        _wrap("proxy.vault.vault:Vault.maintain", _nothing, _round)
    if life.pause:
        first, _, last = keys._PAUSES
        pauses = (first, life.pause, last)
        _set("proxy.bootstrap.instance:InstanceKeys", partial(keys.InstanceKeys, pauses=pauses))
    if life.shift:
        _shift(life.shift)
    # a machine that is busy with tests takes longer to load rules than one in service
    _set("proxy.redactor.exchange.front_link:_FOLLOWS", PATIENCE)
    _fork_commands()
    return importlib.import_module("proxy.cli").main(life.argv)  # type: ignore[no-any-return]  # found by name


def _mine(life: Life) -> None:
    name, _, side = life.kill_at.partition(".")
    left = life.nth

    def reached() -> None:
        nonlocal left
        if not _exists(life.armed):
            return
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for place in STEPS[name]:
        _wrap(
            place,
            reached if side == "before" else _nothing,
            reached if side == "after" else _nothing,
        )


def _round() -> None:
    with open(ROUNDS, "ab") as file:  # noqa: PTH123  # in the folder of the life
        file.write(b".")


def _exists(path: str) -> bool:
    return not path or os.path.exists(path)  # noqa: PTH110  # on the path of every step: cheap


def _nothing() -> None:
    pass


def step_at(place: str) -> tuple[Any, str]:
    """Owner and name of the function that stands at a place of ``STEPS``."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner = importlib.import_module(module)
    for step in owners:
        owner = getattr(owner, step)
    return owner, name


def _set(place: str, value: Any) -> None:
    owner, name = step_at(place)
    getattr(owner, name)  # a name that moved must not be set in vain
    setattr(owner, name, value)


def _wrap(place: str, before: Callable[[], None], after: Callable[[], None]) -> None:
    owner, name = step_at(place)
    inner = getattr(owner, name)

    @wraps(inner)
    def plain(*arguments: Any, **named: Any) -> Any:
        before()
        answer = inner(*arguments, **named)
        after()
        return answer

    @wraps(inner)
    async def awaited(*arguments: Any, **named: Any) -> Any:
        before()
        answer = await inner(*arguments, **named)
        after()
        return answer

    setattr(owner, name, awaited if asyncio.iscoroutinefunction(inner) else plain)


def _break(verb: str, while_exists: str) -> None:
    """Let a verb of the store fail for as long as the file exists."""
    verb, _, change = verb.partition(" ")
    owner, name = step_at(f"proxy.storage.sqlite.store:SqliteStore.{verb}")
    inner = getattr(owner, name)

    @wraps(inner)
    async def broken(*arguments: Any) -> Any:
        if _exists(while_exists) and (
            not change or any(type(one).__name__ == change for one in arguments[2])
        ):
            raise VaultError(
                Code.VAULT_DOWN, "The disk of the vault's database is full: free some space."
            )
        return await inner(*arguments)

    setattr(owner, name, broken)


def _shift(milliseconds: int) -> None:
    inner = proxy.clock.system_clock

    def shifted() -> int:
        return inner() + milliseconds

    _set("proxy.bootstrap.instance:system_clock", shifted)
    function = importlib.import_module("proxy.bootstrap.instance").running.__wrapped__
    function.__defaults__ = tuple(
        shifted if value is inner else value for value in function.__defaults__
    )


# ------------------------------------------------------- a supervisor forks what it would execute


class _Child:
    """A forked process, used as one of asyncio."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(descriptor := os.pidfd_open(pid), self._reap, descriptor)

    def _reap(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._end.set_result(self.returncode)

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


def _fork_commands() -> None:
    """Fork ``python -m proxy`` in place of a fresh interpreter, which imports the program for a
    second; other programs start as ever.
    """
    fresh: Callable[..., Any] = asyncio.create_subprocess_exec

    async def forked(*words: str, **options: Any) -> Any:
        if words[1:3] != ("-m", "proxy"):
            return await fresh(*words, **options)
        every = signal.valid_signals()
        before = signal.pthread_sigmask(
            signal.SIG_BLOCK, every
        )  # none is the parent's in the child
        child = os.fork()
        if not child:
            _set("asyncio:create_subprocess_exec", fresh)
            _be(words[3:], signals=before, **options)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return _Child(child)

    _set("asyncio:create_subprocess_exec", forked)


def _be(
    arguments: Sequence[str],
    signals: set[Any],
    env: Mapping[str, str] = os.environ,
    pass_fds: Sequence[int] = (),
    stdout: int | None = None,
) -> NoReturn:
    """Be the process that was to run the command line ``arguments``, until its end."""
    status = 70
    try:
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        opened = {int(one.name) for one in Path("/proc/self/fd").iterdir()}
        for descriptor in opened - {0, 1, 2, *pass_fds}:
            with contextlib.suppress(OSError):  # the one of the listing has gone
                os.close(descriptor)
        if stdout == asyncio.subprocess.DEVNULL:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        given = dict(env)
        os.environ.clear()
        os.environ.update(given)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        gc.freeze()  # what belongs to the loop of the parent is never ended here
        status = importlib.import_module("proxy.cli").main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


# ---------------------------------------------------------------------- the process that forks


class Forker:
    """Forks a process for each line that a caller sends, and tells it who was born and who ended."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._callers: dict[socket.socket, bytes] = {}  #: with the beginning of their next line
        self._children: dict[int, socket.socket] = {}
        #: standard input, output and error of the next life, of callers who send theirs
        self._streams: dict[socket.socket, list[int]] = {}
        self._ended, self._woken = socket.socketpair()
        self._woken.setblocking(False)

    def serve(self) -> None:
        """Until standard input ends; then what still lives is ended."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # so that the end of a child wakes it
        signal.set_wakeup_fd(self._woken.fileno())
        while True:
            heard: list[Any] = [0, self._ended, self._server, *self._callers]
            ready = select.select(heard, [], [])[0]
            if 0 in ready:
                break
            for one in ready:
                if one is self._ended:
                    one.recv(4096)
                elif one is self._server:
                    self._callers[self._server.accept()[0]] = b""
                else:
                    self._hear(one)
            while self._children and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                caller = self._children.pop(ended[0])
                _say(caller, ended=ended[0], status=os.waitstatus_to_exitcode(ended[1]))
        for child in self._children:
            os.kill(child, signal.SIGKILL)

    def _hear(self, caller: socket.socket) -> None:
        try:
            piece, streams, _, _ = socket.recv_fds(caller, 65536, 3)
        except OSError:  # it went, and had not read all
            piece, streams = b"", []
        if streams:
            self._streams[caller] = streams
        if not piece:
            del self._callers[caller]
            caller.close()
            for child in (one for one, whose in self._children.items() if whose is caller):
                os.kill(child, signal.SIGKILL)
            return
        *lines, self._callers[caller] = (self._callers[caller] + piece).split(b"\n")
        for told in map(json.loads, lines):
            if "signal" not in told:
                child = self._fork(Life(**told), self._streams.pop(caller, []))
                self._children[child] = caller
                _say(caller, born=child)
            elif told["child"] in self._children:  # not waited for yet: its number is still its own
                os.kill(told["child"], told["signal"])

    def _fork(self, life: Life, streams: list[int]) -> int:
        sys.stdout.flush()
        if not streams:
            append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            streams = [os.open(os.devnull, os.O_RDONLY)]
            streams += [os.open(path, append, 0o600) for path in (life.output, life.log)]
        child = os.fork()
        if child:
            for stream in streams:
                os.close(stream)
            return child
        status = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (self._server, self._ended, self._woken, *self._callers):
                one.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            status = live(life)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def _say(caller: socket.socket, **what: int) -> None:
    with contextlib.suppress(OSError):  # the caller has gone, and does not want to know
        caller.sendall(json.dumps(what).encode() + b"\n")


def main(descriptor: int) -> None:
    """Import the program once; then fork for whoever connects to the socket that is handed over."""
    for name in (
        "encodings.idna",
        "proxy.cli.check",
        "proxy.cli.serve",
        "proxy.cli.supervisor",
        "proxy.bootstrap.instance",
        "proxy.storage.postgres.store",
        "uvloop",
        *{place.partition(":")[0] for p in STEPS.values() for place in p},
    ):
        importlib.import_module(name)
    vault_app(services())  # compiles the patterns of addresses
    with tempfile.TemporaryDirectory() as folder:  # patterns and selectors are compiled once
        Path(folder, "rules.yaml").write_text(rules("http://127.0.0.1:9"))
        load_rule_set(Path(folder))
    gc.collect()
    gc.freeze()  # no child looks through, and so copies, what it was born with
    Forker(socket.socket(fileno=descriptor)).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
