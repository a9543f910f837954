"""Settles staged values by an answer: accepted, refused or unknown."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence

from proxy.offload import FEW, STRIDE, busy, give_way, in_thread, run_in_thread
from proxy.redactor.exchange.writing import Writing
from proxy.redactor.message import RawHeaders, numeric_id
from proxy.redactor.named_places import may_be_several, names_ids
from proxy.redactor.plan import GATEWAYS, Outcome, has_no_content, header_ids, shows_nothing
from proxy.redactor.redact import BodyObject, ParsedBody, Spot
from proxy.redactor.rules import IdSource, Operation, Verb
from proxy.tokenization.base import Resolution
from proxy.vault.body import tokens_of
from proxy.vault.proxied import (
    Displacement,
    StagedWrite,
    accept,
    bind,
    drop_staged,
    promised,
    promote,
)

#: The status and the fields of an answer, and its body where that was read.
_Answer = tuple[int, RawHeaders, ParsedBody | None]
# Members of an enumeration are looked up several times slower in it.
_TAKEN, _HEADER = Outcome.TAKEN, IdSource.HEADER
_CREATE, _DELETE, _UPDATE = Verb.CREATE, Verb.DELETE, Verb.UPDATE


async def nothing_to_settle() -> None:
    """There is nothing to settle."""


def settle(
    writing: Writing,
    operation: Operation,
    outcome: Outcome,
    answer: _Answer,
    written: bool,
) -> Awaitable[None]:
    """Complete the exchange.

    ``written``: the answer shows the only record as it was written, and no token that was changed.
    """
    if outcome is _TAKEN and operation.verb is not _CREATE and writing.writes:
        several = max(len(writing.writes), len(writing.named)) > 1 or may_be_several(operation)
        complete = operation.response.complete
        if (several and not complete) or names_ids(operation):
            return _settle_several(writing, operation, answer)
        if not complete and (writing.untold or shows_nothing(operation.response, *answer[:2])):
            return settle_unshown(writing, operation, answer)
    return _settle(writing, operation, outcome, answer, written)


async def settle_unshown(writing: Writing, operation: Operation, answer: _Answer) -> None:
    """Settle an accepted change of which the answer shows nothing: an update keeps both versions,
    and a delete is in doubt; one that only marks is put off as long as the record is shown.
    """
    if operation.verb is _DELETE and operation.keep is None:
        await _promise(writing)
    else:
        for one in writing.writes:
            one.both = True
    await _settle(writing, operation, _TAKEN, answer, False)


async def _promise(writing: Writing) -> None:
    """Leave deletes in doubt that the application acknowledged, without saying of which."""
    await writing.settle(promised, writing.writes)
    for one in writing.writes:
        one.unnamed = True
    writing.named = ()


def _settle(
    writing: Writing,
    operation: Operation,
    outcome: Outcome,
    answer: _Answer,
    written: bool,
) -> Awaitable[None]:
    """Settle what is not left in doubt."""
    body = answer[2]
    if outcome is _TAKEN and operation.verb is not _DELETE and writing.writes:
        row = writing.writes[0].row
        if row is None or row.key is None or len(writing.writes) > 1:
            return _bind(writing, operation, answer, written)
        if body is not None or operation.verb is _UPDATE:
            return _promote(writing, body, written)
    return _ended(writing, operation, outcome, answer)


async def _settle_several(writing: Writing, operation: Operation, answer: _Answer) -> None:
    """Settle an accepted change of several records, which the application may have carried out in
    part.

    Where the answer names some of them, those are changed, and the others are in doubt. Where it
    names none, an update keeps both versions, and a delete is in doubt unless the answer has no
    content.
    """
    writes, deletes = writing.writes, operation.verb is _DELETE
    sent = writing.named if deletes else [one.key for one in writes if one.key is not None]
    refused = named_of(sent, writing.refused)
    named = named_of(sent, answer_ids(operation, answer)) - refused
    if named or refused or (answer[2] is not None and names_ids(operation)):
        for one in writes:
            one.unnamed = one.key not in named
        writing.named = [ident for ident in writing.named if ident in named]
        unnamed = [one for one in writes if one.unnamed]
        if unnamed:
            await writing.doubt(unnamed, answered=True)
    elif deletes and not has_no_content(*answer[:2]):
        await _promise(writing)
    else:
        for one in writes:
            one.both = not deletes
    await _settle(writing, operation, _TAKEN, answer, False)


def answer_ids(operation: Operation, answer: _Answer) -> set[str]:
    """The ids of the records that the answer names."""
    _, headers, body = answer
    ident, ids = operation.response.id, list[str]()
    if ident is not None and ident.source is _HEADER:
        ids += header_ids(ident, headers, operation.template)
    if body is not None:
        ids += [*body.ids, *(item.id for item in body.items if item.id is not None)]
    return set(ids)


def named_of(sent: Sequence[str], answered: set[str]) -> set[str]:
    """The ids of a request that its answer names: as they were sent, or in a spelling that fits one
    of them alone (``01`` and ``1``, letter case).
    """
    named = answered.intersection(sent)
    spellings: dict[str, list[str]] = {}
    for ident in dict.fromkeys(sent):
        spellings.setdefault(_normalized(ident), []).append(ident)
    for ident in answered.difference(named):
        fitting = spellings.get(_normalized(ident), ())
        if len(fitting) == 1:
            named.update(fitting)
    return named


def _normalized(ident: str) -> str:
    return (numeric_id(ident) or ident).casefold()


async def _ended(
    writing: Writing,
    operation: Operation,
    outcome: Outcome,
    answer: _Answer,
) -> None:
    """Settle all but an accepted write."""
    _, headers, body = answer
    if outcome is not _TAKEN:
        if writing.writes and outcome is Outcome.REFUSED:
            await writing.settle(drop_staged, writing.writes)
        elif writing.writes:
            await writing.doubt(writing.writes, answered=answer[0] not in GATEWAYS)
        return
    if operation.verb is _DELETE:
        ident = operation.response.id
        if operation.id is None and ident is not None and ident.source is _HEADER:
            await writing.remove_named(header_ids(ident, headers, operation.template))
        elif operation.id is None and body is not None:
            await writing.remove_named(
                [item.id for item in body.items if item.id is not None] or body.ids
            )
        await writing.remove()
        unknown = {*writing.named}.difference(one.key for one in writing.writes)
        lone = writing.named[0] if len(writing.named) == 1 else None
        if body is not None and (
            bound := unknown.intersection(one.id or lone for one in body.items)
        ):
            await writing.remove_named(list(bound))  # it has told which records without an id


async def _bind(
    writing: Writing,
    operation: Operation,
    answer: _Answer,
    written: bool,
) -> None:
    """New records get the names that the answer tells; those without one are kept all the same.

    Then the others are brought to their end.
    """
    fresh: Sequence[StagedWrite] = writing.writes
    if len(fresh) > 1 or fresh[0].unnamed:
        fresh = [one for one in fresh if not one.unnamed and (one.row is None or not one.row.key)]
    pairs: list[tuple[StagedWrite, str]] = []
    if fresh and writing.renamed is None:
        look = (fresh, operation, *answer[1:])
        pairs = await in_thread(_name, *look) if len(fresh) > STRIDE else _name(*look)
    lone = len(pairs) == len(writing.writes) == 1
    if pairs:
        for write, key in pairs:
            write.key = key
        own = {write.rid: write for write, _ in pairs}
        join = Displacement(lambda rid: _shown_by([own[rid]], answer[2])[0], own, writing.hold)
        await writing.settle(bind, pairs, join)
    if any(write.displaces for write, _ in pairs):
        writing.notices.displaced()
    if len(pairs) < len(fresh):
        named = {write.rid for write, _ in pairs}
        nameless = [write for write in fresh if write.rid not in named]
        lists_all = operation.verb is _CREATE and operation.response.complete
        if lists_all and _names_all(pairs, answer[2]):
            await writing.doubt(nameless, answered=True)  # rejected, unless an answer shows one
        else:
            await writing.settle(accept, nameless)
            writing.notices.nameless()
    if written and lone and fresh[0].row is None:
        return  # nothing else is left to do
    body = answer[2]
    if body is not None or operation.verb is _UPDATE:
        texts = None
        if lone and body is not None and len(body.items) == 1:
            (item,) = body.items
            texts = await run_in_thread(len(item.spots) > FEW, _texts, item)
        await _promote(writing, body, written, texts)


async def _promote(
    writing: Writing,
    body: ParsedBody | None,
    written: bool,
    lone: Mapping[str, tuple[str, ...]] | None = None,
) -> None:
    """Promote accepted updates, and compare them with the answer.

    ``lone``: the shown fields of the only one, if already examined.
    """
    if written and writing.writes[0].sid is None and writing.renamed is None:
        return  # nothing has changed, and it shows just that
    long = len(writing.writes) > STRIDE
    look = writing.writes, body
    if lone is not None:
        texts_of_writes = [lone]
    else:
        texts_of_writes = await in_thread(_shown_by, *look) if long else _shown_by(*look)
    for write, texts in zip(writing.writes, texts_of_writes, strict=True):
        if write.row is not None and write.sid is not None and not write.unnamed:
            await writing.settle(promote, write, texts)
            if long and busy():
                await give_way()
    if writing.renamed is not None:
        await writing.rename(writing.writes[0], writing.renamed)
    for write, texts in zip(writing.writes, texts_of_writes, strict=True):
        _notice(writing, write, texts)
        if long and busy():
            await give_way()


def _notice(
    writing: Writing, write: StagedWrite, texts_by_field: Mapping[str, tuple[str, ...]]
) -> None:
    """Tell of tokens that the application has changed: a field that was sent is shown with neither
    its old nor its new one.

    A field that is not shown, or shown as null or empty, says nothing; nor does a record with a
    version in doubt.
    """
    if write.row is not None and write.row.staged:
        return
    shapes = writing.collection.shapes
    for name, texts in texts_by_field.items():
        sent_tokens = write.tokens.get(name)
        if not sent_tokens or sent_tokens[0].token in texts:  # as nearly always
            continue
        if name not in shapes or shapes[name].resolution is Resolution.CLEAR:
            continue
        sent = tokens_of(sent_tokens)
        familiar = {
            *sent,
            *tokens_of(write.live.values.get(name, ()) if write.live is not None else ()),
        }
        respelled = dict(writing.collection.respelled(name, texts, familiar))
        strange = [text for text in texts if text and text not in respelled]
        if strange and familiar.isdisjoint(strange):
            writing.notices.altered(name, strange, sent)


def _name(
    fresh: Sequence[StagedWrite], operation: Operation, headers: RawHeaders, body: ParsedBody | None
) -> list[tuple[StagedWrite, str]]:
    """Match new records to ids: by own id, by tokens in the object, or by order."""
    source = operation.response.id
    named: list[tuple[StagedWrite, str]] = []
    if len(fresh) > 1 or fresh[0].key is not None:
        named = [(write, write.key) for write in fresh if write.key is not None]
        fresh = [write for write in fresh if write.key is None]
    if not fresh or source is None:
        return named
    if source.source is _HEADER:
        ids = header_ids(source, headers, operation.template)
        return named + list(zip(fresh, ids, strict=True)) if len(ids) == len(fresh) else named
    return named + _pair(fresh, body) if body is not None else named


def _names_all(pairs: Sequence[tuple[StagedWrite, str]], body: ParsedBody | None) -> bool:
    """Whether the answer shows records that were created, and it is known which each of them is."""
    ids = {item.id for item in body.items} if body is not None else set()
    return bool(pairs) and ids == {key for _, key in pairs}


def _pair(fresh: Sequence[StagedWrite], body: ParsedBody) -> list[tuple[StagedWrite, str]]:
    """New records with the ids of an answer's objects: by tokens, else by order. Of two that show
    tokens of one record, the one that shows more of them: the other has an equal value.
    """
    items = body.items
    if len(fresh) == len(items) == 1 and items[0].id is not None:
        return [(fresh[0], items[0].id)]
    ids = [item.id for item in items if item.id is not None] or body.ids
    if len(fresh) == 1 and len(ids) == 1:
        return [(fresh[0], ids[0])]
    owners: dict[tuple[str, str], dict[int, None]] = {}
    for index, write in enumerate(fresh):
        for name, values in write.tokens.items():
            for value in values:
                owners.setdefault((name, value.token), {})[index] = None
    pairs: dict[int, tuple[str, int]] = {}  #: with the number of its tokens that the object shows
    for item in body.items:
        holders = [
            owners[spot] for spot in dict.fromkeys(text_places(item.spots)) if spot in owners
        ]
        common = _common(holders) if holders and item.id is not None else None
        if item.id is None or common is None:
            continue
        if common not in pairs or pairs[common][1] < len(holders):
            pairs[common] = item.id, len(holders)
    if len(ids) == len(fresh) and all(ids[index] == key for index, (key, _) in pairs.items()):
        return list(zip(fresh, ids, strict=True))
    return [(fresh[index], key) for index, (key, _) in pairs.items()]


def _shown_by(
    writes: Sequence[StagedWrite], body: ParsedBody | None
) -> list[Mapping[str, tuple[str, ...]]]:
    """For each record the tokens by field that the answer shows of it."""
    if body is None:
        return [{}] * len(writes)
    if len(body.items) == len(writes) == 1 and body.items[0].id in (None, writes[0].key):
        return [_texts(body.items[0])]
    items: dict[str, list[BodyObject]] = {}
    for item in body.items:
        if item.id is not None:
            items.setdefault(item.id, []).append(item)
    texts_of_writes: list[Mapping[str, tuple[str, ...]]] = []
    for one in writes:
        own = items.get(one.key, ()) if one.key is not None else ()
        texts_of_writes.append(_texts(own[0]) if len(own) == 1 else {})
    return texts_of_writes


def _texts(item: BodyObject) -> Mapping[str, tuple[str, ...]]:
    texts: dict[str, tuple[str, ...]] = {}
    several: dict[str, list[str]] = {}
    for spot in item.spots:
        if spot.value is None:
            continue
        if spot.field in texts:
            several.setdefault(spot.field, [*texts[spot.field]]).append(spot.value.text)
        else:
            texts[spot.field] = (spot.value.text,)
    for name, those in several.items():
        texts[name] = tuple(those)
    return texts


def text_places(spots: Iterable[Spot]) -> tuple[tuple[str, str], ...]:
    """(field, text) of each place that holds anything."""
    return tuple([(spot.field, spot.value.text) for spot in spots if spot.value is not None])


def _common(holders: Sequence[Mapping[int, None]]) -> int | None:
    """The one record that all of these have in common; ``None`` where there is none, or several.

    The fewest are looked through, and no further than to a second one: values that all records
    share take no time.
    """
    fewest = min(holders, key=len)
    common: int | None = None
    for index in fewest:
        if all(index in others for others in holders):
            if common is not None:
                return None
            common = index
    return common
