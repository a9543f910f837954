"""Sealing of contents of any length in chunks, after the STREAM construction.

Hoang, Reyhanitabar, Rogaway, Vizár: Online Authenticated-Encryption and its Nonce-Reuse
Misuse-Resistance (CRYPTO 2015),
section 7. AES-256-GCM (NIST SP 800-38D), one key a content. A sealed stream is, byte by byte::

    0       format, 0x01
    1..4    id of the data key
    5..11   prefix of all nonces, 56 random bits
    12..    chunks of 65,536 bytes of content and a tag of 16 bytes; the last one is shorter or
            as long (0 bytes only in an empty content)

The nonce of a chunk is the prefix, its number in 4 bytes, and one byte: 0x01 for the last chunk,
else 0x00. So a chunk opens only at its own position, and cuts, moves, exchanges, repetitions or
additions make it fail. The associated data of every chunk is the first five bytes and the caller's
context.

The key is HMAC-SHA-256(data key, label and salt), which is HKDF-Expand of one block. The salt is
not part of the stream: who deletes it, wherever he keeps it, shreds every copy of the content,
although the data key lives on.

Each chunk opens alone. The length tells which one is the last, so the caller knows the length from
an authentic source, or opens the last chunk too.
"""

import contextlib
import io
import os
from collections.abc import Mapping
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.crypto.aead import KEY_ID_BYTES, SALT_BYTES, TAG_BYTES, cannot_open
from proxy.crypto.prf import Prf, keyed
from proxy.crypto.secret import Secret

#: Bytes of content in each chunk but the last: enough that the call and the tag cost little, few
#: enough that a short range opens quickly.
CHUNK = 65_536
SEALED_CHUNK = CHUNK + TAG_BYTES
HEADER_BYTES = 12
#: Bytes of the line before a stream that takes the rest of a file.
LONGEST_HEAD = 4096

_FORMAT = 0x01
_PREFIX_BYTES = 7
_HEAD_BYTES = 1 + KEY_ID_BYTES
_LABEL = b"domicile stream key/1"
_EXPAND = b"\x01"  # number of the one block of HKDF-Expand


class StreamAead(Secret):
    """Seals and opens streams: the primary data key seals, every data key of the keyset opens."""

    __slots__ = ("_derivers", "_head")

    def __init__(self, primary: bytes, keys: Mapping[bytes, bytes]) -> None:
        self.adopt(primary, keys)

    def adopt(self, primary: bytes, keys: Mapping[bytes, bytes]) -> None:
        """Seal with that data key from now on, and open with all of these; streams under way end
        with the key they began with.
        """
        self._derivers: dict[bytes, Prf] = {
            _head(key_id): keyed(key) for key_id, key in keys.items()
        }
        self._head = _head(primary)

    def open_also(self, keys: Mapping[bytes, bytes]) -> None:
        """Open with these data keys as well; another one seals."""
        self._derivers |= {
            _head(key_id): keyed(key)
            for key_id, key in keys.items()
            if _head(key_id) not in self._derivers
        }

    def current(self, header: bytes) -> bool:
        """Whether the content with that header was sealed with the data key that seals now."""
        return header[:_HEAD_BYTES] == self._head

    def sealer(self, salt: bytes, context: bytes, prefix: bytes | None = None) -> "StreamSealer":
        """Return a cipher that seals one content.

        ``salt`` is 16 random bytes, used once; ``context`` binds the content to its place.

        ``prefix`` is for known answers alone; without it, it is drawn.
        """
        if len(salt) != SALT_BYTES:
            raise ValueError(f"a salt is {SALT_BYTES} bytes")
        head = self._head
        header = head + (os.urandom(_PREFIX_BYTES) if prefix is None else prefix)
        return StreamSealer(self._cipher(head, salt), header, context)

    def opener(self, header: bytes, salt: bytes, context: bytes) -> "StreamOpener":
        """Return a cipher that opens chunks of the content with this header.

        ``VaultError(CANNOT_OPEN)`` for one that is none of ours.
        """
        head = header[:_HEAD_BYTES]
        if len(header) != HEADER_BYTES or head not in self._derivers:
            raise cannot_open()
        return StreamOpener(self._cipher(head, salt), header, context)

    def _cipher(self, head: bytes, salt: bytes) -> AESGCM:
        return AESGCM(self._derivers[head](b"%b%b%b" % (_LABEL, salt, _EXPAND)))


