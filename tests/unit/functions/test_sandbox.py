"""Each thing that a function must not do is tried by a function, on the kernel of this machine."""

import asyncio
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import VaultError
from proxy.functions.runner import Bounds, Runner
from proxy.functions.sandbox import INDISPENSABLE, call_filter
from tests.support.functions import install, isolated, layers
from tests.support.patience import until
from tests.support.table import table
from tests.support.tree import ROOT

MEMORY = 256 << 20
MACHINES = ("x86_64", "aarch64")
NOBODY = 65534


@pytest.fixture
def site(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(install(tmp_path / "site")), str(ROOT))))
    monkeypatch.setenv("DOMICILE_KEY", "a key")


def runner_with(**more: Any) -> Runner:
    bounds = Bounds(60.0, MEMORY, 2, **{"isolated": isolated(), **more})
    return Runner({"attempt": "sample_functions:attempt"}, bounds, lambda _: 400)


@pytest.fixture
async def runner(site) -> AsyncIterator[Runner]:
    made = runner_with()
    yield made
    await made.close()


async def attempt(runner: Runner, code: str) -> Any:
    """What a function that runs this text meets: an error of the system, or its result."""

    async def ask(_operation: str, _argument: Any) -> Any:
        return None

    outcome = await runner.call("attempt", {"code": textwrap.dedent(code)}, ask)
    return outcome.get("refused") or outcome["result"]


#: Calls a number of the system with arguments, and raises what it answers.
SYSTEM = """
import ctypes, os
library = ctypes.CDLL(None, use_errno=True)
def system(name, *arguments):
    if getattr(library, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
def number(*arguments):
    system("syscall", *map(ctypes.c_long, arguments))
"""


# ------------------------------------------------ files


@pytest.mark.usefixtures("landlock")
async def test_a_function_reads_neither_keys_nor_what_else_is_on_the_machine(runner, tmp_path):
    key = tmp_path / "keys.json"
    key.write_text("a key")
    for path in (key, "/etc/passwd", "/etc/hostname", "/proc/self/environ", "/sys/kernel/notes"):
        assert await attempt(runner, f"open({str(path)!r}).read()") == "EACCES", path
    assert await attempt(runner, f"import os; os.listdir({str(tmp_path)!r})") == "EACCES"
    assert await attempt(runner, "import os; os.listdir('/')") == "EACCES"


@pytest.mark.usefixtures("landlock")
async def test_a_function_reads_nothing_of_the_service(runner):
    for name in ("environ", "mem", "maps", "cmdline", "fd/0"):
        code = f"import os; open(f'/proc/{{os.getppid()}}/{name}', 'rb').read(1)"
        assert await attempt(runner, code) == "EACCES", name
        assert await attempt(runner, code.replace("os.getppid()", str(os.getpid()))) == "EACCES", (
            name
        )


@pytest.mark.usefixtures("landlock", "seccomp")
async def test_a_function_writes_to_its_own_folder_alone_and_nothing_stays(runner, tmp_path):
    code = """
    import os, tempfile
    with tempfile.NamedTemporaryFile("w+", delete=False) as file:
        file.write("a person")
    os.makedirs("a/b"); os.rename(file.name, "a/b/c")
    result = [os.path.realpath("a/b/c"), open("a/b/c").read(), os.getcwd() == os.environ["HOME"]]
    """
    path, text, home = await attempt(runner, code)
    assert (text, home) == ("a person", True)
    assert not os.access(path, os.F_OK)
    victim = tmp_path / "vault.db"
    victim.write_text("rows")
    changes = {
        "open(PATH, 'a')": "EACCES",
        "open(PATH + '2', 'w')": "EACCES",
        "import os; os.unlink(PATH)": "EACCES",
        "import os; os.rename(PATH, PATH + '2')": "EACCES",
        "import os; os.link(PATH, 'mine')": "EPERM",
        "import os; os.truncate(PATH, 0)": "EPERM",
        "import os; os.open(PATH, os.O_RDONLY | os.O_TRUNC)": "EPERM",
        "import os; os.chmod(PATH, 0o777)": "EPERM",
        "import os; os.chown(PATH, 1, 1)": "EPERM",
        "import os; os.utime(PATH)": "EPERM",
        "import os; os.setxattr(PATH, 'user.a', b'a')": "EPERM",
        "open('/dev/shm/domicile', 'w')": "EACCES",
        "open('/tmp/domicile', 'w')": "EACCES",
        "import json; open(json.__file__, 'a')": "EACCES",
    }
    for code, refusal in changes.items():
        assert await attempt(runner, code.replace("PATH", repr(str(victim)))) == refusal, code
    assert victim.read_text() == "rows"
    assert victim.stat().st_mode & 0o777 == 0o644


