import threading
from decimal import Decimal
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.filter_reader import read_find
from proxy.model.record import DEFAULTS, Record
from proxy.storage.changes import Attach, Insert, Remove, Replace
from proxy.storage.rows import Row, RowState
from proxy.vault.attachment_content import StoredContent
from proxy.vault.body import RecordBody
from proxy.vault.body import TokenizedValue as Value
from proxy.vault.collection import LONG
from proxy.vault.records.attachment_metadata import Label, file_of, new_id
from proxy.vault.records.find import (
    PAGE_TRIES,
    FoundPage,
    PageAsker,
    find_page,
    page_of,
    record_of_key,
)
from proxy.vault.records.query import PartialMatch
from proxy.vault.records.repository import Records
from tests.support.contacts import CONTACT, Contacts, contact, make_contacts
from tests.support.memory import MemoryStore
from tests.support.stores import FailingStore
from tests.support.table import table
from tests.support.vaults import make_bench


async def ask(contacts: Contacts, where: Any, **options: Any) -> FoundPage[Any]:
    return await find_page(
        contacts.records, read_find(CONTACT, {"filter": where, "options": options}, DEFAULTS)
    )


async def keys(contacts: Contacts, where: Any, **options: Any) -> list[str | None]:
    found = await ask(contacts, where, **options)
    return [record.key for record in found.records]


async def people() -> Contacts:
    contacts = await make_contacts()
    await contacts.add(
        contact(
            "a", name="Ann Ek", city="Umeå", age=3, sum=Decimal("1.5"), extra={"tags": ["x", "y"]}
        ),
        contact("b", name="Bo Ek", city="Lund", age=1, extra={"tags": ["x"], "n": 5}),
        contact("c", name="Cy Alm", city=None, age=2),
        contact("d", city="Umeå", age=None, expires_at=contacts.clock() + 10),
    )
    return contacts


def rendered(record: Record) -> list[object]:
    """What a page shows of a record; the same function for all."""
    return [record.key, record.fields.get("name"), [one.filename for one in record.attachments]]


class Pages:
    """Pages of the same question, and how often a row was opened for them."""

    def __init__(self, contacts: Contacts, patch: pytest.MonkeyPatch) -> None:
        self.contacts, self.opens = contacts, list[int]()
        opening = Records.open

        def counted(records: Records, row: Row) -> Record:
            self.opens.append(row.rid)
            return opening(records, row)

        patch.setattr(Records, "open", counted)

    async def shown(self, *, alike: bool = True) -> list[list[object]]:
        query = read_find(CONTACT, {"filter": {}, "options": {"limit": 10}}, DEFAULTS)
        asker = PageAsker(rendered, "me", alike=alike)
        return (await page_of(self.contacts.records, query, DEFAULTS, asker)).records


TWO = [["a", "Ann", []], ["b", "Bo", []]]


@pytest.fixture
async def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    contacts = await make_contacts()
    await contacts.add(contact("a", name="Ann"), contact("b", name="Bo"))
    return Pages(contacts, monkeypatch)


async def test_a_page_opens_only_what_it_has_not_shown_lately(pages):
    assert [await pages.shown() for _ in range(3)] == [TWO] * 3
    assert len(pages.opens) == 2
    assert await pages.shown(alike=False) == TWO  # by a renderer of this caller
    assert len(pages.opens) == 4


async def test_a_page_shows_changes_and_removals_at_once(pages):
    await pages.shown()
    contacts, table = pages.contacts, pages.contacts.records.collection.table
    row = await contacts.row("a")
    changed = contacts.records.collection.next_row(
        row, RecordBody(fields={"id": "a", "name": "Eve"})
    )
    await contacts.records.collection.store.commit(table, [Replace(changed, row.version)])
    assert await pages.shown() == [["a", "Eve", []], TWO[1]]
    await contacts.records.collection.store.commit(table, [Remove(row.rid)])
    memory = contacts.records.collection.opened
    assert row.rid not in {
        rid for half in (memory._young, memory._old) for one in half.values() for rid in one
    }
    assert await pages.shown() == TWO[1:]


async def test_a_page_counts_what_a_foreign_program_touched_as_unreadable(pages):
    await pages.shown()
    row = await pages.contacts.row("a")
    rows = pages.contacts.store._tables[pages.contacts.records.collection.table].rows
    rows[row.rid] = rows[row.rid]._replace(created_at=7)
    assert await pages.shown() == TWO[1:]
    assert pages.contacts.events["tampered"] == 1


async def test_a_page_shows_attachments_of_what_it_has_shown_lately(pages):
    await pages.shown()
    contacts, row = pages.contacts, await pages.contacts.row("a")
    kept = StoredContent(new_id().hex() + "0" * 16, b"s" * 16, 5, "ab" * 32)
    file = file_of(contacts.records.collection, row, kept, Label("cv.pdf", "text/plain"))
    await contacts.store.commit(contacts.records.collection.table, [Attach(file)])
    assert [await pages.shown() for _ in range(2)] == [[["a", "Ann", ["cv.pdf"]], TWO[1]]] * 2


