"""TLS contexts for one listener from PEM files, with the requirements for callers.

TLS 1.2 and 1.3, forward secrecy and authenticated ciphers only, HTTP/1.1 by ALPN, no compression
and no renegotiation. The certificate is chosen by the requested name (SNI, RFC 6066): an exact name
before a wildcard, the first certificate without a name.
"""

import ssl
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from proxy.crypto.public_keys import (
    Certificate,
    RevocationError,
    Trust,
    parse_certificate,
    parse_trust,
)
from proxy.errors import Code, Detail, VaultError
from proxy.net.tls import (
    CertificateFiles,
    EncryptedKeyError,
    FreshContext,
    exposed_key,
    no_password,
    unreadable,
)

#: For TLS 1.2. What 1.3 has is good without exception.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"

#: The one group for key exchange, which every client has (RFC 8446 section 9.1). Python lets the
#: TLS library have one, or all that it knows: finite fields of 8192 bits among them, which cost a
#: server far more than a caller (CVE-2002-20001).
DH_GROUP: Final = "prime256v1"

#: Alerts of the TLS library that are not among Python's names: no name was sent (RFC 8446 section
#: 9.2; TLS 1.2, which knows no such alert, gets ``handshake_failure`` in its place).
_MISSING_EXTENSION: Final = 109


#: The setting of lists of certificates that are no longer valid.
REVOCATIONS: Final = "listen.tls.clients_crl"
#: For how long before its end a certificate is told of.
_SOON: Final = timedelta(days=14)


class TlsPolicy(NamedTuple):
    """Requirements for callers."""

    strict: bool  #: a handshake must name (SNI) a host that a certificate stands for
    #: authorities of client certificates; ``None``: none is requested
    clients: Path | None = None
    required: bool = True  #: who shows no certificate is refused
    crl: Path | None = None  #: lists of certificates that the authorities have revoked


class LoadedCertificate(NamedTuple):
    """A certificate as read."""

    source: str  #: its setting, with its place in the list
    path: Path
    certificate: Certificate


class Handshake(ssl.SSLObject):
    """TLS of one connection, with the reason of ours for which it was refused."""

    refused: str = ""


class ListenerCertificates(NamedTuple):
    """The files of a listener, read at one time: certificates with keys, checked together."""

    certificates: tuple[LoadedCertificate, ...]
    pairs: tuple[CertificateFiles, ...]
    trust: Trust | None = None  #: in callers' certificates; ``None``: none is requested

    def names(self) -> tuple[str, ...]:
        """Every name that a certificate stands for, in order."""
        return tuple(
            dict.fromkeys(name for one in self.certificates for name in one.certificate.names)
        )


def date_faults(material: ListenerCertificates, now: datetime) -> list[Detail]:
    """A fault for each certificate that is not valid at this time."""
    faults = []
    for source, path, certificate in material.certificates:
        if not certificate.begins <= now <= certificate.ends:
            what = (
                f"ended at {certificate.ends}"
                if now > certificate.ends
                else f"begins at {certificate.begins}"
            )
            text = f"{path}, or one in its chain, {what}: put a certificate there that is valid now"
            faults.append(Detail(source, text))
    ends = material.trust and material.trust.ends
    if ends and now > ends:
        text = f"a revocation list was due for a new one at {ends}: callers are refused until then"
        faults.append(Detail(REVOCATIONS, text))
    return faults


def ending_soon(material: ListenerCertificates, now: datetime) -> list[Detail]:
    """Return a text for each certificate, and for a list of revocations, with two weeks left."""
    dates = [
        (source, f"{path}, or one in its chain,", one.ends)
        for source, path, one in material.certificates
    ]
    if material.trust is not None and material.trust.ends is not None:
        dates.append((REVOCATIONS, "a revocation list", material.trust.ends))
    return [
        Detail(source, f"{what} ends at {ends}: put a later one there before")
        for source, what, ends in dates
        if now <= ends < now + _SOON
    ]


def read_certificate(
    pairs: Sequence[CertificateFiles], clients: Path | None = None, crl: Path | None = None
) -> ListenerCertificates:
    """Read and try the files.

    Raises ``VaultError`` (BAD_SETTINGS) with a detail for each that cannot be used.
    """
    faults: list[Detail] = []
    loaded: list[LoadedCertificate] = []
    for number, pair in enumerate(pairs, 1):
        source = (
            "listen.tls.certificate"
            if len(pairs) == 1
            else f"listen.tls.certificate, item {number}"
        )
        one = _described(source, pair, faults)
        if one is not None and (fault := _unfit(pair)):
            faults.append(Detail(source, fault))
        elif one is not None:
            loaded.append(one)
    trust = None if clients is None else _trust(clients, crl, faults)
    faults += _idle(loaded)
    if faults:
        raise VaultError(
            Code.BAD_SETTINGS, "The files for TLS towards callers cannot be used.", tuple(faults)
        )
    return ListenerCertificates(tuple(loaded), tuple(pairs), trust)