# ------------------------------------------------ processes


#: What would make or reach another process.
REACHING = [
    "os.fork()",
    "os.execv('/bin/true', ['true'])",
    "import subprocess; subprocess.run(['/bin/true'])",
    "os.posix_spawn('/bin/true', ['true'], {})",
    "import multiprocessing; multiprocessing.get_context('fork').Process(target=print).start()",
    "while True: os.fork()",
    "os.kill(os.getppid(), 0)",
    "os.kill(os.getppid(), 9)",
    "os.killpg(0, 9)",
    "system('ptrace', 16, os.getppid(), None, None)",  # PTRACE_ATTACH
    "number(310, os.getppid(), 0, 0, 0, 0, 0)",  # process_vm_readv
    "number(311, os.getppid(), 0, 0, 0, 0, 0)",  # process_vm_writev
    "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "import fcntl; fcntl.fcntl(os.open('x', os.O_CREAT), fcntl.F_SETOWN, os.getppid())",
    "import fcntl; fcntl.fcntl(os.open('x', os.O_CREAT), fcntl.F_SETLEASE, fcntl.F_WRLCK)",
    "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "os.sched_setaffinity(os.getppid(), {0})",
    "os.setuid(1)",
    "system('unshare', 0x10000000)",
    "system('mount', b'none', b'.', b'tmpfs', 0, None)",
    "number(321, 0, 0, 0)",  # bpf
    "number(250, 0, 0, 0)",  # keyctl
    "number(298, 0, 0, 0, 0, 0)",  # perf_event_open
    "number(425, 1, 0)",  # io_uring_setup, whose work no filter sees
    "number(317, 1, 0, 0)",  # seccomp
    "system('prctl', 4, 1, 0, 0, 0)",  # PR_SET_DUMPABLE
]  # fmt: skip

#: Tries each line by itself, and tells what it met.
EACH = f"""
{SYSTEM}
result = {{}}
for line in {REACHING!r}:
    try:
        exec(line)
    except OSError as error:
        result[line] = error.errno
    else:
        result[line] = 0
"""


@pytest.mark.usefixtures("seccomp")
async def test_a_function_makes_and_reaches_no_other_process(runner):
    met = await attempt(runner, EACH)
    assert len(met) == len(REACHING)
    assert {line: met[line] for line in met if met[line] not in (errno.EPERM, errno.EACCES)} == {}


async def test_a_function_has_no_rights_of_root_and_threads_of_its_own(runner):
    code = """
    import asyncio, signal, threading
    done = []
    threads = [threading.Thread(target=done.append, args=(1,)) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    signal.signal(signal.SIGUSR1, lambda *_: done.append(2))
    signal.raise_signal(signal.SIGUSR1)
    async def third(): done.append(await asyncio.to_thread(lambda: 3))
    asyncio.run(third())
    import ctypes
    library, data = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint * 6)()
    library.capget((ctypes.c_uint * 2)(0x20080522, 0), data)
    result = [done, sum(data)]
    """
    done, rights = await attempt(runner, code)
    assert done == [1, 1, 1, 1, 2, 3]
    assert rights == 0


