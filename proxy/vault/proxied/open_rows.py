"""Opens rows together with their staged changes, for the answers that show them.

A row that does not open is logged by its event and left out. Many rows are opened with turns of the
event loop between them, long rows on another thread.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from sys import getsizeof
from typing import Any, NamedTuple

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import NO_VALUE, Value
from proxy.offload import busy, give_way, run_in_thread, strides
from proxy.storage.rows import SEEN_IN_PAGE, Row, Staged
from proxy.tokenization.base import Resolution
from proxy.vault.body import (
    RecordBody,
    TokenizedFields,
    TokenizedValue,
    next_generation,
    tokens_of,
    values_in_order,
)
from proxy.vault.collection import LONG, LOOKED_UP, Collection
from proxy.vault.seal import Tampered
from proxy.vault.table_state import Opening, PageRecord, opening_of
from proxy.vault.verdicts import values_shown, written_later

_OPENED, _LOOKED_AT = 16, 100  #: rows between two turns of the event loop: opened, and compared


class AnswerObject(msgspec.Struct, frozen=True):
    """An object of an answer: its id in the application, and the texts in protected places."""

    id: str | None
    places: tuple[tuple[str, str], ...]  #: (field name, text found there)


class OpenRow(msgspec.Struct):
    """A row with its versions in the clear, as one answer needs them."""

    row: Row
    live: RecordBody
    staged: list[tuple[Staged, RecordBody | None]] = []
    name: str | None = None  #: its key, where that is open already
    lost_values: TokenizedFields = {}  #: what an object shows of a create that has got no answer
    lost_rid: int = 0  #: the number of that one's record
    _repeats: bool = False
    _values: dict[tuple[str, str], Value] | None = None
    _texts: frozenset[str] | None = None

    @property
    def values(self) -> dict[tuple[str, str], Value]:
        """The values of all versions by (field, token)."""
        if self._values is None:
            self._values = {}
            self.learn(self.live)
        return self._values

    @property
    def following(self) -> int:
        """The next value number that no version has used."""
        return next_generation([self.live, *[one for _, one in self.staged if one is not None]])

    @property
    def repeats(self) -> bool:
        """Whether values of one field have one token."""
        return bool(self.values) and self._repeats

    def learn(self, content: RecordBody) -> None:
        """Add the tokens of a version; a version learnt earlier wins where small tokens collide."""
        by_place, self._texts = self.values, None
        for name, values in (*content.values.items(), *content.earlier.items()):
            if len(values) > 1 and len(set(tokens_of(values))) < len(values):
                self._repeats = True
            for one in values:
                if by_place.get(at := (name, one.token), NO_VALUE) == NO_VALUE:  # any other counts
                    by_place[at] = one.value

    @property
    def token_texts(self) -> frozenset[str]:
        """The texts of all tokens of any field, for one that stands where it opens nothing."""
        if self._texts is None:
            self._texts = frozenset(token for _, token in self.values)
        return self._texts

    def versions(self) -> tuple[list[RecordBody], set[int]]:
        """The versions in doubt, and those of them that had been live before another one was."""
        pairs = [(one.at, content) for one, content in self.staged if content is not None]
        older = {index for index, (at, _) in enumerate(pairs) if at >= SEEN_IN_PAGE}
        return [content for _, content in pairs], older

    def values_at(
        self, places: Sequence[tuple[str, str]]
    ) -> Mapping[str, tuple[TokenizedValue, ...]]:
        """The values of an object's (field, token)."""
        versions, older = self.versions()
        return values_shown(places, self.live, versions, older)

    def written_later(self, single: Container[str], part: "OpenRow", of: AnswerObject) -> set[str]:
        """See ``written_later``: the fields of this record since the create of ``part``."""
        versions = [self.live, *(one or self.live for _, one in self.staged)]
        numbers = self.row.rid, part.row.rid
        return written_later(versions, part.live, numbers, of.places, single)


class Revealed(NamedTuple):
    """The values by object and place (``None``: not ours, stays as it is), and what else is known.

    ``rows``: the record that each object is, as far as one look tells. ``loose``: records without a
    name that gave an object one of its values, with the number of the object.
    """

    values: list[list[Value | None]]
    rows: list[OpenRow | None]
    loose: list[tuple[int, OpenRow]]
    opened: dict[int, OpenRow]  #: every record that was looked at, by its number
    #: pending records that alone have a shown token, with an object's number: they may be another
    pending: list[tuple[int, OpenRow]]

    @property
    def corrected(self) -> int:
        """When the interface corrected one of the records last, in milliseconds; 0: none."""
        return max((row.live.at for row in self.rows if row is not None), default=0)

    @property
    def may_decide(self) -> bool:
        """Whether the answer may decide something that is in doubt."""
        open_yet = (row and (row.staged or row.lost_values) for row in self.rows)
        return bool(self.loose or self.pending) or any(open_yet)


