"""Entries of the token index that a record no longer needs once versions of it are gone.

A same-value token is equal in every version with the value: an entry may go only if neither the
live version nor another staged change has it. Callers hold the record's lock, so that nothing is
staged meanwhile.
"""

from collections.abc import Collection as Some
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from proxy.offload import busy, give_way, in_thread, strides
from proxy.storage.changes import Change, Reindex, Replace
from proxy.storage.rows import Row
from proxy.tokenization.base import Resolution
from proxy.vault.body import TOKEN_OF, RecordBody, next_generation
from proxy.vault.collection import Collection
from proxy.vault.earlier_values import keeping
from proxy.vault.erasure import without_values


async def unneeded(
    collection: Collection,
    row: Row,
    settled: Some[int],
    left: Iterable[RecordBody] = (),
    *,
    untold: bool = False,
) -> list[Change] | None:
    """Return what goes with these settled changes of a row: index entries.

    The versions ``left`` replace its live one (none: it stays). ``None`` if the row has changed
    since it was read.

    A live one that stays keeps the value numbers of those that go: the application may hold a token
    of theirs all the same, and no later value may get that. Its version stays, too, for deletes
    that wait count by it. Raises ``VaultError(CANNOT_OPEN)`` where a column was changed.

    ``untold``: no answer has told of those that go. Tokens of theirs that people take for a value
    stand for none from now on.
    """
    rows = {row.rid: row}
    staged = (await collection.staged_beside(rows)).get(row.rid, ())
    if rows[row.rid] != row:
        return None
    current, _ = collection.sealer.open_with_key(row)
    versions = [
        (change.sid, opened)
        for change in staged
        if (opened := collection.sealer.open_staged(change, row.salt)) is not None
    ]
    gone = [current, *(content for sid, content in versions if sid in settled)]
    stay = [*(left or [current]), *(content for sid, content in versions if sid not in settled)]
    following = next_generation([*gone, *stay])
    changes: list[Change] = []
    if not left and following > current.following:
        # the application may have taken what no answer told of
        numbered = keeping(collection, replace(current, following=following), gone)
        if untold and not collection.keeps:
            numbered = without_values(collection, numbered, gone)
            stay = [numbered, *stay[1:]]
        changes.append(Replace(collection.same_row(row, numbered), row.version))
    return [*await outdated(collection, row.rid, gone, stay), *changes]


async def outdated(
    collection: Collection, rid: int, gone: Iterable[RecordBody], left: Iterable[RecordBody]
) -> list[Reindex]:
    """The entries of tokens that versions had which are gone, and that no version has which is
    left.
    """
    if collection.keeps:
        return []  # whoever shows one of them is restored; they end with the record
    gone, left, many = list(gone), list(left), False
    for content in gone:
        many = many or content.many
    tokens = await in_thread(_without, gone, left) if many else _without(gone, left)
    if not tokens:
        return []
    drop: list[bytes] = []
    for name, texts in tokens.items():
        for some in strides(list(texts)):
            entered = with_entries(collection, rid, name, some)
            drop += [collection.token_hash(name, text) for text in entered]
            if busy():
                await give_way()
    return [Reindex(rid, drop=tuple(drop))] if drop else []


def _without(gone: Sequence[RecordBody], left: Sequence[RecordBody]) -> dict[str, set[str]]:
    """By field the tokens of those versions that none of the others has."""
    lone = left[0].values if left else {}
    tokens: dict[str, set[str]] = {}
    for content in gone:
        for name, values in content.values.items():
            if values is not lone.get(name):  # else what stays has the very same
                tokens.setdefault(name, set()).update(map(TOKEN_OF, values))
    for content in left if tokens else ():
        for name, texts in tokens.items():
            for part in (content.values, content.earlier):
                texts.difference_update(map(TOKEN_OF, part.get(name, ())))
    return tokens


def with_entries(
    collection: Collection, rid: int, name: str, texts: Sequence[str]
) -> Sequence[str]:
    """The tokens of a record that may stand in the index: small ones never do, and one that carries
    a record's id only when it is another's.
    """
    tokenizer = collection.tokenizers.get(name)
    if tokenizer is None:  # the rules have lost the field, and may get it back
        return ()
    if tokenizer.resolution is Resolution.INDEXED:
        return texts
    carried = tokenizer.carried(texts) if tokenizer.resolution is Resolution.SEALED else ()
    return [text for text, other in zip(texts, carried, strict=False) if other not in (None, rid)]
