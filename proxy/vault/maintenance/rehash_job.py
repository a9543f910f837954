"""A rehash of all records of an environment: in the background, while others read and write, and on
after a stop or a crash.

There is one at a time. Its request is a sealed note of the store, with the caller's key in it until
the run has ended; its position is another one (``job.Pass``). Each record gets all of its
tokens in one commit, under its lock. A record is visited only once in a run, so that no caller gets
a token that is already gone. Of several replicas, one that is alone does it.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.prf import random_bytes
from proxy.errors import Code, VaultError
from proxy.model.record import RehashTokens
from proxy.model.schema import RECORDS_SCHEMA
from proxy.model.values import Unfit, ValueFaults
from proxy.storage.changes import Change
from proxy.storage.rows import Row
from proxy.vault.job import BackgroundJob, JobProgress, JobState, Pass
from proxy.vault.maintenance.rehash import Rehash
from proxy.vault.maintenance.rehash_rules import RehashRules, read_rules
from proxy.vault.records.repository import Records
from proxy.vault.replicas import until_alone
from proxy.vault.schemas.catalog import Catalog
from proxy.vault.vault import Vault

#: Seconds until a run that the store has interrupted is tried again.
_RETRY = 5.0

RehashVisitor = Callable[[Row], Sequence[Change]]


class RehashRequest(msgspec.Struct, frozen=True):
    """Request that starts a run. ``rules`` are those sent; without any, existing tokens stay."""

    dtk: str
    rules: msgspec.Raw
    forget: bool  #: old tokens are found no longer


class RehashRun(msgspec.Struct, frozen=True):
    """A run, as its note stores it."""

    id: str
    began_at: int  #: milliseconds since the epoch
    state: JobState = JobState.RUNNING
    ended_at: int | None = None
    wanted: RehashRequest | None = None  #: while it runs
    total: int = 0  #: the figures of its end
    done: int = 0
    failed: int = 0
    unreadable: int = 0


_decode = msgspec.json.Decoder(RehashRun).decode
_encode = msgspec.json.Encoder().encode


class RehashJob(BackgroundJob):
    """The runs of one environment. Made by ``open_job``."""

    def __init__(
        self, vault: Vault, catalog: Catalog, note: SealedNote, report: Callable[[VaultError], None]
    ) -> None:
        super().__init__()
        self._vault = vault
        self._catalog = catalog
        self._note = note
        self._report = report
        self._run: RehashRun | None = None
        self._progress = JobProgress()
        self._changing = asyncio.Lock()

    @property
    def last(self) -> RehashRun | None:
        """The run under way with its figures, or the last one; ``None`` where there was none."""
        run = self._run
        return run if run is None or run.state is not JobState.RUNNING else self._counted(run)

    async def begin(self, wanted: RehashRequest) -> RehashRun:
        """Start a run. Raises ``VaultError(CONFLICT)`` while another is under way."""
        async with self._changing:
            if self._run is not None and self._run.state is JobState.RUNNING:
                raise VaultError(
                    Code.CONFLICT,
                    "A rehash of all records is under way; stop it, or wait for its end.",
                )
            run = RehashRun(random_bytes(8).hex(), self._vault.clock(), wanted=wanted)
            await self._note.write(_encode(run))
            self._go(run)
            return run

    async def stop(self) -> RehashRun | None:
        """End a run; return the last one."""
        async with self._changing:
            if self._run is not None and self._run.state is JobState.RUNNING:
                await self.close()
                await self._ended(self._run, JobState.STOPPED)
            return self.last

    async def start(self) -> None:
        """Resume an interrupted run."""
        content = await self._note.read()
        self._run = None if content is None else _decode(content)
        if self._run is not None and self._run.state is JobState.RUNNING:
            self._go(self._run)

    # ------------------------------------------------------------------ parts

    def _go(self, run: RehashRun) -> None:
        self._run, self._progress = run, JobProgress()
        self._task = asyncio.create_task(self._carry_out(run))

    async def _carry_out(self, run: RehashRun) -> None:
        while True:
            try:
                await until_alone(self._vault.store)
                records = self._catalog.records(RECORDS_SCHEMA)
                await Pass(records.collection, run.id, self._progress, "rehash").run(
                    _visit(records, run)
                )
                return await self._ended(run, JobState.DONE)
            except VaultError as error:
                self._report(error)
                await asyncio.sleep(_RETRY)

    def _counted(self, run: RehashRun) -> RehashRun:
        """The run with its figures as of now, without its request."""
        at = self._progress
        figures = {"total": at.total, "done": at.done, "failed": at.failed}
        return msgspec.structs.replace(run, wanted=None, unreadable=at.unreadable, **figures)

    async def _ended(self, run: RehashRun, state: JobState) -> None:
        ended = self._counted(run)
        ended = msgspec.structs.replace(ended, state=state, ended_at=self._vault.clock())
        await self._note.write(_encode(ended))
        self._run = ended


def _visit(records: Records, run: RehashRun) -> RehashVisitor:
    """Return the function that a run applies to each record.

    Raises ``Unfit`` where a value does not fit its strategy, and ``VaultError(CANNOT_OPEN)``.
    """
    wanted = run.wanted or RehashRequest("", msgspec.Raw(b"{}"), forget=False)
    rules: RehashRules = (
        read_rules(msgspec.json.decode(wanted.rules), ValueFaults(0))
        if len(wanted.rules) > 2
        else {}
    )
    plan = Rehash(records, rules, wanted.dtk, run.id)

    def visit(row: Row) -> Sequence[Change]:
        if not records.collection.alive(row):
            return ()
        record = records.open(row)
        if not plan.takes(record):
            return ()
        before = record.tokens or {}
        try:
            tokens = plan.tokens(
                msgspec.structs.replace(
                    record, tokens=_bare(before, run.id) if wanted.forget else before
                )
            )[0]
        except VaultError as error:
            if error.code not in (Code.VALUE_UNFIT, Code.UNPROCESSABLE):
                raise
            raise Unfit(error.message) from None
        return plan.changes(row, record, tokens)

    return visit


def _bare(tokens: RehashTokens, run: str) -> RehashTokens:
    """Remove tokens before the newest, unless this run has visited them."""
    return {
        name: msgspec.structs.replace(one, old=()) if one.old and one.job != run else one
        for name, one in tokens.items()
    }


async def open_job(
    vault: Vault, catalog: Catalog, report: Callable[[VaultError], None]
) -> RehashJob:
    """Open the runs of a vault; an interrupted one resumes.

    ``report`` hears of faults after which it is tried again.
    """
    keyset = catalog.records(RECORDS_SCHEMA).collection.context.keyset
    job = RehashJob(
        vault,
        catalog,
        SealedNote(vault.store, keyset.aead(), vault.environment, "rehash job"),
        report,
    )
    await job.start()
    return job
