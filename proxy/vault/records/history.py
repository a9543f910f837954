"""The versions that a record has had, newest first: the present one, then the past ones that are
still kept.

A record that was deleted is found by its key where the operator keeps such histories
(``history.keep_deleted``); its newest entry then is the note of its end. Records that had the same
key one after the other stand in one history.
"""

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.policy import Act
from proxy.model.record import DEFAULTS, Action, Record
from proxy.storage.changes import Remove
from proxy.storage.rows import Past, Row
from proxy.vault.records.commit import COMMIT_TRIES, check_end, locked
from proxy.vault.records.find import PageAsker, Render
from proxy.vault.records.opening import (
    ShownRoom,
    past_versions,
    present_version,
    shown_size,
)
from proxy.vault.records.query import cursor_context, open_cursor
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import RowPolicyCheck

_T = TypeVar("_T")

_UNUSABLE = (Code.INVALID_INPUT, "next")

#: Past versions that are read at once where all of them have to be looked at.
_PAGE = 1_000


async def record_versions(
    records: Records, key: str, limit: int, offset: int, room: int = DEFAULTS.page_bytes
) -> tuple[list[Record], int]:
    """A page of the versions of a record as they are, and how many there are in all; else as
    ``_versions``.
    """
    part = await _versions(records, key, (limit, offset), room, _as_it_is)
    return part.rendered, part.total


def _as_it_is(record: Record) -> Record:
    return record


class _Versions(NamedTuple, Generic[_T]):
    """Rendered versions; the number and the version of each; how many there are in all."""

    rendered: list[_T]
    places: list[tuple[int, int]]
    total: int


async def _versions(
    records: Records, key: str, span: tuple[int, int], room: int, render: Render[_T]
) -> _Versions[_T]:
    """A page of the versions of a record; ``span``: how many, and the offset. A past one that does
    not open is left out.

    The page ends early where it would have more than ``room`` bytes of sealed versions; one it has
    in any case. Raises
    ``VaultError``: ``NOT_FOUND`` when neither record nor past versions are there; ``CANNOT_OPEN``
    for the present one.
    """
    if records.gate is not None and not await records.gate.allowed(Act.READ, (key,)):
        raise _unknown(records)
    if records.rights.rows:
        return await _narrowed(records, key, _Narrowed(records, span, room, render))
    collection, digest = records.collection, records.collection.key_hash(key)
    row, past, total = await _read(records, digest, span, room)
    if row is not None and not collection.alive(row):
        await _expire(records, digest)
        row, past, total = await _read(records, digest, span, room)
    if row is None and not total:
        raise _unknown(records)
    present = None if row is None else present_version(records, row, needed=not span[1])
    before = await _proven(records, key, present, past_versions(records, key, past, row))
    versions = [*([] if present is None or span[1] else [present]), *before]
    records.note_shown([record.key for record in versions])
    places = [(one.rid, one.version) for one in versions]
    del present, before, past
    versions.reverse()  # rendered records are released
    rendered = [render(versions.pop()) for _ in places]
    return _Versions(rendered, places, total + (row is not None))


class VersionPage(NamedTuple, Generic[_T]):
    """A page of a history, and the cursor of the page after it, where there is more."""

    versions: list[_T]
    total: int
    next: str | None
    cut: bool  #: whether it ends for its size


class _Position(NamedTuple):
    """End of a page: the number of versions older than its last one, and that one."""

    older: int
    rid: int
    version: int