def context(material: ListenerCertificates, policy: TlsPolicy) -> ssl.SSLContext:
    """Return the context of a listener; it chooses the certificate by the requested name."""
    contexts = [_complete(pair, policy) for pair in material.pairs]
    exact: dict[str, ssl.SSLContext] = {}
    for one, context_of_name in zip(material.certificates, contexts, strict=True):
        for name in one.certificate.names:
            exact.setdefault(name, context_of_name)

    def chosen(handshake: ssl.SSLObject, name: str | None, begun: ssl.SSLContext) -> int | None:
        if name is None:
            return _refused(handshake, "no_name", _MISSING_EXTENSION) if policy.strict else None
        name = name.lower()
        context_of_name = exact.get(name) or exact.get("*." + name.partition(".")[2])
        if context_of_name is None:
            alert = ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
            return _refused(handshake, "foreign_name", alert) if policy.strict else None
        if context_of_name is not begun:
            handshake.context = context_of_name
        return None

    first = contexts[0]
    first.sni_callback = chosen
    first.sslobject_class = Handshake
    return first


def _refused(handshake: ssl.SSLObject, reason: str, alert: int) -> int:
    if isinstance(handshake, Handshake):
        handshake.refused = reason
    return alert


def _bare() -> ssl.SSLContext:
    return FreshContext(ssl.PROTOCOL_TLS_SERVER)


def _load(context: ssl.SSLContext, pair: CertificateFiles) -> None:
    context.load_cert_chain(pair.certificate, pair.key, no_password)


def _complete(pair: CertificateFiles, policy: TlsPolicy) -> ssl.SSLContext:
    context = _bare()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_ecdh_curve(DH_GROUP)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= (
        ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    _load(context, pair)
    if policy.clients is not None:
        context.load_verify_locations(policy.clients)
        context.verify_mode = ssl.CERT_REQUIRED if policy.required else ssl.CERT_OPTIONAL
        if policy.crl is not None:
            context.load_verify_locations(policy.crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        context.num_tickets = 0  # whose session goes on shows no certificate again
        context.options |= ssl.OP_NO_TICKET
    return context


# ------------------------------------------------ faults


def _described(
    source: str, pair: CertificateFiles, faults: list[Detail]
) -> LoadedCertificate | None:
    """The certificate of a pair, or ``None`` with a fault."""
    try:
        certificate = parse_certificate(pair.certificate.read_bytes())
    except OSError as error:
        faults.append(Detail(source, f"{pair.certificate} {unreadable(error)}"))
    except ValueError:
        faults.append(Detail(source, f"{pair.certificate} holds no certificate in the PEM format"))
    else:
        if certificate.names:
            return LoadedCertificate(source, pair.certificate, certificate)
        text = (
            f"{pair.certificate} names no host: callers need a certificate with DNS names "
            "(subjectAltName)"
        )
        faults.append(Detail(source, text))
    return None


def _unfit(pair: CertificateFiles) -> str | None:
    """Explain why a certificate with its key cannot be used, if so."""
    return _attempt(pair.certificate, partial(_load, _bare(), pair)) or exposed_key(pair)


def _attempt(path: Path, use: Callable[[], object]) -> str | None:
    """Use a file; return its fault, if any."""
    try:
        use()
    except ssl.SSLError as error:
        if error.reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}:
            return f"{path} does not belong to its key: name the key that it was issued for"
        if error.reason in {"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"}:
            return f"{path} has a key or a signature that is too weak: have a new one issued"
        return f"{path} or the file of its key is not in the PEM format, or no key stands in it"
    except OSError as error:
        return f"{path} or the file of its key {unreadable(error)}"
    except EncryptedKeyError:
        return (
            f"{path} has an encrypted key: store the key without a password, readable by this "
            "user alone"
        )
    return None


def _trust(clients: Path, crl: Path | None, faults: list[Detail]) -> Trust | None:
    """Read who vouches for callers, or ``None`` with a fault."""
    source, path = "listen.tls.clients", clients
    try:
        authorities, lists = clients.read_bytes(), None
        if crl is not None:
            source, path = REVOCATIONS, crl
            lists = crl.read_bytes()
        return parse_trust(authorities, lists)
    except OSError as error:
        text = f"{path} {unreadable(error)}"
    except RevocationError as error:
        text = f"{path} {error}"
    except ValueError:
        source, text = "listen.tls.clients", f"{clients} holds no certificate in the PEM format"
    faults.append(Detail(source, text))
    return None


def _idle(loaded: Sequence[LoadedCertificate]) -> list[Detail]:
    """A fault for each certificate that is never shown, as those before it have all its names."""
    names: set[str] = set()
    faults = []
    for one in loaded:
        if names.issuperset(one.certificate.names):
            faults.append(
                Detail(
                    one.source,
                    f"{one.path} is never shown: those before it stand for all its names",
                )
            )
        names.update(one.certificate.names)
    return faults
