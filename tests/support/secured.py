"""TLS towards callers: clients that say what they like in a handshake, and what they are told."""

import asyncio
import contextlib
import shutil
import socket
import ssl
from pathlib import Path

from proxy.clock import Clock, system_clock
from proxy.net.tls import CertificateFiles
from proxy.net.tls_context import TlsPolicy, context, read_certificate
from proxy.net.tls_transport import TlsListener
from tests.support.certificates import Authority
from tests.support.certificates import Pair as Files

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def trusting(
    authority: Authority, version: ssl.TLSVersion = TLS_1_3, own: Files | None = None
) -> ssl.SSLContext:
    """A client's context that trusts this authority, speaks one version of TLS, and shows a
    certificate of its own.
    """
    made = ssl.create_default_context(cafile=str(authority.certificate))
    made.minimum_version = made.maximum_version = version
    if own is not None:
        made.load_cert_chain(own.certificate, own.key)
    return made


def material_of(*pairs: Files, clients: Path | None = None, crl: Path | None = None):
    """The files of a listener, read."""
    return read_certificate(
        [CertificateFiles(pair.certificate, pair.key) for pair in pairs], clients, crl
    )


def tls_listener(
    *pairs: Files, patience: float = 30.0, clock: Clock = system_clock, **terms
) -> tuple[TlsListener, list[str]]:
    """TLS of a listener, and how its handshakes ended."""
    asked = TlsPolicy(**{"strict": True, **terms})
    outcomes: list[str] = []
    made = context(material_of(*pairs, clients=asked.clients), asked)
    return TlsListener(made, outcomes.append, patience, clock), outcomes


def replace(old: Files, new: Files) -> None:
    """Put other files in the place of a pair, one after the other."""
    for source, target in ((new.certificate, old.certificate), (new.key, old.key)):
        beside = target.with_suffix(".new")
        shutil.copy(source, beside)
        beside.replace(target)


async def greeted(port: int, tls: ssl.SSLContext, name: str | None, wait: float = 0.2) -> str:
    """How a handshake ends: the first name of the certificate that was shown, or the alert that was
    sent, in TLS 1.3 within so many seconds.
    """
    return await asyncio.to_thread(_greeted, port, tls, name, wait)


def _greeted(port: int, tls: ssl.SSLContext, name: str | None, wait: float) -> str:
    tls.check_hostname = False  # which one is shown is what the test asks
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        try:
            with tls.wrap_socket(plain, server_hostname=name) as secured:
                if secured.version() == "TLSv1.3":
                    # a refusal of the caller's certificate comes after its handshake
                    secured.settimeout(wait)
                    with contextlib.suppress(TimeoutError):
                        secured.recv(1)
                shown = secured.getpeercert() or {}
                return str(shown["subjectAltName"][0][1])
        except ssl.SSLError as error:
            return str(error.reason)
