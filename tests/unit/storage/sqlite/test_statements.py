import random
from asyncio import Future
from collections.abc import Sequence

from proxy.storage.changes import Attach, Change, Insert, Remove, StageRow
from proxy.storage.rows import (
    Column,
    ColumnType,
    File,
    TableLayout,
)
from proxy.storage.sqlite.apply import apply_group
from proxy.storage.sqlite.statements import (
    TABLES,
    Listed,
    Statements,
    drop_table,
    empty,
    is_complete,
    make,
    table_columns,
)
from tests.support.groups import connect
from tests.support.rows import COLUMNS, LAYOUT, TABLE, h, live, outlived, staged
from tests.support.table import table


def test_few_texts_serve_all_lengths() -> None:
    listed = Listed("x")
    texts = {text for length in range(1, 2000) for text, _ in listed.runs(range(length))}
    assert len(texts) < 22
    assert list(listed.runs([])) == []


def test_padding_wastes_less_than_half() -> None:
    for length in range(1, 1025):
        ((_, values),) = Listed("x").runs(range(length))
        assert length <= len(values) < max(length * 1.5, 2)


@table("seed", range(20))
def test_rows_are_found_by_their_keys_whichever_rows_had_these_before(seed: int) -> None:
    connection, sql, chance = connect(), Statements(LAYOUT), random.Random(seed)
    asked: list[tuple[bool, int]] = []

    def listed(statement: Listed, values: Sequence[object]) -> list[tuple[object, ...]]:
        asked.append((statement is sql.by_keys, len(values)))
        runs = [connection.execute(*run).fetchall() for run in statement.runs(values)]
        return [raw for run in runs for raw in run]

    keys = [h(number) for number in range(60)]
    for rid in range(1, 41):
        connection.execute(sql.insert, sql.stored(live(rid, rid)))
    for _ in range(30):
        for rid in chance.sample(range(1, 41), 6):  # some lose, some change theirs, some are gone
            key = chance.choice([None, *keys])
            connection.execute(f"UPDATE r_{TABLE} SET key = NULL WHERE key = ?", (key,))
            connection.execute(f"UPDATE r_{TABLE} SET key = ? WHERE rid = ?", (key, rid))
        connection.execute(f"DELETE FROM r_{TABLE} WHERE rid = ?", (chance.randrange(1, 200),))
        wanted = chance.sample(keys, 30) * chance.randint(1, 2)
        found = sorted(sql.look_up(wanted, listed))
        assert found == sorted(listed(sql.by_keys, wanted))
        have = [raw[1] for raw in found]
        assert sorted(sql.look_up(have, listed)) == found
        del asked[:]
        assert sorted(sql.look_up(have, listed)) == found
        assert not any(by_key for by_key, _ in asked), "their ids are known, and tell all"
    connection.close()


def test_ids_of_so_many_rows_are_remembered_at_most() -> None:
    sql = Statements(LAYOUT)
    hints: list[int] = []

    def listed(statement: Listed, values: Sequence[bytes]) -> list[tuple[object, ...]]:
        if statement is sql.by_keys:
            return [(int(key.strip(b".")), key) for key in values]
        hints.append(len(values))
        return []

    for first in range(0, 20_000, 1000):
        some = [h(number) for number in range(first, first + 1000)]
        assert len(sql.look_up(some, listed)) == 1000
        sql.look_up(some, listed)
    sql.look_up([h(number) for number in range(20_000)], listed)
    assert hints[1::2][:8] == [1000] * 8
    assert 1000 <= hints[-1] <= 8192


def test_a_key_is_found_though_the_row_that_had_it_lately_has_another_of_them() -> None:
    sql = Statements(LAYOUT)
    rows = {1: h(0), **{100 + number: h(number) for number in range(1, 1200)}}

    def listed(statement: Listed, values: Sequence[object]) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for text, part in statement.runs(values):
            ids = "rid IN" in text
            found += [one for one in rows.items() if (one[0] if ids else one[1]) in part]
        return found

    wanted = [h(number) for number in range(1201)]
    sql.look_up(wanted, listed)
    rows[1] = h(1200)  # an id was taken back, and given to the next record
    sql.look_up(wanted, listed)
    rows[2] = h(0)
    assert {one[1] for one in sql.look_up(wanted, listed)} == {*wanted}


def test_make_is_idempotent_and_adds_what_is_missing() -> None:
    connection = connect()
    assert is_complete(connection, LAYOUT)
    make(connection, LAYOUT)
    wider = TableLayout(TABLE, (*COLUMNS, Column("more", ColumnType.TEXT)))
    assert not is_complete(connection, wider)
    make(connection, wider)
    assert is_complete(connection, wider)
    assert is_complete(connection, LAYOUT)
    connection.close()


def test_names_of_tables_and_indexes_never_meet() -> None:
    connection = connect()
    for name in ("a", "a_key", "key", "ik_a", "r_a", "sqlite_x", "tables", "notes"):
        make(
            connection,
            TableLayout(name, (Column("rid", ColumnType.TEXT), Column("x_rid", ColumnType.TEXT))),
        )
    connection.close()


def test_a_table_is_emptied_piece_by_piece_and_sound_in_between() -> None:
    connection = connect()
    sql = Statements(LAYOUT)
    file = File(h("f"), 1, h("n"), "object", 1, 1, 1, b"")
    changes: list[Change] = [Insert(live(rid, rid), (h(rid),)) for rid in range(1, 6)]
    changes += [
        StageRow(staged(1, 2)),
        *(outlived(live(rid, rid)) for rid in range(1, 6)),
        Attach(file),
        Remove(5, keep_past=True),
    ]
    future: Future[None] = None  # type: ignore[assignment]  # nobody waits
    assert apply_group(connection, [(future, sql, changes)]) is None
    assert empty(connection, TABLE, 3) == 3
    counts = {
        prefix: connection.execute(f"SELECT count(*) FROM {prefix}_{TABLE}").fetchone()[0]
        for prefix in TABLES
    }
    assert counts == {"r": 1, "s": 0, "t": 1, "h": 2, "f": 0, "i": 0, "l": 0}
    assert connection.execute(sql.count).fetchone()[0] == 1
    assert connection.execute("SELECT object FROM doomed").fetchall() == [("object",)]
    # the past of a record that had gone comes last
    assert [empty(connection, TABLE, 3) for _ in range(3)] == [1, 1, 0]
    assert empty(connection, "none", 3) == 0
    drop_table(connection, TABLE)
    drop_table(connection, TABLE)
    assert table_columns(connection, TABLE) is None
    connection.close()
