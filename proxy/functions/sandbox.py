"""Sandbox by the kernel: shields the service from its neighbours and confines functions.

A worker gives up its rights before any code of the operator is loaded, in layers that hold without
each other. ``landlock``: it reads the Python runtime and writes to one folder. ``seccomp``: of the
system calls those are left that need no other process and no network. ``network_namespace`` and
``user``: another network, another user, where the service may give them. Every number below comes
from the headers of Linux, which never change one: ``asm/unistd_64.h``, ``asm-generic/unistd.h``
(aarch64), ``linux/landlock.h``, ``linux/seccomp.h``, ``linux/filter.h``, ``linux/prctl.h``.
"""

import ctypes
import errno
import os
import resource
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

#: Layers without which a function could reach foreign data.
INDISPENSABLE: Final = ("landlock", "seccomp")

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIGKILL = 9


def shield() -> None:
    """Close this process to debuggers, ``/proc`` and core files, of all users.

    Root with CAP_SYS_PTRACE is not kept out.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # other systems have no such switch
        _system("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def confine(folder: str, *, network: bool, user: tuple[int, int] | None) -> dict[str, str]:
    """Drop all rights that a function does not need, for ever.

    It may write in ``folder`` alone; ``user``: user and group that it becomes. Answers each layer
    that was tried, with the reason why it does not hold, which is empty where it does.
    """
    layers: dict[str, Callable[[], None]] = {
        "landlock": partial(_restrict_files, folder, network=network),
        "seccomp": partial(_filter_calls, network=network),
    }
    before: dict[str, Callable[[], None]] = {}
    if user is not None:
        before["user"] = partial(_become, *user)
    if not network:
        before["network_namespace"] = _leave_network
    outcome = {name: _attempt(layer) for name, layer in before.items()}
    _attempt(_give_up_rights)  # the next layers report its lack
    return outcome | {name: _attempt(layer) for name, layer in layers.items()}


def readable_paths(*, network: bool) -> list[str]:
    """The files and folders that a function may read: the runtime, installed packages, libraries.

    Those of the name service and of authorities only with a network.
    """
    libraries = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share")
    devices = ("/dev/zero", "/dev/random", "/dev/urandom")
    tables = ("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/ssl/openssl.cnf")
    names = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf")
    authorities = ("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/pki/tls/certs", "/etc/pki/ca-trust")
    own = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    listed = [*sys.path, f"{sys.base_prefix}/lib", *own, *libraries, *devices, *tables]
    paths = [path for path in (*listed, *(names + authorities if network else ())) if path]
    there = filter(os.path.exists, paths)  # false, too, where this user may not look
    return list(dict.fromkeys(map(os.path.realpath, there)))


def _attempt(layer: Callable[[], None]) -> str:
    try:
        layer()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _system(name: str, *arguments: Any) -> int:
    """Return the result of a C library function; ``OSError`` if it fails or is missing."""
    function = getattr(_library(), name, None)
    if function is None:
        raise OSError(errno.ENOSYS, "this system has no such call")
    longs = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result: int = function(*longs)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _leave_network() -> None:
    """Move to a network that has nothing in it."""
    try:
        _system("unshare", _CLONE_NEWNET)  # root with CAP_SYS_ADMIN
    except PermissionError:
        _system("unshare", _CLONE_NEWUSER | _CLONE_NEWNET)


def _become(user: int, group: int) -> None:
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def _give_up_rights() -> None:
    """No more rights by programs or capabilities, no one to look in, an end with the service."""
    _system("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    version_3, nobody = 0x20080522, 0
    _system("capset", struct.pack("=Ii", version_3, nobody), bytes(24))
    _system("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
    _system("prctl", _PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


# ------------------------------------------------ Landlock: files (linux/landlock.h)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
#: Remove folders and files; make folders, files, named pipes and links; link and rename across.
_CHANGE = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 13
#: Rights over files that each version of the interface has brought.
_FILE_RIGHTS: Final = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_BIND_TCP, _CONNECT_TCP = 1, 2  # since version 4
_SCOPES = 0b11  # abstract sockets and signals of others, since version 6


def _restrict_files(folder: str, *, network: bool) -> None:
    version = _system("syscall", _CREATE_RULESET, None, 0, _VERSION_FLAG)
    handled = sum(rights for since, rights in _FILE_RIGHTS.items() if since <= version)
    ports = _BIND_TCP if network else _BIND_TCP | _CONNECT_TCP
    attributes = struct.pack(
        "=QQQ", handled, ports if version >= 4 else 0, _SCOPES if version >= 6 else 0
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _system("syscall", _CREATE_RULESET, attributes, size, 0)
    for path in readable_paths(network=network):
        _permit(ruleset, path, (_READ_FILE | _READ_DIR) & handled)
    _permit(ruleset, os.devnull, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & handled)
    own = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _CHANGE
    _permit(ruleset, folder, own & handled)
    _system("syscall", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _permit(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not Path(path).is_dir():
            rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE
        rule = struct.pack("=Qi", rights, descriptor)
        _system("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)


# ------------------------------------------------ seccomp: system calls (linux/seccomp.h)

#: Name and numbers on x86_64 and aarch64 (-: it has none) of the calls that are left as they are.
_ALLOWED: Final = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69,
pwritev 296 70, lseek 8 62, close 3 57, close_range 436 436, dup 32 23, dup2 33 -, dup3 292 24,
flock 73 32, fsync 74 82, fdatasync 75 83, ftruncate 77 46, fallocate 285 47, fadvise64 221 223,
fstat 5 80, stat 4 -, lstat 6 -, newfstatat 262 79, statx 332 291, access 21 -, faccessat 269 48,
faccessat2 439 439, readlink 89 -, readlinkat 267 78, getdents 78 -, getdents64 217 61,
getcwd 79 17, chdir 80 49, fchdir 81 50, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -,
unlinkat 263 35, rename 82 -, renameat 264 38, renameat2 316 276, umask 95 166, statfs 137 43,
fstatfs 138 44, copy_file_range 326 285, sendfile 40 71, pipe 22 -, pipe2 293 59, poll 7 -,
ppoll 271 73, select 23 -, pselect6 270 72, epoll_create1 291 20, epoll_ctl 233 21,
epoll_wait 232 -, epoll_pwait 281 22, epoll_pwait2 441 441, eventfd2 290 19, brk 12 214,
mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, msync 26 227,
mincore 27 232, membarrier 324 283, futex 202 98, set_robust_list 273 99, rseq 334 293,
sched_yield 24 124, sched_getaffinity 204 123, gettid 186 178, set_tid_address 218 96,
arch_prctl 158 -, exit 60 93, exit_group 231 94, rt_sigaction 13 134, rt_sigprocmask 14 135,
rt_sigreturn 15 139, rt_sigsuspend 130 133, rt_sigpending 127 136, rt_sigtimedwait 128 137,
sigaltstack 131 132, pause 34 -, alarm 37 -, setitimer 38 103, getitimer 36 102,
restart_syscall 219 128, clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115,
nanosleep 35 101, gettimeofday 96 169, time 201 -, times 100 153, timerfd_create 283 85,
timerfd_settime 286 86, timerfd_gettime 287 87, getpid 39 172, getppid 110 173, getuid 102 174,
geteuid 107 175, getgid 104 176, getegid 108 177, getgroups 115 158, getresuid 118 148,
getresgid 120 150, getpgrp 111 -, getpgid 121 155, getsid 124 156, uname 63 160, sysinfo 99 179,
getrusage 98 165, getrlimit 97 163, getcpu 309 168, getrandom 318 278, getpriority 140 141,
sendto 44 206, recvfrom 45 207, sendmsg 46 211, recvmsg 47 212, shutdown 48 210,
getsockopt 55 209, setsockopt 54 208, getsockname 51 204, getpeername 52 205
"""

