"""Tokens where no record is known: in running text, and as values of a request."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Value
from proxy.offload import busy, give_way, strides
from proxy.storage.rows import Row
from proxy.tokenization.base import Resolution
from proxy.tokenization.digits import digits_of
from proxy.vault.body import NO_VALUES, RecordBody, tokens_beyond
from proxy.vault.collection import Collection
from proxy.vault.earlier_tokens import beyond_chance, token_spellings
from proxy.vault.next_version import MaskPort, ProxiedDraft
from proxy.vault.proxied.binding import StagedWrite
from proxy.vault.proxied.open_rows import AnswerObject, OpenRow, Revealed, open_with_staged
from proxy.vault.proxied.reveal import reveal_objects

_FieldText = tuple[str, str]  #: field and text
#: Records whose replaced versions one page is looked for in.
_REPLACED = 1_000


class Anywhere(NamedTuple):
    """The values by token, and the nameless records that some of them belong to."""

    values: dict[str, tuple[str, Value]]  #: each with its field
    loose: list[OpenRow]
    opened: dict[int, OpenRow]  #: every record that was looked at, by its number


async def reveal_anywhere(
    collection: Collection,
    texts: Iterable[str],
    names: AbstractSet[str] = frozenset(),
    began: int | None = None,
) -> Anywhere:
    """Values of tokens found in running text, where no field and no record is known: each stands
    for its own field there.

    ``names``: the fields that it may stand for; empty: any. ``began``: as of ``reveal_objects``.
    """
    candidates = list(dict.fromkeys(texts))
    objects = [
        AnswerObject(
            None,
            tuple(
                (name, text)
                for name in collection.tokenizers
                if (not names or name in names) and collection.tokenizers[name].resembles(text)
            ),
        )
        for text in candidates
    ]
    revealed = await reveal_objects(collection, objects, began)
    if began is not None and collection.state.retired:
        await _look_back(collection, objects, revealed, began)
    meanings: dict[str, tuple[str, Value]] = {}
    for text, item, values in zip(candidates, objects, revealed.values, strict=True):
        named_values = zip(item.places, values, strict=True)
        meaning = next(
            ((name, value) for (name, _), value in named_values if value is not None), None
        ) or _of_old_shape(collection, item, revealed)
        if meaning is not None:
            meanings[text] = meaning
    return Anywhere(meanings, [record for _, record in revealed.loose], revealed.opened)


async def _look_back(
    collection: Collection, objects: Sequence[AnswerObject], revealed: Revealed, began: int
) -> None:
    """Resolve tokens that tell no record by the versions that were replaced since an instant, of
    records that are still there.
    """
    pairs = list(zip(objects, revealed.values, strict=True))
    left = (item.places for item, values in pairs if values and not any(values))
    unknown = {one for places in left for one in places if collection.identify(*one) is None}
    replaced = dict[tuple[str, str], tuple[int, Value]]()
    for rid in islice(collection.state.retired.lately(began), _REPLACED if unknown else 0):
        for version in collection.past(rid, began):
            each = version.values.items()
            hits = {(name, one.token): (rid, one.value) for name, all_ in each for one in all_}
            replaced = {hit: hits[hit] for hit in hits.keys() & unknown} | replaced
        if busy():
            await give_way()
    opened = await open_with_staged(collection, {rid for rid, _ in replaced.values()}, ())
    revealed.opened.update(opened)
    alone = collection.state.replicas is None  # other replicas may have taken a value away
    for item, restored in pairs:
        for number, token in enumerate(item.places):
            rid, value = replaced.get(token, (0, None))
            record = opened.get(rid)
            if restored[number] is None and record and (alone or token[0] in record.live.values):
                restored[number] = value


def _of_old_shape(
    collection: Collection, item: AnswerObject, revealed: Revealed
) -> tuple[str, Value] | None:
    """The value of a token that carries its record and looks like those of another field: its own
    has got another shape since.
    """
    for name, text in item.places[:1]:
        one = revealed.opened.get(collection.identify(name, text) or 0)
        if one is not None and text in one.token_texts:
            return next(
                (field, value) for (field, token), value in one.values.items() if token == text
            )
    return None


async def own(
    collection: Collection, places: Iterable[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    """Return those (field, text) that are same-value tokens of stored records, so no values.

    Only of shapes too large for a value to equal a token by chance. While the store cannot be read,
    none are.
    """
    hashes = {
        collection.token_hash(name, text): (name, text)
        for name, text in places
        if collection.tokenizers[name].resembles(text) and beyond_chance(collection.shapes[name])
    }
    if not hashes:
        return frozenset()
    try:
        rids_by_hash = await collection.store.by_tokens(collection.table, list(hashes))
    except VaultError as error:
        if error.code is not Code.VAULT_DOWN:
            raise
        return frozenset()
    return frozenset(hashes[digest] for digest, rids in rids_by_hash.items() if rids)


def sent_tokens(
    collection: Collection,
    targets: Sequence[tuple[str, ProxiedDraft]],
    rows: Mapping[str, Row] = MappingProxyType({}),
) -> dict[str, dict[tuple[str, str], int | None]]:
    """By key the (field, text) of values that have the form of a token that tells its record, with
    the record that it carries.

    ``rows``: the records that have these keys; of those no token is looked for that carries none.
    """
    sent: dict[str, dict[tuple[str, str], int | None]] = {}
    for key, draft in targets:
        for name, values in draft.fields.items():
            tokenizer = collection.tokenizers[name]
            sealed = tokenizer.resolution is Resolution.SEALED
            if not values or not (sealed or key not in rows):
                continue
            if len(values) > 1 or tokenizer.pattern.fullmatch(values[0].text):  # nearly never
                _add_tokens(collection, name, values, sent.setdefault(key, {}))
    return {key: places for key, places in sent.items() if places} if sent else sent


def _add_tokens(
    collection: Collection,
    name: str,
    values: Sequence[Value],
    places: dict[tuple[str, str], int | None],
) -> None:
    tokenizer = collection.tokenizers[name]
    for value in [one for one in values if tokenizer.pattern.fullmatch(one.text)]:  # nearly none
        carried = tokenizer.identify(value.text)
        if carried is not None:
            places[name, value.text] = carried[0]
        elif tokenizer.resembles(value.text) and beyond_chance(collection.shapes[name]):
            places[name, value.text] = None


async def records_meant(
    collection: Collection,
    sent: Mapping[str, Mapping[tuple[str, str], int | None]],
    rows: Mapping[str, Row],
) -> dict[str, Row]:
    """The nameless records that updates mean, by the keys of those: the application shows their
    tokens under these keys.

    ``sent``: their tokens (``sent_tokens``). ``rows``: the records that have these keys.

    Raises ``VaultError`` where it is not certain (VALUE_UNFIT), or a record's create is still under
    way (CONFLICT).
    """
    hashes = {
        spot: collection.token_hash(*spot)
        for places in sent.values()
        for spot, rid in places.items()
        if rid is None
    }
    store, table = collection.store, collection.table
    hits = await store.by_tokens(table, list(hashes.values())) if hashes else {}
    named = {row.rid for row in rows.values()}
    wanted = {rid for places in sent.values() for rid in places.values() if rid is not None}
    wanted.update(rid for rids in hits.values() for rid in rids)
    if wanted <= named:
        return {}
    opened = await open_with_staged(collection, wanted, rows.values())
    meant: dict[str, Row] = {}
    for key, places in sent.items():
        home = opened.get(rows[key].rid) if key in rows else None
        owners = [
            {one.row.rid for one in opened.values() if one.row.key is None and spot in one.values}
            for spot in places
            if home is None or spot not in home.values
        ]
        owners = [some for some in owners if some]
        if not owners:
            continue
        common = set.intersection(*owners)
        if len(common) != 1 or key in rows or opened[min(common)].row in meant.values():
            names = ", ".join(dict.fromkeys(name for name, _ in places))
            raise VaultError(
                Code.VALUE_UNFIT,
                f"Nothing was done. A token was sent in place of a value, in: {names}. It belongs "
                "to a record whose id the application has not told yet, and it is not certain "
                "that this is the one. Send the value itself.",
            )
        meant[key] = opened[common.pop()].row
    await collection.state.look()
    if any(row.rid in collection.state.at_work for row in meant.values()):
        raise VaultError(
            Code.CONFLICT, "The record is still being created; send the request again."
        )
    return meant


class SentTokens(VaultError):
    """Tokens in place of values, by (field, text)."""

    def __init__(self, places: Iterable[tuple[str, str]]) -> None:
        self.places = frozenset(places)
        names = sorted({name for name, _ in self.places})
        super().__init__(
            Code.VALUE_UNFIT,
            f"Nothing was done. A token was sent in place of a value, in: {', '.join(names)}. "
            "Send the value itself, or none; that of an erased value stands for nothing. A number "
            "that is a token by chance is taken with other spaces in it.",
            tuple(Detail(name, "holds a token, which is no value") for name in names),
        )


def carries_record(collection: Collection, name: str, text: str) -> bool:
    """Whether a text that holds the form of a token holds one that carries its record, which may be
    one of another entity: applications copy what they hold.
    """
    first = collection.token_form(text)
    if first is None:
        return False
    collections = dict.fromkeys((collection, *collection.context.collections.values()))
    return any(
        each.identify(name, one) is not None
        for match in first.re.finditer(text)
        for one in token_spellings(match[0])
        for each in collections
    )


async def refuse_tokens(collection: Collection, writes: Sequence[StagedWrite]) -> None:
    """Raise ``SentTokens`` for those in place of values that are new to their record: stored, they
    would be shown as somebody's. Whose they are, or were, makes no difference.
    """
    refused: list[tuple[str, str]] = []
    unsure: dict[tuple[str, str], tuple[str, str]] = {}
    for write in writes:
        for name, text in _like_tokens(collection, write):
            gone = tokens_beyond(write.live, collection.tokenizers)
            if text in gone or carries_record(collection, name, text):
                refused.append((name, text))
            else:
                unsure.update(((name, one), (name, text)) for one in token_spellings(text))
        if busy():
            await give_way()
    refused += await _of_others(collection, writes)
    if unsure:
        refused += [unsure[token] for token in await own(collection, unsure)]
    if refused:
        raise SentTokens(refused)


async def _of_others(
    collection: Collection, writes: Iterable[StagedWrite]
) -> list[tuple[str, str]]:
    """(field, text) of values of updates that are, to the letter, the number that stands for the
    value of another record: an application that merges two records shows it in the form of one.
    """
    sent: dict[bytes, _FieldText] = {}
    for write in writes:
        for some in _new_numbers(collection, write):
            sent |= some
            if busy():
                await give_way()
    hits = await collection.store.by_tokens(collection.table, list(sent)) if sent else {}
    return [sent[digest] for digest, rids in hits.items() if rids]


def _new_numbers(collection: Collection, write: StagedWrite) -> Iterator[dict[bytes, _FieldText]]:
    """By hash the (field, text) of numbers that are new to their record, some at a time."""
    before = write.live.values if write.live is not None else {}
    for name, indexed, hash_of, _ in collection.indexed if before else ():
        stored = {one.text for one in before.get(name, ())}
        for some in strides(write.tokens.get(name, ())):
            yield {
                hash_of(one.text.encode()): (name, one.text)
                for one in some
                if one.text not in stored and digits_of(one.text) and indexed(one.value)
            }


def _like_tokens(collection: Collection, write: StagedWrite) -> Iterator[tuple[str, str]]:
    """(field, text) of values that are new to their record and look like tokens."""
    before = write.live.values if write.live is not None else NO_VALUES
    for name, values in write.tokens.items():
        for one in values:
            if collection.token_form(one.text) is None:  # nearly always
                continue
            if all(one.text != stored.text for stored in before.get(name, ())):
                yield name, one.text


async def stand_ins(
    collection: Collection,
    keys: Sequence[str],
    sent: Mapping[str, Sequence[Value]],
    masks: Mapping[str, MaskPort],
) -> frozenset[tuple[str, str]]:
    """Return the tokens and masks of these records by field, also of nameless ones.

    They may stand in the place of a value.

    ``sent``: the values by field; no other fields are looked at.
    """
    rows = await collection.by_key(keys)
    draft = ProxiedDraft({name: tuple(values) for name, values in sent.items()})
    tokens = sent_tokens(collection, [(key, draft) for key in keys], rows)
    rows |= await records_meant(collection, tokens, rows)
    texts: set[tuple[str, str]] = set()
    for row in rows.values():
        for version in await collection.versions(row):
            stored = [(name, one) for name in sent for one in version.values.get(name, ())]
            own_tokens = {(name, one.token) for name, one in stored}
            texts |= own_tokens
            for name, values in sent.items():
                own_of = [of for at, of in own_tokens if at == name]
                spelled = collection.respelled(name, [one.text for one in values], own_of)
                texts.update((name, text) for text, _ in spelled)
            texts.update((name, masks[name].of(one.text)) for name, one in stored if name in masks)
        if busy():
            await give_way()
    return frozenset(texts)


def _in_own_spelling(
    collection: Collection, draft: ProxiedDraft, versions: Sequence[RecordBody]
) -> ProxiedDraft:
    """The draft with the record's own tokens as they were sent to the application, where it writes
    them in its own manner (``Respelled``); else they would be stored as somebody's values.
    """
    fields: dict[str, tuple[Value, ...]] = {}
    for name in collection.respells.intersection(draft.fields):
        stored = [one for version in versions for one in version.values.get(name, ())]
        texts, tokens = {one.text for one in stored}, {one.token: one for one in stored}
        new = [one.text for one in draft.fields[name] if stored and one.text not in texts]
        if meant := dict(collection.respelled(name, new, tokens)):
            fields[name] = tuple(
                tokens[meant[one.text]].stands_for if one.text in meant else one
                for one in draft.fields[name]
            )
    return replace(draft, fields={**draft.fields, **fields}) if fields else draft


def with_values(
    collection: Collection, draft: ProxiedDraft, versions: Sequence[RecordBody]
) -> ProxiedDraft:
    """The draft with the record's own tokens as they were sent, and with the values of those that
    only a version in doubt has: the application may hold either.
    """
    draft = _in_own_spelling(collection, draft, versions)
    if len(versions) == 1:
        return draft
    live = versions[0].value_tokens()
    doubtful = {
        (name, stored.token): stored.value
        for version in versions[1:]
        for name, values in version.values.items()
        for stored in values
        if (name, stored.token) not in live
    }
    fields = dict(draft.fields)
    for places in sent_tokens(collection, [("", draft)]).values():
        for name in {name for name, _ in places}:
            fields[name] = tuple(doubtful.get((name, one.text), one) for one in fields[name])
    return replace(draft, fields=fields)
