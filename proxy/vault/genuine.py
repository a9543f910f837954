"""Whether what is about to end is what its columns say: the store is not trusted, so nothing is
removed on the word of a column that was not compared with what is sealed.

What does not open cannot tell. It may go all the same, since a damaged record has to end like any
other, unless something of another record stands under its number: then the two were exchanged, and
the other one's past versions and files would go with it.
"""

from proxy.crypto.prf import either
from proxy.errors import Code, VaultError
from proxy.storage.rows import File, Past, Row, Staged
from proxy.vault.collection import Collection
from proxy.vault.seal import Tampered

_PAGE = 500


async def may_end(collection: Collection, row: Row) -> bool:
    """Whether a row may be removed on the word of its columns; one that may not, and one that does
    not open, is reported.
    """
    try:
        collection.sealer.open_with_key(row)
    except VaultError as error:
        if error.code is not Code.CANNOT_OPEN:
            raise
        tampered = isinstance(error, Tampered) or await hosts_others(collection, row)
        collection.observe("tampered" if tampered else "unopenable")
        return not tampered
    return True


async def hosts_others(collection: Collection, row: Row) -> bool:
    """Whether past versions or files of another record stand under the number of a row that does
    not open, or some of which nobody can tell whose they are.
    """
    files = await collection.store.files(collection.table, [row.rid])
    if not all(_is_of(collection, row, file) for file in files.get(row.rid, ())):
        return True
    after = (row.rid, 0)
    while page := await collection.store.past_scan(collection.table, after, _PAGE):
        own = [past for past in page if past.rid == row.rid]
        if not all(_is_of(collection, row, past) for past in own):
            return True
        if len(own) < len(page):
            break
        after = (row.rid, page[-1].version)
    return False


def _is_of(collection: Collection, row: Row, part: File | Past) -> bool:
    try:
        if isinstance(part, File):
            collection.sealer.open_file(part, row.salt)
            return True
        fields = collection.sealer.open(part).fields
    except VaultError as error:
        if error.code is not Code.CANNOT_OPEN:
            raise
        return False
    primary = collection.schema.primary
    key = None if primary is None else fields.get(primary.name)
    digests = (part.key,) if key is None else either((collection.key_hash(key),))
    return row.key in digests


def is_genuine_change(collection: Collection, change: Staged, salt: bytes) -> bool:
    """Whether a staged change of the row with that salt is as it was staged; one that is not is
    reported.
    """
    try:
        collection.sealer.open_staged(change, salt)
    except VaultError as error:
        if error.code is not Code.CANNOT_OPEN:
            raise
        collection.observe("tampered")
        return False
    return True
