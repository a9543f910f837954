import re

from proxy.crypto.client_secrets import hash_secret, new_ident, new_secret, verify_secret


def test_a_secret_has_letters_and_digits_alone_and_256_bits():
    drawn = {new_secret() for _ in range(50)}
    assert len(drawn) == 50
    assert all(re.fullmatch(r"[A-Za-z0-9]{43}", secret) for secret in drawn)


def test_an_ident_has_no_letter_that_is_misread():
    drawn = {new_ident() for _ in range(200)}
    assert len(drawn) == 200
    assert all(re.fullmatch(r"[a-km-np-z2-9]{16}", ident) for ident in drawn)


def test_a_secret_is_kept_as_argon2id_with_a_salt_of_its_own():
    one, other = hash_secret("secret"), hash_secret("secret")
    assert one.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert one != other
    assert verify_secret(one, "secret")
    assert verify_secret(other, "secret")


def test_another_secret_does_not_fit():
    stored = hash_secret("secret")
    assert not verify_secret(stored, "Secret")
    assert not verify_secret(stored, "")
    assert not verify_secret(stored, "\ud800")


def test_a_damaged_hash_fits_nothing():
    assert not verify_secret("damaged", "secret")
