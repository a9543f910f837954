"""Re-encryption of older data under the current data key, in the background.

A run goes through all data of an environment, stage by stage and page by page
(``reencrypt_pages``). The position stands in the store: the next process that opens the vault
resumes there. Stored answers are left alone, since they expire within a day.

Then all data is scanned once more (``scan_key_usage``), with a guard that notices concurrent
writes. An older key without finds is dropped (``Retire``). Finds are stored, so that everyone can
see why a key is still there, and the scan is repeated: after the last answer has expired, else a
day later.

Of several replicas the one that leads does all that while the others serve.
Their commits are noticed by no guard of this process. So beside others a key is dropped when all
have agreed, each with a guard that refuses it (``key_usage``).
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from proxy.errors import Code, VaultError, coded
from proxy.storage.notes import Agreement
from proxy.vault.job import JobState
from proxy.vault.maintenance import reencrypt_pages
from proxy.vault.maintenance.key_usage import (
    KeyUsage,
    RetirementJob,
    RetirementRun,
    key_guard_of,
    scan_key_usage,
)
from proxy.vault.maintenance.reencrypt_pages import PageResult, SealedTable, Turn
from proxy.vault.schema_store import placed_schemas
from proxy.vault.seal import Sealer
from proxy.vault.vault import Vault

#: Pages after which it is written down how far the run is.
_NOTED: Final = 20
#: Seconds between two looks whether uploads have ended that began before.
_UPLOADS: Final = 0.2
#: Times that a run goes through everything, where things that open are left under an older key.
_ROUNDS: Final = 3
#: Milliseconds after which it looks again at what something else than an answer keeps.
_DAY: Final = 86_400_000
#: The same where only something came meanwhile that an older key has sealed.
_SOON: Final = 60_000

#: Takes these data keys out of the keyset: nothing needs them any more, and all replicas have
#: agreed, where there are several. No effect where another key seals meanwhile.
Retire = Callable[[Sequence[str], Agreement | None], Awaitable[None]]


class ReencryptionStage(enum.StrEnum):
    """Stage of a run."""

    RECORDS = "records"
    VERSIONS = "versions"
    CONTENTS = "contents"
    NOTES = "notes"
    LOOK = "look"
    END = "end"


class ReencryptionRun(RetirementRun, frozen=True):
    """A run, as its note stores it. Figures are of this round."""

    key: str  #: the data key that everything is sealed with
    done: int = 0  #: records
    unreadable: int = 0  #: things that do not open; they stay as they are
    tables: tuple[str, ...] = ()  #: that are done in this stage
    stage: ReencryptionStage | None = None  #: ``None``: a note of a version that knew no stages
    table: str = ""  #: that the stage is at
    after: str = ""  #: where in it the next page begins
    versions: int = 0
    contents: int = 0
    round: int = 1
    #: result of the last scan, by key and kind
    used: Mapping[str, Mapping[str, int]] | None = None
    again: int = 0  #: when to look again, in milliseconds since the epoch
    together: bool = False  #: another replica was there at the last look


_change = msgspec.structs.replace

_TURNS: Final[Mapping[ReencryptionStage, tuple[Turn, str]]] = {
    ReencryptionStage.RECORDS: (reencrypt_pages.records, "done"),
    ReencryptionStage.VERSIONS: (reencrypt_pages.versions, "versions"),
    ReencryptionStage.CONTENTS: (reencrypt_pages.contents, "contents"),
}
_ORDER: Final = tuple(ReencryptionStage)


class ReencryptionJob(RetirementJob[ReencryptionRun]):
    """The runs of one environment."""

    def __init__(self, vault: Vault, report: Callable[[VaultError], None], retire: Retire) -> None:
        super().__init__(vault.store, f"reseal:{vault.environment}", ReencryptionRun, report)
        self._vault = vault
        self._retire = retire

    async def _start(self) -> None:
        keys, run = self._vault.keyset.data_keys, self.run
        if run is not None and run.key == keys[-1] and run.stage is not None:
            if run.state is JobState.RUNNING:
                self._go()
        elif len(keys) > 1:
            await self.begin()

    async def begin(self) -> None:
        """Seal everything with the key that seals now; a run for another one ends.

        Raises the errors of the store.
        """
        await self.close()
        key, run = self._vault.keyset.data_keys[-1], self.run
        if run is not None and run.key == key and run.stage not in (None, ReencryptionStage.END):
            await self._save(_change(run, state=JobState.RUNNING))
        else:
            await self._save(ReencryptionRun(key, stage=ReencryptionStage.RECORDS))
        self._go()

    async def _look_again(self) -> None:
        run = self.run
        if run is None or not run.again or len(self._vault.keyset.data_keys) == 1:
            return
        if self._vault.clock() < run.again and not (
            run.together and (await self.alone() is not None or await self._agreed())
        ):
            return
        if any(kind != "replies" for counted in (run.used or {}).values() for kind in counted):
            fresh = ReencryptionRun(run.key, stage=ReencryptionStage.RECORDS, round=_ROUNDS)
            await self._save(_change(fresh, used=run.used, again=run.again))
        elif run.together:
            await self._save(_change(run, state=JobState.RUNNING, stage=ReencryptionStage.LOOK))
        self._go()

    # ------------------------------------------------------------------ parts

    @property
    def _keys(self) -> Sequence[str]:
        return self._vault.keyset.data_keys

    def _comply(self, run: ReencryptionRun) -> bool:
        current = run.key == self._vault.keyset.data_keys[-1]
        if current:
            key_guard_of(self._vault.store).refuse(run.retiring)
        return current

    async def _through(self) -> None:
        run = self.run
        while run is not None:
            if run.stage in _TURNS:
                await self._tables(run)
            elif run.stage is ReencryptionStage.NOTES:
                unreadable = run.unreadable + await reencrypt_pages.notes(self._vault)
                await self._save(_change(run, unreadable=unreadable, stage=ReencryptionStage.LOOK))
            elif await self._looked(run):
                return
            run = self.run

    async def _tables(self, run: ReencryptionRun) -> None:
        """Process one stage from where it is."""
        stage = run.stage or ReencryptionStage.RECORDS
        await self._vault.wake()
        for name, table in sorted(
            (await placed_schemas(self._vault.store, self._vault.environment)).items()
        ):
            if table not in run.tables and await self._there(name):
                run = await self._table(run, name, table)
        following = _ORDER[_ORDER.index(stage) + 1]
        await self._save(_change(run, stage=following, tables=(), table="", after=""))

    async def _table(self, run: ReencryptionRun, name: str, table: str) -> ReencryptionRun:
        turn, figure = _TURNS[run.stage or ReencryptionStage.RECORDS]
        columns = self._vault.state(table).columns
        sealer = Sealer(self._vault.keyset.aead(), self._vault.environment, name, columns)
        subject, pages = SealedTable(self._vault, table, sealer), 0
        after = run.after if run.table == table else ""
        try:
            while page := await turn(subject, after):
                run, after, pages = _counted(run, table, page, figure), page.after, pages + 1
                self.run = run
                if pages % _NOTED == 0:
                    await self._save(run)
        except VaultError:
            if await self._there(name):
                raise  # else its schema was removed meanwhile, with everything in it
        await self._save(_change(run, tables=(*run.tables, table), table="", after=""))
        return self.run or run

    async def _there(self, name: str) -> bool:
        return name in await placed_schemas(self._vault.store, self._vault.environment)

    async def _looked(self, run: ReencryptionRun) -> bool:
        """Look at everything, and let keys go that nothing needs; whether that is all for now."""
        older = self._vault.keyset.data_keys[:-1]
        await self._uploaded()
        alone, agreed = await self.alone(), await self._agreed()
        fence = key_guard_of(self._vault.store)
        fence.watch(older)
        await self._save(run)  # every commit that came before is durable now, and will be seen
        use = await scan_key_usage(self._vault)
        used_since = [key for key in older if fence.has_sealed(key)]
        free = [key for key in older if not use.of(key) and key not in used_since]
        together = alone is None or await self.alone() != alone
        dropped = [key for key in free if not together or (agreed and key in run.retiring)]
        if dropped and not await self._dropped(dropped, agreed if together else None):
            dropped, together = [], True
        fence.ease(older)
        staying = [key for key in older if key not in dropped]
        left = sum(use.of(key).total() - use.of(key)["replies"] for key in staying)
        if (
            run.state is JobState.RUNNING
            and run.round < _ROUNDS
            and (used_since or left > run.unreadable)
        ):
            await self._save(
                ReencryptionRun(run.key, stage=ReencryptionStage.RECORDS, round=run.round + 1)
            )
            return False
        ended = _change(
            run,
            state=JobState.DONE,
            stage=ReencryptionStage.END,
            used={key: dict(use.of(key)) for key in staying},
            together=together and bool(staying),
        )
        ended = self._proposing(ended, [key for key in free if key in staying])
        await self._save(_change(ended, again=self._again(ended, use, left) if staying else 0))
        return True

    async def _dropped(self, keys: Sequence[str], agreed: Agreement | None) -> bool:
        """Let data keys go; ``False``: another replica has just come."""
        key_guard_of(self._vault.store).refuse(keys)
        try:
            await self._retire(keys, agreed)
        except coded(Code.REPLICAS_RUNNING):
            return False
        return True

    def _again(self, run: ReencryptionRun, use: KeyUsage, left: int) -> int:
        """When to look again at what keeps older keys.

        Beside others soon once: what a request of theirs has read before may come only now.
        """
        now = self._vault.clock()
        if left or (run.together and run.again):
            return now + _DAY
        if run.together:
            return now + _SOON
        return max(
            [use.until.get(key, 0) + 1 for key in run.used or () if use.of(key)],
            default=now + _SOON,
        )

    async def _uploaded(self) -> None:
        """Wait for the end of all uploads under way: one may have begun with an older key."""
        contents = self._vault.contents
        before = frozenset() if contents is None else contents.uploading()
        while contents is not None and (before := before & contents.uploading()):  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(_UPLOADS)


def _counted(run: ReencryptionRun, table: str, page: PageResult, figure: str) -> ReencryptionRun:
    counted = {figure: getattr(run, figure) + page.looked}
    return _change(
        run, table=table, after=page.after, unreadable=run.unreadable + page.unreadable, **counted
    )
