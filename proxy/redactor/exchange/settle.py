"""What an application's answer means for what its request staged: taken, refused, or nobody knows."""

from collections.abc import Mapping, Sequence

from proxy.offload import STRIDE, busy, give_way, in_thread
from proxy.redactor import restore
from proxy.redactor.exchange.staging import Writing
from proxy.redactor.message import RawHeaders
from proxy.redactor.plan import Outcome
from proxy.redactor.redact import BodyObject, ParsedBody
from proxy.redactor.rules import IdSource, Operation, Verb
from proxy.tokenization.base import Resolution
from proxy.vault.body import tokens_of
from proxy.vault.proxied.binding import StagedWrite


async def settle(
    writing: Writing,
    operation: Operation,
    outcome: Outcome,
    headers: RawHeaders,
    body: ParsedBody | None,
) -> None:
    """Bring what the exchange holds to its end; ``body`` is ``None`` where the answer was not read."""
    took = outcome is Outcome.TAKEN
    if operation.verb is Verb.DELETE and operation.id is None and took and body is not None:
        await writing.remove_named(
            [item.id for item in body.items if item.id is not None] or body.ids
        )
    if operation.verb is Verb.DELETE and took:
        await writing.remove()
        return
    if not writing.held:
        return
    if outcome is Outcome.REFUSED:
        await writing.drop()
    elif not took:
        await writing.doubt(writing.held, answered=True)
    else:
        await _accept(writing, operation, headers, body)


async def _accept(
    writing: Writing, operation: Operation, headers: RawHeaders, body: ParsedBody | None
) -> None:
    fresh = [held for held in writing.held if held.row is None]
    if fresh:
        long = len(fresh) > STRIDE
        if writing.renamed is not None:
            pairs = []
        else:
            look = (fresh, operation, headers, body)
            pairs = await in_thread(_name, *look) if long else _name(*look)
        if pairs:
            await writing.bind(pairs)
        for held, key in pairs:
            held.key = key
        named = {held.rid for held, _ in pairs}
        nameless = [held for held in fresh if held.rid not in named]
        if nameless:
            await writing.accept(nameless)
            writing.notices.nameless()
    long = len(writing.held) > STRIDE
    shown = (
        await in_thread(_shown_by, writing.held, body) if long else _shown_by(writing.held, body)
    )
    for held, texts in zip(writing.held, shown, strict=True):
        if held.row is not None and held.sid is not None:
            await writing.promote(held, texts)
            if long and busy():
                await give_way()
    if writing.renamed is not None:
        await writing.rename(writing.held[0], writing.renamed)
    for held, texts in zip(writing.held, shown, strict=True):
        _notice(writing, held, texts)
        if long and busy():
            await give_way()


def _notice(writing: Writing, held: StagedWrite, shown: Mapping[str, tuple[str, ...]]) -> None:
    """Tell of tokens that the application has changed: a field that was sent is shown with neither
    its old nor its new one.

    A field that is not shown, or shown as null or empty, says nothing; nor does a record beside
    which a version is in doubt.
    """
    if held.row is not None and held.row.staged:
        return
    shapes = writing.collection.shapes
    for name, texts in shown.items():
        given = held.given.get(name)
        if not given or given[0].token in texts:  # as nearly always
            continue
        if name not in shapes or shapes[name].resolution is Resolution.CLEAR:
            continue
        sent = tokens_of(given)
        known = {*sent, *tokens_of(held.live.fields.get(name, ()) if held.live is not None else ())}
        strange = [text for text in texts if text]
        if strange and known.isdisjoint(strange):
            writing.notices.altered(name, strange, sent)


def _name(
    fresh: Sequence[StagedWrite], operation: Operation, headers: RawHeaders, body: ParsedBody | None
) -> list[tuple[StagedWrite, str]]:
    """Which new record got which id: by its own id, by the tokens beside the id, or by their order."""
    known = [(held, held.key) for held in fresh if held.key is not None]
    fresh = [held for held in fresh if held.key is None]
    place = operation.response.id
    if not fresh or place is None:
        return known
    if place.source is IdSource.HEADER:
        ids = restore.header_ids(place, headers)
        return known + list(zip(fresh, ids, strict=True)) if len(ids) == len(fresh) else known
    return known + (_pair(fresh, body) if body is not None else [])


def _pair(fresh: Sequence[StagedWrite], body: ParsedBody) -> list[tuple[StagedWrite, str]]:
    """New records and the ids of an answer's objects: by tokens, and by order where no token says
    otherwise.
    """
    ids = [item.id for item in body.items if item.id is not None] or body.ids
    if len(fresh) == 1 and len(ids) == 1:
        return [(fresh[0], ids[0])]
    owners: dict[tuple[str, str], dict[int, None]] = {}
    for index, held in enumerate(fresh):
        for name, values in held.given.items():
            for kept in values:
                owners.setdefault((name, kept.token), {})[index] = None
    told: dict[int, str] = {}
    for item in body.items:
        holders = [
            owners[place]
            for place in dict.fromkeys(restore.text_places(item.spots))
            if place in owners
        ]
        common = _common(holders) if holders and item.id is not None else None
        if item.id is not None and common is not None:
            told.setdefault(common, item.id)
    if len(ids) == len(fresh) and all(ids[index] == key for index, key in told.items()):
        return list(zip(fresh, ids, strict=True))
    return [(fresh[index], key) for index, key in told.items()]


def _shown_by(
    held: Sequence[StagedWrite], body: ParsedBody | None
) -> list[Mapping[str, tuple[str, ...]]]:
    """For each record the tokens by field that the answer shows of it."""
    if body is None:
        return [{}] * len(held)
    items: dict[str | None, list[BodyObject]] = {}
    for item in body.items:
        items.setdefault(item.id, []).append(item)
    lone = items.get(None, []) if len(body.items) == len(held) == 1 else []
    shown: list[Mapping[str, tuple[str, ...]]] = []
    for one in held:
        own = (items.get(one.key, []) if one.key is not None else []) or lone
        texts: dict[str, list[str]] = {}
        for name, text in restore.text_places(own[0].spots) if len(own) == 1 else ():
            texts.setdefault(name, []).append(text)
        shown.append({name: tuple(several) for name, several in texts.items()})
    return shown


def _common(holders: Sequence[Mapping[int, None]]) -> int | None:
    """The one record that all of these have in common; ``None`` where there is none, or several.

    The fewest are looked through, and no further than to a second one: values that all records
    share take no time.
    """
    fewest = min(holders, key=len)
    found: int | None = None
    for index in fewest:
        if all(index in others for others in holders):
            if found is not None:
                return None
            found = index
    return found