async def open_current(
    collection: Collection, objects: Sequence[AnswerObject]
) -> list[tuple[OpenRow, list[Value | None]] | None]:
    """For each object that shows a record as that is now: the record, and its values."""
    marks: list[bytes | int | None] = []
    keys: dict[bytes, None] = {}
    rids: dict[int, None] = {}
    for item in objects:
        if item.id is not None and item.places:
            keys[digest := collection.key_hash(item.id)] = None
            marks.append(digest)
        else:
            rid = _carried(collection, item.places)
            marks.append(rid)
            if rid is not None:
                rids[rid] = None
    store, table = collection.store, collection.table
    by_key = await store.by_keys(table, list(keys)) if keys else {}
    by_rid = await store.rows(table, list(rids)) if rids else {}
    current: list[tuple[OpenRow, list[Value | None]] | None] = []
    for number, (item, mark) in enumerate(zip(objects, marks, strict=True), 1):
        row = by_key.get(mark) if isinstance(mark, bytes) else by_rid.get(mark or 0)
        current.append(open_as_shown(collection, item, row) if row is not None else None)
        if number % _OPENED == 0 and busy():
            await give_way()
    return current


def open_as_shown(
    collection: Collection, item: AnswerObject, row: Row
) -> tuple[OpenRow, list[Value | None]] | None:
    """The record of a row and its values, where the object shows nothing else.

    A row is the object's own by a token that carries its record, or by its sealed key. Misfits and
    unreadable rows are reported after all checks.
    """
    if row.staged or row.key is None or len(row.body) > LONG:
        return None
    if row.expires_at is not None and not collection.alive(row):
        return None
    try:
        if item.id is None or _carried(collection, item.places, row.rid) is None:
            live, key = collection.sealer.open_with_key(row)
        else:
            live, key = collection.sealer.open(row), item.id
    except VaultError:
        return None
    if item.id not in (None, key):
        return None
    values = values_in_order(live.values, item.places)
    return (OpenRow(row, live, name=key), values) if values is not None else None


def _carried(
    collection: Collection, places: Iterable[tuple[str, str]], expected: int | None = None
) -> int | None:
    """The record that the first token of the object carries in the field that it was made for.

    ``expected``: it is known to have that token, so only the token's form is looked at.
    """
    for name, text in places:
        tokenizer = collection.tokenizers.get(name)
        if tokenizer is None or not text or tokenizer.resolution is not Resolution.SEALED:
            continue
        if expected is not None:
            if tokenizer.resembles(text):
                return expected
        elif (pair := tokenizer.identify(text)) is not None:
            return pair[0]
    return None


class PageRun(NamedTuple):
    """Objects of a page of a list that have the same places in the same order, one a field."""

    fields: tuple[str, ...]
    bare: tuple[bool, ...]  #: of each place whether a number stands there
    ids: Sequence[str | None]  #: of each object, where the application gives it one
    #: of each object what stands in its places; empty where nothing does
    texts: Sequence[tuple[str, ...]]


async def open_page(collection: Collection, runs: Sequence[PageRun]) -> list[PageRecord | None]:
    """For each object that shows a record as that is now: the record, and its values.

    The same as ``open_current`` for objects of which every value is a text where a text stands, and
    a number where a number does; ``None`` for any other, which is then told by that.
    """
    marks: list[Sequence[bytes | int | None]] = []
    keys: dict[Any, None] = {}
    rids: dict[Any, None] = {}
    for run in runs:
        if busy():
            await give_way()
        marks.append(some := _marks(collection, run))
        (keys if any(run.ids) else rids).update(dict.fromkeys(some))
    if busy():
        await give_way()
    rows: dict[Any, Row] = {}
    for read, wanted in ((collection.store.by_keys, keys), (collection.store.rows, rids)):
        wanted.pop(None, None)
        if wanted:
            rows.update(await read(collection.table, list(wanted)))
    opened: list[PageRecord | None] = []
    for run, some in zip(runs, marks, strict=True):
        part = list(map(rows.get, some))
        for start in range(0, len(part), _LOOKED_AT):
            if busy():
                await give_way()
            opened += await _records(collection, run, start, part[start : start + _LOOKED_AT])
    return opened


async def _records(
    collection: Collection, run: PageRun, start: int, rows: Sequence[Row | None]
) -> list[PageRecord | None]:
    """The records of a run's objects from one on, as opened lately where nothing has changed."""
    records: list[PageRecord | None] = [None] * len(rows)
    memory, edition = collection.opened, collection.sealer.edition
    young, old = memory.openings(collection, edition)
    form, ids, texts = (run.fields, run.bare), run.ids, run.texts
    others: list[tuple[int, Row]] = []
    fresh: list[Opening] = []
    for index, row in enumerate(rows, start):
        if row is None or (row.expires_at is not None and not collection.alive(row)):
            continue
        rid = row[0]
        if (before := young.get(rid)) is None and (before := old.get(rid)) is not None:
            fresh.append(before)
        if (
            before is not None
            and before[0] == row
            and before[3] == texts[index]
            and before[2] == ids[index]
            and before[1] == form
        ):
            records[index - start] = before[4]
        elif not row.staged and len(row.body) <= LONG:
            others.append((index, row))
    for some in strides(others, _OPENED):
        opened = _open_part(collection, run, some)
        for (index, row), record in zip(some, opened, strict=True):
            records[index - start] = record
            if record is not None:
                size = sum(map(getsizeof, record.texts))
                fresh.append(opening_of(row, (form, ids[index], texts[index]), record, size))
        if busy():
            await give_way()
    if fresh:
        memory.remember(collection, edition, fresh)
    return records


