"""From what a request carries to the next version of a record: which values stay, which are new.

They give way to others where a field has many values (``offload``). A value that did not change
keeps its token, and so does the record's own token when it comes back in a value's place; anything
else gets a new token.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.offload import STRIDE, busy, give_way
from proxy.vault.body import RecordBody, TokenizedFields, TokenizedValue

#: Mints the token of (field, value) under a value number.
Mint = Callable[[str, Value, int], Value]
#: The same for one field and any record: (value, record id, value number).
FieldMint = Callable[[Value, int, int], Value]

#: Attempts to avoid a token that the field already has; small shapes (``fixed``) cannot.
_TRIES = 4


class MaskPort(Protocol):
    """What somebody is shown in place of the values of a field."""

    @property
    def character(self) -> str:
        """The sign that takes the place of others."""

    def of(self, text: str) -> str:
        """The mask of a text."""


NO_MASKS: Final[Mapping[str, MaskPort]] = {}


class ProxiedDraft(msgspec.Struct, frozen=True):
    """What a request says of one record: the values of each field it carries.

    An empty tuple erases the field. ``keep`` names fields that were sent without a value but stay
    as they are.
    ``absent_erased``: declared fields that are not named at all are erased as well (a whole
    replacement). A stored field that is not ``declared`` any more stays: the rules that lost it may
    get it back, and the application holds its tokens.
    ``appended``: fields whose values come behind those that are stored.
    """

    fields: Mapping[str, tuple[Value, ...]]
    keep: frozenset[str] = frozenset()
    absent_erased: bool = False
    declared: frozenset[str] | None = None  #: ``None``: every field is
    appended: frozenset[str] = frozenset()
    #: of fields whose values are shown masked to the caller: what it is shown of a text, and the
    #: sign that stands in masks alone
    masks: Mapping[str, MaskPort] = NO_MASKS

    def erases(self, name: str) -> bool:
        """Whether a stored field that the request does not carry is erased."""
        return (
            self.absent_erased
            and name not in self.keep
            and (self.declared is None or name in self.declared)
        )


class Drafted(msgspec.Struct, frozen=True):
    """The next version, and for every field of the draft the values in the draft's order."""

    content: RecordBody
    given: Mapping[str, tuple[TokenizedValue, ...]]
    own: frozenset[str] = frozenset()  #: fields in which an own token came back in a value's place
    masked: frozenset[str] = frozenset()  #: fields in which the mask of a value came back


async def draft_new(draft: ProxiedDraft, mints: Mapping[str, FieldMint], rid: int) -> Drafted:
    """The first version of a new record: there is nothing to keep, so every value gets a token;
    numbers begin at 1.
    """
    number = 1
    given: dict[str, tuple[TokenizedValue, ...]] = {}
    for name, mask in draft.masks.items():
        _unmasked(name, mask, (), draft.fields.get(name, ()))
    for name, values in draft.fields.items():
        mint = mints[name]
        if len(values) == 1:  # nearly always
            (value,) = values
            token = mint(value, rid, number)
            given[name] = (TokenizedValue(number, value.text, value.json, token.text, token.json),)
            number += 1
            continue
        chosen: list[TokenizedValue] = []
        known: set[str] = set()
        for value in values:
            token = _fresh(partial(mint, value, rid, number), known)
            known.add(token.text)
            chosen.append(TokenizedValue(number, value.text, value.json, token.text, token.json))
            number += 1
            if number % STRIDE == 0 and busy():
                await give_way()
        given[name] = tuple(chosen)
    fields = (
        given if all(given.values()) else {name: values for name, values in given.items() if values}
    )
    return Drafted(RecordBody(fields, number), given)


async def draft_next(draft: ProxiedDraft, live: RecordBody, start: int, mint: Mint) -> Drafted:
    """The version that the draft makes of ``live``; numbers begin at ``start``."""
    before = live.values
    number = start
    given: dict[str, tuple[TokenizedValue, ...]] = {}
    own: set[str] = set()
    masked: set[str] = set()
    for name, sent in draft.fields.items():
        stored = before.get(name, ())
        values, mask = sent, draft.masks.get(name)
        appends = name in draft.appended
        if mask is not None:
            values = _unmasked(name, mask, () if appends else stored, sent)
            if values is not sent:
                masked.add(name)
        alone = len(stored) == len(values) == 1  # nearly always
        if (
            not values
            if appends
            else stored[0].text == values[0].text and stored[0].json == values[0].json
            if alone
            else _unchanged(stored, values)
        ):
            given[name] = stored
            continue
        pool = _Pool() if stored else _EMPTY
        await pool.learn(stored)
        known = set(pool.tokens)
        chosen: list[TokenizedValue] = []
        for place, value in enumerate(values, 1):
            kept = pool.take(value) if stored else None
            if kept is None:
                token = _fresh(partial(mint, name, value, number), known)
                known.add(token.text)
                kept = TokenizedValue(number, value.text, value.json, token.text, token.json)
                number += 1
            elif kept.text != value.text or kept.json != value.json:
                own.add(name)
            chosen.append(kept)
            if place % STRIDE == 0 and busy():
                await give_way()
        if appends:
            chosen = [*stored, *(replace(one, number=number + at) for at, one in enumerate(chosen))]
            number += len(chosen)
        elif chosen and all(
            kept.number < start for kept in chosen
        ):  # moved: who wrote a field last has its highest number
            chosen[0] = replace(chosen[0], number=number)
            number += 1
        given[name] = tuple(chosen)
    if _says_nothing_new(draft, before, given):
        return Drafted(live, given, masked=frozenset(masked))
    fields = {name: values for name, values in before.items() if not draft.erases(name)}
    fields.update(given)
    content = RecordBody({name: values for name, values in fields.items() if values}, number)
    return Drafted(content, given, frozenset(own), frozenset(masked))


