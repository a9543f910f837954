from typing import Any

from proxy.model.record import Record
from proxy.vault.body import RecordBody, moved, next_eras
from proxy.vault.records.commit import nothing
from proxy.vault.records.update import update
from tests.support.contacts import contact, make_contacts


def before(fields: dict[str, Any], eras: Any = None) -> Record:
    return Record(1, "k", fields, 5, 0, 0, eras=eras)


def test_a_text_that_changes_begins_an_era_and_one_that_stays_keeps_its_own():
    was = before({"a": "1", "b": "2", "c": "3", "d": "4", "n": 5}, {"b": 3, "c": 4})
    after = {"a": "1", "b": "2", "c": "other", "d": None, "e": "new", "n": 6}
    assert next_eras(was, after, (), 6) == {"b": 3, "c": 6, "e": 6}


def test_a_text_that_is_written_unseen_begins_an_era_also_where_it_is_the_same():
    assert next_eras(before({"a": "1", "b": "2"}), {"a": "1", "b": "2"}, ("a",), 6) == {"a": 6}


def test_a_value_that_comes_back_does_not_bring_its_era():
    record, eras = before({"a": "A"}), []
    for version, value in enumerate("BABA", 2):
        found = next_eras(record, {"a": value}, (), version)
        eras.append(found["a"])
        record = before({"a": value}, found)
    assert eras == [2, 3, 4, 5]


def test_versions_that_move_get_eras_of_their_own_and_keep_what_stayed_the_same():
    documents = [
        RecordBody({"a": "x", "b": "y", "n": 5}),
        RecordBody({"a": "x", "b": "z"}, eras={"b": 2}),
        RecordBody({"a": "w", "b": "z"}, eras={"a": 3, "b": 2}),
    ]
    assert [document.eras for document in moved(documents, 11)] == [
        {"a": 11, "b": 11},
        {"a": 11, "b": 12},
        {"a": 13, "b": 12},
    ]
    assert [document.fields for document in moved(documents, 11)] == [
        document.fields for document in documents
    ]


async def test_a_new_record_stores_nothing_and_a_changed_one_what_changed():
    contacts = await make_contacts()
    (made,) = await contacts.add(contact("a", name="Ann", city="Lund", note="n"))
    row = await contacts.row("a")
    assert row is not None
    assert made.eras is None
    assert b'"e"' not in contacts.records.collection.sealer.open_plain(row)
    (changed,) = await update(
        contacts.records, [contact("a", name="Anna", city="Lund")], "x", nothing
    )
    found = await contacts.get("a")
    assert found is not None
    assert found.eras == changed.eras == {"name": 2}
