"""Listening sockets, opened or refused in one sentence, and the certificates of their TLS.

Certificates are loaded again from their files as a complete set or not at all. Changed files are
loaded once they stay the same for one look (``FileWatcher``), so that a certificate is not tried
with the key of the old one while both are being replaced. New connections use the new set; open
ones keep theirs. Twice a day the same files are loaded again, so that the keys of session tickets
change (RFC 5077 section 5.5).
"""

import asyncio
import errno
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from aiohttp import web

from proxy.clock import Clock
from proxy.errors import Code, Detail, VaultError
from proxy.net import tls_context
from proxy.net.caller_connection import CallerServer
from proxy.net.server import ON_ITS_WAY, finish_open_requests, time_heads
from proxy.net.sockets import BACKLOG, cannot_listen, host_and_port, local_socket
from proxy.net.tls import LOOK_AT_FILES, CertificateFiles
from proxy.net.tls_context import REVOCATIONS, ListenerCertificates, TlsPolicy
from proxy.net.tls_transport import OUTCOMES, TlsListener
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import FileWatcher, Reload, files_state

_log = logs.logger("web")

#: Makes what serves one connection of an application, in place of aiohttp's own.
Connections = Callable[[web.Server], asyncio.BaseProtocol]


#: In an application whose requests may finish when it ends: until which instant of the loop.
#: Without it they have a second.
ENDS_BY: Final[web.AppKey[Callable[[], float]]] = web.AppKey("ends_by")
#: Seconds for each step of the end of what is under way later: it may finish, its body ends, it is
#: cancelled.
_CANCELLED: Final = 1.0


class ConnectionLayer(Protocol):
    """What a new connection passes before the protocol that it is given."""

    #: connections that wait to be accepted; all of them may be accepted before the first one is
    #: counted
    backlog: int

    def __call__(self, inner: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
        """What the connection is handed to, in place of ``inner``."""


#: Where to listen: host and port, or sockets that listen already and outlive this process.
Address = tuple[str, int] | list[socket.socket]


@asynccontextmanager
async def listen(
    name: str,
    address: Address,
    served: web.Application | CallerServer,
    connections: Connections | None = None,
    first: ConnectionLayer | None = None,
) -> AsyncIterator[str]:
    """Serve at ``address`` until the block ends; gives ``host:port`` with the real port.

    Where the sockets outlive this process, another one follows that accepts at them: requests that
    have come this far are answered at the end. Requests under way finish, until ``ENDS_BY``.

    Raises ``VaultError`` (PORT_IN_USE) if the address cannot be opened; ``name`` is the setting to
    change then.
    """
    if isinstance(served, CallerServer):
        servers = await _open(name, address, served.acceptor, first)
        served.listeners += servers
        try:
            yield _log_listening(name, servers)
        finally:
            _close(servers)
        return
    runner = web.AppRunner(
        served, access_log=None, handle_signals=False, shutdown_timeout=_CANCELLED
    )
    factory = await _set_up(runner)
    try:
        if connections is not None:
            time_heads(factory)
            servers = await _open(name, address, partial(connections, factory), first)
        else:
            servers = await _open(name, address, factory, first)
        try:
            yield _log_listening(name, servers)
        finally:
            _close(servers)
            late = ON_ITS_WAY if isinstance(address, list) else 0.0
            await finish_open_requests(factory, late, served.get(ENDS_BY, _at_once)())
    finally:
        await runner.cleanup()


@asynccontextmanager
async def listen_local(
    path: Path, served: web.Application, inherited: socket.socket | None = None
) -> AsyncIterator[None]:
    """Serve at a Unix socket that this user alone may connect to, until the block ends.

    One that a process left behind is replaced; ``inherited`` is there and outlives this process.
    Raises ``VaultError`` (PORT_IN_USE) where another process listens, or the socket cannot be made.
    """
    runner = web.AppRunner(
        served, access_log=None, handle_signals=False, shutdown_timeout=_CANCELLED
    )
    factory = await _set_up(runner)
    try:
        local = inherited or local_socket(path)
        own = _number(path) if inherited is None else None
        site = web.SockSite(runner, local)
        await site.start()
        _log.info("listening", listener="socket", address=str(path))
        try:
            yield
            await site.stop()
            await finish_open_requests(factory, 0.0, served.get(ENDS_BY, _at_once)())
        finally:
            if own is not None:
                _remove(path, own)
    finally:
        await runner.cleanup()


#: Opens a connection.
ConnectionOpener = Callable[[], socket.socket]


@asynccontextmanager
async def own_connections(served: web.Application) -> AsyncIterator[ConnectionOpener]:
    """Serve this process alone until the block ends: at connections that its other threads open."""
    runner = web.AppRunner(
        served, access_log=None, handle_signals=False, shutdown_timeout=_CANCELLED
    )
    factory, loop = await _set_up(runner), asyncio.get_running_loop()

    def connect() -> socket.socket:
        own, other = socket.socketpair()
        accepting = loop.connect_accepted_socket(factory, other)
        asyncio.run_coroutine_threadsafe(accepting, loop).result()
        return own

    try:
        yield connect
    finally:
        await runner.cleanup()


def _at_once() -> float:
    return 0.0


def _number(path: Path) -> int:
    return path.lstat().st_ino


def _remove(path: Path, own: int) -> None:
    """Remove our socket; one that another process has put there meanwhile stays."""
    with suppress(FileNotFoundError):
        if _number(path) == own:
            path.unlink()


async def _set_up(runner: web.AppRunner) -> web.Server:
    await runner.setup()
    if runner.server is None:
        raise TypeError("the application was not set up")
    return runner.server


async def _open(
    name: str,
    address: Address,
    factory: Callable[[], asyncio.BaseProtocol],
    first: ConnectionLayer | None,
) -> list[asyncio.Server]:
    protocol = factory if first is None else partial(_behind, first, factory)
    backlog = BACKLOG if first is None else first.backlog
    loop = asyncio.get_running_loop()
    if isinstance(address, list):
        return [await loop.create_server(protocol, sock=one, backlog=backlog) for one in address]
    host, port = address
    try:
        server = await loop.create_server(protocol, host, port, backlog=backlog)
    except OSError as error:
        raise cannot_listen(name, address, error) from None
    if not all(server.sockets):  # uvloop closes it without a word where another one listened first
        raise cannot_listen(name, address, OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)))
    return [server]


