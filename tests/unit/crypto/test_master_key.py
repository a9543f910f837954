import pytest

from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from tests.support.table import table

ONE, OTHER = MasterKey(bytes(range(32))), MasterKey(bytes(range(1, 33)))


def refuse(master: MasterKey, blob: bytes, context: bytes = b"context") -> str:
    with pytest.raises(VaultError) as caught:
        master.unwrap(blob, context)
    assert caught.value.code is Code.BAD_KEYS
    return caught.value.message


def test_what_is_wrapped_unwraps_and_looks_different_each_time():
    blobs = [ONE.wrap(b"keys", b"context") for _ in range(10)]
    assert len(set(blobs)) == 10
    assert all(ONE.unwrap(blob, b"context") == b"keys" for blob in blobs)


def test_the_fingerprint_tells_keys_apart_and_is_stable():
    assert ONE.id == MasterKey(bytes(range(32))).id != OTHER.id
    assert len(ONE.id) == 16
    assert ONE.id not in bytes(range(32)).hex()


def test_another_master_key_is_named_by_fingerprint_and_the_setting_to_change():
    message = refuse(OTHER, ONE.wrap(b"keys", b"context"))
    assert ONE.id in message
    assert OTHER.id in message
    assert "`keys`" in message


@table("cut", [9, 15, 21, -1])
def test_a_cut_blob_is_damaged(cut):
    assert "damaged" in refuse(ONE, ONE.wrap(b"keys", b"context")[:cut])


def test_context_and_format_are_bound():
    blob = ONE.wrap(b"keys", b"context")
    assert "damaged" in refuse(ONE, blob, b"other")
    assert "newer version" in refuse(ONE, b"\x02" + blob[1:])
    assert "newer version" in refuse(ONE, b"")


@table("length", [0, 16, 31, 33])
def test_a_master_key_has_thirty_two_bytes(length):
    with pytest.raises(ValueError, match="32 bytes"):
        MasterKey(bytes(length))
