from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from proxy.crypto.public_keys import (
    AuditKey,
    RevocationError,
    Trust,
    parse_certificate,
    parse_trust,
    read_public_keys,
    signature_holds,
    spell_public_key,
)
from tests.support.certificates import Authority
from tests.support.table import table

#: RFC 8032, section 7.1, test 2.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_a_key_signs_as_the_rfc_says_and_is_the_same_after_it_was_sealed():
    key = AuditKey(b"c" * 32, SEED)
    assert (key.public, key.sign(b"\x72")) == (PUBLIC, SIGNATURE)
    again = AuditKey(*key.secrets())
    assert (again.public, again.mac(b"line")) == (key.public, key.mac(b"line"))


def test_a_signature_holds_for_its_key_and_message_alone():
    key, other = AuditKey.create(), AuditKey.create()
    assert signature_holds(key.public, key.sign(b"line"), b"line")
    for public, signature, message in (
        (other.public, key.sign(b"line"), b"line"),
        (key.public, key.sign(b"line"), b"lime"),
        (key.public, key.sign(b"line")[:-1], b"line"),
        (b"", b"", b"line"),
    ):
        assert not signature_holds(public, signature, message)


def test_public_keys_are_read_from_the_text_that_they_are_written_as():
    first, second = AuditKey.create().public, AuditKey.create().public
    text = f"# of the vault\n{spell_public_key(first)}\n{spell_public_key(second)}".encode()
    assert read_public_keys(text) == [first, second]
    curve = generate_private_key(SECP256R1()).public_key()
    foreign = curve.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for wrong in (b"", b"-----BEGIN PUBLIC KEY-----\nAA\n-----END PUBLIC KEY-----", foreign):
        with pytest.raises(ValueError, match=r"."):
            read_public_keys(wrong)


def test_the_names_of_the_first_certificate_and_the_time_of_the_whole_chain(tmp_path):
    authority = Authority(tmp_path)
    long, short = (
        authority.issue("Vault.test", "*.vault.test", "vault.test", days=9),
        authority.issue("x.test", days=2),
    )
    told = parse_certificate(long.certificate.read_bytes() + short.certificate.read_bytes())
    assert told.names == ("vault.test", "*.vault.test")
    now = datetime.now(UTC)
    assert timedelta(days=1) < told.ends - now <= timedelta(days=2)
    assert told.begins == parse_certificate(long.certificate.read_bytes()).begins


def test_an_address_is_no_name(tmp_path):
    assert (
        parse_certificate(Authority(tmp_path).issue("127.0.0.1").certificate.read_bytes()).names
        == ()
    )


def test_neither_is_the_common_name(tmp_path):
    assert parse_certificate(Authority(tmp_path).certificate.read_bytes()).names == ()


@table("pem", [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_holds_no_certificate_is_a_fault(pem):
    with pytest.raises(ValueError, match=r"."):
        parse_certificate(pem)


def test_trust_is_lost_by_an_authority_that_goes_or_a_certificate_that_is_revoked(tmp_path):
    (tmp_path / "other").mkdir()
    first, second = Authority(tmp_path), Authority(tmp_path / "other")
    one, both = (
        first.certificate.read_bytes(),
        b"".join(authority.certificate.read_bytes() for authority in (first, second)),
    )
    pair = first.issue("client.test")
    fresh, revoked = (first.revoke(*some, file=f"{len(some)}") for some in ([], [pair]))
    before = parse_trust(one, fresh.read_bytes())
    for after, lost in (
        (parse_trust(one, first.revoke(days=5).read_bytes()), False),  # a new list of nobody
        (parse_trust(one, revoked.read_bytes()), True),
        (parse_trust(both, fresh.read_bytes() + second.revoke().read_bytes()), False),
        (parse_trust(second.certificate.read_bytes(), second.revoke().read_bytes()), True),
        (parse_trust(one, None), False),
        (None, True),
    ):
        assert before.loses(after) is lost
    assert parse_trust(one, revoked.read_bytes()).loses(before) is False
    assert isinstance(before, Trust)
    assert before.ends is not None
    assert before.ends > datetime.now(UTC)


def test_lists_that_would_refuse_everybody_or_trust_anybody_are_told(tmp_path):
    (tmp_path / "other").mkdir()
    own, other = Authority(tmp_path), Authority(tmp_path / "other")  # of one name, but other keys
    certificate, lists = own.certificate.read_bytes(), own.revoke().read_bytes()
    damaged = b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----"
    for wrong, words in (
        (b"", "no revocation list"),
        (damaged, "no revocation list"),
        (other.revoke().read_bytes(), "no list of the authority"),
        (lists + other.certificate.read_bytes(), "which would be trusted"),
    ):
        with pytest.raises(RevocationError, match=words):
            parse_trust(certificate, wrong)
    with pytest.raises(ValueError, match=r"."):
        parse_trust(b"nothing", lists)
