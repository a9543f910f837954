"""A certificate authority for tests: makes server and client certificates as files."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate and its key as PEM files."""

    certificate: Path
    key: Path


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Authority:
    """Signs certificates; its own is ``certificate``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        made = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(True, None), critical=True
        )
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        made = made.add_extension(usage, critical=True).add_extension(identifier, critical=False)
        self._own = made.sign(self._key, hashes.SHA256())
        self.certificate = folder / "authority.pem"
        self.certificate.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1
    ) -> x509.CertificateBuilder:
        end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
        )
        return (
            made.serial_number(x509.random_serial_number())
            .not_valid_before(end - dt.timedelta(days=3))
            .not_valid_after(end)
        )

    def issue(self, name: str, *more: str, days: int = 1, file: str = "") -> Pair:
        """A certificate for host names or an address, signed by this authority, that ends in so
        many days.

        ``file`` is the beginning of both files' names where that is not the first name.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, days)
        alternatives = x509.SubjectAlternativeName([_general(one) for one in (name, *more)])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        purposes = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        for extension in (alternatives, issuer, purposes):
            made = made.add_extension(extension, critical=False)
        signed = made.sign(self._key, hashes.SHA256())
        pair = Pair(self.folder / f"{file or name}.pem", self.folder / f"{file or name}.key")
        pair.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        pair.key.touch(0o600)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    def revoke(self, *pairs: Pair, days: int = 1, file: str = "revoked") -> Path:
        """A revocation list with these certificates, due for a new one in so many days."""
        due = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
        made = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(due - dt.timedelta(days=3))
            .next_update(due)
        )
        for pair in pairs:
            number = x509.load_pem_x509_certificate(pair.certificate.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(number)
            made = made.add_revoked_certificate(
                entry.revocation_date(due - dt.timedelta(days=3)).build()
            )
        path, beside = self.folder / f"{file}.crl", self.folder / f"{file}.new"
        signed = made.sign(self._key, hashes.SHA256())
        beside.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return beside.replace(path)

    def lock(self, pair: Pair, path: Path) -> None:
        """Store the key of a pair encrypted with a password."""
        key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
        locked = serialization.BestAvailableEncryption(b"password")
        path.touch(0o600)
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        )
