"""The records of a schema on its way from one definition to another.

While a migration fills the data of the new definition, the old one is active: queries use its
columns, and every write fills those of both. After the switch the new one is active, and bodies
that are not rewritten yet are converted when they are opened. Index entries of both lives of a
field coexist and are never confused; those that an update leaves after the switch belong to the
life that is no longer queried, and go with their record.
"""

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model import Conversion
from proxy.model.record import Fields
from proxy.model.schema import Schema
from proxy.model.values import Unfit
from proxy.storage.changes import Change, Reindex, Replace
from proxy.storage.rows import ColumnValue, Row
from proxy.vault.body import RecordBody
from proxy.vault.collection import Collection, TableSpec
from proxy.vault.job import JobProgress
from proxy.vault.records.repository import Records
from proxy.vault.schema_store import MigrationOutcome, MigrationState, Phase, SchemaEntry
from proxy.vault.vault import Vault


class Backfill(Records):
    """The old definition is active; writes must fit the new one, too."""

    def __init__(self, collection: Collection, target: Records) -> None:
        super().__init__(collection)
        self.target = target
        self.convert = Conversion(self.schema, target.schema)

    def cells(self, fields: Fields) -> tuple[ColumnValue, ...]:
        """Return the columns of both definitions.

        Raises ``VaultError(INVALID_RECORD)`` for a value that does not fit the new one.
        """
        try:
            converted = self.convert(fields)
        except Unfit as unfit:
            raise VaultError(
                Code.INVALID_RECORD,
                "The schema is being changed, and what is written meanwhile has to fit its new "
                "definition as well.",
                (Detail(unfit.pointer, unfit.text),),
            ) from None
        return _merged(super().cells(fields), self.target.cells(converted))

    def hashes(self, fields: Fields, *, before: bool = False) -> set[bytes]:
        """Return the index entries of both definitions."""
        return super().hashes(fields, before=before) | self.target.hashes(
            self.convert.fitting(fields)[0]
        )

    def filled(self, row: Row) -> list[Change]:
        """Return the changes that a row needs for the new definition.

        Raises ``Unfit`` and ``VaultError(CANNOT_OPEN)``.
        """
        fields = self.open(row).fields
        self.convert(fields)
        cells = self.cells(fields)
        changes: list[Change] = []
        if cells != row.cells:
            sealer = self.collection.sealer
            filled = sealer.with_body(row._replace(cells=cells), sealer.open(row))
            changes.append(Replace(filled, row.version))
        if add := self.hashes(fields) - super().hashes(fields):
            changes.append(Reindex(row.rid, add=tuple(add)))
        return changes


class Cleanup(Records):
    """The active definition, with remains of another one in rows, bodies and index."""

    def __init__(self, collection: Collection, other: Records, *, reverting: bool) -> None:
        super().__init__(collection)
        self._other = other
        self._convert = (
            Conversion(self.schema, self.schema)
            if reverting
            else Conversion(other.schema, self.schema)
        )
        #: Whether queries by the other definition are still in flight: their columns are filled, if
        #: possible. shared by the same records for callers with other rights
        self._lingering = [not reverting]
        types = {field.name: field.type for field in other.schema.fields}
        self._same = [
            field.name for field in self.schema.fields if types.get(field.name) is field.type
        ]
        #: Fields of a body as the other definition saw them.
        self._conversion = Conversion(self.schema, other.schema if reverting else self.schema)

    def settle(self) -> None:
        """No question by the other definition is under way any more."""
        self._lingering[0] = False

    def cells(self, fields: Fields) -> tuple[ColumnValue, ...]:
        """Return the columns of the active definition."""
        own = super().cells(fields)
        if not self._lingering[0]:
            return own
        return _merged(
            own, self._other.cells({name: fields[name] for name in self._same if name in fields})
        )

    def cleaned(self, row: Row) -> list[Change]:
        """Return the changes that remove the remains from a row, if it opens (``CANNOT_OPEN``)."""
        sealer = self.collection.sealer
        content = changed = sealer.open(row)
        if (typed := self._typed(dict(content.fields))) != content.fields:
            changed = msgspec.structs.replace(content, fields=typed)
        fields = self.contents(content)[0]
        changes: list[Change] = []
        cells = self.cells(fields)
        if changed is not content or cells != row.cells:
            following = sealer.with_body(row._replace(cells=cells), changed)
            changes.append(Replace(following, row.version))
        if drop := self._other.hashes(self._seen_in(content), before=True) - self.hashes(fields):
            changes.append(Reindex(row.rid, drop=tuple(drop)))
        return changes

    def _seen_in(self, body: RecordBody) -> Fields:
        """Return the fields that the other definition has put into the index of parts.

        Only texts and documents have parts there: values that had another type are left out.
        """
        fields = self._conversion.fitting(body.fields)[0]
        parts = {name: value for name, value in fields.items() if isinstance(value, str | dict)}
        return parts | self._other.contents(msgspec.structs.replace(body, fields={}))[0]

    def _typed(self, fields: Fields) -> Fields:
        return super()._typed(dict(self._convert.fitting(fields)[0]))


async def migrated_records(vault: Vault, entry: SchemaEntry) -> Records:
    """The records of a schema as its entry has it, with their table and its columns."""
    if entry.change is None:
        return Records(await _collection(vault, entry.schema))
    first, second = entry.schema, entry.change.other
    # both sets of columns are in the layout before anybody gets cells of it
    await _collection(vault, first)
    other = Records(await _collection(vault, second))
    collection = await _collection(vault, first)
    if entry.change.phase is Phase.FILLING:
        return Backfill(collection, other)
    cleanup = Cleanup(collection, other, reverting=entry.change.phase is Phase.REVERTING)
    if vault.store.replicas is not None:
        cleanup.settle()  # what one of several writes in vain, another one has removed already
    return cleanup


async def _collection(vault: Vault, schema: Schema) -> Collection:
    return await vault.collection(TableSpec(schema, {}, None, addressed=False))


def _merged(
    first: tuple[ColumnValue, ...], second: tuple[ColumnValue, ...]
) -> tuple[ColumnValue, ...]:
    return tuple(
        [other if cell is None else cell for cell, other in zip(first, second, strict=True)]
    )


def following(
    entry: SchemaEntry, change: MigrationState, progress: JobProgress, now: int
) -> SchemaEntry:
    """The entry of a schema after a phase that is done."""
    outcome, replace = (
        MigrationOutcome(progress.total, progress.failed, now),
        msgspec.structs.replace,
    )
    if change.phase is not Phase.FILLING:
        ended = entry.outcome if change.phase is Phase.REVERTING else outcome
        return replace(entry, change=None, outcome=ended)
    if progress.failed:
        back = MigrationState(Phase.REVERTING, change.other, now)
        return replace(entry, change=back, outcome=outcome)
    cleaning = MigrationState(Phase.CLEANING, entry.schema, now)
    return replace(entry, schema=change.other, change=cleaning)
