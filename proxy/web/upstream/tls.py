"""TLS towards applications: verified unless the operator says otherwise."""

import ssl
from pathlib import Path

from proxy.errors import Code, VaultError


def client_context(
    ca: Path | None = None, certificate: Path | None = None, key: Path | None = None, *, verify: bool = True
) -> ssl.SSLContext:
    """A context for connections to an application: TLS 1.2 or newer, SNI, host name checked.

    ``ca`` is trusted in place of the machine's authorities; ``certificate`` and ``key`` are shown to an application that
    asks for one. Raises ``VaultError`` (BAD_SETTINGS) if a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=str(ca) if ca else None)
        if certificate is not None:
            context.load_cert_chain(str(certificate), str(key) if key else None)
    except OSError as error:
        reason = (
            "cannot be read" if not isinstance(error, ssl.SSLError) else "is not a PEM file, or the key does not fit"
        )
        names = ", ".join(str(path) for path in (ca, certificate, key) if path is not None)
        raise VaultError(Code.BAD_SETTINGS, f"TLS towards the application: one of {names} {reason}.") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
