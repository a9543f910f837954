import sqlite3

from proxy.storage.migrations.s001_initial import apply


def test_format_1_has_notes_and_the_list_of_tables() -> None:
    connection = sqlite3.connect(":memory:")
    apply(connection)
    connection.execute("INSERT INTO notes VALUES ('keys', x'00')")
    connection.execute("INSERT INTO tables VALUES ('r1', 0)")
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema ORDER BY name")]
    assert names == ["notes", "tables"]
    connection.close()
