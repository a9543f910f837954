"""What a certificate says of itself: for which names it stands, and from when to when."""

from datetime import datetime
from typing import NamedTuple

from cryptography import x509


class Certificate(NamedTuple):
    """The first certificate of a PEM file; the times are those at which its whole chain is valid."""

    names: tuple[str, ...]  #: DNS names (RFC 6125), in lower case; ``*.example.com`` stands for one label
    begins: datetime
    ends: datetime


def described(pem: bytes) -> Certificate:
    """Read a PEM file with a certificate and perhaps its chain. ``ValueError`` when there is none in it."""
    chain = x509.load_pem_x509_certificates(pem)
    try:
        extension = chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(dict.fromkeys(name.lower() for name in extension.value.get_values_for_type(x509.DNSName)))
    except x509.ExtensionNotFound:
        names = ()  # the common name counts for nobody any more (RFC 9525 section 6.4.4)
    begins = max(certificate.not_valid_before_utc for certificate in chain)
    return Certificate(names, begins, min(certificate.not_valid_after_utc for certificate in chain))