def _marks(collection: Collection, run: PageRun) -> Sequence[bytes | int | None]:
    """The look-up key of each object's row: a hash of its id, or the record of a token."""
    sealed = _sealed(collection, run)
    if not any(run.ids):
        if sealed < 0:
            return [None] * len(run.ids)
        return collection.carried(run.fields[sealed], [row[sealed] for row in run.texts])
    ids, empty = run.ids, ("",) * len(run.fields)
    if empty in run.texts:
        objects = zip(ids, run.texts, strict=True)
        ids = [ident if texts != empty else None for ident, texts in objects]
    return collection.key_hashes(ids)


def _sealed(collection: Collection, run: PageRun) -> int:
    """The number of the first place whose tokens carry their record; -1: there is none."""
    for number, name in enumerate(run.fields):
        tokenizer = collection.tokenizers.get(name)
        if tokenizer is not None and tokenizer.resolution is Resolution.SEALED:
            return number
    return -1


def _open_part(
    collection: Collection, run: PageRun, rows: Sequence[tuple[int, Row]]
) -> list[PageRecord | None]:
    """The records of some objects of a run, by their numbers, from their rows.

    The name that is sealed beside a row is looked at where no token tells that it is the object's.
    """
    records: dict[int, PageRecord] = {}
    new = tuple.__new__
    sealed, ids = _sealed(collection, run), run.ids
    resembles = collection.tokenizers[run.fields[sealed]].resembles if sealed >= 0 else None
    parts: tuple[list[tuple[int, Row]], list[tuple[int, Row]]] = [], []
    for index, row in rows:
        own = (
            resembles is not None and ids[index] is not None and resembles(run.texts[index][sealed])
        )
        parts[not own].append((index, row))
    for named, some in enumerate(parts):
        contents = collection.sealer.open_page([row for _, row in some], named=bool(named))
        for (index, row), content in zip(some, contents, strict=True):
            if content is None:
                continue
            values, key = content
            ident = ids[index] or key
            if named and ident != key:
                continue
            texts = _texts_in_order(values, run, run.texts[index])
            if texts is not None:
                records[index] = new(PageRecord, (row.rid, ident, texts))
    return [records.get(index) for index, _ in rows]


def _texts_in_order(
    values: TokenizedFields, run: PageRun, tokens: Sequence[str]
) -> list[str] | None:
    """As ``values_in_order``, where each value is written as its token is."""
    texts: list[str] = []
    for name, token, bare in zip(run.fields, tokens, run.bare, strict=True):
        if not token:
            texts.append("")
            continue
        stored = values.get(name)
        if not stored or (first := stored[0]).token != token or first.json is not bare:
            return None
        if not first.text:
            return None
        texts.append(first.text)
    return texts


async def open_with_staged(
    collection: Collection, rids: Iterable[int], rows: Iterable[Row]
) -> dict[int, OpenRow]:
    """Open rows by id, and these rows, with their staged changes."""
    by_rid = {row.rid: row for row in rows}
    wanted = [rid for rid in rids if rid not in by_rid]
    for some in strides(wanted, LOOKED_UP):
        fetched = await collection.store.rows(collection.table, some)
        by_rid.update((rid, row) for rid, row in fetched.items() if collection.alive(row))
        if busy():
            await give_way()
    staged = await collection.staged_beside(by_rid)
    opened: dict[int, OpenRow] = {}
    for count, (rid, row) in enumerate(by_rid.items(), 1):
        try:
            opened[rid] = await run_in_thread(
                len(row.body) > LONG, _open_row, collection, row, staged.get(rid, ())
            )
        except VaultError as error:
            if error.code is not Code.CANNOT_OPEN:
                raise
            collection.observe("tampered" if isinstance(error, Tampered) else "unopenable")
        if count % _OPENED == 0 and busy():
            await give_way()
    return opened


def _open_row(collection: Collection, row: Row, staged: Sequence[Staged]) -> OpenRow:
    live, key = collection.sealer.open_with_key(row)
    opened = OpenRow(row, live, name=key, _values={})
    opened.learn(live)
    for change in staged:
        opened.staged.append((change, collection.sealer.open_staged(change, row.salt)))
    # of values that share a token in versions in doubt, the latest counts
    for _, content in reversed(opened.staged):
        if content is not None:
            opened.learn(content)
    return opened
