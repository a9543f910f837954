import re

import pytest

from proxy.crypto.aead import SealedTexts
from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from tests.support.table import table

MASTER = MasterKey(bytes(range(32)))
SALT = bytes(16)


def refuse(blob: bytes, master: MasterKey = MASTER) -> str:
    with pytest.raises(VaultError) as caught:
        Keyset.unwrap(blob, master)
    assert caught.value.code is Code.BAD_KEYS
    return caught.value.message


def test_an_unwrapped_keyset_does_what_the_wrapped_one_did():
    made = Keyset.create("prod-é")
    read = Keyset.unwrap(made.wrap(MASTER), MASTER)
    assert read.environment == "prod-é"
    assert read.aead().open(made.aead().seal(b"plain", SALT, b"c"), SALT, b"c") == b"plain"
    assert read.hasher("email")(b"x") == made.hasher("email")(b"x")
    one, other = read.field_keys("contact", "email"), made.field_keys("contact", "email")
    assert one.block(1, 2) == other.block(1, 2)
    assert one.prf("x", 16) == other.prf("x", 16)
    assert one.permute("123456", b"") == other.permute("123456", b"")


def test_two_keysets_of_one_environment_share_nothing():
    one, other = Keyset.create("test"), Keyset.create("test")
    assert one.hasher("email")(b"x") != other.hasher("email")(b"x")
    assert other.field_keys("s", "f").open_block(one.field_keys("s", "f").block(1, 2)) is None


def test_the_wrapped_keyset_shows_the_name_of_the_environment_alone():
    keyset = Keyset.create("test")
    blob = keyset.wrap(MASTER)
    assert blob[:7] == b"\x01\x00\x04test"
    held = [*keyset._data.values(), *keyset._roots[:2]]
    assert len(set(held)) == 3
    assert not any(key in blob for key in held)


def test_purposes_have_keys_of_their_own():
    keyset = Keyset.create("test")
    digests = {
        keyset.hasher(*purpose)(b"x") for purpose in [("a",), ("b",), ("a", "b"), ("ab",), ()]
    }
    assert len(digests) == 5


def test_rotation_keeps_old_bodies_readable_and_hashes_and_tokens_as_they_are():
    old = Keyset.create("test")
    new = Keyset.unwrap(old.rotated().wrap(MASTER), MASTER)
    sealed = old.aead().seal(b"plain", SALT, b"c")
    assert new.aead().open(sealed, SALT, b"c") == b"plain"
    assert new.aead().primary != old.aead().primary
    assert new.aead().seal(b"", SALT, b"")[1:5].hex() == new.aead().primary
    assert new.hasher("a")(b"x") == old.hasher("a")(b"x")
    assert new.field_keys("s", "f").block(1, 2) == old.field_keys("s", "f").block(1, 2)


def test_keys_and_roots_tell_when_they_were_made():
    undated = Keyset.create("test")  # as those were that know nothing of it
    keyset = Keyset.unwrap(undated.rotated().date(undated, 5).wrap(MASTER), MASTER)
    assert keyset.created_at == {keyset.data_keys[-1]: 5}
    for change in (Keyset.with_hash_root, Keyset.with_token_root):
        keyset.adopt(change(keyset).date(keyset, 7))
    made = {keyset.data_keys[-1]: 5, keyset.hash_roots[-1]: 7, keyset.token_roots[-1]: 7}
    assert keyset.created_at == made
    assert keyset.rotated().created_at == made
    less = Keyset.unwrap(
        keyset.without_older_hash().without(keyset.data_keys[:1]).wrap(MASTER), MASTER
    )
    assert less.created_at == made
    whole = Keyset.create("test").date(None, 9)
    later = whole.rotated()
    assert Keyset.unwrap(later.without(whole.data_keys).wrap(MASTER), MASTER).created_at == (
        dict.fromkeys([*whole.hash_roots, *whole.token_roots], 9)
    )
    assert whole.created_at == dict.fromkeys(whole.ids, 9)


def test_another_master_key_is_refused_with_a_sentence_that_says_what_to_do():
    message = refuse(Keyset.create("test").wrap(MASTER), MasterKey(bytes(range(1, 33))))
    assert MASTER.id in message
    assert "point the setting" in message


def test_another_name_of_the_environment_is_refused():
    blob = Keyset.create("test").wrap(MASTER)
    assert "damaged" in refuse(blob.replace(b"test", b"prod"))


@table("cut", [0, 1, 3, 5, 20, -1])
def test_a_cut_keyset_is_refused(cut):
    assert "backup" in refuse(Keyset.create("test").wrap(MASTER)[:cut])


@table(
    "content",
    [
        b"not JSON", b"[]", b"{}", b'{"primary": "00000001", "data": {}, "hash": "", "token": ""}',
        b'{"primary": "00000001", "data": {"00000001": "AAAA"}, "hash": "", "token": ""}',
        b'{"primary": "00000001", "data": {"00000001": 5}, "hash": "", "token": ""}',
    ],
)  # fmt: skip
def test_wrapped_content_that_is_no_keyset_is_refused(content):
    head = b"\x01\x00\x01t"
    assert "damaged" in refuse(head + MASTER.wrap(content, head))


