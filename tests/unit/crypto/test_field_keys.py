import hashlib
import hmac
import random

import pytest

from proxy.crypto.field_keys import NARROW_BITS, FieldKeys
from proxy.crypto.prf import derive

ROOT = bytes(range(32))
PAIRS = [(0, 0), (1, 0), (0, 1), (2**64 - 1, 2**32 - 1), (1_234_567_890_123_456_789, 7)]


@pytest.fixture
def keys():
    return FieldKeys(ROOT, "test", "contact", "email")


@pytest.mark.parametrize("pair", PAIRS)
def test_blocks_open_to_their_pair(keys, pair):
    assert keys.open_block(keys.block(*pair)) == pair
    assert keys.open_narrow_block(keys.narrow_block(*pair)) == pair
    assert keys.narrow_block(*pair) < 2**NARROW_BITS


def test_blocks_are_under_a_key_of_the_schema_so_that_any_field_of_it_reads_them(keys):
    sibling, stranger = (
        FieldKeys(ROOT, "test", "contact", "phone"),
        FieldKeys(ROOT, "test", "person", "email"),
    )
    other = FieldKeys(ROOT, "prod", "contact", "email")
    assert sibling.open_block(keys.block(5, 6)) == (5, 6)
    assert sibling.open_narrow_block(keys.narrow_block(5, 6)) == (5, 6)
    for foreign in (stranger, other):
        assert foreign.open_block(keys.block(5, 6)) is None
        assert foreign.open_narrow_block(keys.narrow_block(5, 6)) is None


def test_look_alikes_do_not_open(keys):
    chance = random.Random(5)  # the same in every run: one in many millions is taken for a token
    assert keys.open_block(b"") is None
    assert keys.open_block(keys.block(5, 6) + b"\x00") is None
    for _ in range(1000):
        assert keys.open_block(chance.randbytes(16)) is None
        assert keys.open_narrow_block(chance.getrandbits(120)) is None


def test_all_pairs_give_different_blocks(keys):
    pairs = [(rid, number) for rid in range(50) for number in range(20)]
    assert (
        len({keys.block(*pair) for pair in pairs})
        == len({keys.narrow_block(*pair) for pair in pairs})
        == 1000
    )


@pytest.mark.parametrize("length", [1, 16, 32, 33, 100])
def test_the_prf_is_hkdf_expand_of_the_text_under_the_key_of_the_field(keys, length):
    key, text = derive(ROOT, "token text", "test", "contact", "email"), "Ann\u00e9"
    stream, block = b"", b""
    while len(stream) < length:
        block = hmac.new(
            key, block + text.encode() + bytes((len(stream) // 32 + 1,)), hashlib.sha256
        ).digest()
        stream += block
    assert keys.prf(text, length) == stream[:length]


def test_the_prf_and_the_permutation_differ_by_field(keys):
    other = FieldKeys(ROOT, "test", "contact", "phone")
    assert other.prf("x", 16) != keys.prf("x", 16)
    assert other.permute("12345678", b"") != keys.permute("12345678", b"")


def test_the_prf_takes_any_text(keys):
    assert keys.prf("\ud800", 16) != keys.prf("\ud801", 16)


@pytest.mark.parametrize("length", [2, 3])
def test_the_permutation_is_one_cycle_through_all_strings(keys, length):
    start = "0" * length
    walk = [start]
    while (step := keys.permute(walk[-1], b"tweak")) != start:
        walk.append(step)
    assert len(set(walk)) == len(walk) == 10**length


@pytest.mark.parametrize("digits", ["00", "000000", "9" * 56, "0123456789012345678901234567890"])
def test_the_permutation_keeps_length_and_depends_on_the_tweak(keys, digits):
    image = keys.permute(digits, b"")
    assert len(image) == len(digits)
    assert image.isdecimal()
    assert image != digits
    assert len({keys.permute(digits, bytes((tweak,))) for tweak in range(50)}) > 20


def test_random_bytes_are_as_many_as_asked_and_new_each_time(keys):
    assert len({keys.random(16) for _ in range(100)}) == 100
    assert len(keys.random(3)) == 3
