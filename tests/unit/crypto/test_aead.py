import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.crypto.aead import MOST_SEALINGS, RecordAead, Seal, sealed_by, sealed_prefix
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError

SALT = bytes(16)
OLD, NEW = b"\x00\x00\x00\x01", b"\x00\x00\x00\x02"
KEYS = {OLD: bytes(range(32)), NEW: bytes(range(32, 64))}


def refuse(aead: RecordAead, sealed: bytes, salt: bytes = SALT, context: bytes = b"context") -> str:
    with pytest.raises(VaultError) as caught:
        aead.open(sealed, salt, context)
    assert caught.value.code is Code.CANNOT_OPEN
    assert caught.value.__cause__ is None
    return caught.value.message


def test_the_format_is_what_the_docstring_says():
    sealed = RecordAead(NEW, KEYS).seal(b"plain", SALT, b"context")
    assert sealed[:5] == b"\x01" + NEW
    key = hmac.new(KEYS[NEW], b"domicile record key/1" + SALT + b"\x01", hashlib.sha256).digest()
    assert AESGCM(key).decrypt(sealed[5:17], sealed[17:], sealed[:5] + b"context") == b"plain"
    assert len(sealed) == 5 + 12 + len(b"plain") + 16


def test_the_same_body_is_sealed_differently_each_time():
    aead = RecordAead(NEW, KEYS)
    assert len({aead.seal(b"plain", SALT, b"") for _ in range(100)}) == 100


def test_one_record_is_sealed_many_times_with_one_derived_key():
    aead = RecordAead(NEW, KEYS)
    seal = aead.under(SALT)
    for plain, context in ((b"body", b"b"), (b"key", b"k")):
        assert aead.open(seal(plain, context), SALT, context) == plain
    refuse(aead, seal(b"body", b"b"), context=b"k")
    assert aead.sealings == 3
    with pytest.raises(ValueError, match="16 bytes"):
        aead.under(b"short")


def test_a_further_part_is_sealed_with_the_cipher_that_the_next_ones_get():
    aead = RecordAead(NEW, KEYS)
    sealed, seal = aead.resume(SALT, b"next", b"s")
    assert aead.open(sealed, SALT, b"s") == b"next"
    assert aead.open(seal(b"body", b"b"), SALT, b"b") == b"body"
    assert aead.sealings == 2
    aead.adopt(OLD, KEYS)
    assert aead.current(seal(b"later", b"b"))
    assert not aead.current(sealed)


def test_a_new_record_begins_with_two_parts_and_goes_on_under_its_salt():
    aead = RecordAead(NEW, KEYS)
    salt, (body, statement), seal = aead.begin((b"body", b"b"), (b"none", b"k"))
    assert aead.open(body, salt, b"b") == b"body"
    assert aead.open(statement, salt, b"k") == b"none"
    assert aead.open(seal(b"key", b"k"), salt, b"k") == b"key"
    assert aead.sealings == 3
    refuse(aead, body, salt=salt, context=b"k")
    key = hmac.new(KEYS[NEW], b"domicile record key/1" + salt + b"\x01", hashlib.sha256).digest()
    assert AESGCM(key).decrypt(body[5:17], body[17:], body[:5] + b"b") == b"body"
    drawn = {piece for _ in range(100) for piece in parts_of(aead.begin((b"", b""), (b"", b"")))}
    assert len(drawn) == 300  # each salt and each nonce is new
    aead.adopt(OLD, KEYS)
    assert seal(b"key", b"k")[1:5] == OLD


def parts_of(made: tuple[bytes, tuple[bytes, bytes], Seal]) -> tuple[bytes, ...]:
    salt, sealed, _ = made
    return salt, *[part[5:17] for part in sealed]


def test_records_that_are_made_together_have_salts_of_their_own():
    aead = RecordAead(NEW, KEYS)
    plains, contexts = [b"one", b"two", b"two"], [b"1", b"2", b"3"]
    made = aead.seal_new(plains, contexts)
    assert [
        aead.open(body, salt, at) for (salt, body), at in zip(made, contexts, strict=True)
    ] == plains
    assert (
        len({salt for salt, _ in made})
        == len({body[5:17] for _, body in made})
        == aead.sealings
        == 3
    )
    refuse(aead, made[1][1], salt=made[1][0], context=b"3")
    assert aead.seal_new([], []) == []
    alone = [aead.seal_first(b"one", b"1") for _ in range(100)]
    assert {aead.open(body, salt, b"1") for salt, body in alone} == {b"one"}
    assert len({salt for salt, _ in alone} | {body[5:17] for _, body in alone}) == 200
    assert aead.sealings == 103


def test_older_keys_open_and_the_primary_seals():
    old, both = RecordAead(OLD, {OLD: KEYS[OLD]}), RecordAead(NEW, KEYS)
    sealed = old.seal(b"plain", SALT, b"context")
    assert both.open(sealed, SALT, b"context") == b"plain"
    refuse(old, both.seal(b"plain", SALT, b"context"))
    assert both.primary == NEW.hex()


def test_every_reason_not_to_open_sounds_alike():
    aead = RecordAead(NEW, KEYS)
    sealed = aead.seal(b"plain", SALT, b"context")
    reasons = {
        refuse(aead, b""),
        refuse(aead, sealed[:16]),
        refuse(aead, sealed[:-1]),
        refuse(aead, sealed, salt=b"\x01" * 16),
        refuse(aead, sealed, salt=b""),
        refuse(aead, sealed, context=b"another"),
        refuse(aead, b"\x02" + sealed[1:]),
        refuse(aead, b"\x01" + OLD + sealed[5:]),
        refuse(Keyset.create("other").aead(), sealed),
    }
    assert len(reasons) == 1


def test_sealing_without_a_proper_salt_is_a_mistake_of_the_program():
    with pytest.raises(ValueError, match="16 bytes"):
        RecordAead(NEW, KEYS).seal(b"plain", b"short", b"")


def test_sealings_are_counted_and_their_bound_is_far_from_the_edge():
    aead = RecordAead(NEW, KEYS)
    for _ in range(3):
        aead.seal(b"", SALT, b"")
    aead.open(aead.seal(b"", SALT, b""), SALT, b"")
    assert aead.sealings == 4
    assert MOST_SEALINGS <= 2**32 // 16


def test_what_was_sealed_tells_its_key():
    old, new = RecordAead(OLD, KEYS), RecordAead(NEW, KEYS)
    sealed = old.seal(b"plain", SALT, b"")
    assert (sealed_by(sealed), sealed.startswith(sealed_prefix(OLD.hex()))) == (OLD.hex(), True)
    assert (new.knows(sealed), new.current(sealed), new.knows(b"anything"), new.knows(b"")) == (
        True,
        False,
        False,
        False,
    )
