"""What an earlier version has sealed is read, sealed again in the background, and refused after."""

import pytest

from proxy.crypto.keyset import Keyset
from proxy.storage.rows import Row
from proxy.vault.proxied.binding import accept
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import stage_creates, stage_deletes, stage_updates
from proxy.vault.seal import Tampered
from tests.support.contacts import contact, make_contacts
from tests.support.memory import MemoryStore
from tests.support.older import older_change, older_row, put_back, put_back_change
from tests.support.vaults import Bench, draft, make_bench


async def rows_of(bench: Bench) -> list[Row]:
    return await bench.store.scan(bench.people.table, 0, 100)


async def older_bench() -> tuple[Bench, Bench]:
    """A vault that an earlier version has filled with a bound record that has an update and a
    delete in doubt, one that waits, and one without a name; and the vault as that version left it.
    """
    store, keyset = MemoryStore(), Keyset.create("test")
    before = await make_bench(store, keyset)
    people = before.people
    for name in ("Ann", "Bo", "Cy"):
        (held,) = await stage_creates(
            people, [draft(name=name, email=f"{name}@example.org")], [None]
        )
        if name == "Ann":
            await bind(people, [(held, "1")])
            await stage_updates(people, [("1", draft(name="Anna"))])
            await stage_deletes(people, ["1"])
        elif name == "Bo":
            await accept(people, [held])
    rows = await rows_of(before)
    staged = (await store.staged(people.table, [rows[0].rid]))[rows[0].rid]
    changes = [put_back(row, older_row(people.sealer, row)) for row in rows]
    changes += [
        put_back_change(one, older_change(people.sealer, one, rows[0].salt)) for one in staged
    ]
    await store.commit(people.table, changes)
    await store.drop_notes("columns:test")
    return before, await make_bench(store, keyset)


async def test_what_an_earlier_version_has_sealed_is_read_and_sealed_again() -> None:
    _, after = await older_bench()
    people = after.people
    assert after.people.sealer.columns.required is False
    older = await rows_of(after)
    names = [people.sealer.open(row).values["name"][0].text for row in older]
    assert names == ["Ann", "Bo", "Cy"]
    for _ in range(2):  # the second walk finds nothing any more
        await after.vault.maintain()
    assert people.sealer.columns.required
    again = await rows_of(after)
    assert [row._replace(body=b"", key_sealed=b"") for row in again] == [
        row._replace(body=b"", key_sealed=b"") for row in older
    ]
    assert [people.sealer.open_with_key(row)[1] for row in again] == ["1", None, None]
    staged = (await after.store.staged(people.table, [again[0].rid]))[again[0].rid]
    opened = [people.sealer.open_staged(one, again[0].salt) for one in staged]
    assert [one and one.values["name"][0].text for one in opened] == ["Anna", None]


async def test_what_binds_nothing_is_refused_once_everything_does() -> None:
    before, after = await older_bench()
    older = await rows_of(after)
    staged = (await after.store.staged(after.people.table, [older[0].rid]))[older[0].rid]
    for _ in range(2):
        await after.vault.maintain()
    for bench in (after, await make_bench(after.store, before.vault.keyset)):
        for row in older:
            with pytest.raises(Tampered):
                bench.people.sealer.open_with_key(row)
        for change in staged:
            with pytest.raises(Tampered):
                bench.people.sealer.open_staged(change, older[0].salt)


async def test_a_new_vault_requires_it_from_the_first_record_on() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a"))
    sealer = contacts.records.collection.sealer
    (row,) = await contacts.store.scan(contacts.records.collection.table, 0, 10)
    assert sealer.columns.required
    with pytest.raises(Tampered):
        sealer.open(older_row(sealer, row))
    assert await contacts.store.note("columns:test") is not None
