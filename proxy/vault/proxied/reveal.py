"""From tokens back to values: one look-up for each page of an answer.

Nearly every object shows the current record of its id, so its values stand in the record in the
object's order. Any other token is resolved by the record id it carries (SEALED), by the
application's id beside it, or by the token index, in this order, and only to a value of this very
field whose stored token is exactly this text. A look-alike stays unchanged, and so does a token in
a foreign field.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from proxy.model.schema import NO_VALUE, Value
from proxy.offload import FEW, STRIDE, busy, each, give_way, in_thread, strides
from proxy.storage.rows import Row
from proxy.tokenization.base import Resolution
from proxy.vault.body import RecordBody, TokenizedValue
from proxy.vault.collection import LOOKED_UP, Collection
from proxy.vault.earlier_values import RECORD_ID
from proxy.vault.erasure import FieldToken
from proxy.vault.proxied.open_rows import (
    AnswerObject,
    OpenRow,
    Revealed,
    open_current,
    open_with_staged,
)
from proxy.vault.proxied.recognize import OF_ID, by_index, find, is_shared, of_gone_field, recognize
from proxy.vault.verdicts import is_as_before

#: Objects of an answer that are resolved at once.
REVEAL_SLICE = 100


async def reveal_objects(
    collection: Collection, objects: Sequence[AnswerObject], began: int | None = None
) -> Revealed:
    """Resolve every token of an answer.

    Raises ``VaultError(VAULT_DOWN)`` when the store cannot be read.

    ``began``: when the answer was requested; it may show versions replaced since. A row that does
    not open is logged by its event and leaves its tokens in place; the others are restored. A long
    list is resolved in parts, with turns of the event loop between them.
    """
    whole = Revealed([], [], [], {}, [])
    for start in range(0, len(objects), REVEAL_SLICE):
        some = objects[start : start + REVEAL_SLICE]
        current = await open_current(collection, some)
        others: list[int] = []
        for index, one in enumerate(current):
            record, values = one or (None, [])
            whole.rows.append(record)
            whole.values.append(values)
            if record is not None:
                whole.opened[record.row.rid] = record
            else:
                others.append(index)
        if others:
            homes = {
                one[0].row.rid: item.id
                for item, one in zip(some, current, strict=True)
                if one is not None
            }
            part = await reveal_others(collection, [some[index] for index in others], began, homes)
            for index, values, record in zip(others, part.values, part.rows, strict=True):
                whole.values[start + index], whole.rows[start + index] = values, record
            whole.loose.extend((start + others[index], stray) for index, stray in part.loose)
            whole.opened.update(part.opened)
            whole.pending.extend((start + others[index], one) for index, one in part.pending)
        if start + REVEAL_SLICE < len(objects) and busy():
            await give_way()
    return whole


async def reveal_others(
    collection: Collection,
    objects: Sequence[AnswerObject],
    began: int | None,
    homes: Mapping[int, str | None],
) -> Revealed:
    """Resolve objects that are looked up together and may show anything.

    ``homes``: ids of other objects, by their records.
    """
    places = [token for item in objects for token in item.places]
    carrying = iter(await each(lambda token: collection.identify(*token), places))
    marks = [[next(carrying) for _ in item.places] for item in objects]
    carried = {rid for row in marks for rid in row if rid is not None}
    ids = dict.fromkeys(item.id for item in objects if item.id is not None)
    by_id = await collection.by_key(ids) if ids else {}
    # an update of a record that the vault does not know has its id, and the row not yet
    begun = collection.state.begun
    started = {name: rid for rid, name in begun.items() if name in ids and name not in by_id}
    carried.update(started.values())
    opened = await open_with_staged(collection, carried, by_id.values())
    if not carried <= opened.keys():
        by_id.update(await _by_names(collection, objects, marks, opened))
    at = {ident: opened.get(rid) for ident, rid in started.items()}
    at.update((ident, opened.get(row.rid)) for ident, row in by_id.items())
    # one that a token carries may have got the id since that was looked up
    read = {row.rid for row in by_id.values()}
    at.update((one.name, one) for one in opened.values() if one.name and one.row.rid not in read)
    result = Revealed([], [], [], opened, [])
    missing: list[tuple[int, int, bytes]] = []
    unsure: list[tuple[int, int, bytes]] = []
    for index, (item, rids) in enumerate(zip(objects, marks, strict=True)):
        home = at.get(item.id) if item.id is not None else None
        if home is None and (home := _only(opened, item, rids)) is not None:
            unsure += _unsure(collection, index, item, home)
        values, unknown = await _resolved(collection, item, rids, (opened, home))
        result.values.append(values)
        result.rows.append(home)
        missing += [(index, token, digest) for token, digest in unknown]
    if any(one.row.key is None for one in opened.values()):
        result.loose.extend(_loose(objects, marks, opened))
    # a newer record without a name counts before what its own record tells: that comes first
    first = list(result.rows)
    await _tell_all_apart(objects, first, result.values)
    await _look_further(collection, objects, (missing, unsure), (result, homes))
    rest = [row if row is not home else None for row, home in zip(result.rows, first, strict=True)]
    await _tell_all_apart(objects, rest, result.values)
    if began is not None and collection.state.retired:
        for index, (item, rids) in enumerate(zip(objects, marks, strict=True)):
            if None in result.values[index]:
                _look_back(
                    collection,
                    item,
                    [rid if rid in opened else None for rid in rids],
                    (result, index, began),
                )
    return result


async def _look_further(
    collection: Collection,
    objects: Sequence[AnswerObject],
    tokens: tuple[Sequence[tuple[int, int, bytes]], Sequence[tuple[int, int, bytes]]],
    at: tuple[Revealed, Mapping[int, str | None]],
) -> None:
    """Resolve missing values by nameless records of the objects, and last by the token index.

    There a same-value token also finds records of others, which may spell the value otherwise.
    ``tokens``: those that are missing, and those that others may have as well.
    """
    (missing, unsure), (result, _) = tokens, at
    before = len(result.loose)
    for index, stray in sorted(result.loose, key=_age):
        _complete(collection, objects[index], result, index, stray)
    missing = [token for token in missing if result.values[token[0]][token[1]] is None]
    missing += [*unsure, *_ids_of_unresolved(collection, objects, result)]
    candidates: dict[int, dict[int, bool]] = {}
    lost: dict[int, set[FieldToken]] = {}
    for some in strides(missing, LOOKED_UP):
        by_object = await by_index(collection, objects, some, (result, candidates))
        for index, erased in by_object.items():
            lost.setdefault(index, set()).update(erased)
        if busy():
            await give_way()
    renamed = recognize(collection, objects, candidates, at) if candidates else []
    more = [*renamed, *result.loose[before:]]
    for index, stray in sorted([*more, *result.loose[:before]] if more else (), key=_age):
        _complete(collection, objects[index], result, index, stray)
    for index, one in renamed:
        result.rows[index] = one
    for index, erased in lost.items():
        for number, token in _unresolved(objects[index], result, index):
            if token in erased or _is_respelled(collection, token, erased):
                result.values[index][number] = NO_VALUE


def _is_respelled(collection: Collection, token: FieldToken, tokens: Iterable[FieldToken]) -> bool:
    """Whether a text is one of these in another spelling, or of a field that has gone."""
    name, text = token
    if any(one == text and of not in (RECORD_ID, *collection.tokenizers) for of, one in tokens):
        return True
    own = [one for field, one in tokens if field == name and name in collection.respells]
    return bool(own) and any(True for _ in collection.respelled(name, (text,), own))


def _unresolved(
    item: AnswerObject, result: Revealed, index: int
) -> Iterator[tuple[int, FieldToken]]:
    """The places that nothing resolved."""
    for number, (token, value) in enumerate(zip(item.places, result.values[index], strict=True)):
        if value is None:
            yield number, token


def _ids_of_unresolved(
    collection: Collection, objects: Sequence[AnswerObject], result: Revealed
) -> Iterator[tuple[int, int, bytes]]:
    """The ids of objects that show what may be tokens of erased records."""
    for index, item in enumerate(objects):
        if item.id is None:
            continue
        for _, (name, text) in _unresolved(item, result, index):
            tokenizer = collection.tokenizers.get(name)
            if tokenizer is not None and tokenizer.resembles(text):
                yield index, OF_ID, collection.token_hash(RECORD_ID, item.id)
                break


async def _tell_all_apart(
    objects: Sequence[AnswerObject],
    homes: Sequence[OpenRow | None],
    values: Sequence[list[Value | None]],
) -> None:
    for item, home, restored in zip(objects, homes, values, strict=True):
        if home is not None and len(item.places) > FEW:
            await in_thread(_tell_apart, home, item, restored)
        else:
            _tell_apart(home, item, restored)


def _tell_apart(home: OpenRow | None, item: AnswerObject, values: list[Value | None]) -> None:
    """Decide by other values and places of the object where a token stands for several values."""
    if home is not None and (home.staged or home.repeats):
        _restate(home.values_at(item.places), item.places, values)


def _restate(
    fields: Mapping[str, tuple[TokenizedValue, ...]],
    places: Sequence[tuple[str, str]],
    values: list[Value | None],
) -> None:
    """Resolve tokens by these values alone; of values that share a token, the first place shows the
    first.
    """
    values_of: dict[tuple[str, str], list[Value]] = {}
    for name, several in fields.items():
        for value in reversed(several):
            values_of.setdefault((name, value.token), []).append(value.value)
    for index, token in enumerate(places):
        left = values_of.get(token)
        if left:
            values[index] = left.pop() if len(left) > 1 else left[0]


async def _resolved(
    collection: Collection,
    item: AnswerObject,
    rids: Sequence[int | None],
    rows: tuple[Mapping[int, OpenRow], OpenRow | None],
) -> tuple[list[Value | None], list[tuple[int, bytes]]]:
    """The values of an object by the records that were opened, by id, and the one of the object,
    and the places and hashes of tokens that the index may know. ``rids``: the ids in tokens.
    """
    opened, home = rows
    values: list[Value | None] = []
    missing: list[tuple[int, bytes]] = []
    for index, ((name, text), rid) in enumerate(zip(item.places, rids, strict=True)):
        other = opened.get(rid or 0)  # which ``home`` may have it in common with
        value = find(home, name, text) or find(other, name, text)
        value = value or of_gone_field(collection, (home, other), text)
        if value is None and rid is None and home is not None and name in collection.respells:
            own = [token for field, token in home.values if field == name]
            for _, spelled in collection.respelled(name, (text,), own):
                value = find(home, name, spelled)
        if value is None and (rid is not None or _indexable(collection, name, text)):
            missing.append((index, collection.token_hash(name, text)))
        values.append(value)
        if index % STRIDE == STRIDE - 1 and busy():
            await give_way()
    return values, missing


def _look_back(
    collection: Collection,
    item: AnswerObject,
    rids: Sequence[int | None],
    at: tuple[Revealed, int, int],
) -> None:
    """Resolve tokens of versions that were replaced while the answer was under way, of records that
    are still there.
    """
    result, index, began = at
    values, home = result.values[index], result.rows[index]
    past: dict[int, list[tuple[RecordBody, set[tuple[str, str]]]]] = {}
    for number, at_place in enumerate(item.places):
        rid = rids[number] or (home.row.rid if home is not None else None)
        record = home if rid is None else result.opened.get(rid, home)
        if values[number] is not None or rid is None or record is None:
            continue
        if rid not in past:
            past[rid] = [
                (content, content.value_tokens())
                for content in collection.past(rid, began, record.live)
            ]
        for content, tokens_of in past[rid]:
            if at_place in tokens_of:
                _restate(content.values, item.places, values)
                break


def _complete(
    collection: Collection, item: AnswerObject, result: Revealed, index: int, stray: OpenRow
) -> None:
    """Resolve tokens that others may have by a nameless record that the object shows; by the newer
    of two, where both have them.
    """
    values, home = result.values[index], result.rows[index]
    newer = home is None or stray.row.rid > home.row.rid
    if home is not None and not newer:
        newer = is_as_before(item.places, home.live.values, stray.live.values)
    later = home.written_later(collection.single, stray, item) if home is not None else ()
    own = [find(stray, name, text) for name, text in item.places]
    _tell_apart(stray, item, own)
    for number, (name, text) in enumerate(item.places):
        if values[number] is None and own[number] is None and name in collection.respells:
            some = [token for field, token in stray.values if field == name]
            for _, spelled in collection.respelled(name, (text,), some):
                own[number] = find(stray, name, spelled)
    for number, (name, _) in enumerate(item.places):
        both = name not in later if name in collection.single else newer
        if values[number] is None or (both and is_shared(collection, name)):
            values[number] = own[number] or values[number]


def _age(loose: tuple[int, OpenRow]) -> int:
    return loose[1].row.rid


def _loose(
    objects: Sequence[AnswerObject],
    marks: Sequence[Sequence[int | None]],
    opened: Mapping[int, OpenRow],
) -> Iterator[tuple[int, OpenRow]]:
    """The nameless records whose tokens objects carry, and really show."""
    for index, (item, rids) in enumerate(zip(objects, marks, strict=True)):
        for rid in dict.fromkeys(rids):
            one = opened.get(rid) if rid is not None else None
            if (
                one is not None
                and one.row.key is None
                and any(token in one.values for token in item.places)
            ):
                yield index, one


def _only(
    opened: Mapping[int, OpenRow], item: AnswerObject, rids: Sequence[int | None]
) -> OpenRow | None:
    """The one record that the tokens of an object carry, if they agree: the object is that record,
    bound or not yet.

    Tokens outside their own field prove nothing.
    """
    carried_by = {rid for rid in rids if rid is not None and rid in opened}
    if len(carried_by) != 1:
        return None
    one = opened[carried_by.pop()]
    carried = [token for token, rid in zip(item.places, rids, strict=True) if rid == one.row.rid]
    if any(token in one.values for token in carried):
        return one
    return None if all(text in one.token_texts for _, text in carried) else one


def _unsure(
    collection: Collection, index: int, item: AnswerObject, home: OpenRow
) -> list[tuple[int, int, bytes]]:
    """The tokens of an object that may be another record than the one they carry, which has another
    id, or something in doubt: a change of several gives one token to each of its records.
    """
    if home.row.key is None or not (item.id is not None or home.row.staged):
        return []
    return [
        (index, number, collection.token_hash(*token))
        for number, token in enumerate(item.places)
        if token in home.values
    ]


async def _by_names(
    collection: Collection,
    objects: Sequence[AnswerObject],
    marks: Sequence[Sequence[int | None]],
    opened: dict[int, OpenRow],
) -> dict[str, Row]:
    """Rows by the ids of objects whose tokens carry a record that is gone: another may have taken
    them over (``joining``).
    """
    wanted = {
        item.id
        for item, rids in zip(objects, marks, strict=True)
        if item.id is not None and any(rid is not None and rid not in opened for rid in rids)
    }
    rows = await collection.by_key(wanted) if wanted else {}
    # also one that was opened before it took the other in
    newer = [row for row in rows.values() if row.rid not in opened or opened[row.rid].row != row]
    opened.update(await open_with_staged(collection, (), newer))
    return rows


def _indexable(collection: Collection, name: str, text: str) -> bool:
    tokenizer = collection.tokenizers.get(name)
    return (
        tokenizer is not None
        and tokenizer.resolution is Resolution.INDEXED
        and tokenizer.resembles(text)
    )
