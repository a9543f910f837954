"""Every record with one of the values of a person, in any field and storage class.

All records are opened and compared, so that nothing is missed: no index has the second of several
values of a field, or ``encrypted`` ones. A field is compared in the normal form of its kind; names
and texts are compared whatever their letter case and white space. A value that looks like an
address, a telephone number or a number with letters is compared as that in other fields, too. The
walk goes in slices, each with a position to resume from; concurrent writes may be included or not.
Versions in doubt are compared as the live one is, and so are earlier ones that a rule keeps
(``versions: keep``): the application may have any of them.

A field hidden from the caller counts as absent: else it could test guesses.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from proxy.audit.events import RecordId
from proxy.model.query import Test
from proxy.model.record import Record
from proxy.storage.query import MATCH_ALL, All, Compare, Compared, Order, Select
from proxy.storage.rows import Row
from proxy.tokenization.normalize import folded, normalize
from proxy.vault.body import RecordBody
from proxy.vault.earlier_values import unerased_values
from proxy.vault.records.find import portion_of
from proxy.vault.records.opening import open_records
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import Verified, permitted_rows, undoubted, version_in_doubt

#: Rows that are read at once, and their bytes.
_ROWS: Final = 500
_ROOM: Final = 4 * 2**20
#: Digits from which on a text is compared as a telephone number.
_DIGITS: Final = 6

#: Characters from which on a value is looked for within texts.
_WITHIN: Final = 6
#: Kinds of which a value names one person, or few.
_IDENTIFYING: Final = frozenset({"email", "phone", "national_id", "iban", "card"})

#: Whether a text is one of the values, by the kind of its field.
_Compare = Callable[[str, str], bool]


class PersonValues(NamedTuple):
    """Values of one person; ``mentions``: whether they are looked for within texts, too."""

    values: Sequence[str]
    mentions: bool = False


class PersonRecord(NamedTuple):
    """A record that has one of the values, by its fields."""

    record: Record
    fields: tuple[str, ...]  #: those that are one of the values
    mentions: tuple[str, ...] = ()  #: other ones, with one of the values within a longer text
    others: tuple[str, ...] = ()  #: those of an identifying kind that are none of the values
    #: the record as its versions in doubt have it, as far as they are there for the caller
    in_doubt: tuple[Record, ...] = ()


class DeletedRecords(NamedTuple):
    """Records of which the audit log tells that they were deleted, as they were before that: what
    a restored backup brings back.
    """

    #: when each was deleted, in milliseconds, by its name in the log; who changed or made one later
    #: meant it
    instants: Mapping[str, int]
    record_id: RecordId

    def holding_of(self, records: Records, versions: Sequence[Record]) -> PersonRecord | None:
        """The record, if it is one of them."""
        live, *doubtful = versions
        collection = records.collection
        if live.key is None:
            return None
        name = self.record_id(collection.context.environment, records.name, live.key)
        if live.updated_at > self.instants.get(name, -1):
            return None
        return PersonRecord(live, (), in_doubt=tuple(doubtful))


class PersonPage(NamedTuple):
    """Result of a walk over a part of a schema's records."""

    holders: list[PersonRecord]
    looked: int  #: records that were looked at
    unreadable: int  #: among them, that do not open
    last: int | None  #: the id of the last of them; ``None``: there are no more