KILLED = """
import asyncio, os, sys
from proxy.functions.runner import Bounds, Runner

async def main():
    functions = {"sleepy": "sample_functions:sleepy"}
    bounds = Bounds(600.0, 256 << 20, 2, isolated=sys.argv[1] == "True")
    runner = Runner(functions, bounds, lambda _: 400)
    await runner.start()
    worker = await runner._spare
    call = asyncio.create_task(runner.call("sleepy", {}, None))
    await asyncio.sleep(0.5)
    print(worker.process.pid, worker.folder, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""


def gone(process: int) -> bool:
    try:
        return status(process)["State"][0] == "Z"  # dead, and nobody has asked how
    except FileNotFoundError:
        return True


def test_a_function_ends_with_its_service_and_the_next_start_removes_what_it_left(site):
    words = [sys.executable, "-c", KILLED, str(isolated())]
    killed = subprocess.run(words, capture_output=True, check=False, text=True, timeout=120)
    process, folder = killed.stdout.split()
    assert killed.returncode == -signal.SIGKILL
    asyncio.run(until(lambda: gone(int(process))))
    assert Path(folder).parent.exists()

    async def next_start() -> None:
        runner = runner_with()
        await runner.start()
        await runner.close()

    asyncio.run(next_start())
    assert not Path(folder).parent.exists()


async def test_the_libraries_that_functions_are_made_of_work(runner):
    code = """
    import asyncio, concurrent.futures, csv, datetime, decimal, email.message, hashlib, io, locale
    import logging, mimetypes, multiprocessing.dummy, sqlite3, ssl, statistics, tempfile, uuid, zipfile, zoneinfo
    import xml.etree.ElementTree, cryptography.hazmat.primitives.ciphers.aead as aead, msgspec, yaml
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        squares = list(pool.map(lambda n: n * n, range(8)))
    database = sqlite3.connect("rows.db")
    database.execute("create table t (a)"); database.execute("insert into t values (41)")
    database.commit()
    with zipfile.ZipFile("letters.zip", "w") as letters:
        letters.writestr("one.txt", "Dear")
    with tempfile.TemporaryDirectory() as folder, open(folder + "/a", "w+b") as file:
        file.write(b"a" * 100_000); file.truncate(10); file.flush(); os.fsync(file.fileno())
    sealed = aead.AESGCM(bytes(32)).encrypt(bytes(12), b"text", b"")
    noon = datetime.datetime(2026, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Stockholm"))
    async def slept():
        await asyncio.wait_for(asyncio.sleep(0.01), 1)
        return (await asyncio.gather(*(asyncio.to_thread(hashlib.sha256, b"a") for _ in range(3))))[0].hexdigest()
    result = [squares[-1], database.execute("select a from t").fetchone()[0], len(sealed),
        noon.utcoffset().seconds, asyncio.run(slept())[:4], len(uuid.uuid4().bytes), datetime.date.today().year > 2000,
        mimetypes.guess_type("a.pdf")[0]]
    """
    assert await attempt(runner, "import os\n" + textwrap.dedent(code)) == [
        49, 41, 20, 7200, "ca97", 16, True, "application/pdf",
    ]  # fmt: skip


# ------------------------------------------------ the network


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.usefixtures("seccomp")
async def test_a_function_has_no_network(runner, listening):
    for code in (
        f"import socket; socket.create_connection(('127.0.0.1', {listening}))",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    ):
        assert await attempt(runner, code) == "EPERM", code


@pytest.mark.usefixtures("seccomp")
async def test_with_a_network_a_function_is_a_client_and_nothing_else(site, listening):
    runner = runner_with(network=True)
    connect = f"import socket; result = socket.create_connection(('localhost', {listening})).getpeername()[1]"
    assert await attempt(runner, connect) == listening
    for code in (
        "import socket; socket.socket(socket.AF_UNIX)",
        "import socket; socket.socket().bind(('127.0.0.1', 0))",
        "import os; os.fork()",
    ):
        assert await attempt(runner, code) == "EPERM", code
    await runner.close()


# ------------------------------------------------ where the kernel lacks a layer

#: Runs in a process whose kernel answers a call, with that first argument, as if it had none.
WITHOUT = """
import asyncio, ctypes, struct, sys
from proxy.errors import VaultError
from proxy.functions.runner import Bounds, Runner

number, argument, isolated = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "required"
code = b"".join(struct.pack("=HBBI", *one) for one in [
    (0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, argument),
    (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)])
buffer = ctypes.create_string_buffer(code)
library = ctypes.CDLL(None)
assert library.prctl(38, 1, 0, 0, 0) == 0
assert library.prctl(22, 2, struct.pack("@HP", 6, ctypes.addressof(buffer)), 0, 0) == 0

async def main():
    runner = Runner({"echo": "sample_functions:echo"}, Bounds(60.0, 256 << 20, 2, isolated=isolated), lambda _: 400)
    try:
        await runner.start()
        print(await runner.call("echo", "called", None), runner.layers)
    except VaultError as error:
        print(*(f"{one.source} {one.text}" for one in error.details), sep="\\n")
    await runner.close()
asyncio.run(main())
"""

#: By layer, the call that it needs, and that call's first argument.
CALLS = {"landlock": (444, 0), "seccomp": (157, 22)}


def without(layer: str, isolation: str) -> str:
    number, argument = CALLS[layer]
    words = [sys.executable, "-c", WITHOUT, str(number), str(argument), isolation]
    return subprocess.run(words, capture_output=True, check=True, text=True, timeout=120).stdout


@pytest.mark.usefixtures("seccomp")
@pytest.mark.parametrize("layer", CALLS)
def test_where_the_kernel_lacks_a_layer_no_function_is_called_unless_the_settings_say_so(
    site, layer
):
    refusal = without(layer, "required")
    assert f"functions.isolation {layer} does not hold here (Function not implemented)" in refusal
    told = without(layer, "best")
    assert told.startswith("called ")
    assert f"'{layer}': 'Function not implemented'" in told


def test_every_layer_that_this_kernel_offers_holds():
    """No fault of ours passes for a machine that lacks one, whose tests would be skipped."""
    library = ctypes.CDLL(None, use_errno=True)
    offered = {"landlock"} if library.syscall(444, None, 0, 1) > 0 else set()  # its version
    assert library.prctl(22, 2, None, 0, 0) == -1  # a filter that lies nowhere
    if ctypes.get_errno() == errno.EFAULT and os.uname().machine in MACHINES:
        offered.add("seccomp")
    assert offered <= {name for name in INDISPENSABLE if not layers()[name]}


async def test_packages_in_a_folder_with_keys_are_refused(site, tmp_path):
    (tmp_path / "site" / "keys.json").write_text("a key")
    exposed = runner_with(private=(tmp_path / "site" / "keys.json",), isolated=True)
    with pytest.raises(VaultError) as caught:
        await exposed.start()
    assert f"and so {tmp_path}/site/keys.json: move one of the two" in caught.value.details[-1].text
    await exposed.close()
    safe = runner_with(private=(tmp_path / "data",))
    await safe.start()
    await safe.close()


# ------------------------------------------------ another user


def status(process: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return {name: cells.split() for name, _, cells in (line.partition(":") for line in lines)}


@pytest.mark.usefixtures("seccomp")
async def test_a_function_runs_as_the_user_of_the_settings_without_rights(site, unavailable):
    if os.geteuid() != 0:
        unavailable("functions that run as another user", "root alone may give them one")
    runner = runner_with(user=(NOBODY, NOBODY))
    await runner.start()
    assert runner._spare is not None
    lines = status((await runner._spare).process.pid)
    assert lines["Uid"] == lines["Gid"] == [str(NOBODY)] * 4
    assert {name: lines[name] for name in ("Groups", "CapEff", "CapPrm", "NoNewPrivs", "Seccomp")} == {
        "Groups": [], "CapEff": ["0" * 16], "CapPrm": ["0" * 16], "NoNewPrivs": ["1"], "Seccomp": ["2"],
    }  # fmt: skip
    await runner.close()


async def test_without_root_no_function_starts_as_another_user(site, unavailable):
    if os.geteuid() == 0:
        unavailable("functions that may not become another user", "root may")
    runner = runner_with(user=(NOBODY, NOBODY), isolated=True)
    with pytest.raises(VaultError, match="Resident functions cannot run"):
        await runner.start()
    await runner.close()


# ------------------------------------------------ the filter of both processors


def decide(
    program: list[tuple[int, int, int, int]], machine: str, number: int, *arguments: int
) -> str:
    """What the filter answers to a call: a word of Linux' own interpreter (seccomp(2))."""
    words = {0: number, 4: {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]}
    words |= {16 + 8 * place: argument & 0xFFFFFFFF for place, argument in enumerate(arguments)}
    at = value = 0
    while True:
        operation, true, false, operand = program[at]
        at += 1
        if operation == 0x06:
            actions = {0x7FFF0000: "allow", 0x80000000: "kill"}
            return actions.get(operand) or errno.errorcode[operand & 0xFFFF]
        if operation == 0x20:
            value = words.get(operand, 0)
        elif operation == 0x54:
            value &= operand
        else:
            at += true if (value == operand if operation == 0x15 else value >= operand) else false


@table("machine", MACHINES)
def test_the_filter_decides_by_number_and_arguments_on_every_processor(machine):
    program = call_filter(machine, 77, network=False)
    other = call_filter(machine, 77, network=True)
    pick = MACHINES.index(machine)
    cases = [
        ((0, 63), (), "allow"),  # read
        ((59, 221), (), "EPERM"),  # execve
        ((56, 220), (0x10000 | 0xF00,), "allow"),  # clone, of a thread
        ((56, 220), (17,), "EPERM"),  # clone, of a process
        ((56, 220), (0x10000 | 0x40000000,), "EPERM"),  # clone, of a thread in another network
        ((435, 435), (), "ENOSYS"),  # clone3
        ((234, 131), (77, 78, 10), "allow"),  # tgkill
        ((234, 131), (76, 76, 9), "EPERM"),
        ((129, 138), (), "EPERM"),  # rt_sigqueueinfo
        ((302, 261), (0,), "allow"),  # prlimit64
        ((302, 261), (1,), "EPERM"),
        ((257, 56), (0, 0, 0o1), "allow"),  # openat
        ((257, 56), (0, 0, 0o1000), "EPERM"),
        ((101, 117), (), "EPERM"),  # ptrace
        ((41, 198), (2, 1), "EPERM"),  # socket
        ((42, 203), (), "EPERM"),  # connect
        ((424, 424), (), "EPERM"),  # pidfd_send_signal
        ((9999, 9999), (), "ENOSYS"),
    ]
    for numbers, arguments, outcome in cases:
        assert decide(program, machine, numbers[pick], *arguments) == outcome, (numbers, arguments)
    assert decide(other, machine, (41, 198)[pick], 2) == "allow"
    assert decide(other, machine, (41, 198)[pick], 1) == "EPERM"
    assert decide(other, machine, (49, 200)[pick]) == "EPERM"  # bind
    foreign = MACHINES[1 - pick]
    assert decide(program, foreign, 0) == "kill"


def test_the_filter_is_for_processors_whose_numbers_it_has():
    with pytest.raises(OSError, match="this processor"):
        call_filter("sparc", 1, network=False)


# ------------------------------------------------ the service

#: A process as another user than root that shields itself, and one of the same user that looks in.
SHIELDED = """
import ctypes, os, resource, sys
from proxy.functions.sandbox import shield
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
library = ctypes.CDLL(None, use_errno=True)
library.prctl(4, 1, 0, 0, 0)  # as a program of this user starts
library.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER: any, where Yama asks
if sys.argv[1] == "shield":
    shield()
asking, answering = os.pipe()
service = os.getpid()
if os.fork() == 0:
    seen = []
    for name in ("environ", "mem", "maps"):
        try:
            os.close(os.open(f"/proc/{service}/{name}", os.O_RDONLY)); seen.append(name)
        except PermissionError:
            pass
    if library.ptrace(0x4206, service, None, None) == 0:  # PTRACE_SEIZE
        seen.append("ptrace")
    os.write(answering, ",".join(seen).encode() or b"-")
    os._exit(0)
print(os.read(asking, 100).decode(), resource.getrlimit(resource.RLIMIT_CORE)[1])
"""


def test_a_shielded_process_is_closed_to_others_of_its_user(unavailable):
    def looked(how: str) -> list[str]:
        words = [sys.executable, "-c", SHIELDED, how]
        return subprocess.run(
            words, capture_output=True, check=True, text=True, timeout=120
        ).stdout.split()

    others = looked("open")[0].split(",")
    assert {"environ", "maps"} <= set(others)
    if others != ["environ", "mem", "maps", "ptrace"]:
        unavailable.partly("debuggers of a shielded process", "this machine lets none near any")
    assert looked("shield") == ["-", "0"]


def test_every_command_shields_itself_before_it_reads_a_key():
    program = (
        "import ctypes, resource; from proxy.cli import main; main(['check', '--config', 'none'])\n"
        "print(ctypes.CDLL(None).prctl(3), resource.getrlimit(resource.RLIMIT_CORE))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, cwd=ROOT
    )
    assert done.stdout.endswith("0 (0, 0)\n")
