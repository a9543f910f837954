"""What the proxy collects of an entity among the records of the program's own schema."""

from dataclasses import dataclass

import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import RecordDraft
from proxy.model.schema import (
    NO_VALUE,
    RECORDS_SCHEMA,
    Field,
    RecordKeys,
    Schema,
    Value,
    records_schema,
)
from proxy.storage.changes import Conflict, Insert, Remove
from proxy.storage.rows import Row
from proxy.tokenization import SHAPES
from proxy.vault.collection import TableSpec
from proxy.vault.expiry import reap
from proxy.vault.next_version import ProxiedDraft as Sent
from proxy.vault.proxied.hosted import Hosted
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import promote, stage_creates, stage_updates
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.delete import delete_one
from proxy.vault.records.history import record_versions
from proxy.vault.records.repository import Records
from proxy.vault.records.update import change_records
from tests.support.catalogs import Shelf, make_shelf

FIELDS = {"key3": "email", "range_key1": "text", "body": "text", "spare": "text"}
ANN = {"key3": "ann@example.com", "range_key1": "41", "body": "notes", "spare": "kept"}


def recipe(entity: str = "person") -> TableSpec:
    schema = Schema(
        f"records/{entity}", tuple(Field(name, kind=kind) for name, kind in FIELDS.items())
    )
    return TableSpec(
        schema, dict.fromkeys(FIELDS, SHAPES["opaque"]({"same": True})), None, addressed=True
    )


def sent(**values: str) -> Sent:
    return Sent({name: (Value(text, json=False),) for name, text in values.items()})


@dataclass
class Beside:
    """A shelf with the program's own schema, and people beside its records."""

    shelf: Shelf
    people: Hosted

    @property
    def records(self) -> Records:
        return self.shelf.catalog.records(RECORDS_SCHEMA)

    async def add(self, key: str, **values: str) -> None:
        (held,) = await stage_creates(self.people, [sent(**values)], [key])
        await bind(self.people, [(held, key)])

    async def found(self) -> dict[str | None, dict[str, object]]:
        rows = await self.shelf.rows(RECORDS_SCHEMA)
        return {record.key: record.fields for record in map(self.records.open, rows)}


@pytest.fixture
async def beside() -> Beside:
    shelf = await make_shelf()
    await shelf.catalog.declare_builtin(records_schema())
    return Beside(shelf, Hosted(recipe(), "person", shelf.catalog.host(RECORDS_SCHEMA)))


async def test_a_record_is_one_of_the_schema_under_a_key_of_its_own(beside: Beside) -> None:
    await beside.add("17", **ANN)
    await store_records(
        beside.records,
        [RecordDraft("17", {"record_key": "17", "key3": "ann@example.com"})],
        "me",
        no_changes,
    )
    assert await beside.found() == {
        "17": {"record_key": "17", "key3": "ann@example.com"},
        "rules:person/17": {
            "record_key": "rules:person/17",
            "key3": "ann@example.com",
            "range_key1": 41,
            "body": "notes",
        },
    }
    assert len(await beside.shelf.having("key3", "ann@example.com", RECORDS_SCHEMA)) == 2
    assert await beside.shelf.having("range_key1", 41, RECORDS_SCHEMA) == ["rules:person/17"]
    (row,) = (await beside.people.by_key(["17"])).values()
    assert beside.people.sealer.open_key(row) == "17"
    assert beside.people.sealer.open_with_key(row)[1] == "17"
    assert beside.records.cells(beside.records.open(row).fields) == row.cells


async def test_entities_have_keys_and_tokens_of_their_own(beside: Beside) -> None:
    pets = Hosted(recipe("pet"), "pet", beside.shelf.catalog.host(RECORDS_SCHEMA))
    await beside.add("1", key3="same@example.com")
    (held,) = await stage_creates(pets, [sent(key3="same@example.com")], ["1"])
    await bind(pets, [(held, "1")])
    assert set(await beside.found()) == {"rules:person/1", "rules:pet/1"}
    assert beside.people.same_token("key3", Value("x", json=False)) != pets.same_token(
        "key3", Value("x", json=False)
    )


