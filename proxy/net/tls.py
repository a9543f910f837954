"""TLS contexts for one listener from PEM files, with the requirements for callers.

TLS 1.2 and 1.3, forward secrecy and authenticated ciphers only, HTTP/1.1 by ALPN, no compression
and no renegotiation. The certificate is chosen by the requested name (SNI, RFC 6066): an exact name
before a wildcard, the first certificate without a name.
"""

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.crypto.master_key import access_fault
from proxy.crypto.public_keys import Certificate, parse_certificate
from proxy.errors import Code, Detail, VaultError

#: For TLS 1.2. What 1.3 has is good without exception.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"

#: The one group for key exchange, which every client has (RFC 8446 section 9.1). Python lets the
#: TLS library have one, or all that it knows: finite fields of 8192 bits among them, which cost a
#: server far more than a caller (CVE-2002-20001).
DH_GROUP: Final = "prime256v1"

#: Alerts of the TLS library that are not among Python's names: no name was sent (RFC 8446 section
#: 9.2; TLS 1.2, which knows no such alert, gets ``handshake_failure`` in its place).
_MISSING_EXTENSION: Final = 109


class CertificateFiles(NamedTuple):
    """Files of a certificate with its chain, and of its key; ``None``: it is in the same file."""

    certificate: Path
    key: Path | None


class TlsPolicy(NamedTuple):
    """Requirements for callers."""

    strict: bool  #: a handshake must name (SNI) a host that a certificate stands for
    #: authorities of client certificates; ``None``: none is requested
    clients: Path | None = None
    required: bool = True  #: who shows no certificate is refused


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
    return faults


def read_certificate(
    pairs: Sequence[CertificateFiles], clients: Path | None = None
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
    if clients is not None and (
        fault := _attempt(clients, lambda: _bare().load_verify_locations(clients), ca=True)
    ):
        faults.append(Detail("listen.tls.clients", fault))
    faults += _idle(loaded)
    if faults:
        raise VaultError(
            Code.BAD_SETTINGS, "The files for TLS towards callers cannot be used.", tuple(faults)
        )
    return ListenerCertificates(tuple(loaded), tuple(pairs))


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


class _FreshContext(ssl.SSLContext):
    """Gives the library's generator bytes of the kernel before each handshake.

    It draws ahead, and two resumptions of one snapshot of a machine would show the same keys.
    """

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        ssl.RAND_add(os.urandom(32), 32.0)
        return super().wrap_bio(*arguments, **named)


def _bare() -> ssl.SSLContext:
    return _FreshContext(ssl.PROTOCOL_TLS_SERVER)


def _load(context: ssl.SSLContext, pair: CertificateFiles) -> None:
    context.load_cert_chain(pair.certificate, pair.key, _no_password)


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
        context.num_tickets = 0  # whose session goes on shows no certificate again
        context.options |= ssl.OP_NO_TICKET
    return context


# ------------------------------------------------ faults


class _EncryptedError(Exception):
    """Refuse a key with a password, which nobody is there to type."""


def _no_password() -> str:
    raise _EncryptedError


def _described(
    source: str, pair: CertificateFiles, faults: list[Detail]
) -> LoadedCertificate | None:
    """The certificate of a pair, or ``None`` with a fault."""
    try:
        certificate = parse_certificate(pair.certificate.read_bytes())
    except OSError as error:
        faults.append(Detail(source, f"{pair.certificate} {_unreadable(error)}"))
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
    return _attempt(pair.certificate, partial(_load, _bare(), pair)) or _exposed(pair)


def _exposed(pair: CertificateFiles) -> str | None:
    """Explain why the file of a private key is refused, as the vault's key file would be."""
    path = pair.key or pair.certificate
    try:
        fault = access_fault(str(path), path.stat())
    except OSError as error:  # replaced just now
        fault = _unreadable(error)
    return f"{path} {fault}" if fault else None


def _attempt(path: Path, use: Callable[[], object], *, ca: bool = False) -> str | None:
    """Use a file; return its fault, if any."""
    try:
        use()
    except ssl.SSLError as error:
        if ca:
            return f"{path} holds no certificate in the PEM format"
        if error.reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}:
            return f"{path} does not belong to its key: name the key that it was issued for"
        if error.reason in {"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"}:
            return f"{path} has a key or a signature that is too weak: have a new one issued"
        return f"{path} or the file of its key is not in the PEM format, or no key stands in it"
    except OSError as error:
        return f"{path} or the file of its key {_unreadable(error)}"
    except _EncryptedError:
        return (
            f"{path} has an encrypted key: store the key without a password, readable by this "
            "user alone"
        )
    return None


