from typing import Any

from proxy.model.record import DEFAULTS, Record
from proxy.vault.records.find import PageAsker, page_of
from proxy.vault.records.prompt import page_at_once, question_of, record_at_once
from tests.support.contacts import contact, make_contacts
from tests.support.table import table

ROOM = 2**20


def shown(record: Record) -> bytes:
    return repr((record.key, record.fields)).encode()


async def test_an_engine_that_has_to_be_waited_for_is_left_to_the_general_way() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a", name="Ann"))
    records = contacts.records
    assert records.collection.store.at_once is None
    asked = question_of(records, {"options": {"limit": 5}}, DEFAULTS)
    assert asked is not None
    assert page_at_once(records, asked, ("client", shown), ROOM) is None
    assert record_at_once(records, "a", shown) is None


@table(
    "content, field",
    [
        ({}, ""),
        ({"filter": {}}, ""),
        ({"options": {"limit": 3, "offset": 1}}, ""),
        ({"filter": {"name": "Ann"}}, "name"),
        ({"filter": {"city": "Lund"}, "options": {}}, "city"),
        ([], None),
        ({"filter": None}, None),
        ({"filter": [], "options": {}}, None),
        ({"filter": "", "options": {}}, None),
        ({"filter": {"age": 3}}, None),
        ({"filter": {"age": "3"}}, None),
        ({"filter": {"name": "\0"}}, None),
        ({"filter": {"name": "Ann", "city": "Lund"}}, None),
        ({"filter": {"search_keys": "Ann"}}, None),
        ({"filter": {"record_key": "a"}}, None),
        ({"options": {"sort": [{"city": "asc"}]}}, None),
        ({"options": {"next": "x"}}, None),
        ({"options": {"limit": 0}}, None),
        ({"options": {"limit": 5, "sort": [{"city": "asc"}] * 30}}, None),
        ({"more": 1}, None),
    ],
)
async def test_questions_for_one_text_or_for_all_are_read_once(content: Any, field: Any) -> None:
    records = (await make_contacts()).records
    for _ in range(2):
        asked = question_of(records, content, DEFAULTS)
        assert (asked[0].field if asked else None) == field
        if asked and field:
            assert asked[1] == content["filter"][field]
    assert len(records.prepared) <= 1


async def test_few_shapes_are_kept() -> None:
    records = (await make_contacts()).records
    for number in range(1000):
        question_of(records, {"options": {"offset": number}}, DEFAULTS)
    assert len(records.prepared) <= 256


async def test_the_general_way_shows_the_same_page() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a", name="Ann"), contact("b", name="Bo"))
    asked = question_of(contacts.records, {"filter": {"name": "Bo"}}, DEFAULTS)
    assert asked is not None
    assert asked[0].column == contacts.records.column("name")
    found = await page_of(contacts.records, asked[0].query, DEFAULTS, PageAsker(shown, "client"))
    assert len(found.records) == 1