async def test_an_update_moves_what_stands_beside_the_body(beside: Beside) -> None:
    await beside.add("17", **ANN)
    (held,) = await stage_updates(
        beside.people, [("17", sent(key3="new@example.com", range_key1="no number"))]
    )
    await promote(beside.people, held, {})
    assert (await beside.found())["rules:person/17"] == {
        "record_key": "rules:person/17", "key3": "new@example.com", "body": "notes",
    }  # fmt: skip
    assert await beside.shelf.having("key3", "ann@example.com", RECORDS_SCHEMA) == []
    assert await beside.shelf.having("key3", "new@example.com", RECORDS_SCHEMA) == [
        "rules:person/17"
    ]


async def test_several_values_are_told_as_a_json_array(beside: Beside) -> None:
    several = Sent(
        {
            "body": (Value("a", json=False), Value('"b"', json=False)),
            "key3": (Value("x", json=False),),
        }
    )
    await stage_creates(beside.people, [several], [None])
    ((key, fields),) = (await beside.found()).items()
    assert (key, fields["body"], fields["key3"]) == (None, '["a","\\"b\\""]', "x")


async def test_callers_do_not_write_them(beside: Beside) -> None:
    await beside.add("17", **ANN)
    for key in ("rules:person/17", "rules:", "rules:anything"):
        with pytest.raises(VaultError) as caught:
            await store_records(
                beside.records,
                [RecordDraft(key, {"record_key": key})],
                "me",
                no_changes,
                on_existing="update",
            )
        assert caught.value.code is Code.SCHEMA_OF_RULES
    with pytest.raises(VaultError) as caught:
        await change_records(
            beside.records,
            [RecordDraft(None, {"key3": "ann@example.com"})],
            "me",
            no_changes,
            search_key="key3",
        )
    assert caught.value.code is Code.SCHEMA_OF_RULES


async def test_rows_that_were_made_for_another_definition_are_not_stored(beside: Beside) -> None:
    people = beside.people
    content = beside.people.sealer.open(await _row(beside))
    rid = people.context.sequence()
    row = people.new_row(content, rid, people.sealer.new_salt())
    await beside.shelf.catalog.declare_builtin(
        records_schema(RecordKeys(plain=frozenset(("key3",))))
    )
    with pytest.raises(Conflict):
        await people.store.commit(people.table, [Insert(row)])
    await people.store.commit(
        people.table, [Insert(people.new_row(content, rid, people.sealer.new_salt()))]
    )
    with pytest.raises(Conflict):  # nobody knows any more what it was made for
        await people.store.commit(people.table, [Insert(row._replace(rid=rid + 1))])
    await beside.shelf.catalog.settled(RECORDS_SCHEMA)
    await people.store.commit(people.table, [Remove(rid)])
    assert beside.shelf.reported == []


async def _row(beside: Beside) -> Row:
    await beside.add("17", **ANN)
    (row,) = (await beside.people.by_key(["17"])).values()
    return row


@pytest.mark.parametrize("back", [False, True])
async def test_a_migration_of_the_schema_takes_them_along(beside: Beside, back: bool) -> None:
    await beside.add("17", **ANN)
    catalog = beside.shelf.catalog
    await catalog.declare_builtin(
        records_schema(
            RecordKeys(plain=frozenset(("key3",)), partial_match=frozenset(("profile_key",)))
        )
    )
    await beside.add("18", key3="bo@example.com")
    await catalog.settled(RECORDS_SCHEMA)
    if back:
        await catalog.declare_builtin(records_schema())
        await beside.add("19", key3="carin@example.com")
        await catalog.settled(RECORDS_SCHEMA)
    rows = await beside.shelf.rows(RECORDS_SCHEMA)
    texts = {cell for row in rows for cell in row.cells if isinstance(cell, str)}
    assert ("ann@example.com" in texts, "bo@example.com" in texts) == (not back, not back)
    assert await beside.shelf.having("key3", "ann@example.com", RECORDS_SCHEMA) == [
        "rules:person/17"
    ]
    assert await beside.shelf.having("key3", "bo@example.com", RECORDS_SCHEMA) == [
        "rules:person/18"
    ]
    for row in rows:
        assert beside.records.cells(beside.records.open(row).fields) == row.cells
    assert beside.shelf.reported == []


