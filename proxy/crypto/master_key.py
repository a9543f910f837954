"""The master key: it wraps keysets; files that leave the vault are sealed by a key of it."""

import os
from collections.abc import Sequence

from proxy.crypto.aead import KEY_ID_BYTES, NONCE_BYTES, gcm_open, gcm_seal
from proxy.crypto.prf import derive
from proxy.crypto.secret import Secret
from proxy.crypto.stream import StreamAead
from proxy.errors import Code, VaultError

#: Bytes of a master key: AES-256.
MASTER_BYTES = 32

_FORMAT = b"\x01"
_ID_BYTES = 8


class MasterKey(Secret):
    """A key that came from a key source.

    ``id`` is a fingerprint that tells keys apart and is not secret.

    ``others`` are older keys, or one that is about to follow: they only open. A wrapped blob is:
    format 0x01, the 8 bytes of ``id``, 12 random bytes of nonce, AES-256-GCM ciphertext and tag.
    """

    __slots__ = ("_files", "_key", "id", "others")

    def __init__(self, key: bytes, others: Sequence["MasterKey"] = ()) -> None:
        if len(key) != MASTER_BYTES:
            raise ValueError(f"a master key is {MASTER_BYTES} bytes")
        self._key = derive(key, "master", "wrap")
        self._files = derive(key, "master", "files")
        self.id = derive(key, "master", "id", length=_ID_BYTES).hex()
        self.others = {other.id: other for other in others if other.id != self.id}

    @staticmethod
    def wrapper(sealed: bytes) -> str:
        """The id of the key that a blob was wrapped with."""
        return sealed[1 : 1 + _ID_BYTES].hex()

    def files(self) -> StreamAead:
        """Cipher of files that leave the vault and come back: exports.

        Other keys than those that wrap.
        """
        keys = {
            bytes.fromhex(key.id)[:KEY_ID_BYTES]: key._files  # noqa: SLF001  # of the same class
            for key in (*self.others.values(), self)
        }
        return StreamAead(bytes.fromhex(self.id)[:KEY_ID_BYTES], keys)

    def wrap(self, plaintext: bytes, context: bytes) -> bytes:
        """The blob that only ``unwrap`` with the same key (as itself or among ``others``) and
        context opens.
        """
        head = _FORMAT + bytes.fromhex(self.id)
        nonce = os.urandom(NONCE_BYTES)
        return head + nonce + gcm_seal(self._key, nonce, plaintext, head + context)

    def unwrap(self, sealed: bytes, context: bytes) -> bytes:
        """Unwrap a keyset.

        ``VaultError(BAD_KEYS)`` tells whether the key is another one or the blob is damaged.
        """
        head, rest = sealed[: 1 + _ID_BYTES], sealed[1 + _ID_BYTES :]
        if head[:1] != _FORMAT:
            raise VaultError(
                Code.BAD_KEYS,
                "The wrapped keys are of a newer version of domicile, or damaged: run that "
                "version, or restore a backup.",
            )
        other = self.others.get(head[1:].hex())
        if other is not None:
            return other.unwrap(sealed, context)
        if head[1:].hex() != self.id:
            raise VaultError(
                Code.BAD_KEYS,
                f"The vault was made with master key {head[1:].hex()}, but the key source holds "
                f"{self.id}: point the setting `keys` at the key of this vault, or restore that "
                "key from a backup.",
            )
        try:
            return gcm_open(self._key, rest[:NONCE_BYTES], rest[NONCE_BYTES:], head + context)
        except VaultError:
            raise VaultError(
                Code.BAD_KEYS,
                "The wrapped keys of the vault are damaged: restore the vault from a backup.",
            ) from None
