"""Refusals of the catalog: who may change a schema, and the errors that say so."""

from collections.abc import Mapping, Sequence
from typing import Final

from proxy.errors import Code, Detail, VaultError
from proxy.vault.collection import Collection
from proxy.vault.schema_store import Origin, SchemaEntry

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
