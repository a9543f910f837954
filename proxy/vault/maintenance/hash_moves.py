"""Move hashes under the current root, one page of a table at a time.

Everything is computed from sealed bodies. Moved or missing hashes are left alone.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from proxy.crypto.prf import Digest
from proxy.errors import CannotOpen, Code, coded
from proxy.model.record import Fields
from proxy.model.schema import Schema, is_collected
from proxy.offload import busy, give_way
from proxy.storage.changes import Change, Conflict, Reindex, Reroot
from proxy.storage.rows import ColumnValue, File, Past, Row, Staged
from proxy.vault.body import RecordBody
from proxy.vault.maintenance.rehash import digest_of
from proxy.vault.records.attachment_metadata import name_hash, open_file
from proxy.vault.records.repository import Records
from proxy.vault.schema_store import Entries, has_hashes, placed_schemas
from proxy.vault.vault import Vault

#: Rows and past versions of one page, which is one commit.
_PAGE: Final = 50


class RootedTable(NamedTuple):
    """A table with the records of the schema that it is of."""

    name: str
    records: Records
    unclear: bool  #: columns may hold hashes of fields outside the active schema


class RootedPage(NamedTuple):
    """Result of one page."""

    after: tuple[int, int]
    looked: int
    past: bool
    moved: int
    unreadable: int
    left: int  #: still under the older root


async def rooted_tables(vault: Vault) -> AsyncIterator[RootedTable]:
    """Every table of the vault, by its active definition if there is one; of a schema that is
    removed meanwhile nothing is made again.
    """
    entries = Entries(vault.store, vault.environment)
    await entries.load()
    for name, table in sorted((await placed_schemas(vault.store, vault.environment)).items()):
        entry = entries.schemas.get(name)
        schema = Schema(name, ()) if entry is None else entry.schema
        try:
            collection = await vault.unshaped(schema, table)
        except coded(Code.UNKNOWN_SCHEMA):
            continue
        if entry is None:
            unclear = await has_hashes(vault.store, vault.environment, name)
        else:
            unclear = entry.change is not None
        yield RootedTable(collection.table, Records(collection), unclear)


async def rooted_rows(table: RootedTable, after: tuple[int, int]) -> RootedPage | None:
    """Return rows with their parts; ``None``: none after that position."""
    store = table.records.collection.store
    rows = await store.scan(table.name, after[0], _PAGE)
    if not rows:
        return None
    files = await store.files(table.name, [row.rid for row in rows])
    staged = await store.staged(table.name, [row.rid for row in rows if row.staged])
    changes: list[Change] = []
    moved = unreadable = 0
    for row in rows:
        try:
            moves = _row_moves(table.records, row, files.get(row.rid, ()), staged.get(row.rid, ()))
        except CannotOpen:
            unreadable += 1
            continue
        moved += any(isinstance(one, Reroot) and bool(one.row or one.files) for one in moves)
        changes += moves
        if busy():
            await give_way()
    left = await _commit(table, changes)
    return RootedPage((rows[-1].rid, 0), len(rows), False, moved - left, unreadable, left)  # rows


async def rooted_versions(table: RootedTable, after: tuple[int, int]) -> RootedPage | None:
    """The same of past versions, those of records that are gone included."""
    store = table.records.collection.store
    versions = await store.past_scan(table.name, after, _PAGE)
    if not versions:
        return None
    rows = await store.rows(table.name, list({past.rid for past in versions}))
    holders = await store.by_keys(table.name, list({past.key for past in versions}))
    moves: dict[bytes, Reroot] = {}
    unreadable = left = 0
    for past in versions:
        try:
            keys = _past_keys(table.records, past, (rows.get(past.rid), holders.get(past.key)))
        except CannotOpen:
            unreadable += 1
            continue
        digest = next((key for key in keys if key == past.key), None)
        if isinstance(digest, Digest) and digest.other == past.key:
            moves[past.key] = Reroot(0, past=(digest.other, bytes(digest)))
        left += digest is None
        if busy():
            await give_way()
    await _commit(table, list(moves.values()))
    end = versions[-1].rid, versions[-1].version
    return RootedPage(end, len(versions), True, len(moves), unreadable, left)  # past versions


async def _commit(table: RootedTable, changes: Sequence[Change]) -> int:
    """Commit all; how many stand against another row that has the key already."""
    store = table.records.collection.store
    if not changes:
        return 0
    try:
        await store.commit(table.name, changes)
    except Conflict:
        if len(changes) == 1:
            return 1
        return sum([await _commit(table, (change,)) for change in changes])
    await asyncio.sleep(0)
    return 0


# ---------------------------------------------------------------------- what moves


def _row_moves(
    records: Records, row: Row, files: Sequence[File], staged: Sequence[Staged]
) -> list[Change]:
    """Return the changes that bring a row and its parts under the current root.

    Entries of the token index are named whether they exist or not. Raises
    ``VaultError(CANNOT_OPEN)``.
    """
    collection = records.collection
    body, key = collection.sealer.open_with_key(row)
    fields = records.contents(body, key)[0]
    if key is None and records.primary is not None:
        key = fields.get(records.primary.name)
    own_key = row.key if key is None else _newer(row.key, collection.key_hash(key))
    cells = tuple(
        _newer(cell, _cell(records, name, fields))
        for cell, name in zip(row.cells, _names(records, row), strict=True)
    )
    content = _with_tokens(records, body, fields)
    after = row._replace(key=own_key, cells=cells)
    if cells != row.cells or content is not body:
        after = collection.sealer.with_body(after, content)
    changes = [collection.sealer.open_staged(one, row.salt) for one in staged]
    bodies = [body, *(one for one in changes if one is not None)]
    entries = {
        (digest.other, bytes(digest))
        for digest in _entries(records, bodies, fields, key)
        if isinstance(digest, Digest)
    }
    names = [_renamed(records, row, file) for file in files]
    change = Reroot(
        row.rid,
        None if after == row else (row, after),
        tuple(entries),
        None if own_key == row.key else (row.key or b"", own_key or b""),
        tuple(name for name in names if name is not None),
    )
    older = records.other_parts(fields)
    own = tuple(map(bytes, records.hashes(fields))) if older else ()
    parts = [Reindex(row.rid, own, tuple(older.difference(own)))] if older else []
    return [*([change] if change[1:] != Reroot(0)[1:] else []), *parts]


def _newer(stored: Any, digest: Any) -> Any:
    """Return the hash under the current root, if the one under the other root is stored."""
    moves = isinstance(digest, Digest) and bytes(digest.other) == stored
    return bytes(digest) if moves else stored


def _names(records: Records, row: Row) -> list[str | None]:
    """The field of each cell of a row."""
    slots = [None if field is None else field.name for field in records.collection.slots]
    return [*slots, *[None] * len(row.cells)][: len(row.cells)]


def _cell(records: Records, name: str | None, fields: Fields) -> ColumnValue:
    value = None if name is None else fields.get(name)
    if isinstance(value, list):
        value = value[0] if value else None
    return None if name is None or value is None else records.cell(name, value)


def _with_tokens(records: Records, body: RecordBody, fields: Fields) -> RecordBody:
    """Return the body, with values of rehash tokens marked by current hashes."""
    tokens = {
        name: msgspec.structs.replace(one, of=_newer(one.of, digest_of(records, name, fields)))
        for name, one in (body.tokens or {}).items()
    }
    return body if tokens == (body.tokens or {}) else msgspec.structs.replace(body, tokens=tokens)


def _entries(
    records: Records, bodies: Sequence[RecordBody], fields: Fields, key: str | None
) -> Iterable[bytes]:
    """Yield every hash that the token index may have of a row with these versions."""
    hasher, owners = records.collection.context.keyset.hasher, tuple(_owners(records, key))
    for body in bodies:
        yield from records.token_hashes(body.tokens or {})
    parts = [part for body in bodies for part in (body.values, body.earlier)]
    for name in {name for part in parts for name in part}:
        tokens = {one.token for part in parts for one in part.get(name, ())}
        for hash_of in (hasher("token", owner, name) for owner in owners):
            yield from (hash_of(token.encode()) for token in tokens)
    yield from records.hashes(fields, before=True)


def _owners(records: Records, key: str | None) -> Iterable[str]:
    """Return the owners of a collected row's tokens: the schema, or those among its records."""
    if records.primary is None:
        return (records.name,)
    if key is not None and is_collected(key):
        return (f"{records.name}/{key.partition(':')[2].partition('/')[0]}",)
    return records.collection.state.hosted


def _renamed(records: Records, row: Row, file: File) -> tuple[File, File] | None:
    """Return the file with its name under the current root; unchanged if it does not open."""
    sealer = records.collection.sealer
    try:
        filename = open_file(records.collection, row, file).attachment.filename
        content = sealer.open_file(file, row.salt)
    except CannotOpen:
        return None
    name = _newer(file.name, name_hash(records.collection, filename))
    if name == file.name:
        return None
    return file, sealer.record(row.rid, row.salt).file(content, file._replace(name=name))


def _past_keys(records: Records, past: Past, rows: Sequence[Row | None]) -> list[bytes]:
    """The key hashes of a past version: its own, and those of its row and of the key's holder."""
    body = records.collection.sealer.open(past)
    primary = records.primary
    keys = [body.key, body.fields.get(primary.name) if primary is not None else None]
    for row in rows:
        if row is not None:
            opened, key = records.collection.sealer.open_with_key(row)
            keys.append(key or (opened.fields.get(primary.name) if primary is not None else None))
    return [records.collection.key_hash(key) for key in keys if isinstance(key, str)]
