from decimal import Decimal
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import Action, Record, Rehashed
from proxy.model.schema import Value
from proxy.vault.body import (
    RecordBody,
    TokenizedValue,
    changed,
    moved,
    next_eras,
    next_generation,
    pack,
    unpack,
)
from proxy.vault.records.commit import no_changes
from proxy.vault.records.update import change_records
from tests.support.contacts import contact, make_contacts
from tests.support.table import table


def kept(number: int, text: str, token: str) -> TokenizedValue:
    return TokenizedValue(number, text, False, token, False)


VALUES: dict[str, tuple[TokenizedValue, ...]] = {
    "email": (kept(1, "ann@example.com", "t1"), kept(2, "ä\u2028\x00", "t2"))
}
FIELDS = {
    "a": "ä",
    "b": 2**63 - 1,
    "c": Decimal("0.0001"),
    "d": None,
    "e": {"x": [1, Decimal("1.50"), True]},
}


@table(
    "body",
    [
        RecordBody(),
        RecordBody(VALUES, 3),
        RecordBody({"email": ()}, 9),
        RecordBody(fields=FIELDS),
        RecordBody(fields=FIELDS, action=Action.UPDATE, by="client", at=5),
        RecordBody(VALUES, 3, FIELDS, Action.DELETE, "client", 5, key="17"),
        RecordBody(VALUES, 3, at=5),
        RecordBody(
            fields=FIELDS,
            tokens={"a": Rehashed(b"\x00\xff", "t", True, True, "job", ("old",))},
            eras={"a": 3, "f": [4, 5]},
        ),
    ],
)
def test_unpack_gives_back_what_pack_was_given(body: RecordBody) -> None:
    assert unpack(pack(body)) == body


def test_a_decimal_keeps_its_digits_and_never_goes_through_binary_floating_point() -> None:
    body = RecordBody(fields={"sum": Decimal("999999999999.9999")})
    assert b"999999999999.9999" in pack(body)


@table("plain", [b"", b"\x01", b"[1]", b"\x93\x80\x01\x00"])
def test_a_format_of_a_newer_version_does_not_open(plain: bytes) -> None:
    with pytest.raises(VaultError) as refused:
        unpack(plain)
    assert refused.value.code is Code.CANNOT_OPEN


def test_a_kept_value_knows_both_its_faces() -> None:
    stored = TokenizedValue(1, "12.50", True, "98.41", True)
    assert stored.value == Value("12.50", json=True)
    assert stored.stands_for == Value("98.41", json=True)


def test_changed_names_fields_that_differ_in_tokens_or_in_presence() -> None:
    old = {"a": (kept(1, "x", "t1"),), "b": (kept(2, "y", "t2"),)}
    new = {"a": (kept(1, "x", "t1"),), "b": (kept(3, "z", "t3"),), "c": (kept(4, "w", "t4"),)}
    assert changed(old, new) == {"b", "c"}
    assert changed(old, {"a": old["a"]}) == {"b"}


def test_following_is_the_highest_of_all_versions_and_one_for_none() -> None:
    assert next_generation([RecordBody({}, 4), RecordBody({}, 9)]) == 9
    assert next_generation([]) == 1


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
        RecordBody(fields={"a": "x", "b": "y", "n": 5}),
        RecordBody(fields={"a": "x", "b": "z"}, eras={"b": 2}),
        RecordBody(fields={"a": "w", "b": "z"}, eras={"a": 3, "b": 2}),
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
    assert contacts.records.collection.sealer.open(row).eras is None
    (changed,) = await change_records(
        contacts.records, [contact("a", name="Anna", city="Lund")], "x", no_changes
    )
    found = await contacts.get("a")
    assert found is not None
    assert found.eras == changed.eras == {"name": 2}