async def history_page(
    records: Records, key: str, span: tuple[int, int | str], asker: PageAsker[_T]
) -> VersionPage[_T]:
    """A page of the versions of a record; ``span``: how many, and the offset or the cursor.

    Versions come at the front and go at the back, so a cursor counts from the back: whatever is
    written meanwhile, no version is left out or comes twice. Where not all is shown of each, the
    page ends by what is shown (``ShownRoom``). Raises ``VaultError`` as ``_versions``, and
    ``INVALID_INPUT`` for a cursor that is not this client's for this key.
    """
    limit, start = span
    context = cursor_context(records, asker.client or "", b"history\x00" + key.encode())
    begin: int | _Position
    if isinstance(start, str):
        position = open_cursor(records, start, context, _UNUSABLE)
        begin = msgspec.msgpack.decode(position, type=_Position)
    else:
        begin = start
    room = DEFAULTS.page_bytes if asker.room is None else asker.room
    page = await _behind(records, key, (limit, begin), room, asker.render)
    rendered, after, taken = page.rendered, page.after, limit
    if records.rights.view is not None:
        limited, rendered, taken = ShownRoom(room), list[_T](), 0
        while (end := limited.end(page.rendered, more=page.after is not None)) is None:
            rendered += page.rendered
            after, taken = page.after, taken + page.taken
            if after is None or taken >= limit:
                break
            page = await _behind(records, key, (limit - taken, after), room, asker.render)
        else:
            rendered += page.rendered[:end]
            older = 0 if page.after is None else page.after.older
            after = _Position(older + len(page.rendered) - end, *page.places[end - 1])
    more = None if after is None else records.cursors.seal(msgspec.msgpack.encode(after), context)
    return VersionPage(rendered, page.total, more, more is not None and len(rendered) < limit)


class _Behind(NamedTuple, Generic[_T]):
    """Versions that follow a position, and where they end, unless nothing is behind them.

    ``taken``: how many were read, with those that were in the page before.
    """

    rendered: list[_T]
    places: list[tuple[int, int]]
    total: int
    taken: int
    after: _Position | None


async def _behind(
    records: Records, key: str, span: tuple[int, int | _Position], room: int, render: Render[_T]
) -> _Behind[_T]:
    limit, start = span
    last = None if isinstance(start, int) else start
    if isinstance(start, _Position):
        start = max(0, (await _versions(records, key, (1, 0), 0, _as_it_is)).total - start.older)
    rendered, places, total = await _versions(records, key, (limit, start), room, render)
    end, taken = start + len(rendered), len(rendered)
    after = _Position(total - end, *places[-1]) if places and end < total else None
    if last is not None and last[1:] in places:
        # the oldest ones have gone meanwhile: these were in the page before
        again = places.index(last[1:]) + 1
        rendered, places = rendered[again:], places[again:]
    return _Behind(rendered, places, total, taken, after)


async def _narrowed(records: Records, key: str, page: "_Narrowed[_T]") -> _Versions[_T]:
    """The same for a caller for whom not every record is there: the newest version decides whether
    this one is.

    Of the others it sees those that would be visible as the newest. All are checked, in parts
    limited in bytes: the count is known only then.
    """
    collection, digest, within = (
        records.collection,
        records.collection.key_hash(key),
        RowPolicyCheck(records),
    )
    room = DEFAULTS.page_bytes
    row, past, total = await _read(records, digest, (_PAGE, 0), room)
    if row is not None and not collection.alive(row):
        await _expire(records, digest)
        row, past, total = await _read(records, digest, (_PAGE, 0), room)
    await within.considering([] if row is None else [row])
    present = None if row is None else within.open(row)
    if row is not None and present is None:
        raise _unknown(records)
    if row is not None and present is not None:
        page.add(present, len(row.body))
    read = 0
    while past:
        read += len(past)
        sizes = {(one.rid, one.version): len(one.body) for one in past}
        for version in await _proven(records, key, present, past_versions(records, key, past, row)):
            if within.holds(version):
                page.add(version, sizes[version.rid, version.version])
            elif not page.total:
                raise _unknown(records)
        past = await _further(records, digest, read, room) if read < total else []
    if not page.total:
        raise _unknown(records)
    records.note_shown([key] * len(page.places))
    return _Versions(page.rendered, page.places, page.total)


