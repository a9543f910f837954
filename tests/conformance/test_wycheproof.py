"""Other people's vectors for every primitive: Project Wycheproof, the selection kept here and the
whole files.
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from proxy.crypto.aead import gcm_open, gcm_seal
from proxy.crypto.field_keys import FF1
from proxy.crypto.prf import HASH_BYTES, hasher, keyed
from proxy.errors import Code, VaultError
from tests.support.table import table
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

Vector = dict[str, Any]

_SELECTION = json.loads((ROOT / "tests/vectors/wycheproof.json").read_text("utf-8"))
_WHOLE = ROOT.parent / "shared/data/public"


def cases(groups: list[Vector]) -> Iterator[tuple[Vector, Vector]]:
    for group in groups:
        for test in group["tests"]:
            yield group, test


def aes_gcm(groups: list[Vector]) -> Counter[str]:
    seen: Counter[str] = Counter()
    for _, test in cases(groups):
        key, nonce, plain, associated = (
            bytes.fromhex(test[name]) for name in ("key", "iv", "msg", "aad")
        )
        sealed = bytes.fromhex(test["ct"] + test["tag"])
        seen[test["result"]] += 1
        if test["result"] == "invalid":
            with pytest.raises(VaultError) as caught:
                gcm_open(key, nonce, sealed, associated)
            assert caught.value.code is Code.CANNOT_OPEN, test["tcId"]
        elif (
            8 <= len(nonce) <= 128
        ):  # others are valid GCM, and the library refuses them; ours have 12 bytes
            assert gcm_open(key, nonce, sealed, associated) == plain, test["tcId"]
            assert gcm_seal(key, nonce, plain, associated) == sealed, test["tcId"]
    return seen


def expanded(material: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    """HKDF of the two parts that ours is made of: the keyed hash extracts, the library expands."""
    return HKDFExpand(SHA256(), size, info).derive(keyed(salt)(material))


def hkdf_sha256(groups: list[Vector]) -> Counter[str]:
    seen: Counter[str] = Counter()
    for _, test in cases(groups):
        material, salt, info = (bytes.fromhex(test[name]) for name in ("ikm", "salt", "info"))
        seen[test["result"]] += 1
        if test["result"] == "invalid":
            with pytest.raises(ValueError):
                expanded(material, salt, info, test["size"])
        else:
            assert expanded(material, salt, info, test["size"]).hex() == test["okm"], test["tcId"]
    return seen


def hmac_sha256(groups: list[Vector]) -> Counter[str]:
    seen: Counter[str] = Counter()
    for group, test in cases(groups):
        key, message, tag = (bytes.fromhex(test[name]) for name in ("key", "msg", "tag"))
        seen[test["result"]] += 1
        assert (keyed(key)(message)[: group["tagSize"] // 8] == tag) == (
            test["result"] == "valid"
        ), test["tcId"]
        if group["tagSize"] == 8 * HASH_BYTES:
            assert (hasher(key)(message) == tag) == (test["result"] == "valid"), test["tcId"]
    return seen


def ff1(groups: list[Vector]) -> Counter[str]:
    seen: Counter[str] = Counter()
    for group, test in cases(groups):
        seen[test["result"]] += 1
        if test["result"] == "invalid":
            with pytest.raises(ValueError):
                run_ff1(group, test)
        elif (
            "LargeMessageSize" in test["flags"]
            and group["radix"] ** ((group["msgSize"] + 1) // 2) > 2**120
        ):
            with pytest.raises(ValueError):  # a restriction of ours, stated in the docstring
                run_ff1(group, test)
        else:
            assert run_ff1(group, test) == test["ct"], test["tcId"]
    return seen


def run_ff1(group: Vector, test: Vector) -> str:
    """Encrypt the message, and check that decryption leads back."""
    alphabet, length, tweak = group["alphabet"], len(test["msg"]), bytes.fromhex(test["tweak"])
    cipher = FF1(bytes.fromhex(test["key"]), len(alphabet))
    number = 0
    for character in test["msg"]:
        number = number * len(alphabet) + alphabet.index(character)
    taken = cipher.encrypt(number, length, tweak)
    assert cipher.decrypt(taken, length, tweak) == number
    out = ""
    for _ in range(length):
        taken, digit = divmod(taken, len(alphabet))
        out = alphabet[digit] + out
    return out


RUNS: dict[str, Callable[[list[Vector]], Counter[str]]] = {
    "aes_gcm": aes_gcm, "hkdf_sha256": hkdf_sha256, "hmac_sha256": hmac_sha256,
    "aes_ff1_base10": ff1, "aes_ff1_base62": ff1,
}  # fmt: skip


@table("name", RUNS)
def test_the_selection_of_vectors_holds(name):
    seen = RUNS[name](_SELECTION[name])
    assert seen["valid"] >= 5
    assert seen["invalid"] >= 1


@pytest.mark.parametrize("name", RUNS)
def test_every_vector_holds(name, unavailable: Unavailable):
    packed, plain = (
        _WHOLE / f"wycheproof_{name}_test.json.gz",
        _WHOLE / f"wycheproof_{name}_test.json",
    )
    if packed.exists():
        content = json.loads(gzip.decompress(packed.read_bytes()))
    elif plain.exists():
        content = json.loads(plain.read_bytes())
    else:
        unavailable(
            f"all Wycheproof vectors of {name}", "the public test data is not beside the repository"
        )
    assert RUNS[name](content["testGroups"]).total() == content["numberOfTests"]
