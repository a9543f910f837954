"""Moves all hashes under an older root to the current one, in the background (``both_roots``).

A run goes through all tables page by page: rows with their key, columns and body, entries of the
token index, names of files, and past versions. Hashes are computed from sealed bodies and replace
only older ones that are still there, so no request waits. The position stands in the store; the
next process that opens the vault resumes there.

A second round follows once no work with an earlier hash can be in flight. A round without finds
ends the run, and the older root is dropped as soon as no stored answer needs it. Beside other
replicas it is dropped when all have agreed (``key_usage``) and a round after
that has found nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from proxy.errors import Code, VaultError, coded
from proxy.storage.notes import Agreement
from proxy.vault.idempotency import KEEP
from proxy.vault.job import JobState
from proxy.vault.maintenance.hash_moves import (
    RootedPage,
    RootedTable,
    rooted_rows,
    rooted_tables,
    rooted_versions,
)
from proxy.vault.maintenance.key_usage import RetirementJob, RetirementRun
from proxy.vault.schema_store import placed_schemas
from proxy.vault.vault import Vault

#: Kept answers that are looked at in one go.
_PAGE: Final = 500
#: Pages after which it is written down how far the run is.
_NOTED: Final = 20
#: Rounds after which the rest waits for a later scan, in milliseconds.
_ROUNDS: Final = 4
_LATER: Final = 3_600_000
_NO_VERSION: Final = -1  # smaller than any
#: What needs the older root, though no data does: other replicas, until they agree.
_INSTANCES: Final = "instances"


class HashRotationRun(RetirementRun, frozen=True):
    """A run, as its note stores it. Figures are of this round."""

    root: str  #: id of the root that everything comes under
    began_at: int  #: milliseconds since the epoch
    round: int = 1
    tables: tuple[str, ...] = ()  #: that are through in this round
    table: str = ""  #: that the run is at
    past: bool = False  #: whether at its past versions
    after: tuple[int, int] = (0, _NO_VERSION)
    records: int = 0  #: rows that were looked at
    versions: int = 0  #: past versions that were looked at
    unreadable: int = 0  #: of both, those that do not open; they stay as they are
    moved: int = 0  #: of both, those that came under the root in this round
    #: data that still needs the older root, by kind
    left: Mapping[str, int] = {}
    again: int = 0  #: when to look again
    agreed: bool = False  #: all replicas had agreed to the proposal before this round began


_change = msgspec.structs.replace


class HashRotation(RetirementJob[HashRotationRun]):
    """The run of one environment.

    ``drop`` takes the older root out of the keyset. ``linger``: seconds after which no work uses a
    hash from before the run.
    """

    def __init__(
        self,
        vault: Vault,
        report: Callable[[VaultError], None],
        drop: Callable[[Agreement | None], Awaitable[None]],
        linger: float,
    ) -> None:
        note = f"hashes:{vault.environment}"
        super().__init__(vault.store, note, HashRotationRun, report, linger)
        self._vault = vault
        self._drop = drop

    @property
    def needed(self) -> bool:
        """Whether there is an older root."""
        return len(self._vault.keyset.hash_roots) > 1

    async def _start(self) -> None:
        if self.needed and (self.run is None or self.run.root != self._root):
            await self.begin()
        elif self.needed and self.state is JobState.RUNNING:
            self._go()

    async def begin(self) -> None:
        """Move everything to the current root, from the beginning or from the last stop.

        Raises the errors of the store.
        """
        await self.close()
        run = self.run
        if run is None or run.root != self._root or run.state is JobState.DONE:
            run = HashRotationRun(self._root, self._vault.clock())
        await self._save(_change(run, state=JobState.RUNNING))
        self._go()

    async def _look_again(self) -> None:
        run = self.run
        if run is None or not self.needed or not run.again or self._vault.clock() < run.again:
            return
        agreed = await self._agreed() is not None
        if run.left.keys() == {_INSTANCES} and await self.alone() is None and not agreed:
            return
        fresh = HashRotationRun(run.root, run.began_at, round=_ROUNDS - 1)
        if agreed:
            fresh = _change(fresh, retiring=run.retiring, proposal=run.proposal, agreed=True)
        await self._save(fresh)
        self._go()

    # ------------------------------------------------------------------ parts

    @property
    def _keys(self) -> Sequence[str]:
        return self._vault.keyset.hash_roots

    def _comply(self, run: HashRotationRun) -> bool:
        return run.root == self._root  # everything new is under that

    @property
    def _root(self) -> str:
        return self._vault.keyset.hash_roots[-1]

    async def _through(self) -> None:
        while await self._round():
            pass

    async def _round(self) -> bool:
        """Run one round from where it is; return whether another one has to follow."""
        run = self.run
        if run is None:
            return False
        late = self._vault.both_roots.late
        if run.round > 1 and not run.tables and not run.table:
            await asyncio.sleep(self._linger)
        async for table in rooted_tables(self._vault):
            if table.name not in (self.run or run).tables:
                await self._table(table)
        run = self.run or run
        left = {**run.left, **await self._replies(run)}
        unsure = run.moved or self._vault.both_roots.late != late or "records" in left
        if run.round == 1 or (unsure and run.round < _ROUNDS):
            await self._save(HashRotationRun(run.root, run.began_at, round=run.round + 1))
            return True
        again = 0
        if left:
            replies_end = run.began_at + KEEP + 1
            later = self._vault.clock() + _LATER
            again = replies_end if left.keys() == {"replies"} else later
        elif not await self._dropped(run):
            left, again = {_INSTANCES: 1}, self._vault.clock()
        older = self._vault.keyset.hash_roots[:-1] if _INSTANCES in left else ()
        run = self._proposing(run, older)
        await self._save(_change(run, state=JobState.DONE, left=left, again=again, agreed=False))
        return False

    async def _dropped(self, run: HashRotationRun) -> bool:
        """Let the older root go; ``False``: other replicas are there, which use it."""
        agreed = self._agreement if run.agreed and not run.moved else None
        if await self.alone() is not None:
            agreed = None
        elif agreed is None:
            return False
        try:
            await self._drop(agreed)
        except coded(Code.REPLICAS_RUNNING):
            return False
        return True

    async def _table(self, table: RootedTable) -> None:
        """Process one table from where the run is in it."""
        run, pages = self.run, 0
        if run is None:
            return
        if run.table != table.name:
            run = _change(run, table=table.name, past=False, after=(0, _NO_VERSION))
        while True:
            page = await (rooted_versions if run.past else rooted_rows)(table, run.after)
            if page is None and run.past:
                break
            if page is None:
                run = _change(run, past=True, after=(0, _NO_VERSION))
                continue
            run, pages = _counted(run, page), pages + 1
            self.run = run
            if pages % _NOTED == 0:
                await self._save(run)
        left = {**run.left, "tables": run.left.get("tables", 0) + 1} if table.unclear else run.left
        await self._save(_change(run, tables=(*run.tables, table.name), table="", left=left))

    async def _replies(self, run: HashRotationRun) -> dict[str, int]:
        """Count the stored answers that are found by a hash under the older root."""
        count, now = 0, self._vault.clock()
        for name in (await placed_schemas(self._vault.store, self._vault.environment)).values():
            key = b""
            while page := await self._vault.store.reply_scan(name, key, _PAGE):
                count += sum(now < one.expires_at <= run.began_at + KEEP for one in page)
                key = page[-1].key
        return {"replies": count} if count else {}


def _counted(run: HashRotationRun, page: RootedPage) -> HashRotationRun:
    kind = "versions" if page.past else "records"
    left = {**run.left, kind: run.left.get(kind, 0) + page.left} if page.left else run.left
    return _change(
        run,
        after=page.after,
        records=run.records + (0 if page.past else page.looked),
        versions=run.versions + (page.looked if page.past else 0),
        moved=run.moved + page.moved,
        unreadable=run.unreadable + page.unreadable,
        left=left,
    )
