"""Recognition of the records of an answer's objects, where only the token index led to them."""

from collections.abc import Container, Mapping, Sequence

from proxy.model.schema import Value
from proxy.tokenization.base import Resolution
from proxy.vault.collection import Collection
from proxy.vault.proxied.open_rows import AnswerObject, OpenRow, Revealed


def recognize(
    collection: Collection,
    objects: Sequence[AnswerObject],
    candidates: Mapping[int, Mapping[int, bool]],
    at: tuple[Revealed, Mapping[int, str | None]],
) -> None:
    """Tell which records the objects are that the index led to: what several records share tells
    none of them.

    A record with a token that only it has is the one. Else it is the one that fits, among all that
    do; of two that fit, the one that has every token that the other has, and more. One that fits
    several objects is none of them.
    """
    result, others = at
    homes = {**others}
    homes.update(
        (home.row.rid, objects[index].id)
        for index, home in enumerate(result.rows)
        if home is not None
    )
    recognized: list[tuple[int, OpenRow]] = []
    for index, records in candidates.items():
        ident, home = objects[index].id, result.rows[index]
        alone = [rid for rid, lone in records.items() if lone]
        # what a later change of this id has replaced is shown no more; a token that others have as
        # well may have been copied
        later = home is not None and home.row.key is not None and len(records) == 1
        replaced = home.live.values.keys() if home is not None and later else ()
        rids = alone or [rid for rid in records if homes.get(rid, ident) == ident]
        several = [result.opened[rid] for rid in rids]
        if ident is not None:
            several = [record for record in several if record.row.key is None]
        if not alone:
            several = _best(collection, objects[index], several, (home, result.values[index]))
        if ident is None and len(several) == 1:
            result.rows[index] = home or several[0]
        recognized += [
            (index, record)
            for record in several
            if record.row.key is None
            and (alone or (len(several) == 1 and not _has_own(collection, record, replaced)))
        ]
    claims: dict[int, set[str]] = {}
    for index, record in recognized:
        claims.setdefault(record.row.rid, set()).update(
            [ident] if (ident := objects[index].id) is not None else []
        )
    result.loose.extend(one for one in recognized if len(claims[one[1].row.rid]) < 2)


def _best(
    collection: Collection,
    item: AnswerObject,
    records: Sequence[OpenRow],
    at: tuple[OpenRow | None, Sequence[Value | None]],
) -> list[OpenRow]:
    """The records that an object may be, by tokens that others have too; of several, the one that
    explains most of it.

    ``at``: the record that the object is known to be, and what its tokens stand for so far. A newer
    record without a name is no part of one that has it.
    """
    home, values = at
    named = home if home is not None and home.row.key is not None else None
    fitting = {
        record.row.rid: frozenset(token for token in item.places if token in record.values)
        for record in records
        if (named is None or record.row.rid < named.row.rid)
        and not _is_contradicted(collection, record, item, (named, values))
    }
    best = [
        record
        for record in records
        if (mine := fitting.get(record.row.rid)) is not None
        and all(mine > other for rid, other in fitting.items() if rid != record.row.rid)
    ]
    return best or [record for record in records if record.row.rid in fitting]


def _is_contradicted(
    collection: Collection,
    record: OpenRow,
    item: AnswerObject,
    at: tuple[OpenRow | None, Sequence[Value | None]],
) -> bool:
    """Whether an object shows a token that this record cannot have been given, unless the record
    with its name has it.
    """
    named, values = at
    for (name, text), value in zip(item.places, values, strict=True):
        if text in record.token_texts or (named is not None and (name, text) in named.values):
            continue
        tokenizer = collection.tokenizers.get(name)
        if value is not None or (
            name in record.live.values and tokenizer is not None and tokenizer.resembles(text)
        ):
            return True
    return False


def _has_own(collection: Collection, record: OpenRow, replaced: Container[str]) -> bool:
    """Whether a record has unique tokens that may still be shown: those identify it, and shared
    ones do not.
    """
    return any(
        (tokenizer := collection.tokenizers.get(field)) is not None
        and not tokenizer.same
        and tokenizer.resolution in (Resolution.SEALED, Resolution.INDEXED)
        for field in record.live.values
        if field not in replaced
    )
