import json
from typing import Any

import msgspec
import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Schema
from proxy.vault.schema_store import Origin, Phase
from tests.support.catalogs import held, make_shelf, schema

TEXT: dict[str, Any] = {"type": "string"}
PLAIN: dict[str, Any] = {"type": "string", "storage": "indexed"}


async def test_a_storage_class_changes_record_by_record() -> None:
    shelf = await make_shelf()
    await shelf.apply(email=PLAIN)
    for number in range(250):
        await shelf.add(f"k{number}", email=f"mail{number}")
    applied = await shelf.apply(email={**TEXT, "partial_match": True})
    assert applied.migrating
    assert await shelf.having("email", "mail7") == ["k7"]
    assert len(await shelf.holding("email", "l249")) == 1
    assert not [cell for row in await shelf.rows() for cell in row.cells if isinstance(cell, str)]
    declared = shelf.catalog.declared("contact")
    assert declared.change is None
    assert declared.outcome is not None
    assert (declared.outcome.total, declared.outcome.failed) == (250, 0)


async def test_versions_and_times_of_records_stay() -> None:
    shelf = await make_shelf()
    await shelf.apply(age={"type": "integer", "storage": "indexed"})
    await shelf.add("a", age=41)
    before = (await shelf.rows())[0]
    shelf.bench.clock.advance(1000)
    await shelf.apply(age=TEXT)
    after = (await shelf.rows())[0]
    assert (after.version, after.created_at, after.updated_at) == (
        1,
        before.created_at,
        before.updated_at,
    )
    assert await shelf.values() == {"a": {"age": "41"}}
    assert after.body != before.body


async def test_a_removed_field_leaves_nothing_in_any_record() -> None:
    shelf = await make_shelf()
    await shelf.apply(email={**TEXT, "partial_match": True}, age={"type": "integer"})
    await shelf.add("a", email="ann@example.com", age=41)
    old = shelf.catalog.records("contact")
    await shelf.apply(age={"type": "integer"})
    assert await shelf.values() == {"a": {"age": 41}}
    table = old.collection.table
    assert (
        await shelf.bench.store.by_tokens(table, tuple(old.hashes({"email": "ann@example.com"})))
        == {}
    )
    assert sum(cell is not None for cell in (await shelf.rows())[0].cells) == 1


async def test_a_field_that_comes_back_knows_nothing_of_the_one_before() -> None:
    shelf = await make_shelf()
    await shelf.apply(email=PLAIN)
    await shelf.add("a", email="ann")
    await shelf.apply()
    await shelf.apply(email=PLAIN)
    assert await shelf.having("email", "ann") == []
    await shelf.add("b", email="ann")
    assert await shelf.having("email", "ann") == ["b"]


async def test_values_that_cannot_be_converted_stop_a_migration_and_are_counted() -> None:
    shelf = await make_shelf()
    await shelf.apply(age=PLAIN)
    for key, age in (("a", "41"), ("b", "old"), ("c", "young"), ("d", "9")):
        await shelf.add(key, age=age)
    await shelf.apply(age={"type": "integer", "storage": "indexed"})
    declared = shelf.catalog.declared("contact")
    assert declared.change is None
    assert declared.outcome is not None
    assert (declared.outcome.total, declared.outcome.failed) == (4, 2)
    assert declared.schema.field("age") == schema(age=PLAIN).field("age")
    assert await shelf.having("age", "old") == ["b"]
    assert [sum(cell is not None for cell in row.cells) for row in await shelf.rows()] == [
        1,
        1,
        1,
        1,
    ]
    shelf = await make_shelf(shelf)
    assert await shelf.values() == {
        "a": {"age": "41"},
        "b": {"age": "old"},
        "c": {"age": "young"},
        "d": {"age": "9"},
    }
    again = shelf.catalog.declared("contact").outcome
    assert again is not None
    assert again.failed == 2


async def test_while_it_fills_a_write_has_to_fit_both_definitions() -> None:
    shelf = await make_shelf()
    await shelf.apply(age=PLAIN)
    await shelf.add("a", age="41")
    async with held(shelf.catalog):
        await shelf.catalog.apply(schema(age={"type": "integer"}), Origin.API)
        with pytest.raises(VaultError) as unfit:
            await shelf.add("b", age="old")
        assert unfit.value.code is Code.INVALID_RECORD
        assert [detail.source for detail in unfit.value.details] == ["/age"]
        await shelf.add("c", age="7")
        assert await shelf.having("age", "7") == ["c"]
    await shelf.catalog.settled("contact")
    assert await shelf.having("age", 41) == ["a"]
    assert await shelf.having("age", 7) == ["c"]


