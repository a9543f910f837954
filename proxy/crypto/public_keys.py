"""Public keys in PEM: those that sign the audit log, the certificates of listeners, and who vouches
for those of callers.

A keyed hash ties the lines of the log together, Ed25519 (RFC 8032) signs them. Verifying signatures
needs the public half alone, and whoever has that cannot write a line.
"""

import re
from datetime import datetime
from typing import Final, NamedTuple, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from proxy.crypto.prf import Prf, hasher, random_bytes
from proxy.crypto.secret import Secret

_KEY_BYTES: Final = 32
_PEM: Final = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)


class AuditKey(Secret):
    """A key of the log: ``mac`` is its keyed hash of 16 bytes; ``public`` is not secret."""

    __slots__ = ("_chain", "_private", "mac", "public")

    def __init__(self, chain: bytes, seed: bytes) -> None:
        self._chain = chain
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.mac: Prf = hasher(chain)
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def create(cls, chain: bytes | None = None) -> "AuditKey":
        """A fresh random key; ``chain``: that of a log which is older than signatures."""
        return cls(chain or random_bytes(_KEY_BYTES), random_bytes(_KEY_BYTES))

    def secrets(self) -> tuple[bytes, bytes]:
        """Return the arguments of ``__init__``, to be sealed."""
        return self._chain, self._private.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, 64 bytes."""
        return self._private.sign(message)


def spell_public_key(public: bytes) -> str:
    """A public key as PEM (RFC 8410)."""
    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def read_public_keys(text: bytes) -> list[bytes]:
    """The public keys of a PEM file. ``ValueError`` for none, or one of another kind."""
    keys = [load_pem_public_key(block) for block in _PEM.findall(text)]
    public = [key.public_bytes_raw() for key in keys if isinstance(key, Ed25519PublicKey)]
    if not public or len(public) < len(keys):
        raise ValueError("no public key of Ed25519, or one that is of another kind")
    return public


def signature_holds(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the private half of that key has signed the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


class Certificate(NamedTuple):
    """The first certificate of a PEM file.

    The times are those at which its whole chain is valid.
    """

    #: DNS names (RFC 6125), in lower case; ``*.example.com`` stands for one label
    names: tuple[str, ...]
    begins: datetime
    ends: datetime


def parse_certificate(pem: bytes) -> Certificate:
    """Read a PEM file with a certificate and perhaps its chain.

    ``ValueError`` when there is none in it.
    """
    from cryptography import x509  # loads 2 MB that only certificates need

    chain = x509.load_pem_x509_certificates(pem)
    try:
        extension = chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(
            dict.fromkeys(
                name.lower() for name in extension.value.get_values_for_type(x509.DNSName)
            )
        )
    except x509.ExtensionNotFound:
        names = ()  # the common name no longer counts (RFC 9525 section 6.4.4)
    begins = max(certificate.not_valid_before_utc for certificate in chain)
    return Certificate(names, begins, min(certificate.not_valid_after_utc for certificate in chain))


class Trust(NamedTuple):
    """Authorities of callers' certificates, and what these have revoked (RFC 5280 section 5)."""

    authorities: frozenset[bytes]
    #: issuer and serial number of certificates that are not valid any more
    revoked: frozenset[tuple[bytes, int]] = frozenset()
    ends: datetime | None = None  #: of the first list that is due for a new one

    def loses(self, after: "Trust | None") -> bool:
        """Whether ``after`` may trust a certificate no more that this one trusts."""
        return after is None or not (
            self.authorities <= after.authorities and after.revoked <= self.revoked
        )


class RevocationError(ValueError):
    """A file of revocation lists that cannot be used, with the reason."""


_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


def parse_trust(authorities: bytes, lists: bytes | None) -> Trust:
    """Read PEM files with authorities and, unless ``None``, a revocation list of each of them.

    ``ValueError`` for authorities that cannot be read, ``RevocationError`` for the lists.
    """
    from cryptography import x509  # as above
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes

    trusted = x509.load_pem_x509_certificates(authorities)
    fingerprints = frozenset(one.public_bytes(Encoding.DER) for one in trusted)
    if lists is None:
        return Trust(fingerprints)
    if b"-----BEGIN CERTIFICATE-----" in lists or b"-----BEGIN TRUSTED CERT" in lists:
        raise RevocationError("holds a certificate, which would be trusted: leave it out")
    try:
        read = [x509.load_pem_x509_crl(block) for block in _LIST.findall(lists)]
    except ValueError:
        read = []
    if not read:
        raise RevocationError(
            "holds no revocation list in the PEM format; of DER, openssl crl -inform DER makes one"
        )
    for authority in trusted:
        key = cast("CertificateIssuerPublicKeyTypes", authority.public_key())
        if not any(one.issuer == authority.subject and one.is_signature_valid(key) for one in read):
            raise RevocationError(
                f"holds no list of the authority {authority.subject.rfc4514_string()!r}: all its "
                "callers would be refused"
            )
    ends = [one.next_update_utc for one in read if one.next_update_utc is not None]
    revoked = frozenset(
        (one.issuer.public_bytes(), entry.serial_number) for one in read for entry in one
    )
    return Trust(fingerprints, revoked, min(ends) if ends else None)
