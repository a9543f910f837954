import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import RecordDraft
from proxy.model.schema import RecordKeys, Storage, records_schema
from proxy.model.schema_change import Effect
from proxy.vault.collection import TableSpec
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import stage_creates
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.schema_store import Origin
from proxy.vault.schemas.catalog import (
    built_in,
    built_in_name,
    busy_schema,
    occupied,
    of_file,
    of_rules,
    open_catalog,
)
from tests.support.catalogs import Shelf, make_shelf, schema
from tests.support.table import table
from tests.support.vaults import draft, person

TEXT: dict[str, Any] = {"type": "string"}
PLAIN: dict[str, Any] = {"type": "string", "storage": "indexed"}


async def refused(shelf: Shelf, code: Code, *args: Any, **more: Any) -> VaultError:
    with pytest.raises(VaultError) as error:
        await shelf.apply(*args, **more)
    assert error.value.code is code
    return error.value


def place(name: str, pointer: str) -> str:
    return f"{name}{pointer}"


async def test_a_schema_that_nobody_declared_is_unknown() -> None:
    shelf = await make_shelf()
    with pytest.raises(VaultError) as unknown:
        shelf.catalog.records("contact")
    assert unknown.value.code is Code.UNKNOWN_SCHEMA
    assert shelf.catalog.schemas() == []


async def test_a_schema_that_was_declared_holds_records_and_outlives_the_process() -> None:
    shelf = await make_shelf()
    assert (await shelf.apply(email=PLAIN)).created
    await shelf.add("a", email="ann@example.com")
    again = await make_shelf(shelf)
    assert await again.having("email", "ann@example.com") == ["a"]
    (declared,) = again.catalog.schemas()
    assert (declared.schema, declared.origin) == (schema(email=PLAIN), Origin.API)
    assert not (await again.apply(email=PLAIN)).steps


async def test_fields_are_added_and_texts_widened_at_once() -> None:
    shelf = await make_shelf()
    await shelf.apply(email={**PLAIN, "max_length": 20})
    await shelf.add("a", email="ann@example.com")
    applied = await shelf.catalog.apply(
        schema(email={**PLAIN, "max_length": 30}, age={"type": "integer"}), Origin.API
    )
    assert {step.effect for step in applied.steps} == {Effect.AT_ONCE}
    await shelf.add("b", email="bo@example.com", age=41)
    assert await shelf.having("age", 41) == ["b"]
    assert await shelf.having("email", "ann@example.com") == ["a"]
    assert shelf.catalog.declared("contact").change is None


async def test_who_made_a_row_before_a_field_came_writes_it_without_one() -> None:
    shelf = await make_shelf()
    await shelf.apply(email=PLAIN)
    before = shelf.catalog.records("contact")
    await shelf.apply(email=PLAIN, age={"type": "integer"})

    await store_records(before, [RecordDraft("a", {"id": "a", "email": "ann"})], "test", no_changes)
    assert await shelf.values() == {"a": {"email": "ann"}}


async def test_a_dry_run_tells_and_changes_nothing() -> None:
    shelf = await make_shelf()
    assert (await shelf.catalog.apply(schema(), Origin.API, dry_run=True)).created
    assert shelf.catalog.schemas() == []
    await shelf.apply(email=PLAIN)
    applied = await shelf.catalog.apply(schema(email=TEXT), Origin.API, dry_run=True)
    assert (applied.migrating, applied.steps[0].effect) == (True, Effect.REWRITES)
    assert shelf.catalog.declared("contact").schema.field("email").storage is Storage.INDEXED


async def test_a_change_that_cannot_work_is_refused_with_every_reason() -> None:
    shelf = await make_shelf()
    await shelf.apply(a={"type": "json"}, b={"type": "time"})
    error = await refused(shelf, Code.INVALID_SCHEMA, a=TEXT, b={"type": "date"})
    assert [detail.source for detail in error.details] == ["/fields/a/type", "/fields/b/type"]


async def test_records_of_models_expire() -> None:
    shelf = await make_shelf()
    await shelf.apply(age=TEXT)

    expiring = RecordDraft("a", {"id": "a"}, shelf.bench.clock() + 10)
    await store_records(shelf.catalog.records("contact"), [expiring], "test", no_changes)
    shelf.bench.clock.advance(10)
    await shelf.bench.vault.maintain()
    assert await shelf.rows() == []


# ---------------------------------------------------------------------- the end of a schema


async def test_a_schema_that_holds_records_is_not_dropped_by_mistake() -> None:
    shelf = await make_shelf()
    await shelf.apply(age=TEXT)
    await shelf.add("a", age="41")
    with pytest.raises(VaultError) as in_use:
        await shelf.catalog.drop("contact")
    assert in_use.value.code is Code.SCHEMA_IN_USE
    assert await shelf.having("age", "41") == ["a"]