class _Narrowed(Generic[_T]):
    """The page of those versions that the caller may see.

    Where it is not shown all of each, they count by what it is shown, as in ``ShownRoom``.
    """

    def __init__(
        self, records: Records, span: tuple[int, int], room: int, render: Render[_T]
    ) -> None:
        self.rendered: list[_T] = []
        self.places: list[tuple[int, int]] = []
        self.total = 0  #: of the whole history
        limit, self._first = span
        self._end = self._first + limit
        self._room = room
        self._render, self._whole = render, records.rights.view is None

    def add(self, version: Record, size: int) -> None:
        """Take the next version, given the size of its row."""
        if self._first <= self.total < self._end:
            self._take(version, size)
        self.total += 1

    def _take(self, version: Record, size: int) -> None:
        if self._whole:
            self._room -= size
            if self._room < 0 and self.rendered:
                self._end = self.total
                return
        one = self._render(version)
        self.rendered.append(one)
        self.places.append((version.rid, version.version))
        if not self._whole:
            self._room -= shown_size(one)
            if self._room <= 0:
                self._end = self.total


async def _further(records: Records, digest: bytes, offset: int, room: int) -> list[Past]:
    return (
        await records.collection.store.past(records.collection.table, digest, _PAGE, offset, room)
    )[0]


async def _read(
    records: Records, digest: bytes, span: tuple[int, int], room: int
) -> tuple[Row | None, list[Past], int]:
    """The row and its page of past versions, as they were at one moment.

    They are two reads, and an update between them moves a version from one to the other: so the row
    is read again until nothing moved. A record that never rests is shown as the last look found it.
    """
    collection, (limit, offset) = records.collection, span
    row = (await collection.store.by_keys(collection.table, (digest,))).get(digest)
    past: list[Past] = []
    total = 0
    for _ in range(COMMIT_TRIES):
        first, size = (
            (max(0, offset - 1), limit - (not offset)) if row is not None else (offset, limit)
        )
        left = room if row is None or offset else room - len(row.body)
        past, total = await collection.store.past(
            collection.table, digest, size if left > 0 else 0, first, left
        )
        again = (await collection.store.by_keys(collection.table, (digest,))).get(digest)
        if again == row:
            break
        row = again
    return row, past, total


async def _expire(records: Records, digest: bytes) -> None:
    """Remove an expired record with its past versions, as maintenance would."""
    collection = records.collection
    async with locked(records, (digest,)):
        row = (await collection.store.by_keys(collection.table, (digest,))).get(digest)
        if row is not None and not collection.alive(row):
            await check_end(records, row)
            await collection.store.commit(collection.table, (Remove(row.rid),))


async def _proven(
    records: Records, key: str, present: Record | None, versions: list[Record]
) -> list[Record]:
    """Return the past versions that really belong to this key; report the others.

    The number of a version is bound to its body. It belongs to the key if the present record has
    that number, or another version with it contains the key: versions taken over by a migration
    contain another one, and proxied ones none.
    """
    legible = not records.collects(key)
    proven = _naming(versions, key, legible=legible)
    if present is not None:
        proven.add(present.rid)
    if missing := {version.rid for version in versions} - proven:
        proven |= await _proofs(records, key, missing, legible=legible)
    genuine = [
        version
        for version in versions
        if version.rid in proven or not (legible or records.rights.rows)
    ]
    if legible and len(genuine) < len(versions):
        records.tampered(len(versions) - len(genuine))
    return genuine


def _naming(versions: Iterable[Record], key: str, *, legible: bool) -> set[int]:
    """Return the numbers of the past versions that contain the key.

    For proxied records that is the note of their end.
    """
    return {
        version.rid
        for version in versions
        if version.key == key and (legible or version.action is Action.DELETE)
    }


async def _proofs(records: Records, key: str, rids: set[int], *, legible: bool) -> set[int]:
    """Return the numbers of which any past version under the key has the key."""
    digest, proven, offset = records.collection.key_hash(key), set[int](), 0
    while some := await _further(records, digest, offset, DEFAULTS.page_bytes):
        wanted = [past for past in some if past.rid in rids]
        proven |= _naming(past_versions(records, key, wanted, None), key, legible=legible)
        offset += len(some)
    return proven


def _unknown(records: Records) -> VaultError:
    return VaultError(
        Code.NOT_FOUND, f"There is no such record of {records.name!r}, nor past versions of one."
    )