@table("where", [{"id": "a"}, {"city": "Umeå"}])
async def test_records_come_with_their_attachments(where):
    contacts = await people()
    row = await contacts.row("a")
    assert row is not None
    kept = StoredContent(new_id().hex() + "0" * 16, b"s" * 16, 5, "ab" * 32)
    file = file_of(contacts.records.collection, row, kept, Label("cv.pdf", "text/plain"))
    await contacts.store.commit(contacts.records.collection.table, [Attach(file)])
    found = (await ask(contacts, where)).records
    assert [[attachment.filename for attachment in record.attachments] for record in found] == [
        ["cv.pdf"],
        [],
    ][: len(found)]


async def test_one_key_is_looked_up_and_not_searched_for() -> None:
    store = FailingStore(MemoryStore())
    contacts = await make_contacts(store)
    (made,) = await contacts.add(contact("a", name="Ann"))
    assert await ask(contacts, {"record_key": ["a"]}) == FoundPage([made], 1, 0)
    assert await ask(contacts, {"id": "a"}, offset=1) == FoundPage([], 1, 0)
    assert await ask(contacts, {"id": "z"}) == FoundPage([], 0, 0)
    assert "select" not in store.calls


async def spoil(contacts: Contacts, key: str) -> None:
    row = await contacts.row(key)
    assert row is not None
    spoiled = Replace(row._replace(body=row.body[:-1] + bytes((row.body[-1] ^ 1,))), row.version)
    await contacts.store.commit(contacts.records.collection.table, [spoiled])


async def test_a_row_that_does_not_open_is_left_out_and_counted_but_an_error_when_asked_for_alone() -> (
    None
):
    contacts = await people()
    await spoil(contacts, "b")
    found = await ask(contacts, {})
    assert ([record.key for record in found.records], found.total, found.unreadable) == (
        ["a", "c", "d"],
        4,
        1,
    )
    with pytest.raises(VaultError) as caught:
        await ask(contacts, {"id": "b"})
    assert caught.value.code is Code.CANNOT_OPEN


async def collected() -> Records:
    """What the proxy has collected of three people of an application."""
    people = (await make_bench()).people
    for number, (email, born) in enumerate(
        [("Ann@Example.org", "1980-01-31"), ("bo@example.org", "31.12.1979"), ("", "")]
    ):
        fields = {"email": email, "born": born, "tags": "x"}
        kept: dict[str, tuple[Value, ...]] = {
            name: (Value(1, text, False, name, False),) for name, text in fields.items() if text
        }
        row = people.new_row(RecordBody(kept), number + 1, bytes(16))._replace(state=RowState.LIVE)
        sealed = people.sealer.record(row.rid, row.salt).key(f"{number}", row.updated_at)
        await people.store.commit(
            people.table,
            [Insert(row._replace(key=people.key_hash(f"{number}"), key_sealed=sealed))],
        )
    return Records(people)


@table(
    ("where", "expected"),
    [
        ({"email": "ANN@example.org"}, "0"),
        ({"email": {"$not": "ann@example.org"}}, "12"),
        ({"born": "1979-12-31"}, "1"),
        ({"born": {"$like": "19"}}, "01"),
        ({"search_keys": "1980"}, "0"),
        ({"record_key": ["2", "1"]}, "12"),
        ({"record_key": "2"}, "2"),
        ({"email": None}, "2"),
    ],
)
async def test_what_the_proxy_has_collected_is_found_by_the_normal_form_of_its_kind(
    where, expected
):
    records = await collected()
    query = read_find(
        records.schema, {"filter": where, "options": {"sort": [{"created_at": "asc"}]}}, DEFAULTS
    )
    assert (
        "".join(str(record.key) for record in (await find_page(records, query)).records) == expected
    )


async def test_a_record_that_changes_while_it_is_looked_at_is_looked_at_again(monkeypatch) -> None:
    contacts = await people()
    answers = [True, False]
    monkeypatch.setattr(
        PartialMatch, "holds", lambda _look, _record: answers.pop(0) if answers else True
    )
    assert await keys(contacts, {"name": {"$like": "nn ek"}}) == ["a"]


async def test_records_that_never_rest_are_a_conflict() -> None:
    contacts = await people()
    seen: list[bool] = []

    def holds(_look: PartialMatch, _record: object) -> bool:
        seen.append(not seen or not seen[-1])
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartialMatch, "holds", holds)
        with pytest.raises(VaultError) as caught:
            await ask(contacts, {"name": {"$like": "nn ek"}})
    assert caught.value.code is Code.CONFLICT
    assert len(seen) == 2 * PAGE_TRIES


async def test_long_records_are_rendered_by_a_thread(pages):
    await pages.contacts.add(contact("c", name="C" * LONG))
    records, here, names = pages.contacts.records, threading.get_ident(), list[object]()
    on_the_loop: dict[str | None, bool] = {}

    def shown(record: Record) -> object:
        on_the_loop[record.key] = threading.get_ident() == here
        return rendered(record)

    query = read_find(CONTACT, {"filter": {}, "options": {"limit": 10}}, DEFAULTS)
    await page_of(records, query, DEFAULTS, PageAsker(shown))
    assert on_the_loop == {"a": True, "b": True, "c": False}
    on_the_loop.clear()
    for key in "ac":
        found = await record_of_key(records, key, DEFAULTS, shown)
        assert found is not None
        names.append(found[0].fields["name"])
    assert names == ["Ann", "C" * LONG]
    assert on_the_loop == {"a": True, "c": False}
