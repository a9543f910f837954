"""The barrier: the one place where clear values and keys meet.

A sealed body is bound to its environment, schema, record and version by associated data, so that a body moved
to another row, or an older body put back, does not open (``VaultError(CANNOT_OPEN)``).
"""

from proxy.crypto.aead import RecordAead
from proxy.crypto.randomness import random_bytes
from proxy.storage.base import Row, Staged
from proxy.vault.content import Content, pack, unpack

#: Bytes of salt of a record; without its salt the record's body never opens again (crypto-shredding).
SALT_BYTES = 16


class Sealer:
    """Seals and opens the records of one schema of one environment."""

    def __init__(self, aead: RecordAead, environment: str, schema: str) -> None:
        self._aead = aead
        self._scope = b"\x00".join((environment.encode(), schema.encode())) + b"\x00"

    def new_salt(self) -> bytes:
        """A salt for a new record."""
        return random_bytes(SALT_BYTES)

    def body(self, content: Content, rid: int, version: int, salt: bytes) -> bytes:
        """The sealed body of a version of a record."""
        return self._aead.seal(pack(content), salt, self._context(b"b", rid, version))

    def staged_body(self, content: Content, rid: int, sid: int, salt: bytes) -> bytes:
        """The sealed body of a staged change; it does not open as a live one, nor the reverse."""
        return self._aead.seal(pack(content), salt, self._context(b"s", rid, sid))

    def record_key(self, key: str, rid: int, salt: bytes) -> bytes:
        """The record's key as the application names it, sealed beside the body."""
        return self._aead.seal(key.encode(), salt, self._context(b"k", rid, 0))

    def open(self, row: Row) -> Content:
        """The values of a row; ``VaultError(CANNOT_OPEN)`` when it was changed, moved or is under another key."""
        return unpack(self._aead.open(row.body, row.salt, self._context(b"b", row.rid, row.version)))

    def open_staged(self, staged: Staged, salt: bytes) -> Content:
        """The values of a staged update of the row with that salt."""
        return unpack(self._aead.open(staged.body, salt, self._context(b"s", staged.rid, staged.sid)))

    def open_key(self, row: Row) -> str | None:
        """The record's key, or ``None`` while it has none."""
        if row.key_sealed is None:
            return None
        return self._aead.open(row.key_sealed, row.salt, self._context(b"k", row.rid, 0)).decode()

    def _context(self, part: bytes, rid: int, number: int) -> bytes:
        return part + self._scope + rid.to_bytes(8, "big") + number.to_bytes(8, "big")
