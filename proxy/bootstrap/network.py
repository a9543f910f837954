"""Listeners: the layers that new connections pass, and the addresses of the vault."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from proxy.admin.app import ReadinessCheck
from proxy.api.connection import ConnectionAcceptor, VaultConnection
from proxy.auth.audiences import Audiences
from proxy.bootstrap.edge import EdgeGuard
from proxy.clock import Clock
from proxy.config import Settings, UpstreamSettings
from proxy.crypto.prf import Prf
from proxy.edge.connections import ConnectionLimit
from proxy.edge.firewall import Mode
from proxy.errors import Code, VaultError, bad_setting
from proxy.gateway.forwarded import CallerFields, Correlation, ForwardedHeaders
from proxy.gateway.gateway import GatewayOptions
from proxy.gateway.metrics import Applications
from proxy.net.client import Route
from proxy.net.client_address import Trusted
from proxy.net.listener import Address, Certificates, Connections
from proxy.net.proxy_protocol import Preambles
from proxy.net.reply import CallLimits, UpstreamAddress
from proxy.net.sockets import taken_over
from proxy.net.tls import CertificateFiles, ClientTls, MutualCertificates, client_context
from proxy.net.tls_context import ListenerCertificates, TlsPolicy, date_faults, read_certificate
from proxy.redactor.rules import Endpoint, RuleSet
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.telemetry.tracing import Tracer, open_tracer


@dataclass(slots=True)
class Listeners:
    """Acceptors for new connections of each listener; ``None``: straight to HTTP."""

    proxy: ConnectionAcceptor | None
    vault: ConnectionAcceptor | None
    certificates: Certificates | None  #: of both, where TLS is spoken
    hsts: int  #: seconds for which browsers are told to use TLS only
    remote: MutualCertificates | None = None  #: towards instances that use this one's vault

    @property
    def vault_connection(self) -> Connections:
        """Return the protocol factory of the vault listener."""
        return VaultConnection if self.vault is None else self.vault.of_vault

    @property
    def _files(self) -> list[Certificates | MutualCertificates]:
        return [one for one in (self.certificates, self.remote) if one is not None]

    def checks(self) -> dict[str, ReadinessCheck]:
        return {} if self.certificates is None else {"tls": self.certificates.check}

    def states(self) -> list[Reload]:
        """States of the files that may be stale."""
        return [one.state for one in self._files]

    async def watch(self) -> None:
        """Follow the files for TLS, for ever."""
        await asyncio.gather(*[one.watch() for one in self._files])

    def with_files(self, other: Callable[[], None]) -> Callable[[], None]:
        """Return a function that reloads the TLS files after calling ``other``."""

        def renew() -> None:
            other()
            for one in self._files:
                one.reload()

        return renew

    def close(self) -> None:
        """End the connections that have not begun to speak HTTP."""
        for acceptor in (self.proxy, self.vault):
            if acceptor is not None:
                acceptor.close()


def open_listeners(
    settings: Settings,
    audiences: Audiences,
    metrics: Metrics,
    clock: Clock,
    limit: ConnectionLimit | None = None,
) -> Listeners:
    """Open the configured acceptors.

    ``limit`` also counts connections by the address of a PROXY preamble. Raises ``VaultError``
    (BAD_SETTINGS) for an unusable TLS file.
    """
    tls = settings.listen.tls

    def accept(material: ListenerCertificates) -> None:
        _refuse_nameless(settings, material)
        if tls.secures("vault"):
            audiences.certified(material.names())

    certificates = (
        Certificates(_pairs(settings), _tls_policies(settings), metrics, clock, accept)
        if tls.certificate
        else None
    )
    hsts = tls.hsts // 1000 if tls.secures("vault") else 0
    proxy, vault = (_acceptor(settings, name, certificates) for name in ("proxy", "vault"))
    for acceptor in (proxy, vault):
        if limit is not None and acceptor is not None and acceptor.preambles is not None:
            acceptor.preambles.admit = limit.counted
    remote = None
    if settings.remote.listen is not None:
        remote = MutualCertificates(remote_files(settings), metrics, "remote")
    return Listeners(proxy, vault, certificates, hsts, remote)


def check_listeners(settings: Settings) -> None:
    """Raise as a start would for the listeners' TLS files, and for expired certificates."""
    if settings.listen.tls.certificate:
        material = read_certificate(
            _pairs(settings), settings.listen.tls.clients, settings.listen.tls.clients_crl
        )
        _refuse_nameless(settings, material)
        if faults := date_faults(material, datetime.now(UTC)):
            raise VaultError(Code.BAD_SETTINGS, "A certificate is outside its time.", tuple(faults))