class StreamSealer(Secret):
    """Seals one content from its first byte to its last; for one thread at a time."""

    __slots__ = ("_associated", "_cipher", "_number", "_prefix", "_rest", "_sealed", "header")

    def __init__(self, cipher: AESGCM, header: bytes, context: bytes) -> None:
        self.header = header  #: comes before the chunks
        self._cipher: AESGCM | None = cipher
        self._prefix = header[_HEAD_BYTES:]
        self._associated = header[:_HEAD_BYTES] + context
        self._rest = b""  # at most one chunk, which may turn out to be the last
        self._number = 0
        self._sealed = memoryview(
            b""
        )  # where chunks are sealed, over and over: memory that is new costs more than the cipher

    def update(self, content: bytes | bytearray | memoryview) -> memoryview:
        """The chunks that are complete and not the last, valid until the next call."""
        count = max(0, len(self._rest) + len(content) - 1) // CHUNK
        if not count:
            self._rest += content
            return self._sealed[:0]
        if len(self._sealed) < count * SEALED_CHUNK:
            self._sealed = memoryview(bytearray(count * SEALED_CHUNK))
        view, at = memoryview(content), CHUNK - len(self._rest)
        self._seal(self._rest + view[:at], self._sealed[:SEALED_CHUNK], last=False)
        for start in range(SEALED_CHUNK, count * SEALED_CHUNK, SEALED_CHUNK):
            self._seal(
                view[at : at + CHUNK], self._sealed[start : start + SEALED_CHUNK], last=False
            )
            at += CHUNK
        self._rest = bytes(view[at:])
        return self._sealed[: count * SEALED_CHUNK]

    def finish(self) -> bytes:
        """The last chunk. Nothing can be sealed after it."""
        sealed = bytearray(len(self._rest) + TAG_BYTES)
        self._seal(self._rest, sealed, last=True)
        self._cipher, self._rest = None, b""
        return bytes(sealed)

    def _seal(
        self, plaintext: bytes | memoryview, sealed: bytearray | memoryview, *, last: bool
    ) -> None:
        if self._cipher is None or self._number >> 32:
            raise ValueError("the stream is at its end")
        nonce = _nonce(self._prefix, self._number, last)
        self._number += 1
        self._cipher.encrypt_into(nonce, plaintext, self._associated, sealed)


class StreamOpener(Secret):
    """Opens the chunks of one content, in any order."""

    __slots__ = ("_associated", "_cipher", "_prefix")

    def __init__(self, cipher: AESGCM, header: bytes, context: bytes) -> None:
        self._cipher = cipher
        self._prefix = header[_HEAD_BYTES:]
        self._associated = header[:_HEAD_BYTES] + context

    def chunk(self, number: int, sealed: bytes | memoryview, *, last: bool) -> bytes:
        """The content of a chunk.

        ``VaultError(CANNOT_OPEN)`` when it is not exactly that chunk of this content.
        """
        least = SEALED_CHUNK if not last else TAG_BYTES + (number > 0)
        if not least <= len(sealed) <= SEALED_CHUNK or number >> 32:
            raise cannot_open()
        try:
            return self._cipher.decrypt(
                _nonce(self._prefix, number, last), sealed, self._associated
            )
        except (InvalidTag, ValueError):
            raise cannot_open() from None


class SealedReader(io.RawIOBase):
    """The content of a sealed stream that takes the rest of a file, opened chunk by chunk; its
    first line, to which the stream is bound, says what it is.

    Nothing is given that is not authentic. Reading raises ``VaultError(CANNOT_OPEN)`` where the
    file was changed or cut, or belongs to other keys. Owns the file.
    """

    def __init__(self, file: BinaryIO, aead: StreamAead, salt: bytes) -> None:
        super().__init__()
        with contextlib.ExitStack() as stack:
            stack.callback(file.close)
            line = file.readline(LONGEST_HEAD)
            self._opener = aead.opener(file.read(HEADER_BYTES), salt, line)
            self._sealed = file.read(SEALED_CHUNK)
            stack.pop_all()
        self._file = file
        self._number = 0
        self._opened = b""
        self._over = False

    def readable(self) -> bool:
        """As files say it."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # what readers hand over
        """Fill as much as one chunk gives; 0 at the end."""
        while not self._opened and not self._over:
            self._next()
        taken = self._opened[: len(buffer)]
        buffer[: len(taken)] = taken
        self._opened = self._opened[len(taken) :]
        return len(taken)

    def close(self) -> None:
        """Close the file too."""
        self._file.close()
        super().close()

    def _next(self) -> None:
        following = self._file.read(SEALED_CHUNK)
        self._over = not following
        self._opened = self._opener.chunk(self._number, self._sealed, last=self._over)
        self._number += 1
        self._sealed = following


def chunks(size: int) -> int:
    """Return the number of chunks of a content of ``size`` bytes."""
    return max(1, -(-size // CHUNK))


def sealed_size(size: int) -> int:
    """Size of the sealed stream of a content of ``size`` bytes."""
    return HEADER_BYTES + size + chunks(size) * TAG_BYTES


def _nonce(prefix: bytes, number: int, last: bool) -> bytes:
    return b"%b%b%b" % (prefix, number.to_bytes(4, "big"), b"\x01" if last else b"\x00")


def _head(key_id: bytes) -> bytes:
    return bytes((_FORMAT,)) + key_id
