import hashlib
import hmac
import json
import os
import subprocess
import sys

import pytest

from proxy.crypto.prf import (
    HASH_BYTES,
    derive,
    hasher,
    keyed,
    random_bytes,
    random_pieces,
    spell_label,
)
from tests.support.snapshots import two_resumptions
from tests.support.table import table
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

KEY = bytes(range(32))


def test_a_keyed_state_serves_many_messages():
    prf = keyed(KEY)
    for message in (b"", b"one", b"two", b"one"):
        assert prf(message) == hmac.new(KEY, message, hashlib.sha256).digest()


def test_a_hash_is_the_first_sixteen_bytes():
    assert hasher(KEY)(b"message") == keyed(KEY)(b"message")[:HASH_BYTES]
    assert len(hasher(KEY)(b"")) == HASH_BYTES == 16


def test_no_key_is_longer_than_hkdf_can_give():
    assert len(derive(KEY, "hash", length=255 * 32)) == 255 * 32
    with pytest.raises(ValueError):
        derive(KEY, "hash", length=255 * 32 + 1)


def test_derived_keys_are_hkdf_expand_of_the_label():
    info = spell_label("hash", "dev")
    assert derive(KEY, "hash", "dev") == hmac.new(KEY, info + b"\x01", hashlib.sha256).digest()
    assert derive(KEY, "hash", "dev", length=8) == derive(KEY, "hash", "dev")[:8]


def test_no_two_lists_of_parts_spell_one_label():
    lists = [
        (), ("",), ("", ""), ("a", "bc"), ("ab", "c"), ("abc",), ("a", "b", "c"), ("a", "", "bc"),
        ("é",), ("e\u0301",),
    ]  # fmt: skip
    assert len({spell_label(*parts) for parts in lists}) == len(lists)


def test_a_label_takes_any_text():
    assert spell_label("\ud800") != spell_label("\ud801")


def test_lengths_are_as_asked_for_and_nothing_repeats() -> None:
    drawn = [random_bytes(length) for length in (1, 12, 16, 1000, 5000) for _ in range(200)]
    assert [len(item) for item in drawn[::200]] == [1, 12, 16, 1000, 5000]
    long = [item for item in drawn if len(item) >= 12]
    assert len(set(long)) == len(long)


def test_pieces_for_many_records_are_as_many_as_asked_for_and_never_twice() -> None:
    drawn = [piece for count in (1, 0, 511, 3, 1200, 40) for piece in random_pieces(count)]
    assert len(drawn) == len(set(drawn)) == 1755
    assert {len(piece) for piece in drawn} == {16}


@table("length", [4, 12, 16, 40, 256, 257, 5000])
def test_every_draw_is_one_of_the_kernel_and_nothing_is_drawn_ahead(length: int) -> None:
    """What lies ready in memory is what two resumptions of one snapshot would share."""
    program = (
        "import os\ndraws = []\n"
        "def counted(draw):\n"
        "    return lambda length: draws.append(length) or draw(length)\n"
        "os.urandom, os.getrandom = counted(os.urandom), counted(os.getrandom)\n"
        "from proxy.crypto.prf import random_bytes, random_pieces\n"
        f"for _ in range(3): random_bytes({length})\n"
        "random_pieces(20)\n"
        "print(draws)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert json.loads(done.stdout) == [length] * 3 + [20 * 16]


@pytest.mark.parametrize(
    "drawn",
    [
        "random_bytes(16)",
        "random_bytes(12)",
        "b''.join(random_pieces(3))",
        "KEYSET.aead().seal(b'body', bytes(16), b'context')",
        "KEYSET.aead().seal_new([b'body'], [b'context'])[0][0]",
        "KEYSET.aead().seal_first(b'body', b'context')[0]",
        "KEYSET.sealed_texts('cursor').seal(b'text', b'').encode()",
        "KEYSET.field_keys('contact', 'name').random(16)",
        "Keyset.create('default').hasher('a')(b'')",
        "SigningKey.create().kid.encode()",
        "new_secret().encode()",
        "uuid.uuid4().bytes",
    ],
)
def test_two_resumptions_of_one_snapshot_draw_nothing_twice(
    drawn: str, unavailable: Unavailable
) -> None:
    first, second = two_resumptions(
        f"""
        import uuid
        from proxy.crypto.jws import SigningKey
        from proxy.crypto.keyset import Keyset
        from proxy.crypto.client_secrets import new_secret
        from proxy.crypto.prf import random_bytes, random_pieces
        KEYSET = Keyset.create("default")
        def work():
            return {drawn}
        """,
        unavailable,
    )
    assert first
    assert first != second


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
