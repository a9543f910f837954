"""The active definitions of an environment: their records, their migrations, and changes of others.

Of several replicas each follows what another one has written, and agrees to it when its earlier
work has ended; a phase of a migration begins, in one of them, when all have.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import NamedTuple

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model import SchemaChangePlan, planned
from proxy.model.schema import Schema
from proxy.storage.notes import Agreement
from proxy.vault.job import JobProgress, Pass
from proxy.vault.locks import InFlight
from proxy.vault.proxied.filling import Filling
from proxy.vault.records.repository import Records
from proxy.vault.replicas import Agreeing, agreeing, removed_by_all, taking_turns, until_agreed
from proxy.vault.schema_store import (
    Entries,
    MigrationOutcome,
    MigrationState,
    Origin,
    Phase,
    SchemaEntry,
    with_parts,
)
from proxy.vault.schemas.migration import Backfill, Cleanup, following, migrated_records
from proxy.vault.vault import Vault

#: Seconds before a migration that met a fault of the store is tried again.
_RETRY = 1.0
#: Seconds that the end of a schema waits for requests that use it, at all replicas.
_PATIENCE = 10.0
_NUMBER_BITS = 62


class DeclaredSchema(NamedTuple):
    """A schema as the catalog has it. ``progress`` is that of a migration under way."""

    schema: Schema
    origin: Origin
    records: Records
    change: MigrationState | None
    progress: JobProgress | None
    outcome: MigrationOutcome | None


class ActiveSchemas:
    """The open schemas of a ``Catalog``."""

    def __init__(
        self, vault: Vault, entries: Entries, report: Callable[[VaultError], None]
    ) -> None:
        self._vault = vault
        self._entries = entries
        self._report = report
        self._records: dict[str, Records] = {}
        self._used: dict[str, SchemaEntry] = {}  #: entries that the records above are of
        self._following = asyncio.Lock()
        self._agreeing: Agreeing | None = None
        self._progress: dict[str, JobProgress] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Task[None]] = {}  #: what looks after removals of replicas
        #: definitions of files that wait for a migration to end
        self._later: dict[str, asyncio.Task[None]] = {}
        self._changing = asyncio.Lock()
        self._epochs = InFlight()
        self.filling = Filling(report)  #: of what rules make searchable
        self._closing: list[Callable[[], Awaitable[None]]] = [self.filling.close]
        #: names that files, and rules, declare now
        self._in_force: dict[Origin, frozenset[str]] = {}
        self._wanted: frozenset[str] = frozenset()  #: those that rules declare that are being bound

    def using(self) -> AbstractContextManager[None]:
        """A piece of work with records, such as a request."""
        return self._epochs.work()

    def records(self, name: str) -> Records:
        """The records of the schema of that name. Raises ``VaultError(UNKNOWN_SCHEMA)``."""
        records = self._records.get(name)
        if records is None:
            raise VaultError(
                Code.UNKNOWN_SCHEMA,
                "There is no schema of this name.",
                (Detail("schema", "No schema has this name."),),
            )
        return records

    def schemas(self) -> Sequence[DeclaredSchema]:
        """Every schema, in the order in which they were declared."""
        return [self.declared(name) for name in self._entries.schemas if name in self._records]

    def declared(self, name: str) -> DeclaredSchema:
        """Return a schema with its migration; raises as ``records``."""
        records, entry = self.records(name), self._entries.schemas[name]
        progress = self._progress.get(name) if entry.change is not None else None
        return DeclaredSchema(
            entry.schema, entry.origin, records, entry.change, progress, entry.outcome
        )

    async def settled(self, name: str) -> None:
        """Wait until no migration of that schema is under way."""
        tasks = (self._later, self._tasks, self._ends)
        while running := [
            task for group in tasks if (task := group.get(name)) is not None and not task.done()
        ]:
            await asyncio.wait(running)

    def closes(self, close: Callable[[], Awaitable[None]]) -> None:
        """Let other work on the records end together with this."""
        self._closing.append(close)

    async def close(self) -> None:
        """Stop; a migration resumes at the next start."""
        for close in self._closing:
            await close()
        tasks = [*self._tasks.values(), *self._later.values(), *self._ends.values()]
        tasks += [] if self._agreeing is None else [self._agreeing[1]]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def follow(self) -> Agreement:
        """Take what another replica has changed; what is agreed to when all work that is
        going on now has ended.
        """
        async with self._following:
            await self._entries.load()
            for name in self._used.keys() - self._entries.schemas.keys():
                self._records.pop(name, None)
                del self._used[name]
                self._vault.let_go(name)
            for name, entry in tuple(self._entries.schemas.items()):
                if entry != self._used.get(name):
                    await self._use(entry)
            agreement = self._entries.agreement
        self._agreeing = agreeing(self._agreeing, agreement, partial(self._agree, agreement))
        return agreement

    async def _agree(self, agreement: Agreement) -> None:
        entries = self._entries.schemas
        if any(one.ending and self._is_declared(name) for name, one in entries.items()):
            return  # whoever removes one waits for this replica in vain
        await self._epochs.passed()
        try:
            if self._vault.store.replicas is not None:
                await self._vault.store.replicas.agree(agreement)
        except VaultError as error:  # it is tried again by the next look
            self._report(error)

    async def _migrate(self, name: str) -> None:
        turn = f"migration {self._vault.environment} {name}"
        while self._is_changing(name):
            try:
                async with taking_turns(self._vault.store, turn):
                    await until_agreed(self._vault.store, self.follow)
                    await self._advance(name)
            except VaultError as error:
                self._report(error)
                await asyncio.sleep(_RETRY)

    async def _advance(self, name: str) -> None:
        """Run one phase to its end."""
        if not self._is_changing(name):
            return  # another replica was faster
        records, entry = self._records[name], self._entries.schemas[name]
        change = entry.change
        if change is None:
            return
        await self._epochs.passed()
        progress = self._progress[name] = JobProgress(change.phase)
        at = Pass(records.collection, f"{change.phase}/{change.at}", progress)
        if isinstance(records, Backfill):
            await at.run(records.filled)
        elif isinstance(records, Cleanup):
            records.settle()
            await at.run(records.cleaned)
        async with self._changing:
            await self._put(following(entry, change, progress, self._vault.clock()))
            await self._renew_parts(self._entries.schemas[name])

    async def start(self) -> None:
        """Read the store, and resume interrupted migrations."""
        await self._entries.load()
        await self._drop_tables()
        if self._vault.store.replicas is None:  # whoever removed one is gone
            entries = [one for one in self._entries.schemas.values() if one.ending]
            await self._entries.put(*[msgspec.structs.replace(one, ending=0) for one in entries])
        for entry in tuple(self._entries.schemas.values()):
            await self._use(entry)
            await self._renew_parts(entry)

    async def _renew_parts(self, entry: SchemaEntry) -> None:
        """Begin to replace an index of parts that an earlier version made."""
        wanted = with_parts(entry.schema, fine=False)
        if entry.change is None and not entry.ending and wanted != entry.schema:
            await self._change(entry, planned(entry.schema, wanted, entry.lives), entry.origin)

    async def _put(self, entry: SchemaEntry) -> None:
        """Write an entry, and let it count from now on; its columns are known to all before."""
        before = self._entries.schemas.get(entry.schema.name)
        if self._vault.store.replicas is not None:
            other = () if entry.change is None else (entry.change.other,)
            for schema in (entry.schema, *other):
                await self._vault.unshaped(schema)
            await self._vault.heard()
            self._refuse_changed(entry.schema.name, before)
        await self._entries.put(entry)
        await self._use(entry)

    async def _use(self, entry: SchemaEntry) -> None:
        name = entry.schema.name
        self._used[name] = entry
        if entry.origin is Origin.RULES and name in self._in_force.get(Origin.RULES, ()):
            return  # another replica has other rules
        if entry.ending:
            self._leave(name)
            return
        records = await migrated_records(self._vault, entry)
        if self._used.get(name) is not entry:  # another replica has changed it meanwhile
            if name not in self._records:
                self._vault.suspend(name)
            return
        self._records[name] = records
        if entry.origin is Origin.RULES:
            await self.filling.waive(self._records[name].collection)
        running = self._tasks.get(name)
        if entry.change is not None and (running is None or running.done()):
            self._tasks[name] = asyncio.create_task(self._migrate(name))

    async def _change(self, entry: SchemaEntry, plan: SchemaChangePlan, origin: Origin) -> None:
        lives = dict(entry.lives)
        for field in (*entry.schema.fields, *plan.schema.fields):
            lives[field.name] = max(field.life, lives.get(field.name, 0))
        if plan.rewrites:
            change = MigrationState(Phase.FILLING, plan.schema, self._vault.clock())
            await self._put(SchemaEntry(entry.schema, origin, lives, change))
        elif plan.steps or plan.schema != entry.schema or origin is not entry.origin:
            await self._put(SchemaEntry(plan.schema, origin, lives, outcome=entry.outcome))

    async def alone(self, what: str) -> None:
        """Wait until all requests have ended; ``VaultError(SCHEMA_BUSY)`` where some do not."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._epochs.passed()
        except TimeoutError:
            raise VaultError(
                Code.SCHEMA_BUSY, f"Requests that use {what} do not end; try again later."
            ) from None

    # ------------------------------------------------------------------ removal

    async def _remove(self, entry: SchemaEntry, refuse: Callable[[], Awaitable[None]]) -> None:
        """Remove a schema with its records, unless ``refuse`` raises when nobody uses it any more.

        It is marked first where there are other replicas. Each of them uses it no more, and agrees
        when its earlier work has ended; its removal is one transaction, which nothing but the
        agreement of all lets pass. Whatever fails before it gives the schema back, and so does any
        other replica, or the next start, after a death.
        """
        name, table = entry.schema.name, self._records[entry.schema.name].collection.table
        store = self._vault.store

        async def remove(agreement: Agreement | None) -> None:
            await refuse()
            await self._entries.remove(name, table, agreement)

        async with taking_turns(store, self._turn_of_end(name)):
            self._refuse_changed(name, entry)
            if store.replicas is None:
                removed = self._records.pop(name)  # from here on no work begins with it
                try:
                    await self.alone(f"the schema {name!r}")
                    await remove(None)
                except BaseException:
                    self._records[name] = removed
                    raise
            else:
                await self._mark(entry, secrets.randbits(_NUMBER_BITS) + 1)
                try:
                    await removed_by_all(store, self.follow, remove, _PATIENCE)
                except BaseException:
                    await self._take_back(name)
                    raise
            await self.follow()
            await self._drop_tables()

    async def _take_back(self, name: str) -> None:
        entry = self._entries.schemas.get(name)
        if entry is not None and entry.ending:
            with suppress(VaultError):  # another replica, or the next start, does
                await self._mark(entry, 0)

    def _refuse_changed(self, name: str, entry: SchemaEntry | None) -> None:
        if self._entries.schemas.get(name) != entry:
            raise VaultError(
                Code.CONFLICT, f"Another instance has changed the schema {name!r}: try again."
            )

    async def _mark(self, entry: SchemaEntry, ending: int) -> None:
        marked = msgspec.structs.replace(entry, ending=ending)
        await self._entries.put(marked)
        await self._use(marked)

    def _leave(self, name: str) -> None:
        """Use a schema no more that a replica removes, perhaps this one; look after its end.

        One that is declared here stays in use: its removal waits for this replica in vain.
        """
        running = self._ends.get(name)
        if running is None or running.done():
            self._ends[name] = asyncio.create_task(self._give_back(name))
        if not self._is_declared(name):
            self._records.pop(name, None)
            self._vault.suspend(name)

    async def _give_back(self, name: str) -> None:
        """Use a schema again whose removal has come to nothing, for its replica is gone; what that
        one has left of a removed one goes.
        """
        while True:
            try:
                async with taking_turns(self._vault.store, self._turn_of_end(name)):
                    return await self._clear_up(name)
            except VaultError as error:
                self._report(error)
                await asyncio.sleep(_RETRY)

    async def _clear_up(self, name: str) -> None:
        await self._entries.load()
        entry = self._entries.schemas.get(name)
        if entry is not None and entry.ending:
            await self._entries.put(msgspec.structs.replace(entry, ending=0))
        await self.follow()
        await self._drop_tables()

    def _turn_of_end(self, name: str) -> str:
        return f"ending {self._vault.environment} {name}"

    def _is_changing(self, name: str) -> bool:
        entry = self._entries.schemas.get(name)
        return entry is not None and entry.change is not None

    def _is_declared(self, name: str) -> bool:
        """Whether rules or files of this replica declare a schema, or are about to."""
        return name in self._wanted or any(name in names for names in self._in_force.values())

    async def _drop_tables(self) -> None:
        """Remove the tables of schemas that are gone."""
        for table in self._entries.doomed:
            await self._vault.drop(table)
            await self._entries.dropped(table)
