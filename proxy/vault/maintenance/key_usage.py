"""Count everything that each data key has sealed in an environment, page by page.

Nothing is opened, for everything begins with the id of its key. Released data no longer counts:
expired answers, and objects that no row names. Tables of undeclared schemas count as all others. A
missing content may come back from a backup under an unknown key: it counts for every older one.

An older key is dropped when all replicas agree (``RetirementJob``). The leader proposes: the
note of its job names what it would drop, and a fresh number. With its maintenance each replica
reads that, lets nothing through any more that the older key is needed for, and writes down the
number once all commits that it has accepted before are durable (``Replicas.agree``). When all have,
the leader scans once more. The keyset without the key is written in a transaction during which no
replica joins, and which is refused unless every replica that can still write has agreed
(``AgreedNote``). So whoever does not agree keeps the key: a replica of a version before this one,
one that has yet to start, and one that hangs, until it is cleared away and can write nothing more.
Finds of the last scan withdraw the proposal; after a crash the next leader goes on.
"""

import asyncio
import secrets
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from proxy.crypto.aead import HEAD_BYTES, SALT_BYTES, sealed_by, sealed_prefix
from proxy.errors import VaultError
from proxy.objectstore.base import NoObject
from proxy.storage.base import Store
from proxy.storage.changes import (
    Accept,
    AddVersion,
    Attach,
    Bind,
    Change,
    Conflict,
    Insert,
    Release,
    Remember,
    Replace,
    ReplaceCiphertext,
    Reroot,
    StageRow,
    UpdateFile,
)
from proxy.storage.notes import Agreement
from proxy.storage.rows import File
from proxy.vault.job import JobRun, NotedJob
from proxy.vault.schema_store import placed_schemas
from proxy.vault.vault import Vault

#: The counted kinds, in the order of reports.
USAGE_KINDS: Final = (
    "records", "versions", "staged", "attachments", "contents", "replies", "notes",
)  # fmt: skip

_PAGE: Final = 500
_FILES: Final = 50
_NO_VERSION: Final = -1  # smaller than any


class KeyUsage(NamedTuple):
    """Result of a complete scan."""

    #: by id of the key: how many of each kind, where there are any
    counted: dict[str, Counter[str]]
    until: dict[str, int]  #: by id of the key: when the last answer that it has sealed expires

    def of(self, key: str) -> Counter[str]:
        return self.counted.get(key, Counter())


async def scan_key_usage(vault: Vault) -> KeyUsage:
    """Count everything. Raises the errors of the store and the object store."""
    use = KeyUsage({}, {})
    await vault.wake()
    for table in (await placed_schemas(vault.store, vault.environment)).values():
        await _table(vault, table, use)
    for name in await vault.store.notes(f":{vault.environment}"):
        note = await vault.store.note(name)
        if note is not None and vault.keyset.aead().knows(note[SALT_BYTES:]):
            _count(use, "notes", [note[SALT_BYTES:]])
    return use


async def _table(vault: Vault, table: str, use: KeyUsage) -> None:
    store, rid = vault.store, 0
    while rows := await store.scan(table, rid, _PAGE):
        for row in rows:
            _count(use, "records", [row.body, *([row.key_sealed] if row.key_sealed else [])])
        staged = await store.staged(table, [row.rid for row in rows if row.staged])
        for change in (one for group in staged.values() for one in group if one.body):
            _count(use, "staged", [change.body])
        rid = rows[-1].rid
        await asyncio.sleep(0)
    position = (0, _NO_VERSION)
    while pasts := await store.past_scan(table, position, _PAGE):
        for past in pasts:
            _count(use, "versions", [past.body])
        position = pasts[-1].rid, pasts[-1].version
        await asyncio.sleep(0)
    await _replies(vault, table, use)
    async for files in _files(vault, table):
        for file in files:
            _count(use, "attachments", [file.sealed])
        for sealed in await _headers(vault, table, files):
            if sealed is not None:
                _count(use, "contents", [sealed])
                continue
            for key in vault.keyset.data_keys[:-1]:
                use.counted.setdefault(key, Counter())["contents"] += 1


