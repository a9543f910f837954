from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage.memory import MemoryStore
from proxy.storage.rows import ColumnType
from proxy.vault.registry import column_type, place


def schema(*fields: Field, name: str = "person") -> Schema:
    return Schema(name, fields)


EMAIL = Field("email", storage=Storage.INDEXED_HASHED)
NAME = Field("name")
AGE = Field("age", FieldType.INTEGER, Storage.INDEXED)


async def test_only_fields_kept_outside_the_body_have_a_column() -> None:
    layout = await place(MemoryStore(), "test", schema(EMAIL, NAME, AGE))
    assert [column.type for column in layout.columns] == [ColumnType.HASH, ColumnType.INTEGER]


async def test_a_schema_keeps_its_table_and_a_field_its_column_for_ever() -> None:
    store = MemoryStore()
    first = await place(store, "test", schema(EMAIL, AGE))
    await place(store, "test", schema(NAME, name="other"))
    again = await place(store, "test", schema(AGE, NAME, EMAIL))
    assert again.table == first.table
    assert set(again.columns) == set(first.columns)


async def test_a_field_that_changes_its_storage_class_gets_a_new_column() -> None:
    store = MemoryStore()
    before = await place(store, "test", schema(EMAIL))
    after = await place(store, "test", schema(Field("email", storage=Storage.INDEXED)))
    assert before.columns[0].name != after.columns[0].name
    assert after.columns[0].type is ColumnType.TEXT


async def test_environments_do_not_share_tables() -> None:
    store = MemoryStore()
    one = await place(store, "one", schema(EMAIL))
    two = await place(store, "two", schema(EMAIL))
    assert one.table != two.table


def test_a_hash_is_a_hash_whatever_the_type() -> None:
    assert column_type(Field("n", FieldType.INTEGER, Storage.INDEXED_HASHED)) is ColumnType.HASH
