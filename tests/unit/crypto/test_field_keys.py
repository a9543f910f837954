import hashlib
import hmac
import random

import pytest

from proxy.crypto.field_keys import FF1, NARROW_BITS, FieldKeys
from proxy.crypto.prf import derive
from tests.support.table import table

ROOT = bytes(range(32))
PAIRS = [(0, 0), (1, 0), (0, 1), (2**64 - 1, 2**32 - 1), (1_234_567_890_123_456_789, 7)]


@pytest.fixture
def keys():
    return FieldKeys((ROOT,), "test", "contact", "email")


@pytest.mark.parametrize("pair", PAIRS)
def test_blocks_open_to_their_pair(keys, pair):
    assert keys.open_block(keys.block(*pair)) == pair
    assert keys.open_narrow_block(keys.narrow_block(*pair)) == pair
    assert keys.narrow_block(*pair) < 2**NARROW_BITS


def test_blocks_are_under_a_key_of_the_schema_so_that_any_field_of_it_reads_them(keys):
    sibling, stranger = (
        FieldKeys((ROOT,), "test", "contact", "phone"),
        FieldKeys((ROOT,), "test", "person", "email"),
    )
    other = FieldKeys((ROOT,), "prod", "contact", "email")
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
    other = FieldKeys((ROOT,), "test", "contact", "phone")
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


# NIST, FF1 samples: the three with 256-bit keys.
KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3cef4359d8d580aa4f7f036d6f04fc6a94")
TWEAK_10 = bytes.fromhex("39383736353433323130")
TWEAK_36 = bytes.fromhex("3737373770717273373737")


def test_the_samples_of_the_standard_hold():
    ten = FF1(KEY, 10)
    assert ten.encrypt(123456789, 10) == 6657667009
    assert ten.encrypt(123456789, 10, TWEAK_10) == 1001623463
    assert FF1(KEY, 36).encrypt(int("0123456789abcdefghi", 36), 19, TWEAK_36) == int(
        "xs8a0azh2avyalyzuwd", 36
    )


@table("tweak", [b"", b"t", bytes(15), bytes(16), bytes(17), bytes(40)])
def test_it_is_a_permutation_that_decryption_undoes(tweak):
    cipher = FF1(KEY, 10)
    images = [cipher.encrypt(number, 3, tweak) for number in range(1000)]
    assert sorted(images) == list(range(1000))
    assert [cipher.decrypt(image, 3, tweak) for image in images] == list(range(1000))


def test_length_tweak_and_key_each_choose_another_permutation():
    cipher = FF1(KEY, 10)
    images = {
        cipher.encrypt(1234567890, 10),
        cipher.encrypt(1234567890, 11),
        cipher.encrypt(1234567890, 10, b"t"),
        FF1(KEY[::-1], 10).encrypt(1234567890, 10),
    }
    assert len(images) == 4


@table(("number", "length"), [(10, 1), (0, 0), (0, 1), (-1, 6), (10**6, 6), (0, 74)])
def test_what_is_outside_the_domain_is_refused(number, length):
    for turn in (FF1(KEY, 10).encrypt, FF1(KEY, 10).decrypt):
        with pytest.raises(ValueError):
            turn(number, length)


def test_the_longest_number_still_turns_round():
    cipher, number = FF1(KEY, 10), 10**72 - 1
    assert cipher.decrypt(cipher.encrypt(number, 72), 72) == number
