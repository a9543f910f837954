"""Texts that callers keep for us and hand back, as cursors: nobody else can read, change or make one (AES-256-GCM).

A text is base64url (RFC 4648, section 5, without padding) of, byte by byte::

    0      format, 0x01
    1..12  nonce, 96 random bits
    13..   ciphertext, then the 16-byte tag

The associated data is the format and the caller's context: a text opens only in the context for which it was sealed.
"""

import base64
import binascii

from proxy.crypto.aead import NONCE_BYTES, cannot_open, gcm_open, gcm_seal
from proxy.crypto.randomness import random_bytes
from proxy.crypto.secret import Secret

_FORMAT = b"\x01"
_BODY_FROM = 1 + NONCE_BYTES


class SealedTexts(Secret):
    """Seals and opens texts under one key of 32 bytes."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, plain: bytes, context: bytes) -> str:
        """The content as a text of letters, digits, ``-`` and ``_``."""
        nonce = random_bytes(NONCE_BYTES)
        sealed = _FORMAT + nonce + gcm_seal(self._key, nonce, plain, _FORMAT + context)
        return _spelled(sealed)

    def open(self, text: str, context: bytes) -> bytes:
        """The content. ``VaultError(CANNOT_OPEN)`` whatever the reason: changed, cut, another key or another context."""
        try:
            sealed = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise cannot_open() from None
        if sealed[:1] != _FORMAT or _spelled(sealed) != text:  # the last letter has bits that mean nothing
            raise cannot_open()
        return gcm_open(self._key, sealed[1:_BODY_FROM], sealed[_BODY_FROM:], _FORMAT + context)


def _spelled(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()
