from collections.abc import Sequence

import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import Action, Record, RecordDraft
from proxy.vault.records.commit import nothing
from proxy.vault.records.repository import Records
from proxy.vault.records.update import Sources, clone
from tests.support.contacts import Contacts, contact, make_contacts
from tests.support.vaults import make_bench


def these(records: Sequence[Record]) -> Sources:
    async def sources(limit: int) -> list[Record]:
        return list(records[:limit])

    return sources


async def refused(
    contacts: Contacts, found: Sequence[Record], update_with: RecordDraft
) -> VaultError:
    with pytest.raises(VaultError) as caught:
        await clone(contacts.records, these(found), update_with, "x", nothing)
    return caught.value


async def test_a_copy_is_a_new_record_with_other_values_where_they_are_given() -> None:
    contacts = await make_contacts()
    ends = contacts.clock() + 1000
    source = await contacts.add(contact("a", name="Ann", city="Umeå", note="n", expires_at=ends))
    contacts.clock.advance(5)
    (copy,) = await clone(
        contacts.records, these(source), contact("b", city=None, note="m"), "cloner", nothing
    )
    assert copy.fields == {"id": "b", "name": "Ann", "city": None, "note": "m"}
    assert (copy.version, copy.action, copy.by, copy.expires_at) == (
        1,
        Action.CREATE,
        "cloner",
        ends,
    )
    assert copy.created_at == copy.updated_at == contacts.clock()
    assert copy.rid != source[0].rid
    assert [await contacts.get("a"), await contacts.get("b")] == [source[0], copy]
    (lasting,) = await clone(
        contacts.records, these(source), contact("c", expires_at=None), "x", nothing
    )
    assert lasting.expires_at is None


async def test_one_key_serves_one_copy() -> None:
    contacts = await make_contacts()
    found = await contacts.add(contact("a"), contact("b"))
    error = await refused(contacts, found, contact("c", at="/update_with"))
    assert (error.code, error.details[0].source) == (Code.UNPROCESSABLE, "/update_with/id")
    error = await refused(contacts, found[:1], contact(None, age=1, at="/update_with"))
    assert (error.code, error.details[0].source) == (Code.UNPROCESSABLE, "/update_with/id")
    assert (await refused(contacts, [], contact("c"))).code is Code.NO_MATCH
    error = await refused(contacts, found[:1], contact("b", at="/update_with"))
    assert (error.code, error.details[0].source) == (Code.RECORD_EXISTS, "/update_with/id")
    assert await contacts.keys("a", "b", "c") == ["a", "b"]


async def test_records_of_rules_are_refused() -> None:
    bench = await make_bench()
    with pytest.raises(VaultError) as caught:
        await clone(Records(bench.people), these([]), contact("a"), "x", nothing)
    assert caught.value.code is Code.SCHEMA_OF_RULES
