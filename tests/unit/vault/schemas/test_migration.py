from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Schema
from proxy.model.schema_change import Conversion, planned
from proxy.model.values import Unfit
from proxy.storage.changes import Change as Write
from proxy.storage.changes import Insert, Reindex, Replace
from proxy.storage.rows import Row
from proxy.vault.body import RecordBody
from proxy.vault.records.repository import Records
from proxy.vault.schema_store import MigrationState, Origin, Phase, SchemaEntry
from proxy.vault.schemas.migration import Backfill, Cleanup, migrated_records
from tests.support.catalogs import schema
from tests.support.vaults import Bench, make_bench

AGE: dict[str, Any] = {"type": "string", "storage": "indexed"}
NUMBER: dict[str, Any] = {"type": "integer", "storage": "indexed"}
OLD = schema(
    age=AGE,
    name={"type": "string", "partial_match": True},
    note={"type": "string", "storage": "indexed"},
)
NEW = schema(age=NUMBER, name={"type": "string"}, more={"type": "string"})
VALUES = {"id": "a", "age": "41", "name": "Ann Ek", "note": "secret"}


def target() -> Schema:
    return planned(OLD, NEW, {}).schema


async def stored(bench: Bench, records: Records, values: dict[str, Any]) -> Row:
    row = records.new_row("a", values, bench.vault.clock(), "test", None)
    await bench.store.commit(records.collection.table, [Insert(row, tuple(records.hashes(values)))])
    return await again(bench, records, row)


async def again(bench: Bench, records: Records, row: Row) -> Row:
    return (await bench.store.rows(records.collection.table, [row.rid]))[row.rid]


async def done(bench: Bench, records: Records, row: Row, changes: list[Write]) -> Row:
    await bench.store.commit(records.collection.table, changes)
    return await again(bench, records, row)


async def filling(bench: Bench) -> Backfill:
    entry = SchemaEntry(OLD, Origin.API, change=MigrationState(Phase.FILLING, target(), 1))
    made = await migrated_records(bench.vault, entry)
    assert isinstance(made, Backfill)
    return made


async def cleaning(bench: Bench, phase: Phase = Phase.CLEANING) -> Cleanup:
    before, after = (OLD, target()) if phase is Phase.CLEANING else (target(), OLD)
    made = await migrated_records(
        bench.vault, SchemaEntry(after, Origin.API, change=MigrationState(phase, before, 1))
    )
    assert isinstance(made, Cleanup)
    return made


async def test_a_schema_at_rest_has_plain_records() -> None:
    bench = await make_bench()
    person = bench.people.schema
    made = await migrated_records(bench.vault, SchemaEntry(person, Origin.RULES))
    assert type(made) is Records
    assert (made.collects("k"), made.schema) == (True, person)


async def test_what_is_written_while_filling_fits_both_definitions() -> None:
    bench = await make_bench()
    records = await filling(bench)
    row = await stored(bench, records, VALUES)
    assert records.schema == OLD
    assert (records.stored(row, "age"), records.target.stored(row, "age")) == ("41", 41)
    assert records.open(row).fields == VALUES
    assert records.filled(row) == []


async def test_a_row_from_before_gets_what_it_lacks_and_nothing_else() -> None:
    bench = await make_bench()
    row = await stored(
        bench, await migrated_records(bench.vault, SchemaEntry(OLD, Origin.API)), VALUES
    )
    records = await filling(bench)
    changes = records.filled(row)
    assert [type(change) for change in changes] == [Replace]
    after = await done(bench, records, row, changes)
    assert after._replace(cells=(), body=b"") == row._replace(cells=(), body=b"")
    assert records.target.stored(after, "age") == 41
    assert records.filled(after) == []


async def test_a_value_that_does_not_fit_the_new_definition_is_refused_with_its_place() -> None:
    bench = await make_bench()
    row = await stored(
        bench,
        await migrated_records(bench.vault, SchemaEntry(OLD, Origin.API)),
        {**VALUES, "age": "old"},
    )
    records = await filling(bench)
    with pytest.raises(Unfit):
        records.filled(row)
    with pytest.raises(VaultError) as refused:
        records.cells({"age": "young"})
    assert (refused.value.code, refused.value.details[0].source) == (Code.INVALID_RECORD, "/age")
    assert "young" not in str(refused.value.details)
    assert records.hashes({"age": "young"}) == set()


async def test_after_the_switch_rows_open_as_the_new_definition_has_them() -> None:
    bench = await make_bench()
    row = await stored(bench, await filling(bench), VALUES)
    records = await cleaning(bench)
    assert records.open(row).fields == {"id": "a", "age": 41, "name": "Ann Ek"}


async def test_cleaning_leaves_nothing_of_the_old_definition() -> None:
    bench = await make_bench()
    before = await filling(bench)
    row = await stored(bench, before, VALUES)
    records = await cleaning(bench)
    records.settle()
    changes = records.cleaned(row)
    assert {type(change) for change in changes} == {Replace, Reindex}
    after = await done(bench, records, row, changes)
    assert before.stored(after, "age") is None
    assert before.stored(after, "note") is None
    assert records.stored(after, "age") == 41
    table = records.collection.table
    assert await bench.store.by_tokens(table, tuple(before.hashes({"name": "Ann Ek"}))) == {}
    plain = await migrated_records(bench.vault, SchemaEntry(target(), Origin.API))
    assert plain.open(after).fields == {"id": "a", "age": 41, "name": "Ann Ek"}
    # what is gone may be removed again
    assert [type(change) for change in records.cleaned(after)] == [Reindex]


async def test_until_the_last_question_of_before_has_ended_its_columns_are_filled() -> None:
    bench = await make_bench()
    before, records = await filling(bench), await cleaning(bench)
    row = await stored(bench, records, {"id": "a", "age": 7, "name": "Bo Ek"})
    assert before.stored(row, "name") == before.cell("name", "Bo Ek")
    assert before.stored(row, "age") is None  # no text can be made of what may never have been one
    records.settle()
    assert before.stored(await stored_again(bench, records, row), "name") is None


async def stored_again(bench: Bench, records: Records, row: Row) -> Row:
    following = records.next_row(row, {"id": "a", "age": 7, "name": "Bo Ek"}, "test", None)
    return await done(bench, records, row, [Replace(following, row.version)])


async def test_reverting_leaves_nothing_of_the_new_definition() -> None:
    bench = await make_bench()
    before = await filling(bench)
    row = await stored(bench, before, VALUES)
    records = await cleaning(bench, Phase.REVERTING)
    assert records.open(row).fields == VALUES
    after = await done(bench, records, row, records.cleaned(row))
    assert before.target.stored(after, "age") is None
    assert before.stored(after, "age") == "41"
    assert records.open(after) == records.open(row)
    assert records.cleaned(after) == []


async def test_what_the_proxy_collected_is_left_alone() -> None:
    bench = await make_bench()
    records = await cleaning(bench)
    row = bench.people.new_row(RecordBody({}), 5, b"s" * 16)._replace(cells=records.cells({}))
    assert records.cleaned(records.collection.sealer.with_body(row, RecordBody({}))) == []


def test_the_two_definitions_are_as_different_as_these_tests_need() -> None:
    assert not Conversion(OLD, target()).idle
    assert target().field("age").life == target().field("name").life == 1