async def find_person_records(
    records: Records, sought: PersonValues | DeletedRecords, after: int, most: int
) -> PersonPage:
    """Examine the next records after that id (0: from the first), at least so many if they exist.

    It ends after a multiple of ``_ROWS`` or at the end: where it ended by the bytes of rows, it
    would tell how long values are that the caller is not shown. Raises ``VaultError``: as a filter
    endpoint; ``VAULT_DOWN``.
    """
    collection = records.collection
    holding_of = (
        sought.holding_of
        if isinstance(sought, DeletedRecords)
        else _holding(sought, collection.context.region)
    )
    verified = Verified(records, records.rights.rows)
    walk = PersonPage([], 0, 0, after)
    while walk.last is not None and (walk.looked < most or walk.looked % _ROWS):
        behind = Compared("@rid", Compare.GT, walk.last) if walk.last else MATCH_ALL
        select = Select(
            All((behind, permitted_rows(records))),
            collection.clock(),
            (Order("@rid"),),
            _ROWS - walk.looked % _ROWS,
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
            doubtful = await _versions_in_doubt(records, verified, portion, opened)
            each = [holding_of(records, (one, *doubtful.get(one.rid, ()))) for one in opened]
            having = [one for one in each if one is not None]
            genuine = verified.only([one.record for one in having])
            allowed = await records.permitted(await undoubted(records, portion, genuine))
            rids = {one.rid for one in allowed}
            walk.holders.extend(one for one in having if one.record.rid in rids)
            await asyncio.sleep(0)
        walk = PersonPage(walk.holders, looked, unreadable, last)
    records.note_shown([one.record.key for one in walk.holders])
    return walk


async def found_in_doubt(
    records: Records, tests: Sequence[Test], rids: Sequence[int]
) -> list[Record]:
    """Look for records among these by their versions in doubt: as the first has them for which the
    tests hold.
    """
    stored = await records.collection.store.rows(records.collection.table, rids)
    rows = [row for row in stored.values() if row.key and records.collection.alive(row)]
    opened = await open_records(records, rows)
    versions = await _versions_in_doubt(records, Verified(records, tests), rows, opened)
    return [several[0] for several in versions.values() if several]


async def _versions_in_doubt(
    records: Records, verified: Verified, rows: Sequence[Row], opened: Sequence[Record]
) -> dict[int, list[Record]]:
    """The records as their versions in doubt have them, by row; one that does not open is
    reported.
    """
    by_rid = {one.rid: one for one in opened}
    waiting = {row.rid: row for row in rows if row.staged and row.rid in by_rid}
    versions: dict[int, list[Record]] = {}
    for rid, staged in (await records.collection.staged_beside(waiting)).items():
        live = by_rid[rid]
        each = [version_in_doubt(records, one, waiting[rid].salt, live) for one in staged]
        versions[rid] = [
            one for one in each if one and one.fields != live.fields and verified.holds(one)
        ]
    if records.collection.keeps:
        for one in _earlier(records, rows, by_rid):
            if verified.holds(one):
                versions.setdefault(one.rid, []).append(one)
    return versions


def _earlier(
    records: Records, rows: Sequence[Row], by_rid: Mapping[int, Record]
) -> Iterator[Record]:
    """Each record as its earlier versions have it that its rule keeps: all values of each field."""
    for row in rows:
        earlier = unerased_values(records.collection.sealer.open(row)) if row.rid in by_rid else {}
        if earlier:
            live = by_rid[row.rid]
            fields, eras = records.contents(RecordBody(earlier), live.key)
            yield replace(live, fields=fields, eras=eras)


def _holding(
    sought: PersonValues, region: str
) -> Callable[[Records, Sequence[Record]], PersonRecord | None]:
    """Return the search for these values in the versions of a record, the live one first."""
    compare = _comparison(sought.values, region)
    within = _within(sought.values) if sought.mentions else None
    return lambda records, versions: _holding_of(records, versions, compare, within)


def _holding_of(
    records: Records, versions: Sequence[Record], compare: _Compare, within: re.Pattern[str] | None
) -> PersonRecord | None:
    """The visible fields that have one of the values in some version; ``None``: none has."""
    kinds = {field.name: field.kind for field in records.full_schema.fields}
    fields, mentions, others = list[str](), list[str](), list[str]()
    for name, texts in _texts_by_field(versions).items():
        if not records.rights.shows_value(name):
            continue
        kind = kinds.get(name, "text")  # what rules named once is there, and shown, as before
        if any(compare(kind, text) for text in texts):
            fields.append(name)
        elif within is not None and any(within.search(_spaced(text)) for text in texts):
            mentions.append(name)
        elif kind in _IDENTIFYING and any(texts):
            others.append(name)
    if not fields and not mentions:
        return None
    live, *doubtful = versions
    return PersonRecord(live, tuple(fields), tuple(mentions), tuple(others), tuple(doubtful))


def _texts_by_field(versions: Sequence[Record]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for one in versions:
        for name, value in one.fields.items():
            texts.setdefault(name, []).extend(_texts(value))
    return texts


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value; a number as it is written."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _comparison(values: Sequence[str], region: str) -> _Compare:
    several = [_of_value(value, region) for value in values]
    return lambda kind, text: any(one(kind, text) for one in several)


def _of_value(value: str, region: str) -> _Compare:
    wanted: dict[str, str] = {}
    numbers = ["phone", "national_id"] if _digits(value) >= _DIGITS else []
    guesses = ["email"] if "@" in value else numbers

    def equals(kind: str, text: str) -> bool:
        if kind not in wanted:
            wanted[kind] = _form(kind, value, region)
        return _form(kind, text, region) == wanted[kind]

    def compare(kind: str, text: str) -> bool:
        if text == value or equals(kind, text):
            return True
        return any(
            equals(guess, text)
            for guess in guesses
            if guess != kind and ("@" in text if guess == "email" else _digits(text) >= _DIGITS)
        )

    return compare


def _form(kind: str, text: str, region: str) -> str:
    """The form in which values are compared: of texts more is equal than in a search."""
    return _spaced(text) if kind in ("name", "text") else normalize(kind, text, region)


def _spaced(text: str) -> str:
    return " ".join(folded(text).split())


def _within(values: Sequence[str]) -> re.Pattern[str] | None:
    """Find the values as whole words of longer texts; ``None`` where they are short."""
    several = [re.escape(one) for value in values if len(one := _spaced(value)) >= _WITHIN]
    return re.compile(rf"(?<!\w)(?:{'|'.join(several)})(?!\w)") if several else None


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text)) if len(text) < 40 else 0
