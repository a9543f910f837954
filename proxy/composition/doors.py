"""The ways in: what connections to proxy and vault pass first, and by which addresses the vault is asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from proxy.auth.audiences import Audiences
from proxy.clock import Clock
from proxy.config import Settings
from proxy.errors import Code, Detail, VaultError
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from proxy.web.admin import Check
from proxy.web.api.connection import VaultConnection
from proxy.web.guard.connections import ConnectionLimit
from proxy.web.listening import Connections
from proxy.web.preamble import Preambles
from proxy.web.secure.context import Material, Pair, Terms, read, untimely
from proxy.web.secure.entrance import Entrance
from proxy.web.secure.renewal import Certificates


@dataclass(slots=True)
class Doors:
    """What new connections of each listener are handed to; ``None``: straight to HTTP."""

    proxy: Entrance | None
    vault: Entrance | None
    certificates: Certificates | None  #: of both, where TLS is spoken
    hsts: int  #: for so many seconds browsers are told to come over TLS alone

    @property
    def vault_connection(self) -> Connections:
        """What serves a new connection to the vault listener."""
        return VaultConnection if self.vault is None else self.vault.of_vault

    def checks(self) -> dict[str, Check]:
        """What ``/readyz`` asks."""
        return {} if self.certificates is None else {"tls": self.certificates.check}

    def states(self) -> list[Reload]:
        """What may be stale."""
        return [] if self.certificates is None else [self.certificates.state]

    async def watch(self) -> None:
        """Follow the files for TLS, for ever."""
        if self.certificates is not None:
            await self.certificates.watch()

    def with_files(self, other: Callable[[], None]) -> Callable[[], None]:
        """What reads the files for TLS again, with whatever else is read then."""

        def renew() -> None:
            other()
            if self.certificates is not None:
                self.certificates.reload()

        return renew

    def close(self) -> None:
        """End the connections that have not begun to speak HTTP."""
        for entrance in (self.proxy, self.vault):
            if entrance is not None:
                entrance.close()


def doors(
    settings: Settings, audiences: Audiences, metrics: Metrics, clock: Clock, limit: ConnectionLimit | None = None
) -> Doors:
    """What is switched on; ``limit`` counts connections by the address that a PROXY preamble tells, too. Raises ``VaultError`` (BAD_SETTINGS) if a file for TLS cannot be used."""
    tls = settings.listen.tls

    def accept(material: Material) -> None:
        _refuse_nameless(settings, material)
        audiences.certified(material.names())

    made = Certificates(_pairs(settings), _terms(settings), metrics, clock, accept) if tls.certificate else None
    hsts = tls.hsts // 1000 if made is not None else 0
    proxy, vault = _door(settings, "proxy", made), _door(settings, "vault", made)
    for entrance in (proxy, vault):
        if limit is not None and entrance is not None and entrance.preambles is not None:
            entrance.preambles.admit = limit.counted
    return Doors(proxy, vault, made, hsts)


def check_doors(settings: Settings) -> None:
    """Raise what a start would say of the files for TLS towards callers, and of certificates outside their time."""
    if settings.listen.tls.certificate:
        material = read(_pairs(settings), settings.listen.tls.clients)
        _refuse_nameless(settings, material)
        if faults := untimely(material, datetime.now(UTC)):
            raise VaultError(Code.BAD_SETTINGS, "A certificate is outside its time.", tuple(faults))


def address_of(settings: Settings, place: str) -> str:
    """The address that callers ask the vault for, as far as the settings tell; ``place`` is ``host:port``."""
    audiences = Audiences(settings.auth.audiences)
    if settings.listen.tls.certificate:
        audiences.certified(read(_pairs(settings)).names())
    audiences.listening(place)
    return audiences.first


def _door(settings: Settings, name: str, certificates: Certificates | None) -> Entrance | None:
    tls = certificates.listeners[name] if certificates is not None else None
    preambles = None
    if settings.listen.proxy_protocol:
        preambles = Preambles(settings.trusted_proxies, secure=tls is not None)
    return None if tls is None and preambles is None else Entrance(preambles, tls)


def _pairs(settings: Settings) -> list[Pair]:
    tls = settings.listen.tls
    keys = tls.key or (None,) * len(tls.certificate)
    return [Pair(certificate, key) for certificate, key in zip(tls.certificate, keys, strict=True)]


def _terms(settings: Settings) -> dict[str, Terms]:
    tls = settings.listen.tls
    return {
        name: Terms(
            strict=tls.require_sni in (name, "both"),
            clients=tls.clients if tls.clients_at in (name, "both") else None,
            required=tls.clients_required,
        )
        for name in ("proxy", "vault")
    }


def _refuse_nameless(settings: Settings, material: Material) -> None:
    """Without an address of ours no token could be for us."""
    if not settings.auth.audiences and all(name.startswith("*.") for name in material.names()):
        text = (
            "the certificates stand for wildcards alone: write the addresses that callers reach the vault listener by"
        )
        raise VaultError(Code.BAD_SETTINGS, "The vault has no name.", (Detail("auth.audiences", text),))
