"""Restoration of tokens in a page: of any record, of the page's record, and small ones.

Small tokens are restored only in the elements that a rule names.

A small token, such as a date, stands in a page by chance. So it is restored only in an element that
is the field's, and only as the token of the one record that the exchange is about.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from html import unescape
from typing import NamedTuple

from proxy.model.schema import NO_VALUE, Value
from proxy.offload import SMALL, busy, give_way, run_in_thread
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.page_columns import (
    as_texts,
    headed,
    in_columns,
    joined_edits,
    of_record,
)
from proxy.redactor.exchange.page_forms import in_forms
from proxy.redactor.exchange.request_tokens import RequestText, StoredToken
from proxy.redactor.inner_texts import Candidate
from proxy.redactor.message import Request, Response
from proxy.redactor.pages import NamedText, named_texts, text
from proxy.redactor.restore import Edit, EscapingKinds, candidates, untouched
from proxy.redactor.rules import Verb
from proxy.tokenization.base import TELLS_RECORD, Resolution
from proxy.tokenization.digits import INDEXED_DIGITS, NUMBER_IN_TEXT, digits_of
from proxy.tokenization.normalize import calling_codes
from proxy.vault.proxied import (
    AnswerObject,
    OpenRow,
    StagedWrite,
    keep,
    open_with_staged,
    reveal_anywhere,
    reveal_objects,
    settle_page,
)

#: Tokens on a page about one record; one with more of them is about others as well.
MOST_QUOTED = 500


#: What may stand between the digits of a number in a page, a byte for each character.
_BETWEEN = r"(?:&nbsp;|&#160;|[ ().'/\u00a0\-]|\u00c2\u00a0|\u00e2\u0080[\u0090-\u0095\u00af]){0,4}"
_NO_DIGIT = re.compile(r"&[^;]*;|[^0-9]")


class Elements(NamedTuple):
    """The values in the elements of a page, and whether anything stored is among them."""

    edits: list[Edit]
    revealed: bool = False


async def of_anybody(
    joined: BoundOperation,
    request: Request,
    tokens: Iterable[str],
    at: tuple[int, int],
    sought: Collection[tuple[str, str]] = (),
) -> Mapping[str, Value]:
    """The values of tokens in a page that is about no one record, without those that the caller
    wrote itself; in parts, between which others run.

    ``at``: the status of the answer, and the time of its request. ``sought``: fields and tokens of
    values that the caller searched by. Raises ``VaultError``.
    """
    words, values = RequestText(request), dict[str, Value]()
    for part in words.others(list(tokens)):
        values.update(await _in_part(joined, part, at, sought))
        if busy():
            await give_way()
    if words.full:
        joined.collection.observe("page_full")
    return values


async def _in_part(
    joined: BoundOperation,
    tokens: Sequence[str],
    at: tuple[int, int],
    sought: Collection[tuple[str, str]],
) -> dict[str, Value]:
    """The same for some tokens, none of them written by the caller."""
    collection, view, (status, began) = joined.collection, joined.view, at
    only = joined.plan.operation.response.only
    anywhere = await reveal_anywhere(collection, tokens, only, began)
    stored = _as_stored(anywhere.opened.values(), tokens, sought) if sought else {}
    visible = {
        text: (name, value if view is None else view.visible(name, value))
        for text, (name, value) in {**anywhere.values, **stored}.items()
    }
    values = {text: value for text, (_, value) in visible.items() if value is not None}
    if joined.plan.operation.verb is Verb.READ:
        look = anywhere.opened.values(), {*tokens}
        await joined.decide(settle_page(collection, *look, began, alone=False))
    fields = frozenset(visible[text][0] for text, value in values.items() if value != NO_VALUE)
    if fields:
        await joined.audit.revealed_anywhere(status, anywhere.opened, collection, fields)
    if anywhere.loose:
        await joined.decide(keep(collection, anywhere.loose, began))
    return values


def _as_stored(
    records: Collection[OpenRow], tokens: Iterable[str], sought: Collection[tuple[str, str]]
) -> dict[str, tuple[str, Value]]:
    """The stored spelling of searched values, by their tokens, of records that the page shows.

    It does so by a token that only one record has. A page that merely repeats what is searched for
    tells nothing of the vault: not even that the value is there.
    """
    standing = {*tokens}
    owners = Counter(text for one in records for text in one.token_texts & standing)
    return {
        one.token: (name, one.value)
        for record in records
        if any(owners[text] == 1 for text in record.token_texts & standing)
        for name, values in record.live.values.items()
        for one in values
        if (name, one.token) in sought
    }


async def settle_shown(
    joined: BoundOperation,
    request: Request | None,
    answer: Response,
    at: tuple[Sequence[str], int],
) -> None:
    """Settle what is in doubt of the records that a page is about, by the tokens in it.

    ``at``: their ids, and the time of the request. Raises ``VaultError(VAULT_DOWN)``.
    """
    (keys, began), collection = at, joined.collection
    if request is None or joined.plan.operation.verb is not Verb.READ or len(keys) > MOST_QUOTED:
        return
    rows = [row for row in (await collection.by_key(keys)).values() if row.staged]
    if not rows:
        return
    opened = (await open_with_staged(collection, (), rows)).values()
    tokens = list(dict.fromkeys(token for one in opened for _, token in one.values))
    others = [one for part in RequestText(request).others(tokens) for one in part]
    texts = await run_in_thread(True, _standing, answer.body, others)
    await joined.decide(settle_page(collection, opened, texts, began, alone=len(keys) == 1))


def _standing(page: bytes, tokens: Iterable[str]) -> set[str]:
    """The tokens that stand in a page, as words of their own."""
    readable = unescape(page.decode("utf-8", "replace"))
    return {one for one in tokens if re.search(rf"(?<!\w){re.escape(one)}(?!\w)", readable)}


def with_respelled(
    page: tuple[EscapingKinds, bytes, bool],
    likely: Sequence[Candidate],
    tokens: AbstractSet[str],
    taken: Sequence[tuple[int, int]],
) -> list[Candidate]:
    """The candidates of a page about one record, with the numbers in it that are its tokens by
    their digits: the application may write numbers in its own manner.

    ``page``: as ``candidates`` takes it. ``tokens``: of the record, each long enough to be unique.
    ``taken``: stretches of the page that something else is written to.
    """
    kind, body, wide = page
    certain = [one for one in likely if one.text in tokens]
    numbers: dict[str, str | None] = {}
    for token in tokens:
        for digits in _dialled(token):
            numbers[digits] = None if numbers.setdefault(digits, token) != token else token
    if not numbers or kind not in (EscapingKinds.HTML, EscapingKinds.TEXT):
        return certain
    written = "|".join(_BETWEEN.join(digits) for digits in sorted(numbers, key=len, reverse=True))
    pattern = re.compile(
        rf"(?<![0-9A-Za-z])(?P<before>(?:\+[1-9][0-9]{{0,2}}{_BETWEEN})?(?:0{_BETWEEN})?)??"
        rf"(?P<number>\+?\(?(?:{written}))(?![0-9A-Za-z])"
    )
    again: list[Candidate] = []
    for one in candidates(kind, body, [pattern], {}, wide=wide):
        parts = pattern.fullmatch(one.text)
        meant = numbers[_NO_DIGIT.sub("", parts["number"])] if parts is not None else None
        if parts is not None and meant is not None:
            # a calling code and a zero stay before a number that was sent without them
            length = 0 if meant.startswith(("+", "0")) else len(parts["before"] or "")
            again.append(one._replace(text=meant, start=one.start + length))
    spans = sorted([*taken, *((one.start, one.end) for one in certain)])
    return certain + untouched(again, spans)


def _dialled(token: str) -> Iterator[str]:
    """The digits that a number is known by: also without zeros before, behind a calling code."""
    digits = digits_of(token)
    if len(digits) < INDEXED_DIGITS:
        return
    behind = [digits[size:] for size in (1, 2, 3) if digits[:size] in calling_codes()]
    for one in (digits, digits.lstrip("0"), *(behind if token[0] == "+" else ())):
        if len(one) >= INDEXED_DIGITS:
            yield one


async def nameless_record(
    joined: BoundOperation,
    keys: Sequence[str],
    look: tuple[Sequence[str], AbstractSet[str]],
    began: int,
) -> tuple[OpenRow | None, dict[str, StoredToken]]:
    """The record that a page is about whose id no answer has told yet, such as one of an import
    that was answered by a redirect; ``None`` where it is not certain which one. And the tokens of
    the page that stand for no value any more.

    The page must contain each token that exactly one record without an id has in these fields,
    except small ones: a quoted token of another record proves nothing. If a record has the id, as
    after an update by an id that the vault did not know, the other one is older, and the page shows
    each of its fields that the record with the id lacks, and none of those that this one has. Where
    a page of the id has shown it so, a part of it is enough: an edit form shows some of it.

    The record gets no id by that, for a page does not say which record it shows; but it is kept
    from now on, as are those of which the page of a record that has the id shows a token.

    ``keys``: the id that the request names. ``look``: tokens of the page that the caller did not
    write and the record with the id does not have, and the fields. ``began``: the time of the
    request. Raises ``VaultError(VAULT_DOWN)``.
    """
    (tokens, names), collection = look, joined.collection
    if len(keys) != 1 or not tokens:
        return None, {}
    anywhere = await reveal_anywhere(collection, tokens, names)
    rows = (await collection.by_key(keys)).values() if anywhere.opened else ()
    named = (await open_with_staged(collection, (), rows)).values()
    shapes = collection.tokenizers
    telling = {name for name in names if shapes[name].resolution in TELLS_RECORD}
    taken = {name for one in named for name, _ in one.values}
    await collection.state.look()
    texts, whole, key = {*tokens}, list[OpenRow](), collection.key_hash(keys[0])
    displayed = collection.state.displayed.get(key)
    for record in anywhere.opened.values():
        own = {
            (name, one.token)
            for name, values in record.live.values.items()
            for one in values
            if name in telling and not NUMBER_IN_TEXT.fullmatch(one.token)
        }
        left = {token for name, token in own if name not in taken}
        replaced = {token for name, token in own if name in taken}
        nameless = record.row.key is None and record.row.rid not in collection.state.at_work
        older = all(record.row.rid < one.row.rid for one in named)
        if (
            nameless
            and older
            and texts.isdisjoint(replaced)
            and ((left and left <= texts) or (record.row.rid == displayed and left & texts))
        ):
            whole.append(record)
    alone = whole if len(whole) == 1 else []
    for record in alone:
        collection.state.display(key, record.row.rid)
    await joined.decide(keep(collection, anywhere.loose if named else alone, began))
    meanings = anywhere.values.items()
    erased = {
        text: StoredToken(keys[0], 0, name, value)
        for text, (name, value) in meanings
        if value == NO_VALUE
    }
    return alone[0] if alone else None, erased


async def in_elements(
    joined: BoundOperation,
    answer: Response,
    sent: tuple[Request | None, Sequence[StagedWrite]],
    at: tuple[Sequence[str], OpenRow | None, int | None],
) -> Elements:
    """The values of the elements that the rule names.

    ``sent``: the request and its changes. ``at``: the records that it names; the one that it means
    if no record has that id (``nameless_record``); and the time of the request, for a page: else
    the answer is without success. Raises ``VaultError(VAULT_DOWN)``.
    """
    (request, writes), (keys, home, page) = sent, at
    if page is None:
        return await _sent_in_elements(joined, answer, writes)
    if not (keys or writes):
        edits, reveals = await in_forms(joined, request, answer, page)
        more, also = await in_columns(joined, request, answer, page)
        return Elements(joined_edits(edits, more), reveals or also)
    return await _stored_in_elements(joined, answer, (keys, home), page)


async def _stored_in_elements(
    joined: BoundOperation,
    answer: Response,
    at: tuple[Sequence[str], OpenRow | None],
    began: int,
) -> Elements:
    """Return the stored values of the record that the request names, or means."""
    keys, home = at
    if len(keys) != 1:
        return Elements([])
    long = len(answer.body) > SMALL
    members = joined.plan.operation.response.members
    look = partial(_with_tokens_inside, joined, answer.body, named_texts(answer.body, members))
    named = await run_in_thread(long, look)
    heads = await headed(joined, answer)
    named += (below := as_texts(joined, heads))
    places = tuple((one.field, one.text) for one in named)
    revealed = await reveal_objects(joined.collection, [AnswerObject(keys[0], places)], began)
    stored, opened = revealed.values[0], {*revealed.opened}
    if home is not None:
        of_named = {name for one in revealed.rows if one is not None for name, _ in one.values}
        stored = [
            home.values.get(spot) if value is None and spot[0] not in of_named else value
            for spot, value in zip(places, stored, strict=True)
        ]
        opened.add(home.row.rid)
    if revealed.loose:
        await joined.decide(keep(joined.collection, [one for _, one in revealed.loose], began))
    view = joined.view
    record = revealed.rows[0] or home
    columns = of_record(
        joined, (heads, answer.body), record, dict(zip(places, stored, strict=True))
    )
    values = [
        (one, value if view is None or value is None else view.visible(one.field, value))
        for one, value in zip(named[: -len(below) or None], stored, strict=False)
    ]
    fields = frozenset(one.field for one, value in values if value not in (None, NO_VALUE))
    if fields := fields | columns.fields:
        await joined.audit.revealed(answer.status, keys, fields, opened)
    edits = [(one.start, one.end, text(value.text)) for one, value in values if value is not None]
    return Elements(joined_edits(edits, columns.edits), bool(fields))


def _with_tokens_inside(
    joined: BoundOperation, page: bytes, named: Iterable[NamedText]
) -> list[NamedText]:
    """The texts of elements, and the tokens in longer ones that an application has joined."""
    texts: list[NamedText] = []
    for one in named:
        texts.append(one)
        tokenizer = joined.collection.tokenizers.get(one.field)
        if tokenizer is None or tokenizer.resolution is not Resolution.SEALED:
            continue
        raw = page[one.start : one.end].decode("latin-1")  # a byte for each character
        texts += [
            NamedText(one.field, one.start + match.start(), one.start + match.end(), match[0])
            for match in tokenizer.pattern.finditer(raw)
            if match[0] != one.text
        ]
    return texts


async def _sent_in_elements(
    joined: BoundOperation, answer: Response, writes: Sequence[StagedWrite]
) -> Elements:
    """Return the values that the caller sent: a form with a mistake shows them again.

    Otherwise the caller would send the token the next time, indistinguishable from a value.
    """
    if len(writes) != 1:
        return Elements([])
    sent = _sent(joined, writes[0])
    members = joined.plan.operation.response.members
    if not sent:
        return Elements([])
    named = await run_in_thread(len(answer.body) > SMALL, list, named_texts(answer.body, members))
    named += as_texts(joined, await headed(joined, answer))
    values = [(one, sent.get((one.field, one.text))) for one in named]
    return Elements(
        [(one.start, one.end, text(value)) for one, value in values if value is not None]
    )


def _sent(joined: BoundOperation, write: StagedWrite) -> Mapping[tuple[str, str], str]:
    """By field and token: the caller's visible values, without fields with its own tokens."""
    view = joined.view
    pairs = (
        ((name, one.token), one.value if view is None else view.visible(name, one.value))
        for name, values in write.tokens.items()
        if name not in write.own
        for one in values
    )
    return {key: value.text for key, value in pairs if value is not None}