def _close(servers: list[asyncio.Server]) -> None:
    for server in servers:
        server.close()


def _behind(
    first: ConnectionLayer, factory: Callable[[], asyncio.BaseProtocol]
) -> asyncio.BaseProtocol:
    return first(factory())


def _log_listening(name: str, servers: list[asyncio.Server]) -> str:
    host, port = servers[0].sockets[0].getsockname()[:2]
    address = host_and_port((host, port))
    _log.info("listening", listener=name, address=address)
    return address


_tls_log = logs.logger("tls")

_OUTSIDE: Final = "A certificate is outside its time."
#: Milliseconds between two reminders of one that ends soon.
_DAY: Final = 86_400_000
#: Seconds for which the keys of session tickets are used.
_TICKETS: Final = 12 * 3600.0


def _date(instant: int) -> datetime:
    return datetime.fromtimestamp(instant / 1000, UTC)


class Certificates:
    """TLS certificates of the listeners.

    Raises ``VaultError`` (BAD_SETTINGS) when it cannot be made.

    ``policies`` has those of each listener; ``accept`` may refuse the names of new certificates by
    raising, and adopts them.
    """

    def __init__(
        self,
        pairs: Sequence[CertificateFiles],
        policies: Mapping[str, TlsPolicy],
        metrics: Metrics,
        clock: Clock,
        accept: Callable[[ListenerCertificates], None],
    ) -> None:
        self._pairs = tuple(pairs)
        self._policies = dict(policies)
        self._metrics = metrics
        self._clock = clock
        self._accept = accept
        self._clients = next((one.clients for one in policies.values() if one.clients), None)
        self._crl = next((one.crl for one in policies.values() if one.crl), None)
        files = [file for pair in pairs for file in (pair.certificate, pair.key)]
        files += [self._clients, self._crl]
        self._files = tuple(file for file in files if file is not None)
        self.state = Reload(metrics, "certificates")
        self._reminded: int = -_DAY  #: when it was told last of certificates that end
        self._outside = False  #: whether one is outside its time
        self._failures = metrics.cell("domicile_tls_reload_failures_total")
        self._success = metrics.cell("domicile_tls_reload_success_timestamp_seconds")
        self._watcher = FileWatcher(partial(files_state, self._files), settled=True)
        self.material = tls_context.read_certificate(self._pairs, self._clients, self._crl)
        accept(self.material)
        self.listeners = {
            name: TlsListener(
                tls_context.context(self.material, one), partial(self._count, name), clock=clock
            )
            for name, one in policies.items()
        }
        for name in self.listeners:
            for outcome in OUTCOMES:
                metrics.cell("domicile_tls_handshakes_total", name, outcome)
        self._adopted()

    # ------------------------------------------------ what is told

    async def check(self) -> str | None:
        """For ``/readyz``: the fault where no caller of the proxy gets through.

        Any other that is outside its time is among what is stale: other listeners go on, and the
        instances beside this one have the same certificate.
        """
        faults = [one for one in self._date_faults(self.material) if one.source != REVOCATIONS]
        served = "proxy" not in self.listeners or len(faults) < len(self.material.certificates)
        return None if served else faults[0].text

    def look_at_dates(self) -> None:
        """Tell of what is outside its time, and once a day of what soon will be."""
        now, faults = self._clock(), self._date_faults(self.material)
        begun, over = faults and not self._outside, self._outside and not faults
        self._outside = bool(faults)
        if begun:  # once, so that the fault of a file put there since stays
            self.state.failed(VaultError(Code.BAD_SETTINGS, _OUTSIDE, tuple(faults)))
        if over:
            self.state.succeeded()
        if not begun and now - self._reminded < _DAY:
            return
        self._reminded = now
        for one in faults:
            _tls_log.error(
                "a certificate is shown to callers outside its time",
                source=one.source, text=one.text,
            )  # fmt: skip
        for one in tls_context.ending_soon(self.material, _date(now)):
            _tls_log.warning("a certificate ends soon", source=one.source, text=one.text)

    def _count(self, listener: str, outcome: str) -> None:
        self._metrics.cell("domicile_tls_handshakes_total", listener, outcome).value += 1

    def _date_faults(self, material: ListenerCertificates) -> list[Detail]:
        return tls_context.date_faults(material, _date(self._clock()))

    def _adopted(self) -> None:
        self.state.succeeded()
        self._success.value = self._clock() / 1000
        for loaded in self.material.certificates:
            ends = self._metrics.cell(
                "domicile_tls_certificate_end_timestamp_seconds", loaded.certificate.names[0]
            )
            ends.value = loaded.certificate.ends.timestamp()
        if (trust := self.material.trust) is not None and trust.ends is not None:
            due = self._metrics.cell("domicile_tls_revocation_list_end_timestamp_seconds")
            due.value = trust.ends.timestamp()
        self._reminded, self._outside = -_DAY, False
        self.look_at_dates()

    # ------------------------------------------------ what is read again

    async def watch(self, every: float = LOOK_AT_FILES, tickets: float = _TICKETS) -> None:
        """Look for changes every so many seconds for ever; ``tickets``: the life of their keys."""
        renewed = time.monotonic()

        async def renew() -> None:
            nonlocal renewed
            renewed = time.monotonic()
            self.reload()

        def due() -> bool:
            self.look_at_dates()
            return time.monotonic() - renewed > tickets

        await self._watcher.run(every, renew, due)

    def reload(self) -> bool:
        """Read everything again; whether it took effect.

        A fault is logged and counted, and changes nothing else.
        """
        self._watcher.mark_read()
        try:
            material = tls_context.read_certificate(self._pairs, self._clients, self._crl)
            if faults := self._date_faults(material):
                raise VaultError(Code.BAD_SETTINGS, _OUTSIDE, tuple(faults))
            contexts = {
                name: tls_context.context(material, self._policies[name]) for name in self.listeners
            }
            self._accept(material)
        except VaultError as error:
            self._refuse(error)
            return False
        changed = [one.certificate for one in material.certificates] != [
            one.certificate for one in self.material.certificates
        ]
        before, self.material = self.material.trust, material
        ended = before is not None and before.loses(material.trust)
        for name, context in contexts.items():
            self.listeners[name].renew(context, ended=ended)
        self._adopted()
        if changed:
            _tls_log.info("new certificates are active", count=len(material.certificates))
        else:
            _tls_log.info("the same certificates were reloaded", count=len(material.certificates))
        return True

    def _refuse(self, error: VaultError) -> None:
        self._failures.value += 1
        self.state.rejected(
            _tls_log,
            error,
            "TLS files rejected; previous certificates stay active",
            "a fault in the files for TLS",
        )
