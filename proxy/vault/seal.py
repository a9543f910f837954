"""The barrier: the one place where clear values and keys meet.

A sealed body is bound to its environment, schema, record and version by associated data, so that a
body moved to another row, or an older body put back, does not open (``VaultError(CANNOT_OPEN)``).
It says as well what its row holds in the clear, and the row's statement (``key_sealed``) says its
key and state. So a column that was changed in the store shows as the row is opened (``Tampered``).
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from proxy.crypto.aead import SALT_BYTES, RecordAead, Seal, cannot_open
from proxy.crypto.prf import fresh_bytes
from proxy.errors import CannotOpen, Code, VaultError
from proxy.storage.rows import File, Past, Row, RowState, Staged, StagedKind, StoredReply
from proxy.vault.body import RecordBody, TokenizedFields, pack, pack_plain, unpack, unpack_values
from proxy.vault.open_columns import BINDS_COLUMNS, OpenColumns, binds_columns, packed_in

# Signed, though none is negative: whatever stands in a column of the store can be packed.
_numbers = struct.Struct(">qq").pack
_instant = struct.Struct(">q")
_pack_instant = _instant.pack
#: The values of a row, and its key where that was asked for.
OpenValues = tuple[TokenizedFields, str]
_LIVE: Final = RowState.LIVE  #: looked up five times slower in its enumeration


class Tampered(CannotOpen):
    """A column differs from the sealed body of its row: the store was changed without a key."""

    def __init__(self) -> None:
        text = (
            "A row of the store has columns that differ from what is sealed in it: somebody "
            "changed it there."
        )
        super().__init__(Code.CANNOT_OPEN, text)


class RecordSealer(msgspec.Struct, eq=False, gc=False):
    """Seals the parts of one record, from its first body to its key, with one key derivation."""

    _seal: Seal
    _scope: bytes
    _rid: int

    def body(self, body: RecordBody, version: int, binding: bytes = b"") -> bytes:
        """The sealed body of a version of the record.

        ``binding`` is what ``OpenColumns.bind`` gives of its row; a past version has none.
        """
        return self._seal(binding + pack(body), b"b" + self._scope + _numbers(self._rid, version))

    def staged(self, staged: Staged, body: RecordBody | None, keep: int | None = None) -> Staged:
        """The staged change with its sealed body (``None``: a delete), bound to its kind and time;
        it does not open as a live one, nor the reverse. ``keep`` is that of a delete.
        """
        clear = pack(body) if body is not None else b"" if keep is None else _instant.pack(keep)
        return Staged(*staged[:-1], self._seal(clear, _of_staged(self._scope, staged)))

    def file(self, clear: bytes, file: File) -> File:
        """Return the file of the record with its sealed metadata.

        It opens for this record, this file, this object and these times only.
        """
        return file._replace(sealed=self._seal(clear, _of_file(self._scope, file)))

    def key(self, key: str, at: int) -> bytes:
        """The statement that the record is live under this key since an instant."""
        context = b"K" + self._scope + _numbers(self._rid, 0)
        return self._seal(_pack_instant(at) + key.encode(), context)

    def unbound(self, state: RowState, at: int) -> bytes:
        """The statement that the record is in this state since an instant and has no key."""
        return self._seal(_pack_instant(at), _of_unbound(self._scope, self._rid, state))


class Sealer:
    """Seals and opens the records of one schema of one environment."""

    def __init__(
        self, aead: RecordAead, environment: str, schema: str, columns: OpenColumns | None = None
    ) -> None:
        self._aead = aead
        self.columns = columns or OpenColumns()
        #: Environment and schema, as everything that is sealed is bound to them.
        self.scope = b"\x00".join((environment.encode(), schema.encode())) + b"\x00"
        self._live = b"b" + self.scope
        self._named = b"K" + self.scope

    @property
    def edition(self) -> object:
        """The same as long as the same keys open what is sealed."""
        return self._aead.edition

    def new_salt(self) -> bytes:
        """A salt for a new record."""
        return fresh_bytes(SALT_BYTES)

    def current(self, sealed: bytes) -> bool:
        """Whether something was sealed with the data key that seals now."""
        return self._aead.current(sealed)

    def knows(self, sealed: bytes) -> bool:
        """Whether the data key that sealed it is there."""
        return self._aead.knows(sealed)

    def record(self, rid: int, salt: bytes) -> RecordSealer:
        """Return the cipher of the bodies and the key of one record."""
        return RecordSealer(self._aead.under(salt), self.scope, rid)

    def begin(
        self, rid: int, values: tuple[TokenizedFields, int], binding: bytes, at: int
    ) -> tuple[bytes, tuple[bytes, bytes], RecordSealer]:
        """A new record of these values, with its next number and without a key: its salt, its
        sealed body and statement, and its cipher.
        """
        statement = _pack_instant(at), b"P" + self.scope + _numbers(rid, 0)
        clear = binding + pack_plain(values), self._live + _numbers(rid, 1)
        salt, sealed, seal = self._aead.begin(clear, statement)
        return salt, sealed, RecordSealer(seal, self.scope, rid)

    def stage(self, one: Staged, salt: bytes, packed: bytes) -> tuple[Staged, RecordSealer]:
        """``RecordSealer.staged`` of a packed body, and the cipher of the record."""
        sid, rid, kind, at, *_ = one
        context = b"S%b%b%b" % (self.scope, _numbers(rid, sid), _numbers(kind, at))
        sealed, seal = self._aead.resume(salt, packed, context)
        return Staged(*one[:-1], sealed), RecordSealer(seal, self.scope, rid)

    def with_body(self, row: Row, body: RecordBody) -> Row:
        """The row with this sealed body, which binds all its columns."""
        context = self._live + _numbers(row.rid, row.version)
        clear = self._binding(row) + pack(body)
        return row._replace(body=self._aead.seal(clear, row.salt, context))

    def past_body(self, row: Row, body: RecordBody, version: int) -> bytes:
        """The sealed body of a past version of the row's record, which never was a row."""
        return self._aead.seal(pack(body), row.salt, self._live + _numbers(row.rid, version))

    def new_body(self, rid: int, body: RecordBody, binding: bytes) -> tuple[bytes, bytes]:
        """Salt and sealed body of a new record: its first version."""
        return self._aead.seal_first(binding + pack(body), self._live + _numbers(rid, 1))

    def new_bodies(
        self, rids: Iterable[int], bodies: Iterable[RecordBody], bindings: Iterable[bytes]
    ) -> list[tuple[bytes, bytes]]:
        """Salt and sealed body of new records with these ids: their first versions."""
        contexts = [self._live + _numbers(rid, 1) for rid in rids]
        plains = [binding + pack(body) for binding, body in zip(bindings, bodies, strict=True)]
        return self._aead.seal_new(plains, contexts)

    def open(self, row: Row | Past) -> RecordBody:
        """The body of a row, or of one of its past versions.

        Raises ``VaultError(CANNOT_OPEN)`` when it was changed, moved or is under another key;
        ``Tampered`` when a column of the row was changed. Key and state are not looked at.
        """
        try:
            context = self._live + _numbers(row.rid, row.version)
        except struct.error:  # a foreign program changed it
            raise Tampered from None
        clear = self._aead.open(row.body, row.salt, context)
        if isinstance(row, Past):
            return unpack(packed_in(clear))
        return self._checked(row, clear)[0]

    def open_with_key(self, row: Row) -> tuple[RecordBody, str | None]:
        """``open`` and ``open_key``, with one key derivation where both were sealed together; the
        row's state and ``updated_at`` are looked at as well.
        """
        try:
            context = self._live + _numbers(row.rid, row.version)
            if row.key_sealed is None:
                return self._checked(row, self._aead.open(row.body, row.salt, context))[0], None
            stated = (
                self._named + _numbers(row.rid, 0)
                if row.state is _LIVE and row.key is not None
                else self._of_statement(row)
            )
        except struct.error:
            raise Tampered from None
        parts = (row.body, context), (row.key_sealed, stated)
        try:
            clear, statement = self._aead.open_together(row.salt, parts)
        except VaultError:
            return self.open(row), self._older_key(row)
        opened, written = self._checked(row, clear)
        if written is not None and row.updated_at not in (written, *_instant.unpack(statement[:8])):
            raise Tampered from None
        return opened, None if row.key is None else statement[8:].decode()

    def open_page(self, rows: Sequence[Row], *, named: bool) -> list[OpenValues | None]:
        """The values of live rows that the proxy has collected, and with ``named`` their keys.

        ``None`` for a row that does not open, whose columns are not what is sealed, or that is of
        another kind: ``open_with_key`` tells which.
        """
        body_of, name_of = self._live, self._named
        try:
            opened = self._aead.open_each(
                [
                    (
                        salt,
                        body,
                        body_of + _numbers(rid, version),
                        sealed if named else None,
                        name_of + _numbers(rid, 0) if named else b"",
                    )
                    for rid, _, sealed, _, version, _, _, _, salt, body, _, _ in rows
                ]
            )
        except (struct.error, TypeError):  # somebody wrote something else there
            return [None] * len(rows)
        contents: list[OpenValues | None] = []
        check = self.columns.check
        for row, one in zip(rows, opened, strict=True):
            clear, statement = one or (b"", b"")
            checked = check(clear, row) if clear[:1] == BINDS_COLUMNS else None
            values = unpack_values(checked[0]) if checked is not None else None
            _, key, sealed, state, _, _, updated, *_ = row
            usual = sealed is not None and key is not None and state is _LIVE
            if usual and named and checked is not None:
                usual = updated in (checked[1], *_instant.unpack(statement[:8]))
            contents.append((values, statement[8:].decode()) if usual and values else None)
        return contents

    def open_staged(self, staged: Staged, salt: bytes) -> RecordBody | None:
        """The body of a staged change of the row, ``None`` for a delete; raises as ``open``."""
        clear = self._staged_plain(staged, salt)
        return None if staged.kind is StagedKind.DELETE else unpack(clear)

    def open_keep(self, staged: Staged, salt: bytes) -> int | None:
        """For how long a staged delete keeps the values (0: until another delete), ``None`` where
        it removes them; raises as ``open``.
        """
        clear = self._staged_plain(staged, salt)
        return None if not clear else int(_instant.unpack(clear)[0])

    def open_file(self, file: File, salt: bytes) -> bytes:
        """Decrypt the metadata of a file of the row with that salt; raises as ``open``."""
        try:
            return self._aead.open(file.sealed, salt, _of_file(self.scope, file))
        except VaultError:
            if self.columns.required:
                raise
        older = self._context(b"f", file.rid, 0)
        return self._aead.open(file.sealed, salt, older + file.file_id + file.object.encode())

    def open_key(self, row: Row) -> str | None:
        """The record's key, or ``None`` while it has none; raises as ``open``."""
        if row.key_sealed is None or row.key is None:
            return None
        try:
            statement = self._aead.open(row.key_sealed, row.salt, self._of_statement(row))
        except VaultError:
            return self._older_key(row)
        return statement[8:].decode()

    def row_again(self, row: Row) -> tuple[bytes, bytes | None]:
        """Re-seal body and statement of a row under the current key, bound to its columns.

        Raises as ``open``.
        """
        context = self._live + _numbers(row.rid, row.version)
        clear = self._aead.open(row.body, row.salt, context)
        older = not binds_columns(clear)
        body = row.body
        if older:
            clear = self._binding(row) + clear
        if older or not self._aead.current(body):
            body = self._aead.seal(clear, row.salt, context)
        return body, self._statement_again(row)

    def past_again(self, past: Past) -> bytes:
        """Re-seal the body of a past version under the current key; raises as ``open``."""
        if self._aead.current(past.body):
            return past.body
        return self._again(past.body, past.salt, self._context(b"b", past.rid, past.version))

    def staged_again(self, staged: Staged, salt: bytes) -> bytes:
        """The same of a staged change of the row with that salt."""
        context = _of_staged(self.scope, staged)
        try:
            return self._again(staged.body, salt, context)
        except VaultError:
            return self._aead.seal(self._staged_plain(staged, salt), salt, context)

    def file_again(self, file: File, salt: bytes) -> bytes:
        """Re-seal the metadata of a file of the row with that salt."""
        context = _of_file(self.scope, file)
        try:
            return self._again(file.sealed, salt, context)
        except VaultError:
            return self._aead.seal(self.open_file(file, salt), salt, context)

    def reply(self, reply: StoredReply, clear: bytes) -> bytes:
        """The sealed answer that a reply keeps: its salt, then the body.

        It opens under this key and digest alone.
        """
        return b"".join(self._aead.seal_first(clear, self._of_reply(reply)))

    def open_reply(self, reply: StoredReply) -> bytes:
        """The answer that a reply keeps; raises as ``open``."""
        return self._aead.open(
            reply.sealed[SALT_BYTES:], reply.sealed[:SALT_BYTES], self._of_reply(reply)
        )

    def _checked(self, row: Row, clear: bytes) -> tuple[RecordBody, int | None]:
        """The body of a row and its own ``updated_at``, if told; raises ``Tampered``."""
        if clear[:1] != BINDS_COLUMNS:
            if self.columns.required:
                raise Tampered
            return unpack(clear), None
        checked = self.columns.check(clear, row)
        if checked is None:
            raise Tampered
        packed, written = checked
        body = unpack(packed)
        if row.key_sealed is None:
            # a record of the interface, whose key is in its fields, has no statement
            own = row.state is _LIVE and row.key is not None and row.updated_at == written
            if not own if body.names_itself else self.columns.required:
                raise Tampered
        return body, written

    def _binding(self, row: Row) -> bytes:
        return self.columns.bind(row.created_at, row.updated_at, row.expires_at, row.cells)

    def _older_key(self, row: Row) -> str | None:
        """Key of a row whose statement is of another version, or outdated. Raises ``Tampered``."""
        sealed = row.key_sealed or b""
        if not self._aead.knows(sealed):
            raise cannot_open()
        if self.columns.required or row.key is None:
            raise Tampered
        try:
            return self._aead.open(sealed, row.salt, self._context(b"k", row.rid, 0)).decode()
        except VaultError:
            raise Tampered from None

    def _staged_plain(self, staged: Staged, salt: bytes) -> bytes:
        try:
            return self._aead.open(staged.body, salt, _of_staged(self.scope, staged))
        except VaultError:
            if self.columns.required:
                raise Tampered from None
        if staged.kind is StagedKind.DELETE and not staged.body:
            return b""
        return self._aead.open(staged.body, salt, self._context(b"s", staged.rid, staged.sid))

    def _statement_again(self, row: Row) -> bytes | None:
        sealed, record = row.key_sealed, self.record(row.rid, row.salt)
        if sealed is None:
            return None if row.key is not None else record.unbound(row.state, row.updated_at)
        try:
            return self._again(sealed, row.salt, self._of_statement(row))
        except VaultError:
            return record.key(self._older_key(row) or "", row.updated_at)

    def _again(self, sealed: bytes, salt: bytes, context: bytes) -> bytes:
        clear = self._aead.open(sealed, salt, context)
        return sealed if self._aead.current(sealed) else self._aead.seal(clear, salt, context)

    def _of_statement(self, row: Row) -> bytes:
        if row.key is None:
            return _of_unbound(self.scope, row.rid, row.state)
        if row.state is not _LIVE:
            raise Tampered
        return b"K%b%b" % (self.scope, _numbers(row.rid, 0))

    def _of_reply(self, reply: StoredReply) -> bytes:
        return b"a%b%b%b" % (self.scope, reply.key, reply.digest)

    def _context(self, part: bytes, rid: int, number: int) -> bytes:
        return b"%b%b%b" % (part, self.scope, _numbers(rid, number))


def _of_unbound(scope: bytes, rid: int, state: RowState) -> bytes:
    return b"%b%b%b" % (b"L" if state is _LIVE else b"P", scope, _numbers(rid, 0))


def _of_staged(scope: bytes, staged: Staged) -> bytes:
    try:
        numbers = _numbers(staged.rid, staged.sid) + _numbers(staged.kind, staged.at)
    except struct.error:
        raise Tampered from None
    return b"S%b%b" % (scope, numbers)


def _of_file(scope: bytes, file: File) -> bytes:
    try:
        numbers = _numbers(file.rid, file.size) + _numbers(file.created_at, file.updated_at)
    except struct.error:
        raise Tampered from None
    return b"F%b%b%b%b%b" % (scope, numbers, file.file_id, file.name, file.object.encode())