async def test_another_definition_waits_until_a_migration_has_ended() -> None:
    shelf = await make_shelf()
    await shelf.apply(age=PLAIN)
    await shelf.add("a", age="41")
    wanted = schema(age=TEXT)
    await shelf.catalog.apply(wanted, Origin.API)
    change = shelf.catalog.declared("contact").change
    assert change is not None
    assert change.phase is Phase.FILLING
    assert (await shelf.catalog.apply(wanted, Origin.API)).migrating
    with pytest.raises(VaultError) as busy:
        await shelf.apply(age={"type": "integer"})
    assert busy.value.code is Code.SCHEMA_BUSY
    with pytest.raises(VaultError) as busy:
        await shelf.catalog.drop("contact", records=True)
    assert busy.value.code is Code.SCHEMA_BUSY
    await shelf.catalog.settled("contact")
    assert shelf.catalog.declared("contact").change is None


async def test_a_migration_that_was_interrupted_goes_on_in_the_next_process() -> None:
    shelf = await make_shelf()
    await shelf.apply(age=PLAIN)
    for number in range(120):
        await shelf.add(f"k{number}", age=str(number))
    await shelf.catalog.apply(schema(age={"type": "integer", "storage": "indexed"}), Origin.API)
    await shelf.catalog.close()
    again = await make_shelf(shelf)
    assert again.catalog.declared("contact").change is not None
    await again.catalog.settled("contact")
    assert await again.having("age", 77) == ["k77"]
    assert not [cell for row in await again.rows() for cell in row.cells if isinstance(cell, str)]


async def test_a_store_that_fails_is_reported_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.vault.schemas.active._RETRY", 0.0)
    shelf = await make_shelf()
    await shelf.apply(age=PLAIN)
    await shelf.add("a", age="41")
    scan, failing = shelf.bench.store.scan, [True, True]

    async def broken(table: str, after: int, limit: int) -> Any:
        if failing:
            failing.pop()
            raise VaultError(Code.VAULT_DOWN, "down")
        return await scan(table, after, limit)

    monkeypatch.setattr(shelf.bench.store, "scan", broken)
    await shelf.apply(age=TEXT)
    assert [error.code for error in shelf.reported] == [Code.VAULT_DOWN, Code.VAULT_DOWN]
    assert await shelf.having("age", "41") == ["a"]


async def test_an_index_of_parts_of_an_earlier_version_serves_until_it_is_made_anew() -> None:
    shelf = await make_shelf()
    before = schema(email={**TEXT, "partial_match": True})
    fine = [msgspec.structs.replace(one, fine_parts=one.partial_match) for one in before.fields]
    await shelf.catalog.apply(Schema("contact", tuple(fine)), Origin.API)
    await shelf.add("a", email="ann@example.com")
    await shelf.add("b", email="İstanbul")
    old = shelf.catalog.records("contact")
    stood = tuple(
        old.hashes({"email": "ann@example.com"}) | old.hashes({"email": "İstanbul"}, before=True)
    )
    await shelf.catalog.close()
    name = f"catalog:{shelf.bench.vault.environment}"
    written = await shelf.bench.store.note(name)
    assert written is not None
    told = json.loads(written)
    del told["parts_told"]  # as that version wrote it
    for field in told["schemas"]["contact"]["schema"]["fields"]:
        del field["fine_parts"]
    await shelf.bench.store.put_note(name, json.dumps(told).encode(), written)

    again = await make_shelf(shelf)
    assert again.catalog.declared("contact").change is not None
    assert len(await again.holding("email", "example")) == 1
    await again.catalog.settled("contact")
    records = again.catalog.records("contact")
    assert not any(field.fine_parts for field in records.schema.fields)
    assert len(await again.holding("email", "example")) == 1
    assert len(await again.holding("email", "istan")) == 1
    table = records.collection.table
    assert await again.bench.store.by_tokens(table, stood) == {}
    await again.catalog.close()
    third = await make_shelf(again)
    assert third.catalog.declared("contact").change is None
