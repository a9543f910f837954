"""The keys of one environment, and the primitives they turn into."""

import base64
import binascii
import json
import os
from collections.abc import Collection
from typing import Any

from proxy.crypto.aead import KEY_ID_BYTES, NONCE_BYTES, RecordAead, cannot_open, gcm_open, gcm_seal
from proxy.crypto.field_keys import FieldKeys
from proxy.crypto.master_key import MasterKey
from proxy.crypto.prf import Prf, derive, hasher, random_bytes
from proxy.crypto.secret import Secret
from proxy.crypto.stream import StreamAead
from proxy.errors import Code, VaultError

# Texts that callers keep for us and hand back, as cursors: nobody else can read, change or make one
# (AES-256-GCM).
#
# A text is base64url (RFC 4648, section 5, without padding) of, byte by byte::
#
#     0      format, 0x01
#     1..12  nonce, 96 random bits
#     13..   ciphertext, then the 16-byte tag
#
# The associated data is the format and the caller's context: a text opens only in the context for
# which it was sealed.


_FORMAT = b"\x01"
_BODY_FROM = 1 + NONCE_BYTES


class SealedTexts(Secret):
    """Seals and opens texts under one key of 32 bytes."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, plaintext: bytes, context: bytes) -> str:
        """The content as a text of letters, digits, ``-`` and ``_``."""
        nonce = random_bytes(NONCE_BYTES)
        sealed = _FORMAT + nonce + gcm_seal(self._key, nonce, plaintext, _FORMAT + context)
        return _spelled(sealed)

    def open(self, text: str, context: bytes) -> bytes:
        """The content. ``VaultError(CANNOT_OPEN)`` whatever the reason: changed, cut, another key
        or another context.
        """
        try:
            sealed = base64.b64decode(
                text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True
            )
        except (ValueError, binascii.Error):
            raise cannot_open() from None
        # the last letter has bits that mean nothing
        if sealed[:1] != _FORMAT or _spelled(sealed) != text:
            raise cannot_open()
        return gcm_open(self._key, sealed[1:_BODY_FROM], sealed[_BODY_FROM:], _FORMAT + context)


def _spelled(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


_KEY_BYTES = 32


class Keyset(Secret):
    """Data keys (a primary that seals, older ones that only open), a hash root and a token root.

    Made by ``create``, ``unwrap`` and ``rotated`` alone. What ``aead`` and ``streams`` give is one
    object each, which ``adopt`` gives other data keys while it is in use. A wrapped keyset is:
    format 0x01, length of the environment's name in 2 bytes, that name in UTF-8, and a blob of the
    master key that is bound to all of this.
    """

    __slots__ = (
        "_aead",
        "_data",
        "_hash_root",
        "_primary",
        "_streams",
        "_token_root",
        "environment",
        "rooted",
    )

    def __init__(
        self, environment: str, data: dict[bytes, bytes], primary: bytes, roots: tuple[bytes, bytes]
    ) -> None:
        self.environment = environment
        #: The notes of the store have a root, so one that is missing was removed.
        self.rooted = False
        self._data = data
        self._primary = primary
        self._hash_root, self._token_root = roots
        self._aead = RecordAead(primary, data)
        self._streams = StreamAead(primary, data)

    @classmethod
    def create(cls, environment: str) -> "Keyset":
        """A keyset of fresh random keys for a new environment."""
        key_id = _new_id({})
        return cls(environment, {key_id: _new_key()}, key_id, (_new_key(), _new_key()))

    @classmethod
    def unwrap(cls, blob: bytes, master: MasterKey) -> "Keyset":
        """The keyset of a wrapped blob.

        ``VaultError(BAD_KEYS)``, with a sentence that says what to do, when the master key is
        another one, or the blob is damaged, cut, or was given another environment's name.
        """
        size = int.from_bytes(blob[1:3], "big")
        head, sealed = blob[: 3 + size], blob[3 + size :]
        if head[:1] != _FORMAT:
            raise _damaged()
        try:
            return cls._of(head[3:].decode(), json.loads(master.unwrap(sealed, head)))
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise _damaged() from None

    @staticmethod
    def wrapper(blob: bytes) -> str:
        """The id of the master key that wrapped a blob."""
        return MasterKey.wrapper(blob[3 + int.from_bytes(blob[1:3], "big") :])

    def wrap(self, master: MasterKey) -> bytes:
        """The keyset as a blob that may be stored: nothing in it is readable but the environment's
        name.
        """
        name = self.environment.encode()
        head = _FORMAT + len(name).to_bytes(2, "big") + name
        content = {
            "primary": self._primary.hex(),
            "data": {key_id.hex(): _armor(key) for key_id, key in self._data.items()},
            "hash": _armor(self._hash_root),
            "token": _armor(self._token_root),
            "rooted": self.rooted,
        }
        return head + master.wrap(json.dumps(content).encode(), head)

    def rotated(self) -> "Keyset":
        """The same keyset with a fresh primary data key; what older keys sealed still opens."""
        key_id = _new_id(self._data)
        data = {**self._data, key_id: _new_key()}
        return self._with(data, key_id)

    def without(self, keys: Collection[str]) -> "Keyset":
        """The same keyset without these data keys: nothing that they have sealed opens with it.

        ``ValueError`` for the one that seals.
        """
        if self._primary.hex() in keys:
            raise ValueError("the data key that seals stays")
        data = {key_id: key for key_id, key in self._data.items() if key_id.hex() not in keys}
        return self._with(data, self._primary)

    def forget(self, other: "Keyset") -> None:
        """Have no data keys but those of a keyset made by ``without``.

        What was given out by ``aead`` and ``streams`` goes on opening with the others until the
        next key is adopted, or the process ends: somebody may have read a body before it was sealed
        anew, and open it only now.
        """
        roots, data, primary = other._inside()  # noqa: SLF001  # of the same class
        if (
            roots != (self._hash_root, self._token_root)
            or primary != self._primary
            or not data.items() <= self._data.items()
        ):
            raise ValueError("this is no part of the keyset")
        self._data = data

    def same(self, other: "Keyset") -> bool:
        """Whether both have the same keys."""
        return self._inside() == other._inside()  # noqa: SLF001  # of the same class

    def adopt(self, other: "Keyset") -> None:
        """Take over the data keys of a rotated one: everything that seals with this keyset does so
        with its new key from now on.

        ``ValueError`` when the other lacks a key of this one, or is of other roots: then what was
        sealed would not open.
        """
        roots, data, primary = other._inside()  # noqa: SLF001  # of the same class
        if roots != (self._hash_root, self._token_root) or not self._data.items() <= data.items():
            raise ValueError("this is no successor of the keyset")
        self._data, self._primary = data, primary
        self._aead.adopt(self._primary, self._data)
        self._streams.adopt(self._primary, self._data)

    @property
    def data_keys(self) -> tuple[str, ...]:
        """The ids of all data keys in hexadecimal, oldest first; the last one seals. Not secret."""
        return tuple(key_id.hex() for key_id in self._data)

    def aead(self) -> RecordAead:
        """What seals and opens record bodies of this environment."""
        return self._aead

    def streams(self) -> StreamAead:
        """What seals and opens contents in chunks."""
        return self._streams

    def hasher(self, *purpose: str) -> Prf:
        """A keyed hash of 16 bytes for one purpose, e.g.

        look-ups by one field; each purpose has a key of its own.
        """
        return hasher(derive(self._hash_root, "hash", self.environment, *purpose))

    def audit_roots(self) -> tuple[bytes, bytes]:
        """The first key of the audit chain, and that of the names of records in it; both are sealed
        on their own from then on.
        """
        of = self._hash_root, "hash", self.environment, "audit"
        return derive(*of, "chain"), derive(*of, "record")

    def sealed_texts(self, *purpose: str) -> SealedTexts:
        """What seals texts that callers keep for us, for one purpose; each purpose has a key of its
        own.
        """
        return SealedTexts(derive(self._hash_root, "sealed text", self.environment, *purpose))

    def field_keys(self, schema: str, field: str) -> FieldKeys:
        """The keyed functions that tokens of one field are made with."""
        return FieldKeys(self._token_root, self.environment, schema, field)

    def rehash_keys(self, dtk: str, schema: str, field: str) -> FieldKeys:
        """The keyed functions of one field under a key of the caller's own; without this keyset the
        key alone tells nothing.
        """
        return FieldKeys(
            derive(self._token_root, "rehash", self.environment, dtk),
            self.environment,
            schema,
            field,
        )

    def _with(self, data: dict[bytes, bytes], primary: bytes) -> "Keyset":
        keyset = Keyset(self.environment, data, primary, (self._hash_root, self._token_root))
        keyset.rooted = self.rooted
        return keyset

    def _inside(self) -> tuple[tuple[bytes, bytes], dict[bytes, bytes], bytes]:
        return (self._hash_root, self._token_root), self._data, self._primary

    @classmethod
    def _of(cls, environment: str, content: dict[str, Any]) -> "Keyset":
        data = {bytes.fromhex(key_id): _bare(key) for key_id, key in content["data"].items()}
        primary = bytes.fromhex(content["primary"])
        if primary not in data:
            raise ValueError("the primary data key is missing")
        roots = _bare(content["hash"]), _bare(content["token"])
        keyset = cls(environment, data, primary, roots)
        keyset.rooted = content.get("rooted", False) is True
        return keyset


def _new_key() -> bytes:
    return os.urandom(_KEY_BYTES)


def _new_id(taken: dict[bytes, bytes]) -> bytes:
    while (key_id := os.urandom(KEY_ID_BYTES)) in taken:
        pass
    return key_id


def _armor(key: bytes) -> str:
    return base64.b64encode(key).decode()


def _bare(text: str) -> bytes:
    key = base64.b64decode(text, validate=True)
    if len(key) != _KEY_BYTES:
        raise ValueError("a key has the wrong length")
    return key


def _damaged() -> VaultError:
    return VaultError(
        Code.BAD_KEYS,
        "The wrapped keys of the vault are damaged or of a newer version: restore the vault from "
        "a backup.",
    )
