from datetime import UTC, datetime, timedelta

import pytest

from proxy.crypto.passwords import described
from tests.support.certificates import Authority


def test_the_names_of_the_first_certificate_and_the_time_of_the_whole_chain(tmp_path):
    authority = Authority(tmp_path)
    long, short = (
        authority.issue("Vault.test", "*.vault.test", "vault.test", days=9),
        authority.issue("x.test", days=2),
    )
    told = described(long.certificate.read_bytes() + short.certificate.read_bytes())
    assert told.names == ("vault.test", "*.vault.test")
    now = datetime.now(UTC)
    assert timedelta(days=1) < told.ends - now <= timedelta(days=2)
    assert told.begins == described(long.certificate.read_bytes()).begins


def test_an_address_is_no_name(tmp_path):
    assert described(Authority(tmp_path).issue("127.0.0.1").certificate.read_bytes()).names == ()


def test_neither_is_the_common_name(tmp_path):
    assert described(Authority(tmp_path).certificate.read_bytes()).names == ()


@pytest.mark.parametrize(
    "pem", [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_holds_no_certificate_is_a_fault(pem):
    with pytest.raises(ValueError, match=r"."):
        described(pem)
