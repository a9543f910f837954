"""Values of earlier versions that a record keeps (``versions: keep``), each under its own token.

An application may have several versions of a record under one id: drafts, languages, revisions.
Each token that it has got stands for one value of the record for as long as that is kept, so no
other value of the record may get it. What is kept is part of the record's body: it is sealed,
moved, expires and ends with it.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Protocol

from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.model.schema import NO_VALUE, Value
from proxy.vault.body import NO_VALUES, RecordBody, TokenizedFields, TokenizedValue

#: Values of one field that are kept of earlier versions, and characters of all of a record.
MOST_VALUES, MOST_TEXT = 1_000, 4 * 1024 * 1024
#: The field of a record's id among the tokens of an erased one (``erasure``); no rule can name it.
RECORD_ID = ""
#: How often a token is made where another value of the record has it.
_TRIES = 64


class KeepingPort(Protocol):
    """The part of a collection that this needs."""

    @property
    def keeps(self) -> bool:
        """Whether its rule says ``versions: keep``."""

    def observe(self, event: str, count: int = 1) -> None:
        """Count an event."""


def erased(values: Iterable[TokenizedValue]) -> tuple[TokenizedValue, ...]:
    """The marks of values that are erased, the newest of very many."""
    none = NO_VALUE
    return tuple(replace(one, text=none.text, json=none.json) for one in values)[-MOST_VALUES:]


def erased_values(version: RecordBody) -> dict[str, tuple[TokenizedValue, ...]]:
    """The marks of values of the record that were erased, by field."""
    return _part(version, left=False) if version.earlier else NO_VALUES


def marked_values(version: RecordBody) -> dict[str, tuple[TokenizedValue, ...]]:
    """The values of the record, and the marks of the fields of which nothing is left."""
    left = dict(version.values)
    for name, marks in erased_values(version).items():
        left[name] = left.get(name) or marks
    return left


def unerased_values(version: RecordBody) -> dict[str, tuple[TokenizedValue, ...]]:
    """The values of earlier versions that a version keeps, by field."""
    return _part(version, left=True) if version.earlier else NO_VALUES


def _part(version: RecordBody, *, left: bool) -> dict[str, tuple[TokenizedValue, ...]]:
    parts = {
        name: tuple(one for one in values if one.is_erased is not left)
        for name, values in version.earlier.items()
    }
    return {name: values for name, values in parts.items() if values}


def keeping(
    collection: KeepingPort, content: RecordBody, earlier: Iterable[RecordBody]
) -> RecordBody:
    """The version with what these earlier ones have, or keep, and it has not, if the rule says so.

    Beyond the bounds the oldest values end, which is observed as ``versions_full``.
    """
    if not collection.keeps:
        return content
    by_name: dict[str, dict[str, TokenizedValue]] = {}
    parts = [content.earlier, *(part for one in earlier for part in (one.earlier, one.values))]
    for part in parts:
        for name, values in part.items():
            own = ((one.token, one) for one in values if one.token != one.text)
            by_name.setdefault(name, {}).update(own)
    left: dict[str, list[TokenizedValue]] = {}
    for name, by_token in by_name.items():
        for one in content.values.get(name, ()):
            by_token.pop(one.token, None)
        if by_token:
            left[name] = sorted(by_token.values(), key=attrgetter("number"))
    size = sum(len(one.text) for values in left.values() for one in values)
    ended = 0
    while left:
        longest = max(left, key=lambda name: len(left[name]))
        oldest = min(left, key=lambda name: left[name][0].number)
        if len(left[longest]) <= MOST_VALUES and size <= MOST_TEXT:
            break
        name = longest if len(left[longest]) > MOST_VALUES else oldest
        size -= len(left[name].pop(0).text)
        ended += 1
        if not left[name]:
            del left[name]
    if ended:
        collection.observe("versions_full", ended)
    return replace(content, earlier={name: tuple(values) for name, values in left.items()})


def distinct(
    contents: Sequence[RecordBody],
    mint: Callable[[str, Value, int], Value],
    compared: Callable[[str, Value], Value],
) -> Callable[[str, Value, int], Value]:
    """Mints no token that stands for another value of its field in one of these versions.

    ``compared``: the form in which values of a field compare. Raises ``VaultError(SHAPE_FULL)``
    where none is found.
    """
    taken = {
        (name, one.token): compared(name, one.value)
        for content in contents
        for fields in (unerased_values(content), content.values)
        for name, values in fields.items()
        for one in values
    }

    def minted(name: str, value: Value, number: int) -> Value:
        meant = compared(name, value)
        for _ in range(_TRIES):
            token = mint(name, value, number)
            if taken.setdefault((name, token.text), meant) == meant:
                return token
        raise VaultError(
            Code.SHAPE_FULL,
            f"Nothing was done. Each token of {name} that was found stands for another value of "
            "this record, of which earlier versions are kept: give the field a token shape with "
            "more tokens in the rule file.",
        )

    return minted


def confuses(
    live: RecordBody | None, content: RecordBody | None, compared: Callable[[str, Value], Value]
) -> bool:
    """Whether a token of the next version stands for another value that the live one keeps."""
    if live is None or content is None or not live.earlier:
        return False
    meant = {
        (name, one.token): one.value for name, of in unerased_values(live).items() for one in of
    }
    return any(
        compared(name, meant.get((name, one.token), one.value)) != compared(name, one.value)
        for name, values in content.values.items()
        for one in values
    )


def refuse_ambiguous(
    name: str, sent: Sequence[Value], meanings: Iterable[tuple[str, str, bool]]
) -> None:
    """Raise ``VaultError(VALUE_UNFIT)`` for a mask that came back and that several values of the
    record have, one of them in an earlier version alone.

    ``meanings``: the mask of each value of the field, the value, and whether it is a current one.
    """
    texts: dict[str, set[str]] = {}
    current: set[str] = set()
    for mask, text, is_current in meanings:
        texts.setdefault(mask, set()).add(text)
        current.update((text,) if is_current else ())
    for value in sent:
        several = texts.get(value.text, current)
        if len(several) > 1 and not several <= current:
            raise VaultError(
                Code.VALUE_UNFIT,
                f"Values of {name} in several versions of the record have one mask, and nobody can "
                "tell which came back: send the value itself.",
            )


def stored_values(version: RecordBody | None) -> TokenizedFields:
    """The values of a version and those that it keeps, by field."""
    if version is None or not version.earlier:
        return NO_VALUES if version is None else version.values
    own, before = version.values, version.earlier
    return {
        name: (*own.get(name, ()), *before.get(name, ())) for name in own.keys() | before.keys()
    }
