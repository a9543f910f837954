"""Sealing of record bodies with AES-256-GCM (NIST SP 800-38D), one key a record.

A sealed body is, byte by byte::

    0      format, 0x01
    1..4   id of the data key
    5..16  nonce, 96 random bits
    17..   ciphertext, then the 16-byte tag

The key of a record is HMAC-SHA-256(data key, label and salt), which is HKDF-Expand of one block.
Deleting the 16-byte salt shreds the record: copies of its body in backups never open again,
although the data key lives on. The associated data is the first five bytes and the caller's
context.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.crypto.prf import Prf, fresh_bytes, keyed, random_bytes, random_pieces
from proxy.crypto.secret import Secret
from proxy.errors import Code, VaultError

#: Sealings under one data key after which it is to be rotated. Random nonces bound one AES-GCM key
#: to 2^32 sealings (SP 800-38D, section 8.3). Here each record has its own key, so even this number
#: is far from that edge.
MOST_SEALINGS = 2**28

SALT_BYTES = 16
NONCE_BYTES = 12
TAG_BYTES = 16
KEY_ID_BYTES = 4

_FORMAT = 0x01
#: Bytes at the beginning that tell the format and the data key.
HEAD_BYTES = _HEAD_BYTES = 1 + KEY_ID_BYTES
_BODY_FROM = _HEAD_BYTES + NONCE_BYTES
_LABEL = b"domicile record key/1"

#: Seals a body (plain, context) under the key of one record.
Seal = Callable[[bytes, bytes], bytes]
#: What seals now: head and derivation.
_Sealing = tuple[bytes, Prf]
#: AES-GCM under the key of one record: nonce, plain, associated data.
_Encrypt = Callable[[bytes, bytes, bytes], bytes]
_EXPAND = b"\x01"  # number of the one block of HKDF-Expand
#: The nonces of the first two parts of a record, drawn with its salt.
_FIRST = slice(SALT_BYTES, SALT_BYTES + NONCE_BYTES)
_SECOND = slice(SALT_BYTES + NONCE_BYTES, None)


class RecordAead(Secret):
    """Seals and opens record bodies: the primary data key seals, every data key of the keyset
    opens.

    ``sealings`` counts the bodies sealed through this object with the present key; compare their
    sum with ``MOST_SEALINGS``.
    """

    __slots__ = ("_derivers", "_last", "_sealing", "edition", "sealings")

    def __init__(self, primary: bytes, keys: Mapping[bytes, bytes]) -> None:
        self.adopt(primary, keys)

    def adopt(self, primary: bytes, keys: Mapping[bytes, bytes]) -> None:
        """Seal with that data key from now on, and open with all of these."""
        self._derivers: dict[bytes, Prf] = {
            _head(key_id): keyed(key) for key_id, key in keys.items()
        }
        # one object: head and key never part
        self._sealing = _head(primary), self._derivers[_head(primary)]
        self.sealings = 0
        self.edition = object()  #: another one with each change of the keys
        self._last = b"", b"", AESGCM(bytes(32))  #: head, salt and cipher of the record last used

    def open_also(self, keys: Mapping[bytes, bytes]) -> None:
        """Open with these data keys as well; another one seals."""
        self._derivers |= {
            _head(key_id): keyed(key)
            for key_id, key in keys.items()
            if _head(key_id) not in self._derivers
        }

    @property
    def primary(self) -> str:
        """Id of the data key that seals, in hexadecimal; not secret."""
        return self._sealing[0][1:].hex()

    def current(self, sealed: bytes) -> bool:
        """Whether a body was sealed with the data key that seals now."""
        return sealed[:_HEAD_BYTES] == self._sealing[0]

    def knows(self, sealed: bytes) -> bool:
        """Whether it begins as something does that a data key of this keyset has sealed."""
        return sealed[:_HEAD_BYTES] in self._derivers

    def seal(self, plaintext: bytes, salt: bytes, context: bytes) -> bytes:
        """The sealed body.

        ``salt`` is the record's 16 random bytes; ``context`` binds the body to its place.
        """
        if len(salt) != SALT_BYTES:
            raise ValueError(f"a salt is {SALT_BYTES} bytes")
        (head, derive), nonce = self._sealing, fresh_bytes(NONCE_BYTES)
        self.sealings += 1
        encrypt = self._cipher(head, derive, salt).encrypt
        return head + nonce + encrypt(nonce, plaintext, head + context)

    def _cipher(self, head: bytes, derive: Prf, salt: bytes) -> AESGCM:
        """The cipher of a record; whoever opened it often seals it next."""
        last = self._last  # one object: another thread may replace it
        if last[1] != salt or last[0] != head:
            key = derive(_LABEL + salt + _EXPAND)
            last = self._last = head, salt, AESGCM(key)
        return last[2]

    def seal_new(
        self, plains: Sequence[bytes], contexts: Iterable[bytes]
    ) -> list[tuple[bytes, bytes]]:
        """``seal`` for records that are made together: (new salt, sealed body) of each."""
        count, (head, derive) = len(plains), self._sealing
        drawn = random_pieces(2 * count)
        self.sealings += count
        sealed_pieces: list[tuple[bytes, bytes]] = []
        for plaintext, context, salt, piece in zip(
            plains, contexts, drawn[:count], drawn[count:], strict=True
        ):
            nonce = piece[:NONCE_BYTES]
            key = derive(_LABEL + salt + _EXPAND)
            sealed_pieces.append(
                (salt, head + nonce + AESGCM(key).encrypt(nonce, plaintext, head + context))
            )
        return sealed_pieces

    def seal_first(self, plaintext: bytes, context: bytes) -> tuple[bytes, bytes]:
        """``seal_new`` for one record."""
        (head, derive), drawn = self._sealing, fresh_bytes(SALT_BYTES + NONCE_BYTES)
        salt, nonce = drawn[:SALT_BYTES], drawn[SALT_BYTES:]
        encrypt = AESGCM(derive(_LABEL + salt + _EXPAND)).encrypt
        self.sealings += 1
        return salt, head + nonce + encrypt(nonce, plaintext, head + context)

    def under(self, salt: bytes) -> Seal:
        """``seal`` for several parts of one record: its key is derived once, or adopted."""
        if len(salt) != SALT_BYTES:
            raise ValueError(f"a salt is {SALT_BYTES} bytes")
        sealing = head, derive = self._sealing
        last = self._last  # looked at here: a call less with each write
        same = last[1] == salt and last[0] == head
        encrypt = (last[2] if same else self._cipher(head, derive, salt)).encrypt
        return partial(self._seal_more, sealing, salt, encrypt)

    def resume(self, salt: bytes, plaintext: bytes, context: bytes) -> tuple[bytes, Seal]:
        """A further part of a record with that salt, sealed, and what ``under`` gives for more."""
        sealing = head, derive = self._sealing
        last = self._last
        same = last[1] == salt and last[0] == head
        encrypt = (last[2] if same else self._cipher(head, derive, salt)).encrypt
        nonce = fresh_bytes(NONCE_BYTES)
        self.sealings += 1
        sealed = head + nonce + encrypt(nonce, plaintext, head + context)
        return sealed, partial(self._seal_more, sealing, salt, encrypt)

    def _seal_more(
        self, sealing: _Sealing, salt: bytes, encrypt: _Encrypt, plaintext: bytes, context: bytes
    ) -> bytes:
        """``seal`` of a further part, unless the keys have changed since ``sealing``."""
        if self._sealing is not sealing:
            return self.seal(plaintext, salt, context)
        head, nonce = sealing[0], fresh_bytes(NONCE_BYTES)
        self.sealings += 1
        return head + nonce + encrypt(nonce, plaintext, head + context)

    def begin(
        self, body: tuple[bytes, bytes], statement: tuple[bytes, bytes]
    ) -> tuple[bytes, tuple[bytes, bytes], Seal]:
        """A new record: its salt, its first two parts (plain, context) sealed, and what ``under``
        gives for more of them.
        """
        sealing = head, derive = self._sealing
        drawn = fresh_bytes(SALT_BYTES + 2 * NONCE_BYTES)  # a call of the kernel for all three
        salt, first, second = drawn[:SALT_BYTES], drawn[_FIRST], drawn[_SECOND]
        cipher = AESGCM(derive(_LABEL + salt + _EXPAND))
        self._last, encrypt = (head, salt, cipher), cipher.encrypt
        self.sealings += 2
        sealed = (
            head + first + encrypt(first, body[0], head + body[1]),
            head + second + encrypt(second, statement[0], head + statement[1]),
        )
        return salt, sealed, partial(self._seal_more, sealing, salt, encrypt)

    def open(self, sealed: bytes, salt: bytes, context: bytes) -> bytes:
        """The body in the clear.

        ``VaultError(CANNOT_OPEN)`` whatever the reason: changed, cut, moved, other key.
        """
        head = sealed[:_HEAD_BYTES]
        derive = self._derivers.get(head)
        if derive is None:
            raise cannot_open()
        decrypt = self._cipher(head, derive, salt).decrypt
        try:
            return decrypt(sealed[_HEAD_BYTES:_BODY_FROM], sealed[_BODY_FROM:], head + context)
        except (InvalidTag, ValueError):
            raise cannot_open() from None

    def open_each(
        self, parts: Iterable[tuple[bytes, bytes, bytes, bytes | None, bytes]]
    ) -> list[tuple[bytes, bytes] | None]:
        """``open`` for many records: of each its salt, a body with its context, and whatever else
        is to be opened with it, ``None`` for nothing. ``None`` for a record of which either does
        not open.
        """
        derivers, opened = self._derivers, list[tuple[bytes, bytes] | None]()
        for salt, sealed, context, other, other_context in parts:
            head, clear = sealed[:_HEAD_BYTES], b""
            try:
                decrypt = AESGCM(derivers[head](_LABEL + salt + _EXPAND)).decrypt
                body = decrypt(sealed[_HEAD_BYTES:_BODY_FROM], sealed[_BODY_FROM:], head + context)
                if other is not None and other[:_HEAD_BYTES] == head:
                    text = other[_BODY_FROM:]
                    clear = decrypt(other[_HEAD_BYTES:_BODY_FROM], text, head + other_context)
                elif other is not None:
                    clear = self.open(other, salt, other_context)
            except (KeyError, InvalidTag, ValueError, VaultError):
                opened.append(None)
                continue
            opened.append((body, clear))
        return opened

    def open_together(self, salt: bytes, parts: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """``open`` for several (sealed, context) of one record: each data key derives once."""
        opened: list[bytes] = []
        last, decrypt = b"", None
        for sealed, context in parts:
            head = sealed[:_HEAD_BYTES]
            if decrypt is None or head != last:
                derive = self._derivers.get(head)
                if derive is None:
                    raise cannot_open()
                last, decrypt = head, self._cipher(head, derive, salt).decrypt
            try:
                opened.append(
                    decrypt(sealed[_HEAD_BYTES:_BODY_FROM], sealed[_BODY_FROM:], head + context)
                )
            except (InvalidTag, ValueError):
                raise cannot_open() from None
        return opened


def gcm_seal(key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """AES-GCM: ciphertext followed by the 16-byte tag. A nonce serves once under a key."""
    return AESGCM(key).encrypt(nonce, plaintext, associated)


def gcm_open(key: bytes, nonce: bytes, sealed: bytes, associated: bytes) -> bytes:
    """The inverse of ``gcm_seal``; ``VaultError(CANNOT_OPEN)`` when anything does not fit."""
    try:
        return AESGCM(key).decrypt(nonce, sealed, associated)
    except (InvalidTag, ValueError):
        raise cannot_open() from None


def cannot_open() -> VaultError:
    """The one answer to everything that does not open; it tells an attacker nothing about why."""
    return VaultError(
        Code.CANNOT_OPEN,
        "A sealed body does not open: it was changed or moved, or it belongs to another keyset. "
        "Restore it, or the keys that sealed it, from a backup.",
    )


def sealed_prefix(key: str) -> bytes:
    """Return the prefix of every body and stream that is sealed by the data key of this id."""
    return _head(bytes.fromhex(key))


def sealed_by(sealed: bytes) -> str:
    """The id of the data key that a body or a stream says it was sealed with."""
    return sealed[1:_HEAD_BYTES].hex()


def _head(key_id: bytes) -> bytes:
    return bytes((_FORMAT,)) + key_id


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

_TEXT_FORMAT = b"\x01"
_TEXT_FROM = 1 + NONCE_BYTES


class SealedTexts(Secret):
    """Seals texts under the first of its keys of 32 bytes, and opens those of each."""

    __slots__ = ("__weakref__", "_keys")

    def __init__(self, *keys: bytes) -> None:
        self.turn(keys)

    def turn(self, keys: Sequence[bytes]) -> None:
        """Have these keys."""
        self._keys = keys

    def seal(self, plaintext: bytes, context: bytes) -> str:
        """The content as a text of letters, digits, ``-`` and ``_``."""
        nonce = random_bytes(NONCE_BYTES)
        sealed = (
            _TEXT_FORMAT + nonce + gcm_seal(self._keys[0], nonce, plaintext, _TEXT_FORMAT + context)
        )
        return _spelled(sealed)

    def open(self, text: str, context: bytes) -> bytes:
        """The content. ``VaultError(CANNOT_OPEN)``: changed, cut, of another key or context."""
        try:
            sealed = base64.b64decode(
                text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True
            )
        except (ValueError, binascii.Error):
            raise cannot_open() from None
        # the last letter has bits that mean nothing
        if sealed[:1] != _TEXT_FORMAT or _spelled(sealed) != text:
            raise cannot_open()
        nonce, content = sealed[1:_TEXT_FROM], sealed[_TEXT_FROM:]
        for key in self._keys[:-1]:
            with suppress(VaultError):
                return gcm_open(key, nonce, content, _TEXT_FORMAT + context)
        return gcm_open(self._keys[-1], nonce, content, _TEXT_FORMAT + context)


def _spelled(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()
