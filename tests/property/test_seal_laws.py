"""What holds for every sealed body: it opens where it belongs, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.crypto.aead import RecordAead
from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError

KEYSET = Keyset.create("test")
AEAD, STRANGER = KEYSET.aead(), Keyset.create("test").aead()
SALTS = st.binary(min_size=16, max_size=16)
PLAINS = st.binary(max_size=300)
CONTEXTS = st.binary(max_size=60)


def stays_shut(aead: RecordAead, sealed: bytes, salt: bytes, context: bytes) -> None:
    with pytest.raises(VaultError) as caught:
        aead.open(sealed, salt, context)
    assert caught.value.code is Code.CANNOT_OPEN


@given(PLAINS, SALTS, CONTEXTS)
def test_opening_undoes_sealing_also_after_a_rotation(plain, salt, context):
    sealed = AEAD.seal(plain, salt, context)
    assert AEAD.open(sealed, salt, context) == plain
    later = KEYSET.rotated()
    again = later.aead().seal(later.aead().open(sealed, salt, context), salt, context)
    less = later.without(
        KEYSET.data_keys
    ).aead()  # what was sealed anew needs the key before no more, and the other does
    assert less.open(again, salt, context) == plain
    stays_shut(less, sealed, salt, context)


@given(PLAINS, SALTS, SALTS, CONTEXTS, CONTEXTS)
def test_another_salt_context_or_keyset_does_not_open(
    plain, salt, other_salt, context, other_context
):
    sealed = AEAD.seal(plain, salt, context)
    stays_shut(STRANGER, sealed, salt, context)
    if other_salt != salt:
        stays_shut(AEAD, sealed, other_salt, context)
    if other_context != context:
        stays_shut(AEAD, sealed, salt, other_context)


@given(PLAINS, SALTS, CONTEXTS, st.data())
def test_a_cut_longer_or_changed_body_does_not_open(plain, salt, context, data):
    sealed = AEAD.seal(plain, salt, context)
    stays_shut(AEAD, sealed[: data.draw(st.integers(0, len(sealed) - 1))], salt, context)
    stays_shut(AEAD, sealed + data.draw(st.binary(min_size=1, max_size=20)), salt, context)
    place, flip = data.draw(st.integers(0, len(sealed) - 1)), data.draw(st.integers(1, 255))
    stays_shut(
        AEAD, sealed[:place] + bytes((sealed[place] ^ flip,)) + sealed[place + 1 :], salt, context
    )


@given(PLAINS, SALTS)
def test_moving_bytes_between_body_and_context_does_not_open(plain, salt):
    sealed = AEAD.seal(plain, salt, b"schema|record")
    stays_shut(AEAD, sealed, salt, b"schema" + b"|record"[1:])
    stays_shut(AEAD, sealed, salt, b"")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_do_not_open(noise):
    stays_shut(AEAD, noise, bytes(16), b"")


@given(st.text(max_size=40), st.binary(min_size=32, max_size=32), st.data())
def test_a_wrapped_keyset_opens_with_its_master_key_alone(environment, key, data):
    environment = environment.encode("utf-8", "ignore").decode()
    keyset, master = Keyset.create(environment), MasterKey(key)
    blob = keyset.wrap(master)
    assert Keyset.unwrap(blob, master).environment == environment
    with pytest.raises(VaultError) as caught:
        Keyset.unwrap(blob, MasterKey(bytes((key[0] ^ 1,)) + key[1:]))
    assert caught.value.code is Code.BAD_KEYS
    place, flip = data.draw(st.integers(0, len(blob) - 1)), data.draw(st.integers(1, 255))
    with pytest.raises(VaultError) as caught:
        Keyset.unwrap(blob[:place] + bytes((blob[place] ^ flip,)) + blob[place + 1 :], master)
    assert caught.value.code is Code.BAD_KEYS
