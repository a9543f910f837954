"""Everything comes under another hash root, is found before, meanwhile and afterwards, and no hash
under the older root stays anywhere.
"""

import sqlite3
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import RECORDS_SCHEMA, records_schema
from proxy.storage.rows import TableLayout
from proxy.vault.environments import load_keyset
from proxy.vault.maintenance.hash_moves import rooted_tables
from proxy.vault.proxied.hosted import Hosted
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import promote, stage_creates, stage_updates
from proxy.vault.records.commit import no_changes
from proxy.vault.records.delete import delete_one
from proxy.vault.records.history import record_versions
from proxy.vault.schema_store import forget_schema, placed_schemas
from proxy.vault.schemas.catalog import open_catalog
from tests.support.rerooting import House, fill, hash_house
from tests.support.vaults import draft, person, token
from tests.unit.vault.proxied.test_hosted import recipe, sent

__all__ = ["hash_house"]


async def test_everything_is_found_before_meanwhile_and_afterwards_and_no_older_hash_stays(
    house: House,
) -> None:
    files = await fill(house)
    answers, before, entries = await house.answers(), house.digests(), house.entries()
    versions = len((await record_versions(house.records, "r2", 10, 0))[0])
    await house.rotate()
    assert await house.answers() == answers
    assert len((await record_versions(house.records, "r2", 10, 0))[0]) == versions
    assert len((await record_versions(house.records, "r69", 10, 0))[0]) == 2
    await house.finish()
    assert (house.digests() & before, house.entries()) == (set(), entries)
    assert (house.dropped, len(house.keyset.hash_roots)) == (1, 1)
    assert await house.answers() == answers
    assert len((await record_versions(house.records, "r2", 10, 0))[0]) == versions
    assert len((await record_versions(house.records, "r69", 10, 0))[0]) == 2
    assert [one.filename for one in await files.of("r1")] == ["cv.pdf"]
    with pytest.raises(VaultError) as caught:
        await files.add(b"other", "cv.pdf", "r1")
    assert caught.value.code is Code.FILE_EXISTS
    again = await load_keyset(house.contacts.store, house.master, "test")
    assert again.hash_roots == house.keyset.hash_roots


async def test_what_the_proxy_collects_resolves_before_meanwhile_and_afterwards(
    house: House,
) -> None:
    people = await house.vault.collection(person())
    values = {"name": "Ann", "email": "ann@example.com", "phone": "+46701234567"}
    (made,) = await stage_creates(people, [draft(**values)], [None])
    await bind(people, [(made, "1")])
    (waiting,) = await stage_creates(people, [draft(**values)], [None])
    (update,) = await stage_updates(people, [("1", draft(phone="+46709999999"))])
    shown = {name: token(made, name) for name in values}
    newer = token(update, "phone")

    async def restored() -> list[Any]:
        items = [
            AnswerObject("1", tuple(shown.items())),
            AnswerObject(None, (("phone", shown["phone"]),)),
            AnswerObject(None, (("phone", newer),)),
            AnswerObject(None, (("phone", token(waiting, "phone")),)),
        ]
        found = (await reveal_objects(people, items)).values
        return [[None if value is None else value.text for value in row] for row in found]

    expected = [list(values.values()), ["+46701234567"], ["+46709999999"], ["+46701234567"]]
    assert await restored() == expected
    before = house.digests()
    await house.rotate()
    assert await restored() == expected
    (late,) = await stage_creates(people, [draft(**values)], [None])
    await house.finish()
    after = house.digests()
    assert not after & before
    assert await restored() == expected
    await bind(people, [(waiting, "2"), (late, "3")])
    assert sorted(await people.by_key(["1", "2", "3"])) == ["1", "2", "3"]


async def test_so_do_earlier_values_that_a_rule_keeps(house: House) -> None:
    people = await house.vault.collection(person()._replace(keeps=True))
    (first,) = await stage_creates(people, [draft(phone="+46701234567")], [None])
    await bind(people, [(first, "1")])
    (update,) = await stage_updates(people, [("1", draft(phone="+46709999999"))])
    await promote(people, update, {})
    before = house.digests()

    async def restored() -> list[Any]:
        items = [AnswerObject(None, (("phone", token(one, "phone")),)) for one in (first, update)]
        return [row[0] and row[0].text for row in (await reveal_objects(people, items)).values]

    assert await restored() == ["+46701234567", "+46709999999"]
    await house.rotate()
    await house.finish()
    assert not house.digests() & before
    assert await restored() == ["+46701234567", "+46709999999"]


async def test_so_does_what_it_collects_among_records_of_callers(house: House) -> None:
    catalog = await open_catalog(house.vault, house.reported.append, [records_schema()])
    people = Hosted(recipe(), "person", catalog.host(RECORDS_SCHEMA))
    drafts = [sent(key3="ann@example.com", spare=key) for key in ("17", "18")]
    (first, made) = await stage_creates(people, drafts, ["17", "18"])
    await bind(people, [(first, "17"), (made, "18")])
    tokens = {name: token(made, name) for name in made.tokens}
    ((_, row),) = (await people.by_key(["17"])).items()
    gone = {(name, of[0].token) for name, of in people.sealer.open(row).values.items()}
    await delete_one(catalog.records(RECORDS_SCHEMA), "rules:person/17", "chief", no_changes)

    async def restored() -> list[list[Any]]:
        items = [AnswerObject(None, tuple(tokens.items())), AnswerObject("17", tuple(sorted(gone)))]
        return (await reveal_objects(people, items)).values

    expected = await restored()
    assert None not in [*expected[0], *expected[1]]
    before = house.digests()
    await house.rotate()
    assert await restored() == expected
    await house.finish()
    assert not house.digests() & before
    assert await restored() == expected
    await catalog.close()


@pytest.mark.parametrize("late", [False, True])
async def test_a_schema_that_another_replica_removes_meanwhile_is_not_made_again(
    house: House, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    people, store = await house.vault.collection(person()), house.contacts.store
    make, removals = store.ensure, [people.table]

    async def remove() -> None:
        for table in removals:
            await forget_schema(store, "test", table)
            await store.drop(table)
        removals.clear()

    async def ensure(layout: TableLayout) -> None:
        """It is removed after it was found in the registry."""
        if layout.table in removals:
            await remove()
        await make(layout)

    walk = rooted_tables(house.vault)
    first = await anext(walk)
    assert first.name == house.records.collection.table, "the other one is behind it"
    if late:
        monkeypatch.setattr(store, "ensure", ensure)
    else:
        await remove()
    assert [table.name async for table in walk] == []
    assert people.name not in await placed_schemas(store, "test")
    with sqlite3.connect(house.path) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    assert f"r_{first.name}" in names
    assert f"r_{people.table}" not in names