@table("records", [False, True])
async def test_a_schema_that_comes_back_is_empty_and_has_another_table(records: bool) -> None:
    shelf = await make_shelf()
    await shelf.apply(age=TEXT)
    table = shelf.catalog.records("contact").collection.table
    if records:
        await shelf.add("a", age="41")
    await shelf.catalog.drop("contact", records=records)
    with pytest.raises(VaultError) as unknown:
        shelf.catalog.records("contact")
    assert unknown.value.code is Code.UNKNOWN_SCHEMA
    await shelf.bench.vault.maintain()
    await shelf.apply(age=TEXT)
    assert shelf.catalog.records("contact").collection.table != table
    assert await shelf.rows() == []
    again = await make_shelf(shelf)
    assert await again.rows() == []


async def test_who_still_uses_a_schema_is_waited_for_before_it_ends() -> None:
    shelf = await make_shelf()
    await shelf.apply(age=TEXT)
    go = asyncio.Event()

    async def slow() -> None:
        with shelf.catalog.using():
            records = shelf.catalog.records("contact")
            await go.wait()

            await store_records(records, [RecordDraft("a", {"id": "a"})], "test", no_changes)

    writer = asyncio.create_task(slow())
    await asyncio.sleep(0)
    dropping = asyncio.create_task(shelf.catalog.drop("contact"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not dropping.done()
    go.set()
    await writer
    with pytest.raises(VaultError) as in_use:
        await dropping
    assert in_use.value.code is Code.SCHEMA_IN_USE
    assert list(await shelf.values()) == ["a"]


async def test_a_schema_whose_requests_do_not_end_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.vault.schemas.active._PATIENCE", 0.0)
    shelf = await make_shelf()
    await shelf.apply(age=TEXT)
    go = asyncio.Event()

    async def slow() -> None:
        with shelf.catalog.using():
            await go.wait()

    task = asyncio.create_task(slow())
    await asyncio.sleep(0)
    with pytest.raises(VaultError) as busy:
        await shelf.catalog.drop("contact")
    assert busy.value.code is Code.SCHEMA_BUSY
    go.set()
    await task
    await shelf.add("a")


# ---------------------------------------------------------------------- rules and files


async def with_rules(shelf: Shelf, recipe: TableSpec | None = None) -> None:
    recipe = recipe or person()
    shelf.catalog.refuse_taken([recipe.schema.name])
    await shelf.catalog.take_rules([await shelf.bench.vault.collection(recipe)])


async def test_what_the_proxy_collects_is_found_also_when_the_rules_lose_it() -> None:
    shelf = await make_shelf()
    await with_rules(shelf)

    (held,) = await stage_creates(
        shelf.bench.people, [draft(name="Ann", email="ann@example.com")], [None]
    )
    await bind(shelf.bench.people, [(held, "17")])
    assert await shelf.having("email", "ann@example.com", "person") == ["17"]
    assert shelf.catalog.records("person").collects("17")
    again = await make_shelf(shelf)
    assert await again.having("email", "ann@example.com", "person") == ["17"]
    assert again.catalog.records("person").collects("17")
    await with_rules(again)
    assert again.catalog.declared("person").origin is Origin.RULES


async def test_a_name_belongs_to_rules_or_to_the_interface() -> None:
    shelf = await make_shelf()
    await with_rules(shelf)
    await refused(shelf, Code.SCHEMA_OF_RULES, "person", age=TEXT)
    with pytest.raises(VaultError) as held:
        await shelf.catalog.drop("person", records=True)
    assert held.value.code is Code.SCHEMA_OF_RULES
    other = await make_shelf()
    await other.apply("person", age=TEXT)
    with pytest.raises(VaultError) as taken:
        other.catalog.refuse_taken(["contact", "person"])
    assert taken.value.code is Code.BAD_RULES
    assert [detail.source for detail in taken.value.details] == ["person"]


async def test_what_rules_have_lost_can_be_dropped_and_its_name_given_again() -> None:
    shelf = await make_shelf()
    await with_rules(shelf)
    await shelf.catalog.take_rules([])
    await refused(shelf, Code.SCHEMA_OF_RULES, "person", age=TEXT)
    await shelf.catalog.drop("person")
    assert (await shelf.apply("person", age=TEXT)).created
    assert not shelf.catalog.records("person").collects("17")


async def test_files_declare_what_only_they_change() -> None:
    shelf = await make_shelf()
    await shelf.catalog.declare([schema(age=TEXT), schema("other", a=TEXT)], place)
    await refused(shelf, Code.CONFLICT, age=PLAIN)
    with pytest.raises(VaultError) as held:
        await shelf.catalog.drop("contact")
    assert held.value.code is Code.CONFLICT
    await shelf.catalog.declare([schema("other", a=TEXT)], place)
    assert [declared.schema.name for declared in shelf.catalog.schemas()] == ["contact", "other"]
    await shelf.apply(age=TEXT, more=TEXT)
    assert shelf.catalog.declared("contact").origin is Origin.API


async def test_files_with_a_change_that_cannot_work_change_nothing_at_all() -> None:
    shelf = await make_shelf()
    await shelf.catalog.declare([schema(age={"type": "json"}), schema("other", a=TEXT)], place)
    with pytest.raises(VaultError) as wrong:
        await shelf.catalog.declare(
            [schema("other", a=TEXT, b=TEXT), schema(age=TEXT), schema("third")], place
        )
    assert wrong.value.code is Code.INVALID_SCHEMA
    assert [detail.source for detail in wrong.value.details] == ["contact/fields/age/type"]
    assert [declared.schema for declared in shelf.catalog.schemas()] == [
        schema(age={"type": "json"}),
        schema("other", a=TEXT),
    ]


async def test_files_take_over_what_was_declared_over_the_interface() -> None:
    shelf = await make_shelf()
    await shelf.apply(age=TEXT)
    await shelf.catalog.declare([schema(age=TEXT)], place)
    assert shelf.catalog.declared("contact").origin is Origin.FILE


async def test_a_definition_of_a_file_that_comes_during_a_migration_counts_afterwards() -> None:
    shelf = await make_shelf()
    await shelf.apply(age=PLAIN)
    await shelf.add("a", age="41")
    await shelf.catalog.apply(schema(age=TEXT), Origin.API)
    await shelf.catalog.declare([schema(age={"type": "integer"})], place)
    await shelf.catalog.settled("contact")
    assert await shelf.having("age", 41) == ["a"]
    await shelf.catalog.close()


# ---------------------------------------------------------------------- the program's own schema


OWN = records_schema()


async def test_the_schema_of_the_program_is_there_and_stays() -> None:
    shelf = await make_shelf()
    await shelf.catalog.declare_builtin(OWN)
    assert shelf.catalog.declared("records").origin is Origin.BUILTIN
    for origin in (Origin.API, Origin.FILE):
        with pytest.raises(VaultError) as caught:
            await shelf.catalog.apply(schema("records"), origin)
        assert caught.value.code is Code.INVALID_SCHEMA
    with pytest.raises(VaultError) as caught:
        await shelf.catalog.drop("records", records=True)
    assert caught.value.code is Code.CONFLICT
    with pytest.raises(VaultError) as caught:
        await shelf.catalog.declare([schema("records")], place)
    assert [detail.source for detail in caught.value.details] == ["recordsname"]


async def test_a_name_that_was_taken_before_is_told_at_start() -> None:
    shelf = await make_shelf()
    await shelf.apply("records", age=TEXT)
    with pytest.raises(VaultError) as caught:
        await open_catalog(shelf.bench.vault, shelf.reported.append, (OWN,))
    assert caught.value.code is Code.INVALID_SCHEMA
    assert shelf.catalog.declared("records").schema.field("age").name == "age"


async def test_keys_that_are_kept_otherwise_are_rewritten_in_the_background() -> None:
    shelf = await make_shelf()
    await shelf.catalog.declare_builtin(OWN)
    await store_records(
        shelf.catalog.records("records"),
        [RecordDraft("r-1", {"record_key": "r-1", "key1": "Ann"})],
        "me",
        no_changes,
    )
    await shelf.catalog.declare_builtin(records_schema(RecordKeys(plain=frozenset(("key1",)))))
    await shelf.catalog.declare_builtin(
        OWN
    )  # the operator thinks better of it while the records are still being rewritten
    await shelf.catalog.settled("records")
    assert shelf.catalog.records("records").schema.field("key1").storage is Storage.INDEXED_HASHED
    assert len(await shelf.having("key1", "Ann", "records")) == 1
    assert shelf.reported == []


@table(
    ("made", "code"),
    [
        (of_rules, Code.SCHEMA_OF_RULES),
        (of_file, Code.CONFLICT),
        (built_in, Code.CONFLICT),
        (built_in_name, Code.INVALID_SCHEMA),
        (busy_schema, Code.SCHEMA_BUSY),
    ],
)
def test_each_names_the_schema(made: Callable[[str], VaultError], code: Code) -> None:
    error = made("records")
    assert error.code is code
    assert "'records'" in error.message


def test_a_name_that_was_free_before_says_what_to_do() -> None:
    error = occupied("records", Origin.FILE)
    assert error.code is Code.INVALID_SCHEMA
    assert "declared by file" in error.message
    assert "domicile export" in error.message
    assert [detail.source for detail in error.details] == ["records"]
