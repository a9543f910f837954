from decimal import Decimal
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.filter_reader import read_filter
from proxy.model.query import AnyOf, Query, Test
from proxy.model.record import DEFAULTS
from proxy.model.rights import FULL, Rights
from proxy.storage.query import MATCH_ALL
from proxy.vault.records.find import find_page
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import RowPolicyCheck, permitted_rows
from tests.support.audit import audit_context
from tests.support.contacts import Contacts, contact, make_contacts
from tests.support.table import table

DRAFTS = (
    contact("a", name="Ann", city="Umeå", age=5, sum=Decimal("1.5"), extra={"tags": ["x", "y"]}),
    contact("b", name="ＢＯ", city="umeå norr", age=None, sum=Decimal(2), extra={"tags": "x"}),
    contact("c", name=None, age=7),
)


def narrowed(records: Records, *tests: Test) -> Records:
    return records.under(Rights(FULL.actions, records.schema, rows=tests), None, audit_context())


def narrowing(contacts: Contacts, wanted: Any) -> tuple[Test, ...]:
    return read_filter(contacts.records.schema, wanted, DEFAULTS)


@table(
    "wanted, keys",
    [
        ({"record_key": ["a", "c"]}, "ac"),
        ({"name": "ann"}, ""),
        ({"name": "BO"}, "b"),
        ({"name": None}, "c"),
        ({"name": {"$not": "Ann"}}, "bc"),
        ({"city": {"$like": "UMEÅ"}}, "ab"),
        ({"city": {"$not": {"$like": "norr"}}}, "ac"),
        ({"age": {"$gte": 5, "$lt": 7}}, "a"),
        ({"sum": {"$gt": Decimal("1.5")}}, "b"),
        ({"sum": [Decimal("1.50"), 2]}, "ab"),
        ({"version": 1}, "abc"),
        ({"version": {"$gt": 1}}, ""),
        ({"extra": {"$.tags": "x"}}, "ab"),
        ({"extra": {"$.tags": ["x", "y"]}}, "a"),
        ({"$or": [{"name": "Ann"}, {"city": None}], "age": {"$gt": 5}}, "c"),
    ],
)
async def test_rows_are_looked_at_as_engines_answer(wanted: Any, keys: str):
    contacts = await make_contacts()
    await contacts.add(*DRAFTS)
    tests = narrowing(contacts, wanted)
    records = narrowed(contacts.records, *tests)
    found = [record.key for record in (await find_page(records, Query())).records]
    rows = {key: await contacts.row(key) for key in "abc"}
    within = RowPolicyCheck(records)
    opened = {key: contacts.records.open(row) for key, row in rows.items() if row is not None}
    for look in (
        [key for key, row in rows.items() if row is not None and within.open(row) is not None],
        [
            key
            for key, row in rows.items()
            if row is not None and within.written(row, opened[key].fields)
        ],
        [key for key, record in opened.items() if within.holds(record)],
    ):
        assert look == found == list(keys)


async def test_without_rows_everything_is_there_and_nothing_is_asked():
    contacts = await make_contacts()
    assert permitted_rows(contacts.records) is MATCH_ALL
    row = contacts.records.new_row("a", {"id": "a"}, 1, "x", None)
    assert RowPolicyCheck(contacts.records).holds_row(row._replace(body=b"does not open"))
    RowPolicyCheck(contacts.records).refuse(row, {}, "")


async def test_a_row_that_would_have_to_be_opened_and_does_not_open_is_not_there():
    contacts = await make_contacts()
    row = contacts.records.new_row("a", {"id": "a", "extra": {"a": 1}}, 1, "x", None)
    within = RowPolicyCheck(narrowed(contacts.records, *narrowing(contacts, {"extra": {"$.a": 1}})))
    assert within.open(row) is not None
    assert not within.holds_row(row._replace(body=row.body[:-1] + bytes((row.body[-1] ^ 1,))))


async def test_what_would_not_be_there_is_refused_where_it_stands():
    contacts = await make_contacts()
    records = narrowed(
        contacts.records,
        AnyOf((narrowing(contacts, {"city": "Umeå"}), narrowing(contacts, {"age": 5}))),
    )
    row = records.new_row("a", {"id": "a", "age": 6}, 1, "x", None)
    with pytest.raises(VaultError) as refused:
        RowPolicyCheck(records).refuse(row, {"id": "a", "age": 6}, "/3")
    assert (refused.value.code, refused.value.details[0].source) == (Code.ACCESS_DENIED, "/3")


async def test_a_record_of_several_values_counts_by_its_first():
    contacts = await make_contacts()
    (made,) = await contacts.add(contact("a", name="Ann"))
    record = type(made)(made.rid, "a", {"id": "a", "name": ["Ann", "Bo"]}, 1, 0, 0)
    assert RowPolicyCheck(narrowed(contacts.records, *narrowing(contacts, {"name": "Ann"}))).holds(
        record
    )
    assert not RowPolicyCheck(
        narrowed(contacts.records, *narrowing(contacts, {"name": "Bo"}))
    ).holds(record)
