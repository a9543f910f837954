import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage.memory import MemoryStore
from proxy.vault.schema_store import (
    Entries,
    MigrationOutcome,
    MigrationState,
    Origin,
    Phase,
    SchemaEntry,
)

SCHEMA = Schema(
    "contact",
    (
        Field("id", FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED, required=True),
        Field("email", storage=Storage.INDEXED, kind="email", max_length=9, life=3),
    ),
)
OTHER = Schema("other", SCHEMA.fields)


async def opened(store: MemoryStore) -> Entries:
    entries = Entries(store, "test")
    await entries.load()
    return entries


async def test_what_is_put_is_there_for_the_next_process() -> None:
    store = MemoryStore()
    entry = SchemaEntry(
        SCHEMA,
        Origin.RULES,
        {"email": 3},
        MigrationState(Phase.CLEANING, SCHEMA, 7),
        MigrationOutcome(1, 2, 3),
    )
    await (await opened(store)).put(entry, SchemaEntry(OTHER, Origin.API))
    assert (await opened(store)).schemas == {
        "contact": entry,
        "other": SchemaEntry(OTHER, Origin.API),
    }


async def test_a_schema_that_is_removed_leaves_its_table_to_be_dropped() -> None:
    store = MemoryStore()
    entries = await opened(store)
    await entries.put(SchemaEntry(SCHEMA, Origin.API), SchemaEntry(OTHER, Origin.API))
    await entries.remove("contact", "r1_test")
    again = await opened(store)
    assert (list(again.schemas), again.doomed) == (["other"], ("r1_test",))
    await again.dropped("r1_test")
    assert (await opened(store)).doomed == ()


async def test_another_process_that_wrote_is_not_overwritten() -> None:
    store = MemoryStore()
    first, second = await opened(store), await opened(store)
    await first.put(SchemaEntry(SCHEMA, Origin.API))
    with pytest.raises(VaultError) as refused:
        await second.put(SchemaEntry(OTHER, Origin.API))
    assert refused.value.code is Code.CONFLICT
    assert second.schemas == {}