def _unmasked(
    name: str, mask: MaskPort, stored: Sequence[TokenizedValue], values: tuple[Value, ...]
) -> tuple[Value, ...]:
    """The values with those that are stored in place of their masks; the same without any mask.

    Raises ``VaultError(VALUE_UNFIT)`` for a mask of which nobody can tell what it stands for: none
    is stored.
    """
    if not any(mask.character in value.text for value in values):
        return values
    left = list(stored)
    chosen: list[Value] = []
    for value in values:
        if mask.character not in value.text:
            chosen.append(value)
            continue
        meant = [one for one in left if value.text in (one.text, mask.of(one.text))]
        if not meant:
            raise VaultError(
                Code.VALUE_UNFIT,
                f"{name} holds {mask.character}, which stands in masks alone, and is not what is "
                "shown of the stored value: send it as it is shown now, or a whole new value.",
            )
        chosen.append(meant[0].value)
        left.remove(meant[0])
    sent = {value.text for value in values}
    if any(mask.of(one.text) in sent for one in left):
        raise VaultError(
            Code.VALUE_UNFIT,
            f"Several values of {name} have one mask, and not all of them came back: nobody can "
            "tell which were left out.",
        )
    return tuple(chosen)


def _says_nothing_new(draft: ProxiedDraft, before: TokenizedFields, after: TokenizedFields) -> bool:
    """Whether the next version is the live one: every field has the very values that it had."""
    for name, values in after.items():
        if values is not before.get(name, ()):
            return False
    left = before.keys() - after.keys()
    return not left or not any(draft.erases(name) for name in left)


def _unchanged(stored: tuple[TokenizedValue, ...], values: tuple[Value, ...]) -> bool:
    """Whether the values are those stored, in their order: the common case of an update that sends
    a whole record.
    """
    if len(stored) != len(values):
        return False
    for kept, value in zip(stored, values, strict=True):
        if kept.text != value.text or kept.json != value.json:
            return False
    return True


class _Pool:
    """The stored values of one field, each of which a new version may continue once."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[TokenizedValue]] = {}
        self._values: dict[Value, list[TokenizedValue]] = {}
        self._taken: set[int] = set()

    async def learn(self, values: tuple[TokenizedValue, ...]) -> None:
        """These are stored."""
        for number, kept in enumerate(reversed(values), 1):
            self.tokens.setdefault(kept.token, []).append(kept)
            self._values.setdefault(kept.value, []).append(kept)
            if number % STRIDE == 0 and busy():
                await give_way()

    def take(self, value: Value) -> TokenizedValue | None:
        """The stored value that equals this one, or that it stands for."""
        for candidates in (self._values.get(value), self.tokens.get(value.text)):
            while candidates:
                kept = candidates.pop()
                if kept.number not in self._taken:
                    self._taken.add(kept.number)
                    return kept
        return None


_EMPTY = _Pool()


def _fresh(mint: Callable[[], Value], known: AbstractSet[str]) -> Value:
    """A token that no other value of the field has in this record, where the shape has room for
    another.
    """
    token = mint()
    for _ in range(_TRIES):
        if token.text not in known:
            break
        token = mint()
    return token


def apart_from(beside: Sequence[RecordBody], mint: Mint) -> Mint:
    """Mints no token that a version in doubt has in that field, where the shape has room: the
    application may hold either.
    """
    taken = {
        (name, kept.token)
        for content in beside
        for name, values in content.values.items()
        for kept in values
    }

    def minted(name: str, value: Value, number: int) -> Value:
        token = mint(name, value, number)
        for _ in range(_TRIES):
            if (name, token.text) not in taken:
                break
            token = mint(name, value, number)
        return token

    return minted


def adopt(
    live: RecordBody, fields: Mapping[str, tuple[TokenizedValue, ...]], start: int
) -> RecordBody:
    """The live version with some fields taken from another version of the same record."""
    merged = {**live.values, **fields}
    return RecordBody(
        {name: values for name, values in merged.items() if values}, max(live.following, start)
    )


def with_doubtful(versions: Sequence[RecordBody], draft: ProxiedDraft, start: int) -> RecordBody:
    """The live version with what versions in doubt have of fields that are appended to: the
    application may hold all of it.
    """
    values: dict[str, tuple[TokenizedValue, ...]] = {}
    for name in draft.appended:
        live = versions[0].values.get(name, ())
        tokens = {one.token for one in live}
        others = {one.token: one for body in versions[1:] for one in body.values.get(name, ())}
        values[name] = (*live, *(one for token, one in others.items() if token not in tokens))
    return adopt(versions[0], values, start) if len(versions) > 1 else versions[0]
