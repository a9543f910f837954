import asyncio
from typing import Any, cast

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage.rows import ColumnType
from proxy.vault.schema_store import (
    Entries,
    MigrationOutcome,
    MigrationState,
    Origin,
    Phase,
    SchemaEntry,
    column_type,
    forget_schema,
    known_layouts,
    place_schema,
    wake,
)
from tests.support.memory import MemoryStore

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


class LateStore(MemoryStore):
    """The answer to the next read of a note comes when ``answer`` is set, if that is there."""

    answer: asyncio.Event | None = None

    async def note(self, name: str) -> bytes | None:
        """What is there now, told later."""
        answer, self.answer = self.answer, None
        content = await super().note(name)
        if answer is not None:
            await answer.wait()
        return content


async def late(store: LateStore, entries: Entries, *added: SchemaEntry) -> None:
    """Read, write while the answer to that is under way, then get it."""
    store.answer = answer = asyncio.Event()
    reading = asyncio.create_task(entries.load())
    await asyncio.sleep(0)
    writing = asyncio.create_task(entries.put(*added))
    for _ in range(20):
        await asyncio.sleep(0)
    answer.set()
    await asyncio.gather(reading, writing)


async def test_a_read_that_is_answered_after_a_write_does_not_undo_it() -> None:
    store = LateStore()
    entries = await opened(store)
    await entries.put(SchemaEntry(OTHER, Origin.API))
    await late(store, entries, SchemaEntry(SCHEMA, Origin.API))
    assert list(entries.schemas) == ["other", "contact"]


async def test_what_another_has_written_before_a_write_that_waits_stays() -> None:
    store = LateStore()
    entries, other = await opened(store), await opened(store)
    await other.put(SchemaEntry(OTHER, Origin.API))
    await late(store, entries, SchemaEntry(SCHEMA, Origin.API))
    assert (await opened(store)).schemas.keys() == {"contact", "other"}


async def test_another_process_that_wrote_is_not_overwritten() -> None:
    store = MemoryStore()
    first, second, third = [await opened(store) for _ in range(3)]
    await first.put(SchemaEntry(SCHEMA, Origin.API))
    await second.put(SchemaEntry(OTHER, Origin.API))
    assert list(second.schemas) == ["contact", "other"]
    await third.put(SchemaEntry(SCHEMA, Origin.API))  # the same was written already
    with pytest.raises(VaultError) as refused:
        await first.put(SchemaEntry(OTHER, Origin.FILE))
    assert refused.value.code is Code.CONFLICT
    assert (await opened(store)).schemas["other"].origin is Origin.API


# ---- registry


def schema(*fields: Field, name: str = "person") -> Schema:
    return Schema(name, fields)


EMAIL = Field("email", storage=Storage.INDEXED_HASHED)
NAME = Field("name")
AGE = Field("age", FieldType.INTEGER, Storage.INDEXED)


async def test_only_fields_kept_outside_the_body_have_a_column() -> None:
    layout, columns = await place_schema(MemoryStore(), "test", schema(EMAIL, NAME, AGE))
    assert [column.type for column in layout.columns] == [ColumnType.HASH, ColumnType.INTEGER]
    assert columns == tuple(column.name for column in layout.columns)


async def test_a_schema_keeps_its_table_and_a_field_its_column_for_ever() -> None:
    store = MemoryStore()
    first = await place_schema(store, "test", schema(EMAIL, AGE))
    await place_schema(store, "test", schema(NAME, name="other"))
    again = await place_schema(store, "test", schema(AGE, NAME, EMAIL))
    assert again.layout.table == first.layout.table
    assert again.columns == tuple(reversed(first.columns))


async def test_a_field_that_changes_its_storage_class_gets_a_new_column() -> None:
    store = MemoryStore()
    before = await place_schema(store, "test", schema(EMAIL))
    after = await place_schema(store, "test", schema(Field("email", storage=Storage.INDEXED)))
    assert before.columns != after.columns
    assert [column.type for column in after.layout.columns] == [ColumnType.HASH, ColumnType.TEXT]


async def test_another_life_of_a_field_has_another_column() -> None:
    store = MemoryStore()
    lives = [Field("email", storage=Storage.INDEXED_HASHED, life=life) for life in (0, 1, 2, 1)]
    found = [(await place_schema(store, "test", schema(field))).columns[0] for field in lives]
    assert found[1] == found[3]
    assert len(set(found)) == 3


async def test_a_layout_only_grows_at_its_end() -> None:
    store = MemoryStore()
    first = await place_schema(store, "test", schema(EMAIL, AGE))
    born = Field("born", storage=Storage.INDEXED, life=2)
    grown = await place_schema(store, "test", schema(born, AGE))
    assert grown.layout.columns[:2] == first.layout.columns
    assert grown.columns == (grown.layout.columns[2].name, first.columns[1])
    many = [Field(f"further{number}", storage=Storage.INDEXED) for number in range(10)]
    last = await place_schema(store, "test", schema(*many))
    assert last.layout.columns[:3] == grown.layout.columns
    assert await wake(store, "test") == [last.layout]


async def test_a_table_that_is_gone_leaves_its_name_to_nobody() -> None:
    store = MemoryStore()
    await place_schema(store, "test", schema(EMAIL, name="other"))
    first = (await place_schema(store, "test", schema(EMAIL))).layout.table
    for _ in range(2):
        await forget_schema(store, "test", first)
    again = (await place_schema(store, "test", schema(EMAIL))).layout.table
    assert again != first
    assert (await place_schema(store, "test", schema(EMAIL, name="third"))).layout.table not in {
        first,
        again,
    }


async def test_nothing_is_forgotten_of_an_empty_store() -> None:
    store = MemoryStore()
    await forget_schema(store, "test", "r1_test")
    assert await store.note("schemas:test") is None


async def test_environments_do_not_share_tables() -> None:
    store = MemoryStore()
    one = await place_schema(store, "one", schema(EMAIL))
    two = await place_schema(store, "two", schema(EMAIL))
    assert one.layout.table != two.layout.table


def test_a_hash_is_a_hash_whatever_the_type() -> None:
    assert column_type(Field("n", FieldType.INTEGER, Storage.INDEXED_HASHED)) is ColumnType.HASH


async def test_a_column_is_used_when_every_owner_knows_it() -> None:
    store, story = MemoryStore(), list[list[str]]()
    store.replicas = cast(Any, object())

    async def heard() -> None:
        layouts, _ = await known_layouts(store, "test")
        story.append([column.name for layout in layouts for column in layout.columns])

    await place_schema(store, "test", schema(EMAIL), heard)
    assert story == [], "a registry that is not there yet is in nobody's use"
    await place_schema(store, "test", schema(EMAIL, AGE), heard)
    assert story == [["c1"], ["c1", "c2"]], "before anything is changed, and after that"
    await place_schema(store, "test", schema(EMAIL, AGE), heard)
    assert len(story) == 2

    async def died() -> None:
        if len((await known_layouts(store, "test"))[0][0].columns) > 2:
            raise VaultError(Code.VAULT_DOWN, "It is killed here.")

    more = schema(EMAIL, AGE, Field("city", storage=Storage.INDEXED))
    with pytest.raises(VaultError):
        await place_schema(store, "test", more, died)
    await place_schema(store, "test", more, heard)
    assert story[2:] == [["c1", "c2", "c3"]], "another one that needs it finishes that"
