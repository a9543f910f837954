"""What of the token index a record no longer needs once versions of it are gone.

A same-value token is alike in every version that has the value: an entry may go only when neither the live version nor
another staged change has it. Whoever calls holds the record's lock, so that nobody stages meanwhile.
"""

from collections.abc import Collection as Some
from collections.abc import Iterable

from proxy.offload import FEW, busy, give_way, in_thread, strides
from proxy.storage.changes import Reindex
from proxy.storage.rows import Row, Staged
from proxy.tokenization.base import Resolution
from proxy.vault.collection import Collection
from proxy.vault.content import Content


async def unneeded(collection: Collection, row: Row, settled: Some[int], left: Iterable[Content] = ()) -> list[Reindex]:
    """What goes when these staged changes of a row do, and the versions ``left`` take the place of its live one (none: it stays).

    Nothing where the row has changed since it was read.
    """
    rows = {row.rid: row}
    staged = (await collection.beside(rows)).get(row.rid, ())
    if rows[row.rid] != row:
        return []
    current = collection.sealer.open(row)
    versions = [(change.sid, opened) for change in staged if (opened := _open(collection, change, row)) is not None]
    gone = [current, *(content for sid, content in versions if sid in settled)]
    stay = [*(left or [current]), *(content for sid, content in versions if sid not in settled)]
    return await outdated(collection, row.rid, gone, stay)


async def outdated(collection: Collection, rid: int, gone: Iterable[Content], left: Iterable[Content]) -> list[Reindex]:
    """The entries of tokens that versions had which are gone, and that no version has which is left."""
    gone, left = list(gone), list(left)
    many = any(len(values) > FEW for content in gone for values in content.fields.values())
    tokens = await in_thread(_without, gone, left) if many else _without(gone, left)
    if not tokens:
        return []
    drop: list[bytes] = []
    for some in strides(list(tokens)):
        drop += [collection.token_hash(name, text) for name, text in some if _has_entry(collection, rid, name, text)]
        if busy():
            await give_way()
    return [Reindex(rid, drop=tuple(drop))] if drop else []


def _open(collection: Collection, change: Staged, row: Row) -> Content | None:
    return collection.sealer.open_staged(change, row.salt) if change.body else None


def _without(gone: Iterable[Content], left: Iterable[Content]) -> set[tuple[str, str]]:
    return _tokens(gone) - _tokens(left)


def _tokens(contents: Iterable[Content]) -> set[tuple[str, str]]:
    return {token for content in contents for token in content.tokens()}


def _has_entry(collection: Collection, rid: int, name: str, text: str) -> bool:
    """Whether the token may stand in the index: small ones never do, and what carries a record's id only when it is another's."""
    tokenizer = collection.tokenizers.get(name)
    if tokenizer is None:  # the rules have lost the field, and may get it back
        return False
    if tokenizer.resolution is Resolution.INDEXED:
        return True
    found = tokenizer.identify(text) if tokenizer.resolution is Resolution.SEALED else None
    return found is not None and found[0] != rid
