"""Verification of a row before its removal.

The store is not trusted, so no column counts before a comparison with the sealed body.

A row is removed with everything under its number. If parts of another record were put there, that
is an alarm. Parts that do not open cannot be attributed. They may go all the same, since a damaged
record has to end like any other, but not with parts of another record: then the two rows were
exchanged.
"""

from proxy.crypto.prf import either
from proxy.errors import Code, VaultError
from proxy.offload import busy, give_way
from proxy.storage.rows import File, Past, Row, Staged
from proxy.vault.collection import Collection
from proxy.vault.seal import Tampered

_PAGE = 500


async def may_end(collection: Collection, row: Row) -> bool:
    """Whether a row may be removed by its columns; report one that may not, or does not open.

    Parts of another record under its number are reported, too.
    """
    opens = genuine = True
    try:
        collection.sealer.open_with_key(row)
    except VaultError as error:
        if error.code is not Code.CANNOT_OPEN:
            raise
        opens, genuine = False, not isinstance(error, Tampered)
    if genuine and await hosts_others(collection, row):
        collection.observe("tampered")
        return opens
    if not opens:
        collection.observe("unopenable" if genuine else "tampered")
    return genuine


async def hosts_others(collection: Collection, row: Row) -> bool:
    """Whether past versions, files or staged changes of a row are not provably its own."""
    store, table = collection.store, collection.table
    parts: list[File | Staged] = list((await store.files(table, [row.rid])).get(row.rid, ()))
    if row.staged:
        parts += (await store.staged(table, [row.rid])).get(row.rid, ())
    if not all(_is_of(collection, row, part) for part in parts):
        return True
    after = (row.rid, 0)
    while page := await store.past_scan(table, after, _PAGE):
        own = [past for past in page if past.rid == row.rid]
        if not all(_is_of(collection, row, past) for past in own):
            return True
        if len(own) < len(page):
            break
        if busy():
            await give_way()
        after = (row.rid, page[-1].version)
    return False


def _is_of(collection: Collection, row: Row, part: File | Past | Staged) -> bool:
    try:
        if isinstance(part, File):
            collection.sealer.open_file(part, row.salt)
            return True
        if isinstance(part, Staged):
            collection.sealer.open_staged(part, row.salt)
            return True
        fields = collection.sealer.open(part).fields
    except VaultError as error:
        if error.code is not Code.CANNOT_OPEN:
            raise
        return False
    if part.salt == row.salt:  # also one that another record had before it was taken into this one
        return True
    primary = collection.schema.primary
    key = None if primary is None else fields.get(primary.name)
    digests = (part.key,) if key is None else either((collection.key_hash(key),))
    return row.key in digests


def is_genuine_change(collection: Collection, change: Staged, salt: bytes) -> bool:
    """Whether a staged change of the row with that salt is unaltered; else it is reported."""
    try:
        collection.sealer.open_staged(change, salt)
    except VaultError as error:
        if error.code is not Code.CANNOT_OPEN:
            raise
        collection.observe("tampered")
        return False
    return True
