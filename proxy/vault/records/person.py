"""Every record with a value of a person, in any field and storage class.

All records are opened and compared, so that nothing is missed: no index has the second of several
values of a field, or ``encrypted`` ones. A field is compared in the normal form of its kind, and
one of no kind also as an address or a telephone number if the value looks like one. The walk goes
in slices, each with a position to resume from; concurrent writes may be included or not.

A field hidden from the caller counts as absent: else it could test guesses.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from proxy.model.record import Record
from proxy.storage.query import MATCH_ALL, All, Compare, Compared, Order, Select
from proxy.tokenization.normalize import normalize
from proxy.vault.records.find import portion_of
from proxy.vault.records.opening import open_records
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import Verified, inside

#: Rows that are read at once, and their bytes.
_ROWS: Final = 500
_ROOM: Final = 4 * 2**20
#: Digits from which on a text is compared as a telephone number.
_DIGITS: Final = 6

#: Whether a text is the value, by the kind of its field.
_Compare = Callable[[str, str], bool]


class Holding(NamedTuple):
    """A record that has the value, and the fields that have it."""

    record: Record
    fields: tuple[str, ...]


class Walk(NamedTuple):
    """Result of a walk over a part of a schema's records."""

    holders: list[Holding]
    looked: int  #: records that were looked at
    unreadable: int  #: among them, that do not open
    last: int | None  #: the id of the last of them; ``None``: there are no more


async def holding(records: Records, value: str, after: int, most: int) -> Walk:
    """Examine the next records after that id (0: from the first), at least so many if they exist.

    Raises ``VaultError``: as a filter endpoint; ``VAULT_DOWN``.
    """
    collection = records.collection
    compare = _comparison(value, collection.context.region)
    verified = Verified(records, records.rights.rows)
    walk = Walk([], 0, 0, after)
    while walk.last is not None and walk.looked < most:
        behind = Compared("@rid", Compare.GT, walk.last) if walk.last else MATCH_ALL
        select = Select(
            All((behind, inside(records))),
            collection.clock(),
            (Order("@rid"),),
            _ROWS,
            counted=False,
            room=_ROOM,
        )
        page = await collection.store.select(collection.table, select)
        rows, looked = page.rows, walk.looked + len(page.rows)
        last = rows[-1].rid if page.more else None
        rows.reverse()
        unreadable = walk.unreadable
        while rows:
            portion = portion_of(rows)
            opened = await open_records(records, portion)
            unreadable += len(portion) - len(opened)
            having = [(one, fields) for one in opened if (fields := _fields(records, one, compare))]
            allowed = await records.permitted(verified.only([one for one, _ in having]))
            rids = {one.rid for one in allowed}
            walk.holders.extend(Holding(*one) for one in having if one[0].rid in rids)
            await asyncio.sleep(0)
        walk = Walk(walk.holders, looked, unreadable, last)
    records.note_shown([one.record.key for one in walk.holders])
    return walk


def _fields(records: Records, record: Record, compare: _Compare) -> tuple[str, ...]:
    """The names of the fields of a record that have the value, among those that the caller sees."""
    kinds = {field.name: field.kind for field in records.full_schema.fields}
    return tuple(
        name
        for name, value in record.fields.items()
        if name in kinds
        and records.rights.shows_value(name)
        and any(compare(kinds[name], text) for text in _texts(value))
    )


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value; a number as it is written."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _comparison(value: str, region: str) -> _Compare:
    wanted: dict[str, str] = {}
    guesses = ["email"] if "@" in value else ["phone"] if _digits(value) >= _DIGITS else []

    def equals(kind: str, text: str) -> bool:
        if kind not in wanted:
            wanted[kind] = normalize(kind, value, region)
        return normalize(kind, text, region) == wanted[kind]

    def compare(kind: str, text: str) -> bool:
        if text == value or equals(kind, text):
            return True
        return any(
            equals(guess, text)
            for guess in guesses
            if guess != kind and ("@" in text if guess == "email" else _digits(text) >= _DIGITS)
        )

    return compare


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text)) if len(text) < 40 else 0
