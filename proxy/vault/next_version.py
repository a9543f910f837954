"""Merge of a request into the next version of a record: values that stay, and new ones.

The functions yield if a field has many values (``offload``). An unchanged value keeps its token,
and so does the record's own token when it returns in a value's place; all else gets a new token. If
the caller does not see a field in the clear, only an own token or mask keeps the stored value: the
token of an equal value would confirm a guess.
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
from proxy.vault.earlier_values import erased_values, refuse_ambiguous, unerased_values

#: Mints the token of (field, value) under a value number.
Mint = Callable[[str, Value, int], Value]
#: The same for one field and any record: (value, record id, value number).
FieldMint = Callable[[Value, int, int], Value]

#: Attempts to avoid a token that the field already has; small shapes (``fixed``) cannot.
_TRIES = 4


class MaskPort(Protocol):
    """Mask that is shown in place of a field's values."""

    @property
    def character(self) -> str:
        """The sign that takes the place of others."""

    def of(self, text: str) -> str:
        """The mask of a text."""


class Cover(msgspec.Struct, frozen=True):
    """The fields of one entity whose values the caller is not shown as they are."""

    fields: frozenset[str] = frozenset()
    #: of masked fields: the mask of a text, and the character that occurs only in masks
    masks: Mapping[str, MaskPort] = {}
    #: those that take no new values: the token of one would tell whether it is the stored one
    telling: frozenset[str] = frozenset()


NO_COVER: Final = Cover()
_NOTHING: Final = frozenset[str]()


