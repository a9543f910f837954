"""Records of one schema as rows: sealed bodies, their columns and index entries, and opening.

The use cases (``write``, ``find``, ``aggregate`` …) work with ``Record`` and ``RecordDraft``; the
store has ``Row``. This file translates, as ``collection`` does for proxied records, and it reads
those rows too: an entity of a rule file is a schema.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from hashlib import blake2b
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET

from proxy.audit.events import AuditContext, AuditEvent, EventKind
from proxy.auth.external_acl import AclDecisions
from proxy.errors import CannotOpen
from proxy.model import conformed
from proxy.model.policy import Act
from proxy.model.record import Action, Eras, Fields, Record, RecordDraft
from proxy.model.rights import FULL, Rights
from proxy.model.schema import KEPT_AS, RECORD_KEY, RECORDS_SCHEMA, FieldType, Schema, is_collected
from proxy.storage.rows import Past, Row, RowState
from proxy.vault.body import NO_EXTRAS, NO_VALUES, Extras, RecordBody, array_of, era_of, texts_of
from proxy.vault.collection import Collection
from proxy.vault.records.columns import Columns
from proxy.vault.seal import Tampered

#: Members of enumerations, which are looked up five times slower there.
_CREATE, _LIVE = Action.CREATE, RowState.LIVE
_key_of, _fields_of = attrgetter("key"), attrgetter("fields")


class Records(Columns):
    """The records of one schema; ``collection`` has their keys and their table."""

    def __init__(self, collection: Collection) -> None:
        super().__init__(collection)
        self.rights: Rights = FULL  #: of the caller; ``under`` sets others
        #: the filter endpoint that decides about each record, where there is one
        self.gate: AclDecisions | None = None
        #: audit context of the caller's request; ``None`` for background work
        self.audit: AuditContext | None = None
        #: raises unless a conditional request may change a record as it is (``None``: none)
        self.condition: Callable[[Record | None], None] | None = None
        self._entity_tag = collection.context.keyset.hasher("etag", self.schema.name)
        form = msgspec.msgpack.encode([self.schema.name, *map(repr, self.schema.fields)])
        self._form = blake2b(form, digest_size=16).digest()
        self.field_names = tuple(field.name for field in self.schema.fields)
        self.definition = msgspec.json.encode(self.schema)  #: cursors count for this one alone
        self.prepared: dict[Any, Any] = {}  #: questions as they were read, by shape (``prompt``)
        #: whether records that the proxy collects stand among those that callers write
        self.shared = self.schema.name == RECORDS_SCHEMA
        #: Seals the places where pages of aggregations end.
        self.cursors = collection.context.keyset.sealed_texts("cursor")
        self._decimals = [
            field.name for field in self.schema.fields if field.type is FieldType.DECIMAL
        ]

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def full_schema(self) -> Schema:
        """The schema as the caller may see it; requests are read by it."""
        return self.rights.view or self.schema

    def under(self, rights: Rights, gate: AclDecisions | None, audit: AuditContext) -> "Records":
        """The same records for a caller with these rights, whose request tells ``audit``."""
        bound = self._copy()
        bound.rights, bound.gate, bound.audit = rights, gate, audit
        return bound

    def when(self, condition: "Callable[[Record | None], None] | None") -> "Records":
        """The same records, changed only where this does not raise."""
        if condition is None:
            return self
        bound = self._copy()
        bound.condition = condition
        return bound

    def _copy(self) -> "Records":
        bound = Records.__new__(Records)  # a third of the time of copy.copy, for each request
        bound.__dict__.update(self.__dict__)
        return bound

    def note(
        self, kind: EventKind, keys: Iterable[str | None], fields: Iterable[str] = ()
    ) -> AuditEvent | None:
        """Audit an action on records; return the event, if a request is audited."""
        return None if self.audit is None else self.audit.add(kind, self.schema.name, keys, fields)

    def note_shown(self, keys: Sequence[str | None]) -> None:
        """Tell the audit log that the records of these keys are about to be shown, whole."""
        view = self.rights.view
        names = self.field_names if view is None else [field.name for field in view.fields]
        self.note(EventKind.REVEAL, keys, names if keys else ())

    def note_written(self, records: Iterable[Record], drafts: Sequence[RecordDraft]) -> None:
        """Tell the audit log of records that were committed, with the fields that drafts name."""
        fields: Iterable[str] = chain.from_iterable(map(_fields_of, drafts))
        self.note(EventKind.WRITE, map(_key_of, records), fields)

    def note_attached(self, records: Iterable[Record]) -> None:
        """Tell the audit log of those of the records that are shown with their files."""
        if keys := [record.key for record in records if record.attachments]:
            self.note(EventKind.REVEAL, keys)

    def note_files(self, kind: EventKind, keys: Iterable[str], files: Iterable[str]) -> None:
        """Tell the audit log of files of the records of these keys."""
        if (event := self.note(kind, keys)) is not None:
            event.files.extend(files)

    def entity_tag(self, record: Record) -> str:
        """A strong entity tag (RFC 9110, section 8.8.3) of a record as the caller is shown it.

        It changes with the version, the files, the form of the schema and the rights. It is keyed:
        nobody can make one up.
        """
        files = (
            [(item.file_id, item.updated_at) for item in record.attachments]
            if record.attachments and self.rights.files
            else []
        )
        content = msgspec.msgpack.encode(
            [record.rid, record.version, record.expires_at, self.rights.mark, files, self._form]
        )
        return f'"{self._entity_tag(content).hex()}"'

    async def permit(self, act: Act, keys: Iterable[str]) -> None:
        """Raise ``VaultError`` unless the filter endpoint allows that with all; as ``need``."""
        if self.gate is not None:
            await self.gate.need(act, keys)

    async def permitted(self, records: list[Record]) -> list[Record]:
        """Return the records that the filter endpoint lets the caller read; none without a key."""
        if self.gate is None:
            return records
        keys = [record.key for record in records if record.key is not None]
        allowed = await self.gate.allowed(Act.READ, keys, always=True)
        return [record for record in records if record.key in allowed]

    async def readable(self, rows: Iterable[Row]) -> dict[int, str]:
        """The keys of those rows that the filter endpoint shows the caller; unreadable: none."""
        readable = await self.permitted(list(self.open_all(rows)))
        return {record.rid: record.key for record in readable if record.key is not None}

    @property
    def keeps_history(self) -> bool:
        """Whether a version that is replaced stays among the past ones."""
        return self.collection.context.history.keep > 0

    @property
    def keeps_deleted(self) -> bool:
        """Whether the past versions of a record stay when it is deleted."""
        return self.keeps_history and self.collection.context.history.keep_deleted

    # ------------------------------------------------------------------ towards the store

    def new_row(
        self, key: str | bytes, fields: Fields, rid: int, by: str, expires_at: int | None
    ) -> Row:
        """A live row for a new record of this key or key hash; created, updated at one instant."""
        digest = key if isinstance(key, bytes) else self.collection.key_hash(key)
        return self._row_of(
            RecordDraft(None, fields, expires_at), digest, rid, by, self.collection.clock()
        )

    def new_rows(
        self,
        drafts: Sequence[RecordDraft],
        keys: Sequence[bytes],
        rids: Sequence[int],
        by: str,
        now: int,
    ) -> list[Row]:
        """The same of drafts with their key hashes and ids; one instant for all of them."""
        if len(drafts) == 1:
            return [self._row_of(drafts[0], keys[0], rids[0], by, now)]
        bind, new = self.collection.state.columns.bind, tuple.__new__
        ends = [None if draft.expires_at is UNSET else draft.expires_at for draft in drafts]
        cells = [self.cells(draft.fields) for draft in drafts]
        bodies = self.collection.sealer.new_bodies(
            rids,
            [RecordBody(NO_VALUES, 1, draft.fields, _CREATE, by, now) for draft in drafts],
            [bind(now, now, at, of) for at, of in zip(ends, cells, strict=True)],
        )
        # Thousands of these a second: the constructor of a named tuple costs twice as much.
        return [
            new(Row, (rid, key, None, _LIVE, 1, now, now, at, salt, body, of, 0))
            for key, rid, at, of, (salt, body) in zip(keys, rids, ends, cells, bodies, strict=True)
        ]

    def _row_of(self, draft: RecordDraft, key: bytes, rid: int, by: str, now: int) -> Row:
        expires = None if draft.expires_at is UNSET else draft.expires_at
        sealer, cells = self.collection.sealer, self.cells(draft.fields)
        content = RecordBody(NO_VALUES, 1, draft.fields, _CREATE, by, now)
        salt, body = sealer.new_body(rid, content, sealer.columns.bind(now, now, expires, cells))
        return tuple.__new__(
            Row, (rid, key, None, _LIVE, 1, now, now, expires, salt, body, cells, 0)
        )

    def next_row(
        self, row: Row, fields: Fields, by: str, expires_at: int | None, extras: Extras = NO_EXTRAS
    ) -> Row:
        """The row with its next version; the key stays."""
        collection = self.collection
        # a clock that was set back must not disorder the history
        now = max(collection.clock(), row.updated_at)
        tokens, eras = extras.tokens or None, extras.eras or None
        following = row._replace(
            version=row.version + 1, updated_at=now, expires_at=expires_at, cells=self.cells(fields)
        )
        content = RecordBody(NO_VALUES, 1, fields, Action.UPDATE, by, now, tokens, eras)
        return collection.sealer.with_body(following, content)

    def outlived(self, row: Row) -> Past:
        """The present version of a row as a past one, since another takes its place now."""
        at = max(self.collection.clock(), row.updated_at)
        return Past(row.rid, row.version, row.key or b"", at, row.salt, row.body)

    def last_past(self, row: Row, by: str) -> Past:
        """The version that marks a deletion: the last values once more."""
        record, version = self.open(row), row.version + 1
        at = max(self.collection.clock(), row.updated_at)
        content = RecordBody(
            fields=record.fields,
            action=Action.DELETE,
            by=by,
            at=at,
            eras=record.eras,
            key=record.key if self.primary is None else None,
        )
        body = self.collection.sealer.past_body(row, content, version)
        return Past(row.rid, version, row.key or b"", at, row.salt, body)

    # ------------------------------------------------------------------ from the store

    def open(self, row: Row) -> Record:
        """As ``opened``; one that does not open is reported."""
        try:
            return self.opened(row)
        except Tampered:
            raise self.tampered() from None
        except CannotOpen:
            self.unopenable()
            raise

    def opened(self, row: Row) -> Record:
        """The record of a row; ``VaultError(CANNOT_OPEN)`` when the row was changed or moved.

        ``Tampered`` when it opens, and stands under a key that is not its own.
        """
        body, key = self.collection.sealer.open_with_key(row)
        fields, eras = self.contents(body, key)
        if key is None and self.primary is not None:
            key = fields.get(self.primary.name)
        # Fields of a schema whose definition is lost do not say which of them is the key.
        missing = key is None and not body.fields
        if row.key is not None and (
            missing or (key is not None and self.collection.key_hash(key) != row.key)
        ):
            raise Tampered
        return Record(
            row.rid,
            key,
            fields,
            row.version,
            *(row.created_at, row.updated_at, row.expires_at),
            body.action,
            body.by,
            eras=eras,
            tokens=body.tokens,
            deleted_at=body.deleted or None,
            in_doubt=row.staged > 0,
        )

    def tampered(self, count: int = 1) -> Tampered:
        """Report rows whose columns differ from their sealed body; return the error."""
        self.collection.observe("tampered", count)
        if self.audit is not None:
            self.audit.add_tampered(self.name, count)
        return Tampered()

    def unopenable(self) -> None:
        """Report a row that does not open: it may have been changed or moved in the store."""
        self.collection.observe("unopenable")
        if self.audit is not None:
            self.audit.add_tampered(self.name, 1)

    async def by_key(self, keys: Iterable[str]) -> dict[str, Row]:
        """The unexpired rows of these keys; reports those that stand under a key not their own."""
        return await self.collection.by_key(keys, self.tampered)

    def open_past(self, past: Past, created_at: int, key: str | None = None) -> Record:
        """The record that a past version was; raises as ``open``.

        ``key``: the one of a proxied record's versions.
        """
        body = self.collection.sealer.open(past)
        fields, eras = self.contents(body, key, past=True)
        if self.primary is not None:
            key = fields.get(self.primary.name)
        elif body.action is Action.DELETE:
            key = body.key
        return Record(
            past.rid,
            key,
            fields,
            past.version,
            created_at,
            body.at or past.at,
            None,
            body.action,
            body.by,
            eras=eras,
        )

    def open_all(self, rows: Iterable[Row]) -> Iterator[Record]:
        """The records of rows in order; one that does not open is reported and left out."""
        for row in rows:
            try:
                yield self.open(row)
            except CannotOpen:
                continue

    # ------------------------------------------------------------------ parts

    def _past(self, fields: Fields) -> Fields:
        return fields if self.primary is None else conformed(self.schema, fields)

    def _typed(self, fields: Fields) -> Fields:
        for name in self._decimals:
            if isinstance(fields.get(name), int):
                fields[name] = Decimal(fields[name])
        return fields

    def contents(
        self, body: RecordBody, key: str | None = None, *, past: bool = False
    ) -> tuple[Fields, Eras | None]:
        """The fields of a body as the schema shows them, and the eras of their texts.

        ``key``: that of the record, if its fields do not have it. ``past``: the body may be of an
        earlier definition. In a schema of its own a proxied record is shown whole: a text, or a
        list of texts if a field has several. Among the records of another schema it is reduced to
        the fields of that one and the fitting values; several texts are the text of a JSON array.
        """
        if body.fields:
            return (self._past if past else self._typed)(body.fields), body.eras
        if not self.shared:
            return texts_of(body)
        values = {
            name: values for name, values in body.values.items() if values and name in KEPT_AS
        }
        texts = {
            name: several[0].text if len(several) == 1 else array_of(several)
            for name, several in values.items()
        }
        fields: Fields = {} if key is None else {RECORD_KEY: key}
        eras: Eras = {name: era_of(several) for name, several in values.items()}
        return fields | conformed(self.schema, texts), eras

    def collects(self, key: str | None) -> bool:
        """Whether the proxy makes and changes the record of that key, and no caller; ``None`` is
        the key of a record whose id the application has not told yet.
        """
        return self.primary is None or (self.shared and is_collected(key))
