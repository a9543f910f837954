import pytest

from proxy.crypto.field_keys import FF1

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


@pytest.mark.parametrize("tweak", [b"", b"t", bytes(15), bytes(16), bytes(17), bytes(40)])
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


@pytest.mark.parametrize(
    ("number", "length"), [(10, 1), (0, 0), (0, 1), (-1, 6), (10**6, 6), (0, 74)]
)
def test_what_is_outside_the_domain_is_refused(number, length):
    for turn in (FF1(KEY, 10).encrypt, FF1(KEY, 10).decrypt):
        with pytest.raises(ValueError):
            turn(number, length)


def test_the_longest_number_still_turns_round():
    cipher, number = FF1(KEY, 10), 10**72 - 1
    assert cipher.decrypt(cipher.encrypt(number, 72), 72) == number