def _unreadable(error: OSError) -> str:
    return f"cannot be read ({error.strerror}): name a PEM file that this user may read"


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


# TLS towards applications: 1.2 or newer, and verified unless the operator says otherwise.


class ClientTls(NamedTuple):
    """TLS settings of connections to an application at ``https://``."""

    context: ssl.SSLContext
    #: asked for (SNI) and verified; ``None``: the host of the address
    server_name: str | None = None


def client_context(
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    *,
    verify: bool = True,
    section: str = "upstream.tls",
) -> ssl.SSLContext:
    """A context for connections to an application: TLS 1.2 or newer, SNI, host name checked.

    ``ca`` is trusted in place of the machine's authorities; ``certificate`` and ``key`` are shown
    to an application that asks for one. Raises ``VaultError`` (BAD_SETTINGS) with a detail for each
    file that cannot be used; ``section`` is where the settings stand.
    """
    named = {"ca": ca, "certificate": certificate, "key": key}
    faults = [
        fault
        for name, path in named.items()
        if path is not None and (fault := _client_attempt(name, path, path.read_bytes))
    ]
    if faults:
        raise _client_refused(faults, section)
    context = _FreshContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None:
        context.load_default_certs()
    elif fault := _client_attempt("ca", ca, lambda: context.load_verify_locations(ca)):
        faults.append(fault)
    if certificate is not None:
        fault = _client_attempt(
            "certificate",
            certificate,
            lambda: context.load_cert_chain(certificate, key, _no_password),
        )
        if fault is None and (exposed := _exposed(CertificateFiles(certificate, key))):
            fault = Detail("key" if key else "certificate", exposed)
        faults += [fault] if fault else []
    if faults:
        raise _client_refused(faults, section)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def mutual_context(authorities: Path, certificate: Path, key: Path, section: str) -> ssl.SSLContext:
    """A context for callers of our own kind, who have to show a certificate. Raises as above."""
    client_context(authorities, certificate, key, section=section)
    context = _FreshContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authorities)
    context.load_cert_chain(certificate, key, _no_password)
    return context


def valid_until(certificate: Mapping[str, Any]) -> int:
    """The end of a certificate that was shown, as clocks tell it; 0: none was."""
    ends = certificate.get("notAfter")
    return ssl.cert_time_to_seconds(ends) * 1000 if ends else 0


class RenewableContext(_FreshContext):
    """The context of a listener whose connections from now on use another one, once it is set."""

    current: ssl.SSLContext

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*arguments, **named)


@cache
def machine_context() -> ssl.SSLContext:
    """A context that trusts the authorities of the machine: they are many, and are read once."""
    return client_context()


def _client_attempt(name: str, path: Path, use: Callable[[], object]) -> Detail | None:
    """Use a file; the fault if that does not go. ``name`` is that of its setting."""
    try:
        use()
    except ssl.SSLError as error:
        if error.reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}:
            reason = "does not belong to the key: name the key that the certificate was issued for"
        elif name == "ca":
            reason = "holds no certificate in the PEM format"
        else:
            reason = (
                "or the file of its key is not in the PEM format, or one of the two holds no "
                "certificate or no key"
            )
    except OSError as error:
        reason = f"cannot be read ({error.strerror}): name a PEM file that this user may read"
    except _EncryptedError:
        reason = (
            "has an encrypted key: store the key without a password, readable by this user alone"
        )
    else:
        return None
    return Detail(name, f"{path} {reason}")


def _client_refused(faults: list[Detail], section: str) -> VaultError:
    details = tuple(Detail(f"{section}.{source}", text) for source, text in faults)
    return VaultError(
        Code.BAD_SETTINGS, "The files for TLS towards the application cannot be used.", details
    )