async def _replies(vault: Vault, table: str, use: KeyUsage) -> None:
    key, now = b"", vault.clock()
    while replies := await vault.store.reply_scan(table, key, _PAGE):
        for reply in replies:
            if reply.sealed and reply.expires_at > now:
                sealed = reply.sealed[SALT_BYTES:]
                _count(use, "replies", [sealed])
                by = sealed_by(sealed)
                use.until[by] = max(use.until.get(by, 0), reply.expires_at)
        key = replies[-1].key
        await asyncio.sleep(0)


async def _files(vault: Vault, table: str) -> AsyncIterator[Sequence[File]]:
    after = b""
    while files := await vault.store.file_scan(table, after, _FILES):
        yield files
        after = files[-1].file_id
        await asyncio.sleep(0)


async def _headers(vault: Vault, table: str, files: Sequence[File]) -> list[bytes | None]:
    """Return the header of each content; ``None`` for a missing one.

    One that was replaced or deleted meanwhile is left out.
    """
    headers: list[bytes | None] = []
    for file in files:
        try:
            headers.append(
                None if vault.contents is None else await vault.contents.header(file.object)
            )
        except NoObject:
            others = (await vault.store.files(table, [file.rid])).get(file.rid, ())
            if any(other.object == file.object for other in others):
                headers.append(None)
    return headers


def _count(use: KeyUsage, kind: str, sealed: Collection[bytes]) -> None:
    """Count one thing for every key that has sealed a part of it."""
    for key in {sealed_by(part) for part in sealed}:
        use.counted.setdefault(key, Counter())[kind] += 1


# Guard against commits under data keys that are being dropped, or are gone.
#
# A request may have read a body before it was re-encrypted, and write it only now: as a past
# version, or over the new ciphertext. During a scan such a commit is noticed (``watch``), so that
# the scan is known to be incomplete. Once a key is gone it is refused (``refuse``) as an ordinary
# conflict: the request reads again, and then has data under the current key.


class RetiredKeyGuard:
    """The guard of one store.

    Ids of keys are those of all its environments: they are drawn at random.
    """

    def __init__(self) -> None:
        self._watched: frozenset[bytes] = frozenset()
        self._refused: frozenset[bytes] = frozenset()
        self._used: set[bytes] = set()

    def __call__(self, changes: Sequence[Change]) -> None:
        """Look at a commit. Raises ``Conflict`` for a commit with data under a refused key."""
        if not self._watched and not self._refused:
            return
        for change in changes:
            heads = _heads(change)
            if not self._refused.isdisjoint(heads):
                raise Conflict(change)
            self._used |= self._watched.intersection(heads)

    def watch(self, keys: Iterable[str]) -> None:
        """Notice from now on commits with data under one of these keys."""
        heads = frozenset(map(sealed_prefix, keys))
        self._watched |= heads
        self._used -= heads

    def has_sealed(self, key: str) -> bool:
        """Whether anything came since ``watch`` that the data key has sealed."""
        return sealed_prefix(key) in self._used

    def ease(self, keys: Iterable[str]) -> None:
        """End ``watch``."""
        self._watched -= frozenset(map(sealed_prefix, keys))

    def refuse(self, keys: Iterable[str]) -> None:
        """Refuse what any of these data keys has sealed, as long as the process runs."""
        self._refused |= frozenset(map(sealed_prefix, keys))


def key_guard_of(store: Store) -> RetiredKeyGuard:
    """The guard of a store; made at the first call, as most stores never replaced a key."""
    if not isinstance(store.guard, RetiredKeyGuard):
        store.guard = RetiredKeyGuard()
    return store.guard


