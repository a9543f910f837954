import re

import pytest

from proxy.crypto.keyset import Keyset, SealedTexts
from proxy.errors import Code, VaultError

TEXTS = SealedTexts(b"k" * 32)


def refused(texts: SealedTexts, text: str, context: bytes) -> None:
    with pytest.raises(VaultError) as caught:
        texts.open(text, context)
    assert caught.value.code is Code.CANNOT_OPEN


@pytest.mark.parametrize("plain", [b"", b"a", b"\x00\xff" * 1000])
def test_what_is_sealed_opens_again(plain):
    text = TEXTS.seal(plain, b"context")
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text)
    assert TEXTS.open(text, b"context") == plain
    assert TEXTS.seal(plain, b"context") != text


def test_it_opens_in_its_context_and_under_its_key_alone():
    text = TEXTS.seal(b"plain", b"context")
    refused(TEXTS, text, b"other")
    refused(SealedTexts(b"l" * 32), text, b"context")


@pytest.mark.parametrize("plain", [b"", b"a", b"ab"])
def test_a_text_that_was_changed_anywhere_does_not_open(plain):
    text = TEXTS.seal(plain, b"context")
    for at in range(len(text)):
        refused(TEXTS, text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :], b"context")
        refused(TEXTS, text[:at], b"context")
        refused(TEXTS, f"{text[:at]} {text[at:]}", b"context")
    refused(TEXTS, f"{text}=", b"context")


@pytest.mark.parametrize(
    "text", ["", "A", "AQ", "å", "AQ==", "!" * 40, "A" * 64, "AQ" + "A" * 20, "a b"]
)
def test_what_nobody_sealed_does_not_open(text):
    refused(TEXTS, text, b"context")


def test_each_purpose_of_a_keyset_has_a_key_of_its_own():
    keyset = Keyset.create("test")
    text = keyset.sealed_texts("cursor").seal(b"plain", b"")
    assert keyset.rotated().sealed_texts("cursor").open(text, b"") == b"plain"
    refused(keyset.sealed_texts("other"), text, b"")