#: Those that a client of the network needs besides.
_NETWORK: Final = "connect 42 203, sendmmsg 307 269, recvmmsg 299 243"

#: Calls from this number on are young: libraries do without them where they are said to be missing.
_YOUNG: Final = 435  # clone3, whose flags a filter cannot see

_THREAD: Final = 0x00010000  # CLONE_THREAD
_NAMESPACES: Final = 0x7E020080  # every CLONE_NEW*
_O_TRUNC, _O_ACCMODE = 0o1000, 0o3


class _ArgumentRule(NamedTuple):
    """A call that one of its arguments decides: allowed with these values, or with all others."""

    numbers: str
    argument: int
    values: tuple[int, ...]
    allowed: bool
    mask: int = 0xFFFFFFFF


def _argument_rules(process: int, *, network: bool) -> Iterator[_ArgumentRule]:
    truncating = ((_O_TRUNC,), False, _O_TRUNC | _O_ACCMODE)  # a file that is opened to be read
    yield _ArgumentRule("open 2 -", 1, *truncating)
    yield _ArgumentRule("openat 257 56", 2, *truncating)
    yield _ArgumentRule("clone 56 220", 0, (_THREAD,), True, _THREAD | _NAMESPACES)
    yield _ArgumentRule("tgkill 234 131", 0, (process,), True)
    yield _ArgumentRule("prlimit64 302 261", 0, (0, process), True)
    yield _ArgumentRule("socketpair 53 199", 1, (1,), True, 0xF)  # SOCK_STREAM: asyncio has one
    # signals to others, files that others wait for: F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE;
    # FIOSETOWN, SIOCSPGRP, TIOCSTI
    yield _ArgumentRule("fcntl 72 25", 1, (8, 10, 15, 1024), False)
    yield _ArgumentRule("ioctl 16 29", 1, (0x8901, 0x8902, 0x5412), False)
    if network:
        yield _ArgumentRule("socket 41 198", 0, (2, 10), True)  # AF_INET, AF_INET6