def address_of(settings: Settings, host_port: str) -> str:
    """The address at which callers reach the vault, by settings; ``host_port``: ``host:port``."""
    audiences = Audiences(settings.auth.audiences)
    if settings.listen.tls.secures("vault"):
        audiences.certified(read_certificate(_pairs(settings)).names())
    audiences.listening(host_port)
    return audiences.first


def _acceptor(
    settings: Settings, name: str, certificates: Certificates | None
) -> ConnectionAcceptor | None:
    tls = certificates.listeners.get(name) if certificates is not None else None
    preambles = None
    if settings.listen.proxy_protocol:
        preambles = Preambles(settings.trusted_proxies, secure=tls is not None)
    return None if tls is None and preambles is None else ConnectionAcceptor(preambles, tls)


def _pairs(settings: Settings) -> list[CertificateFiles]:
    tls = settings.listen.tls
    keys = tls.key or (None,) * len(tls.certificate)
    return [
        CertificateFiles(certificate, key)
        for certificate, key in zip(tls.certificate, keys, strict=True)
    ]


def _tls_policies(settings: Settings) -> dict[str, TlsPolicy]:
    tls = settings.listen.tls
    return {
        name: TlsPolicy(
            strict=tls.require_sni in (name, "both"),
            clients=tls.clients if tls.clients_at in (name, "both") else None,
            crl=tls.clients_crl if tls.clients_at in (name, "both") else None,
            required=tls.clients_required,
        )
        for name in ("proxy", "vault")
        if tls.secures(name)
    }


def _refuse_nameless(settings: Settings, material: ListenerCertificates) -> None:
    """Without an address of ours no token could be for us."""
    nameless = all(name.startswith("*.") for name in material.names())
    if nameless and not settings.auth.audiences and settings.listen.tls.secures("vault"):
        text = (
            "the certificates stand for wildcards alone: write the addresses that callers reach "
            "the vault listener by"
        )
        raise bad_setting("The vault has no name.", "auth.audiences", text)


# Routes to applications, and the headers that they get, as configured.

_log = logs.logger("bootstrap")


def upstream_routes(settings: Settings) -> tuple[Route, dict[str, Route]]:
    """Return the general route to applications, and the special ones by name.

    Raises ``VaultError`` (BAD_SETTINGS).
    """
    special = {
        name: _route(own, f"applications.{name}") for name, own in settings.applications.items()
    }
    return _route(settings.upstream, "upstream"), special


async def unreachable_applications(rules: RuleSet, patience: float = 3.0) -> list[Endpoint]:
    """The endpoints at whose address nothing takes a connection within so many seconds."""

    async def reached(endpoint: Endpoint) -> bool:
        address = UpstreamAddress.parse(endpoint.upstream)
        try:
            async with asyncio.timeout(patience):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except OSError:
            return False
        writer.close()
        return True

    answers = await asyncio.gather(*map(reached, rules.endpoints))
    return [one for one, there in zip(rules.endpoints, answers, strict=True) if not there]


def _route(upstream: UpstreamSettings, section: str) -> Route:
    """Return the route to an application.

    Raises ``VaultError`` (BAD_SETTINGS) if a file for it cannot be used.
    """
    tls, breaker = upstream.tls, upstream.breaker
    limits = CallLimits(
        connect=upstream.connect / 1000,
        head=upstream.head / 1000,
        idle=upstream.idle / 1000,
        total=upstream.total / 1000,
        connections=upstream.connections,
        queue=upstream.queue,
        keep=upstream.keep / 1000,
        failures=breaker.failures,
        pause=breaker.pause / 1000,
    )
    if tls.verify and not (tls.ca or tls.certificate or tls.server_name):
        return Route(limits)
    if not tls.verify:
        _log.warning(
            "tls.verify is false: the application's identity is not verified", source=section
        )
    context = client_context(
        tls.ca, tls.certificate, tls.key, verify=tls.verify, section=f"{section}.tls"
    )
    return Route(limits, ClientTls(context, tls.server_name))


