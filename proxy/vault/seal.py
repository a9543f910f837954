"""The barrier: the one place where clear values and keys meet.

A sealed body is bound to its environment, schema, record and version by associated data, so that a
body moved to another row, or an older body put back, does not open (``VaultError(CANNOT_OPEN)``).
"""

import struct
from collections.abc import Iterable

from proxy.crypto.aead import SALT_BYTES, RecordAead, Seal
from proxy.crypto.prf import random_bytes
from proxy.errors import Code, VaultError
from proxy.storage.rows import File, Past, Row, Staged, StoredReply
from proxy.vault.body import RecordBody, pack, unpack

_numbers = struct.Struct(">QQ").pack


class Tampered(VaultError):
    """A row opens, and one of its columns is not what was sealed: somebody wrote to the store
    without a key.
    """

    def __init__(self) -> None:
        text = (
            "A row of the store has columns that differ from what is sealed in it: somebody "
            "changed it there."
        )
        super().__init__(Code.CANNOT_OPEN, text)


class RecordSealer:
    """Seals what belongs to one record: kept from its first body to its key, so that both take one
    key derivation.
    """

    __slots__ = ("_rid", "_scope", "_seal")

    def __init__(self, seal: Seal, scope: bytes, rid: int) -> None:
        self._seal = seal
        self._scope = scope
        self._rid = rid

    def body(self, body: RecordBody, version: int) -> bytes:
        """The sealed body of a version of the record."""
        return self._seal(pack(body), b"b" + self._scope + _numbers(self._rid, version))

    def staged_body(self, body: RecordBody, sid: int) -> bytes:
        """The sealed body of a staged change; it does not open as a live one, nor the reverse."""
        return self._seal(pack(body), b"s" + self._scope + _numbers(self._rid, sid))

    def file(self, plain: bytes, file_id: bytes, name: str) -> bytes:
        """What is known of a file of the record; it opens for this record, this file and this
        object alone.
        """
        return self._seal(
            plain, b"f%b%b%b%b" % (self._scope, _numbers(self._rid, 0), file_id, name.encode())
        )

    def key(self, key: str) -> bytes:
        """The record's key as the application names it, sealed beside the body."""
        return self._seal(key.encode(), b"k%b%b" % (self._scope, _numbers(self._rid, 0)))


class Sealer:
    """Seals and opens the records of one schema of one environment."""

    def __init__(self, aead: RecordAead, environment: str, schema: str) -> None:
        self._aead = aead
        #: Environment and schema, as everything that is sealed is bound to them.
        self.scope = b"\x00".join((environment.encode(), schema.encode())) + b"\x00"
        self._live, self._staged = b"b" + self.scope, b"s" + self.scope

    def new_salt(self) -> bytes:
        """A salt for a new record."""
        return random_bytes(SALT_BYTES)

    def current(self, sealed: bytes) -> bool:
        """Whether something was sealed with the data key that seals now."""
        return self._aead.current(sealed)

    def record(self, rid: int, salt: bytes) -> RecordSealer:
        """What seals the bodies and the key of one record."""
        return RecordSealer(self._aead.under(salt), self.scope, rid)

    def body(self, row: tuple[int, bytes], body: RecordBody, version: int) -> bytes:
        """The sealed body of a version of the record with that id and salt."""
        rid, salt = row
        return self._aead.seal(pack(body), salt, self._live + _numbers(rid, version))

    def new_bodies(
        self, rids: Iterable[int], bodies: Iterable[RecordBody]
    ) -> list[tuple[bytes, bytes]]:
        """Salt and sealed body of new records with these ids: their first versions."""
        contexts = [self._live + _numbers(rid, 1) for rid in rids]
        return self._aead.seal_new(list(map(pack, bodies)), contexts)

    def open(self, row: Row | Past) -> RecordBody:
        """The body of a row, or of one of its past versions.

        Raises ``VaultError(CANNOT_OPEN)`` when it was changed, moved or is under another key.
        """
        context = self._live + _numbers(row.rid, row.version)
        return unpack(self._aead.open(row.body, row.salt, context))

    def open_with_key(self, row: Row) -> tuple[RecordBody, str | None]:
        """``open`` and ``open_key``, with one key derivation where both were sealed together."""
        if row.key_sealed is None:
            return self.open(row), None
        parts = (
            (row.body, self._live + _numbers(row.rid, row.version)),
            (row.key_sealed, self._context(b"k", row.rid, 0)),
        )
        body, key = self._aead.open_together(row.salt, parts)
        return unpack(body), key.decode()

    def open_staged(self, staged: Staged, salt: bytes) -> RecordBody:
        """The body of a staged update of the row with that salt; raises as ``open``."""
        context = self._staged + _numbers(staged.rid, staged.sid)
        return unpack(self._aead.open(staged.body, salt, context))

    def open_file(self, file: File, salt: bytes) -> bytes:
        """What is known of a file of the row with that salt; raises as ``open``."""
        return self._aead.open(file.sealed, salt, self._of_file(file))

    def open_key(self, row: Row) -> str | None:
        """The record's key, or ``None`` while it has none."""
        if row.key_sealed is None:
            return None
        return self._aead.open(row.key_sealed, row.salt, self._context(b"k", row.rid, 0)).decode()

    def row_again(self, row: Row) -> tuple[bytes, bytes | None]:
        """Body and key of a row, sealed with the key of now; raises as ``open``."""
        body = self._again(row.body, row.salt, self._context(b"b", row.rid, row.version))
        if row.key_sealed is None:
            return body, None
        return body, self._again(row.key_sealed, row.salt, self._context(b"k", row.rid, 0))

    def past_again(self, past: Past) -> bytes:
        """The body of a past version, sealed with the key of now; raises as ``open``."""
        return self._again(past.body, past.salt, self._context(b"b", past.rid, past.version))

    def staged_again(self, staged: Staged, salt: bytes) -> bytes:
        """The same of a staged change of the row with that salt."""
        return self._again(staged.body, salt, self._context(b"s", staged.rid, staged.sid))

    def file_again(self, file: File, salt: bytes) -> bytes:
        """The same of what is known of a file of the row with that salt."""
        return self._again(file.sealed, salt, self._of_file(file))

    def reply(self, reply: StoredReply, plain: bytes) -> bytes:
        """The sealed answer that a reply keeps: its salt, then the body.

        It opens under this key and digest alone.
        """
        salt = self.new_salt()
        return salt + self._aead.seal(plain, salt, self._of_reply(reply))

    def open_reply(self, reply: StoredReply) -> bytes:
        """The answer that a reply keeps; raises as ``open``."""
        return self._aead.open(
            reply.sealed[SALT_BYTES:], reply.sealed[:SALT_BYTES], self._of_reply(reply)
        )

    def _again(self, sealed: bytes, salt: bytes, context: bytes) -> bytes:
        if self._aead.current(sealed):
            return sealed
        return self._aead.seal(self._aead.open(sealed, salt, context), salt, context)

    def _of_file(self, file: File) -> bytes:
        return b"%b%b%b" % (self._context(b"f", file.rid, 0), file.file_id, file.object.encode())

    def _of_reply(self, reply: StoredReply) -> bytes:
        return b"a%b%b%b" % (self.scope, reply.key, reply.digest)

    def _context(self, part: bytes, rid: int, number: int) -> bytes:
        return b"%b%b%b" % (part, self.scope, _numbers(rid, number))
