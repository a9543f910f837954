"""The schemas of an environment: their declarers, their active definitions, and their migrations.

A definition that needs no rewrite is active at once. Another one begins a migration: while it fills
the data of the new definition, the old one is active and writes fill both; then the new one becomes
active, by one write of one note; then the data of the old one is removed. Every step may be
interrupted and resumes at the next start.

Work with ``records`` stands within ``using``: a change waits until earlier work has ended.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final, NamedTuple

import msgspec

from proxy.errors import Code, Detail, VaultError, coded
from proxy.model import ChangeStep, planned
from proxy.model.schema import Schema
from proxy.vault.collection import Collection
from proxy.vault.proxied.hosted import SharedTable
from proxy.vault.records.repository import Records
from proxy.vault.replicas import conflict_ignored
from proxy.vault.schema_store import Entries, Origin, Phase, SchemaEntry
from proxy.vault.schemas.active import ActiveSchemas
from proxy.vault.vault import Vault


class Applied(NamedTuple):
    """Outcome of a definition: new or not, its steps, and whether records are rewritten."""

    created: bool
    steps: tuple[ChangeStep, ...]
    migrating: bool


class Catalog(ActiveSchemas):
    """The schemas of the environment of one vault; made by ``open_catalog``."""

    # ------------------------------------------------------------------ definitions

    async def apply(self, schema: Schema, origin: Origin, *, dry_run: bool = False) -> Applied:
        """Apply a definition, or begin its migration; ``dry_run`` only reports the outcome.

        Raises ``VaultError``: ``INVALID_SCHEMA`` for a change that cannot work, with one detail
        each; ``SCHEMA_OF_RULES`` and ``CONFLICT`` for a name that rules or files declare;
        ``SCHEMA_BUSY`` while a migration to another definition runs.
        """
        self._epochs.leave()
        async with self._changing:
            entry = self._entries.schemas.get(schema.name)
            if entry is None:
                if not dry_run:
                    await self._drop_tables()  # one of this name may have been interrupted
                    await self._put(SchemaEntry(schema, origin))
                return Applied(created=True, steps=(), migrating=False)
            refuse_foreign(entry, origin, self._in_force)
            if entry.ending:
                raise ending_schema(schema.name)
            if entry.change is not None:
                return await self._meanwhile(entry, schema)
            plan = planned(entry.schema, schema, entry.lives)
            refuse_faulty(
                f"The schema {schema.name!r} cannot be changed like this; nothing was changed.",
                plan.refusals,
            )
            if not dry_run:
                await self._change(entry, plan, origin)
            return Applied(created=False, steps=plan.steps, migrating=plan.rewrites)

    async def declare(
        self, schemas: Sequence[Schema], position_of: Callable[[str, str], str]
    ) -> Mapping[str, Applied]:
        """Apply all definitions of the files; return the outcome of each.

        All or none: raises ``VaultError(INVALID_SCHEMA)`` with every fault, where ``position_of``
        says that it is (by schema and pointer). A schema that is being migrated to something
        else takes its definition afterwards.
        """
        faults: list[Detail] = []
        busy: list[Schema] = []
        for schema in schemas:
            try:
                await self.apply(schema, Origin.FILE, dry_run=True)
            except VaultError as error:
                if error.code is Code.SCHEMA_BUSY:
                    busy.append(schema)
                    continue
                if error.code not in (Code.INVALID_SCHEMA, Code.SCHEMA_OF_RULES):
                    raise
                details = error.details or (Detail("", error.message),)
                faults.extend(
                    Detail(position_of(schema.name, detail.source), detail.text)
                    for detail in details
                )
        refuse_faulty("Definitions of schemas in files cannot be used.", faults)
        self._in_force[Origin.FILE] = frozenset(schema.name for schema in schemas)
        for schema in busy:
            if (waiting := self._later.get(schema.name)) is not None:
                waiting.cancel()  # the file has been changed once more since
            self._later[schema.name] = asyncio.create_task(self._afterwards(schema, Origin.FILE))
        return {
            schema.name: await self.apply(schema, Origin.FILE)
            for schema in schemas
            if schema not in busy
        }

    async def _afterwards(self, schema: Schema, origin: Origin) -> None:
        try:
            groups, name = (self._tasks, self._ends), schema.name
            await asyncio.wait([group[name] for group in groups if name in group])
            await self.apply(schema, origin)
        except VaultError as error:
            self._report(error)

    async def declare_builtin(self, schema: Schema) -> None:
        """Apply a built-in definition; a migrating schema takes it afterwards.

        Raises ``VaultError(INVALID_SCHEMA)`` if this name was declared when it was still free.
        """
        entry = self._entries.schemas.get(schema.name)
        if entry is not None and entry.origin is not Origin.BUILTIN:
            raise occupied(schema.name, entry.origin)
        try:
            await self.apply(schema, Origin.BUILTIN)
        except coded(Code.SCHEMA_BUSY):
            self._later[schema.name] = asyncio.create_task(self._afterwards(schema, Origin.BUILTIN))

    def refuse_taken(self, names: Iterable[str]) -> None:
        """Raise ``VaultError`` for rules to be bound that take the name of a schema declared
        otherwise (``BAD_RULES``), or of one that a replica removes (``SCHEMA_BUSY``).
        """
        names, schemas = frozenset(names), self._entries.schemas
        self._refuse_ending(names)
        self._wanted |= names  # until they are in force
        taken = [
            name for name in names if name in schemas and schemas[name].origin is not Origin.RULES
        ]
        if taken:
            raise VaultError(
                Code.BAD_RULES,
                "Entities of the rules have names of schemas that were declared over the interface "
                "or in files: give each another name with `schema:`, or delete the schema.",
                tuple(Detail(name, "a schema of this name is there already") for name in taken),
            )

    async def refuse_renamed(self, names: frozenset[str], unnamed: Iterable[Schema]) -> None:
        """Raise ``VaultError(BAD_RULES)`` where an entity seems to be another one under a new name:
        the vault would not find its records, and show their tokens as values.

        ``names``: the schemas of rules to be bound; ``unnamed``: those whose entity does not say
        which schema it has, as one with another name has to.
        """
        entries, faults = self._entries.schemas, list[Detail]()
        left = [
            (name, self._records[name].collection)
            for name, entry in entries.items()
            if entry.origin is Origin.RULES and name in self._records and name not in names
        ]
        fresh = [schema for schema in unnamed if schema.name not in entries]
        for schema, (name, collection) in product(fresh, left):
            fields = {field.name for field in schema.fields}
            common = fields.intersection(field.name for field in entries[name].schema.fields)
            if 2 * len(common) >= len(fields) > 0:
                count, *_ = await collection.store.count(collection.table)
                faults += [renamed(schema.name, name, count)] if count else []
        if faults:
            raise VaultError(
                Code.BAD_RULES,
                "An entity of the rules seems to be one that has got another name: say at it "
                "which schema it has.",
                tuple(faults),
            )

    def _refuse_ending(self, names: Iterable[str]) -> None:
        for name in names:
            if (entry := self._entries.schemas.get(name)) is not None and entry.ending:
                raise ending_schema(name)

    def host(self, name: str) -> SharedTable:
        """Return the schema of that name, as host of proxied records."""
        return SharedTable(lambda: self._records[name], self.using)

    async def take_rules(self, collections: Iterable[Collection]) -> None:
        """Make proxied records searchable; collections of other rules stay the same."""
        by_name = {one.name: one for one in collections}
        async with self._changing:
            while fresh := self._of_rules(by_name):
                with conflict_ignored():
                    await self._entries.put(*fresh)
            self._refuse_ending(by_name)
            gone = self._in_force.get(Origin.RULES, frozenset()) - by_name.keys()
            self._in_force[Origin.RULES] = frozenset(by_name)
            self._wanted = frozenset()
            self._records.update(
                (name, Records(collection)) for name, collection in by_name.items()
            )
            self._used.update((name, self._entries.schemas[name]) for name in by_name)
            for name in gone:
                await self.filling.waive(self._records[name].collection)

    def _of_rules(self, collections: Mapping[str, Collection]) -> list[SchemaEntry]:
        """The entries of collections of rules that are not in the store."""
        return [
            msgspec.structs.replace(entry, schema=collection.schema)
            if entry
            else SchemaEntry(collection.schema, Origin.RULES)
            for name, collection in collections.items()
            if (entry := self._entries.schemas.get(name)) is None
            or entry.schema != collection.schema
        ]

    async def drop(self, name: str, *, records: bool = False) -> None:
        """Remove a schema; ``records``: with all of its records, which are otherwise a reason to
        refuse.

        Raises ``VaultError``: ``UNKNOWN_SCHEMA``; ``SCHEMA_OF_RULES`` and ``CONFLICT`` while rules
        or files declare it; ``SCHEMA_IN_USE``; ``SCHEMA_BUSY`` while it is used or migrated.
        """
        self._epochs.leave()
        async with self._changing:
            removed = self.records(name)
            entry = self._entries.schemas[name]
            refuse_declared(entry, self._in_force)
            if entry.change is not None:
                raise busy_schema(name)
            refuse = partial(refuse_in_use, removed.collection, records)
            await refuse()
            await self._remove(entry, refuse)

    async def _meanwhile(self, entry: SchemaEntry, schema: Schema) -> Applied:
        """The answer to a definition during a migration: fine if it leads there."""
        if entry.change is not None and entry.change.phase is not Phase.REVERTING:
            target = entry.change.other if entry.change.phase is Phase.FILLING else entry.schema
            if not planned(target, schema, {}).steps:
                return Applied(created=False, steps=(), migrating=True)
        raise busy_schema(schema.name)


async def open_catalog(
    vault: Vault, report: Callable[[VaultError], None], own: Sequence[Schema] = ()
) -> Catalog:
    """The catalog of a vault; migrations that were under way go on.

    ``report`` gets faults that are tried again; ``own`` are the schemas that come with the program.
    Raises as ``Catalog.declare_builtin``.
    """
    catalog = Catalog(vault, Entries(vault.store, vault.environment), report)
    try:
        await catalog.start()
        for schema in own:
            await catalog.declare_builtin(schema)
    except BaseException:  # also for a stop: no other replica could close it yet
        await catalog.close()
        raise
    return catalog


def renamed(name: str, before: str, count: int) -> Detail:
    """The fault of an entity that seems to have had another name before."""
    return Detail(
        name,
        f"the vault has {count:,} records of {before!r}, which the rules have no more, with such "
        f"fields. Write 'schema: {before}' at {name!r} if it is the same under another name, or "
        f"'schema: {name}' if it is another",
    )


#: The names that files, and rules, declare now.
DeclaredNames = Mapping[Origin, frozenset[str]]

_NEEDED: Final = "is the name of the schema of the record-based interface"


def refuse_faulty(message: str, faults: Sequence[Detail]) -> None:
    """Raise ``VaultError(INVALID_SCHEMA)`` where a definition has faults."""
    if faults:
        raise VaultError(Code.INVALID_SCHEMA, message, tuple(faults))


def of_rules(name: str) -> VaultError:
    """The proxy collects its records, so the rules define its fields."""
    return VaultError(
        Code.SCHEMA_OF_RULES,
        f"The schema {name!r} is that of an entity of the rule files: change it there.",
    )


def of_file(name: str) -> VaultError:
    """A file declares it."""
    return VaultError(
        Code.CONFLICT,
        f"The schema {name!r} is declared in a file of the setting schemas: change the file.",
    )


def built_in(name: str) -> VaultError:
    """It is built in, and cannot be ended."""
    return VaultError(
        Code.CONFLICT,
        f"The schema {name!r} comes with the program and stays: delete its records instead.",
    )


def built_in_name(name: str) -> VaultError:
    """It is built in, and its name cannot be declared."""
    return VaultError(
        Code.INVALID_SCHEMA,
        f"The schema {name!r} comes with the program, for the record-based interface; the "
        f"settings {name}.plain and "
        f"{name}.partial_match say how its keys are kept. Give yours another name.",
        (Detail("name", "A schema that comes with the program has this name."),),
    )


def occupied(name: str, origin: Origin) -> VaultError:
    """Somebody declared a schema of that name when it was still free."""
    return VaultError(
        Code.INVALID_SCHEMA,
        f"The vault holds a schema {name!r} that was declared by {origin}, and this version has "
        "one of its own of that name. Start the version before once more, move the records to a "
        "schema of another name (domicile export, domicile import), remove the old one, and start "
        "this version again. Nothing was changed.",
        (Detail(name, _NEEDED),),
    )


def busy_schema(name: str) -> VaultError:
    """It is being migrated."""
    return VaultError(
        Code.SCHEMA_BUSY,
        f"The schema {name!r} is being changed; try again when its migration has ended.",
    )


def ending_schema(name: str) -> VaultError:
    """A replica removes it."""
    return VaultError(
        Code.SCHEMA_BUSY, f"The schema {name!r} is being removed; try again when that has ended."
    )


def refuse_foreign(entry: SchemaEntry, origin: Origin, in_force: DeclaredNames) -> None:
    """Raise for a definition of a schema that another origin declares."""
    name = entry.schema.name
    if entry.origin is Origin.RULES:
        raise of_rules(name)
    if Origin.BUILTIN in (entry.origin, origin):
        if entry.origin is not origin:
            raise built_in_name(name)
    elif origin is not Origin.FILE:
        refuse_declared(entry, in_force)


def refuse_declared(entry: SchemaEntry, in_force: DeclaredNames) -> None:
    """Raise for a change of a schema that rules or files declare now."""
    name = entry.schema.name
    if entry.origin is Origin.BUILTIN:
        raise built_in(name)
    if entry.origin is not Origin.API and name in in_force.get(entry.origin, ()):
        raise of_rules(name) if entry.origin is Origin.RULES else of_file(name)


async def refuse_in_use(collection: Collection, records: bool) -> None:
    """Raise ``VaultError(SCHEMA_IN_USE)`` if a schema that ends holds records that stay."""
    if not records and (await collection.store.count(collection.table))[0]:
        raise VaultError(
            Code.SCHEMA_IN_USE,
            f"The schema {collection.name!r} still holds records: delete them first, or say "
            "records=delete.",
        )