#: By machine: the column of its numbers, and what ``seccomp_data.arch`` has there
#: (linux/audit.h).
_MACHINES: Final = {"x86_64": (1, 0xC000003E), "aarch64": (2, 0xC00000B7)}

# linux/bpf_common.h: load a word of seccomp_data, mask it, compare, return
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in seccomp_data
_KILL, _ALLOW, _FAIL = 0x80000000, 0x7FFF0000, 0x00050000

_Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, operand


def call_filter(machine: str, process: int, *, network: bool) -> list[_Instruction]:
    """The program that decides about each system call of a process, as ``sock_filter`` has it."""
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, "this processor has no filter of system calls yet")
    column, architecture = _MACHINES[machine]
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        *_unless(architecture, [_return(_KILL)]),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for number in _numbers(_ALLOWED + (f",{_NETWORK}" if network else ""), column):
        program += _where(number, [_return(_ALLOW)])
    for rule in _argument_rules(process, network=network):
        for number in _numbers(rule.numbers, column):
            program += _where(number, list(_decision(rule)))
    # x32 of x86_64, too, counts from 2^30 on
    program += [(_AT_LEAST, 0, 1, _YOUNG), _return(_FAIL | errno.ENOSYS)]
    return [*program, _return(_FAIL | errno.EPERM)]


def _decision(rule: _ArgumentRule) -> Iterator[_Instruction]:
    listed, other = (_ALLOW, _FAIL | errno.EPERM)[:: 1 if rule.allowed else -1]
    yield (_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument)
    yield (_AND, 0, 0, rule.mask)
    for value in rule.values:
        yield from _where(value, [_return(listed)])
    yield _return(other)


def _where(value: int, then: list[_Instruction]) -> list[_Instruction]:
    return [(_EQUAL, 0, len(then), value), *then]


def _unless(value: int, then: list[_Instruction]) -> list[_Instruction]:
    return [(_EQUAL, len(then), 0, value), *then]


def _return(action: int) -> _Instruction:
    return (_RETURN, 0, 0, action)


def _numbers(table: str, column: int) -> Iterable[int]:
    cells = (call.split()[column] for call in table.split(","))
    return (int(cell) for cell in cells if cell != "-")


def _filter_calls(*, network: bool) -> None:
    program = call_filter(os.uname().machine, os.getpid(), network=network)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in program))
    loaded = struct.pack("@HP", len(program), ctypes.addressof(code))
    mode_filter = 2
    _system("prctl", _PR_SET_SECCOMP, mode_filter, loaded, 0, 0)
