"""Fields that rules make searchable later: one pass adds the index entries of existing records.

Records that are written meanwhile have it already. Until the pass is done a search would miss
records, and ``TableState.filling`` says by which fields. A note of the store tells for which fields
a table is filled; another process that finds none, or of others, fills it once more.

Several replicas may have different rules for a while. Whoever begins with other
fields than the note says reduces it to those that all fill, and something that occurs once, before
it stores anything. When all have the same fields, one of them fills.
"""

import asyncio
import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from weakref import WeakSet

import msgspec

from proxy.crypto.client_secrets import new_ident
from proxy.errors import Code, VaultError
from proxy.model.schema import Field, Storage
from proxy.storage.changes import Change, Reindex, Replace
from proxy.storage.notes import Agreement
from proxy.storage.rows import Row
from proxy.vault.collection import Collection
from proxy.vault.job import JobProgress, Pass
from proxy.vault.replicas import agreement_on, conflict_ignored, taking_turns, until_agreed

#: Seconds before a pass resumes after a fault of the store, or looks whether all replicas agree.
_RETRY: Final = 1.0


class Filling:
    """The passes of one vault, at most one for each table."""

    def __init__(self, report: Callable[[VaultError], None]) -> None:
        self._report = report
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._declared: dict[str, Collection] = {}  #: by rules, by schema
        #: of rules in force and before, by schema
        self._in_use: defaultdict[str, WeakSet[Collection]] = defaultdict(WeakSet)

    async def begin(self, collection: Collection) -> None:
        """Fill a collection that rules have just declared, where it is not filled."""
        if (running := self._tasks.pop(collection.table, None)) is not None:
            running.cancel()
        self._declared[collection.name] = collection
        self.join(collection)
        store, note = collection.store, _note(collection)
        if store.replicas is not None:
            await _reduce(collection)
        stored = await store.note(note)
        if _is_filled(collection, stored):
            return
        fresh = stored is None or store.replicas is None
        if fresh and (await store.count(collection.table))[0] == 0:
            with conflict_ignored():
                await store.put_note(note, _content(collection), stored)
                collection.state.filling = frozenset()
                return
        if store.replicas is None:
            await _begin_anew(collection, stored)
        self._tasks[collection.table] = asyncio.create_task(self._fill(collection))

    def join(self, collection: Collection) -> None:
        """Have what rules of before write found by the fields of those in force: requests that they
        have matched may still be under way, and fronts follow later. Their own searches would miss
        records by entries that go.
        """
        current, in_use = self._declared.get(collection.name), self._in_use[collection.name]
        in_use.add(collection)
        if current is not None:
            own = _searchable(current).keys()
            for one in in_use:
                one.indexing, one.parts = current.indexing, current.parts
                stored = _searchable(one)
                one.outdated = frozenset(stored[of] for of in stored.keys() - own)

    async def follow(self, name: str) -> None:
        """Look at what another replica has noted of a schema."""
        if (collection := self._declared.get(name)) is None:
            return
        running = self._tasks.get(collection.table)
        filled = _is_filled(collection, await collection.store.note(_note(collection)))
        if not filled and (running is None or running.done()):
            self._tasks[collection.table] = asyncio.create_task(self._fill(collection))

    async def waive(self, collection: Collection) -> None:
        """Agree to whatever other replicas fill of a schema that no rules declare here."""
        self._declared.pop(collection.name, None)
        if (running := self._tasks.pop(collection.table, None)) is not None:
            running.cancel()
        if (replicas := collection.store.replicas) is not None:
            await replicas.agree(Agreement(_note(collection), 0))

    async def close(self) -> None:
        """Stop; the pass resumes at the next start."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def done(self) -> None:
        """Wait until every table is filled."""
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks.values())

    async def _fill(self, collection: Collection) -> None:
        store, agree = collection.store, partial(_agree, collection)
        while True:
            try:
                await until_agreed(store, agree, math.inf, _RETRY)
                async with taking_turns(store, _note(collection)):
                    await _fill_now(collection)
                return
            except VaultError as error:
                if (
                    error.code is not Code.CONFLICT or store.replicas is None
                ):  # one with other fields
                    self._report(error)
                await asyncio.sleep(_RETRY)


async def _fill_now(collection: Collection) -> None:
    """Fill the table from where an interrupted pass is; no effect where that is done.

    Raises the errors of the store, CONFLICT where a replica with other fields has come meanwhile.
    """
    store, note = collection.store, _note(collection)
    stored = await store.note(note)
    if _is_filled(collection, stored):
        return
    visit = partial(_changes, collection, again=stored is not None)
    if store.replicas is None:
        stored = await _begin_anew(collection, stored)
    change = _content(collection) + (stored or b"")
    await Pass(collection, hashlib.sha256(change).hexdigest(), JobProgress(), "filling").run(visit)
    await store.put_note(note, _content(collection), stored)
    collection.state.filling = frozenset()


async def _begin_anew(collection: Collection, stored: bytes | None) -> bytes:
    """Note that a pass has begun, before anything is written by these fields, and return the note:
    whoever had filled the table has to do so again, also where this pass never ends. An interrupted
    one of the same fields goes on.
    """
    own = b"+" + _digest(collection)
    if stored is not None and stored.endswith(own):
        return stored
    begun = new_ident().encode() + own
    await collection.store.put_note(_note(collection), begun, stored)
    return begun


async def _reduce(collection: Collection) -> None:
    """Note the fields that other replicas fill as well, where it is of others than this one's."""
    store, note, own = collection.store, _note(collection), _searchable(collection)
    await _agree(collection)
    while True:
        stored = await store.note(note)
        if stored is None or stored == _content(collection):
            return None
        content = _content(
            collection
        )  # of one replica it is a digest, which others cannot take apart
        if stored != _digest(collection):
            common = sorted(own.keys() & _listed(stored))
            content = msgspec.json.encode([*common, new_ident()])
        with conflict_ignored():  # another replica begins in the same moment
            return await store.put_note(note, content, stored)


