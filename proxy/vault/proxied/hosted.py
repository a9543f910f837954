"""Proxied entities stored among the records of the built-in schema (``schema: records``).

Its rows stand in the table of that schema, so that searches, aggregations and deletes include them.
They are recognized by their keys: ``rules:<entity>/<id>`` for the application's record of that id,
which no caller can give to a record. Bodies are those of all proxied records, with tokens; their
columns and index entries are made by the schema's ``Records``, and so fit a running migration.
Token hashes are of the entity's name, as everywhere.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

from proxy.model.schema import collected_keys
from proxy.storage.base import Store
from proxy.storage.changes import Change, Conflict, Insert, Replace
from proxy.storage.rows import ColumnValue, Row, TableLayout
from proxy.vault.body import RecordBody
from proxy.vault.collection import Collection, TableSpec
from proxy.vault.records.repository import Records
from proxy.vault.schema_store import Placed
from proxy.vault.seal import RecordSealer, Sealer

#: Rows that were made and never committed, as far as anybody knows, before they are forgotten.
_MOST_MADE = 10_000


class SharedTable(NamedTuple):
    """The active schema among whose records others are stored, and the tracker of its work."""

    records: Callable[[], Records]
    using: Callable[[], AbstractContextManager[None]]


class Hosted(Collection):
    """The records of one entity in the table of a schema."""

    def __init__(self, recipe: TableSpec, entity: str, host: SharedTable) -> None:
        base = host.records().collection
        super().__init__(recipe, Placed(TableLayout(base.table, ()), ()), base.context, base.state)
        self._host = host
        #: By record: the definition that the columns of its newest row were made for.
        self._records: dict[int, Records] = {}
        self._prefix = collected_keys(entity)
        base.state.hosted[self.name] = self.tokenizers
        self.sealer = _Sealer(base, self._prefix)
        self._hash_of_host = base.key_hash
        self.hash_name = base.hash_name
        self.store = cast(Store, _Guarded(base.store, self))

    @property
    def records(self) -> Records:
        """The records of the active schema."""
        return self._host.records()

    def key_hash(self, key: str) -> bytes:
        """The hash under which the schema has the record of that id of the application."""
        return self._hash_of_host(self._prefix + key)

    def new_row(
        self, content: RecordBody, rid: int, salt: bytes, sealer: RecordSealer | None = None
    ) -> Row:
        self._note(rid)
        return super().new_row(content, rid, salt, sealer)

    def next_row(self, row: Row, content: RecordBody, sealer: RecordSealer | None = None) -> Row:
        self._note(row.rid)
        return super().next_row(row, content, sealer)

    def same_row(self, row: Row, content: RecordBody) -> Row:
        self._note(row.rid)
        return super().same_row(row._replace(cells=self.cells(content)), content)

    def cells(self, content: RecordBody) -> tuple[ColumnValue, ...]:
        return self.records.cells(self.records.contents(content)[0])

    def _note(self, rid: int) -> None:
        if len(self._records) >= _MOST_MADE:
            self._records.clear()
        self._records[rid] = self.records

    async def commit(self, store: Store, table: str, changes: Sequence[Change]) -> None:
        """Commit, unless the schema has changed since the rows were made: an ordinary conflict."""
        with self._host.using():
            now = self.records
            for change in changes:
                if (
                    isinstance(change, Insert | Replace)
                    and self._records.pop(change.row.rid, None) is not now
                ):
                    raise Conflict(change)
            await store.commit(table, changes)


class _Guarded:
    """The store as a hosted collection sees it."""

    def __init__(self, store: Store, hosted: Hosted) -> None:
        self._store = store
        self._hosted = hosted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        await self._hosted.commit(self._store, table, changes)


class _Sealer(Sealer):
    """Seals as the schema does.

    A key is sealed with what tells the entity, and opened without it.
    """

    def __init__(self, base: Collection, prefix: str) -> None:
        context = base.context
        super().__init__(context.keyset.aead(), context.environment, base.name, base.state.columns)
        self._prefix = prefix

    def record(self, rid: int, salt: bytes) -> RecordSealer:
        return _RecordSealer(self._aead.under(salt), self.scope, rid, self._prefix)

    def open_key(self, row: Row) -> str | None:
        key = super().open_key(row)
        return None if key is None else key.removeprefix(self._prefix)

    def open_with_key(self, row: Row) -> tuple[RecordBody, str | None]:
        body, key = super().open_with_key(row)
        return body, None if key is None else key.removeprefix(self._prefix)


class _RecordSealer(RecordSealer, eq=False, gc=False):
    """Seals the parts of one record, its key with the prefix."""

    _prefix: str

    def key(self, key: str, at: int) -> bytes:
        return super().key(self._prefix + key, at)
