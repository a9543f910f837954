"""TLS from PEM files: towards applications, and between instances.

What callers of a listener meet is made in ``tls_context``.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.crypto.master_key import access_fault
from proxy.errors import Code, Detail, VaultError
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import FileWatcher, Reload, files_state

_log = logs.logger("tls")

#: Seconds between two looks at files.
LOOK_AT_FILES: Final = 0.4


class CertificateFiles(NamedTuple):
    """Files of a certificate with its chain, and of its key; ``None``: it is in the same file."""

    certificate: Path
    key: Path | None


class FreshContext(ssl.SSLContext):
    """Gives the library's generator bytes of the kernel before each handshake.

    It draws ahead, and two resumptions of one snapshot of a machine would show the same keys.
    """

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        ssl.RAND_add(os.urandom(32), 32.0)
        return super().wrap_bio(*arguments, **named)


class EncryptedKeyError(Exception):
    """Refuse a key with a password, which nobody is there to type."""


def no_password() -> str:
    """Refuse the key that a password is asked for."""
    raise EncryptedKeyError


def exposed_key(pair: CertificateFiles) -> str | None:
    """Explain why the file of a private key is refused, as the vault's key file would be."""
    path = pair.key or pair.certificate
    try:
        fault = access_fault(str(path), path.stat())
    except OSError as error:  # replaced just now
        fault = unreadable(error)
    return f"{path} {fault}" if fault else None


def unreadable(error: OSError) -> str:
    """The fault of a file that cannot be read, with its remedy."""
    return f"cannot be read ({error.strerror}): name a PEM file that this user may read"


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
    context = FreshContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None:
        context.load_default_certs()
    elif fault := _client_attempt("ca", ca, lambda: context.load_verify_locations(ca)):
        faults.append(fault)
    if certificate is not None:
        fault = _client_attempt(
            "certificate",
            certificate,
            lambda: context.load_cert_chain(certificate, key, no_password),
        )
        if fault is None and (exposed := exposed_key(CertificateFiles(certificate, key))):
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
    context = FreshContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authorities)
    context.load_cert_chain(certificate, key, no_password)
    return context


def valid_until(certificate: Mapping[str, Any]) -> int:
    """The end of a certificate that was shown, as clocks tell it; 0: none was."""
    ends = certificate.get("notAfter")
    return ssl.cert_time_to_seconds(ends) * 1000 if ends else 0


class RenewableContext(FreshContext):
    """The context of a listener whose connections from now on use another one, once it is set."""

    current: ssl.SSLContext

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*arguments, **named)


class MutualCertificates:
    """Certificates towards instances that use the vault of this one, reloaded likewise.

    ``files``: those who vouch for the others, the certificate and its key. Raises ``VaultError``
    (BAD_SETTINGS) when it cannot be made.
    """

    def __init__(self, files: tuple[Path, Path, Path], metrics: Metrics, section: str) -> None:
        self._files = files
        self._section = section
        self.state = Reload(metrics, "remote_certificates")
        self._watcher = FileWatcher(partial(files_state, self._files), settled=True)
        self.context = RenewableContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.current = mutual_context(*files, section)
        self.state.succeeded()

    async def watch(self) -> None:
        """Look for changes for ever."""

        async def renew() -> None:
            self.reload()

        await self._watcher.run(LOOK_AT_FILES, renew)

    def reload(self) -> None:
        """Read everything again, for connections from now on; a fault changes nothing."""
        self._watcher.mark_read()
        try:
            self.context.current = mutual_context(*self._files, self._section)
        except VaultError as error:
            self.state.failed(error)
            _log.error(
                "TLS files rejected; previous certificates stay active",
                code=error.code, text=error.message, source=self._section,
            )  # fmt: skip
            return
        self.state.succeeded()
        _log.info("new certificates are active", source=self._section)


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
    except EncryptedKeyError:
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
