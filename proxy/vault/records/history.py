"""The versions that a record has had, newest first: the present one, then the past ones that are
still kept.

A record that was deleted is found by its key where the operator keeps such histories
(``history.keep_deleted``); its newest entry then is the note of its end. Records that had the same
key one after the other stand in one history.
"""

import asyncio
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from proxy.errors import CannotOpen, Code, VaultError
from proxy.model.policy import Act
from proxy.model.record import DEFAULTS, Action, Record, RecordLimits
from proxy.storage.changes import Remove
from proxy.storage.query import All, Compare, Compared, Order, Select
from proxy.storage.rows import Past, Row
from proxy.vault.records.commit import COMMIT_TRIES, check_end, locked
from proxy.vault.records.find import PageAsker, Render, portion_of
from proxy.vault.records.opening import ShownRoom, open_records
from proxy.vault.records.query import cursor_context, open_cursor
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import RowPolicyCheck, Verified, permitted_rows, undoubted
from proxy.vault.table_state import Sequencer

#: Past versions that are read at once where all of them have to be looked at.
_PAGE = 1_000


async def record_versions(
    records: Records, key: str, limit: int, offset: int, room: int = DEFAULTS.page_bytes
) -> tuple[list[Record], int]:
    """A page of the versions of a record, and how many there are in all.

    A past one that does not open is left out.

    The page ends early where it would have more than ``room`` bytes of sealed versions; one it has
    in any case. Raises
    ``VaultError``: ``NOT_FOUND`` when neither record nor past versions are there; ``CANNOT_OPEN``
    for the present one.
    """
    if records.gate is not None and not await records.gate.allowed(Act.READ, (key,)):
        raise _unknown(records)
    if records.rights.rows:
        return await _narrowed(records, key, (limit, offset), room)
    collection, digest = records.collection, records.collection.key_hash(key)
    row, past, total = await _read(records, digest, (limit, offset), room)
    if row is not None and not collection.alive(row):
        await _expire(records, digest)
        row, past, total = await _read(records, digest, (limit, offset), room)
    if row is None and not total:
        raise _unknown(records)
    present = None if row is None else _present(records, row, needed=not offset)
    before = await _proven(records, key, present, _opened(records, key, past, row))
    versions = [*([] if present is None or offset else [present]), *before]
    records.note_shown([record.key for record in versions])
    return versions, total + (row is not None)


class VersionPage(NamedTuple):
    """A page of a history, and the cursor of the page after it, where there is more."""

    versions: list[Record]
    total: int
    next: str | None
    cut: bool  #: whether it ends for its size


class _Position(NamedTuple):
    """End of a page: the number of versions older than its last one, and that one."""

    older: int
    rid: int
    version: int


async def history_page(
    records: Records, key: str, span: tuple[int, int | str], client: str, room: int
) -> VersionPage:
    """A page of the versions of a record; ``span``: how many, and the offset or the cursor.

    Versions come at the front and go at the back, so a cursor counts from the back: whatever is
    written meanwhile, no version is left out or comes twice. Raises ``VaultError`` as
    ``record_versions``, and ``INVALID_INPUT`` for a cursor that is not this client's for this key.
    """
    limit, start = span
    context = cursor_context(records, client, b"history\x00" + key.encode())
    last: _Position | None = None
    if isinstance(start, str):
        position = open_cursor(records, start, context, _UNUSABLE)
        last = msgspec.msgpack.decode(position, type=_Position)
        start = max(0, (await record_versions(records, key, 1, 0))[1] - last.older)
    versions, total = await record_versions(records, key, limit, start, room)
    end = start + len(versions)
    more = None
    if versions and end < total:
        after = _Position(total - end, versions[-1].rid, versions[-1].version)
        more = records.cursors.seal(msgspec.msgpack.encode(after), context)
    cut = more is not None and len(versions) < limit
    if last is not None:  # the oldest ones have gone meanwhile: these were in the page before
        at = [(one.rid, one.version) for one in versions]
        versions = versions[at.index(last[1:]) + 1 if last[1:] in at else 0 :]
    return VersionPage(versions, total, more, cut)


async def _narrowed(
    records: Records, key: str, span: tuple[int, int], room: int
) -> tuple[list[Record], int]:
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
    row, past, total = await _read(records, digest, (_PAGE, 0), room)
    if row is not None and not collection.alive(row):
        await _expire(records, digest)
        row, past, total = await _read(records, digest, (_PAGE, 0), room)
    await within.considering([] if row is None else [row])
    present = None if row is None else within.open(row)
    if row is not None and present is None:
        raise _unknown(records)
    page = _Narrowed(*span, room)
    if row is not None and present is not None:
        page.add(present, len(row.body))
    read = 0
    while past:
        read += len(past)
        sizes = {(one.rid, one.version): len(one.body) for one in past}
        for version in await _proven(records, key, present, _opened(records, key, past, row)):
            if within.holds(version):
                page.add(version, sizes[version.rid, version.version])
            elif not page.total:
                raise _unknown(records)
        past = await _further(records, digest, read, room) if read < total else []
    if not page.total:
        raise _unknown(records)
    records.note_shown([record.key for record in page.versions])
    return page.versions, page.total