def renew_certificates(settings: Settings, applications: Applications) -> None:
    """Reload the TLS files for applications; if one is unusable, all earlier ones stay active."""
    try:
        way, special = upstream_routes(settings)
    except VaultError as error:
        applications.state.failed(error)
        for source, text in error.details:
            _log.error(
                "a TLS file is unusable; previous files stay active", source=source, text=text
            )
        return
    applications.upstream.renew(way, special)
    applications.state.succeeded()
    _log.info("the TLS files for applications were reloaded")


def gateway_options(
    settings: Settings,
    applications: Applications,
    guard: EdgeGuard,
    acceptor: ConnectionAcceptor | None,
    tagged: Prf,
) -> GatewayOptions:
    """Assemble the gateway's options; a feature that is off costs requests nothing."""
    forwarding, trusted = settings.forwarding, settings.trusted_proxies
    headers = ForwardedHeaders(
        forwarding.x_forwarded, forwarding.forwarded, forwarding.via, forwarding.host == "upstream"
    )
    ids = _correlation(settings)
    return GatewayOptions(
        applications.upstream,
        tagged,
        buffered=settings.limits.held,
        met=applications.met,
        special=settings.applications.keys(),
        caller_fields=CallerFields(headers, Trusted(trusted), ids) if any(headers) or ids else None,
        access=settings.log.access,
        acceptor=acceptor,
        firewall=guard.firewall if guard.firewall.mode is not Mode.OFF else None,
        screened=guard.screened("proxy"),
        quotas=guard.quotas if guard.quotas.address is not None else None,
        limited=guard.limited("proxy"),
    )


def _correlation(settings: Settings) -> Correlation | None:
    ids, tracing = settings.forwarding.request_id, settings.tracing
    if not ids and tracing.endpoint is None:
        return None
    sample = None if tracing.endpoint is None else tracing.sample
    return Correlation(ids, sample)


def redirected(rules: RuleSet, upstreams: Mapping[str, str]) -> RuleSet:
    """The rule set with other application addresses; for the demo, which looks for free ports."""
    endpoints = {
        id(endpoint): replace(endpoint, upstream=upstreams.get(endpoint.name, endpoint.upstream))
        for endpoint in rules.endpoints
    }
    return replace(
        rules,
        endpoints=tuple(endpoints.values()),
        operations=tuple(
            replace(item, endpoint=endpoints[id(item.endpoint)]) for item in rules.operations
        ),
        passed=tuple(replace(item, endpoint=endpoints[id(item.endpoint)]) for item in rules.passed),
    )


# Where this process listens.

_NO_METRICS = (
    "This process was started with a socket for metrics: set listen.metrics to its address, or "
    "take it away."
)
#: A Unix socket at which the owner of a vault answers workers; one that the supervisor opens.
OWNER_SOCKET: Final = "owner"
#: Sockets at no address of the network.
_LOCAL: Final = ("socket", OWNER_SOCKET)


def listen_addresses(settings: Settings, sockets: Sequence[tuple[str, int]]) -> dict[str, Address]:
    """The address of each listener, or its inherited sockets; raises as ``taken_over``."""
    own = settings.listen.addresses()
    if any(name not in own for name, _ in sockets if name not in _LOCAL):
        raise VaultError(Code.BAD_SETTINGS, _NO_METRICS)
    return {name: taken_over(name, address, sockets) or address for name, address in own.items()}


# The way between an instance without a vault and the one whose vault it uses.


def remote_files(settings: Settings) -> tuple[Path, Path, Path]:
    """The files of the settings, which name all or none."""
    remote = settings.remote
    if remote.authorities is None or remote.certificate is None or remote.key is None:
        raise TypeError("settings without certificates were let through")
    return remote.authorities, remote.certificate, remote.key


def check_remote(settings: Settings) -> None:
    """Raise what a start would say of the files of that way."""
    if settings.remote.vault is not None or settings.remote.listen is not None:
        client_context(*remote_files(settings), section="remote")


def open_spans(stack: AsyncExitStack, settings: Settings) -> Tracer | None:
    """Return the exporter of spans, if a collector is configured; the stack closes it."""
    if settings.tracing.endpoint is None:
        return None
    tracer = open_tracer(settings.tracing.endpoint)
    stack.callback(tracer.close)
    return tracer
