import hashlib
import hmac
import os

import pytest

from proxy.crypto import prf
from proxy.crypto.prf import (
    HASH_BYTES,
    derive,
    hasher,
    hkdf,
    keyed,
    random_bytes,
    random_pieces,
    spell_label,
)

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


def test_lengths_are_as_asked_for_and_nothing_repeats() -> None:
    drawn = [random_bytes(length) for length in (1, 12, 16, 1000, 5000) for _ in range(200)]
    assert [len(item) for item in drawn[::200]] == [1, 12, 16, 1000, 5000]
    long = [item for item in drawn if len(item) >= 12]
    assert len(set(long)) == len(long)


def test_across_the_end_of_a_block_nothing_is_cut_or_handed_out_twice() -> None:
    drawn = [random_bytes(33) for _ in range(1000)]
    assert all(len(item) == 33 for item in drawn)
    assert len(set(drawn)) == 1000


def test_pieces_for_many_records_come_across_blocks_and_never_twice() -> None:
    drawn = [piece for count in (1, 0, 511, 3, 1200, 40) for piece in random_pieces(count)]
    assert len(drawn) == len(set(drawn)) == 1755
    assert {len(piece) for piece in drawn} == {16}
    assert not set(drawn) & set(prf._pool._pieces)


def test_bytes_that_were_handed_out_leave_the_block() -> None:
    for length in (4, 16, 40):
        taken = random_bytes(length)
        assert taken not in b"".join(prf._pool._pieces)  # the promise is about what stays in memory


def test_every_bit_is_drawn_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = prf._Pool()  # a pool of its own, so that the shared one is left alone
    block = b"".join(number.to_bytes(16, "big") for number in range(1000))
    monkeypatch.setattr(os, "urandom", lambda length: block[:length])
    drawn = [pool.take(16) for _ in range(512)]
    assert sorted(drawn) == [number.to_bytes(16, "big") for number in range(512)]
    assert pool.take(4) == pool.take(4) == bytes(4)


def test_a_child_process_does_not_repeat_its_parent() -> None:
    random_bytes(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, random_bytes(16))
        os._exit(0)
    os.close(writer)
    theirs = os.read(reader, 16)
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert len(theirs) == 16
    assert theirs != random_bytes(16)