class ProxiedDraft(msgspec.Struct, frozen=True):
    """Values of one record that a request carries, by field.

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
    cover: Cover = NO_COVER

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
    tokens: Mapping[str, tuple[TokenizedValue, ...]]
    own: frozenset[str] = frozenset()  #: fields in which an own token came back in a value's place
    masked: frozenset[str] = frozenset()  #: fields in which the mask of a value came back


async def draft_new(draft: ProxiedDraft, mints: Mapping[str, FieldMint], rid: int) -> Drafted:
    """The first version of a new record: every value gets a token; numbers begin at 1."""
    number = 1
    tokens: dict[str, tuple[TokenizedValue, ...]] = {}
    for name in draft.cover.fields & draft.fields.keys():
        if name in draft.cover.masks:
            _unmasked(name, draft.cover.masks[name], (), draft.fields[name])
        if name in draft.cover.telling and draft.fields[name]:
            raise _telling(name)
    for name, values in draft.fields.items():
        mint = mints[name]
        if len(values) == 1:  # nearly always
            (value,) = values
            token = mint(value, rid, number)
            tokens[name] = (TokenizedValue(number, value.text, value.json, token.text, token.json),)
            number += 1
            continue
        chosen: list[TokenizedValue] = []
        taken: set[str] = set()
        for value in values:
            token = _fresh(partial(mint, value, rid, number), taken)
            taken.add(token.text)
            chosen.append(TokenizedValue(number, value.text, value.json, token.text, token.json))
            number += 1
            if number % STRIDE == 0 and busy():
                await give_way()
        tokens[name] = tuple(chosen)
    fields = (
        tokens
        if all(tokens.values())
        else {name: values for name, values in tokens.items() if values}
    )
    return Drafted(RecordBody(fields, number), tokens)


async def draft_next(draft: ProxiedDraft, live: RecordBody, start: int, mint: Mint) -> Drafted:
    """The version that the draft makes of ``live``; numbers begin at ``start``."""
    before = live.values
    number = start
    tokens: dict[str, tuple[TokenizedValue, ...]] = {}
    own: set[str] = set()
    masked = _masked(draft) if draft.cover.masks else _NOTHING
    unerased = unerased_values(live)
    for name, sent in draft.fields.items():
        stored, earlier = before.get(name, ()), unerased.get(name, ())
        appends, covered = name in draft.appended, name in draft.cover.fields
        values: Sequence[Value | TokenizedValue] = (
            _unmasked(name, draft.cover.masks[name], () if appends else stored, sent, earlier)
            if covered and name in draft.cover.masks
            else sent
        )
        special = appends or covered or earlier
        alone = len(values) == 1 and len(stored) < 2 and not special  # nearly always
        if alone and (single := _single_value(name, sent[0], stored, number, mint)) is not None:
            tokens[name] = single
            number += single is not stored
            continue
        if (
            not values
            if appends
            else tuple(values) == stored
            if covered
            else _unchanged(stored, sent)
        ):
            tokens[name] = stored
            continue
        pool = _Pool(covered) if stored or earlier else _EMPTY
        await pool.learn(earlier, tokens=covered)
        await pool.learn(stored)
        taken = set(pool.tokens)
        chosen: list[TokenizedValue] = []
        for count, value in enumerate(values, 1):
            reused = pool.take(value) if pool is not _EMPTY else None
            if reused is None and name in draft.cover.telling:
                raise _telling(name)
            if reused is None:
                meant = value.value if isinstance(value, TokenizedValue) else value
                token = _fresh(partial(mint, name, meant, number), taken)
                taken.add(token.text)
                reused = TokenizedValue(number, value.text, value.json, token.text, token.json)
                number += 1
            elif reused.text != value.text or reused.json != value.json:
                own.add(name)
            chosen.append(reused)
            if count % STRIDE == 0 and busy():
                await give_way()
        tokens[name], number = _numbered(chosen, stored if appends else None, (start, number))
    if _says_nothing_new(draft, before, tokens):
        return Drafted(live, tokens, masked=masked)
    fields = {
        name: values
        for name, values in before.items()
        if name not in tokens and not draft.erases(name)
    }
    fields.update([(name, values) for name, values in tokens.items() if values])
    return Drafted(RecordBody(fields, number), tokens, frozenset(own), masked)


def _single_value(
    name: str, value: Value, stored: tuple[TokenizedValue, ...], number: int, mint: Mint
) -> tuple[TokenizedValue, ...] | None:
    """Tokenize the only value of a field that has at most one.

    ``None`` if it is its own token, or would share that.
    """
    before = stored[0] if stored else None
    if before is not None and before.text == value.text and before.json == value.json:
        return stored
    if before is not None and before.token == value.text:
        return None
    token = mint(name, value, number)
    if before is not None and before.token == token.text:
        return None
    return (TokenizedValue(number, value.text, value.json, token.text, token.json),)


def _numbered(
    chosen: list[TokenizedValue],
    before: tuple[TokenizedValue, ...] | None,
    numbers: tuple[int, int],
) -> tuple[tuple[TokenizedValue, ...], int]:
    """The values of a field and the next free number; ``before``: values these come behind."""
    start, number = numbers
    if before is not None:
        further = [replace(one, number=number + at) for at, one in enumerate(chosen)]
        return (*before, *further), number + len(before) + len(further)
    if chosen and all(value.number < start for value in chosen):
        # moved: who wrote a field last has its highest number
        chosen[0] = replace(chosen[0], number=number)
        number += 1
    return tuple(chosen), number


def _masked(draft: ProxiedDraft) -> frozenset[str]:
    """The fields in which masks came."""
    return frozenset(
        name
        for name, mask in draft.cover.masks.items()
        if any(mask.character in value.text for value in draft.fields.get(name, ()))
    )


def _unmasked(
    name: str,
    mask: MaskPort,
    stored: Sequence[TokenizedValue],
    values: tuple[Value, ...],
    earlier: Sequence[TokenizedValue] = (),
) -> Sequence[Value | TokenizedValue]:
    """Return the values, with the stored ones in place of their masks; ``earlier``: those that are
    kept of earlier versions, which may be shown as well.

    Raises ``VaultError(VALUE_UNFIT)`` for an ambiguous mask: none is stored.
    """
    left: dict[str, list[TokenizedValue]] = {}
    for one in stored:
        left.setdefault(mask.of(one.text), []).append(one)
    if earlier:
        every = [(mask.of(one.text), one, one in stored) for one in (*stored, *earlier)]
        refuse_ambiguous(name, values, [(of, one.text, now) for of, one, now in every])
        for masked, one, _ in every:
            left.setdefault(masked, [one])
    chosen: list[Value | TokenizedValue] = []
    for value in values:
        if meant := left.get(value.text):
            chosen.append(meant.pop(0))
        elif mask.character not in value.text:
            chosen.append(value)
        else:
            raise VaultError(
                Code.VALUE_UNFIT,
                f"{name} holds {mask.character}, which stands in masks alone, and is not what is "
                "shown of the stored value: send it as it is shown now, or a whole new value.",
            )
    if any(left.get(value.text) for value in values if mask.character in value.text):
        raise VaultError(
            Code.VALUE_UNFIT,
            f"Several values of {name} have one mask, and not all of them came back: nobody can "
            "tell which were left out.",
        )
    return chosen


def _telling(name: str) -> VaultError:
    return VaultError(
        Code.FIELD_HIDDEN,
        f"Nothing was done. Equal values of {name} have equal tokens, and the view of the caller "
        "does not show it clear: a new value would tell whether it is a stored one.",
    )


def _says_nothing_new(draft: ProxiedDraft, before: TokenizedFields, after: TokenizedFields) -> bool:
    """Whether the next version is the live one: every field has the very values that it had."""
    for name, values in after.items():
        if values is not before.get(name, ()):
            return False
    left = before.keys() - after.keys()
    return not left or not any(draft.erases(name) for name in left)


def _unchanged(stored: tuple[TokenizedValue, ...], values: tuple[Value, ...]) -> bool:
    """Whether the values are those stored, in order: common in updates of whole records."""
    if len(stored) != len(values):
        return False
    for stored_value, value in zip(stored, values, strict=True):
        if stored_value.text != value.text or stored_value.json != value.json:
            return False
    return True


class _Pool:
    """The stored values of one field, each of which a new version may take over once.

    ``covered``: a value that equals a stored one does not continue it.
    """

    def __init__(self, covered: bool = False) -> None:
        self._covered = covered
        self.tokens: dict[str, list[TokenizedValue]] = {}
        self._values: dict[Value, list[TokenizedValue]] = {}
        self._taken: set[int] = set()

    async def learn(self, values: tuple[TokenizedValue, ...], *, tokens: bool = True) -> None:
        """These are stored; ``tokens``: their tokens may come back in their place."""
        for number, value in enumerate(reversed(values), 1):
            if tokens:
                self.tokens.setdefault(value.token, []).append(value)
            if not self._covered:
                self._values.setdefault(value.value, []).append(value)
            if number % STRIDE == 0 and busy():
                await give_way()

    def take(self, value: Value | TokenizedValue) -> TokenizedValue | None:
        """The stored value that this is, that equals it, or that it stands for."""
        pools = (
            ([value],)
            if isinstance(value, TokenizedValue)
            else (self._values.get(value), self.tokens.get(value.text))
        )
        for candidates in pools:
            while candidates:
                candidate = candidates.pop()
                if candidate.number not in self._taken:
                    self._taken.add(candidate.number)
                    return candidate
        return None


_EMPTY = _Pool()


def _fresh(mint: Callable[[], Value], taken: AbstractSet[str]) -> Value:
    """A token that no other value of the field in this record has, if the shape can."""
    token = mint()
    for _ in range(_TRIES):
        if token.text not in taken:
            break
        token = mint()
    return token


def apart_from(contents: Sequence[RecordBody], mint: Mint) -> Mint:
    """Mints no token that a doubtful version has in that field, if the shape can avoid it."""
    taken = {
        (name, value.token)
        for content in contents
        for name, values in content.values.items()
        for value in values
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
    live: RecordBody,
    fields: Mapping[str, tuple[TokenizedValue, ...]],
    start: int,
    written: Mapping[str, int] | None = None,
) -> RecordBody:
    """The live version with some fields taken from another version of the same record.

    ``written``: when that one's fields were; ``None``: it is told of all of them afterwards.
    """
    merged = {**live.values, **fields}
    if written is not None:
        since = {name: at for name, at in live.written.items() if name not in fields}
        written = since | {name: at for name, at in written.items() if name in fields}
    return RecordBody(
        {name: values for name, values in merged.items() if values},
        max(live.following, start),
        deleted=live.deleted,
        until=live.until,
        earlier=erased_values(live),
        written=live.written if written is None else written,
    )
