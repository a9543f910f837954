"""Which table and which columns hold a schema; kept in the store itself, so that names never move.

A column is given to a field once and stays its own: a field that changes its storage class gets a new column,
and what the old one held is no longer asked.
"""

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


class _Place(msgspec.Struct, frozen=True):
    """The table of a schema and the column of each (field, type of column)."""

    table: str
    columns: dict[str, str]


class _Registry(msgspec.Struct, frozen=True):
    schemas: dict[str, _Place]


_decode = msgspec.json.Decoder(_Registry).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def column_type(field: Field) -> ColumnType:
    """The type of the column that a field with one of its own has."""
    if field.storage is Storage.INDEXED_HASHED:
        return ColumnType.HASH
    return _COLUMN_TYPES.get(field.type, ColumnType.TEXT)


async def place(store: Store, environment: str, schema: Schema) -> Layout:
    """The layout of the schema, recorded in the store and made there where it is new.

    Idempotent. Raises ``VaultError(CONFLICT)`` when another process changes the registry at the same moment.
    """
    note = f"schemas:{environment}"
    stored = await store.note(note)
    registry = _decode(stored) if stored is not None else _Registry({})
    known = registry.schemas.get(schema.name) or _Place(f"r{len(registry.schemas) + 1}_{environment}", {})
    columns = dict(known.columns)
    layout: list[Column] = []
    for field in schema.kept_outside:
        kind = column_type(field)
        name = columns.setdefault(f"{field.name}/{kind}", f"c{len(columns) + 1}")
        layout.append(Column(name, kind))
    updated = _Registry({**registry.schemas, schema.name: _Place(known.table, columns)})
    if updated != registry:
        await store.put_note(note, _encode(updated), stored)
    result = Layout(known.table, tuple(layout))
    await store.ensure(result)
    return result
