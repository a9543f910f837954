import os
import re

import pytest

from proxy.tokenization.common import WORD32, WORD62, read32, read62, write32, write62

BLOCKS = [bytes(16), b"\xff" * 16, bytes(8) + b"\xff" * 8, *(os.urandom(16) for _ in range(200))]


@pytest.mark.parametrize(
    ("write", "read", "word"), [(write62, read62, WORD62), (write32, read32, WORD32)]
)
def test_every_block_is_a_word_that_reads_back(write, read, word):
    for block in BLOCKS:
        assert re.fullmatch(word, write(block))
        assert read(write(block)) == block


def test_words_begin_with_a_letter_and_have_a_fixed_length():
    assert write62(bytes(16)) == "A" * 22
    assert write62(b"\xff" * 16)[0] == "V"
    assert write32(bytes(16)) == "g" + "0" * 25
    assert write32(b"\xff" * 16) == "n" + "v" * 25


def test_a_half_beyond_its_bits_is_no_block():
    assert read62("V9999999999" + "A" * 11) is None
    assert read62("A" * 11 + "V9999999999") is None


@pytest.mark.parametrize(
    "word",
    [
        "",
        "g" * 25,
        "g" * 27,
        "f" + "0" * 25,
        "o" + "0" * 25,
        "g" + "w" * 25,
        "G" + "0" * 25,
        "g_" + "0" * 24,
        "g" + "٠" * 25,
    ],
)
def test_what_is_no_word_is_no_block(word):
    assert read32(word) is None