async def _agree(collection: Collection) -> Agreement:
    agreement = agreement_on(_note(collection), _content(collection))
    if collection.store.replicas is not None:
        await collection.store.replicas.agree(agreement)
    return agreement


def _changes(collection: Collection, row: Row, *, again: bool) -> Sequence[Change]:
    """Return the changes that make a row findable by its fields; ``again``: by no others."""
    content = collection.sealer.open(row)
    cells = collection.cells(content)
    changes: list[Change] = []
    if cells != row.cells:
        filled = collection.sealer.with_body(row._replace(cells=cells), content)
        changes.append(Replace(filled, row.version))
    hashes = collection.parts.hashes(content)
    leftovers = collection.parts.leftovers(content) - hashes if again else set[bytes]()
    if hashes or leftovers:
        changes.append(Reindex(row.rid, tuple(hashes), tuple(leftovers)))
    return changes


def _is_filled(collection: Collection, stored: bytes | None) -> bool:
    """Whether the table is filled, where its note says that; otherwise by which fields a search
    would miss records (``TableState.filling``).
    """
    own = _searchable(collection)
    filled = stored in (_content(collection), _digest(collection)) or (stored is None and not own)
    missing = {} if filled else {of: own[of] for of in own.keys() - _listed(stored)}
    collection.state.filling = frozenset(missing.values())
    return filled


def _searchable(collection: Collection) -> Mapping[str, str]:
    """The searchable fields by a digest of what is stored of them."""
    return {
        hashlib.sha256(msgspec.json.encode(_stored_as(field))).hexdigest()[:16]: field.name
        for field in collection.schema.column_fields
    }


def _content(collection: Collection) -> bytes:
    """The note of a table that is filled."""
    if collection.store.replicas is None:
        return _digest(collection)
    return msgspec.json.encode(sorted(_searchable(collection)))


def _digest(collection: Collection) -> bytes:
    """The same of a store with one replica: a digest of the set of searchable fields."""
    fields = [_stored_as(field) for field in collection.schema.column_fields]
    return hashlib.sha256(msgspec.json.encode(fields)).hexdigest().encode()


def _stored_as(field: Field) -> tuple[str, Storage, str, bool]:
    return field.name, field.storage, field.kind, field.hashed_parts


def _listed(stored: bytes | None) -> set[str]:
    """The fields of a note that lists them."""
    return set(_decode(stored)) if stored is not None and stored.startswith(b"[") else set()


_decode = msgspec.json.Decoder(list[str]).decode


def _note(collection: Collection) -> str:
    return f"searchable/{collection.name}:{collection.context.environment}"