def test_a_rotated_keyset_is_adopted_by_everything_that_was_handed_out():
    keyset = Keyset.create("default")
    aead, streams = keyset.aead(), keyset.streams()
    under = aead.under(bytes(16))
    old = aead.seal(b"old", bytes(16), b"c")
    keyset.adopt(keyset.rotated())
    assert keyset.aead() is aead
    assert keyset.streams() is streams
    assert (len(keyset.data_keys), aead.primary) == (2, keyset.data_keys[-1])
    assert aead.open(old, bytes(16), b"c") == b"old"
    late = under(b"late", b"c")  # begun with the key before
    assert (aead.current(late), aead.open(late, bytes(16), b"c"), aead.sealings) == (
        True,
        b"late",
        1,
    )
    assert streams.sealer(bytes(16), b"c").header[1:5].hex() == keyset.data_keys[-1]


def test_what_is_no_successor_is_not_adopted():
    keyset = Keyset.create("default")
    later = keyset.rotated()
    for other in (Keyset.create("default"), Keyset.create("default").rotated()):
        with pytest.raises(ValueError, match="successor"):
            keyset.adopt(other)
    with pytest.raises(ValueError, match="successor"):
        later.adopt(keyset)  # it lacks a key


def test_a_data_key_that_was_dropped_is_gone_from_what_is_wrapped_and_from_the_next_keyset():
    keyset = Keyset.create("default")
    old = keyset.aead().seal(b"old", bytes(16), b"c")
    keyset.adopt(keyset.rotated())
    first, second = keyset.data_keys
    less = keyset.without([first])
    assert (less.data_keys, Keyset.unwrap(less.wrap(MASTER), MASTER).data_keys) == (
        (second,),
        (second,),
    )
    assert keyset.same(keyset.without([]))
    assert not keyset.same(less)
    with pytest.raises(VaultError):
        less.aead().open(old, bytes(16), b"c")
    keyset.forget(less)
    assert set(keyset.data_keys) == {second}
    assert keyset.aead().open(old, bytes(16), b"c") == b"old"  # somebody may have read it before
    keyset.adopt(keyset.rotated())
    assert len(keyset.data_keys) == 2
    with pytest.raises(VaultError):
        keyset.aead().open(old, bytes(16), b"c")


def test_the_key_that_seals_stays_and_strangers_take_no_key_away():
    keyset = Keyset.create("default")
    with pytest.raises(ValueError, match="stays"):
        keyset.without(keyset.data_keys)
    for other in (
        Keyset.create("default"),
        keyset.rotated(),
        keyset.rotated().without(keyset.data_keys),
    ):
        with pytest.raises(ValueError, match="part"):
            keyset.forget(other)


def test_the_first_audit_key_stays_what_it_is_when_the_hash_root_is_rotated() -> None:
    keyset = Keyset.create("test")
    chain = keyset.audit_roots()
    keyset.adopt(keyset.with_hash_root())
    assert keyset.audit_roots() == chain
    keyset.forget(keyset.without_older_hash())
    assert keyset.audit_roots() == chain


TEXTS = SealedTexts(b"k" * 32)


def refused(texts: SealedTexts, text: str, context: bytes) -> None:
    with pytest.raises(VaultError) as caught:
        texts.open(text, context)
    assert caught.value.code is Code.CANNOT_OPEN


@table("plain", [b"", b"a", b"\x00\xff" * 1000])
def test_what_is_sealed_opens_again(plain):
    text = TEXTS.seal(plain, b"context")
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text)
    assert TEXTS.open(text, b"context") == plain
    assert TEXTS.seal(plain, b"context") != text


def test_it_opens_in_its_context_and_under_its_key_alone():
    text = TEXTS.seal(b"plain", b"context")
    refused(TEXTS, text, b"other")
    refused(SealedTexts(b"l" * 32), text, b"context")


@table("plain", [b"", b"a", b"ab"])
def test_a_text_that_was_changed_anywhere_does_not_open(plain):
    text = TEXTS.seal(plain, b"context")
    for at in range(len(text)):
        refused(TEXTS, text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :], b"context")
        refused(TEXTS, text[:at], b"context")
        refused(TEXTS, f"{text[:at]} {text[at:]}", b"context")
    refused(TEXTS, f"{text}=", b"context")


@table("text", ["", "A", "AQ", "å", "AQ==", "!" * 40, "A" * 64, "AQ" + "A" * 20, "a b"])
def test_what_nobody_sealed_does_not_open(text):
    refused(TEXTS, text, b"context")


def test_each_purpose_of_a_keyset_has_a_key_of_its_own():
    keyset = Keyset.create("test")
    text = keyset.sealed_texts("cursor").seal(b"plain", b"")
    assert keyset.rotated().sealed_texts("cursor").open(text, b"") == b"plain"
    refused(keyset.sealed_texts("other"), text, b"")
