import hashlib
import hmac

import pytest

from proxy.crypto.prf import HASH_BYTES, derive, hasher, hkdf, keyed, spell_label

KEY = bytes(range(32))


def test_a_keyed_state_serves_many_messages():
    prf = keyed(KEY)
    for message in (b"", b"one", b"two", b"one"):
        assert prf(message) == hmac.new(KEY, message, hashlib.sha256).digest()


def test_a_hash_is_the_first_sixteen_bytes():
    assert hasher(KEY)(b"message") == keyed(KEY)(b"message")[:HASH_BYTES]
    assert len(hasher(KEY)(b"")) == HASH_BYTES == 16


def test_hkdf_refuses_more_than_it_can_give():
    assert len(hkdf(KEY, b"salt", b"info", 255 * 32)) == 255 * 32
    with pytest.raises(ValueError):
        hkdf(KEY, b"salt", b"info", 255 * 32 + 1)


def test_derived_keys_are_hkdf_expand_of_the_label():
    info = spell_label("hash", "dev")
    assert derive(KEY, "hash", "dev") == hmac.new(KEY, info + b"\x01", hashlib.sha256).digest()
    assert derive(KEY, "hash", "dev", length=8) == derive(KEY, "hash", "dev")[:8]


def test_no_two_lists_of_parts_spell_one_label():
    lists = [
        (),
        ("",),
        ("", ""),
        ("a", "bc"),
        ("ab", "c"),
        ("abc",),
        ("a", "b", "c"),
        ("a", "", "bc"),
        ("é",),
        ("e\u0301",),
    ]
    assert len({spell_label(*parts) for parts in lists}) == len(lists)


def test_a_label_takes_any_text():
    assert spell_label("\ud800") != spell_label("\ud801")