async def test_what_is_pending_is_reaped_with_the_table(beside: Beside) -> None:
    await stage_creates(beside.people, [sent(**ANN)], [None])
    beside.people.state.in_flight.clear()
    beside.shelf.bench.clock.advance(100)
    assert await reap(beside.records.collection, 50) == 1
    assert await beside.found() == {}


async def test_of_rows_that_are_never_committed_some_are_remembered(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = beside.people
    content = people.sealer.open(await _row(beside))
    monkeypatch.setattr("proxy.vault.proxied.hosted._MOST_MADE", 2)
    rows = [
        people.new_row(content, people.context.sequence(), people.sealer.new_salt())
        for _ in range(3)
    ]
    with pytest.raises(Conflict):
        await people.store.commit(people.table, [Insert(rows[0])])
    await people.store.commit(people.table, [Insert(rows[2])])


async def test_files_are_those_of_the_schema(beside: Beside) -> None:
    hashed = beside.people.hash_name(b"cv.pdf")
    assert hashed == beside.records.collection.hash_name(b"cv.pdf")
    assert hashed != beside.shelf.bench.people.hash_name(b"cv.pdf")


async def test_a_new_value_with_the_token_of_the_one_before_stands_beside_the_body_too(
    beside: Beside,
) -> None:
    shapes = {**recipe().shapes, "key3": SHAPES["fixed"]({"value": "hidden"})}
    people = Hosted(
        recipe()._replace(shapes=shapes), "person", beside.shelf.catalog.host(RECORDS_SCHEMA)
    )
    alike = Beside(beside.shelf, people)
    await alike.add("17", **ANN)
    (held,) = await stage_updates(people, [("17", sent(key3="new@example.com", body=" notes"))])
    assert held.live is not None
    sent_on = {name: kept[0].token for name, kept in held.tokens.items()}
    assert sent_on == {name: held.live.values[name][0].token for name in held.tokens}
    await promote(people, held, {name: (token,) for name, token in sent_on.items()})
    fields = (await alike.found())["rules:person/17"]
    assert (fields["key3"], fields["body"]) == ("new@example.com", " notes")
    assert await beside.shelf.having("key3", "ann@example.com", RECORDS_SCHEMA) == []
    assert await beside.shelf.having("key3", "new@example.com", RECORDS_SCHEMA) == [
        "rules:person/17"
    ]
    versions, total = await record_versions(alike.records, "rules:person/17", 10, 0)
    assert (total, versions[0].fields) == (1, fields)
    store = beside.shelf.bench.store
    (row,) = (await people.by_key(["17"])).values()
    assert not (await store.staged(people.table, [row.rid])).get(row.rid)
    assert [kept.text for kept in people.sealer.open(row).values["key3"]] == ["new@example.com"], (
        "the other is gone"
    )


async def test_the_tokens_of_one_that_was_deleted_stand_for_no_value(beside: Beside) -> None:
    await beside.add("17", **ANN)
    (row,) = (await beside.people.by_key(["17"])).values()
    tokens = tuple(sorted(beside.people.sealer.open(row).value_tokens()))
    await delete_one(beside.records, "rules:person/17", "me", no_changes)
    for key in ("17", None):
        revealed = await reveal_objects(beside.people, [AnswerObject(key, tokens)])
        assert (revealed.values, revealed.rows) == ([[NO_VALUE] * len(tokens)], [None])