_SEALED: dict[type[Any], Callable[[Any], Collection[bytes | None]]] = {
    Insert: lambda change: (change.row.body, change.row.key_sealed),
    Replace: lambda change: (change.row.body,),
    Bind: lambda change: (change.key_sealed,),
    Release: lambda change: (change.key_sealed,),
    Accept: lambda change: (change.key_sealed,),
    StageRow: lambda change: (change.staged.body,),
    AddVersion: lambda change: (change.past.body,),
    Attach: lambda change: (change.file.sealed,),
    UpdateFile: lambda change: (change.file.sealed,),
    Remember: lambda change: (change.reply.sealed[SALT_BYTES:],),
    ReplaceCiphertext: lambda change: change.after,
    Reroot: lambda change: [
        *([change.row[1].body] if change.row is not None else ()),
        *(file.sealed for _, file in change.files),
    ],
}


def _heads(change: Change) -> list[bytes]:
    sealed = _SEALED.get(type(change))
    return [one[:HEAD_BYTES] for one in sealed(change) if one] if sealed is not None else []


_NUMBER_BITS = 62


class RetirementRun(JobRun, frozen=True, kw_only=True):
    """A run after which older keys are dropped, as its note stores it."""

    retiring: tuple[str, ...] = ()  #: ids of the keys that are proposed to be dropped
    proposal: int = 0  #: number of that proposal; 0: there is none


RetirementT = TypeVar("RetirementT", bound=RetirementRun)


class RetirementJob(NotedJob[RetirementT]):
    """Runs whose last step needs the agreement of all replicas.

    ``linger``: seconds after which no work uses what it has read before.
    """

    def __init__(
        self,
        store: Store,
        note: str,
        of: type[RetirementT],
        report: Callable[[VaultError], None],
        linger: float = 0.0,
    ) -> None:
        super().__init__(store, note, of, report)
        #: the replicas that have not agreed to the proposal, as operators know them
        self.blockers: Sequence[str] = ()
        self._linger = linger
        self._proposal = 0  #: that this replica keeps to
        self._waited = self._last = 0.0

    async def follow_up(self) -> None:
        await super().follow_up()
        if await self.ask_blockers():
            await self._agree()
            await self.ask_blockers()

    async def ask_blockers(self) -> Sequence[str]:
        """Read who has not agreed to the proposal; nobody where there is none."""
        run, replicas = self.run, self._store.replicas
        open_ = run is not None and not set(self._keys).isdisjoint(run.retiring)
        self.blockers = await replicas.disagreeing(self._agreement) if replicas and open_ else ()
        return self.blockers

    @property
    @abstractmethod
    def _keys(self) -> Sequence[str]:
        """The ids of all keys of this kind that this replica has."""

    @abstractmethod
    def _comply(self, run: RetirementT) -> bool:
        """Let nothing through that a retiring key is needed for; ``False``: this replica cannot,
        for it does not write with the key of the run.
        """

    @property
    def _agreement(self) -> Agreement:
        return Agreement(self._note, 0 if self.run is None else self.run.proposal)

    async def _agreed(self) -> Agreement | None:
        """The proposal where there is one and all have agreed to it."""
        agreement = self._agreement
        return agreement if agreement.proposal and not await self.ask_blockers() else None

    async def _agree(self) -> None:
        """Keep to the proposal, and say so once what was under way before has ended.

        Of the time between two calls no more than ``linger`` counts: a process that stood still
        has ended nothing.
        """
        run, replicas = self.run, self._store.replicas
        if run is None or replicas is None or not self._comply(run):
            return
        now = time.monotonic()
        if self._proposal != run.proposal:
            self._proposal, self._waited, self._last = run.proposal, 0.0, now
        self._waited += min(now - self._last, self._linger)
        self._last = now
        if self._waited >= 2 * self._linger:
            await replicas.agree(self._agreement)

    def _proposing(self, run: RetirementT, keys: Sequence[str]) -> RetirementT:
        """The run with the proposal to drop these keys; without any where there are none."""
        retiring = tuple(keys)
        if retiring == run.retiring:
            return run
        number = secrets.randbits(_NUMBER_BITS) + 1 if retiring else 0
        return msgspec.structs.replace(run, retiring=retiring, proposal=number)
