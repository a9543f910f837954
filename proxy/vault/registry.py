"""Which table and which columns hold a schema; kept in the store itself, so that names never move.

A column is given to a field once and stays its own: a field that changes its storage class gets a new column,
and what the old one held is no longer asked. A table's name is never given again, not even when its schema is gone.

While a process runs, the layout of a table only grows, at its end: rows that somebody made for the layout before have the
cells of its first columns, whoever is faster. The next process has a layout without what nobody uses any more.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage.base import Store
from proxy.storage.rows import Column, ColumnType, Layout

_COLUMN_TYPES = {
    FieldType.INTEGER: ColumnType.INTEGER,
    FieldType.DECIMAL: ColumnType.DECIMAL,
    FieldType.BOOLEAN: ColumnType.INTEGER,
    FieldType.DATETIME: ColumnType.TEXT,
}


class Placed(NamedTuple):
    """Where a schema is kept: the layout of its table, and the column of each field that is kept outside, in their order."""

    layout: Layout
    columns: tuple[str, ...]


class _Place(msgspec.Struct, frozen=True):
    """The table of a schema and the column of each (field, type of column, life where it is not the first)."""

    table: str
    columns: dict[str, str]


class _Registry(msgspec.Struct, frozen=True, omit_defaults=True):
    schemas: dict[str, _Place]
    tables: int = 0  #: how many tables were ever named; what was written before anything could be dropped does not tell

    @property
    def named(self) -> int:
        return max(self.tables, len(self.schemas))


_decode = msgspec.json.Decoder(_Registry).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def column_type(field: Field) -> ColumnType:
    """The type of the column that a field with one of its own has."""
    if field.storage is Storage.INDEXED_HASHED:
        return ColumnType.HASH
    return _COLUMN_TYPES.get(field.type, ColumnType.TEXT)


async def place(store: Store, environment: str, schema: Schema, present: Sequence[Column] = ()) -> Placed:
    """Where the schema is kept, recorded in the store and made there where it is new. Idempotent.

    ``present`` are the columns of the layout that this process has in use for it; they come first in the new one. Raises
    ``VaultError(CONFLICT)`` when another process changes the registry at the same moment.
    """
    stored = await store.note(_note(environment))
    registry = _decode(stored) if stored is not None else _Registry({})
    known = registry.schemas.get(schema.name) or _Place(f"r{registry.named + 1}_{environment}", {})
    columns = dict(known.columns)
    layout = list(present)
    own: list[str] = []
    for field in schema.kept_outside:
        kind = column_type(field)
        life = f"/{field.life}" if field.life else ""
        name = columns.setdefault(f"{field.name}/{kind}{life}", f"c{len(columns) + 1}")
        own.append(name)
        if (column := Column(name, kind)) not in layout:
            layout.append(column)
    if (updated := _Place(known.table, columns)) != registry.schemas.get(schema.name):
        schemas = {**registry.schemas, schema.name: updated}
        registry = _Registry(schemas, registry.named + len(schemas) - len(registry.schemas))
        await store.put_note(_note(environment), _encode(registry), stored)
    result = Layout(known.table, tuple(layout))
    await store.ensure(result)
    return Placed(result, tuple(own))


async def forget(store: Store, environment: str, table: str) -> None:
    """Take the schema that has this table out of the registry. Gone already: no effect."""
    stored = await store.note(_note(environment))
    registry = _decode(stored) if stored is not None else _Registry({})
    left = {name: known for name, known in registry.schemas.items() if known.table != table}
    if len(left) < len(registry.schemas):
        await store.put_note(_note(environment), _encode(_Registry(left, registry.named)), stored)


async def places(store: Store, environment: str) -> dict[str, str]:
    """The tables of all schemas that the registry has, by name of schema, whether they are in use or not."""
    stored = await store.note(_note(environment))
    return {} if stored is None else {name: known.table for name, known in _decode(stored).schemas.items()}


async def wake(store: Store, environment: str, in_use: Collection[str] = ()) -> None:
    """Make the tables of all schemas known to the store, without their columns, but for those ``in_use``.

    Then what stands beside rows can be looked at although nobody has declared the schema again.
    """
    for table in (await places(store, environment)).values():
        if table not in in_use:
            await store.ensure(Layout(table, ()))


def _note(environment: str) -> str:
    return f"schemas:{environment}"
