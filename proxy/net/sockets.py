"""Listening sockets that outlive the process that serves at them: a restart refuses nobody. systemd
opens them (``sd_listen_fds(3)``), or ``domicile serve --supervised``.

While no process accepts, callers wait in the kernel's queue of the socket. A process that takes one
over listens where its settings say, or it does not start: what they promise of TLS and of loopback
is about that address.
"""

import errno
import os
import socket
from collections.abc import Iterable, MutableMapping, Sequence
from pathlib import Path
from typing import Final

from proxy.errors import Code, VaultError

#: Environment variable by which the supervisor tells its process the sockets, as
#: ``proxy:5,vault:6``.
INHERITED: Final = "DOMICILE_SOCKETS"

#: Connections that wait to be accepted where nothing counts them; the kernel may hold fewer.
BACKLOG: Final = 4096

_LISTENERS: Final = ("proxy", "vault", "admin", "metrics", "socket", "owner")

_SYSTEMD_FIRST: Final = 3  # SD_LISTEN_FDS_START

_SYSTEMD: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")

_NOT_OPENED: Final = (
    "this user may not open that port. Take one above 1023 with listen.{name}, or grant the right."
)
_REASONS: Final = {
    errno.EADDRINUSE:
        "another program listens there. Stop it, or set another port with listen.{name}.",
    errno.EACCES: _NOT_OPENED,
    errno.EPERM: _NOT_OPENED,
    errno.EADDRNOTAVAIL:
        "this machine has no such address. Set one that it has with listen.{name}.",
}  # fmt: skip
_OTHERWISE: Final = "the address cannot be opened. Check host and port of listen.{name}."
_UNKNOWN_HOST: Final = (
    "the host name is not known. Set an address of this machine with listen.{name}."
)


def cannot_listen(name: str, address: tuple[str, int], error: OSError) -> VaultError:
    """The refusal for an address that cannot be opened; ``name`` is the setting to change."""
    if isinstance(error, socket.gaierror):
        reason = _UNKNOWN_HOST
    else:
        reason = _REASONS.get(error.errno or 0, _OTHERWISE)
    return VaultError(
        Code.PORT_IN_USE, f"Cannot listen at {host_and_port(address)}: {reason.format(name=name)}"
    )


def host_and_port(address: tuple[str, int]) -> str:
    """``host:port``."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_sockets(name: str, address: tuple[str, int]) -> list[socket.socket]:
    """Listen at an address, on each one that a host name resolves to, without accepting yet.

    Raises ``VaultError`` (PORT_IN_USE).
    """
    opened: list[socket.socket] = []
    try:
        for family, kind, number, _, target in _resolved(address):
            one = socket.socket(family, kind, number)
            opened.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(target)
            one.listen(BACKLOG)
    except OSError as error:
        for one in opened:
            one.close()
        raise cannot_listen(name, address, error) from None
    return opened


def local_socket(path: Path) -> socket.socket:
    """A Unix socket that this user alone may connect to.

    One that a process left behind is replaced. Raises ``VaultError`` (PORT_IN_USE).
    """
    local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    local.setblocking(False)  # where somebody listens whose queue is full, to connect would wait
    # no other process may connect before the mode is set
    before = os.umask(0o177)
    try:
        if path.is_socket():
            if local.connect_ex(str(path)) in (0, errno.EAGAIN):
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            path.unlink()
        local.bind(str(path))
        local.listen()
    except OSError as error:
        local.close()
        raise VaultError(
            Code.PORT_IN_USE,
            f"Cannot listen at {path} ({error.strerror or error}): name a path of at most 100 "
            "characters, in a folder of this user, with listen.socket.",
        ) from None
    finally:
        os.umask(before)
    return local


def inherited(variables: MutableMapping[str, str], process: int) -> tuple[tuple[str, int], ...]:
    """The sockets that a process was started with: listener and file descriptor of each.

    ``process`` is its id: systemd says whom its sockets are for. The variables are removed, for
    they mean no other process. Raises ``VaultError``
    (BAD_SETTINGS).
    """
    sockets: list[tuple[str, int]] = []
    try:
        if variables.get("LISTEN_PID") == str(process):
            _, count, names = (variables.pop(name, "") for name in _SYSTEMD)
            numbers = range(_SYSTEMD_FIRST, _SYSTEMD_FIRST + int(count))
            sockets = list(zip(names.split(":"), numbers, strict=True))
        for word in filter(None, variables.pop(INHERITED, "").split(",")):
            name, _, number = word.partition(":")
            sockets.append((name, int(number)))
    except ValueError:
        raise VaultError(
            Code.BAD_SETTINGS,
            "The listening sockets that this process was started with are not named: write "
            "FileDescriptorName= with proxy, vault, admin or metrics in each socket unit.",
        ) from None
    for name, _ in sockets:
        if name not in _LISTENERS:
            raise VaultError(
                Code.BAD_SETTINGS,
                f"A listening socket that this process was started with is for {name!r}, which is "
                f"no listener: write FileDescriptorName= with one of {', '.join(_LISTENERS)}.",
            )
    return tuple(sockets)


def taken_over(
    name: str, address: tuple[str, int], sockets: Iterable[tuple[str, int]]
) -> list[socket.socket]:
    """Those of a listener among the sockets that this process was started with; none: it opens its
    own.

    Raises ``VaultError`` (BAD_SETTINGS) for one that does not listen where the settings say.
    """
    return [_taken_over(name, address, number) for one, number in sockets if one == name]


def local_taken_over(path: Path, sockets: Iterable[tuple[str, int]]) -> socket.socket | None:
    """The Unix socket for commands among those that this process was started with.

    Raises ``VaultError`` (BAD_SETTINGS) for one at another path.
    """
    for name, number in sockets:
        if name == "socket":
            local = copied(number)
            if local.family == socket.AF_UNIX and local.getsockname() == str(path):
                return local
            raise VaultError(
                Code.BAD_SETTINGS,
                f"The socket that this process was started with does not listen at {path}: let "
                "listen.socket and the socket unit name the same path.",
            )
    return None


def copied(number: int) -> socket.socket:
    """A socket that this process was started with; a copy of it, for a start that is tried again
    takes it over again. Raises ``OSError`` where it is no socket.
    """
    whole = socket.socket(fileno=number)
    whole.set_inheritable(False)
    copy = whole.dup()
    whole.detach()
    copy.setblocking(False)
    return copy


def _taken_over(name: str, address: tuple[str, int], number: int) -> socket.socket:
    try:
        opened = copied(number)
        if _listens_at(opened, address):
            return opened
        opened.close()
    except OSError:
        pass  # it is no socket
    raise VaultError(
        Code.BAD_SETTINGS,
        f"The socket that this process was started with for {name} does not listen at "
        f"{host_and_port(address)}: let listen.{name} and the socket unit name the same address.",
    )


def _listens_at(opened: socket.socket, address: tuple[str, int]) -> bool:
    if opened.family not in _FAMILIES:
        return False
    host, port = opened.getsockname()[:2]
    return (
        bool(opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        and host in {target[0] for *_, target in _resolved(address)}
        and address[1] in (0, port)
    )


_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


def _resolved(address: tuple[str, int]) -> Sequence[tuple[int, int, int, str, tuple[str, int]]]:
    host, port = address
    try:
        answers = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, "not a host name") from None
    return list(dict.fromkeys(answers))  # type: ignore[arg-type]  # stream sockets have no others
