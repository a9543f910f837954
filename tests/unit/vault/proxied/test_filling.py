"""Fields that rules make searchable when there are records already."""

import pytest

from proxy.errors import VaultError
from proxy.model.query import Equals, Like, Query, Test
from proxy.vault.proxied import Filling
from proxy.vault.records.find import find_page
from proxy.vault.records.repository import Records
from tests.support.exchanges import USUAL, Desk, desk

SEND = 'send: {param: ids, none: "-1"}'
SEARCH = (
    f"{{match: GET /p, read: p, query: {{n: {{field: name, via: vault, {SEND}}}, e: {{field: email, via: vault, {SEND}}}}}, "
    'response: {each: "$[*]", id: $.id}}'
)
BEFORE = ("name: {kind: name}", "email: {kind: email}")
AFTER = ("name: {kind: name, find: [partial]}", "email: {kind: email, find: [exact]}")


async def ids(one: Desk, query: str) -> str:
    return (await one.send(f"GET /p?{query}")).sent.target.decode().partition("=")[2]


def is_filling(one: Desk) -> bool:
    return bool(one.people.state.filling)


async def test_records_from_before_are_found_once_they_are_filled():
    faults: list[VaultError] = []
    old = await desk(USUAL[0], fields=BEFORE)
    for number in range(1, 251):
        await old.create({"name": f"Zorbina {number:03}", "email": f"z{number}@x.example"}, number)
    one = await desk(USUAL[0], SEARCH, *USUAL[2:], fields=AFTER, before=old)
    assert await ids(one, "n=bina%20117") == "-1", "not yet"
    filling = Filling(faults.append)
    await filling.begin(one.people)
    assert is_filling(one)
    tests: list[Test] = [Equals("email", ("z250@x.example",)), Like(("name",), "bina 250")]
    for test in tests:  # of the vault's interface, too
        with pytest.raises(VaultError, match="still making records ready"):
            await find_page(Records(one.people), Query((test,)))
    await filling.done()
    assert not is_filling(one)
    for test in tests:
        page = await find_page(Records(one.people), Query((test,)))
        assert [record.key for record in page.records] == ["250"]
    assert await ids(one, "n=bina%20117") == "117"
    assert await ids(one, "e=Z250@x.example") == "250"
    assert (await one.shown({"id": 3, "name": "x"}, "GET /p/3"))["id"] == 3
    await Filling(faults.append).begin(one.people)
    assert not is_filling(one), "done once and for all"
    await filling.close()
    assert faults == []


async def test_an_empty_table_needs_nothing_and_a_fault_of_the_store_is_tried_again():
    faults: list[VaultError] = []
    empty = await desk(USUAL[0], SEARCH, fields=AFTER)
    filling = Filling(faults.append)
    await filling.begin(empty.people)
    assert not empty.people.state.filling
    await empty.create({"name": "Zorbina"})
    assert await ids(empty, "n=orbi") == "1"
    plain = await desk(USUAL[0], fields=BEFORE)
    await filling.begin(plain.people)
    assert not plain.people.state.filling, "nothing is searched there"
    await filling.close()


async def test_what_no_longer_counts_is_stopped():
    old = await desk(USUAL[0], fields=BEFORE)
    await old.create({"name": "Zorbina"})
    one = await desk(USUAL[0], SEARCH, fields=AFTER, before=old)
    filling = Filling(lambda _: None)
    await filling.begin(one.people)
    await filling.begin(one.people)
    await filling.done()
    assert await ids(one, "n=orbi") == "1"
    await filling.close()


async def test_a_field_that_is_not_searched_in_part_any_more_leaves_nothing_in_the_index():
    old = await desk(USUAL[0], SEARCH, fields=AFTER)
    filling = Filling(lambda _: None)
    await filling.begin(old.people)
    await old.create({"name": "Zorbina", "email": "z@x.example"})
    exact = ("name: {kind: name, find: [exact]}", AFTER[1])
    one = await desk(USUAL[0], SEARCH, fields=exact, before=old)
    await filling.begin(one.people)
    await filling.done()
    assert await ids(one, "n=Zorbina") == "1"
    back = await desk(USUAL[0], SEARCH, fields=AFTER, before=one)
    assert await ids(back, "n=zorb") == "-1", "its entries went with the word"
    await filling.begin(back.people)
    await filling.done()
    assert await ids(back, "n=zorb") == "1"
    await filling.close()


async def test_a_table_that_other_fields_had_begun_to_fill_is_filled_again():
    """Rules lose their searches and get them back before the pass of the former has ended, or
    written how far it is: neither its records nor those that it has visited are missed.
    """
    filling = Filling(lambda _: None)
    one = await desk(USUAL[0], SEARCH, fields=AFTER)
    await filling.begin(one.people)
    for number in range(1, 251):
        await one.create({"name": f"Zorbina {number:03}", "email": f"z{number}@x.example"}, number)
    lost = await desk(USUAL[0], fields=BEFORE, before=one)
    await filling.begin(lost.people)
    assert one.people.outdated == {"name", "email"}, "rules of before may still be at work"
    await lost.create({"name": "Zorbina 251", "email": "z251@x.example"}, 251)
    again = await desk(USUAL[0], SEARCH, fields=AFTER, before=lost)
    await filling.begin(again.people)
    await filling.done()
    assert not is_filling(again)
    assert not [each for each in (one, lost, again) if each.people.outdated]
    for number in (1, 101, 250, 251):
        assert await ids(again, f"n=bina%20{number:03}") == str(number)
        assert await ids(again, f"e=z{number}@x.example") == str(number)
    await filling.close()