class _Narrowed:
    """The page of those versions that the caller may see."""

    def __init__(self, limit: int, offset: int, room: int) -> None:
        self.versions: list[Record] = []
        self.total = 0  #: of the whole history
        self._first, self._end = offset, offset + limit
        self._room = room

    def add(self, version: Record, size: int) -> None:
        """Return the next version, given the size of its row."""
        if self._first <= self.total < self._end:
            self._room -= size
            if self._room >= 0 or not self.versions:
                self.versions.append(version)
            else:
                self._end = self.total
        self.total += 1


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


def _present(records: Records, row: Row, *, needed: bool) -> Record | None:
    """The record as it is; ``None`` for one that does not open and is not needed.

    Raises ``VaultError(CANNOT_OPEN)``.
    """
    try:
        return records.open(row)
    except VaultError as error:
        if needed or error.code is not Code.CANNOT_OPEN:
            raise
        return None


def _opened(records: Records, key: str, past: list[Past], row: Row | None) -> list[Record]:
    versions: list[Record] = []
    for version in past:
        created_at = (
            row.created_at
            if row is not None and row.rid == version.rid
            else Sequencer.issued_at(version.rid)
        )
        try:
            versions.append(records.open_past(version, created_at, key))
        except CannotOpen:
            records.unopenable()
    return versions


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
        proven |= _naming(_opened(records, key, wanted, None), key, legible=legible)
        offset += len(some)
    return proven


def _unknown(records: Records) -> VaultError:
    return VaultError(
        Code.NOT_FOUND, f"There is no such record of {records.name!r}, nor past versions of one."
    )


# Export of all records of a schema, page by page in the order of their age, during writes.
#
# A page continues after the last record of the one before, so no permanent record is left out or
# repeated, whatever is created or deleted meanwhile; a search with ``offset`` cannot promise that.

_T = TypeVar("_T")

_UNUSABLE = (Code.INVALID_INPUT, "next")


class Exported(NamedTuple, Generic[_T]):
    """A page of rendered records; the number of unreadable ones left out; the next cursor; whether
    it ends for its size.
    """

    records: list[_T]
    unreadable: int
    next: str | None
    cut: bool = False


async def export(
    records: Records,
    cursor: str | None,
    limit: int,
    asker: PageAsker[_T],
    limits: RecordLimits = DEFAULTS,
) -> Exported[_T]:
    """Return the page of visible records after that cursor, or the first one. Raises
    ``VaultError(INVALID_INPUT)`` for a cursor that is not this client's.
    """
    client, room = asker.client or "", min(limits.page_bytes, asker.room or limits.page_bytes)
    after = 0 if cursor is None else _first_rid(records, cursor, client)
    part = await _exported(records, after, (limit, room), asker.render)
    rendered, unreadable, last, size = part.rendered, part.unreadable, part.last, part.size
    cut = part.more and size < limit
    if records.rights.view is not None:
        limited, rendered, unreadable = ShownRoom(room), list[_T](), 0
        while (end := limited.end(part.rendered, more=part.more)) is None:
            rendered += part.rendered
            unreadable, last = unreadable + part.unreadable, part.last
            cut = False
            if not part.more or size >= limit:
                break
            part = await _exported(records, last, (limit - size, room), asker.render)
            size += part.size
        else:
            rendered, last, cut = rendered + part.rendered[:end], part.rids[end - 1], True
    more = records.cursors.seal(b"%d" % last, _context(records, client))
    return Exported(rendered, unreadable, more if cut or part.more else None, cut)


class _Part(NamedTuple, Generic[_T]):
    """Rendered records of one read, and their ids; the id of its last row, and how many it has."""

    rendered: list[_T]
    rids: list[int]
    unreadable: int
    last: int
    size: int
    more: bool


async def _exported(
    records: Records, after: int, span: tuple[int, int], render: Render[_T]
) -> _Part[_T]:
    """The records behind that id; ``span``: how many rows at most, and their bytes."""
    collection = records.collection
    where = All((Compared("@rid", Compare.GT, after), permitted_rows(records)))
    order, now = (Order("@rid"),), collection.clock()
    select = Select(where, now, order, span[0], counted=False, room=span[1])
    stored = await collection.store.select(collection.table, select)
    rows, size = stored.rows, len(stored.rows)
    last = rows[-1].rid if rows else after
    rows.reverse()  # rendered records are released
    rendered: list[_T] = []
    pairs: list[tuple[str | None, int]] = []
    guarded: list[Record] = []
    verified, unreadable = Verified(records, records.rights.rows), 0
    while rows:
        portion = portion_of(rows)
        opens = await open_records(records, portion)
        unreadable += len(portion) - len(opens)
        verified_records = await undoubted(records, portion, verified.only(opens))
        if records.gate is None:
            pairs += [(record.key, record.rid) for record in verified_records]
            rendered += map(render, verified_records)
        else:
            guarded += verified_records
        del portion, opens, verified_records
        if rows:
            await asyncio.sleep(0)
    if records.gate is not None:  # one question for all of them
        permitted, unreadable = await records.permitted(guarded), 0
        pairs = [(record.key, record.rid) for record in permitted]
        rendered = [render(record) for record in permitted]
    records.note_shown([key for key, _ in pairs])
    return _Part(rendered, [rid for _, rid in pairs], unreadable, last, size, stored.more)


def _first_rid(records: Records, cursor: str, client: str) -> int:
    return int(open_cursor(records, cursor, _context(records, client), _UNUSABLE))


def _context(records: Records, client: str) -> bytes:
    """Return the context of a cursor; the schema may change during a long export."""
    return b"export\x00%b\x00%b" % (client.encode(), records.name.encode())
