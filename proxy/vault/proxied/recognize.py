"""Recognition of the records of an answer's objects, where only the token index led to them."""

from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from proxy.model.schema import NO_VALUE, Value
from proxy.offload import STRIDE, busy, give_way
from proxy.storage.rows import TOKEN_RIDS, RowState
from proxy.tokenization.base import TELLS_RECORD, Resolution
from proxy.vault.body import RecordBody, TokenizedFields
from proxy.vault.collection import Collection
from proxy.vault.earlier_tokens import other_spellings
from proxy.vault.earlier_values import RECORD_ID
from proxy.vault.erasure import FieldToken, tokens_of_marks, with_expired
from proxy.vault.proxied.open_rows import AnswerObject, OpenRow, Revealed, open_with_staged

#: The number of no token of an object, but of its id.
OF_ID = -1


def recognize(
    collection: Collection,
    objects: Sequence[AnswerObject],
    candidates: Mapping[int, Mapping[int, bool]],
    at: tuple[Revealed, Mapping[int, str | None]],
) -> list[tuple[int, OpenRow]]:
    """Tell which records the objects are that the index led to: what several records share tells
    none of them. Gives the records that have got the ids of objects since these were looked up.

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
    renamed: list[tuple[int, OpenRow]] = []
    for index, records in candidates.items():
        ident, home = objects[index].id, result.rows[index]
        several = [result.opened[rid] for rid in records] if ident is not None else []
        renamed += [(index, one) for one in several if one.name == ident and one is not home]
        alone = [rid for rid, lone in records.items() if lone]
        # what a later change of this id has replaced is shown no more; a token that others have as
        # well may have been copied
        later = home is not None and home.row.key is not None and len(records) == 1
        replaced = _own_fields(home, objects[index]) if home is not None and later else ()
        rids = alone or [rid for rid in records if homes.get(rid, ident) == ident]
        several = [result.opened[rid] for rid in rids]
        if ident is not None:
            several = [record for record in several if record.row.key is None]
        if not alone:
            named = home if home is not None and home.row.key is not None else None
            pair = named, result.values[index]
            best = _best(collection, objects[index], several, pair)
            newer = [one for one in best if named is not None and one.row.rid > named.row.rid]
            several = [one for one in best if one not in newer]
            if several:
                several = _best(collection, objects[index], several, pair)
            elif len(newer) == 1:
                _add_part(collection, objects[index], newer[0], pair)
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
    return renamed


def _add_part(
    collection: Collection,
    item: AnswerObject,
    part: OpenRow,
    at: tuple[OpenRow | None, list[Value | None]],
) -> None:
    """Resolve what only ``part`` can have brought, a create without an answer that the application
    took for a change of the record with the object's id. Where a field has one token it counts as
    well, unless that was written since, or one value alone is of the create: it may be a copy.

    They stay apart: the tokens that led there are those of equal values, which others may have.
    """
    named, values = at
    newer = _untold_fields(collection, part, named, item) if named is not None else set()
    for number, (name, text) in enumerate(item.places):
        if values[number] is None or name in newer:
            values[number] = find(part, name, text) or values[number]
    if named is not None and _lone(part, named, item) > 1:
        note_lost_values(collection, part, named, item)


def _untold_fields(
    collection: Collection, part: OpenRow, home: OpenRow, item: AnswerObject
) -> set[str]:
    """The fields that ``part`` may have brought to ``home``, though no token tells it: those with
    one token that were not written since, as far as the object shows. None where it shows one value
    of ``part`` alone, which may be a copy.
    """
    if _lone(part, home, item) < 2:
        return set()
    return set(collection.single) - home.written_later(collection.single, part, item)


def note_lost_values(
    collection: Collection, part: OpenRow, home: OpenRow, item: AnswerObject
) -> None:
    """Note what an object shows of ``part`` and not of ``home``, which has its id, also where no
    token tells (``stage_lost_values``).
    """
    newer = _untold_fields(collection, part, home, item)
    own = {token for token in home.values if token[0] not in newer}
    names = {token[0] for token in item.places if token in part.values and token not in own}
    home.lost_values = {name: of for name, of in part.live.values.items() if name in names}
    home.lost_rid = part.row.rid


def _lone(part: OpenRow, named: OpenRow, item: AnswerObject) -> int:
    """The number of tokens that an object shows and of these two records the first alone has."""
    return sum(token in part.values and token not in named.values for token in item.places)


def _own_fields(home: OpenRow, item: AnswerObject) -> set[str]:
    """The fields in which the record of an object has values, or the object shows one of its."""
    return {*home.live.values, *(token[0] for token in item.places if token in home.values)}


def _best(
    collection: Collection,
    item: AnswerObject,
    records: Sequence[OpenRow],
    at: tuple[OpenRow | None, Sequence[Value | None]],
) -> list[OpenRow]:
    """The records that an object may be, by tokens that others have too; of several, the one that
    explains most of it.

    ``at``: the record with the object's id, and what its tokens stand for so far.
    """
    fitting = {
        record.row.rid: frozenset(token for token in item.places if token in record.values)
        for record in records
        if not _is_contradicted(collection, record, item, at)
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


def visible_pending(
    collection: Collection, objects: Sequence[AnswerObject], revealed: Revealed, began: int
) -> list[tuple[int, OpenRow]]:
    """The pending records that alone have a shown token (``Revealed``), but where the record of the
    object had it until a change since the request (``began``), which overtook the answer.
    """
    visible: list[tuple[int, OpenRow]] = []
    for index, pending in revealed.pending:
        home, before = revealed.rows[index], set[tuple[str, str]]()
        if home is not None and home.row.key is not None:
            for content in collection.past(home.row.rid, began, home.live):
                before |= content.value_tokens()
        if any(one in pending.values and one not in before for one in objects[index].places):
            visible.append((index, pending))
    return visible


def _has_own(collection: Collection, record: OpenRow, replaced: Container[str]) -> bool:
    """Whether a record has unique tokens that may still be shown: those identify it, and shared
    ones do not.
    """
    return any(
        (tokenizer := collection.tokenizers.get(field)) is not None
        and not tokenizer.same
        and tokenizer.resolution in TELLS_RECORD
        for field in record.live.values
        if field not in replaced
    )


def has_token_of(
    collection: Collection, tokens: AbstractSet[tuple[str, str]], other: RecordBody
) -> bool:
    """Whether one of these (field, token) is of another record, and tells that one from others."""
    shapes = collection.tokenizers
    return any(
        name in shapes and not shapes[name].same and shapes[name].resolution in TELLS_RECORD
        for name, _ in tokens & other.value_tokens()
    )


def find(opened: OpenRow | None, name: str, text: str) -> Value | None:
    """The value of a token in one record, in the field that it was made for."""
    return None if opened is None else opened.values.get((name, text))


def of_gone_field(
    collection: Collection, records: Iterable[OpenRow | None], text: str
) -> Value | None:
    """The value of a token in one of these records whose field the rules do not have any more: it
    has another name now, and the token stands in the place of that.
    """
    for one in records:
        for (name, token), value in one.values.items() if one and text in one.token_texts else ():
            if token == text and name not in collection.tokenizers:
                return value
    return None


def telling_hashes(collection: Collection, fields: TokenizedFields) -> list[bytes]:
    """The hashes of tokens that tell their record from others; none of fields that have gone."""
    return [
        collection.token_hash(name, value.token)
        for name, values in fields.items()
        if name in collection.tokenizers and collection.tokenizers[name].resolution in TELLS_RECORD
        for value in values
    ]


def is_shared(collection: Collection, name: str) -> bool:
    """Whether other records may have the same tokens of the field."""
    tokenizer = collection.tokenizers.get(name)
    return tokenizer is not None and (
        tokenizer.same or tokenizer.resolution is Resolution.BY_RECORD
    )


async def by_index(
    collection: Collection,
    objects: Sequence[AnswerObject],
    missing: Sequence[tuple[int, int, bytes]],
    outcome: tuple[Revealed, dict[int, dict[int, bool]]],
) -> dict[int, set[FieldToken]]:
    """Fill in what only the token index knows, and note per object the records it led to: whether
    by a token of theirs alone. Return the tokens of erased records that it led to, by object.

    A token with more records than the index returns resolves to none. ``OF_ID`` in the place of a
    token's number: it is the object's id.
    """
    (result, candidates), strange = outcome, list[tuple[int, int]]()
    digests = {digest for _, _, digest in missing}
    of_ids = {objects[index].id: digest for index, at, digest in missing if at == OF_ID}
    hits, opened, marks = await _led_to(collection, list(digests), of_ids)
    result.opened.update(opened)
    lost: dict[int, set[FieldToken]] = {}
    for index, number, digest in missing:
        rids = hits.get(digest, ())
        for rid in marks.keys() & rids:
            lost.setdefault(index, set()).update(
                _of_mark(collection, objects[index], number, marks[rid])
            )
        if number == OF_ID:
            continue
        name, text = objects[index].places[number]
        having = [
            record
            for rid in rids
            if (record := opened.get(rid)) is not None and find(record, name, text)
        ]
        having = [one for one in having if find(one, name, text) != NO_VALUE] or having
        if not having:
            if result.values[index][number] is None:
                strange.append((index, number))
            continue
        if result.values[index][number] is None:
            # of one in doubt nobody knows whether it has it, and how it spells it
            certain = next((one for one in having if not one.row.staged), having[0])
            result.values[index][number] = find(certain, name, text)
        elif len(having) > 1:
            result.rows[index] = None  # a change of several gave it to each of these
        if all(record.row.state is RowState.PENDING for record in having):
            result.pending.extend((index, record) for record in having)
        if len(rids) < TOKEN_RIDS:
            here = candidates.setdefault(index, {})
            for rid in [record.row.rid for record in having]:
                here[rid] = here.get(rid) or not is_shared(collection, name)
    if strange:
        await _by_other_spellings(collection, objects, strange, result)
    return lost


async def _led_to(
    collection: Collection, digests: Sequence[bytes], of_ids: Mapping[str | None, bytes]
) -> tuple[dict[bytes, tuple[int, ...]], dict[int, OpenRow], dict[int, frozenset[FieldToken]]]:
    """The records that the index leads to, these records, and the tokens of erased ones of them.

    One that has gone in between may be a part of another since, to which its tokens lead then.
    """
    hits: dict[bytes, tuple[int, ...]] | None = None
    while True:
        before, hits = hits, await collection.store.by_tokens(collection.table, digests)
        hits |= await with_expired(collection, of_ids, hits)
        rids = {rid for several in hits.values() for rid in several}
        opened = await open_with_staged(collection, rids, ())
        marks = await tokens_of_marks(collection, list(rids - opened.keys()))
        if hits == before or rids <= opened.keys() | marks.keys():
            return hits, opened, marks


def _of_mark(
    collection: Collection, item: AnswerObject, number: int, tokens: AbstractSet[FieldToken]
) -> AbstractSet[FieldToken]:
    """The tokens of an erased record that an object may show, to which its id or this token led:
    all where that tells the record, else this one alone.
    """
    if number == OF_ID:
        return tokens
    token = item.places[number]
    ids = [text for name, text in tokens if name == RECORD_ID]
    tells = not is_shared(collection, token[0]) and (not ids or item.id in (None, *ids))
    return tokens if tells else tokens & {token}


async def _by_other_spellings(
    collection: Collection,
    objects: Sequence[AnswerObject],
    strange: Sequence[tuple[int, int]],
    result: Revealed,
) -> None:
    """Fill in telephone numbers that the application writes otherwise than the token in the index:
    joined with a calling code, or without it. They tell no record.
    """
    spots: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for index, number in strange:
        spots.setdefault(objects[index].places[number], []).append((index, number))
    spelled: dict[bytes, list[tuple[tuple[str, str], str]]] = {}
    for count, spot in enumerate(spots, 1):
        if collection.schema.field(spot[0]).kind == "phone":
            for other in other_spellings(spot[1], collection.context.region):
                spelled.setdefault(collection.token_hash(spot[0], other), []).append((spot, other))
        if count % STRIDE == 0 and busy():
            await give_way()
    if not spelled:
        return
    (hits, opened, marks), lost = await _led_to(collection, list(spelled), {}), set[FieldToken]()
    meant: dict[tuple[str, str], set[Value]] = {}
    for digest, rids in hits.items():
        having = [opened[rid] for rid in rids if rid in opened]
        for spot, other in spelled[digest]:
            if any((spot[0], other) in marks[rid] for rid in marks.keys() & rids):
                lost.add(spot)
            values = {value for one in having if (value := find(one, spot[0], other)) is not None}
            meant.setdefault(spot, set()).update(values)
            result.opened.update((one.row.rid, one) for one in having if values)
    for spot, values in meant.items():
        either = values or ({NO_VALUE} if spot in lost else values)
        for index, number in spots[spot] if len(either) == 1 else ():
            result.values[index][number] = next(iter(either))
