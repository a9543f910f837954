import pytest

from proxy.errors import Code, VaultError
from proxy.storage.rows import Column, ColumnType, Layout
from proxy.storage.sqlite_ddl import columns_of, is_complete, make, statements
from tests.support.groups import connect
from tests.support.rows import COLUMNS, LAYOUT, TABLE


def test_make_is_idempotent_and_adds_what_is_missing() -> None:
    connection = connect()
    assert is_complete(connection, LAYOUT)
    make(connection, LAYOUT)
    wider = Layout(TABLE, (*COLUMNS, Column("more", ColumnType.TEXT)))
    assert not is_complete(connection, wider)
    make(connection, wider)
    assert is_complete(connection, wider)
    assert is_complete(connection, LAYOUT)
    connection.close()


def test_a_table_that_is_not_there_has_no_columns() -> None:
    connection = connect()
    assert columns_of(connection, "none") is None
    assert not is_complete(connection, Layout("none", ()))
    make(connection, Layout("none", ()))
    assert columns_of(connection, "none") == {}
    assert is_complete(connection, Layout("none", ()))
    connection.close()


def test_every_column_has_an_index_and_its_type() -> None:
    connection = connect()
    assert columns_of(connection, TABLE) == {
        "email": "BLOB",
        "city": "TEXT",
        "visits": "INTEGER",
        "balance": "DECIMAL",
    }
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    assert {f"ix_{TABLE}.{column.name}" for column in COLUMNS} <= names
    connection.close()


def test_names_of_tables_and_indexes_never_meet() -> None:
    connection = connect()
    for table in ("a", "a_key", "key", "ik_a", "r_a", "sqlite_x", "tables", "notes"):
        make(connection, Layout(table, (Column("rid", ColumnType.TEXT), Column("x_rid", ColumnType.TEXT))))
    connection.close()


def test_another_type_is_refused() -> None:
    connection = connect()
    with pytest.raises(VaultError) as caught:
        is_complete(connection, Layout(TABLE, (Column("email", ColumnType.DECIMAL),)))
    assert caught.value.code is Code.BAD_STORE
    connection.close()


def test_columns_that_the_layout_drops_are_cleared_by_replace() -> None:
    connection = connect()
    sql = statements(connection, Layout(TABLE, COLUMNS[:1]))
    assert "x_city = NULL" in sql.replace
    assert "x_email = ?" in sql.replace
    connection.close()
