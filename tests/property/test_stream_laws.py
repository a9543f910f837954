"""The laws of sealed streams, over contents that generated pieces make; small chunks, so that there
are many of them.
"""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.crypto import stream
from proxy.crypto.aead import TAG_BYTES
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError

AEAD = Keyset.create("test").streams()
SALT = bytes(16)
_SMALL = 7

pieces = st.lists(st.binary(max_size=40), max_size=8)


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    before = stream.CHUNK, stream.SEALED_CHUNK
    stream.CHUNK, stream.SEALED_CHUNK = _SMALL, _SMALL + TAG_BYTES
    yield
    stream.CHUNK, stream.SEALED_CHUNK = before


def sealed_of(parts: list[bytes]) -> tuple[bytes, list[bytes]]:
    sealer = AEAD.sealer(SALT, b"context")
    sealed = b"".join([bytes(sealer.update(part)) for part in parts])
    cut = [
        sealed[at : at + stream.SEALED_CHUNK] for at in range(0, len(sealed), stream.SEALED_CHUNK)
    ]
    return sealer.header, [*cut, sealer.finish()]


def opened(header: bytes, sealed: list[bytes]) -> bytes:
    opener = AEAD.opener(header, SALT, b"context")
    return b"".join(
        opener.chunk(n, part, last=n == len(sealed) - 1) for n, part in enumerate(sealed)
    )


@given(pieces)
def test_to_open_is_the_inverse_of_to_seal(parts):
    header, sealed = sealed_of(parts)
    content = b"".join(parts)
    assert opened(header, sealed) == content
    assert len(sealed) == stream.chunks(len(content))
    assert len(header) + sum(map(len, sealed)) == stream.sealed_size(len(content))


@given(pieces, st.data())
def test_no_other_arrangement_of_chunks_opens(parts, data):
    header, sealed = sealed_of(parts)
    other = data.draw(
        st.lists(st.sampled_from(sealed), max_size=len(sealed) + 1).filter(
            lambda found: found != sealed
        )
    )
    if other:
        with pytest.raises(VaultError) as caught:
            opened(header, other)
        assert caught.value.code is Code.CANNOT_OPEN


@given(pieces, st.data())
def test_no_changed_byte_opens(parts, data):
    header, sealed = sealed_of(parts)
    whole = bytearray(header + b"".join(sealed))
    at, change = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
    whole[at] ^= change
    sizes = [len(part) for part in sealed]
    starts = [len(header) + sum(sizes[:n]) for n in range(len(sizes))]
    with pytest.raises(VaultError):
        opened(
            bytes(whole[: len(header)]),
            [bytes(whole[a : a + n]) for a, n in zip(starts, sizes, strict=True)],
        )
