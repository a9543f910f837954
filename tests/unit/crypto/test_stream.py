import hashlib
import hmac
import os
import pickle

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.crypto.keyset import Keyset
from proxy.crypto.stream import (
    CHUNK,
    HEADER_BYTES,
    SEALED_CHUNK,
    StreamAead,
    StreamOpener,
    chunks,
    sealed_size,
)
from proxy.errors import Code, VaultError
from tests.support.table import table

SALT = bytes(range(16))
OLD, NEW = b"\x00\x00\x00\x01", b"\x00\x00\x00\x02"
KEYS = {OLD: bytes(range(32)), NEW: bytes(range(32, 64))}
AEAD = StreamAead(NEW, KEYS)
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 7]


def seal(content: bytes, step: int = 1 << 20, aead: StreamAead = AEAD) -> bytes:
    sealer = aead.sealer(SALT, b"context")
    parts = [sealer.header]
    for at in range(0, len(content), step):
        parts.append(bytes(sealer.update(content[at : at + step])))
    return b"".join([*parts, sealer.finish()])


def opener(
    sealed: bytes, aead: StreamAead = AEAD, salt: bytes = SALT, context: bytes = b"context"
) -> StreamOpener:
    return aead.opener(sealed[:HEADER_BYTES], salt, context)


def unseal(sealed: bytes, size: int, **how: object) -> bytes:
    """The whole content, as a reader does it who knows its size."""
    opened, last = opener(sealed, **how), chunks(size) - 1  # type: ignore[arg-type]  # keywords of ``opener``
    if len(sealed) != sealed_size(size):
        raise VaultError(Code.CANNOT_OPEN, "")
    body = sealed[HEADER_BYTES:]
    cut = [body[at : at + SEALED_CHUNK] for at in range(0, max(1, len(body)), SEALED_CHUNK)]
    return b"".join(
        opened.chunk(number, part, last=number == last) for number, part in enumerate(cut)
    )


def refuse(sealed: bytes, size: int, **how: object) -> None:
    with pytest.raises(VaultError) as caught:
        unseal(sealed, size, **how)
    assert caught.value.code is Code.CANNOT_OPEN


@table("size", SIZES)
@table("step", [1000, CHUNK, CHUNK + 1, 1 << 20])
def test_what_is_sealed_opens_however_it_came(size, step):
    content = os.urandom(size)
    sealed = seal(content, step)
    assert len(sealed) == sealed_size(size)
    assert unseal(sealed, size) == content


def test_the_format_is_what_the_docstring_says():
    content = os.urandom(CHUNK + 5)
    sealed = seal(content)
    assert sealed[:5] == b"\x01" + NEW
    key = AESGCM(
        hmac.new(KEYS[NEW], b"domicile stream key/1" + SALT + b"\x01", hashlib.sha256).digest()
    )
    prefix, body, associated = sealed[5:12], sealed[12:], sealed[:5] + b"context"
    first = key.decrypt(prefix + b"\x00\x00\x00\x00\x00", body[:SEALED_CHUNK], associated)
    last = key.decrypt(prefix + b"\x00\x00\x00\x01\x01", body[SEALED_CHUNK:], associated)
    assert first + last == content


def test_every_chunk_opens_by_itself():
    content = os.urandom(3 * CHUNK + 9)
    sealed = seal(content)
    opened = opener(sealed)
    for number in (3, 1, 0, 2):
        part = sealed[HEADER_BYTES + number * SEALED_CHUNK :][:SEALED_CHUNK]
        assert (
            opened.chunk(number, memoryview(part), last=number == 3)
            == content[number * CHUNK :][:CHUNK]
        )


def test_a_cut_content_does_not_open_even_at_a_border_of_chunks():
    sealed = seal(os.urandom(2 * CHUNK))
    shorter = sealed[: HEADER_BYTES + SEALED_CHUNK]
    refuse(shorter, CHUNK)
    refuse(shorter, 2 * CHUNK)
    refuse(sealed[:-1], 2 * CHUNK - 1)


def test_an_extended_content_does_not_open():
    sealed = seal(b"x" * CHUNK)
    refuse(sealed + sealed[HEADER_BYTES:], 2 * CHUNK)
    refuse(sealed + b"\x00" * 17, CHUNK + 1)
    empty_end = AESGCM(os.urandom(32)).encrypt(bytes(12), b"", b"")
    with pytest.raises(VaultError):
        opener(sealed).chunk(1, empty_end, last=True)


def test_chunks_do_not_open_at_another_place_or_in_another_content():
    content, other = os.urandom(3 * CHUNK), seal(os.urandom(3 * CHUNK))
    sealed = seal(content)
    head, *parts = (
        sealed[:HEADER_BYTES],
        *(sealed[HEADER_BYTES + n * SEALED_CHUNK :][:SEALED_CHUNK] for n in range(3)),
    )
    refuse(head + parts[1] + parts[0] + parts[2], len(content))
    refuse(head + parts[0] + parts[0] + parts[2], len(content))
    refuse(
        head + parts[0] + other[HEADER_BYTES + SEALED_CHUNK :][:SEALED_CHUNK] + parts[2],
        len(content),
    )
    with pytest.raises(VaultError):
        opener(sealed).chunk(2, parts[2], last=False)
    with pytest.raises(VaultError):
        opener(sealed).chunk(1 << 32, parts[0], last=False)


def test_another_salt_context_or_key_does_not_open():
    sealed = seal(b"plain")
    refuse(sealed, 5, salt=bytes(16))
    refuse(sealed, 5, context=b"another")
    refuse(sealed, 5, aead=Keyset.create("test").streams())
    refuse(sealed[:1] + OLD + sealed[5:], 5)
    refuse(sealed[:11], 5)


def test_older_keys_open_and_the_primary_seals():
    keyset = Keyset.create("test")
    sealed = seal(b"plain", aead=keyset.streams())
    assert unseal(sealed, 5, aead=keyset.rotated().streams()) == b"plain"
    refuse(seal(b"plain", aead=keyset.rotated().streams()), 5, aead=keyset.streams())


def test_the_same_content_is_sealed_differently_each_time():
    assert len({seal(b"plain") for _ in range(50)}) == 50


def test_a_stream_ends_once_and_holds_no_more_than_its_numbers(monkeypatch):
    sealer = AEAD.sealer(SALT, b"")
    sealer.finish()
    with pytest.raises(ValueError, match="end"):
        sealer.finish()
    sealer = AEAD.sealer(SALT, b"")
    sealer._number = 1 << 32
    with pytest.raises(ValueError, match="end"):
        sealer.finish()


def test_a_salt_has_its_length():
    with pytest.raises(ValueError, match="16 bytes"):
        AEAD.sealer(b"short", b"")


def test_holders_of_keys_do_not_travel():
    for holder in (AEAD, AEAD.sealer(SALT, b""), opener(seal(b""))):
        with pytest.raises(TypeError):
            pickle.dumps(holder)
        assert "not shown" in repr(holder)
