import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import Record
from proxy.storage.changes import Remove, Replace
from proxy.vault.records.export_pages import export
from proxy.vault.records.find import PageAsker
from tests.support.contacts import contact as person
from tests.support.contacts import make_contacts


def whole(record: Record) -> Record:
    return record


CLIENT = PageAsker(whole, "client")


async def test_every_record_comes_once_in_the_order_of_age_whatever_happens_meanwhile() -> None:
    contacts = await make_contacts()
    await contacts.add(*(person(f"k{number}") for number in range(7)))
    records = contacts.records
    first = await export(records, None, 3, CLIENT)
    gone = next(record for record in first.records if record.key == "k1")
    await records.collection.store.commit(records.collection.table, [Remove(gone.rid)])
    await contacts.add(person("k7"))
    second = await export(records, first.next, 3, CLIENT)
    third = await export(records, second.next, 3, CLIENT)
    keys = [record.key for page in (first, second, third) for record in page.records]
    assert keys == [f"k{number}" for number in range(8)]
    assert third.next is None


async def test_a_cursor_belongs_to_its_client() -> None:
    contacts = await make_contacts()
    await contacts.add(person("a"), person("b"))
    page = await export(contacts.records, None, 1, CLIENT)
    assert page.next is not None
    for cursor, client in ((page.next, "other"), (page.next[:-2] + "xx", "client"), ("", "client")):
        with pytest.raises(VaultError) as caught:
            await export(contacts.records, cursor, 1, PageAsker(whole, client))
        assert caught.value.code is Code.INVALID_INPUT


async def test_a_record_that_does_not_open_is_counted_and_left_out() -> None:
    contacts = await make_contacts()
    await contacts.add(person("a"), person("b"))
    row = await contacts.row("a")
    assert row is not None
    damaged = row._replace(body=row.body[:-1] + bytes((row.body[-1] ^ 1,)))
    await contacts.store.commit(contacts.records.collection.table, [Replace(damaged, row.version)])
    page = await export(contacts.records, None, 10, CLIENT)
    assert ([record.key for record in page.records], page.unreadable) == (["b"], 1)
