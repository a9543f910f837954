"""TLS towards applications: 1.2 or newer, and verified unless the operator says otherwise."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from proxy.errors import Code, Detail, VaultError


class ClientTls(NamedTuple):
    """What connections to an application at ``https://`` are made with."""

    context: ssl.SSLContext
    server_name: str | None = None  #: asked for (SNI) and verified; ``None``: the host of the address


def client_context(
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    *,
    verify: bool = True,
    section: str = "upstream.tls",
) -> ssl.SSLContext:
    """A context for connections to an application: TLS 1.2 or newer, SNI, host name checked.

    ``ca`` is trusted in place of the machine's authorities; ``certificate`` and ``key`` are shown to an application that
    asks for one. Raises ``VaultError`` (BAD_SETTINGS) with a detail for each file that cannot be used;
    ``section`` is where the settings stand.
    """
    named = {"ca": ca, "certificate": certificate, "key": key}
    faults = [
        fault for name, path in named.items() if path is not None and (fault := _attempt(name, path, path.read_bytes))
    ]
    if faults:
        raise _refused(faults, section)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None:
        context.load_default_certs()
    elif fault := _attempt("ca", ca, lambda: context.load_verify_locations(ca)):
        faults.append(fault)
    if certificate is not None:
        fault = _attempt("certificate", certificate, lambda: context.load_cert_chain(certificate, key, _no_password))
        faults += [fault] if fault else []
    if faults:
        raise _refused(faults, section)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _EncryptedError(Exception):
    """The key can only be read with a password, which nobody is there to type."""


def _no_password() -> str:
    raise _EncryptedError


def _attempt(name: str, path: Path, use: Callable[[], object]) -> Detail | None:
    """Use a file; the fault if that does not go. ``name`` is that of its setting."""
    try:
        use()
    except ssl.SSLError as error:
        if error.reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}:
            reason = "does not belong to the key: name the key that the certificate was issued for"
        elif name == "ca":
            reason = "holds no certificate in the PEM format"
        else:
            reason = "or the file of its key is not in the PEM format, or one of the two holds no certificate or no key"
    except OSError as error:
        reason = f"cannot be read ({error.strerror}): name a PEM file that this user may read"
    except _EncryptedError:
        reason = "has an encrypted key: store the key without a password, readable by this user alone"
    else:
        return None
    return Detail(name, f"{path} {reason}")


def _refused(faults: list[Detail], section: str) -> VaultError:
    details = tuple(Detail(f"{section}.{source}", text) for source, text in faults)
    return VaultError(Code.BAD_SETTINGS, "The files for TLS towards the application cannot be used.", details)
